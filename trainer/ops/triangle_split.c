/* triangle_split.c: see triangle_split.h. The fused weight [4c + c_z, c_z] belongs to two nodes,
 * operands and gate; each writes only the gradient of its rows. */
#include "trainer/ops/triangle_split.h"

#include "trainer/backend/fallback.h"
#include "trainer/ops/call.h"

#include <assert.h>

/* -- operands */

typedef struct operand_attributes {
    int64_t n0, n1, c_z, c;
    int64_t c_projected; /* 4c + c_z: rows of the fused weight */
} operand_attributes;

enum { IN_Z, IN_MASK };
enum { P_NORM, P_PROJECTIONS, P_PROJECTIONS_BIAS };

static fm_norm operand_norm(fm_run *run, const fm_node *node) {
    const operand_attributes *at = node->attributes;
    return fm_call_norm(run, at->n0 * at->n1, at->c_z, fm_run_input(run, node, IN_Z),
                        fm_run_param(run, node, P_NORM));
}

static fm_linear four_of(const fm_run *run, const fm_node *node, const void *normed) {
    const operand_attributes *at = node->attributes;
    return (fm_linear){.rows = at->n0 * at->n1,
                       .c_in = at->c_z,
                       .c_out = 4 * at->c,
                       .ldx = at->c_z,
                       .ldy = 4 * at->c,
                       .x = normed,
                       .w = fm_run_param(run, node, P_PROJECTIONS),
                       .bias = fm_run_param(run, node, P_PROJECTIONS_BIAS)};
}

/* mask * sigmoid(g) * p of operand 0 (a) or 1 (b). */
static fm_gate operand_gate(const fm_run *run, const fm_node *node, int operand, void *y) {
    const operand_attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    const void *p = fm_run_at(fm_run_saved(run, node, 0), operand * 2 * at->c, act);
    return (fm_gate){.rows = at->n0 * at->n1,
                     .c = at->c,
                     .ldg = 4 * at->c,
                     .ldx = 4 * at->c,
                     .ldy = at->c,
                     .g = fm_run_at(p, at->c, act),
                     .x = p,
                     .mask = fm_run_input(run, node, IN_MASK),
                     .y = y};
}

/* A table without a wide one has no fused kernels for any shape: this is its only way. */
static void count_composed(const fm_run *run, const operand_attributes *at) {
    if (run->dry || !run->kernels->wide) return;
    fm_backend_fall_back(FM_FALLBACK_TRIANGLE,
                         "triangle multiplication of %lld of %lld rows with c_z %lld, c %lld runs "
                         "composed, about twice as slow",
                         (long long)at->n0, (long long)at->n1, (long long)at->c_z,
                         (long long)at->c);
}

static void operands_forward(fm_run *run, const fm_node *node) {
    count_composed(run, node->attributes);
    int64_t mark = fm_run_mark(run);
    fm_norm normed = operand_norm(run, node); /* A11:1 A12:1 */
    fm_linear four = four_of(run, node, normed.y);
    fm_call_linear(run, &four, false, fm_run_saved(run, node, 0)); /* A11:2 A12:2 */
    fm_run_release(run, mark);
    if (!fm_run_wants_output(run)) return;
    for (int i = 0; i < 2; i++) {
        fm_gate gate = operand_gate(run, node, i, fm_run_output(run, node, i));
        fm_call_gate(run, &gate);
    }
}

static void operands_backward(fm_run *run, const fm_node *node) {
    const operand_attributes *at = node->attributes;
    int64_t rows = at->n0 * at->n1;
    fm_element act = run->kernels->act;
    void *dfour = fm_run_workspace_act(run, rows * 4 * at->c);
    for (int i = 0; i < 2; i++) {
        fm_gate gate = operand_gate(run, node, i, NULL);
        void *dp = fm_run_at(dfour, i * 2 * at->c, act);
        fm_gate_grad grad = {.dy = fm_run_output_gradient(run, node, i),
                             .dx = {dp, FM_WRITE},
                             .dg = {fm_run_at(dp, at->c, act), FM_WRITE}};
        fm_call_gate_grad(run, &gate, &grad);
    }
    fm_norm normed = operand_norm(run, node);
    void *dnormed = fm_run_workspace_act(run, rows * at->c_z);
    fm_linear four = four_of(run, node, normed.y);
    fm_call_linear_grad(run, &four, dfour, (fm_out){dnormed, FM_WRITE},
                        fm_call_part_of(run, at->c_projected * at->c_z,
                                        fm_run_param_gradient(run, node, P_PROJECTIONS)),
                        fm_call_part_of(run, at->c_projected,
                                        fm_run_param_gradient(run, node, P_PROJECTIONS_BIAS)));
    fm_call_norm_grad(run, &normed, dnormed, fm_run_gradient(run, node, IN_Z),
                      fm_run_param_gradient(run, node, P_NORM));
}

static const fm_op OPERANDS = {"triangle operands", operands_forward, operands_backward};

fm_triangle_operands fm_op_triangle_operands(fm_tape *tape, const char *name, fm_tensor_ref z,
                                             fm_tensor_ref mask,
                                             const fm_triangle_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &OPERANDS, name, sizeof(operand_attributes), &memory);
    fm_tensor x = *fm_tape_tensor(tape, z);
    assert(x.rank == 3 && x.shape[0] == x.shape[1]);
    assert(x.shard_axis <= 0);
    *(operand_attributes *)memory =
        (operand_attributes){.n0 = x.local[0],
                             .n1 = x.local[1],
                             .c_z = x.local[2],
                             .c = weights->c,
                             .c_projected = 4 * weights->c + x.local[2]};
    fm_node_input(tape, node, z, true);
    fm_node_input(tape, node, mask, true);
    fm_node_param(tape, node, weights->norm_in);
    fm_node_param(tape, node, weights->projections);
    fm_node_param(tape, node, weights->projections_bias);
    fm_node_save(tape, node, FM_KEEP, x.element, 2,
                 (int64_t[]){x.local[0] * x.local[1], 4 * weights->c});
    fm_tensor out = fm_tensor_of_width(&x, name, weights->c);
    fm_tensor_ref a = fm_node_output_described(tape, node, &out);
    return (fm_triangle_operands){a, fm_node_output_described(tape, node, &out)};
}

/* -- gate */

typedef struct gate_attributes {
    int64_t rows, c_z;
    int64_t first, c_projected; /* rows of the fused weight: where the gate begins, all */
} gate_attributes;

static fm_norm gate_norm(fm_run *run, const fm_node *node) {
    const gate_attributes *at = node->attributes;
    return fm_call_norm(run, at->rows, at->c_z, fm_run_input(run, node, IN_Z),
                        fm_run_param(run, node, P_NORM));
}

static fm_linear gate_linear(const fm_run *run, const fm_node *node, const void *normed) {
    const gate_attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    return (fm_linear){
        .rows = at->rows,
        .c_in = at->c_z,
        .c_out = at->c_z,
        .ldx = at->c_z,
        .ldy = at->c_z,
        .x = normed,
        .w = fm_run_at(fm_run_param(run, node, P_PROJECTIONS), at->first * at->c_z, act),
        .bias = fm_run_at(fm_run_param(run, node, P_PROJECTIONS_BIAS), at->first, act)};
}

static void gate_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    fm_norm normed = gate_norm(run, node);
    fm_linear linear = gate_linear(run, node, normed.y);
    fm_call_linear(run, &linear, false, fm_run_output(run, node, 0)); /* A11:3 A12:3 */
}

static void gate_backward(fm_run *run, const fm_node *node) {
    const gate_attributes *at = node->attributes;
    fm_element acc = run->kernels->acc;
    fm_norm normed = gate_norm(run, node);
    void *dnormed = fm_run_workspace_act(run, at->rows * at->c_z);
    fm_linear linear = gate_linear(run, node, normed.y);
    fm_out dw = fm_call_part_of(run, at->c_projected * at->c_z,
                                fm_run_param_gradient(run, node, P_PROJECTIONS));
    fm_out db =
        fm_call_part_of(run, at->c_projected, fm_run_param_gradient(run, node, P_PROJECTIONS_BIAS));
    fm_call_linear_grad(run, &linear, fm_run_output_gradient(run, node, 0),
                        (fm_out){dnormed, FM_WRITE}, fm_out_at(dw, at->first * at->c_z, acc),
                        fm_out_at(db, at->first, acc));
    fm_call_norm_grad(run, &normed, dnormed, fm_run_gradient(run, node, IN_Z),
                      fm_run_param_gradient(run, node, P_NORM));
}

static const fm_op GATE = {"triangle gate", gate_forward, gate_backward};

fm_tensor_ref fm_op_triangle_gate(fm_tape *tape, const char *name, fm_tensor_ref z,
                                  const fm_triangle_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &GATE, name, sizeof(gate_attributes), &memory);
    const fm_tensor *x = fm_tape_tensor(tape, z);
    *(gate_attributes *)memory = (gate_attributes){.rows = x->local[0] * x->local[1],
                                                   .c_z = x->local[2],
                                                   .first = 4 * weights->c,
                                                   .c_projected = 4 * weights->c + x->local[2]};
    fm_node_input(tape, node, z, true);
    fm_node_param(tape, node, weights->norm_in);
    fm_node_param(tape, node, weights->projections);
    fm_node_param(tape, node, weights->projections_bias);
    return fm_node_output_described(tape, node, x);
}

/* -- product */

typedef struct product_attributes {
    fm_triangle product; /* without pointers */
} product_attributes;

enum { IN_A, IN_B };

static fm_triangle product_of(const fm_run *run, const fm_node *node) {
    fm_triangle product = ((const product_attributes *)node->attributes)->product;
    product.pa = fm_run_input(run, node, IN_A);
    product.pb = fm_run_input(run, node, IN_B);
    return product;
}

static void product_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    fm_triangle product = product_of(run, node);
    product.x = fm_run_output(run, node, 0);
    fm_call_triangle(run, &product); /* A11:4 A12:4 */
}

static void product_backward(fm_run *run, const fm_node *node) {
    fm_triangle product = product_of(run, node);
    fm_triangle_grad grad = {.dx = fm_run_output_gradient(run, node, 0),
                             .dpa = fm_run_gradient(run, node, IN_A),
                             .dpb = fm_run_gradient(run, node, IN_B)};
    fm_call_triangle_grad(run, &product, &grad);
}

static const fm_op PRODUCT = {"triangle product", product_forward, product_backward};

fm_tensor_ref fm_op_triangle_product(fm_tape *tape, const char *name, bool incoming,
                                     const fm_triangle_operands *operands) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &PRODUCT, name, sizeof(product_attributes), &memory);
    const fm_tensor a = *fm_tape_tensor(tape, operands->a), b = *fm_tape_tensor(tape, operands->b);
    int sum = incoming ? 0 : 1; /* the axis that is summed over */
    ((product_attributes *)memory)->product = (fm_triangle){.n_i = a.local[1 - sum],
                                                            .n_j = b.local[1 - sum],
                                                            .n_k = a.local[sum],
                                                            .c = a.local[2],
                                                            .incoming = incoming,
                                                            .lda = a.local[2],
                                                            .ldb = b.local[2]};
    assert(a.local[sum] == b.local[sum] && a.local[2] == b.local[2]);
    fm_node_input(tape, node, operands->a, true);
    fm_node_input(tape, node, operands->b, true);
    fm_tensor out;
    fm_tensor_init(&out, name, a.element, 3, a.shape);
    if (!incoming && a.shard_axis == 0) fm_tensor_shard(&out, 0, a.shard_rank, a.shard_count);
    return fm_node_output_described(tape, node, &out);
}

/* -- end */

typedef struct end_attributes {
    int64_t rows, c_z, c;
    fm_update update;
} end_attributes;

enum { IN_RESIDUAL, IN_PRODUCT, IN_GATE };
enum { P_NORM_OUT, P_OUT, P_OUT_BIAS };

static fm_norm norm_out(fm_run *run, const fm_node *node) {
    const end_attributes *at = node->attributes;
    return fm_call_norm(run, at->rows, at->c, fm_run_input(run, node, IN_PRODUCT),
                        fm_run_param(run, node, P_NORM_OUT));
}

static fm_linear out_of(const fm_run *run, const fm_node *node, const void *normed) {
    const end_attributes *at = node->attributes;
    return (fm_linear){.rows = at->rows,
                       .c_in = at->c,
                       .c_out = at->c_z,
                       .ldx = at->c,
                       .ldy = at->c_z,
                       .x = normed,
                       .w = fm_run_param(run, node, P_OUT),
                       .bias = fm_run_param(run, node, P_OUT_BIAS)};
}

static fm_gate gate_of(const fm_run *run, const fm_node *node, const void *x, void *y) {
    const end_attributes *at = node->attributes;
    return (fm_gate){.rows = at->rows,
                     .c = at->c_z,
                     .ldg = at->c_z,
                     .ldx = at->c_z,
                     .ldy = at->c_z,
                     .g = fm_run_input(run, node, IN_GATE),
                     .x = x,
                     .y = y};
}

static void end_forward(fm_run *run, const fm_node *node) {
    const end_attributes *at = node->attributes;
    if (!fm_run_wants_output(run)) return;
    void *update = fm_run_workspace_act(run, at->rows * at->c_z);
    fm_norm inner = norm_out(run, node);
    fm_linear out = out_of(run, node, inner.y);
    fm_call_linear(run, &out, false, update);
    fm_gate gate = gate_of(run, node, update, update);
    fm_call_gate(run, &gate); /* A11:4 A12:4 */
    fm_call_update(run, node, &at->update, fm_run_input(run, node, IN_RESIDUAL), update,
                   fm_run_output(run, node, 0));
}

static void end_backward(fm_run *run, const fm_node *node) {
    const end_attributes *at = node->attributes;
    const void *dupdate =
        fm_call_update_grad(run, node, &at->update, fm_run_output_gradient(run, node, 0));
    fm_norm inner = norm_out(run, node);
    fm_linear out = out_of(run, node, inner.y);
    void *projected = fm_run_workspace_act(run, at->rows * at->c_z);
    fm_call_linear(run, &out, false, projected);
    void *dprojected = fm_run_workspace_act(run, at->rows * at->c_z);
    fm_gate gate = gate_of(run, node, projected, NULL);
    fm_gate_grad grad = {
        .dy = dupdate, .dg = fm_run_gradient(run, node, IN_GATE), .dx = {dprojected, FM_WRITE}};
    fm_call_gate_grad(run, &gate, &grad);
    void *dinner = fm_run_workspace_act(run, at->rows * at->c);
    fm_call_linear_grad(run, &out, dprojected, (fm_out){dinner, FM_WRITE},
                        fm_run_param_gradient(run, node, P_OUT),
                        fm_run_param_gradient(run, node, P_OUT_BIAS));
    fm_call_norm_grad(run, &inner, dinner, fm_run_gradient(run, node, IN_PRODUCT),
                      fm_run_param_gradient(run, node, P_NORM_OUT));
}

static const fm_op END = {"triangle end", end_forward, end_backward};

fm_tensor_ref fm_op_triangle_end(fm_tape *tape, const char *name, fm_tensor_ref z, fm_tensor_ref x,
                                 fm_tensor_ref gate, const fm_triangle_weights *weights,
                                 double dropout) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &END, name, sizeof(end_attributes), &memory);
    const fm_tensor *pair = fm_tape_tensor(tape, z), *product = fm_tape_tensor(tape, x);
    assert(product->local[0] == pair->local[0] && product->local[1] == pair->local[1]);
    (void)product;
    *(end_attributes *)memory =
        (end_attributes){.rows = pair->local[0] * pair->local[1],
                         .c_z = pair->local[2],
                         .c = weights->c,
                         .update = fm_update_of(pair, dropout, FM_SHARED_AXIS0)};
    fm_node_draws(tape, node);
    fm_node_input(tape, node, z, false);
    fm_node_input(tape, node, x, true);
    fm_node_input(tape, node, gate, true);
    fm_node_param(tape, node, weights->norm_out);
    fm_node_param(tape, node, weights->out);
    fm_node_param(tape, node, weights->out_bias);
    return fm_node_residual(tape, node, IN_RESIDUAL);
}
