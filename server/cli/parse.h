/* parse.h: the kinds of foldmill parse. Each reads the text of one file, and writes the reference's
 * arrays as .npz, or prints a summary for people, or prints it as one JSON object. A new kind is a
 * function and a row of the table in cmd_parse.c. */
#ifndef FM_CLI_PARSE_H
#define FM_CLI_PARSE_H

#include "featurizer/complex/sample.h"
#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/record.h"
#include "proto/base/json_text.h"
#include "server/cli/array_writer.h"

#include <stdbool.h>

typedef struct fm_parse_request {
    const char *path;       /* of the input, for messages; "stdin" for standard input */
    fm_bytes text;          /* its content, inflated; in the arena */
    const char *chain;      /* --chain, or NULL */
    const char *query;      /* --query, or NULL */
    const char *components; /* --components, or NULL */
    const char *crops;      /* --crops, or NULL */
    const char *job;        /* --job, or NULL */
    const char *format;     /* --format, or NULL */
    const char *draws;      /* --draws, or NULL */
    const char *compat;     /* --compat, or NULL */
    const char *out;        /* -o: write arrays there; NULL: print a summary */
    bool json;              /* --json: print the summary as one JSON object */
    bool compat_openfold, compat_protenix;
    bool is_predicted;       /* --predicted: B factors are confidence */
    bool is_single_sequence; /* --single-sequence: chains need no alignment */
    fm_arena *arena;         /* for all memory that the kind needs */
} fm_parse_request;

typedef fm_status fm_parse_kind_fn(const fm_parse_request *request, fm_error *reterr);

fm_parse_kind_fn fm_parse_kind_a3m, fm_parse_kind_sto, fm_parse_kind_msa, fm_parse_kind_mmcif,
    fm_parse_kind_pdb, fm_parse_kind_hhr, fm_parse_kind_hmmsearch, fm_parse_kind_complex,
    fm_parse_kind_job;

/* Writes `count` strings, joined by newlines, as one array; string(context, i) is the i-th. */
fm_status fm_parse_write_strings(fm_array_writer *writer, const char *key, fm_arena *arena,
                                 size_t count, fm_bytes (*string)(const void *context, size_t i),
                                 const void *context, fm_error *reterr);

/* Writes the sequence and structure features of one chain to request->out. */
fm_status fm_parse_write_structure(const fm_parse_request *request,
                                   const fm_part_sequence *sequence,
                                   const fm_part_structure *structure, fm_error *reterr);

/* Appends msa, deletion_matrix_int, num_alignments and msa_species_identifiers of an msa part. */
fm_status fm_parse_append_msa(fm_array_writer *writer, const fm_part_msa *part, fm_arena *arena,
                              fm_error *reterr);

/* Appends the features of a tokenized assembly, and with --crops the recorded crops of the file
 * with theirs. */
fm_status fm_parse_append_complex_features(fm_array_writer *writer, const fm_parse_request *request,
                                           const fm_assembly *assembly,
                                           const fm_complex_entity_inputs *inputs,
                                           fm_error *reterr);

/* Writes everything of an assembly to request->out: its tables, its records and its features.
 * inputs: the alignments and templates of its entities, or NULL for none. */
fm_status fm_parse_write_complex(const fm_parse_request *request, const fm_assembly *assembly,
                                 const fm_complex_entity_inputs *inputs, fm_array_format format,
                                 fm_error *reterr);

/* Begins the JSON summary on stdout with the members "file" and "format". */
void fm_parse_begin_json(const fm_parse_request *request, const char *format, fm_json_writer *json);

#endif
