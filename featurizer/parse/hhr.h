/* hhr.h: HHsearch and HHblits result files (.hhr, HH-suite user guide, "Output formats").
 *
 * The file opens with a header and a table, which are not read. Each hit is a paragraph:
 *
 *     No 1
 *     >3ZEE_A real chain 3ZEE_A
 *     Probab=99.83  E-value=4.4e-29  Score=113.52  Aligned_cols=84  ...  Sum_probs=75.9
 * Template_Neff=10.1
 *
 *     Q query             1 SEFKVTVCFG   10 (84)       blocks of Q and T lines; lines of Consensus,
 *     T 3ZEE_A            1 SEFKVTVCFG   10 (84)       ss_pred and ss_dssp are passed over
 *
 * Names stand in columns 3 to 17; from column 18: first position, letters and '-', last position,
 * (length). */
#ifndef FM_PARSE_HHR_H
#define FM_PARSE_HHR_H

#include "featurizer/parse/hits.h"

#include <stdbool.h>

/* Parses a whole file. With compat_openfold what OpenFold refuses is refused: a summary line
 * without one of its eight values; by default Aligned_cols and Sum_probs are enough. Errors:
 * FM_ERR_FORMAT with the place; FM_ERR_LIMIT. A file without hits is fine, by default if it is
 * empty or begins with "Query". `text` must outlive the value (names borrow it). */
FM_MUST_USE fm_status fm_hhr_parse(fm_bytes text, bool compat_openfold, fm_arena *arena,
                                   fm_hits *ret_hits, fm_error *reterr);

#endif
