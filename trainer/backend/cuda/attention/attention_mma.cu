/* attention_mma.cu: gated attention of the bf16 table on tensor cores, forward.
 *
 * A block of four warps takes 64 queries of one (group, batch, head), 16 a warp, and walks the keys
 * in tiles of 64, two tiles in flight (cp.async). Softmax is online, in f32, in units of log2; the
 * gate is applied at the store. Traffic: q g o once, k v once for each query tile (from L2). */
#include "trainer/backend/cuda/attention/attention_mma.cuh"

namespace fm_cuda {

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
    bool by_groups = attention_wgmma_grad_takes(a);
    if (by_groups) {
        ret->chunks = attention_wgmma_dbias_chunks(a);
        ret->sums = (float *)carve.take(attention_wgmma_grad_sums(a));
    }
    if (!a->bias) return carve.used;
    ret->bias_t = carve.take(plane * sizeof(bf16));
    ret->dbias =
        (float *)carve.take((size_t)(ret->chunks * planes * a->n_query * a->n_key) * sizeof(float));
    if (!by_groups) return carve.used;
    /* Both are read by 128 rows, of which the last may lie beyond the end. */
    int64_t columns = a->n_group * a->n_batch * a->n_head * ret->ld_bias_t * 4 + 2 * TILE;
    int64_t terms = a->n_group * a->n_batch * ret->ld_bias + TILE;
    ret->columns = (float *)carve.take((size_t)columns * sizeof(float));
    ret->terms = (float *)carve.take((size_t)terms * sizeof(float));
    return carve.used;
}

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

template <int C>
__global__ void __launch_bounds__(TILE_THREADS, 5)
    mma_forward(fm_attention a, attention_space space) {
    __shared__ __align__(16) bf16 qs[TILE * C];
    __shared__ __align__(16) key_tiles<C> keys;
    tile_place p = place_of_block(a, (unsigned)divide_up(a.n_query, TILE));
    int warp = threadIdx.x / 32, tiles = (int)(space.ld_bias / TILE);
    const bf16 *q = (const bf16 *)a.q + offset_of(a.q_stride, p.group, p.batch, 0, p.head);
    const uint4 *bias = NULL;
    if (a.bias)
        bias = bias_at(space.bias, p.plane, space.ld_bias_t / 16, p.first / 16 + warp, tiles, 0);
    logit_units units = units_of(a);
    uint32_t qa[C / 16][4];
    float o[C / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
    tile_load<C>(qs, TILE, q, a.q_stride.row, p.first, a.n_query, (int)a.c_head);
    bool is_valid = find_valid(a, p);
    bool has_term = fetch_keys<C>(a, is_valid, p, keys, 0, 0), next_has_term = false;
    for (int tile = 0; tile < tiles; tile++) {
        bias_tile<8> b;
        if (bias) bias_load<8>(&b, bias + tile * 128);
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
        start_by_column<8>(s, is_masked ? keys.term[tile & 1] : NULL);
        times_tile_transposed<C, 8>(s, qa, keys.k[tile & 1]);
        if (bias) bias_apply<8>(s, units.scale, b);
        softmax_step<C>(s, units.slope, o, largest, total);
        times_tile<C, 8>(o, s, keys.v[tile & 1]);
        __syncthreads();
    }
    store_output<C>(a, p, units.slope, o, largest, total);
}

/* Where the eight values of a lane lie: part `part` of the tile of 64 columns and 16 rows. */
struct bias_place {
    int64_t row, at; /* of the first of them */

    __device__ bias_place(int64_t strip, int64_t column, int part, int lane)
        : row(strip * 16 + lane / 4), at(column * TILE + part * 16 + 2 * (lane % 4)) {
    }

    /* The offset of value e, or -1 where there is none. */
    __device__ int64_t offset(const fm_attention &a, bool exchanged, int e) const {
        int64_t x = row + e / 2 % 2 * 8, y = at + e / 4 * 8 + e % 2;
        int64_t query = exchanged ? y : x, key = exchanged ? x : y;
        if (query >= a.n_query || key >= a.n_key) return -1;
        return query * a.bias_stride[2] + key * a.bias_stride[3];
    }
};

/* All H heads by a lane: it reads them together and exchanges them in registers. */
template <int H>
__global__ void __launch_bounds__(64)
    pack_heads(fm_attention a, bf16 *packed, int strips, int columns, bool exchanged) {
    int i = (int)(blockIdx.x * 64 + threadIdx.x), lane = i % 32, part = i / 32 % 4;
    int column = i / 128 % columns, strip = i / 128 / columns % strips;
    int group = i / 128 / columns / strips;
    if (group >= a.n_group) return;
    const bf16 *from = (const bf16 *)a.bias + group * a.bias_stride[0];
    bias_place place(strip, column, part, lane);
    pack<bf16, H> in[8];
#pragma unroll
    for (int e = 0; e < 8; e++) {
        int64_t offset = place.offset(a, exchanged, e);
        in[e] = {};
        if (offset >= 0) in[e] = *(const pack<bf16, H> *)(from + offset);
    }
#pragma unroll
    for (int head = 0; head < H; head++) {
        pack<bf16, 8> out;
#pragma unroll
        for (int e = 0; e < 8; e++)
            out.at[e] = in[e].at[head];
        int64_t tile = ((int64_t)(group * H + head) * strips + strip) * columns + column;
        *(pack<bf16, 8> *)(packed + (tile * 128 + part * 32 + lane) * 8) = out;
    }
}

/* A head a thread. */
static void pack_each(fm_stream *stream, const fm_attention *args, bf16 *packed, int64_t strips,
                      int64_t columns, bool exchanged) {
    fm_attention a = *args;
    each(stream, a.n_group * strips * columns * 128 * a.n_head, [=] __device__(int64_t index) {
        int64_t head = index % a.n_head, rest = index / a.n_head;
        int lane = (int)(rest % 32), part = (int)(rest / 32 % 4);
        int64_t column = rest / 128 % columns, strip = rest / 128 / columns % strips;
        int64_t group = rest / 128 / columns / strips;
        const bf16 *from =
            (const bf16 *)a.bias + group * a.bias_stride[0] + head * a.bias_stride[1];
        bias_place place(strip, column, part, lane);
        float value[8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int64_t offset = place.offset(a, exchanged, e);
            value[e] = offset >= 0 ? get(from[offset]) : 0.0f;
        }
        int64_t tile = ((group * a.n_head + head) * strips + strip) * columns + column;
        store<bf16, 8>(packed + (tile * 128 + part * 32 + lane) * 8, value);
    });
}

void attention_pack_bias(fm_stream *stream, const fm_attention *a, const attention_space *places,
                         bool exchanged) {
    int64_t columns = (exchanged ? places->ld_bias_t : places->ld_bias) / TILE;
    int64_t strips = (exchanged ? places->ld_bias : places->ld_bias_t) / 16;
    bf16 *packed = (bf16 *)(exchanged ? places->bias_t : places->bias);
    int64_t lanes = a->n_group * strips * columns * 128, heads = a->n_head;
    bool is_together = (heads == 4 || heads == 8) && a->bias_stride[1] == 1 &&
                       (uintptr_t)a->bias % (size_t)(2 * heads) == 0 && lanes < 1 << 30;
    for (int i = 0; i < 4; i++)
        is_together = is_together && (i == 1 || a->bias_stride[i] % heads == 0);
    if (!is_together) {
        pack_each(stream, a, packed, strips, columns, exchanged);
        return;
    }
    (heads == 4 ? pack_heads<4> : pack_heads<8>)<<<(unsigned)(lanes / 64), 64, 0, queue(stream)>>>(
        *a, packed, (int)strips, (int)columns, exchanged);
    FM_LAUNCHED();
}

void attention_mma(fm_stream *stream, const fm_attention *a, void *workspace) {
    attention_space space;
    attention_mma_layout(a, false, workspace, &space);
    if (attention_wgmma_takes(a)) {
        attention_wgmma(stream, a, space.bias);
        return;
    }
    if (a->bias) attention_pack_bias(stream, a, &space, false);
    unsigned blocks = (unsigned)(a->n_group * a->n_batch * a->n_head * divide_up(a->n_query, TILE));
    if (a->c_head <= 16) {
        mma_forward<16><<<blocks, TILE_THREADS, 0, queue(stream)>>>(*a, space);
    } else {
        mma_forward<32><<<blocks, TILE_THREADS, 0, queue(stream)>>>(*a, space);
    }
    FM_LAUNCHED();
}

} // namespace fm_cuda
