/* gemm.cuh: what the files of the matrix products share. */
#ifndef FM_BACKEND_CUDA_GEMM_CUH
#define FM_BACKEND_CUDA_GEMM_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

/* gemm.cu: makes the cuBLASLt handle; false when it cannot. */
bool gemm_prepare(void);

/* linear.cu: RELU_GRAD over many rows of few channels. linear_fits says whether it has this one;
 * gemm's workspace is then at least linear_workspace. */
template <typename T> bool linear_fits(const fm_gemm *);
size_t linear_workspace(const fm_gemm *);
void linear(fm_stream *, const fm_gemm *, void *workspace);

/* skinny.cu: products to and from four numbers per row. */
template <typename T> bool skinny_fits(const fm_gemm *);
void skinny(fm_stream *, const fm_gemm *);

} // namespace fm_cuda

#endif
