/* memory.cu: device memory, fills, copies, conversions, strided copies, and sums over an axis. All
 * of them are as long as their memory traffic, which is one read and one write of each element. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/sums.cuh"

namespace fm_cuda {

void *alloc(size_t bytes) {
    void *memory = NULL;
    if (cudaMalloc(&memory, bytes > 0 ? bytes : 1) == cudaSuccess) return memory;
    (void)cudaGetLastError(); /* the caller reports that memory ran out */
    return NULL;
}

void release(void *memory) {
    FM_CUDA(cudaFree(memory));
}

void upload(fm_stream *stream, void *device, const void *host, size_t bytes) {
    FM_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, queue(stream)));
}

void download(fm_stream *stream, void *host, const void *device, size_t bytes) {
    FM_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, queue(stream)));
}

void synchronize(fm_stream *stream) {
    FM_CUDA(cudaStreamSynchronize(queue(stream)));
}

template <typename T> void fill(fm_stream *stream, int64_t n, double value, void *y) {
    float v = (float)value;
    T *out = (T *)y;
    each(stream, n, [=] __device__(int64_t i) { out[i] = to<T>(v); });
}

template <typename T> void copy(fm_stream *stream, int64_t n, const void *x, void *y) {
    FM_CUDA(cudaMemcpyAsync(y, x, (size_t)n * sizeof(T), cudaMemcpyDeviceToDevice, queue(stream)));
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

/* Whether the copy is one of whole packs of 16 bytes: both sides have them contiguous, and nothing
 * is multiplied. */
template <typename T> static bool copies_packs(const fm_strided *a) {
    const int last = a->rank - 1;
    bool is_whole_pack = a->alpha == 1 && a->x_stride[last] == 1 && a->y_stride[last] == 1 &&
                         is_whole<T>(a->shape[last]) && is_aligned(a->x) && is_aligned(a->y.data);
    for (int i = 0; i < last; i++)
        is_whole_pack = is_whole_pack && is_whole<T>(a->x_stride[i]) && is_whole<T>(a->y_stride[i]);
    return is_whole_pack;
}

/* One thread per element, the last axis fastest, or per pack of 16 bytes. Sizes are below 2^31, so
 * that 32-bit divisions take the index apart. */
template <typename T> void copy_strided(fm_stream *stream, const fm_strided *args) {
    constexpr int V = vector_of<T>();
    fm_strided a = *args;
    assert(a.rank >= 1 && a.rank <= FM_STRIDED_RANK);
    const bool packs = copies_packs<T>(args);
    a.shape[a.rank - 1] /= packs ? V : 1;
    for (int i = 0; i < a.rank - 1 && packs; i++)
        a.x_stride[i] /= V, a.y_stride[i] /= V;
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
        if (packs && a.y.beta == FM_WRITE) {
            ((uint4 *)a.y.data)[at] = ((const uint4 *)a.x)[from];
        } else if (packs) {
            float x[V];
            load<T, V>((const T *)a.x + from * V, x);
            put_pack<T, V>((T *)a.y.data + at * V, FM_ADD, x);
        } else {
            put((T *)a.y.data + at, a.y.beta, alpha * get(((const T *)a.x)[from]));
        }
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

/* -- sums over the middle axis */

/* A thread takes a pack of columns of every lanes-th row, SUM_BATCH rows in flight, and the block
 * adds its lanes in order through shared memory. Large sums divide the rows into chunks; the
 * chunks' sums are partial vectors in the workspace and are then added in order. How rows are
 * divided depends on the shape alone. */

enum { SUM_THREADS = 256, SUM_BATCH = 8, SUM_CHUNKS = 512 };
enum { SUM_SMALL = 1 << 18 }; /* elements that are summed in one launch */
enum { SUM_WIDE = 1 << 14 };  /* columns that keep the device busy without lanes */

enum sum_path {
    SUM_LINES,  /* n_c = 1: a block for each sum */
    SUM_FEW,    /* few rows of many columns: a thread for each pack of sums */
    SUM_DIRECT, /* one launch, no partial sums */
    SUM_CHUNKED,
};

struct sum_choice {
    sum_path path;
    int64_t chunks; /* of the rows; 1 unless SUM_CHUNKED */
    size_t bytes;   /* workspace */
};

/* The division of many rows: up to eight blocks per multiprocessor. */
static int64_t sum_chunks(int64_t n_a, int64_t n_r, int64_t n_c) {
    if (n_r * n_c <= SUM_SMALL) return 1;
    int64_t most = 8 * n_multiprocessor();
    int64_t blocks = min_size(n_a * n_r * n_c / (SUM_THREADS * SUM_BATCH * 8), most);
    return max_size(1, min_size(blocks / (n_a * divide_up(n_c, 256)), min_size(n_r, SUM_CHUNKS)));
}

static sum_choice choose_sum(int64_t n_a, int64_t n_r, int64_t n_c) {
    if (n_c == 1) return {SUM_LINES, 1, 0};
    if (n_r <= SUM_BATCH && n_c >= SUM_WIDE) return {SUM_FEW, 1, 0};
    int64_t chunks = sum_chunks(n_a, n_r, n_c);
    if (chunks == 1) return {SUM_DIRECT, 1, 0};
    return {SUM_CHUNKED, chunks, (size_t)(n_a * n_c * chunks) * sizeof(float)};
}

size_t sum_workspace(int64_t n_a, int64_t n_r, int64_t n_c) {
    return choose_sum(n_a, n_r, n_c).bytes;
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

/* y = the sums over at most SUM_BATCH rows, in order, for V columns in each thread. */
template <typename T, int V, typename Y>
static void sum_few(fm_stream *stream, int64_t n_a, int64_t n_r, int64_t n_c,
                    const int64_t stride[2], const T *x, Y *y, fm_beta beta) {
    int64_t packs = n_c / V, stride_a = stride[0], stride_r = stride[1];
    each(stream, n_a * packs, [=] __device__(int64_t i) {
        int64_t a = i / packs, c = i % packs * V;
        double total[V] = {};
#pragma unroll
        for (int r = 0; r < SUM_BATCH; r++) {
            if (r >= n_r) continue;
            float v[V];
            load<T, V>(x + a * stride_a + r * stride_r + c, v);
#pragma unroll
            for (int k = 0; k < V; k++)
                total[k] += (double)v[k];
        }
#pragma unroll
        for (int k = 0; k < V; k++)
            put(y + a * n_c + c + k, beta, (float)total[k]);
    });
}

struct sum_shape {
    int64_t n_a, n_r, n_c, stride_a, stride_r;
    int64_t chunks;
    int tile, tiles; /* packs of columns in a block; blocks side by side */
};

/* The sums of one chunk go to y[(chunk * n_a + a) * n_c + c]. With relu, x is first set to 0 where
 * relu is not above 0, in memory too. */
template <typename T, int V, typename Y>
__global__ void __launch_bounds__(SUM_THREADS)
    sum_kernel(sum_shape s, T *x, const T *relu, Y *y, fm_beta beta) {
    __shared__ float shared[SUM_THREADS * V];
    int lanes = SUM_THREADS / s.tile, lane = threadIdx.x / s.tile, at = threadIdx.x % s.tile;
    int64_t chunk = blockIdx.x / s.tiles, c0 = blockIdx.x % s.tiles * (int64_t)(s.tile * V);
    int64_t a = blockIdx.y, c = c0 + at * V, rows = divide_up(s.n_r, s.chunks);
    int64_t first = chunk * rows, end = min_size(s.n_r, first + rows);
    T *in = x + a * s.stride_a + c;
    const T *gate = relu + (relu ? c : 0);
    float total[V] = {};
    if (lane < lanes && c < s.n_c) {
        for (int64_t r = first + lane; r < end; r += SUM_BATCH * lanes) {
            pack<T, V> v[SUM_BATCH];
#pragma unroll
            for (int b = 0; b < SUM_BATCH; b++)
                if (r + b * lanes < end) {
                    v[b] = *(const pack<T, V> *)(in + (r + b * lanes) * s.stride_r);
                }
#pragma unroll
            for (int b = 0; b < SUM_BATCH; b++) {
                if (r + b * lanes >= end) continue;
                float value[V];
#pragma unroll
                for (int k = 0; k < V; k++)
                    value[k] = get(v[b].at[k]);
                if (relu) {
                    float above[V];
                    load<T, V>(gate + (r + b * lanes) * s.stride_r, above);
#pragma unroll
                    for (int k = 0; k < V; k++)
                        value[k] = above[k] > 0 ? value[k] : 0;
                    store<T, V>(in + (r + b * lanes) * s.stride_r, value);
                }
#pragma unroll
                for (int k = 0; k < V; k++)
                    total[k] += value[k];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        shared[k * SUM_THREADS + threadIdx.x] = total[k];
    __syncthreads();
    int i = threadIdx.x;
    if (i >= s.tile * V || c0 + i >= s.n_c) return;
    const float *mine = shared + i % V * SUM_THREADS + i / V;
    double sum = 0;
    for (int l = 0; l < lanes; l++)
        sum += (double)mine[l * s.tile];
    if (y) put(y + (chunk * s.n_a + a) * s.n_c + c0 + i, beta, (float)sum);
}

template <typename T, int V, typename Y>
static void sum_as(fm_stream *stream, sum_shape s, T *x, const T *relu, Y *y, fm_beta beta) {
    int64_t packs = divide_up(s.n_c, V), most = s.chunks == 1 ? 8 : 32;
    s.tiles = (int)divide_up(packs, most);
    s.tile = (int)divide_up(packs, s.tiles);
    dim3 grid((unsigned)(s.tiles * s.chunks), (unsigned)s.n_a);
    sum_kernel<T, V, Y><<<grid, SUM_THREADS, 0, queue(stream)>>>(s, x, relu, y, beta);
    FM_LAUNCHED();
}

template <typename T, typename Y>
static void sum_rows(fm_stream *stream, const sum_shape *s, T *x, const T *relu, Y *y,
                     fm_beta beta) {
    if (is_aligned(x) && is_aligned(relu) && is_whole<T>(s->n_c) && is_whole<T>(s->stride_a) &&
        is_whole<T>(s->stride_r)) {
        sum_as<T, vector_of<T>(), Y>(stream, *s, x, relu, y, beta);
    } else {
        sum_as<T, 1, Y>(stream, *s, x, relu, y, beta);
    }
}

/* x is written only when relu is given. */
template <typename T, typename Y>
static void sum_in_chunks(fm_stream *stream, const sum_shape *s, T *x, const T *relu, Y *y,
                          fm_beta beta, float *partial) {
    if (s->chunks == 1) {
        sum_rows<T, Y>(stream, s, x, relu, y, beta);
        return;
    }
    int64_t n = s->n_a * s->n_c;
    partial_sums sums = sums_of<Y>(NULL, s->chunks, n, n, y, beta);
    if (y) partial = sums_place(stream, sums, (size_t)(s->chunks * n) * sizeof(float), partial);
    sum_rows<T, float>(stream, s, x, relu, partial, FM_WRITE);
    sums.partial = partial;
    if (y) end_sums(stream, sums);
}

template <typename T, typename Y>
static void sum_into(fm_stream *stream, int64_t n_a, int64_t n_r, int64_t n_c,
                     const int64_t stride[2], const T *x, Y *y, fm_beta beta, float *partial) {
    sum_choice choice = choose_sum(n_a, n_r, n_c);
    end_sums_of(stream, y, (size_t)(n_a * n_c) * sizeof(Y));
    assert(n_a <= 65535 || choice.path == SUM_LINES || choice.path == SUM_FEW);
    if (choice.path == SUM_LINES) {
        sum_line_kernel<<<(unsigned)n_a, 256, 0, queue(stream)>>>(n_r, stride[0], stride[1], x, y,
                                                                  beta);
        FM_LAUNCHED();
        return;
    }
    if (choice.path == SUM_FEW) {
        bool is_whole_pack =
            is_aligned(x) && is_whole<T>(n_c) && is_whole<T>(stride[0]) && is_whole<T>(stride[1]);
        (is_whole_pack ? sum_few<T, vector_of<T>(), Y> : sum_few<T, 1, Y>)(stream, n_a, n_r, n_c,
                                                                           stride, x, y, beta);
        return;
    }
    sum_shape s = {n_a, n_r, n_c, stride[0], stride[1], choice.chunks, 0, 0};
    sum_in_chunks<T, Y>(stream, &s, (T *)x, NULL, y, beta, partial);
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

template <typename T>
void sum_after_relu(fm_stream *stream, int64_t n_r, int64_t n_c, int64_t ld, const void *relu,
                    void *x, fm_out y, void *workspace) {
    sum_shape s = {1, n_r, n_c, 0, ld, choose_sum(1, n_r, n_c).chunks, 0, 0};
    sum_in_chunks<T, float>(stream, &s, (T *)x, (const T *)relu, (float *)y.data, y.beta,
                            (float *)workspace);
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
    template void sum_after_relu<T>(fm_stream *, int64_t, int64_t, int64_t, const void *, void *,  \
                                    fm_out, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
