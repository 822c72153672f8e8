/* lock.h: locks of a cache: at most one build, or several workers of a shared build, or one gc at a
 * time. */
#ifndef FM_CACHE_LOCK_H
#define FM_CACHE_LOCK_H

#include "proto/base/held_folder.h"
#include "proto/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fm_cache_lock {
    fm_held_folder cache; /* everything that is done under the lock is done in this folder */
    int fd, slot_fd;      /* slot_fd: -1 for an exclusive lock */
    uint32_t slot;        /* >= 1: number of the worker, which names its unsealed shard; else 0 */
    size_t existed;       /* length of the part of "CACHE/build" that existed before */
} fm_cache_lock;

/* Makes CACHE/build, refuses network file systems (FM_ERR_UNSUPPORTED), and takes the exclusive
 * lock, which ends with fm_cache_unlock or the process. FM_ERR_EXISTS when another process holds a
 * lock; FM_ERR_IO. After an error the folders that it made are removed again. */
FM_MUST_USE fm_status fm_cache_lock_alone(const char *cache, fm_cache_lock *ret_lock,
                                          fm_error *reterr);

/* The same for one of several workers that write shards into one cache at the same time. Workers
 * exclude an exclusive holder, and the other way round. */
FM_MUST_USE fm_status fm_cache_lock_shared(const char *cache, fm_cache_lock *ret_lock,
                                           fm_error *reterr);

/* Ends the lock. After a failure it also removes the folders that locking made, as far as nothing
 * else is in them, so that a command that did nothing leaves nothing. */
void fm_cache_unlock(fm_cache_lock *lock, bool failed);

#endif
