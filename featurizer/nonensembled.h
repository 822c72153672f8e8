/* nonensembled.h: the features of a chain after every transform that draws nothing.
 *
 * What the reference's non-ensembled transforms make of a chain: ids in restype order, masks, the
 * profile of the whole alignment, atom14, rigid groups, torsions and pseudo-beta of the structure
 * and of the templates. Samples need none of it stored: they carry coordinates, and proto/chem
 * gives the rest. This is for exporting a chain to other programs, and for comparing with them.
 *
 * Source: docs/formats/inputs.md, "Non-ensembled features", which lists keys, dtypes and shapes. */
#ifndef FM_NONENSEMBLED_H
#define FM_NONENSEMBLED_H

#include "featurizer/arrays.h"
#include "featurizer/templates.h"
#include "proto/base/arena.h"
#include "proto/record.h"

/* Parts of one chain, of the same N_res. */
typedef struct fm_nonensembled_input {
    const fm_part_sequence *sequence;
    const fm_part_msa *msa;                /* NULL: the arrays that need it are left out */
    const fm_part_structure *structure;    /* NULL: the same */
    const fm_template_features *templates; /* NULL: none, arrays of N_templ = 0 */
} fm_nonensembled_input;

enum { FM_NONENSEMBLED_N_ARRAY = 48 };

/* Lists the arrays. They lie in the arena (8 bytes a cell of the alignment for msa, 4 each for
 * deletion_matrix and msa_mask) or borrow from the input. FM_ERR_DATA when the parts' N_res
 * differ, FM_ERR_FORMAT for a letter that is not A-Z, FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_nonensembled_list_arrays(const fm_nonensembled_input *input,
                                                  fm_arena *arena,
                                                  fm_array ret_arrays[FM_NONENSEMBLED_N_ARRAY],
                                                  size_t *ret_n, fm_error *reterr);

#endif
