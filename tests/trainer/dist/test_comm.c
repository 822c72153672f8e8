/* test_comm.c: tests exchanges between ranks that are threads or processes: values, overlap, order
 * of sums, and the end of a run. */
#include "tests/trainer/common/processes.h"

#include "tests/testing/comm_local.h"
#include "trainer/dist/sum.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

enum { PART = 5, ROUNDS = 200, PROCESS_ROUNDS = 40, MOST = 8 };

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
    fm_message to_all =
        fm_message_plain(FM_EXCHANGE_ALL_TO_ALL, FM_ELEMENT_F32, PART, send, turned);
    fm_message gather = fm_message_plain(FM_EXCHANGE_ALL_GATHER, FM_ELEMENT_F32, PART, send, all);
    fm_message scatter =
        fm_message_plain(FM_EXCHANGE_REDUCE_SCATTER, FM_ELEMENT_F32, PART, send, scattered);
    fm_message reduce = fm_message_plain(FM_EXCHANGE_ALL_REDUCE, FM_ELEMENT_F32, PART, send, sum);
    int32_t last = comm->size - 1;
    fm_message spread = fm_message_plain(FM_EXCHANGE_BROADCAST, FM_ELEMENT_F32, PART, send, root);
    spread.root = last;
    /* Several exchanges begin before the first one finishes, and finish in another order. */
    fm_ticket a = comm->begin(comm, &to_all, 1, NULL), b = comm->begin(comm, &gather, 1, NULL);
    fm_ticket c = comm->begin(comm, &scatter, 1, NULL), d = comm->begin(comm, &reduce, 1, NULL);
    fm_ticket e = comm->begin(comm, &spread, 1, NULL);
    comm->finish(comm, b, NULL);
    comm->finish(comm, a, NULL);
    fm_message to_all_back =
        fm_message_plain(FM_EXCHANGE_ALL_TO_ALL, FM_ELEMENT_F32, PART, turned, back);
    fm_ticket f = comm->begin(comm, &to_all_back, 1, NULL);
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

/* Two messages of one exchange: columns [ROWS, D, RUN] become rows and are added to what is there;
 * rows [D, ROWS, RUN] of all ranks are summed into columns. */
static bool strided_parts_arrive_in_place(const rank_state *s, int round) {
    enum { ROWS = 3, RUN = 2, COUNT = ROWS * RUN };
    fm_comm *comm = s->comm;
    int size = comm->size;
    float columns[MOST * COUNT], rows[MOST * COUNT], sum[2 * COUNT] = {0};
    for (int k = 0; k < size * COUNT; k++) {
        columns[k] = value(comm->rank, round, 0, k);
        rows[k] = 1;
    }
    const fm_parts in_columns = {RUN, size * RUN}, in_rows = {COUNT, RUN};
    fm_message messages[2] = {
        fm_message_plain(FM_EXCHANGE_ALL_TO_ALL, FM_ELEMENT_F32, RUN, columns, rows),
        fm_message_plain(FM_EXCHANGE_REDUCE_SCATTER, FM_ELEMENT_F32, RUN, columns, sum)};
    for (int i = 0; i < 2; i++) {
        messages[i].rows = ROWS;
        messages[i].sent = in_columns;
    }
    messages[0].received = in_rows;
    messages[0].receive.beta = FM_ADD;
    messages[1].received = (fm_parts){0, 2 * RUN};
    comm->finish(comm, comm->begin(comm, messages, 2, NULL), NULL);
    bool ok = true;
    for (int k = 0; k < COUNT; k++) {
        int row = k / RUN, at = (row * size + comm->rank) * RUN + k % RUN;
        float total = 0;
        for (int r = 0; r < size; r++) {
            ok &= rows[r * COUNT + k] == 1 + value(r, round, 0, at);
            total = r ? total + value(r, round, 0, at) : value(r, round, 0, at);
        }
        ok &= sum[row * 2 * RUN + k % RUN] == total && sum[row * 2 * RUN + RUN + k % RUN] == 0;
    }
    return ok;
}

static void *run_rank(void *argument) {
    rank_state *s = argument;
    s->ok = true;
    for (int round = 0; round < ROUNDS; round++)
        s->ok &= round_is_right(s, round) && strided_parts_arrive_in_place(s, round);
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

/* -- processes */

static int exchange_much(const process_task *task) {
    process p;
    if (!open_process(&p, task)) return 1;
    const fm_groups *groups = fm_shm_groups_get(p.groups);
    fm_comm *const comms[] = {groups->dap, groups->bp, groups->sample, groups->dp};
    bool ok = true;
    for (int round = 0; round < PROCESS_ROUNDS; round++) {
        for (int i = 0; i < 4; i++) {
            rank_state s = {.comm = comms[i]};
            if (comms[i]) ok &= round_is_right(&s, round);
        }
    }
    close_process(&p);
    return ok ? 0 : 2;
}

static void processes_exchange_as_threads_do(void **state) {
    (void)state;
    static const fm_layout layouts[] = {{2, 1, 1}, {3, 1, 1}, {1, 2, 1}, {1, 1, 4},
                                        {2, 2, 2}, {8, 1, 1}, {1, 1, 8}, {4, 1, 2}};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        for (size_t k = 0; k < N_PROCESS_OPTIONS; k++) {
            const process_task task = {
                .layout = layouts[i], .options = process_options[k], .element = FM_ELEMENT_F32};
            assert_int_equal(run_processes(exchange_much, task), 0);
        }
    }
}

/* Groups inside a host, over all hosts and mixed ones, in one run. */
static void ranks_of_several_hosts_exchange_the_same(void **state) {
    (void)state;
    static const struct {
        fm_layout layout;
        const char *hosts;
    } cases[] = {{{2, 1, 2}, "aabb"}, {{2, 2, 2}, "aabbccdd"}, {{4, 1, 2}, "aaaabbbb"},
                 {{3, 1, 1}, "aba"},  {{1, 1, 8}, "abcdefgh"}, {{2, 2, 2}, "abcabcab"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const process_task task = {
            .layout = cases[i].layout, .hosts = cases[i].hosts, .element = FM_ELEMENT_F32};
        assert_int_equal(run_processes(exchange_much, task), 0);
    }
}

/* -- sums over the groups of data parallelism */

/* A communicator that counts what this rank sends to others. */
typedef struct counter {
    fm_comm comm, *inner;
    int64_t elements;
} counter;

static fm_ticket count_and_begin(fm_comm *comm, const fm_message *messages, int32_t count,
                                 fm_stream *stream) {
    counter *c = comm->context;
    for (int32_t i = 0; i < count; i++)
        c->elements += messages[i].rows * messages[i].run * (comm->size - 1);
    return c->inner->begin(c->inner, messages, count, stream);
}

static void finish_counted(fm_comm *comm, fm_ticket ticket, fm_stream *stream) {
    const counter *c = comm->context;
    c->inner->finish(c->inner, ticket, stream);
}

/* Sums values that the ranks of a sample have alike; whether the sums are right. */
static bool sum_is_right(fm_groups *groups, int64_t count, int64_t *ret_sent) {
    enum { SCRATCH = 3 * FM_COMM_SUM_ALIGN };
    static float x[5000], scratch[SCRATCH];
    counter c = {.comm = *groups->dp, .inner = groups->dp};
    c.comm.context = &c;
    c.comm.begin = count_and_begin;
    c.comm.finish = finish_counted;
    groups->dp = &c.comm;
    for (int64_t i = 0; i < count; i++)
        x[i] = value(groups->place.dp, 0, 0, (int)i);
    fm_groups_sum(groups, count, x, scratch, SCRATCH, NULL);
    groups->dp = c.inner;
    *ret_sent = c.elements;
    bool ok = true;
    for (int64_t i = 0; i < count; i++) {
        float total = value(0, 0, 0, (int)i);
        for (int32_t g = 1; g < groups->layout.dp; g++)
            total += value(g, 0, 0, (int)i);
        ok &= x[i] == total;
    }
    return ok;
}

/* Slices have the bits of the whole, and a rank of D sends a D-th of it and what is left over. */
static int sum_slices(const process_task *task) {
    process p;
    if (!open_process(&p, task)) return 1;
    fm_groups groups = *fm_shm_groups_get(p.groups);
    const int32_t n = fm_groups_sample_ranks(&groups);
    bool ok = true;
    static const int64_t counts[] = {5, 64, 700, 4999};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int64_t whole, sliced;
        groups.is_sliced = false;
        ok &= sum_is_right(&groups, counts[i], &whole);
        groups.is_sliced = true;
        ok &= sum_is_right(&groups, counts[i], &sliced);
        const int64_t left = n * FM_COMM_SUM_ALIGN * groups.layout.dp;
        ok &= sliced <= whole / n + left && sliced <= whole;
    }
    close_process(&p);
    return ok ? 0 : 2;
}

static void slices_have_the_bits_of_the_whole(void **state) {
    (void)state;
    static const struct {
        fm_layout layout;
        const char *hosts;
    } cases[] = {{{2, 1, 2}, "aabb"},     {{2, 2, 2}, "aaaabbbb"}, {{2, 1, 3}, "aabbcc"},
                 {{3, 1, 2}, "aaabbb"},   {{2, 1, 2}, NULL},       {{1, 1, 3}, "abc"},
                 {{2, 1, 4}, "aaaabbbb"}, {{2, 1, 2}, "abab"},     {{1, 1, 70}, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const process_task task = {
            .layout = cases[i].layout, .hosts = cases[i].hosts, .element = FM_ELEMENT_F32};
        assert_int_equal(run_processes(sum_slices, task), 0);
    }
}

/* More exchanges under way than there are slots would wait for each other; as many are fine, and
 * the outbox takes them all. */
static int fill_the_slots(const process_task *task) {
    enum { COUNT = 20000 };
    process p;
    static float send[COUNT], receive[COUNT];
    if (!open_process(&p, task)) return 1;
    fm_comm *comm = fm_shm_groups_get(p.groups)->dap;
    bool ok = true;
    for (int round = 0; round < 5; round++) {
        fm_ticket ticket[FM_BOARD_SLOTS];
        for (int i = 0; i < FM_BOARD_SLOTS; i++) {
            for (int k = 0; k < COUNT; k++)
                send[k] = (float)(i + round);
            const fm_message m =
                fm_message_plain(FM_EXCHANGE_ALL_REDUCE, FM_ELEMENT_F32,
                                 1 + i * (COUNT - 1) / FM_BOARD_SLOTS, send, receive);
            ticket[i] = comm->begin(comm, &m, 1, NULL);
        }
        for (int i = FM_BOARD_SLOTS; i-- > 0;) {
            comm->finish(comm, ticket[i], NULL);
            ok &= receive[0] == (float)(comm->size * (i + round));
        }
    }
    close_process(&p);
    return ok ? 0 : 2;
}

static void all_slots_can_be_under_way(void **state) {
    (void)state;
    const process_task task = {.layout = {3, 1, 1}, .element = FM_ELEMENT_F32};
    assert_int_equal(run_processes(fill_the_slots, task), 0);
    const process_task far = {.layout = {3, 1, 1}, .hosts = "abb", .element = FM_ELEMENT_F32};
    assert_int_equal(run_processes(fill_the_slots, far), 0);
}

/* Rank 1 is killed; rank 0 ends the run, and rank 2 receives NaN in place of a sum. */
static int lose_a_rank(const process_task *task) {
    process p;
    float send = 1, receive = 0;
    if (!open_process(&p, task)) return 1;
    fm_comm *comm = fm_shm_groups_get(p.groups)->dap;
    const fm_message m =
        fm_message_plain(FM_EXCHANGE_ALL_REDUCE, FM_ELEMENT_F32, 1, &send, &receive);
    comm->finish(comm, comm->begin(comm, &m, 1, NULL), NULL);
    bool ok = receive == 3;
    if (task->rank == 1) raise(SIGKILL);
    if (task->rank == 0) {
        int32_t place = fm_board_find(p.board, 1);
        char text[200];
        while (kill(fm_board_entry(p.board, place)->process, 0) == 0 &&
               !fm_meeting_gather(p.meeting, "", 0, text, task->wait_s, NULL)) {
        }
        fm_board_rank *entry = fm_board_entry(p.board, place);
        fm_board_describe(p.board, place, text, sizeof text);
        ok &= strstr(text, "): before the first step") != NULL;
        atomic_store(&entry->predicts, 1);
        fm_board_describe(p.board, place, text, sizeof text);
        ok &= strstr(text, "): before the first chain") != NULL;
        atomic_store(&entry->step, 2);
        fm_board_describe(p.board, place, text, sizeof text);
        ok &= strstr(text, "): chain 2, cycle 0, after exchange ") != NULL;
        ok &= fm_board_end(p.board, text) && !fm_board_end(p.board, "later");
    }
    while (receive == 3) /* rank 2 is inside an exchange when the run ends, or after that */
        comm->finish(comm, comm->begin(comm, &m, 1, NULL), NULL);
    ok &= receive != receive && strncmp(fm_board_reason(p.board), "rank 1 (process ", 16) == 0;
    close_process(&p);
    return ok ? 0 : 2;
}

static void an_ended_run_gives_no_numbers(void **state) {
    (void)state;
    const process_task task = {.layout = {3, 1, 1}, .element = FM_ELEMENT_F32};
    assert_int_equal(run_processes(lose_a_rank, task), 1);
}

/* What goes wrong on rank 1, which is on another host. */
typedef struct mishap {
    const char *reason; /* that the others find */
    double exchange_s;
    enum { IS_CUT, SLEEPS, SENDS_OTHERS } kind;
} mishap;

/* Ends all connections of this process to other hosts. */
static void cut_connections(void) {
    for (int fd = 3; fd < 100; fd++) {
        struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
        socklen_t bytes = sizeof at;
        if (getpeername(fd, (struct sockaddr *)&at, &bytes) == 0 && at.ss_family == AF_INET) {
            shutdown(fd, SHUT_RDWR);
        }
    }
}

static void have_a_mishap(const process *p, const mishap *what) {
    fm_comm *comm = fm_shm_groups_get(p->groups)->dap;
    float send = 1, receive[3];
    fm_message m = fm_message_plain(FM_EXCHANGE_ALL_GATHER, FM_ELEMENT_F32, 1, &send, receive);
    switch (what->kind) {
    case IS_CUT: cut_connections(); break;
    case SLEEPS:
        while (!fm_meeting_gather(p->meeting, "", 1, receive, 60, NULL)) {
        }
        break;
    case SENDS_OTHERS: comm->finish(comm, comm->begin(comm, &m, 1, NULL), NULL); break;
    }
}

/* The others end the run with a reason that names the rank, its host and the exchange, and receive
 * NaN. */
static int lose_another_host(const process_task *task) {
    process p;
    float send = 1, receive = 0;
    const mishap *what = task->context;
    if (!open_process(&p, task)) return 1;
    fm_comm *comm = fm_shm_groups_get(p.groups)->dap;
    const fm_message m =
        fm_message_plain(FM_EXCHANGE_ALL_REDUCE, FM_ELEMENT_F32, 1, &send, &receive);
    comm->finish(comm, comm->begin(comm, &m, 1, NULL), NULL);
    bool ok = receive == 3;
    if (task->rank == 1) {
        have_a_mishap(&p, what);
    } else {
        for (int i = 0; i < 2 * FM_BOARD_SLOTS; i++) /* it ends at once from then on */
            comm->finish(comm, comm->begin(comm, &m, 1, NULL), NULL);
        const char *reason = fm_board_reason(p.board);
        ok &= receive != receive && reason && strcmp(reason, what->reason) == 0;
        if (!ok) fprintf(stderr, "found %g and '%s'\n", (double)receive, reason ? reason : "none");
    }
    close_process(&p);
    return ok ? 0 : 2;
}

static void other_hosts_are_lost(void **state) {
    (void)state;
    static const mishap mishaps[] = {
        {"rank 1 on b ended its connection in exchange 2 of the dap group", 60, IS_CUT},
        {"rank 1 on b did not come within 2 s to exchange 2 of the dap group", 2, SLEEPS},
        {"rank 1 on b sent the parts of another exchange in exchange 2 of the dap group", 60,
         SENDS_OTHERS},
    };
    for (size_t i = 0; i < sizeof mishaps / sizeof mishaps[0]; i++) {
        const process_task task = {.layout = {3, 1, 1},
                                   .hosts = "aba",
                                   .options = {.exchange_s = mishaps[i].exchange_s},
                                   .context = &mishaps[i],
                                   .element = FM_ELEMENT_F32};
        assert_int_equal(run_processes(lose_another_host, task), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanges_match_their_names),
        cmocka_unit_test(processes_exchange_as_threads_do),
        cmocka_unit_test(ranks_of_several_hosts_exchange_the_same),
        cmocka_unit_test(slices_have_the_bits_of_the_whole),
        cmocka_unit_test(all_slots_can_be_under_way),
        cmocka_unit_test(an_ended_run_gives_no_numbers),
        cmocka_unit_test(other_hosts_are_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
