/* binned.c: see binned.h. */
#include "trainer/loss/binned.h"

#include "trainer/ops/call.h"

#include <assert.h>

enum { IN_LOGITS };
enum { S_LSE = FM_BINNED_WEIGHT + 1, S_WEIGHT_SUM };

static fm_cross_entropy entropy_of(const fm_run *run, const fm_node *node) {
    const fm_binned *at = node->attributes;
    return (fm_cross_entropy){.rows = at->rows,
                              .n_class = at->n_bin,
                              .ldx = at->n_bin,
                              .eps = at->eps,
                              .x = fm_run_input(run, node, IN_LOGITS),
                              .target = fm_run_saved(run, node, FM_BINNED_TARGET),
                              .w = fm_run_saved(run, node, FM_BINNED_WEIGHT),
                              .lse = fm_run_saved(run, node, S_LSE),
                              .weight_sum = fm_run_saved(run, node, S_WEIGHT_SUM)};
}

void fm_binned_forward(fm_run *run, const fm_node *node) {
    fm_cross_entropy entropy = entropy_of(run, node);
    entropy.loss = fm_run_output(run, node, 0);
    fm_call_cross_entropy(run, &entropy);
}

void fm_binned_backward(fm_run *run, const fm_node *node) {
    fm_cross_entropy entropy = entropy_of(run, node);
    fm_out dlogits = fm_run_gradient(run, node, IN_LOGITS);
    if (dlogits.data) {
        fm_call_cross_entropy_grad(run, &entropy, fm_run_output_gradient(run, node, 0), dlogits);
    }
}

fm_tensor_ref fm_binned_record(fm_tape *tape, fm_node *node) {
    const fm_binned *at = node->attributes;
    const fm_tensor *logits = fm_tape_tensor(tape, node->input[IN_LOGITS]);
    assert(fm_tensor_local_count(logits) == at->rows * at->n_bin);
    (void)logits;
    fm_element act = tape->kernels->act, acc = tape->kernels->acc;
    const int64_t rows[] = {at->rows}, one[] = {1};
    fm_node_save(tape, node, FM_KEEP, FM_ELEMENT_I32, 1, rows);
    fm_node_save(tape, node, FM_KEEP, act, 1, rows);
    fm_node_save(tape, node, FM_KEEP, acc, 1, rows);
    fm_node_save(tape, node, FM_KEEP, acc, 1, one);
    return fm_node_output(tape, node, acc, 1, one);
}
