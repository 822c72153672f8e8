/* mask_check.cuh: attention entries that first check that every mask is 0 or 1.
 *
 * The tensor core kernels of attention take a mask as a set of valid keys, and the plain ones take
 * it as a number; they agree only for 0 and 1. The check reads the mask once more per call, so the
 * tables have these entries only when the environment variable FM_CHECK_MASKS is set (cuda.h). */
#ifndef FM_BACKEND_CUDA_MASK_CHECK_CUH
#define FM_BACKEND_CUDA_MASK_CHECK_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

template <typename T>
void checked_attention(fm_stream *stream, const fm_attention *args, void *workspace);
template <typename T>
void checked_attention_grad(fm_stream *stream, const fm_attention *args,
                            const fm_attention_grad *grad, void *workspace);

} // namespace fm_cuda

#endif
