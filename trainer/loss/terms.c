/* terms.c: see terms.h. */
#include "trainer/loss/terms.h"

#include <assert.h>

static const float LOWEST_RESOLUTION = 0.1f, HIGHEST_RESOLUTION = 3.0f; /* Å */

#define ROW(term, name, needs, turn, help) {#name, needs, turn, fm_loss_##name},
const fm_loss_term fm_loss_terms[FM_LOSS_TERMS] = {FM_LOSS_TERM_LIST(ROW)};
#undef ROW

static bool model_has(const fm_loss_term *term, const fm_loss_inputs *in) {
    return (in->has_structure || !(term->needs & FM_LOSS_STRUCTURE)) &&
           (in->n_aligned_error_bin > 0 || !(term->needs & FM_LOSS_ALIGNED_ERROR));
}

/* Returns the row of the term that is recorded at that turn. */
static int find_turn(int turn) {
    int i = 0;
    while (i < FM_LOSS_TERMS && fm_loss_terms[i].turn != turn)
        i++;
    assert(i < FM_LOSS_TERMS && "turns count from 0 without a gap");
    return i;
}

fm_tensor_ref fm_loss_record(fm_tape *tape, const fm_loss_inputs *in, fm_tensor_ref factors,
                             fm_tensor_ref ret_terms[FM_LOSS_TERMS]) {
    for (int turn = 0; turn < FM_LOSS_TERMS; turn++) {
        int i = find_turn(turn);
        const fm_loss_term *term = &fm_loss_terms[i];
        ret_terms[i] = model_has(term, in) ? term->record(tape, in) : FM_TENSOR_NONE;
    }
    fm_tensor_ref there[FM_LOSS_TERMS];
    int n = 0;
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        if (ret_terms[i] != FM_TENSOR_NONE) there[n++] = ret_terms[i];
    }
    return fm_op_total_loss(tape, there, n, factors);
}

bool fm_loss_counts(int term, float resolution) {
    bool known = resolution >= LOWEST_RESOLUTION && resolution <= HIGHEST_RESOLUTION;
    return known || !(fm_loss_terms[term].needs & FM_LOSS_RESOLUTION);
}

void fm_loss_put_factors(const fm_tensor_ref terms[FM_LOSS_TERMS],
                         const double weights[FM_LOSS_TERMS], double scale, float resolution,
                         double *factors) {
    int n = 0;
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        if (terms[i] == FM_TENSOR_NONE) continue;
        factors[n++] = fm_loss_counts(i, resolution) ? weights[i] * scale : 0;
    }
}
