/* a3m.h: parses A3M alignments: FASTA records whose lower-case letters are insertions.
 *
 *     #10 1              lines that start with '#' are comments
 *     >query             a record: a description, then lines of sequence that are joined
 *     MKT-AY
 *     >hit_1 some words
 *     MRTgsgAAY          upper-case letters and '-' are match columns, one for each of the query's;
 *                        lower-case letters are deletions, counted before the column that follows
 *                        and dropped at the end of a row
 *
 * docs/reference/inputs.md has the whole grammar and every deviation. The default also accepts a
 * byte order mark, blank lines, CRLF and CR, '.' as the padding of A2M, and ';' comments before the
 * first record. It skips the annotation records of hh-suite (ss_pred, ss_conf, ss_dssp, sa_pred,
 * sa_dssp). It accepts alignments terminated by NUL bytes, as ColabFold's search server sends them.
 * With compat_openfold the text is read exactly as OpenFold's parse_a3m reads it, and text on which
 * that fails is refused.
 *
 * One pass, no recursion; only the rows are allocated. A text has at most FM_LIMIT_INPUT_BYTES. All
 * functions return FM_ERR_FORMAT with line, column and a message for text that breaks the rules.
 * They return FM_ERR_LIMIT for input that exceeds proto/limits.h or the arena. */
#ifndef FM_PARSE_A3M_H
#define FM_PARSE_A3M_H

#include "featurizer/parse/alignment.h"
#include "featurizer/parse/match.h"

typedef struct fm_a3m_options {
    bool compat_openfold;
    /* Where the alignment to read begins, in a text of several NUL-terminated ones. */
    size_t begin;
    uint64_t line; /* the number of the line at `begin`; 0: it is counted, from the text's start */
    const fm_match_kernel *kernel; /* NULL: the fastest this processor runs */
} fm_a3m_options;

/* Finds where the alignment after the one at `begin` begins. Returns false when that is the text's
 * last, which is always so in compat_openfold. */
bool fm_a3m_next(fm_bytes text, bool compat_openfold, size_t begin, size_t *ret_begin);

/* Counts the match columns of the first row, the query. Here and below, options may be NULL for all
 * defaults. */
FM_MUST_USE fm_status fm_a3m_measure(fm_bytes text, const fm_a3m_options *options,
                                     size_t *ret_n_col, fm_error *reterr);

/* Appends the text's rows to an alignment, which must have the same number of columns. On failure
 * the alignment holds the rows before the bad one. Returns FM_ERR_LIMIT also when the alignment has
 * no room left. */
FM_MUST_USE fm_status fm_a3m_append(fm_bytes text, const fm_a3m_options *options,
                                    fm_alignment *alignment, fm_error *reterr);

/* Measures and appends: returns the text's alignment in the arena. The rows' descriptions point
 * into the text. */
FM_MUST_USE fm_status fm_a3m_parse(fm_bytes text, const fm_a3m_options *options, fm_arena *arena,
                                   fm_alignment *ret_alignment, fm_error *reterr);

/* Returns whether the first row, the query, has a lower-case letter, which is an insertion and no
 * residue of it, and the place of the first one. */
bool fm_a3m_find_insertion(fm_bytes text, const fm_a3m_options *options, fm_text_place *ret_place);

/* Returns the place of match column `column` (from 0) of a row of this text. */
fm_text_place fm_a3m_locate(fm_bytes text, const fm_a3m_options *options,
                            const fm_alignment_row *row, size_t column);

#endif
