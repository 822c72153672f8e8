/* nccl_watch.c: see nccl_watch.h. */
#include "trainer/dist/nccl_watch.h"

#include "proto/base/histogram.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    LOOK_MS = 200,
    ENTERED_S = 2, /* to wait for who is inside NCCL, which may hang there, too */
    WHY_BYTES = 320,
};

typedef struct group {
    void *comm;
    char what[FM_NCCL_WATCH_GROUP_BYTES];
    uint32_t ended;    /* exchanges, when the thread last saw that number move */
    uint64_t moved_ns; /* that was then, or no exchange was under way */
} group;

struct fm_nccl_watch {
    fm_nccl_watch_options options;
    pthread_t thread;
    pthread_mutex_t lock; /* of the communicators; who waits for them holds nothing */
    group group[FM_NCCL_WATCH_GROUPS];
    _Atomic int32_t n_group;
    _Atomic bool ends, is_over, has_reason;
    char why[WHY_BYTES]; /* written before has_reason */
};

/* -- what is wrong */

static bool has_error(fm_nccl_watch *w, const group *g, char why[WHY_BYTES]) {
    const fm_nccl *nccl = w->options.nccl;
    int error = 0;
    if (pthread_mutex_trylock(&w->lock) != 0) return false; /* the next look will do */
    bool is_told = nccl->async_error(g->comm, &error) == 0;
    pthread_mutex_unlock(&w->lock);
    if (is_told && (!error || error == FM_NCCL_IN_PROGRESS)) return false;
    snprintf(why, WHY_BYTES, "NCCL reports an error between %s: %s", g->what,
             is_told ? nccl->text(error) : "it does not answer");
    return true;
}

static bool is_stuck(fm_nccl_watch *w, int32_t number, char why[WHY_BYTES]) {
    group *g = &w->group[number];
    const fm_nccl_beat beat = w->options.look(w->options.context, number);
    const uint64_t now = fm_clock_ns();
    if (beat.ended != g->ended || beat.begun == beat.ended) {
        g->ended = beat.ended;
        g->moved_ns = now;
    }
    if ((double)(now - g->moved_ns) * 1e-9 <= w->options.wait_s) return false;
    snprintf(why, WHY_BYTES, "the exchange '%s' between %s has not ended within %.0f s",
             beat.name ? beat.name : "unnamed", g->what, w->options.wait_s);
    return true;
}

/* Looks at everything once. Returns whether exchanges must end; w->why then says why. */
static bool look(fm_nccl_watch *w) {
    const char *given = w->options.reason(w->options.context);
    if (given) {
        snprintf(w->why, sizeof w->why, "%s", given);
        return true;
    }
    const int32_t n = atomic_load(&w->n_group);
    for (int32_t i = 0; i < n; i++) {
        if (!has_error(w, &w->group[i], w->why) && !is_stuck(w, i, w->why)) continue;
        w->options.end(w->options.context, w->why);
        return true;
    }
    return false;
}

/* -- the end */

static void lock_for_a_while(fm_nccl_watch *w, bool *ret_is_locked) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ENTERED_S;
    *ret_is_locked = pthread_mutex_timedlock(&w->lock, &until) == 0;
}

/* Aborts all communicators. A call of NCCL that hangs on another thread returns because of that. */
static void abort_all(fm_nccl_watch *w) {
    bool is_locked;
    atomic_store(&w->is_over, true);
    lock_for_a_while(w, &is_locked);
    const int32_t n = atomic_load(&w->n_group);
    for (int32_t i = 0; i < n; i++)
        if (w->group[i].comm) w->options.nccl->abort(w->group[i].comm);
    for (int32_t i = 0; i < n; i++)
        w->group[i].comm = NULL;
    if (is_locked) pthread_mutex_unlock(&w->lock);
}

static void *keep_watch(void *argument) {
    fm_nccl_watch *w = argument;
    while (!atomic_load(&w->ends)) {
        if (look(w)) {
            atomic_store(&w->has_reason, true);
            w->options.stop(w->options.context);
            abort_all(w);
            break;
        }
        poll(NULL, 0, LOOK_MS);
    }
    return NULL;
}

/* -- the interface */

fm_status fm_nccl_watch_start(const fm_nccl_watch_options *options, fm_nccl_watch **ret_watch,
                              fm_error *reterr) {
    fm_nccl_watch *watch = calloc(1, sizeof *watch);
    if (!watch) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for watching exchanges");
    watch->options = *options;
    pthread_mutex_init(&watch->lock, NULL);
    if (pthread_create(&watch->thread, NULL, keep_watch, watch) != 0) {
        pthread_mutex_destroy(&watch->lock);
        free(watch);
        return fm_fail(reterr, FM_ERR_NOMEM, "no thread for watching exchanges");
    }
    *ret_watch = watch;
    return FM_OK;
}

void fm_nccl_watch_stop(fm_nccl_watch *watch) {
    if (!watch) return;
    atomic_store(&watch->ends, true);
    pthread_join(watch->thread, NULL);
    abort_all(watch);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

void fm_nccl_watch_add(fm_nccl_watch *watch, void *comm, const char *what) {
    const int32_t number = atomic_load(&watch->n_group);
    assert(number < FM_NCCL_WATCH_GROUPS && watch->options.nccl);
    group *g = &watch->group[number];
    g->comm = comm;
    g->moved_ns = fm_clock_ns();
    snprintf(g->what, sizeof g->what, "%s", what);
    atomic_store(&watch->n_group, number + 1);
}

bool fm_nccl_watch_enter(fm_nccl_watch *watch) {
    pthread_mutex_lock(&watch->lock);
    if (!atomic_load(&watch->is_over)) return true;
    pthread_mutex_unlock(&watch->lock);
    return false;
}

void fm_nccl_watch_leave(fm_nccl_watch *watch) {
    pthread_mutex_unlock(&watch->lock);
}

bool fm_nccl_watch_is_over(const fm_nccl_watch *watch) {
    return atomic_load(&watch->is_over);
}

fm_status fm_nccl_watch_check(const fm_nccl_watch *watch, fm_error *reterr) {
    if (!atomic_load(&watch->has_reason)) return FM_OK;
    return fm_fail(reterr, FM_ERR_CLOSED, "%s", watch->why);
}
