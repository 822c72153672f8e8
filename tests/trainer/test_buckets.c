/* test_buckets.c: the sums of gradients that begin while backward runs: their plan, when each
 * begins, and that all ranks have the same bits. */
#include "tests/trainer/step_sample.h"

#include <pthread.h>

enum { RANKS = 2 };

/* The steps of backward that write the gradient of an element of the bucket. */
static int32_t count_writers(const fm_tape *tape, int64_t first, int64_t end, int32_t from) {
    int32_t count = 0;
    for (int32_t at = from; at < tape->n_step; at++) {
        const fm_node *node = &tape->node[tape->step[at].node];
        bool writes = false;
        for (int j = 0; j < node->n_param && tape->step[at].phase == FM_PHASE_BACKWARD; j++) {
            if (node->param[j] == FM_PARAM_NONE) continue;
            const fm_param_block *block = &tape->params->block[node->param[j]];
            for (int64_t i = block->offset; i < block->offset + block->count; i++)
                writes |= i >= first && i < end;
        }
        count += writes;
    }
    return count;
}

/* A communicator that notes at which step of backward each exchange of gradients begins, by the
 * steps that have run. */
typedef struct witness {
    fm_comm comm, *inner;
    const fm_tape *tape;
    int32_t n_scatter, n_early;
    int32_t begun[FM_MOST_BUCKETS]; /* steps of backward that had run */
} witness;

static int32_t steps_run(const fm_tape *tape) {
    int32_t at = tape->n_forward;
    while (at < tape->n_step && tape->step[at].flops >= 0)
        at++;
    return at;
}

static fm_ticket see_begin(fm_comm *comm, const fm_message *messages, int32_t n,
                           fm_stream *stream) {
    witness *w = comm->context;
    bool scatters = messages[0].exchange == FM_EXCHANGE_REDUCE_SCATTER;
    if (scatters && w->n_scatter < FM_MOST_BUCKETS) w->begun[w->n_scatter++] = steps_run(w->tape);
    return w->inner->begin(w->inner, messages, n, stream);
}

static void see_finish(fm_comm *comm, fm_ticket ticket, fm_stream *stream) {
    const witness *w = comm->context;
    w->inner->finish(w->inner, ticket, stream);
}

typedef struct runner {
    fm_trainer *trainer;
    const fm_features *features;
} runner;

static void *run_rank(void *argument) {
    const runner *r = argument;
    take(r->trainer, r->features);
    return NULL;
}

static void run_all(const runner ranks[RANKS]) {
    pthread_t threads[RANKS];
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, (void *)&ranks[r]), 0);
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
}

/* Marks the steps of backward, so that those that have run since are seen. */
static void mark(fm_tape *tape) {
    for (int32_t at = tape->n_forward; at < tape->n_step; at++)
        tape->step[at].flops = -1;
}

static void sums_begin_when_their_gradients_are_complete(void **state) {
    (void)state;
    static sample s;
    const fm_layout layout = {RANKS, 1, 1};
    make_sample(&s);
    fm_trainer_options options = small_options();
    fm_local_groups *groups;
    assert_int_equal(fm_local_groups_create(&layout, fm_kernels_cpu(FM_ELEMENT_F32), &groups, NULL),
                     FM_OK);
    fm_groups own = *fm_local_groups_get(groups, 0);
    witness w = {.comm = *own.sample, .inner = own.sample};
    w.comm.context = &w;
    w.comm.begin = see_begin;
    w.comm.finish = see_finish;
    own.sample = &w.comm;
    runner ranks[RANKS];
    for (int r = 0; r < RANKS; r++) {
        options.groups = r ? fm_local_groups_get(groups, r) : &own;
        ranks[r] = (runner){create(&options), &s.features};
    }
    fm_trainer *first = ranks[0].trainer;
    w.tape = &first->last;
    mark(&first->last);
    run_all(ranks);
    const fm_buckets *b = &first->buckets;
    const int64_t size = b->part * RANKS;
    assert_true(w.n_scatter >= b->n);
    assert_true(b->n > FM_MOST_BUCKETS / 2 && b->rest == b->n * size);
    assert_true(first->params.n_element - b->rest <= size);
    uint64_t seen = 0;
    for (int32_t k = 0; k < b->n; k++) {
        const fm_bucket *bucket = &b->bucket[k];
        assert_int_equal(w.begun[k], bucket->ready + 1);
        assert_true(k == 0 || bucket[-1].ready <= bucket->ready);
        assert_int_equal(
            count_writers(&first->last, bucket->first, bucket->first + size, bucket->ready + 1), 0);
        assert_true(
            bucket->ready < first->last.n_forward ||
            count_writers(&first->last, bucket->first, bucket->first + size, bucket->ready) == 1);
        seen |= (uint64_t)1 << bucket->first / size;
        w.n_early += bucket->ready < (first->last.n_forward + first->last.n_step) / 2;
    }
    assert_true(seen == ((uint64_t)1 << b->n) - 1);
    assert_true(w.n_early > 0); /* the heads and the structure module are done by then */
    size_t bytes = (size_t)first->params.n_element * sizeof(float);
    assert_memory_equal(ranks[1].trainer->params.gradient, first->params.gradient, bytes);
    for (int r = 0; r < RANKS; r++)
        fm_trainer_destroy(ranks[r].trainer);
    fm_local_groups_destroy(groups);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_begin_when_their_gradients_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
