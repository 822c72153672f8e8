/* body/swiglu_transition.h: AlphaFold 3's transition, composed of other entries of the same table.
 */
#include "trainer/backend/cpu/body/real.h"
#include "trainer/backend/swiglu_transition.h"

static size_t swiglu_transition_kept(const fm_swiglu_transition *args) {
    return fm_swiglu_transition_composed_kept(args);
}

static size_t swiglu_transition_workspace(const fm_swiglu_transition *args) {
    return fm_swiglu_transition_composed_workspace(&REAL_TABLE, args);
}

static void swiglu_transition(fm_stream *stream, const fm_swiglu_transition *args,
                              void *workspace) {
    fm_swiglu_transition_composed(&REAL_TABLE, stream, args, workspace);
}

static size_t swiglu_transition_grad_workspace(const fm_swiglu_transition *args,
                                               const fm_swiglu_transition_grad *grad) {
    return fm_swiglu_transition_grad_composed_workspace(&REAL_TABLE, args, grad);
}

static void swiglu_transition_grad(fm_stream *stream, const fm_swiglu_transition *args,
                                   const fm_swiglu_transition_grad *grad, void *workspace) {
    fm_swiglu_transition_grad_composed(&REAL_TABLE, stream, args, grad, workspace);
}
