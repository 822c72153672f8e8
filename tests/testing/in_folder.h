/* in_folder.h: the fixture of tests that work in a temporary folder. Only one source file of a
 * program may include it. */
#ifndef FM_TESTING_IN_FOLDER_H
#define FM_TESTING_IN_FOLDER_H

#include "tests/testing/testing.h"

#include <signal.h>

static char folder[512];
static pid_t server;               /* of fm_test_serve; tear_down stops it. 0: none */
static const char *run_first = ""; /* what the shell runs before each command */

/* Runs a shell command in the folder with the programs on PATH; $OLDPWD is the source tree. */
static inline int run(const char *command) {
    return fm_test_shell_format(folder, "%s%s", run_first, command);
}

static inline int make_folder(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return 0;
}

static inline int tear_down(void **state) {
    (void)state;
    int code = server ? fm_test_stop(server, SIGTERM) : 0;
    fm_test_remove_tree(folder);
    return code;
}

#endif
