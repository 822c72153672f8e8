/* pool.c: see pool.h. One lock guards both lists; it is held only to move a few pointers. */
#include "server/pool.h"

#include "proto/base/histogram.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum {
    SCRATCH_KEEP_BYTES = 64 << 20, /* a worker that used more scratch memory gives it back */
};

/* A queue of linked jobs. */
typedef struct job_list {
    fm_job *first;
    fm_job **last;
} job_list;

struct fm_worker_pool {
    uint32_t n_thread;
    size_t scratch_bytes;
    void (*wake)(void *context);
    void *context;
    uint32_t n_busy; /* submitted and not collected; only the loop thread uses it */
    pthread_mutex_t lock;
    pthread_cond_t work;
    job_list waiting, done; /* under the lock */
    bool is_stopping;
    pthread_t thread[]; /* [n_thread] */
};

static void list_clear(job_list *list) {
    list->first = NULL;
    list->last = &list->first;
}

static void list_push(job_list *list, fm_job *job) {
    job->next = NULL;
    *list->last = job;
    list->last = &job->next;
}

static fm_job *list_pop(job_list *list) {
    fm_job *job = list->first;
    list->first = job->next;
    if (!list->first) list->last = &list->first;
    return job;
}

static void run_job(fm_job *job, fm_arena *scratch, size_t scratch_bytes) {
    job->status = scratch->base ? FM_OK : fm_arena_init(scratch, scratch_bytes, &job->error);
    if (job->status) return;
    fm_arena_reset(scratch);
    job->status = job->make(job->plan, job->index, scratch, job->out, job->capacity, &job->bytes,
                            &job->error);
    assert(job->status || job->bytes <= job->capacity);
    if (scratch->used > SCRATCH_KEEP_BYTES) fm_arena_fini(scratch);
}

static void *work(void *argument) {
    fm_worker_pool *pool = argument;
    fm_arena scratch = {0};
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->waiting.first && !pool->is_stopping)
            pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->is_stopping) break;
        fm_job *job = list_pop(&pool->waiting);
        pthread_mutex_unlock(&pool->lock);
        job->begin_ns = fm_clock_ns();
        run_job(job, &scratch, pool->scratch_bytes);
        job->end_ns = fm_clock_ns();
        pthread_mutex_lock(&pool->lock);
        list_push(&pool->done, job);
        pool->wake(pool->context);
    }
    pthread_mutex_unlock(&pool->lock);
    fm_arena_fini(&scratch);
    return NULL;
}

/* Starts the threads with all signals blocked, since the loop handles signals. */
static uint32_t start_threads(fm_worker_pool *pool) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    uint32_t started = 0;
    while (started < pool->n_thread &&
           pthread_create(&pool->thread[started], NULL, work, pool) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

fm_status fm_worker_pool_create(uint32_t n_thread, size_t scratch_bytes,
                                void (*wake)(void *context), void *context,
                                fm_worker_pool **ret_pool, fm_error *reterr) {
    assert(n_thread > 0);
    fm_worker_pool *pool = calloc(1, sizeof *pool + n_thread * sizeof pool->thread[0]);
    if (!pool) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u worker threads", n_thread);
    pool->n_thread = n_thread;
    pool->scratch_bytes = scratch_bytes;
    pool->wake = wake;
    pool->context = context;
    list_clear(&pool->waiting);
    list_clear(&pool->done);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    uint32_t started = start_threads(pool);
    if (started < n_thread) {
        pool->n_thread = started;
        fm_worker_pool_destroy(pool);
        return fm_fail(reterr, FM_ERR_IO, "the system started %u of %u worker threads", started,
                       n_thread);
    }
    *ret_pool = pool;
    return FM_OK;
}

void fm_worker_pool_destroy(fm_worker_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->is_stopping = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->n_thread; i++)
        pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

bool fm_worker_pool_has_room(const fm_worker_pool *pool) {
    return pool->n_busy < pool->n_thread * 2;
}

uint32_t fm_worker_pool_busy(const fm_worker_pool *pool) {
    return pool->n_busy;
}

void fm_worker_pool_submit(fm_worker_pool *pool, fm_job *job) {
    pool->n_busy++;
    pthread_mutex_lock(&pool->lock);
    list_push(&pool->waiting, job);
    pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

fm_job *fm_worker_pool_collect(fm_worker_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    fm_job *first = pool->done.first;
    list_clear(&pool->done);
    pthread_mutex_unlock(&pool->lock);
    for (fm_job *job = first; job; job = job->next)
        pool->n_busy--;
    return first;
}
