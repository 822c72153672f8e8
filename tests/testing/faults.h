/* faults.h: lets single calls to the system of a command fail (fault_shim.c) and checks what is
 * left after it.
 *
 * A first, undisturbed run of the command shows which calls it makes below the folder w. Then the
 * command is run again and again, and each time another call fails: one of every pair of call and
 * file, as far as n_try allows, and others at even distances, so that the same ones are tried each
 * time. The error numbers EIO, ENOSPC and EACCES take turns; a write is also cut short.
 *
 * FM_TEST_FAULTS=all tries every call, and FM_TEST_FAULTS=codes every call with every error
 * number. FM_TEST_ONLY=NAME runs one case of a test program. */
#ifndef FM_TESTS_FAULTS_H
#define FM_TESTS_FAULTS_H

#include <stdbool.h>

/* All texts are shell commands in the folder of the test, where $ROOT is its folder w. */
typedef struct fm_fault_case {
    const char *name;
    const char *prepare; /* makes w as it is before the command */
    const char *command; /* a simple command, which works on $ROOT */
    const char *again;   /* finishes the work after a failure; NULL: the command */
    const char *check;   /* holds after any exit: nothing that existed before is lost */
    const char *result;  /* prints what the command makes: the same after any success */
    bool may_be_partial; /* exit code 3 is right, too: an input that fails is refused */
    unsigned n_try;      /* failures to try */
} fm_fault_case;

/* Tries the failures of a command. After each, the exit code is 0, or 1 with a message that names
 * the file and the cause; `check` holds; and `again` leads to the result. */
void fm_test_faults(const char *folder, const fm_fault_case *test);

/* Whether the shim can be preloaded into the programs of this build. Says why not. */
bool fm_test_has_faults(void);

#endif
