/* triangle_multiplication.c: see triangle_multiplication.h. The whole sublayer is one entry of the
 * kernel table (backend/triangle_block.h composes it of the others), which is called once for each
 * group. */
#include "trainer/ops/triangle_multiplication.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t n, c_z, c;
    int64_t kept; /* elements of `kept` of one group */
    bool incoming;
    bool keeps; /* a backward pass follows */
    fm_update update;
} attributes;

enum { IN_Z, IN_MASK };
enum { P_NORM_IN, P_PROJECTIONS, P_PROJECTIONS_BIAS, P_NORM_OUT, P_OUT, P_OUT_BIAS };
enum { S_KEPT };
enum { KEPT_ALIGN = 256 };

/* The shape, which also decides the size of `kept`. */
static fm_triangle_block shape_of(const attributes *at) {
    return (fm_triangle_block){.n = at->n,
                               .c_z = at->c_z,
                               .c = at->c,
                               .incoming = at->incoming,
                               .keeps = at->keeps,
                               .eps = FM_LAYERNORM_EPS,
                               .dropout = {.rate = at->update.rate, .shared = at->update.shared}};
}

/* Absent biases are zeros in the workspace of the group. */
static fm_triangle_block block_of(fm_run *run, const fm_node *node, int64_t group) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    int64_t first = group * fm_update_group_count(&at->update);
    fm_triangle_block block = shape_of(at);
    block.residual = node->residual >= 0;
    block.z = fm_run_at(fm_run_input(run, node, IN_Z), first, act);
    block.mask = fm_run_input(run, node, IN_MASK);
    block.norm_in = fm_run_param(run, node, P_NORM_IN);
    block.norm_out = fm_run_param(run, node, P_NORM_OUT);
    block.projections = fm_run_param(run, node, P_PROJECTIONS);
    block.projections_bias = fm_call_bias_or_zeros(run, 4 * at->c + at->c_z,
                                                   fm_run_param(run, node, P_PROJECTIONS_BIAS));
    block.out = fm_run_param(run, node, P_OUT);
    block.out_bias = fm_call_bias_or_zeros(run, at->c_z, fm_run_param(run, node, P_OUT_BIAS));
    block.dropout = fm_update_dropout(run, node, &at->update, group);
    block.dropout.n0 = at->n;
    block.kept =
        at->keeps ? fm_run_at(fm_run_saved(run, node, S_KEPT), group * at->kept, act) : NULL;
    return block;
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    void *y = fm_run_wants_output(run) ? fm_run_output(run, node, 0) : NULL;
    for (int64_t g = 0; g < at->update.n_group; g++) {
        int64_t mark = fm_run_mark(run);
        fm_triangle_block block = block_of(run, node, g);
        block.y = fm_run_at(y, g * fm_update_group_count(&at->update), run->kernels->act);
        fm_call_triangle_block(run, &block);
        fm_run_release(run, mark);
    }
}

/* The gradient of parameter j for a group: groups after the first add. */
static fm_out param_gradient(const fm_run *run, const fm_node *node, int j, int64_t group) {
    fm_out d = fm_run_param_gradient(run, node, j);
    return (fm_out){d.data, group ? FM_ADD : d.beta};
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    for (int64_t g = 0; g < at->update.n_group; g++) {
        int64_t first = g * fm_update_group_count(&at->update), mark = fm_run_mark(run);
        fm_triangle_block block = block_of(run, node, g);
        fm_triangle_block_grad grad = {
            .dy = fm_run_at(fm_run_output_gradient(run, node, 0), first, act),
            .dz = fm_out_at(fm_run_gradient(run, node, IN_Z), first, act),
            .dnorm_in = param_gradient(run, node, P_NORM_IN, g),
            .dnorm_out = param_gradient(run, node, P_NORM_OUT, g),
            .dprojections = param_gradient(run, node, P_PROJECTIONS, g),
            .dprojections_bias = param_gradient(run, node, P_PROJECTIONS_BIAS, g),
            .dout = param_gradient(run, node, P_OUT, g),
            .dout_bias = param_gradient(run, node, P_OUT_BIAS, g)};
        fm_call_triangle_block_grad(run, &block, &grad);
        fm_run_release(run, mark);
    }
}

static const fm_op TRIANGLE_MULTIPLICATION = {"triangle multiplication", forward, backward};

fm_tensor_ref fm_op_triangle_multiplication(fm_tape *tape, const char *name, bool incoming,
                                            fm_tensor_ref z, fm_tensor_ref mask,
                                            const fm_triangle_weights *weights, bool residual,
                                            double dropout) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &TRIANGLE_MULTIPLICATION, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, z);
    int axis = x->rank - 3;
    assert(axis >= 0 && x->local[axis] == x->local[axis + 1]);
    *at = (attributes){.n = x->local[axis],
                       .c_z = x->local[axis + 2],
                       .c = weights->c,
                       .incoming = incoming,
                       .keeps = tape->with_gradient};
    at->update = fm_update_of(x, dropout, FM_SHARED_AXIS0);
    fm_node_draws(tape, node);
    fm_node_input(tape, node, z, true);
    fm_node_input(tape, node, mask, true);
    const fm_param_ref params[] = {
        weights->norm_in,  weights->projections, weights->projections_bias,
        weights->norm_out, weights->out,         weights->out_bias};
    for (int i = 0; i < 6; i++)
        fm_node_param(tape, node, params[i]);
    if (at->keeps) {
        fm_triangle_block shape = shape_of(at);
        at->kept = (int64_t)node->kernels->triangle_block_kept(&shape);
        if (at->update.n_group > 1) { /* each group starts at an aligned element */
            at->kept += (KEPT_ALIGN - at->kept % KEPT_ALIGN) % KEPT_ALIGN;
        }
        fm_node_save(tape, node, weights->keep_operands, x->element, 1,
                     (int64_t[]){at->update.n_group * at->kept});
    }
    return residual ? fm_node_residual(tape, node, IN_Z) : fm_node_output_described(tape, node, x);
}
