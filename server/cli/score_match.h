/* score_match.h: puts a predicted complex beside the true one, for foldmill score.
 *
 * Two chains correspond if they have the same components with the same numbers. A predicted polymer
 * without such a chain is aligned with the true polymers, and corresponds to the nearest one if at
 * least half of the residues of the shorter chain are the same. Both structures are then laid out
 * alike, with the tokens and atoms of the prediction: that is what fm_compare_complex
 * takes. An atom counts if all predicted chains that correspond have it. Residues that are not
 * among the components do not count. */
#ifndef FM_CLI_SCORE_MATCH_H
#define FM_CLI_SCORE_MATCH_H

#include "featurizer/complex/assembly.h"
#include "trainer/metrics/complex_metrics.h"

typedef struct fm_score_match {
    fm_compared_complex pair; /* asym_id of the truth is the chain's place in the true assembly */
    int64_t n_chain;
    const uint32_t *chain; /* [n_chain] of `pair`: the chain's place in the predicted assembly */
    /* [chains of the prediction]: residues that are the same, of a chain that was aligned;
     * UINT32_MAX: of one with the same residues, and of one that is left out. */
    const uint32_t *n_same;
} fm_score_match;

/* Everything is in the arena. Returns FM_ERR_DATA, with the chain and the residue, if a predicted
 * polymer has no true chain, if the prediction has more chains of it than the truth, or if two
 * chains with different residues are nearest to one true chain. Predicted ligands without a true
 * chain are left out. Returns FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_score_match_make(const fm_assembly *predicted, const fm_assembly *truth,
                                          fm_arena *arena, fm_score_match *ret_match,
                                          fm_error *reterr);

#endif
