/* msa_format.h: the formats of alignment files: how each is recognised, and what reads it. */
#ifndef FM_FEATURIZER_MSA_FORMAT_H
#define FM_FEATURIZER_MSA_FORMAT_H

#include "featurizer/parse/a3m.h"

#include <stdbool.h>

typedef enum fm_msa_format {
    FM_MSA_NONE = 0, /* not an alignment of the chain's MSA */
    FM_MSA_A3M,
    FM_MSA_STOCKHOLM,
    FM_MSA_N_FORMAT /* one more than the last format */
} fm_msa_format;

/* Returns the format that the ending of a file's name implies, ignoring that of a compression: A3M
 * for ".a3m", and Stockholm for ".sto". Every other name gives FM_MSA_NONE. */
fm_msa_format fm_msa_format_of_ending(const char *name);

/* The same; "uniprot_hits.sto", "hmm_output.sto" and "pdb_hits.sto", which are not part of the
 * chain's MSA, give FM_MSA_NONE, too. */
fm_msa_format fm_msa_format_of_name(const char *name);

/* What reads a format. Options may be NULL for all defaults; a format without NUL-terminated
 * alignments ignores where one begins. */
typedef struct fm_msa_reader {
    const char *ending; /* ".a3m" */
    const char *title;  /* the format's name for people: "A3M" */
    /* Counts the match columns of the first row, the query. FM_ERR_FORMAT, FM_ERR_LIMIT. */
    fm_status (*measure)(fm_bytes text, const fm_a3m_options *options, size_t *ret_n_col,
                         fm_error *reterr);
    /* Appends the text's rows to an alignment with as many columns. The arena is used during the
     * call only. FM_ERR_FORMAT, FM_ERR_LIMIT; the alignment may then hold the rows before the bad
     * one. */
    fm_status (*append)(fm_bytes text, const fm_a3m_options *options, fm_arena *arena,
                        fm_alignment *alignment, fm_error *reterr);
    /* Returns the place of match column `column` (from 0) of a row of the text. */
    fm_text_place (*locate)(fm_bytes text, const fm_a3m_options *options,
                            const fm_alignment_row *row, size_t column);
} fm_msa_reader;

/* The format is not FM_MSA_NONE. */
const fm_msa_reader *fm_msa_reader_of(fm_msa_format format);

#endif
