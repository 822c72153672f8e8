/* confidence.h: computes the confidences of a predicted structure from the logits of a model's
 * heads, in double precision on the host.
 *
 *     pLDDT   is the lDDT-CA that the model expects of a residue, 0..100 (supplement,
 *             Algorithm 29).
 *     PAE     is the error (Å) that the model expects of residue j when the structures are
 *             aligned at residue i (supplement 1.9.7).
 *     pTM     is the TM-score that it expects under the best such alignment (supplement
 *             1.9.7). */
#ifndef FM_TRAINER_CONFIDENCE_H
#define FM_TRAINER_CONFIDENCE_H

#include <stddef.h>
#include <stdint.h>

/* The last boundary between the classes of aligned errors (Å). */
#define FM_CONFIDENCE_LAST_ERROR 31.0

/* Returns the pLDDT of a residue: the mean of the classes' centres, times 100, under the softmax of
 * logits[0..n_bin-1]. */
double fm_confidence_plddt(const float *logits, int64_t n_bin);

/* Returns the centre (Å) of class `bin` of n_bin > 2. The n_bin - 1 boundaries are evenly spaced
 * from 0 to FM_CONFIDENCE_LAST_ERROR, and the last class is as wide as the others. The centre of
 * class n_bin - 1 is the largest possible PAE. */
double fm_confidence_error_centre(int64_t bin, int64_t n_bin);

/* Writes the PAE of n_row rows of a chain to ret_error [n_row, n_res], and the expected TM-score of
 * each row's alignment to ret_tm [n_row]. logits are [n_row, n_res, n_bin]. The pTM of a chain is
 * the largest expected TM-score of its rows.
 */
void fm_confidence_pae(const float *logits, uint32_t n_row, uint32_t n_res, int64_t n_bin,
                       float *ret_error, double *ret_tm);

#endif
