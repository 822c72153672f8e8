/* topology.c: see topology.h. */
#include "trainer/dist/topology.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- making */

/* The number of the host that is the same as hosts[rank]. Neighbouring ranks are mostly on one host
 * or on neighbouring ones, so the search begins at the last rank's. A new host is `n_host`. */
static int32_t find_host(const fm_topology *t, const fm_host *hosts, int32_t rank) {
    const int32_t start = rank ? t->rank[rank - 1].host : 0;
    for (int32_t i = 0; i < t->n_host; i++) {
        const int32_t number = (start + i) % t->n_host;
        if (!memcmp(hosts[t->host[number].leader].id, hosts[rank].id, FM_HOST_ID_BYTES)) {
            return number;
        }
    }
    return t->n_host;
}

fm_status fm_topology_make(const fm_host *hosts, int32_t n_rank, fm_topology *ret_topology,
                           fm_error *reterr) {
    assert(n_rank >= 1);
    fm_topology t = {.n_rank = n_rank,
                     .rank = calloc((size_t)n_rank, sizeof *t.rank),
                     .host = calloc((size_t)n_rank, sizeof *t.host)};
    if (!t.rank || !t.host) {
        fm_topology_free(&t);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the hosts of %d ranks", (int)n_rank);
    }
    for (int32_t r = 0; r < n_rank; r++) {
        const int32_t number = find_host(&t, hosts, r);
        fm_topology_host *host = &t.host[number];
        if (number == t.n_host) {
            t.n_host++;
            host->leader = r;
            memcpy(host->name, hosts[r].name, sizeof host->name);
            host->name[sizeof host->name - 1] = '\0';
        }
        t.rank[r] = (fm_topology_rank){.host = number, .place = host->size++};
    }
    *ret_topology = t;
    return FM_OK;
}

void fm_topology_free(fm_topology *topology) {
    free(topology->rank);
    free(topology->host);
    *topology = (fm_topology){0};
}

const char *fm_topology_name_rank(const fm_topology *topology, int32_t rank,
                                  char out[FM_TOPOLOGY_NAME_BYTES]) {
    snprintf(out, FM_TOPOLOGY_NAME_BYTES, "rank %d on %s", (int)rank,
             topology->host[topology->rank[rank].host].name);
    return out;
}

/* -- groups */

fm_group_sets fm_layout_sets(const fm_layout *layout, int32_t rank) {
    const fm_rank_place place = fm_layout_place(layout, rank);
    const int32_t d = layout->dap, of_sample = d * layout->bp, first = place.dp * of_sample;
    return (fm_group_sets){.dap = {place.dap_group * d, 1, d},
                           .bp = {first + place.dap, d, layout->bp},
                           .sample = {first, 1, of_sample},
                           .dp = {place.sample, of_sample, layout->dp}};
}

fm_span fm_topology_span(const fm_topology *topology, const fm_rank_set *set) {
    int32_t n_host = 0;
    for (int32_t i = 0; i < set->size; i++) {
        const int32_t host = topology->rank[fm_rank_set_at(set, i)].host;
        bool is_new = true;
        for (int32_t k = 0; k < i && is_new; k++)
            is_new = topology->rank[fm_rank_set_at(set, k)].host != host;
        n_host += is_new;
    }
    if (n_host == 1) return FM_SPAN_HOST;
    return n_host == set->size ? FM_SPAN_HOSTS : FM_SPAN_MIXED;
}

/* -- placement */

/* What makes a launcher give neighbouring ranks to one host. */
static const char *advice_for(const char *launcher) {
    static const struct {
        const char *launcher, *advice;
    } advices[] = {
        {"Open MPI", "start them with mpirun --map-by slot"},
        {"MPI", "start them with mpiexec -ppn N, with N ranks for a host"},
        {"Slurm", "start them with srun --distribution=block"},
        {"torchrun", "start whole groups of them on each host with torchrun --nproc-per-node"},
    };
    for (size_t i = 0; launcher && i < sizeof advices / sizeof advices[0]; i++)
        if (strcmp(advices[i].launcher, launcher) == 0) return advices[i].advice;
    return "give neighbouring values of FOLDMILL_RANK to one host";
}

fm_status fm_topology_check(const fm_topology *topology, const fm_layout *layout,
                            const char *launcher, fm_error *reterr) {
    const int32_t of_sample = layout->dap * layout->bp;
    assert(topology->n_rank == fm_layout_ranks(layout));
    for (int32_t r = 0; r < topology->n_rank; r++) {
        const int32_t first = r - r % of_sample;
        const int32_t host = topology->rank[r].host, of_first = topology->rank[first].host;
        if (host == of_first) continue;
        return fm_fail(reterr, FM_ERR_USAGE,
                       "ranks %d to %d work on one sample, but rank %d is on host %s and rank %d "
                       "on host %s; %s, or let them exchange over the network with "
                       "--across-hosts",
                       (int)first, (int)(first + of_sample - 1), (int)first,
                       topology->host[of_first].name, (int)r, topology->host[host].name,
                       advice_for(launcher));
    }
    return FM_OK;
}
