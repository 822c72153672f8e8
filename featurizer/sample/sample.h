/* sample.h: record + (plan, seed, index) -> one crop-ready sample. The train-time transforms of
 * AlphaFold2.
 *
 * Order of the transforms (supplement 1.2.6, docs/sampling.md): distillation cap, block deletion,
 * choice of cluster centres and extra rows, masking, clustering, cluster profiles, choice of the
 * extra rows kept, crop. Draws are named by purpose and cycle, so no transform can move another's
 * draws. */
#ifndef FM_SAMPLE_SAMPLE_H
#define FM_SAMPLE_SAMPLE_H

#include "featurizer/sample/draws.h"
#include "featurizer/sample/plan.h"
#include "featurizer/templates.h"
#include "proto/batch.h"
#include "proto/record.h"

/* Where the structures of a record's template hits come from; `structure` may take memory of the
 * arena that the sample is made in. */
typedef struct fm_sample_templates {
    fm_template_structure_fn *structure;
    void *context;
} fm_sample_templates;

/* Makes cycles 0 .. n_cycle-1 of sample `index` (n_cycle is usually fm_plan_cycles of its step) in
 * the arena, from the record of the chain that fm_chooser_chain names (`chain` is its position in
 * the snapshot, copied to the header). A chain without an MSA part samples as a single sequence;
 * one without structure has all_atom_mask 0. Templates are chosen of the record's hits and read
 * through `templates`; NULL: the sample carries none. FM_ERR_DATA when parts contradict each other;
 * FM_ERR_LIMIT when the arena is too small; what reading a template fails with. Pure: same
 * arguments, same bytes (fm_sample_encode), on any machine. */
FM_MUST_USE fm_status fm_sample_make(const fm_plan *plan, const fm_record *record,
                                     const fm_sample_templates *templates, uint64_t seed,
                                     uint64_t index, uint32_t chain, uint32_t n_cycle,
                                     fm_arena *arena, fm_sample *ret_sample, fm_error *reterr);

/* The same with other answers to what is random; (seed, index) are only labels then. */
FM_MUST_USE fm_status fm_sample_make_drawn(const fm_plan *plan, const fm_record *record,
                                           const fm_sample_templates *templates,
                                           const fm_draws *draws, uint64_t seed, uint64_t index,
                                           uint32_t chain, uint32_t n_cycle, fm_arena *arena,
                                           fm_sample *ret_sample, fm_error *reterr);

#endif
