/* attention_mma.cu: gated attention of the bf16 table by mma.sync, forward.
 *
 * A block of four warps takes 64 queries of one (group, batch, head), 16 per warp, and walks the
 * keys in tiles of 64. cp.async reads the next tile while the block works on this one. For each
 * tile a warp
 *
 *     1  computes the 16 x 64 logits s = q k^T from the mask terms, and adds the bias;
 *     2  raises the running maximum of its rows and multiplies the sums so far by
 *        2^(old maximum - new maximum): the online softmax, in f32, in units of log2;
 *     3  replaces s by the weights 2^(s - maximum) and adds them to the running sum of the row;
 *     4  packs the weights to bf16 in registers and adds their product with v to the output.
 *
 * At the end it divides by the sum, applies the gate, and stores the output and its log-sum-exp,
 * from which backward recomputes the weights. Traffic: q, g and o once; k and v once per query
 * tile, mostly from the L2 cache. */
#include "trainer/backend/cuda/attention/attention_mma.cuh"
#include "trainer/backend/cuda/core/early.cuh"

namespace fm_cuda {

/* The sigmoid of two neighbouring channels of the gate; 1 without a gate. */
__device__ inline float2 gate_at(const fm_attention &a, const tile_place &p, int64_t query, int c) {
    if (!a.g) return {1, 1};
    const bf16 *g = (const bf16 *)a.g + offset_of(a.g_stride, p.group, p.batch, query, p.head) + c;
    float2 value = unpack_two(*(const uint32_t *)g);
    return {1.0f / (1.0f + __expf(-value.x)), 1.0f / (1.0f + __expf(-value.y))};
}

/* Stores the warp's rows of the output and their log-sum-exp. */
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
            float2 gate = gate_at(a, p, query, at);
            *(uint32_t *)(out + at) =
                pack_two(o[n][2 * half] * inverse * gate.x, o[n][2 * half + 1] * inverse * gate.y);
        }
        if (t == 0) ((float *)a.lse)[p.row + query] = (largest[half] * slope + log2f(sum)) * LN2;
    }
}

/* Blocks of a multiprocessor; with 64 channels more registers pay more. */
template <int C> constexpr int forward_blocks() {
    return C == 64 ? 3 : 5;
}

template <int C>
__global__ void __launch_bounds__(TILE_THREADS, forward_blocks<C>())
    mma_forward(fm_attention a, attention_space space) {
    __shared__ __align__(16) bf16 qs[TILE * C];
    __shared__ __align__(16) key_tiles<C> keys;
    tile_place p = place_of_block(a, (unsigned)divide_up(a.n_query, TILE));
    int warp = threadIdx.x / 32, tiles = (int)(space.ld_bias / TILE);
    const bf16 *q = (const bf16 *)a.q + offset_of(a.q_stride, p.group, p.batch, 0, p.head);
    const uint4 *bias = NULL;
    if (a.bias) {
        bias = bias_at(space.bias, p.plane, space.ld_bias_t / 16, p.first / 16 + warp, tiles, 0);
    }
    float slope = slope_of(a);
    uint32_t qa[C / 16][4];
    float o[C / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
    tile_load<C>(qs, TILE, q, a.q_stride.row, p.first, a.n_query, (int)a.c_head);
    bool is_valid = find_valid<bf16>(a, p);
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
        set_columns<8>(s, is_masked ? keys.term[tile & 1] : NULL);
        times_tile_transposed<C, 8>(s, qa, keys.k[tile & 1]);
        if (bias) bias_add<8>(s, space.bias_factor, b);
        softmax_step<C>(s, slope, o, largest, total);
        times_tile<C, 8>(o, s, keys.v[tile & 1]);
        __syncthreads();
    }
    store_output<C>(a, p, slope, o, largest, total);
}

/* One lane packs its values of all H heads. */
template <int H> __global__ void __launch_bounds__(64) pack_heads(const bias_packing b) {
    wait_for_previous();
    pack_lane<H>(b, (int)(blockIdx.x * 64 + threadIdx.x));
}

/* The same for any number of heads and any strides: one thread per (lane, head). */
static void pack_each(fm_stream *stream, const bias_packing &packing) {
    bias_packing b = packing;
    each(stream, (int64_t)b.lanes * b.heads, [=] __device__(int64_t index) {
        int head = (int)(index % b.heads), i = (int)(index / b.heads);
        bias_place place(b, i);
        const bf16 *from = b.bias + place.group * b.stride[0] + head * b.stride[1];
        float value[8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int64_t offset = place.offset(b, e);
            value[e] = offset >= 0 ? get(from[offset]) : 0.0f;
        }
        store<bf16, 8>(place.target(b, i, head), value);
    });
}

bias_packing attention_bias_packing(const fm_attention *a, const attention_space *places,
                                    bool is_transposed) {
    int64_t columns = (is_transposed ? places->ld_bias_t : places->ld_bias) / TILE;
    int64_t strips = (is_transposed ? places->ld_bias : places->ld_bias_t) / 16;
    int64_t heads = a->n_head, lanes = a->n_group * strips * columns * 128;
    assert(lanes < 1 << 30);
    bias_packing b = {(const bf16 *)a->bias,
                      (bf16 *)(is_transposed ? places->bias_t : places->bias),
                      {a->bias_stride[0], a->bias_stride[1], a->bias_stride[2], a->bias_stride[3]},
                      (int)a->n_query,
                      (int)a->n_key,
                      (int)heads,
                      (int)strips,
                      (int)columns,
                      (int)lanes,
                      is_transposed,
                      (heads == 4 || heads == 8) && a->bias_stride[1] == 1 &&
                          (uintptr_t)a->bias % (size_t)(2 * heads) == 0};
    for (int i = 0; i < 4; i++)
        b.is_together = b.is_together && (i == 1 || a->bias_stride[i] % heads == 0);
    return b;
}

void attention_pack_bias(fm_stream *stream, const fm_attention *a, const attention_space *places,
                         bool is_transposed) {
    const bias_packing b = attention_bias_packing(a, places, is_transposed);
    if (!b.is_together) {
        pack_each(stream, b);
        return;
    }
    launch_after(stream, b.heads == 4 ? pack_heads<4> : pack_heads<8>, (unsigned)(b.lanes / 64), 64,
                 0, true, b);
    FM_LAUNCHED();
}

void attention_mma(fm_stream *stream, const fm_attention *a, const attention_space &space) {
    if (a->bias) attention_pack_bias(stream, a, &space, false);
    unsigned blocks = (unsigned)(a->n_group * a->n_batch * a->n_head * divide_up(a->n_query, TILE));
    if (a->c_head <= 16) {
        mma_forward<16><<<blocks, TILE_THREADS, 0, queue(stream)>>>(*a, space);
    } else if (a->c_head <= 32) {
        mma_forward<32><<<blocks, TILE_THREADS, 0, queue(stream)>>>(*a, space);
    } else {
        mma_forward<64><<<blocks, TILE_THREADS, 0, queue(stream)>>>(*a, space);
    }
    FM_LAUNCHED();
}

} // namespace fm_cuda
