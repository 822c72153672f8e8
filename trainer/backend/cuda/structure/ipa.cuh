/* ipa.cuh: the layout, the workspace and the tiles that forward and backward of invariant point
 * attention share.
 *
 * The first launch of either direction makes, in f32 and for each head, rows of queries and keys
 * [n, F], rows of values [n, G], and the logits [n, n]. F = c + 3 n_qk and G = c + 3 n_v: channels,
 * then points in global coordinates. All later launches sum over keys or over queries. */
#ifndef FM_BACKEND_CUDA_IPA_CUH
#define FM_BACKEND_CUDA_IPA_CUH

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
    float *q, *k, *v; /* [n, F], [n, F], [n, G] */
    float *weight;    /* [n query, n key]: logits, then backward the weights */
    float *average;   /* [n, G]: values averaged over keys */
    /* backward */
    float *d;      /* [n, n]: gradients of the weights, then of the logits */
    float *dvalue; /* [n, G]: of the averaged values */
    float *dframe; /* [n, 12]: of rotation and translation, from the averaged points */
    float *dq;     /* [n, 3 n_qk]: of the query's points */
    float *dhead;  /* [n]: of the head's weight */
    float *dkv;    /* of key and value points [n, n_head, 3 (n_qk + n_v)] */
};

inline ipa_space ipa_space_of(const fm_ipa *a, bool backward, carver *part) {
    ipa_layout l = ipa_layout_of(a);
    size_t rows = (size_t)(a->n_head * a->n) * sizeof(float);
    ipa_space s = {};
    s.q = (float *)part->take(rows * (size_t)l.f);
    s.k = (float *)part->take(rows * (size_t)l.f);
    s.v = (float *)part->take(rows * (size_t)l.g);
    s.weight = (float *)part->take(rows * (size_t)a->n);
    s.average = (float *)part->take(rows * (size_t)l.g);
    if (!backward) return s;
    s.d = (float *)part->take(rows * (size_t)a->n);
    s.dvalue = (float *)part->take(rows * (size_t)l.g);
    s.dframe = (float *)part->take(rows * MATRIX);
    s.dq = (float *)part->take(rows * (size_t)(3 * a->n_qk));
    s.dhead = (float *)part->take(rows);
    s.dkv = (float *)part->take(rows * (size_t)(3 * (a->n_qk + a->n_v)));
    return s;
}

/* The first launch: q, k, v and the logits. */
template <typename T> void ipa_logits(fm_stream *, const fm_ipa *, const ipa_space *);

__device__ inline float ipa_softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

/* The rows of the logits and of the sums over keys that a block has at once, the keys (queries) of
 * a tile, and its features. A thread has one row and every 16th of 48 features. */
constexpr int IPA_ROWS = 16, IPA_TILE = 32, IPA_WIDTH = 48, IPA_THREADS = 256;
constexpr int IPA_SHARE = IPA_WIDTH / 16;

/* tile[r][c] = x[(first + r) * ld + from + c] for c < IPA_WIDTH, 0 beyond the end. The whole block
 * takes part, sixteen lanes per row. PITCH is the distance of two rows of the tile in floats. */
template <int ROWS, int PITCH>
__device__ inline void load_tile(const float *x, int first, int n, int ld, int from,
                                 float (*tile)[PITCH]) {
#pragma unroll
    for (int step = 0; step < ROWS; step += 16)
#pragma unroll
        for (int m = 0; m < IPA_SHARE; m++) {
            int r = step + threadIdx.x / 16, column = threadIdx.x % 16 + 16 * m;
            bool exists = first + r < n && from + column < ld;
            tile[r][column] = exists ? x[(first + r) * ld + from + column] : 0;
        }
}

/* The average of a value point minus the translation, the same in the query's frame (A22:10), and
 * its length. */
__device__ inline float ipa_point(const ipa_layout &l, const float *rotation, const float *t,
                                  const float *average, float *offset, float *local) {
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        offset[axis] = average[axis] - t[axis];
    rotate_back(rotation, offset, local);
    return sqrtf(local[0] * local[0] + local[1] * local[1] + local[2] * local[2] + l.eps);
}

/* weight = softmax of a logit, from the saved largest logit of the row and 1 over its sum. */
__device__ inline float ipa_weight(float logit, const float *lse) {
    return expf(logit - lse[0]) * lse[1];
}

/* Keys of a tile of weights [keys, packed] in a query's block, and the limit of shared memory in
 * bytes. */
constexpr int PAIR_KEYS = 128;
constexpr size_t PAIR_SHARED_BYTES = 32 * 1024;

/* average[i, f] = sum over keys of weight * value, for features first .. G and IPA_ROWS queries of
 * head h from `query` on. The result is in the workspace after a barrier of the block. lse
 * [IPA_ROWS][2] is in shared memory. With keep, the weights replace the logits. */
struct ipa_average_tiles {
    float weight[IPA_ROWS][IPA_TILE + 1], value[IPA_TILE][IPA_WIDTH];
};
__device__ inline void ipa_average(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                   int64_t query, int64_t h, int64_t first_feature,
                                   const float (*lse)[2], bool keep, ipa_average_tiles *tiles) {
    int row = threadIdx.x / 16, column = threadIdx.x % 16;
    int n = (int)a.n, g = (int)l.g, rows = (int)min_size(a.n - query, IPA_ROWS);
    float *logits = s.weight + (h * a.n + query) * a.n;
    float *average = s.average + (h * a.n + query + row) * l.g;
    const float *values = s.v + h * a.n * l.g;
    for (int from = (int)first_feature; from < g; from += IPA_WIDTH) {
        float total[IPA_SHARE] = {0};
        bool last = from + IPA_WIDTH >= g;
        for (int key = 0; key < n; key += IPA_TILE) {
            __syncthreads();
#pragma unroll
            for (int at = threadIdx.x; at < IPA_ROWS * IPA_TILE; at += IPA_THREADS) {
                int r = at / IPA_TILE, k = at % IPA_TILE;
                bool exists = r < rows && key + k < n;
                float w = exists ? ipa_weight(logits[r * n + key + k], lse[r]) : 0;
                tiles->weight[r][k] = w;
                if (keep && last && exists) logits[r * n + key + k] = w;
            }
            load_tile<IPA_TILE>(values, key, n, g, from, tiles->value);
            __syncthreads();
#pragma unroll 8
            for (int k = 0; k < IPA_TILE; k++)
#pragma unroll
                for (int m = 0; m < IPA_SHARE; m++)
                    total[m] += tiles->weight[row][k] * tiles->value[k][column + 16 * m];
        }
#pragma unroll
        for (int m = 0; m < IPA_SHARE; m++)
            if (row < rows && from + column + 16 * m < g) {
                average[from + column + 16 * m] = total[m];
            }
    }
    __syncthreads();
}

} // namespace fm_cuda

#endif
