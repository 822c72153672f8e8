/* ipa.cuh: what forward and backward of invariant point attention share: where things lie, the
 * operands prepared for them, and the attention weights of one query.
 *
 * Prepared in the workspace, in f32, for each head: queries [n, F], keys [F, n], values [G, n]; a
 * query or key has F = c + 3 n_qk numbers, a value G = c + 3 n_v: its channels, then its points in
 * global coordinates. Keys and values lie feature by feature because the lanes of a warp are keys.
 *
 * The weights of one query, [n, heads] with the heads rounded up to whole packs of four, are in
 * shared memory where they fit, else in the workspace. */
#ifndef FM_BACKEND_CUDA_IPA_CUH
#define FM_BACKEND_CUDA_IPA_CUH

#include "trainer/backend/cuda/families.cuh"
#include "trainer/backend/cuda/rigid.cuh"

#include <math.h>

namespace fm_cuda {

/* Threads of a query's block; a warp's lanes take 32 * IPA_KEYS keys at a time. */
constexpr int IPA_THREADS = 384, IPA_WARPS = IPA_THREADS / 32;
constexpr int IPA_KEYS = 8, IPA_CHUNK = 32 * IPA_KEYS;
/* Shared memory that needs no special leave, less a little. */
constexpr size_t IPA_SHARED_BYTES = 47 * 1024;

/* Offsets in a row of projections and of the output; what follows from the sizes. */
struct ipa_layout {
    int64_t q, kv, q_points, kv_points; /* of a projection row */
    int64_t n_q_points, n_kv_points;    /* points of all heads */
    int64_t o_points, o_norms, o_pair;  /* of an output row */
    int64_t n_o_points, projected, ld;  /* used of a projection row; a row of the output */
    int64_t f, g, packed;               /* F, G, heads in whole packs of four */
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
    l.f = a->c + 3 * a->n_qk, l.g = a->c + 3 * a->n_v, l.packed = round_up(a->n_head, 4);
    l.scale = (float)sqrt(1.0 / (3.0 * (double)a->c)), l.third = (float)sqrt(1.0 / 3.0);
    l.point_factor = (float)(-0.5 * sqrt(2.0 / (27.0 * (double)a->n_qk)));
    l.mask_value = (float)a->mask_value, l.eps = (float)a->eps;
    return l;
}

struct ipa_space {
    float *q, *k, *v;
    float *weight;  /* [n, n, packed]; NULL: shared memory serves */
    float *dweight; /* backward: the same for the gradients */
    /* Backward, for each head: weights and gradients of logits [n query, n key], gradients of
     * values [n, G] and of query points [n, 3 n_qk], of the head's weight [n]. */
    float *p, *d, *dvalue, *dq, *dhead;
    float *dkv;    /* gradients of key and value points [n, n_head, 3 (n_qk + n_v)] */
    float *dframe; /* of rotation and translation, from a query's output [n, 12] */
};

/* Shared memory of a query's block: forward weights and the values' averages; backward those twice,
 * sums over keys of the queries' gradients, and the frame's gradient of every warp. */
inline size_t ipa_small_bytes(const fm_ipa *a, const ipa_layout *l, bool backward) {
    int64_t count = a->n_head * l->g;
    if (backward) count += a->n_head * (l->g + l->f + 1) + IPA_WARPS * MATRIX;
    return (size_t)count * sizeof(float);
}
inline size_t ipa_weight_bytes(const fm_ipa *a, const ipa_layout *l) {
    return (size_t)(a->n * l->packed) * sizeof(float);
}
inline bool ipa_fits(const fm_ipa *a, const ipa_layout *l, bool backward) {
    size_t weights = ipa_weight_bytes(a, l) * (backward ? 2 : 1);
    return weights + ipa_small_bytes(a, l, backward) <= IPA_SHARED_BYTES;
}

inline ipa_space ipa_space_of(const fm_ipa *a, bool backward, carver *part) {
    ipa_layout l = ipa_layout_of(a);
    size_t rows = (size_t)(a->n_head * a->n) * sizeof(float), width = (size_t)a->n;
    ipa_space s = {};
    s.q = (float *)part->take(rows * (size_t)l.f);
    s.k = (float *)part->take(rows * (size_t)l.f);
    s.v = (float *)part->take(rows * (size_t)l.g);
    if (!ipa_fits(a, &l, backward)) {
        s.weight = (float *)part->take(ipa_weight_bytes(a, &l) * width);
        if (backward) s.dweight = (float *)part->take(ipa_weight_bytes(a, &l) * width);
    }
    if (!backward) return s;
    s.p = (float *)part->take(rows * width);
    s.d = (float *)part->take(rows * width);
    s.dvalue = (float *)part->take(rows * (size_t)l.g);
    s.dq = (float *)part->take(rows * (size_t)(3 * a->n_qk));
    s.dhead = (float *)part->take(rows);
    s.dkv = (float *)part->take(rows * (size_t)(3 * (a->n_qk + a->n_v)));
    s.dframe = (float *)part->take(width * MATRIX * sizeof(float));
    return s;
}

/* Fills q, k and v of the workspace: one launch. */
template <typename T> void ipa_prepare(fm_stream *, const fm_ipa *, const ipa_space *);

__device__ inline float ipa_softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

/* A22:7 for one query and head, by one warp: logits into weight[j * packed + h], and the largest in
 * every lane. A masked query's logits would all carry the same mask_value, which changes no weight
 * and swallows digits: they get none. */
template <typename T>
__device__ inline float ipa_logits(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                   int64_t i, int64_t h, float *weight) {
    const T *mask = (const T *)a.mask, *bias = (const T *)a.bias + i * a.n * a.n_head + h;
    const float *q = s.q + (h * a.n + i) * l.f, *keys = s.k + h * l.f * a.n;
    float factor = l.point_factor * ipa_softplus(get(((const T *)a.head_weights)[h]));
    float mine = get(mask[i]), largest = -INFINITY;
    for (int64_t first = threadIdx.x % 32; first < a.n; first += IPA_CHUNK) {
        float product[IPA_KEYS] = {0}, square[IPA_KEYS] = {0};
        for (int64_t f = 0; f < a.c; f++) {
            float x = q[f];
#pragma unroll
            for (int m = 0; m < IPA_KEYS; m++)
                if (first + 32 * m < a.n) product[m] += x * keys[f * a.n + first + 32 * m];
        }
        for (int64_t f = a.c; f < l.f; f++) {
            float x = q[f];
#pragma unroll
            for (int m = 0; m < IPA_KEYS; m++) {
                if (first + 32 * m >= a.n) continue;
                float difference = x - keys[f * a.n + first + 32 * m];
                square[m] += difference * difference;
            }
        }
#pragma unroll
        for (int m = 0; m < IPA_KEYS; m++) {
            int64_t j = first + 32 * m;
            if (j >= a.n) continue;
            float logit = l.scale * product[m] + l.third * get(bias[j * a.n_head]);
            logit += factor * square[m];
            if (mine != 0) logit += l.mask_value * (mine * get(mask[j]) - 1);
            weight[j * l.packed + h] = logit;
            largest = fmaxf(largest, logit);
        }
    }
    return warp_max(largest);
}

/* Softmax of one head by one warp, from the saved log-sum-exp where `saved`. */
__device__ inline void ipa_softmax(const fm_ipa &a, const ipa_layout &l, int64_t i, int64_t h,
                                   float largest, bool saved, float *weight) {
    int lane = threadIdx.x % 32;
    float *lse = (float *)a.lse + 2 * (i * a.n_head + h), share;
    if (saved) {
        largest = lse[0], share = lse[1];
    } else {
        float total = 0;
        for (int64_t j = lane; j < a.n; j += 32)
            total += expf(weight[j * l.packed + h] - largest);
        share = 1 / warp_sum(total);
        if (lane == 0) lse[0] = largest, lse[1] = share;
    }
    for (int64_t j = lane; j < a.n; j += 32)
        weight[j * l.packed + h] = expf(weight[j * l.packed + h] - largest) * share;
}

/* average[f] = sum over keys of weight * value, features first .. G of one head, by one warp. Each
 * lane reads what it wrote of the weights. */
__device__ inline void ipa_average(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                   int64_t h, int64_t first_feature, const float *weight,
                                   float *average) {
    int lane = threadIdx.x % 32;
    const float *values = s.v + h * l.g * a.n;
    for (int64_t first = 0; first < a.n; first += IPA_CHUNK) {
        float w[IPA_KEYS];
#pragma unroll
        for (int m = 0; m < IPA_KEYS; m++) {
            int64_t j = first + lane + 32 * m;
            w[m] = j < a.n ? weight[j * l.packed + h] : 0;
        }
        for (int64_t f = first_feature; f < l.g; f++) {
            float total = 0;
#pragma unroll
            for (int m = 0; m < IPA_KEYS; m++) {
                int64_t j = first + lane + 32 * m;
                if (j < a.n) total += w[m] * values[f * a.n + j];
            }
            total = warp_sum(total);
            if (lane == 0) average[f] = first > 0 ? average[f] + total : total;
        }
    }
    __syncwarp();
}

/* The average of a value point less the translation, and in the query's frame (A22:10); its
 * length. */
__device__ inline float ipa_point(const ipa_layout &l, const float *rotation, const float *t,
                                  const float *average, float *offset, float *local) {
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        offset[axis] = average[axis] - t[axis];
    rotate_back(rotation, offset, local);
    return sqrtf(local[0] * local[0] + local[1] * local[1] + local[2] * local[2] + l.eps);
}

} // namespace fm_cuda

#endif
