/* ipa.cu: invariant point attention forward (A22) in two launches.
 *
 * The first makes the logits by tiles (ipa.cuh says what else it leaves in the workspace). The
 * second has two kinds of blocks side by side. One, for sixteen queries of a head, averages the
 * values; the other, for a query, averages the pair representation over all heads. */
#include "trainer/backend/cuda/structure/ipa.cuh"

namespace fm_cuda {

/* -- queries, keys, values and logits */

/* Queries and keys of a tile of logits. A thread has two queries and four keys. */
constexpr int LOGIT_QUERIES = 32, LOGIT_KEYS = 64, LOGIT_ROWS = 2, LOGIT_COLUMNS = 4;

/* The place of one head's queries, keys or values in a row of projections: its channels, and the
 * first of its points, whose coordinates are `count` apart. */
struct ipa_part {
    int channels, points, count, n_point;
};

/* Writes rows from `first` on, channels and then points in global coordinates, to tile [rows,
 * pitch] and to out [n, channels + 3 n_point], each unless NULL. Sixteen lanes share a row. */
template <typename T>
__device__ inline void make_rows(const fm_ipa &a, const ipa_part &part, int first, int rows,
                                 float *tile, int pitch, float *out) {
    int c = (int)a.c, width = c + 3 * part.n_point, lane = threadIdx.x % 16;
    for (int r = threadIdx.x / 16; r < rows; r += 16) {
        int i = first + r;
        bool exists = i < a.n;
        const T *row = (const T *)a.projections + (exists ? a.ld * i : 0);
        float frame[FRAME], rotation[9];
        read_row<FRAME>((const T *)a.frames + (exists ? FRAME * i : 0), frame);
        matrix_of_quaternion(frame, rotation);
        for (int f = lane; f < c; f += 16) {
            float x = get(row[part.channels + f]);
            if (tile) tile[r * pitch + f] = x;
            if (out && exists) out[i * width + f] = x;
        }
        for (int p = lane; p < part.n_point; p += 16) {
            const T *from = row + part.points + p;
            float local[3] = {get(from[0]), get(from[part.count]), get(from[2 * part.count])};
            float point[3];
            rotate(rotation, local, point);
            add3(point, frame + 4);
#pragma unroll
            for (int axis = 0; axis < 3; axis++) {
                int f = c + 3 * p + axis;
                if (tile) tile[r * pitch + f] = point[axis];
                if (out && exists) out[i * width + f] = point[axis];
            }
        }
    }
}

/* A thread's queries and keys of one feature. */
__device__ inline void read_feature(const float *mine, const float *other, int pitch, float *x,
                                    float *y) {
#pragma unroll
    for (int r = 0; r < LOGIT_ROWS; r++)
        x[r] = mine[16 * r * pitch];
#pragma unroll
    for (int c = 0; c < LOGIT_COLUMNS; c++)
        y[c] = other[16 * c * pitch];
}

/* sum = scale * products of channels + factor * squared distances of points, for a thread's queries
 * and keys. */
__device__ inline void add_products(const float *query, const float *key, int channels, int width,
                                    int pitch, float scale, float factor,
                                    float (*sum)[LOGIT_COLUMNS]) {
    const float *mine = query + threadIdx.x / 16 * pitch, *other = key + threadIdx.x % 16 * pitch;
    float square[LOGIT_ROWS][LOGIT_COLUMNS] = {{0}}, x[LOGIT_ROWS], y[LOGIT_COLUMNS];
    for (int f = 0; f < channels; f++) {
        read_feature(mine + f, other + f, pitch, x, y);
#pragma unroll
        for (int r = 0; r < LOGIT_ROWS; r++)
#pragma unroll
            for (int c = 0; c < LOGIT_COLUMNS; c++)
                sum[r][c] += x[r] * y[c];
    }
    for (int f = channels; f < width; f++) {
        read_feature(mine + f, other + f, pitch, x, y);
#pragma unroll
        for (int r = 0; r < LOGIT_ROWS; r++)
#pragma unroll
            for (int c = 0; c < LOGIT_COLUMNS; c++)
                square[r][c] += (x[r] - y[c]) * (x[r] - y[c]);
    }
#pragma unroll
    for (int r = 0; r < LOGIT_ROWS; r++)
#pragma unroll
        for (int c = 0; c < LOGIT_COLUMNS; c++)
            sum[r][c] = scale * sum[r][c] + factor * square[r][c];
}

/* A22:7. All logits of a masked query would have the same mask_value, which changes no weight and
 * costs digits, so it is not added to them. */
template <typename T>
__global__ void __launch_bounds__(IPA_THREADS)
    ipa_logit_kernel(fm_ipa a, ipa_layout l, ipa_space s) {
    extern __shared__ __align__(16) float shared[];
    int key = (int)blockIdx.x * LOGIT_KEYS, query = (int)blockIdx.y * LOGIT_QUERIES;
    int h = (int)blockIdx.z, c = (int)a.c, qk = (int)a.n_qk, v = (int)a.n_v;
    int width = (int)l.f,
        pitch = width | 1; /* odd, so that a column of the tile is spread over all banks */
    int points = (int)l.kv_points + h * (qk + v), count = (int)l.n_kv_points;
    float *queries = shared, *keys = shared + LOGIT_QUERIES * pitch;
    ipa_part of_query = {h * c, (int)l.q_points + h * qk, (int)l.n_q_points, qk};
    ipa_part of_key = {(int)l.kv + 2 * h * c, points, count, qk};
    ipa_part of_value = {(int)l.kv + (2 * h + 1) * c, points + qk, count, v};
    make_rows<T>(a, of_query, query, LOGIT_QUERIES, queries, pitch,
                 blockIdx.x == 0 ? s.q + h * a.n * l.f : NULL);
    make_rows<T>(a, of_key, key, LOGIT_KEYS, keys, pitch,
                 blockIdx.y == 0 ? s.k + h * a.n * l.f : NULL);
    if (blockIdx.x == 0) { /* the values of the residues that are the tile's queries */
        make_rows<T>(a, of_value, query, LOGIT_QUERIES, NULL, 0, s.v + h * a.n * l.g);
    }
    __syncthreads();
    float sum[LOGIT_ROWS][LOGIT_COLUMNS] = {{0}};
    float factor = l.point_factor * ipa_softplus(get(((const T *)a.head_weights)[h]));
    add_products(queries, keys, c, width, pitch, l.scale, factor, sum);
    const T *mask = (const T *)a.mask, *bias = (const T *)a.bias;
    int n = (int)a.n, n_head = (int)a.n_head;
#pragma unroll
    for (int r = 0; r < LOGIT_ROWS; r++)
#pragma unroll
        for (int m = 0; m < LOGIT_COLUMNS; m++) {
            int i = query + threadIdx.x / 16 + 16 * r, j = key + threadIdx.x % 16 + 16 * m;
            if (i >= n || j >= n) continue;
            float mine = get(mask[i]), pair = get(bias[((int64_t)i * n + j) * n_head + h]);
            float logit = sum[r][m] + l.third * pair;
            if (mine != 0) logit += l.mask_value * (mine * get(mask[j]) - 1);
            s.weight[((int64_t)h * n + i) * n + j] = logit;
        }
}

template <typename T> void ipa_logits(fm_stream *stream, const fm_ipa *a, const ipa_space *s) {
    dim3 tiles((unsigned)divide_up(a->n, LOGIT_KEYS), (unsigned)divide_up(a->n, LOGIT_QUERIES),
               (unsigned)a->n_head);
    ipa_layout l = ipa_layout_of(a);
    int bytes = (LOGIT_QUERIES + LOGIT_KEYS) * (int)(l.f | 1) * (int)sizeof(float);
    if (bytes > 48 * 1024) { /* more must be asked for */
        FM_CUDA(cudaFuncSetAttribute(ipa_logit_kernel<T>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    }
    ipa_logit_kernel<T><<<tiles, IPA_THREADS, (size_t)bytes, queue(stream)>>>(*a, l, *s);
    FM_LAUNCHED();
}

/* -- softmax, values and pair representation */

/* The largest of a row of logits, and 1 over the sum of exponentials, by a warp. */
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
        if (threadIdx.x % 32 < 2) {
            ((float *)a.lse)[2 * (i * a.n_head + h) + threadIdx.x % 32] = lse[r][threadIdx.x % 32];
        }
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

/* Channels at once. A thread has one channel, all heads of a pack, and half of the keys. */
constexpr int PAIR_CHANNELS = IPA_THREADS / 2;

/* The weights of a tile of keys, [PAIR_KEYS, packed], 0 where there is no head or key. */
__device__ inline void make_weights(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                    int64_t i, int64_t key, const float *lse, float *tile) {
    int packed = (int)l.packed, n = (int)a.n, n_head = (int)a.n_head;
    const float *logits = s.weight + i * a.n + key;
    for (int at = threadIdx.x; at < PAIR_KEYS * packed; at += IPA_THREADS) {
        int h = at / PAIR_KEYS, k = at % PAIR_KEYS;
        bool exists = h < n_head && key + k < n;
        tile[k * packed + h] = exists ? ipa_weight(logits[(int64_t)h * n * n + k], lse + 2 * h) : 0;
    }
}

/* total[h] += weight * z over this thread's half of a tile's keys. */
template <typename T>
__device__ inline void add_pairs(const T *z, int c_z, int count, const float *weight, int packed,
                                 float *total) {
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
                if (channel < a.c_z) {
                    add_pairs((const T *)a.z + (i * a.n + key) * a.c_z + channel, (int)a.c_z,
                              (int)min_size(a.n - key, PAIR_KEYS), weight + head, (int)l.packed,
                              total);
                }
            }
            for (int m = 0; m < PAIR_HEADS && second; m++)
                other[m][column] = total[m];
            __syncthreads();
            if (second || channel >= a.c_z) continue;
#pragma unroll
            for (int m = 0; m < PAIR_HEADS; m++)
                if (head + m < a.n_head) {
                    ((T *)a.y)[l.ld * i + l.o_pair + (head + m) * a.c_z + channel] =
                        to<T>(total[m] + other[m][column]);
                }
        }
}

/* The first blocks have one query each; the others tiles of queries by heads. */
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
