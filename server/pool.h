/* pool.h: the worker threads that make samples.
 *
 *     loop thread: submit ->  queue  -> workers -> done list -> wake -> loop thread: collect
 *
 * Jobs are memory of the caller's, linked, never copied; a job belongs to the pool from submit
 * until collect returns it. The queue is as long as there is room (twice the threads), so that the
 * order in which streams are served is decided by the loop, late. Every worker has a scratch arena
 * of a hard size, empty at the start of a job. */
#ifndef FM_SERVER_POOL_H
#define FM_SERVER_POOL_H

#include "server/source.h"

#include <stdbool.h>

typedef struct fm_job {
    struct fm_job *next; /* the pool's */
    void *owner;         /* the caller's */
    fm_status (*make)(const void *plan, uint64_t index, fm_arena *scratch, uint8_t *out,
                      size_t capacity, size_t *ret_bytes, fm_error *reterr);
    const void *plan;
    uint64_t index;
    uint8_t *out; /* [capacity], 64-byte aligned */
    size_t capacity;
    /* What came of it. */
    size_t bytes;
    fm_status status;
    fm_error error;
} fm_job;

typedef struct fm_worker_pool fm_worker_pool;

/* `wake` is called by workers after a job is done. */
FM_MUST_USE fm_status fm_worker_pool_create(uint32_t n_thread, size_t scratch_bytes,
                                            void (*wake)(void *context), void *context,
                                            fm_worker_pool **ret_pool, fm_error *reterr);
/* Waits for running jobs; queued ones are dropped. */
void fm_worker_pool_destroy(fm_worker_pool *pool);

/* True when a job can be submitted. */
bool fm_worker_pool_has_room(const fm_worker_pool *pool);
void fm_worker_pool_submit(fm_worker_pool *pool, fm_job *job);
/* All jobs done since the last call, oldest first, linked by `next`. NULL when there are none. */
fm_job *fm_worker_pool_collect(fm_worker_pool *pool);
/* Jobs submitted and not collected. */
uint32_t fm_worker_pool_busy(const fm_worker_pool *pool);

#endif
