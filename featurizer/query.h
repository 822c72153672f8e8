/* query.h: reads the sequence of a chain that has no structure, from a FASTA file or from the first
 * row of an alignment.
 *
 * A FASTA file has one record of one chain:
 *
 *     >T1024 a title         the description, which may be missing
 *     MKTAYIAKQR             letters in either case; blanks are skipped, and a '*' may end them
 *
 * The letters are the 20 amino acids and X. Anything else is refused with its place. Lower-case
 * letters in the first row of an A3M are refused too, because they are insertions there and would
 * be left out of the chain. So is text in UTF-16. A UTF-8 byte order mark is skipped. A second
 * chain is refused too: a second record, a ':' or '/' between letters, or a header such as "#59,60"
 * of ColabFold's alignments of complexes. The functions are pure: they read bytes and write to the
 * caller's arena. */
#ifndef FM_FEATURIZER_QUERY_H
#define FM_FEATURIZER_QUERY_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "proto/record.h"

typedef enum fm_query_format {
    FM_QUERY_NONE = 0,
    FM_QUERY_FASTA,
    FM_QUERY_A3M,
    FM_QUERY_STOCKHOLM
} fm_query_format;

/* Returns the format that a file's name implies, compressed or not: .fasta, .fa, .fas, .faa, .seq;
 * .a3m; .sto. *ret_bare is the length of the name before that ending; ret_bare may be NULL. */
fm_query_format fm_query_format_of_name(const char *name, size_t *ret_bare);

/* Reads the sequence into the arena, in upper case. It returns FM_ERR_FORMAT, with line and column,
 * when the text breaks the rules above. It returns FM_ERR_DATA when the text has a second chain,
 * and FM_ERR_LIMIT when the sequence is longer than FM_LIMIT_N_RES or the arena is full. It also
 * returns the errors of the alignment's parser. */
FM_MUST_USE fm_status fm_query_parse(fm_bytes text, fm_query_format format, fm_arena *arena,
                                     fm_part_sequence *ret_sequence, fm_error *reterr);

/* Makes the structure part of a chain without a structure: no atom is known. Returns FM_ERR_LIMIT
 * when the arena is full. */
FM_MUST_USE fm_status fm_query_structure(const fm_part_sequence *sequence, fm_arena *arena,
                                         fm_part_structure *ret_structure, fm_error *reterr);

#endif
