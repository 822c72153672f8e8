/* swiglu.cuh: what the kernels of AlphaFold 3's transition share, forward (swiglu_transition.cu)
 * and backward (swiglu_transition_grad.cu). */
#ifndef FM_BACKEND_CUDA_SWIGLU_CUH
#define FM_BACKEND_CUDA_SWIGLU_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

/* Whether both directions have kernels for the shape; else they are composed. */
bool swiglu_transition_takes(const fm_swiglu_transition *a);

size_t swiglu_transition_grad_wgmma_workspace(const fm_swiglu_transition *a,
                                              const fm_swiglu_transition_grad *g);
void swiglu_transition_grad_wgmma(fm_stream *stream, const fm_swiglu_transition *a,
                                  const fm_swiglu_transition_grad *g, void *workspace);

/* The sigmoid, of four instructions; results below f32's normal range become 0. */
__device__ inline float open_of(float x) {
    float power, gate;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(gate) : "f"(1.0f + power));
    return gate;
}

} // namespace fm_cuda

#endif
