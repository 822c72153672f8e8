/* must.h: a shell command of a test that has to succeed. Include it after cmocka.h. */
#ifndef FM_TESTS_MUST_H
#define FM_TESTS_MUST_H

#include "tests/testing/testing.h"

/* Runs a command in the folder. When it fails, prints these files of the folder and fails the
 * test. */
static inline void fm_test_must(const char *folder, const char *command, const char *files) {
    if (fm_test_shell(folder, command) == 0) return;
    (void)fm_test_shell_format(folder, "cat %s >&2", files);
    fail_msg("failed: %s", command);
}

/* Writes the URL of a server's pages from its log `s.log` to the file `url`. The server logs it
 * after the address that fm_test_serve waits for. */
static inline void fm_test_must_have_url(const char *folder) {
    fm_test_must(folder,
                 "for i in $(seq 300); do sed -n 's/.* http url=//p' s.log >url; "
                 "test -s url && exit 0; sleep 0.1; done; exit 1",
                 "s.log");
}

#endif
