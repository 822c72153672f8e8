/* attention_wgmma_grad.cuh: the code that the kernels of the backward of gated attention by
 * warp-group products share: their argument, and the steps from logits to dS.
 *
 * Rows are keys and columns are queries, as in attention_mma_grad.cu. A warp group owns 64 keys, 16
 * per warp, with K and V in registers as left operands, and takes STEP = 32 queries at a time:
 *
 *     S^T = k q^T               s starts as bias * bias_factor - lse / scale of its query
 *     P^T = 2^(S^T scale log2(e) + mask log2(e))
 *     dP^T = v dout'^T          dp starts as -delta of its query
 *     dv += P^T dout'           P^T, packed to bf16, is the left operand
 *     dS^T = P^T dP^T
 *     dk += dS^T q              dS^T, packed to bf16, is the left operand
 *
 * So the bias, the log-sum-exp and delta enter through the accumulators' initial values, in units
 * of the unscaled product. The mask, which belongs to a row, enters with the exponential. With a
 * bias, attention_open.cu leaves dout' and the two terms of each query in the workspace. The terms
 * have the layout of an accumulator's columns, [2][queries / 2][4]: -lse / scale of two queries,
 * twice (for rows g and g + 8), then -delta in the same form. Queries up to a whole tile of 64 have
 * terms too. */
#ifndef FM_BACKEND_CUDA_ATTENTION_WGMMA_GRAD_CUH
#define FM_BACKEND_CUDA_ATTENTION_WGMMA_GRAD_CUH

#include "trainer/backend/cuda/hopper/attention/attention_boxes.cuh"
#include "trainer/backend/cuda/hopper/core/wgmma.cuh"

namespace fm_cuda {

enum { STEP = 32 }; /* queries that a warp group takes at a time */

/* A tensor of the call with strides in 32 bits; attention.cu checks that offsets fit. */
struct grad_tensor {
    bf16 *data;
    int group, batch, row, head;
    bool adds; /* a gradient that is added to its old value */
};

/* The argument of the kernels. */
struct grad_call {
    box_map q_box, k_box, v_box, d_box; /* the kernel's tiles; d: dout' in the workspace */
    grad_tensor g, o, dout, dq, dk, dv, dg;
    grad_tensor opened; /* dout' in the workspace; with a bias */
    const bf16 *mask;
    int mask_stride[3];
    const float *lse;
    attention_space space; /* its dbias is NULL if the caller needs none */
    int n_batch, n_query, n_key, n_head, c_head, items;
    int passes;           /* WGMMA_LONG: passes over the keys of an item */
    float scale, inverse; /* and 1 / scale */
    float slope;          /* scale log2(e) */
    float mask_factor;    /* mask_value log2(e) */
};

/* One item of the walk: a (group, batch, head). */
struct item_place {
    int group, batch, head;
    int row; /* of lse and delta: the row of query 0 */
};

/* What a warp keeps of its 16 of the group's 64 keys. */
template <int C> struct walk_keys {
    uint32_t k[C / 16][4], v[C / 16][4];
    float dk[C / 8][4], dv[C / 8][4];
    float upper, lower; /* mask terms of this lane's keys (rows g, g + 8), as exponents of two */
};

/* The bias of the walk's next tile for this warp's strip of keys, and its address. Strips past the
 * last key use that of the last one. */
struct walk_bias {
    const uint4 *at;
    bias_tile<4> half[2];
};

/* A lane's position in the walk: addresses in shared memory, and operands. */
struct walk_place {
    uint32_t columns, ds; /* this lane's columns in shift(); the row of dS^T that it stores */
    uint32_t minus_delta; /* bytes from shift() to minus_delta() */
    uint64_t q, d;        /* operands; K_MAJOR and MN_MAJOR share the descriptor */
};

__device__ inline float4 load_shared(uint32_t address) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address));
    return x;
}

__device__ inline float2 load_shared_two(uint32_t address) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
    return x;
}

/* Sets s to bias * factor + shift of the column, and dp to -delta of the column. */
template <bool BIASED>
__device__ inline void start_products(float (&s)[4][4], float (&dp)[4][4], const walk_place &at,
                                      int half, float factor, const bias_tile<4> &b) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
        uint32_t address = at.columns + (half * 4 + n) * 64;
        float2 shift = load_shared_two(address);
        s[n][0] = s[n][2] = shift.x;
        s[n][1] = s[n][3] = shift.y;
        *(float4 *)dp[n] = load_shared(address + at.minus_delta);
    }
    if (BIASED) bias_add<4>(s, factor, b);
}

/* s = 2^(s * slope + mask term of the row): logits become weights. */
template <int C>
__device__ inline void weights_from_logits(float (&s)[4][4], float slope,
                                           const walk_keys<C> &keys) {
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = exp2_fast(s[n][i] * slope + (i < 2 ? keys.upper : keys.lower));
}

/* Reads threadIdx.x again, so that the compiler does not keep or spill values derived from it. */
__device__ inline int read_thread(void) {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

/* Item i; heads are fastest, as in memory. */
__device__ inline item_place place_of_item(const grad_call &c, unsigned i) {
    unsigned heads = (unsigned)c.n_head, batches = (unsigned)c.n_batch, at = i / heads;
    unsigned group = at / batches;
    return {(int)group, (int)(at - group * batches), (int)(i - at * heads), (int)i * c.n_query};
}

__device__ inline bf16 *row_at(const grad_tensor &t, const item_place &p, int row) {
    return t.data + (p.group * t.group + p.batch * t.batch + p.head * t.head + row * t.row);
}

/* The bytes of the columns' terms of an item, and where they are. */
__device__ inline uint32_t column_bytes(const grad_call &c) {
    return (uint32_t)c.space.ld_bias_t * 4 * (uint32_t)sizeof(float);
}
__device__ inline float *columns_of(const grad_call &c, int item) {
    return c.space.columns + (int64_t)item * 4 * c.space.ld_bias_t;
}

/* -- the gate's backward of a query */

__device__ inline void unpack_eight(const uint4 &from, float x[8]) {
    const uint32_t word[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[2 * i] = low_half(word[i]);
        x[2 * i + 1] = high_half(word[i]);
    }
}

__device__ inline uint4 pack_eight(const float x[8]) {
    return make_uint4(pack_two(x[0], x[1]), pack_two(x[2], x[3]), pack_two(x[4], x[5]),
                      pack_two(x[6], x[7]));
}

/* 1 / (1 + e^-x) by approximate instructions. */
__device__ inline float fast_sigmoid(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + exp2_fast(x * -LOG2E)));
    return y;
}

/* dout' of eight channels, and their share of delta. */
struct opened_eight {
    uint4 dout;
    float delta;
};

/* Opens eight channels of a query: with the gated output o,
 *
 *     dout' = dout sigmoid(g)
 *     dg = dout o (1 - sigmoid(g))
 *     delta = <dout', o / sigmoid(g)> = <dout, o> */
__device__ inline opened_eight open_eight(const uint4 &dout, const uint4 &gated, const uint4 &gate,
                                          bool has_gate, float (&dg)[8]) {
    float d[8], o[8], g[8], delta = 0;
    unpack_eight(dout, d);
    unpack_eight(gated, o);
    unpack_eight(gate, g);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float product = d[i] * o[i], open = has_gate ? fast_sigmoid(g[i]) : 1.0f;
        delta += product;
        d[i] *= open;
        dg[i] = product - product * open;
    }
    return {pack_eight(d), delta};
}

/* -- terms as operands (attention_small_grad.cu) */

/* A row of terms of a query or key: the second half of an operand's sum. */
struct alignas(16) term_row {
    bf16 x[8];
};

/* The three numbers of bf16 whose sum is x, as the first three of a row. */
__device__ inline void split_three(float x, bf16 *to) {
#pragma unroll
    for (int i = 0; i < 3; i++) {
        to[i] = __float2bfloat16_rn(x);
        x -= __bfloat162float(to[i]);
    }
}

/* The queries' terms: [lse x 3, 1, delta x 3, 0]. Queries past the last have no weight. */
__device__ inline term_row terms_of_query(float shift, float minus_delta) {
    term_row row;
    split_three(shift, row.x);
    row.x[3] = to<bf16>(1);
    split_three(minus_delta, row.x + 4);
    row.x[7] = to<bf16>(0);
    return row;
}

constexpr float NEVER = -1e30f; /* a term that makes a weight zero; twice it is finite, too */

/* -- the same inside a walk */

/* Without a bias nobody else reads dout' and the columns' terms, and several blocks share a
 * multiprocessor. So a walk opens the queries itself, while other blocks walk. */

/* log2 of the parts into which a query is cut, one for each 8 channels. Tiles of 16 channels also
 * serve c_head 8. */
template <int C> __device__ inline int part_bits(const grad_call &call) {
    return C == 32 ? 2 : call.c_head > 8;
}

/* What a thread reads of eight channels of a query: dout, o, g, and with the first eight channels
 * the log-sum-exp. */
struct part_inputs {
    uint4 d, o, g;
    float lse;
};

/* Part i of an item: eight channels of query i >> part_bits. */
template <int C>
__device__ inline part_inputs load_inputs(const grad_call &call, const item_place &p, int i) {
    int bits = part_bits<C>(call), query = i >> bits, c = (i & ((1 << bits) - 1)) * 8;
    part_inputs part = {};
    if (query >= call.n_query || c >= call.c_head) return part;
    part.d = *(const uint4 *)(row_at(call.dout, p, query) + c);
    part.o = *(const uint4 *)(row_at(call.o, p, query) + c);
    if (call.g.data) part.g = *(const uint4 *)(row_at(call.g, p, query) + c);
    if (c == 0) part.lse = call.lse[p.row + query];
    return part;
}

/* The place in shared memory of dout' [queries, C] and the columns' terms. */
struct opened_place {
    bf16 *d;
    float *shift;
    int queries;
};

/* Clears the channels of dout' that no part writes, once for all items. */
template <int C> __device__ inline void clear_channels(const grad_call &call, opened_place to) {
    int queries = part_bits<C>(call) == 0 ? to.queries : 0;
    for (int query = (int)threadIdx.x; query < queries; query += (int)blockDim.x)
        *(uint4 *)(to.d + tile_at<C>(query, 1)) = make_uint4(0, 0, 0, 0);
}

/* Opens part i. delta is summed over the lanes of the query. */
template <int C>
__device__ inline void open_inside(const grad_call &call, const item_place &p, opened_place to,
                                   const part_inputs &part, int i) {
    int bits = part_bits<C>(call), query = i >> bits, chunk = i & ((1 << bits) - 1), c = chunk * 8;
    bool is_inside = query < call.n_query && c < call.c_head;
    float dg[8];
    opened_eight opened = open_eight(part.d, part.o, part.g, call.g.data, dg);
    float delta = opened.delta;
    *(uint4 *)(to.d + tile_at<C>(query, chunk)) = opened.dout;
    if (is_inside && call.dg.data) {
        put_pack<bf16, 8>(row_at(call.dg, p, query) + c, call.dg.adds ? FM_ADD : FM_WRITE, dg);
    }
    if (C == 32) delta += __shfl_xor_sync(0xffffffffu, delta, 2);
    if (bits > 0) delta += __shfl_xor_sync(0xffffffffu, delta, 1);
    /* Of two neighbouring queries the first stores the shifts of both, the second their deltas. */
    float shift = is_inside ? -part.lse * call.inverse : -INFINITY;
    float other_shift = __shfl_xor_sync(0xffffffffu, shift, 1 << bits);
    float other_delta = __shfl_xor_sync(0xffffffffu, delta, 1 << bits);
    float4 column = query % 2 == 0 ? make_float4(shift, other_shift, shift, other_shift)
                                   : make_float4(-other_delta, -delta, -other_delta, -delta);
    int at = query % 2 * 2 * to.queries + query / 2 * 4;
    if (chunk == 0) *(float4 *)(to.shift + at) = column;
}

/* Two parts per thread are loaded ahead of time, and two more while these are opened. */
template <int C> struct walk_opening {
    part_inputs part[2];

    __device__ inline void start(const grad_call &call, const item_place &p) {
        int thread = read_thread();
#pragma unroll
        for (int i = 0; i < 2; i++)
            part[i] = load_inputs<C>(call, p, thread + i * (int)blockDim.x);
    }
    __device__ inline void finish(const grad_call &call, const item_place &p, opened_place to) {
        int thread = read_thread(), step = (int)blockDim.x;
        int parts = to.queries << part_bits<C>(call);
#pragma unroll 1
        for (int at = thread; at < parts; at += 2 * step) {
            part_inputs next[2];
#pragma unroll
            for (int i = 0; i < 2; i++)
                next[i] = load_inputs<C>(call, p, at + (2 + i) * step);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (at + i * step < parts) open_inside<C>(call, p, to, part[i], at + i * step);
                part[i] = next[i];
            }
        }
    }
};

__device__ inline void store_matrix(uint32_t address, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* Transposes 4 x 4 words between four neighbouring lanes: word i of the four lanes together is line
 * i, and lane t gets line t. */
__device__ inline uint4 transpose_four(const uint32_t w[4]) {
    bool is_odd = threadIdx.x & 1, is_late = threadIdx.x & 2;
    uint32_t x = __shfl_xor_sync(0xffffffffu, is_odd ? w[0] : w[1], 1);
    uint32_t y = __shfl_xor_sync(0xffffffffu, is_odd ? w[2] : w[3], 1);
    uint2 early = is_odd ? make_uint2(x, w[1]) : make_uint2(w[0], x);
    uint2 late = is_odd ? make_uint2(y, w[3]) : make_uint2(w[2], y);
    x = __shfl_xor_sync(0xffffffffu, is_late ? early.x : late.x, 2);
    y = __shfl_xor_sync(0xffffffffu, is_late ? early.y : late.y, 2);
    return is_late ? make_uint4(x, y, late.x, late.y) : make_uint4(early.x, early.y, x, y);
}

/* Stores this lane's two rows of an accumulator, `row` and row + 8 if they are before `end`, times
 * `scale` as rows of a gradient. */
template <int C, int N>
__device__ inline void store_rows(const grad_tensor &out, const item_place &p, int row, int end,
                                  int c_head, const float (&x)[N][4], float scale) {
    int t = threadIdx.x % 4;
    if (!out.data) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        bf16 *to = row_at(out, p, row + 8 * half);
        if (C == 32 && c_head == C && !out.adds) {
            uint32_t word[4];
#pragma unroll
            for (int n = 0; n < 4; n++)
                word[n] = pack_two(x[n % (C / 8)][2 * half] * scale,
                                   x[n % (C / 8)][2 * half + 1] * scale);
            uint4 line = transpose_four(word);
            if (row + 8 * half < end) *(uint4 *)(to + t * 8) = line;
        } else if (row + 8 * half < end) {
#pragma unroll
            for (int n = 0; n < C / 8; n++) {
                if (n * 8 >= c_head) continue;
                uint32_t *at = (uint32_t *)(to + n * 8 + 2 * t);
                float2 old = out.adds ? unpack_two(*at) : make_float2(0, 0);
                *at = pack_two(x[n][2 * half] * scale + old.x, x[n][2 * half + 1] * scale + old.y);
            }
        }
    }
}

/* The operand `elements` further on, whose columns from C on stay where they are: the descriptor
 * stores the distance to them, which shrinks as the address grows. */
__device__ inline uint64_t operand_after_beside(uint64_t operand, int elements) {
    uint32_t low = (uint32_t)operand + (uint32_t)(elements / 8) - ((uint32_t)(elements / 8) << 16);
    return (operand >> 32 << 32) | low;
}

/* The middle of a step, called while the products of s run: dp += v dout'^T, s becomes the weights
 * P^T, dv += P^T dout', s becomes dS^T = P^T dp. d is the operand of dout'. The products of dv
 * still run when it returns. */
template <int C>
__device__ inline void weights_to_gradients(walk_keys<C> &keys, float slope, uint64_t d,
                                            float (&s)[4][4], float (&dp)[4][4]) {
    uint32_t weights[2][4];
#pragma unroll
    for (int k = 0; k < C / 16; k++)
        wgmma<K_MAJOR>(dp, keys.v[k], operand_after(d, 16 * k), true);
    products_commit();
    products_wait<1>(s);
    weights_from_logits(s, slope, keys);
#pragma unroll
    for (int k = 0; k < 2; k++)
        accumulator_rows(weights[k], s, k);
    products_begin();
#pragma unroll
    for (int k = 0; k < 2; k++)
        wgmma<MN_MAJOR>(keys.dv, weights[k], operand_after(d, 16 * k * C), true);
    products_commit();
    products_wait<1>(dp);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] *= dp[n][i];
}

template <typename K> inline void allow_shared(K kernel, size_t bytes) {
    FM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

/* The strides of dout' in the workspace: rows in the order of o, without gaps. */
inline fm_attention_stride opened_stride(const fm_attention *a) {
    int64_t width = a->n_head * a->c_head;
    bool is_by_query = a->o_stride.batch < a->o_stride.row;
    return {a->n_batch * a->n_query * width, is_by_query ? width : a->n_query * width,
            is_by_query ? a->n_batch * width : width, a->c_head};
}

/* Makes the call's boxes: tiles of `queries` and `keys` rows of C channels. */
template <int C>
inline void make_tiles(const fm_attention *a, grad_call *call, int queries, int keys) {
    call->q_box = attention_boxes(a, a->q, a->q_stride, a->n_query, C, queries);
    call->k_box = attention_boxes(a, a->k, a->k_stride, a->n_key, C, keys);
    call->v_box = attention_boxes(a, a->v, a->v_stride, a->n_key, C, keys);
    call->d_box = attention_boxes(a, call->space.dout, opened_stride(a), a->n_query, C, queries);
}

/* attention_open.cu: dg, and dout', the columns' terms and the packed bias in the workspace. With a
 * bias only. */
void attention_open(fm_stream *, const fm_attention *, const fm_attention_grad *,
                    const grad_call *);

/* attention_small_grad.cu: the mask terms, before attention_open; and all gradients of a call with
 * ATTENTION_SMALL. */
void attention_small_keys(fm_stream *, const fm_attention *, const grad_call *);
void attention_small_grad(fm_stream *, const fm_attention *, grad_call *, fm_out dbias);
/* dbias (+)= the sums in space.dbias [chunks, group, head, query, key], less the mean of each row
 * of keys. */
void attention_mean_dbias(fm_stream *, const fm_attention *, const attention_space *, fm_out dbias);

/* attention_wgmma_all.cu: dq, dk, dv and dbias of a call with ATTENTION_ALL. */
void attention_all_grad(fm_stream *, const fm_attention *, grad_call *, fm_out dbias);

/* attention_wgmma_long.cu: dq, dk and dv of more than 256 queries or keys. */
void attention_wgmma_long(fm_stream *, const fm_attention *, grad_call *);

/* attention_wgmma_dbias.cu: dbias, after the walk has corrected the columns' terms and stored the
 * mask terms in the workspace. */
void attention_wgmma_dbias(fm_stream *, const fm_attention *, grad_call *, fm_out dbias);

} // namespace fm_cuda

#endif
