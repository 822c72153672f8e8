/* msa.h: turns a chain's alignment files into its MSA features.
 *
 *     files in canonical order  ->  rows of all files, in order  ->  rows without duplicates
 *                               ->  HHblits ids, deletions, profile, species, sources (fm_part_msa)
 *
 * Canonical order: files whose name contains "uniref90", then "bfd" or "uniclust", then "mgnify",
 * then all others, each group by name in byte order. With compat_openfold all files are ordered by
 * name, as the reference's files were made. The order of the inputs never matters.
 *
 * A row is a duplicate when an earlier row has the same letters and gaps. Deletions are not
 * compared, so the deletions of the first occurrence are kept. Source: AlphaFold 2, supplementary
 * 1.2.3 and 1.2.9; docs/reference/inputs.md.
 *
 * Pure: bytes in, a value in the caller's arena out; time, addresses and the number of threads have
 * no influence. The arena needs about 4 times the texts' bytes (10 times where rows are shorter
 * than 30 residues). Most of that is reserved and never touched. */
#ifndef FM_FEATURIZER_MSA_H
#define FM_FEATURIZER_MSA_H

#include "featurizer/msa_format.h"
#include "featurizer/parse/alignment.h"
#include "proto/record.h"

#include <stdbool.h>

/* One alignment file. name and content are borrowed; the part's source names are copies. */
typedef struct fm_msa_input {
    const char *name;     /* file name without folders; a ".gz" at its end is ignored */
    fm_bytes content;     /* decompressed */
    fm_msa_format format; /* FM_MSA_NONE: by name, and files that are no alignment are skipped */
} fm_msa_input;

/* The inner loops on ids. The scalar and the AVX2 kernel give the same results, so each is the
 * other's test oracle (as in featurizer/parse/match.h). */
typedef struct fm_msa_kernel {
    const char *name;
    /* Replaces letters by HHblits ids in place. Bytes that have none become FM_HHBLITS_NONE, and
     * the function then returns false. */
    bool (*encode)(uint8_t *cells, size_t n_cell);
    /* Adds the number of occurrences of each id 0..21 in each column. ids: [n_row, n_res]; profile:
     * [n_res, 22]. */
    void (*count)(const uint8_t *ids, size_t n_row, size_t n_res, uint32_t *profile);
} fm_msa_kernel;

extern const fm_msa_kernel fm_msa_scalar, fm_msa_avx2;

typedef struct fm_msa_options {
    bool compat_openfold;        /* read and order the files as OpenFold does */
    const fm_msa_kernel *kernel; /* NULL: the fastest this processor runs */
    /* For the sequences of complexes (featurizer/complex/complex.h). */
    fm_bytes (*species)(fm_bytes description); /* NULL: fm_msa_species */
    /* [256] What stands for each letter once duplicates are removed; NULL: itself. */
    const uint8_t *letters;
    uint32_t max_file_rows; /* first rows of each file that are taken; 0: all */
} fm_msa_options;

/* Counts for reports. */
typedef struct fm_msa_report {
    uint32_t n_file;     /* alignments read */
    uint32_t n_row;      /* rows in them, before duplicates are removed */
    uint32_t n_left_out; /* NUL-terminated alignments of other queries in them */
} fm_msa_report;

/* Builds the MSA features of a chain. query is the chain's sequence, one upper-case letter per
 * residue. Its size is 0 when the sequence is not known; the first row of the first file then is
 * the query. Without any alignment among the inputs the result is the query alone (one row, and one
 * source named "query"). options and ret_report may be NULL.
 *
 * All rows of all files must have the query's length. Parse errors are FM_ERR_FORMAT, FM_ERR_LIMIT
 * and FM_ERR_UNSUPPORTED with the file's name, line and column; a byte that is no residue is
 * FM_ERR_FORMAT. FM_ERR_DATA is returned when there is neither an alignment nor a query, and when
 * the query has a byte that is no residue. Except with compat_openfold, it is also returned when
 * the first row of a file is not the query; an X on either side matches any letter.
 *
 * An A3M file may hold several NUL-terminated alignments. All whose query is the chain's are used,
 * one after the other; the others are counted in the report. On failure the arena is as before the
 * call. */
FM_MUST_USE fm_status fm_msa_build(const fm_msa_input *inputs, size_t n_input, fm_bytes query,
                                   const fm_msa_options *options, fm_arena *arena,
                                   fm_part_msa *ret_part, fm_msa_report *ret_report,
                                   fm_error *reterr);

/* Returns the species identifier in a row's description, as UniProt writes it: the first word, up
 * to a '/', must be (tr|sp)|ACCESSION|NAME_SPECIES with the endings that AlphaFold tolerates. The
 * result is borrowed from the description; its size is 0 when there is no identifier. */
fm_bytes fm_msa_species(fm_bytes description, bool compat_openfold);

#endif
