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

enum { BLOCK_GPU_PROCESSORS = 132, BACK_THREADS = 256, BACK_ROWS = 128 };

/* What forward keeps: a, b and x channel-major, then the gate's argument [rows, c], then mean and
 * 1 / deviation of each row of z, then a bit of the block's dropout for each column and channel,
 * [n, c / 8]. */
struct block_kept {
    bf16 *packed, *x, *gate;
    float2 *statistics;
    uint8_t *keep;
};

inline block_kept block_kept_at(const fm_triangle_block *t, void *base) {
    int64_t rows = t->n * t->n, plane = rows * t->c;
    bf16 *at = (bf16 *)base;
    float2 *statistics = (float2 *)(at + 4 * plane);
    return {at, at + 2 * plane, at + 3 * plane, statistics, (uint8_t *)(statistics + rows)};
}

/* Backward from what the kernels kept (triangle_block_grad.cu). */
size_t block_grad_workspace(const fm_triangle_block *t);
void block_grad(fm_stream *stream, const fm_triangle_block *t, const fm_triangle_block_grad *grad,
                void *workspace);

template <typename K> inline void allow_shared(K kernel, size_t bytes) {
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    assert(status == cudaSuccess);
    (void)status;
}

__device__ inline int mixed(int q, int i) {
    return (q >> 1) * 8 + i * 2 + (q & 1);
}

/* Asks the L2 cache for `rows` rows of C elements, `ld` apart, a line of 128 bytes a thread;
 * threads without a line do nothing. */
template <int C>
__device__ inline void rows_prefetch(const void *first, int rows, int64_t ld, int thread) {
    constexpr int LINES = C / 64;
    if (thread < rows * LINES)
        asm volatile("prefetch.global.L2 [%0];" ::"l"((const bf16 *)first + thread / LINES * ld +
                                                      thread % LINES * 64));
}

/* Where chunk `chunk` of row `row` of a weight lies, in elements. The exchange keeps apart the
 * eight rows of ldmatrix, in natural and in mixed order, and two neighbouring rows' halves of a
 * line. */
template <int C> __device__ inline int weight_at(int row, int chunk) {
    return row * C + ((chunk ^ ((row & 1) * 4 + ((row >> 3) & 3))) * 8);
}

/* Reads of a weight by the byte in shared memory. Weights begin at multiples of 256 bytes, so chunk
 * x + y of a row lies at that of x, exchanged (^) with 16 y, where x and y have no bit in common.
 */
__device__ inline uint4 shared_chunk(uint32_t at) {
    uint4 chunk;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(chunk.x), "=r"(chunk.y), "=r"(chunk.z), "=r"(chunk.w)
                 : "r"(at)
                 : "memory");
    return chunk;
}
__device__ inline void shared_matrices(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ inline void shared_matrices_trans(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
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

/* Four instructions; numbers too small for f32's normal range count as 0. */
__device__ inline float quick_sigmoid(float x) {
    float power, open;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(open) : "f"(1.0f + power));
    return open;
}

/* Mean and 1 / sqrt(variance + eps) of the row whose parts four lanes hold, in one pass over the
 * distances from its first number, so that a common offset costs no digits. */
template <int N>
__device__ inline void row_statistics(const uint32_t (&word)[N], float eps, float *mean,
                                      float *rstd) {
    float origin = __shfl_sync(0xffffffffu, unpack_two(word[0]).x, threadIdx.x % 32 & ~3);
    float total = 0, square = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float2 two = unpack_two(word[i]);
        float x = two.x - origin, y = two.y - origin;
        total += x + y;
        square += x * x + y * y;
    }
    total = row_sum(total) * (1.0f / (8 * N));
    square = row_sum(square) * (1.0f / (8 * N));
    *mean = origin + total;
    *rstd = rsqrtf(fmaxf(square - total * total, 0) + eps);
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
__device__ inline void rows_normalise(uint32_t (&word)[R][C / 8], const float *weights,
                                      const float (&mean)[R], const float (&rstd)[R]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < C / 8; i++) {
        int channel = (t + i / 4 * 4) * 8 + i % 4 * 2;
        float2 gamma = *(const float2 *)(weights + channel);
        float2 beta = *(const float2 *)(weights + C + channel);
#pragma unroll
        for (int r = 0; r < R; r++) {
            float2 two = unpack_two(word[r][i]);
            float by = rstd[r], less = mean[r] * by;
            word[r][i] = pack_two((two.x * by - less) * gamma.x + beta.x,
                                  (two.y * by - less) * gamma.y + beta.y);
        }
    }
}

/* ---- 128 rows of x, and products with a warp's 16 ------------------------------------------- */

/* Where chunk `chunk` (8 rows) of channel `channel` of 128 rows of x lies. */
__device__ inline int x_at(int channel, int chunk) {
    return channel * BACK_ROWS + ((chunk ^ (channel & 7)) * 8);
}

template <int C> __device__ inline void x_load(bf16 *to, const bf16 *x, int64_t rows, int64_t at) {
    constexpr int CHUNKS = BACK_ROWS / 8;
    for (int i = threadIdx.x; i < C * CHUNKS; i += BACK_THREADS) {
        int channel = i / CHUNKS, chunk = i % CHUNKS;
        copy_async(to + x_at(channel, chunk), x + channel * rows + at + chunk * 8, true);
    }
}

/* The warp's 16 rows as the first operand; words 4 s .. 4 s + 3 are step s, of channels in their
 * natural order: 0 and 2 are row g, 1 and 3 row g + 8. */
template <int C> __device__ inline void x_rows(uint32_t (&a)[C / 4], const bf16 *tile) {
    int lane = threadIdx.x % 32, chunk = threadIdx.x / 32 * 2 + ((lane >> 3) & 1);
#pragma unroll
    for (int s = 0; s < C / 16; s++) {
        uint32_t r[4];
        ldmatrix_trans(r, tile + x_at(16 * s + (lane >> 4) * 8 + (lane & 7), chunk));
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[4 * s + i] = r[i];
    }
}

/* Statistics of row g (half 0) or g + 8. */
template <int C>
__device__ inline void x_statistics(const uint32_t (&a)[C / 4], int half, float eps, float *mean,
                                    float *rstd) {
    uint32_t word[C / 8];
#pragma unroll
    for (int i = 0; i < C / 8; i++)
        word[i] = a[2 * i + half];
    row_statistics(word, eps, mean, rstd);
}

template <int C>
__device__ inline void x_normalise(uint32_t (&a)[C / 4], const float *weights,
                                   const float (&mean)[2], const float (&rstd)[2]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < C / 8; i++) {
        float2 gamma = *(const float2 *)(weights + 8 * i + 2 * t);
        float2 beta = *(const float2 *)(weights + C + 8 * i + 2 * t);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float2 two = unpack_two(a[2 * i + half]);
            float by = rstd[half], less = mean[half] * by;
            a[2 * i + half] = pack_two((two.x * by - less) * gamma.x + beta.x,
                                       (two.y * by - less) * gamma.y + beta.y);
        }
    }
}

/* acc[4 mixed tiles of 32 channels from `channel`] += x w^T, x as x_rows left it. */
template <int C>
__device__ inline void times_natural(float (&acc)[4][4], const uint32_t (&x)[C / 4], const bf16 *w,
                                     int channel) {
    int lane = threadIdx.x % 32;
    uint32_t at = shared_address(w + weight_at<C>(channel + mixed(lane & 7, 0), lane >> 3));
#pragma unroll
    for (int i = 0; i < 4; i++) { /* rows 2 apart, the same exchange */
#pragma unroll
        for (int u = 0; u < C / 32; u++) {
            uint32_t b[4];
            shared_matrices(b, (at ^ u * 64) + i * 2 * C * (uint32_t)sizeof(bf16));
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t(&a)[4] = *(const uint32_t(*)[4]) & x[8 * u + 4 * h];
                mma(acc[i], a, b[2 * h], b[2 * h + 1]);
            }
        }
    }
}

/* The same of rows g and g + 8 as row_load left them. */
template <int C>
__device__ inline void times_chunks(float (&acc)[4][4], const uint32_t (&z)[2][C / 8],
                                    const bf16 *w, int channel) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t at = shared_address(w + weight_at<C>(channel + mixed(g, 0), t));
#pragma unroll
    for (int u = 0; u < C / 32; u++) {
        uint32_t even[4] = {z[0][4 * u], z[1][4 * u], z[0][4 * u + 1], z[1][4 * u + 1]};
        uint32_t odd[4] = {z[0][4 * u + 2], z[1][4 * u + 2], z[0][4 * u + 3], z[1][4 * u + 3]};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint4 b = shared_chunk((at ^ u * 64) + i * 2 * C * (uint32_t)sizeof(bf16));
            mma(acc[i], even, b.x, b.y);
            mma(acc[i], odd, b.z, b.w);
        }
    }
}

/* Accumulators of four mixed tiles start as the bias of their channels. */
__device__ inline void start_mixed(float (&acc)[4][4], const float *bias) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 two = *(const float2 *)(bias + 8 * t + 2 * i);
        acc[i][0] = acc[i][2] = two.x;
        acc[i][1] = acc[i][3] = two.y;
    }
}

} // namespace fm_cuda

#endif
