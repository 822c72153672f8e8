/* shard_copy.h: sealed shards from one cache into another: by reference where that can be, else by
 * copy. */
#ifndef FM_CACHE_SHARD_COPY_H
#define FM_CACHE_SHARD_COPY_H

#include "cache/store/shard.h"

/* Called between pieces of a long copy. */
typedef struct fm_shard_tick {
    void (*tick)(void *context); /* may be NULL */
    void *context;
} fm_shard_tick;

typedef enum fm_shard_came {
    FM_SHARD_WAS_THERE,
    FM_SHARD_LINKED, /* the same file, of two folders of a file system */
    FM_SHARD_COPIED,
} fm_shard_came;

/* Is a file of that name and size in the cache? */
bool fm_shard_is_there(const char *cache, const fm_sha256 *hash, uint64_t bytes);

/* Brings shard `hash`, of `bytes`, from cache folder `from` into cache folder `to`, whose folder of
 * shards is made when it is not there. A copy is hashed on the way, a link is not: whoever gives it
 * to LMDB hashes it. A file of another size in its place is replaced. FM_ERR_NOT_FOUND when `from`
 * has no such file of that size; FM_ERR_CORRUPT when it has another content; FM_ERR_IO. */
FM_MUST_USE fm_status fm_shard_bring(const char *from, const char *to, const fm_sha256 *hash,
                                     uint64_t bytes, const fm_shard_tick *tick,
                                     fm_shard_came *ret_came, fm_error *reterr);

#endif
