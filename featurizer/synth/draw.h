/* draw.h: the named random draws of the synthetic dataset.
 *
 * A stream of draws is Philox4x32-10 with key = seed and counter = (major, minor, purpose, n), n =
 * 0, 1, 2 ... Draws for one thing therefore never shift the draws for another. */
#ifndef FM_SYNTH_DRAW_H
#define FM_SYNTH_DRAW_H

#include "proto/base/rng.h"

#include <stdbool.h>

/* A purpose keeps its number for ever, so that a seed always gives the same dataset. The comments
 * give (major, minor). */
typedef enum fm_synth_purpose {
    FM_SYNTH_DRAW_ENTRY = 1,    /* (entry, 0) */
    FM_SYNTH_DRAW_FAMILY = 2,   /* (entry, slot): which family */
    FM_SYNTH_DRAW_SITES = 3,    /* (family, 0): ancestor, secondary structure, rates */
    FM_SYNTH_DRAW_FOLD = 4,     /* (family, unit) */
    FM_SYNTH_DRAW_CHAIN = 5,    /* (entry, slot): the chain's own changes */
    FM_SYNTH_DRAW_CHI = 6,      /* (family, site << 8 | aatype) */
    FM_SYNTH_DRAW_ROW = 7,      /* (family, row): evolution of an alignment row */
    FM_SYNTH_DRAW_NAME = 8,     /* (family, row): the row's names */
    FM_SYNTH_DRAW_INSERT = 9,   /* (family, insertion): the insertion's letters */
    FM_SYNTH_DRAW_CRYSTAL = 10, /* (entry, slot): numbering, missing residues, B factors, altlocs */
    FM_SYNTH_DRAW_SOLVENT = 11, /* (entry, 0): ligands and waters */
    FM_SYNTH_DRAW_HITS = 12,    /* (entry, slot): unrelated hits */
    FM_SYNTH_DRAW_MODEL = 13,   /* (entry, model): spread of NMR models */
    FM_SYNTH_DRAW_STRAND = 14,  /* (entry, 0): letters of the nucleic acid */
    FM_SYNTH_DRAW_RNA = 15,     /* (entry, row): evolution of a row of RNA */
    FM_SYNTH_DRAW_PLACE = 16,   /* (entry, number): where a molecule of a complex is put */
} fm_synth_purpose;

typedef struct fm_synth_draws {
    uint64_t key;
    uint32_t major, minor, purpose, n;
} fm_synth_draws;

static inline fm_synth_draws fm_synth_draws_of(uint64_t seed, fm_synth_purpose purpose,
                                               uint32_t major, uint32_t minor) {
    return (fm_synth_draws){seed, major, minor, (uint32_t)purpose, 0};
}

static inline uint64_t fm_synth_draw_bits(fm_synth_draws *draws) {
    fm_philox_counter counter = {{draws->major, draws->minor, draws->purpose, draws->n++}};
    fm_philox_counter words = fm_philox(draws->key, counter);
    return (uint64_t)words.word[0] | (uint64_t)words.word[1] << 32;
}

/* Returns an integer uniform in [0, n), n >= 1. */
static inline uint32_t fm_synth_draw_below(fm_synth_draws *draws, uint32_t n) {
    return fm_uniform_below(fm_synth_draw_bits(draws), n);
}

/* Returns an integer uniform in [low, high]. */
static inline uint32_t fm_synth_draw_between(fm_synth_draws *draws, uint32_t low, uint32_t high) {
    return low + fm_synth_draw_below(draws, high - low + 1);
}

/* Returns true with probability n / of. */
static inline bool fm_synth_draw_chance(fm_synth_draws *draws, uint32_t n, uint32_t of) {
    return fm_synth_draw_below(draws, of) < n;
}

/* Returns a real number uniform in [0, 1), a multiple of 2^-53. */
static inline double fm_synth_draw_real(fm_synth_draws *draws) {
    return (double)(fm_synth_draw_bits(draws) >> 11) * (1.0 / 9007199254740992.0);
}

/* Returns a value within +-width, most likely near 0: the mean of two uniforms. */
static inline double fm_synth_draw_spread(fm_synth_draws *draws, double width) {
    double first = fm_synth_draw_real(draws);
    return width * (first + fm_synth_draw_real(draws) - 1.0);
}

/* Returns an index in [0, n) with probability weight[i] / sum. The sum must be in 1..2^32-1. */
static inline uint32_t fm_synth_draw_weighted(fm_synth_draws *draws, const uint16_t *weight,
                                              uint32_t n) {
    uint32_t sum = 0, i = 0;
    for (uint32_t k = 0; k < n; k++)
        sum += weight[k];
    uint32_t at = fm_synth_draw_below(draws, sum);
    while (i + 1 < n && at >= weight[i])
        at -= weight[i++];
    return i;
}

#endif
