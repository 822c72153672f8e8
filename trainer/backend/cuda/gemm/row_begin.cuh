/* row_begin.cuh: the beginning of a sublayer's backward on whole rows that a warp group is about to
 * multiply: the gradient of row_end.cuh. With the gradient dn of n = LayerNorm(y):
 *
 *     dy = dy + the gradient of y through n
 *
 * A warp has 16 rows. Each row is spread over four lanes, and a lane has eight neighbouring columns
 * of every 32, so that each access moves 16 bytes. The result goes to memory and, as the left
 * operand of a product, to shared memory. */
#ifndef FM_BACKEND_CUDA_ROW_BEGIN_CUH
#define FM_BACKEND_CUDA_ROW_BEGIN_CUH

#include "trainer/backend/cuda/gemm/row_end.cuh"

namespace fm_cuda {

struct row_begin {
    int rows;
    float eps;
    const bf16 *gamma, *y, *dn; /* gamma NULL: dy is complete, and only read */
    bf16 *dy;
    bool adds; /* to dy; else dy is written */
};

inline row_begin row_begin_of(const fm_update_norm *a, const void *y, const void *dn, fm_out dy) {
    assert(is_aligned(a->gamma) && is_aligned(y) && is_aligned(dn) && is_aligned(dy.data));
    assert(!a->gamma || (y && dn));
    return {(int)(a->dropout.n0 * a->dropout.n1),
            (float)a->eps,
            (const bf16 *)a->gamma,
            (const bf16 *)y,
            (const bf16 *)dn,
            (bf16 *)dy.data,
            !a->gamma || dy.beta == FM_ADD};
}

/* Sums x, eight values of dgamma and of dbeta for the columns of each lane, over the eight lanes
 * with the same columns. Adds the results to the warp's sums [2, N] in memory; `sums` points at the
 * first of these columns. No other warp adds to these sums, and each number is added by one
 * lane. */
template <int N> __device__ inline void add_sums(float *sums, const float (&x)[2][8]) {
    const uint32_t all = 0xffffffffu;
    int lane = threadIdx.x % 32;
    bool one = lane & 16, two = lane & 8, three = lane & 4;
    float eight[8], four[4];
#pragma unroll
    for (int i = 0; i < 8; i++)
        eight[i] = (one ? x[1][i] : x[0][i]) + __shfl_xor_sync(all, one ? x[0][i] : x[1][i], 16);
#pragma unroll
    for (int i = 0; i < 4; i++)
        four[i] = (two ? eight[4 + i] : eight[i]) +
                  __shfl_xor_sync(all, two ? eight[i] : eight[4 + i], 8);
    float2 *at = (float2 *)(sums + one * N + lane % 4 * 8 + two * 4 + three * 2), sum = *at;
    sum.x += (three ? four[2] : four[0]) + __shfl_xor_sync(all, three ? four[0] : four[2], 4);
    sum.y += (three ? four[3] : four[1]) + __shfl_xor_sync(all, three ? four[1] : four[3], 4);
    *at = sum;
}

/* Reads this lane's eight numbers of columns 32 g to 32 g + 31 of a row in memory, or zeros unless
 * is_there. */
template <int N>
__device__ inline raw<bf16, 8> load_eight(const bf16 *x, int row, int g, bool is_there) {
    if (!is_there) return {make_uint4(0, 0, 0, 0)};
    return read_raw<bf16, 8>(x + (int64_t)row * N + g * 32 + threadIdx.x % 4 * 8);
}
/* The same in a tile of 64 rows in shared memory. */
__device__ inline raw<bf16, 8> *tile_eight(bf16 *tile, int at_row, int g) {
    int chunk = g % 2 * 4 + threadIdx.x % 4;
    return (raw<bf16, 8> *)(tile + g / 2 * GROUP_ROWS * 64 + tile_at<64>(at_row, chunk));
}

struct row_norm {
    float shift, rstd; /* shift = -mean */
};

/* Returns the statistics of a row, of which this lane has a part. */
template <int N> __device__ inline row_norm norm_of(const raw<bf16, 8> (&y)[N / 32], float eps) {
    float x[8], total = 0, squares = 0;
#pragma unroll
    for (int g = 0; g < N / 32; g++) {
        unpack(x, y[g]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            total += x[i];
    }
    float shift = -row_sum(total) * (1.0f / N);
#pragma unroll
    for (int g = 0; g < N / 32; g++) {
        unpack(x, y[g]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            squares += (x[i] + shift) * (x[i] + shift);
    }
    return {shift, 1.0f / sqrtf(row_sum(squares) * (1.0f / N) + eps)};
}

/* Puts y of this lane's two rows into the tile, and returns their statistics. */
template <int N>
__device__ inline void begin_norm(const row_begin &b, int row, bf16 *tile, int at_row,
                                  row_norm (&ret_of)[2]) {
    raw<bf16, 8> y[2][N / 32];
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int g = 0; g < N / 32; g++)
            y[half][g] = load_eight<N>(b.y, row + half * 8, g, row + half * 8 < b.rows);
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int g = 0; g < N / 32; g++)
            *tile_eight(tile, at_row + half * 8, g) = y[half][g];
        ret_of[half] = norm_of<N>(y[half], b.eps);
    }
}

/* Adds to the warp's sums of dgamma and dbeta. ret_mean[half] = the means over a row of its
 * gradient through gamma, and of that times the normalised row. */
template <int N, int AT_ONCE>
__device__ inline void sum_norm_grad(const row_begin &b, int row, bf16 *tile, int at_row,
                                     const row_norm (&of)[2], float *sums,
                                     float (&ret_mean)[2][2]) {
    ret_mean[0][0] = ret_mean[0][1] = ret_mean[1][0] = ret_mean[1][1] = 0;
#pragma unroll(AT_ONCE)
    for (int g = 0; g < N / 32; g++) {
        raw<bf16, 8> gamma = row_weights(b.gamma, g);
        float lane[2][8] = {};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            raw<bf16, 8> y = *tile_eight(tile, at_row + half * 8, g);
            raw<bf16, 8> dn = load_eight<N>(b.dn, row + half * 8, g, row + half * 8 < b.rows);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float hat = (y.at(i) + of[half].shift) * of[half].rstd;
                float down = dn.at(i) * gamma.at(i);
                lane[0][i] += dn.at(i) * hat;
                lane[1][i] += dn.at(i);
                ret_mean[half][0] += down;
                ret_mean[half][1] += down * hat;
            }
        }
        add_sums<N>(sums + g * 32, lane);
    }
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            ret_mean[half][i] = row_sum(ret_mean[half][i]) * (1.0f / N);
}

/* Makes dy of a warp's 16 rows, from `row` on, in memory and in the tile of 64 rows, from `at_row`
 * on. With 256 channels the rows have no room in registers; they are read again instead. */
template <int N>
__device__ inline void begin_rows(const row_begin &b, int row, bf16 *tile, int at_row,
                                  float *sums) {
    constexpr int AT_ONCE = N == 256 ? 2 : N / 32;
    row += threadIdx.x % 32 / 4, at_row += threadIdx.x % 32 / 4;
    row_norm of[2];
    float mean[2][2];
    if (b.gamma) {
        begin_norm<N>(b, row, tile, at_row, of);
        sum_norm_grad<N, AT_ONCE>(b, row, tile, at_row, of, sums, mean);
    }
#pragma unroll(AT_ONCE)
    for (int g = 0; g < N / 32; g++) {
        raw<bf16, 8> gamma = {make_uint4(0, 0, 0, 0)};
        if (b.gamma) gamma = row_weights(b.gamma, g);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            bool is_there = row + half * 8 < b.rows;
            int64_t place = (int64_t)(row + half * 8) * N + g * 32 + threadIdx.x % 4 * 8;
            raw<bf16, 8> dy = load_eight<N>(b.dy, row + half * 8, g, is_there && b.adds);
            raw<bf16, 8> *at = tile_eight(tile, at_row + half * 8, g);
            float x[8];
            if (b.gamma) {
                raw<bf16, 8> y = *at, dn = load_eight<N>(b.dn, row + half * 8, g, is_there);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    float hat = (y.at(i) + of[half].shift) * of[half].rstd;
                    float dx = dn.at(i) * gamma.at(i) - mean[half][0] - hat * mean[half][1];
                    x[i] = of[half].rstd * dx + dy.at(i);
                }
                dy = raw<bf16, 8>::of(x);
                if (is_there) write_raw<bf16, 8>(b.dy + place, dy);
            }
            *at = dy;
        }
    }
}

/* Stores a warp's 16 rows of products, from `row` on, by way of its rows of the tile. */
template <int N>
__device__ inline void store_rows(const box_map &boxes, bf16 *tile, const float (&d)[N / 8][4],
                                  int row, int at_row) {
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t out[4];
        accumulator_rows(out, d, k);
        tile_put<64>(tile + k / 4 * GROUP_ROWS * 64, at_row, k % 4 * 2, out);
    }
    tiles_publish();
    __syncwarp();
    if (threadIdx.x % 32 > 0) return;
#pragma unroll
    for (int k = 0; k < N / 64; k++)
        box_store(boxes, {row, 0, 0, 0, k * 64},
                  shared_address(tile + (k * GROUP_ROWS + at_row) * 64));
}

/* One thread prefetches `count` rows, from `row` on, into the L2 cache. */
template <int N> __device__ inline void prefetch_rows(const row_begin &b, int row, int count) {
    int64_t at = (int64_t)row * N;
    uint32_t bytes = (uint32_t)(min(count, b.rows - row) * N * (int)sizeof(bf16));
    if (b.adds) bulk_prefetch(b.dy + at, bytes);
    if (!b.gamma) return;
    bulk_prefetch(b.y + at, bytes);
    bulk_prefetch(b.dn + at, bytes);
}

/* -- sums of dgamma and dbeta: a vector [2, N] for each warp, then one for each block */

/* Returns this warp's sums after setting them to 0. */
template <int N, int WARPS> __device__ inline float *begin_sums(float *warp_sums) {
    float *sums = warp_sums + (blockIdx.x * WARPS + threadIdx.x / 32) * (int64_t)(2 * N);
    for (int i = threadIdx.x % 32; i < 2 * N; i += 32)
        sums[i] = 0;
    return sums;
}

/* Adds the sums of the block's warps in order. Called by all of them, with a free barrier. */
template <int N, int WARPS>
__device__ inline void finish_sums(const float *warp_sums, float *block_sums, int barrier) {
    const float *warps = warp_sums + (int64_t)blockIdx.x * WARPS * 2 * N;
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(WARPS * 32) : "memory");
    for (int i = threadIdx.x; i < 2 * N; i += WARPS * 32) {
        float total = 0;
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++)
            total += warps[warp * 2 * N + i];
        block_sums[blockIdx.x * 2 * N + i] = total;
    }
}

} // namespace fm_cuda

#endif
