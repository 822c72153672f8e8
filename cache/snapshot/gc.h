/* gc.h: removes generations and shards that no kept generation needs.
 *
 * It keeps the generation in CURRENT, the generations that pins name (pins.h), those that a running
 * server reads (generation_use.h), and the newest `keep_newest` others. Of the rest it removes the
 * manifests first and then their other files. The shards that no kept manifest names follow last.
 * It syncs the folders in between, so that after a crash each remaining manifest still has its
 * shards. Sealed shards of a killed build, which no manifest names, are removed, too. Only files
 * whose names have the form of this program's are touched. A server that has opened a generation
 * keeps the shards' files open and reads on. gc holds the lock of builds (lock.h). */
#ifndef FM_CACHE_GC_H
#define FM_CACHE_GC_H

#include "proto/base/arena.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_gc_options {
    uint32_t keep_newest; /* number of generations besides the current and the pinned ones */
    bool dry_run;         /* count, but remove nothing */
} fm_gc_options;

typedef struct fm_gc_report {
    uint32_t n_generation_kept, n_generation_removed;
    uint32_t n_generation_held; /* of the kept ones, only because a server reads them */
    uint32_t n_shard_kept, n_shard_removed;
    uint64_t kept_bytes, removed_bytes; /* of shards */
} fm_gc_report;

/* FM_ERR_NOT_FOUND when there is no cache; FM_ERR_EXISTS while a build runs; FM_ERR_CORRUPT when a
 * kept generation cannot be read, or a pinned one is missing (nothing is removed then); FM_ERR_IO.
 */
FM_MUST_USE fm_status fm_gc_run(const char *cache, const fm_gc_options *options, fm_arena *arena,
                                fm_gc_report *ret_report, fm_error *reterr);

#endif
