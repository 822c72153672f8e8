/* layer_norm.c: see layer_norm.h. */
#include "trainer/ops/layer_norm.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t rows, c;
    fm_norm_kind kind;
} attributes;

/* The parameter's beta, which only the wide kind has. */
static const void *beta_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    if (at->kind != FM_NORM_WIDE) return NULL;
    return fm_run_at(fm_run_param(run, node, 0), at->c, run->kernels->act);
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    if (!fm_run_wants_output(run)) return;
    fm_call_layernorm(run, &(fm_layernorm){.rows = at->rows,
                                           .c = at->c,
                                           .x = fm_run_input(run, node, 0),
                                           .gamma = fm_run_param(run, node, 0),
                                           .beta = beta_of(run, node),
                                           .y = fm_run_output(run, node, 0)});
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_out dgamma = fm_run_param_gradient(run, node, 0), dbeta = {0};
    if (at->kind == FM_NORM_WIDE) dbeta = fm_out_at(dgamma, at->c, run->kernels->acc);
    fm_call_layernorm_grad(run, &(fm_layernorm_grad){.rows = at->rows,
                                                     .c = at->c,
                                                     .x = fm_run_input(run, node, 0),
                                                     .gamma = fm_run_param(run, node, 0),
                                                     .dy = fm_run_output_gradient(run, node, 0),
                                                     .dx = fm_run_gradient(run, node, 0),
                                                     .dgamma = dgamma,
                                                     .dbeta = dbeta});
}

static const fm_op LAYER_NORM = {"layer norm", forward, backward};

fm_tensor_ref fm_op_layer_norm(fm_tape *tape, const char *name, fm_tensor_ref x,
                               fm_param_ref weights, fm_norm_kind kind) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &LAYER_NORM, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *tensor = fm_tape_tensor(tape, x);
    int64_t c = tensor->local[tensor->rank - 1];
    assert((weights == FM_PARAM_NONE) == (kind == FM_NORM_PLAIN));
    *at = (attributes){fm_tensor_local_count(tensor) / c, c, kind};
    fm_node_input(tape, node, x, true);
    fm_node_param(tape, node, weights);
    return fm_node_output_described(tape, node, fm_tape_tensor(tape, x));
}
