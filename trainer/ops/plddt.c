/* plddt.c: see plddt.h. */
#include "trainer/ops/plddt.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t rows, c_s, c, n_bin;
} attributes;

enum { P_NORM, P_W1, P_B1, P_W2, P_B2, P_W3, P_B3 };
enum { S_FIRST, S_SECOND };

static fm_linear layer_of(const fm_run *run, const fm_node *node, int i, const void *x) {
    const attributes *at = node->attributes;
    const int64_t width[] = {at->c_s, at->c, at->c, at->n_bin};
    return (fm_linear){.rows = at->rows,
                       .c_in = width[i],
                       .c_out = width[i + 1],
                       .ldx = width[i],
                       .ldy = width[i + 1],
                       .x = x,
                       .w = fm_run_param(run, node, P_W1 + 2 * i),
                       .bias = fm_run_param(run, node, P_B1 + 2 * i)};
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    void *first = fm_run_saved(run, node, S_FIRST), *second = fm_run_saved(run, node, S_SECOND);
    fm_norm norm = fm_call_norm(run, at->rows, at->c_s, fm_run_input(run, node, 0),
                                fm_run_param(run, node, P_NORM)); /* A29:1 */
    fm_linear layer = layer_of(run, node, 0, norm.y);
    fm_call_linear(run, &layer, true, first);
    layer = layer_of(run, node, 1, first);
    fm_call_linear(run, &layer, true, second); /* A29:2 */
    if (fm_run_wants_output(run)) {
        layer = layer_of(run, node, 2, second);
        fm_call_linear(run, &layer, false, fm_run_output(run, node, 0)); /* A29:3 */
    }
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_norm norm = fm_call_norm(run, at->rows, at->c_s, fm_run_input(run, node, 0),
                                fm_run_param(run, node, P_NORM));
    const void *x[3] = {norm.y, fm_run_saved(run, node, S_FIRST),
                        fm_run_saved(run, node, S_SECOND)};
    const void *dy = fm_run_output_gradient(run, node, 0);
    for (int i = 2; i >= 0; i--) {
        fm_linear layer = layer_of(run, node, i, x[i]);
        fm_out dx = {fm_run_workspace_act(run, at->rows * layer.c_in), FM_WRITE};
        layer.x_is_relu = i > 0;
        layer.x_dbias = i ? fm_run_param_gradient(run, node, P_B1 + 2 * i - 2) : (fm_out){0};
        fm_call_linear_grad(run, &layer, dy, dx, fm_run_param_gradient(run, node, P_W1 + 2 * i),
                            i == 2 ? fm_run_param_gradient(run, node, P_B1 + 2 * i) : (fm_out){0});
        dy = dx.data;
    }
    fm_call_norm_grad(run, &norm, dy, fm_run_gradient(run, node, 0),
                      fm_run_param_gradient(run, node, P_NORM));
}

static const fm_op HEAD = {"plddt head", forward, backward};

fm_tensor_ref fm_op_plddt_logits(fm_tape *tape, fm_tensor_ref s, const fm_plddt_weights *w) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &HEAD, "plddt head", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, s);
    assert(x->rank == 2);
    *at = (attributes){x->local[0], x->local[1], w->c, w->n_bin};
    fm_node_input(tape, node, s, true);
    const fm_param_ref params[] = {w->norm, w->w1, w->b1, w->w2, w->b2, w->w3, w->b3};
    for (int i = 0; i < 7; i++)
        fm_node_param(tape, node, params[i]);
    fm_node_save(tape, node, FM_KEEP, x->element, 2, (int64_t[]){at->rows, at->c});
    fm_node_save(tape, node, FM_KEEP, x->element, 2, (int64_t[]){at->rows, at->c});
    return fm_node_output(tape, node, x->element, 2, (int64_t[]){at->rows, at->n_bin});
}
