/* split.h: how AlphaFold 3's arrays are split over the D ranks of a sample (DAP, model/split.h).
 *
 *     z, pairs            [N, N, c]   rows or columns, as the sublayers of a block need them
 *     m                   [M, N, c]   tokens or sequences
 *     diffusion module    [S, .., c]  samples: each rank has some structures, and all of their
 *                                     tokens and atoms. A rollout whose structures D does not
 *                                     divide runs on every rank
 *     templates           [T, N, N, c]  whole templates if D divides T; else every rank has all
 *     s, atoms, logits    whole on every rank, which computes the same
 *
 * A whole value that is made of parts is gathered, and a part of a whole value is a slice. On one
 * rank the functions here record nothing. docs/reference/alphafold3.md has the exchanges. */
#ifndef FM_TRAINER_AF3_SPLIT_H
#define FM_TRAINER_AF3_SPLIT_H

#include "trainer/dist/groups.h"
#include "trainer/model/af3/config.h"
#include "trainer/model/split.h"

/* Returns the recorded sizes: tokens and MSA rows rounded up to multiples of D. Masks switch the
 * added elements off. */
fm_af3_config fm_af3_split_pad(const fm_af3_config *config);

/* Returns the recorded number of training structures: n_sample rounded up to a multiple of D. The
 * added ones have no loss. */
int64_t fm_af3_split_samples(const fm_af3_config *config);

/* Returns the configuration of the functions of model/split.h and model/recorder.h, with nothing
 * recomputed. */
fm_model_config fm_af3_split_config(const fm_af3_config *config);

/* Returns this rank's rows of x [n, ..], which is whole; n is a multiple of D. */
fm_tensor_ref fm_af3_split_rows(fm_tape *tape, const struct fm_groups *groups, const char *name,
                                fm_tensor_ref x);
/* Returns the whole of x, of which this rank has a part; x itself if it is whole. */
fm_tensor_ref fm_af3_split_gather(fm_tape *tape, const struct fm_groups *groups, const char *name,
                                  fm_tensor_ref x);

/* The ranks that share the arrays; NULL on one rank. */
static inline fm_comm *fm_af3_split_dap(const struct fm_groups *groups) {
    return groups ? groups->dap : NULL;
}

#endif
