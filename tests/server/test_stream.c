/* The logic of a stream without sockets or threads: which samples, in which order, with how much
 * credit and memory. The tests finish jobs by hand, in any order. */
#include "proto/base/rng.h"
#include "server/limits.h"
#include "server/stream.h"
#include "tests/testing/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
    fm_test_source test;
    fm_sample_source source;
    fm_budget peer, budget;
    fm_server_stream *stream;
} fixture;

static fm_wire_open params_of(uint64_t n_step) {
    return (fm_wire_open){.plan = "test",
                          .n_step = n_step,
                          .n_group = 1,
                          .order = FM_WIRE_STRICT,
                          .policy = FM_WIRE_STOP,
                          .credit_items = 100,
                          .credit_bytes = 1 << 30};
}

static fm_budgets budgets_of(fixture *f) {
    return (fm_budgets){&f->peer, &f->budget};
}

/* The memory of one sample. */
static size_t block_of(const fixture *f) {
    return (fm_server_stream_get_opened(f->stream)->max_sample_bytes + 4095) / 4096 * 4096;
}

static void open_stream(fixture *f, const fm_wire_open *params) {
    memset(f, 0, sizeof *f);
    f->test.shape = (fm_test_shape){.n_res = 2, .n_clust = 1, .n_extra = 1, .n_cycle = 1};
    f->test.global_batch = 8;
    fm_test_source_init(&f->test, &f->source);
    f->peer.max_bytes = f->budget.max_bytes = (size_t)1 << 30;
    fm_error error;
    assert_int_equal(
        fm_server_stream_create(&f->source, params, budgets_of(f), f, &f->stream, &error), FM_OK);
}

static void close_stream(fixture *f) {
    fm_server_stream_abandon(f->stream);
    assert_true(fm_server_stream_is_idle(f->stream));
    fm_server_stream_destroy(f->stream);
    assert_int_equal(f->budget.used_bytes, 0);
    assert_int_equal(f->peer.used_bytes, 0);
    assert_int_equal(f->test.n_plan, 0);
    fm_test_source_fini(&f->test);
}

static void finish(fixture *f, fm_job *job) {
    job->status = FM_OK;
    job->bytes = 1000;
    fm_server_stream_finish_job(f->stream, job);
}

/* Runs the stream dry, finishing each job as it is begun; indices into out. Returns their number.
 */
static size_t drain(fixture *f, uint64_t *out, size_t capacity) {
    size_t n = 0;
    while (!fm_server_stream_is_delivered(f->stream) && n < capacity) {
        fm_job *job = fm_server_stream_next_job(f->stream);
        if (job) finish(f, job);
        fm_work *work = fm_server_stream_pick(f->stream);
        assert_true(job || work);
        if (!work) continue;
        out[n++] = work->job.index;
        fm_server_stream_release(f->stream, work);
    }
    return n;
}

static void a_stream_is_its_steps(void **state) {
    (void)state;
    fixture f;
    fm_wire_open params = params_of(5);
    params.first_step = 3;
    open_stream(&f, &params);
    assert_int_equal(fm_server_stream_get_opened(f.stream)->n_sample, 40);
    uint64_t got[100];
    assert_int_equal(drain(&f, got, 100), 40);
    for (uint64_t i = 0; i < 40; i++)
        assert_int_equal(got[i], 24 + i);
    assert_null(fm_server_stream_next_job(f.stream));
    close_stream(&f);
}

static void groups_share_every_step(void **state) {
    (void)state;
    int seen[40] = {0};
    for (uint32_t g = 0; g < 3; g++) {
        fixture f;
        fm_wire_open params = params_of(5);
        params.group = g;
        params.n_group = 3;
        open_stream(&f, &params);
        assert_int_equal(fm_server_stream_get_opened(f.stream)->samples_per_step, g < 2 ? 3 : 2);
        uint64_t got[100];
        size_t n = drain(&f, got, 100);
        assert_int_equal(n, fm_server_stream_get_opened(f.stream)->n_sample);
        assert_int_equal(n, g < 2 ? 15 : 10);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(got[i] % 8 % 3, g);
            seen[got[i]]++;
        }
        close_stream(&f);
    }
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(seen[i], 1);
}

static void delivered_samples_are_skipped(void **state) {
    (void)state;
    fixture f;
    fm_wire_open params = params_of(5);
    params.n_group = 2;
    for (uint64_t i = 0; i < 13; i++)
        assert_int_equal(fm_token_deliver(&params.token, i, NULL), FM_OK);
    assert_int_equal(fm_token_deliver(&params.token, 16, NULL), FM_OK);  /* ours */
    assert_int_equal(fm_token_deliver(&params.token, 17, NULL), FM_OK);  /* the other group's */
    assert_int_equal(fm_token_deliver(&params.token, 700, NULL), FM_OK); /* past the end */
    open_stream(&f, &params);
    uint64_t got[100];
    size_t n = drain(&f, got, 100);
    assert_int_equal(n, 12); /* 14, 18, 20, ... 38 */
    assert_int_equal(fm_server_stream_get_opened(f.stream)->n_sample, 12);
    assert_int_equal(got[0], 14);
    assert_int_equal(got[1], 18);
    assert_int_equal(got[11], 38);
    close_stream(&f);
}

static void a_complete_token_ends_the_stream(void **state) {
    (void)state;
    fixture f;
    fm_wire_open params = params_of(2);
    params.token.watermark = 16;
    open_stream(&f, &params);
    assert_int_equal(fm_server_stream_get_opened(f.stream)->n_sample, 0);
    assert_true(fm_server_stream_is_delivered(f.stream));
    assert_null(fm_server_stream_next_job(f.stream));
    close_stream(&f);
}

static void misfits_are_refused(void **state) {
    (void)state;
    fixture f;
    fm_wire_open params = params_of(1);
    open_stream(&f, &params);
    fm_server_stream *none = NULL;
    fm_error error;
    fm_wire_open bad = params;
    bad.n_group = 9;
    assert_int_equal(fm_server_stream_create(&f.source, &bad, budgets_of(&f), NULL, &none, &error),
                     FM_ERR_USAGE);
    assert_string_equal(error.message, "9 groups cannot share a global batch of 8");
    bad = params;
    bad.token.watermark = 2500;
    bad.token.epoch = 1; /* 1,000 samples an epoch */
    assert_int_equal(fm_server_stream_create(&f.source, &bad, budgets_of(&f), NULL, &none, &error),
                     FM_ERR_USAGE);
    strcpy(bad.plan, "other");
    assert_int_equal(fm_server_stream_create(&f.source, &bad, budgets_of(&f), NULL, &none, &error),
                     FM_ERR_NOT_FOUND);
    f.peer.max_bytes = block_of(&f) - 1;
    assert_int_equal(
        fm_server_stream_create(&f.source, &params, budgets_of(&f), NULL, &none, &error),
        FM_ERR_UNSUPPORTED);
    assert_int_equal(f.test.n_plan, 1);
    close_stream(&f);
}

static void without_credit_nothing_is_sent(void **state) {
    (void)state;
    fixture f;
    fm_wire_open params = params_of(0);
    params.credit_items = 0;
    open_stream(&f, &params);
    fm_job *job;
    size_t n_begun = 0;
    while ((job = fm_server_stream_next_job(f.stream)) != NULL) {
        finish(&f, job);
        n_begun++;
    }
    assert_int_equal(n_begun, 2);
    assert_null(fm_server_stream_pick(f.stream));
    assert_int_equal(fm_server_stream_grant(f.stream, 1, 0, NULL), FM_OK);
    fm_work *work = fm_server_stream_pick(f.stream);
    assert_non_null(work);
    assert_null(fm_server_stream_pick(f.stream));
    fm_server_stream_release(f.stream, work);
    close_stream(&f);
}

/* Bytes may be overdrawn by one sample, and the debt is paid before the next. */
static void one_item_is_always_admitted(void **state) {
    (void)state;
    fixture f;
    fm_wire_open params = params_of(0);
    params.credit_bytes = 1;
    open_stream(&f, &params);
    finish(&f, fm_server_stream_next_job(f.stream));
    finish(&f, fm_server_stream_next_job(f.stream));
    fm_work *work = fm_server_stream_pick(f.stream);
    assert_non_null(work);
    fm_server_stream_release(f.stream, work);
    assert_null(fm_server_stream_pick(f.stream));
    assert_int_equal(fm_server_stream_grant(f.stream, 0, 999, NULL), FM_OK);
    assert_null(fm_server_stream_pick(f.stream));
    assert_int_equal(fm_server_stream_grant(f.stream, 0, 1, NULL), FM_OK);
    work = fm_server_stream_pick(f.stream);
    assert_non_null(work);
    fm_server_stream_release(f.stream, work);
    assert_int_equal(fm_server_stream_grant(f.stream, 65536, 0, NULL), FM_ERR_LIMIT);
    close_stream(&f);
}

/* With room for one block only, samples still come, one after the other. */
static void the_head_always_has_memory(void **state) {
    (void)state;
    fixture f;
    fm_wire_open params = params_of(2);
    open_stream(&f, &params);
    f.budget.max_bytes = block_of(&f);
    fm_job *job = fm_server_stream_next_job(f.stream);
    assert_non_null(job);
    assert_null(fm_server_stream_next_job(f.stream));
    finish(&f, job);
    assert_null(fm_server_stream_next_job(f.stream));
    fm_work *work = fm_server_stream_pick(f.stream);
    fm_server_stream_release(f.stream, work);
    uint64_t got[20];
    assert_int_equal(drain(&f, got, 20), 15);
    close_stream(&f);
}

/* A stream that begins and never sends takes a quarter; some such streams leave a quarter. */
static void a_greedy_stream_leaves_room_for_others(void **state) {
    (void)state;
    fixture f;
    fm_wire_open params = params_of(0);
    open_stream(&f, &params);
    size_t block = block_of(&f);
    f.budget.max_bytes = 16 * block;
    fm_server_stream *greedy[5] = {f.stream};
    fm_job *jobs[5][8];
    for (size_t s = 0; s < 5; s++) {
        fm_error error;
        if (s &&
            fm_server_stream_create(&f.source, &params, budgets_of(&f), &f, &greedy[s], &error)) {
            fail_msg("%s", error.message);
        }
        size_t n = 0;
        while ((jobs[s][n] = fm_server_stream_next_job(greedy[s])) != NULL)
            n++;
        assert_int_equal(n, s < 3 ? 4 : 1);
    }
    assert_int_equal(f.budget.used_bytes, 14 * block);
    assert_int_equal(f.peer.used_bytes, 14 * block);
    for (size_t s = 5; s-- > 0;) {
        f.stream = greedy[s];
        for (size_t n = 0; jobs[s][n]; n++)
            finish(&f, jobs[s][n]);
        fm_server_stream_abandon(greedy[s]);
        if (s) fm_server_stream_destroy(greedy[s]);
    }
    close_stream(&f);
}

/* The blocks of a dropped stream are free at once, but for those that a worker or a write uses. */
static void a_dropped_stream_holds_no_memory(void **state) {
    (void)state;
    fixture f;
    fm_wire_open params = params_of(0);
    open_stream(&f, &params);
    fm_job *jobs[4];
    for (size_t i = 0; i < 4; i++)
        jobs[i] = fm_server_stream_next_job(f.stream);
    for (size_t i = 0; i < 3; i++)
        finish(&f, jobs[i]);
    fm_work *sending = fm_server_stream_pick(f.stream);
    fm_server_stream_release(f.stream, fm_server_stream_pick(f.stream));
    assert_int_equal(f.budget.used_bytes, 4 * block_of(&f));
    fm_server_stream_abandon(f.stream);
    assert_int_equal(f.budget.used_bytes, 2 * block_of(&f));
    fm_server_stream_release(f.stream, sending);
    finish(&f, jobs[3]);
    assert_int_equal(f.budget.used_bytes, 0);
    close_stream(&f);
}

/* A client that opens and grants nothing holds samples only until another client needs memory; they
 * come in order when it grants at last. */
static void silence_holds_no_memory(void **state) {
    (void)state;
    fixture f;
    fm_wire_open silent = params_of(2), busy = params_of(1);
    silent.credit_items = 0;
    open_stream(&f, &silent);
    size_t block = block_of(&f);
    f.budget.max_bytes = 8 * block; /* a quarter for each stream */
    finish(&f, fm_server_stream_next_job(f.stream));
    finish(&f, fm_server_stream_next_job(f.stream));
    assert_null(fm_server_stream_next_job(f.stream));
    f.budget.max_bytes = 2 * block;
    fm_server_stream *other, *first = f.stream;
    assert_int_equal(fm_server_stream_create(&f.source, &busy, budgets_of(&f), &f, &other, NULL),
                     FM_OK);
    assert_null(fm_server_stream_next_job(other));
    assert_true(fm_server_stream_got_in_line(other));
    assert_false(fm_server_stream_got_in_line(other));
    assert_int_equal(fm_server_stream_give_back(first), 2);
    assert_int_equal(f.budget.used_bytes, 0);
    f.stream = other;
    uint64_t got[20] = {0};
    assert_int_equal(drain(&f, got, 20), 8);
    fm_server_stream_abandon(other);
    fm_server_stream_destroy(other);
    f.stream = first;
    assert_null(fm_server_stream_next_job(first)); /* made again only for credit */
    assert_int_equal(fm_server_stream_grant(first, 20, 1 << 20, NULL), FM_OK);
    assert_int_equal(drain(&f, got, 20), 16);
    for (uint64_t i = 0; i < 16; i++)
        assert_int_equal(got[i], i);
    close_stream(&f);
}

/* Jobs finish in a random order and writes take a random time. In every case all samples arrive,
 * none more than W places late or early, and strict is strict. */
static void order_is_bounded(uint32_t window) {
    fixture f;
    fm_wire_open params = params_of(50);
    params.order = window ? FM_WIRE_BOUNDED : FM_WIRE_STRICT;
    params.window = window;
    open_stream(&f, &params);
    fm_job *running[32];
    fm_work *sending[8];
    uint32_t n_running = 0, n_sending = 0, draw = 0;
    uint64_t ordinal = 0, n_overtaken = 0;
    while (!fm_server_stream_is_delivered(f.stream) || n_sending) {
        uint32_t dice = fm_philox(window, (fm_philox_counter){{draw++}}).word[0];
        fm_job *job = n_running < 32 ? fm_server_stream_next_job(f.stream) : NULL;
        if (job) running[n_running++] = job;
        if (n_running && dice % 3 == 0) {
            uint32_t which = dice / 3 % n_running;
            finish(&f, running[which]);
            running[which] = running[--n_running];
        }
        fm_work *work = n_sending < 8 ? fm_server_stream_pick(f.stream) : NULL;
        if (work) {
            uint64_t p = work->job.index;
            assert_true(ordinal <= p + window && p <= ordinal + window);
            n_overtaken += p != ordinal;
            ordinal++;
            sending[n_sending++] = work;
        } else if (n_sending) {
            fm_server_stream_release(f.stream, sending[0]);
            memmove(sending, sending + 1, --n_sending * sizeof sending[0]);
        }
        if (fm_server_stream_get_n_sent(f.stream) % 16 == 0) {
            (void)!fm_server_stream_grant(f.stream, 16, 16000, NULL);
        }
    }
    assert_int_equal(ordinal, 400);
    assert_true(window ? n_overtaken > 0 : n_overtaken == 0);
    close_stream(&f);
}

static void no_order_breaks_its_bound(void **state) {
    (void)state;
    static const uint32_t windows[] = {0, 1, 2, 7, 32, 200};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++)
        order_is_bounded(windows[i]);
}

/* A sample that two others overtook before a restart lets only one more pass with bounded:3, as the
 * token's samples count. */
static void a_restart_does_not_widen_the_window(void **state) {
    (void)state;
    fm_wire_open params = params_of(10);
    params.order = FM_WIRE_BOUNDED;
    params.window = 3;
    params.token = (fm_token){.bitmap_bytes = 1, .watermark = 16, .epoch = 0};
    params.token.bitmap[0] = 6; /* 17 and 18 are delivered, 16 is not */
    fixture f;
    open_stream(&f, &params);
    fm_job *slow = fm_server_stream_next_job(f.stream);
    assert_int_equal(slow->index, 16);
    for (uint64_t index = 19; index <= 21; index++) {
        fm_job *job = fm_server_stream_next_job(f.stream);
        assert_int_equal(job->index, index);
        finish(&f, job);
    }
    fm_work *work = fm_server_stream_pick(f.stream);
    assert_int_equal(work->job.index, 19);
    fm_server_stream_release(f.stream, work);
    assert_null(fm_server_stream_pick(f.stream));
    finish(&f, slow);
    for (uint64_t i = 0; i < 3; i++) {
        work = fm_server_stream_pick(f.stream);
        assert_int_equal(work->job.index, i == 0 ? 16 : 19 + i);
        fm_server_stream_release(f.stream, work);
    }
    close_stream(&f);
}

/* Makes and sends n samples, each of which took a worker so long. */
static void serve_samples(fixture *f, uint32_t n, uint64_t make_ns) {
    for (uint32_t i = 0; i < n; i++) {
        fm_job *job = fm_server_stream_next_job(f->stream);
        assert_non_null(job);
        job->begin_ns = 1;
        job->end_ns = 1 + make_ns;
        finish(f, job);
        fm_work *work = fm_server_stream_pick(f->stream);
        assert_non_null(work);
        fm_server_stream_release(f->stream, work);
        assert_int_equal(fm_server_stream_grant(f->stream, 1, 1000, NULL), FM_OK);
    }
}

/* Samples that take long begin earlier: here each takes an hour, and they are picked within
 * moments. */
static void slow_samples_begin_early(void **state) {
    (void)state;
    static const struct {
        uint64_t make_ns;
        uint32_t n_begun;
    } cases[] = {{0, 4}, {UINT64_C(3600000000000), 64}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_wire_open params = params_of(100);
        params.credit_items = 2;
        fixture f;
        fm_job *jobs[64];
        uint32_t n = 0;
        open_stream(&f, &params);
        serve_samples(&f, 64, cases[i].make_ns);
        while (n < 64 && (jobs[n] = fm_server_stream_next_job(f.stream)) != NULL)
            n++;
        assert_int_equal(n, cases[i].n_begun);
        assert_null(fm_server_stream_next_job(f.stream));
        for (uint32_t k = 0; k < n; k++)
            finish(&f, jobs[k]);
        close_stream(&f);
    }
}

/* With order free hundreds of samples overtake one that does not get ready, with little credit. */
static void a_free_stream_waits_for_no_sample(void **state) {
    (void)state;
    fm_wire_open params = params_of(100);
    params.order = FM_WIRE_FREE;
    params.credit_items = 2;
    fixture f;
    open_stream(&f, &params);
    fm_job *slow = fm_server_stream_next_job(f.stream);
    assert_int_equal(slow->index, 0);
    for (uint64_t index = 1; index < 800; index++) {
        fm_job *job = fm_server_stream_next_job(f.stream);
        assert_non_null(job);
        finish(&f, job);
        fm_work *work = fm_server_stream_pick(f.stream);
        assert_int_equal(work->job.index, index);
        fm_server_stream_release(f.stream, work);
        assert_int_equal(fm_server_stream_grant(f.stream, 1, 1000, NULL), FM_OK);
    }
    assert_null(fm_server_stream_next_job(f.stream));
    finish(&f, slow);
    fm_work *work = fm_server_stream_pick(f.stream);
    assert_int_equal(work->job.index, 0);
    fm_server_stream_release(f.stream, work);
    assert_true(fm_server_stream_is_delivered(f.stream));
    close_stream(&f);
}

/* Samples that are ready and not sent limit a free stream as they do any other. */
static void a_free_stream_makes_little_ahead(void **state) {
    (void)state;
    fm_wire_open params = params_of(100);
    params.order = FM_WIRE_FREE;
    params.credit_items = 3;
    fixture f;
    open_stream(&f, &params);
    for (int i = 0; i < 5; i++)
        finish(&f, fm_server_stream_next_job(f.stream));
    assert_null(fm_server_stream_next_job(f.stream));
    close_stream(&f);
}

static void an_abandoned_stream_waits_for_its_jobs(void **state) {
    (void)state;
    fixture f;
    fm_wire_open params = params_of(0);
    open_stream(&f, &params);
    fm_job *one = fm_server_stream_next_job(f.stream), *two = fm_server_stream_next_job(f.stream);
    fm_job *three = fm_server_stream_next_job(f.stream);
    finish(&f, one);
    finish(&f, two);
    fm_work *work = fm_server_stream_pick(f.stream);
    fm_server_stream_abandon(f.stream);
    assert_null(fm_server_stream_get_owner(f.stream));
    assert_null(fm_server_stream_next_job(f.stream));
    assert_null(fm_server_stream_pick(f.stream));
    assert_false(fm_server_stream_is_idle(f.stream));
    finish(&f, three);
    assert_false(fm_server_stream_is_idle(f.stream));
    fm_server_stream_release(f.stream, work);
    assert_true(fm_server_stream_is_idle(f.stream));
    fm_server_stream_destroy(f.stream);
    assert_int_equal(f.budget.used_bytes, 0);
    fm_test_source_fini(&f.test);
}

/* The account of a peer stays while a job of its last stream runs, however long it is gone. */
static void an_account_outlives_its_streams(void **state) {
    (void)state;
    enum { MINUTES = 5, TICKS_OF_ALL = 256 };
    fixture f;
    const fm_wire_open params = params_of(0);
    const fm_limits limits = {.memory_bytes = 1 << 30};
    fm_accounts *accounts;
    open_stream(&f, &params);
    fm_server_stream *other = f.stream;
    assert_int_equal(fm_accounts_create(&accounts, NULL), FM_OK);
    fm_account *account = fm_accounts_use(accounts, "192.0.2.1", &limits, 0);
    assert_int_equal(fm_server_stream_create(&f.source, &params,
                                             (fm_budgets){&account->memory, &f.budget}, &f,
                                             &f.stream, NULL),
                     FM_OK);
    fm_job *job = fm_server_stream_next_job(f.stream);
    fm_server_stream_abandon(f.stream);
    fm_accounts_leave(account, 0);
    for (uint64_t i = 0; i < TICKS_OF_ALL; i++)
        fm_accounts_tick(accounts, MINUTES * 60000);
    assert_ptr_equal(fm_accounts_use(accounts, "192.0.2.1", &limits, MINUTES * 60000), account);
    assert_int_equal(account->memory.used_bytes, block_of(&f));
    fm_accounts_leave(account, 0);
    finish(&f, job);
    assert_int_equal(account->memory.used_bytes, 0);
    fm_server_stream_destroy(f.stream);
    for (uint64_t i = 0; i < TICKS_OF_ALL; i++)
        fm_accounts_tick(accounts, MINUTES * 60000);
    account = fm_accounts_use(accounts, "192.0.2.1", &limits, 0); /* a new one */
    assert_int_equal(account->memory.n_stream, 0);
    fm_accounts_leave(account, 0);
    fm_accounts_destroy(accounts);
    f.stream = other;
    close_stream(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_account_outlives_its_streams),
        cmocka_unit_test(a_stream_is_its_steps),
        cmocka_unit_test(groups_share_every_step),
        cmocka_unit_test(delivered_samples_are_skipped),
        cmocka_unit_test(a_complete_token_ends_the_stream),
        cmocka_unit_test(misfits_are_refused),
        cmocka_unit_test(without_credit_nothing_is_sent),
        cmocka_unit_test(one_item_is_always_admitted),
        cmocka_unit_test(the_head_always_has_memory),
        cmocka_unit_test(a_greedy_stream_leaves_room_for_others),
        cmocka_unit_test(a_dropped_stream_holds_no_memory),
        cmocka_unit_test(silence_holds_no_memory),
        cmocka_unit_test(no_order_breaks_its_bound),
        cmocka_unit_test(a_restart_does_not_widen_the_window),
        cmocka_unit_test(slow_samples_begin_early),
        cmocka_unit_test(a_free_stream_waits_for_no_sample),
        cmocka_unit_test(a_free_stream_makes_little_ahead),
        cmocka_unit_test(an_abandoned_stream_waits_for_its_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
