/* sample_draw.h: the named random draws of docs/reference/sampling.md, section 2.
 *
 * A draw is 64 uniform bits and a pure function of (seed, index, purpose, cycle, n). The numbers of
 * purposes are part of the standard: never reuse one. */
#ifndef FM_SAMPLE_DRAW_H
#define FM_SAMPLE_DRAW_H

#include "proto/base/rng.h"

#include <stddef.h>

typedef enum fm_sample_purpose {
    FM_SAMPLE_DRAW_CHAIN = 1,
    FM_SAMPLE_DRAW_SHUFFLE = 2,
    FM_SAMPLE_DRAW_CYCLES = 3, /* drawn in proto/step_cycles.c */
    FM_SAMPLE_DRAW_CROP = 4,
    FM_SAMPLE_DRAW_CLAMPED_FAPE = 5,
    FM_SAMPLE_DRAW_TEMPLATES = 6,
    FM_SAMPLE_DRAW_TEMPLATE_COUNT = 7,
    FM_SAMPLE_DRAW_TEMPLATE_ORDER = 8, /* plans with compat_openfold only */
    FM_SAMPLE_DRAW_DATASET = 9,        /* snapshots with shares only */
    FM_SAMPLE_DRAW_BLOCK_DELETION = 16,
    FM_SAMPLE_DRAW_DISTILLATION_CAP = 17,
    FM_SAMPLE_DRAW_MSA_ROWS = 18,
    FM_SAMPLE_DRAW_MASK = 19,
    FM_SAMPLE_DRAW_MASK_REPLACEMENT = 20,
    /* Crops of complexes (featurizer/complex/crop.h). */
    FM_SAMPLE_DRAW_COMPLEX_ORDER = 32,
    FM_SAMPLE_DRAW_COMPLEX_LENGTH = 33,
    FM_SAMPLE_DRAW_COMPLEX_START = 34,
    FM_SAMPLE_DRAW_COMPLEX_EDGE = 35,
    FM_SAMPLE_DRAW_COMPLEX_CENTRE = 36,
    /* Samples of complexes (featurizer/complex/chooser.h, draw.h). */
    FM_SAMPLE_DRAW_COMPLEX_RECORD = 37,
    FM_SAMPLE_DRAW_COMPLEX_PAIR = 38,
    FM_SAMPLE_DRAW_COMPLEX_METHOD = 39,
    FM_SAMPLE_DRAW_COMPLEX_TEMPLATES = 40,
    FM_SAMPLE_DRAW_COMPLEX_TEMPLATE_COUNT = 41,
    FM_SAMPLE_DRAW_COMPLEX_ROW_COUNT = 42,
    FM_SAMPLE_DRAW_COMPLEX_ROWS = 43,
} fm_sample_purpose;

/* The arguments that a family of draws shares. */
typedef struct fm_sample_draw {
    uint64_t seed;
    uint64_t index; /* of the sample, the step or the pass, depending on the purpose */
    uint32_t cycle; /* 0 for draws that all cycles share */
} fm_sample_draw;

/* Returns draws 2 * pair and 2 * pair + 1 of a purpose, which one Philox block gives together. */
static inline void fm_sample_draw_pair(const fm_sample_draw *draw, fm_sample_purpose purpose,
                                       uint32_t pair, uint64_t ret_bits[2]) {
    fm_philox_counter counter = {{pair, (uint32_t)purpose << 16 | draw->cycle,
                                  (uint32_t)draw->index, (uint32_t)(draw->index >> 32)}};
    fm_philox_counter word = fm_philox(draw->seed, counter);
    ret_bits[0] = (uint64_t)word.word[1] << 32 | word.word[0];
    ret_bits[1] = (uint64_t)word.word[3] << 32 | word.word[2];
}

/* Returns draw n of a purpose, n < 2^33. */
static inline uint64_t fm_sample_draw_bits(const fm_sample_draw *draw, fm_sample_purpose purpose,
                                           uint64_t n) {
    uint64_t bits[2];
    fm_sample_draw_pair(draw, purpose, (uint32_t)(n >> 1), bits);
    return bits[n & 1];
}

/* Returns draw n as an integer in [0, below), below >= 1. */
static inline uint32_t fm_sample_draw_below(const fm_sample_draw *draw, fm_sample_purpose purpose,
                                            uint64_t n, uint32_t below) {
    return fm_uniform_below(fm_sample_draw_bits(draw, purpose, n), below);
}

/* The same for a `below` of 64 bits, such as a sum of weights: floor(bits * below / 2^64). */
static inline uint64_t fm_sample_draw_below_u64(const fm_sample_draw *draw,
                                                fm_sample_purpose purpose, uint64_t n,
                                                uint64_t below) {
    __extension__ typedef unsigned __int128 u128;
    return (uint64_t)((u128)fm_sample_draw_bits(draw, purpose, n) * below >> 64);
}

/* Writes draws 2 * first_pair .. 2 * (first_pair + n_pair) - 1 of a purpose into ret_bits[2 *
 * n_pair], the same values as fm_sample_draw_pair gives for each pair. */
typedef void (*fm_sample_draw_fill_fn)(const fm_sample_draw *draw, fm_sample_purpose purpose,
                                       uint32_t first_pair, size_t n_pair, uint64_t *ret_bits);

void fm_sample_draw_fill_portable(const fm_sample_draw *draw, fm_sample_purpose purpose,
                                  uint32_t first_pair, size_t n_pair, uint64_t *ret_bits);
void fm_sample_draw_fill_avx2(const fm_sample_draw *draw, fm_sample_purpose purpose,
                              uint32_t first_pair, size_t n_pair, uint64_t *ret_bits);
void fm_sample_draw_fill_avx512(const fm_sample_draw *draw, fm_sample_purpose purpose,
                                uint32_t first_pair, size_t n_pair, uint64_t *ret_bits);

/* Returns the fastest variant that this processor runs. */
fm_sample_draw_fill_fn fm_sample_draw_fill_best(void);

#endif
