/* hhr.h: parses result files of HHsearch and HHblits (.hhr; HH-suite user guide, "Output formats").
 *
 * The header and the table at the beginning are skipped. Each hit is a paragraph:
 *
 *     No 1
 *     >3ZEE_A real chain 3ZEE_A
 *     Probab=99.83  E-value=4.4e-29  ...  Aligned_cols=84  ...  Sum_probs=75.9  Template_Neff=10.1
 *
 *     Q query             1 SEFKVTVCFG   10 (84)       blocks of Q and T lines; lines of Consensus,
 *     T 3ZEE_A            1 SEFKVTVCFG   10 (84)       ss_pred and ss_dssp are skipped
 *
 * Names are in columns 3 to 17. From column 18 follow: first position, letters and '-', last
 * position, (length). */
#ifndef FM_PARSE_HHR_H
#define FM_PARSE_HHR_H

#include "featurizer/parse/hits.h"

#include <stdbool.h>

/* Parses a whole file. By default the file must be as whole as it says. It has the hits of its
 * table, a hit pairs as many residues as Aligned_cols says, and its lines follow one another. A
 * hit with Aligned_cols=1 may have no lines, as hh-suite writes it. A file without hits is
 * accepted; it must then be empty, or begin with "Query" and have the whole table. Aligned_cols and
 * Sum_probs are enough of the summary.
 *
 * compat_openfold makes none of these checks. It refuses what OpenFold refuses: a summary line
 * without one of its eight values. Returns FM_ERR_FORMAT with the place, and FM_ERR_LIMIT. `text`
 * must outlive the value, because names borrow from it. */
FM_MUST_USE fm_status fm_hhr_parse(fm_bytes text, bool compat_openfold, fm_arena *arena,
                                   fm_hits *ret_hits, fm_error *reterr);

#endif
