/* draw.h: makes one training sample of a complex from (plan, seed, index): the chain pair, the
 * crop, the templates, and the MSA rows of each cycle.
 *
 * The sample is the compact form (sample.h) as tensors. docs/reference/sampling.md, section 12. */
#ifndef FM_COMPLEX_DRAW_H
#define FM_COMPLEX_DRAW_H

#include "featurizer/complex/complex.h"
#include "featurizer/sample/sample.h"
#include "proto/complex_rows.h"

/* Crops with whole residues are drawn this often, until one does not fail; the last one has no such
 * rule. */
enum { FM_COMPLEX_CROP_DRAWS = 8 };

/* Which sample to make, and of what. */
typedef struct fm_complex_request {
    const fm_plan *plan; /* of complexes */
    const fm_complex *complex;
    const fm_complex_row *record;         /* that of fm_complex_chooser_record */
    const fm_sample_templates *templates; /* structures of hits; NULL: the sample has empty ones */
    uint64_t seed, index;
    uint32_t place;        /* of the complex in the snapshot; copied to the header */
    uint32_t n_cycle;      /* usually fm_wire_open_cycles of the stream */
    const fm_draws *draws; /* other answers to the random choices, for a test; NULL: those of seed
                            * and index */
} fm_complex_request;

/* Makes cycles 0 .. n_cycle-1 of a sample in the arena; some tensors borrow from the complex.
 * Without alignments, an entity's sequence is its only row. Returns FM_ERR_DATA when the record is
 * not one of the complex, an alignment has not the entity's length, or no token of the record is
 * resolved; FM_ERR_LIMIT when the arena is too small or the sample larger than the plan's largest;
 * and the errors of reading a template. Pure: the same request gives the same bytes
 * (fm_sample_encode) on any machine. */
FM_MUST_USE fm_status fm_complex_sample_draw(const fm_complex_request *request, fm_arena *arena,
                                             fm_sample *ret_sample, fm_error *reterr);

#endif
