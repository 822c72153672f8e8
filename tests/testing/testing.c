/* testing.c: see testing.h. */
#include "tests/testing/testing.h"

#include <assert.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const char *fm_test_reference(void) {
    const char *folder = getenv("FM_REFERENCE_DATA");
    return folder && folder[0] && access(folder, R_OK) == 0 ? folder : NULL;
}

const char *fm_test_reference_path(char *out, size_t out_bytes, const char *relative) {
    int n = snprintf(out, out_bytes, "%s/%s", fm_test_reference(), relative);
    assert(n > 0 && (size_t)n < out_bytes);
    (void)n;
    return out;
}

void fm_test_make_folder(char *out, size_t out_bytes) {
    const char *base = getenv("TMPDIR");
    int n = snprintf(out, out_bytes, "%s/foldmill-test-XXXXXX", base && base[0] ? base : "/tmp");
    assert(n > 0 && (size_t)n < out_bytes);
    (void)n;
    char *made = mkdtemp(out);
    assert(made);
    (void)made;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void fm_test_remove_tree(const char *path) {
    int failed = nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    assert(!failed);
    (void)failed;
}

void fm_test_die_with_parent(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == 1) _exit(97); /* the parent has ended already */
}

int fm_test_shell(const char *folder, const char *command) {
    char text[8192];
    int n = snprintf(text, sizeof text,
                     "cd '%s' && export PATH=\"$FM_BIN:$PATH\" FOLDMILL=foldmill && "
                     "{\n%s\n}",
                     folder, command);
    assert(n > 0 && (size_t)n < sizeof text);
    (void)n;
    int status = system(text);
    assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

int fm_test_shell_format(const char *folder, const char *format, ...) {
    char command[4096];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    assert(n > 0 && (size_t)n < sizeof command);
    (void)n;
    return fm_test_shell(folder, command);
}
