/* What the server remembers for its operator: seconds, slow chains, refusals; and the two texts
 * that are made of a report, with hostile names in it. */
#include "proto/base/json_tree.h"
#include "server/board.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { START_MS = 5000 };

typedef struct fixture {
    fm_board *board;
    fm_web_report *report;
} fixture;

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->board = fm_board_create(START_MS);
    f->report = calloc(1, sizeof *f->report);
    assert_non_null(f->board);
    assert_non_null(f->report);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    fm_board_destroy(f->board);
    fm_report_free(f->report);
    free(f);
    return 0;
}

static void seconds_are_counted_one_by_one(void **state) {
    fixture *f = *state;
    for (int i = 0; i < 3; i++)
        fm_board_add_sent(f->board, 100, 1000);
    fm_board_tick(f->board, 7, START_MS + 999);
    fm_board_fill(f->board, START_MS + 999, f->report);
    assert_int_equal(f->report->n_second, 0);
    fm_board_tick(f->board, 8, START_MS + 1000);
    fm_board_add_sent(f->board, 50, 1000);
    fm_board_tick(f->board, 9, START_MS + 3500); /* two seconds passed; the second had nothing */
    fm_board_fill(f->board, START_MS + 3500, f->report);
    assert_int_equal(f->report->n_second, 3);
    assert_int_equal(f->report->second[0].n_sample, 3);
    assert_int_equal(f->report->second[0].n_byte, 300);
    assert_int_equal(f->report->second[0].memory_bytes, 8);
    assert_int_equal(f->report->second[1].n_sample, 1);
    assert_int_equal(f->report->second[2].n_sample, 0);
    assert_int_equal(f->report->times.wait.n, 4);
    assert_float_equal(f->report->uptime_s, 3.5, 1e-9);
}

static void the_history_keeps_the_last_ten_minutes(void **state) {
    fixture *f = *state;
    for (uint64_t s = 1; s <= FM_REPORT_N_SECOND + 25; s++) {
        for (uint64_t i = 0; i < s % 7; i++)
            fm_board_add_sent(f->board, s, 1);
        fm_board_tick(f->board, s, START_MS + s * 1000);
    }
    fm_board_fill(f->board, START_MS, f->report);
    assert_int_equal(f->report->n_second, FM_REPORT_N_SECOND);
    for (uint64_t i = 0; i < FM_REPORT_N_SECOND; i++) {
        uint64_t s = i + 26;
        assert_int_equal(f->report->second[i].memory_bytes, s);
        assert_int_equal(f->report->second[i].n_sample, s % 7);
        assert_int_equal(f->report->second[i].n_byte, s % 7 * s);
    }
}

static void slow_chains_are_listed_once_and_sorted(void **state) {
    fixture *f = *state;
    char chain[16];
    for (uint64_t i = 0; i < 40; i++) { /* 0, 17, 34, 11, ... of 40 chains, then faster repeats */
        uint64_t k = i * 17 % 40;
        snprintf(chain, sizeof chain, "c%llu", (unsigned long long)k);
        fm_board_add_prepared(f->board, chain, i, 1000 * (k + 1));
    }
    for (uint64_t k = 0; k < 40; k++) {
        snprintf(chain, sizeof chain, "c%llu", (unsigned long long)k);
        fm_board_add_prepared(f->board, chain, 100 + k, 500);
    }
    fm_board_add_prepared(f->board, "c30", 999, 1000000);
    fm_board_fill(f->board, START_MS, f->report);
    assert_int_equal(f->report->n_slow, FM_REPORT_N_SLOW);
    assert_string_equal(f->report->slow[0].chain, "c30");
    assert_int_equal(f->report->slow[0].index, 999);
    uint64_t wanted = 39;
    for (uint32_t i = 1; i < FM_REPORT_N_SLOW; i++, wanted--) {
        wanted -= wanted == 30;
        snprintf(chain, sizeof chain, "c%llu", (unsigned long long)wanted);
        assert_string_equal(f->report->slow[i].chain, chain);
        assert_int_equal(f->report->slow[i].prepare_ns, 1000 * (wanted + 1));
    }
    assert_int_equal(f->report->times.prepare.n, 81);
}

static void the_latest_refusals_come_first(void **state) {
    fixture *f = *state;
    char reason[2 * FM_REPORT_REASON_BYTES];
    memset(reason, 'x', sizeof reason);
    reason[sizeof reason - 1] = 0;
    for (uint64_t i = 0; i < FM_REPORT_N_REFUSED + 3; i++)
        fm_board_add_refused(f->board, "1abc_A", i, reason, START_MS + i);
    fm_board_fill(f->board, START_MS + 1000, f->report);
    assert_int_equal(f->report->n_refused, FM_REPORT_N_REFUSED);
    for (uint64_t i = 0; i < FM_REPORT_N_REFUSED; i++)
        assert_int_equal(f->report->refused[i].index, FM_REPORT_N_REFUSED + 2 - i);
    assert_int_equal(strlen(f->report->refused[0].reason), FM_REPORT_REASON_BYTES - 1);
    assert_float_equal(f->report->refused[0].age_s, 0.966, 1e-9);
}

/* -- texts */

static const char hostile[] = "a\"b\\c\nd\xff</script>";

static void fill_hostile(fixture *f) {
    fm_board_add_refused(f->board, hostile, 3, hostile, START_MS);
    fm_board_add_prepared(f->board, hostile, 3, 2000000);
    fm_board_add_sent(f->board, 10, 30000000);
    fm_board_tick(f->board, 0, START_MS + 1000);
    fm_board_fill(f->board, START_MS + 1000, f->report);
    f->report->stream = calloc(1, sizeof f->report->stream[0]);
    assert_non_null(f->report->stream);
    f->report->n_stream = 1;
    f->report->stream[0].n_total = UINT64_MAX;
    f->report->stream[0].n_sample = 42;
    strcpy(f->report->stream[0].peer, hostile);
    f->report->consumer = calloc(1, sizeof f->report->consumer[0]);
    assert_non_null(f->report->consumer);
    f->report->n_consumer = 1;
    strcpy(f->report->consumer[0].peer, hostile);
    strcpy(f->report->consumer[0].agent, hostile);
    fm_histogram_add(&f->report->consumer[0].times.send, 2000000);
    f->report->value = calloc(1, sizeof f->report->value[0]);
    assert_non_null(f->report->value);
    f->report->n_value = 1;
    f->report->value[0] = (fm_report_value){"samples_sent_total", "Samples.", false, 77};
}

static char *text_of(const fm_web_report *report, void (*write)(const fm_web_report *, FILE *)) {
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    write(report, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void json_escapes_names(void **state) {
    fixture *f = *state;
    fill_hostile(f);
    char *text = text_of(f->report, fm_report_json);
    fm_json *tree = fm_json_parse(text, strlen(text));
    assert_true(fm_json_is_object(tree));
    const fm_json *stream = fm_json_get_element(fm_json_get_member(tree, "streams"), 0);
    assert_string_equal(fm_json_get_text(fm_json_get_member(stream, "peer")),
                        "a\"b\\c\nd\xef\xbf\xbd</script>");
    assert_null(fm_json_get_text(fm_json_get_member(stream, "samples_in_all")));
    const fm_json *counters = fm_json_get_member(tree, "counters");
    assert_float_equal(fm_json_get_number(fm_json_get_member(counters, "samples_sent_total"), 0),
                       77, 0);
    const fm_json *wait = fm_json_get_member(fm_json_get_member(tree, "times"), "wait");
    assert_float_equal(fm_json_get_number(fm_json_get_member(wait, "p50_ms"), 0), 30, 2);
    fm_json_free(tree);
    free(text);
}

static void metrics_escape_labels(void **state) {
    fixture *f = *state;
    fill_hostile(f);
    char *text = text_of(f->report, fm_report_metrics);
#define ESCAPED "a\\\"b\\\\c\\nd\xef\xbf\xbd</script>"
    assert_non_null(strstr(text, "\nfoldmill_consumer_samples_total{peer=\"" ESCAPED
                                 "\",consumer=\"" ESCAPED "\"} 0\n"));
    assert_non_null(strstr(text, "\nfoldmill_consumer_send_seconds_bucket{peer=\"" ESCAPED
                                 "\",consumer=\"" ESCAPED "\",le=\"0.005\"} 1\n"));
    assert_non_null(strstr(text, "\nfoldmill_samples_sent_total 77\n"));
    assert_non_null(strstr(text, "\nfoldmill_wait_seconds_bucket{le=\"0.025\"} 0\n"));
    assert_non_null(strstr(text, "\nfoldmill_wait_seconds_bucket{le=\"0.05\"} 1\n"));
    assert_non_null(strstr(text, "\nfoldmill_wait_seconds_sum 0.030000000\n"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(seconds_are_counted_one_by_one, setup, teardown),
        cmocka_unit_test_setup_teardown(the_history_keeps_the_last_ten_minutes, setup, teardown),
        cmocka_unit_test_setup_teardown(slow_chains_are_listed_once_and_sorted, setup, teardown),
        cmocka_unit_test_setup_teardown(the_latest_refusals_come_first, setup, teardown),
        cmocka_unit_test_setup_teardown(json_escapes_names, setup, teardown),
        cmocka_unit_test_setup_teardown(metrics_escape_labels, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
