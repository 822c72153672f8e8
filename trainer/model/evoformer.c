/* evoformer.c: see evoformer.h. */
#include "trainer/model/evoformer.h"

static fm_keep keep_hidden(const fm_model_config *config) {
    return config->recompute == FM_RECOMPUTE_HIDDEN ? FM_RECOMPUTE : FM_KEEP;
}

static fm_tensor_ref msa_stack(fm_tape *tape, const fm_model_config *config,
                               const fm_evoformer_weights *w, fm_tensor_ref m, fm_tensor_ref z,
                               fm_tensor_ref mask) {
    m = fm_op_attention(tape, "msa row attention", FM_AXIAL_ROW, m, mask, z, &w->row, true,
                        config->dropout_msa); /* A6:2 */
    if (config->global_column) {
        m = fm_op_global_attention(tape, "msa column global attention", m, mask, &w->global_column,
                                   true); /* A18:4 */
    } else {
        m = fm_op_attention(tape, "msa column attention", FM_AXIAL_COLUMN, m, mask, FM_TENSOR_NONE,
                            &w->column, true, 0); /* A6:3 */
    }
    return fm_op_transition(tape, "msa transition", m, &w->msa_transition, true,
                            keep_hidden(config)); /* A6:4 */
}

fm_tensor_ref fm_evoformer_pair_stack(fm_tape *tape, const fm_model_config *config,
                                      const fm_evoformer_weights *w, fm_tensor_ref z,
                                      fm_tensor_ref mask) {
    double rate = config->dropout_pair;
    z = fm_op_triangle_multiplication(tape, "triangle multiplication outgoing", false, z, mask,
                                      &w->outgoing, true, rate); /* A6:6 */
    z = fm_op_triangle_multiplication(tape, "triangle multiplication incoming", true, z, mask,
                                      &w->incoming, true, rate); /* A6:7 */
    z = fm_op_attention(tape, "triangle attention starting", FM_AXIAL_STARTING, z, mask,
                        FM_TENSOR_NONE, &w->starting, true, rate); /* A6:8 */
    z = fm_op_attention(tape, "triangle attention ending", FM_AXIAL_ENDING, z, mask, FM_TENSOR_NONE,
                        &w->ending, true, rate); /* A6:9 */
    return fm_op_transition(tape, "pair transition", z, &w->pair_transition, true,
                            keep_hidden(config)); /* A6:10 */
}

static fm_tensor_ref outer(fm_tape *tape, const fm_evoformer_weights *w, fm_tensor_ref m,
                           fm_tensor_ref z, fm_tensor_ref mask) {
    return fm_op_outer_product_mean(tape, "outer product mean", m, mask, z, &w->outer);
}

fm_pair_of_streams fm_evoformer_block(fm_tape *tape, const fm_model_config *config,
                                      const fm_evoformer_weights *w, fm_pair_of_streams in,
                                      fm_tensor_ref msa_mask, fm_tensor_ref pair_mask) {
    fm_pair_of_streams out = in;
    fm_tape_begin_segment(tape, config->recompute == FM_RECOMPUTE_BLOCK);
    switch (config->order) {
    case FM_ORDER_ORIGINAL:
        out.m = msa_stack(tape, config, w, out.m, out.z, msa_mask);
        out.z = outer(tape, w, out.m, out.z, msa_mask); /* A6:5 */
        out.z = fm_evoformer_pair_stack(tape, config, w, out.z, pair_mask);
        break;
    case FM_ORDER_OUTER_FIRST:
        out.z = outer(tape, w, out.m, out.z, msa_mask);
        out.m = msa_stack(tape, config, w, out.m, out.z, msa_mask);
        out.z = fm_evoformer_pair_stack(tape, config, w, out.z, pair_mask);
        break;
    case FM_ORDER_PARALLEL:
        out.m = msa_stack(tape, config, w, out.m, in.z, msa_mask);
        out.z = fm_evoformer_pair_stack(tape, config, w, in.z, pair_mask);
        out.z = outer(tape, w, out.m, out.z, msa_mask);
        break;
    }
    fm_tape_end_segment(tape);
    return out;
}

fm_tensor_ref fm_template_block(fm_tape *tape, const fm_model_config *config,
                                const fm_template_block_weights *w, fm_tensor_ref t,
                                fm_tensor_ref mask) {
    double rate = config->dropout_pair;
    fm_tape_begin_segment(tape, config->recompute == FM_RECOMPUTE_BLOCK);
    t = fm_op_attention(tape, "template attention starting", FM_AXIAL_STARTING, t, mask,
                        FM_TENSOR_NONE, &w->starting, true, rate); /* A16:2 */
    t = fm_op_attention(tape, "template attention ending", FM_AXIAL_ENDING, t, mask, FM_TENSOR_NONE,
                        &w->ending, true, rate); /* A16:3 */
    t = fm_op_triangle_multiplication(tape, "template multiplication outgoing", false, t, mask,
                                      &w->outgoing, true, rate); /* A16:4 */
    t = fm_op_triangle_multiplication(tape, "template multiplication incoming", true, t, mask,
                                      &w->incoming, true, rate); /* A16:5 */
    t = fm_op_transition(tape, "template transition", t, &w->transition, true,
                         keep_hidden(config)); /* A16:6 */
    fm_tape_end_segment(tape);
    return t;
}
