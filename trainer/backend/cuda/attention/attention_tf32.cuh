/* attention_tf32.cuh: the code that the kernels of gated attention with tf32 products share.
 *
 * Numbers are f32 in memory. A product rounds its operands to tf32 (11 significant bits) and sums
 * in f32. Everything else, the softmax included, is f32.
 *
 * Fragments. A warp multiplies 16 rows by 8 columns, 8 deep at a time (mma.sync m16n8k8). With
 * g = lane / 4 and t = lane % 4, a lane holds
 *
 *     A [16, 8]    a[0]  row g, column t          a[1]  row g + 8, column t
 *                  a[2]  row g, column t + 4      a[3]  row g + 8, column t + 4
 *     B [8, 8]     b0    row t of column g        b1    row t + 4 of column g
 *     D [16, 8]    as in mma.cuh: columns 2 t and 2 t + 1 of rows g (d[0], d[1]) and g + 8
 *
 * The order of a product's sum and of its columns is free, so this file chooses them to suit the
 * memory:
 *
 *     over channels    16 channels are two steps of 8. A lane has channels 4 t .. 4 t + 3 of them,
 *                      one 16-byte access for each row of A or B.
 *     over rows        Accumulators become the A of the next product in place: d[0] and d[1] are
 *                      a[0] and a[2]. Column 2 t of an accumulator stands for row first_row(t) of
 *                      the 8 rows of the tile, column 2 t + 1 for row second_row(t). B of the next
 *                      product takes the same two rows.
 *     channels of o    A lane reads channels 2 g and 2 g + 1 of 16 at once. So accumulators 2 j and
 *                      2 j + 1 of a lane together have its channels 16 j + 4 t .. 16 j + 4 t + 3.
 *
 * Tiles. A row of a tile has C + 8 floats. With this distance neither access has a bank conflict:
 * the reads of 16 bytes visit rows first_row(t) and second_row(t) together, which differ by 2 rows
 * or 16 banks; the reads of 8 bytes visit four rows that are different modulo 4, 8 banks apart.
 *
 * Bias. attention_tf32_bias gathers it, padded with zeros, in the order of a warp's accumulators:
 * for each 16 rows and 32 columns, 4 parts x 32 lanes x 4 floats. */
#ifndef FM_BACKEND_CUDA_ATTENTION_TF32_CUH
#define FM_BACKEND_CUDA_ATTENTION_TF32_CUH

#include "trainer/backend/cuda/attention/attention_mma.cuh"

namespace fm_cuda {

/* STEP: rows of a tile that a warp takes at a time in backward. */
enum { STEP = TILE / 2, STEP_BIAS = 16 * STEP };

/* The rows, of 8, that columns 2 t and 2 t + 1 of an accumulator stand for:
 * 0 2, 1 3, 6 4, 7 5 for t = 0 .. 3. */
__device__ inline int first_row(int t) {
    return t + (t & 2) * 2;
}
__device__ inline int second_row(int t) {
    return t + 2;
}

/* The distance of a tile's rows in floats. */
template <int C> __host__ __device__ constexpr int tile_ld() {
    return C + 8;
}

/* Starts copying `count` rows (a multiple of 16) of a matrix to a tile, from row `first` on. Only c
 * of the C channels exist, and only rows before `end`; the rest becomes zeros. */
template <int C>
__device__ inline void tile_load_f32(float *tile, int count, const float *rows, int64_t stride,
                                     int64_t first, int64_t end, int c) {
    int at = threadIdx.x % 4 * 4, row = threadIdx.x / 4, step = blockDim.x / 4;
    const float *from = rows + (first + row) * stride + at;
    float *to = tile + row * tile_ld<C>() + at;
    for (; row < count; row += step, from += step * stride, to += step * tile_ld<C>()) {
#pragma unroll
        for (int j = 0; j < C; j += 16) {
            bool is_there = first + row < end && at + j < c;
            copy_async((bf16 *)(to + j), (const bf16 *)(is_there ? from + j : rows), is_there);
        }
    }
}

/* Reads the A operand of a warp from memory: 16 rows from `first` on, all C channels; zeros as
 * above. */
template <int C, bool IS_ROUNDED>
__device__ inline void rows_load(uint32_t a[C / 8][4], const float *rows, int64_t stride,
                                 int64_t first, int64_t end, int c) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t row = first + g + 8 * half;
        const float *from = rows + row * stride + 4 * t;
#pragma unroll
        for (int j = 0; j < C / 16; j++) {
            float4 x = {0, 0, 0, 0};
            if (row < end && 16 * j + 4 * t < c) x = *(const float4 *)(from + 16 * j);
            a[2 * j][half] = IS_ROUNDED ? __float_as_uint(x.x) : operand_of(x.x);
            a[2 * j][half + 2] = IS_ROUNDED ? __float_as_uint(x.y) : operand_of(x.y);
            a[2 * j + 1][half] = IS_ROUNDED ? __float_as_uint(x.z) : operand_of(x.z);
            a[2 * j + 1][half + 2] = IS_ROUNDED ? __float_as_uint(x.w) : operand_of(x.w);
        }
    }
}

/* s[16 S, 8 N] += a[16 S, C] tile[8 N, C]^T, S strips of 16 rows. IS_ROUNDED: the tile's numbers
 * are tf32 already. */
template <int C, int N, bool IS_ROUNDED, int S = 1>
__device__ inline void times_rows_transposed(float s[S * N][4], const uint32_t a[S * C / 8][4],
                                             const float *tile) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float *at = tile + (g % 2 ? second_row(g / 2) : first_row(g / 2)) * tile_ld<C>() + 4 * t;
#pragma unroll
    for (int j = 0; j < C / 16; j++) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            float4 x = *(const float4 *)(at + n * 8 * tile_ld<C>() + 16 * j);
            if (!IS_ROUNDED) {
                x.x = round_operand(x.x), x.y = round_operand(x.y);
                x.z = round_operand(x.z), x.w = round_operand(x.w);
            }
#pragma unroll
            for (int i = 0; i < S; i++) {
                const uint32_t(*rows)[4] = a + i * C / 8 + 2 * j;
                mma_tf32(s[i * N + n], rows[0], __float_as_uint(x.x), __float_as_uint(x.y));
                mma_tf32(s[i * N + n], rows[1], __float_as_uint(x.z), __float_as_uint(x.w));
            }
        }
    }
}

/* o[16 S, C] += p[16 S, 8 N] tile[8 N, C]; p is in the layout of an accumulator. */
template <int C, int N, bool IS_ROUNDED, int S = 1>
__device__ inline void times_rows(float o[S * C / 8][4], const float p[S * N][4],
                                  const float *tile) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float *first = tile + first_row(t) * tile_ld<C>() + 2 * g;
    const float *second = tile + second_row(t) * tile_ld<C>() + 2 * g;
#pragma unroll
    for (int n = 0; n < N; n++) {
        uint32_t a[S][4];
#pragma unroll
        for (int i = 0; i < S; i++) {
            const float *x = p[i * N + n];
            a[i][0] = operand_of(x[0]), a[i][1] = operand_of(x[2]);
            a[i][2] = operand_of(x[1]), a[i][3] = operand_of(x[3]);
        }
#pragma unroll
        for (int j = 0; j < C / 16; j++) {
            float2 x = *(const float2 *)(first + n * 8 * tile_ld<C>() + 16 * j);
            float2 y = *(const float2 *)(second + n * 8 * tile_ld<C>() + 16 * j);
            if (!IS_ROUNDED) {
                x.x = round_operand(x.x), x.y = round_operand(x.y);
                y.x = round_operand(y.x), y.y = round_operand(y.y);
            }
#pragma unroll
            for (int i = 0; i < S; i++) {
                float(*to)[4] = o + i * C / 8 + 2 * j;
                mma_tf32(to[0], a[i], __float_as_uint(x.x), __float_as_uint(y.x));
                mma_tf32(to[1], a[i], __float_as_uint(x.y), __float_as_uint(y.y));
            }
        }
    }
}

/* The four neighbouring channels, from 16 j + 4 t on, of the lane's row g (half 0) or g + 8. */
__device__ inline void channels_of(float to[4], const float (*o)[4], int j, int half) {
    to[0] = o[2 * j][2 * half];
    to[1] = o[2 * j + 1][2 * half];
    to[2] = o[2 * j][2 * half + 1];
    to[3] = o[2 * j + 1][2 * half + 1];
}

/* The two columns of part n of a warp's accumulators, of values that each row of a tile has. */
__device__ inline float2 columns_at(const float *values, int n) {
    int t = threadIdx.x % 4;
    return {values[n * 8 + first_row(t)], values[n * 8 + second_row(t)]};
}

/* Sets each column of s to its value, or to 0 if `values` is NULL. */
template <int N> __device__ inline void start_columns(float s[N][4], const float *values) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 x = {0, 0};
        if (values) x = columns_at(values, n);
        s[n][0] = s[n][2] = x.x;
        s[n][1] = s[n][3] = x.y;
    }
}

/* This lane's first value of the gathered bias at the 16-row strip `strip`, the first of S, and
 * 32-column step `step`; strips past the last one take the last S. */
template <int S>
__device__ inline const float4 *packed_at(const void *bias, int64_t plane, int64_t strips,
                                          int64_t strip, int64_t steps, int64_t step) {
    return (const float4 *)bias +
           ((plane * strips + min_size(strip, strips - S)) * steps + step) * (STEP_BIAS / 4) +
           threadIdx.x % 32;
}

/* s += bias * factor. */
template <int N>
__device__ inline void packed_add(float s[N][4], float factor, const float4 *bias) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        float4 b = bias[n * 32];
        s[n][0] += b.x * factor;
        s[n][1] += b.y * factor;
        s[n][2] += b.z * factor;
        s[n][3] += b.w * factor;
    }
}

/* Two tiles of keys and values, one in use and one in flight, with the mask terms of their keys. */
template <int C> struct f32_keys {
    float k[2][TILE * tile_ld<C>()], v[2][TILE * tile_ld<C>()];
    float term[2][TILE];
};

/* Starts reading the tile from key `first` into copy `at`. Returns whether this thread's key has a
 * mask term other than 0. */
template <int C>
__device__ inline bool fetch_f32_keys(const fm_attention &a, bool is_valid, const tile_place &p,
                                      f32_keys<C> &tiles, int at, int64_t first) {
    const float *k = (const float *)a.k + offset_of(a.k_stride, p.group, p.batch, 0, p.head);
    const float *v = (const float *)a.v + offset_of(a.v_stride, p.group, p.batch, 0, p.head);
    tile_load_f32<C>(tiles.k[at], TILE, k, a.k_stride.row, first, a.n_key, (int)a.c_head);
    tile_load_f32<C>(tiles.v[at], TILE, v, a.v_stride.row, first, a.n_key, (int)a.c_head);
    copies_commit();
    if (threadIdx.x >= TILE) return false;
    float term = mask_term<float>(a, is_valid, p, first + threadIdx.x);
    tiles.term[at][threadIdx.x] = term;
    return term != 0;
}

/* How many warps a block has that takes queries. */
int attention_tf32_warps(const fm_attention *a);

/* How many heads of the bias, or of its gradient, one access reads: 4, or 1. */
int attention_tf32_heads(const fm_attention *a, const void *bias);

/* attention_tf32.cu: gathers the bias into space->bias, or with `is_transposed` (rows are keys,
 * columns are queries) into space->bias_t. */
void attention_tf32_bias(fm_stream *stream, const fm_attention *a, const attention_space *space,
                         bool is_transposed);

} // namespace fm_cuda

#endif
