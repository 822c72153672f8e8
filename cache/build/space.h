/* space.h: is there room for a build? An estimate of what it will write, before it starts, and what
 * the file system of the cache has.
 *
 * The estimate is made from sizes of files: those of at most 400 chains, evenly spread, stand for
 * all, times shares that were measured and rounded up: docs/formats/store.md, "Room". Chains that
 * the generation in force has are taken for done. It errs on the high side: what compresses well
 * needs a third of it. */
#ifndef FM_CACHE_SPACE_H
#define FM_CACHE_SPACE_H

#include "cache/source/source.h"

typedef struct fm_space {
    uint32_t n_chain;     /* of the source; with single sequences also structures without chains */
    uint32_t n_new;       /* of them: those that the cache does not have */
    uint64_t input_bytes; /* of the new ones' files as they lie on disk, estimated */
    uint64_t need_bytes;  /* what building them will write, estimated */
    uint64_t free_bytes;  /* of the file system, for this user */
} fm_space;

/* Estimates. `cache` need not be there: the nearest folder above it counts; NULL: what is free is
 * not asked for (UINT64_MAX). FM_ERR_UNSUPPORTED when
 * it lies on a network file system; FM_ERR_IO. The arena is given back. */
FM_MUST_USE fm_status fm_space_estimate(const fm_source *source, const char *cache,
                                        bool single_sequence, fm_arena *arena, fm_space *ret_space,
                                        fm_error *reterr);

/* FM_ERR_LIMIT, with both figures, when more is needed than there is. */
FM_MUST_USE fm_status fm_space_check(const fm_space *space, const char *cache, fm_error *reterr);

#endif
