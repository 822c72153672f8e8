/* beside.c: see beside.h. */
#include "trainer/app/common/beside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 100, END_LOOKS = 30, NOT_STARTED = 127 };

static const size_t most_bytes = (size_t)1 << 30;

const char fm_beside_name[] = "foldmill";

void fm_beside_find(char out[PATH_MAX]) {
    ssize_t length = readlink("/proc/self/exe", out, PATH_MAX - sizeof fm_beside_name);
    out[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash) memcpy(slash + 1, fm_beside_name, sizeof fm_beside_name);
}

/* The child's part after the fork. */
static void become(const char *path, char *const *argv, int output, pid_t parent) {
    static const char message[] = "foldmill-train: the program foldmill cannot be started; it must "
                                  "be in the folder of foldmill-train or on PATH\n";
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent && dup2(output, STDOUT_FILENO) >= 0) {
        if (path[0]) execv(path, argv);
        execvp(fm_beside_name, argv);
        ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
        (void)ignored;
    }
    _exit(NOT_STARTED);
}

/* Appends the available output; *ret_open is false at its end. */
static fm_status read_more(int fd, char **text, size_t *bytes, size_t *room, bool *ret_open,
                           fm_error *reterr) {
    if (*bytes + 1 >= *room) {
        size_t wanted = *room ? 2 * *room : 1 << 16;
        char *more = wanted <= most_bytes ? realloc(*text, wanted) : NULL;
        if (!more) {
            return fm_fail(reterr, wanted <= most_bytes ? FM_ERR_NOMEM : FM_ERR_LIMIT,
                           "the output of foldmill does not fit into memory or 1 GiB");
        }
        *text = more;
        *room = wanted;
    }
    ssize_t n = read(fd, *text + *bytes, *room - *bytes - 1);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return FM_OK;
    *ret_open = n > 0;
    if (n > 0) *bytes += (size_t)n;
    (*text)[*bytes] = '\0';
    return FM_OK;
}

/* Ends the child, whose output is not needed. A child that hangs is killed. */
static void end(pid_t child) {
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    siginfo_t state = {.si_pid = 0};
    kill(child, SIGTERM);
    for (int i = 0; i < END_LOOKS && !state.si_pid; i++) {
        if (i) nanosleep(&pause, NULL);
        if (waitid(P_PID, (id_t)child, &state, WEXITED | WNOHANG | WNOWAIT) < 0) return;
    }
    if (!state.si_pid) kill(child, SIGKILL);
}

static int wait_for(pid_t child) {
    int state = 0;
    while (waitpid(child, &state, 0) < 0 && errno == EINTR)
        ;
    return WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
}

fm_status fm_beside_run(char *const *argv, const fm_cancel *cancel, char **ret_text,
                        size_t *ret_bytes, int *ret_code, fm_error *reterr) {
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0, room = 0;
    int ends[2];
    bool is_open = true;
    fm_beside_find(path);
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return fm_fail(reterr, FM_ERR_IO, "no pipe to foldmill: %s", strerror(errno));
    }
    pid_t parent = getpid(), child = fork();
    if (child == 0) become(path, argv, ends[1], parent);
    close(ends[1]);
    fm_status status =
        child > 0 ? FM_OK
                  : fm_fail(reterr, FM_ERR_IO, "no process for foldmill: %s", strerror(errno));
    while (!status && is_open) {
        struct pollfd polled = {.fd = ends[0], .events = POLLIN};
        if (poll(&polled, 1, LOOK_MS) > 0) {
            status = read_more(ends[0], &text, &bytes, &room, &is_open, reterr);
        }
        if (!status && fm_cancel_is_asked(cancel)) {
            status = fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
        }
    }
    if (status && child > 0) end(child);
    close(ends[0]);
    int code = child > 0 ? wait_for(child) : NOT_STARTED;
    if (!status && code == NOT_STARTED) {
        status = fm_fail(reterr, FM_ERR_IO, "the program foldmill could not be started");
    }
    if (status) {
        free(text);
        return status;
    }
    *ret_text = text;
    *ret_bytes = bytes;
    *ret_code = code;
    return FM_OK;
}
