/* features.h: what a training step of AlphaFold 3 takes: the features and labels of one complex as
 * borrowed host arrays, and what is drawn for it. */
#ifndef FM_TRAINER_STEP_AF3_FEATURES_H
#define FM_TRAINER_STEP_AF3_FEATURES_H

#include "trainer/loss/complex.h"
#include "trainer/model/af3/sample.h"
#include "trainer/metrics/label_permutation.h"

/* Recorded draws, for comparisons with other programs. Numbers are standard normal, and rotations
 * are 3 x 3 by rows. S is the number of training structures, K that of the rollout's steps. */
typedef struct fm_af3_draws {
    const float *start;                     /* [n_atom, 3]: the rollout's structure before step 0 */
    const float *rotation, *offset, *noise; /* of the rollout: [K, 9], [K, 3], [K, n_atom, 3] */
    const float *level;                     /* [S] */
    const float *training_rotation, *training_offset, *training_noise; /* as above, with S for K */
} fm_af3_draws;

typedef struct fm_af3_features {
    fm_af3_sample sample;
    fm_complex_labels labels;
    /* [n_token]: the number of each token in its chain before the crop, ascending within a chain.
     * NULL: labels stay as they are. */
    const int64_t *number;
    const fm_atom_orders *orders; /* [n_orders]: atoms that may exchange their labels */
    int64_t n_orders;
    uint32_t n_left_out; /* groups of equivalent atoms that are too large to exchange labels */
    uint32_t slot;       /* the number of the sample in its batch: part of every draw */
    uint32_t n_cycle;    /* recycling cycles, the one with gradients included */
    /* The rows of the MSA that each cycle reads. They are drawn, if neither of these is given: */
    const int64_t *msa_rows; /* [n_cycle, n_row] numbers of rows */
    int64_t n_row;
    const uint32_t *first_row; /* [n_cycle + 1]: cycle c reads the rows first_row[c] up to, but not
                                * including, first_row[c + 1] */
    const fm_af3_draws *draws; /* of a step with `given`, else NULL */
} fm_af3_features;

/* Places the reference conformer of each residue and ligand anew, so that no step learns where it
 * was. p becomes R (p + t): t is uniform in [-1, 1]^3 Å and R a uniform rotation, both of the
 * conformer's ref_space_uid. Conformers should have their mean at 0. `clock` is that of fm_draw.
 * Writes position, [n_atom, 3] Å. */
void fm_af3_place_conformers(uint64_t seed, const uint32_t *clock, const fm_af3_sample *sample,
                             float *position);

/* Draws the MSA rows of a cycle: of n_msa rows a random number, at most `most`, without repetition.
 * `clock` is that of fm_draw. Writes them to rows, which has room for n_msa numbers, and returns
 * how many there are. */
int64_t fm_af3_draw_msa_rows(uint64_t seed, const uint32_t *clock, int64_t n_msa, int64_t most,
                             int64_t *rows);

#endif
