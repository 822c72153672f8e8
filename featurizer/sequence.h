/* sequence.h: the features that follow from a chain's sequence alone, in the reference's layout.
 *
 * residue_index counts from 0 along the sequence; it never holds author numbers. Source:
 * docs/formats/inputs.md, "Sequence features". */
#ifndef FM_SEQUENCE_H
#define FM_SEQUENCE_H

#include "proto/base/arena.h"
#include "proto/record.h"

enum { FM_N_AATYPE = 21 }; /* the 20 restypes and X */

typedef struct fm_sequence_features {
    uint32_t n_res;
    const int32_t *aatype;                   /* [N_res, 21] one-hot in restype order, X last */
    const int32_t *between_segment_residues; /* [N_res] 0 */
    const int32_t *residue_index;            /* [N_res] 0 .. N_res-1 */
    const int32_t *seq_length;               /* [N_res] N_res everywhere */
} fm_sequence_features;

/* Allocates the features in the arena. Returns FM_ERR_FORMAT for a byte that is not A-Z, with its
 * column, and FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_sequence_featurize(const fm_part_sequence *sequence, fm_arena *arena,
                                            fm_sequence_features *ret_features, fm_error *reterr);

#endif
