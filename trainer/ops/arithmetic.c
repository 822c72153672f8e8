/* arithmetic.c: see arithmetic.h. */
#include "trainer/ops/arithmetic.h"

#include "trainer/ops/call_structure.h"

#include <assert.h>

static int64_t count_of(const fm_run *run, fm_tensor_ref tensor) {
    return fm_tensor_local_count(fm_tape_tensor(run->tape, tensor));
}

/* -- sum */

enum { IN_A, IN_B };

static void add_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    int64_t n_a = count_of(run, node->input[IN_A]), n_b = count_of(run, node->input[IN_B]);
    const void *a = fm_run_input(run, node, IN_A), *b = fm_run_input(run, node, IN_B);
    void *y = fm_run_output(run, node, 0);
    if (n_a == n_b) {
        const fm_tensor *like = fm_tape_tensor(run->tape, node->input[IN_A]);
        int64_t c = like->local[like->rank - 1];
        fm_call_add(run, n_a / c, c, a, b, y);
        return;
    }
    fm_call_copy(run, n_a, a, y);
    fm_call_copy_strided(run, &(fm_strided){.rank = 2,
                                            .shape = {n_a / n_b, n_b},
                                            .x_stride = {0, 1},
                                            .y_stride = {n_b, 1},
                                            .alpha = 1,
                                            .x = b,
                                            .y = {y, FM_ADD}});
}

static void add_backward(fm_run *run, const fm_node *node) {
    int64_t n_a = count_of(run, node->input[IN_A]), n_b = count_of(run, node->input[IN_B]);
    const void *dy = fm_run_output_gradient(run, node, 0);
    fm_call_axpy(run, n_a, 1.0, dy, fm_run_gradient(run, node, IN_A));
    fm_out db = fm_run_gradient(run, node, IN_B);
    if (n_a == n_b) {
        fm_call_axpy(run, n_b, 1.0, dy, db);
    } else {
        fm_call_sum(run, 1, n_a / n_b, n_b, 0, n_b, dy, db, false);
    }
}

static const fm_op ADD = {"add", add_forward, add_backward};

fm_tensor_ref fm_op_add(fm_tape *tape, const char *name, fm_tensor_ref a, fm_tensor_ref b) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &ADD, name, 1, &memory);
    const fm_tensor *at_a = fm_tape_tensor(tape, a), *at_b = fm_tape_tensor(tape, b);
    int first = 0; /* the first axis of b that counts */
    while (first + 1 < at_b->rank && at_b->local[first] == 1)
        first++;
    for (int i = at_b->rank - 1, k = at_a->rank - 1; i >= first; i--, k--)
        assert(k >= 0 && at_a->local[k] == at_b->local[i]);
    fm_node_input(tape, node, a, false);
    fm_node_input(tape, node, b, false);
    return fm_node_output_described(tape, node, at_a);
}

/* -- ReLU */

static void relu_forward(fm_run *run, const fm_node *node) {
    if (fm_run_wants_output(run)) {
        fm_call_relu(run, count_of(run, node->input[0]), fm_run_input(run, node, 0),
                     fm_run_output(run, node, 0));
    }
}

static void relu_backward(fm_run *run, const fm_node *node) {
    fm_call_relu_grad(run, count_of(run, node->input[0]), fm_run_output(run, node, 0),
                      fm_run_output_gradient(run, node, 0), fm_run_gradient(run, node, 0));
}

static const fm_op RELU = {"relu", relu_forward, relu_backward};

fm_tensor_ref fm_op_relu(fm_tape *tape, const char *name, fm_tensor_ref x) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &RELU, name, 1, &memory);
    fm_node_input(tape, node, x, false);
    fm_node_reads_output(node, 0);
    return fm_node_output_described(tape, node, fm_tape_tensor(tape, x));
}

/* -- clip */

typedef struct clip_attributes {
    double limit;
} clip_attributes;

/* y = x - max(x - limit, 0) + max(-x - limit, 0): exact where nothing is clipped. */
static void clip_forward(fm_run *run, const fm_node *node) {
    const clip_attributes *at = node->attributes;
    const fm_tensor *x = fm_tape_tensor(run->tape, node->input[0]);
    int64_t count = fm_tensor_local_count(x), c = x->local[x->rank - 1];
    if (!fm_run_wants_output(run)) return;
    const void *in = fm_run_input(run, node, 0);
    void *y = fm_run_output(run, node, 0), *over = fm_run_workspace_act(run, count);
    void *limit = fm_run_workspace_act(run, c);
    fm_call_fill(run, c, -at->limit, limit);
    fm_call_copy(run, count, in, y);
    for (int side = 1; side >= -1; side -= 2) {
        fm_call_axpy(run, count, side, in, (fm_out){over, FM_WRITE});
        fm_call_bias_add(run, count / c, c, limit, over);
        fm_call_relu(run, count, over, over);
        fm_call_axpy(run, count, -side, over, (fm_out){y, FM_ADD});
    }
}

static const fm_op CLIP = {"clip", clip_forward, NULL};

fm_tensor_ref fm_op_clip(fm_tape *tape, const char *name, fm_tensor_ref x, double limit) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &CLIP, name, sizeof(clip_attributes), &memory);
    *(clip_attributes *)memory = (clip_attributes){.limit = limit};
    fm_node_input(tape, node, x, false);
    return fm_node_output_described(tape, node, fm_tape_tensor(tape, x));
}

/* -- x + x^T */

/* y_ij = x_ij + x_ji (+ y_ij). The operation is its own backward. */
static void symmetrise(fm_run *run, const fm_tensor *shape, const void *x, fm_out y) {
    int64_t n = shape->local[0], c = shape->local[2];
    fm_call_axpy(run, n * n * c, 1.0, x, y);
    fm_call_copy_strided(run, &(fm_strided){.rank = 3,
                                            .shape = {n, n, c},
                                            .x_stride = {c, n * c, 1},
                                            .y_stride = {n * c, c, 1},
                                            .alpha = 1,
                                            .x = x,
                                            .y = {y.data, FM_ADD}});
}

static void symmetrise_forward(fm_run *run, const fm_node *node) {
    if (fm_run_wants_output(run)) {
        symmetrise(run, fm_tape_tensor(run->tape, node->input[0]), fm_run_input(run, node, 0),
                   (fm_out){fm_run_output(run, node, 0), FM_WRITE});
    }
}

static void symmetrise_backward(fm_run *run, const fm_node *node) {
    symmetrise(run, fm_tape_tensor(run->tape, node->input[0]), fm_run_output_gradient(run, node, 0),
               fm_run_gradient(run, node, 0));
}

static const fm_op SYMMETRISE = {"symmetrise", symmetrise_forward, symmetrise_backward};

fm_tensor_ref fm_op_symmetrise(fm_tape *tape, const char *name, fm_tensor_ref x) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &SYMMETRISE, name, 1, &memory);
    const fm_tensor *at = fm_tape_tensor(tape, x);
    assert(at->rank == 3 && at->local[0] == at->local[1] && at->shard_axis < 0);
    fm_node_input(tape, node, x, false);
    return fm_node_output_described(tape, node, at);
}

/* -- sum over the first axis */

typedef struct groups_attributes {
    double scale;
} groups_attributes;

static void groups_forward(fm_run *run, const fm_node *node) {
    const groups_attributes *at = node->attributes;
    const fm_tensor *x = fm_tape_tensor(run->tape, node->input[0]);
    int64_t n = x->local[0], count = fm_tensor_local_count(x) / n;
    if (!fm_run_wants_output(run)) return;
    void *y = fm_run_output(run, node, 0);
    fm_call_sum(run, 1, n, count, 0, count, fm_run_input(run, node, 0), (fm_out){y, FM_WRITE},
                false);
    fm_call_axpy(run, count, at->scale, y, (fm_out){y, FM_WRITE});
}

static void groups_backward(fm_run *run, const fm_node *node) {
    const groups_attributes *at = node->attributes;
    const fm_tensor *x = fm_tape_tensor(run->tape, node->input[0]);
    int64_t n = x->local[0], count = fm_tensor_local_count(x) / n;
    fm_call_copy_strided(run, &(fm_strided){.rank = 2,
                                            .shape = {n, count},
                                            .x_stride = {0, 1},
                                            .y_stride = {count, 1},
                                            .alpha = at->scale,
                                            .x = fm_run_output_gradient(run, node, 0),
                                            .y = fm_run_gradient(run, node, 0)});
}

static const fm_op SUM_GROUPS = {"sum groups", groups_forward, groups_backward};

fm_tensor_ref fm_op_sum_groups(fm_tape *tape, const char *name, fm_tensor_ref x, double scale) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &SUM_GROUPS, name, sizeof(groups_attributes), &memory);
    *(groups_attributes *)memory = (groups_attributes){.scale = scale};
    const fm_tensor *at = fm_tape_tensor(tape, x);
    assert(at->rank > 1 && at->shard_axis <= 0);
    fm_node_input(tape, node, x, false);
    return fm_node_output(tape, node, at->element, at->rank - 1, at->local + 1);
}

/* -- outer sum */

static void outer_forward(fm_run *run, const fm_node *node) {
    const fm_tensor *z = fm_tape_tensor(run->tape, node->output[0]);
    if (!fm_run_wants_output(run)) return;
    fm_call_outer_sum(run, z->local[0], z->local[1], z->local[2], z->local[2],
                      fm_run_input(run, node, IN_A), fm_run_input(run, node, IN_B),
                      (fm_out){fm_run_output(run, node, 0), FM_WRITE});
}

static void outer_backward(fm_run *run, const fm_node *node) {
    const fm_tensor *z = fm_tape_tensor(run->tape, node->output[0]);
    fm_call_outer_sum_grad(run, z->local[0], z->local[1], z->local[2], z->local[2],
                           fm_run_output_gradient(run, node, 0), fm_run_gradient(run, node, IN_A),
                           fm_run_gradient(run, node, IN_B));
}

static const fm_op OUTER_SUM = {"outer sum", outer_forward, outer_backward};

fm_tensor_ref fm_op_outer_sum(fm_tape *tape, const char *name, fm_tensor_ref a, fm_tensor_ref b) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &OUTER_SUM, name, 1, &memory);
    const fm_tensor *at_a = fm_tape_tensor(tape, a), *at_b = fm_tape_tensor(tape, b);
    int64_t c = at_a->local[at_a->rank - 1], n = fm_tensor_local_count(at_a) / c;
    bool split = at_a->shard_axis >= 0;
    assert(at_b->local[at_b->rank - 1] == c && (!split || at_a->shard_axis == at_a->rank - 2));
    fm_tensor out;
    fm_tensor_init(
        &out, name, at_a->element, 3,
        (int64_t[]){split ? n * at_a->shard_count : n, fm_tensor_local_count(at_b) / c, c});
    if (split) fm_tensor_shard(&out, 0, at_a->shard_rank, at_a->shard_count);
    fm_node_input(tape, node, a, false);
    fm_node_input(tape, node, b, false);
    return fm_node_output_described(tape, node, &out);
}
