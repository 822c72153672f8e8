/* merge.h: what the workers of a shared job made becomes one generation of a cache.
 *
 *     catalogue: items that are done -> shard and attempt        caches of the workers
 *                     |                                                 |
 *                     v                                                 v
 *     the shards they name: those that lie in the cache already, else linked, else copied;
 *     each hashed whole before LMDB opens it -> blobs, notes -> index -> CURRENT
 *
 * Parts are never copied: the generation refers to the shards. Its content digest is that of a
 * build of the same dataset by one process. */
#ifndef FM_CACHE_MERGE_H
#define FM_CACHE_MERGE_H

#include "cache/build/build.h"
#include "cache/catalogue/catalogue.h"

typedef struct fm_merge_options {
    const char *cache;       /* folder that gets the generation; made when it is not there */
    const char *where, *job; /* of the catalogue; job NULL = "build" */
    const char *const *from; /* [n_from] folders of caches that shards may lie in, looked at before
                                those that the catalogue names */
    uint32_t n_from;
    bool partial; /* also when items are not done yet: without them */
    void (*progress)(void *context, uint32_t done, uint32_t n); /* shards; may be NULL */
    void *progress_context;
} fm_merge_options;

typedef struct fm_merge_report {
    fm_build_report build; /* of the generation */
    uint32_t n_shard, n_linked, n_copied;
    uint64_t shard_bytes, copied_bytes;
    uint32_t n_left; /* items not done, with `partial` */
} fm_merge_report;

/* Merges. FM_ERR_EXISTS when items are not done (and not `partial`), or a build holds the cache;
 * FM_ERR_NOT_FOUND when a shard lies nowhere; FM_ERR_CORRUPT when a shard or note is not what the
 * catalogue says; FM_ERR_DATA when there is not one chain. The generation before stays in force
 * then. Lists lie in the arena. */
FM_MUST_USE fm_status fm_merge_run(const fm_merge_options *options, fm_arena *arena,
                                   fm_merge_report *ret_report, fm_error *reterr);

#endif
