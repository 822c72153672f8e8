/* structure_layers.c: see structure_layers.h. */
#include "trainer/ops/structure_layers.h"

#include "trainer/ops/call_structure.h"

#include <assert.h>

static const double UNIT_EPS = 1e-8;

/* -- LayerNorm after dropout */

typedef struct norm_attributes {
    int64_t rows, c;
    double rate;
} norm_attributes;

static fm_update whole_update(const norm_attributes *at) {
    return (fm_update){.n_group = 1,
                       .n0 = at->rows,
                       .n1 = 1,
                       .c = at->c,
                       .global_n1 = 1,
                       .rate = at->rate,
                       .shared = FM_SHARED_NONE};
}

/* Returns the input of the LayerNorm: x, or x under dropout in the workspace. */
static const void *dropped(fm_run *run, const fm_node *node) {
    const norm_attributes *at = node->attributes;
    const void *x = fm_run_input(run, node, 0);
    if (!(at->rate > 0)) return x;
    void *kept = fm_run_workspace_act(run, at->rows * at->c);
    fm_update update = whole_update(at);
    fm_call_update(run, node, &update, NULL, x, kept);
    return kept;
}

/* The statistics of the rows, acc [2, rows]: mean, rstd. */
static void *statistics(const fm_run *run, const fm_node *node, int which) {
    const norm_attributes *at = node->attributes;
    return fm_run_at(fm_run_saved(run, node, 0), which * at->rows, run->kernels->acc);
}

static void norm_forward(fm_run *run, const fm_node *node) {
    const norm_attributes *at = node->attributes;
    const void *x = dropped(run, node);
    void *y = fm_run_wants_output(run) ? fm_run_output(run, node, 0)
                                       : fm_run_workspace_act(run, at->rows * at->c);
    const void *gamma = fm_run_param(run, node, 0);
    fm_call_layernorm(run, &(fm_layernorm){.rows = at->rows,
                                           .c = at->c,
                                           .x = x,
                                           .gamma = gamma,
                                           .beta = fm_run_at(gamma, at->c, run->kernels->act),
                                           .y = y,
                                           .mean = statistics(run, node, 0),
                                           .rstd = statistics(run, node, 1)});
}

static void norm_backward(fm_run *run, const fm_node *node) {
    const norm_attributes *at = node->attributes;
    const void *dy = fm_run_output_gradient(run, node, 0);
    fm_out dx = fm_run_gradient(run, node, 0), dweights = fm_run_param_gradient(run, node, 0);
    fm_norm norm = {.rows = at->rows,
                    .c = at->c,
                    .x = dropped(run, node),
                    .gamma = fm_run_param(run, node, 0),
                    .mean = statistics(run, node, 0),
                    .rstd = statistics(run, node, 1)};
    if (!(at->rate > 0)) {
        fm_call_norm_grad(run, &norm, dy, dx, dweights);
        return;
    }
    void *dkept = fm_run_workspace_act(run, at->rows * at->c);
    fm_call_norm_grad(run, &norm, dy, (fm_out){dkept, FM_WRITE}, dweights);
    fm_update update = whole_update(at);
    fm_call_dropout_grad(run, node, &update, dkept, dx);
}

static const fm_op NORM = {"norm", norm_forward, norm_backward};

fm_tensor_ref fm_op_norm(fm_tape *tape, const char *name, fm_tensor_ref x, fm_param_ref weights,
                         double rate) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &NORM, name, sizeof(norm_attributes), &memory);
    norm_attributes *at = memory;
    const fm_tensor *tensor = fm_tape_tensor(tape, x);
    at->c = tensor->local[tensor->rank - 1];
    at->rows = fm_tensor_local_count(tensor) / at->c;
    at->rate = rate;
    assert(tensor->shard_axis < 0 ||
           !(rate > 0)); /* draws are numbered by element of the whole array */
    fm_node_input(tape, node, x, true);
    fm_node_param(tape, node, weights);
    if (rate > 0) fm_node_draws(tape, node);
    fm_node_save(tape, node, FM_KEEP, tape->kernels->acc, 2, (int64_t[]){2, at->rows});
    return fm_node_output_described(tape, node, tensor);
}

/* -- transition (A20:8) */

typedef struct transition_attributes {
    int64_t rows, c;
} transition_attributes;

enum { S_FIRST, S_SECOND };

/* The linear layer i of the three. */
static fm_linear transition_layer(const fm_run *run, const fm_node *node, int i, const void *x) {
    const transition_attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    return (fm_linear){.rows = at->rows,
                       .c_in = at->c,
                       .c_out = at->c,
                       .ldx = at->c,
                       .ldy = at->c,
                       .x = x,
                       .w = fm_run_at(fm_run_param(run, node, 0), i * at->c * at->c, act),
                       .bias = fm_run_at(fm_run_param(run, node, 1), i * at->c, act)};
}

static void transition_forward(fm_run *run, const fm_node *node) {
    const void *x = fm_run_input(run, node, 0);
    void *first = fm_run_saved(run, node, S_FIRST), *second = fm_run_saved(run, node, S_SECOND);
    fm_linear layer = transition_layer(run, node, 0, x);
    fm_call_linear(run, &layer, true, first);
    layer = transition_layer(run, node, 1, first);
    fm_call_linear(run, &layer, true, second);
    if (!fm_run_wants_output(run)) return;
    layer = transition_layer(run, node, 2, second);
    layer.residual = x;
    fm_call_linear(run, &layer, false, fm_run_output(run, node, 0));
}

static void transition_backward(fm_run *run, const fm_node *node) {
    const transition_attributes *at = node->attributes;
    fm_element acc = run->kernels->acc;
    int64_t count = at->rows * at->c;
    const void *input[3] = {fm_run_input(run, node, 0), fm_run_saved(run, node, S_FIRST),
                            fm_run_saved(run, node, S_SECOND)};
    const void *dy = fm_run_output_gradient(run, node, 0);
    void *hidden[2] = {fm_run_workspace_act(run, count), fm_run_workspace_act(run, count)};
    fm_out dw = fm_run_param_gradient(run, node, 0), db = fm_run_param_gradient(run, node, 1);
    for (int i = 2; i >= 0; i--) {
        fm_linear layer = transition_layer(run, node, i, input[i]);
        fm_out dx = i ? (fm_out){hidden[i - 1], FM_WRITE} : fm_run_gradient(run, node, 0);
        layer.x_is_relu = i > 0;
        layer.x_dbias = i ? fm_out_at(db, (i - 1) * at->c, acc) : (fm_out){0};
        fm_call_linear_grad(run, &layer, dy, dx, fm_out_at(dw, i * at->c * at->c, acc),
                            i == 2 ? fm_out_at(db, i * at->c, acc) : (fm_out){0});
        dy = dx.data;
    }
}

static const fm_op TRANSITION = {"structure transition", transition_forward, transition_backward};

fm_tensor_ref fm_op_structure_transition(fm_tape *tape, fm_tensor_ref s,
                                         const fm_structure_transition_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &TRANSITION, "structure transition",
                                sizeof(transition_attributes), &memory);
    transition_attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, s);
    assert(x->rank == 2);
    *at = (transition_attributes){.rows = x->local[0], .c = x->local[1]};
    fm_node_input(tape, node, s, true);
    fm_node_param(tape, node, weights->w);
    fm_node_param(tape, node, weights->b);
    fm_node_save(tape, node, FM_KEEP, x->element, 2, (int64_t[]){at->rows, at->c});
    fm_node_save(tape, node, FM_KEEP, x->element, 2, (int64_t[]){at->rows, at->c});
    return fm_node_residual(tape, node, 0);
}

/* -- unit pairs */

static void unit_forward(fm_run *run, const fm_node *node) {
    if (fm_run_wants_output(run)) {
        const int64_t *pairs = node->attributes;
        fm_call_unit_pairs(run, *pairs, UNIT_EPS, fm_run_input(run, node, 0),
                           fm_run_output(run, node, 0));
    }
}

static void unit_backward(fm_run *run, const fm_node *node) {
    const int64_t *pairs = node->attributes;
    fm_call_unit_pairs_grad(run, *pairs, UNIT_EPS, fm_run_input(run, node, 0),
                            fm_run_output_gradient(run, node, 0), fm_run_gradient(run, node, 0));
}

static const fm_op UNIT = {"unit pairs", unit_forward, unit_backward};

fm_tensor_ref fm_op_unit_pairs(fm_tape *tape, fm_tensor_ref x) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &UNIT, "unit pairs", sizeof(int64_t), &memory);
    const fm_tensor *tensor = fm_tape_tensor(tape, x);
    assert(tensor->local[tensor->rank - 1] == 2);
    *(int64_t *)memory = fm_tensor_local_count(tensor) / 2;
    fm_node_input(tape, node, x, true);
    return fm_node_output_described(tape, node, tensor);
}
