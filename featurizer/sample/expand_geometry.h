/* expand_geometry.h: the rest of OpenFold's training features, computed from a sample's
 * coordinates.
 *
 * OpenFold computes atom14, rigid groups, torsions and the features of templates on whole chains
 * and then crops them. A sample carries the coordinates of its crop only, and every one of these
 * features is a function of single residues, with one exception. The angles pre-omega and phi of a
 * residue also need the residue before it. If a crop begins inside the chain, a template's first
 * residue has them masked here, while OpenFold has them. */
#ifndef FM_SAMPLE_EXPAND_GEOMETRY_H
#define FM_SAMPLE_EXPAND_GEOMETRY_H

#include "featurizer/sample/expand.h"

enum { FM_N_EXPANDED_GEOMETRY = 30 };

/* Computes FM_N_EXPANDED_GEOMETRY arrays in the arena, padded like those of fm_expand_sample, each
 * with a last axis of n_cycle:
 *
 *     atom14_atom_exists atom14_gt_exists atom14_alt_gt_exists
 *     atom14_atom_is_ambiguous residx_atom14_to_atom37                 [N_res, 14]
 *     atom14_gt_positions atom14_alt_gt_positions                      [N_res, 14, 3]
 *     atom37_atom_exists residx_atom37_to_atom14                       [N_res, 37]
 *     rigidgroups_gt_frames rigidgroups_alt_gt_frames                  [N_res, 8, 4, 4]
 *     rigidgroups_gt_exists rigidgroups_group_exists
 *     rigidgroups_group_is_ambiguous                                   [N_res, 8]
 *     backbone_rigid_tensor                                            [N_res, 4, 4]
 *     backbone_rigid_mask pseudo_beta_mask                             [N_res]
 *     pseudo_beta                                                      [N_res, 3]
 *     chi_angles_sin_cos                                               [N_res, 4, 2]
 *     chi_mask                                                         [N_res, 4]
 *     template_aatype template_pseudo_beta_mask                        [N_templ, N_res]
 *     template_all_atom_positions                                      [N_templ, N_res, 37, 3]
 *     template_all_atom_mask                                           [N_templ, N_res, 37]
 *     template_pseudo_beta                                             [N_templ, N_res, 3]
 *     template_torsion_angles_sin_cos
 *     template_alt_torsion_angles_sin_cos                              [N_templ, N_res, 7, 2]
 *     template_torsion_angles_mask                                     [N_templ, N_res, 7]
 *     template_sum_probs                                               [N_templ, 1]
 *     template_mask                                                    [N_templ]
 *
 * Returns FM_ERR_LIMIT when the arena is full and FM_ERR_DATA when the sample lacks a tensor, has
 * an id that is no class, or does not fit the sizes. */
FM_MUST_USE fm_status fm_expand_geometry(const fm_sample *sample, const fm_expand_sizes *sizes,
                                         fm_arena *arena,
                                         fm_array ret_arrays[FM_N_EXPANDED_GEOMETRY],
                                         fm_error *reterr);

#endif
