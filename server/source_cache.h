/* source_cache.h: samples from a cache: the chain a plan chooses, loaded, sampled, encoded. */
#ifndef FM_SERVER_SOURCE_CACHE_H
#define FM_SERVER_SOURCE_CACHE_H

#include "cache/snapshot/snapshot.h"
#include "server/source.h"

typedef struct fm_cache_source fm_cache_source;

/* Opens the cache in folder `path` and its snapshot `name`, of the generation that it is pinned to
 * or else of the current one, and fills *ret_source, which lives
 * until fm_cache_source_close. The errors of fm_store_open and fm_snapshot_open. */
FM_MUST_USE fm_status fm_cache_source_open(const char *path, const char *name,
                                           fm_cache_source **ret_cache,
                                           fm_sample_source *ret_source, fm_error *reterr);
/* After every plan is closed. NULL is fine. */
void fm_cache_source_close(fm_cache_source *cache);

const fm_store_info *fm_cache_source_get_info(const fm_cache_source *cache);

#endif
