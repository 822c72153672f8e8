/* triangle_block.cuh: what the kernels of triangle multiplication as a whole share, forward
 * (triangle_block.cu) and backward (triangle_block_grad.cu).
 *
 * They take bf16, c_z = c = 64 or 128 and n a multiple of 16, and keep a, b and x channel-major,
 * [3, c, rows]. All products are mma m16n8k16 of whole rows: what a warp multiplies lies in its
 * registers, weights lie in shared memory.
 *
 * The order of a sum over channels is free, so a lane takes a row's channels from memory 16 bytes
 * at a time, chunk t + 4 i for t = lane % 4, and says that words 2h and 2h + 1 of chunk i are its
 * part of the product's step 2i + h. The other operand is read in the same order. So is the order
 * of a product's columns: in a group of 32, column q of tile i is channel 8 (q / 2) + 2 i + q % 2
 * (mixed), so that a lane's accumulators of four tiles are the chunk t of the group. */
#ifndef FM_BACKEND_CUDA_TRIANGLE_BLOCK_CUH
#define FM_BACKEND_CUDA_TRIANGLE_BLOCK_CUH

#include "trainer/backend/cuda/families.cuh"
#include "trainer/backend/cuda/mma.cuh"

namespace fm_cuda {

enum { BLOCK_GPU_PROCESSORS = 132 };

/* Whether these kernels take it. */
template <typename T> bool triangle_block_fits(const fm_triangle_block *t);
/* A bit of the block's dropout for each column and channel: [n, c_z / 8], in workspace. */
inline size_t triangle_keep_bytes(const fm_triangle_block *t) {
    return (size_t)(t->n * t->c_z / 8);
}

__device__ inline int mixed(int q, int i) {
    return (q >> 1) * 8 + i * 2 + (q & 1);
}

/* Where chunk `chunk` of row `row` of a weight lies, in elements. The exchange keeps apart the
 * eight rows of ldmatrix, in natural and in mixed order, and two neighbouring rows' halves of a
 * line. */
template <int C> __device__ inline int weight_at(int row, int chunk) {
    return row * C + ((chunk ^ ((row & 1) * 4 + ((row >> 3) & 3))) * 8);
}

/* Rows of a weight [rows, C] into shared memory, by the whole block; the caller waits. */
template <int C> __device__ inline void weight_load(bf16 *to, const bf16 *w, int rows) {
    for (int i = threadIdx.x; i < rows * (C / 8); i += blockDim.x) {
        int row = i / (C / 8), chunk = i % (C / 8);
        copy_async(to + weight_at<C>(row, chunk), w + i * 8, true);
    }
}

/* n numbers of act to floats in shared memory. */
__device__ inline void floats_load(float *to, const bf16 *from, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        to[i] = get(from[i]);
}

__device__ inline float quick_sigmoid(float x) {
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

/* The compiler forgets what it made of these words: unpacking again is cheaper than registers. */
template <int N> __device__ inline void forget(uint32_t (&word)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(word[i]));
}

/* Mean and 1 / sqrt(variance + eps) of the row whose parts four lanes hold. */
template <int N>
__device__ inline void row_statistics(uint32_t (&word)[N], float eps, float *mean, float *rstd) {
    float total = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float2 two = unpack_two(word[i]);
        total += two.x + two.y;
    }
    forget(word);
    *mean = row_sum(total) * (1.0f / (8 * N));
    float square = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float2 two = unpack_two(word[i]);
        float x = two.x - *mean, y = two.y - *mean;
        square += x * x + y * y;
    }
    forget(word);
    *rstd = rsqrtf(row_sum(square) * (1.0f / (8 * N)) + eps);
}

/* A row's words, chunk t + 4 i in words 4 i .. 4 i + 3. */
template <int C> __device__ inline void row_load(uint32_t (&word)[C / 8], const bf16 *row) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < C / 32; i++) {
        uint4 chunk = *(const uint4 *)(row + (t + 4 * i) * 8);
        word[4 * i] = chunk.x, word[4 * i + 1] = chunk.y;
        word[4 * i + 2] = chunk.z, word[4 * i + 3] = chunk.w;
    }
}

/* LayerNorm of R such rows in place; gamma and then beta, C floats each, in shared memory. */
template <int C, int R>
__device__ inline void rows_normalise(uint32_t (&word)[R][C / 8], const float *weights, float eps) {
    int t = threadIdx.x % 4;
    float mean[R], rstd[R];
#pragma unroll
    for (int r = 0; r < R; r++)
        row_statistics(word[r], eps, &mean[r], &rstd[r]);
#pragma unroll
    for (int i = 0; i < C / 8; i++) {
        int channel = (t + i / 4 * 4) * 8 + i % 4 * 2;
        float2 gamma = *(const float2 *)(weights + channel);
        float2 beta = *(const float2 *)(weights + C + channel);
#pragma unroll
        for (int r = 0; r < R; r++) {
            float2 two = unpack_two(word[r][i]);
            word[r][i] = pack_two((two.x - mean[r]) * rstd[r] * gamma.x + beta.x,
                                  (two.y - mean[r]) * rstd[r] * gamma.y + beta.y);
        }
    }
}

} // namespace fm_cuda

#endif
