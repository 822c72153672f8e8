/* row_end.cuh: the end of a sublayer on whole rows that a warp group has just multiplied:
 *
 *     y = residual + keep * (product + bias),   n = LayerNorm(y)
 *
 * A warp group has 64 rows by N columns in accumulators, so that a row is in four lanes of one
 * warp. Sums over a row are two exchanges. What the composed path rounds between the product and
 * the sum stays in f32 here; y is rounded before its statistics are taken, as there.
 *
 * Columns. Without more ado a lane would have two neighbouring columns of every eight, and memory
 * would be read and written by 4 bytes. The rows of W are therefore in shared memory in another
 * order, which the copy engine makes: row 8 (4 g + m) + 2 q + j of the tile is row 32 g + 8 q + 2 m
 * + j of W. Accumulators [4 g .. 4 g + 3] of lane q (of four) are then the columns 32 g + 8 q to
 * 32 g + 8 q + 7, 16 bytes. */
#ifndef FM_BACKEND_CUDA_ROW_END_CUH
#define FM_BACKEND_CUDA_ROW_END_CUH

#include "trainer/backend/cuda/core/bulk.cuh"
#include "trainer/backend/cuda/core/keep.cuh"
#include "trainer/backend/cuda/core/wgmma.cuh"

namespace fm_cuda {

struct row_end {
    fm_dropout dropout;
    keep_runs keep;
    float eps;
    int rows;
    const bf16 *bias;         /* [N]; NULL: none */
    const bf16 *gamma, *beta; /* [N]; gamma NULL: no n */
    const bf16 *residual;
    bf16 *y, *n;
};

inline row_end row_end_of(const fm_update_norm *a, const void *bias, const void *residual, void *y,
                          void *n) {
    assert(is_aligned(a->gamma) && is_aligned(a->beta) && is_aligned(bias) && residual);
    assert(is_aligned(residual) && is_aligned(y) && is_aligned(n));
    return {a->dropout,
            keep_runs_of(a->dropout, 1),
            (float)a->eps,
            (int)(a->dropout.n0 * a->dropout.n1),
            (const bf16 *)bias,
            (const bf16 *)a->gamma,
            (const bf16 *)a->beta,
            (const bf16 *)residual,
            (bf16 *)y,
            (bf16 *)n};
}

/* Boxes of all n rows of w [n, k] in the order above, 64 columns wide: box_place has the column,
 * and at4 = g. */
inline box_map row_end_boxes(const void *w, int64_t n, int64_t k, int rows_of_box) {
    const int64_t extent[5] = {k, 2, 4, 4, n / 32}, stride[4] = {k, 8 * k, 2 * k, 32 * k};
    const int box[5] = {64, 2, 4, 4, rows_of_box / 32};
    return make_long_boxes(w, extent, stride, box);
}

/* The kept channels of this lane's two rows, a bit each. They are drawn again only when a row has
 * another line of the mask than the row before it. */
template <int N> struct row_keep {
    static constexpr int WORDS = (N / 32 + 3) / 4;
    uint32_t line[2], bits[2][WORDS];
    __device__ inline row_keep() {
        line[0] = line[1] = ~0u;
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            bits[0][i] = bits[1][i] = ~0u;
    }
    __device__ inline uint32_t at(int half, int g) const {
        return bits[half][g / 4] >> (g % 4 * 8);
    }
    /* For the rows `row` and `row` + 8 of a tile. */
    __device__ inline void draw(const row_end &e, int row) {
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (row + half * 8 < e.rows) draw_row(e, half, (uint32_t)(row + half * 8));
    }
    __device__ inline void draw_row(const row_end &e, int half, uint32_t row) {
        uint32_t n1 = (uint32_t)e.dropout.n1, now = row;
        if (e.dropout.shared == FM_SHARED_AXIS0) now = row % n1;
        if (e.dropout.shared == FM_SHARED_AXIS1) now = row / n1;
        if (now == line[half]) return;
        line[half] = now;
        if (half == 1 && now == line[0]) {
#pragma unroll
            for (int i = 0; i < WORDS; i++)
                bits[1][i] = bits[0][i];
            return;
        }
        keep_run run = {now, row, 1, 1};
        uint64_t first = keep_draw(e.dropout, e.keep, run, row) + threadIdx.x % 4 * 8;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            uint32_t word = 0;
#pragma unroll
            for (int g = 4 * i; g < 4 * i + 4 && g < N / 32; g++)
                word |= keep_bits<8>(e.dropout, e.keep, first + g * 32) << (g % 4 * 8);
            bits[half][i] = word;
        }
    }
};

/* This lane's parts of its two rows: of the residual, then of y. */
template <int N> struct row_parts {
    /* Eights whose residual is read ahead. With all of a row of 256, registers would spill. */
    static constexpr int AHEAD = N == 256 ? 4 : N / 32;
    raw<bf16, 8> at[2][N / 32];
};

/* `row` is the first of this lane's two rows, as in all functions below. */
template <int N>
__device__ inline void load_residual(const row_end &e, int row, row_parts<N> &parts, int g) {
    const bf16 *from = e.residual + (int64_t)row * N + threadIdx.x % 4 * 8 + g * 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        parts.at[half][g] = {make_uint4(0, 0, 0, 0)};
        if (row + half * 8 < e.rows) parts.at[half][g] = read_raw<bf16, 8>(from + half * 8 * N);
    }
}
template <int N>
__device__ inline void load_residual(const row_end &e, int row, row_parts<N> &parts) {
#pragma unroll
    for (int g = 0; g < row_parts<N>::AHEAD; g++)
        load_residual<N>(e, row, parts, g);
}

/* Eight numbers as f32. The compiler does not see that an earlier call gave the same, so that it
 * keeps a row packed in registers. */
__device__ inline void unpack(float (&x)[8], raw<bf16, 8> packed) {
    uint4 &w = packed.word;
    asm("" : "+r"(w.x), "+r"(w.y), "+r"(w.z), "+r"(w.w));
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = packed.at(i);
}

__device__ inline raw<bf16, 8> row_weights(const bf16 *weights, int g) {
    return {__ldg((const uint4 *)(weights + g * 32) + threadIdx.x % 4)};
}

/* Makes y of the residual and stores it; total = the sums of this lane's parts. A `keep` of NULL
 * drops nothing. */
template <int N>
__device__ inline void add_update(const row_end &e, const float (&d)[N / 8][4], int row,
                                  row_parts<N> &parts, const row_keep<N> *keep, float (&total)[2]) {
    bf16 *y = e.y + (int64_t)row * N + threadIdx.x % 4 * 8;
    total[0] = total[1] = 0;
#pragma unroll
    for (int g = 0; g < N / 32; g++) {
        constexpr int AHEAD = row_parts<N>::AHEAD;
        if (g + AHEAD < N / 32) load_residual<N>(e, row, parts, g + AHEAD);
        raw<bf16, 8> bias = {make_uint4(0, 0, 0, 0)};
        if (e.bias) bias = row_weights(e.bias, g);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t bits = keep ? keep->at(half, g) : 0;
            raw<bf16, 8> &part = parts.at[half][g];
            float sum[8];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float update = d[4 * g + i / 2][2 * half + i % 2] + bias.at(i);
                sum[i] = (keep ? keep_factor(e.keep, bits, i) * update : update) + part.at(i);
            }
            part = raw<bf16, 8>::of(sum);
            if (row + half * 8 < e.rows) write_raw<bf16, 8>(y + half * 8 * N + g * 32, part);
            unpack(sum, part);
#pragma unroll
            for (int i = 0; i < 8; i++)
                total[half] += sum[i];
        }
    }
}

/* LayerNorm of y to n. */
template <int N>
__device__ inline void normalise(const row_end &e, int row, const row_parts<N> &y,
                                 const float (&total)[2]) {
    bf16 *to = e.n + (int64_t)row * N + threadIdx.x % 4 * 8;
    float rstd[2], shift[2], x[8];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float mean = row_sum(total[half]) * (1.0f / N), squares = 0;
#pragma unroll
        for (int g = 0; g < N / 32; g++) {
            unpack(x, y.at[half][g]);
#pragma unroll
            for (int i = 0; i < 8; i++)
                squares += (x[i] - mean) * (x[i] - mean);
        }
        rstd[half] = 1.0f / sqrtf(row_sum(squares) * (1.0f / N) + e.eps);
        shift[half] = -mean;
    }
#pragma unroll
    for (int g = 0; g < N / 32; g++) {
        raw<bf16, 8> gamma = row_weights(e.gamma, g), beta = row_weights(e.beta, g);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unpack(x, y.at[half][g]);
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] = (x[i] + shift[half]) * rstd[half] * gamma.at(i) + beta.at(i);
            raw<bf16, 8> out = raw<bf16, 8>::of(x);
            if (row + half * 8 < e.rows) write_raw<bf16, 8>(to + half * 8 * N + g * 32, out);
        }
    }
}

/* Finishes the lane's two rows; `parts` has the residual. */
template <int N>
__device__ inline void finish_rows(const row_end &e, const float (&d)[N / 8][4], int row,
                                   row_parts<N> &parts, const row_keep<N> *keep) {
    float total[2];
    add_update<N>(e, d, row, parts, keep, total);
    if (e.gamma) normalise<N>(e, row, parts, total);
}

/* A barrier of the 128 threads of warp group `group`. */
__device__ inline void group_wait(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

} // namespace fm_cuda

#endif
