/* sample.h: one training sample of a complex in the compact form: the features of a crop, its MSA
 * and its templates.
 *
 * Everything that is random has been decided before: the crop's tokens, and the templates of each
 * chain. The MSA has all planned rows, or those that each cycle has drawn (draw.h). The arrays are
 * those of docs/reference/complex-samples.md; proto/complex_sample.h expands them. */
#ifndef FM_COMPLEX_SAMPLE_MAKE_H
#define FM_COMPLEX_SAMPLE_MAKE_H

#include "featurizer/complex/features.h"
#include "featurizer/complex/template_tokens.h"

/* The alignments and templates of an entity. NULL rows: its sequence is the only row. */
typedef struct fm_complex_entity_inputs {
    const fm_sequence_rows *paired, *unpaired;
    fm_mapped_hits templates;
} fm_complex_entity_inputs;

typedef struct fm_complex_sample_options {
    uint32_t max_row;    /* rows of the MSA; AlphaFold 3: 16,384 */
    uint32_t n_template; /* AlphaFold 3: 4 */
    bool compat_protenix;
    /* As the reference predicts: bonds of polymers that the sequence does not tell are among the
     * token bonds, and without pairing the MSA has the query twice. */
    bool is_prediction;
    bool use_model_positions;              /* as of fm_complex_feature_options */
    const fm_complex_placement *placement; /* the same */
    const char *prefix;                    /* of the arrays' names: "features/", or "" */
} fm_complex_sample_options;

enum { FM_COMPLEX_SAMPLE_ARRAYS = FM_COMPLEX_FEATURE_ARRAYS + 8 };

/* Makes the sample of these tokens of a tokenized assembly, ascending; of all of them for tokens ==
 * NULL. inputs: [n_entity], or NULL for none at all. Everything is in the arena, and some arrays
 * are borrowed from the assembly. Returns FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_complex_sample_make(
    const fm_assembly *assembly, const fm_complex_entity_inputs *inputs, const uint32_t *tokens,
    uint32_t n_token, const fm_complex_sample_options *options, fm_arena *arena,
    fm_array ret_arrays[FM_COMPLEX_SAMPLE_ARRAYS], size_t *ret_n, fm_error *reterr);

/* The planned rows of a crop's MSA, and what their cells are gathered from. */
typedef struct fm_complex_rows {
    fm_paired_rows rows;
    const fm_paired_chain *chains;   /* [rows.n_chain] */
    const fm_paired_column *columns; /* [n_column] of the tokens */
    uint32_t n_column;
} fm_complex_rows;

/* Makes all arrays of such a sample except msa and deletion, and plans its rows. */
FM_MUST_USE fm_status fm_complex_sample_plan(
    const fm_assembly *assembly, const fm_complex_entity_inputs *inputs, const uint32_t *tokens,
    uint32_t n_token, const fm_complex_sample_options *options, fm_arena *arena,
    fm_array ret_arrays[FM_COMPLEX_SAMPLE_ARRAYS], size_t *ret_n, fm_complex_rows *ret_rows,
    fm_error *reterr);

/* Gathers rows of the plan: ids and deletions are [n, n_column]. row == NULL: rows 0 .. n-1. */
void fm_complex_rows_gather(const fm_complex_rows *rows, const uint32_t *row, uint32_t n,
                            uint8_t *ret_ids, uint8_t *ret_deletion);

#endif
