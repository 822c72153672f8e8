/* ipa_grad.cu: invariant point attention backward, in four launches: operands prepared; a block a
 * query makes the weights again and everything that is a sum over keys; a block of eight keys and a
 * head sums over queries; a block a residue takes its points' gradients back to projections and
 * frame. */
#include "trainer/backend/cuda/ipa.cuh"

namespace fm_cuda {

/* ---- queries --------------------------------------------------------------------------------- */

/* A query's block: weights and their gradients [n, packed]; for each head the values' averages, the
 * gradients of the values, the sums over keys of d * key (then of d * distance); the frame's
 * gradient of each warp. */
struct ipa_block {
    float *weight, *dweight, *average, *dvalue, *dquery, *dframe;
};

__device__ inline ipa_block ipa_block_of(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                         int64_t i, float *shared) {
    int64_t weights = a.n * l.packed;
    ipa_block b;
    b.weight = s.weight ? s.weight + i * weights : shared;
    b.dweight = s.weight ? s.dweight + i * weights : shared + weights;
    b.average = s.weight ? shared : shared + 2 * weights;
    b.dvalue = b.average + a.n_head * l.g;
    b.dquery = b.dvalue + a.n_head * l.g;
    b.dframe = b.dquery + a.n_head * (l.f + 1);
    return b;
}

/* Gradients of a head's averaged values, [G]: those of the channels, and of the points back through
 * the query's frame, whose own gradient is added to dframe (a lane's share). By one warp. */
template <typename T>
__device__ inline void ipa_value_grads(const fm_ipa &a, const ipa_layout &l, const T *dy,
                                       const float *frame, const float *rotation, int64_t h,
                                       const ipa_block &b, float *dframe) {
    int lane = threadIdx.x % 32;
    float *dvalue = b.dvalue + h * l.g;
    for (int64_t c = lane; c < a.c; c += 32)
        dvalue[c] = get(dy[h * a.c + c]);
    for (int64_t p = lane; p < a.n_v; p += 32) {
        float offset[3], local[3], dlocal[3], doffset[3];
        int64_t at = h * a.n_v + p, f = a.c + 3 * p;
        float length = ipa_point(l, rotation, frame + 4, b.average + h * l.g + f, offset, local);
        float factor = get(dy[l.o_norms + at]) / length;
#pragma unroll
        for (int axis = 0; axis < 3; axis++)
            dlocal[axis] = get(dy[l.o_points + axis * l.n_o_points + at]) + factor * local[axis];
        add_outer(dframe, offset, dlocal);
        rotate(rotation, dlocal, doffset);
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            dframe[9 + axis] -= doffset[axis];
            dvalue[f + axis] = doffset[axis];
        }
    }
    __syncwarp();
}

/* dweight[j] = <dvalue, value j> of one head, by one warp; the gradients of values go to the
 * workspace for the keys' sums. */
__device__ inline void ipa_value_products(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                          int64_t i, int64_t h, const ipa_block &b) {
    int lane = threadIdx.x % 32;
    const float *values = s.v + h * l.g * a.n, *dvalue = b.dvalue + h * l.g;
    for (int64_t f = lane; f < l.g; f += 32)
        s.dvalue[(h * a.n + i) * l.g + f] = dvalue[f];
    for (int64_t first = lane; first < a.n; first += IPA_CHUNK) {
        float total[IPA_KEYS] = {0};
        for (int64_t f = 0; f < l.g; f++) {
            float x = dvalue[f];
#pragma unroll
            for (int m = 0; m < IPA_KEYS; m++)
                if (first + 32 * m < a.n) total[m] += x * values[f * a.n + first + 32 * m];
        }
#pragma unroll
        for (int m = 0; m < IPA_KEYS; m++)
            if (first + 32 * m < a.n) b.dweight[(first + 32 * m) * l.packed + h] = total[m];
    }
}

/* Heads and channels that a warp has in registers while it goes over its keys. */
enum { PAIR_HEADS = 12, PAIR_LANE = 4, PAIR_CHANNELS = 32 * PAIR_LANE };

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

/* One key: dweight[h] += <dpair[h], z>, and what these heads give dz. */
template <typename T>
__device__ inline void ipa_pair_key(const fm_ipa &a, const float (*dpair)[PAIR_LANE],
                                    int64_t first_head, int64_t first_channel, const T *z,
                                    const float *weight, float *dweight, T *dz, fm_beta beta) {
    int lane = threadIdx.x % 32;
    float x[PAIR_LANE] = {0}, d[PAIR_LANE] = {0}, product[16] = {0}, w[PAIR_HEADS];
#pragma unroll
    for (int m = 0; m < PAIR_LANE; m++) {
        int64_t channel = first_channel + lane + 32 * m;
        if (channel < a.c_z) x[m] = get(z[channel]);
    }
#pragma unroll
    for (int h = 0; h < PAIR_HEADS; h++)
        w[h] = first_head + h < a.n_head ? weight[first_head + h] : 0;
#pragma unroll
    for (int h = 0; h < PAIR_HEADS; h++)
#pragma unroll
        for (int m = 0; m < PAIR_LANE; m++) {
            product[h] += dpair[h][m] * x[m];
            d[m] += w[h] * dpair[h][m];
        }
    float total = warp_sum_16(product);
    int64_t h = lane / 2;
    if (lane % 2 == 0 && h < PAIR_HEADS && first_head + h < a.n_head)
        dweight[first_head + h] += total;
    if (!dz) return;
#pragma unroll
    for (int m = 0; m < PAIR_LANE; m++) {
        int64_t channel = first_channel + lane + 32 * m;
        if (channel < a.c_z) put(dz + channel, beta, d[m]);
    }
}

/* All keys of query i: a warp a key. */
template <typename T>
__device__ inline void ipa_pair_grads(const fm_ipa &a, const ipa_layout &l, const T *dy, int64_t i,
                                      const ipa_block &b, fm_out dz) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
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
            for (int64_t j = warp; j < a.n; j += IPA_WARPS) {
                int64_t at = (i * a.n + j) * a.c_z;
                ipa_pair_key(a, dpair, head, channel, (const T *)a.z + at, b.weight + j * l.packed,
                             b.dweight + j * l.packed, dz.data ? (T *)dz.data + at : NULL, beta);
            }
        }
    }
}

/* Softmax backward of one head: dweight becomes the gradient d of the logits; both to the
 * workspace. Then sums over keys: of d * key into dquery[f], of d * squared distance into
 * dquery[F]. By one warp. */
__device__ inline void ipa_logit_grads(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                       int64_t i, int64_t h, const ipa_block &b) {
    int lane = threadIdx.x % 32;
    const float *q = s.q + (h * a.n + i) * l.f, *keys = s.k + h * l.f * a.n;
    float *dquery = b.dquery + h * (l.f + 1), mean = 0, along = 0;
    for (int64_t j = lane; j < a.n; j += 32)
        mean += b.weight[j * l.packed + h] * b.dweight[j * l.packed + h];
    mean = warp_sum(mean);
    for (int64_t first = 0; first < a.n; first += IPA_CHUNK) {
        float d[IPA_KEYS], square[IPA_KEYS] = {0};
#pragma unroll
        for (int m = 0; m < IPA_KEYS; m++) {
            int64_t j = first + lane + 32 * m, at = j * l.packed + h;
            d[m] = 0;
            if (j >= a.n) continue;
            float w = b.weight[at];
            d[m] = w * (b.dweight[at] - mean);
            b.dweight[at] = d[m];
            s.p[(h * a.n + i) * a.n + j] = w;
            s.d[(h * a.n + i) * a.n + j] = d[m];
        }
        for (int64_t f = 0; f < l.f; f++) {
            float total = 0, x = f < a.c ? 0 : q[f];
#pragma unroll
            for (int m = 0; m < IPA_KEYS; m++) {
                int64_t j = first + lane + 32 * m;
                if (j >= a.n) continue;
                float difference = x - keys[f * a.n + j];
                total += d[m] * difference;
                if (f >= a.c) square[m] += difference * difference;
            }
            total = warp_sum(total);
            if (lane == 0) dquery[f] = first > 0 ? dquery[f] + total : total;
        }
#pragma unroll
        for (int m = 0; m < IPA_KEYS; m++)
            along += d[m] * square[m];
    }
    along = warp_sum(along);
    if (lane == 0) dquery[l.f] = along;
    __syncwarp();
}

/* From the sums over keys to the gradients of one head's query; by one warp. */
template <typename T>
__device__ inline void ipa_query_grads(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                       int64_t i, int64_t h, const ipa_block &b, T *dprojections) {
    int lane = threadIdx.x % 32;
    const float *dquery = b.dquery + h * (l.f + 1);
    float head = ipa_softplus(get(((const T *)a.head_weights)[h]));
    for (int64_t c = lane; c < a.c; c += 32) /* the sum is of d * -key */
        dprojections[a.ld * i + h * a.c + c] = to<T>(-l.scale * dquery[c]);
    for (int64_t x = lane; x < 3 * a.n_qk; x += 32)
        s.dq[(h * a.n + i) * 3 * a.n_qk + x] = 2 * l.point_factor * head * dquery[a.c + x];
    if (lane == 0) s.dhead[h * a.n + i] = l.point_factor * dquery[l.f];
}

template <typename T>
__global__ void __launch_bounds__(IPA_THREADS)
    ipa_query_kernel(fm_ipa a, ipa_layout l, ipa_space s, fm_ipa_grad grad) {
    extern __shared__ __align__(16) float shared[];
    int64_t i = blockIdx.x;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    ipa_block b = ipa_block_of(a, l, s, i, shared);
    const T *dy = (const T *)grad.dy + l.ld * i;
    float frame[FRAME], rotation[9], dframe[MATRIX] = {0};
    read_row<FRAME>((const T *)a.frames + FRAME * i, frame);
    matrix_of_quaternion(frame, rotation);
    for (int64_t h = warp; h < a.n_head; h += IPA_WARPS) {
        ipa_logits<T>(a, l, s, i, h, b.weight);
        ipa_softmax(a, l, i, h, 0, true, b.weight);
        ipa_average(a, l, s, h, a.c, b.weight, b.average + h * l.g);
        ipa_value_grads(a, l, dy, frame, rotation, h, b, dframe);
        ipa_value_products(a, l, s, i, h, b);
    }
    warp_sums<MATRIX>(dframe);
    if (lane == 0) put_row<MATRIX>(b.dframe + warp * MATRIX, FM_WRITE, dframe);
    __syncthreads();
    ipa_pair_grads(a, l, dy, i, b, grad.dz);
    __syncthreads();
    for (int64_t h = warp; h < a.n_head; h += IPA_WARPS) {
        ipa_logit_grads(a, l, s, i, h, b);
        ipa_query_grads(a, l, s, i, h, b, (T *)grad.dprojections);
    }
    __syncthreads();
    T *dbias = (T *)grad.dbias + i * a.n * a.n_head;
    for (int64_t at = threadIdx.x; at < a.n * a.n_head; at += IPA_THREADS)
        dbias[at] = to<T>(l.third * b.dweight[at / a.n_head * l.packed + at % a.n_head]);
    if (threadIdx.x >= MATRIX) return;
    float total = 0;
    for (int w = 0; w < IPA_WARPS; w++)
        total += b.dframe[w * MATRIX + threadIdx.x];
    s.dframe[i * MATRIX + threadIdx.x] = total;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Eight keys, one head: a thread a feature of key or value, four slices of the queries. */
enum { KEY_TILE = 8, KEY_FEATURES = 96, KEY_SLICES = 4 };

/* x[k] = row[k], k < KEY_TILE, those that exist. */
__device__ inline void load_keys(const float *row, int64_t count, bool is_wide, float *x) {
    if (is_wide) {
        load<float, 4>(row, x);
        load<float, 4>(row + 4, x + 4);
        return;
    }
#pragma unroll
    for (int k = 0; k < KEY_TILE; k++)
        x[k] = k < count ? row[k] : 0;
}

/* Where the gradient of a feature of key j goes. */
template <typename T>
__device__ inline void put_key_grad(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                    int64_t j, int64_t h, int64_t feature, float total,
                                    T *dprojections) {
    T *row = dprojections + a.ld * j + l.kv + 2 * h * a.c;
    float *points = s.dkv + (j * a.n_head + h) * 3 * (a.n_qk + a.n_v);
    int64_t f = feature - l.f; /* of a value */
    if (feature < a.c) {
        row[feature] = to<T>(l.scale * total);
    } else if (feature < l.f) {
        float head = ipa_softplus(get(((const T *)a.head_weights)[h]));
        points[feature - a.c] = -2 * l.point_factor * head * total;
    } else if (f < a.c) {
        row[a.c + f] = to<T>(total);
    } else {
        points[3 * a.n_qk + f - a.c] = total;
    }
}

template <typename T>
__global__ void __launch_bounds__(KEY_FEATURES *KEY_SLICES)
    ipa_key_kernel(fm_ipa a, ipa_layout l, ipa_space s, T *dprojections) {
    __shared__ float part[KEY_SLICES][KEY_TILE][KEY_FEATURES];
    int64_t first = blockIdx.x * (int64_t)KEY_TILE, h = blockIdx.y;
    int64_t feature = blockIdx.z * (int64_t)KEY_FEATURES + threadIdx.x;
    int64_t count = min_size(a.n - first, KEY_TILE);
    bool is_key = feature < l.f, is_point = is_key && feature >= a.c;
    bool is_wide = a.n % 4 == 0 && count == KEY_TILE;
    float total[KEY_TILE] = {0}, key[KEY_TILE] = {0};
    if (feature < l.f + l.g) {
        const float *factors = (is_key ? s.d : s.p) + h * a.n * a.n + first;
        const float *rows =
            is_key ? s.q + h * a.n * l.f + feature : s.dvalue + h * a.n * l.g + feature - l.f;
        int64_t step = is_key ? l.f : l.g;
        if (is_point) load_keys(s.k + (h * l.f + feature) * a.n + first, count, is_wide, key);
#pragma unroll 4
        for (int64_t i = threadIdx.y; i < a.n; i += KEY_SLICES) {
            float x = rows[i * step], w[KEY_TILE];
            load_keys(factors + i * a.n, count, is_wide, w);
#pragma unroll
            for (int k = 0; k < KEY_TILE; k++)
                total[k] += w[k] * (x - key[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < KEY_TILE; k++)
        part[threadIdx.y][k][threadIdx.x] = total[k];
    __syncthreads();
    if (feature >= l.f + l.g) return;
    for (int k = threadIdx.y; k < count; k += KEY_SLICES) {
        float sum = 0;
#pragma unroll
        for (int slice = 0; slice < KEY_SLICES; slice++)
            sum += part[slice][k][threadIdx.x];
        put_key_grad(a, l, s, first + k, h, feature, sum, dprojections);
    }
}

/* ---- points and frames ----------------------------------------------------------------------- */

enum { FINISH_THREADS = 128 };

/* The last block: gradients of the heads' weights, a warp a head. */
template <typename T>
__device__ inline void ipa_head_grads(const fm_ipa &a, const float *dhead, fm_out out) {
    for (int64_t h = threadIdx.x / 32; h < a.n_head; h += FINISH_THREADS / 32) {
        double total = 0;
        for (int64_t i = threadIdx.x % 32; i < a.n; i += 32)
            total += (double)dhead[h * a.n + i];
        total = warp_sum(total);
        float slope = sigmoid(get(((const T *)a.head_weights)[h]));
        if (threadIdx.x % 32 == 0)
            put((float *)out.data + h, out.beta, (float)(total * (double)slope));
    }
}

/* From global points back to a projection row and the frame (a thread's share). */
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
    warp_sums<MATRIX>(dframe);
    if (threadIdx.x % 32 == 0) put_row<MATRIX>(parts[threadIdx.x / 32], FM_WRITE, dframe);
    __syncthreads();
    if (threadIdx.x > 0 || !grad.dframes.data) return;
    read_row<MATRIX>(s.dframe + i * MATRIX, dframe);
#pragma unroll
    for (int w = 0; w < FINISH_THREADS / 32; w++)
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
    size_t bytes = ipa_small_bytes(a, &l, true) + (s.weight ? 0 : 2 * ipa_weight_bytes(a, &l));
    assert(bytes <= IPA_SHARED_BYTES);
    ipa_prepare<T>(stream, a, &s);
    ipa_query_kernel<T><<<(unsigned)a->n, IPA_THREADS, bytes, queue(stream)>>>(*a, l, s, *grad);
    FM_LAUNCHED();
    dim3 keys((unsigned)divide_up(a->n, KEY_TILE), (unsigned)a->n_head,
              (unsigned)divide_up(l.f + l.g, KEY_FEATURES));
    dim3 threads(KEY_FEATURES, KEY_SLICES);
    ipa_key_kernel<T><<<keys, threads, 0, queue(stream)>>>(*a, l, s, (T *)grad->dprojections);
    FM_LAUNCHED();
    ipa_finish_kernel<T><<<(unsigned)a->n + 1, FINISH_THREADS, 0, queue(stream)>>>(*a, l, s, *grad);
    FM_LAUNCHED();
}

#define INSTANTIATE(T)                                                                             \
    template void ipa_grad<T>(fm_stream *, const fm_ipa *, const fm_ipa_grad *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
