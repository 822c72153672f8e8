/* sample.h: samples with invented content for tests and benchmarks of transport: valid by the
 * schema, every byte a function of (seed, index). */
#ifndef FM_TESTS_SAMPLE_H
#define FM_TESTS_SAMPLE_H

#include "proto/batch.h"

typedef struct fm_test_shape {
    uint32_t n_res;
    uint32_t n_clust, n_extra;
    uint32_t n_cycle;
    uint32_t n_templ; /* 0: no template tensors */
    /* 0: of a chain. Else of a complex of n_res tokens, n_atom atoms (at least n_res) and n_clust
     * rows in cycle 0, one more in each later cycle. */
    uint32_t n_atom;
} fm_test_shape;

/* Makes sample `index` of a run with `global_batch` samples per step, with all tensors of the
 * schema, in the arena. The sizes are the shape's. Asserts on a full arena. */
void fm_test_sample(const fm_test_shape *shape, uint64_t seed, uint64_t index,
                    uint32_t global_batch, fm_arena *arena, fm_sample *ret_sample);

/* Returns its encoded bytes (64-byte aligned, in the arena). */
fm_bytes fm_test_sample_bytes(const fm_sample *sample, fm_arena *arena);

#endif
