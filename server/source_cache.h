/* source_cache.h: samples from a cache: loads the chain that the plan chooses, samples it and
 * encodes the result. */
#ifndef FM_SERVER_SOURCE_CACHE_H
#define FM_SERVER_SOURCE_CACHE_H

#include "cache/snapshot/snapshot.h"
#include "server/source.h"

typedef struct fm_cache_source fm_cache_source;

/* Opens snapshot `name` of the cache in folder `path`, from the generation that it is pinned to or
 * else from the current one. *ret_source is valid until fm_cache_source_close. Fails as
 * fm_store_open and fm_snapshot_open do. */
FM_MUST_USE fm_status fm_cache_source_open(const char *path, const char *name,
                                           fm_cache_source **ret_cache,
                                           fm_sample_source *ret_source, fm_error *reterr);
/* Every plan must be closed. NULL is fine. */
void fm_cache_source_close(fm_cache_source *cache);

const fm_store_info *fm_cache_source_get_info(const fm_cache_source *cache);

#endif
