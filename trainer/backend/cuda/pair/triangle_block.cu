/* triangle_block.cu: chooses how the whole sublayer of triangle multiplication (A11, A12) runs:
 * by the kernels of hopper/pair/, or composed of other entries (../../triangle_block.h). */
#include "trainer/backend/triangle_block.h"
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/table_of.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"
#include "trainer/backend/fallback.h"

namespace fm_cuda {

enum triangle_path { TRIANGLE_FUSED, TRIANGLE_COMPOSED };

/* Which kernels run a call, forward and backward. The first row that fits is taken.
 *
 *     path        shapes                                        why
 *     --------    ------------------------------------------    -----------------------------------
 *     FUSED       hopper/, bf16, c 64, 128, c_z as c or 64,     whole rows of the weights fit in
 *                 n a multiple of 16, dropout off or its        shared memory; n^2 rows are whole
 *                 mask shared along axis 0 (the rows i)         tiles; one bit per column, channel
 *     COMPOSED    everything else, and f32                      other entries of the kernel table,
 *                                                               one by one (../../triangle_block.h)
 */
template <typename T> static triangle_path path_of(const fm_triangle_block *t) {
    bool is_fused = sizeof(T) == 2 && uses_hopper() && triangle_fused_takes(t);
    return is_fused ? TRIANGLE_FUSED : TRIANGLE_COMPOSED;
}

/* Counts a call that is composed of other entries although it is in bf16 and the device has kernels
 * for the whole sublayer. */
template <typename T> static void count_composed(const fm_triangle_block *t) {
    if (sizeof(T) == 4 || !uses_hopper()) return;
    if (t->n % 16 != 0) {
        fm_backend_fall_back(FM_FALLBACK_TRIANGLE,
                             "crop %lld is no multiple of 16: triangle multiplication runs "
                             "composed, two to three times slower",
                             (long long)t->n);
    } else {
        fm_backend_fall_back(FM_FALLBACK_TRIANGLE,
                             "triangle multiplication with c_z %lld, c %lld runs composed, two to "
                             "three times slower",
                             (long long)t->c_z, (long long)t->c);
    }
}

template <typename T> size_t triangle_block_kept(const fm_triangle_block *t) {
    if (path_of<T>(t) == TRIANGLE_FUSED) return triangle_fused_kept(t) / sizeof(T);
    return fm_triangle_block_composed_kept(t);
}

template <typename T> size_t triangle_block_workspace(const fm_triangle_block *t) {
    if (path_of<T>(t) == TRIANGLE_COMPOSED) {
        return fm_triangle_block_composed_workspace(table_of<T>(), t);
    }
    return triangle_fused_workspace(t);
}

template <typename T>
void triangle_block(fm_stream *stream, const fm_triangle_block *t, void *workspace) {
    if (path_of<T>(t) == TRIANGLE_COMPOSED) {
        count_composed<T>(t);
        fm_triangle_block_composed(table_of<T>(), stream, t, workspace);
    } else {
        triangle_fused(stream, t, workspace);
    }
}

template <typename T> size_t triangle_block_grad_workspace(const fm_triangle_block *t) {
    if (path_of<T>(t) == TRIANGLE_FUSED) return block_grad_workspace(t);
    return fm_triangle_block_composed_grad_workspace(table_of<T>(), t);
}

template <typename T>
void triangle_block_grad(fm_stream *stream, const fm_triangle_block *t,
                         const fm_triangle_block_grad *grad, void *workspace) {
    if (path_of<T>(t) == TRIANGLE_FUSED) {
        block_grad(stream, t, grad, workspace);
    } else {
        count_composed<T>(t);
        fm_triangle_block_composed_grad(table_of<T>(), stream, t, grad, workspace);
    }
}

/* -- parts */

template <typename T> size_t triangle_part_kept(const fm_triangle_block *t) {
    bool is_fused = path_of<T>(t) == TRIANGLE_FUSED && t->n_part > 0 && t->n_part % 16 == 0;
    return is_fused ? triangle_fused_kept(t) / sizeof(T) : 0;
}

template <typename T> size_t triangle_part_workspace(const fm_triangle_block *t, bool of_gradient) {
    return triangle_fused_part_workspace(t, of_gradient);
}

template <typename T>
void triangle_part(fm_stream *stream, fm_triangle_stage stage, const fm_triangle_part *p,
                   void *workspace) {
    assert(triangle_part_kept<T>(&p->block) > 0);
    triangle_fused_part(stream, stage, p, workspace);
}

#define INSTANTIATE(T)                                                                             \
    template size_t triangle_block_kept<T>(const fm_triangle_block *);                             \
    template size_t triangle_block_workspace<T>(const fm_triangle_block *);                        \
    template void triangle_block<T>(fm_stream *, const fm_triangle_block *, void *);               \
    template size_t triangle_block_grad_workspace<T>(const fm_triangle_block *);                   \
    template void triangle_block_grad<T>(fm_stream *, const fm_triangle_block *,                   \
                                         const fm_triangle_block_grad *, void *);                  \
    template size_t triangle_part_kept<T>(const fm_triangle_block *);                              \
    template size_t triangle_part_workspace<T>(const fm_triangle_block *, bool);                   \
    template void triangle_part<T>(fm_stream *, fm_triangle_stage, const fm_triangle_part *,       \
                                   void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
