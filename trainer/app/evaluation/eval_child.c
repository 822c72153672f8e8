/* eval_child.c: see eval_child.h. The child is started by fork and exec, as ranks are (launch.c):
 * between the two it calls nothing that could wait for a lock of another thread. Everything it
 * needs is made before the fork. The results come back through RUN/eval.jsonl, which this side
 * reads from where it stopped; a line counts once its line feed is there. */
#include "trainer/app/evaluation/eval_child.h"

#include "proto/base/file.h"
#include "proto/base/histogram.h"
#include "proto/base/json_tree.h"
#include "proto/base/log.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/evaluation/follow_run.h"
#include "trainer/metrics/metrics.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MOST_ARGUMENTS = 64,
    LOOK_MS = 100,
    MOST_WAITING = 8,  /* checkpoints; the oldest of more is dropped */
    LINE_BYTES = 4096, /* more than any line of eval.jsonl has */
    MOST_FAILURES = 3, /* in a row, after which the end of a run does not wait */
    VISIBLE_BYTES = 512,
    FIRST_PAUSE_S = 1,
    LONGEST_PAUSE_S = 300,
    END_MS = 3000, /* for the child to end in order */
    NICE = 10,
};

extern char **environ;

struct fm_eval_child {
    fm_eval_child_options options;
    char folder[4096], lines_path[4096];
    char *argv[MOST_ARGUMENTS];
    char visible[VISIBLE_BYTES]; /* the child's CUDA_VISIBLE_DEVICES; "": as here */
    char **environment;
    pid_t child;        /* 0: it has ended */
    uint32_t n_failure; /* in a row */
    uint64_t looked_ns, start_at_ns;
    off_t read_bytes; /* of eval.jsonl */
    fm_eval_child_target target;
    bool is_reached;
};

/* -- the target */

/* Scores of which more is better; of the other values of a line, less is. */
static const char *const rising[] = {"lddt_ca", "lddt",  "tm_score",       "gdt_ts",
                                     "gdt_ha",  "plddt", "lddt_ca_median", "plddt_correlation"};
static const char *const falling[] = {"rmsd_ca", "drmsd_ca", "plddt_error", "loss"};

static bool is_among(const char *const *names, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

bool fm_eval_child_is_rising(const char *name) {
    return is_among(rising, sizeof rising / sizeof rising[0], name);
}

static fm_status parse_target(const char *text, fm_eval_child_target *target, fm_error *reterr) {
    const char *sign = strchr(text, '=');
    char *end = NULL;
    size_t n = sign ? (size_t)(sign - text) : 0;
    *target = (fm_eval_child_target){.value = NAN};
    if (n > 0 && n < sizeof target->name) {
        memcpy(target->name, text, n);
        target->wanted = strtod(sign + 1, &end);
    }
    bool is_known = fm_eval_child_is_rising(target->name) ||
                    is_among(falling, sizeof falling / sizeof falling[0], target->name);
    if (is_known && end && end != sign + 1 && !*end && isfinite(target->wanted)) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "--stop-at: found '%.64s', expected SCORE=VALUE with one of lddt_ca, lddt, "
                   "tm_score, gdt_ts, gdt_ha, plddt, lddt_ca_median, plddt_correlation, rmsd_ca, "
                   "drmsd_ca, plddt_error, loss",
                   text);
}

fm_status fm_eval_child_check_target(const char *text, fm_error *reterr) {
    fm_eval_child_target target;
    return parse_target(text, &target, reterr);
}

const fm_eval_child_target *fm_eval_child_get_target(const fm_eval_child *e) {
    return &e->target;
}

/* -- the child */

static void become(const fm_eval_child *e, pid_t parent) {
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all); /* a rank has a part of the cores only */
    setpgid(0, 0);                          /* Ctrl-C is for the run, which ends this process */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (e->options.is_on_cpu) setpriority(PRIO_PROCESS, 0, NICE);
    if (getppid() == parent) execve("/proc/self/exe", e->argv, e->environment);
    _exit(1);
}

static void start_child(fm_eval_child *e) {
    pid_t parent = getpid(), child = fork();
    if (child == 0) become(e, parent);
    e->child = child > 0 ? child : 0;
    if (child > 0) return;
    e->start_at_ns = fm_clock_ns() + (uint64_t)LONGEST_PAUSE_S * 1000000000u;
    fm_log(FM_LOG_WARN, "evaluator_not_started", "why=\"%s\"", strerror(errno));
}

/* Notes how the child has ended, and when to start it again. */
static void note_end(fm_eval_child *e, int state) {
    double pause = FIRST_PAUSE_S;
    for (uint32_t i = 0; i < e->n_failure && pause < LONGEST_PAUSE_S; i++)
        pause *= 2;
    pause = pause < LONGEST_PAUSE_S ? pause : LONGEST_PAUSE_S;
    e->child = 0;
    e->n_failure++;
    e->start_at_ns = fm_clock_ns() + (uint64_t)(pause * 1e9);
    if (WIFSIGNALED(state)) {
        fm_log(FM_LOG_WARN, "evaluator_ended", "signal=%d starts_again_after_s=%.0f",
               WTERMSIG(state), pause);
    } else {
        fm_log(FM_LOG_WARN, "evaluator_ended", "code=%d starts_again_after_s=%.0f",
               WEXITSTATUS(state), pause);
    }
}

/* -- results */

static void read_line(fm_eval_child *e, const char *line, size_t bytes) {
    fm_json *tree = fm_json_parse(line, bytes);
    int64_t step = 0;
    bool has_step = fm_json_get_integer(fm_json_get_member(tree, "step"), &step);
    e->n_failure = 0; /* a result: the next trouble is a new one */
    if (has_step && e->target.name[0] && !e->is_reached) {
        double value = fm_json_get_number(fm_json_get_member(tree, e->target.name), NAN);
        e->target.value = value;
        e->target.step = (uint64_t)step;
        e->is_reached = fm_eval_child_is_rising(e->target.name) ? value >= e->target.wanted
                                                                : value <= e->target.wanted;
        if (e->is_reached) e->target.reached_ns = fm_clock_ns();
    }
    fm_json_free(tree);
}

/* Reads the lines that have come since the last call. */
static void read_results(fm_eval_child *e) {
    char text[LINE_BYTES];
    int fd = open(e->lines_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return; /* there is none yet */
    for (;;) {
        ssize_t n = pread(fd, text, sizeof text, e->read_bytes);
        const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
        if (!end) break;
        size_t bytes = (size_t)(end + 1 - text);
        read_line(e, text, bytes);
        e->read_bytes += (off_t)bytes;
    }
    close(fd);
}

bool fm_eval_child_look(fm_eval_child *e) {
    uint64_t now = fm_clock_ns();
    int state;
    if (now - e->looked_ns < (uint64_t)LOOK_MS * 1000000u) return e->is_reached;
    e->looked_ns = now;
    read_results(e);
    if (e->child && waitpid(e->child, &state, WNOHANG) == e->child) note_end(e, state);
    if (!e->child && now >= e->start_at_ns) start_child(e);
    return e->is_reached;
}

/* -- checkpoints */

/* Removes the oldest checkpoint while too many wait. */
static void limit_waiting(const fm_eval_child *e) {
    fm_checkpoint_place place;
    char path[FM_CHECKPOINT_PATH_BYTES];
    uint32_t n = 0;
    while (!fm_eval_find_oldest(e->folder, &place, &n, NULL) && n >= MOST_WAITING) {
        if (fm_checkpoint_path(e->folder, place, path, NULL) || unlink(path) != 0) return;
        fm_log(FM_LOG_WARN, "evaluation_left_out", "step=%llu why=\"%d checkpoints wait already\"",
               (unsigned long long)place.step, (int)MOST_WAITING);
    }
}

void fm_eval_child_take(fm_eval_child *e, const char *path, fm_checkpoint_place place) {
    char to[FM_CHECKPOINT_PATH_BYTES];
    fm_error error;
    limit_waiting(e);
    if (fm_checkpoint_path(e->folder, place, to, &error)) return;
    if (link(path, to) == 0 || errno == EEXIST) return;
    fm_log(FM_LOG_WARN, "evaluation_left_out", "step=%llu why=\"cannot link the checkpoint: %s\"",
           (unsigned long long)place.step, strerror(errno));
}

static bool is_waiting(const fm_eval_child *e) {
    fm_checkpoint_place place;
    uint32_t n;
    return !fm_eval_find_oldest(e->folder, &place, &n, NULL);
}

void fm_eval_child_wait(fm_eval_child *e, double wait_s) {
    uint64_t begin_ns = fm_clock_ns();
    while (!fm_stop_is_asked() && is_waiting(e)) {
        if (fm_eval_child_look(e)) return;
        bool is_hopeless = e->n_failure >= MOST_FAILURES;
        if (is_hopeless || (double)(fm_clock_ns() - begin_ns) * 1e-9 > wait_s) {
            fm_log(FM_LOG_WARN, "evaluations_left_out", "folder=%s why=\"%s\"", e->folder,
                   is_hopeless ? "the evaluator fails again and again" : "no more time");
            return;
        }
        poll(NULL, 0, LOOK_MS);
    }
    e->looked_ns = 0;
    fm_eval_child_look(e);
}

/* -- starting and ending */

/* Removes what waits of an earlier process behind the checkpoint that the run resumes from. */
static fm_status drop_later(const fm_eval_child *e, fm_error *reterr) {
    fm_checkpoint_place place;
    char path[FM_CHECKPOINT_PATH_BYTES];
    for (;;) {
        fm_status status = fm_checkpoint_find(e->folder, FM_CHECKPOINT_END, &place, reterr);
        if (status) return status == FM_ERR_NOT_FOUND ? FM_OK : status;
        if (place.step <= e->options.last_step) return FM_OK;
        status = fm_checkpoint_path(e->folder, place, path, reterr);
        if (status) return status;
        if (unlink(path) != 0) {
            return fm_fail_in(reterr, FM_ERR_IO, path, "cannot remove: %s", strerror(errno));
        }
    }
}

/* A copy of the environment, with the child's GPUs in front. */
static fm_status make_environment(fm_eval_child *e, fm_error *reterr) {
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    e->environment = calloc(n + 2, sizeof *e->environment);
    if (!e->environment) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for an evaluator");
    if (e->options.visible_gpu) {
        snprintf(e->visible, sizeof e->visible, "CUDA_VISIBLE_DEVICES=%s", e->options.visible_gpu);
        e->environment[kept++] = e->visible; /* the first of two variables with one name counts */
    }
    for (size_t i = 0; i < n; i++)
        e->environment[kept++] = environ[i];
    return FM_OK;
}

static fm_status make_arguments(fm_eval_child *e, fm_error *reterr) {
    const char *const first[] = {"foldmill-train", "eval", "--follow", e->options.run};
    enum { N_FIRST = 4 };
    assert(N_FIRST + e->options.n_argument < MOST_ARGUMENTS);
    for (uint32_t i = 0; i < N_FIRST + e->options.n_argument; i++) {
        e->argv[i] = strdup(i < N_FIRST ? first[i] : e->options.argument[i - N_FIRST]);
        if (!e->argv[i]) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for an evaluator");
    }
    return FM_OK;
}

static fm_status prepare(fm_eval_child *e, fm_error *reterr) {
    const char *run = e->options.run;
    fm_metrics_kept kept;
    if (snprintf(e->folder, sizeof e->folder, "%s/eval", run) >= (int)sizeof e->folder ||
        snprintf(e->lines_path, sizeof e->lines_path, "%s/eval.jsonl", run) >=
            (int)sizeof e->lines_path) {
        return fm_fail_in(reterr, FM_ERR_USAGE, run, "the path is too long");
    }
    fm_status status = FM_OK;
    if (e->options.target) status = parse_target(e->options.target, &e->target, reterr);
    if (!status) status = fm_dir_make(e->folder, reterr);
    if (!status) status = drop_later(e, reterr);
    if (!status) status = fm_metrics_truncate(e->lines_path, e->options.last_step, &kept, reterr);
    if (!status) status = make_environment(e, reterr);
    return status ? status : make_arguments(e, reterr);
}

fm_status fm_eval_child_start(const fm_eval_child_options *options, fm_eval_child **ret_child,
                              fm_error *reterr) {
    fm_eval_child *e = calloc(1, sizeof *e);
    if (!e) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for an evaluator");
    e->options = *options;
    fm_status status = prepare(e, reterr);
    if (status) {
        fm_eval_child_stop(e);
        return status;
    }
    start_child(e);
    *ret_child = e;
    return FM_OK;
}

/* Asks the child to end, and ends it when it does not. */
static void end_child(const fm_eval_child *e) {
    int state;
    kill(e->child, SIGTERM);
    for (int waited = 0; waited < END_MS; waited += LOOK_MS) {
        if (waitpid(e->child, &state, WNOHANG) == e->child) return;
        poll(NULL, 0, LOOK_MS);
    }
    kill(e->child, SIGKILL); /* also when it is stopped */
    waitpid(e->child, &state, 0);
}

void fm_eval_child_stop(fm_eval_child *e) {
    if (!e) return;
    if (e->child) end_child(e);
    for (int i = 0; i < MOST_ARGUMENTS; i++)
        free(e->argv[i]);
    free(e->environment);
    free(e);
}
