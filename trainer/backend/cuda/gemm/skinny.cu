/* skinny.cu: the products of a projection to few heads (the bias of pair attention) in bf16. They
 * have many rows on one side and four or eight numbers on the other. They take as long as their
 * memory traffic; library kernels, made for tiles, take 1.6 times as long.
 *
 *     heads        C[m, 4] = A[m, k] B[4, k]^T        lanes share a row, W is in registers
 *     spread       C[m, n] (+)= A[m, 4] B[4, n]       a thread makes eight columns
 *     few weights  C[m, n] (+)= A[k, m]^T B[k, n]     m 4 or 8: a thread sums m times eight columns
 *                                                     over rows of its block, in f32 */
#include "trainer/backend/cuda/core/early.cuh"
#include "trainer/backend/cuda/core/keep.cuh"
#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"

namespace fm_cuda {

enum { SKINNY_THREADS = 256, SKINNY_BATCH = 4 };

/* -- to four heads */

/* Sums four values over the lanes of a group. Each of its first four lanes gets one of the sums:
 * lane l has that of value (l & 1) * 2 + (l >> 1 & 1). */
template <int LANES> __device__ inline float sum_four(const float (&x)[SKINNY], int lane) {
    bool is_high = lane & 1, is_odd = lane & 2;
    float keep0 = is_high ? x[2] : x[0], keep1 = is_high ? x[3] : x[1];
    keep0 += __shfl_xor_sync(0xffffffffu, is_high ? x[0] : x[2], 1);
    keep1 += __shfl_xor_sync(0xffffffffu, is_high ? x[1] : x[3], 1);
    float total = is_odd ? keep1 : keep0;
    total += __shfl_xor_sync(0xffffffffu, is_odd ? keep0 : keep1, 2);
#pragma unroll
    for (int step = 4; step < LANES; step *= 2)
        total += __shfl_xor_sync(0xffffffffu, total, step);
    return total;
}

template <int LANES> __global__ void __launch_bounds__(SKINNY_THREADS) heads_kernel(fm_gemm g) {
    int lane = threadIdx.x % LANES;
    float w[SKINNY][8];
#pragma unroll
    for (int h = 0; h < SKINNY; h++)
        load<bf16, 8>((const bf16 *)g.b + h * g.ldb + lane * 8, w[h]);
    int64_t step = (int64_t)gridDim.x * (SKINNY_THREADS / LANES);
    int64_t first = blockIdx.x * (int64_t)(SKINNY_THREADS / LANES) + threadIdx.x / LANES;
    const bf16 *a = (const bf16 *)g.a + lane * 8;
    int64_t turns =
        divide_up(g.m, step * SKINNY_BATCH); /* the same for all lanes, so that warps stay whole */
    for (int64_t turn = 0; turn < turns; turn++) {
        int64_t row = first + turn * step * SKINNY_BATCH;
        pack<bf16, 8> x[SKINNY_BATCH];
#pragma unroll
        for (int b = 0; b < SKINNY_BATCH; b++)
            x[b] = *(const pack<bf16, 8> *)(a + min_size(row + b * step, g.m - 1) * g.lda);
#pragma unroll
        for (int b = 0; b < SKINNY_BATCH; b++) {
            float sum[SKINNY] = {};
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int h = 0; h < SKINNY; h++)
                    sum[h] += get(x[b].at[i]) * w[h][i];
            float total = sum_four<LANES>(sum, lane);
            int64_t at = row + b * step;
            if (lane < SKINNY && at < g.m) {
                ((bf16 *)g.c)[at * g.ldc + (lane & 1) * 2 + (lane >> 1)] = to<bf16>(total);
            }
        }
    }
}

/* -- from four heads */

__global__ void __launch_bounds__(SKINNY_THREADS) spread_kernel(fm_gemm g, int lanes) {
    int at = threadIdx.x % lanes * 8, rows = SKINNY_THREADS / lanes;
    if ((int)threadIdx.x >= rows * lanes) return;
    float w[SKINNY][8];
#pragma unroll
    for (int h = 0; h < SKINNY; h++)
        load<bf16, 8>((const bf16 *)g.b + h * g.ldb + at, w[h]);
    fm_beta beta = g.beta != 0 ? FM_ADD : FM_WRITE;
    int64_t step = (int64_t)gridDim.x * rows;
#pragma unroll 4
    for (int64_t row = blockIdx.x * (int64_t)rows + threadIdx.x / lanes; row < g.m; row += step) {
        float a[SKINNY], x[8] = {};
        load<bf16, SKINNY>((const bf16 *)g.a + row * g.lda, a);
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int h = 0; h < SKINNY; h++)
                x[i] += a[h] * w[h][i];
        put_pack<bf16, 8>((bf16 *)g.c + row * g.ldc + at, beta, x);
    }
}

/* -- the weight gradient */

/* dy [rows, M] and x [rows, n] of a linear layer with M outputs. */
struct few_call {
    const bf16 *dy, *x;
    int64_t lddy, ldx, rows;
};

/* Some rows of a thread while they are loaded; rows beyond the end are zeros. */
template <int M, int COUNT> struct few_rows {
    pack<bf16, 8> x[COUNT];
    pack<bf16, M> dy[COUNT];

    __device__ inline void fetch(const few_call &f, int first, int step, int lane) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int64_t row = first + (int64_t)i * step;
            x[i] = {}, dy[i] = {};
            if (row >= f.rows) continue;
            x[i] = *(const pack<bf16, 8> *)(f.x + row * f.ldx + lane * 8);
            dy[i] = *(const pack<bf16, M> *)(f.dy + row * f.lddy);
        }
    }
};

/* Sums dy^T x over the block's rows to partial [blocks, M, n]. LANES lanes share a row. Some rows
 * are on their way while as many are summed. The sums of the warps meet in shared memory, at most
 * 35 KB of it, and are added in order. */
template <int M, int LANES>
__global__ void __launch_bounds__(SKINNY_THREADS, 2)
    few_weights_kernel(few_call f, float *partial) {
    constexpr int N = LANES * 8, ROWS = SKINNY_THREADS / LANES, WARPS = SKINNY_THREADS / 32;
    constexpr int COUNT = M == SKINNY ? 2 : 1; /* registers are short */
    constexpr int SLOTS = LANES == 32 ? WARPS / 2 : WARPS;
    __shared__ float total[SLOTS][M * 8][LANES + 1]; /* no bank conflicts either way */
    int lane = threadIdx.x % LANES, step = (int)gridDim.x * ROWS, rows = (int)f.rows;
    float sum[M][8] = {};
    wait_for_previous();
    int first = blockIdx.x * ROWS + threadIdx.x / LANES;
    few_rows<M, COUNT> now, next;
    now.fetch(f, first, step, lane);
    for (; first < rows; first += step * COUNT) {
        next.fetch(f, first + step * COUNT, step, lane);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int c = 0; c < 8; c++)
                    sum[m][c] += get(now.dy[i].at[m]) * get(now.x[i].at[c]);
        }
        now = next;
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int c = 0; c < 8; c++)
#pragma unroll
            for (int other = LANES; other < 32; other *= 2)
                sum[m][c] += __shfl_xor_sync(0xffffffffu, sum[m][c], other);
    int slot = (int)threadIdx.x / 32 % SLOTS, turn = (int)threadIdx.x / 32 / SLOTS;
#pragma unroll
    for (int at = 0; at < WARPS / SLOTS; at++) {
        if (at == turn && threadIdx.x % 32 < LANES) {
#pragma unroll
            for (int i = 0; i < M * 8; i++) {
                float *to = &total[slot][i][lane], old = at ? *to : 0;
                *to = old + sum[i / 8][i % 8];
            }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < M * N; i += SKINNY_THREADS) {
        float x = 0;
#pragma unroll
        for (int k = 0; k < SLOTS; k++)
            x += total[k][i / N * 8 + i % 8][i % N / 8];
        partial[(int64_t)blockIdx.x * M * N + i] = x;
    }
}

/* -- calls */

void skinny_heads(fm_stream *stream, const fm_gemm *g) {
    int64_t rows = SKINNY_THREADS / (g->k / 8);
    unsigned blocks =
        (unsigned)min_size(n_multiprocessor() * 8, divide_up(g->m, rows * SKINNY_BATCH));
    if (g->k == 64) {
        heads_kernel<8><<<blocks, SKINNY_THREADS, 0, queue(stream)>>>(*g);
    } else if (g->k == 128) {
        heads_kernel<16><<<blocks, SKINNY_THREADS, 0, queue(stream)>>>(*g);
    } else {
        heads_kernel<32><<<blocks, SKINNY_THREADS, 0, queue(stream)>>>(*g);
    }
    FM_LAUNCHED();
}

static int64_t few_blocks(int64_t rows, int64_t n) {
    return min_size(n_multiprocessor() * 2,
                    divide_up(rows, SKINNY_THREADS / (n / 8) * SKINNY_BATCH));
}

static size_t few_bytes(int64_t rows, int64_t m, int64_t n) {
    return (size_t)(few_blocks(rows, n) * m * n) * sizeof(float);
}

template <int M>
static void few_of(fm_stream *stream, const few_call &f, int64_t n, float *partial) {
    auto kernel = n == 64    ? few_weights_kernel<M, 8>
                  : n == 128 ? few_weights_kernel<M, 16>
                             : few_weights_kernel<M, 32>;
    launch_after(stream, kernel, (unsigned)few_blocks(f.rows, n), SKINNY_THREADS, 0, true, f,
                 partial);
    FM_LAUNCHED();
}

size_t skinny_weights_workspace(const fm_gemm *g) {
    return few_bytes(g->k, g->m, g->n);
}

void skinny_weights(fm_stream *stream, const fm_gemm *g, void *workspace) {
    few_call f = {(const bf16 *)g->a, (const bf16 *)g->b, g->lda, g->ldb, g->k};
    assert(g->ldc == g->n);
    fm_beta beta = g->beta != 0 ? FM_ADD : FM_WRITE;
    partial_sums sums =
        sums_of(NULL, few_blocks(g->k, g->n), g->m * g->n, g->m * g->n, (float *)g->c, beta);
    sums.partial = sums_place(stream, sums, few_bytes(g->k, g->m, g->n), workspace);
    (g->m == SKINNY ? few_of<SKINNY> : few_of<2 * SKINNY>)(stream, f, g->n, (float *)sums.partial);
    end_sums(stream, sums);
}

void skinny_spread(fm_stream *stream, const fm_gemm *g) {
    int64_t lanes = g->n / 8, rows = SKINNY_THREADS / lanes;
    unsigned blocks = (unsigned)min_size(n_multiprocessor() * 8, divide_up(g->m, rows));
    spread_kernel<<<blocks, SKINNY_THREADS, 0, queue(stream)>>>(*g, (int)lanes);
    FM_LAUNCHED();
}

} // namespace fm_cuda
