/* paired_rows.h: the MSA of a crop: which rows of its chains stand beside each other.
 *
 *     row           chain A    chain B    ligand
 *     0             query      query      query     <- paired: rows of one species
 *     1             A.7        B.3        (row 0)
 *     2             A.9        gaps       (row 0)
 *     3 n_paired    A.1        B.1        (row 0)   <- unpaired: each chain's rows in their order
 *
 * The plan holds row numbers only, so it costs no more than the chains have rows. Cells are
 * gathered afterwards, for the rows of a cycle and the tokens of a crop.
 *
 * Source: AlphaFold 3, supplementary 2.3, and AlphaFold-Multimer, 7.2 (pairing by species);
 * docs/reference/complexes.md. */
#ifndef FM_COMPLEX_PAIRED_ROWS_H
#define FM_COMPLEX_PAIRED_ROWS_H

#include "featurizer/complex/sequence_rows.h"

/* A chain of the crop. Chains come ordered by entity, then by asym_id. */
typedef struct fm_paired_chain {
    fm_bytes sequence;
    fm_polymer polymer;
    const fm_sequence_rows *paired;   /* rows that may be paired; may be `unpaired` itself */
    const fm_sequence_rows *unpaired; /* all rows */
} fm_paired_chain;

typedef struct fm_paired_options {
    uint32_t max_row; /* rows of the result; half of them may be paired. AlphaFold 3: 16,384 */
    /* Without pairing the query comes twice, as in the reference: as the paired row, and as the
     * first of the unpaired ones. */
    bool repeats_query;
} fm_paired_options;

#define FM_ROW_GAP (-1)

typedef struct fm_paired_rows {
    uint32_t n_row, n_paired;
    /* The deepest unpaired rows of these chains, at most n_row - n_paired; 1 where there is no such
     * chain. */
    uint32_t n_unpaired_protein, n_unpaired_rna;
    uint32_t n_chain;
    /* [n_chain][n_row] row of the chain's paired rows for the first n_paired, then of its unpaired
     * ones; FM_ROW_GAP: gaps */
    int32_t *const *row;
} fm_paired_rows;

/* Plans the MSA of 1 or more chains. Rows are in the arena. Returns FM_ERR_LIMIT when it is
 * full. */
FM_MUST_USE fm_status fm_paired_rows_plan(const fm_paired_chain *chains, uint32_t n_chain,
                                          const fm_paired_options *options, fm_arena *arena,
                                          fm_paired_rows *ret_rows, fm_error *reterr);

/* The column of each token: a chain, and a column of its sequence. */
typedef struct fm_paired_column {
    uint32_t chain, column;
} fm_paired_column;

/* Writes the cells of one planned row: ids and deletions, [n_column] each. */
void fm_paired_rows_gather(const fm_paired_rows *rows, const fm_paired_chain *chains, uint32_t row,
                           const fm_paired_column *columns, uint32_t n_column, uint8_t *ret_ids,
                           uint8_t *ret_deletion);

#endif
