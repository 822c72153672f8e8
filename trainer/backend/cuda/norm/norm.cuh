/* norm.cuh: the last step of a LayerNorm's backward, for kernels of other families that begin with
 * one. */
#ifndef FM_BACKEND_CUDA_NORM_CUH
#define FM_BACKEND_CUDA_NORM_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

/* dgamma and dbeta (+)= the sums over `count` blocks of partial [count, 2, c], added in order. */
void norm_finish(fm_stream *stream, const float *partial, unsigned count, int64_t c, fm_out dgamma,
                 fm_out dbeta);

} // namespace fm_cuda

#endif
