/* sample.h: one training sample of a complex in the compact form: the features of a crop, its MSA
 * and its templates.
 *
 * Everything that is random has been decided before: the crop's tokens, and the templates of each
 * chain. The MSA rows of each cycle are drawn by the consumer. The arrays are those of
 * docs/reference/complex-samples.md; proto/complex_sample.h expands them. */
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

#endif
