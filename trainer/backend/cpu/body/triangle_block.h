/* body/triangle_block.h: the whole sublayer of triangle multiplication, composed of other entries
 * of the same table. */
#include "trainer/backend/cpu/body/real.h"
#include "trainer/backend/triangle_block.h"

static size_t triangle_block_kept(const fm_triangle_block *args) {
    return fm_triangle_block_composed_kept(args);
}

static size_t triangle_block_workspace(const fm_triangle_block *args) {
    return fm_triangle_block_composed_workspace(&REAL_TABLE, args);
}

static void triangle_block(fm_stream *stream, const fm_triangle_block *args, void *workspace) {
    fm_triangle_block_composed(&REAL_TABLE, stream, args, workspace);
}

static size_t triangle_block_grad_workspace(const fm_triangle_block *args) {
    return fm_triangle_block_composed_grad_workspace(&REAL_TABLE, args);
}

static void triangle_block_grad(fm_stream *stream, const fm_triangle_block *args,
                                const fm_triangle_block_grad *grad, void *workspace) {
    fm_triangle_block_composed_grad(&REAL_TABLE, stream, args, grad, workspace);
}
