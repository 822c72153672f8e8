/* recorder.c: see recorder.h. There is one function for each kind of sublayer, which chooses
 * between the plain, the fused and the split form. The input of a fused sublayer may be normalised
 * already. It is then recorded with a copy of its weights that lacks the norm, so that the op does
 * not normalise again. */
#include "trainer/model/recorder.h"

#include "trainer/dist/groups.h"
#include "trainer/model/triangle_part.h"
#include "trainer/ops/attention_split.h"
#include "trainer/ops/structure_layers.h"
#include "trainer/ops/swiglu_transition.h"
#include "trainer/ops/triangle_split.h"
#include "trainer/ops/weighted_averaging.h"

#include <assert.h>

fm_recorder fm_recorder_of(fm_tape *tape, const fm_model_config *config,
                           const fm_split_mask *msa_mask, const fm_split_mask *pair_mask) {
    fm_recorder recorder = {.tape = tape, .config = config, .fuses = true};
    recorder.mask[FM_MSA] = msa_mask ? *msa_mask : (fm_split_mask){0};
    recorder.mask[FM_PAIR] = pair_mask ? *pair_mask : (fm_split_mask){0};
    return recorder;
}

static fm_comm *dap_of(const fm_recorder *r) {
    return r->config->groups ? r->config->groups->dap : NULL;
}

static const void *weights_of(const fm_sublayer *s, const void *block) {
    return (const char *)block + s->weights;
}

static double rate_of(const fm_recorder *r, const fm_sublayer *s) {
    switch (s->dropout) {
    case FM_DROPOUT_MSA: return r->config->dropout_msa;
    case FM_DROPOUT_PAIR: return r->config->dropout_pair;
    case FM_DROPOUT_NONE: break;
    }
    return 0;
}

/* The mask of the updated representation, split along the axis of the sublayer. */
static fm_tensor_ref mask_of(const fm_recorder *r, const fm_sublayer *s) {
    const fm_split_mask *mask = &r->mask[s->updates];
    int axis = s->axis[s->updates];
    return axis == FM_WHOLE ? mask->whole : axis == 1 ? mask->columns : mask->rows;
}

/* Whether the update is made by one node and added by another. On split arrays that pays only if x
 * is normalised already, or the sum is for its next reader: the next one may need another split. */
static bool fuses(const fm_recorder *r, fm_normed x, fm_param_ref next) {
    return r->fuses && r->tape->chunk_bytes == 0 &&
           (!dap_of(r) || next != FM_PARAM_NONE || x.n != FM_TENSOR_NONE);
}

static fm_param_ref unless_normed(fm_normed x, fm_param_ref norm) {
    return x.n == FM_TENSOR_NONE ? norm : FM_PARAM_NONE;
}

/* Whether a saved tensor is kept that is computed again from that policy on. Where a whole block
 * is, its segment says so. */
static fm_keep keep_unless(const fm_recorder *r, fm_recompute_policy from) {
    fm_recompute_policy policy = r->config->recompute;
    return policy >= from && policy < FM_RECOMPUTE_BLOCK ? FM_RECOMPUTE : FM_KEEP;
}

/* Drops the normalised rows if the block does not keep them, or if the q k v g that are made from
 * them are computed again. Call it after a node that ends with norms. */
static fm_normed drop_norms(const fm_recorder *r, fm_normed x) {
    const fm_recompute_policy from =
        r->config->drops_norms ? FM_RECOMPUTE_NONE : FM_RECOMPUTE_PROJECTIONS;
    bool drops = !dap_of(r) && keep_unless(r, from) == FM_RECOMPUTE;
    if (drops && x.n != FM_TENSOR_NONE) fm_tape_drop_derived(r->tape);
    return x;
}

/* -- attention */

static bool has_bias(const fm_sublayer *s) {
    return s->axial != FM_AXIAL_COLUMN;
}

static fm_shared_axis shared_axis(const fm_sublayer *s) {
    return s->axial == FM_AXIAL_ENDING ? FM_SHARED_AXIS1 : FM_SHARED_AXIS0;
}

static fm_normed attention_fused(const fm_recorder *r, const fm_sublayer *s,
                                 const fm_attention_weights *weights, fm_normed from, fm_normed x,
                                 fm_param_ref next) {
    fm_attention_weights w = *weights;
    fm_linear_update_weights end = {.w = w.out, .bias = w.out_bias, .next = next};
    w.out = w.out_bias = FM_PARAM_NONE;
    w.keep_qkvg = keep_unless(r, FM_RECOMPUTE_PROJECTIONS);
    fm_normed z = s->axial == FM_AXIAL_ROW ? from : fm_not_normed(FM_TENSOR_NONE);
    w.norm = unless_normed(x, w.norm);
    w.norm_z = unless_normed(z, w.norm_z);
    end.passes_update = rate_of(r, s) > 0 && fm_attention_opens(r->tape, s->axial, x.x, &w);
    w.opens = end.passes_update;
    if (w.opens) w.out = weights->out;
    fm_tensor_ref o = fm_op_attention(r->tape, s->update_name, s->axial, fm_normed_input(&x),
                                      mask_of(r, s), fm_normed_input(&z), &w, false, 0);
    return drop_norms(
        r, fm_op_linear_update(r->tape, s->name, x.x, o, &end, rate_of(r, s), shared_axis(s)));
}

/* If the bias was computed alone, it is gathered while q k v g are computed. */
static fm_normed attention_split(const fm_recorder *r, const fm_sublayer *s,
                                 const fm_attention_weights *weights, const fm_begun *begun,
                                 fm_normed x, fm_param_ref next) {
    fm_attention_weights w = *weights;
    fm_tensor_ref qkvg = begun->qkvg;
    if (qkvg == FM_TENSOR_NONE) {
        w.norm = unless_normed(x, w.norm);
        qkvg = fm_op_attention_project(r->tape, s->name, fm_normed_input(&x), &w, NULL);
    }
    fm_tensor_ref bias = fm_dap_gather_finish(r->tape, &begun->gather);
    fm_tensor_ref o =
        fm_op_attention_core(r->tape, s->update_name, s->axial, x.x, qkvg, mask_of(r, s), bias, &w);
    const fm_linear_update_weights end = {
        .w = w.out, .bias = w.out_bias, .next = r->fuses ? next : FM_PARAM_NONE};
    return fm_op_linear_update(r->tape, s->name, x.x, o, &end, rate_of(r, s), shared_axis(s));
}

/* On split arrays every slab reads the bias of all pairs, which is gathered first. */
static fm_normed attention_in_slabs(const fm_recorder *r, const fm_sublayer *s,
                                    const fm_attention_weights *w, const fm_begun *begun,
                                    fm_normed x) {
    fm_tensor_ref pair = FM_TENSOR_NONE, bias = FM_TENSOR_NONE;
    if (dap_of(r) && has_bias(s)) {
        bias = fm_dap_gather_finish(r->tape, &begun->gather);
    } else if (s->axial == FM_AXIAL_ROW) {
        pair = begun->from.x;
    }
    return fm_not_normed(fm_op_attention_chunked(r->tape, s->name, s->axial, x.x, mask_of(r, s),
                                                 pair, bias, w, rate_of(r, s)));
}

static fm_normed attention(const fm_recorder *r, const fm_sublayer *s,
                           const fm_attention_weights *w, const fm_begun *begun, fm_normed x,
                           fm_param_ref next) {
    /* Attention of single representations has few rows, and a bias of the queries. */
    const bool has_slabs = r->tape->chunk_bytes > 0 && w->q_bias == FM_PARAM_NONE;
    if (has_slabs) return attention_in_slabs(r, s, w, begun, x);
    if (dap_of(r) && has_bias(s)) return attention_split(r, s, w, begun, x, next);
    if (fuses(r, x, next)) return attention_fused(r, s, w, begun->from, x, next);
    fm_tensor_ref z = s->axial == FM_AXIAL_ROW ? begun->from.x : FM_TENSOR_NONE;
    return fm_not_normed(
        fm_op_attention(r->tape, s->name, s->axial, x.x, mask_of(r, s), z, w, true, rate_of(r, s)));
}

static fm_normed global_attention(const fm_recorder *r, const fm_sublayer *s,
                                  const fm_global_attention_weights *weights, fm_normed m) {
    fm_global_attention_weights w = *weights;
    w.keep_kvg = keep_unless(r, FM_RECOMPUTE_PROJECTIONS);
    return fm_not_normed(fm_op_global_attention(r->tape, s->name, m.x, mask_of(r, s), &w, true));
}

/* -- triangle multiplication */

/* An operand is gathered, or the product summed over the ranks, while the output's gate is made. */
static fm_tensor_ref triangle_split(const fm_recorder *r, const fm_sublayer *s,
                                    const fm_triangle_weights *w, fm_tensor_ref z) {
    fm_triangle_operands operands = fm_op_triangle_operands(r->tape, s->name, z, mask_of(r, s), w);
    fm_tensor_ref x = FM_TENSOR_NONE;
    if (s->incoming) x = fm_op_triangle_product(r->tape, s->name, true, &operands);
    fm_gather gather = s->incoming ? fm_dap_sum_begin(r->tape, s->name, dap_of(r), x)
                                   : fm_dap_gather_begin(r->tape, s->name, dap_of(r), operands.b);
    fm_tensor_ref gate = fm_op_triangle_gate(r->tape, s->name, z, w);
    fm_tensor_ref arrived = fm_dap_gather_finish(r->tape, &gather);
    if (s->incoming) {
        x = arrived;
    } else {
        operands.b = arrived;
        x = fm_op_triangle_product(r->tape, s->name, false, &operands);
    }
    return fm_op_triangle_end(r->tape, s->name, z, x, gate, w, rate_of(r, s));
}

/* A triangle multiplication is one kernel from its LayerNorm to its residual, so it is never fused
 * with its neighbours. */
static fm_normed triangle(const fm_recorder *r, const fm_sublayer *s, const fm_triangle_weights *w,
                          fm_normed z) {
    double rate = rate_of(r, s);
    if (dap_of(r) && fm_triangle_part_exists(r->tape, dap_of(r), s->incoming, z.x, w, rate)) {
        return fm_not_normed(fm_triangle_part_add(r->tape, s->name, dap_of(r), s->incoming, z.x,
                                                  mask_of(r, s), w, rate));
    }
    if (dap_of(r)) return fm_not_normed(triangle_split(r, s, w, z.x));
    if (r->tape->chunk_bytes > 0 && r->tape->chunks_triangles) {
        return fm_not_normed(
            fm_op_triangle_chunked(r->tape, s->name, s->incoming, z.x, mask_of(r, s), w, rate));
    }
    fm_triangle_weights own = *w;
    own.keep_operands = keep_unless(r, FM_RECOMPUTE_OPERANDS);
    return fm_not_normed(fm_op_triangle_multiplication(r->tape, s->name, s->incoming, z.x,
                                                       mask_of(r, s), &own, true, rate));
}

/* -- transition */

static fm_normed transition(const fm_recorder *r, const fm_sublayer *s,
                            const fm_transition_weights *weights, fm_normed x, fm_param_ref next,
                            fm_param_ref later) {
    fm_keep hidden = keep_unless(r, FM_RECOMPUTE_HIDDEN);
    if (!fuses(r, x, next)) {
        return fm_not_normed(fm_op_transition(r->tape, s->name, x.x, weights, true, hidden));
    }
    fm_transition_weights w = *weights;
    w.norm = unless_normed(x, w.norm);
    return drop_norms(r, fm_op_transition_update(r->tape, s->name, x, &w, hidden, next, later));
}

/* -- outer product mean */

/* The op adds its update to z. */
static fm_normed outer(const fm_recorder *r, const fm_sublayer *s, const fm_outer_weights *weights,
                       const fm_begun *begun, fm_normed z) {
    const fm_split_mask *mask = &r->mask[FM_MSA];
    if (dap_of(r)) {
        fm_outer_operands operands = begun->operands;
        operands.b = fm_dap_gather_finish(r->tape, &begun->gather);
        return fm_not_normed(fm_op_outer_core(r->tape, s->name, &operands, mask->columns,
                                              mask->whole, z.x, weights,
                                              fm_groups_part(r->config->groups)));
    }
    fm_outer_weights w = *weights;
    w.norm = unless_normed(begun->from, w.norm);
    w.keep_operands = keep_unless(r, FM_RECOMPUTE_OPERANDS);
    return fm_not_normed(fm_op_outer_product_mean(r->tape, s->name, fm_normed_input(&begun->from),
                                                  mask->whole, z.x, &w));
}

/* -- pair-weighted averaging */

static fm_normed averaging(const fm_recorder *r, const fm_sublayer *s,
                           const fm_averaging_weights *weights, const fm_begun *begun,
                           fm_normed m) {
    fm_averaging_weights w = *weights;
    fm_tensor_ref z = begun->from.x;
    if (dap_of(r)) {
        z = fm_dap_gather_finish(r->tape, &begun->gather);
        w.norm_z = w.bias = FM_PARAM_NONE;
    }
    return fm_not_normed(
        fm_op_weighted_averaging(r->tape, s->name, m.x, mask_of(r, s), z, &w, true, rate_of(r, s)));
}

/* -- all kinds */

bool fm_recorder_has_bias(const fm_sublayer *s) {
    return (s->kind == FM_SUBLAYER_ATTENTION && has_bias(s)) || s->kind == FM_SUBLAYER_AVERAGING;
}

/* Begins the gather of an attention's bias. with_projections: the node that computes the bias also
 * computes q k v g. */
static fm_begun begin_attention(const fm_recorder *r, const fm_sublayer *s,
                                const fm_attention_weights *weights, fm_normed from,
                                bool with_projections) {
    fm_attention_weights w = *weights;
    w.norm = unless_normed(from, w.norm);
    w.norm_z = unless_normed(from, w.norm_z);
    fm_begun begun = {.from = from, .qkvg = FM_TENSOR_NONE};
    fm_tensor_ref x = fm_normed_input(&from), bias;
    if (with_projections) {
        begun.qkvg = fm_op_attention_project(r->tape, s->name, x, &w, &bias);
    } else {
        bias = fm_op_attention_bias(r->tape, s->name, s->axial, x, &w);
    }
    begun.gather = fm_dap_gather_begin(r->tape, s->name, dap_of(r), bias);
    return begun;
}

/* The weights from which a sublayer makes its bias, as those of a row attention. */
static fm_attention_weights bias_weights(const fm_sublayer *s, const void *block) {
    if (s->kind == FM_SUBLAYER_ATTENTION) {
        return *(const fm_attention_weights *)weights_of(s, block);
    }
    const fm_averaging_weights *w = weights_of(s, block);
    return (fm_attention_weights){
        .norm = FM_PARAM_NONE, .norm_z = w->norm_z, .bias = w->bias, .n_head = w->n_head};
}

fm_begun fm_recorder_begin_bias(const fm_recorder *r, const fm_sublayer *s, const void *weights,
                                fm_normed from) {
    fm_attention_weights w = bias_weights(s, weights);
    return begin_attention(r, s, &w, from, false);
}

fm_begun fm_recorder_begin(const fm_recorder *r, const fm_sublayer *s, const void *weights,
                           fm_normed from) {
    fm_begun begun = {.from = from, .qkvg = FM_TENSOR_NONE};
    if (!dap_of(r)) return begun;
    if (fm_recorder_has_bias(s)) {
        bool at_once = r->fuses && s->axial != FM_AXIAL_ROW && r->tape->chunk_bytes == 0;
        fm_attention_weights w = bias_weights(s, weights);
        return begin_attention(r, s, &w, from, at_once);
    }
    if (s->kind == FM_SUBLAYER_OUTER) {
        fm_outer_weights w = *(const fm_outer_weights *)weights_of(s, weights);
        w.norm = unless_normed(from, w.norm);
        begun.operands = fm_op_outer_operands(r->tape, s->name, fm_normed_input(&from), &w);
        begun.gather = fm_dap_gather_begin(r->tape, s->name, dap_of(r), begun.operands.b);
    }
    return begun;
}

fm_normed fm_recorder_finish(const fm_recorder *r, const fm_sublayer *s, const void *weights,
                             const fm_begun *begun, fm_normed x, fm_param_ref next,
                             fm_param_ref later) {
    const void *w = weights_of(s, weights);
    switch (s->kind) {
    case FM_SUBLAYER_ATTENTION: return attention(r, s, w, begun, x, next);
    case FM_SUBLAYER_GLOBAL_ATTENTION: return global_attention(r, s, w, x);
    case FM_SUBLAYER_TRANSITION: return transition(r, s, w, x, next, later);
    case FM_SUBLAYER_SWIGLU:
        return fm_not_normed(fm_op_swiglu_transition(r->tape, s->name, x.x, w, true,
                                                     keep_unless(r, FM_RECOMPUTE_HIDDEN)));
    case FM_SUBLAYER_AVERAGING: return averaging(r, s, w, begun, x);
    case FM_SUBLAYER_TRIANGLE: return triangle(r, s, w, x);
    case FM_SUBLAYER_OUTER: return outer(r, s, w, begun, x);
    }
    assert(!"a kind of sublayer");
    return x;
}

fm_param_ref fm_recorder_norm(const fm_sublayer *s, const void *weights, fm_representation of) {
    const void *w = weights_of(s, weights);
    switch (s->kind) {
    case FM_SUBLAYER_ATTENTION: {
        const fm_attention_weights *attention_weights = w;
        return of == s->updates ? attention_weights->norm : attention_weights->norm_z;
    }
    case FM_SUBLAYER_TRANSITION: return ((const fm_transition_weights *)w)->norm;
    case FM_SUBLAYER_OUTER:
        return of == FM_MSA ? ((const fm_outer_weights *)w)->norm : FM_PARAM_NONE;
    case FM_SUBLAYER_GLOBAL_ATTENTION:
    case FM_SUBLAYER_SWIGLU:
    case FM_SUBLAYER_AVERAGING:
    case FM_SUBLAYER_TRIANGLE: break;
    }
    return FM_PARAM_NONE;
}
