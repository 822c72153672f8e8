/* sample.h: samples with made-up content for tests and benchmarks of what carries samples: lawful
 * by the schema, every byte a function of (seed, index). */
#ifndef FM_TESTS_SAMPLE_H
#define FM_TESTS_SAMPLE_H

#include "proto/batch.h"

typedef struct fm_test_shape {
    uint32_t n_res;
    uint32_t n_clust, n_extra;
    uint32_t n_cycle;
    uint32_t n_templ; /* 0: the tensors of templates are left out */
} fm_test_shape;

/* Sample `index` of a run with `global_batch` samples a step, all tensors of the schema, in the
 * arena. Sizes are the shape's. Asserts on a full arena. */
void fm_test_sample(const fm_test_shape *shape, uint64_t seed, uint64_t index,
                    uint32_t global_batch, fm_arena *arena, fm_sample *ret_sample);

/* Its encoded bytes (64-byte aligned, in the arena). */
fm_bytes fm_test_sample_bytes(const fm_sample *sample, fm_arena *arena);

#endif
