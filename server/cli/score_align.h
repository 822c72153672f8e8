/* score_align.h: aligns the residues of a predicted chain with those of a true one. */
#ifndef FM_CLI_SCORE_ALIGN_H
#define FM_CLI_SCORE_ALIGN_H

#include "featurizer/complex/assembly.h"

typedef struct fm_chain_alignment {
    /* [residues of the predicted chain]: the place of its residue in the true chain, or UINT32_MAX
     * where none is beside it or the one beside it has another component. Ascending. */
    const uint32_t *place;
    uint32_t n_same; /* residues that have a place */
    int32_t score;
} fm_chain_alignment;

/* Aligns two chains by their components: 4 for equal ones, -2 for others, -6 for a gap and -1 for
 * each further residue in it; gaps at the ends cost nothing (Gotoh 1982, J. Mol. Biol. 162:705). Of
 * equally good alignments, the one that pairs more residues at the end is taken. The result is in
 * the arena, which is used for a byte for each pair of residues meanwhile. FM_ERR_LIMIT when the
 * arena is full. */
FM_MUST_USE fm_status fm_chain_align(const fm_assembly *predicted, uint32_t chain,
                                     const fm_assembly *truth, uint32_t other, fm_arena *arena,
                                     fm_chain_alignment *ret_alignment, fm_error *reterr);

#endif
