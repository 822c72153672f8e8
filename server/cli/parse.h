/* parse.h: the kinds of `foldmill parse`: each reads one file's text and either writes the
 * reference's arrays as .npz or prints a summary. A new kind is a function and a line of the table
 * in cmd_parse.c. */
#ifndef FM_CLI_PARSE_H
#define FM_CLI_PARSE_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/npz.h"
#include "proto/record.h"

#include <stdbool.h>

typedef struct fm_parse_request {
    const char *path;  /* of the input, for messages; errors get it as their source */
    fm_bytes text;     /* its content, inflated; lies in the arena */
    const char *chain; /* --chain, NULL when not given */
    const char *query; /* --query, NULL when not given */
    const char *out;   /* -o: write arrays there; NULL: print a summary */
    bool compat_openfold;
    bool is_predicted; /* --predicted: B factors are confidence */
    fm_arena *arena;   /* for everything the kind needs */
} fm_parse_request;

typedef fm_status fm_parse_kind_fn(const fm_parse_request *request, fm_error *reterr);

fm_parse_kind_fn fm_parse_kind_a3m, fm_parse_kind_sto, fm_parse_kind_msa, fm_parse_kind_mmcif,
    fm_parse_kind_pdb, fm_parse_kind_hhr, fm_parse_kind_hmmsearch;

/* Strings joined by newlines, as the arrays hold them: the i-th of `count` is string(context, i).
 */
fm_status fm_parse_write_strings(fm_npz_writer *writer, const char *key, fm_arena *arena,
                                 size_t count, fm_bytes (*string)(const void *context, size_t i),
                                 const void *context, fm_error *reterr);

/* Writes request->out: the sequence and structure features of one chain. */
fm_status fm_parse_write_structure(const fm_parse_request *request,
                                   const fm_part_sequence *sequence,
                                   const fm_part_structure *structure, fm_error *reterr);

/* Adds msa, deletion_matrix_int, num_alignments and msa_species_identifiers of an msa part. */
fm_status fm_parse_append_msa(fm_npz_writer *writer, const fm_part_msa *part, fm_arena *arena,
                              fm_error *reterr);

#endif
