/* attention_mma.cuh: what the forward and the backward of gated attention on tensor cores share:
 * where a block is, how logits are made, how key tiles arrive.
 *
 * The bias comes with the head fastest, as a linear layer leaves it. It is first gathered, padded
 * with zeros to whole tiles, in the order in which the accumulators of a warp want it: 16 rows x 64
 * columns are 4 x 32 lanes x 8 values, so that a warp reads its tile with four coalesced 16-byte
 * loads.
 *
 * Arithmetic beside the products is what bounds these kernels, so terms enter through the
 * accumulators' initial values: the mask (divided by the scale) and -delta. Logits stay in units in
 * which `slope` makes them powers of two: natural with a bias, undivided products without. */
#ifndef FM_BACKEND_CUDA_ATTENTION_MMA_CUH
#define FM_BACKEND_CUDA_ATTENTION_MMA_CUH

#include "trainer/backend/cuda/attention/attention.cuh"
#include "trainer/backend/cuda/core/bulk.cuh"
#include "trainer/backend/cuda/core/mma.cuh"

namespace fm_cuda {

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

/* Where a block is: a tile of rows of one (group, batch, head). */
struct tile_place {
    int group, batch, head, first; /* first row of the tile */
    int plane;                     /* of the bias */
    int64_t row;                   /* of lse and delta: row of query 0 */
};

__device__ inline tile_place place_of_block(const fm_attention &a, unsigned tiles) {
    unsigned i = blockIdx.x, heads = (unsigned)a.n_head, batches = (unsigned)a.n_batch;
    tile_place p;
    p.first = (int)(i % tiles) * TILE;
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
__device__ inline float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* How products become powers of two: logit = product * scale (+ bias), weight = 2^(logit * slope -
 * shift). */
struct logit_units {
    float scale, slope;
};

__device__ inline logit_units units_of(const fm_attention &a) {
    if (a.bias) return {(float)a.scale, LOG2E};
    return {1.0f, (float)a.scale * LOG2E};
}

/* Whether any key of the batch is valid; all threads of the block ask. Without a mask: false, and
 * no key has a term. */
__device__ inline bool find_valid(const fm_attention &a, const tile_place &p) {
    if (!a.mask) return false;
    const bf16 *mask =
        (const bf16 *)a.mask + p.group * a.mask_stride[0] + p.batch * a.mask_stride[1];
    bool any = false;
    for (int64_t key = threadIdx.x; key < a.n_key; key += blockDim.x)
        any |= get(mask[key * a.mask_stride[2]]) != 0;
    return __syncthreads_or(any);
}

/* What a product with key `key` starts from: the mask over the scale; -inf beyond the last key. */
__device__ inline float mask_term(const fm_attention &a, bool is_valid, const tile_place &p,
                                  int64_t key) {
    if (key >= a.n_key) return -INFINITY;
    if (!is_valid) return 0;
    const bf16 *mask = (const bf16 *)a.mask + p.group * a.mask_stride[0] +
                       p.batch * a.mask_stride[1] + key * a.mask_stride[2];
    return (float)(a.mask_value / a.scale) * (get(*mask) - 1.0f);
}

/* All columns start from their term, or from 0 where `term` is NULL. */
template <int N> __device__ inline void start_by_column(float s[N][4], const float *term) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 m = {0, 0};
        if (term) m = *(const float2 *)(term + n * 8 + 2 * t);
        s[n][0] = s[n][2] = m.x;
        s[n][1] = s[n][3] = m.y;
    }
}

template <int N> __device__ inline void start_by_row(float s[N][4], float upper, float lower) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        s[n][0] = s[n][1] = upper;
        s[n][2] = s[n][3] = lower;
    }
}

/* 16 x 8 N values of the gathered bias, a warp's. */
template <int N> struct bias_tile { uint4 part[N / 2]; };

/* Where the tile of 16-row strip `strip` and column tile `column` begins, for this lane. */
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

/* s = s * scale + bias. */
template <int N>
__device__ inline void bias_apply(float s[N][4], float scale, const bias_tile<N> &b) {
#pragma unroll
    for (int j = 0; j < N / 2; j++) {
        const uint32_t words[4] = {b.part[j].x, b.part[j].y, b.part[j].z, b.part[j].w};
#pragma unroll
        for (int w = 0; w < 4; w++) {
            float *pair = &s[2 * j + w / 2][w % 2 * 2];
            pair[0] = pair[0] * scale + low_half(words[w]);
            pair[1] = pair[1] * scale + high_half(words[w]);
        }
    }
}

/* Two tiles of keys and values in flight, with the terms of their keys. */
template <int C> struct key_tiles {
    bf16 k[2][TILE * C], v[2][TILE * C];
    float term[2][TILE];
};

/* Starts reading the tile from key `first` into place `at`; whether this thread's key has a term.
 */
template <int C>
__device__ inline bool fetch_keys(const fm_attention &a, bool is_valid, const tile_place &p,
                                  key_tiles<C> &tiles, int at, int64_t first) {
    const bf16 *k = (const bf16 *)a.k + offset_of(a.k_stride, p.group, p.batch, 0, p.head);
    const bf16 *v = (const bf16 *)a.v + offset_of(a.v_stride, p.group, p.batch, 0, p.head);
    tile_load<C>(tiles.k[at], TILE, k, a.k_stride.row, first, a.n_key, (int)a.c_head);
    tile_load<C>(tiles.v[at], TILE, v, a.v_stride.row, first, a.n_key, (int)a.c_head);
    copies_commit();
    if (threadIdx.x >= TILE) return false;
    float term = mask_term(a, is_valid, p, first + threadIdx.x);
    tiles.term[at][threadIdx.x] = term;
    return term != 0;
}

/* attention_wgmma.cu: boxes of `box_rows` rows by c channels of q, k, v or what is laid out like
 * one, with `rows` rows of each head: box_place is {row, head, batch, group}. */
box_map attention_boxes(const fm_attention *, const void *base, const fm_attention_stride &,
                        int64_t rows, int c, int box_rows);

/* Gathers the bias: eight values a thread, heads fastest, as they lie in memory. With `exchanged`,
 * rows are keys and columns queries. */
void attention_pack_bias(fm_stream *stream, const fm_attention *a, const attention_space *space,
                         bool exchanged);

} // namespace fm_cuda

#endif
