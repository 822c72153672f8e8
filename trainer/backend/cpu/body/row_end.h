/* body/row_end.h: the last linear layer of a sublayer with the end of the sublayer, and the
 * transition, composed of other entries of the same table. */
#include "trainer/backend/cpu/body/real.h"
#include "trainer/backend/row_end.h"

static size_t linear_update_workspace(const fm_linear_update *args) {
    return fm_linear_update_composed_workspace(&REAL_TABLE, args);
}

static void linear_update(fm_stream *stream, const fm_linear_update *args, void *workspace) {
    fm_linear_update_composed(&REAL_TABLE, stream, args, workspace);
}

static size_t transition_workspace(const fm_transition *args) {
    return fm_transition_composed_workspace(&REAL_TABLE, args);
}

static void transition(fm_stream *stream, const fm_transition *args, void *workspace) {
    fm_transition_composed(&REAL_TABLE, stream, args, workspace);
}

static bool transition_keeps(const fm_transition *args) {
    (void)args;
    return true;
}

static size_t transition_grad_workspace(const fm_transition *args, const fm_transition_grad *grad) {
    return fm_transition_grad_composed_workspace(&REAL_TABLE, args, grad);
}

static void transition_grad(fm_stream *stream, const fm_transition *args,
                            const fm_transition_grad *grad, void *workspace) {
    fm_transition_grad_composed(&REAL_TABLE, stream, args, grad, workspace);
}
