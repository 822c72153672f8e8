/* refusals.h: which chains the current generation refused, and why. */
#ifndef FM_CACHE_REFUSALS_H
#define FM_CACHE_REFUSALS_H

#include "cache/store/generation.h"

typedef struct fm_refusals {
    uint32_t n;
    const fm_refusal *refusal; /* [n] sorted by chain */
} fm_refusals;

/* Reads the list into the arena. FM_ERR_NOT_FOUND when folder `cache` has no cache; FM_ERR_CORRUPT.
 */
FM_MUST_USE fm_status fm_refusals_read(const char *cache, fm_arena *arena,
                                       fm_refusals *ret_refusals, fm_error *reterr);

#endif
