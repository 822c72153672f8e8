/* test_nccl_watch.c: exchanges that do not end, errors of NCCL and runs that are over end all
 * communicators, and what is said then. A fake NCCL and fake counters take the place of a GPU. */
#include "tests/testing/testing.h"

#include "trainer/dist/nccl_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { GROUPS = 2, LOST = 6 /* ncclRemoteError */ };
static const double soon_s = 0.6, never_s = 1e6;

/* A rank's GPU and NCCL. */
static _Atomic uint32_t begun[GROUPS], ended[GROUPS];
static _Atomic int n_abort, n_stop, async_error;
static _Atomic bool is_over, flows; /* flows: one exchange ends between two looks */
static _Atomic int n_look;
static char said[400];
static _Atomic bool has_said;

static int fake_abort(void *comm) {
    assert_non_null(comm);
    n_abort++;
    return 0;
}

static int fake_async_error(void *comm, int *ret_error) {
    assert_non_null(comm);
    *ret_error = async_error;
    return 0;
}

static const char *fake_text(int error) {
    return error == LOST ? "remote process exited" : "unknown";
}

static const fm_nccl nccl = {
    .abort = fake_abort, .async_error = fake_async_error, .text = fake_text};

static fm_nccl_beat look(void *context, int32_t group) {
    (void)context;
    n_look++;
    if (flows) begun[group] = 1 + ++ended[group];
    return (fm_nccl_beat){begun[group], ended[group], group ? "gradients" : NULL};
}

static const char *reason(void *context) {
    (void)context;
    return is_over ? "rank 3 is gone" : NULL;
}

static void end(void *context, const char *why) {
    (void)context;
    snprintf(said, sizeof said, "%s", why);
    has_said = true;
}

static void stop(void *context) {
    (void)context;
    n_stop++;
}

static fm_nccl_watch *begin(double wait_s) {
    fm_nccl_watch *watch;
    const fm_nccl_watch_options options = {
        .nccl = &nccl, .wait_s = wait_s, .look = look, .reason = reason, .end = end, .stop = stop};
    for (int i = 0; i < GROUPS; i++)
        begun[i] = ended[i] = 0;
    n_abort = n_stop = async_error = 0;
    is_over = has_said = flows = false;
    n_look = 0;
    assert_int_equal(fm_nccl_watch_start(&options, &watch, NULL), FM_OK);
    static int comms[GROUPS];
    fm_nccl_watch_add(watch, &comms[0], "ranks 0 and 1");
    fm_nccl_watch_add(watch, &comms[1], "ranks 0, 2 and 4");
    assert_true(fm_nccl_watch_enter(watch));
    fm_nccl_watch_leave(watch);
    return watch;
}

/* All exchanges have been ended with this reason, which the thread has said or was told. */
static void expect_end(fm_nccl_watch *watch, const char *why, bool says) {
    fm_error error;
    while (n_abort < GROUPS)
        usleep(1000);
    assert_int_equal(fm_nccl_watch_check(watch, &error), FM_ERR_CLOSED);
    assert_string_equal(error.message, why);
    assert_int_equal(has_said, says);
    if (says) assert_string_equal(said, why);
    assert_false(fm_nccl_watch_enter(watch));
    assert_true(fm_nccl_watch_is_over(watch));
    assert_int_equal(n_stop, 1);
    fm_nccl_watch_stop(watch);
    assert_int_equal(n_abort, GROUPS); /* each once */
}

static void an_exchange_that_hangs_is_ended(void **state) {
    (void)state;
    fm_nccl_watch *watch = begin(soon_s);
    begun[1] = UINT32_MAX; /* numbers wrap around */
    ended[1] = UINT32_MAX - 1;
    expect_end(watch, "the exchange 'gradients' between ranks 0, 2 and 4 has not ended within 1 s",
               true);
}

/* Neither a group that rests nor one whose exchanges go on is ended, however long that is. */
static void exchanges_that_end_are_left_alone(void **state) {
    (void)state;
    fm_nccl_watch *watch = begin(soon_s);
    for (int i = 0; i < 2; i++) {
        n_look = 0;
        while (n_look < 5 * GROUPS) /* a second and more */
            usleep(10000);
        flows = true;
    }
    assert_int_equal(fm_nccl_watch_check(watch, NULL), FM_OK);
    assert_false(fm_nccl_watch_is_over(watch));
    assert_int_equal(n_abort, 0);
    fm_nccl_watch_stop(watch); /* leaves in order */
    assert_int_equal(n_abort, GROUPS);
    assert_int_equal(n_stop, 0);
    assert_false(has_said);
}

static void errors_of_nccl_are_noticed(void **state) {
    (void)state;
    fm_nccl_watch *watch = begin(never_s);
    async_error = FM_NCCL_IN_PROGRESS;
    usleep(500000);
    assert_int_equal(n_abort, 0);
    async_error = LOST;
    expect_end(watch, "NCCL reports an error between ranks 0 and 1: remote process exited", true);
}

static void the_end_of_the_run_ends_exchanges(void **state) {
    (void)state;
    fm_nccl_watch *watch = begin(never_s);
    begun[0] = 1;
    is_over = true;
    expect_end(watch, "rank 3 is gone", false);
}

/* Who hangs inside NCCL is ended all the same. */
static void who_is_inside_does_not_hold_it_up(void **state) {
    (void)state;
    fm_nccl_watch *watch = begin(never_s);
    assert_true(fm_nccl_watch_enter(watch));
    is_over = true;
    while (n_abort < GROUPS)
        usleep(1000);
    fm_nccl_watch_leave(watch);
    expect_end(watch, "rank 3 is gone", false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exchange_that_hangs_is_ended),
        cmocka_unit_test(exchanges_that_end_are_left_alone),
        cmocka_unit_test(errors_of_nccl_are_noticed),
        cmocka_unit_test(the_end_of_the_run_ends_exchanges),
        cmocka_unit_test(who_is_inside_does_not_hold_it_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
