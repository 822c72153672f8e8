/* ipa.cu: invariant point attention forward (A22) in two launches.
 *
 * The first makes values, logits and parts of the softmax by tiles (ipa_logits.cu). The second has
 * two kinds of blocks side by side. One, for a query, averages the pair representation over all
 * heads; the other, for sixteen queries of a head, averages the values. Both wait for memory more
 * than they compute. So the pairs of a query are asked into the L2 cache at once, and either kind
 * has its next numbers on their way while it adds the present ones. */
#include "trainer/backend/cuda/structure/ipa.cuh"

namespace fm_cuda {

/* The largest logit of row `row` of head h, and 1 over the sum of exponentials, from the same two
 * numbers (the sum itself) of each tile of keys. */
__device__ inline void ipa_join(const fm_ipa &a, const ipa_space &s, int64_t h, int64_t row,
                                float *lse) {
    int tiles = (int)divide_up(a.n, LOGIT_KEYS);
    const float *part = s.part + 2 * (h * a.n + row) * tiles;
    float largest = -INFINITY, total = 0;
    for (int t = 0; t < tiles; t++)
        largest = fmaxf(largest, part[2 * t]);
    for (int t = 0; t < tiles; t++)
        total += part[2 * t + 1] * expf(part[2 * t] - largest);
    lse[0] = largest, lse[1] = 1 / total;
}

/* -- values */

/* The queries of a block, keys of a tile, and features at once. Four groups of threads share the
 * keys. A thread of a group has four queries and every 16th of 48 features, so that it reads few
 * numbers of shared memory for each product. */
constexpr int VALUE_ROWS = 16, VALUE_KEYS = 64, VALUE_WIDTH = 48, VALUE_SHARE = VALUE_WIDTH / 16;
constexpr int VALUE_QUAD = 4, VALUE_GROUP = VALUE_ROWS / VALUE_QUAD * 16;
constexpr int VALUE_GROUPS = IPA_THREADS / VALUE_GROUP;

struct ipa_value_tiles {
    union {
        struct {
            float weight[VALUE_KEYS][VALUE_ROWS + 4], value[VALUE_KEYS][VALUE_WIDTH];
        };
        float total[VALUE_GROUPS][VALUE_ROWS][VALUE_WIDTH]; /* of the groups, at the end */
    };
    float lse[VALUE_ROWS][2];
};

/* A thread's numbers of a tile of logits and values, on their way to shared memory. */
struct ipa_value_share {
    float logit[VALUE_ROWS * VALUE_KEYS / IPA_THREADS];
    float value[VALUE_KEYS * VALUE_WIDTH / IPA_THREADS];
};

/* Reads the tile of keys from `key` on, features from `from` on. What does not exist is a logit of
 * -INFINITY and a value of 0. */
__device__ inline void read_values(const fm_ipa &a, const ipa_layout &l, const float *logits,
                                   const float *values, int rows, int key, int from,
                                   ipa_value_share *share) {
    int n = (int)a.n, g = (int)l.g;
#pragma unroll
    for (int x = 0; x < VALUE_ROWS * VALUE_KEYS / IPA_THREADS; x++) {
        int r = threadIdx.x / VALUE_KEYS + x * (IPA_THREADS / VALUE_KEYS);
        int k = key + threadIdx.x % VALUE_KEYS;
        share->logit[x] = r < rows && k < n ? logits[r * n + k] : -INFINITY;
    }
#pragma unroll
    for (int x = 0; x < VALUE_KEYS / 16; x++)
#pragma unroll
        for (int m = 0; m < VALUE_SHARE; m++) {
            int k = key + threadIdx.x / 16 + 16 * x, f = from + threadIdx.x % 16 + 16 * m;
            share->value[x * VALUE_SHARE + m] = k < n && f < g ? values[k * g + f] : 0;
        }
}

/* Writes it to shared memory, with weights in place of logits. */
__device__ inline void write_values(const ipa_value_share &share, ipa_value_tiles *tiles) {
#pragma unroll
    for (int x = 0; x < VALUE_ROWS * VALUE_KEYS / IPA_THREADS; x++) {
        int r = threadIdx.x / VALUE_KEYS + x * (IPA_THREADS / VALUE_KEYS);
        tiles->weight[threadIdx.x % VALUE_KEYS][r] = ipa_weight(share.logit[x], tiles->lse[r]);
    }
#pragma unroll
    for (int x = 0; x < VALUE_KEYS / 16; x++)
#pragma unroll
        for (int m = 0; m < VALUE_SHARE; m++)
            tiles->value[threadIdx.x / 16 + 16 * x][threadIdx.x % 16 + 16 * m] =
                share.value[x * VALUE_SHARE + m];
}

/* A22:9, A22:10 for sixteen queries and a head. `average` [VALUE_ROWS, G] lies behind the tiles. */
template <typename T>
__device__ inline void ipa_values(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                  int64_t query, int64_t h, ipa_value_tiles *tiles,
                                  float *average) {
    int group = threadIdx.x / VALUE_GROUP, quad = threadIdx.x % VALUE_GROUP / 16 * VALUE_QUAD;
    int column = threadIdx.x % 16, n = (int)a.n, g = (int)l.g;
    int rows = (int)min_size(a.n - query, VALUE_ROWS);
    const float *logits = s.weight + (h * a.n + query) * a.n, *values = s.v + h * a.n * l.g;
    ipa_value_share share;
    read_values(a, l, logits, values, rows, 0, 0, &share);
    if (threadIdx.x < VALUE_ROWS) {
        int64_t i = min_size(query + threadIdx.x, a.n - 1);
        float *lse = tiles->lse[threadIdx.x];
        ipa_join(a, s, h, i, lse);
        if ((int)threadIdx.x < rows) {
            put_row<2>((float *)a.lse + 2 * (i * a.n_head + h), FM_WRITE, lse);
        }
    }
    __syncthreads();
    for (int from = 0; from < g; from += VALUE_WIDTH) {
        float total[VALUE_QUAD][VALUE_SHARE] = {{0}};
        for (int key = 0; key < n; key += VALUE_KEYS) {
            write_values(share, tiles);
            __syncthreads();
            bool is_last = key + VALUE_KEYS >= n; /* of these features */
            read_values(a, l, logits, values, rows, is_last ? 0 : key + VALUE_KEYS,
                        is_last ? from + VALUE_WIDTH : from, &share);
#pragma unroll 4
            for (int k = group; k < VALUE_KEYS; k += VALUE_GROUPS) {
                float w[VALUE_QUAD];
                load<float, VALUE_QUAD>(tiles->weight[k] + quad, w);
#pragma unroll
                for (int m = 0; m < VALUE_SHARE; m++)
#pragma unroll
                    for (int r = 0; r < VALUE_QUAD; r++)
                        total[r][m] += w[r] * tiles->value[k][column + 16 * m];
            }
            __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < VALUE_QUAD; r++)
#pragma unroll
            for (int m = 0; m < VALUE_SHARE; m++)
                tiles->total[group][quad + r][column + 16 * m] = total[r][m];
        __syncthreads();
        for (int at = threadIdx.x; at < VALUE_ROWS * VALUE_WIDTH; at += IPA_THREADS) {
            int r = at / VALUE_WIDTH, f = at % VALUE_WIDTH;
            float sum = 0;
#pragma unroll
            for (int k = 0; k < VALUE_GROUPS; k++)
                sum += tiles->total[k][r][f];
            if (from + f < g) average[r * g + from + f] = sum;
        }
        __syncthreads();
    }
    int width = (int)(a.c + a.n_v);
    for (int at = threadIdx.x; at < rows * width; at += IPA_THREADS) {
        int64_t i = query + at / width, x = at % width, p = x - a.c;
        const float *mine = average + at / width * g;
        T *y = (T *)a.y + l.ld * i;
        if (p < 0) {
            y[h * a.c + x] = to<T>(mine[x]);
            continue;
        }
        float frame[FRAME], rotation[9], offset[3], local[3];
        int64_t point = h * a.n_v + p;
        read_row<FRAME>((const T *)a.frames + FRAME * i, frame);
        matrix_of_quaternion(frame, rotation);
#pragma unroll
        for (int axis = 0; axis < 3; axis++)
            offset[axis] = mine[a.c + 3 * p + axis] - frame[4 + axis];
        rotate_back(rotation, offset, local);
#pragma unroll
        for (int axis = 0; axis < 3; axis++)
            y[l.o_points + axis * l.n_o_points + point] = to<T>(local[axis]);
        y[l.o_norms + point] =
            to<T>(sqrtf(local[0] * local[0] + local[1] * local[1] + local[2] * local[2] + l.eps));
    }
}

/* -- pair representation */

/* Four pairs of warps share the keys of a query, and the warps of a pair the channels. A lane has
 * two channels and all heads of a pack. */
constexpr int PAIR_LANE = 2, PAIR_CHANNELS = 2 * 32 * PAIR_LANE, PAIR_TEAMS = IPA_THREADS / 64;
/* Keys that a team asks for at once. */
constexpr int PAIR_AHEAD = 4, PAIR_STEP = PAIR_AHEAD * PAIR_TEAMS;

/* z at the next keys of this team, key, key + PAIR_TEAMS and so on, 0 where there is none. `z`
 * points to the lane's first channel of the query; `channels` are left from there on. */
template <typename T>
__device__ inline void read_pairs(const T *z, int64_t c_z, int64_t channels, int key, int n,
                                  float (*x)[PAIR_LANE]) {
#pragma unroll
    for (int k = 0; k < PAIR_AHEAD; k++, key += PAIR_TEAMS)
#pragma unroll
        for (int m = 0; m < PAIR_LANE; m++)
            x[k][m] = key < n && 32 * m < channels ? get(z[key * c_z + 32 * m]) : 0;
}

/* The weights of `keys` keys from `key` on, [keys, packed], 0 where there is no head or key. */
__device__ inline void make_weights(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                    int64_t i, int key, int keys, const float *lse, float *tile) {
    int packed = (int)l.packed, n = (int)a.n, n_head = (int)a.n_head;
    for (int h = threadIdx.x / 32; h < packed; h += IPA_THREADS / 32) {
        const float *logits = s.weight + (h * a.n + i) * a.n + key;
#pragma unroll 4
        for (int k = threadIdx.x % 32; k < keys; k += 32) {
            bool exists = h < n_head && key + k < n;
            tile[k * packed + h] = exists ? ipa_weight(logits[k], lse + 2 * h) : 0;
        }
    }
}

/* A22:8 for one query. The weights of `keys` keys, a multiple of PAIR_STEP, are in shared memory at
 * once. */
template <typename T>
__device__ inline void ipa_pair(const fm_ipa &a, const ipa_layout &l, const ipa_space &s, int64_t i,
                                int keys, float *shared) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, team = warp / 2, n = (int)a.n;
    int packed = (int)l.packed, own = warp % 2 * (PAIR_CHANNELS / 2) + lane;
    float *lse = shared, *weight = shared + round_up(2 * a.n_head, 4);
    const T *z = (const T *)a.z + i * a.n * a.c_z;
    if (threadIdx.x == 0) ipa_prefetch(z, a.n * a.c_z);
    for (int h = threadIdx.x; h < a.n_head; h += IPA_THREADS)
        ipa_join(a, s, h, i, lse + 2 * h);
    for (int64_t head = 0; head < packed; head += PAIR_HEADS)
        for (int64_t channel = 0; channel < a.c_z; channel += PAIR_CHANNELS) {
            float total[PAIR_HEADS][PAIR_LANE] = {{0}}, next[PAIR_AHEAD][PAIR_LANE];
            const T *from = z + channel + own;
            int64_t left = a.c_z - channel - own;
            read_pairs(from, a.c_z, left, team, n, next);
            for (int first = 0; first < n; first += keys) {
                __syncthreads();
                make_weights(a, l, s, i, first, keys, lse, weight);
                __syncthreads();
                int end = (int)min_size(n - first, keys);
                for (int key = team; key < end + team; key += PAIR_STEP) {
                    float x[PAIR_AHEAD][PAIR_LANE];
#pragma unroll
                    for (int k = 0; k < PAIR_AHEAD; k++)
#pragma unroll
                        for (int m = 0; m < PAIR_LANE; m++)
                            x[k][m] = next[k][m];
                    read_pairs(from, a.c_z, left, first + key + PAIR_STEP, n, next);
#pragma unroll
                    for (int k = 0; k < PAIR_AHEAD; k++)
#pragma unroll
                        for (int h = 0; h < PAIR_HEADS; h += 4) {
                            float w[4];
                            load<float, 4>(weight + (key + k * PAIR_TEAMS) * packed + head + h, w);
#pragma unroll
                            for (int m = 0; m < 4 * PAIR_LANE; m++)
                                total[h + m / PAIR_LANE][m % PAIR_LANE] +=
                                    w[m / PAIR_LANE] * x[k][m % PAIR_LANE];
                        }
                }
            }
            __syncthreads();
            float *share = weight + (team * PAIR_HEADS * PAIR_CHANNELS + own);
#pragma unroll
            for (int h = 0; h < PAIR_HEADS; h++)
#pragma unroll
                for (int m = 0; m < PAIR_LANE; m++)
                    share[h * PAIR_CHANNELS + 32 * m] = total[h][m];
            __syncthreads();
            for (int at = threadIdx.x; at < PAIR_HEADS * PAIR_CHANNELS; at += IPA_THREADS) {
                int64_t h = head + at / PAIR_CHANNELS, c = channel + at % PAIR_CHANNELS;
                float sum = 0;
#pragma unroll
                for (int t = 0; t < PAIR_TEAMS; t++)
                    sum += weight[t * PAIR_HEADS * PAIR_CHANNELS + at];
                if (h < a.n_head && c < a.c_z) {
                    ((T *)a.y)[l.ld * i + l.o_pair + h * a.c_z + c] = to<T>(sum);
                }
            }
        }
}

/* The first blocks have one query each; the others tiles of queries by heads. */
template <typename T>
__global__ void __launch_bounds__(IPA_THREADS, 4)
    ipa_kernel(fm_ipa a, ipa_layout l, ipa_space s, int keys) {
    extern __shared__ __align__(16) float shared[];
    int64_t at = blockIdx.x;
    wait_for_previous();
    let_next_begin();
    if (at < a.n) {
        ipa_pair<T>(a, l, s, at, keys, shared);
    } else {
        int64_t tiles = divide_up(a.n, VALUE_ROWS);
        ipa_value_tiles *of_values = (ipa_value_tiles *)shared;
        ipa_values<T>(a, l, s, (at - a.n) % tiles * VALUE_ROWS, (at - a.n) / tiles, of_values,
                      (float *)(of_values + 1));
    }
}

/* -- calls */

size_t ipa_workspace(const fm_ipa *a) {
    carver part = {NULL, 0};
    ipa_space_of(a, false, &part);
    return part.used;
}

template <typename T> void ipa(fm_stream *stream, const fm_ipa *a, void *workspace) {
    constexpr int64_t WEIGHT_BYTES = 32 * 1024; /* four blocks share a multiprocessor */
    carver part = {(char *)workspace, 0};
    ipa_layout l = ipa_layout_of(a);
    ipa_space s = ipa_space_of(a, false, &part);
    int64_t of_key = l.packed * (int64_t)sizeof(float);
    int64_t keys =
        min_size(round_up(a->n, PAIR_STEP), WEIGHT_BYTES / of_key / PAIR_STEP * PAIR_STEP);
    assert(keys > 0);
    int64_t of_shares = PAIR_TEAMS * PAIR_HEADS * PAIR_CHANNELS * (int64_t)sizeof(float);
    int64_t of_lse = round_up(2 * a->n_head, 4) * (int64_t)sizeof(float);
    int64_t of_pair = of_lse + max_size(keys * of_key, of_shares);
    int64_t of_values =
        (int64_t)sizeof(ipa_value_tiles) + VALUE_ROWS * l.g * (int64_t)sizeof(float);
    ipa_logits<T>(stream, a, &s, NULL);
    int64_t blocks = a->n + divide_up(a->n, VALUE_ROWS) * a->n_head;
    ipa_launch(stream, ipa_kernel<T>, dim3((unsigned)blocks), IPA_THREADS,
               (size_t)max_size(of_pair, of_values), *a, l, s, (int)keys);
}

#define INSTANTIATE(T) template void ipa<T>(fm_stream *, const fm_ipa *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
