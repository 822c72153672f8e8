/* space.h: estimates, before a build starts, how many bytes it will write, and compares that with
 * the free space of the cache's file system.
 *
 * The estimate uses only file sizes. At most 400 chains, evenly spread, represent all of them;
 * measured shares, rounded up, convert input bytes to stored bytes (docs/reference/store.md,
 * "Room"). Chains of the current generation count as done. The estimate is high: inputs that
 * compress well need a third of it. build_sample.h measures complexes instead. */
#ifndef FM_CACHE_SPACE_H
#define FM_CACHE_SPACE_H

#include "cache/source/source.h"
#include "cache/store/generation.h"

typedef struct fm_space_options {
    const char *cache; /* NULL = free space is not determined, and everything is new */
    bool single_sequence, complexes; /* of the build */
} fm_space_options;

typedef struct fm_space {
    uint32_t n_chain;   /* of the source; with single sequences also structures without chains */
    uint32_t n_new;     /* those that the cache does not have */
    uint32_t n_complex; /* of the source, where complexes are built */
    uint32_t n_new_complex; /* those that the cache does not have */
    uint64_t input_bytes;   /* size of the files of what is new on disk, estimated */
    uint64_t need_bytes;    /* bytes that building it will write, estimated */
    uint64_t complex_input_bytes, complex_need_bytes; /* of these, structures with new complexes */
    uint64_t free_bytes;                              /* free on the file system, for this user */
} fm_space;

/* Estimates. The cache need not exist: the nearest existing folder above it counts. Without a cache
 * the free space is UINT64_MAX. FM_ERR_UNSUPPORTED when the cache would be on a network file
 * system; FM_ERR_IO. The arena is left as it was. */
FM_MUST_USE fm_status fm_space_estimate(const fm_source *source, const fm_space_options *options,
                                        fm_arena *arena, fm_space *ret_space, fm_error *reterr);

/* Whether a structure has a complex that the generation does not have. */
bool fm_space_is_new_complex(const fm_source *source, const fm_generation *known,
                             const fm_source_structure *structure);

/* The input_bytes of one structure and its new chains, not estimated. */
uint64_t fm_space_input_of(const fm_source *source, const fm_generation *known,
                           const fm_space_options *options, const fm_source_structure *structure,
                           fm_arena *arena);

/* FM_ERR_LIMIT, with both figures, when the build needs more than is free. */
FM_MUST_USE fm_status fm_space_check(const fm_space *space, const char *cache, fm_error *reterr);

#endif
