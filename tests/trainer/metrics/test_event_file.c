/* test_event_file.c: tests event files: their bytes as an independent reader sees them, resuming,
 * and files that must be refused. */
#include "trainer/metrics/event_file.h"

#include "proto/base/file.h"
#include "tests/testing/in_folder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The events of run `name` as tests/e2e/read_events.py prints them; NULL if it refuses the file. */
static const char *read_back(const char *name) {
    static char text[8192];
    char command[1024];
    snprintf(command, sizeof command,
             "python3 tests/e2e/read_events.py '%s/%s/events.out.tfevents.foldmill' 2>/dev/null",
             folder, name);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(text, 1, sizeof text - 1, pipe);
    text[n] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : NULL;
}

static const char *path_of(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_steps(fm_event_file *file, uint64_t first, uint64_t last) {
    for (uint64_t step = first; step <= last; step++) {
        fm_metrics_step m = {
            .step = step,
            .sample = "1abc_A",
            .loss = 0.5 * (double)step,
            .n_term = 2,
            .term = {{.name = "distogram", .value = 4.25}, {.name = "plddt", .value = NAN}},
            .n_score = step % 2 ? 0 : 1,
            .score = {{"lddt_ca", 0.75}},
            .grad_norm = 1.5,
            .learning_rate = 0.0009765625,
            .step_s = 2,
            .data_wait_s = 0};
        assert_int_equal(fm_event_file_write(file, &m, 1000.5 + (double)step, NULL), FM_OK);
    }
}

static void the_crc_is_castagnolis(void **state) {
    (void)state;
    static const uint8_t zeros[32];
    assert_int_equal(fm_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(fm_crc32c(zeros, 32), 0x8a9136aa); /* RFC 3720, B.4 */
    assert_int_equal(fm_crc32c("", 0), 0);
}

static void another_reader_reads_our_files(void **state) {
    (void)state;
    fm_event_file *file;
    assert_int_equal(fm_event_file_open(path_of("a"), false, 0, 1000, &file, NULL), FM_OK);
    write_steps(file, 299, 300); /* such steps need two bytes */
    fm_event_file_close(file);
    const char *text = read_back("a");
    assert_non_null(text);
    assert_string_equal(
        text,
        "{\"step\": 0, \"wall_time\": 1000.0, \"file_version\": \"brain.Event:2\"}\n"
        "{\"step\": 299, \"wall_time\": 1299.5, \"loss/total\": 149.5, \"loss/distogram\": 4.25, "
        "\"optimizer/grad_norm\": 1.5, \"optimizer/learning_rate\": 0.0009765625, "
        "\"time/step_s\": 2.0, \"time/data_wait_s\": 0.0}\n"
        "{\"step\": 300, \"wall_time\": 1300.5, \"loss/total\": 150.0, \"loss/distogram\": 4.25, "
        "\"structure/lddt_ca\": 0.75, \"optimizer/grad_norm\": 1.5, \"optimizer/learning_rate\": "
        "0.0009765625, \"time/step_s\": 2.0, \"time/data_wait_s\": 0.0}\n");
}

static size_t count_steps(const char *text, const char *loss) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, loss)) != NULL; at++)
        n++;
    return n;
}

/* A run that is killed in the middle of a record after step 5 resumes from step 3. */
static void a_resumed_run_has_each_step_once(void **state) {
    (void)state;
    fm_event_file *file;
    assert_int_equal(fm_event_file_open(path_of("b"), true, 0, 7, &file, NULL), FM_OK);
    write_steps(file, 1, 5);
    fm_event_file_close(file);
    char path[640];
    snprintf(path, sizeof path, "%s/events.out.tfevents.foldmill", path_of("b"));
    FILE *end = fopen(path, "ab");
    assert_non_null(end);
    assert_int_equal(fwrite("\x40\0\0\0\0\0\0\0half", 1, 12, end), 12);
    assert_int_equal(fclose(end), 0);
    assert_null(read_back("b"));
    assert_int_equal(fm_event_file_open(path_of("b"), true, 3, 9, &file, NULL), FM_OK);
    write_steps(file, 4, 6);
    fm_event_file_close(file);
    const char *text = read_back("b");
    assert_non_null(text);
    assert_int_equal(count_steps(text, "file_version"), 1);
    assert_int_equal(count_steps(text, "loss/total"), 6);
    for (int step = 1; step <= 6; step++) {
        char key[32];
        snprintf(key, sizeof key, "{\"step\": %d,", step);
        assert_int_equal(count_steps(text, key), 1);
    }
}

static void existing_files_are_not_overwritten(void **state) {
    (void)state;
    fm_event_file *file;
    fm_error error;
    assert_int_equal(fm_event_file_open(path_of("c"), false, 0, 7, &file, NULL), FM_OK);
    fm_event_file_close(file);
    assert_int_equal(fm_event_file_open(path_of("c"), false, 0, 7, &file, &error), FM_ERR_EXISTS);
    assert_string_equal(
        error.message,
        "this folder has the events of another run; resume that run or choose another folder");
    char path[640];
    snprintf(path, sizeof path, "%s/events.out.tfevents.foldmill", path_of("c"));
    assert_int_equal(fm_file_write_atomic(path, "a letter to my aunt", 19, NULL), FM_OK);
    assert_int_equal(fm_event_file_open(path_of("c"), true, 3, 7, &file, &error), FM_ERR_CORRUPT);
    assert_string_equal(error.message,
                        "this is not a file of TensorBoard events that foldmill wrote");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_crc_is_castagnolis),
        cmocka_unit_test(another_reader_reads_our_files),
        cmocka_unit_test(a_resumed_run_has_each_step_once),
        cmocka_unit_test(existing_files_are_not_overwritten),
    };
    return cmocka_run_group_tests(tests, make_folder, tear_down);
}
