/* test_metrics.c: tests metrics.jsonl byte by byte, cutting it after a step, and the progress
 * line. */
#include "trainer/metrics/metrics.h"

#include "proto/base/file.h"
#include "tests/testing/testing.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char folder[256], path[512];
static fm_arena arena;

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    return fm_arena_init(&arena, (size_t)1 << 20, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    fm_test_remove_tree(folder);
    return 0;
}

static fm_metrics_step make_step(uint64_t number) {
    return (fm_metrics_step){.step = number,
                             .index = 4 * number,
                             .sample = "1a\"b\xff_A",
                             .n_cycle = 2,
                             .loss = 12.5,
                             .n_term = 2,
                             .term = {{"distogram", 0.1, 0.3}, {"plddt", NAN, NAN}},
                             .n_score = number % 2 ? 2 : 0,
                             .score = {{"lddt_ca", 0.75}, {"rmsd_ca", INFINITY}},
                             .grad_norm = 1e-9,
                             .learning_rate = 1e-3,
                             .step_s = 0.25,
                             .data_wait_s = 0.0625,
                             .left_s = 7204.6,
                             .memory_bytes = 3u << 20,
                             .device_free_bytes = (uint64_t)5 << 32};
}

static void write_steps(uint64_t first, uint64_t last) {
    fm_metrics *metrics;
    assert_int_equal(fm_metrics_open(path, &metrics, NULL), FM_OK);
    for (uint64_t i = first; i <= last; i++) {
        fm_metrics_step step = make_step(i);
        assert_int_equal(fm_metrics_write(metrics, &step, NULL), FM_OK);
    }
    fm_metrics_close(metrics);
}

static const char *content(void) {
    fm_bytes bytes;
    fm_arena_reset(&arena);
    assert_int_equal(fm_file_read(&arena, path, 65536, &bytes, NULL), FM_OK);
    char *text = fm_arena_alloc(&arena, bytes.size + 1);
    assert_non_null(text);
    memcpy(text, bytes.data, bytes.size);
    text[bytes.size] = '\0';
    return text;
}

#define LINE(number, index, scores)                                                                \
    "{\"step\":" number ",\"index\":" index ",\"cycles\":2,\"sample\":\"1a\\u0022b\\ufffd_A\","    \
    "\"loss\":12.5,\"distogram\":0.1,\"plddt\":null," scores                                       \
    "\"grad_norm\":1e-09,\"learning_rate\":0.001,\"step_s\":0.25,\"data_wait_s\":0.0625,"          \
    "\"left_s\":7204.6,\"memory_bytes\":3145728,\"device_free_bytes\":21474836480}\n"
#define SCORES "\"lddt_ca\":0.75,\"rmsd_ca\":null,"

static void a_line_is_one_json_object(void **state) {
    (void)state;
    write_steps(1, 2);
    assert_string_equal(content(), LINE("1", "4", SCORES) LINE("2", "8", ""));
}

static void a_resumed_run_writes_each_step_once(void **state) {
    (void)state;
    fm_metrics_kept kept;
    assert_int_equal(fm_metrics_truncate(path, 1, &kept, NULL), FM_OK);
    assert_true(kept.n == 1 && kept.last == 1);
    write_steps(2, 3);
    assert_string_equal(content(),
                        LINE("1", "4", SCORES) LINE("2", "8", "") LINE("3", "12", SCORES));
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_true(fputs("{\"step\":4,\"ind", file) >= 0); /* a line that is cut off */
    assert_int_equal(fclose(file), 0);
    assert_int_equal(fm_metrics_truncate(path, 9, &kept, NULL), FM_OK);
    assert_true(kept.n == 3 && kept.last == 3);
    assert_string_equal(content(),
                        LINE("1", "4", SCORES) LINE("2", "8", "") LINE("3", "12", SCORES));
    assert_int_equal(fm_metrics_truncate(path, 0, &kept, NULL), FM_OK);
    assert_string_equal(content(), "");
    assert_int_equal(fm_metrics_truncate("/nowhere/metrics.jsonl", 3, &kept, NULL), FM_OK);
    assert_true(kept.n == 0 && kept.last == 0);
}

/* A damaged line does not cost those behind it. */
static void a_damaged_line_is_removed_alone(void **state) {
    (void)state;
    fm_metrics_kept kept;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("{\"step\":1,\"a\":1}\n{\"step\":2,\"a\n\n{\"ste{\"step\":3}\n"
                      "{\"step\":4,\"a\":4}\n{\"step\":5,\"a\":5}\n",
                      file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(fm_metrics_truncate(path, 4, &kept, NULL), FM_OK);
    assert_true(kept.n == 2 && kept.last == 4);
    assert_string_equal(content(), "{\"step\":1,\"a\":1}\n{\"step\":4,\"a\":4}\n");
}

static void people_see_the_loss_its_terms_and_the_first_score(void **state) {
    (void)state;
    char text[256];
    fm_metrics_step step = make_step(7);
    fm_metrics_format(&step, 10, 0, text, sizeof text);
    assert_string_equal(text, "step 7/10  loss 12.500  lddt_ca 0.750  0.250 s/step  ETA 2:00:05  "
                              "data wait 62.5 ms  (distogram 0.300  plddt nan)");
    fm_metrics_format(&step, 10, 113, text, sizeof text); /* as long as the whole line */
    assert_int_equal(strlen(text), 113);
    static const struct {
        size_t columns;
        const char *line;
    } narrow[] = {
        {112, "step 7/10  loss 12.500  lddt_ca 0.750  0.250 s/step  ETA 2:00:05  "
              "data wait 62.5 ms  (distogram 0.300)"},
        {101, "step 7/10  loss 12.500  lddt_ca 0.750  0.250 s/step  ETA 2:00:05  "
              "data wait 62.5 ms"},
        {82, "step 7/10  loss 12.500  lddt_ca 0.750  0.250 s/step  ETA 2:00:05"},
        {22, "step 7/10  loss 12.500"},
        {21, "step 7/10"},
    };
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++) {
        fm_metrics_format(&step, 10, narrow[i].columns, text, sizeof text);
        assert_string_equal(text, narrow[i].line);
    }
    step = make_step(8);
    step.n_term = 0;
    step.left_s = -1;
    fm_metrics_format(&step, 10, 0, text, sizeof text);
    assert_string_equal(text, "step 8/10  loss 12.500  0.250 s/step  data wait 62.5 ms");
    fm_metrics_format(&step, 0, 0, text, sizeof text);
    assert_string_equal(text, "step 8  loss 12.500  0.250 s/step  data wait 62.5 ms");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_one_json_object),
        cmocka_unit_test(a_resumed_run_writes_each_step_once),
        cmocka_unit_test(a_damaged_line_is_removed_alone),
        cmocka_unit_test(people_see_the_loss_its_terms_and_the_first_score),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
