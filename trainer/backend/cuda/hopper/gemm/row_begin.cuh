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

#include "trainer/backend/cuda/hopper/gemm/row_end.cuh"

namespace fm_cuda {

struct row_begin {
    int rows;
    float eps;
    const bf16 *gamma; /* NULL: dy is complete, and only read */
    bf16 *dy;
    bool adds; /* to dy; else dy is written */
};

inline row_begin row_begin_of(const fm_update_norm *a, const void *y, const void *dn, fm_out dy) {
    assert(is_aligned(a->gamma) && is_aligned(y) && is_aligned(dn) && is_aligned(dy.data));
    assert(!a->gamma || (y && dn));
    return {(int)(a->dropout.n0 * a->dropout.n1), (float)a->eps, (const bf16 *)a->gamma,
            (bf16 *)dy.data, !a->gamma || dy.beta == FM_ADD};
}

/* A lane's part of a warp's sums of dgamma or dbeta: two numbers of every 32 columns, of dgamma in
 * the first half of the warp. */
template <int N> using lane_sums = float[N / 32][2];

/* Sums x, eight values of dgamma and of dbeta for the columns of each lane, over the eight lanes
 * with the same columns, and adds the two that this lane keeps. */
__device__ inline void add_sums(float (&sums)[2], const float (&x)[2][8]) {
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
#pragma unroll
    for (int i = 0; i < 2; i++)
        sums[i] += (three ? four[2 + i] : four[i]) +
                   __shfl_xor_sync(all, three ? four[i] : four[2 + i], 4);
}

/* This lane's eight numbers of columns 32 g to 32 g + 31 of a row of a tile of 64 rows. */
__device__ inline raw<bf16, 8> *tile_eight(bf16 *tile, int at_row, int g) {
    int chunk = g % 2 * 4 + threadIdx.x % 4;
    return (raw<bf16, 8> *)(tile + g / 2 * GROUP_ROWS * 64 + tile_at<64>(at_row, chunk));
}

struct row_norm {
    float shift, rstd; /* shift = -mean */
};

/* Returns the statistics of a row of y, of which this lane has a part. */
template <int N> __device__ inline row_norm norm_of(bf16 *y, int at_row, float eps) {
    float x[8], total = 0, squares = 0;
#pragma unroll
    for (int g = 0; g < N / 32; g++) {
        unpack(x, *tile_eight(y, at_row, g));
#pragma unroll
        for (int i = 0; i < 8; i++)
            total += x[i];
    }
    float shift = -row_sum(total) * (1.0f / N);
#pragma unroll
    for (int g = 0; g < N / 32; g++) {
        unpack(x, *tile_eight(y, at_row, g));
#pragma unroll
        for (int i = 0; i < 8; i++)
            squares += (x[i] + shift) * (x[i] + shift);
    }
    return {shift, 1.0f / sqrtf(row_sum(squares) * (1.0f / N) + eps)};
}

/* The copy engine's tiles of 64 rows of y, dn and dy; dy's becomes the result. */
struct row_begin_tiles {
    bf16 *y, *dn, *dy;
};

/* Adds to the warp's sums of dgamma and dbeta. ret_mean[half] = the means over a row of its
 * gradient through gamma, and of that times the normalised row. */
template <int N>
__device__ inline void sum_norm_grad(const row_begin &b, const row_begin_tiles &tiles, int at_row,
                                     const row_norm (&of)[2], lane_sums<N> &sums,
                                     float (&ret_mean)[2][2]) {
    ret_mean[0][0] = ret_mean[0][1] = ret_mean[1][0] = ret_mean[1][1] = 0;
#pragma unroll
    for (int g = 0; g < N / 32; g++) {
        raw<bf16, 8> gamma = row_weights(b.gamma, g);
        float lane[2][8] = {};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            raw<bf16, 8> y = *tile_eight(tiles.y, at_row + half * 8, g);
            raw<bf16, 8> dn = *tile_eight(tiles.dn, at_row + half * 8, g);
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
        add_sums(sums[g], lane);
    }
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            ret_mean[half][i] = row_sum(ret_mean[half][i]) * (1.0f / N);
}

/* Makes dy of a warp's 16 rows, from `row` on, in memory and in its tile, from `at_row` on. Without
 * a norm behind the sublayer the tile has it already. */
template <int N>
__device__ inline void begin_rows(const row_begin &b, const row_begin_tiles &tiles, int row,
                                  int at_row, lane_sums<N> &sums) {
    if (!b.gamma) return;
    row += threadIdx.x % 32 / 4, at_row += threadIdx.x % 32 / 4;
    const row_norm of[2] = {norm_of<N>(tiles.y, at_row, b.eps),
                            norm_of<N>(tiles.y, at_row + 8, b.eps)};
    float mean[2][2];
    sum_norm_grad<N>(b, tiles, at_row, of, sums, mean);
#pragma unroll
    for (int g = 0; g < N / 32; g++) {
        raw<bf16, 8> gamma = row_weights(b.gamma, g);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t place = (int64_t)(row + half * 8) * N + g * 32 + threadIdx.x % 4 * 8;
            raw<bf16, 8> *at = tile_eight(tiles.dy, at_row + half * 8, g);
            raw<bf16, 8> y = *tile_eight(tiles.y, at_row + half * 8, g);
            raw<bf16, 8> dn = *tile_eight(tiles.dn, at_row + half * 8, g);
            raw<bf16, 8> dy = {make_uint4(0, 0, 0, 0)};
            if (b.adds) dy = *at;
            float x[8];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float hat = (y.at(i) + of[half].shift) * of[half].rstd;
                float dx = dn.at(i) * gamma.at(i) - mean[half][0] - hat * mean[half][1];
                x[i] = of[half].rstd * dx + dy.at(i);
            }
            *at = raw<bf16, 8>::of(x);
            if (row + half * 8 < b.rows) write_raw<bf16, 8>(b.dy + place, *at);
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

/* -- sums of dgamma and dbeta */

/* Adds the sums of the block's warps in order. Called by all of them, with a free barrier;
 * place_of(warp) is shared memory for a vector [2, N]. */
template <int N, int WARPS, typename F>
__device__ inline void finish_sums(const lane_sums<N> &sums, F place_of, float *block_sums,
                                   int barrier) {
    int lane = threadIdx.x % 32;
    float *to = place_of(threadIdx.x / 32) + lane / 16 * N + lane % 4 * 8 + lane / 4 % 4 * 2;
#pragma unroll
    for (int g = 0; g < N / 32; g++)
        *(float2 *)(to + g * 32) = make_float2(sums[g][0], sums[g][1]);
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(WARPS * 32) : "memory");
    for (int i = threadIdx.x; i < 2 * N; i += WARPS * 32) {
        float total = 0;
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++)
            total += place_of(warp)[i];
        block_sums[blockIdx.x * 2 * N + i] = total;
    }
}

} // namespace fm_cuda

#endif
