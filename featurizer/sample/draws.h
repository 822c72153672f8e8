/* draws.h: every random choice that a sample makes, as an interface.
 *
 * The transforms (choose.h, msa.h) say what is chosen and what for; who answers is a table of
 * functions. The product's answers are Philox draws named by purpose, cycle and number
 * (docs/sampling.md), so none depends on the order of the questions; a test answers with what
 * another implementation drew. */
#ifndef FM_SAMPLE_DRAWS_H
#define FM_SAMPLE_DRAWS_H

#include "featurizer/sample/sample_draw.h"
#include "featurizer/sample/plan.h"
#include "proto/record.h"

/* What masking looks at. */
typedef struct fm_masking {
    const fm_plan *plan;
    const fm_part_msa *part; /* n_res, n_seq and the profile: of the whole MSA */
    uint32_t n_centre;
} fm_masking;

typedef struct fm_draws {
    void *context; /* the functions' own, handed back to them */

    /* Integer number `number` of its purpose, uniform in [0, below), below >= 1. */
    uint32_t (*below)(void *context, fm_sample_purpose purpose, uint32_t cycle, uint32_t number,
                      uint32_t below);
    /* True with the chance q32 / 2^32. */
    bool (*chance)(void *context, fm_sample_purpose purpose, uint32_t q32);
    /* Brings min(n_pick, n) different elements of list[0..n-1] to its front, in random order; the
     * others follow in any order. Numbers of the draws start at `number`. */
    void (*pick)(void *context, fm_sample_purpose purpose, uint32_t cycle, uint32_t number,
                 uint32_t *list, uint32_t n, uint32_t n_pick);
    /* Chooses positions of the cluster centres and replaces them: msa [n_centre, N_res] HHblits
     * ids, 22 = mask token, in and out; chosen [n_centre, N_res] 0 or 1, out. */
    void (*mask)(void *context, uint32_t cycle, const fm_masking *masking, uint8_t *msa,
                 uint8_t *chosen);
} fm_draws;

/* Philox draws for (seed, index) of `key`, which outlives the table; its cycle is not looked at. */
fm_draws fm_draws_philox(fm_sample_draw *key);

#endif
