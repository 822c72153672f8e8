/* pool.h: the worker threads that make samples.
 *
 *     loop thread: submit -> queue -> workers -> done list -> wake -> loop thread: collect
 *
 * The caller allocates the jobs; the pool links them and never copies them. A job belongs to the
 * pool from submit until collect returns it. The queue is short (twice the number of threads), so
 * that the loop decides as late as possible which stream is served next. Each worker has a scratch
 * arena of fixed size, which is empty at the start of a job. */
#ifndef FM_SERVER_POOL_H
#define FM_SERVER_POOL_H

#include "server/source.h"

#include <stdbool.h>

typedef struct fm_job {
    struct fm_job *next; /* used by the pool */
    void *owner;         /* for the caller */
    fm_status (*make)(const void *plan, uint64_t index, fm_arena *scratch, uint8_t *out,
                      size_t capacity, size_t *ret_bytes, fm_error *reterr);
    const void *plan;
    uint64_t index;
    uint8_t *out; /* [capacity], 64-byte aligned */
    size_t capacity;
    /* The result. */
    size_t bytes;
    uint64_t begin_ns, end_ns; /* when a worker took it, and when it was done */
    fm_status status;
    fm_error error;
} fm_job;

typedef struct fm_worker_pool fm_worker_pool;

/* Starts the threads. Workers call `wake` after each job. FM_ERR_NOMEM, FM_ERR_IO. */
FM_MUST_USE fm_status fm_worker_pool_create(uint32_t n_thread, size_t scratch_bytes,
                                            void (*wake)(void *context), void *context,
                                            fm_worker_pool **ret_pool, fm_error *reterr);
/* Waits for running jobs and drops queued ones. */
void fm_worker_pool_destroy(fm_worker_pool *pool);

/* True while the queue has room for a job. */
bool fm_worker_pool_has_room(const fm_worker_pool *pool);
void fm_worker_pool_submit(fm_worker_pool *pool, fm_job *job);
/* The jobs that were finished since the last call, oldest first, linked by `next`; NULL if none. */
fm_job *fm_worker_pool_collect(fm_worker_pool *pool);
/* The number of jobs that were submitted and not collected. */
uint32_t fm_worker_pool_busy(const fm_worker_pool *pool);

#endif
