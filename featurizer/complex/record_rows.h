/* record_rows.h: the table of an assembly's records as text, for people and for evaluation. */
#ifndef FM_COMPLEX_RECORD_ROWS_H
#define FM_COMPLEX_RECORD_ROWS_H

#include "featurizer/arrays.h"
#include "featurizer/complex/records.h"

enum { FM_RECORD_ARRAYS = 2 };

/* Lists the records as two arrays of text, uint8, in the arena. "assembly/index/columns" has one
 * column name per line. "assembly/index/rows" has one record per line, with tabs between the
 * columns. The last columns say what each chain is in detail (a modified protein, a bonded ligand)
 * and in which class an evaluation counts the record. Returns FM_ERR_LIMIT when the arena is full.
 */
FM_MUST_USE fm_status fm_record_rows_list(const fm_assembly *assembly,
                                          const fm_record_options *options, fm_arena *arena,
                                          fm_array ret_arrays[FM_RECORD_ARRAYS], size_t *ret_n,
                                          fm_error *reterr);

#endif
