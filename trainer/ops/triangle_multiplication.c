/* triangle_multiplication.c: see triangle_multiplication.h. The whole sublayer is one entry of the
 * kernel table (backend/triangle_block.h composes it of the others). */
#include "trainer/ops/triangle_multiplication.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t n, c_z, c;
    bool incoming;
    bool keeps; /* a backward pass follows */
    fm_update update;
} attributes;

enum { IN_Z, IN_MASK };
enum { P_NORM_IN, P_PROJECTIONS, P_PROJECTIONS_BIAS, P_NORM_OUT, P_OUT, P_OUT_BIAS };
enum { S_KEPT };

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

static fm_triangle_block block_of(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_triangle_block block = shape_of(at);
    block.residual = node->residual >= 0;
    block.z = fm_run_input(run, node, IN_Z);
    block.mask = fm_run_input(run, node, IN_MASK);
    block.norm_in = fm_run_param(run, node, P_NORM_IN);
    block.norm_out = fm_run_param(run, node, P_NORM_OUT);
    block.projections = fm_run_param(run, node, P_PROJECTIONS);
    block.projections_bias = fm_run_param(run, node, P_PROJECTIONS_BIAS);
    block.out = fm_run_param(run, node, P_OUT);
    block.out_bias = fm_run_param(run, node, P_OUT_BIAS);
    block.dropout = fm_update_dropout(run, node, &at->update);
    block.kept = at->keeps ? fm_run_saved(run, node, S_KEPT) : NULL;
    return block;
}

static void forward(fm_run *run, const fm_node *node) {
    fm_triangle_block block = block_of(run, node);
    block.y = fm_run_wants_output(run) ? fm_run_output(run, node, 0) : NULL;
    fm_call_triangle_block(run, &block);
}

static void backward(fm_run *run, const fm_node *node) {
    fm_triangle_block block = block_of(run, node);
    fm_triangle_block_grad grad = {.dy = fm_run_output_gradient(run, node, 0),
                                   .dz = fm_run_gradient(run, node, IN_Z),
                                   .dnorm_in = fm_run_param_gradient(run, node, P_NORM_IN),
                                   .dnorm_out = fm_run_param_gradient(run, node, P_NORM_OUT),
                                   .dprojections = fm_run_param_gradient(run, node, P_PROJECTIONS),
                                   .dprojections_bias =
                                       fm_run_param_gradient(run, node, P_PROJECTIONS_BIAS),
                                   .dout = fm_run_param_gradient(run, node, P_OUT),
                                   .dout_bias = fm_run_param_gradient(run, node, P_OUT_BIAS)};
    fm_call_triangle_block_grad(run, &block, &grad);
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
    assert(x->rank == 3 && x->local[0] == x->local[1]);
    *at = (attributes){.n = x->local[0],
                       .c_z = x->local[2],
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
        fm_node_save(tape, node, FM_KEEP, x->element, 1,
                     (int64_t[]){(int64_t)node->kernels->triangle_block_kept(&shape)});
    }
    return residual ? fm_node_residual(tape, node, IN_Z) : fm_node_output_described(tape, node, x);
}
