/* msa.h: a chain's alignment files become its MSA features.
 *
 *     files in canonical order  ->  rows, one after the other  ->  rows not seen before
 *                               ->  HHblits ids, deletions, profile, species, ranges (fm_part_msa)
 *
 * Canonical order: names that contain "uniref90", then "bfd" or "uniclust", then "mgnify", then the
 * others, each by name in byte order; with compat_openfold all by name, as the reference's files
 * were made. The order of the inputs never matters. A row is left out when an earlier row has the
 * same letters and gaps; deletions do not take part, so the first row's deletions stay. Source:
 * AlphaFold 2, supplementary 1.2.3 and 1.2.9; docs/formats/inputs.md.
 *
 * Pure: bytes in, value out in the caller's arena, which needs room for about 4 times the texts'
 * bytes (10 times where rows are shorter than 30 residues), most of it never touched. Not a thing
 * is read or decided by time, address or number of threads. */
#ifndef FM_FEATURIZER_MSA_H
#define FM_FEATURIZER_MSA_H

#include "featurizer/parse/alignment.h"
#include "proto/record.h"

#include <stdbool.h>

typedef enum fm_msa_format {
    FM_MSA_NONE = 0, /* not an alignment of the chain's MSA */
    FM_MSA_A3M,
    FM_MSA_STOCKHOLM,
} fm_msa_format;

/* The format by the file's name, without a ".gz": ".a3m", or ".sto" except "uniprot_hits.sto" and
 * "hmm_output.sto" (not part of the chain's MSA). FM_MSA_NONE for every other name. */
fm_msa_format fm_msa_format_of_name(const char *name);

/* One alignment file. Both fields are borrowed; the record's source names are copies. */
typedef struct fm_msa_input {
    const char *name;     /* file name without folders; a ".gz" at its end is not part of it */
    fm_bytes content;     /* inflated */
    fm_msa_format format; /* FM_MSA_NONE = by the name; a file that is no alignment is left out */
} fm_msa_input;

/* The inner loops on ids; as featurizer/parse/match.h, one is the other's oracle. */
typedef struct fm_msa_kernel {
    const char *name;
    /* Letters to HHblits ids in place, FM_HHBLITS_NONE for bytes that have none; false when there
     * were some. */
    bool (*encode)(uint8_t *cells, size_t n_cell);
    /* Adds how often each id 0..21 stands in each column: ids [n_row, n_res], profile [n_res, 22].
     */
    void (*count)(const uint8_t *ids, size_t n_row, size_t n_res, uint32_t *profile);
} fm_msa_kernel;

extern const fm_msa_kernel fm_msa_scalar, fm_msa_avx2;

typedef struct fm_msa_options {
    bool compat_openfold;        /* read the files, and order them, as OpenFold does */
    const fm_msa_kernel *kernel; /* NULL = the fastest there is */
} fm_msa_options;

/* What was left out on the way, for reports. */
typedef struct fm_msa_report {
    uint32_t n_file; /* alignments read */
    uint32_t n_row;  /* rows in them, before de-duplication */
} fm_msa_report;

/* The features of a chain. query: its sequence, one upper-case letter a residue, or size 0 when it
 * is not known; then the first row of the first file is the query. With no alignment among the
 * inputs the result is the query alone (one row, a source named "query"). options and ret_report
 * may be NULL.
 *
 * FM_ERR_FORMAT, FM_ERR_LIMIT, FM_ERR_UNSUPPORTED from the parsers and for bytes that are no
 * residue, with the file's name, line and column: all rows of all files must have the query's
 * length. FM_ERR_DATA when there is neither alignment nor query, the query has a byte that is no
 * residue, or (but with compat_openfold) the first row of a file is not the query, an X on either
 * side standing for any letter. An A3M of several NUL-ended alignments gives the first whose query
 * is the chain's, or the first. */
FM_MUST_USE fm_status fm_msa_build(const fm_msa_input *inputs, size_t n_input, fm_bytes query,
                                   const fm_msa_options *options, fm_arena *arena,
                                   fm_part_msa *ret_part, fm_msa_report *ret_report,
                                   fm_error *reterr);

/* The species identifier of a row's description, as UniProt writes it: the first word up to a '/'
 * is (tr|sp)|ACCESSION|NAME_SPECIES, with AlphaFold's tolerated endings. Borrowed from the
 * description; size 0 when there is none. */
fm_bytes fm_msa_species(fm_bytes description, bool compat_openfold);

#endif
