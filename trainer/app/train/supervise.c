/* supervise.c: see supervise.h. */
#include "trainer/app/train/supervise.h"

#include "proto/base/histogram.h"
#include "proto/base/json_text.h"
#include "proto/base/log.h"
#include "proto/base/program.h"
#include "trainer/app/common/last_words.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/ranks/world.h"
#include "trainer/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 50,
    MOST_WAIT_S = 60,
    MOST_ALIKE = 3, /* failures in a row at one checkpoint for one reason */
    HEARD_BYTES = 8192,
    VARIABLE_BYTES = 64,
};

extern char **environ;

/* How the child has ended. */
typedef struct ending {
    int code, signal_number; /* signal 0: it has ended by itself */
    char why[FM_LAST_WORDS_BYTES];
} ending;

typedef struct supervisor {
    const fm_train_options *set;
    bool is_first; /* of the run's ranks; it speaks for all */
    char **argv;   /* of the child: room for --resume and NULL */
    int ear;       /* the end of the pipe that is read */
    pid_t child;
    bool has_begun;                /* the run, once */
    char heard[HEARD_BYTES];       /* what the child has said and is no whole line yet */
    size_t n_heard;                /* bytes of it */
    uint64_t n_restart, n_alike;   /* restarts; failures in a row that are alike */
    uint64_t n_fruitless;          /* failures in a row without a new checkpoint between */
    fm_checkpoint_place place;     /* of the newest checkpoint at the last failure */
    char why[FM_LAST_WORDS_BYTES]; /* of the last failure */
} supervisor;

/* -- the child */

static void become(char **argv, char **environment, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) execve("/proc/self/exe", argv, environment);
    _exit(FM_EXIT_FAILED);
}

static fm_status start(supervisor *s, int voice, fm_error *reterr) {
    char variable[VARIABLE_BYTES];
    size_t n = 0;
    while (environ[n])
        n++;
    char **environment = calloc(n + 2, sizeof *environment);
    if (!environment) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the run's process");
    snprintf(variable, sizeof variable, "%s=%d", fm_last_words_name, voice);
    environment[0] = variable;
    memcpy(environment + 1, environ, n * sizeof *environment);
    sigset_t before;
    const pid_t parent = getpid();
    fm_stop_block(&before);
    s->child = fork();
    if (s->child == 0) become(s->argv, environment, parent);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(environment);
    if (s->child > 0) return FM_OK;
    return fm_fail(reterr, FM_ERR_IO, "cannot start the run: %s", strerror(errno));
}

/* Takes a line that the child or one of its ranks has said. */
static void take_line(supervisor *s, const char *line, ending *e) {
    const size_t n = strlen(fm_last_words_why);
    if (strcmp(line, fm_last_words_begun) == 0) s->has_begun = true;
    if (strncmp(line, fm_last_words_why, n) != 0 || e->why[0]) return;
    snprintf(e->why, sizeof e->why, "%s", line + n);
}

/* Hears what has been said so far. */
static void hear(supervisor *s, ending *e) {
    ssize_t n;
    while ((n = read(s->ear, s->heard + s->n_heard, sizeof s->heard - 1 - s->n_heard)) > 0) {
        char *line = s->heard, *end;
        s->n_heard += (size_t)n;
        s->heard[s->n_heard] = '\0';
        while ((end = strchr(line, '\n'))) {
            *end = '\0';
            take_line(s, line, e);
            line = end + 1;
        }
        s->n_heard -= (size_t)(line - s->heard);
        memmove(s->heard, line, s->n_heard);
        if (s->n_heard == sizeof s->heard - 1) s->n_heard = 0; /* no line of ours is so long */
    }
}

static void pause_a_moment(void) {
    const struct timespec moment = {.tv_nsec = LOOK_MS * 1000000L};
    nanosleep(&moment, NULL);
}

/* Waits for the end of the child, and hands on the signals that come meanwhile. */
static void follow(supervisor *s, ending *e) {
    int state, passed_on = 0;
    *e = (ending){.code = FM_EXIT_FAILED};
    while (waitpid(s->child, &state, WNOHANG) == 0) {
        const int asked = fm_stop_signal();
        if (asked && !passed_on) kill(s->child, passed_on = asked);
        if (fm_stop_take_checkpoint()) kill(s->child, SIGUSR1);
        hear(s, e);
        pause_a_moment();
    }
    hear(s, e);
    if (WIFEXITED(state)) e->code = WEXITSTATUS(state);
    if (WIFSIGNALED(state)) e->signal_number = WTERMSIG(state);
    if (e->why[0]) return;
    if (e->signal_number) {
        snprintf(e->why, sizeof e->why, "process %d was killed by signal %d (%s)", (int)s->child,
                 e->signal_number, strsignal(e->signal_number));
    } else {
        snprintf(e->why, sizeof e->why, "process %d has ended with exit code %d", (int)s->child,
                 e->code);
    }
}

/* -- restarts */

/* Counts a failure by what it has in common with the one before. */
static void count(supervisor *s, const ending *e) {
    fm_checkpoint_place place = {0, 0};
    fm_error ignored;
    fm_status found = fm_checkpoint_find(s->set->out, FM_CHECKPOINT_END, &place, &ignored);
    if (found == FM_ERR_NOT_FOUND) place = (fm_checkpoint_place){0, 0};
    if (found && found != FM_ERR_NOT_FOUND) place = s->place; /* unknown: nothing seems new */
    const bool is_here = place.step == s->place.step && place.n_sample == s->place.n_sample;
    const bool is_alike = is_here && strcmp(s->why, e->why) == 0;
    s->n_fruitless = is_here ? s->n_fruitless + 1 : 1;
    s->n_alike = is_alike ? s->n_alike + 1 : 1;
    s->place = place;
    snprintf(s->why, sizeof s->why, "%s", e->why);
}

static double wait_s(const supervisor *s) {
    double seconds = 1;
    for (uint64_t i = 1; i < s->n_fruitless && seconds < MOST_WAIT_S; i++)
        seconds *= 2;
    return seconds < MOST_WAIT_S ? seconds : MOST_WAIT_S;
}

static void warn_unrecorded(const char *path) {
    fm_log(FM_LOG_WARN, "restart_not_recorded", "path=%s why=\"%s\"", path, strerror(errno));
}

/* Appends the restart to a file in the run's folder. A run that failed early has made none. */
static void record(const supervisor *s, const ending *e) {
    char path[PATH_MAX];
    struct timespec now;
    fm_json_writer json;
    if (snprintf(path, sizeof path, "%s/restarts.jsonl", s->set->out) >= PATH_MAX) return;
    FILE *file = fopen(path, "ae");
    if (!file) {
        if (errno != ENOENT) warn_unrecorded(path);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    fm_json_begin_line(&json, file);
    fm_json_put_u64(&json, "restart", s->n_restart);
    fm_json_put_f64(&json, "unix_s", (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, 3);
    fm_json_put_u64(&json, "checkpoint_step", s->place.step);
    fm_json_put_u64(&json, "checkpoint_samples", s->place.n_sample);
    fm_json_put_f64(&json, "wait_s", wait_s(s), 0);
    fm_json_put_i64(&json, "exit_code", e->code);
    fm_json_put_i64(&json, "signal", e->signal_number);
    fm_json_put_string(&json, "why", e->why);
    fm_json_end(&json);
    if (fclose(file) != 0) warn_unrecorded(path);
}

static void say_restart(const supervisor *s, const ending *e) {
    char quoted[2 * FM_LAST_WORDS_BYTES];
    if (!s->is_first) return;
    fm_log(FM_LOG_WARN, "run_restarts",
           "restart=%llu most=%llu checkpoint_step=%llu wait_s=%.0f "
           "why=%s",
           (unsigned long long)s->n_restart, (unsigned long long)s->set->restarts,
           (unsigned long long)s->place.step, wait_s(s),
           fm_log_quote(quoted, sizeof quoted, e->why));
    record(s, e);
}

/* Whether the child is to be started again after it has failed; says why not. */
static bool goes_on(const supervisor *s) {
    if (s->n_alike >= MOST_ALIKE) {
        fprintf(stderr, "%s: given up: it has failed %d times in a row at one checkpoint: %s\n",
                fm_train_program, MOST_ALIKE, s->why);
        return false;
    }
    if (s->n_restart < s->set->restarts) return true;
    fprintf(stderr, "%s: given up after %llu restarts (--restarts): %s\n", fm_train_program,
            (unsigned long long)s->n_restart, s->why);
    return false;
}

/* Waits before a restart; false when it was asked to stop meanwhile. */
static bool wait_before(const supervisor *s) {
    const uint64_t begin_ns = fm_clock_ns();
    while ((double)(fm_clock_ns() - begin_ns) * 1e-9 < wait_s(s) && !fm_stop_is_asked())
        pause_a_moment();
    return !fm_stop_is_asked();
}

static fm_status run_all(supervisor *s, int voice, int *ret_code, fm_error *reterr) {
    static char resume[] = "--resume";
    for (;;) {
        ending e;
        fm_status status = start(s, voice, reterr);
        if (status) return status;
        follow(s, &e);
        *ret_code = e.code;
        const bool has_failed = e.signal_number || e.code == FM_EXIT_FAILED;
        if (!has_failed || !s->has_begun || fm_stop_is_asked()) return FM_OK;
        count(s, &e);
        if (!goes_on(s)) return FM_OK;
        s->n_restart++;
        say_restart(s, &e);
        if (!s->set->resume) s->argv[s->set->argc + 1] = resume;
        if (wait_before(s)) continue;
        *ret_code = 128 + fm_stop_signal();
        return FM_OK;
    }
}

fm_status fm_supervise(const fm_train_options *set, int *ret_code, fm_error *reterr) {
    static char program[] = "foldmill-train";
    fm_world world = {.size = 1};
    bool is_rank;
    int ends[2];
    fm_status status = fm_world_find(set->meet, &is_rank, &world, reterr);
    if (status) return status;
    supervisor s = {.set = set, .is_first = world.rank == 0};
    if (pipe(ends) < 0) return fm_fail(reterr, FM_ERR_IO, "no pipe: %s", strerror(errno));
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    s.ear = ends[0];
    s.argv = calloc((size_t)set->argc + 3, sizeof *s.argv);
    if (s.argv) {
        s.argv[0] = program;
        memcpy(s.argv + 1, set->argv, (size_t)set->argc * sizeof *s.argv);
        fm_stop_catch_saying("");
        status = run_all(&s, ends[1], ret_code, reterr);
    } else {
        status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for the run's command line");
    }
    free(s.argv);
    close(ends[0]);
    close(ends[1]);
    return status;
}
