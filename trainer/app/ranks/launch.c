/* launch.c: see launch.h. Children are started by fork and exec, since the linear algebra library
 * has threads before main begins: between the two, a child calls nothing that could wait for a lock
 * of theirs. The signals of stop.h are blocked there, and stay so until the child catches them: a
 * handler that runs before exec would set a flag that exec forgets. */
#include "trainer/app/ranks/launch.h"

#include "proto/address.h"
#include "proto/base/hash.h"
#include "proto/base/histogram.h"
#include "proto/base/log.h"
#include "proto/base/temporary.h"
#include "trainer/app/common/last_words.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/ranks/cores.h"
#include "trainer/app/ranks/world.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 50, N_VARIABLE = 6, VARIABLE_BYTES = 256 };
static const double grace_s = 5; /* for the other ranks to end when one has failed */

extern char **environ;

typedef struct launch {
    const fm_launch_options *options;
    int32_t n_rank, n_alive;
    pid_t *child; /* [n_rank]; 0: it has ended */
    int code;     /* of the run */
    uint64_t failed_ns;
    int passed_on;              /* the signal that was passed on */
    fm_temporary_folder folder; /* of the sockets at which ranks meet */
    char secret[FM_SHA256_HEX]; /* of their meetings */
} launch;

/* -- starting */

/* Where a child's new process image begins. */
typedef struct start {
    char **argv, **environment;
    const cpu_set_t *cores; /* NULL: as the command */
    pid_t parent;
} start;

static void become(const start *s) {
    if (s->cores) sched_setaffinity(0, sizeof *s->cores, s->cores);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == s->parent) execve("/proc/self/exe", s->argv, s->environment);
    _exit(1);
}

/* Finds the child's part of the cores; false if it uses those of the command. */
static bool find_cores(const launch *l, int32_t rank, cpu_set_t *ret_part) {
    cpu_set_t all;
    if (!l->options->divides || sched_getaffinity(0, sizeof all, &all) < 0) return false;
    return fm_cores_divide(&all, rank, l->n_rank, ret_part);
}

static fm_status draw_secret(launch *l, fm_error *reterr) {
    fm_sha256 drawn;
    if (getrandom(drawn.bytes, sizeof drawn.bytes, 0) != sizeof drawn.bytes) {
        return fm_fail(reterr, FM_ERR_IO, "the system gives no random bytes");
    }
    fm_sha256_format(&drawn, l->secret);
    return FM_OK;
}

static fm_status start_rank(launch *l, char **argv, int32_t rank, fm_error *reterr) {
    static char text[N_VARIABLE][VARIABLE_BYTES];
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **environment = calloc(n + N_VARIABLE + 1, sizeof *environment);
    if (!environment) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for rank %d", (int)rank);
    snprintf(text[0], VARIABLE_BYTES, "%s=%d", fm_world_rank_name, (int)rank);
    snprintf(text[1], VARIABLE_BYTES, "%s=%d", fm_world_size_name, (int)l->n_rank);
    snprintf(text[2], VARIABLE_BYTES, "%s=%d", fm_world_local_name, (int)rank);
    snprintf(text[3], VARIABLE_BYTES, "%s=unix:%s/meeting%d", fm_world_meeting_name, l->folder.path,
             (int)(rank / l->options->meets));
    snprintf(text[4], VARIABLE_BYTES, "%s=%llu", fm_world_began_name,
             (unsigned long long)l->options->began_ns);
    snprintf(text[5], VARIABLE_BYTES, "%s=%s", fm_world_secret_name, l->secret);
    while (kept < N_VARIABLE) {
        environment[kept] = text[kept];
        kept++;
    }
    for (size_t i = 0; i < n; i++) /* the first of two variables with one name counts */
        environment[kept++] = environ[i];
    cpu_set_t cores;
    const start s = {.argv = argv,
                     .environment = environment,
                     .cores = find_cores(l, rank, &cores) ? &cores : NULL,
                     .parent = getpid()};
    sigset_t before;
    fm_stop_block(&before);
    pid_t child = fork();
    if (child == 0) become(&s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(environment);
    if (child < 0) {
        return fm_fail(reterr, FM_ERR_IO, "cannot start rank %d: %s", (int)rank, strerror(errno));
    }
    l->child[rank] = child;
    l->n_alive++;
    return FM_OK;
}

/* -- waiting */

static void kill_all(const launch *l, int signal_number) {
    for (int32_t r = 0; r < l->n_rank; r++)
        if (l->child[r]) kill(l->child[r], signal_number);
}

/* Notes that a rank has ended. */
static void note_end(launch *l, int32_t rank, int state) {
    int code = WIFEXITED(state) ? WEXITSTATUS(state) : 1;
    bool is_late = l->failed_ns != 0;
    if (WIFSIGNALED(state) && !is_late) {
        char why[FM_LAST_WORDS_BYTES];
        snprintf(why, sizeof why, "rank %d (process %d) was killed by signal %d (%s)", (int)rank,
                 (int)l->child[rank], WTERMSIG(state), strsignal(WTERMSIG(state)));
        fprintf(stderr, "%s: %s\n", l->options->program, why);
        fm_last_words_say_why(why);
    }
    l->child[rank] = 0;
    l->n_alive--;
    if (!code || is_late) return;
    l->code = code;
    l->failed_ns = fm_clock_ns();
}

static void look(launch *l) {
    int state;
    for (int32_t r = 0; r < l->n_rank; r++)
        if (l->child[r] && waitpid(l->child[r], &state, WNOHANG) > 0) note_end(l, r, state);
    int asked = fm_stop_signal();
    if (asked && !l->passed_on) {
        l->passed_on = asked;
        kill_all(l, asked);
    }
    if (fm_stop_take_checkpoint() && l->child[0]) kill(l->child[0], SIGUSR1);
    if (l->failed_ns && (double)(fm_clock_ns() - l->failed_ns) * 1e-9 > grace_s) {
        kill_all(l, SIGKILL);
    }
    if (l->options->look) l->options->look(l->options->context);
}

static fm_status run(launch *l, char **argv, fm_error *reterr) {
    const struct timespec moment = {.tv_nsec = LOOK_MS * 1000000L};
    static const char longest_name[] = "/meeting1234";
    fm_status status = draw_secret(l, reterr);
    if (status) return status;
    status =
        fm_temporary_folder_make(FM_ADDRESS_PATH_BYTES - sizeof longest_name, &l->folder, reterr);
    if (status) return status;
    for (int32_t r = 0; r < l->n_rank && !status; r++)
        status = start_rank(l, argv, r, reterr);
    if (status) kill_all(l, SIGKILL);
    while (l->n_alive > 0) {
        look(l);
        if (l->n_alive > 0) nanosleep(&moment, NULL);
    }
    fm_temporary_folder_end(&l->folder);
    return status;
}

fm_status fm_launch(const fm_launch_options *options, int *ret_code, fm_error *reterr) {
    const int argc = options->argc;
    assert(options->n_rank > 1 && options->n_rank % options->meets == 0);
    static char program[] = "foldmill-train";
    launch l = {.options = options,
                .n_rank = options->n_rank,
                .child = calloc((size_t)options->n_rank, sizeof *l.child)};
    char **handed = calloc((size_t)argc + 2, sizeof *handed);
    fm_status status = FM_ERR_NOMEM;
    if (l.child && handed) {
        handed[0] = program;
        memcpy(handed + 1, options->argv, (size_t)argc * sizeof *handed);
        status = run(&l, handed, reterr);
    } else {
        fm_fail(reterr, FM_ERR_NOMEM, "no memory for %d ranks", (int)options->n_rank);
    }
    free(handed);
    free(l.child);
    *ret_code = l.code;
    return status;
}
