/* stockholm.h: parses Stockholm alignments, as jackhmmer writes them.
 *
 *     # STOCKHOLM 1.0
 *     #=GS hit/3-9 DE ...        lines that start with '#' are comments
 *     query         MKT--AY      a line is a name and a piece of that row;
 *     hit/3-9       MRTgsAAY     pieces of one name, block after block, are joined
 *     //                         the end
 *
 * The first row is the query. Its letters are the match columns. In a column where the query has a
 * gap, another row's letter is a deletion. It counts before the match column that follows and is
 * dropped at the end of the row. The whole grammar and every deviation are in
 * docs/reference/inputs.md.
 *
 * By default '-' and '.' are gaps; letters are stored in upper case and gaps as '-'. Every row must
 * have as many columns as the query, and a second alignment in the file is refused. With
 * compat_openfold the text is read exactly as OpenFold's parse_stockholm reads it. Only '-' is a
 * gap, letters keep their case, columns past the query's are ignored, and "//" is a comment.
 *
 * Two passes over the text, no recursion. Besides the rows it takes about 40 bytes per line, which
 * are released at the end. A text has at most FM_LIMIT_INPUT_BYTES. All functions return
 * FM_ERR_FORMAT with line, column and a message for text that breaks the rules. They return
 * FM_ERR_LIMIT for input that exceeds proto/limits.h or the arena. */
#ifndef FM_PARSE_STOCKHOLM_H
#define FM_PARSE_STOCKHOLM_H

#include "featurizer/parse/alignment.h"
#include "featurizer/parse/match.h"

typedef struct fm_stockholm_options {
    bool compat_openfold;
    const fm_match_kernel *kernel; /* NULL: the fastest this processor runs */
} fm_stockholm_options;

/* Counts the match columns of the first row, the query. Here and below, options may be NULL for all
 * defaults. */
FM_MUST_USE fm_status fm_stockholm_measure(fm_bytes text, const fm_stockholm_options *options,
                                           size_t *ret_n_col, fm_error *reterr);

/* Appends the text's rows to an alignment, which must have the same number of columns. The arena is
 * used during the call only. On failure the alignment may hold the rows before the bad one. */
FM_MUST_USE fm_status fm_stockholm_append(fm_bytes text, const fm_stockholm_options *options,
                                          fm_arena *arena, fm_alignment *alignment,
                                          fm_error *reterr);

/* Measures and appends: returns the text's alignment in the arena. The rows' descriptions are names
 * in the text. */
FM_MUST_USE fm_status fm_stockholm_parse(fm_bytes text, const fm_stockholm_options *options,
                                         fm_arena *arena, fm_alignment *ret_alignment,
                                         fm_error *reterr);

/* Returns the place of match column `column` (from 0) of a row of this text. */
fm_text_place fm_stockholm_locate(fm_bytes text, const fm_stockholm_options *options,
                                  const fm_alignment_row *row, size_t column);

#endif
