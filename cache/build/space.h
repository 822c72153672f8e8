/* space.h: estimates, before a build starts, how many bytes it will write, and compares that with
 * the free space of the cache's file system.
 *
 * The estimate uses only file sizes. At most 400 chains, evenly spread, represent all of them;
 * measured shares, rounded up, convert input bytes to stored bytes (docs/reference/store.md,
 * "Room"). Chains of the current generation count as done. The estimate is high: inputs that
 * compress well need a third of it. */
#ifndef FM_CACHE_SPACE_H
#define FM_CACHE_SPACE_H

#include "cache/source/source.h"

typedef struct fm_space {
    uint32_t n_chain;     /* of the source; with single sequences also structures without chains */
    uint32_t n_new;       /* those that the cache does not have */
    uint64_t input_bytes; /* size of the new chains' files on disk, estimated */
    uint64_t need_bytes;  /* bytes that building them will write, estimated */
    uint64_t free_bytes;  /* free on the file system, for this user */
} fm_space;

/* Estimates. `cache` need not exist: the nearest existing folder above it counts. With cache = NULL
 * the free space is not determined (UINT64_MAX). FM_ERR_UNSUPPORTED when the cache would be on a
 * network file system; FM_ERR_IO. The arena is left as it was. */
FM_MUST_USE fm_status fm_space_estimate(const fm_source *source, const char *cache,
                                        bool single_sequence, fm_arena *arena, fm_space *ret_space,
                                        fm_error *reterr);

/* FM_ERR_LIMIT, with both figures, when the build needs more than is free. */
FM_MUST_USE fm_status fm_space_check(const fm_space *space, const char *cache, fm_error *reterr);

#endif
