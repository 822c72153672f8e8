/* attention_mma.cuh: the code that the forward and the backward of gated attention on tensor cores
 * share: the place of a block, the start of logits, and the arrival of key tiles.
 *
 * Fragments. A warp multiplies 16 rows by 8 columns at a time. With g = lane / 4 and t = lane % 4,
 * a lane holds four values of each such 16 x 8 accumulator (mma.cuh):
 *
 *                  columns 2 t, 2 t + 1
 *     row g        x[n][0], x[n][1]           n: which 8 columns
 *     row g + 8    x[n][2], x[n][3]
 *
 * So a sum over a row is a sum over the lane's own values and then over four neighbouring lanes
 * (row_sum). An accumulator of logits, packed to bf16, is the left operand of the next product.
 *
 * Bias. A linear layer leaves the bias with the head fastest. attention_pack_bias first gathers it,
 * padded with zeros to whole tiles, in the order of a warp's accumulators. 16 rows x 64 columns are
 * 4 parts x 32 lanes x 8 values, so a warp reads its tile by four coalesced 16-byte loads.
 *
 * Units. The instructions between the products bound these kernels, so terms enter through the
 * accumulators' initial values where possible: the mask term (divided by the scale) and -delta.
 * Logits stay in units of the unscaled product; `slope` turns them into exponents of two. */
#ifndef FM_BACKEND_CUDA_ATTENTION_MMA_CUH
#define FM_BACKEND_CUDA_ATTENTION_MMA_CUH

#include "trainer/backend/cuda/attention/attention.cuh"
#include "trainer/backend/cuda/core/early.cuh"
#include "trainer/backend/cuda/core/mma.cuh"

namespace fm_cuda {

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

/* The block's tile of rows of one (group, batch, head). */
struct tile_place {
    int group, batch, head, first; /* first row of the tile */
    int plane;                     /* of the bias: (group, head) */
    int64_t row;                   /* of lse and delta: the row of query 0 */
};

__device__ inline tile_place place_of_block(const fm_attention &a, unsigned tiles,
                                            int rows = TILE) {
    unsigned i = blockIdx.x, heads = (unsigned)a.n_head, batches = (unsigned)a.n_batch;
    tile_place p;
    p.first = (int)(i % tiles) * rows;
    i /= tiles;
    p.head = (int)(i % heads);
    i /= heads;
    p.batch = (int)(i % batches);
    p.group = (int)(i / batches);
    p.plane = p.group * (int)heads + p.head;
    p.row = row_of(a, p.group, p.batch, p.head);
    return p;
}

/* 2^x in one instruction; 2^-inf is 0. */
__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* From product to weight: 2^(product * slope - shift). */
__device__ inline float slope_of(const fm_attention &a) {
    return (float)a.scale * LOG2E;
}

/* Whether the batch has a valid key; called by all threads of the block. Without a mask the answer
 * is false, and no key has a mask term. */
template <typename T>
__device__ inline bool find_valid(const fm_attention &a, const tile_place &p) {
    if (!a.mask) return false;
    const T *mask = (const T *)a.mask + p.group * a.mask_stride[0] + p.batch * a.mask_stride[1];
    bool any = false;
    for (int64_t key = threadIdx.x; key < a.n_key; key += blockDim.x)
        any |= get(mask[key * a.mask_stride[2]]) != 0;
    return __syncthreads_or(any);
}

/* What a product with key `key` starts from: its mask term over the scale; -inf past the last
 * key. */
template <typename T>
__device__ inline float mask_term(const fm_attention &a, bool is_valid, const tile_place &p,
                                  int64_t key) {
    if (key >= a.n_key) return -INFINITY;
    if (!is_valid) return 0;
    const T *mask = (const T *)a.mask + p.group * a.mask_stride[0] + p.batch * a.mask_stride[1] +
                    key * a.mask_stride[2];
    return (float)(a.mask_value / a.scale) * (get(*mask) - 1.0f);
}

/* Sets each column of s to its term, or to 0 if `term` is NULL. */
template <int N> __device__ inline void set_columns(float s[N][4], const float *term) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 m = {0, 0};
        if (term) m = *(const float2 *)(term + n * 8 + 2 * t);
        s[n][0] = s[n][2] = m.x;
        s[n][1] = s[n][3] = m.y;
    }
}

/* Sets the lane's row g of s to `upper` and row g + 8 to `lower`. */
template <int N> __device__ inline void set_rows(float s[N][4], float upper, float lower) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        s[n][0] = s[n][1] = upper;
        s[n][2] = s[n][3] = lower;
    }
}

/* One tile of the online softmax: updates the running maximum (`largest`), the sum (`total`, this
 * lane's share) and the output o so far; s becomes the weights. */
template <int C>
__device__ inline void softmax_step(float s[8][4], float slope, float o[C / 8][4], float largest[2],
                                    float total[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = largest[half], sum = 0;
#pragma unroll
        for (int n = 0; n < 8; n++)
            top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        top = row_max(top);
        float shift = top * slope, shrink = exp2_fast(largest[half] * slope - shift);
        largest[half] = top;
#pragma unroll
        for (int n = 0; n < 8; n++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = exp2_fast(s[n][i] * slope - shift);
                sum += s[n][i];
            }
        }
        total[half] = total[half] * shrink + sum;
#pragma unroll
        for (int n = 0; n < C / 8; n++) {
            o[n][2 * half] *= shrink;
            o[n][2 * half + 1] *= shrink;
        }
    }
}

/* s = 2^(s * slope - shift of the row): logits become weights. */
template <int N>
__device__ inline void weights_by_row(float s[N][4], float slope, const float shift[2]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = exp2_fast(s[n][i] * slope - shift[i / 2]);
}

/* A warp's 16 x 8 N values of the gathered bias. */
template <int N> struct bias_tile { uint4 part[N / 2]; };

/* This lane's first value of the tile at 16-row strip `strip` and 64-column tile `column`. */
__device__ inline const uint4 *bias_at(const void *bias, int64_t plane, int64_t strips,
                                       int64_t strip, int64_t columns, int64_t column) {
    return (const uint4 *)bias + ((plane * strips + strip) * columns + column) * 128 +
           threadIdx.x % 32;
}

template <int N> __device__ inline void bias_load(bias_tile<N> *b, const uint4 *from) {
#pragma unroll
    for (int j = 0; j < N / 2; j++)
        b->part[j] = from[j * 32];
}

__device__ inline float low_half(uint32_t two) {
    return __uint_as_float(two << 16);
}
__device__ inline float high_half(uint32_t two) {
    return __uint_as_float(two & 0xffff0000u);
}

/* s += bias * factor. */
template <int N>
__device__ inline void bias_add(float s[N][4], float factor, const bias_tile<N> &b) {
#pragma unroll
    for (int j = 0; j < N / 2; j++) {
        const uint32_t words[4] = {b.part[j].x, b.part[j].y, b.part[j].z, b.part[j].w};
#pragma unroll
        for (int w = 0; w < 4; w++) {
            float *pair = &s[2 * j + w / 2][w % 2 * 2];
            pair[0] += low_half(words[w]) * factor;
            pair[1] += high_half(words[w]) * factor;
        }
    }
}

/* Two tiles of keys and values, one in use and one in flight, with the mask terms of their keys. */
template <int C> struct key_tiles {
    bf16 k[2][TILE * C], v[2][TILE * C];
    float term[2][TILE];
};

/* Starts reading the tile from key `first` into copy `at`. Returns whether this thread's key has a
 * mask term other than 0. */
template <int C>
__device__ inline bool fetch_keys(const fm_attention &a, bool is_valid, const tile_place &p,
                                  key_tiles<C> &tiles, int at, int64_t first) {
    const bf16 *k = (const bf16 *)a.k + offset_of(a.k_stride, p.group, p.batch, 0, p.head);
    const bf16 *v = (const bf16 *)a.v + offset_of(a.v_stride, p.group, p.batch, 0, p.head);
    tile_load<C>(tiles.k[at], TILE, k, a.k_stride.row, first, a.n_key, (int)a.c_head);
    tile_load<C>(tiles.v[at], TILE, v, a.v_stride.row, first, a.n_key, (int)a.c_head);
    copies_commit();
    if (threadIdx.x >= TILE) return false;
    float term = mask_term<bf16>(a, is_valid, p, first + threadIdx.x);
    tiles.term[at][threadIdx.x] = term;
    return term != 0;
}

/* The bias, and the place to which it is packed. Its rows are queries, or keys if is_transposed. A
 * lane takes eight values of each head, and the lanes of a group are ordered as [strip of 16 rows,
 * tile of 64 columns, part of 16 columns, 32]. */
struct bias_packing {
    const bf16 *bias;
    bf16 *packed;
    int64_t stride[4]; /* of the bias, as in fm_attention */
    int queries, keys, heads;
    int strips, columns; /* of a group: strips of 16 rows, tiles of 64 columns */
    int lanes;           /* of all groups */
    bool is_transposed;
    bool is_together; /* the heads of an element, four or eight, are one aligned pack */
};

/* The source of a lane's eight values of the bias, and their place. */
struct bias_place {
    int group, strip, tile;
    int row, column; /* of the first value */

    __device__ bias_place(const bias_packing &b, int i) {
        tile = i / 128 % b.columns, strip = i / 128 / b.columns % b.strips;
        group = i / 128 / b.columns / b.strips;
        row = strip * 16 + i % 32 / 4, column = tile * TILE + i / 32 % 4 * 16 + 2 * (i % 4);
    }

    /* The offset of value e, or -1 in the padding. */
    __device__ int64_t offset(const bias_packing &b, int e) const {
        int x = row + e / 2 % 2 * 8, y = column + e / 4 * 8 + e % 2;
        int query = b.is_transposed ? y : x, key = b.is_transposed ? x : y;
        if (query >= b.queries || key >= b.keys) return -1;
        return query * b.stride[2] + key * b.stride[3];
    }

    __device__ bf16 *target(const bias_packing &b, int i, int head) const {
        int64_t at = ((int64_t)(group * b.heads + head) * b.strips + strip) * b.columns + tile;
        return b.packed + (at * 128 + i % 128) * 8;
    }
};

/* Packs the values of lane i of all H heads, which are together: it reads the heads of an element
 * in one access and sorts them in registers. */
template <int H> __device__ inline void pack_lane(const bias_packing &b, int i) {
    if (i >= b.lanes) return;
    bias_place place(b, i);
    const bf16 *from = b.bias + place.group * b.stride[0];
    pack<bf16, H> in[8];
#pragma unroll
    for (int e = 0; e < 8; e++) {
        int64_t offset = place.offset(b, e);
        in[e] = {};
        if (offset >= 0) in[e] = *(const pack<bf16, H> *)(from + offset);
    }
#pragma unroll
    for (int head = 0; head < H; head++) {
        pack<bf16, 8> out;
#pragma unroll
        for (int e = 0; e < 8; e++)
            out.at[e] = in[e].at[head];
        *(pack<bf16, 8> *)place.target(b, i, head) = out;
    }
}

/* attention_mma.cu: packs the bias into space->bias, or with `is_transposed` (rows are keys,
 * columns are queries) into space->bias_t. attention_bias_packing is for kernels that call
 * pack_lane. */
bias_packing attention_bias_packing(const fm_attention *a, const attention_space *space,
                                    bool is_transposed);
void attention_pack_bias(fm_stream *stream, const fm_attention *a, const attention_space *space,
                         bool is_transposed);

} // namespace fm_cuda

#endif
