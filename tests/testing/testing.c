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
#include <sys/stat.h>
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

bool fm_test_find(char *out, size_t out_bytes, const char *given) {
    snprintf(out, out_bytes, "%s", given);
    if (access(out, R_OK) == 0) return true;
    if (!fm_test_reference()) return false;
    fm_test_reference_path(out, out_bytes, given);
    return access(out, R_OK) == 0;
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

/* Starts a shell with the command in a process group of its own. */
static pid_t start_shell(const char *folder, const char *begin, const char *command,
                         const char *end) {
    char text[8192];
    int n = snprintf(text, sizeof text,
                     "cd '%s' && export PATH=\"$FM_BIN:$PATH\" FOLDMILL=foldmill && %s%s%s", folder,
                     begin, command, end);
    assert(n > 0 && (size_t)n < sizeof text);
    (void)n;
    fflush(NULL);
    pid_t pid = fork();
    assert(pid >= 0);
    if (pid == 0) {
        fm_test_die_with_parent();
        setpgid(0, 0);
        execl("/bin/sh", "sh", "-c", text, (char *)NULL);
        _exit(98);
    }
    setpgid(pid, pid); /* whichever of the two comes first */
    return pid;
}

static int wait_for(pid_t pid) {
    int status;
    pid_t ended = waitpid(pid, &status, 0);
    assert(ended == pid);
    (void)ended;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int fm_test_shell(const char *folder, const char *command) {
    pid_t pid = start_shell(folder, "{\n", command, "\n}");
    siginfo_t info;
    int failed = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    assert(!failed);
    (void)failed;
    kill(-pid, SIGKILL); /* the group's number stays ours until the shell is waited for */
    int code = wait_for(pid);
    assert(code <= 128 || info.si_code == CLD_EXITED);
    return code;
}

pid_t fm_test_start(const char *folder, const char *command) {
    return start_shell(folder, "exec ", command, "");
}

pid_t fm_test_serve(const char *folder, const char *socket, const char *arguments) {
    char command[2048], path[1024];
    struct stat info;
    int n = snprintf(path, sizeof path, "%s/%s", folder, socket);
    assert(n > 0 && (size_t)n < sizeof path);
    unlink(path);
    n = snprintf(command, sizeof command, "foldmill serve %s --listen unix:%s >%s.log 2>&1",
                 arguments, socket, socket);
    assert(n > 0 && (size_t)n < sizeof command);
    (void)n;
    pid_t pid = fm_test_start(folder, command);
    int left = 6000; /* a minute: a server with sanitizers starts slowly */
    while (stat(path, &info) != 0 && left-- > 0 && waitpid(pid, NULL, WNOHANG) == 0)
        usleep(10000);
    assert(stat(path, &info) == 0);
    return pid;
}

int fm_test_stop(pid_t pid, int signal_number) {
    kill(pid, signal_number);
    return wait_for(pid);
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

int fm_test_report(const char *program, const fm_error *error) {
    char text[FM_ERROR_TEXT_BYTES];
    fm_error_format(error, text, sizeof text);
    fprintf(stderr, "%s: %s\n", program, text);
    return error->status == FM_ERR_UNSUPPORTED ? FM_TEST_SKIPPED : 1;
}

int fm_test_write_library(const char *folder, const char *functions) {
    char path[600];
    int n = snprintf(path, sizeof path, "%s/lib", folder);
    assert(n > 0 && (size_t)n < sizeof path);
    (void)n;
    FILE *file = fopen(path, "w");
    if (!file) return 1;
    fprintf(file, ". '%s/library.sh'\n%s", FM_TESTING_FOLDER, functions);
    return fclose(file) != 0;
}
