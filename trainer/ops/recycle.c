/* recycle.c: the recycling embedder (A32); see embed.h. */
#include "trainer/ops/embed.h"

#include "trainer/ops/call.h"

#include <assert.h>

enum { IN_TARGET, IN_PREVIOUS, IN_BINS };
enum { P_NORM, P_DISTANCE, P_DISTANCE_BIAS };

typedef struct attributes {
    int64_t rows, c; /* the recycled part: N_res rows of m, or N_res^2 of z */
    int64_t all;     /* elements of the residual */
    int64_t n_bin;
} attributes;

static fm_lookup distance_lookup(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_lookup){.n_class = at->n_bin,
                       .c = at->c,
                       .class_stride = 1,
                       .channel_stride = at->n_bin,
                       .w = fm_run_param(run, node, P_DISTANCE)};
}

static fm_norm norm_previous(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return fm_call_norm(run, at->rows, at->c, fm_run_input(run, node, IN_PREVIOUS),
                        fm_run_param(run, node, P_NORM));
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    if (!fm_run_wants_output(run)) return;
    void *y = fm_run_output(run, node, 0);
    fm_norm normed = norm_previous(run, node); /* A32:4 m, A32:3 z */
    if (at->n_bin) {
        const void *bins = fm_run_input(run, node, IN_BINS);
        fm_lookup distance = distance_lookup(run, node);
        if (bins) {
            fm_call_lookup(run, &distance, at->rows, bins, (fm_out){normed.y, FM_ADD}); /* A32:2 */
        }
        fm_call_bias_add(run, at->rows, at->c, fm_run_param(run, node, P_DISTANCE_BIAS), normed.y);
    }
    fm_call_copy(run, at->all, fm_run_input(run, node, IN_TARGET), y);
    fm_call_axpy(run, at->rows * at->c, 1.0, normed.y, (fm_out){y, FM_ADD});
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const void *dy = fm_run_output_gradient(run, node, 0);
    if (at->n_bin) {
        const void *bins = fm_run_input(run, node, IN_BINS);
        fm_lookup distance = distance_lookup(run, node);
        fm_out dw = fm_run_param_gradient(run, node, P_DISTANCE);
        if (bins) {
            fm_call_lookup_grad(run, &distance, at->rows, bins, dy, dw);
        } else if (dw.beta == FM_WRITE) {
            fm_call_fill_acc(run, at->n_bin * at->c, 0.0, dw.data);
        }
        fm_call_sum(run, 1, at->rows, at->c, 0, at->c, dy,
                    fm_run_param_gradient(run, node, P_DISTANCE_BIAS), true);
    }
    fm_norm normed = norm_previous(run, node);
    fm_call_norm_grad(run, &normed, dy, fm_run_gradient(run, node, IN_PREVIOUS),
                      fm_run_param_gradient(run, node, P_NORM));
}

static const fm_op RECYCLE = {"recycle", forward, backward};

fm_tensor_ref fm_op_recycle_msa(fm_tape *tape, fm_tensor_ref m, fm_tensor_ref previous,
                                const fm_recycle_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &RECYCLE, "recycle msa", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, previous);
    assert(x->rank == 2 && fm_tape_tensor(tape, m)->local[1] == x->local[0]);
    *at = (attributes){.rows = x->local[0],
                       .c = x->local[1],
                       .all = fm_tensor_local_count(fm_tape_tensor(tape, m))};
    fm_node_input(tape, node, m, false);
    fm_node_input(tape, node, previous, true);
    fm_node_param(tape, node, weights->norm_m);
    return fm_node_residual(tape, node, IN_TARGET);
}

typedef struct bins_attributes {
    int64_t first, n_i, n_j;
    int32_t n_bin;
} bins_attributes;

static void bins_forward(fm_run *run, const fm_node *node) {
    const bins_attributes *at = node->attributes;
    if (fm_run_wants_output(run)) {
        const fm_distance_classes classes = {
            .n = at->n_bin, .first = 3.25f, .last = 20.75f, .most_square = 1e8f};
        fm_call_distance_ids(run, at->first, at->n_i, at->n_j, fm_run_input(run, node, 0), &classes,
                             fm_run_output(run, node, 0));
    }
}

static const fm_op BINS = {"recycle bins", bins_forward, NULL};

fm_tensor_ref fm_op_recycle_bins(fm_tape *tape, fm_tensor_ref x, int64_t n_bin, fm_part part) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &BINS, "recycle bins", sizeof(bins_attributes), &memory);
    const fm_tensor *positions = fm_tape_tensor(tape, x);
    assert(positions->rank == 2 && positions->local[1] == 3);
    assert(positions->element == FM_ELEMENT_F32);
    bins_attributes *at = memory;
    fm_tensor out = fm_tensor_rows_of(FM_ELEMENT_U8, positions->local[0], 1, part);
    *at = (bins_attributes){.first = fm_tensor_first(&out, 0),
                            .n_i = out.local[0],
                            .n_j = out.local[1],
                            .n_bin = (int32_t)n_bin};
    fm_node_input(tape, node, x, false);
    return fm_node_output_described(tape, node, &out);
}

fm_tensor_ref fm_op_recycle_pair(fm_tape *tape, fm_tensor_ref z, fm_tensor_ref previous,
                                 fm_tensor_ref bins, const fm_recycle_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &RECYCLE, "recycle pair", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, previous);
    assert(x->rank == 3 &&
           fm_tensor_local_count(x) == fm_tensor_local_count(fm_tape_tensor(tape, z)));
    *at = (attributes){.rows = x->local[0] * x->local[1],
                       .c = x->local[2],
                       .all = fm_tensor_local_count(x),
                       .n_bin = weights->n_bin};
    fm_node_input(tape, node, z, false);
    fm_node_input(tape, node, previous, true);
    fm_node_input(tape, node, bins, true);
    fm_node_param(tape, node, weights->norm_z);
    fm_node_param(tape, node, weights->distance);
    fm_node_param(tape, node, weights->distance_bias);
    return fm_node_residual(tape, node, IN_TARGET);
}
