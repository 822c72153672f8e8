/* source_cache.h: samples from a cache: loads the chain that the plan chooses, samples it and
 * encodes the result. */
#ifndef FM_SERVER_SOURCE_CACHE_H
#define FM_SERVER_SOURCE_CACHE_H

#include "cache/snapshot/snapshot.h"
#include "server/source.h"

/* Opens snapshot `name` of an open store, which must outlive the source; clients ask for it as
 * `shown`. Fails as fm_snapshot_open does; FM_ERR_USAGE for a longer name than the wire carries. */
FM_MUST_USE fm_status fm_cache_source_open(const fm_store *store, const char *name,
                                           const char *shown, fm_sample_source **ret_source,
                                           fm_error *reterr);
/* Every plan must be closed. NULL is fine. */
void fm_cache_source_close(fm_sample_source *source);

#endif
