/* template_rows.c: a row of the MSA for each template, made from its torsion angles (A2:7-8); see
 * template.h. */
#include "trainer/ops/template.h"

#include "trainer/ops/call.h"

#include <assert.h>

enum { IN_M, IN_FEATURES };
enum { P_W1, P_B1, P_W2, P_B2 };
enum { S_HIDDEN };

typedef struct attributes {
    int64_t rows, c;    /* N_templ * N_res positions */
    int64_t m_elements; /* of m */
} attributes;

static fm_linear first_layer(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->rows,
                       .c_in = FM_TEMPLATE_ROW_FEATURES,
                       .c_out = at->c,
                       .ldx = FM_TEMPLATE_ROW_FEATURES,
                       .ldy = at->c,
                       .x = fm_run_input(run, node, IN_FEATURES),
                       .w = fm_run_param(run, node, P_W1),
                       .bias = fm_run_param(run, node, P_B1)};
}

static fm_linear second_layer(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->rows,
                       .c_in = at->c,
                       .c_out = at->c,
                       .ldx = at->c,
                       .ldy = at->c,
                       .x = fm_run_saved(run, node, S_HIDDEN),
                       .w = fm_run_param(run, node, P_W2),
                       .bias = fm_run_param(run, node, P_B2)};
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_linear first = first_layer(run, node), second = second_layer(run, node);
    fm_call_linear(run, &first, true, fm_run_saved(run, node, S_HIDDEN)); /* A2:7 */
    if (!fm_run_wants_output(run)) return;
    void *y = fm_run_output(run, node, 0);
    fm_call_copy(run, at->m_elements, fm_run_input(run, node, IN_M), y); /* A2:8 */
    fm_call_linear(run, &second, false, fm_run_at(y, at->m_elements, run->kernels->act));
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const void *dy = fm_run_output_gradient(run, node, 0);
    const void *drows = fm_run_at(dy, at->m_elements, run->kernels->act);
    void *dhidden = fm_run_workspace_act(run, at->rows * at->c);
    fm_linear first = first_layer(run, node), second = second_layer(run, node);
    second.x_is_relu = true;
    second.x_dbias = fm_run_param_gradient(run, node, P_B1);
    fm_call_linear_grad(run, &second, drows, (fm_out){dhidden, FM_WRITE},
                        fm_run_param_gradient(run, node, P_W2),
                        fm_run_param_gradient(run, node, P_B2));
    fm_call_linear_grad(run, &first, dhidden, fm_run_gradient(run, node, IN_FEATURES),
                        fm_run_param_gradient(run, node, P_W1), (fm_out){0});
    fm_call_axpy(run, at->m_elements, 1.0, dy, fm_run_gradient(run, node, IN_M));
}

static const fm_op TEMPLATE_ROWS = {"template rows", forward, backward};

fm_tensor_ref fm_op_template_rows(fm_tape *tape, fm_tensor_ref m, fm_tensor_ref features,
                                  const fm_template_row_weights *weights) {
    void *memory;
    fm_node *node =
        fm_tape_add(tape, &TEMPLATE_ROWS, "template torsion rows", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *msa = fm_tape_tensor(tape, m), *from = fm_tape_tensor(tape, features);
    assert(msa->rank == 3 && msa->shard_axis != 0 && msa->local[2] == weights->c_m);
    assert(from->rank == 3 && from->local[1] == msa->local[1]);
    assert(from->local[2] == FM_TEMPLATE_ROW_FEATURES);
    *at = (attributes){.rows = from->local[0] * from->local[1],
                       .c = weights->c_m,
                       .m_elements = fm_tensor_local_count(msa)};
    fm_tensor out;
    fm_tensor_init(&out, "template torsion rows", tape->kernels->act, 3,
                   (int64_t[]){msa->shape[0] + from->shape[0], msa->shape[1], at->c});
    if (msa->shard_axis == 1) fm_tensor_shard(&out, 1, msa->shard_rank, msa->shard_count);
    fm_node_input(tape, node, m, false);
    fm_node_input(tape, node, features, true);
    const fm_param_ref params[] = {weights->w1, weights->b1, weights->w2, weights->b2};
    for (int i = 0; i < 4; i++)
        fm_node_param(tape, node, params[i]);
    fm_node_save(tape, node, FM_KEEP, tape->kernels->act, 2, (int64_t[]){at->rows, at->c});
    return fm_node_output_described(tape, node, &out);
}
