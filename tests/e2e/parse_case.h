/* parse_case.h: a temporary folder, and `foldmill parse` run in it, for the tests of that command.
 * Only one source file of a program may include it, after cmocka.h. */
#ifndef FM_TESTS_PARSE_CASE_H
#define FM_TESTS_PARSE_CASE_H

#include "proto/base/file.h"
#include "proto/npz.h"
#include "tests/testing/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static char folder[512];

static int make_folder(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static void write_file(const char *name, const char *text) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(fm_file_write_atomic(path, text, strlen(text), NULL), FM_OK);
}

/* Runs `foldmill parse ARGUMENTS` in the folder. Returns the exit code; out[0..out_bytes-1] gets
 * what it printed on stdout and stderr. */
static int run_parse(const char *arguments, char *out, size_t out_bytes) {
    char command[4096];
    snprintf(command, sizeof command,
             "B=$(realpath \"$FM_BIN\") && cd %s && \"$B/foldmill\" parse %s 2>&1", folder,
             arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(out, 1, out_bytes - 1, pipe);
    out[n] = 0;
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Reads a file of the folder that the command wrote; what the arena held before is gone. */
static fm_npz read_npz(fm_arena *arena, const char *name) {
    char path[1024];
    fm_bytes archive;
    fm_npz npz;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    fm_arena_reset(arena);
    assert_int_equal(fm_file_read(arena, path, (size_t)1 << 30, &archive, NULL), FM_OK);
    assert_int_equal(fm_npz_parse(arena, archive, &npz, NULL), FM_OK);
    return npz;
}

static void expect(const char *arguments, int code, const char *output) {
    char found[8192];
    int exit_code = run_parse(arguments, found, sizeof found);
    assert_string_equal(found, output);
    assert_int_equal(exit_code, code);
}

#endif
