/* test_comm.c: tests exchanges between ranks that are threads: values, overlap, order of sums. */
#include "tests/trainer/op_check.h"

#include "trainer/dist/comm_local.h"

#include <pthread.h>

enum { PART = 5, ROUNDS = 200, MOST = 4 };

typedef struct rank_state {
    fm_comm *comm;
    bool ok;
    float sum[PART];
} rank_state;

static float value(int rank, int round, int part, int i) {
    return (float)op_uniform((uint32_t)(7 + rank), (round * MOST + part) * PART + i);
}

static bool round_is_right(rank_state *s, int round) {
    fm_comm *comm = s->comm;
    float send[MOST * PART], turned[MOST * PART], back[MOST * PART], all[MOST * PART];
    float scattered[PART], sum[PART], root[PART];
    for (int k = 0; k < comm->size * PART; k++)
        send[k] = value(comm->rank, round, k / PART, k % PART);
    fm_message to_all = {FM_EXCHANGE_ALL_TO_ALL, FM_ELEMENT_F32, PART, 0, send, turned};
    fm_message gather = {FM_EXCHANGE_ALL_GATHER, FM_ELEMENT_F32, PART, 0, send, all};
    fm_message scatter = {FM_EXCHANGE_REDUCE_SCATTER, FM_ELEMENT_F32, PART, 0, send, scattered};
    fm_message reduce = {FM_EXCHANGE_ALL_REDUCE, FM_ELEMENT_F32, PART, 0, send, sum};
    int32_t last = comm->size - 1;
    fm_message spread = {FM_EXCHANGE_BROADCAST, FM_ELEMENT_F32, PART, last, send, root};
    /* Several exchanges begin before the first one finishes, and finish in another order. */
    fm_ticket a = comm->begin(comm, &to_all, NULL), b = comm->begin(comm, &gather, NULL);
    fm_ticket c = comm->begin(comm, &scatter, NULL), d = comm->begin(comm, &reduce, NULL);
    fm_ticket e = comm->begin(comm, &spread, NULL);
    comm->finish(comm, b, NULL);
    comm->finish(comm, a, NULL);
    fm_message to_all_back = {FM_EXCHANGE_ALL_TO_ALL, FM_ELEMENT_F32, PART, 0, turned, back};
    fm_ticket f = comm->begin(comm, &to_all_back, NULL);
    comm->finish(comm, e, NULL);
    comm->finish(comm, d, NULL);
    comm->finish(comm, c, NULL);
    comm->finish(comm, f, NULL);
    bool ok = true;
    for (int i = 0; i < PART; i++) {
        float total = 0, mine = 0;
        for (int r = 0; r < comm->size; r++) {
            ok &= turned[r * PART + i] == value(r, round, comm->rank, i);
            ok &= back[r * PART + i] == send[r * PART + i];
            ok &= all[r * PART + i] == value(r, round, 0, i);
            total = r ? total + value(r, round, 0, i) : value(r, round, 0, i);
            mine = r ? mine + value(r, round, comm->rank, i) : value(r, round, comm->rank, i);
        }
        ok &= sum[i] == total && scattered[i] == mine && root[i] == value(last, round, 0, i);
        s->sum[i] = sum[i];
    }
    return ok;
}

static void *run_rank(void *argument) {
    rank_state *s = argument;
    s->ok = true;
    for (int round = 0; round < ROUNDS; round++)
        s->ok &= round_is_right(s, round);
    return NULL;
}

static void exchanges_match_their_names(void **state) {
    (void)state;
    for (int32_t size = 1; size <= MOST; size++) {
        fm_comm_group *group;
        assert_int_equal(fm_comm_group_create(size, fm_kernels_cpu(FM_ELEMENT_F32), &group, NULL),
                         FM_OK);
        rank_state ranks[MOST];
        pthread_t threads[MOST];
        for (int32_t r = 0; r < size; r++) {
            ranks[r].comm = fm_comm_group_get_rank(group, r);
            assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
        }
        for (int32_t r = 0; r < size; r++)
            pthread_join(threads[r], NULL);
        for (int32_t r = 0; r < size; r++) {
            assert_true(ranks[r].ok);
            assert_memory_equal(ranks[r].sum, ranks[0].sum, sizeof ranks[0].sum);
        }
        fm_comm_group_destroy(group);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanges_match_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
