/* attention_wgmma_grad.cuh: what the two kernels of the backward of gated attention by warp-group
 * products share: what they are told, and how a warp group starts logits and weighs them.
 *
 * Keys are rows, queries columns: a warp group owns 64 keys, K and V in registers as operands. The
 * bias and the log-sum-exp enter through the accumulators' initial values, in units of the
 * undivided product, the mask with the power:
 * P = 2^((q k + bias / scale - lse / scale) * scale log2(e) + mask log2(e)). */
#ifndef FM_BACKEND_CUDA_ATTENTION_WGMMA_GRAD_CUH
#define FM_BACKEND_CUDA_ATTENTION_WGMMA_GRAD_CUH

#include "trainer/backend/cuda/attention_mma.cuh"
#include "trainer/backend/cuda/bulk.cuh"
#include "trainer/backend/cuda/wgmma.cuh"

namespace fm_cuda {

/* Queries of a step; multiprocessors that a launch counts on. */
enum { STEP = 32, MULTIPROCESSORS = 132 };

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

/* attention_wgmma_dbias.cu: dbias once the walk has left dout', delta and the batches' validity in
 * the workspace. */
void attention_wgmma_dbias(fm_stream *, const fm_attention *, grad_call *, fm_out dbias);

} // namespace fm_cuda

#endif
