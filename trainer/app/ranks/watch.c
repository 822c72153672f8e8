/* watch.c: see watch.h. Each rank raises its own beat and looks at those of the others, so any one
 * that is left notices the rest. The end of a process is seen at once by its file descriptor. The
 * beat goes on while the rank's main thread hangs, so each thread also looks at its own process. */
#include "trainer/app/ranks/watch.h"

#include "proto/base/histogram.h"
#include "trainer/app/common/last_words.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 200 };
static const double
    asleep_s = 5, /* this thread was not run for so long, so the others may not have been either */
    last_s = 8,   /* for this process to end by itself when the run is over */
    idle = 0.02;  /* processors that a process uses at most whose main thread hangs */

/* What this rank knows of another. */
typedef struct watched {
    int fd; /* of its process; -1: not available */
    uint32_t beat;
    uint64_t moved_ns;
} watched;

struct fm_watch {
    fm_board *board;
    fm_meeting *meeting;
    pthread_t thread;
    _Atomic bool ends;
    double still_s;     /* a rank that does not move for so long is lost */
    watched *other;     /* [ranks of this host] */
    double worked_cpu;  /* seconds of processors that this process had used when it last moved */
    uint64_t worked_ns; /* that was then */
    uint32_t turns;     /* of its waits, when it was last looked at */
};

static double seconds_since(uint64_t ns) {
    return (double)(fm_clock_ns() - ns) * 1e-9;
}

/* The command's name for messages: a process is a rank of one run. */
static const char *program;

void fm_watch_end(fm_board *board, const char *reason) {
    if (!fm_board_end(board, reason)) return;
    fprintf(stderr, "%s: %s\n", program, reason);
    fm_last_words_say_why(reason);
}

static bool has_ended(const watched *w) {
    struct pollfd polls = {.fd = w->fd, .events = POLLIN};
    return w->fd >= 0 && poll(&polls, 1, 0) > 0;
}

static void look_at(fm_watch *watch, int32_t place) {
    watched *w = &watch->other[place];
    fm_board_rank *entry = fm_board_entry(watch->board, place);
    uint32_t beat = atomic_load(&entry->beat);
    char what[200], reason[FM_BOARD_REASON_BYTES];
    bool is_gone = has_ended(w); /* before has_left is read: an end in order sets that first */
    if (atomic_load(&entry->has_left)) return;
    if (beat != w->beat) {
        w->beat = beat;
        w->moved_ns = fm_clock_ns();
    }
    if (!is_gone && seconds_since(w->moved_ns) < watch->still_s) return;
    fm_board_describe(watch->board, place, what, sizeof what);
    if (is_gone) {
        snprintf(reason, sizeof reason, "%s: its process has ended; the other ranks stop", what);
    } else {
        snprintf(reason, sizeof reason, "%s: it has not moved for %.0f s; the other ranks stop",
                 what, watch->still_s);
    }
    fm_watch_end(watch->board, reason);
}

static void look_at_all(fm_watch *watch) {
    for (int32_t place = 0; place < fm_board_size(watch->board); place++)
        if (place != fm_board_place(watch->board)) look_at(watch, place);
}

static double used_cpu_s(void) {
    struct timespec used = {.tv_sec = 0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static void begin_own(fm_watch *watch) {
    watch->worked_cpu = used_cpu_s();
    watch->worked_ns = fm_clock_ns();
}

/* Ends the run when this rank should work, and its process neither uses time of a processor nor
 * waits for other ranks. */
static void look_at_own(fm_watch *watch) {
    const fm_board_rank *own = fm_board_own(watch->board);
    const uint32_t turns = atomic_load(&own->turns);
    const bool moves = turns != watch->turns || !atomic_load(&own->works) ||
                       used_cpu_s() - watch->worked_cpu > idle * watch->still_s;
    watch->turns = turns;
    if (moves) begin_own(watch);
    if (seconds_since(watch->worked_ns) < watch->still_s) return;
    char what[200], reason[FM_BOARD_REASON_BYTES];
    fm_board_describe(watch->board, fm_board_place(watch->board), what, sizeof what);
    snprintf(reason, sizeof reason, "%s: its main thread has hung for %.0f s; the other ranks stop",
             what, watch->still_s);
    fm_watch_end(watch->board, reason);
}

/* Begins to wait for their next moves anew. */
static void trust_all(fm_watch *watch) {
    begin_own(watch);
    for (int32_t place = 0; place < fm_board_size(watch->board); place++)
        watch->other[place].moved_ns = fm_clock_ns();
}

static void *keep_watch(void *argument) {
    fm_watch *watch = argument;
    fm_board_rank *own = fm_board_own(watch->board);
    uint64_t over_ns = 0, looked_ns = fm_clock_ns();
    while (!atomic_load(&watch->ends)) {
        atomic_fetch_add(&own->beat, 1);
        if (seconds_since(looked_ns) > asleep_s) trust_all(watch);
        looked_ns = fm_clock_ns();
        if (!over_ns) {
            look_at_own(watch);
            look_at_all(watch);
        }
        if (!over_ns && fm_board_reason(watch->board)) {
            over_ns = fm_clock_ns();
            fm_meeting_cancel(watch->meeting);
        }
        if (over_ns && seconds_since(over_ns) > last_s) _exit(1);
        poll(NULL, 0, LOOK_MS);
    }
    return NULL;
}

fm_status fm_watch_start(const char *name, fm_board *board, fm_meeting *meeting, double still_s,
                         fm_watch **ret_watch, fm_error *reterr) {
    fm_watch *watch = calloc(1, sizeof *watch);
    int32_t size = fm_board_size(board);
    if (watch) watch->other = calloc((size_t)size, sizeof *watch->other);
    if (!watch || !watch->other) {
        free(watch);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for watching the ranks");
    }
    program = name;
    watch->board = board;
    watch->meeting = meeting;
    watch->still_s = still_s;
    begin_own(watch);
    for (int32_t place = 0; place < size; place++) {
        const fm_board_rank *entry = fm_board_entry(board, place);
        bool is_own = place == fm_board_place(board);
        watch->other[place] =
            (watched){.fd = is_own ? -1 : (int)syscall(SYS_pidfd_open, entry->process, 0),
                      .moved_ns = fm_clock_ns()};
    }
    if (pthread_create(&watch->thread, NULL, keep_watch, watch) != 0) {
        free(watch->other);
        free(watch);
        return fm_fail(reterr, FM_ERR_NOMEM, "no thread for watching the ranks");
    }
    *ret_watch = watch;
    return FM_OK;
}

void fm_watch_stop(fm_watch *watch) {
    if (!watch) return;
    atomic_store(&watch->ends, true);
    pthread_join(watch->thread, NULL);
    for (int32_t place = 0; place < fm_board_size(watch->board); place++)
        if (watch->other[place].fd >= 0) close(watch->other[place].fd);
    free(watch->other);
    free(watch);
}
