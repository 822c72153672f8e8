/* complex_sample.h: the compact form of a sample of a complex, and its expansion.
 *
 * AlphaFold 3's network reads matrices of bonds, encodings with one 1 in 32, 64 or 128 places, and
 * features of template pairs: 50 to 200 MB for a crop of 384 tokens. The compact form has ids,
 * pairs and atoms instead, 1 to 4 MB. Files keep it, and servers send it with packed rows; the
 * consumer expands it.
 * docs/reference/complex-samples.md has the arrays of both forms. */
#ifndef FM_COMPLEX_SAMPLE_H
#define FM_COMPLEX_SAMPLE_H

#include "proto/batch.h"
#include "proto/npz.h"

#include <stdbool.h>

/* Limits of a compact sample. */
enum {
    FM_COMPLEX_SAMPLE_TOKENS = 4096,
    FM_COMPLEX_SAMPLE_ATOMS = 11585, /* the whole form's matrix of bonds takes 1 GiB */
    /* For a prediction: the matrix of bonds between tokens takes 1 GiB. */
    FM_COMPLEX_PREDICTED_TOKENS = 16384,
    FM_COMPLEX_PREDICTED_ATOMS = 262144,
    FM_COMPLEX_SAMPLE_ROWS = 65536,
    FM_COMPLEX_SAMPLE_TEMPLATES = 20,
};

/* Returns whether an archive is in the compact form: it has token_bonds_pairs. Names may have the
 * prefix "in/" or "features/". */
bool fm_complex_sample_is_compact(const fm_npz *npz);

/* Lists the arrays of a decoded sample of a complex: its tensors under their names. The rows of
 * cycles 0 .. n_cycle-1 (n_cycle is 1 to the sample's) are one array, one cycle after the other:
 * those of cycle c are ret_first_row[c] to ret_first_row[c + 1] - 1 of [n_cycle + 1]. Arrays are
 * borrowed from the sample, except that several cycles' rows are in the arena. Returns FM_ERR_DATA
 * when the sample is of a chain or a cycle has no rows, and FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_complex_sample_list(const fm_sample *sample, uint32_t n_cycle,
                                             fm_arena *arena, fm_npz *ret_compact,
                                             uint32_t *ret_first_row, fm_error *reterr);

/* Expands a compact sample to the arrays of the whole form. Checks types, shapes, and every number
 * that becomes an index; what arrays say of each other is left to the reader of the whole form.
 * Arrays of both forms are borrowed from `compact`, others are in the arena. Groups of equivalent
 * atoms with more than 64 atoms or 4,096 orders are left out; *ret_n_left_out counts them and may
 * be NULL. Returns FM_ERR_DATA with the array, what was found and what was expected, and
 * FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_complex_sample_expand(const fm_npz *compact, fm_arena *arena,
                                               fm_npz *ret_whole, uint32_t *ret_n_left_out,
                                               fm_error *reterr);

/* The same for a prediction, which reads no labels and may be larger: bond_mask and the orders of
 * atoms are left out, and templates stay as atoms: template_aatype is converted, template_atoms and
 * template_atom_mask are borrowed from `compact`. */
FM_MUST_USE fm_status fm_complex_sample_expand_predicted(const fm_npz *compact, fm_arena *arena,
                                                         fm_npz *ret_whole, fm_error *reterr);

#endif
