/* swiglu_transition.c: see swiglu_transition.h. */
#include "trainer/ops/swiglu_transition.h"

#include "trainer/ops/call.h"

typedef struct attributes {
    int64_t rows, c, hidden;
    int64_t slab; /* rows at a time */
} attributes;

enum { IN_X };
enum { P_NORM, P_W1, P_W2 };

static fm_swiglu_transition args_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_swiglu_transition){.rows = at->rows,
                                  .c = at->c,
                                  .hidden = at->hidden,
                                  .residual = node->residual >= 0,
                                  .x = fm_run_input(run, node, IN_X),
                                  .norm = fm_run_param(run, node, P_NORM),
                                  .w1 = fm_run_param(run, node, P_W1),
                                  .w2 = fm_run_param(run, node, P_W2),
                                  .kept = node->n_saved ? fm_run_saved(run, node, 0) : NULL};
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const fm_element act = run->kernels->act;
    const fm_swiglu_transition all = args_of(run, node);
    void *y = fm_run_wants_output(run) ? fm_run_output(run, node, 0) : NULL;
    void *kept = node->n_saved && fm_run_drops_saved(run, node, 0) ? NULL : all.kept;
    if (!y && !kept) return;
    for (int64_t first = 0; first < at->rows; first += at->slab) {
        const int64_t left = at->rows - first;
        fm_swiglu_transition args = all;
        args.rows = left < at->slab ? left : at->slab;
        args.x = fm_run_at(all.x, first * at->c, act);
        args.y = fm_run_at(y, first * at->c, act);
        args.kept = kept;
        fm_call_swiglu_transition(run, &args);
    }
}

static void backward(fm_run *run, const fm_node *node) {
    fm_swiglu_transition args = args_of(run, node);
    fm_call_swiglu_transition_grad(
        run, &args,
        &(fm_swiglu_transition_grad){.dy = fm_run_output_gradient(run, node, 0),
                                     .dx = fm_run_gradient(run, node, IN_X),
                                     .dnorm = fm_run_param_gradient(run, node, P_NORM),
                                     .dw1 = fm_run_param_gradient(run, node, P_W1),
                                     .dw2 = fm_run_param_gradient(run, node, P_W2)});
}

static const fm_op SWIGLU_TRANSITION = {"swiglu transition", forward, backward};

fm_tensor_ref fm_op_swiglu_transition(fm_tape *tape, const char *name, fm_tensor_ref x,
                                      const fm_swiglu_transition_weights *weights, bool residual,
                                      fm_keep keep) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &SWIGLU_TRANSITION, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *tensor = fm_tape_tensor(tape, x);
    at->c = tensor->local[tensor->rank - 1];
    at->rows = fm_tensor_local_count(tensor) / at->c;
    at->hidden = weights->hidden;
    const fm_swiglu_transition whole = {
        .rows = at->rows, .c = at->c, .hidden = at->hidden, .residual = residual};
    at->slab = at->rows;
    if (tape->chunk_bytes > 0 &&
        (int64_t)tape->kernels->swiglu_transition_workspace(&whole) > tape->chunk_bytes) {
        at->slab = fm_call_chunk(tape, at->rows, at->c + 3 * at->hidden);
    }
    fm_node_input(tape, node, x, true);
    fm_node_param(tape, node, weights->norm);
    fm_node_param(tape, node, weights->w1);
    fm_node_param(tape, node, weights->w2);
    int64_t kept = (int64_t)tape->kernels->swiglu_transition_kept(&whole);
    bool saves = tape->with_gradient && kept > 0;
    if (saves) fm_node_save(tape, node, keep, tensor->element, 1, &kept);
    return residual ? fm_node_residual(tape, node, IN_X)
                    : fm_node_output_described(tape, node, tensor);
}
