/* attention_forward.cuh: the code that the forwards of gated attention on the copy engine share:
 * the argument of a launch, bits of valid keys, and the end of a batch. */
#ifndef FM_BACKEND_CUDA_ATTENTION_FORWARD_CUH
#define FM_BACKEND_CUDA_ATTENTION_FORWARD_CUH

#include "trainer/backend/cuda/hopper/attention/attention_boxes.cuh"
#include "trainer/backend/cuda/hopper/core/wgmma.cuh"

namespace fm_cuda {

/* The logit of a masked key. */
static const float MASKED = -1e9f;
/* The sum of a row's weights from which on another walk is needed. A single weight overflows at
 * 2^128. */
static const float MOST_SUM = 0x1p64f;

/* The argument of a launch. */
struct forward_call {
    box_map q, k, v, g, o, bias;
    const bf16 *mask;
    float *lse;
    int64_t mask_stride[3];
    int n_query, n_key, n_head, n_batch;
    int tiles;  /* of keys */
    int blocks; /* of queries */
    int batches_per_block;
    int shares;           /* blocks that share the batches of a (group, head, queries) */
    float slope;          /* scale log2(e): from a product to an exponent of two */
    uint16_t bias_factor; /* bf16: 1 / scale */
    bool is_gated;
};

/* Rows of a warp's box of queries and of a box of keys, and queries of a block. */
struct forward_tiling {
    int query_rows, keys, queries;
};

/* The argument of a launch with c channels per head, except the boxes of the bias and how blocks
 * share the batches. */
static inline forward_call forward_call_of(const fm_attention *a, int c, forward_tiling of,
                                           float bias_factor) {
    forward_call call = {};
    call.q = attention_boxes(a, a->q, a->q_stride, a->n_query, c, of.query_rows);
    call.k = attention_boxes(a, a->k, a->k_stride, a->n_key, c, of.keys);
    call.v = attention_boxes(a, a->v, a->v_stride, a->n_key, c, of.keys);
    if (a->g) call.g = attention_boxes(a, a->g, a->g_stride, a->n_query, c, of.query_rows);
    call.o = attention_boxes(a, a->o, a->o_stride, a->n_query, c, of.query_rows);
    call.is_gated = a->g != NULL;
    call.mask = (const bf16 *)a->mask, call.lse = (float *)a->lse;
    for (int i = 0; i < 3; i++)
        call.mask_stride[i] = a->mask_stride[i];
    call.n_query = (int)a->n_query, call.n_key = (int)a->n_key;
    call.n_head = (int)a->n_head, call.n_batch = (int)a->n_batch;
    call.tiles = (int)divide_up(a->n_key, of.keys);
    call.blocks = (int)divide_up(a->n_query, of.queries);
    call.slope = (float)a->scale * LOG2E;
    call.bias_factor = __bfloat16_as_ushort(__float2bfloat16_rn(bias_factor));
    return call;
}

/* Fills the bits of valid keys of the block's batches, `words` words of 32 for each: put(batch, i,
 * word). A warp takes every `warps`-th batch, eight words
 * at a time, whose loads it starts before it uses any. A batch without a valid key is gone over
 * again as if it had no mask. */
template <typename F>
__device__ inline void find_bits(const forward_call &a, int group, int first, int end, int words,
                                 int warps, const F &put) {
    int lane = threadIdx.x % 32;
    for (int batch = first + (int)threadIdx.x / 32; batch < end; batch += warps) {
        const uint16_t *mask =
            (const uint16_t *)a.mask + group * a.mask_stride[0] + batch * a.mask_stride[1];
        uint32_t any = 0;
        for (int is_again = a.mask == NULL; is_again < 2 && !any; is_again++) {
            for (int at = 0; at < words; at += 8) {
                uint16_t raw[8];
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    int key = min((at + i) * 32 + lane, a.n_key - 1);
                    raw[i] = is_again ? 1 : mask[key * a.mask_stride[2]];
                }
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    bool is_inside = (at + i) * 32 + lane < a.n_key;
                    /* Twice the bits are 0 for a mask of 0 and of -0. */
                    uint32_t word = __ballot_sync(0xffffffffu, is_inside && raw[i] * 2 % 65536);
                    any |= word;
                    if (lane == 0 && at + i < words) put(batch, at + i, word);
                }
            }
        }
    }
}

__device__ inline float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float logarithm(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* A pair of outputs divided by `sum` and multiplied with the sigmoids of two gate values. Values
 * below -40 count as -40, where the sigmoid is 4e-18. */
__device__ inline void divide_and_gate(float *pair, uint32_t two, float sum) {
    __nv_bfloat162 least = __float2bfloat162_rn(-40.0f);
    __nv_bfloat162 bounded = __hmax2_nan(*(__nv_bfloat162 *)&two, least);
    float2 x = __bfloat1622float2(bounded);
    pair[0] *= reciprocal(exp2_fast(x.x * -LOG2E) * sum + sum);
    pair[1] *= reciprocal(exp2_fast(x.y * -LOG2E) * sum + sum);
}

} // namespace fm_cuda

#endif
