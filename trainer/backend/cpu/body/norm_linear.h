/* body/norm_linear.h: a linear layer behind its LayerNorm, composed of other entries of the same
 * table. */
#include "trainer/backend/cpu/body/real.h"
#include "trainer/backend/norm_linear.h"

static size_t norm_linear_workspace(const fm_norm_linear *args) {
    return fm_norm_linear_composed_workspace(&REAL_TABLE, args);
}

static void norm_linear(fm_stream *stream, const fm_norm_linear *args, void *workspace) {
    fm_norm_linear_composed(&REAL_TABLE, stream, args, workspace);
}
