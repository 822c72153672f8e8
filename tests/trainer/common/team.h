/* team.h: the ranks of one sample as threads of this process, so that a test can look into all of
 * them. Each rank has a trainer; all are given every sample together and end every step with the
 * same bits.
 *
 * A call starts a thread for every rank but the first and waits for them, which takes no time
 * compared with a step. */
#ifndef FM_TESTS_TRAINER_TEAM_H
#define FM_TESTS_TRAINER_TEAM_H

#include "tests/testing/testing.h"
#include "tests/testing/local_groups.h"

#include "trainer/step/step.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

enum { TEAM_RANKS = 16 };

/* One rank. */
typedef struct team_rank {
    fm_trainer *trainer;
    const fm_features *features; /* of the current call: to be queued; NULL: collect */
    bool is_last;
    fm_sample_result result;
    fm_status status;
    fm_error error;
} team_rank;

typedef struct rank_team {
    fm_local_groups *groups;
    int32_t n_rank;
    team_rank rank[TEAM_RANKS];
} rank_team;

static inline void team_destroy(rank_team *team) {
    for (int32_t r = 0; r < team->n_rank; r++)
        fm_trainer_destroy(team->rank[r].trainer);
    fm_local_groups_destroy(team->groups);
    free(team);
}

/* layout->dp must be 1; options->groups is ignored. The test fails with the error's words. */
static inline rank_team *team_create(const fm_trainer_options *options, const fm_layout *layout) {
    fm_error error = {0};
    rank_team *team = calloc(1, sizeof *team);
    assert(team && layout->dp == 1);
    const fm_kernels *kernels =
        options->kernels ? options->kernels : fm_kernels_cpu(options->element);
    fm_status status = fm_local_groups_create(layout, kernels, &team->groups, &error);
    team->n_rank = status ? 0 : fm_layout_ranks(layout);
    for (int32_t r = 0; r < team->n_rank && !status; r++) {
        fm_trainer_options own = *options;
        own.groups = team->n_rank > 1 ? fm_local_groups_get(team->groups, r) : NULL;
        status = fm_trainer_create(&own, &team->rank[r].trainer, &error);
    }
    if (status) fail_msg("%s", error.message);
    return team;
}

static inline fm_trainer *team_get_first(const rank_team *team) {
    return team->rank[0].trainer;
}

static inline void *team_work(void *argument) {
    team_rank *self = argument;
    self->status = self->features ? fm_trainer_queue(self->trainer, self->features, self->is_last,
                                                     &self->error)
                                  : fm_trainer_collect(self->trainer, &self->result, &self->error);
    return NULL;
}

/* Returns the status and the error of the first rank: either all ranks fail or none does. */
static inline fm_status team_work_on_all(rank_team *team, const fm_features *features, bool is_last,
                                         fm_error *reterr) {
    pthread_t threads[TEAM_RANKS] = {0};
    for (int32_t r = 0; r < team->n_rank; r++) {
        team->rank[r].features = features;
        team->rank[r].is_last = is_last;
        int failed = r ? pthread_create(&threads[r], NULL, team_work, &team->rank[r]) : 0;
        assert(!failed); /* the other ranks would wait for this one */
        (void)failed;
    }
    team_work(&team->rank[0]);
    const team_rank *first = &team->rank[0];
    for (int32_t r = 1; r < team->n_rank; r++) {
        pthread_join(threads[r], NULL);
        assert(!team->rank[r].status == !first->status);
    }
    *reterr = first->error;
    return first->status;
}

/* fm_trainer_queue on all ranks at the same time. */
static inline fm_status team_queue(rank_team *team, const fm_features *features, bool is_last,
                                   fm_error *reterr) {
    return team_work_on_all(team, features, is_last, reterr);
}

/* fm_trainer_collect on all ranks at the same time. */
static inline fm_status team_collect(rank_team *team, fm_sample_result *ret_result,
                                     fm_error *reterr) {
    fm_status status = team_work_on_all(team, NULL, false, reterr);
    *ret_result = team->rank[0].result;
    return status;
}

/* Copies the first rank's parameters, moments, average, sum of gradients and counts to the other
 * ranks; call it after loading a checkpoint. */
static inline void team_copy_first(rank_team *team) {
    const fm_trainer *first = team->rank[0].trainer;
    const fm_params *from = &first->recording.params;
    int64_t bytes = from->n_element * (int64_t)fm_element_bytes(from->element);
    int64_t count = bytes / (int64_t)fm_element_bytes(from->kernels->act);
    for (int32_t r = 1; r < team->n_rank; r++) {
        fm_trainer *other = team->rank[r].trainer;
        fm_params *to = &other->recording.params;
        const fm_kernels *kernels = from->kernels;
        kernels->copy(NULL, count, from->master, to->master);
        kernels->copy(NULL, count, from->moment1, to->moment1);
        kernels->copy(NULL, count, from->moment2, to->moment2);
        kernels->copy(NULL, count, from->ema, to->ema);
        kernels->copy(NULL, count, first->recording.optimizer.sum, other->recording.optimizer.sum);
        fm_params_refresh_copy(to);
        other->recording.optimizer.step = first->recording.optimizer.step;
        other->recording.optimizer.samples = first->recording.optimizer.samples;
        other->recording.optimizer.pending = first->recording.optimizer.pending;
    }
}

#endif
