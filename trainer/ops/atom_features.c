/* atom_features.c: see atom_features.h. */
#include "trainer/ops/atom_features.h"

#include "trainer/ops/call.h"

typedef struct attributes {
    int64_t n, c;
} attributes;

enum { IN_POSITION, IN_CHARGE, IN_MASK, IN_CLASSES };
enum { P_POSITION, P_CHARGE, P_ONE_HOT };

static fm_linear linear_of(const fm_run *run, const fm_node *node, int input, int64_t c_in) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->n,
                       .c_in = c_in,
                       .c_out = at->c,
                       .ldx = c_in,
                       .ldy = at->c,
                       .x = fm_run_input(run, node, input),
                       .w = fm_run_param(run, node, input)};
}

/* The columns of each feature in W_f. */
static const int64_t N_CLASS[FM_ATOM_CLASSES] = {1,
                                                 FM_ATOM_ELEMENTS,
                                                 FM_ATOM_CHARACTERS,
                                                 FM_ATOM_CHARACTERS,
                                                 FM_ATOM_CHARACTERS,
                                                 FM_ATOM_CHARACTERS};

static int64_t first_column(int k) {
    int64_t first = 0;
    for (int i = 0; i < k; i++)
        first += N_CLASS[i];
    return first;
}

static fm_lookup columns(const fm_run *run, const fm_node *node, int k) {
    const attributes *at = node->attributes;
    return (fm_lookup){
        .n_class = N_CLASS[k],
        .c = at->c,
        .class_stride = 1,
        .channel_stride = FM_ATOM_ONE_HOT,
        .w = fm_run_at(fm_run_param(run, node, P_ONE_HOT), first_column(k), run->kernels->act)};
}

static const uint8_t *classes_of(const fm_run *run, const fm_node *node, int k) {
    const attributes *at = node->attributes;
    return fm_run_at(fm_run_input(run, node, IN_CLASSES), k * at->n, FM_ELEMENT_U8);
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    if (!fm_run_wants_output(run)) return;
    void *y = fm_run_output(run, node, 0);
    fm_linear position = linear_of(run, node, IN_POSITION, 3);
    fm_call_linear(run, &position, false, y);
    fm_linear charge = linear_of(run, node, IN_CHARGE, 1);
    charge.residual = y;
    fm_call_linear(run, &charge, false, y);
    for (int k = 0; k < FM_ATOM_CLASSES; k++) {
        fm_lookup lookup = columns(run, node, k);
        fm_call_lookup(run, &lookup, at->n, classes_of(run, node, k), (fm_out){y, FM_ADD});
    }
    fm_call_scale_rows(run, at->n, at->c, fm_run_input(run, node, IN_MASK), y,
                       (fm_out){y, FM_WRITE});
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    void *dy = fm_run_workspace_act(run, at->n * at->c);
    fm_call_scale_rows(run, at->n, at->c, fm_run_input(run, node, IN_MASK),
                       fm_run_output_gradient(run, node, 0), (fm_out){dy, FM_WRITE});
    fm_linear position = linear_of(run, node, IN_POSITION, 3);
    fm_call_linear_grad(run, &position, dy, (fm_out){0},
                        fm_run_param_gradient(run, node, P_POSITION), (fm_out){0});
    fm_linear charge = linear_of(run, node, IN_CHARGE, 1);
    fm_call_linear_grad(run, &charge, dy, (fm_out){0}, fm_run_param_gradient(run, node, P_CHARGE),
                        (fm_out){0});
    fm_out dw = fm_run_param_gradient(run, node, P_ONE_HOT);
    for (int k = 0; k < FM_ATOM_CLASSES; k++) {
        fm_lookup lookup = columns(run, node, k);
        fm_call_lookup_grad(run, &lookup, at->n, classes_of(run, node, k), dy,
                            fm_out_at(dw, first_column(k), run->kernels->acc));
    }
}

static const fm_op ATOM_FEATURES = {"atom features", forward, backward};

fm_tensor_ref fm_op_atom_features(fm_tape *tape, const fm_atom_feature_inputs *inputs,
                                  const fm_atom_feature_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &ATOM_FEATURES, "atom features", sizeof(attributes), &memory);
    attributes *at = memory;
    *at = (attributes){fm_tape_tensor(tape, inputs->position)->local[0], weights->c};
    fm_node_input(tape, node, inputs->position, true);
    fm_node_input(tape, node, inputs->charge, true);
    fm_node_input(tape, node, inputs->mask, true);
    fm_node_input(tape, node, inputs->classes, true);
    fm_node_param(tape, node, weights->position);
    fm_node_param(tape, node, weights->charge);
    fm_node_param(tape, node, weights->one_hot);
    return fm_node_output(tape, node, tape->kernels->act, 2, (int64_t[]){at->n, at->c});
}
