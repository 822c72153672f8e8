/* layout.h: which token and chain each atom of a complex belongs to, as scores and files need it.
 *
 * N tokens, A atoms, K chains. */
#ifndef FM_COMPLEX_LAYOUT_H
#define FM_COMPLEX_LAYOUT_H

#include "proto/complex_atoms.h"

enum { FM_COMPLEX_ERROR_BINS = 64 }; /* classes of PAE, PDE and the distogram */

/* Arrays are in the arena or borrowed. */
typedef struct fm_complex_layout {
    uint32_t n_token, n_atom, n_chain;
    const int32_t *token_chain;      /* [N] 0 to K - 1 */
    const uint8_t *token_has_frame;  /* [N] 0/1 */
    const int32_t *atom_token;       /* [A] 0 to N - 1 */
    const int32_t *atom_residue;     /* [A] the number of the residue in its chain */
    const uint8_t *chain_is_polymer; /* [K] 0/1 */
    const uint32_t *chain_tokens;    /* [K] tokens of each chain */
    const uint32_t *chain_atoms;     /* [K] */
    /* [N + 1, 64] What a class of the aligned error adds to a TM-score among n tokens:
     * 1 / (1 + (centre / d0(n))^2), with the d0 of Zhang and Skolnick (2004). Row 0 is not used. */
    const double *tm_weight;
} fm_complex_layout;

/* Completes a layout whose members up to chain_is_polymer the caller has set. Asserts
 * that indices are in range. FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_complex_layout_complete(fm_complex_layout *layout, fm_arena *arena,
                                                 fm_error *reterr);

/* Makes the layout of a table of names. atom_token [A] is the sample's atom_to_token_idx, has_frame
 * [N] its has_frame; both are borrowed. Returns FM_ERR_DATA when atoms of one token are in several
 * chains or a token has no atoms, FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_complex_layout_make(const fm_complex_atoms *atoms, uint32_t n_token,
                                             const int32_t *atom_token, const uint8_t *has_frame,
                                             fm_arena *arena, fm_complex_layout *ret_layout,
                                             fm_error *reterr);

#endif
