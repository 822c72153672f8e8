/* triangle.cuh: the products of triangle multiplication, which triangle.cu makes for the whole
 * sublayer (triangle_block.cu, triangle_block_grad.cu) too. */
#ifndef FM_BACKEND_CUDA_TRIANGLE_CUH
#define FM_BACKEND_CUDA_TRIANGLE_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

/* out = c products of [m, k] and [k, n] matrices, one for each channel. Every matrix is contiguous
 * and the channels are the slowest axis. `space` is the workspace of gemm. */
template <typename T>
void triangle_multiply(fm_stream *stream, void *space, int64_t c, int64_t m, int64_t n, int64_t k,
                       bool trans_a, bool trans_b, const void *a, const void *b, void *out);

} // namespace fm_cuda

#endif
