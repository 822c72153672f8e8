/* augment.c: see augment.h. */
#include "trainer/ops/augment.h"

#include "trainer/ops/call_noisy.h"

#include <assert.h>

/* Added to the number of atoms of the centre, as in the reference. */
static const double CENTRE_EPS = 1e-12;

enum { IN_X, IN_MASK, IN_ROTATION, IN_OFFSET };

static void augment_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    const fm_tensor *x = fm_tape_tensor(run->tape, node->input[IN_X]);
    const fm_tensor *y = fm_tape_tensor(run->tape, node->output[0]);
    int64_t n = y->local[1];
    bool masked = node->input[IN_MASK] != FM_TENSOR_NONE;
    fm_call_augment(run, &(fm_augment){.n_sample = y->local[0],
                                       .n = n,
                                       .x_stride = x->rank == 3 ? 3 * n : 0,
                                       .x = fm_run_input(run, node, IN_X),
                                       .mask = fm_run_input(run, node, IN_MASK),
                                       .rotation = fm_run_input(run, node, IN_ROTATION),
                                       .offset = fm_run_input(run, node, IN_OFFSET),
                                       .eps = masked ? CENTRE_EPS : 0,
                                       .y = fm_run_output(run, node, 0)});
}

static const fm_op AUGMENT = {"augment", augment_forward, NULL};

fm_tensor_ref fm_op_augment(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref mask,
                            const fm_structure_draws *draws) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &AUGMENT, "augmentation", 1, &memory);
    const fm_tensor *in = fm_tape_tensor(tape, x);
    int64_t n_sample = fm_tape_tensor(tape, draws->rotation)->local[0];
    int64_t n = in->local[in->rank - 2];
    assert(in->rank == 2 || (in->rank == 3 && in->local[0] == n_sample));
    fm_node_input(tape, node, x, false);
    fm_node_input(tape, node, mask, false);
    fm_node_input(tape, node, draws->rotation, false);
    fm_node_input(tape, node, draws->offset, false);
    node->without_gradient = ~0u;
    return fm_node_output(tape, node, in->element, 3, (int64_t[]){n_sample, n, 3});
}

/* -- draws */

typedef struct draw_attributes {
    uint32_t layer, purpose;
} draw_attributes;

static void draw_forward(fm_run *run, const fm_node *node) {
    const draw_attributes *at = node->attributes;
    if (!fm_run_wants_output(run)) return;
    const fm_tensor *y = fm_tape_tensor(run->tape, node->output[0]);
    const bool has_clocks = at->layer == FM_DRAW_SAMPLING && run->tape->clock;
    const int64_t n = y->local[0], n_clock = has_clocks ? n : 1;
    const int64_t count = fm_tensor_local_count(y) / n_clock;
    fm_draw draw = {run->tape->seed, run->tape->clock, at->layer, at->purpose};
    for (int64_t i = 0; i < n_clock; i++) {
        void *to = fm_run_at(fm_run_output(run, node, 0), i * count, y->element);
        if (has_clocks) draw.clock = run->tape->clock + i * FM_CLOCK_WORDS;
        if (at->purpose == FM_PURPOSE_ROTATION) {
            fm_call_draw_rotations(run, n / n_clock, &draw, to);
        } else {
            fm_call_draw_normal(run, count, &draw, to);
        }
    }
}

static const fm_op DRAW = {"draw structures", draw_forward, NULL};

static fm_tensor_ref draw(fm_tape *tape, fm_draw_structures of, fm_draw_purpose purpose, int rank,
                          const int64_t *shape) {
    void *memory;
    fm_node *node =
        fm_tape_add(tape, &DRAW, "draws of structures", sizeof(draw_attributes), &memory);
    *(draw_attributes *)memory = (draw_attributes){(uint32_t)of, (uint32_t)purpose};
    return fm_node_output(tape, node, tape->kernels->act, rank, shape);
}

fm_structure_draws fm_op_draw_structures(fm_tape *tape, fm_draw_structures of, int64_t n_sample,
                                         int64_t n_atom) {
    return (fm_structure_draws){
        draw(tape, of, FM_PURPOSE_ROTATION, 2, (int64_t[]){n_sample, 9}),
        draw(tape, of, FM_PURPOSE_OFFSET, 2, (int64_t[]){n_sample, 3}),
        draw(tape, of, FM_PURPOSE_NOISE, 3, (int64_t[]){n_sample, n_atom, 3})};
}
