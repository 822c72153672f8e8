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

/* Parts are composed of other nodes of the tape. */
static size_t triangle_part_kept(const fm_triangle_block *args) {
    (void)args;
    return 0;
}

static size_t triangle_part_workspace(const fm_triangle_block *args, bool of_gradient) {
    (void)args, (void)of_gradient;
    return 0;
}

static void triangle_part(fm_stream *stream, fm_triangle_stage stage, const fm_triangle_part *args,
                          void *workspace) {
    (void)stream, (void)stage, (void)args, (void)workspace;
    assert(!"triangle_part_kept says that there are no parts");
}
