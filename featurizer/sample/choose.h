/* choose.h: what all cycles of a sample share by chance: where the crop starts and which templates
 * are kept. docs/sampling.md sections 8 and 9. */
#ifndef FM_SAMPLE_CHOOSE_H
#define FM_SAMPLE_CHOOSE_H

#include "featurizer/sample/draws.h"
#include "featurizer/templates.h"

/* First residue of a crop of n_res (1 .. n_res_chain) residues. Uniform, as in the paper; with
 * compat_openfold from 0 to a uniformly drawn end, so that the chain's end is seen less often. */
uint32_t fm_choose_crop_start(const fm_plan *plan, const fm_draws *draws, uint32_t n_res_chain,
                              uint32_t n_res);

/* Which of n_template usable templates, best first, a sample carries, into ret_index
 * [n_template]; returns how many: at most max_templates. By default a uniform number from 0 to
 * min(n_template, template_pool) of those, capped, drawn without replacement (supplement 1.2.8).
 * With compat_openfold the templates are permuted, those from a uniform start in 0 .. n_template on
 * are kept, and template_pool is not looked at: there it acts on hits, before they are read. */
uint32_t fm_choose_templates(const fm_plan *plan, const fm_draws *draws, uint32_t n_template,
                             uint32_t *ret_index);

/* The hits that a sample carries as templates, indices into hits->hit: those of fm_templates_rank
 * with different aligned letters, of which fm_choose_templates keeps some. Those released after the
 * plan's max_template_date are not used, nor, unless compat_openfold, those of unknown date. With
 * compat_openfold the first template_pool of the ranked hits are shuffled before max_templates of
 * them are read; a hit without a mapping is passed over. The list lies in the arena. FM_ERR_LIMIT
 * when it is full. */
FM_MUST_USE fm_status fm_choose_hits(const fm_plan *plan, const fm_draws *draws,
                                     const fm_part_hits *hits, fm_arena *arena,
                                     uint32_t **ret_chosen, uint32_t *ret_n_templ,
                                     fm_error *reterr);

#endif
