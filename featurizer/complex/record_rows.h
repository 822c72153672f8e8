/* record_rows.h: the table of an assembly's records as text, for people and for evaluation. */
#ifndef FM_COMPLEX_RECORD_ROWS_H
#define FM_COMPLEX_RECORD_ROWS_H

#include "featurizer/arrays.h"
#include "featurizer/complex/records.h"

enum { FM_RECORD_ARRAYS = 2 };

/* Lists the records as the arrays "assembly/index/columns", a name a line, and
 * "assembly/index/rows", a record a line, with tabs between its columns. Beside a record's own
 * columns there are what its chains are in detail (a modified protein, a bonded ligand), and the
 * class in which an evaluation counts it. Returns FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_record_rows_list(const fm_assembly *assembly,
                                          const fm_record_options *options, fm_arena *arena,
                                          fm_array ret_arrays[FM_RECORD_ARRAYS], size_t *ret_n,
                                          fm_error *reterr);

#endif
