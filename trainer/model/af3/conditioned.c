/* conditioned.c: see conditioned.h. */
#include "trainer/model/af3/conditioned.h"

#include "trainer/ops/attention_split.h"
#include "trainer/ops/layer_norm.h"
#include "trainer/ops/modulate.h"
#include "trainer/ops/pair_linear.h"
#include "trainer/ops/swiglu.h"

/* -- parameters */

fm_adaln_weights fm_af3_adaln_weights(const fm_scope *scope, int64_t c, int64_t c_s) {
    fm_adaln_weights w;
    w.norm_s = fm_af3_add_block(scope, "layernorm_s.weight", c_s, 0, FM_AF3_ONE);
    w.gate = fm_af3_linear_with_bias(scope, "linear_s", c_s, c, FM_AF3_ZERO, FM_AF3_ZERO);
    w.shift = fm_af3_linear(scope, "linear_nobias_s", c_s, c, FM_AF3_ZERO);
    return w;
}

fm_conditioned_attention_weights fm_af3_conditioned_attention_weights(const fm_scope *scope,
                                                                      int64_t c, int64_t c_s,
                                                                      int64_t c_z, int64_t n_head,
                                                                      bool of_atoms) {
    fm_conditioned_attention_weights w = {.n_head = n_head, .c_head = c / n_head};
    fm_scope norm = fm_af3_enter(scope, "layernorm_a.");
    w.norm = fm_af3_adaln_weights(&norm, c, c_s);
    if (of_atoms) {
        fm_scope norm_kv = fm_af3_enter(scope, "layernorm_kv.");
        w.norm_kv = fm_af3_adaln_weights(&norm_kv, c, c_s);
    }
    fm_scope attention = fm_af3_enter(scope, "attention.");
    w.qkvg = fm_af3_block(scope);
    fm_af3_add(&attention, "linear_q.weight", c, c, FM_AF3_DEFAULT);
    fm_af3_add(&attention, "linear_k.weight", c, c, FM_AF3_DEFAULT);
    fm_af3_add(&attention, "linear_v.weight", c, c, FM_AF3_DEFAULT);
    fm_af3_add(&attention, "linear_g.weight", c, c, FM_AF3_ZERO);
    w.q_bias = fm_af3_add_block(&attention, "linear_q.bias", c, 0, FM_AF3_ZERO);
    w.out = fm_af3_add_block(&attention, "linear_o.weight", c, c, FM_AF3_DEFAULT);
    w.norm_z = fm_af3_add_block(scope, "layernorm_z.weight", c_z, 0, FM_AF3_ONE);
    w.bias = fm_af3_linear(scope, "linear_nobias_z", c_z, n_head, FM_AF3_DEFAULT);
    w.last = fm_af3_linear_with_bias(scope, "linear_a_last", c_s, c, FM_AF3_ZERO, FM_AF3_MINUS_TWO);
    return w;
}

fm_conditioned_transition_weights fm_af3_conditioned_transition_weights(const fm_scope *scope,
                                                                        int64_t c, int64_t c_s,
                                                                        int64_t factor) {
    fm_conditioned_transition_weights w;
    fm_scope norm = fm_af3_enter(scope, "adaln.");
    w.norm = fm_af3_adaln_weights(&norm, c, c_s);
    w.in = (fm_linear_weights){fm_af3_block(scope), FM_PARAM_NONE, 2 * factor * c};
    fm_af3_add(scope, "linear_nobias_a1.weight", factor * c, c, FM_AF3_HE);
    fm_af3_add(scope, "linear_nobias_a2.weight", factor * c, c, FM_AF3_HE);
    w.out = fm_af3_linear(scope, "linear_nobias_b", factor * c, c, FM_AF3_DEFAULT);
    w.last = fm_af3_linear_with_bias(scope, "linear_s", c_s, c, FM_AF3_ZERO, FM_AF3_MINUS_TWO);
    return w;
}

fm_conditioned_block_weights fm_af3_conditioned_block_weights(const fm_scope *scope, int64_t c,
                                                              int64_t c_s, int64_t c_z,
                                                              int64_t n_head, int64_t factor,
                                                              bool of_atoms) {
    fm_conditioned_block_weights w;
    fm_scope attention = fm_af3_enter(scope, "attention_pair_bias.");
    w.attention = fm_af3_conditioned_attention_weights(&attention, c, c_s, c_z, n_head, of_atoms);
    fm_scope transition = fm_af3_enter(scope, "conditioned_transition_block.");
    w.transition = fm_af3_conditioned_transition_weights(&transition, c, c_s, factor);
    return w;
}

/* -- recording */

/* The gate that ends a sublayer, and its residual. */
static fm_tensor_ref end_sublayer(fm_tape *tape, const char *name, fm_tensor_ref a, fm_tensor_ref s,
                                  fm_tensor_ref update, const fm_linear_weights *last,
                                  bool residual) {
    fm_tensor_ref gate = fm_op_linear_all(tape, name, s, last);
    return fm_op_modulate(tape, name, gate, update, FM_TENSOR_NONE, residual ? a : FM_TENSOR_NONE);
}

fm_tensor_ref fm_af3_normed_linear(fm_tape *tape, const char *name, fm_tensor_ref z,
                                   fm_param_ref norm, const fm_linear_weights *weights) {
    if (tape->chunk_bytes > 0) {
        const fm_pair_linear features = {
            .norm = norm, .kind = FM_NORM_SCALE, .positions = FM_TENSOR_NONE};
        return fm_op_pair_linear(tape, name, z, &features, weights);
    }
    return fm_op_linear_all(tape, name, fm_op_layer_norm(tape, name, z, norm, FM_NORM_SCALE),
                            weights);
}

fm_tensor_ref fm_af3_pair_bias(fm_tape *tape, const fm_groups *groups, fm_tensor_ref z,
                               const fm_conditioned_attention_weights *w) {
    fm_tensor_ref bias = fm_af3_normed_linear(tape, "attention bias", z, w->norm_z, &w->bias);
    return fm_af3_split_gather(tape, groups, "attention bias", bias);
}

/* The sublayers between their AdaLN, which gives x, and their gate. */

static fm_tensor_ref attention_update(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref bias,
                                      fm_tensor_ref mask,
                                      const fm_conditioned_attention_weights *w) {
    const fm_attention_weights core = {.norm = FM_PARAM_NONE,
                                       .qkvg = w->qkvg,
                                       .gate_bias = FM_PARAM_NONE,
                                       .q_bias = w->q_bias,
                                       .n_head = w->n_head,
                                       .c_head = w->c_head};
    const fm_linear_weights out = {w->out, FM_PARAM_NONE, w->last.c_out};
    fm_tensor_ref qkvg = fm_op_attention_project(tape, "conditioned attention", x, &core, NULL);
    fm_tensor_ref o = fm_op_attention_core(tape, "conditioned attention", FM_AXIAL_ROW, x, qkvg,
                                           mask, bias, &core);
    return fm_op_linear_all(tape, "conditioned attention", o, &out);
}

/* Attention of atoms in windows, with the bias of fm_af3_window_bias. y gives the keys. mask is act
 * [n_atom]. */
static fm_tensor_ref window_update(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref y,
                                   fm_tensor_ref bias, fm_tensor_ref mask,
                                   const fm_conditioned_attention_weights *w) {
    const fm_window_attention_weights core = {w->qkvg, w->q_bias, w->out, w->n_head, w->c_head};
    return fm_op_window_attention(tape, "atom attention", x, y, bias, mask, &core);
}

static fm_tensor_ref transition_update(fm_tape *tape, fm_tensor_ref x,
                                       const fm_conditioned_transition_weights *w) {
    fm_tensor_ref hidden = fm_op_linear_all(tape, "conditioned transition in", x, &w->in);
    fm_tensor_ref product = fm_op_swiglu(tape, "conditioned transition", hidden);
    return fm_op_linear_all(tape, "conditioned transition out", product, &w->out);
}

fm_tensor_ref fm_af3_conditioned_attention(fm_tape *tape, fm_tensor_ref a, fm_tensor_ref s,
                                           fm_tensor_ref bias, fm_tensor_ref mask,
                                           const fm_conditioned_attention_weights *w,
                                           bool residual) {
    fm_tensor_ref x = fm_op_adaln(tape, "adaln", a, s, &w->norm);
    fm_tensor_ref update = attention_update(tape, x, bias, mask, w);
    return end_sublayer(tape, "attention gate", a, s, update, &w->last, residual);
}

fm_tensor_ref fm_af3_window_bias(fm_tape *tape, fm_tensor_ref p,
                                 const fm_conditioned_attention_weights *w) {
    fm_tensor_ref normed_p = fm_op_layer_norm(tape, "window pairs", p, w->norm_z, FM_NORM_SCALE);
    return fm_op_linear_all(tape, "window bias", normed_p, &w->bias);
}

static fm_tensor_ref window_attention(fm_tape *tape, fm_tensor_ref q, fm_tensor_ref c,
                                      fm_tensor_ref bias, fm_tensor_ref mask,
                                      const fm_conditioned_attention_weights *w) {
    fm_tensor_ref x = fm_op_adaln(tape, "adaln", q, c, &w->norm);
    fm_tensor_ref y = fm_op_adaln(tape, "adaln", x, c, &w->norm_kv);
    fm_tensor_ref update = window_update(tape, x, y, bias, mask, w);
    return end_sublayer(tape, "atom attention gate", q, c, update, &w->last, true);
}

fm_tensor_ref fm_af3_conditioned_transition(fm_tape *tape, fm_tensor_ref a, fm_tensor_ref s,
                                            const fm_conditioned_transition_weights *w,
                                            bool residual) {
    fm_tensor_ref x = fm_op_adaln(tape, "adaln", a, s, &w->norm);
    fm_tensor_ref update = transition_update(tape, x, w);
    return end_sublayer(tape, "transition gate", a, s, update, &w->last, residual);
}

/* -- with modulations that were made before */

/* Makes gate and shift of an AdaLN of s. */
static void store_adaln(fm_tape *tape, fm_tensor_ref s, const fm_adaln_weights *w,
                        fm_adaln_signal to) {
    fm_tensor_ref normed = fm_op_layer_norm(tape, "modulation norm", s, w->norm_s, FM_NORM_SCALE);
    fm_op_store_linear(tape, "modulation gate", normed, &w->gate, to.gate);
    fm_op_store_linear(tape, "modulation shift", normed, &w->shift, to.shift);
}

static void store_sublayer(fm_tape *tape, fm_tensor_ref s, const fm_adaln_weights *norm,
                           const fm_linear_weights *last, const fm_af3_modulation *to) {
    store_adaln(tape, s, norm, to->norm);
    fm_op_store_linear(tape, "modulation last", s, last, to->last);
}

void fm_af3_store_block_modulation(fm_tape *tape, fm_tensor_ref s,
                                   const fm_conditioned_block_weights *w,
                                   const fm_af3_block_modulation *to) {
    const fm_adaln_signal kv = to->attention.norm_kv;
    store_sublayer(tape, s, &w->attention.norm, &w->attention.last, &to->attention);
    if (kv.gate != FM_TENSOR_NONE) store_adaln(tape, s, &w->attention.norm_kv, kv);
    store_sublayer(tape, s, &w->transition.norm, &w->transition.last, &to->transition);
}

/* The attention of a block on x, its AdaLN, of atoms or of tokens. */
static fm_tensor_ref made_attention(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref bias,
                                    fm_tensor_ref mask, const fm_af3_modulation *made,
                                    const fm_conditioned_attention_weights *w) {
    if (made->norm_kv.gate == FM_TENSOR_NONE) return attention_update(tape, x, bias, mask, w);
    fm_tensor_ref y = fm_op_adaln_given(tape, "adaln", x, made->norm_kv);
    return window_update(tape, x, y, bias, mask, w);
}

/* The blocks of a pass without gradient. The gate that ends a sublayer and the AdaLN that begins
 * the next one are one node. */
static fm_tensor_ref made_transformer(fm_tape *tape, fm_tensor_ref a, const fm_af3_block_inputs *in,
                                      fm_tensor_ref mask,
                                      const fm_conditioned_block_weights *weights,
                                      int32_t n_block) {
    const fm_af3_block_modulation *made = in->made;
    fm_tensor_ref x = fm_op_adaln_given(tape, "adaln", a, made[0].attention.norm);
    for (int32_t i = 0; i < n_block; i++) {
        fm_tensor_ref update =
            made_attention(tape, x, in->bias[i], mask, &made[i].attention, &weights[i].attention);
        a = fm_op_adaln_after(tape, "adaln", a, update, made[i].attention.last,
                              made[i].transition.norm, &x);
        update = transition_update(tape, x, &weights[i].transition);
        if (i + 1 < n_block) {
            a = fm_op_adaln_after(tape, "adaln", a, update, made[i].transition.last,
                                  made[i + 1].attention.norm, &x);
        } else {
            a = fm_op_modulate(tape, "transition gate", made[i].transition.last, update,
                               FM_TENSOR_NONE, a);
        }
    }
    return a;
}

/* -- the transformers */

fm_tensor_ref fm_af3_diffusion_transformer(fm_tape *tape, fm_tensor_ref a, fm_tensor_ref s,
                                           const fm_af3_block_inputs *in, fm_tensor_ref mask,
                                           const fm_conditioned_block_weights *weights,
                                           int32_t n_block, int32_t n_again) {
    if (in->made) return made_transformer(tape, a, in, mask, weights, n_block);
    for (int32_t i = 0; i < n_block; i++) {
        fm_tape_begin_segment(tape, i < n_again);
        fm_tensor_ref bias = in->bias
                                 ? in->bias[i]
                                 : fm_af3_pair_bias(tape, in->groups, in->z, &weights[i].attention);
        a = fm_af3_conditioned_attention(tape, a, s, bias, mask, &weights[i].attention, true);
        a = fm_af3_conditioned_transition(tape, a, s, &weights[i].transition, true);
        fm_tape_end_segment(tape);
    }
    return a;
}

fm_tensor_ref fm_af3_atom_transformer(fm_tape *tape, fm_tensor_ref q, fm_tensor_ref c,
                                      const fm_af3_block_inputs *in, fm_tensor_ref mask,
                                      const fm_conditioned_block_weights *weights, int32_t n_block,
                                      int32_t n_again) {
    if (in->made) return made_transformer(tape, q, in, mask, weights, n_block);
    for (int32_t i = 0; i < n_block; i++) {
        fm_tape_begin_segment(tape, i < n_again);
        fm_tensor_ref bias =
            in->bias ? in->bias[i] : fm_af3_window_bias(tape, in->z, &weights[i].attention);
        q = window_attention(tape, q, c, bias, mask, &weights[i].attention);
        q = fm_af3_conditioned_transition(tape, q, c, &weights[i].transition, true);
        fm_tape_end_segment(tape);
    }
    return q;
}
