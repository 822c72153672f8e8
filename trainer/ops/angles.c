/* angles.c: the residual network of the torsion angles (A20:11-14); see structure_layers.h.
 *
 * The iterations of the structure module have the same weights, so each layer is one product on the
 * rows of all iterations, [n_part n, c]. */
#include "trainer/ops/structure_layers.h"

#include "trainer/ops/call_structure.h"

#include <assert.h>

typedef struct attributes {
    int64_t n, c_s, c;
    int32_t n_block, n_part;
} attributes;

/* Inputs: the initial s, then s of each iteration. */
enum { IN_INITIAL, IN_S };
enum { P_IN, P_IN_BIAS, P_HIDDEN, P_HIDDEN_BIAS, P_OUT, P_OUT_BIAS };
enum { LAYER_S, LAYER_INITIAL }; /* of P_IN */
/* Saved: relu of all inputs [1 + n_part, n, c_s]; and [2 n_block + 1, n_part n, c], the relu of
 * each block's input and of its hidden layer, then of the output of the last block. */
enum { S_INPUTS, S_LAYERS };

static int64_t rows_of(const attributes *at) {
    return at->n_part * at->n;
}

/* Elements of a layer. */
static int64_t count_of(const attributes *at) {
    return rows_of(at) * at->c;
}

static void *saved_input(const fm_run *run, const fm_node *node, int input) {
    const attributes *at = node->attributes;
    return fm_run_at(fm_run_saved(run, node, S_INPUTS), input * at->n * at->c_s, run->kernels->act);
}

static void *saved_layer(const fm_run *run, const fm_node *node, int i) {
    return fm_run_at(fm_run_saved(run, node, S_LAYERS), i * count_of(node->attributes),
                     run->kernels->act);
}

static fm_linear layer_of(const fm_run *run, const fm_node *node, int param, int64_t slice,
                          int64_t c_in, int64_t c_out, const void *x) {
    fm_element act = run->kernels->act;
    return (fm_linear){.rows = rows_of(node->attributes),
                       .c_in = c_in,
                       .c_out = c_out,
                       .ldx = c_in,
                       .ldy = c_out,
                       .x = x,
                       .w = fm_run_at(fm_run_param(run, node, param), slice * c_in * c_out, act),
                       .bias = fm_run_at(fm_run_param(run, node, param + 1), slice * c_out, act)};
}

/* The layer on s of all iterations, or on the initial s, which has n rows. */
static fm_linear in_of(const fm_run *run, const fm_node *node, int layer) {
    const attributes *at = node->attributes;
    bool initial = layer == LAYER_INITIAL;
    fm_linear in = layer_of(run, node, P_IN, layer, at->c_s, at->c,
                            saved_input(run, node, initial ? IN_INITIAL : IN_S));
    in.rows = initial ? at->n : in.rows;
    return in;
}

/* The linear layer i of the blocks, 0 .. 2 n_block - 1. */
static fm_linear hidden_of(const fm_run *run, const fm_node *node, int i) {
    const attributes *at = node->attributes;
    return layer_of(run, node, P_HIDDEN, i, at->c, at->c, saved_layer(run, node, i));
}

static fm_linear out_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return layer_of(run, node, P_OUT, 0, at->c, 2 * FM_N_ANGLE,
                    saved_layer(run, node, 2 * at->n_block));
}

/* y [n_part, n c] = x [n c] for every iteration. */
static void spread(fm_run *run, const attributes *at, const void *x, void *y) {
    int64_t one = at->n * at->c;
    fm_call_copy_strided(run, &(fm_strided){.rank = 2,
                                            .shape = {at->n_part, one},
                                            .x_stride = {0, 1},
                                            .y_stride = {one, 1},
                                            .alpha = 1,
                                            .x = x,
                                            .y = {y, FM_WRITE}});
}

/* Makes the first layer a [n_part n, c] (A20:11). The part of the initial s is made once. */
static void first_layer(fm_run *run, const fm_node *node, void *a) {
    const attributes *at = node->attributes;
    for (int i = 0; i < node->n_input; i++)
        fm_call_relu(run, at->n * at->c_s, fm_run_input(run, node, i), saved_input(run, node, i));
    fm_linear initial = in_of(run, node, LAYER_INITIAL), s = in_of(run, node, LAYER_S);
    if (at->n_part == 1) {
        fm_call_linear(run, &initial, false, a);
    } else {
        int64_t mark = fm_run_mark(run);
        void *one = fm_run_workspace_act(run, at->n * at->c);
        fm_call_linear(run, &initial, false, one);
        spread(run, at, one, a);
        fm_run_release(run, mark);
    }
    s.residual = a;
    fm_call_linear(run, &s, false, a);
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t count = count_of(at);
    void *a = fm_run_workspace_act(run, count);
    first_layer(run, node, a);
    for (int block = 0; block < at->n_block; block++) {
        fm_call_relu(run, count, a, saved_layer(run, node, 2 * block));
        fm_linear first = hidden_of(run, node, 2 * block);
        fm_call_linear(run, &first, true, saved_layer(run, node, 2 * block + 1));
        fm_linear second = hidden_of(run, node, 2 * block + 1);
        second.residual = a;
        fm_call_linear(run, &second, false, a); /* A20:12-13 */
    }
    fm_call_relu(run, count, a, saved_layer(run, node, 2 * at->n_block));
    if (fm_run_wants_output(run)) {
        fm_linear out = out_of(run, node);
        fm_call_linear(run, &out, false, fm_run_output(run, node, 0)); /* A20:14 */
    }
}

static fm_out hidden_bias_gradient(const fm_run *run, const fm_node *node, int i) {
    const attributes *at = node->attributes;
    return fm_out_at(fm_run_param_gradient(run, node, P_HIDDEN_BIAS), i * at->c, run->kernels->acc);
}

/* Adds to da the gradient that comes through a block. da is the gradient of its output, whose sum
 * over rows, the bias gradient of the block's second layer, has been made. */
static void block_backward(fm_run *run, const fm_node *node, int block, void *da, void *dhidden,
                           void *dinput) {
    const attributes *at = node->attributes;
    fm_element acc = run->kernels->acc;
    fm_out dw = fm_run_param_gradient(run, node, P_HIDDEN);
    int first = 2 * block, second = first + 1;
    fm_linear layer = hidden_of(run, node, second);
    layer.x_is_relu = true;
    layer.x_dbias = hidden_bias_gradient(run, node, first);
    fm_call_linear_grad(run, &layer, da, (fm_out){dhidden, FM_WRITE},
                        fm_out_at(dw, second * at->c * at->c, acc), (fm_out){0});
    layer = hidden_of(run, node, first);
    fm_call_linear_grad(run, &layer, dhidden, (fm_out){dinput, FM_WRITE},
                        fm_out_at(dw, first * at->c * at->c, acc), (fm_out){0});
    fm_call_relu_grad(run, count_of(at), layer.x, dinput, (fm_out){da, FM_ADD});
}

/* Passes the gradient da of a first layer's product back to the inputs whose ReLUs it read, `count`
 * inputs from `first` on. */
static void in_backward(fm_run *run, const fm_node *node, int layer, int first, int count,
                        const void *da) {
    const attributes *at = node->attributes;
    fm_element acc = run->kernels->acc, act = run->kernels->act;
    int64_t one = at->n * at->c_s, mark = fm_run_mark(run);
    fm_linear in = in_of(run, node, layer);
    void *drelu = fm_run_workspace_act(run, count * one);
    bool wanted = false;
    for (int i = 0; i < count; i++)
        wanted |= fm_run_gradient(run, node, first + i).data != NULL;
    fm_call_linear_grad(
        run, &in, da, (fm_out){wanted ? drelu : NULL, FM_WRITE},
        fm_out_at(fm_run_param_gradient(run, node, P_IN), layer * at->c * at->c_s, acc),
        fm_out_at(fm_run_param_gradient(run, node, P_IN_BIAS), layer * at->c, acc));
    for (int i = 0; i < count; i++) {
        fm_out dx = fm_run_gradient(run, node, first + i);
        if (dx.data) {
            fm_call_relu_grad(run, one, saved_input(run, node, first + i),
                              fm_run_at(drelu, i * one, act), dx);
        }
    }
    fm_run_release(run, mark);
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t count = count_of(at), one = at->n * at->c;
    void *da = fm_run_workspace_act(run, count), *dinput = fm_run_workspace_act(run, count);
    void *dhidden = fm_run_workspace_act(run, count);
    fm_linear out = out_of(run, node);
    out.x_is_relu = true;
    out.x_dbias = hidden_bias_gradient(run, node, 2 * at->n_block - 1);
    fm_call_linear_grad(run, &out, fm_run_output_gradient(run, node, 0), (fm_out){da, FM_WRITE},
                        fm_run_param_gradient(run, node, P_OUT),
                        fm_run_param_gradient(run, node, P_OUT_BIAS));
    for (int block = at->n_block - 1; block >= 0; block--) {
        block_backward(run, node, block, da, dhidden, dinput);
        if (block > 0) {
            fm_call_sum(run, 1, rows_of(at), at->c, 0, at->c, da,
                        hidden_bias_gradient(run, node, 2 * block - 1), true);
        }
    }
    in_backward(run, node, LAYER_S, IN_S, at->n_part, da);
    if (at->n_part > 1) {
        fm_call_sum(run, 1, at->n_part, one, 0, one, da, (fm_out){dinput, FM_WRITE}, false);
        da = dinput;
    }
    in_backward(run, node, LAYER_INITIAL, IN_INITIAL, 1, da);
}

static const fm_op ANGLES = {"torsion angles", forward, backward};

fm_tensor_ref fm_op_angles(fm_tape *tape, const fm_tensor_ref *s, int n_part, fm_tensor_ref initial,
                           const fm_angle_weights *w) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &ANGLES, "torsion angles", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, initial);
    assert(x->rank == 2 && n_part >= 1 && n_part <= FM_MAX_ANGLE_PARTS && w->n_block >= 1);
    *at = (attributes){
        .n = x->local[0], .c_s = x->local[1], .c = w->c, .n_block = w->n_block, .n_part = n_part};
    fm_node_input(tape, node, initial, false);
    for (int i = 0; i < n_part; i++) {
        assert(fm_tensor_local_count(fm_tape_tensor(tape, s[i])) == at->n * at->c_s);
        fm_node_input(tape, node, s[i], false);
    }
    const fm_param_ref params[] = {w->in,          w->in_bias, w->hidden,
                                   w->hidden_bias, w->out,     w->out_bias};
    for (int i = 0; i < 6; i++)
        fm_node_param(tape, node, params[i]);
    fm_node_save(tape, node, FM_KEEP, x->element, 3, (int64_t[]){1 + n_part, at->n, at->c_s});
    fm_node_save(tape, node, FM_KEEP, x->element, 3,
                 (int64_t[]){2 * at->n_block + 1, rows_of(at), at->c});
    return fm_node_output(tape, node, x->element, 4, (int64_t[]){n_part, at->n, FM_N_ANGLE, 2});
}
