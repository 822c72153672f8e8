/* choose.h: the random choices that all cycles of a sample share: where the crop starts and which
 * templates are kept. See docs/reference/sampling.md, sections 8 and 9. */
#ifndef FM_SAMPLE_CHOOSE_H
#define FM_SAMPLE_CHOOSE_H

#include "featurizer/sample/draws.h"
#include "featurizer/templates.h"

/* Draws the first residue of a crop of n_res (1 .. n_res_chain) residues (supplement 1.2.8). With
 * clamped FAPE it is uniform. With unclamped FAPE, and always with compat_openfold, it is uniform
 * between 0 and an end that is itself drawn uniformly, so the chain's end is seen less often. */
uint32_t fm_choose_crop_start(const fm_plan *plan, const fm_draws *draws, bool is_clamped,
                              uint32_t n_res_chain, uint32_t n_res);

/* Chooses which of n_template usable templates, best first, a sample carries. Writes their indices
 * into ret_index [n_template] and returns their number, at most max_templates. By default, the
 * number is uniform between 0 and min(n_template, template_pool) and then capped; that many of the
 * pool are drawn without replacement (supplement 1.2.8). With compat_openfold the templates are
 * permuted and those from a uniform start in 0 .. n_template on are kept. The setting template_pool
 * then acts on hits before they are read, so it is not used here. */
uint32_t fm_choose_templates(const fm_plan *plan, const fm_draws *draws, uint32_t n_template,
                             uint32_t *ret_index);

/* Chooses the hits that a sample carries as templates, as indices into hits->hit. The candidates
 * are the hits of fm_templates_rank with different aligned letters; fm_choose_templates keeps some
 * of them. Hits released after the plan's max_template_date are not used, nor, except with
 * compat_openfold, those with an unknown date. `query` is the chain's own structure, NULL without
 * one: under the rule FM_TEMPLATE_DATE_QUERY its release date is the bound. A predicted structure
 * has none and may use any hit; any other chain without a date uses none. With compat_openfold the
 * first template_pool ranked hits are shuffled before max_templates of them are read, and a hit
 * without a mapping is skipped. The list is in the arena. Returns FM_ERR_LIMIT when it is full. */
FM_MUST_USE fm_status fm_choose_hits(const fm_plan *plan, const fm_draws *draws,
                                     const fm_part_hits *hits, const fm_part_structure *query,
                                     fm_arena *arena, uint32_t **ret_chosen, uint32_t *ret_n_templ,
                                     fm_error *reterr);

#endif
