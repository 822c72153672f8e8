/* merge.h: makes one generation of a cache from the shards of a shared job's workers.
 *
 *     catalogue: items that are done -> shard and attempt        caches of the workers
 *                     |                                                 |
 *                     v                                                 v
 *     the shards they name: already in the cache, else linked, else copied;
 *     each hashed whole before LMDB opens it -> blobs, notes -> index -> CURRENT
 *
 * Parts are never copied between shards: the generation refers to the workers' shards. Its content
 * digest is that of a build of the same dataset by one process. Chains that the cache has of other
 * datasets stay or leave by the rules of a build (build.h). A catalogue does not record the path of
 * a dataset, so these rules compare names of datasets and of chains only. */
#ifndef FM_CACHE_MERGE_H
#define FM_CACHE_MERGE_H

#include "cache/build/build.h"
#include "cache/catalogue/catalogue.h"

typedef struct fm_merge_options {
    const char *cache;       /* cache folder that gets the generation; made if needed */
    const char *where, *job; /* the catalogue and its job; job NULL = "build" */
    /* [n_from] cache folders to search for shards before those that the catalogue names. */
    const char *const *from;
    uint32_t n_from;
    bool partial;                  /* merge without the items that are not done */
    fm_build_others_policy others; /* what becomes of the cache's chains of other datasets */
    void (*progress)(void *context, uint32_t done, uint32_t n); /* counts shards; may be NULL */
    void *progress_context;
} fm_merge_options;

typedef struct fm_merge_report {
    fm_build_report build; /* of the generation */
    uint32_t n_shard, n_linked, n_copied;
    uint64_t shard_bytes, copied_bytes;
    uint32_t n_left; /* items not done, with `partial` */
} fm_merge_report;

/* Merges. Lists are in the arena. After an error the previous generation stays in force.
 *
 * FM_ERR_EXISTS has three reasons. Items are not done, and `partial` is not set. A build holds the
 * cache. Or the cache has chains of another dataset, and options->others does not say what becomes
 * of them. FM_ERR_NOT_FOUND: a shard is nowhere. FM_ERR_CORRUPT: a shard or note differs from the
 * catalogue's record. FM_ERR_DATA: there is no chain. */
FM_MUST_USE fm_status fm_merge_run(const fm_merge_options *options, fm_arena *arena,
                                   fm_merge_report *ret_report, fm_error *reterr);

#endif
