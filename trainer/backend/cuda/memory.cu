/* memory.cu: device memory, fills, copies, conversions, strided copies, sums over an axis. All of
 * it moves bytes: one read and one write of each element. */
#include "trainer/backend/cuda/families.cuh"

namespace fm_cuda {

void *alloc(size_t bytes) {
    void *memory = NULL;
    if (cudaMalloc(&memory, bytes > 0 ? bytes : 1) == cudaSuccess) return memory;
    (void)cudaGetLastError(); /* out of memory is the caller's to say */
    return NULL;
}

void release(void *memory) {
    cudaError_t error = cudaFree(memory);
    assert(error == cudaSuccess);
}

void upload(fm_stream *stream, void *device, const void *host, size_t bytes) {
    cudaError_t error = cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, queue(stream));
    assert(error == cudaSuccess);
}

void download(fm_stream *stream, void *host, const void *device, size_t bytes) {
    cudaError_t error = cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, queue(stream));
    assert(error == cudaSuccess);
}

void synchronize(fm_stream *stream) {
    cudaError_t error = cudaStreamSynchronize(queue(stream));
    assert(error == cudaSuccess);
}

template <typename T> void fill(fm_stream *stream, int64_t n, double value, void *y) {
    float v = (float)value;
    T *out = (T *)y;
    each(stream, n, [=] __device__(int64_t i) { out[i] = to<T>(v); });
}

template <typename T> void copy(fm_stream *stream, int64_t n, const void *x, void *y) {
    cudaError_t error =
        cudaMemcpyAsync(y, x, (size_t)n * sizeof(T), cudaMemcpyDeviceToDevice, queue(stream));
    assert(error == cudaSuccess);
}

template <typename T>
void cast(fm_stream *stream, int64_t n, fm_element from, const void *x, void *y) {
    assert(from == FM_ELEMENT_BF16 || from == FM_ELEMENT_F32 || from == FM_ELEMENT_F64);
    const bf16 *half = (const bf16 *)x;
    const float *single = (const float *)x;
    const double *twice = (const double *)x;
    T *out = (T *)y;
    if (from == FM_ELEMENT_BF16) {
        each(stream, n, [=] __device__(int64_t i) { out[i] = to<T>(get(half[i])); });
    } else if (from == FM_ELEMENT_F32) {
        each(stream, n, [=] __device__(int64_t i) { out[i] = to<T>(single[i]); });
    } else {
        each(stream, n, [=] __device__(int64_t i) { out[i] = to<T>((float)twice[i]); });
    }
}

void widen(fm_stream *stream, int64_t n, const uint8_t *x, int32_t *y) {
    each(stream, n, [=] __device__(int64_t i) { y[i] = x[i]; });
}

template <typename T> void unpack_bits(fm_stream *stream, int64_t n, const uint8_t *bits, void *y) {
    T *out = (T *)y;
    each(stream, n,
         [=] __device__(int64_t i) { out[i] = to<T>((float)(bits[i / 8] >> (i % 8) & 1)); });
}

/* One thread an element of y's shape, its last axis fastest; sizes below 2^31 so that the index is
 * taken apart with 32-bit divisions. */
template <typename T> void copy_strided(fm_stream *stream, const fm_strided *args) {
    fm_strided a = *args;
    assert(a.rank >= 1 && a.rank <= FM_STRIDED_RANK);
    int64_t n = 1;
    for (int i = 0; i < a.rank; i++)
        n *= a.shape[i];
    assert(n < (int64_t)1 << 31);
    float alpha = (float)a.alpha;
    each(stream, n, [=] __device__(int64_t index) {
        uint32_t rest = (uint32_t)index;
        int64_t from = 0, at = 0;
#pragma unroll
        for (int axis = FM_STRIDED_RANK - 1; axis >= 0; axis--) {
            if (axis >= a.rank) continue;
            uint32_t size = (uint32_t)a.shape[axis], here = rest % size;
            rest /= size;
            from += here * a.x_stride[axis];
            at += here * a.y_stride[axis];
        }
        put((T *)a.y.data + at, a.y.beta, alpha * get(((const T *)a.x)[from]));
    });
}

template <typename T>
void axpy(fm_stream *stream, int64_t n, double alpha, const void *x, fm_out y) {
    const T *in = (const T *)x;
    T *out = (T *)y.data;
    float factor = (float)alpha;
    constexpr int V = vector_of<T>();
    if (is_aligned(x) && is_aligned(out) && n % V == 0) {
        each(stream, n / V, [=] __device__(int64_t i) {
            float v[V];
            load<T, V>(in + i * V, v);
#pragma unroll
            for (int k = 0; k < V; k++)
                v[k] *= factor;
            put_pack<T, V>(out + i * V, y.beta, v);
        });
        return;
    }
    each(stream, n, [=] __device__(int64_t i) { put(out + i, y.beta, factor * get(in[i])); });
}

void axpy_device(fm_stream *stream, int64_t n, const double *alpha, const void *x, fm_out y) {
    const float *in = (const float *)x;
    float *out = (float *)y.data;
    each(stream, n, [=] __device__(int64_t i) { put(out + i, y.beta, (float)*alpha * in[i]); });
}

/* ---- sums: rows in chunks, a thread a channel; the chunks' sums then in order ---- */

static int64_t sum_chunks(int64_t n_a, int64_t n_r, int64_t n_c) {
    int64_t wanted = (int64_t)132 * 2048 / max_size(1, n_a * n_c);
    return max_size(1, min_size(min_size(1024, n_r / 16), wanted));
}

size_t sum_workspace(int64_t n_a, int64_t n_r, int64_t n_c) {
    if (n_c == 1) return 0;
    return (size_t)(n_a * n_c * sum_chunks(n_a, n_r, n_c)) * sizeof(float);
}

template <typename T, typename Y>
__global__ void sum_line_kernel(int64_t n_r, int64_t stride_a, int64_t stride_r, const T *x, Y *y,
                                fm_beta beta) {
    __shared__ double space[32];
    const T *in = x + blockIdx.x * stride_a;
    double total = 0;
    for (int64_t r = threadIdx.x; r < n_r; r += blockDim.x)
        total += (double)get(in[r * stride_r]);
    total = block_sum(total, space);
    if (threadIdx.x == 0) put(y + blockIdx.x, beta, (float)total);
}

/* V channels a thread. */
template <typename T, int V>
static void sum_chunked(fm_stream *stream, int64_t n_a, int64_t n_r, int64_t n_c,
                        const int64_t stride[2], const T *x, int64_t chunks, float *partial) {
    int64_t stride_a = stride[0], stride_r = stride[1], rows = divide_up(n_r, chunks);
    int64_t packs = n_c / V;
    each(stream, n_a * chunks * packs, [=] __device__(int64_t i) {
        int64_t c = i % packs * V, chunk = i / packs % chunks, a = i / packs / chunks;
        const T *in = x + a * stride_a + c;
        int64_t end = min_size(n_r, (chunk + 1) * rows);
        double total[V] = {};
#pragma unroll 4
        for (int64_t r = chunk * rows; r < end; r++) {
            float v[V];
            load<T, V>(in + r * stride_r, v);
#pragma unroll
            for (int k = 0; k < V; k++)
                total[k] += (double)v[k];
        }
#pragma unroll
        for (int k = 0; k < V; k++)
            partial[(chunk * n_a + a) * n_c + c + k] = (float)total[k];
    });
}

template <typename T, typename Y>
static void sum_into(fm_stream *stream, int64_t n_a, int64_t n_r, int64_t n_c,
                     const int64_t stride[2], const T *x, Y *y, fm_beta beta, float *partial) {
    if (n_c == 1) {
        sum_line_kernel<<<(unsigned)n_a, 256, 0, queue(stream)>>>(n_r, stride[0], stride[1], x, y,
                                                                  beta);
        FM_LAUNCHED();
        return;
    }
    int64_t chunks = sum_chunks(n_a, n_r, n_c);
    if (is_aligned(x) && is_whole<T>(n_c) && is_whole<T>(stride[0]) && is_whole<T>(stride[1])) {
        sum_chunked<T, vector_of<T>()>(stream, n_a, n_r, n_c, stride, x, chunks, partial);
    } else {
        sum_chunked<T, 1>(stream, n_a, n_r, n_c, stride, x, chunks, partial);
    }
    finish_partials<Y>(stream, partial, chunks, n_a * n_c, n_a * n_c, y, beta);
}

template <typename T>
void sum(fm_stream *stream, int64_t n_a, int64_t n_r, int64_t n_c, const int64_t stride[2],
         const void *x, fm_out y, bool y_is_acc, void *workspace) {
    float *partial = (float *)workspace;
    if (y_is_acc) {
        sum_into(stream, n_a, n_r, n_c, stride, (const T *)x, (float *)y.data, y.beta, partial);
    } else {
        sum_into(stream, n_a, n_r, n_c, stride, (const T *)x, (T *)y.data, y.beta, partial);
    }
}

/* 32 values and 8 slices of the partials a block: reads along the values are coalesced, the slices
 * shorten the chain of one thread; slices are added in order. */
template <typename T>
__global__ void __launch_bounds__(256)
    finish_kernel(const float *partial, int64_t count, int64_t stride, int64_t n, T *dst,
                  fm_beta beta) {
    __shared__ double slice[8][32];
    int64_t i = blockIdx.x * (int64_t)32 + threadIdx.x;
    double total = 0;
    if (i < n) {
#pragma unroll 4
        for (int64_t p = threadIdx.y; p < count; p += 8)
            total += (double)partial[p * stride + i];
    }
    slice[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y > 0 || i >= n) return;
    for (int k = 1; k < 8; k++)
        total += slice[k][threadIdx.x];
    put(dst + i, beta, (float)total);
}

template <typename T>
void finish_partials(fm_stream *stream, const float *partial, int64_t count, int64_t stride,
                     int64_t n, T *dst, fm_beta beta) {
    dim3 threads(32, 8);
    finish_kernel<<<(unsigned)divide_up(n, 32), threads, 0, queue(stream)>>>(partial, count, stride,
                                                                             n, dst, beta);
    FM_LAUNCHED();
}

#define INSTANTIATE(T)                                                                             \
    template void fill<T>(fm_stream *, int64_t, double, void *);                                   \
    template void copy<T>(fm_stream *, int64_t, const void *, void *);                             \
    template void cast<T>(fm_stream *, int64_t, fm_element, const void *, void *);                 \
    template void unpack_bits<T>(fm_stream *, int64_t, const uint8_t *, void *);                   \
    template void copy_strided<T>(fm_stream *, const fm_strided *);                                \
    template void axpy<T>(fm_stream *, int64_t, double, const void *, fm_out);                     \
    template void sum<T>(fm_stream *, int64_t, int64_t, int64_t, const int64_t *, const void *,    \
                         fm_out, bool, void *);                                                    \
    template void finish_partials<T>(fm_stream *, const float *, int64_t, int64_t, int64_t, T *,   \
                                     fm_beta);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
