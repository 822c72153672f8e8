/* shard_copy.h: brings sealed shards from one cache into another, by a hard link if possible, else
 * by a copy. */
#ifndef FM_CACHE_SHARD_COPY_H
#define FM_CACHE_SHARD_COPY_H

#include "cache/store/shard.h"

/* Called between the blocks of a long copy. */
typedef struct fm_shard_tick {
    void (*tick)(void *context); /* may be NULL */
    void *context;
} fm_shard_tick;

typedef enum fm_shard_came {
    FM_SHARD_WAS_THERE,
    FM_SHARD_LINKED, /* a hard link: both folders are on one file system */
    FM_SHARD_COPIED,
} fm_shard_came;

/* Brings shard `hash` of `bytes` bytes from cache folder `from` into cache folder `to`, and makes
 * the folder of shards if needed. A copy is hashed on the way; a link is not, because the reader
 * hashes a shard before LMDB opens it. An existing file of another size is replaced.
 * FM_ERR_NOT_FOUND when `from` has no such file of that size; FM_ERR_CORRUPT when its content has
 * another hash; FM_ERR_IO. */
FM_MUST_USE fm_status fm_shard_bring(const char *from, const char *to, const fm_sha256 *hash,
                                     uint64_t bytes, const fm_shard_tick *tick,
                                     fm_shard_came *ret_came, fm_error *reterr);

#endif
