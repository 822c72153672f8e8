/* generation_use.h: marks the generations that running programs read, so that gc keeps them, and
 * finds the one that a resuming client needs.
 *
 * A holder has a shared lock (flock) on the generation's manifest, which ends with its process. gc
 * removes no generation whose manifest is locked. A lock is visible only on machines that share the
 * file system's lock table. A holder elsewhere can still read, because its shards are open. */
#ifndef FM_CACHE_GENERATION_USE_H
#define FM_CACHE_GENERATION_USE_H

#include "proto/base/arena.h"
#include "proto/base/hash.h"

#include <stdbool.h>

/* Marks generation `number` as read by this process until *ret_fd is closed. *ret_fd = -1 where the
 * file system has no locks. FM_ERR_NOT_FOUND when it does not exist, or gc is removing it. */
FM_MUST_USE fm_status fm_generation_hold(const char *cache, uint64_t number, int *ret_fd,
                                         fm_error *reterr);

/* Sets *ret_held if some process holds generation `number`. FM_ERR_IO when that cannot be
 * determined. */
FM_MUST_USE fm_status fm_generation_is_held(const char *cache, uint64_t number, bool *ret_held,
                                            fm_error *reterr);

/* The number of the newest generation whose snapshot "all" has the hash `all`, current or not. The
 * arena holds one manifest at a time. A manifest that cannot be read is passed over, since only its
 * own generation depends on it. FM_ERR_NOT_FOUND. */
FM_MUST_USE fm_status fm_generation_find_all(const char *cache, const fm_sha256 *all,
                                             fm_arena *arena, uint64_t *ret_number,
                                             fm_error *reterr);

#endif
