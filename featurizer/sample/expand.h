/* expand.h: a sample as the tensors of OpenFold's loader, for who expects those.
 *
 * A sample is compact: ids, counts, bits, the crop only. Expanded, as the reference's data pipeline
 * hands it to its model: one-hot forms, divisions and arctangents done, padded with zeros to fixed
 * sizes, the cycles stacked on a last axis (also of what they share), float32 and int64. That is
 * some 20 times larger, so it belongs at the consumer's end, never in a cache or on a wire. Names
 * and shapes are the reference's; docs/sampling.md section 10 has the formulas. */
#ifndef FM_SAMPLE_EXPAND_H
#define FM_SAMPLE_EXPAND_H

#include "featurizer/arrays.h"
#include "proto/base/arena.h"
#include "proto/batch.h"

/* What is padded to; each at least what the sample has. */
typedef struct fm_expand_sizes {
    uint32_t n_res, n_clust, n_extra, n_templ;
} fm_expand_sizes;

enum { FM_N_EXPANDED = 20, FM_N_MSA_FEAT = 49, FM_N_TARGET_FEAT = 22 };

/* Everything that follows from the sample itself, FM_N_EXPANDED arrays in the arena:
 *     aatype residue_index seq_mask [N_res]   target_feat [N_res, 22]
 *     all_atom_positions [N_res, 37, 3]   all_atom_mask [N_res, 37]
 *     seq_length resolution is_distillation use_clamped_fape []
 *     msa_feat [N_clust, N_res, 49]   true_msa bert_mask msa_mask [N_clust, N_res]
 *     msa_row_mask [N_clust]
 *     extra_msa extra_msa_mask extra_has_deletion extra_deletion_value [N_extra, N_res]
 *     extra_msa_row_mask [N_extra]
 * each with a last axis of n_cycle. FM_ERR_LIMIT when the arena is full, FM_ERR_DATA when the
 * sample lacks a tensor or does not fit the sizes. */
FM_MUST_USE fm_status fm_expand_sample(const fm_sample *sample, const fm_expand_sizes *sizes,
                                       fm_arena *arena, fm_array ret_arrays[FM_N_EXPANDED],
                                       fm_error *reterr);

/* Templates that the sample keeps, in its order: places in the features' template axis. */
typedef struct fm_expand_templates {
    const uint32_t *index; /* [n_templ] */
    uint32_t n_templ;
    bool has_residues; /* the feature's second axis is the residues */
} fm_expand_templates;

/* One feature of the whole chain cropped, padded and stacked like the rest: [N_res, ...] with
 * templates NULL, else [N_templ, ...] or [N_templ, N_res, ...]. Elements of 4 or 8 bytes; rank
 * below FM_ARRAY_RANK (asserted). */
FM_MUST_USE fm_status fm_expand_feature(const fm_sample *sample, const fm_expand_sizes *sizes,
                                        const fm_array *feature,
                                        const fm_expand_templates *templates, fm_arena *arena,
                                        fm_array *ret_array, fm_error *reterr);

#endif
