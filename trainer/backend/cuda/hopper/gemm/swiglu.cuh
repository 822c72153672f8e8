/* swiglu.cuh: what the kernels of AlphaFold 3's transition share, forward (swiglu_transition.cu)
 * and backward (swiglu_transition_grad.cu). */
#ifndef FM_BACKEND_CUDA_SWIGLU_CUH
#define FM_BACKEND_CUDA_SWIGLU_CUH

#include "trainer/backend/cuda/hopper/gemm/transition.cuh"

namespace fm_cuda {

/* The sigmoid, of four instructions; results below f32's normal range become 0. */
__device__ inline float open_of(float x) {
    float power, gate;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(gate) : "f"(1.0f + power));
    return gate;
}

/* The fetching thread, given a kernel's arguments and its shared memory. A chunk of 64 hidden
 * channels has S::PARTS slots of W1, with 64 columns of the rows of a and of b, and one of W2. */
template <typename T, typename S> __device__ inline void fetch_swiglu_weights(const T &t, S *s) {
    int steps = t.turns * t.chunks + t.offset;
    ring_place<S::SLOTS> at = {0, 1};
    for (int step = 0; step < steps; step++) {
        int first = step % t.chunks * 64;
#pragma unroll
        for (int part = 0; part <= S::PARTS; part++) {
            uint32_t slot = shared_address(s->ring[at.slot]);
            int elements = part < S::PARTS ? S::SLOT : S::LAST;
            uint32_t full =
                s->barriers.fill(at.slot, at.phase, (uint32_t)elements * (uint32_t)sizeof(bf16));
            if (part < S::PARTS) {
                box_load(slot, t.w1, {first, 0, 0, 0, part * 64}, full);
                box_load(slot + 64 * 64 * (int)sizeof(bf16), t.w1,
                         {t.hidden + first, 0, 0, 0, part * 64}, full);
            } else {
                box_load(slot, t.w2, {0, 0, 0, 0, first}, full);
            }
            at.next();
        }
    }
}

} // namespace fm_cuda

#endif
