/* complex_terms.c: see complex_terms.h. */
#include "trainer/loss/complex_terms.h"

#include "trainer/loss/losses.h"
#include "trainer/ops/gather.h"

#define FIXED(term, name, group) {#name, FM_COMPLEX_##group, fm_complex_loss_##name},
#define KEYED(term, name, group, help) FIXED(term, name, group)
const fm_complex_term fm_complex_terms[FM_COMPLEX_TERMS] = {
    FM_COMPLEX_STRUCTURE_TERM_LIST(FIXED, KEYED) FM_COMPLEX_CONFIDENCE_TERM_LIST(FIXED, KEYED)};
#undef KEYED
#undef FIXED

/* -- factors */

void fm_complex_put_factors(const fm_complex_weights *w, double resolution,
                            double factors[FM_COMPLEX_TERMS]) {
#define ONE(...) 1,
#define OWN(term, name, ...) w->name,
    const double own[FM_COMPLEX_TERMS] = {FM_COMPLEX_STRUCTURE_TERM_LIST(ONE, OWN)
                                              FM_COMPLEX_CONFIDENCE_TERM_LIST(ONE, OWN)};
#undef OWN
#undef ONE
    const bool trains = resolution >= w->least_resolution && resolution <= w->most_resolution;
    const double group[] = {[FM_COMPLEX_ALONE] = 1,
                            [FM_COMPLEX_DIFFUSION] = w->diffusion,
                            [FM_COMPLEX_CONFIDENCE] = trains ? w->confidence : 0};
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        factors[i] = group[fm_complex_terms[i].group] * own[i];
}

void fm_complex_write_factors(const fm_complex_weights *weights, double resolution,
                              const fm_complex_targets *targets, fm_state_put *put_value,
                              void *context) {
    double factors[FM_COMPLEX_TERMS];
    fm_complex_put_factors(weights, resolution, factors);
    for (int i = 0; i < FM_COMPLEX_STRUCTURE_TERMS; i++)
        put_value(context, targets->factors, i, factors[i]);
    for (int i = FM_COMPLEX_STRUCTURE_TERMS; i < FM_COMPLEX_TERMS; i++)
        put_value(context, targets->confidence_factors, i - FM_COMPLEX_STRUCTURE_TERMS, factors[i]);
}

/* -- recording */

static fm_tensor_ref in_state(fm_tape *tape, int32_t tensor) {
    return fm_tape_state(tape, tensor, false);
}

static fm_atom_truth truth_of(fm_tape *tape, const fm_complex_targets *t) {
    return (fm_atom_truth){in_state(tape, t->position), in_state(tape, t->mask),
                           in_state(tape, t->weight), in_state(tape, t->radius)};
}

/* Records the terms first .. end - 1 and returns their weighted sum. */
static fm_tensor_ref record(fm_tape *tape, int first, int end, const fm_complex_loss_inputs *in,
                            fm_tensor_ref factors, fm_tensor_ref terms[FM_COMPLEX_TERMS]) {
    for (int i = first; i < end; i++)
        terms[i] = fm_complex_terms[i].record(tape, in);
    return fm_op_total_loss(tape, terms + first, end - first, factors);
}

fm_tensor_ref fm_complex_record_structure(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref distogram,
                                          const fm_complex_targets *t,
                                          fm_tensor_ref terms[FM_COMPLEX_TERMS]) {
    const fm_complex_loss_inputs in = {.x = x,
                                       .truth = truth_of(tape, t),
                                       .scale = in_state(tape, t->scale),
                                       .bonds = {in_state(tape, t->bond),
                                                 in_state(tape, t->bond_length),
                                                 in_state(tape, t->bond_weight)},
                                       .distogram = distogram,
                                       .token_position_f32 = in_state(tape, t->token_position_f32),
                                       .token_mask_f32 = in_state(tape, t->token_mask_f32)};
    return record(tape, 0, FM_COMPLEX_STRUCTURE_TERMS, &in, in_state(tape, t->factors), terms);
}

fm_tensor_ref fm_complex_record_confidence(fm_tape *tape, const fm_complex_logits *logits,
                                           const fm_complex_targets *t,
                                           fm_tensor_ref terms[FM_COMPLEX_TERMS]) {
    fm_tensor_ref x = in_state(tape, t->structure);
    const fm_complex_loss_inputs in = {.x = x,
                                       .truth = truth_of(tape, t),
                                       .logits = *logits,
                                       .token_x = fm_op_gather(tape, "token atoms of the rollout",
                                                               x, in_state(tape, t->token_atom),
                                                               FM_TENSOR_NONE),
                                       .token_position = in_state(tape, t->token_position),
                                       .token_mask = in_state(tape, t->token_mask),
                                       .partner = in_state(tape, t->partner),
                                       .known = in_state(tape, t->known),
                                       .atoms = in_state(tape, t->atoms),
                                       .frame = in_state(tape, t->frame),
                                       .centre = in_state(tape, t->centre)};
    return record(tape, FM_COMPLEX_STRUCTURE_TERMS, FM_COMPLEX_TERMS, &in,
                  in_state(tape, t->confidence_factors), terms);
}
