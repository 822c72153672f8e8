/* swiglu_transition.cu: chooses how AlphaFold 3's transition runs: as one kernel for each direction
 * (hopper/gemm/swiglu_transition.cu, swiglu_transition_grad.cu), else composed of other entries
 * (../../swiglu_transition.h). */
#include "trainer/backend/swiglu_transition.h"
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/table_of.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

template <typename T> static bool is_fused(const fm_swiglu_transition *a) {
    return sizeof(T) == 2 && uses_hopper() && swiglu_transition_takes(a);
}

template <typename T> size_t swiglu_transition_kept(const fm_swiglu_transition *a) {
    return is_fused<T>(a) ? 0 : fm_swiglu_transition_composed_kept(a);
}

template <typename T> size_t swiglu_transition_workspace(const fm_swiglu_transition *a) {
    return is_fused<T>(a) ? 0 : fm_swiglu_transition_composed_workspace(table_of<T>(), a);
}

template <typename T>
void swiglu_transition(fm_stream *stream, const fm_swiglu_transition *a, void *workspace) {
    if (is_fused<T>(a)) {
        swiglu_transition_wgmma(stream, a);
    } else {
        fm_swiglu_transition_composed(table_of<T>(), stream, a, workspace);
    }
}

template <typename T>
size_t swiglu_transition_grad_workspace(const fm_swiglu_transition *a,
                                        const fm_swiglu_transition_grad *g) {
    if (is_fused<T>(a)) return swiglu_transition_grad_wgmma_workspace(a, g);
    return fm_swiglu_transition_grad_composed_workspace(table_of<T>(), a, g);
}

template <typename T>
void swiglu_transition_grad(fm_stream *stream, const fm_swiglu_transition *a,
                            const fm_swiglu_transition_grad *g, void *workspace) {
    if (is_fused<T>(a)) {
        swiglu_transition_grad_wgmma(stream, a, g, workspace);
    } else {
        fm_swiglu_transition_grad_composed(table_of<T>(), stream, a, g, workspace);
    }
}

#define INSTANTIATE(T)                                                                             \
    template size_t swiglu_transition_kept<T>(const fm_swiglu_transition *);                       \
    template size_t swiglu_transition_workspace<T>(const fm_swiglu_transition *);                  \
    template void swiglu_transition<T>(fm_stream *, const fm_swiglu_transition *, void *);         \
    template size_t swiglu_transition_grad_workspace<T>(const fm_swiglu_transition *,              \
                                                        const fm_swiglu_transition_grad *);        \
    template void swiglu_transition_grad<T>(fm_stream *, const fm_swiglu_transition *,             \
                                            const fm_swiglu_transition_grad *, void *);
INSTANTIATE(float)
INSTANTIATE(tf32)
INSTANTIATE(bf16)

} // namespace fm_cuda
