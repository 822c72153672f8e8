/* lock.h: one writer of a cache at a time: a build, or the removal of what nothing names. */
#ifndef FM_CACHE_LOCK_H
#define FM_CACHE_LOCK_H

#include "proto/base/status.h"

/* Makes the cache's folder of work, refuses network file systems, and takes the lock, which ends
 * when *ret_fd is closed, or with the process. FM_ERR_EXISTS when another holds it. */
FM_MUST_USE fm_status fm_cache_lock(const char *cache, int *ret_fd, fm_error *reterr);

/* The same for one of several workers that write shards of their own into the cache at once: they
 * keep out who takes it alone, and the other way round. *ret_slot >= 1 is which worker, for the
 * name of its unsealed shard. Both descriptors are to be closed. */
FM_MUST_USE fm_status fm_cache_lock_shared(const char *cache, uint32_t *ret_slot, int ret_fd[2],
                                           fm_error *reterr);

#endif
