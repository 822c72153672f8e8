/* threads.c: see ../cpu_threads.h. Workers sleep until a round begins. A round is a function and
 * its context. Worker k runs part k. The caller runs part 0 and then waits for all workers. Workers
 * are never stopped: they end with the process. */
#include "trainer/backend/cpu_threads.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>

static struct {
    pthread_mutex_t busy; /* held by the caller of a round */
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t begun, ended;
    int n_thread, n_worker; /* threads to use; workers that exist */
    uint64_t round;
    int n_part, n_left; /* parts of the round; parts of workers that have not ended */
    void (*run)(void *context, int part);
    void *context;
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .begun = PTHREAD_COND_INITIALIZER,
          .ended = PTHREAD_COND_INITIALIZER,
          .n_thread = 1};

static void *work(void *argument) {
    const int part = (int)(intptr_t)argument;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.round == seen || part >= pool.n_part) {
            seen = pool.round;
            pthread_cond_wait(&pool.begun, &pool.lock);
        }
        seen = pool.round;
        pthread_mutex_unlock(&pool.lock);
        pool.run(pool.context, part);
        pthread_mutex_lock(&pool.lock);
        if (--pool.n_left == 0) pthread_cond_signal(&pool.ended);
    }
    return NULL;
}

void fm_cpu_use_threads(int n) {
    assert(n >= 1);
    n = n < FM_CPU_MOST_THREADS ? n : FM_CPU_MOST_THREADS;
    pthread_mutex_lock(&pool.busy);
    while (pool.n_worker < n - 1) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)(intptr_t)(pool.n_worker + 1)) != 0) break;
        pthread_detach(thread);
        pool.n_worker++;
    }
    pool.n_thread = n < pool.n_worker + 1 ? n : pool.n_worker + 1;
    pthread_mutex_unlock(&pool.busy);
}

int fm_cpu_threads(void) {
    return pool.n_thread;
}

/* Starts a round for the workers. */
static void begin(void (*run)(void *context, int part), void *context, int n_part) {
    pthread_mutex_lock(&pool.lock);
    pool.run = run;
    pool.context = context;
    pool.n_part = n_part;
    pool.n_left = n_part - 1;
    pool.round++;
    pthread_cond_broadcast(&pool.begun);
    pthread_mutex_unlock(&pool.lock);
}

static void wait_for_workers(void) {
    pthread_mutex_lock(&pool.lock);
    while (pool.n_left > 0)
        pthread_cond_wait(&pool.ended, &pool.lock);
    pool.n_part = 0;
    pthread_mutex_unlock(&pool.lock);
}

void fm_cpu_run_parts(void (*run)(void *context, int part), void *context, int n_part) {
    assert(n_part >= 1 && n_part <= FM_CPU_MOST_THREADS);
    if (n_part == 1 || n_part > pool.n_worker + 1 || pthread_mutex_trylock(&pool.busy) != 0) {
        for (int part = 0; part < n_part; part++)
            run(context, part);
        return;
    }
    begin(run, context, n_part);
    run(context, 0);
    wait_for_workers();
    pthread_mutex_unlock(&pool.busy);
}
