/* triangle_part.c: see triangle_part.h, and fm_triangle_stage for the stages and where a, b and x
 * are.
 *
 * `kept` is a saved tensor, or workspace on a tape without gradients. So is b of all parts with
 * outgoing edges; with incoming edges nothing whole is read again. */
#include "trainer/model/triangle_part.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    fm_comm *comm;
    const char *name;
    int64_t n, n_part, c_z, c;
    int64_t kept; /* elements */
    bool incoming, keeps;
    fm_update update;
} attributes;

enum { IN_Z, IN_MASK };
enum { P_NORM_IN, P_PROJECTIONS, P_PROJECTIONS_BIAS, P_NORM_OUT, P_OUT, P_OUT_BIAS };
enum { S_KEPT, S_WHOLE };

static fm_triangle_block shape_of(const attributes *at) {
    return (fm_triangle_block){.n = at->n,
                               .c_z = at->c_z,
                               .c = at->c,
                               .n_part = at->n_part,
                               .incoming = at->incoming,
                               .residual = true,
                               .keeps = at->keeps,
                               .eps = FM_LAYERNORM_EPS,
                               .dropout = {.rate = at->update.rate, .shared = at->update.shared}};
}

/* Absent biases are zeros in the workspace. */
static fm_triangle_part part_of(fm_run *run, const fm_node *node, void *kept, void *whole) {
    const attributes *at = node->attributes;
    fm_triangle_block block = shape_of(at);
    block.z = fm_run_input(run, node, IN_Z);
    block.mask = fm_run_input(run, node, IN_MASK);
    block.norm_in = fm_run_param(run, node, P_NORM_IN);
    block.norm_out = fm_run_param(run, node, P_NORM_OUT);
    block.projections = fm_run_param(run, node, P_PROJECTIONS);
    block.projections_bias = fm_call_bias_or_zeros(run, 4 * at->c + at->c_z,
                                                   fm_run_param(run, node, P_PROJECTIONS_BIAS));
    block.out = fm_run_param(run, node, P_OUT);
    block.out_bias = fm_call_bias_or_zeros(run, at->c_z, fm_run_param(run, node, P_OUT_BIAS));
    block.dropout = fm_update_dropout(run, node, &at->update, 0);
    block.kept = kept;
    return (fm_triangle_part){.block = block, .whole = whole};
}

/* Whether b of all parts is kept for backward. */
static bool keeps_whole(const attributes *at) {
    return at->keeps && !at->incoming;
}

/* What is exchanged of a, b and x, or of their gradients, at `all` [3, c, n_part, n]: b for
 * outgoing edges, x for incoming ones. */
static void *exchanged_of(const fm_run *run, const attributes *at, const void *all) {
    int64_t plane = at->c * at->n * at->n_part;
    return fm_run_at(all, (at->incoming ? 2 : 1) * plane, run->kernels->act);
}

/* Gathers it from all ranks into `whole`, or sums all ranks' `whole` into it; backward the other
 * way round. The parts are rows of [c, n, n]. */
static void exchange(const fm_run *run, const attributes *at, bool back, void *part, void *whole) {
    const fm_parts of_part = {0, at->n_part * at->n};
    const fm_parts of_whole = {of_part.row, at->n * at->n};
    bool sums = at->incoming != back;
    const fm_message message = {.exchange =
                                    sums ? FM_EXCHANGE_REDUCE_SCATTER : FM_EXCHANGE_ALL_GATHER,
                                .element = run->kernels->act,
                                .name = at->name,
                                .rows = at->c,
                                .run = of_part.row,
                                .sent = sums ? of_whole : of_part,
                                .received = sums ? of_part : of_whole,
                                .held = keeps_whole(at) && !back, /* b: until backward */
                                .send = sums ? whole : part,
                                .receive = {sums ? part : whole, FM_WRITE}};
    if (run->dry) return;
    fm_ticket ticket = at->comm->begin(at->comm, &message, 1, run->stream);
    at->comm->finish(at->comm, ticket, run->stream);
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_triangle_block shape = shape_of(at);
    void *kept = at->keeps ? fm_run_saved(run, node, S_KEPT) : fm_run_workspace_act(run, at->kept);
    void *whole = keeps_whole(at) ? fm_run_saved(run, node, S_WHOLE)
                                  : fm_run_workspace_act(run, at->c * at->n * at->n);
    void *workspace =
        fm_run_workspace(run, (int64_t)run->kernels->triangle_part_workspace(&shape, false));
    fm_triangle_part part = part_of(run, node, kept, whole);
    part.block.y = fm_run_wants_output(run) ? fm_run_output(run, node, 0) : NULL;
    fm_call_triangle_part(run, FM_TRIANGLE_FRONT, &part, workspace);
    exchange(run, at, false, exchanged_of(run, at, kept), whole);
    fm_call_triangle_part(run, FM_TRIANGLE_BACK, &part, workspace);
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_triangle_block shape = shape_of(at);
    void *dwhole = fm_run_workspace_act(run, at->c * at->n * at->n);
    void *workspace =
        fm_run_workspace(run, (int64_t)run->kernels->triangle_part_workspace(&shape, true));
    const fm_triangle_block_grad grad = {
        .dy = fm_run_output_gradient(run, node, 0),
        .dz = fm_run_gradient(run, node, IN_Z),
        .dnorm_in = fm_run_param_gradient(run, node, P_NORM_IN),
        .dnorm_out = fm_run_param_gradient(run, node, P_NORM_OUT),
        .dprojections = fm_run_param_gradient(run, node, P_PROJECTIONS),
        .dprojections_bias = fm_run_param_gradient(run, node, P_PROJECTIONS_BIAS),
        .dout = fm_run_param_gradient(run, node, P_OUT),
        .dout_bias = fm_run_param_gradient(run, node, P_OUT_BIAS)};
    fm_triangle_part part = part_of(run, node, fm_run_saved(run, node, S_KEPT),
                                    keeps_whole(at) ? fm_run_saved(run, node, S_WHOLE) : NULL);
    part.dwhole = dwhole;
    part.grad = &grad;
    fm_call_triangle_part(run, FM_TRIANGLE_BACK_GRAD, &part, workspace);
    exchange(run, at, true, exchanged_of(run, at, workspace), dwhole);
    fm_call_triangle_part(run, FM_TRIANGLE_FRONT_GRAD, &part, workspace);
}

static const fm_op TRIANGLE_PART = {"triangle multiplication", forward, backward};

static attributes attributes_of(const fm_tape *tape, fm_comm *comm, bool incoming, fm_tensor_ref z,
                                const fm_triangle_weights *weights, double dropout) {
    const fm_tensor *x = fm_tape_tensor(tape, z);
    assert(x->rank == 3 && x->shape[0] == x->shape[1] && x->shard_axis == 0);
    return (attributes){.comm = comm,
                        .n = x->shape[0],
                        .n_part = x->local[0],
                        .c_z = x->local[2],
                        .c = weights->c,
                        .incoming = incoming,
                        .keeps = tape->with_gradient,
                        .update = fm_update_of(x, dropout, FM_SHARED_AXIS0)};
}

bool fm_triangle_part_exists(const fm_tape *tape, fm_comm *comm, bool incoming, fm_tensor_ref z,
                             const fm_triangle_weights *weights, double dropout) {
    const attributes at = attributes_of(tape, comm, incoming, z, weights, dropout);
    fm_triangle_block shape = shape_of(&at);
    return tape->kernels->triangle_part_kept(&shape) > 0;
}

fm_tensor_ref fm_triangle_part_add(fm_tape *tape, const char *name, fm_comm *comm, bool incoming,
                                   fm_tensor_ref z, fm_tensor_ref mask,
                                   const fm_triangle_weights *weights, double dropout) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &TRIANGLE_PART, name, sizeof(attributes), &memory);
    attributes *at = memory;
    *at = attributes_of(tape, comm, incoming, z, weights, dropout);
    at->name = name;
    fm_triangle_block shape = shape_of(at);
    at->kept = (int64_t)tape->kernels->triangle_part_kept(&shape);
    fm_node_draws(tape, node);
    fm_node_input(tape, node, z, true);
    fm_node_input(tape, node, mask, true);
    const fm_param_ref params[] = {
        weights->norm_in,  weights->projections, weights->projections_bias,
        weights->norm_out, weights->out,         weights->out_bias};
    for (int i = 0; i < 6; i++)
        fm_node_param(tape, node, params[i]);
    if (at->keeps) {
        fm_element act = tape->kernels->act;
        fm_node_save(tape, node, FM_KEEP, act, 1, (int64_t[]){at->kept});
        if (keeps_whole(at)) {
            fm_node_save(tape, node, FM_KEEP, act, 3, (int64_t[]){at->c, at->n, at->n});
        }
    }
    return fm_node_residual(tape, node, IN_Z);
}
