/* attention_wgmma_grad.cuh: what the two kernels of the backward of gated attention by warp-group
 * products share: what they are told, and how a warp group starts logits and weighs them.
 *
 * Keys are rows, queries columns: a warp group owns 64 keys, K and V in registers as operands. The
 * bias and the log-sum-exp enter through the accumulators' initial values, in units of the
 * undivided product, the mask with the power:
 * P = 2^((q k + bias / scale - lse / scale) * scale log2(e) + mask log2(e)). */
#ifndef FM_BACKEND_CUDA_ATTENTION_WGMMA_GRAD_CUH
#define FM_BACKEND_CUDA_ATTENTION_WGMMA_GRAD_CUH

#include "trainer/backend/cuda/attention/attention_mma.cuh"
#include "trainer/backend/cuda/core/bulk.cuh"
#include "trainer/backend/cuda/core/wgmma.cuh"

namespace fm_cuda {

/* Queries of a step; multiprocessors that a launch counts on. */
enum { STEP = 32, MULTIPROCESSORS = 132 };

/* Queries and keys that one block takes together, and in passes. */
enum { MOST_ROWS = 256, MOST_LONG_ROWS = 512 };

/* A tensor of the call, its strides in 32 bits: their sums are checked on the host. */
struct grad_tensor {
    bf16 *data;
    int group, batch, row, head;
    bool adds; /* a gradient is added to what is there */
};

/* What the kernels are told. */
struct grad_call {
    box_map q_box, k_box, v_box, d_box; /* of the tiles of the kernel; d: dout' in the workspace */
    grad_tensor g, o, dout, dq, dk, dv, dg;
    const bf16 *mask;
    int mask_stride[3];
    const float *lse;
    attention_space space; /* dbias is NULL where it is not wanted */
    int n_batch, n_query, n_key, n_head, c_head, items;
    int passes;           /* over the keys of an item */
    float scale, inverse; /* and 1 / scale */
    float slope;          /* scale log2(e) */
    float mask_factor;    /* mask_value log2(e) */
};

/* One (group, batch, head). */
struct item_place {
    int group, batch, head;
    int row; /* of lse and delta: row of query 0 */
};

/* What a warp group keeps of its 64 keys, a warp 16. */
template <int C> struct walk_keys {
    uint32_t k[C / 16][4], v[C / 16][4];
    float dk[C / 8][4], dv[C / 8][4];
    float upper, lower; /* mask terms of this lane's keys, powers of two */
};

/* s += bias / scale. */
__device__ inline void bias_add(float (&s)[4][4], float inverse, const bias_tile<4> &b) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint32_t word[4] = {b.part[j].x, b.part[j].y, b.part[j].z, b.part[j].w};
#pragma unroll
        for (int w = 0; w < 4; w++) {
            float *pair = &s[2 * j + w / 2][w % 2 * 2];
            pair[0] += low_half(word[w]) * inverse;
            pair[1] += high_half(word[w]) * inverse;
        }
    }
}

/* The bias of a walk's next tile for this warp's strip of keys, and where it lies; beyond the last
 * key any strip will do. */
struct walk_bias {
    const uint4 *at;
    bias_tile<4> half[2];
};

/* What a lane keeps of where the walk is: addresses in shared memory and operands. */
struct walk_place {
    uint32_t columns, ds; /* of this lane in shift(); of the row that it puts */
    uint32_t less;        /* bytes from shift() to less() */
    uint64_t q, d;        /* as K_MAJOR and MN_MAJOR operands the tiles have the same descriptors */
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

/* s = bias / scale + shift of the column; dp = -delta of the column. */
template <bool BIASED>
__device__ inline void start_products(float (&s)[4][4], float (&dp)[4][4], const walk_place &at,
                                      int half, float inverse, const bias_tile<4> &b) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
        uint32_t address = at.columns + (half * 4 + n) * 64;
        float2 shift = load_shared_two(address);
        s[n][0] = s[n][2] = shift.x;
        s[n][1] = s[n][3] = shift.y;
        *(float4 *)dp[n] = load_shared(address + at.less);
    }
    if (BIASED) bias_add(s, inverse, b);
}

/* s = 2^(s * slope + term of the row). */
template <int C>
__device__ inline void weigh(float (&s)[4][4], float slope, const walk_keys<C> &keys) {
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = power(s[n][i] * slope + (i < 2 ? keys.upper : keys.lower));
}

/* threadIdx.x read again: what is made of it need not be kept, or spilled, since it was last read.
 */
__device__ inline int read_thread(void) {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

/* Heads are fastest, as they lie in memory. */
__device__ inline item_place place_of_item(const grad_call &c, unsigned i) {
    unsigned heads = (unsigned)c.n_head, batches = (unsigned)c.n_batch, at = i / heads;
    unsigned group = at / batches;
    return {(int)group, (int)(at - group * batches), (int)(i - at * heads), (int)i * c.n_query};
}

__device__ inline bf16 *row_at(const grad_tensor &t, const item_place &p, int row) {
    return t.data + (p.group * t.group + p.batch * t.batch + p.head * t.head + row * t.row);
}

/* Eight channels of a row of what opening the gradient reads; its log-sum-exp in the first. */
struct closed_part {
    uint4 d, o, g;
    float lse;
};

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

/* Part i of an item: chunk i % (C / 8) of query i / (C / 8). */
template <int C>
__device__ inline closed_part part_load(const grad_call &call, const item_place &p, int i) {
    int query = i / (C / 8), c = i % (C / 8) * 8;
    closed_part part = {};
    if (query >= call.n_query || c >= call.c_head) return part;
    part.d = *(const uint4 *)(row_at(call.dout, p, query) + c);
    part.o = *(const uint4 *)(row_at(call.o, p, query) + c);
    if (call.g.data) part.g = *(const uint4 *)(row_at(call.g, p, query) + c);
    if (c == 0) part.lse = call.lse[p.row + query];
    return part;
}

/* 1 / (1 + e^-x), x / y in the approximations of the chip. */
__device__ inline float open_gate(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + power(x * -LOG2E)));
    return y;
}

/* Where it goes in shared memory: dout' [queries, C]; the terms of an accumulator's columns
 * [2][queries / 2][4], first -lse / scale of two queries, twice, then -delta, likewise. */
struct opened_place {
    bf16 *d;
    float *shift;
    int queries;
};

/* dout' to shared memory and, where dbias is wanted, to the workspace; dg; the row's terms. */
template <int C>
__device__ inline void part_open(const grad_call &call, const item_place &p, const opened_place &to,
                                 const closed_part &part, int item, int i) {
    int query = i / (C / 8), chunk = i % (C / 8), c = chunk * 8;
    bool is_there = query < call.n_query && c < call.c_head;
    float d[8], o[8], g[8], delta = 0;
    unpack_eight(part.d, d);
    unpack_eight(part.o, o);
    unpack_eight(part.g, g);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float both = d[j] * o[j], open = call.g.data ? open_gate(g[j]) : 1.0f;
        delta += both;
        d[j] *= open;
        g[j] = both - both * open;
    }
    uint4 opened = pack_eight(d);
    *(uint4 *)(to.d + tile_at<C>(query, chunk)) = opened;
    if (is_there && call.dg.data)
        put_pack<bf16, 8>(row_at(call.dg, p, query) + c, call.dg.adds ? FM_ADD : FM_WRITE, g);
    if (C == 32) delta += __shfl_xor_sync(0xffffffffu, delta, 2);
    delta += __shfl_xor_sync(0xffffffffu, delta, 1);
    /* Of two neighbouring queries the first puts the shifts of both, the second their deltas. */
    float shift = is_there ? -part.lse * call.inverse : -INFINITY;
    float other_shift = __shfl_xor_sync(0xffffffffu, shift, C / 8);
    float other = __shfl_xor_sync(0xffffffffu, delta, C / 8);
    float4 column = query % 2 == 0 ? make_float4(shift, other_shift, shift, other_shift)
                                   : make_float4(-other, -delta, -other, -delta);
    int at = query % 2 * 2 * to.queries + query / 2 * 4;
    if (chunk == 0) *(float4 *)(to.shift + at) = column;
    if (!call.space.dbias) return;
    if (chunk == 0) *(float4 *)(call.space.columns + (int64_t)item * 4 * to.queries + at) = column;
    if (!is_there) return;
    *(uint4 *)((bf16 *)call.space.dout + (p.row + query) * call.c_head + c) = opened;
}

__device__ inline void put_shared(uint32_t address, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* Of four words a lane, of which the i-th of four neighbours are a line: lane t's, its t-th line.
 */
__device__ inline uint4 line_of_four(const uint32_t w[4]) {
    bool is_odd = threadIdx.x & 1, is_late = threadIdx.x & 2;
    uint32_t x = __shfl_xor_sync(0xffffffffu, is_odd ? w[0] : w[1], 1);
    uint32_t y = __shfl_xor_sync(0xffffffffu, is_odd ? w[2] : w[3], 1);
    uint2 early = is_odd ? make_uint2(x, w[1]) : make_uint2(w[0], x);
    uint2 late = is_odd ? make_uint2(y, w[3]) : make_uint2(w[2], y);
    x = __shfl_xor_sync(0xffffffffu, is_late ? early.x : late.x, 2);
    y = __shfl_xor_sync(0xffffffffu, is_late ? early.y : late.y, 2);
    return is_late ? make_uint4(x, y, late.x, late.y) : make_uint4(early.x, early.y, x, y);
}

/* An accumulator's two rows of this lane, `row` and row + 8 of those before `end`, to a gradient.
 */
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
            uint4 line = line_of_four(word);
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

/* The operand of which the columns from C on stay where they are as its rows go on. */
__device__ inline uint64_t operand_after_beside(uint64_t operand, int elements) {
    uint32_t low = (uint32_t)operand + (uint32_t)(elements / 8) - ((uint32_t)(elements / 8) << 16);
    return (operand >> 32 << 32) | low;
}

/* Behind the products of s, which are under way: dp += V dO'^T, P from s, dv += P dO', s = dS^T. d
 * is the operand of dO'. The products of dv are under way still. */
template <int C>
__device__ inline void weights_to_gradients(walk_keys<C> &keys, float slope, uint64_t d,
                                            float (&s)[4][4], float (&dp)[4][4]) {
    uint32_t weights[2][4];
#pragma unroll
    for (int k = 0; k < C / 16; k++)
        wgmma<K_MAJOR>(dp, keys.v[k], operand_after(d, 16 * k), true);
    products_commit();
    products_wait<1>(s);
    weigh(s, slope, keys);
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
    cudaError_t failed =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    assert(failed == cudaSuccess);
    (void)failed;
}

/* Tiles of `queries` and `keys` rows of C channels. */
template <int C>
inline void make_tiles(const fm_attention *a, grad_call *call, int queries, int keys) {
    fm_attention_stride d = {0, 0, a->c_head, a->n_query * a->c_head};
    d.batch = d.head * a->n_head, d.group = d.batch * a->n_batch;
    call->q_box = attention_boxes(a, a->q, a->q_stride, a->n_query, C, queries);
    call->k_box = attention_boxes(a, a->k, a->k_stride, a->n_key, C, keys);
    call->v_box = attention_boxes(a, a->v, a->v_stride, a->n_key, C, keys);
    if (call->space.dbias)
        call->d_box = attention_boxes(a, call->space.dout, d, a->n_query, C, queries);
}

/* attention_wgmma_long.cu: the walk of more than 256 queries or keys; bytes of attention_space's
 * sums. */
size_t attention_wgmma_long_sums(const fm_attention *);
void attention_wgmma_long(fm_stream *, const fm_attention *, grad_call *);

/* attention_wgmma_dbias.cu: dbias once the walk has left dout', delta and the batches' validity in
 * the workspace. */
void attention_wgmma_dbias(fm_stream *, const fm_attention *, grad_call *, fm_out dbias);

} // namespace fm_cuda

#endif
