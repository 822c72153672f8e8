/* af3_ranks.c: see af3_ranks.h. */
#include "tests/trainer/parity/af3_ranks.h"
#include "tests/testing/local_groups.h"

#include "trainer/app/device/device_groups.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>

static const double WAIT_S = 120; /* more than any rank takes */

typedef struct one_rank {
    af3_rank_work work;
    const void *context;
    const fm_groups *groups;
    const fm_kernels *kernels;
    uint64_t hash;
    bool good;
} one_rank;

static void *run_one(void *argument) {
    one_rank *r = argument;
    r->good = r->work(r->context, r->groups, r->kernels, &r->hash);
    return NULL;
}

static bool same_bits(const uint64_t *hashes, int32_t n) {
    bool same = true;
    for (int32_t r = 1; r < n; r++)
        same &= hashes[r] == hashes[0];
    if (!same) printf("the ranks' results differ FAIL\n");
    return same;
}

static bool run_threads(int32_t dap, const one_rank *first, uint64_t *ret_hash) {
    const fm_layout layout = {dap, 1, 1};
    fm_local_groups *local = NULL;
    fm_error error = {0};
    if (fm_local_groups_create(&layout, first->kernels, &local, &error)) {
        fprintf(stderr, "af3_parity: %s\n", error.message);
        return false;
    }
    one_rank rank[FM_LAYOUT_DAP];
    pthread_t thread[FM_LAYOUT_DAP];
    uint64_t hash[FM_LAYOUT_DAP];
    for (int32_t r = 0; r < dap; r++) {
        rank[r] = *first;
        rank[r].groups = fm_local_groups_get(local, r);
        int failed = pthread_create(&thread[r], NULL, run_one, &rank[r]);
        assert(!failed);
        (void)failed;
    }
    bool good = true;
    for (int32_t r = 0; r < dap; r++) {
        pthread_join(thread[r], NULL);
        good &= rank[r].good;
        hash[r] = rank[r].hash;
    }
    fm_local_groups_destroy(local);
    *ret_hash = hash[0];
    return good && same_bits(hash, dap);
}

/* Runs one rank, which is a process, with its groups. Gathers the hashes of all ranks. */
static fm_status run_grouped(const af3_ranks *ranks, one_rank *own, const fm_groups *groups,
                             uint64_t *hash, fm_error *reterr) {
    own->groups = groups;
    run_one(own);
    return fm_meeting_gather(ranks->meeting, &own->hash, sizeof own->hash, hash, WAIT_S, reterr);
}

/* A board counts the exchanges of its groups, so every run has its own. */
static fm_status run_process(const af3_ranks *ranks, one_rank *own, uint64_t *hash,
                             fm_error *reterr) {
    const fm_layout layout = {ranks->dap, 1, 1};
    fm_board *board = NULL;
    fm_shm_groups *groups = NULL;
    fm_status status = fm_board_open(ranks->meeting, WAIT_S, &board, reterr);
    if (!status) {
        status = fm_shm_groups_open(&layout, own->kernels, ranks->meeting, board, NULL, WAIT_S,
                                    &groups, reterr);
    }
    if (!status) status = run_grouped(ranks, own, fm_shm_groups_get(groups), hash, reterr);
    fm_shm_groups_close(groups);
    fm_board_close(board);
    return status;
}

/* The same for a process that has a GPU. */
static fm_status run_device(const af3_ranks *ranks, one_rank *own, uint64_t *hash,
                            fm_error *reterr) {
    const fm_layout layout = {ranks->dap, 1, 1};
    fm_device_groups groups = {0};
    fm_status status = fm_device_groups_create(&layout, own->kernels, ranks->meeting, "peer",
                                               WAIT_S, NULL, &groups, reterr);
    if (!status) status = run_grouped(ranks, own, groups.groups, hash, reterr);
    if (!status) status = groups.groups->check(groups.groups, reterr);
    fm_device_groups_destroy(&groups);
    return status;
}

static bool run_meeting(const af3_ranks *ranks, one_rank *own, uint64_t *ret_hash) {
    uint64_t hash[FM_LAYOUT_DAP];
    fm_error error = {0};
    bool has_device = own->kernels->device->is_asynchronous;
    fm_status status = (has_device ? run_device : run_process)(ranks, own, hash, &error);
    if (status) fprintf(stderr, "af3_parity: %s\n", error.message);
    *ret_hash = own->hash;
    return !status && own->good && same_bits(hash, ranks->dap);
}

bool af3_ranks_run(const af3_ranks *ranks, const fm_kernels *kernels, af3_rank_work work,
                   const void *context, uint64_t *ret_hash) {
    one_rank own = {.work = work, .context = context, .kernels = kernels};
    if (ranks->meeting) return run_meeting(ranks, &own, ret_hash);
    if (ranks->dap > 1) return run_threads(ranks->dap, &own, ret_hash);
    run_one(&own);
    *ret_hash = own.hash;
    return own.good;
}
