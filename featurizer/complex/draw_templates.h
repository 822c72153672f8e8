/* draw_templates.h: what the entities of a crop bring into a sample: their alignments, and the
 * templates that are drawn for them. */
#ifndef FM_COMPLEX_DRAW_TEMPLATES_H
#define FM_COMPLEX_DRAW_TEMPLATES_H

#include "featurizer/complex/crop.h"
#include "featurizer/complex/draw.h"
#include "featurizer/complex/sample.h"

/* Chooses which of an entity's hits are its templates, as indices into hits->hit, at most
 * max_templates. docs/reference/sampling.md, section 12. The list is in the arena. Returns
 * FM_ERR_LIMIT when it is full. */
FM_MUST_USE fm_status fm_draw_hits(const fm_plan *plan, const fm_draws *draws,
                                   const fm_assembly *assembly, uint32_t entity,
                                   const fm_part_hits *hits, fm_arena *arena, uint32_t **ret_chosen,
                                   uint32_t *ret_n, fm_error *reterr);

/* Lists the inputs of all entities, in the arena: [n_entity]. Those without a token in the crop
 * have no templates. Returns the errors of fm_draw_hits and of reading structures. */
FM_MUST_USE fm_status fm_draw_entity_inputs(const fm_complex_request *request,
                                            const fm_draws *draws, const fm_complex_crop *crop,
                                            fm_arena *arena,
                                            const fm_complex_entity_inputs **ret_inputs,
                                            fm_error *reterr);

#endif
