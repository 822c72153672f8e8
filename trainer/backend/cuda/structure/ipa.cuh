/* ipa.cuh: the layout, the workspace and the first launch that forward and backward of invariant
 * point attention share.
 *
 * Queries and keys are rows [n, F] in f32 for each head, values rows [n, G]. F = c + 3 n_qk and
 * G = c + 3 n_v: channels, then points in global coordinates. The first launch of either direction
 * makes them and the logits [n, n]; backward's makes weights of the logits, and the gradients that
 * the values give these. All later launches sum over keys or over queries. */
#ifndef FM_BACKEND_CUDA_IPA_CUH
#define FM_BACKEND_CUDA_IPA_CUH

#include "trainer/backend/cuda/core/early.cuh"
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/structure/rigid.cuh"

#include <math.h>

namespace fm_cuda {

/* Heads of a query's pair representation that a thread has at once. */
constexpr int PAIR_HEADS = 12;

/* Offsets in a row of projections and of the output, and other numbers that follow from the sizes.
 */
struct ipa_layout {
    int64_t q, kv, q_points, kv_points; /* of a projection row */
    int64_t n_q_points, n_kv_points;    /* points of all heads */
    int64_t o_points, o_norms, o_pair;  /* of an output row */
    int64_t n_o_points, projected,
        ld;               /* used elements of a projection row; elements of an output row */
    int64_t f, g, packed; /* F, G, heads rounded up to whole packs of PAIR_HEADS */
    float scale, third, point_factor, mask_value, eps;
};

inline ipa_layout ipa_layout_of(const fm_ipa *a) {
    ipa_layout l = {};
    l.n_q_points = a->n_head * a->n_qk;
    l.n_kv_points = a->n_head * (a->n_qk + a->n_v);
    l.n_o_points = a->n_head * a->n_v;
    l.kv = a->n_head * a->c;
    l.q_points = 3 * a->n_head * a->c;
    l.kv_points = l.q_points + 3 * l.n_q_points;
    l.projected = l.kv_points + 3 * l.n_kv_points;
    l.o_points = a->n_head * a->c;
    l.o_norms = l.o_points + 3 * l.n_o_points;
    l.o_pair = l.o_norms + l.n_o_points;
    l.ld = l.o_pair + a->n_head * a->c_z;
    l.f = a->c + 3 * a->n_qk, l.g = a->c + 3 * a->n_v, l.packed = round_up(a->n_head, PAIR_HEADS);
    l.scale = (float)sqrt(1.0 / (3.0 * (double)a->c)), l.third = (float)sqrt(1.0 / 3.0);
    l.point_factor = (float)(-0.5 * sqrt(2.0 / (27.0 * (double)a->n_qk)));
    l.mask_value = (float)a->mask_value, l.eps = (float)a->eps;
    return l;
}

/* For each head: */
struct ipa_space {
    float *weight; /* [n query, n key]: logits; backward: weights */
    /* forward */
    float *v;    /* [n, G] */
    float *part; /* [n query, tiles of LOGIT_KEYS keys, 2]: see ipa_join */
    /* backward */
    float *q, *k;  /* [n, F], [n, F] */
    float *d;      /* [n, n]: gradients of the weights, then of the logits */
    float *dvalue; /* [n, G]: of the averaged values */
    float *dframe; /* [n, 12]: of rotation and translation, from the averaged points */
    float *dq;     /* [n, 3 n_qk]: of the query's points */
    float *dhead;  /* [n]: of the head's weight */
    float *dkv;    /* of key and value points [n, n_head, 3 (n_qk + n_v)] */
};

/* Queries and keys of a tile of logits. A thread has two queries and four keys. */
constexpr int LOGIT_QUERIES = 32, LOGIT_KEYS = 64, LOGIT_ROWS = 2, LOGIT_COLUMNS = 4;

inline ipa_space ipa_space_of(const fm_ipa *a, bool backward, carver *part) {
    ipa_layout l = ipa_layout_of(a);
    size_t rows = (size_t)(a->n_head * a->n) * sizeof(float);
    ipa_space s = {};
    s.weight = (float *)part->take(rows * (size_t)a->n);
    if (!backward) {
        s.v = (float *)part->take(rows * (size_t)l.g);
        s.part = (float *)part->take(rows * (size_t)(2 * divide_up(a->n, LOGIT_KEYS)));
        return s;
    }
    s.q = (float *)part->take(rows * (size_t)l.f);
    s.k = (float *)part->take(rows * (size_t)l.f);
    s.d = (float *)part->take(rows * (size_t)a->n);
    s.dvalue = (float *)part->take(rows * (size_t)l.g);
    s.dframe = (float *)part->take(rows * MATRIX);
    s.dq = (float *)part->take(rows * (size_t)(3 * a->n_qk));
    s.dhead = (float *)part->take(rows);
    s.dkv = (float *)part->take(rows * (size_t)(3 * (a->n_qk + a->n_v)));
    return s;
}

/* The first launch. Forward (dy is NULL): v, logits and their parts of the softmax. Backward: q, k,
 * weights, their gradients from the values, dvalue and dframe. */
template <typename T>
void ipa_logits(fm_stream *, const fm_ipa *, const ipa_space *, const void *dy);

__device__ inline float ipa_softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

constexpr int IPA_THREADS = 256;

/* Queues a kernel that may begin while the one before it ends (early.cuh). */
template <typename F, typename... A>
inline void ipa_launch(fm_stream *stream, F kernel, dim3 blocks, int threads, size_t shared_bytes,
                       const A &...arguments) {
    if (shared_bytes > 48 * 1024) { /* more must be asked for */
        FM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)shared_bytes));
    }
    launch_after(stream, kernel, blocks, (unsigned)threads, shared_bytes, true, arguments...);
    FM_LAUNCHED();
}

/* Asks the L2 cache for `count` elements, where their place allows it. */
template <typename T> __device__ inline void ipa_prefetch(const T *from, int64_t count) {
    if ((uintptr_t)from % 16 == 0 && count > 0) {
        bulk_prefetch(from, (uint32_t)(count * (int64_t)sizeof(T) / 16 * 16));
    }
}

/* weight = softmax of a logit, from the saved largest logit of the row and 1 over its sum. */
__device__ inline float ipa_weight(float logit, const float *lse) {
    return expf(logit - lse[0]) * lse[1];
}

} // namespace fm_cuda

#endif
