/* rows.cu: kernels on rows or single elements: bias, ReLU, gates, SwiGLU, masks over rows, masked
 * mean. Each has two forms: V elements per thread, 16 bytes of them when all operands are aligned
 * and of whole packs, and otherwise one. */
#include "trainer/backend/cuda/core/families.cuh"

namespace fm_cuda {

template <typename T, int V>
static void bias_add_as(fm_stream *stream, int64_t rows, int64_t c, const T *x, const T *bias,
                        T *y) {
    int64_t packs = c / V;
    each(stream, rows * packs, [=] __device__(int64_t i) {
        float sum[V], b[V];
        load<T, V>(x + i * V, sum);
        load<T, V>(bias + i % packs * V, b);
#pragma unroll
        for (int k = 0; k < V; k++)
            sum[k] += b[k];
        store<T, V>(y + i * V, sum);
    });
}

template <typename T>
void bias_add(fm_stream *stream, int64_t rows, int64_t c, const void *x, const void *bias,
              void *y) {
    bool is_even = is_whole<T>(c) && is_aligned(x) && is_aligned(bias) && is_aligned(y);
    auto run = is_even ? bias_add_as<T, vector_of<T>()> : bias_add_as<T, 1>;
    run(stream, rows, c, (const T *)x, (const T *)bias, (T *)y);
}

template <typename T> void relu(fm_stream *stream, int64_t n, const void *x, void *y) {
    const T *in = (const T *)x;
    T *out = (T *)y;
    each(stream, n, [=] __device__(int64_t i) {
        float v = get(in[i]);
        out[i] = to<T>(v < 0 ? 0 : v); /* NaN stays NaN */
    });
}

template <typename T>
void relu_grad(fm_stream *stream, int64_t n, const void *y, const void *dy, fm_out dx) {
    const T *out = (const T *)y, *up = (const T *)dy;
    T *down = (T *)dx.data;
    constexpr int V = vector_of<T>();
    if (is_aligned(y) && is_aligned(dy) && is_aligned(down) && n % V == 0) {
        each(stream, n / V, [=] __device__(int64_t i) {
            float a[V], b[V];
            load<T, V>(out + i * V, a);
            load<T, V>(up + i * V, b);
#pragma unroll
            for (int k = 0; k < V; k++)
                b[k] = a[k] > 0 ? b[k] : 0;
            put_pack<T, V>(down + i * V, dx.beta, b);
        });
        return;
    }
    each(stream, n,
         [=] __device__(int64_t i) { put(down + i, dx.beta, get(out[i]) > 0 ? get(up[i]) : 0); });
}

/* The row of x that row r reads. */
__device__ inline int64_t gate_row(const fm_gate &a, int64_t r) {
    return a.x_rows ? (uint32_t)r % (uint32_t)a.x_rows : r;
}

template <typename T, int V> static void gate_as(fm_stream *stream, const fm_gate *args) {
    fm_gate a = *args;
    int64_t width = a.c / V;
    each(stream, a.rows * width, [=] __device__(int64_t i) {
        int64_t r = i / width, at = i % width * V;
        float g[V], x[V], factor = a.mask ? get(((const T *)a.mask)[r]) : 1;
        load<T, V>((const T *)a.g + r * a.ldg + at, g);
        load<T, V>((const T *)a.x + gate_row(a, r) * a.ldx + at, x);
#pragma unroll
        for (int k = 0; k < V; k++)
            x[k] = factor * sigmoid(g[k]) * x[k];
        store<T, V>((T *)a.y + r * a.ldy + at, x);
    });
}

template <typename T> static bool gate_is_even(const fm_gate *a) {
    return is_aligned(a->g) && is_aligned(a->x) && is_whole<T>(a->c) && is_whole<T>(a->ldg) &&
           is_whole<T>(a->ldx) && is_whole<T>(a->ldy);
}

template <typename T> void gate(fm_stream *stream, const fm_gate *a) {
    if (gate_is_even<T>(a) && is_aligned(a->y)) {
        gate_as<T, vector_of<T>()>(stream, a);
    } else {
        gate_as<T, 1>(stream, a);
    }
}

template <typename T, int V>
static void gate_grad_as(fm_stream *stream, const fm_gate *args, const fm_gate_grad *grad) {
    fm_gate a = *args;
    fm_out dg_out = grad->dg, dx_out = grad->dx;
    const T *up = (const T *)grad->dy;
    int64_t width = a.c / V;
    each(stream, a.rows * width, [=] __device__(int64_t i) {
        int64_t r = i / width, at = i % width * V;
        float g[V], x[V], dy[V], factor = a.mask ? get(((const T *)a.mask)[r]) : 1;
        load<T, V>((const T *)a.g + r * a.ldg + at, g);
        load<T, V>((const T *)a.x + gate_row(a, r) * a.ldx + at, x);
        load<T, V>(up + r * a.ldy + at, dy);
#pragma unroll
        for (int k = 0; k < V; k++) {
            float s = sigmoid(g[k]), d = factor * dy[k];
            g[k] = d * x[k] * s * (1 - s);
            x[k] = d * s;
        }
        if (dg_out.data) put_pack<T, V>((T *)dg_out.data + r * a.ldg + at, dg_out.beta, g);
        if (dx_out.data) put_pack<T, V>((T *)dx_out.data + r * a.ldx + at, dx_out.beta, x);
    });
}

template <typename T>
void gate_grad(fm_stream *stream, const fm_gate *a, const fm_gate_grad *grad) {
    if (gate_is_even<T>(a) && is_aligned(grad->dy) && is_aligned(grad->dg.data) &&
        is_aligned(grad->dx.data)) {
        gate_grad_as<T, vector_of<T>()>(stream, a, grad);
    } else {
        gate_grad_as<T, 1>(stream, a, grad);
    }
}

/* swish(a) * b. */
template <typename T, int V> static void swiglu_as(fm_stream *stream, const fm_swiglu *args) {
    fm_swiglu s = *args;
    uint32_t width = (uint32_t)(s.c / V);
    each(stream, s.rows * width, [=] __device__(int64_t i) {
        int64_t r = (uint32_t)i / width, at = (uint32_t)i % width * (uint32_t)V;
        const T *x = (const T *)s.x + r * s.ldx + at;
        float a[V], b[V];
        load<T, V>(x, a);
        load<T, V>(x + s.c, b);
#pragma unroll
        for (int k = 0; k < V; k++)
            a[k] = a[k] * sigmoid(a[k]) * b[k];
        store<T, V>((T *)s.y + r * s.ldy + at, a);
    });
}

template <typename T, int V>
static void swiglu_grad_as(fm_stream *stream, const fm_swiglu *args, const void *dy, fm_out dx) {
    fm_swiglu s = *args;
    uint32_t width = (uint32_t)(s.c / V);
    each(stream, s.rows * width, [=] __device__(int64_t i) {
        int64_t r = (uint32_t)i / width, at = (uint32_t)i % width * (uint32_t)V;
        const T *x = (const T *)s.x + r * s.ldx + at;
        T *down = (T *)dx.data + r * s.ldx + at;
        float a[V], b[V], d[V];
        load<T, V>(x, a);
        load<T, V>(x + s.c, b);
        load<T, V>((const T *)dy + r * s.ldy + at, d);
#pragma unroll
        for (int k = 0; k < V; k++) {
            float open = sigmoid(a[k]), swish = a[k] * open;
            a[k] = d[k] * b[k] * (open + swish * (1 - open));
            b[k] *= swish;
            d[k] *= swish;
        }
        if (s.y) store<T, V>((T *)s.y + r * s.ldy + at, b); /* may be dy, which has been read */
        put_pack<T, V>(down, dx.beta, a);
        put_pack<T, V>(down + s.c, dx.beta, d);
    });
}

template <typename T> static bool swiglu_is_even(const fm_swiglu *a) {
    assert(a->rows * a->c < (int64_t)1 << 32);
    return is_aligned(a->x) && is_aligned(a->y) && is_whole<T>(a->c) && is_whole<T>(a->ldx) &&
           is_whole<T>(a->ldy);
}

template <typename T> void swiglu(fm_stream *stream, const fm_swiglu *args) {
    if (swiglu_is_even<T>(args)) {
        swiglu_as<T, vector_of<T>()>(stream, args);
    } else {
        swiglu_as<T, 1>(stream, args);
    }
}

template <typename T>
void swiglu_grad(fm_stream *stream, const fm_swiglu *args, const void *dy, fm_out dx) {
    if (swiglu_is_even<T>(args) && is_aligned(dy) && is_aligned(dx.data)) {
        swiglu_grad_as<T, vector_of<T>()>(stream, args, dy, dx);
    } else {
        swiglu_grad_as<T, 1>(stream, args, dy, dx);
    }
}

template <typename T, int V>
static void scale_rows_as(fm_stream *stream, int64_t rows, int64_t width, int64_t ldx, int64_t ldy,
                          const T *factor, const T *x, fm_out y) {
    assert(rows * width < (int64_t)1 << 32);
    uint32_t packs = (uint32_t)width;
    each(stream, rows * width, [=] __device__(int64_t i) {
        uint32_t r = (uint32_t)i / packs, at = (uint32_t)i % packs * V;
        float v[V], scale = get(factor[r]);
        load<T, V>(x + r * ldx + at, v);
#pragma unroll
        for (int k = 0; k < V; k++)
            v[k] *= scale;
        put_pack<T, V>((T *)y.data + r * ldy + at, y.beta, v);
    });
}

template <typename T>
void scale_rows(fm_stream *stream, int64_t rows, int64_t c, int64_t ldx, int64_t ldy,
                const void *scale, const void *x, fm_out y) {
    constexpr int V = vector_of<T>();
    const T *in = (const T *)x, *factor = (const T *)scale;
    if (is_aligned(x) && is_aligned(y.data) && is_whole<T>(c) && is_whole<T>(ldx) &&
        is_whole<T>(ldy)) {
        scale_rows_as<T, V>(stream, rows, c / V, ldx, ldy, factor, in, y);
    } else {
        scale_rows_as<T, 1>(stream, rows, c, ldx, ldy, factor, in, y);
    }
}

/* -- masked mean */

/* A block makes 32 channels of one r. It sums over s in 16 slices and adds the slices in order. */

enum { MEAN_LANES = 32, MEAN_SLICES = 16, MEAN_CHUNKS = 8 };

template <typename T>
__global__ void __launch_bounds__(MEAN_LANES *MEAN_SLICES) mean_kernel(fm_masked_mean a, T *y) {
    __shared__ double totals[MEAN_SLICES][MEAN_LANES], norms[MEAN_SLICES];
    int64_t r = blockIdx.x, c = blockIdx.y * (int64_t)MEAN_LANES + threadIdx.x;
    double total = 0, norm = 0;
#pragma unroll 4
    for (int64_t s = threadIdx.y; s < a.n_s; s += MEAN_SLICES) {
        double factor = (double)get(((const T *)a.mask)[s * a.n_r + r]);
        norm += factor;
        if (c < a.c) total += factor * (double)get(((const T *)a.x)[(s * a.n_r + r) * a.c + c]);
    }
    totals[threadIdx.y][threadIdx.x] = total;
    if (threadIdx.x == 0) norms[threadIdx.y] = norm;
    __syncthreads();
    if (threadIdx.y > 0 || c >= a.c) return;
    total = 0, norm = a.eps;
    for (int slice = 0; slice < MEAN_SLICES; slice++)
        total += totals[slice][threadIdx.x], norm += norms[slice];
    y[r * a.c + c] = to<T>((float)(total / norm));
}

template <typename T> void masked_mean(fm_stream *stream, const fm_masked_mean *args, void *y) {
    dim3 grid((unsigned)args->n_r, (unsigned)divide_up(args->c, MEAN_LANES));
    mean_kernel<T><<<grid, dim3(MEAN_LANES, MEAN_SLICES), 0, queue(stream)>>>(*args, (T *)y);
    FM_LAUNCHED();
}

/* A block takes a share of the rows of one r. Each block computes the norm again. A thread takes V
 * channels of every so many of the block's rows, for which it makes the slope once. */
template <typename T, int V>
__global__ void __launch_bounds__(256)
    mean_grad_kernel(fm_masked_mean a, const T *up, T *dx, fm_beta beta) {
    __shared__ double space[32], shared_norm;
    int64_t r = blockIdx.x, rows = divide_up(a.n_s, MEAN_CHUNKS), first = blockIdx.y * rows;
    int64_t end = min_size(a.n_s, first + rows);
    double norm = 0;
    for (int64_t s = threadIdx.x; s < a.n_s; s += 256)
        norm += (double)get(((const T *)a.mask)[s * a.n_r + r]);
    norm = block_sum(norm, space);
    if (threadIdx.x == 0) shared_norm = norm + a.eps;
    __syncthreads();
    norm = shared_norm;
    int width = (int)a.c / V, lanes = width < 256 ? width : 256, at_once = 256 / lanes;
    if ((int)threadIdx.x >= lanes * at_once) return;
    for (int pack = (int)threadIdx.x % lanes; pack < width; pack += lanes) {
        float slope[V];
        load<T, V>(up + r * a.c + pack * V, slope);
#pragma unroll
        for (int k = 0; k < V; k++)
            slope[k] = (float)((double)slope[k] / norm);
#pragma unroll 4
        for (int64_t s = first + threadIdx.x / lanes; s < end; s += at_once) {
            float x[V], factor = get(((const T *)a.mask)[s * a.n_r + r]);
#pragma unroll
            for (int k = 0; k < V; k++)
                x[k] = factor * slope[k];
            put_pack<T, V>(dx + (s * a.n_r + r) * a.c + pack * V, beta, x);
        }
    }
}

template <typename T>
void masked_mean_grad(fm_stream *stream, const fm_masked_mean *args, const void *dy, fm_out dx) {
    constexpr int V = vector_of<T>();
    dim3 grid((unsigned)args->n_r, MEAN_CHUNKS);
    bool is_even = is_whole<T>(args->c) && is_aligned(dy) && is_aligned(dx.data);
    auto kernel = is_even ? mean_grad_kernel<T, V> : mean_grad_kernel<T, 1>;
    kernel<<<grid, 256, 0, queue(stream)>>>(*args, (const T *)dy, (T *)dx.data, dx.beta);
    FM_LAUNCHED();
}

#define INSTANTIATE(T)                                                                             \
    template void bias_add<T>(fm_stream *, int64_t, int64_t, const void *, const void *, void *);  \
    template void relu<T>(fm_stream *, int64_t, const void *, void *);                             \
    template void relu_grad<T>(fm_stream *, int64_t, const void *, const void *, fm_out);          \
    template void gate<T>(fm_stream *, const fm_gate *);                                           \
    template void gate_grad<T>(fm_stream *, const fm_gate *, const fm_gate_grad *);                \
    template void swiglu<T>(fm_stream *, const fm_swiglu *);                                       \
    template void swiglu_grad<T>(fm_stream *, const fm_swiglu *, const void *, fm_out);            \
    template void scale_rows<T>(fm_stream *, int64_t, int64_t, int64_t, int64_t, const void *,     \
                                const void *, fm_out);                                             \
    template void masked_mean<T>(fm_stream *, const fm_masked_mean *, void *);                     \
    template void masked_mean_grad<T>(fm_stream *, const fm_masked_mean *, const void *, fm_out);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
