/* private_server.c: see private_server.h. One thread starts the server, reads its standard error,
 * and starts it again when that ends. The kernel signals a child at the end of the thread that
 * forked it, so this thread lives as long as the server does. Between fork and exec a child calls
 * nothing that could wait for a lock of another thread. */
#include "trainer/app/samples/private_server.h"

#include "proto/address.h"
#include "proto/base/histogram.h"
#include "proto/base/log.h"
#include "proto/base/temporary.h"
#include "trainer/app/common/beside.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LOOK_MS = 20,      /* between two checks of a server that starts */
    IDLE_MS = 100,     /* the same of one that runs or ends */
    CONNECT_MS = 1000, /* for a connection to it */
    READY_S = 120,     /* for it to listen */
    END_S = 10,        /* for it to end */
    MOST_RESTARTS = 5, /* each within SETTLED_S of the start before */
    SETTLED_S = 600,   /* a server that ran for so long has not failed at once */
    LINE_BYTES = 1024,
    N_ARGUMENT = 14,
};

static const char own_words[] = "foldmill serve: "; /* in front of the reason for its end */

const char fm_private_server_name[] = "FOLDMILL_PRIVATE_SERVER";

typedef enum phase { PHASE_STARTS, PHASE_RUNS, PHASE_FAILED } phase;

struct fm_private_server {
    fm_private_server_options options;
    fm_address socket;
    fm_temporary_folder folder;
    char address[FM_ADDRESS_TEXT_BYTES], jobs[32];
    char path[PATH_MAX]; /* of the program beside this one; "" = on PATH */
    char *argv[N_ARGUMENT];
    char **environment; /* of this process when the server was started */
    pthread_t thread;
    pid_t parent;
    /* Used by the thread alone. */
    pid_t child;
    int input, errors;     /* our ends of the pipes */
    char line[LINE_BYTES]; /* of its standard error, so far */
    size_t line_bytes;
    uint64_t begun_ns;
    uint32_t n_restart;
    char reason[FM_ERROR_MESSAGE_BYTES]; /* in its own words; "" = it gave none */
    bool has_listened;                   /* this child */
    /* Shared; under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    phase phase;
    bool is_stopping;
    fm_error error; /* PHASE_FAILED */
};

extern char **environ;

static double seconds_since(uint64_t ns) {
    return (double)(fm_clock_ns() - ns) * 1e-9;
}

static void enter(fm_private_server *s, phase next) {
    pthread_mutex_lock(&s->lock);
    s->phase = next;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static bool is_stopping(fm_private_server *s) {
    pthread_mutex_lock(&s->lock);
    bool stopping = s->is_stopping;
    pthread_mutex_unlock(&s->lock);
    return stopping;
}

/* -- starting */

static void become(const fm_private_server *s, int input, int errors) {
    static const char message[] = "foldmill serve: the program foldmill cannot be started; it must "
                                  "be in the folder of foldmill-train or on PATH\n";
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != s->parent || dup2(input, STDIN_FILENO) < 0 ||
        dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0) {
        _exit(1);
    }
    if (s->path[0]) execve(s->path, s->argv, s->environment);
    execvpe(fm_beside_name, s->argv, s->environment);
    ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
    (void)ignored;
    _exit(1);
}

static bool spawn(fm_private_server *s) {
    int input[2], errors[2];
    if (pipe2(input, O_CLOEXEC) < 0) return false;
    if (pipe2(errors, O_CLOEXEC) < 0) {
        close(input[0]);
        close(input[1]);
        return false;
    }
    s->reason[0] = '\0';
    s->line_bytes = 0;
    s->has_listened = false;
    s->begun_ns = fm_clock_ns();
    s->child = fork();
    if (s->child == 0) become(s, input[0], errors[1]);
    close(input[0]);
    close(errors[1]);
    s->input = input[1];
    s->errors = errors[0];
    if (s->child > 0) return true;
    close(s->input);
    close(s->errors);
    return false;
}

/* -- what it says */

/* Its last words become the reason for its end; other lines are passed on. */
static void take_line(fm_private_server *s) {
    size_t prefix = sizeof own_words - 1;
    s->line[s->line_bytes] = '\0';
    s->line_bytes = 0;
    if (strncmp(s->line, own_words, prefix) == 0) {
        snprintf(s->reason, sizeof s->reason, "%.500s", s->line + prefix);
    } else {
        fprintf(stderr, "private server: %s\n", s->line);
    }
}

/* Reads the output that has arrived; false at its end. */
static bool read_lines(fm_private_server *s) {
    char bytes[LINE_BYTES];
    ssize_t n = read(s->errors, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) return true;
    if (n <= 0) return false;
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] == '\n' || s->line_bytes == LINE_BYTES - 1) take_line(s);
        if (bytes[i] != '\n') s->line[s->line_bytes++] = bytes[i];
    }
    return true;
}

/* -- its life */

static bool listens(const fm_private_server *s) {
    int fd;
    if (fm_address_connect(&s->socket, CONNECT_MS, &fd, NULL)) return false;
    close(fd);
    return true;
}

/* Waits for the end of the running server, and passes on its log lines. A server that does not
 * listen in time, or does not end in time, is killed. Returns its wait status. */
static int attend(fm_private_server *s) {
    uint64_t stopping_ns = 0;
    bool is_open = true, is_killed = false;
    while (is_open) {
        struct pollfd polls = {.fd = s->errors, .events = POLLIN};
        bool starts = !s->has_listened && !stopping_ns;
        if (poll(&polls, 1, starts ? LOOK_MS : IDLE_MS) > 0) is_open = read_lines(s);
        if (!stopping_ns && is_stopping(s)) {
            stopping_ns = fm_clock_ns();
            close(s->input); /* by which the server is told */
            s->input = -1;
        }
        if (starts && listens(s)) {
            s->has_listened = true;
            enter(s, PHASE_RUNS);
        }
        bool is_late = stopping_ns ? seconds_since(stopping_ns) > END_S
                                   : !s->has_listened && seconds_since(s->begun_ns) > READY_S;
        if (!is_late || is_killed) continue;
        snprintf(s->reason, sizeof s->reason, "it did not listen within %d s", (int)READY_S);
        kill(s->child, SIGKILL);
        is_killed = true;
    }
    if (s->input >= 0) close(s->input);
    close(s->errors);
    int state = 0;
    while (waitpid(s->child, &state, 0) < 0 && errno == EINTR)
        ;
    return state;
}

static void explain_end(fm_private_server *s, int state) {
    if (s->reason[0]) return;
    if (WIFSIGNALED(state)) {
        snprintf(s->reason, sizeof s->reason, "it was killed by signal %d (%s)", WTERMSIG(state),
                 strsignal(WTERMSIG(state)));
    } else {
        snprintf(s->reason, sizeof s->reason, "it ended with exit code %d", WEXITSTATUS(state));
    }
}

static void fail(fm_private_server *s, fm_status status) {
    fm_fail(&s->error, status, "--cache: %s", s->reason);
    enter(s, PHASE_FAILED);
}

/* Whether the server that has ended is started again; else the run hears why. */
static bool may_restart(fm_private_server *s, int state, bool has_run) {
    char quoted[FM_ERROR_MESSAGE_BYTES];
    explain_end(s, state);
    fm_log_quote(quoted, sizeof quoted, s->reason);
    if (seconds_since(s->begun_ns) > SETTLED_S) s->n_restart = 0;
    if (has_run && s->n_restart++ < MOST_RESTARTS) {
        fm_log(FM_LOG_WARN, "private_server_restarts", "why=%s", quoted);
        return true;
    }
    if (has_run) fm_log(FM_LOG_ERROR, "private_server_lost", "why=%s", quoted);
    fail(s, WIFEXITED(state) && WEXITSTATUS(state) == 2 ? FM_ERR_USAGE : FM_ERR_IO);
    return false;
}

static void *keep(void *argument) {
    fm_private_server *s = argument;
    bool has_run = false;
    for (;;) {
        if (!spawn(s)) {
            snprintf(s->reason, sizeof s->reason, "no process for a server: %s", strerror(errno));
            fail(s, FM_ERR_IO);
            return NULL;
        }
        int state = attend(s);
        has_run |= s->has_listened;
        if (is_stopping(s) || !may_restart(s, state, has_run)) return NULL;
    }
}

/* -- the server of a run */

static fm_status make_folder(fm_private_server *s, fm_error *reterr) {
    fm_status status =
        fm_temporary_folder_make(FM_ADDRESS_PATH_BYTES - sizeof "/socket", &s->folder, reterr);
    if (status) return status;
    snprintf(s->address, sizeof s->address, "unix:%s/socket", s->folder.path);
    return fm_address_parse(s->address, &s->socket, reterr);
}

static void make_arguments(fm_private_server *s) {
    static char words[][16] = {"foldmill",   "serve",   "--cache",   "--listen",
                               "--snapshot", "--quiet", "--private", "--jobs"};
    size_t n = 0;
    s->argv[n++] = words[0];
    s->argv[n++] = words[1];
    s->argv[n++] = words[2];
    s->argv[n++] = (char *)(uintptr_t)s->options.cache; /* exec does not write to it */
    s->argv[n++] = words[3];
    s->argv[n++] = s->address;
    const char *first = s->options.snapshot, *other = s->options.other_snapshot;
    if (other && !first) first = "all"; /* as without --snapshot */
    if (first) {
        s->argv[n++] = words[4];
        s->argv[n++] = (char *)(uintptr_t)first;
    }
    if (other && strcmp(other, first) != 0) {
        s->argv[n++] = words[4];
        s->argv[n++] = (char *)(uintptr_t)other;
    }
    s->argv[n++] = words[5];
    s->argv[n++] = words[6];
    if (s->options.jobs) {
        snprintf(s->jobs, sizeof s->jobs, "--jobs=%llu", (unsigned long long)s->options.jobs);
        s->argv[n++] = s->jobs;
    }
    s->argv[n] = NULL;
}

/* The environment may change while the thread starts a server, so it has a copy of the list. */
static bool copy_environment(fm_private_server *s) {
    size_t n = 0;
    while (environ[n])
        n++;
    s->environment = malloc((n + 1) * sizeof *s->environment);
    if (s->environment) memcpy(s->environment, environ, (n + 1) * sizeof *s->environment);
    return s->environment != NULL;
}

/* Waits until the server listens or has failed. */
static fm_status await(fm_private_server *s, fm_error *reterr) {
    fm_status status = FM_OK;
    pthread_mutex_lock(&s->lock);
    while (s->phase == PHASE_STARTS && !status) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
        if (fm_cancel_is_asked(s->options.cancel)) {
            status = fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
        }
    }
    if (!status && s->phase == PHASE_FAILED) {
        status = s->error.status;
        if (reterr) *reterr = s->error;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* Starts the thread with all signals blocked, so that they reach the program's other threads. */
static bool start_thread(fm_private_server *s) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_started = pthread_create(&s->thread, NULL, keep, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

static void release(fm_private_server *s) {
    if (s->folder.lock_fd >= 0) {
        unlink(s->socket.path);
        fm_temporary_folder_end(&s->folder);
    }
    free(s->environment);
    free(s);
}

fm_status fm_private_server_start(const fm_private_server_options *options,
                                  fm_private_server **ret_server, fm_error *reterr) {
    fm_private_server *s = calloc(1, sizeof *s);
    if (!s) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a server");
    s->options = *options;
    s->parent = getpid();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    fm_status status = make_folder(s, reterr);
    fm_beside_find(s->path);
    make_arguments(s);
    if (!status && (!copy_environment(s) || !start_thread(s))) {
        status = fm_fail(reterr, FM_ERR_NOMEM, "no thread for a server");
    }
    if (status) {
        release(s);
        return status;
    }
    status = await(s, reterr);
    if (status) {
        fm_private_server_stop(s);
        return status;
    }
    *ret_server = s;
    return FM_OK;
}

const char *fm_private_server_address(const fm_private_server *server) {
    return server->address;
}

bool fm_private_server_has_failed(fm_private_server *s, fm_error *reterr) {
    pthread_mutex_lock(&s->lock);
    bool has_failed = s->phase == PHASE_FAILED;
    if (has_failed && reterr) *reterr = s->error;
    pthread_mutex_unlock(&s->lock);
    return has_failed;
}

void fm_private_server_stop(fm_private_server *server) {
    if (!server) return;
    pthread_mutex_lock(&server->lock);
    server->is_stopping = true;
    pthread_mutex_unlock(&server->lock);
    pthread_join(server->thread, NULL);
    release(server);
}
