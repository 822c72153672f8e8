/* weights.cuh: what weights.cu offers to other kernels of this room. */
#ifndef FM_BACKEND_CUDA_WEIGHTS_CUH
#define FM_BACKEND_CUDA_WEIGHTS_CUH

#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

/* The gradients of two layers' weights over as many rows, in bf16, of which the first may have the
 * sums of a bias, in one launch. Whether both products have shapes that it takes; the workspace is
 * always needed. */
bool weights_pair_takes(const fm_gemm *first, const fm_gemm *second);
size_t weights_pair_workspace(const fm_gemm *first, const fm_gemm *second);
void weights_pair(fm_stream *stream, const fm_gemm *first, const fm_gemm *second, void *workspace);

} // namespace fm_cuda

#endif
