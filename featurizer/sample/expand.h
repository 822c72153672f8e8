/* expand.h: expands a sample into the tensors of OpenFold's data loader.
 *
 * A sample is compact: it holds ids, counts and bits of the crop only. The expanded form is the
 * output of the reference's data pipeline to its model. One-hot forms, divisions and arctangents
 * are computed, and arrays are padded with zeros to fixed sizes. The cycles, including the arrays
 * that they share, are stacked on a last axis. Types are float32 and int64. This is some 20 times
 * larger, so it belongs at the consumer's end, never in a cache or on the wire. Names and shapes
 * are the reference's; docs/reference/sampling.md, section 10, has the formulas. */
#ifndef FM_SAMPLE_EXPAND_H
#define FM_SAMPLE_EXPAND_H

#include "featurizer/arrays.h"
#include "proto/base/arena.h"
#include "proto/batch.h"

/* The padded sizes; each must be at least the sample's. */
typedef struct fm_expand_sizes {
    uint32_t n_res, n_clust, n_extra, n_templ;
} fm_expand_sizes;

enum { FM_N_EXPANDED = 20, FM_N_MSA_FEAT = 49, FM_N_TARGET_FEAT = 22 };

/* Computes everything that follows from the sample itself: FM_N_EXPANDED arrays in the arena, each
 * with a last axis of n_cycle:
 *
 *     aatype residue_index seq_mask                                   [N_res]
 *     target_feat                                                     [N_res, 22]
 *     all_atom_positions                                              [N_res, 37, 3]
 *     all_atom_mask                                                   [N_res, 37]
 *     seq_length resolution is_distillation use_clamped_fape          []
 *     msa_feat                                                        [N_clust, N_res, 49]
 *     true_msa bert_mask msa_mask                                     [N_clust, N_res]
 *     msa_row_mask                                                    [N_clust]
 *     extra_msa extra_msa_mask extra_has_deletion extra_deletion_value [N_extra, N_res]
 *     extra_msa_row_mask                                              [N_extra]
 *
 * Returns FM_ERR_LIMIT when the arena is full and FM_ERR_DATA when the sample lacks a tensor, has
 * an id that is no class, or does not fit the sizes. */
FM_MUST_USE fm_status fm_expand_sample(const fm_sample *sample, const fm_expand_sizes *sizes,
                                       fm_arena *arena, fm_array ret_arrays[FM_N_EXPANDED],
                                       fm_error *reterr);

/* The templates that the sample carries, in its order, as positions on the features' template
 * axis. */
typedef struct fm_expand_templates {
    const uint32_t *index; /* [n_templ] */
    uint32_t n_templ;
    bool has_residues; /* the feature's second axis is the residues */
} fm_expand_templates;

/* Crops, pads and stacks one feature of the whole chain like the rest: [N_res, ...] when templates
 * is NULL, else [N_templ, ...] or [N_templ, N_res, ...]. Elements have 4 or 8 bytes, and the rank
 * must be below FM_ARRAY_RANK (asserted). Returns FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_expand_feature(const fm_sample *sample, const fm_expand_sizes *sizes,
                                        const fm_array *feature,
                                        const fm_expand_templates *templates, fm_arena *arena,
                                        fm_array *ret_array, fm_error *reterr);

#endif
