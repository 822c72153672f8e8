/* evoformer.c: the sublayers of all blocks, and the orders in which blocks have them; see
 * evoformer.h.
 *
 * A block is completely described by its list: block.c derives the numbers of the draws, the
 * LayerNorms and the changes of split axes from it. A new block order or a new stack is a new list.
 */
#include "trainer/model/evoformer.h"

#include <assert.h>

/* -- sublayers */

/* m is split along axis 0 (sequences) for row attention, and along axis 1 (residues) for all else.
 * z is split along axis 0 for outgoing edges and starting nodes. For incoming edges and ending
 * nodes it is split along axis 1. */
#define NAMES(module) .name = (module), .update_name = module " update"
#define WEIGHTS(member) .weights = offsetof(fm_evoformer_weights, member)
#define MSA_AXIS(msa) .axis = {[FM_MSA] = (msa), [FM_PAIR] = FM_UNTOUCHED}
#define PAIR_AXIS(pair) .axis = {[FM_MSA] = FM_UNTOUCHED, [FM_PAIR] = (pair)}

static const fm_sublayer ROW = {.kind = FM_SUBLAYER_ATTENTION,
                                .updates = FM_MSA,
                                NAMES("msa row attention"),
                                WEIGHTS(row),
                                .axis = {[FM_MSA] = 0, [FM_PAIR] = 0},
                                .axial = FM_AXIAL_ROW,
                                .dropout = FM_DROPOUT_MSA}; /* A6:2 */
static const fm_sublayer COLUMN = {.kind = FM_SUBLAYER_ATTENTION,
                                   .updates = FM_MSA,
                                   NAMES("msa column attention"),
                                   WEIGHTS(column),
                                   MSA_AXIS(1),
                                   .axial = FM_AXIAL_COLUMN}; /* A6:3 */
static const fm_sublayer GLOBAL_COLUMN = {.kind = FM_SUBLAYER_GLOBAL_ATTENTION,
                                          .updates = FM_MSA,
                                          .name = "msa column global attention",
                                          WEIGHTS(global_column),
                                          MSA_AXIS(1)}; /* A18:3 */
static const fm_sublayer MSA_TRANSITION = {.kind = FM_SUBLAYER_TRANSITION,
                                           .updates = FM_MSA,
                                           .name = "msa transition",
                                           WEIGHTS(msa_transition),
                                           MSA_AXIS(1)}; /* A6:4 */
static const fm_sublayer OUTER = {.kind = FM_SUBLAYER_OUTER,
                                  .updates = FM_PAIR,
                                  .name = "outer product mean",
                                  WEIGHTS(outer),
                                  .axis = {[FM_MSA] = 1, [FM_PAIR] = 0}}; /* A6:5 */
static const fm_sublayer OUTGOING = {.kind = FM_SUBLAYER_TRIANGLE,
                                     .updates = FM_PAIR,
                                     .name = "triangle multiplication outgoing",
                                     WEIGHTS(outgoing),
                                     PAIR_AXIS(0),
                                     .dropout = FM_DROPOUT_PAIR}; /* A6:6 */
static const fm_sublayer INCOMING = {.kind = FM_SUBLAYER_TRIANGLE,
                                     .updates = FM_PAIR,
                                     .name = "triangle multiplication incoming",
                                     WEIGHTS(incoming),
                                     PAIR_AXIS(0),
                                     .incoming = true,
                                     .dropout = FM_DROPOUT_PAIR}; /* A6:7 */
static const fm_sublayer STARTING = {.kind = FM_SUBLAYER_ATTENTION,
                                     .updates = FM_PAIR,
                                     NAMES("triangle attention starting"),
                                     WEIGHTS(starting),
                                     PAIR_AXIS(0),
                                     .axial = FM_AXIAL_STARTING,
                                     .dropout = FM_DROPOUT_PAIR}; /* A6:8 */
static const fm_sublayer ENDING = {.kind = FM_SUBLAYER_ATTENTION,
                                   .updates = FM_PAIR,
                                   NAMES("triangle attention ending"),
                                   WEIGHTS(ending),
                                   PAIR_AXIS(1),
                                   .axial = FM_AXIAL_ENDING,
                                   .dropout = FM_DROPOUT_PAIR}; /* A6:9 */
static const fm_sublayer PAIR_TRANSITION = {.kind = FM_SUBLAYER_TRANSITION,
                                            .updates = FM_PAIR,
                                            .name = "pair transition",
                                            WEIGHTS(pair_transition),
                                            PAIR_AXIS(1)}; /* A6:10 */

#define TEMPLATE_WEIGHTS(member) .weights = offsetof(fm_template_block_weights, member)

static const fm_sublayer TEMPLATE_STARTING = {.kind = FM_SUBLAYER_ATTENTION,
                                              .updates = FM_PAIR,
                                              NAMES("template attention starting"),
                                              TEMPLATE_WEIGHTS(starting),
                                              PAIR_AXIS(0),
                                              .axial = FM_AXIAL_STARTING,
                                              .dropout = FM_DROPOUT_PAIR}; /* A16:2 */
static const fm_sublayer TEMPLATE_ENDING = {.kind = FM_SUBLAYER_ATTENTION,
                                            .updates = FM_PAIR,
                                            NAMES("template attention ending"),
                                            TEMPLATE_WEIGHTS(ending),
                                            PAIR_AXIS(1),
                                            .axial = FM_AXIAL_ENDING,
                                            .dropout = FM_DROPOUT_PAIR}; /* A16:3 */
static const fm_sublayer TEMPLATE_OUTGOING = {.kind = FM_SUBLAYER_TRIANGLE,
                                              .updates = FM_PAIR,
                                              .name = "template multiplication outgoing",
                                              TEMPLATE_WEIGHTS(outgoing),
                                              PAIR_AXIS(0),
                                              .dropout = FM_DROPOUT_PAIR}; /* A16:4 */
static const fm_sublayer TEMPLATE_INCOMING = {.kind = FM_SUBLAYER_TRIANGLE,
                                              .updates = FM_PAIR,
                                              .name = "template multiplication incoming",
                                              TEMPLATE_WEIGHTS(incoming),
                                              PAIR_AXIS(0),
                                              .incoming = true,
                                              .dropout = FM_DROPOUT_PAIR}; /* A16:5 */
static const fm_sublayer TEMPLATE_TRANSITION = {.kind = FM_SUBLAYER_TRANSITION,
                                                .updates = FM_PAIR,
                                                .name = "template transition",
                                                TEMPLATE_WEIGHTS(transition),
                                                PAIR_AXIS(0)}; /* A16:6 */

/* -- orders */

#define MSA_STACK(column) &ROW, &(column), &MSA_TRANSITION
#define PAIR_STACK &OUTGOING, &INCOMING, &STARTING, &ENDING, &PAIR_TRANSITION
#define ORDERS(column)                                                                             \
    {                                                                                              \
        [FM_ORDER_ORIGINAL] = {MSA_STACK(column), &OUTER, PAIR_STACK},                             \
        [FM_ORDER_OUTER_FIRST] = {&OUTER, MSA_STACK(column), PAIR_STACK},                          \
        [FM_ORDER_PARALLEL] = {MSA_STACK(column), PAIR_STACK, &OUTER},                             \
    }

enum { N_ORDER = FM_ORDER_PARALLEL + 1, N_EVOFORMER = 9, N_PAIR = 5, N_TEMPLATE = 5 };

static const fm_sublayer *const EVOFORMER[N_ORDER][N_EVOFORMER] = ORDERS(COLUMN);
static const fm_sublayer *const EXTRA_MSA[N_ORDER][N_EVOFORMER] = ORDERS(GLOBAL_COLUMN);
static const fm_sublayer *const PAIR_ALONE[N_PAIR] = {PAIR_STACK};
static const fm_sublayer *const TEMPLATE[N_TEMPLATE] = {&TEMPLATE_STARTING, &TEMPLATE_ENDING,
                                                        &TEMPLATE_OUTGOING, &TEMPLATE_INCOMING,
                                                        &TEMPLATE_TRANSITION};

static fm_block_list list_of(const fm_sublayer *const *sublayers, int n) {
    return (fm_block_list){.sublayer = sublayers,
                           .n_sublayer = n,
                           .change_name = {[FM_MSA] = {"msa to rows", "msa to columns"},
                                           [FM_PAIR] = {"pair to rows", "pair to columns"}}};
}

static fm_block_list template_list(void) {
    return (fm_block_list){
        .sublayer = TEMPLATE,
        .n_sublayer = N_TEMPLATE,
        .change_name = {[FM_PAIR] = {"template to rows", "template to columns"}}};
}

/* -- stacks */

/* The recorder of block `index` of all stacks; *ret_config is its config. */
static fm_recorder recorder_of_block(const fm_recorder *stack, int32_t index,
                                     fm_model_config *ret_config) {
    fm_recorder recorder = *stack;
    *ret_config = fm_model_config_block(stack->config, index);
    recorder.config = ret_config;
    return recorder;
}

static bool recomputes(const fm_model_config *stack, int32_t index) {
    return fm_model_config_block(stack, index).recompute == FM_RECOMPUTE_BLOCK;
}

static fm_block_values values_of(fm_tensor_ref m, fm_tensor_ref z) {
    return (fm_block_values){.value = {[FM_MSA] = fm_not_normed(m), [FM_PAIR] = fm_not_normed(z)}};
}

fm_representations fm_evoformer_stack(const fm_recorder *recorder,
                                      const fm_evoformer_weights *weights, int32_t first,
                                      int32_t n_block, fm_representations in) {
    const fm_model_config *config = recorder->config;
    bool has_msa = fm_split_has_msa(config);
    assert(config->order != FM_ORDER_ORIGINAL || (has_msa && fm_split_has_pair(config)));
    fm_block_list list =
        list_of((config->global_column ? EXTRA_MSA : EVOFORMER)[config->order], N_EVOFORMER);
    if (has_msa && fm_block_entry_axis(&list, FM_MSA) == 0) {
        in.m = fm_split_change(recorder->tape, config, "msa to rows", in.m, 0);
    }
    fm_block_values x = values_of(in.m, in.z);
    for (int32_t i = 0; i < n_block; i++) {
        fm_model_config own;
        fm_recorder r = recorder_of_block(recorder, first + i, &own);
        /* No exchange is under way where a recomputed segment begins or ends. */
        bool recompute = recomputes(config, first + i), is_last = i + 1 == n_block;
        bool cuts = !is_last && (recompute || recomputes(config, first + i + 1));
        bool joins = !is_last && !(cuts && fm_split_is_split(config));
        const fm_evoformer_weights *next = joins ? &weights[i + 1] : NULL;
        fm_tape_begin_segment(r.tape, recompute);
        x = fm_block_record(&r, &list, &weights[i], next, is_last, x);
        fm_tape_end_segment(r.tape);
    }
    return (fm_representations){x.value[FM_MSA].x, x.value[FM_PAIR].x};
}

fm_tensor_ref fm_evoformer_pair_stack(const fm_recorder *recorder,
                                      const fm_evoformer_weights *weights, fm_tensor_ref z) {
    fm_block_list list = list_of(PAIR_ALONE, N_PAIR);
    return fm_block_record(recorder, &list, weights, NULL, true, values_of(FM_TENSOR_NONE, z))
        .value[FM_PAIR]
        .x;
}

fm_tensor_ref fm_template_stack(const fm_recorder *recorder,
                                const fm_template_block_weights *weights, int32_t first,
                                int32_t n_block, fm_tensor_ref t) {
    fm_block_list list = template_list();
    fm_block_values x = values_of(FM_TENSOR_NONE, t);
    for (int32_t i = 0; i < n_block; i++) { /* A16:1 */
        fm_model_config own;
        fm_recorder r = recorder_of_block(recorder, first + i, &own);
        fm_tape_begin_segment(r.tape, own.recompute == FM_RECOMPUTE_BLOCK);
        x = fm_block_record(&r, &list, &weights[i], NULL, true, x);
        fm_tape_end_segment(r.tape);
    }
    return x.value[FM_PAIR].x;
}

uint32_t fm_template_block_draws(void) {
    fm_block_list list = template_list();
    return fm_block_draws(&list);
}
