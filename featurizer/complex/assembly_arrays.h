/* assembly_arrays.h: the tables of an assembly as named arrays. */
#ifndef FM_COMPLEX_ASSEMBLY_ARRAYS_H
#define FM_COMPLEX_ASSEMBLY_ARRAYS_H

#include "featurizer/arrays.h"
#include "featurizer/complex/assembly.h"

enum { FM_ASSEMBLY_ARRAYS = 48 };

/* Returns _entity_poly.type of an fm_polymer; "non-poly" for none. */
const char *fm_polymer_name(uint8_t polymer);

/* Lists the tables of a tokenized assembly as arrays "assembly/chain/id", ... (docs/reference/
 * complexes.md). first_atom has one more entry, the number of atoms. Lists of strings are uint8,
 * joined by newlines; names of residues and atoms are padded with zeros.
 * Returns FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_assembly_list_arrays(const fm_assembly *assembly, fm_arena *arena,
                                              fm_array ret_arrays[FM_ASSEMBLY_ARRAYS],
                                              size_t *ret_n, fm_error *reterr);

#endif
