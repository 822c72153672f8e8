/* blocks.c: see blocks.h. The lists here are complete: model/block.c derives everything else from
 * them. */
#include "trainer/model/af3/blocks.h"

#include "trainer/model/af3/split.h"
#include "trainer/model/block.h"

/* -- parameters */

fm_swiglu_transition_weights fm_af3_transition(const fm_scope *scope, int64_t c, int64_t factor) {
    int64_t hidden = factor * c;
    fm_swiglu_transition_weights w = {.norm = fm_af3_norm(scope, "layernorm1", c),
                                      .hidden = hidden};
    w.w1 = fm_af3_block(scope);
    fm_af3_add(scope, "linear_no_bias_a.weight", hidden, c, FM_AF3_HE);
    fm_af3_add(scope, "linear_no_bias_b.weight", hidden, c, FM_AF3_HE);
    w.w2 = fm_af3_add_block(scope, "linear_no_bias.weight", c, hidden, FM_AF3_ZERO);
    return w;
}

fm_triangle_weights fm_af3_triangle(const fm_scope *scope, int64_t c_z, int64_t c) {
    fm_triangle_weights w = {.norm_in = fm_af3_norm(scope, "layer_norm_in", c_z),
                             .projections_bias = FM_PARAM_NONE,
                             .out_bias = FM_PARAM_NONE,
                             .c = c};
    w.projections = fm_af3_block(scope);
    fm_af3_add(scope, "linear_a_p.weight", c, c_z, FM_AF3_DEFAULT);
    fm_af3_add(scope, "linear_a_g.weight", c, c_z, FM_AF3_ZERO);
    fm_af3_add(scope, "linear_b_p.weight", c, c_z, FM_AF3_DEFAULT);
    fm_af3_add(scope, "linear_b_g.weight", c, c_z, FM_AF3_ZERO);
    fm_af3_add(scope, "linear_g.weight", c_z, c_z, FM_AF3_ZERO);
    w.norm_out = fm_af3_norm(scope, "layer_norm_out", c);
    w.out = fm_af3_add_block(scope, "linear_z.weight", c_z, c, FM_AF3_ZERO);
    return w;
}

/* Adds q k v g ("linear_q" and so on) and "linear_o" of an attention with `width` channels. */
static void add_attention(const fm_scope *scope, int64_t c, int64_t width, bool q_bias,
                          fm_attention_weights *w) {
    w->qkvg = fm_af3_block(scope);
    fm_af3_add(scope, "linear_q.weight", width, c, FM_AF3_DEFAULT);
    fm_af3_add(scope, "linear_k.weight", width, c, FM_AF3_DEFAULT);
    fm_af3_add(scope, "linear_v.weight", width, c, FM_AF3_DEFAULT);
    fm_af3_add(scope, "linear_g.weight", width, c, FM_AF3_ZERO);
    w->q_bias =
        q_bias ? fm_af3_add_block(scope, "linear_q.bias", width, 0, FM_AF3_ZERO) : FM_PARAM_NONE;
    w->out = fm_af3_add_block(scope, "linear_o.weight", c, width, FM_AF3_ZERO);
    w->gate_bias = w->out_bias = FM_PARAM_NONE;
}

fm_attention_weights fm_af3_triangle_attention(const fm_scope *scope, int64_t c_z, int64_t n_head,
                                               int64_t c_head) {
    fm_attention_weights w = {.norm = fm_af3_norm(scope, "layer_norm", c_z),
                              .norm_z = FM_PARAM_NONE,
                              .n_head = n_head,
                              .c_head = c_head};
    fm_scope mha = fm_af3_enter(scope, "mha.");
    add_attention(&mha, c_z, n_head * c_head, false, &w);
    w.bias = fm_af3_add_block(scope, "linear.weight", n_head, c_z, FM_AF3_DEFAULT);
    return w;
}

fm_attention_weights fm_af3_single_attention(const fm_scope *scope, int64_t c_s, int64_t c_z,
                                             int64_t n_head) {
    fm_attention_weights w = {.norm = fm_af3_norm(scope, "layernorm_a", c_s),
                              .norm_z = fm_af3_norm(scope, "layernorm_z", c_z),
                              .n_head = n_head,
                              .c_head = c_s / n_head};
    fm_scope attention = fm_af3_enter(scope, "attention.");
    add_attention(&attention, c_s, c_s, true, &w);
    w.bias = fm_af3_add_block(scope, "linear_nobias_z.weight", n_head, c_z, FM_AF3_DEFAULT);
    return w;
}

fm_outer_weights fm_af3_outer(const fm_scope *scope, int64_t c_m, int64_t c, int64_t c_z) {
    fm_outer_weights w = {.norm = fm_af3_norm(scope, "layer_norm", c_m),
                          .ab_bias = FM_PARAM_NONE,
                          .c = c,
                          .c_z = c_z};
    w.ab = fm_af3_block(scope);
    fm_af3_add(scope, "linear_1.weight", c, c_m, FM_AF3_DEFAULT);
    fm_af3_add(scope, "linear_2.weight", c, c_m, FM_AF3_DEFAULT);
    w.out = fm_af3_add_block(scope, "linear_out.weight", c_z, c * c, FM_AF3_ZERO);
    w.out_bias = fm_af3_add_block(scope, "linear_out.bias", c_z, 0, FM_AF3_ZERO);
    return w;
}

fm_averaging_weights fm_af3_averaging(const fm_scope *scope, int64_t c_m, int64_t c_z,
                                      int64_t n_head, int64_t c_head) {
    int64_t width = n_head * c_head;
    fm_averaging_weights w = {
        .norm = fm_af3_norm(scope, "layernorm_m", c_m), .n_head = n_head, .c_head = c_head};
    w.vg = fm_af3_block(scope);
    fm_af3_add(scope, "linear_no_bias_mv.weight", width, c_m, FM_AF3_DEFAULT);
    fm_af3_add(scope, "linear_no_bias_mg.weight", width, c_m, FM_AF3_ZERO);
    w.norm_z = fm_af3_norm(scope, "layernorm_z", c_z);
    w.bias = fm_af3_add_block(scope, "linear_no_bias_z.weight", n_head, c_z, FM_AF3_DEFAULT);
    w.out = fm_af3_add_block(scope, "linear_no_bias_out.weight", c_m, width, FM_AF3_ZERO);
    return w;
}

/* The five sublayers of the pairs. */
static fm_af3_block_weights pair_weights(const fm_scope *scope, const fm_af3_config *config,
                                         int64_t c_z, int64_t factor) {
    fm_scope outgoing = fm_af3_enter(scope, "tri_mul_out."),
             incoming = fm_af3_enter(scope, "tri_mul_in."),
             starting = fm_af3_enter(scope, "tri_att_start."),
             ending = fm_af3_enter(scope, "tri_att_end."),
             transition = fm_af3_enter(scope, "pair_transition.");
    fm_af3_block_weights w = {.outgoing = fm_af3_triangle(&outgoing, c_z, config->c_triangle)};
    w.incoming = fm_af3_triangle(&incoming, c_z, config->c_triangle);
    w.starting =
        fm_af3_triangle_attention(&starting, c_z, config->n_head_pair, config->c_head_pair);
    w.ending = fm_af3_triangle_attention(&ending, c_z, config->n_head_pair, config->c_head_pair);
    w.pair_transition = fm_af3_transition(&transition, c_z, factor);
    return w;
}

fm_af3_block_weights fm_af3_pairformer_weights(const fm_scope *scope, const fm_af3_config *config) {
    fm_af3_block_weights w = pair_weights(scope, config, config->c_z, config->transition_factor);
    fm_scope attention = fm_af3_enter(scope, "attention_pair_bias."),
             transition = fm_af3_enter(scope, "single_transition.");
    w.single = fm_af3_single_attention(&attention, config->c_s, config->c_z, config->n_head_single);
    w.single_transition = fm_af3_transition(&transition, config->c_s, config->transition_factor);
    return w;
}

fm_af3_block_weights fm_af3_msa_weights(const fm_scope *scope, const fm_af3_config *config,
                                        bool is_last) {
    fm_scope pairs = fm_af3_enter(scope, "pair_stack."),
             outer = fm_af3_enter(scope, "outer_product_mean_msa."),
             averaging = fm_af3_enter(scope, "msa_stack.msa_pair_weighted_averaging."),
             transition = fm_af3_enter(scope, "msa_stack.transition_m.");
    fm_outer_weights outer_weights =
        fm_af3_outer(&outer, config->c_m, config->c_outer, config->c_z);
    fm_af3_block_weights w = pair_weights(&pairs, config, config->c_z, config->transition_factor);
    w.outer = outer_weights;
    if (!is_last) {
        w.averaging = fm_af3_averaging(&averaging, config->c_m, config->c_z, config->n_head_msa,
                                       config->c_head_msa);
        w.msa_transition = fm_af3_transition(&transition, config->c_m, config->transition_factor);
    }
    return w;
}

fm_af3_block_weights fm_af3_template_weights(const fm_scope *scope, const fm_af3_config *config) {
    return pair_weights(scope, config, config->c_template, config->narrow_factor);
}

/* -- sublayers */

#define WEIGHTS(member) .weights = offsetof(fm_af3_block_weights, member)
#define OF_PAIRS(member, split)                                                                    \
    .updates = FM_PAIR, WEIGHTS(member), .axis = {[FM_MSA] = FM_UNTOUCHED, [FM_PAIR] = (split)}
#define OF_MSA(member) .updates = FM_MSA, WEIGHTS(member)

static const fm_sublayer OUTGOING = {.kind = FM_SUBLAYER_TRIANGLE,
                                     OF_PAIRS(outgoing, 0),
                                     .name = "triangle multiplication outgoing",
                                     .dropout = FM_DROPOUT_PAIR}; /* AF3-12 */
static const fm_sublayer INCOMING = {.kind = FM_SUBLAYER_TRIANGLE,
                                     OF_PAIRS(incoming, 0),
                                     .name = "triangle multiplication incoming",
                                     .incoming = true,
                                     .dropout = FM_DROPOUT_PAIR}; /* AF3-13 */
static const fm_sublayer STARTING = {.kind = FM_SUBLAYER_ATTENTION,
                                     OF_PAIRS(starting, 0),
                                     .name = "triangle attention starting",
                                     .update_name = "triangle attention starting update",
                                     .axial = FM_AXIAL_STARTING,
                                     .dropout = FM_DROPOUT_PAIR}; /* AF3-14 */
static const fm_sublayer ENDING = {.kind = FM_SUBLAYER_ATTENTION,
                                   OF_PAIRS(ending, 1),
                                   .name = "triangle attention ending",
                                   .update_name = "triangle attention ending update",
                                   .axial = FM_AXIAL_ENDING,
                                   .dropout = FM_DROPOUT_PAIR}; /* AF3-15 */
static const fm_sublayer PAIR_TRANSITION = {.kind = FM_SUBLAYER_SWIGLU,
                                            OF_PAIRS(pair_transition, 1),
                                            .name = "pair transition"}; /* AF3-11 */
static const fm_sublayer SINGLE = {.kind = FM_SUBLAYER_ATTENTION,
                                   OF_MSA(single),
                                   .axis = {[FM_MSA] = FM_WHOLE, [FM_PAIR] = 0},
                                   .name = "single attention",
                                   .update_name = "single attention update",
                                   .axial = FM_AXIAL_ROW}; /* AF3-24 */
static const fm_sublayer SINGLE_TRANSITION = {
    .kind = FM_SUBLAYER_SWIGLU,
    OF_MSA(single_transition),
    .axis = {[FM_MSA] = FM_WHOLE, [FM_PAIR] = FM_UNTOUCHED},
    .name = "single transition"}; /* AF3-11 */
static const fm_sublayer OUTER = {.kind = FM_SUBLAYER_OUTER,
                                  .updates = FM_PAIR,
                                  WEIGHTS(outer),
                                  .axis = {[FM_MSA] = 1, [FM_PAIR] = 0},
                                  .name = "outer product mean"}; /* AF3-9 */
static const fm_sublayer AVERAGING = {.kind = FM_SUBLAYER_AVERAGING,
                                      OF_MSA(averaging),
                                      .axis = {[FM_MSA] = 0, [FM_PAIR] = 0},
                                      .name = "pair-weighted averaging",
                                      .dropout = FM_DROPOUT_MSA}; /* AF3-10 */
static const fm_sublayer MSA_TRANSITION = {.kind = FM_SUBLAYER_SWIGLU,
                                           OF_MSA(msa_transition),
                                           .axis = {[FM_MSA] = 0, [FM_PAIR] = FM_UNTOUCHED},
                                           .name = "msa transition"}; /* AF3-11 */

/* -- lists */

#define PAIR_STACK &OUTGOING, &INCOMING, &STARTING, &ENDING, &PAIR_TRANSITION

static const fm_sublayer *const PAIRFORMER[] = {PAIR_STACK, &SINGLE, &SINGLE_TRANSITION};
static const fm_sublayer *const MSA[] = {&OUTER, &AVERAGING, &MSA_TRANSITION, PAIR_STACK};
static const fm_sublayer *const LAST_MSA[] = {&OUTER, PAIR_STACK};
static const fm_sublayer *const TEMPLATE[] = {PAIR_STACK};

#define LIST(sublayers)                                                                            \
    {                                                                                              \
        .sublayer = (sublayers), .n_sublayer = sizeof(sublayers) / sizeof((sublayers)[0]),         \
        .change_name = {                                                                           \
            [FM_MSA] = {"msa to rows", "msa to columns"},                                          \
            [FM_PAIR] = {"pair to rows", "pair to columns"}                                        \
        }                                                                                          \
    }

static const fm_block_list PAIRFORMER_LIST = LIST(PAIRFORMER), MSA_LIST = LIST(MSA),
                           LAST_MSA_LIST = LIST(LAST_MSA), TEMPLATE_LIST = LIST(TEMPLATE);

/* -- recording */

static fm_split_mask whole(fm_tensor_ref mask) {
    return (fm_split_mask){mask, mask, mask};
}

/* Records a block that backward computes again as `policy` says. */
static fm_af3_pair_of record_block(const fm_recorder *stack, fm_recompute_policy policy,
                                   const fm_block_list *list, const fm_af3_block_weights *weights,
                                   bool is_last, fm_af3_pair_of in) {
    fm_model_config config = *stack->config;
    fm_recorder recorder = *stack;
    config.recompute = policy;
    recorder.config = &config;
    fm_block_values x = {
        .value = {[FM_MSA] = fm_not_normed(in.s), [FM_PAIR] = fm_not_normed(in.z)}};
    fm_tape_begin_segment(recorder.tape, policy == FM_RECOMPUTE_BLOCK);
    x = fm_block_record(&recorder, list, weights, NULL, is_last, x);
    fm_tape_end_segment(recorder.tape);
    return (fm_af3_pair_of){x.value[FM_MSA].x, x.value[FM_PAIR].x};
}

fm_af3_pair_of fm_af3_pairformer(fm_tape *tape, const fm_af3_config *config, int32_t stack,
                                 const fm_af3_block_weights *weights, int32_t n_block,
                                 const fm_af3_masks *masks, fm_af3_pair_of in) {
    fm_model_config own = fm_af3_split_config(config);
    fm_split_mask single = whole(masks->single), pair = fm_split_mask_of(tape, &own, masks->pair);
    fm_recorder recorder = fm_recorder_of(tape, &own, &single, &pair);
    for (int32_t i = 0; i < n_block; i++)
        in = record_block(&recorder, fm_af3_config_policy(config, stack, i), &PAIRFORMER_LIST,
                          &weights[i], i + 1 == n_block, in);
    return in;
}

fm_af3_pair_of fm_af3_msa_blocks(fm_tape *tape, const fm_af3_config *config,
                                 const fm_af3_block_weights *weights, int32_t n_block,
                                 bool ends_module, const fm_af3_masks *masks, fm_af3_pair_of in) {
    fm_model_config own = fm_af3_split_config(config);
    fm_split_mask msa = fm_split_mask_of(tape, &own, masks->msa),
                  pair = fm_split_mask_of(tape, &own, masks->pair);
    fm_recorder recorder = fm_recorder_of(tape, &own, &msa, &pair);
    for (int32_t i = 0; i < n_block; i++) {
        bool is_last = i + 1 == n_block;
        in = record_block(&recorder, fm_af3_config_policy(config, FM_AF3_STACK_MSA, i),
                          is_last && ends_module ? &LAST_MSA_LIST : &MSA_LIST, &weights[i], is_last,
                          in);
    }
    if (ends_module) in.s = FM_TENSOR_NONE;
    return in;
}

fm_tensor_ref fm_af3_template_blocks(fm_tape *tape, const fm_af3_config *config,
                                     const fm_af3_block_weights *weights, int32_t n_block,
                                     fm_tensor_ref pair_mask, fm_tensor_ref t) {
    fm_model_config own = fm_af3_split_config(config);
    own.groups = NULL;
    fm_split_mask pair = whole(pair_mask);
    fm_recorder recorder = fm_recorder_of(tape, &own, NULL, &pair);
    fm_af3_pair_of x = {FM_TENSOR_NONE, t};
    uint32_t first = tape->n_draw, step = (uint32_t)n_block * fm_block_draws(&TEMPLATE_LIST);
    const fm_tensor *templates = fm_tape_tensor(tape, t);
    const bool is_one = templates->rank == 3; /* on a tape without draws */
    int64_t n_template = is_one ? 0 : templates->shape[0];
    if (!is_one) {
        fm_tape_group_draws(tape, step);
        fm_tape_seek_draw(tape, first + (uint32_t)fm_tensor_first(templates, 0) * step);
    }
    for (int32_t i = 0; i < n_block; i++)
        x = record_block(&recorder, fm_af3_config_policy(config, FM_AF3_STACK_TEMPLATE, i),
                         &TEMPLATE_LIST, &weights[i], i + 1 == n_block, x);
    fm_tape_group_draws(tape, 0);
    fm_tape_seek_draw(tape, first + (uint32_t)n_template * step);
    return x.z;
}
