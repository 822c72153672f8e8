/* draws.h: every random choice that a sample makes, as an interface.
 *
 * The transforms (choose.h, msa.h) ask for a choice and name its purpose; a table of functions
 * answers. In production the answers are Philox draws named by purpose, cycle and number
 * (docs/reference/sampling.md), so no answer depends on the order of the questions. A test can
 * answer with the draws of another implementation. */
#ifndef FM_SAMPLE_DRAWS_H
#define FM_SAMPLE_DRAWS_H

#include "featurizer/sample/sample_draw.h"
#include "featurizer/sample/plan.h"
#include "proto/record.h"

/* The inputs of masking. */
typedef struct fm_masking {
    const fm_plan *plan;
    const fm_part_msa *part; /* of the whole MSA: n_res, n_seq and the profile are used */
    uint32_t n_centre;
} fm_masking;

typedef struct fm_draws {
    void *context; /* passed to each function */

    /* Returns integer number `number` of its purpose, uniform in [0, below); below >= 1. */
    uint32_t (*below)(void *context, fm_sample_purpose purpose, uint32_t cycle, uint32_t number,
                      uint32_t below);
    /* Returns true with probability q32 / 2^32. */
    bool (*chance)(void *context, fm_sample_purpose purpose, uint32_t q32);
    /* Moves min(n_pick, n) different elements of list[0..n-1] to its front, in random order; the
     * others follow in any order. The draws are numbered from `number`. */
    void (*pick)(void *context, fm_sample_purpose purpose, uint32_t cycle, uint32_t number,
                 uint32_t *list, uint32_t n, uint32_t n_pick);
    /* Chooses positions of the cluster centres and replaces them. msa: [n_centre, N_res] HHblits
     * ids, 22 = mask token, in and out. chosen: [n_centre, N_res] 0 or 1, out. */
    void (*mask)(void *context, uint32_t cycle, const fm_masking *masking, uint8_t *msa,
                 uint8_t *chosen);
} fm_draws;

/* Returns the Philox draws for the (seed, index) of `key`, which must outlive the table. key->cycle
 * is ignored. */
fm_draws fm_draws_philox(fm_sample_draw *key);

#endif
