/* The rows of consumers: one for each name of each peer, bounded in all and for a peer, and sums
 * that never decrease. */
#include "server/consumers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static fm_consumers *consumers;

static int setup(void **state) {
    (void)state;
    consumers = fm_consumers_create();
    return consumers ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    fm_consumers_destroy(consumers);
    return 0;
}

static void add_sample(fm_report_consumer *row, size_t bytes, fm_status status) {
    const fm_job job = {.begin_ns = 1000, .end_ns = 5000, .bytes = bytes, .status = status};
    fm_consumer_add(row, &job, 300);
}

/* Samples of all rows, and of the last one. */
static uint64_t sum_samples(size_t *ret_rows, fm_report_consumer *ret_last) {
    fm_web_report *report = calloc(1, sizeof *report);
    assert_non_null(report);
    assert_true(fm_consumers_describe(consumers, report));
    uint64_t n = 0;
    for (size_t i = 0; i < report->n_consumer; i++)
        n += report->consumer[i].n_sample;
    *ret_rows = report->n_consumer;
    if (report->n_consumer) *ret_last = report->consumer[report->n_consumer - 1];
    fm_report_free(report);
    return n;
}

static void streams_of_one_consumer_share_a_row(void **state) {
    (void)state;
    size_t n;
    fm_report_consumer last;
    assert_int_equal(sum_samples(&n, &last), 0);
    assert_int_equal(n, 0);
    fm_report_consumer *one = fm_consumers_begin(consumers, "uid:7", "train", 100);
    fm_report_consumer *two = fm_consumers_begin(consumers, "uid:7", "fetch", 100);
    assert_ptr_not_equal(one, two);
    assert_ptr_equal(one, fm_consumers_begin(consumers, "uid:7", "train", 200));
    assert_int_equal(one->n_stream, 2);
    add_sample(one, 50, FM_OK);
    add_sample(one, 70, FM_OK);
    add_sample(one, 0, FM_ERR_DATA);
    fm_consumers_end(consumers, one, 300);
    fm_consumers_end(consumers, one, 300);
    assert_ptr_equal(one, fm_consumers_begin(consumers, "uid:7", "train", 400));
    assert_int_equal(one->n_sample, 2);
    assert_int_equal(one->n_byte, 120);
    assert_int_equal(one->n_failed, 1);
    assert_int_equal(one->times.prepare.n, 3);
    assert_int_equal(one->times.prepare.sum, 12000);
    assert_int_equal(one->times.wait.n, 2);
    assert_int_equal(sum_samples(&n, &last), 2);
    assert_int_equal(n, 2);
}

/* A client that invents names gets a few rows, and others still get theirs. */
static void names_of_one_peer_are_bounded(void **state) {
    (void)state;
    char name[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "name %d", i);
        add_sample(fm_consumers_begin(consumers, "token:a", name, 100), 1, FM_OK);
    }
    size_t n;
    fm_report_consumer last;
    assert_int_equal(sum_samples(&n, &last), 1000);
    assert_int_equal(n, FM_CONSUMERS_N_OF_PEER + 1);
    assert_string_equal(last.peer, "other");
    assert_int_equal(last.n_sample, 1000 - FM_CONSUMERS_N_OF_PEER);
    fm_report_consumer *good = fm_consumers_begin(consumers, "token:b", "train", 100);
    assert_string_equal(good->peer, "token:b");
}

/* Rows are given on when nobody has used them for long, and their counts stay in the sum. */
static void unused_rows_are_given_on(void **state) {
    (void)state;
    char peer[32];
    fm_report_consumer *row = NULL, *first = NULL, last;
    for (int i = 0; i < FM_CONSUMERS_N; i++) {
        snprintf(peer, sizeof peer, "peer %d", i);
        row = fm_consumers_begin(consumers, peer, "x", 0);
        add_sample(row, 10, FM_OK);
        if (i == 5) first = row;
        if (i >= 5) fm_consumers_end(consumers, row, 1000 + (uint64_t)i);
    }
    size_t n;
    assert_int_equal(sum_samples(&n, &last), FM_CONSUMERS_N);
    row = fm_consumers_begin(consumers, "new", "x", 1004 + FM_CONSUMERS_KEPT_MS);
    assert_string_equal(row->peer, "other");
    fm_consumers_end(consumers, row, 1004 + FM_CONSUMERS_KEPT_MS);
    row = fm_consumers_begin(consumers, "new", "x", 1005 + FM_CONSUMERS_KEPT_MS);
    assert_ptr_equal(row, first);
    assert_string_equal(row->peer, "new");
    assert_int_equal(row->n_sample, 0);
    assert_int_equal(sum_samples(&n, &last), FM_CONSUMERS_N);
    assert_int_equal(n, FM_CONSUMERS_N + 1);
    assert_int_equal(last.n_sample, 1);
    assert_int_equal(last.n_byte, 10);
    assert_int_equal(last.times.wait.n, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(streams_of_one_consumer_share_a_row, setup, teardown),
        cmocka_unit_test_setup_teardown(names_of_one_peer_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(unused_rows_are_given_on, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
