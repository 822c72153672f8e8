/* gc.h: removes what no generation that is kept names.
 *
 * Kept are the generation in CURRENT, those that a pin names (pins.h), and the newest `keep_newest`
 * others. Of the rest, the manifests go first, then their other files, then the shards that no kept
 * manifest names; the folders are synced in between, so that a crash leaves every manifest that is
 * there with its shards. Sealed shards that no manifest names, a killed build's, go too. Only files
 * with names as this program gives are touched. A server that has a generation open reads it to its
 * end: it holds the shards' files. Under the lock of builds (lock.h). */
#ifndef FM_CACHE_GC_H
#define FM_CACHE_GC_H

#include "proto/base/arena.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_gc_options {
    uint32_t keep_newest; /* generations besides the current and the pinned ones */
    bool dry_run;         /* count only */
} fm_gc_options;

typedef struct fm_gc_report {
    uint32_t n_generation_kept, n_generation_removed;
    uint32_t n_shard_kept, n_shard_removed;
    uint64_t kept_bytes, removed_bytes; /* of shards */
} fm_gc_report;

/* FM_ERR_NOT_FOUND when there is no cache; FM_ERR_EXISTS while a build runs; FM_ERR_CORRUPT when a
 * generation that is kept cannot be read: nothing is removed then. */
FM_MUST_USE fm_status fm_gc_run(const char *cache, const fm_gc_options *options, fm_arena *arena,
                                fm_gc_report *ret_report, fm_error *reterr);

#endif
