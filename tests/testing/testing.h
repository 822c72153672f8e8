/* testing.h: helpers that all tests share: the reference data, temporary files and folders, and
 * running programs. */
#ifndef FM_TESTS_TESTING_H
#define FM_TESTS_TESTING_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>
#include <sys/types.h>

/* The exit code with which a test program reports "skipped" to ctest. */
enum { FM_TEST_SKIPPED = 77 };

/* Returns the unpacked reference data (golden/, dev/, model/, full/): $FM_REFERENCE_DATA, else
 * NULL. A test that needs it says so on stderr and skips (cmocka's skip(), or exit code 77). */
const char *fm_test_reference(void);

/* Writes the path of `relative` below the reference data into out[0..out_bytes-1]; asserts that it
 * fits. Returns out. */
const char *fm_test_reference_path(char *out, size_t out_bytes, const char *relative);
/* Writes the path of a readable file into out: `given` as it is, or below the reference data. False
 * when there is none. */
bool fm_test_find(char *out, size_t out_bytes, const char *given);

/* Makes a new folder below $TMPDIR; fm_test_remove_tree removes it with everything in it. */
void fm_test_make_folder(char *out, size_t out_bytes);
void fm_test_remove_tree(const char *path);

/* In a forked child: it is killed when the test ends, however the test ends. A failed assertion
 * would otherwise leave a server that keeps the test's output open, for which ctest waits. */
void fm_test_die_with_parent(void);

/* Runs a shell command in a folder and returns its exit code. $FM_BIN is first on its PATH, and
 * $FOLDMILL is the program there. What it has left in the background is killed when it ends. The
 * second form formats the command as printf does. */
int fm_test_shell(const char *folder, const char *command);
int fm_test_shell_format(const char *folder, const char *format, ...) FM_PRINTF(2, 3);

/* Prints "PROGRAM: error" on stderr. Returns the exit code of a test or a benchmark that ends with
 * it: FM_TEST_SKIPPED for FM_ERR_UNSUPPORTED, else 1. */
int fm_test_report(const char *program, const fm_error *error);

/* Writes FOLDER/lib, which a shell command reads with `. ./lib`: the functions of library.sh, then
 * those of the test. Returns 1 when it cannot be written. */
int fm_test_write_library(const char *folder, const char *functions);

/* Starts one program (a simple command of the shell, as above) and returns its process. It runs
 * beside the test until fm_test_stop, and is killed when the test ends, however the test ends. */
pid_t fm_test_start(const char *folder, const char *command);

/* Starts `foldmill serve ARGUMENTS --listen unix:SOCKET`, whose log is SOCKET.log, and returns when
 * it listens; asserts that it does. */
pid_t fm_test_serve(const char *folder, const char *socket, const char *arguments);

/* Sends the signal to a started program and waits for its end. Returns its exit code, or 128 + the
 * signal that ended it. */
int fm_test_stop(pid_t pid, int signal_number);

#endif
