/* Whose job is begun next, without sockets or threads: peers take turns however many streams they
 * have, and no stream with credit starves for memory. */
#include "proto/base/rng.h"
#include "server/turns.h"
#include "tests/testing/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { N_STREAM = 12, N_PEER = 3 };

typedef struct fixture {
    fm_test_source test;
    fm_sample_source source;
    fm_counters counters;
    fm_turns *turns;
    fm_budget server, peers[N_PEER];
    fm_server_stream *streams[N_STREAM];
    int owners[N_STREAM]; /* the peer of each stream */
} fixture;

static void prepare(fixture *f) {
    memset(f, 0, sizeof *f);
    f->test.shape = (fm_test_shape){.n_res = 2, .n_clust = 1, .n_extra = 1, .n_cycle = 1};
    f->test.global_batch = 8;
    fm_test_source_init(&f->test, &f->source);
    f->server.max_bytes = (size_t)1 << 30;
    for (size_t i = 0; i < N_PEER; i++)
        f->peers[i].max_bytes = (size_t)1 << 30;
    assert_int_equal(fm_turns_create(&f->counters, &f->turns, NULL), FM_OK);
}

static void finish_all(fixture *f) {
    fm_turns_reap(f->turns);
    assert_int_equal(fm_turns_get_n_stream(f->turns), 0);
    fm_turns_destroy(f->turns);
    assert_int_equal(f->server.used_bytes, 0);
    assert_null(f->server.first_in_line);
    assert_int_equal(f->test.n_plan, 0);
    fm_test_source_fini(&f->test);
}

static void open_one(fixture *f, size_t i, int peer, uint32_t window, uint32_t items) {
    fm_wire_open params = {.plan = "test",
                           .n_step = 4,
                           .n_group = 1,
                           .order = window ? FM_WIRE_BOUNDED : FM_WIRE_STRICT,
                           .window = window,
                           .policy = FM_WIRE_STOP,
                           .credit_items = items,
                           .credit_bytes = (uint64_t)1 << 30};
    const fm_budgets budgets = {&f->peers[peer], &f->server};
    f->owners[i] = peer;
    fm_error error;
    if (fm_server_stream_create(&f->source, &params, budgets, NULL, &f->streams[i], &error) ||
        fm_turns_add(f->turns, &f->peers[peer], f->streams[i], &error)) {
        fail_msg("%s", error.message);
    }
}

static void drop_one(fixture *f, size_t i) {
    fm_server_stream_abandon(f->streams[i]);
    fm_turns_drop(f->turns, &f->peers[f->owners[i]], f->streams[i]);
    f->streams[i] = NULL;
}

static fm_server_stream *stream_of_job(const fm_job *job) {
    return ((const fm_work *)job->owner)->stream;
}

static void finish_job(fm_job *job) {
    job->status = FM_OK;
    job->bytes = 100;
    fm_server_stream_finish_job(stream_of_job(job), job);
}

/* Peer 0 has ten streams, the others one each: each gets a third of the jobs, and the ten share
 * theirs evenly. */
static void peers_take_turns(void **state) {
    (void)state;
    fixture f;
    prepare(&f);
    for (size_t i = 0; i < 10; i++)
        open_one(&f, i, 0, 0, 30);
    open_one(&f, 10, 1, 0, 30);
    open_one(&f, 11, 2, 0, 30);
    uint32_t n_of_peer[N_PEER] = {0}, n_of_stream[N_STREAM] = {0};
    fm_job *jobs[60];
    for (size_t k = 0; k < 60; k++) {
        jobs[k] = fm_turns_next_job(f.turns);
        size_t i = 0;
        while (f.streams[i] != stream_of_job(jobs[k]))
            i++;
        n_of_peer[f.owners[i]]++;
        n_of_stream[i]++;
        assert_int_equal(f.owners[i], k % 3);
    }
    for (size_t p = 0; p < N_PEER; p++)
        assert_int_equal(n_of_peer[p], 20);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(n_of_stream[i], 2);
    for (size_t k = 0; k < 60; k++)
        finish_job(jobs[k]);
    for (size_t i = 0; i < N_STREAM; i++)
        drop_one(&f, i);
    finish_all(&f);
}

/* A peer without a job does not hold up the turn, and leaving moves nobody's turn. */
static void idle_and_leaving_peers_are_passed_over(void **state) {
    (void)state;
    fixture f;
    prepare(&f);
    open_one(&f, 0, 0, 0, 30);
    open_one(&f, 1, 1, 0, 0); /* two samples ahead of credit, then nothing */
    open_one(&f, 2, 2, 0, 30);
    static const int expected[] = {0, 1, 2, 0, 1, 2, 0, 2, 0, 2};
    for (size_t k = 0; k < 10; k++) {
        fm_job *job = fm_turns_next_job(f.turns);
        assert_ptr_equal(stream_of_job(job), f.streams[expected[k]]);
        finish_job(job);
    }
    drop_one(&f, 1);
    fm_job *job = fm_turns_next_job(f.turns);
    assert_ptr_equal(stream_of_job(job), f.streams[0]);
    finish_job(job);
    drop_one(&f, 0);
    drop_one(&f, 2);
    assert_null(fm_turns_next_job(f.turns));
    finish_all(&f);
}

/* -- memory */

typedef struct dice {
    uint64_t seed;
    uint32_t n;
} dice;

static uint32_t roll(dice *d, uint32_t below) {
    fm_philox_counter drawn = fm_philox(d->seed, (fm_philox_counter){{d->n++}});
    return fm_uniform_below((uint64_t)drawn.word[0] << 32 | drawn.word[1], below);
}

/* What the test knows of jobs, writes and deliveries. */
typedef struct run {
    fm_job *running[64];
    fm_work *sending[64];
    uint32_t n_running, n_sending;
    uint32_t n_got[N_STREAM];
    uint64_t seen[N_STREAM]; /* bits of the indices that came */
} run;

static void take_samples(fixture *f, run *r) {
    for (size_t i = 0; i < N_STREAM; i++) {
        fm_work *work =
            f->streams[i] && r->n_sending < 64 ? fm_server_stream_pick(f->streams[i]) : NULL;
        if (!work) continue;
        assert_int_equal(r->seen[i] >> work->job.index & 1, 0);
        r->seen[i] |= (uint64_t)1 << work->job.index;
        r->n_got[i]++;
        r->sending[r->n_sending++] = work;
    }
}

static void step(fixture *f, run *r, dice *d) {
    fm_job *job = r->n_running < 4 ? fm_turns_next_job(f->turns) : NULL;
    if (job) r->running[r->n_running++] = job;
    if (r->n_running && roll(d, 3) == 0) {
        uint32_t which = roll(d, r->n_running);
        finish_job(r->running[which]);
        r->running[which] = r->running[--r->n_running];
    }
    take_samples(f, r);
    if (r->n_sending && roll(d, 3) == 0) {
        uint32_t which = roll(d, r->n_sending);
        fm_work *work = r->sending[which];
        fm_server_stream_release(work->stream, work);
        r->sending[which] = r->sending[--r->n_sending];
    }
    if (roll(d, 50) == 0) fm_turns_reclaim(f->turns);
}

/* Twelve streams of three peers share memory for two to four samples. Half are silent for a long
 * time. Every stream gets every sample once, whoever holds what. */
static void nobody_starves_for_memory(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        fixture f;
        run r = {0};
        dice d = {.seed = seed};
        prepare(&f);
        for (size_t i = 0; i < N_STREAM; i++)
            open_one(&f, i, (int)(i % N_PEER), i % 4 ? 0 : 1 + roll(&d, 9),
                     i % 2 ? roll(&d, 5) : 0);
        size_t block =
            (fm_server_stream_get_opened(f.streams[0])->max_sample_bytes + 4095) / 4096 * 4096;
        f.server.max_bytes = (2 + seed % 3) * block;
        for (size_t p = 0; p < N_PEER; p++)
            f.peers[p].max_bytes = (1 + seed % 2) * block;
        uint32_t n_step = 0, n_missing = N_STREAM * 32;
        for (; n_missing; n_step++) {
            assert_true(n_step < 400000);
            step(&f, &r, &d);
            assert_true(f.server.used_bytes <= f.server.max_bytes);
            size_t i = roll(&d, N_STREAM);
            bool is_silent = i % 2 == 0 && n_step < 20000;
            if (!is_silent && roll(&d, 4) == 0) {
                assert_int_equal(fm_server_stream_grant(f.streams[i], 1, 100, NULL), FM_OK);
            }
            n_missing = 0;
            for (i = 0; i < N_STREAM; i++)
                n_missing += 32 - r.n_got[i];
            /* The odd ones must not have to wait for the silent. */
            if (n_step == 20000) {
                for (i = 1; i < N_STREAM; i += 2)
                    assert_int_equal(r.n_got[i], 32);
            }
        }
        while (r.n_running)
            finish_job(r.running[--r.n_running]);
        for (; r.n_sending; r.n_sending--) {
            fm_work *work = r.sending[r.n_sending - 1];
            fm_server_stream_release(work->stream, work);
        }
        for (size_t i = 0; i < N_STREAM; i++)
            drop_one(&f, i);
        finish_all(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_take_turns),
        cmocka_unit_test(idle_and_leaving_peers_are_passed_over),
        cmocka_unit_test(nobody_starves_for_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
