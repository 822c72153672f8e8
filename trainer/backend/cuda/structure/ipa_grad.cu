/* ipa_grad.cu: invariant point attention backward, in four launches:
 *
 *     1  weights, and their gradients from the averaged values (ipa_logits.cu)
 *     2  blocks of one query: the weights' gradients from the pair representation, then the
 *        gradients of the logits (softmax backward) and of z
 *     3  sums over keys and sums over queries, side by side
 *     4  points back to projections and frames */
#include "trainer/backend/cuda/structure/ipa.cuh"

namespace fm_cuda {

/* -- pair representation and softmax */

/* The channels that a warp keeps in registers, for a pack of heads, while it walks over its keys.
 */
constexpr int PAIR_LANE = 4, PAIR_CHANNELS = 32 * PAIR_LANE;

/* Keys of a tile of weights [keys, packed] in a query's block, and the limit of shared memory in
 * bytes. */
constexpr int PAIR_KEYS = 128;
constexpr size_t PAIR_SHARED_BYTES = 32 * 1024;

/* Keys whose rows of z and dz the L2 cache is asked for at once, and how many keys ahead. The rows
 * of eight warps' next keys alone are too few bytes under way for the device memory's latency. */
constexpr int PAIR_FETCH = 32, PAIR_FETCH_AHEAD = 64;

/* Lanes that differ in bit 2 HALF of their number exchange halves of 2 HALF values and add. */
template <int HALF> __device__ inline void fold_warp(float *x) {
    bool upper = threadIdx.x & (2 * HALF);
#pragma unroll
    for (int k = 0; k < HALF; k++) {
        float given = upper ? x[k] : x[k + HALF], kept = upper ? x[k + HALF] : x[k];
        x[k] = kept + __shfl_xor_sync(0xffffffffu, given, 2 * HALF);
    }
}
/* Sums 16 values over a warp; lane t gets the sum of value t / 2. */
__device__ inline float warp_sum_16(float *x) {
    fold_warp<8>(x);
    fold_warp<4>(x);
    fold_warp<2>(x);
    fold_warp<1>(x);
    return x[0] + __shfl_xor_sync(0xffffffffu, x[0], 1);
}

/* A lane's channels of one pair: of z, and of dz where it is added to. */
struct ipa_pair_row {
    float z[PAIR_LANE], old[PAIR_LANE];
};

template <typename T>
__device__ inline ipa_pair_row ipa_pair_load(const fm_ipa &a, int64_t first_channel, const T *z,
                                             const T *dz, fm_beta beta) {
    ipa_pair_row row = {};
#pragma unroll
    for (int m = 0; m < PAIR_LANE; m++) {
        int64_t channel = first_channel + threadIdx.x % 32 + 32 * m;
        if (channel >= a.c_z) continue;
        row.z[m] = get(z[channel]);
        if (dz && beta == FM_ADD) row.old[m] = get(dz[channel]);
    }
    return row;
}

/* One key: dweight[h] += <dpair[h], z>, and the share of these heads in dz. */
template <typename T>
__device__ inline void ipa_pair_key(const fm_ipa &a, const float (*dpair)[PAIR_LANE],
                                    int64_t first_head, int64_t first_channel,
                                    const ipa_pair_row &row, const float *weight, float *dweight,
                                    T *dz) {
    int lane = threadIdx.x % 32;
    float d[PAIR_LANE] = {0}, product[16] = {0}, w[PAIR_HEADS];
#pragma unroll
    for (int h = 0; h < PAIR_HEADS; h += 4) /* heads that only fill up a pack have 0 */
        load<float, 4>(weight + first_head + h, w + h);
#pragma unroll
    for (int h = 0; h < PAIR_HEADS; h++)
#pragma unroll
        for (int m = 0; m < PAIR_LANE; m++) {
            product[h] += dpair[h][m] * row.z[m];
            d[m] += w[h] * dpair[h][m];
        }
    float total = warp_sum_16(product);
    int64_t h = lane / 2;
    if (lane % 2 == 0 && h < PAIR_HEADS && first_head + h < a.n_head) {
        dweight[first_head + h] += total;
    }
    if (!dz) return;
#pragma unroll
    for (int m = 0; m < PAIR_LANE; m++) {
        int64_t channel = first_channel + lane + 32 * m;
        if (channel < a.c_z) dz[channel] = to<T>(row.old[m] + d[m]);
    }
}

/* Shared memory of a query's block: weights and their gradients for a tile of keys [PAIR_KEYS,
 * packed], and <weight, gradient> of each head. */
struct ipa_pair_block {
    float *weight, *dweight, *mean;
};

/* Copies a tile to (or from) shared memory. */
__device__ inline void load_weights(const fm_ipa &a, const ipa_layout &l, const float *from,
                                    int64_t i, int64_t key, float *tile) {
    int count = (int)min_size(a.n - key, PAIR_KEYS), packed = (int)l.packed;
    for (int at = threadIdx.x; at < PAIR_KEYS * (int)a.n_head; at += IPA_THREADS) {
        int h = at / PAIR_KEYS, k = at % PAIR_KEYS;
        if (k < count) tile[k * packed + h] = from[(h * a.n + i) * a.n + key + k];
    }
}
__device__ inline void store_weights(const fm_ipa &a, const ipa_layout &l, const float *tile,
                                     int64_t i, int64_t key, float *out) {
    int count = (int)min_size(a.n - key, PAIR_KEYS), packed = (int)l.packed;
    for (int at = threadIdx.x; at < PAIR_KEYS * (int)a.n_head; at += IPA_THREADS) {
        int h = at / PAIR_KEYS, k = at % PAIR_KEYS;
        if (k < count) out[(h * a.n + i) * a.n + key + k] = tile[k * packed + h];
    }
}

/* Asks the L2 cache for z and dz of PAIR_FETCH keys of query i. */
template <typename T>
__device__ inline void ipa_pair_prefetch(const fm_ipa &a, int64_t i, int64_t key, fm_out dz) {
    int64_t at = (i * a.n + key) * a.c_z, count = min_size(a.n - key, PAIR_FETCH) * a.c_z;
    ipa_prefetch((const T *)a.z + at, count);
    if (dz.data && dz.beta == FM_ADD) ipa_prefetch((const T *)dz.data + at, count);
}

/* The keys of the tile for query i, one warp per key: adds to dweight and makes dz. The rows of a
 * warp's next key are on their way meanwhile. */
template <typename T>
__device__ inline void ipa_pair_tile(const fm_ipa &a, const ipa_layout &l, const T *dy, int64_t i,
                                     int64_t key, const ipa_pair_block &b, fm_out dz) {
    constexpr int WARPS = IPA_THREADS / 32;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t count = min_size(a.n - key, PAIR_KEYS);
    for (int64_t head = 0; head < a.n_head; head += PAIR_HEADS) {
        fm_beta beta = head > 0 ? FM_ADD : dz.beta;
        for (int64_t channel = 0; channel < a.c_z; channel += PAIR_CHANNELS) {
            float dpair[PAIR_HEADS][PAIR_LANE];
#pragma unroll
            for (int h = 0; h < PAIR_HEADS; h++)
#pragma unroll
                for (int m = 0; m < PAIR_LANE; m++) {
                    int64_t c = channel + lane + 32 * m;
                    bool exists = head + h < a.n_head && c < a.c_z;
                    dpair[h][m] = exists ? get(dy[l.o_pair + (head + h) * a.c_z + c]) : 0;
                }
            const T *z = (const T *)a.z + (i * a.n + key) * a.c_z;
            T *to = dz.data ? (T *)dz.data + (i * a.n + key) * a.c_z : NULL;
            ipa_pair_row row = {}, next = {};
            if (warp < count) {
                row =
                    ipa_pair_load(a, channel, z + warp * a.c_z, to + (to ? warp * a.c_z : 0), beta);
            }
            for (int64_t k = warp; k < count; k += WARPS, row = next) {
                int64_t at = (k + WARPS) * a.c_z;
                if (threadIdx.x == 0 && k % PAIR_FETCH == 0) {
                    ipa_pair_prefetch<T>(a, i, key + k + PAIR_FETCH_AHEAD, dz);
                }
                if (k + WARPS < count) {
                    next = ipa_pair_load(a, channel, z + at, to + (to ? at : 0), beta);
                }
                ipa_pair_key(a, dpair, head, channel, row, b.weight + k * l.packed,
                             b.dweight + k * l.packed, to + (to ? k * a.c_z : 0));
            }
        }
    }
}

/* mean[h] += <weight, dweight> over the keys of the tile, one warp per head. */
__device__ inline void ipa_add_means(const fm_ipa &a, const ipa_layout &l, int64_t key,
                                     const ipa_pair_block &b) {
    int64_t count = min_size(a.n - key, PAIR_KEYS);
    for (int64_t h = threadIdx.x / 32; h < a.n_head; h += IPA_THREADS / 32) {
        float total = 0;
        for (int64_t k = threadIdx.x % 32; k < count; k += 32)
            total += b.weight[k * l.packed + h] * b.dweight[k * l.packed + h];
        total = warp_sum(total);
        if (threadIdx.x % 32 == 0) b.mean[h] = key > 0 ? b.mean[h] + total : total;
    }
}

template <typename T>
__global__ void __launch_bounds__(IPA_THREADS)
    ipa_pair_kernel(fm_ipa a, ipa_layout l, ipa_space s, fm_ipa_grad grad) {
    extern __shared__ __align__(16) float shared[];
    int64_t i = blockIdx.x;
    ipa_pair_block b = {shared, shared + PAIR_KEYS * l.packed, shared + 2 * PAIR_KEYS * l.packed};
    for (int at = threadIdx.x; at < PAIR_KEYS * (int)l.packed; at += IPA_THREADS)
        b.weight[at] = 0; /* heads that only fill up a pack keep it */
    const T *dy = (const T *)grad.dy + l.ld * i;
    wait_for_previous();
    let_next_begin();
    for (int64_t key = 0; key < PAIR_FETCH_AHEAD && threadIdx.x == 0; key += PAIR_FETCH)
        ipa_pair_prefetch<T>(a, i, key, grad.dz);
    for (int64_t key = 0; key < a.n; key += PAIR_KEYS) {
        __syncthreads();
        load_weights(a, l, s.weight, i, key, b.weight);
        load_weights(a, l, s.d, i, key, b.dweight);
        __syncthreads();
        ipa_pair_tile(a, l, dy, i, key, b, grad.dz);
        __syncthreads();
        ipa_add_means(a, l, key, b);
        if (a.n > PAIR_KEYS) store_weights(a, l, b.dweight, i, key, s.d);
    }
    T *dbias = grad.dbias.data ? (T *)grad.dbias.data + i * a.n * a.n_head : NULL;
    for (int64_t key = 0; key < a.n; key += PAIR_KEYS) { /* softmax backward */
        __syncthreads();
        if (a.n > PAIR_KEYS) {
            load_weights(a, l, s.weight, i, key, b.weight);
            load_weights(a, l, s.d, i, key, b.dweight);
            __syncthreads();
        }
        int n_head = (int)a.n_head, count = (int)min_size(a.n - key, PAIR_KEYS) * n_head;
        for (int at = threadIdx.x; at < count; at += IPA_THREADS) {
            int h = at % n_head, where = at / n_head * (int)l.packed + h;
            float d = b.weight[where] * (b.dweight[where] - b.mean[h]);
            b.dweight[where] = d;
            if (dbias) put(dbias + key * n_head + at, grad.dbias.beta, l.third * d);
        }
        __syncthreads();
        store_weights(a, l, b.dweight, i, key, s.d);
    }
}

/* -- sums over keys and over queries */

/* Rows of a head that a block sums, and what is summed over at once. Four groups of threads share
 * the latter. A thread of a group has four rows and SHARE neighbouring features, so that it reads
 * few numbers of shared memory for each product; eight lanes have all features. */
constexpr int SUM_ROWS = 32, SUM_TILE = 32, SUM_LANES = 8, SUM_QUAD = 4;
constexpr int SUM_GROUP = SUM_ROWS / SUM_QUAD * SUM_LANES, SUM_GROUPS = IPA_THREADS / SUM_GROUP;
/* SHARE for rows of F and of G. */
constexpr int SUM_SHARE_F = 4, SUM_SHARE_G = 6;

union ipa_sum_tiles {
    struct {
        float weight[SUM_TILE][SUM_ROWS + 4], other[SUM_TILE][SUM_LANES * SUM_SHARE_G];
    };
    struct { /* of the groups, at the end */
        float total[SUM_GROUPS][SUM_ROWS * SUM_LANES * SUM_SHARE_G];
        float square[SUM_GROUPS][SUM_ROWS * SUM_LANES];
    };
};

/* A sum for SUM_ROWS rows of one head:
 *     total[r, f] = sum over o of weight(r, o) * (others[o, f] - mine[r, f])
 * `mine` counts as 0 for the first `channels` features, and everywhere when it is NULL. The weight
 * is weights[r, o], or weights[o, r] with `across`. */
struct ipa_sum {
    const float *weights, *others, *mine; /* [n, n], [n, ld], [n, ld] */
    int ld, channels;
    bool across;
};

/* A thread's numbers of a tile, on their way to shared memory. */
template <int SHARE> struct ipa_sum_part {
    static constexpr int WIDTH = SUM_LANES * SHARE, WEIGHTS = SUM_ROWS * SUM_TILE / IPA_THREADS,
                         OTHERS = SUM_TILE * WIDTH / IPA_THREADS;
    float weight[WEIGHTS], other[OTHERS];

    /* Lanes of a warp read neighbours: along `other`, or with `across` along the rows. */
    __device__ inline void read(const ipa_sum &x, int n, int first, int from, int at) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int k = 0; k < WEIGHTS; k++) {
            int step = warp + k * (IPA_THREADS / 32);
            int i = first + (x.across ? lane : step), j = at + (x.across ? step : lane);
            const float *w = x.weights + (x.across ? (int64_t)j * n + i : (int64_t)i * n + j);
            weight[k] = i < n && j < n ? *w : 0;
        }
#pragma unroll
        for (int k = 0; k < OTHERS; k++) {
            int place = threadIdx.x + k * IPA_THREADS, o = at + place / WIDTH,
                f = from + place % WIDTH;
            other[k] = o < n && f < x.ld ? x.others[o * x.ld + f] : 0;
        }
    }
    __device__ inline void write(const ipa_sum &x, ipa_sum_tiles *tiles) const {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int k = 0; k < WEIGHTS; k++) {
            int step = warp + k * (IPA_THREADS / 32);
            tiles->weight[x.across ? step : lane][x.across ? lane : step] = weight[k];
        }
#pragma unroll
        for (int k = 0; k < OTHERS; k++)
            tiles->other[0][threadIdx.x + k * IPA_THREADS] = other[k]; /* rows of WIDTH */
    }
};

/* Features from `from` on. In the end a thread has SHARE of row threadIdx.x / SUM_LANES, which are
 * those of its lane. The squared differences over its features of points are added to *square
 * unless it is NULL. */
template <int SHARE>
__device__ inline void add_rows(const ipa_sum &x, int n, int first, int from, ipa_sum_tiles *tiles,
                                float *total, float *square) {
    constexpr int WIDTH = SUM_LANES * SHARE, PACK = SHARE % 4 ? 2 : 4;
    int group = threadIdx.x / SUM_GROUP, quad = threadIdx.x % SUM_GROUP / SUM_LANES * SUM_QUAD;
    int lane = threadIdx.x % SUM_LANES;
    float mine[SUM_QUAD][SHARE], sum[SUM_QUAD][SHARE] = {{0}}, squares[SUM_QUAD] = {0};
    bool is_point[SHARE];
#pragma unroll
    for (int m = 0; m < SHARE; m++) {
        int f = from + lane * SHARE + m;
        is_point[m] = f >= x.channels && f < x.ld;
#pragma unroll
        for (int r = 0; r < SUM_QUAD; r++) {
            bool exists = x.mine && is_point[m] && first + quad + r < n;
            mine[r][m] = exists ? x.mine[(first + quad + r) * x.ld + f] : 0;
        }
    }
    ipa_sum_part<SHARE> next;
    next.read(x, n, first, from, 0);
    for (int at = 0; at < n; at += SUM_TILE) {
        __syncthreads();
        next.write(x, tiles);
        __syncthreads();
        if (at + SUM_TILE < n) next.read(x, n, first, from, at + SUM_TILE);
#pragma unroll 2
        for (int o = group; o < SUM_TILE; o += SUM_GROUPS) {
            float w[SUM_QUAD], other[SHARE];
            load<float, SUM_QUAD>(tiles->weight[o] + quad, w);
#pragma unroll
            for (int m = 0; m < SHARE; m += PACK)
                load<float, PACK>(tiles->other[0] + o * WIDTH + lane * SHARE + m, other + m);
#pragma unroll
            for (int r = 0; r < SUM_QUAD; r++)
#pragma unroll
                for (int m = 0; m < SHARE; m++) {
                    float difference = other[m] - mine[r][m];
                    sum[r][m] += w[r] * difference;
                    if (square && is_point[m]) squares[r] += w[r] * difference * difference;
                }
        }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < SUM_QUAD; r++) {
        int place = (quad + r) * SUM_LANES + lane;
#pragma unroll
        for (int m = 0; m < SHARE; m++)
            tiles->total[group][place * SHARE + m] = sum[r][m];
        if (square) tiles->square[group][place] = squares[r];
    }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < SHARE; m++) {
        total[m] = 0;
#pragma unroll
        for (int k = 0; k < SUM_GROUPS; k++)
            total[m] += tiles->total[k][threadIdx.x * SHARE + m];
    }
#pragma unroll
    for (int k = 0; k < SUM_GROUPS && square; k++)
        *square += tiles->square[k][threadIdx.x];
}

/* Sums of queries: the gradients of their channels, of their points and of the head's weight. */
template <typename T>
__device__ inline void ipa_query_sums(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                      int64_t first, int64_t h, ipa_sum_tiles *tiles,
                                      T *dprojections) {
    const int64_t of_head = h * a.n * l.f;
    ipa_sum x = {s.d + h * a.n * a.n, s.k + of_head, s.q + of_head, (int)l.f, (int)a.c, false};
    int64_t i = first + threadIdx.x / SUM_LANES;
    float along = 0,
          slope = -2 * l.point_factor * ipa_softplus(get(((const T *)a.head_weights)[h]));
    for (int from = 0; from < l.f; from += SUM_LANES * SUM_SHARE_F) {
        float total[SUM_SHARE_F];
        add_rows<SUM_SHARE_F>(x, (int)a.n, (int)first, from, tiles, total, &along);
#pragma unroll
        for (int m = 0; m < SUM_SHARE_F; m++) {
            int64_t f = from + threadIdx.x % SUM_LANES * SUM_SHARE_F + m;
            if (i >= a.n || f >= l.f) continue;
            if (f < a.c) {
                dprojections[a.ld * i + h * a.c + f] = to<T>(l.scale * total[m]);
            } else {
                s.dq[(h * a.n + i) * 3 * a.n_qk + f - a.c] = slope * total[m];
            }
        }
    }
#pragma unroll
    for (int step = SUM_LANES / 2; step > 0; step /= 2)
        along += __shfl_xor_sync(0xffffffffu, along, step);
    if (threadIdx.x % SUM_LANES == 0 && i < a.n) s.dhead[h * a.n + i] = l.point_factor * along;
}

/* Gradients of keys or values of a head. Channels go to their rows of dprojections, the first of
 * which is `row`, ld apart; points go to dkv. */
template <typename T, int SHARE>
__device__ inline void ipa_key_sums(const fm_ipa &a, const ipa_sum &x, int64_t first, float scale,
                                    float point_scale, float *points, int64_t point_ld, T *row,
                                    ipa_sum_tiles *tiles) {
    int r = threadIdx.x / SUM_LANES;
    for (int from = 0; from < x.ld; from += SUM_LANES * SHARE) {
        float total[SHARE];
        add_rows<SHARE>(x, (int)a.n, (int)first, from, tiles, total, NULL);
#pragma unroll
        for (int m = 0; m < SHARE; m++) {
            int64_t f = from + threadIdx.x % SUM_LANES * SHARE + m;
            if (first + r >= a.n || f >= x.ld) continue;
            if (f < a.c) {
                row[a.ld * r + f] = to<T>(scale * total[m]);
            } else {
                points[point_ld * r + f - a.c] = point_scale * total[m];
            }
        }
    }
}

/* The queries' sums, which are the longest, come first. At 256 residues and 12 heads all 288 blocks
 * have a place at once. */
template <typename T>
__global__ void __launch_bounds__(IPA_THREADS, 3)
    ipa_sum_kernel(fm_ipa a, ipa_layout l, ipa_space s, T *dprojections) {
    __shared__ __align__(16) ipa_sum_tiles tiles;
    int64_t first = blockIdx.x * (int64_t)SUM_ROWS, h = blockIdx.y;
    int64_t each = 3 * (a.n_qk + a.n_v), of_head = h * a.n * a.n;
    float *points = s.dkv + (first * a.n_head + h) * each;
    T *row = dprojections + a.ld * first + l.kv + 2 * h * a.c;
    const float *q = s.q + h * a.n * l.f, *k = s.k + h * a.n * l.f, *dv = s.dvalue + h * a.n * l.g;
    wait_for_previous();
    let_next_begin();
    if (blockIdx.z == 0) {
        ipa_query_sums(a, l, s, first, h, &tiles, dprojections);
    } else if (blockIdx.z == 1) {
        float slope = -2 * l.point_factor * ipa_softplus(get(((const T *)a.head_weights)[h]));
        ipa_sum keys = {s.d + of_head, q, k, (int)l.f, (int)a.c, true};
        ipa_key_sums<T, SUM_SHARE_F>(a, keys, first, l.scale, slope, points, a.n_head * each, row,
                                     &tiles);
    } else {
        ipa_sum values = {s.weight + of_head, dv, NULL, (int)l.g, (int)a.c, true};
        ipa_key_sums<T, SUM_SHARE_G>(a, values, first, 1, 1, points + 3 * a.n_qk, a.n_head * each,
                                     row + a.c, &tiles);
    }
}

/* -- points and frames */

constexpr int FINISH_THREADS = 128;

/* The last block: the gradients of the heads' weights, one warp per head. */
template <typename T>
__device__ inline void ipa_head_grads(const fm_ipa &a, const float *dhead, fm_out out) {
    for (int64_t h = threadIdx.x / 32; h < a.n_head; h += FINISH_THREADS / 32) {
        double total = 0;
        for (int64_t i = threadIdx.x % 32; i < a.n; i += 32)
            total += (double)dhead[h * a.n + i];
        total = warp_sum(total);
        float slope = sigmoid(get(((const T *)a.head_weights)[h]));
        if (threadIdx.x % 32 == 0) {
            put((float *)out.data + h, out.beta, (float)(total * (double)slope));
        }
    }
}

/* Gradients of global points back to a projection row and the frame, a thread's share. */
template <typename T>
__device__ inline void ipa_point_grad(const T *row, T *drow, int64_t count, const float *dpoint,
                                      const float *rotation, float *dframe) {
    float local[3] = {get(row[0]), get(row[count]), get(row[2 * count])}, dlocal[3];
    rotate_back(rotation, dpoint, dlocal);
    add_outer(dframe, dpoint, local);
    add3(dframe + 9, dpoint);
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        drow[axis * count] = to<T>(dlocal[axis]);
}

template <typename T>
__global__ void __launch_bounds__(FINISH_THREADS)
    ipa_finish_kernel(fm_ipa a, ipa_layout l, ipa_space s, fm_ipa_grad grad) {
    __shared__ float parts[FINISH_THREADS / 32][MATRIX];
    int64_t i = blockIdx.x;
    wait_for_previous();
    let_next_begin();
    if (i == a.n) {
        if (grad.dhead_weights.data) ipa_head_grads<T>(a, s.dhead, grad.dhead_weights);
        return;
    }
    const T *row = (const T *)a.projections + a.ld * i;
    T *drow = (T *)grad.dprojections + a.ld * i;
    float frame[FRAME], rotation[9], dframe[MATRIX] = {0};
    read_row<FRAME>((const T *)a.frames + FRAME * i, frame);
    matrix_of_quaternion(frame, rotation);
    for (int64_t p = threadIdx.x; p < l.n_q_points; p += FINISH_THREADS) {
        int64_t h = p / a.n_qk, k = p % a.n_qk;
        ipa_point_grad(row + l.q_points + p, drow + l.q_points + p, l.n_q_points,
                       s.dq + ((h * a.n + i) * a.n_qk + k) * 3, rotation, dframe);
    }
    for (int64_t p = threadIdx.x; p < l.n_kv_points; p += FINISH_THREADS)
        ipa_point_grad(row + l.kv_points + p, drow + l.kv_points + p, l.n_kv_points,
                       s.dkv + (i * l.n_kv_points + p) * 3, rotation, dframe);
    for (int64_t c = l.projected + threadIdx.x; c < a.ld; c += FINISH_THREADS)
        drow[c] = to<T>(0); /* a gap between rows */
    for (int64_t h = threadIdx.x; h < a.n_head; h += FINISH_THREADS)
#pragma unroll
        for (int k = 0; k < MATRIX; k++)
            dframe[k] += s.dframe[(h * a.n + i) * MATRIX + k];
    warp_sums<MATRIX>(dframe);
    if (threadIdx.x % 32 == 0) put_row<MATRIX>(parts[threadIdx.x / 32], FM_WRITE, dframe);
    __syncthreads();
    if (threadIdx.x > 0 || !grad.dframes.data) return;
#pragma unroll
    for (int w = 1; w < FINISH_THREADS / 32; w++)
#pragma unroll
        for (int k = 0; k < MATRIX; k++)
            dframe[k] += parts[w][k];
    float out[FRAME];
    quaternion_grad(frame, dframe, out);
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        out[4 + axis] = dframe[9 + axis];
    put_row<FRAME>((T *)grad.dframes.data + FRAME * i, grad.dframes.beta, out);
}

size_t ipa_grad_workspace(const fm_ipa *a) {
    carver part = {NULL, 0};
    ipa_space_of(a, true, &part);
    return part.used;
}

template <typename T>
void ipa_grad(fm_stream *stream, const fm_ipa *a, const fm_ipa_grad *grad, void *workspace) {
    carver part = {(char *)workspace, 0};
    ipa_layout l = ipa_layout_of(a);
    ipa_space s = ipa_space_of(a, true, &part);
    size_t bytes = (size_t)(2 * PAIR_KEYS * l.packed + a->n_head) * sizeof(float);
    assert(bytes <= PAIR_SHARED_BYTES);
    unsigned n = (unsigned)a->n, heads = (unsigned)a->n_head;
    dim3 rows((unsigned)divide_up(a->n, SUM_ROWS), heads, 3);
    assert(a->y);
    ipa_logits<T>(stream, a, &s, grad->dy);
    ipa_launch(stream, ipa_pair_kernel<T>, dim3(n), IPA_THREADS, bytes, *a, l, s, *grad);
    ipa_launch(stream, ipa_sum_kernel<T>, rows, IPA_THREADS, 0, *a, l, s, (T *)grad->dprojections);
    ipa_launch(stream, ipa_finish_kernel<T>, dim3(n + 1), FINISH_THREADS, 0, *a, l, s, *grad);
}

#define INSTANTIATE(T)                                                                             \
    template void ipa_grad<T>(fm_stream *, const fm_ipa *, const fm_ipa_grad *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
