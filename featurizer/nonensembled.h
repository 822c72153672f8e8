/* nonensembled.h: the features of a chain after every transform of the reference that draws no
 * random numbers.
 *
 * These are the outputs of the reference's non-ensembled transforms: ids in restype order, masks
 * and the profile of the whole alignment. Structure and templates add atom14, rigid groups,
 * torsions and pseudo-beta. Samples do not store them: they carry coordinates, and proto/chem
 * computes the rest. This module serves to export a chain to other programs and to compare with
 * them.
 *
 * Source: docs/reference/inputs.md, "Non-ensembled features", which lists keys, dtypes and
 * shapes. */
#ifndef FM_NONENSEMBLED_H
#define FM_NONENSEMBLED_H

#include "featurizer/arrays.h"
#include "featurizer/templates.h"
#include "proto/base/arena.h"
#include "proto/record.h"

/* Parts of one chain; all have the same N_res. */
typedef struct fm_nonensembled_input {
    const fm_part_sequence *sequence;
    const fm_part_msa *msa;                /* NULL: the arrays that need it are omitted */
    const fm_part_structure *structure;    /* NULL: the same */
    const fm_template_features *templates; /* NULL: none, and arrays with N_templ = 0 */
} fm_nonensembled_input;

enum { FM_NONENSEMBLED_N_ARRAY = 48 };

/* Lists the arrays. They are in the arena or borrow from the input. Per cell of the alignment the
 * arena needs 8 bytes for msa and 4 each for deletion_matrix and msa_mask. Returns FM_ERR_DATA when
 * the parts' N_res differ, FM_ERR_FORMAT for a letter that is not A-Z, and FM_ERR_LIMIT when the
 * arena is full. */
FM_MUST_USE fm_status fm_nonensembled_list_arrays(const fm_nonensembled_input *input,
                                                  fm_arena *arena,
                                                  fm_array ret_arrays[FM_NONENSEMBLED_N_ARRAY],
                                                  size_t *ret_n, fm_error *reterr);

#endif
