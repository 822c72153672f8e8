/* attention_mma.cu: gated attention of the bf16 table on tensor cores.
 *
 * Forward: a block of four warps takes 64 queries of one (group, batch, head), 16 a warp, and walks
 * the keys in tiles of 64, two tiles in flight (cp.async). Softmax is online, in f32, in units of
 * log2; the gate is applied at the store. Traffic: q g o once, k v once for each query tile (from
 * L2).
 *
 * Backward, every pass making the probabilities again from the log-sum-exp:
 *   dq     as forward, keys walked twice: first the ungated output, which gives dg and
 *          delta = <dout, o>; then dS = P (dP - delta) and dq = dS K
 *   dk dv  a block takes 64 keys and walks the queries; all products transposed, so that P^T and
 *          dS^T come out of the accumulators as the next product's operand
 *   dbias  a block takes 64 x 64 of (query, key) and walks a chunk of the batches; the chunks'
 *          sums are then added in order
 * The bias arrives with the head fastest, as a linear layer leaves it. It is first gathered, padded
 * with zeros to whole tiles, in the order in which the accumulators of a warp want it: 16 rows x 64
 * columns are 4 x 32 lanes x 8 values, so that a warp reads its tile with four coalesced 16-byte
 * loads; for dk dv once more with queries and keys exchanged.
 *
 * Arithmetic beside the products is what bounds these kernels, so terms enter through the
 * accumulators' initial values: the mask (divided by the scale) and -delta. Logits stay in units in
 * which `slope` makes them powers of two: natural with a bias, undivided products without. */
#include "trainer/backend/cuda/attention.cuh"
#include "trainer/backend/cuda/mma.cuh"

namespace fm_cuda {

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

static bool is_even_stride(const fm_attention_stride &s) {
    return s.group % 8 == 0 && s.batch % 8 == 0 && s.row % 8 == 0 && s.head % 8 == 0;
}

bool attention_mma_takes(const fm_attention *a, const fm_attention_grad *grad) {
    bool is_shape = a->c_head % 8 == 0 && a->c_head <= 32 && a->n_kv_head == a->n_head &&
                    a->n_query >= 8 && a->n_query * a->n_key >= 256;
    bool is_even = is_aligned(a->q) && is_aligned(a->k) && is_aligned(a->v) && is_aligned(a->g) &&
                   is_even_stride(a->q_stride) && is_even_stride(a->k_stride) &&
                   is_even_stride(a->v_stride) && is_even_stride(a->o_stride) &&
                   (!a->g || is_even_stride(a->g_stride));
    if (!grad) return is_shape && is_even && is_aligned(a->o);
    return is_shape && is_even && is_aligned(grad->dout) && is_aligned(grad->dq.data) &&
           is_aligned(grad->dk.data) && is_aligned(grad->dv.data) && is_aligned(grad->dg.data);
}

size_t attention_mma_layout(const fm_attention *a, bool backward, void *base,
                            attention_space *ret) {
    carver carve = {(char *)base, 0};
    *ret = {};
    int64_t rows = a->n_group * a->n_batch * a->n_head * a->n_query,
            planes = a->n_group * a->n_head;
    int64_t q_tiles = divide_up(a->n_query, TILE), k_tiles = divide_up(a->n_key, TILE);
    ret->ld_bias = k_tiles * TILE;
    ret->ld_bias_t = q_tiles * TILE;
    size_t plane = (size_t)(ret->ld_bias * ret->ld_bias_t) * (size_t)planes;
    if (a->bias) ret->bias = carve.take(plane * sizeof(bf16));
    if (!backward) return carve.used;
    if (a->mask) ret->valid = (uint8_t *)carve.take((size_t)(a->n_group * a->n_batch));
    ret->delta = (float *)carve.take((size_t)rows * sizeof(float));
    ret->dout = carve.take((size_t)(rows * a->c_head) * sizeof(bf16));
    ret->chunks =
        max_size(1, min_size(a->n_batch, min_size(64, 1056 / (planes * q_tiles * k_tiles))));
    if (!a->bias) return carve.used;
    ret->bias_t = carve.take(plane * sizeof(bf16));
    ret->dbias =
        (float *)carve.take((size_t)(ret->chunks * planes * a->n_query * a->n_key) * sizeof(float));
    return carve.used;
}

/* Where a block is: a tile of rows of one (group, batch, head). */
struct tile_place {
    int64_t group, batch, head, first; /* first row of the tile */
    int64_t plane, row;                /* of the bias; of lse and delta: row of query 0 */
};

__device__ inline tile_place place_of_block(const fm_attention &a, int64_t tiles) {
    int64_t i = blockIdx.x;
    tile_place p;
    p.first = i % tiles * TILE;
    i /= tiles;
    p.head = i % a.n_head;
    i /= a.n_head;
    p.batch = i % a.n_batch;
    p.group = i / a.n_batch;
    p.plane = p.group * a.n_head + p.head;
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
    for (int64_t key = threadIdx.x; key < a.n_key; key += TILE_THREADS)
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
__device__ inline void start_by_column(float s[8][4], const float *term) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        float2 m = {0, 0};
        if (term) m = *(const float2 *)(term + n * 8 + 2 * t);
        s[n][0] = s[n][2] = m.x;
        s[n][1] = s[n][3] = m.y;
    }
}

__device__ inline void start_by_row(float s[8][4], float upper, float lower) {
#pragma unroll
    for (int n = 0; n < 8; n++) {
        s[n][0] = s[n][1] = upper;
        s[n][2] = s[n][3] = lower;
    }
}

/* A warp's 16 x 64 values of the gathered bias. */
struct bias_tile {
    uint4 part[4];
};

/* Where the tile of 16-row strip `strip` and column tile `column` begins, for this lane. */
__device__ inline const uint4 *bias_at(const void *bias, int64_t plane, int64_t strips,
                                       int64_t strip, int64_t columns, int64_t column) {
    return (const uint4 *)bias + ((plane * strips + strip) * columns + column) * 128 +
           threadIdx.x % 32;
}

__device__ inline void bias_load(bias_tile *b, const uint4 *from) {
#pragma unroll
    for (int j = 0; j < 4; j++)
        b->part[j] = from[j * 32];
}

__device__ inline float low_half(uint32_t two) {
    return __uint_as_float(two << 16);
}
__device__ inline float high_half(uint32_t two) {
    return __uint_as_float(two & 0xffff0000u);
}

/* s = s * scale + bias. */
__device__ inline void bias_apply(float s[8][4], float scale, const bias_tile &b) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t words[4] = {b.part[j].x, b.part[j].y, b.part[j].z, b.part[j].w};
#pragma unroll
        for (int w = 0; w < 4; w++) {
            float *pair = &s[2 * j + w / 2][w % 2 * 2];
            pair[0] = pair[0] * scale + low_half(words[w]);
            pair[1] = pair[1] * scale + high_half(words[w]);
        }
    }
}

/* ---- forward ---- */

/* One tile of logits into the running maximum, sum and output; s becomes the weights. */
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
        float shift = top * slope, shrink = power(largest[half] * slope - shift);
        largest[half] = top;
#pragma unroll
        for (int n = 0; n < 8; n++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = power(s[n][i] * slope - shift);
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

/* Two neighbouring channels of the gate, opened; 1 without a gate. */
__device__ inline float2 gate_at(const fm_attention &a, const tile_place &p, int64_t query, int c) {
    if (!a.g) return {1, 1};
    const bf16 *g = (const bf16 *)a.g + offset_of(a.g_stride, p.group, p.batch, query, p.head) + c;
    float2 value = unpack_two(*(const uint32_t *)g);
    return {1.0f / (1.0f + __expf(-value.x)), 1.0f / (1.0f + __expf(-value.y))};
}

/* The warp's rows of the output, and their log-sum-exp. */
template <int C>
__device__ inline void store_output(const fm_attention &a, const tile_place &p, float slope,
                                    const float o[C / 8][4], const float largest[2],
                                    const float total[2]) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, base = threadIdx.x / 32 * 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t query = p.first + base + g + 8 * half;
        float sum = row_sum(total[half]), inverse = 1.0f / sum;
        if (query >= a.n_query) continue;
        bf16 *out = (bf16 *)a.o + offset_of(a.o_stride, p.group, p.batch, query, p.head);
#pragma unroll
        for (int n = 0; n < C / 8; n++) {
            int at = n * 8 + 2 * t;
            if (at >= a.c_head) continue;
            float2 open = gate_at(a, p, query, at);
            *(uint32_t *)(out + at) =
                pack_two(o[n][2 * half] * inverse * open.x, o[n][2 * half + 1] * inverse * open.y);
        }
        if (t == 0) ((float *)a.lse)[p.row + query] = (largest[half] * slope + log2f(sum)) * LN2;
    }
}

/* Two tiles of keys and values in flight, with the terms of their keys. */
template <int C> struct key_tiles {
    bf16 k[2][TILE * (C + 8)], v[2][TILE * (C + 8)];
    float term[2][TILE];
};

/* Starts reading the tile from key `first` into place `at`; whether this thread's key has a term.
 */
template <int C>
__device__ inline bool fetch_keys(const fm_attention &a, bool is_valid, const tile_place &p,
                                  key_tiles<C> &tiles, int at, int64_t first) {
    const bf16 *k = (const bf16 *)a.k + offset_of(a.k_stride, p.group, p.batch, 0, p.head);
    const bf16 *v = (const bf16 *)a.v + offset_of(a.v_stride, p.group, p.batch, 0, p.head);
    tile_load<C>(tiles.k[at], k, a.k_stride.row, first, a.n_key, (int)a.c_head);
    tile_load<C>(tiles.v[at], v, a.v_stride.row, first, a.n_key, (int)a.c_head);
    copies_commit();
    if (threadIdx.x >= TILE) return false;
    float term = mask_term(a, is_valid, p, first + threadIdx.x);
    tiles.term[at][threadIdx.x] = term;
    return term != 0;
}

template <int C>
__global__ void __launch_bounds__(TILE_THREADS, 5)
    mma_forward(fm_attention a, attention_space space) {
    __shared__ __align__(16) bf16 qs[TILE * (C + 8)];
    __shared__ __align__(16) key_tiles<C> keys;
    tile_place p = place_of_block(a, divide_up(a.n_query, TILE));
    int warp = threadIdx.x / 32, tiles = (int)(space.ld_bias / TILE);
    const bf16 *q = (const bf16 *)a.q + offset_of(a.q_stride, p.group, p.batch, 0, p.head);
    const uint4 *bias = NULL;
    if (a.bias)
        bias = bias_at(space.bias, p.plane, space.ld_bias_t / 16, p.first / 16 + warp, tiles, 0);
    logit_units units = units_of(a);
    uint32_t qa[C / 16][4];
    float o[C / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
    tile_load<C>(qs, q, a.q_stride.row, p.first, a.n_query, (int)a.c_head);
    bool is_valid = find_valid(a, p);
    bool has_term = fetch_keys<C>(a, is_valid, p, keys, 0, 0), next_has_term = false;
    for (int tile = 0; tile < tiles; tile++) {
        bias_tile b;
        if (bias) bias_load(&b, bias + tile * 128);
        if (tile + 1 < tiles) {
            next_has_term = fetch_keys<C>(a, is_valid, p, keys, (tile + 1) & 1, (tile + 1) * TILE);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        bool is_masked = __syncthreads_or(has_term);
        has_term = next_has_term;
        if (tile == 0) tile_rows<C>(qa, qs, warp * 16);
        float s[8][4];
        start_by_column(s, is_masked ? keys.term[tile & 1] : NULL);
        times_tile_transposed<C>(s, qa, keys.k[tile & 1]);
        if (bias) bias_apply(s, units.scale, b);
        softmax_step<C>(s, units.slope, o, largest, total);
        times_tile<C>(o, s, keys.v[tile & 1]);
        __syncthreads();
    }
    store_output<C>(a, p, units.slope, o, largest, total);
}

/* ---- backward ---- */

/* Two neighbouring elements of a gradient. */
__device__ inline void put_two(bf16 *at, fm_beta beta, float x, float y) {
    if (beta == FM_ADD) {
        float2 old = unpack_two(*(const uint32_t *)at);
        x += old.x;
        y += old.y;
    }
    *(uint32_t *)at = pack_two(x, y);
}

/* dout * sigmoid(g) of 64 queries, into the tile and into the workspace. */
template <int C>
__device__ inline void open_dout(const fm_attention &a, const fm_attention_grad &grad,
                                 const attention_space &space, const tile_place &p, bf16 *tile) {
    constexpr int CHUNKS = C / 8, LD = C + 8;
    for (int i = threadIdx.x; i < TILE * CHUNKS; i += TILE_THREADS) {
        int row = i / CHUNKS, at = i % CHUNKS * 8;
        int64_t query = p.first + row;
        float d[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (query < a.n_query && at < a.c_head) {
            load<bf16, 8>((const bf16 *)grad.dout +
                              offset_of(a.o_stride, p.group, p.batch, query, p.head) + at,
                          d);
            if (a.g) {
                float g[8];
                load<bf16, 8>((const bf16 *)a.g +
                                  offset_of(a.g_stride, p.group, p.batch, query, p.head) + at,
                              g);
#pragma unroll
                for (int c = 0; c < 8; c++)
                    d[c] *= 1.0f / (1.0f + __expf(-g[c]));
            }
            store<bf16, 8>((bf16 *)space.dout + (p.row + query) * a.c_head + at, d);
        }
        store<bf16, 8>(tile + row * LD + at, d);
    }
}

/* From the ungated output o of the warp's rows: delta, kept and stored, and dg. o is cleared. */
template <int C>
__device__ inline void finish_output(const fm_attention &a, const fm_attention_grad &grad,
                                     const attention_space &space, const tile_place &p,
                                     const bf16 *douts, float o[C / 8][4], float delta[2]) {
    constexpr int LD = C + 8;
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, base = threadIdx.x / 32 * 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = base + g + 8 * half;
        int64_t query = p.first + row;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < C / 8; n++) {
            float2 d = unpack_two(*(const uint32_t *)(douts + row * LD + n * 8 + 2 * t));
            float x = d.x * o[n][2 * half], y = d.y * o[n][2 * half + 1];
            sum += x + y;
            int at = n * 8 + 2 * t;
            if (!a.g || !grad.dg.data || query >= a.n_query || at >= a.c_head) continue;
            float2 open = gate_at(a, p, query, at);
            put_two((bf16 *)grad.dg.data + offset_of(a.g_stride, p.group, p.batch, query, p.head) +
                        at,
                    grad.dg.beta, x * (1.0f - open.x), y * (1.0f - open.y));
        }
        delta[half] = row_sum(sum);
        if (t == 0 && query < a.n_query) space.delta[p.row + query] = delta[half];
    }
#pragma unroll
    for (int n = 0; n < C / 8; n++)
        o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
}

template <int C>
__device__ inline void store_dq(const fm_attention &a, const tile_place &p, fm_out dq,
                                const float o[C / 8][4]) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, base = threadIdx.x / 32 * 16;
    float scale = (float)a.scale;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t query = p.first + base + g + 8 * half;
        if (query >= a.n_query) continue;
        bf16 *row = (bf16 *)dq.data + offset_of(a.q_stride, p.group, p.batch, query, p.head);
#pragma unroll
        for (int n = 0; n < C / 8; n++)
            if (n * 8 + 2 * t < a.c_head)
                put_two(row + n * 8 + 2 * t, dq.beta, o[n][2 * half] * scale,
                        o[n][2 * half + 1] * scale);
    }
}

/* s = 2^(s * slope - shift of the row). */
__device__ inline void weigh_by_row(float s[8][4], float slope, const float shift[2]) {
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = power(s[n][i] * slope - shift[i / 2]);
}

__device__ inline void multiply_by(float s[8][4], const float dp[8][4]) {
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] *= dp[n][i];
}

template <int C>
__global__ void __launch_bounds__(TILE_THREADS, 4)
    mma_dq(fm_attention a, fm_attention_grad grad, attention_space space) {
    __shared__ __align__(16) bf16 qs[TILE * (C + 8)], ds[TILE * (C + 8)];
    __shared__ __align__(16) key_tiles<C> keys;
    tile_place p = place_of_block(a, divide_up(a.n_query, TILE));
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles = (int)(space.ld_bias / TILE);
    int turns = grad.dq.data ? 2 * tiles : tiles;
    const bf16 *q = (const bf16 *)a.q + offset_of(a.q_stride, p.group, p.batch, 0, p.head);
    const uint4 *bias = NULL;
    if (a.bias)
        bias = bias_at(space.bias, p.plane, space.ld_bias_t / 16, p.first / 16 + warp, tiles, 0);
    logit_units units = units_of(a);
    float lse[2], delta[2] = {0, 0}, o[C / 8][4] = {}; /* first the output, then dq */
    for (int half = 0; half < 2; half++) {
        int64_t query = min_size(p.first + warp * 16 + lane / 4 + 8 * half, a.n_query - 1);
        lse[half] = ((const float *)a.lse)[p.row + query] * LOG2E;
    }
    uint32_t qa[C / 16][4], da[C / 16][4];
    tile_load<C>(qs, q, a.q_stride.row, p.first, a.n_query, (int)a.c_head);
    bool is_valid = find_valid(a, p);
    bool has_term = fetch_keys<C>(a, is_valid, p, keys, 0, 0), next_has_term = false;
    if (a.mask && p.first == 0 && p.head == 0 && threadIdx.x == 0)
        space.valid[p.group * a.n_batch + p.batch] = is_valid;
    open_dout<C>(a, grad, space, p, ds);
    for (int turn = 0; turn < turns; turn++) {
        int tile = turn < tiles ? turn : turn - tiles, next = turn + 1;
        bias_tile b;
        if (bias) bias_load(&b, bias + tile * 128);
        if (next < turns) {
            int64_t first = (next < tiles ? next : next - tiles) * TILE;
            next_has_term = fetch_keys<C>(a, is_valid, p, keys, next & 1, first);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        bool is_masked = __syncthreads_or(has_term);
        has_term = next_has_term;
        if (turn == 0) tile_rows<C>(qa, qs, warp * 16);
        if (turn == 0) tile_rows<C>(da, ds, warp * 16);
        float s[8][4];
        start_by_column(s, is_masked ? keys.term[turn & 1] : NULL);
        times_tile_transposed<C>(s, qa, keys.k[turn & 1]);
        if (bias) bias_apply(s, units.scale, b);
        weigh_by_row(s, units.slope, lse);
        if (turn < tiles) {
            times_tile<C>(o, s, keys.v[turn & 1]);
        } else {
            float dp[8][4];
            start_by_row(dp, -delta[0], -delta[1]);
            times_tile_transposed<C>(dp, da, keys.v[turn & 1]);
            multiply_by(s, dp);
            times_tile<C>(o, s, keys.k[turn & 1]);
        }
        if (turn == tiles - 1) finish_output<C>(a, grad, space, p, ds, o, delta);
        __syncthreads();
    }
    if (grad.dq.data) store_dq<C>(a, p, grad.dq, o);
}

/* Two tiles of queries and of their output's gradients in flight, with the log-sum-exp (log2 units)
 * and -delta of their rows. */
template <int C> struct query_tiles {
    bf16 q[2][TILE * (C + 8)], d[2][TILE * (C + 8)];
    float lse[2][TILE], less[2][TILE];
};

/* Beyond the last query the log-sum-exp is +inf, so that the weights are 0. */
template <int C>
__device__ inline void fetch_queries(const fm_attention &a, const attention_space &space,
                                     const tile_place &p, query_tiles<C> &tiles, int at,
                                     int64_t first) {
    const bf16 *q = (const bf16 *)a.q + offset_of(a.q_stride, p.group, p.batch, 0, p.head);
    const bf16 *d = (const bf16 *)space.dout + p.row * a.c_head;
    tile_load<C>(tiles.q[at], q, a.q_stride.row, first, a.n_query, (int)a.c_head);
    tile_load<C>(tiles.d[at], d, a.c_head, first, a.n_query, (int)a.c_head);
    if (threadIdx.x < TILE) {
        int64_t query = first + threadIdx.x;
        bool is_there = query < a.n_query;
        tiles.lse[at][threadIdx.x] =
            is_there ? ((const float *)a.lse)[p.row + query] * LOG2E : INFINITY;
        tiles.less[at][threadIdx.x] = is_there ? -space.delta[p.row + query] : 0;
    }
}

template <int C>
__device__ inline void store_kv(const fm_attention &a, const tile_place &p, int64_t key, int half,
                                const fm_attention_stride &stride, fm_out out,
                                const float x[C / 8][4], float scale) {
    int t = threadIdx.x % 4;
    if (!out.data) return;
    bf16 *to_row = (bf16 *)out.data + offset_of(stride, p.group, p.batch, key, p.head);
#pragma unroll
    for (int n = 0; n < C / 8; n++)
        if (n * 8 + 2 * t < a.c_head)
            put_two(to_row + n * 8 + 2 * t, out.beta, x[n][2 * half] * scale,
                    x[n][2 * half + 1] * scale);
}

/* s = 2^(s * slope - shift of the column). */
__device__ inline void weigh_by_column(float s[8][4], float slope, const float *shift) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        float2 by = *(const float2 *)(shift + n * 8 + 2 * t);
        s[n][0] = power(s[n][0] * slope - by.x);
        s[n][1] = power(s[n][1] * slope - by.y);
        s[n][2] = power(s[n][2] * slope - by.x);
        s[n][3] = power(s[n][3] * slope - by.y);
    }
}

template <int C>
__global__ void __launch_bounds__(TILE_THREADS, 4)
    mma_dkv(fm_attention a, fm_attention_grad grad, attention_space space) {
    __shared__ __align__(16) bf16 ks[TILE * (C + 8)], vs[TILE * (C + 8)];
    __shared__ __align__(16) query_tiles<C> queries;
    tile_place p = place_of_block(a, divide_up(a.n_key, TILE)); /* first: a key */
    int g = threadIdx.x % 32 / 4, warp = threadIdx.x / 32, tiles = (int)(space.ld_bias_t / TILE);
    const bf16 *k = (const bf16 *)a.k + offset_of(a.k_stride, p.group, p.batch, 0, p.head);
    const bf16 *v = (const bf16 *)a.v + offset_of(a.v_stride, p.group, p.batch, 0, p.head);
    const uint4 *bias = NULL;
    if (a.bias)
        bias = bias_at(space.bias_t, p.plane, space.ld_bias / 16, p.first / 16 + warp, tiles, 0);
    logit_units units = units_of(a);
    int64_t key = p.first + warp * 16 + g;
    bool is_valid = a.mask && space.valid[p.group * a.n_batch + p.batch]; /* dq wrote it */
    float upper = mask_term(a, is_valid, p, key), lower = mask_term(a, is_valid, p, key + 8);
    uint32_t ka[C / 16][4], va[C / 16][4];
    float dk[C / 8][4] = {}, dv[C / 8][4] = {};
    tile_load<C>(ks, k, a.k_stride.row, p.first, a.n_key, (int)a.c_head);
    tile_load<C>(vs, v, a.v_stride.row, p.first, a.n_key, (int)a.c_head);
    fetch_queries<C>(a, space, p, queries, 0, 0);
    copies_commit();
    for (int tile = 0; tile < tiles; tile++) {
        int at = tile & 1;
        bias_tile b;
        if (bias) bias_load(&b, bias + tile * 128);
        if (tile + 1 < tiles) {
            fetch_queries<C>(a, space, p, queries, at ^ 1, (tile + 1) * TILE);
            copies_commit();
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        if (tile == 0) tile_rows<C>(ka, ks, warp * 16);
        if (tile == 0) tile_rows<C>(va, vs, warp * 16);
        float s[8][4], dp[8][4];
        start_by_row(s, upper, lower);
        times_tile_transposed<C>(s, ka, queries.q[at]);
        if (bias) bias_apply(s, units.scale, b);
        weigh_by_column(s, units.slope, queries.lse[at]);
        times_tile<C>(dv, s, queries.d[at]);
        start_by_column(dp, queries.less[at]);
        times_tile_transposed<C>(dp, va, queries.d[at]);
        multiply_by(s, dp);
        times_tile<C>(dk, s, queries.q[at]);
        __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (key + 8 * half >= a.n_key) continue;
        store_kv<C>(a, p, key + 8 * half, half, a.k_stride, grad.dk, dk, (float)a.scale);
        store_kv<C>(a, p, key + 8 * half, half, a.v_stride, grad.dv, dv, 1);
    }
}

/* The chunk's sum of a 16 x 64 strip of dbias. */
__device__ inline void store_partial(const fm_attention &a, float *plane, int64_t row,
                                     int64_t first_key, const float sum[8][4]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int64_t query = row + (i / 2) * 8, key = first_key + n * 8 + 2 * t + i % 2;
            if (query < a.n_query && key < a.n_key) plane[query * a.n_key + key] = sum[n][i];
        }
}

/* blockIdx: x = key tile + k_tiles * query tile, y = head + n_head * group, z = chunk. */
template <int C>
__global__ void __launch_bounds__(TILE_THREADS, 3)
    mma_dbias(fm_attention a, attention_space space) {
    __shared__ __align__(16) query_tiles<C> queries;
    __shared__ __align__(16) key_tiles<C> keys;
    int k_tiles = (int)(space.ld_bias / TILE), warp = threadIdx.x / 32;
    int64_t key_tile = blockIdx.x % k_tiles, first = blockIdx.x / k_tiles * TILE;
    tile_place p = {blockIdx.y / a.n_head, 0, blockIdx.y % a.n_head, first, blockIdx.y, 0};
    int64_t per_chunk = divide_up(a.n_batch, space.chunks), begin = blockIdx.z * per_chunk;
    int64_t end = min_size(a.n_batch, begin + per_chunk);
    auto fetch = [&](int64_t batch) {
        int at = (int)(batch - begin) & 1;
        p.batch = batch;
        p.row = row_of(a, p.group, batch, p.head);
        bool is_valid = a.mask && space.valid[p.group * a.n_batch + batch];
        fetch_queries<C>(a, space, p, queries, at, first);
        return fetch_keys<C>(a, is_valid, p, keys, at, key_tile * TILE);
    };
    bias_tile b;
    bias_load(&b, bias_at(space.bias, p.plane, space.ld_bias_t / 16, first / 16 + warp, k_tiles,
                          key_tile));
    logit_units units = units_of(a);
    int row = warp * 16 + threadIdx.x % 32 / 4;
    float sum[8][4];
    start_by_row(sum, 0, 0);
    bool has_term = begin < end ? fetch(begin) : false, next_has_term = false;
    for (int64_t batch = begin; batch < end; batch++) {
        int at = (int)(batch - begin) & 1;
        if (batch + 1 < end) {
            next_has_term = fetch(batch + 1);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        bool is_masked = __syncthreads_or(has_term);
        has_term = next_has_term;
        uint32_t rows[C / 16][4];
        float s[8][4], dp[8][4], lse[2] = {queries.lse[at][row], queries.lse[at][row + 8]};
        tile_rows<C>(rows, queries.q[at], warp * 16);
        start_by_column(s, is_masked ? keys.term[at] : NULL);
        times_tile_transposed<C>(s, rows, keys.k[at]);
        bias_apply(s, units.scale, b);
        weigh_by_row(s, units.slope, lse);
        tile_rows<C>(rows, queries.d[at], warp * 16);
        start_by_row(dp, queries.less[at][row], queries.less[at][row + 8]);
        times_tile_transposed<C>(dp, rows, keys.v[at]);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[n][i] += s[n][i] * dp[n][i];
        __syncthreads();
    }
    float *plane =
        space.dbias + (blockIdx.z * a.n_group * a.n_head + p.plane) * a.n_query * a.n_key;
    store_partial(a, plane, first + row, key_tile * TILE, sum);
}

/* The bias in accumulator order: eight values a thread, heads fastest, as they lie in memory. With
 * `exchanged`, rows are keys and columns queries. */
static void pack_bias(fm_stream *stream, const fm_attention *args, const attention_space *places,
                      bool exchanged) {
    fm_attention a = *args;
    int64_t columns = (exchanged ? places->ld_bias_t : places->ld_bias) / TILE;
    int64_t strips = (exchanged ? places->ld_bias : places->ld_bias_t) / 16;
    bf16 *packed = (bf16 *)(exchanged ? places->bias_t : places->bias);
    each(stream, a.n_group * strips * columns * 128 * a.n_head, [=] __device__(int64_t index) {
        int64_t head = index % a.n_head, rest = index / a.n_head;
        int lane = (int)(rest % 32), part = (int)(rest / 32 % 4);
        int64_t column = rest / 128 % columns, strip = rest / 128 / columns % strips;
        int64_t group = rest / 128 / columns / strips;
        const bf16 *from =
            (const bf16 *)a.bias + group * a.bias_stride[0] + head * a.bias_stride[1];
        float value[8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int64_t row = strip * 16 + lane / 4 + (e / 2 % 2) * 8;
            int64_t at = column * TILE + (2 * part + e / 4) * 8 + 2 * (lane % 4) + e % 2;
            int64_t query = exchanged ? at : row, key = exchanged ? row : at;
            bool is_there = query < a.n_query && key < a.n_key;
            value[e] =
                is_there ? get(from[query * a.bias_stride[2] + key * a.bias_stride[3]]) : 0.0f;
        }
        int64_t tile = ((group * a.n_head + head) * strips + strip) * columns + column;
        store<bf16, 8>(packed + (tile * 128 + part * 32 + lane) * 8, value);
    });
}

static void finish_dbias(fm_stream *stream, const fm_attention *args, const attention_space *from,
                         fm_out dbias) {
    fm_attention a = *args;
    attention_space space = *from;
    int64_t n = a.n_group * a.n_head * a.n_query * a.n_key;
    each(stream, n, [=] __device__(int64_t i) {
        int64_t key = i % a.n_key, query = i / a.n_key % a.n_query;
        int64_t head = i / a.n_key / a.n_query % a.n_head;
        int64_t group = i / a.n_key / a.n_query / a.n_head;
        float total = 0;
        for (int64_t chunk = 0; chunk < space.chunks; chunk++)
            total += space.dbias[chunk * n + i];
        put((bf16 *)dbias.data + group * a.bias_stride[0] + head * a.bias_stride[1] +
                query * a.bias_stride[2] + key * a.bias_stride[3],
            dbias.beta, total);
    });
}

static void prepare(fm_stream *stream, const fm_attention *a, const attention_space *space) {
    if (a->bias) pack_bias(stream, a, space, false);
    if (a->bias && space->bias_t) pack_bias(stream, a, space, true);
}

void attention_mma(fm_stream *stream, const fm_attention *a, void *workspace) {
    attention_space space;
    attention_mma_layout(a, false, workspace, &space);
    prepare(stream, a, &space);
    unsigned blocks = (unsigned)(a->n_group * a->n_batch * a->n_head * divide_up(a->n_query, TILE));
    if (a->c_head <= 16) {
        mma_forward<16><<<blocks, TILE_THREADS, 0, queue(stream)>>>(*a, space);
    } else {
        mma_forward<32><<<blocks, TILE_THREADS, 0, queue(stream)>>>(*a, space);
    }
    FM_LAUNCHED();
}

template <int C>
static void run_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                     const attention_space &space) {
    int64_t planes = a->n_group * a->n_batch * a->n_head;
    int64_t q_tiles = divide_up(a->n_query, TILE), k_tiles = divide_up(a->n_key, TILE);
    mma_dq<C><<<(unsigned)(planes * q_tiles), TILE_THREADS, 0, queue(stream)>>>(*a, *grad, space);
    FM_LAUNCHED();
    if (grad->dk.data || grad->dv.data) {
        mma_dkv<C>
            <<<(unsigned)(planes * k_tiles), TILE_THREADS, 0, queue(stream)>>>(*a, *grad, space);
        FM_LAUNCHED();
    }
    if (!a->bias || !grad->dbias.data) return;
    dim3 grid((unsigned)(q_tiles * k_tiles), (unsigned)(a->n_group * a->n_head),
              (unsigned)space.chunks);
    mma_dbias<C><<<grid, TILE_THREADS, 0, queue(stream)>>>(*a, space);
    FM_LAUNCHED();
    finish_dbias(stream, a, &space, grad->dbias);
}

void attention_mma_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                        void *workspace) {
    attention_space space;
    attention_mma_layout(a, true, workspace, &space);
    prepare(stream, a, &space);
    if (a->c_head <= 16) {
        run_grad<16>(stream, a, grad, space);
    } else {
        run_grad<32>(stream, a, grad, space);
    }
}

} // namespace fm_cuda
