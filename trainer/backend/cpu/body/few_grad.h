/* body/few_grad.h: both gradients of a linear layer with few outputs, composed of other entries of
 * the same table. */
#include "trainer/backend/cpu/body/real.h"
#include "trainer/backend/few_grad.h"

static size_t few_grad_workspace(const fm_few_grad *args) {
    return fm_few_grad_composed_workspace(&REAL_TABLE, args);
}

static void few_grad(fm_stream *stream, const fm_few_grad *args, void *workspace) {
    fm_few_grad_composed(&REAL_TABLE, stream, args, workspace);
}
