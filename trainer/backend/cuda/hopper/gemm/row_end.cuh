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

#include "trainer/backend/cuda/hopper/core/bulk.cuh"
#include "trainer/backend/cuda/core/keep.cuh"
#include "trainer/backend/cuda/hopper/core/wgmma.cuh"

namespace fm_cuda {

/* A LayerNorm of whole rows. */
struct end_norm {
    const bf16 *gamma, *beta; /* [N] */
    bf16 *n;
};

struct row_end {
    fm_dropout dropout;
    keep_runs keep;
    float eps;
    int rows;
    const bf16 *bias; /* [N]; NULL: none */
    const bf16 *residual;
    bf16 *y;
    int norms; /* 0, 1, or with a later one 2 */
    end_norm norm[2];
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
            (const bf16 *)residual,
            (bf16 *)y,
            a->gamma ? 1 : 0,
            {{(const bf16 *)a->gamma, (const bf16 *)a->beta, (bf16 *)n}, {}}};
}

/* Boxes of all rows of w [n, k] in the order above, 64 columns wide: box_place has the column. */
inline box_map row_end_boxes(const void *w, int64_t n, int64_t k) {
    const int64_t extent[5] = {k, 2, 4, 4, n / 32}, stride[4] = {k, 8 * k, 2 * k, 32 * k};
    const int box[5] = {64, 2, 4, 4, (int)n / 32};
    return make_long_boxes(w, extent, stride, box);
}

/* Where a lane's two rows are: in 64 rows that follow each other, eight apart. */
struct near_rows {
    int first, rows; /* rows: of the array */
    __device__ inline int64_t at(int half) const {
        return (int64_t)first + half * 8;
    }
    __device__ inline bool has(int half) const {
        return first + half * 8 < rows;
    }
};
/* Two of the 16 rows of a warp that share a line of the dropout mask. */
struct line_rows {
    uint32_t first, step;
    int left; /* rows of the line from the first on, as if every row were one further */
    __device__ inline int64_t at(int half) const {
        return first + half * step;
    }
    __device__ inline bool has(int half) const {
        return half * 8 < left;
    }
};

/* The kept channels of a warp's rows, which share a line of the mask; a bit for each of this
 * lane's channels. */
template <int N> struct row_keep {
    static constexpr int WORDS = (N / 32 + 3) / 4;
    uint32_t bits[WORDS];
    __device__ inline uint32_t at(int g) const {
        return bits[g / 4] >> (g % 4 * 8);
    }
    /* Each lane draws for four channels of every 128, from the draw `first` on. Then it collects
     * the bits of its eights of channels from the lanes that drew them. */
    __device__ inline void draw(const row_end &e, const fm_philox_counter &clock, uint64_t first) {
        uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            uint32_t four = keep_bits<4>(e.dropout, e.keep, clock, first + 128 * i + 4 * lane);
            uint32_t eight = four | __shfl_down_sync(0xffffffffu, four, 1) << 4;
            bits[i] = 0;
#pragma unroll
            for (int g = 0; g < 4 && 4 * i + g < N / 32; g++)
                bits[i] |= __shfl_sync(0xffffffffu, eight, 8 * g + lane % 4 * 2) << (8 * g);
        }
    }
};

/* This lane's parts of its two rows: of the residual, then of y. */
template <int N> struct row_parts {
    /* Eights whose residual is read ahead. With all of a row of 256, registers would spill. */
    static constexpr int AHEAD = N == 256 ? 4 : N / 32;
    raw<bf16, 8> at[2][N / 32];
};

/* Both kinds of R say where this lane's two rows are, as in all functions below. */
template <int N, typename R>
__device__ inline void load_residual(const row_end &e, R rows, row_parts<N> &parts, int g) {
    const bf16 *from = e.residual + threadIdx.x % 4 * 8 + g * 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        parts.at[half][g] = {make_uint4(0, 0, 0, 0)};
        if (rows.has(half)) parts.at[half][g] = read_raw<bf16, 8>(from + rows.at(half) * N);
    }
}
template <int N, typename R>
__device__ inline void load_residual(const row_end &e, R rows, row_parts<N> &parts) {
#pragma unroll
    for (int g = 0; g < row_parts<N>::AHEAD; g++)
        load_residual<N>(e, rows, parts, g);
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

/* Adds a lane's eight columns of y to the sum of its part of the row. */
__device__ inline void add_to_total(raw<bf16, 8> part, float &total) {
    float x[8];
    unpack(x, part);
#pragma unroll
    for (int i = 0; i < 8; i++)
        total += x[i];
}

/* Makes y of the residual and stores it; total = the sums of this lane's parts. A `keep` of NULL
 * drops nothing. */
template <int N, typename R>
__device__ inline void add_update(const row_end &e, const float (&d)[N / 8][4], R rows,
                                  row_parts<N> &parts, const row_keep<N> *keep, float (&total)[2]) {
    bf16 *y = e.y + threadIdx.x % 4 * 8;
    total[0] = total[1] = 0;
#pragma unroll
    for (int g = 0; g < N / 32; g++) {
        constexpr int AHEAD = row_parts<N>::AHEAD;
        if (g + AHEAD < N / 32) load_residual<N>(e, rows, parts, g + AHEAD);
        raw<bf16, 8> bias = {make_uint4(0, 0, 0, 0)};
        if (e.bias) bias = row_weights(e.bias, g);
        uint32_t bits = keep ? keep->at(g) : 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            raw<bf16, 8> &part = parts.at[half][g];
            float sum[8];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float update = d[4 * g + i / 2][2 * half + i % 2] + bias.at(i);
                sum[i] = (keep ? keep_factor(e.keep, bits, i) * update : update) + part.at(i);
            }
            part = raw<bf16, 8>::of(sum);
            if (rows.has(half)) write_raw<bf16, 8>(y + rows.at(half) * N + g * 32, part);
            add_to_total(part, total[half]);
        }
    }
}

/* The statistics of a lane's two rows of y. */
struct end_statistics {
    float rstd[2], shift[2];
};

template <int N>
__device__ inline end_statistics statistics_of_rows(const row_end &e, const row_parts<N> &y,
                                                    const float (&total)[2]) {
    end_statistics of;
    float x[8];
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
        of.rstd[half] = 1.0f / sqrtf(row_sum(squares) * (1.0f / N) + e.eps);
        of.shift[half] = -mean;
    }
    return of;
}

/* LayerNorm of y to n. */
template <int N, typename R>
__device__ inline void normalise(const end_norm &norm, R rows, const row_parts<N> &y,
                                 const end_statistics &of) {
    bf16 *to = norm.n + threadIdx.x % 4 * 8;
    float x[8];
#pragma unroll
    for (int g = 0; g < N / 32; g++) {
        raw<bf16, 8> gamma = row_weights(norm.gamma, g), beta = row_weights(norm.beta, g);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unpack(x, y.at[half][g]);
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] = (x[i] + of.shift[half]) * of.rstd[half] * gamma.at(i) + beta.at(i);
            raw<bf16, 8> out = raw<bf16, 8>::of(x);
            if (rows.has(half)) write_raw<bf16, 8>(to + rows.at(half) * N + g * 32, out);
        }
    }
}

/* Finishes the lane's two rows; `parts` has the residual. */
template <int N, bool LATER, typename R>
__device__ inline void finish_rows(const row_end &e, const float (&d)[N / 8][4], R rows,
                                   row_parts<N> &parts, const row_keep<N> *keep) {
    float total[2];
    add_update<N>(e, d, rows, parts, keep, total);
    if (e.norms == 0) return;
    end_statistics of = statistics_of_rows<N>(e, parts, total);
    if constexpr (LATER) {
        /* Unrolled, the weights of both norms would be loaded first, and spilled. */
#pragma unroll 1
        for (int i = 0; i < e.norms; i++)
            normalise<N>(e.norm[i], rows, parts, of);
    } else {
        normalise<N>(e.norm[0], rows, parts, of);
    }
}

/* The norms alone, of rows whose y is there. They have the bits that finish_rows gives them. */
template <int N, typename R> __device__ inline void normalise_rows(const row_end &e, R rows) {
    row_parts<N> parts;
    row_end from = e;
    from.residual = e.y;
    float total[2] = {0, 0};
#pragma unroll
    for (int g = 0; g < N / 32; g++)
        load_residual<N>(from, rows, parts, g);
#pragma unroll
    for (int g = 0; g < N / 32; g++) {
#pragma unroll
        for (int half = 0; half < 2; half++)
            add_to_total(parts.at[half][g], total[half]);
    }
    end_statistics of = statistics_of_rows<N>(e, parts, total);
#pragma unroll 1
    for (int i = 0; i < e.norms; i++)
        normalise<N>(e.norm[i], rows, parts, of);
}

/* A barrier of the 128 threads of warp group `group`. */
__device__ inline void group_wait(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

} // namespace fm_cuda

#endif
