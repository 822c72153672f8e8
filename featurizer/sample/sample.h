/* sample.h: makes one crop-ready sample from a record and (plan, seed, index). These are the
 * train-time transforms of AlphaFold2.
 *
 * Order of the transforms (supplement 1.2, docs/reference/sampling.md): block deletion,
 * distillation cap, choice of cluster centres and extra rows, masking, clustering, cluster
 * profiles, crop. Draws are named by purpose and cycle, so no transform can shift another's
 * draws. */
#ifndef FM_SAMPLE_SAMPLE_H
#define FM_SAMPLE_SAMPLE_H

#include "featurizer/sample/draws.h"
#include "featurizer/sample/plan.h"
#include "featurizer/templates.h"
#include "proto/batch.h"
#include "proto/record.h"

/* The source of the structures of a record's template hits. `structure` may allocate in the arena
 * in which the sample is made. */
typedef struct fm_sample_templates {
    fm_template_structure_fn *structure;
    void *context;
} fm_sample_templates;

/* Which sample to make, and of what. The record must be that of the chain which fm_chooser_chain
 * names. */
typedef struct fm_sample_request {
    const fm_plan *plan;
    const fm_record *record;
    const fm_sample_templates *templates; /* NULL: the sample carries none */
    uint64_t seed, index;
    uint32_t chain;        /* its position in the snapshot; copied to the header */
    uint32_t n_cycle;      /* usually fm_wire_open_cycles of the stream */
    const fm_draws *draws; /* other answers to the random choices, for a test; seed and index are
                            * then only labels. NULL: those of seed and index */
} fm_sample_request;

/* Makes cycles 0 .. n_cycle-1 of a sample in the arena.
 *
 * A chain without an msa part is sampled as a single sequence, and one without a structure has
 * all_atom_mask 0. Templates are chosen from the record's hits and read through `templates`.
 * Returns FM_ERR_DATA when parts contradict each other, FM_ERR_LIMIT when the arena is too small,
 * and the errors of reading a template. Pure: the same request gives the same bytes
 * (fm_sample_encode) on any machine. */
FM_MUST_USE fm_status fm_sample_make(const fm_sample_request *request, fm_arena *arena,
                                     fm_sample *ret_sample, fm_error *reterr);

#endif
