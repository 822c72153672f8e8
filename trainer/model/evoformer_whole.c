/* evoformer_whole.c: the stacks of blocks on one rank: an attention's or a transition's update is
 * added, and what the next sublayer reads is normalised, in one node (ops/update_norm.h). Where two
 * sublayers read a value through norms of their own (the outer product mean and the next block's
 * rows read m), the other one normalises for itself, as do triangle multiplications, which are one
 * kernel from norm to residual. Draws are numbered as in evoformer.c. */
#include "trainer/model/evoformer.h"
#include "trainer/ops/update_norm.h"

typedef struct recording {
    fm_tape *tape;
    const fm_model_config *config;
    fm_tensor_ref msa_mask, pair_mask;
} recording;

typedef struct streams {
    fm_normed m, z;
} streams;

/* A module's name, and that of the node which makes its update. */
typedef struct names {
    const char *module, *update;
} names;

static const names ROW = {"msa row attention", "msa row attention update"};
static const names COLUMN = {"msa column attention", "msa column attention update"};
static const names MSA_TRANSITION = {"msa transition", "msa transition update"};
static const names STARTING = {"triangle attention starting", "triangle attention starting update"};
static const names ENDING = {"triangle attention ending", "triangle attention ending update"};
static const names PAIR_TRANSITION = {"pair transition", "pair transition update"};
static const names T_STARTING = {"template attention starting",
                                 "template attention starting update"};
static const names T_ENDING = {"template attention ending", "template attention ending update"};
static const names T_TRANSITION = {"template transition", "template transition update"};

static const fm_normed NOTHING = {FM_TENSOR_NONE, FM_TENSOR_NONE};

static fm_normed bare(fm_tensor_ref x) {
    return (fm_normed){x, FM_TENSOR_NONE};
}

/* ---- sublayers: `next` is the norm of the one that reads the result ----------------------------
 */

/* z NOTHING but for rows. */
static fm_normed attention(const recording *r, const names *name, fm_axial axial, fm_normed x,
                           fm_tensor_ref mask, fm_normed z, const fm_attention_weights *weights,
                           double rate, fm_param_ref next) {
    fm_attention_weights w = *weights;
    w.norm = x.n == FM_TENSOR_NONE ? w.norm : FM_PARAM_NONE;
    w.norm_z = z.n == FM_TENSOR_NONE ? w.norm_z : FM_PARAM_NONE;
    fm_tensor_ref update = fm_op_attention(r->tape, name->update, axial, fm_normed_input(&x), mask,
                                           fm_normed_input(&z), &w, false, 0);
    fm_shared_axis shared = axial == FM_AXIAL_ENDING ? FM_SHARED_AXIS1 : FM_SHARED_AXIS0;
    return fm_op_update_norm(r->tape, name->module, x.x, update, rate, shared, next);
}

static fm_normed triangle(const recording *r, const char *name, bool incoming, fm_normed z,
                          const fm_triangle_weights *w, double rate) {
    return bare(
        fm_op_triangle_multiplication(r->tape, name, incoming, z.x, r->pair_mask, w, true, rate));
}

static fm_normed transition(const recording *r, const names *name, fm_normed x,
                            const fm_transition_weights *weights, fm_param_ref next) {
    fm_transition_weights w = *weights;
    w.norm = x.n == FM_TENSOR_NONE ? w.norm : FM_PARAM_NONE;
    fm_keep hidden = r->config->recompute == FM_RECOMPUTE_HIDDEN ? FM_RECOMPUTE : FM_KEEP;
    fm_tensor_ref update =
        fm_op_transition(r->tape, name->update, fm_normed_input(&x), &w, false, hidden);
    return fm_op_update_norm(r->tape, name->module, x.x, update, 0, FM_SHARED_NONE, next);
}

/* The product adds to z itself. */
static fm_normed outer(const recording *r, fm_normed m, fm_normed z,
                       const fm_outer_weights *weights) {
    fm_outer_weights w = *weights;
    w.norm = m.n == FM_TENSOR_NONE ? w.norm : FM_PARAM_NONE;
    return bare(fm_op_outer_product_mean(r->tape, "outer product mean", fm_normed_input(&m),
                                         r->msa_mask, z.x, &w));
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static fm_normed msa_stack(const recording *r, const fm_evoformer_weights *w, fm_normed m,
                           fm_normed z, fm_param_ref next) {
    bool global = r->config->global_column;
    m = attention(r, &ROW, FM_AXIAL_ROW, m, r->msa_mask, z, &w->row, r->config->dropout_msa,
                  global ? FM_PARAM_NONE : w->column.norm); /* A6:2 */
    if (global) {
        m = bare(fm_op_global_attention(r->tape, "msa column global attention", m.x, r->msa_mask,
                                        &w->global_column, true)); /* A18:3 */
    } else {
        m = attention(r, &COLUMN, FM_AXIAL_COLUMN, m, r->msa_mask, NOTHING, &w->column, 0,
                      w->msa_transition.norm); /* A6:3 */
    }
    return transition(r, &MSA_TRANSITION, m, &w->msa_transition, next); /* A6:4 */
}

static fm_normed pair_stack(const recording *r, const fm_evoformer_weights *w, fm_normed z,
                            fm_param_ref next) {
    double rate = r->config->dropout_pair;
    z = triangle(r, "triangle multiplication outgoing", false, z, &w->outgoing, rate); /* A6:6 */
    z = triangle(r, "triangle multiplication incoming", true, z, &w->incoming, rate);  /* A6:7 */
    z = attention(r, &STARTING, FM_AXIAL_STARTING, z, r->pair_mask, NOTHING, &w->starting, rate,
                  w->ending.norm); /* A6:8 */
    z = attention(r, &ENDING, FM_AXIAL_ENDING, z, r->pair_mask, NOTHING, &w->ending, rate,
                  w->pair_transition.norm);                               /* A6:9 */
    return transition(r, &PAIR_TRANSITION, z, &w->pair_transition, next); /* A6:10 */
}

/* One block; `next` is the one behind it, NULL: what leaves is not normalised. */
static streams block(const recording *r, const fm_evoformer_weights *w,
                     const fm_evoformer_weights *next, streams x) {
    switch (r->config->order) {
    case FM_ORDER_ORIGINAL:
        x.m = msa_stack(r, w, x.m, x.z, w->outer.norm);
        x.z = outer(r, x.m, x.z, &w->outer); /* A6:5 */
        x.m = bare(x.m.x);
        x.z = pair_stack(r, w, x.z, next ? next->row.norm_z : FM_PARAM_NONE);
        break;
    case FM_ORDER_OUTER_FIRST:
        x.z = outer(r, x.m, x.z, &w->outer);
        x.m = msa_stack(r, w, bare(x.m.x), x.z, next ? next->outer.norm : FM_PARAM_NONE);
        x.z = pair_stack(r, w, x.z, FM_PARAM_NONE);
        break;
    case FM_ORDER_PARALLEL:
        x.m = msa_stack(r, w, x.m, x.z, w->outer.norm);
        x.z = pair_stack(r, w, x.z, FM_PARAM_NONE);
        x.z = outer(r, x.m, x.z, &w->outer);
        x.m = bare(x.m.x);
        break;
    }
    return x;
}

fm_pair_of_streams fm_evoformer_whole_stack(fm_tape *tape, const fm_model_config *config,
                                            const fm_evoformer_weights *weights, int32_t first,
                                            int32_t n_block, fm_pair_of_streams in,
                                            fm_tensor_ref msa_mask, fm_tensor_ref pair_mask) {
    streams x = {.m = bare(in.m), .z = bare(in.z)};
    for (int32_t i = 0; i < n_block; i++) {
        fm_model_config own = fm_model_config_block(config, first + i);
        recording r = {tape, &own, msa_mask, pair_mask};
        bool recompute = own.recompute == FM_RECOMPUTE_BLOCK; /* what leaves it would be kept */
        fm_tape_begin_segment(tape, recompute);
        x = block(&r, &weights[i], i + 1 < n_block && !recompute ? &weights[i + 1] : NULL, x);
        fm_tape_end_segment(tape);
    }
    return (fm_pair_of_streams){x.m.x, x.z.x};
}

fm_tensor_ref fm_template_whole_block(fm_tape *tape, const fm_model_config *config,
                                      const fm_template_block_weights *w, fm_tensor_ref t,
                                      fm_tensor_ref mask) {
    double rate = config->dropout_pair;
    recording r = {tape, config, FM_TENSOR_NONE, mask};
    fm_normed x = bare(t);
    fm_tape_begin_segment(tape, config->recompute == FM_RECOMPUTE_BLOCK);
    x = attention(&r, &T_STARTING, FM_AXIAL_STARTING, x, mask, NOTHING, &w->starting, rate,
                  w->ending.norm); /* A16:2 */
    x = attention(&r, &T_ENDING, FM_AXIAL_ENDING, x, mask, NOTHING, &w->ending, rate,
                  FM_PARAM_NONE);                                                       /* A16:3 */
    x = triangle(&r, "template multiplication outgoing", false, x, &w->outgoing, rate); /* A16:4 */
    x = triangle(&r, "template multiplication incoming", true, x, &w->incoming, rate);  /* A16:5 */
    x = transition(&r, &T_TRANSITION, x, &w->transition, FM_PARAM_NONE);                /* A16:6 */
    fm_tape_end_segment(tape);
    return x.x;
}
