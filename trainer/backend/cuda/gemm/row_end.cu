/* row_end.cu: chooses how linear_update and transition run: as one kernel (linear_update.cu,
 * transition.cu), which is for bf16 and some widths, or composed of other entries
 * (../../row_end.h). */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"
#include "trainer/backend/row_end.h"

namespace fm_cuda {

template <typename T> static const fm_kernels *table_of(void) {
    return fm_kernels_cuda(sizeof(T) == 2 ? FM_ELEMENT_BF16 : FM_ELEMENT_F32);
}

template <typename T> size_t linear_update_workspace(const fm_linear_update *a) {
    if (sizeof(T) == 2 && linear_update_takes(a)) return 0;
    return fm_linear_update_composed_workspace(table_of<T>(), a);
}

template <typename T>
void linear_update(fm_stream *stream, const fm_linear_update *a, void *workspace) {
    if (sizeof(T) == 2 && linear_update_takes(a)) {
        linear_update_wgmma(stream, a);
    } else {
        fm_linear_update_composed(table_of<T>(), stream, a, workspace);
    }
}

template <typename T> size_t transition_workspace(const fm_transition *a) {
    if (sizeof(T) == 2 && transition_takes(a)) return 0;
    return fm_transition_composed_workspace(table_of<T>(), a);
}

template <typename T> void transition(fm_stream *stream, const fm_transition *a, void *workspace) {
    if (sizeof(T) == 2 && transition_takes(a)) {
        transition_wgmma(stream, a);
    } else {
        fm_transition_composed(table_of<T>(), stream, a, workspace);
    }
}

#define INSTANTIATE(T)                                                                             \
    template size_t linear_update_workspace<T>(const fm_linear_update *);                          \
    template void linear_update<T>(fm_stream *, const fm_linear_update *, void *);                 \
    template size_t transition_workspace<T>(const fm_transition *);                                \
    template void transition<T>(fm_stream *, const fm_transition *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
