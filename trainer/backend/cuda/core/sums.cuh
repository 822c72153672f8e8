/* sums.cuh: sums over rows that memory.cu makes for other families. */
#ifndef FM_BACKEND_CUDA_SUMS_CUH
#define FM_BACKEND_CUDA_SUMS_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

/* Sets x [n_r, n_c], rows ld apart, to 0 where relu, of the same shape, is not above 0. y [n_c]
 * (f32, or NULL when no sums are needed) becomes the sums of the columns of that result. The
 * workspace has sum_workspace(1, n_r, n_c) bytes. */
template <typename T>
void sum_after_relu(fm_stream *stream, int64_t n_r, int64_t n_c, int64_t ld, const void *relu,
                    void *x, fm_out y, void *workspace);

/* dst[i] (+)= the sum over `count` partial vectors of n values, `stride` elements apart. Up to 32
 * slices of the vectors are summed side by side in double, each in order, and the slices are then
 * added in order. */
template <typename T>
void finish_partials(fm_stream *stream, const float *partial, int64_t count, int64_t stride,
                     int64_t n, T *dst, fm_beta beta);

} // namespace fm_cuda

#endif
