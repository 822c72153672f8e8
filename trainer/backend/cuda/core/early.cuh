/* early.cuh: launches that overlap (programmatic dependent launch), and requests to the L2 cache.
 *
 * When all blocks of a kernel have called let_next_begin or ended, the next kernel in the stream
 * may start, provided that it is launched by launch_after with `early`. Every block of that kernel
 * calls wait_for_previous before it reads what the kernel before it writes, before it writes, and
 * before it calls let_next_begin. So when a kernel starts, all others but the one before it are
 * complete.
 *
 * Only code for compute capability 9.0 or later has the wait. A kernel without it must not be
 * launched early: it would read what the kernel before has not written yet. So launch_after asks
 * has_early_launch, which looks at the code that the device was given. This is the only file with
 * code that depends on the architecture. */
#ifndef FM_BACKEND_CUDA_EARLY_CUH
#define FM_BACKEND_CUDA_EARLY_CUH

#include "trainer/backend/cuda/core/common.cuh"
#include "trainer/backend/cuda/core/kernel_set.cuh"

namespace fm_cuda {

__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Asks the L2 cache for bytes (a multiple of 16) that are read soon; nothing below 9.0. */
__device__ inline void bulk_prefetch(const void *from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

template <typename F, typename... A>
inline void launch_after(fm_stream *stream, F kernel, dim3 blocks, unsigned threads,
                         size_t shared_bytes, bool early, const A &...arguments) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = early;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks, config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes, config.stream = queue(stream);
    config.attrs = &attribute, config.numAttrs = has_early_launch() ? 1 : 0;
    FM_CUDA(cudaLaunchKernelEx(&config, kernel, arguments...));
}

} // namespace fm_cuda

#endif
