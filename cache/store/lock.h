/* lock.h: locks of a cache: at most one build, or several workers of a shared build, or one gc at a
 * time. */
#ifndef FM_CACHE_LOCK_H
#define FM_CACHE_LOCK_H

#include "proto/base/status.h"

/* Makes CACHE/build, refuses network file systems (FM_ERR_UNSUPPORTED), and takes the exclusive
 * lock. The lock ends when the caller closes *ret_fd or the process ends. FM_ERR_EXISTS when
 * another process holds a lock; FM_ERR_IO. */
FM_MUST_USE fm_status fm_cache_lock(const char *cache, int *ret_fd, fm_error *reterr);

/* The same for one of several workers that write shards into one cache at the same time. Workers
 * exclude an exclusive holder, and the other way round. *ret_slot >= 1 numbers the worker and names
 * its unsealed shard. The caller closes both descriptors. */
FM_MUST_USE fm_status fm_cache_lock_shared(const char *cache, uint32_t *ret_slot, int ret_fd[2],
                                           fm_error *reterr);

#endif
