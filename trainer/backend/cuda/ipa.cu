/* ipa.cu: invariant point attention forward (A22) in two launches: tiles of logits; then blocks of
 * two kinds side by side, sixteen queries and a head for the values, one query for the pair
 * representation. */
#include "trainer/backend/cuda/ipa.cuh"

namespace fm_cuda {

/* ---- queries, keys, values and logits -------------------------------------------------------- */

/* Queries and keys of a tile of logits, features of a round. A thread has two queries, four keys.
 */
constexpr int LOGIT_QUERIES = 32, LOGIT_KEYS = 64, LOGIT_WIDTH = 32, LOGIT_ROWS = 2,
              LOGIT_COLUMNS = 4;

enum ipa_operand { IPA_QUERY, IPA_KEY, IPA_VALUE };

/* Feature f of residue i's query, key or value of head h. */
template <typename T>
__device__ inline float ipa_feature(const fm_ipa &a, const ipa_layout &l, ipa_operand what,
                                    int64_t i, int64_t h, int64_t f) {
    const T *row = (const T *)a.projections + a.ld * i;
    if (f < a.c) {
        int64_t at = what == IPA_QUERY ? l.q + h * a.c : l.kv + (2 * h + (what == IPA_VALUE)) * a.c;
        return get(row[at + f]);
    }
    int64_t p = (f - a.c) / 3, axis = (f - a.c) % 3, count = l.n_kv_points;
    const T *from = row + l.kv_points + h * (a.n_qk + a.n_v) + p;
    if (what == IPA_VALUE) from += a.n_qk;
    if (what == IPA_QUERY) from = row + l.q_points + h * a.n_qk + p, count = l.n_q_points;
    float frame[FRAME], rotation[9], local[3], point[3];
    read_row<FRAME>((const T *)a.frames + FRAME * i, frame);
    matrix_of_quaternion(frame, rotation);
#pragma unroll
    for (int k = 0; k < 3; k++)
        local[k] = get(from[k * count]);
    rotate(rotation, local, point);
    return axis == 0 ? point[0] + frame[4] : axis == 1 ? point[1] + frame[5] : point[2] + frame[6];
}

/* Features from .. from + LOGIT_WIDTH of rows from `first` on, feature by feature; to the
 * workspace, too, where `out` is not NULL. */
template <typename T, int ROWS>
__device__ inline void load_features(const fm_ipa &a, const ipa_layout &l, ipa_operand what,
                                     int64_t first, int64_t h, int64_t from, float *out,
                                     float (*tile)[ROWS + 1]) {
    for (int at = threadIdx.x; at < ROWS * LOGIT_WIDTH; at += IPA_THREADS) {
        int r = at / LOGIT_WIDTH, c = at % LOGIT_WIDTH;
        int64_t i = first + r, f = from + c;
        bool exists = i < a.n && f < l.f;
        float x = exists ? ipa_feature<T>(a, l, what, i, h, f) : 0;
        tile[c][r] = x;
        if (exists && out) out[(h * a.n + i) * l.f + f] = x;
    }
}

struct logit_tiles {
    float query[LOGIT_WIDTH][LOGIT_QUERIES + 1], key[LOGIT_WIDTH][LOGIT_KEYS + 1];
};

/* Products of channels and squared distances of points, for a thread's queries and keys. */
__device__ inline void add_products(const logit_tiles &tiles, int channels,
                                    float (*product)[LOGIT_COLUMNS],
                                    float (*square)[LOGIT_COLUMNS]) {
    int row = threadIdx.x / 16, column = threadIdx.x % 16;
    for (int f = 0; f < LOGIT_WIDTH; f++) {
        float x[LOGIT_ROWS], y[LOGIT_COLUMNS];
#pragma unroll
        for (int r = 0; r < LOGIT_ROWS; r++)
            x[r] = tiles.query[f][row + 16 * r];
#pragma unroll
        for (int c = 0; c < LOGIT_COLUMNS; c++)
            y[c] = tiles.key[f][column + 16 * c];
#pragma unroll
        for (int r = 0; r < LOGIT_ROWS; r++)
#pragma unroll
            for (int c = 0; c < LOGIT_COLUMNS; c++) {
                if (f < channels)
                    product[r][c] += x[r] * y[c];
                else
                    square[r][c] += (x[r] - y[c]) * (x[r] - y[c]);
            }
    }
}

/* A22:7. A masked query's logits would all carry the same mask_value, which changes no weight and
 * swallows digits: they get none. */
template <typename T>
__global__ void __launch_bounds__(IPA_THREADS)
    ipa_logit_kernel(fm_ipa a, ipa_layout l, ipa_space s) {
    __shared__ logit_tiles tiles;
    int64_t key = blockIdx.x * (int64_t)LOGIT_KEYS, query = blockIdx.y * (int64_t)LOGIT_QUERIES;
    int64_t h = blockIdx.z;
    float product[LOGIT_ROWS][LOGIT_COLUMNS] = {{0}}, square[LOGIT_ROWS][LOGIT_COLUMNS] = {{0}};
    for (int64_t from = 0; from < l.f; from += LOGIT_WIDTH) {
        __syncthreads();
        load_features<T, LOGIT_QUERIES>(a, l, IPA_QUERY, query, h, from,
                                        blockIdx.x == 0 ? s.q : NULL, tiles.query);
        load_features<T, LOGIT_KEYS>(a, l, IPA_KEY, key, h, from, blockIdx.y == 0 ? s.k : NULL,
                                     tiles.key);
        __syncthreads();
        add_products(tiles, (int)max_size(min_size(a.c - from, LOGIT_WIDTH), 0), product, square);
    }
    if (blockIdx.x == 0) /* the values of as many residues as the tile has queries */
        for (int64_t at = threadIdx.x; at < LOGIT_QUERIES * l.g; at += IPA_THREADS) {
            int64_t i = query + at / l.g, f = at % l.g;
            if (i < a.n) s.v[(h * a.n + i) * l.g + f] = ipa_feature<T>(a, l, IPA_VALUE, i, h, f);
        }
    const T *mask = (const T *)a.mask, *bias = (const T *)a.bias;
    float factor = l.point_factor * ipa_softplus(get(((const T *)a.head_weights)[h]));
#pragma unroll
    for (int r = 0; r < LOGIT_ROWS; r++)
#pragma unroll
        for (int c = 0; c < LOGIT_COLUMNS; c++) {
            int64_t i = query + threadIdx.x / 16 + 16 * r, j = key + threadIdx.x % 16 + 16 * c;
            if (i >= a.n || j >= a.n) continue;
            float mine = get(mask[i]);
            float logit =
                l.scale * product[r][c] + l.third * get(bias[(i * a.n + j) * a.n_head + h]);
            logit += factor * square[r][c];
            if (mine != 0) logit += l.mask_value * (mine * get(mask[j]) - 1);
            s.weight[(h * a.n + i) * a.n + j] = logit;
        }
}

template <typename T> void ipa_logits(fm_stream *stream, const fm_ipa *a, const ipa_space *s) {
    dim3 tiles((unsigned)divide_up(a->n, LOGIT_KEYS), (unsigned)divide_up(a->n, LOGIT_QUERIES),
               (unsigned)a->n_head);
    ipa_logit_kernel<T><<<tiles, IPA_THREADS, 0, queue(stream)>>>(*a, ipa_layout_of(a), *s);
    FM_LAUNCHED();
}

/* ---- softmax, values and pair representation ------------------------------------------------- */

/* The largest of a row of logits and one over the sum of exponentials, by a warp. */
__device__ inline void softmax_row(const float *logits, int64_t n, float *lse) {
    float largest = -INFINITY, total = 0;
    for (int64_t j = threadIdx.x % 32; j < n; j += 32)
        largest = fmaxf(largest, logits[j]);
    largest = warp_max(largest);
    for (int64_t j = threadIdx.x % 32; j < n; j += 32)
        total += expf(logits[j] - largest);
    total = warp_sum(total);
    if (threadIdx.x % 32 == 0) lse[0] = largest, lse[1] = 1 / total;
    __syncwarp();
}

/* A22:9, A22:10 for sixteen queries and a head. */
template <typename T>
__device__ inline void ipa_values(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                  int64_t query, int64_t h) {
    __shared__ ipa_average_tiles tiles;
    __shared__ float lse[IPA_ROWS][2];
    for (int r = threadIdx.x / 32; r < IPA_ROWS; r += IPA_THREADS / 32) {
        int64_t i = query + r;
        if (i >= a.n) continue;
        softmax_row(s.weight + (h * a.n + i) * a.n, a.n, lse[r]);
        if (threadIdx.x % 32 < 2)
            ((float *)a.lse)[2 * (i * a.n_head + h) + threadIdx.x % 32] = lse[r][threadIdx.x % 32];
    }
    ipa_average(a, l, s, query, h, 0, lse, false, &tiles);
    for (int64_t at = threadIdx.x; at < IPA_ROWS * (a.c + a.n_v); at += IPA_THREADS) {
        int64_t i = query + at / (a.c + a.n_v), x = at % (a.c + a.n_v), p = x - a.c;
        if (i >= a.n) continue;
        const float *average = s.average + (h * a.n + i) * l.g;
        T *y = (T *)a.y + l.ld * i;
        if (p < 0) {
            y[h * a.c + x] = to<T>(average[x]);
            continue;
        }
        float frame[FRAME], rotation[9], offset[3], local[3];
        int64_t point = h * a.n_v + p;
        read_row<FRAME>((const T *)a.frames + FRAME * i, frame);
        matrix_of_quaternion(frame, rotation);
        float length = ipa_point(l, rotation, frame + 4, average + a.c + 3 * p, offset, local);
#pragma unroll
        for (int axis = 0; axis < 3; axis++)
            y[l.o_points + axis * l.n_o_points + point] = to<T>(local[axis]);
        y[l.o_norms + point] = to<T>(length);
    }
}

/* Channels at once: a thread has one, all heads of a pack, and half of the keys. */
constexpr int PAIR_CHANNELS = IPA_THREADS / 2;

/* The weights of a tile of keys, [PAIR_KEYS, packed], 0 where there is no head or key. */
__device__ inline void make_weights(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                    int64_t i, int64_t key, const float *lse, float *tile) {
    for (int64_t at = threadIdx.x; at < PAIR_KEYS * l.packed; at += IPA_THREADS) {
        int64_t h = at / PAIR_KEYS, k = at % PAIR_KEYS;
        bool exists = h < a.n_head && key + k < a.n;
        tile[k * l.packed + h] =
            exists ? ipa_weight(s.weight[(h * a.n + i) * a.n + key + k], lse + 2 * h) : 0;
    }
}

/* total[h] += weight * z over this thread's half of a tile's keys. */
template <typename T>
__device__ inline void add_pairs(const T *z, int64_t c_z, int count, const float *weight,
                                 int64_t packed, float *total) {
#pragma unroll 8
    for (int k = threadIdx.x / PAIR_CHANNELS; k < count; k += 2) {
        float x = get(z[k * c_z]), w[PAIR_HEADS];
#pragma unroll
        for (int m = 0; m < PAIR_HEADS; m += 4)
            load<float, 4>(weight + k * packed + m, w + m);
#pragma unroll
        for (int m = 0; m < PAIR_HEADS; m++)
            total[m] += w[m] * x;
    }
}

/* A22:8 for one query. */
template <typename T>
__device__ inline void ipa_pair(const fm_ipa &a, const ipa_layout &l, const ipa_space &s, int64_t i,
                                float *weight) {
    __shared__ float other[PAIR_HEADS][PAIR_CHANNELS];
    float *lse = weight + PAIR_KEYS * l.packed;
    int column = threadIdx.x % PAIR_CHANNELS;
    bool second = threadIdx.x >= PAIR_CHANNELS;
    for (int64_t h = threadIdx.x / 32; h < a.n_head; h += IPA_THREADS / 32)
        softmax_row(s.weight + (h * a.n + i) * a.n, a.n, lse + 2 * h);
    for (int64_t head = 0; head < l.packed; head += PAIR_HEADS)
        for (int64_t channel = column; channel < round_up(a.c_z, PAIR_CHANNELS) + column;
             channel += PAIR_CHANNELS) {
            float total[PAIR_HEADS] = {0};
            for (int64_t key = 0; key < a.n; key += PAIR_KEYS) {
                __syncthreads();
                make_weights(a, l, s, i, key, lse, weight);
                __syncthreads();
                if (channel < a.c_z)
                    add_pairs((const T *)a.z + (i * a.n + key) * a.c_z + channel, a.c_z,
                              (int)min_size(a.n - key, PAIR_KEYS), weight + head, l.packed, total);
            }
            for (int m = 0; m < PAIR_HEADS && second; m++)
                other[m][column] = total[m];
            __syncthreads();
            if (second || channel >= a.c_z) continue;
#pragma unroll
            for (int m = 0; m < PAIR_HEADS; m++)
                if (head + m < a.n_head)
                    ((T *)a.y)[l.ld * i + l.o_pair + (head + m) * a.c_z + channel] =
                        to<T>(total[m] + other[m][column]);
        }
}

/* Queries first, then tiles of queries by heads. */
template <typename T>
__global__ void __launch_bounds__(IPA_THREADS) ipa_kernel(fm_ipa a, ipa_layout l, ipa_space s) {
    extern __shared__ __align__(16) float shared[];
    int64_t at = blockIdx.x;
    if (at < a.n) {
        ipa_pair<T>(a, l, s, at, shared);
    } else {
        int64_t tiles = divide_up(a.n, IPA_ROWS);
        ipa_values<T>(a, l, s, (at - a.n) % tiles * IPA_ROWS, (at - a.n) / tiles);
    }
}

size_t ipa_workspace(const fm_ipa *a) {
    carver part = {NULL, 0};
    ipa_space_of(a, false, &part);
    return part.used;
}

template <typename T> void ipa(fm_stream *stream, const fm_ipa *a, void *workspace) {
    carver part = {(char *)workspace, 0};
    ipa_layout l = ipa_layout_of(a);
    ipa_space s = ipa_space_of(a, false, &part);
    size_t bytes = (size_t)(PAIR_KEYS * l.packed + 2 * a->n_head) * sizeof(float);
    assert(bytes <= PAIR_SHARED_BYTES);
    ipa_logits<T>(stream, a, &s);
    int64_t blocks = a->n + divide_up(a->n, IPA_ROWS) * a->n_head;
    ipa_kernel<T><<<(unsigned)blocks, IPA_THREADS, bytes, queue(stream)>>>(*a, l, s);
    FM_LAUNCHED();
}

#define INSTANTIATE(T)                                                                             \
    template void ipa_logits<T>(fm_stream *, const fm_ipa *, const ipa_space *);                   \
    template void ipa<T>(fm_stream *, const fm_ipa *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
