/* ipa.cu: invariant point attention forward (A22): operands prepared, then a block a query: a warp
 * a head for logits, softmax and values, all warps for the pair representation. */
#include "trainer/backend/cuda/ipa.cuh"

namespace fm_cuda {

/* One residue a block. */
template <typename T>
__global__ void __launch_bounds__(256) ipa_prepare_kernel(fm_ipa a, ipa_layout l, ipa_space s) {
    int64_t i = blockIdx.x, n = a.n;
    const T *row = (const T *)a.projections + a.ld * i;
    float frame[FRAME], rotation[9];
    read_row<FRAME>((const T *)a.frames + FRAME * i, frame);
    matrix_of_quaternion(frame, rotation);
    for (int64_t at = threadIdx.x; at < a.n_head * a.c; at += blockDim.x) {
        int64_t h = at / a.c, c = at % a.c;
        s.q[(h * n + i) * l.f + c] = get(row[at]);
        s.k[(h * l.f + c) * n + i] = get(row[l.kv + 2 * h * a.c + c]);
        s.v[(h * l.g + c) * n + i] = get(row[l.kv + (2 * h + 1) * a.c + c]);
    }
    for (int64_t at = threadIdx.x; at < l.n_q_points + l.n_kv_points; at += blockDim.x) {
        bool is_query = at < l.n_q_points;
        int64_t p = is_query ? at : at - l.n_q_points, each = is_query ? a.n_qk : a.n_qk + a.n_v;
        int64_t count = is_query ? l.n_q_points : l.n_kv_points, h = p / each, k = p % each;
        const T *from = row + (is_query ? l.q_points : l.kv_points) + p;
        float local[3] = {get(from[0]), get(from[count]), get(from[2 * count])}, point[3];
        rotate(rotation, local, point);
        add3(point, frame + 4);
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            int64_t f = a.c + 3 * k + axis;
            if (is_query)
                s.q[(h * n + i) * l.f + f] = point[axis];
            else if (k < a.n_qk)
                s.k[(h * l.f + f) * n + i] = point[axis];
            else
                s.v[(h * l.g + f - 3 * a.n_qk) * n + i] = point[axis];
        }
    }
}

template <typename T> void ipa_prepare(fm_stream *stream, const fm_ipa *a, const ipa_space *s) {
    ipa_prepare_kernel<T><<<(unsigned)a->n, 256, 0, queue(stream)>>>(*a, ipa_layout_of(a), *s);
    FM_LAUNCHED();
}

/* A22:8: the pair representation, averaged by four heads at once, a thread a channel. */
template <typename T>
__device__ inline void ipa_pair(const fm_ipa &a, const ipa_layout &l, int64_t i,
                                const float *weight, T *y) {
    for (int64_t at = threadIdx.x; at < l.packed / 4 * a.c_z; at += IPA_THREADS) {
        int64_t channel = at % a.c_z, h = at / a.c_z * 4;
        const T *z = (const T *)a.z + i * a.n * a.c_z + channel;
        float total[4] = {0};
#pragma unroll 8
        for (int64_t j = 0; j < a.n; j++) {
            float x = get(z[j * a.c_z]), w[4];
            load<float, 4>(weight + j * l.packed + h, w);
#pragma unroll
            for (int k = 0; k < 4; k++)
                total[k] += w[k] * x;
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (h + k < a.n_head) y[l.o_pair + (h + k) * a.c_z + channel] = to<T>(total[k]);
    }
}

template <typename T>
__global__ void __launch_bounds__(IPA_THREADS) ipa_kernel(fm_ipa a, ipa_layout l, ipa_space s) {
    extern __shared__ __align__(16) float shared[];
    int64_t i = blockIdx.x;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *weight = s.weight ? s.weight + i * a.n * l.packed : shared;
    float *averages = s.weight ? shared : shared + a.n * l.packed;
    T *y = (T *)a.y + l.ld * i;
    float frame[FRAME], rotation[9];
    read_row<FRAME>((const T *)a.frames + FRAME * i, frame);
    matrix_of_quaternion(frame, rotation);
    for (int64_t h = warp; h < l.packed; h += IPA_WARPS) {
        if (h >= a.n_head) { /* fills up a pack */
            for (int64_t j = lane; j < a.n; j += 32)
                weight[j * l.packed + h] = 0;
            continue;
        }
        float *average = averages + h * l.g;
        float largest = ipa_logits<T>(a, l, s, i, h, weight);
        ipa_softmax(a, l, i, h, largest, false, weight);
        ipa_average(a, l, s, h, 0, weight, average);
        for (int64_t c = lane; c < a.c; c += 32) /* A22:9 */
            y[h * a.c + c] = to<T>(average[c]);
        for (int64_t p = lane; p < a.n_v; p += 32) {
            float offset[3], local[3];
            int64_t at = h * a.n_v + p;
            float length = ipa_point(l, rotation, frame + 4, average + a.c + 3 * p, offset, local);
#pragma unroll
            for (int axis = 0; axis < 3; axis++)
                y[l.o_points + axis * l.n_o_points + at] = to<T>(local[axis]);
            y[l.o_norms + at] = to<T>(length);
        }
    }
    __syncthreads();
    ipa_pair(a, l, i, weight, y);
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
    size_t bytes = ipa_small_bytes(a, &l, false) + (s.weight ? 0 : ipa_weight_bytes(a, &l));
    assert(bytes <= IPA_SHARED_BYTES);
    ipa_prepare<T>(stream, a, &s);
    ipa_kernel<T><<<(unsigned)a->n, IPA_THREADS, bytes, queue(stream)>>>(*a, l, s);
    FM_LAUNCHED();
}

#define INSTANTIATE(T)                                                                             \
    template void ipa_prepare<T>(fm_stream *, const fm_ipa *, const ipa_space *);                  \
    template void ipa<T>(fm_stream *, const fm_ipa *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
