/* norm.cuh: the last step of a LayerNorm's backward, for kernels of other families that begin with
 * one. */
#ifndef FM_BACKEND_CUDA_NORM_CUH
#define FM_BACKEND_CUDA_NORM_CUH

#include "trainer/backend/cuda/core/sums.cuh"

namespace fm_cuda {

/* dgamma and dbeta (+)= the sums over `count` blocks of [count, 2, c]. The caller sets
 * `partial`. */
partial_sums norm_sums(int64_t count, int64_t c, fm_out dgamma, fm_out dbeta);

} // namespace fm_cuda

#endif
