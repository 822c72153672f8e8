/* topology.h: on which host each rank of a run is, and which groups of ranks are inside one. It
 * follows from what all ranks say of themselves, so all ranks have the same. */
#ifndef FM_TRAINER_TOPOLOGY_H
#define FM_TRAINER_TOPOLOGY_H

#ifdef __cplusplus
extern "C" {
#endif

#include "trainer/dist/groups.h"
#include "trainer/dist/host.h"

typedef struct fm_topology fm_topology;

/* A rank's place among the ranks of its host. */
typedef struct fm_topology_rank {
    int32_t host;  /* number of its host; hosts are numbered by their lowest ranks */
    int32_t place; /* among the ranks of the host, in the order of ranks */
} fm_topology_rank;

typedef struct fm_topology_host {
    int32_t leader; /* its lowest rank */
    int32_t size;   /* its ranks */
    char name[FM_HOST_NAME_BYTES];
} fm_topology_host;

struct fm_topology {
    int32_t n_rank, n_host;
    fm_topology_rank *rank; /* [n_rank] */
    fm_topology_host *host; /* [n_host] */
};

/* `hosts` [n_rank]: where each rank is; they are only read here. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_topology_make(const fm_host *hosts, int32_t n_rank,
                                       fm_topology *ret_topology, fm_error *reterr);
/* A topology of zeros is allowed. */
void fm_topology_free(fm_topology *topology);

enum { FM_TOPOLOGY_NAME_BYTES = FM_HOST_NAME_BYTES + 20 };

/* Writes "rank 3 on node7", for messages. Returns out. */
const char *fm_topology_name_rank(const fm_topology *topology, int32_t rank,
                                  char out[FM_TOPOLOGY_NAME_BYTES]);

/* The ranks first, first + stride, ... of a group. */
typedef struct fm_rank_set {
    int32_t first, stride, size;
} fm_rank_set;

static inline int32_t fm_rank_set_at(const fm_rank_set *set, int32_t i) {
    return set->first + i * set->stride;
}

/* The ranks of each group that this rank is in, by rank within the group; of size 1 where the
 * layout has no such group. */
typedef struct fm_group_sets {
    fm_rank_set dap, bp, sample, dp;
} fm_group_sets;

fm_group_sets fm_layout_sets(const fm_layout *layout, int32_t rank);

/* How the ranks of a group are spread. */
typedef enum fm_span {
    FM_SPAN_HOST,  /* all are on one host */
    FM_SPAN_HOSTS, /* each is on another host */
    FM_SPAN_MIXED,
} fm_span;

fm_span fm_topology_span(const fm_topology *topology, const fm_rank_set *set);

/* Refuses a layout that has ranks of one sample on several hosts, because these exchange data in
 * every block. FM_ERR_USAGE names the first such ranks with their hosts, and the option by which
 * `launcher` (fm_world.launcher, or NULL) keeps neighbouring ranks on one host. */
FM_MUST_USE fm_status fm_topology_check(const fm_topology *topology, const fm_layout *layout,
                                        const char *launcher, fm_error *reterr);

#ifdef __cplusplus
}
#endif

#endif
