/* bench_trainer.h: the code that the benchmarks of whole training steps share: made-up samples. */
#ifndef FM_TESTS_BENCH_TRAINER_H
#define FM_TESTS_BENCH_TRAINER_H

#include "tests/bench/bench_time.h"
#include "tests/testing/sample.h"
#include "trainer/model/model_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CYCLES = 4, N_ATOM37 = 37, N_TYPE = 20 };

/* -- samples */

static inline float draw(uint32_t *state) { /* in [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 23) - 1;
}

/* CA atoms 3.8 Å apart in random directions, with four other atoms at fixed places around each. */
static inline void make_walk(uint32_t n, float *positions, uint64_t *mask, uint32_t state) {
    static const float around[5][3] = {
        {-1.46f, 0, 0}, {0, 0, 0}, {0.55f, 1.42f, 0}, {0.53f, -0.77f, -1.2f}, {0.3f, 2.2f, 1}};
    float at[3] = {0, 0, 0};
    memset(positions, 0, (size_t)n * N_ATOM37 * 3 * sizeof *positions);
    for (uint32_t i = 0; i < n; i++) {
        float step[3] = {draw(&state), draw(&state), draw(&state)};
        float length = sqrtf(step[0] * step[0] + step[1] * step[1] + step[2] * step[2]) + 1e-3f;
        for (int axis = 0; axis < 3; axis++) {
            at[axis] += 3.8f * step[axis] / length;
            for (int atom = 0; atom < 5; atom++)
                positions[((size_t)i * N_ATOM37 + (size_t)atom) * 3 + (size_t)axis] =
                    at[axis] + around[atom][axis];
        }
        mask[i] = 31;
    }
}

static inline void *own(fm_arena *arena, size_t count, size_t size) {
    void *memory = fm_arena_calloc(arena, count, size);
    if (!memory) abort(); /* the arena is far larger than any preset's sample */
    return memory;
}

/* The tensor's data, which the caller overwrites; it is in the bench's own arena. NULL if there is
 * no such tensor. */
static inline void *data_of(const fm_sample *sample, fm_tensor_id id, uint32_t cycle) {
    const fm_tensor_view *view = fm_sample_find(sample, id, cycle);
    return view ? (void *)(uintptr_t)view->data : NULL;
}

static inline void make_chain(const fm_sample *sample, fm_tensor_id aatype_id,
                              fm_tensor_id atoms_id, fm_tensor_id mask_id, uint32_t n_chain) {
    uint8_t *aatype = data_of(sample, aatype_id, FM_SHARED);
    float *x = data_of(sample, atoms_id, FM_SHARED);
    uint64_t *mask = data_of(sample, mask_id, FM_SHARED);
    size_t n = sample->n_res;
    for (size_t t = 0; t < n_chain; t++) {
        for (size_t i = 0; i < n; i++)
            aatype[t * n + i] = (uint8_t)(i * 7919 % N_TYPE);
        make_walk((uint32_t)n, x + t * n * N_ATOM37 * 3, mask + t * n, 12345);
    }
}

/* Makes a sample of the model's full shape, with MOST_CYCLES cycles, in the arena. Ids, counts and
 * masks are those of tests/testing/sample.h. Values that must be consistent with each other are
 * made here: a random walk with the first five atoms of every residue. */
static inline fm_sample *bench_make_sample(fm_arena *arena, const fm_model_config *c,
                                           uint64_t seed) {
    const fm_test_shape shape = {(uint32_t)c->n_res, (uint32_t)c->n_seq,      (uint32_t)c->n_extra,
                                 MOST_CYCLES,        (uint32_t)c->n_template, 0};
    fm_sample *sample = own(arena, 1, sizeof *sample);
    fm_test_sample(&shape, seed, 0, 1, arena, sample);
    make_chain(sample, FM_T_AATYPE, FM_T_ALL_ATOM_POSITIONS, FM_T_ALL_ATOM_MASK, 1);
    make_chain(sample, FM_T_TEMPLATE_AATYPE, FM_T_TEMPLATE_ALL_ATOM_POSITIONS,
               FM_T_TEMPLATE_ALL_ATOM_MASK, shape.n_templ);
    int32_t *index = data_of(sample, FM_T_RESIDUE_INDEX, FM_SHARED);
    for (uint32_t i = 0; i < shape.n_res; i++)
        index[i] = (int32_t)i;
    for (uint32_t cycle = 0; cycle < MOST_CYCLES; cycle++) {
        uint32_t *size = data_of(sample, FM_T_CLUSTER_SIZE, cycle);
        for (uint32_t s = 0; s < shape.n_clust; s++)
            size[s] = 16;
    }
    return sample;
}

#endif
