/* rows.cu: layer normalisation, and what works on rows or single elements.
 *
 * Layer normalisation: a warp a row, the row in registers (32 lanes x PARTS packs of V elements),
 * so x is read once: forward moves 2 c elements a row, backward 3 c. dgamma and dbeta: a block
 * takes NORM_ROWS rows, each of its warps every 8th, in registers; the warps' sums are added in
 * order through shared memory, the blocks' sums in order by finish_partials. */
#include "trainer/backend/cuda/families.cuh"

namespace fm_cuda {

enum { NORM_WARPS = 8, NORM_ROWS = 128 };

/* Loads lane's part of a row: element (part * 32 + lane) * V + i; what lies beyond c is 0. */
template <typename T, int V, int PARTS>
__device__ inline void load_row(const T *row, int64_t c, int lane, float *x) {
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t at = (p * 32 + lane) * V;
        if (at < c) {
            load<T, V>(row + at, x + p * V);
        } else {
#pragma unroll
            for (int i = 0; i < V; i++)
                x[p * V + i] = 0;
        }
    }
}

template <typename T, int V, int PARTS>
__global__ void __launch_bounds__(NORM_WARPS * 32) layernorm_kernel(fm_layernorm a) {
    int lane = threadIdx.x % 32;
    int64_t r = blockIdx.x * (int64_t)NORM_WARPS + threadIdx.x / 32;
    if (r >= a.rows) return;
    float x[V * PARTS], inverse = 1.0f / (float)a.c;
    load_row<T, V, PARTS>((const T *)a.x + r * a.ldx, a.c, lane, x);
    float total = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < V * PARTS; i++)
        total += x[i];
    float mean = warp_sum(total) * inverse;
#pragma unroll
    for (int i = 0; i < V * PARTS; i++) {
        bool is_inside = ((i / V) * 32 + lane) * V < a.c;
        x[i] = is_inside ? x[i] - mean : 0;
        squares += x[i] * x[i];
    }
    float rstd = 1.0f / sqrtf(warp_sum(squares) * inverse + (float)a.eps);
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t at = (p * 32 + lane) * V;
        if (at >= a.c) continue;
        float gamma[V], beta[V];
        load<T, V>((const T *)a.gamma + at, gamma);
        load<T, V>((const T *)a.beta + at, beta);
#pragma unroll
        for (int i = 0; i < V; i++)
            x[p * V + i] = x[p * V + i] * rstd * gamma[i] + beta[i];
        store<T, V>((T *)a.y + r * a.ldy + at, x + p * V);
    }
    if (lane == 0) ((float *)a.mean)[r] = mean;
    if (lane == 0) ((float *)a.rstd)[r] = rstd;
}

/* dx of one row; adds to the lane's sums of dgamma and dbeta. */
template <typename T, int V, int PARTS>
__device__ inline void layernorm_grad_row(const fm_layernorm_grad &a, int64_t r, int lane,
                                          const float *gamma, float *dgamma, float *dbeta) {
    float hat[V * PARTS], dy[V * PARTS], inverse = 1.0f / (float)a.c;
    load_row<T, V, PARTS>((const T *)a.x + r * a.ldx, a.c, lane, hat);
    load_row<T, V, PARTS>((const T *)a.dy + r * a.lddy, a.c, lane, dy);
    float mean = ((const float *)a.mean)[r], rstd = ((const float *)a.rstd)[r];
    float sum_dy = 0, sum_hat = 0;
#pragma unroll
    for (int i = 0; i < V * PARTS; i++) { /* dy is 0 beyond c */
        hat[i] = (hat[i] - mean) * rstd;
        dgamma[i] += dy[i] * hat[i];
        dbeta[i] += dy[i];
        dy[i] *= gamma[i];
        sum_dy += dy[i];
        sum_hat += dy[i] * hat[i];
    }
    if (!a.dx.data) return;
    sum_dy = warp_sum(sum_dy) * inverse;
    sum_hat = warp_sum(sum_hat) * inverse;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int64_t at = (p * 32 + lane) * V;
        if (at >= a.c) continue;
#pragma unroll
        for (int i = p * V; i < p * V + V; i++)
            dy[i] = rstd * (dy[i] - sum_dy - hat[i] * sum_hat);
        put_pack<T, V>((T *)a.dx.data + r * a.lddx + at, a.dx.beta, dy + p * V);
    }
}

template <typename T, int V, int PARTS>
__global__ void __launch_bounds__(NORM_WARPS * 32)
    layernorm_grad_kernel(fm_layernorm_grad a, float *partial) {
    extern __shared__ float sums[]; /* [2][32 * V * PARTS] */
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float gamma[V * PARTS], dgamma[V * PARTS], dbeta[V * PARTS];
    load_row<T, V, PARTS>((const T *)a.gamma, a.c, lane, gamma);
#pragma unroll
    for (int i = 0; i < V * PARTS; i++)
        dgamma[i] = dbeta[i] = 0;
    int64_t first = blockIdx.x * (int64_t)NORM_ROWS, end = min_size(a.rows, first + NORM_ROWS);
    for (int64_t r = first + warp; r < end; r += NORM_WARPS)
        layernorm_grad_row<T, V, PARTS>(a, r, lane, gamma, dgamma, dbeta);
    if (!partial) return;
    constexpr int WIDTH = 32 * V * PARTS;
    for (int turn = 0; turn < NORM_WARPS; turn++) {
        if (turn == warp) {
#pragma unroll
            for (int i = 0; i < V * PARTS; i++) {
                int at = ((i / V) * 32 + lane) * V + i % V;
                sums[at] = turn ? sums[at] + dgamma[i] : dgamma[i];
                sums[WIDTH + at] = turn ? sums[WIDTH + at] + dbeta[i] : dbeta[i];
            }
        }
        __syncthreads();
    }
    for (int64_t i = threadIdx.x; i < a.c; i += blockDim.x) {
        partial[blockIdx.x * 2 * a.c + i] = sums[i];
        partial[blockIdx.x * 2 * a.c + a.c + i] = sums[WIDTH + i];
    }
}

template <typename T, int V, int PARTS>
static void layernorm_as(fm_stream *stream, const fm_layernorm *a) {
    unsigned blocks = (unsigned)divide_up(a->rows, NORM_WARPS);
    layernorm_kernel<T, V, PARTS><<<blocks, NORM_WARPS * 32, 0, queue(stream)>>>(*a);
    FM_LAUNCHED();
}

template <typename T, int V, int PARTS>
static void layernorm_grad_as(fm_stream *stream, const fm_layernorm_grad *a, float *partial) {
    unsigned blocks = (unsigned)divide_up(a->rows, NORM_ROWS);
    size_t shared = 2 * 32 * V * PARTS * sizeof(float);
    layernorm_grad_kernel<T, V, PARTS>
        <<<blocks, NORM_WARPS * 32, shared, queue(stream)>>>(*a, partial);
    FM_LAUNCHED();
}

/* The widest pack for a row of c elements: 32 lanes times V, once. 1: any c up to 1024. */
static int norm_pack(int64_t c, bool is_even) {
    if (!is_even) return 1;
    return c == 256 ? 8 : c == 128 ? 4 : c == 64 ? 2 : c % 4 == 0 && c <= 512 ? 44 : 1;
}

template <typename T> void layernorm(fm_stream *stream, const fm_layernorm *a) {
    assert(a->c <= 1024);
    bool is_even = is_aligned(a->x) && is_aligned(a->y) && is_aligned(a->gamma) &&
                   is_aligned(a->beta) && is_whole<T>(a->ldx) && is_whole<T>(a->ldy);
    switch (norm_pack(a->c, is_even)) {
    case 8:
        if (sizeof(T) == 2) {
            layernorm_as<T, 8, 1>(stream, a);
        } else {
            layernorm_as<T, 4, 2>(stream, a);
        }
        return;
    case 4: layernorm_as<T, 4, 1>(stream, a); return;
    case 2: layernorm_as<T, 2, 1>(stream, a); return;
    case 44: layernorm_as<T, 4, 4>(stream, a); return;
    default: layernorm_as<T, 1, 32>(stream, a); return;
    }
}

size_t layernorm_grad_workspace(int64_t rows, int64_t c) {
    return (size_t)(divide_up(rows, NORM_ROWS) * 2 * c) * sizeof(float);
}

template <typename T>
void layernorm_grad(fm_stream *stream, const fm_layernorm_grad *a, void *workspace) {
    assert(a->c <= 1024);
    float *partial = a->dgamma.data || a->dbeta.data ? (float *)workspace : NULL;
    bool is_even = is_aligned(a->x) && is_aligned(a->dy) && is_aligned(a->gamma) &&
                   is_aligned(a->dx.data) && is_whole<T>(a->ldx) && is_whole<T>(a->lddy) &&
                   is_whole<T>(a->lddx);
    switch (norm_pack(a->c, is_even)) {
    case 8:
        if (sizeof(T) == 2) {
            layernorm_grad_as<T, 8, 1>(stream, a, partial);
        } else {
            layernorm_grad_as<T, 4, 2>(stream, a, partial);
        }
        break;
    case 4: layernorm_grad_as<T, 4, 1>(stream, a, partial); break;
    case 2: layernorm_grad_as<T, 2, 1>(stream, a, partial); break;
    case 44: layernorm_grad_as<T, 4, 4>(stream, a, partial); break;
    default: layernorm_grad_as<T, 1, 32>(stream, a, partial); break;
    }
    int64_t blocks = divide_up(a->rows, NORM_ROWS), c = a->c;
    if (a->dgamma.data)
        finish_partials(stream, partial, blocks, 2 * c, c, (float *)a->dgamma.data, a->dgamma.beta);
    if (a->dbeta.data)
        finish_partials(stream, partial + c, blocks, 2 * c, c, (float *)a->dbeta.data,
                        a->dbeta.beta);
}

/* ---- elements of rows ---- */

template <typename T>
void bias_add(fm_stream *stream, int64_t rows, int64_t c, const void *x, const void *bias,
              void *y) {
    const T *in = (const T *)x, *b = (const T *)bias;
    T *out = (T *)y;
    each(stream, rows * c,
         [=] __device__(int64_t i) { out[i] = to<T>(get(in[i]) + get(b[i % c])); });
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

/* V elements of a row a thread: 1, or 16 bytes where everything is aligned. */
template <typename T, int V> static void gate_as(fm_stream *stream, const fm_gate *args) {
    fm_gate a = *args;
    int64_t width = a.c / V;
    each(stream, a.rows * width, [=] __device__(int64_t i) {
        int64_t r = i / width, at = i % width * V;
        float g[V], x[V], factor = a.mask ? get(((const T *)a.mask)[r]) : 1;
        load<T, V>((const T *)a.g + r * a.ldg + at, g);
        load<T, V>((const T *)a.x + r * a.ldx + at, x);
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
        load<T, V>((const T *)a.x + r * a.ldx + at, x);
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

/* swish(a) * b: V elements of a row of y a thread, as gate. */
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

template <typename T>
void scale_rows(fm_stream *stream, int64_t rows, int64_t c, int64_t ldx, int64_t ldy,
                const void *scale, const void *x, fm_out y) {
    const T *in = (const T *)x, *factor = (const T *)scale;
    T *out = (T *)y.data;
    each(stream, rows * c, [=] __device__(int64_t i) {
        int64_t r = i / c, at = i % c;
        put(out + r * ldy + at, y.beta, get(factor[r]) * get(in[r * ldx + at]));
    });
}

/* ---- masked mean: 32 channels and 16 slices of s a block, the slices then in order ---- */

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

/* A block takes a share of one r's rows; each makes the norm for itself. */
template <typename T>
__global__ void __launch_bounds__(256)
    mean_grad_kernel(fm_masked_mean a, const T *up, T *dx, fm_beta beta) {
    __shared__ double space[32], shared_norm;
    int64_t r = blockIdx.x, rows = divide_up(a.n_s, MEAN_CHUNKS), first = blockIdx.y * rows;
    int64_t n = (min_size(a.n_s, first + rows) - first) * a.c;
    double norm = 0;
    for (int64_t s = threadIdx.x; s < a.n_s; s += 256)
        norm += (double)get(((const T *)a.mask)[s * a.n_r + r]);
    norm = block_sum(norm, space);
    if (threadIdx.x == 0) shared_norm = norm + a.eps;
    __syncthreads();
    norm = shared_norm;
    for (int64_t i = threadIdx.x; i < n; i += 256) {
        int64_t row = (first + i / a.c) * a.n_r + r, c = i % a.c;
        float slope = (float)((double)get(up[r * a.c + c]) / norm);
        put(dx + row * a.c + c, beta, get(((const T *)a.mask)[row]) * slope);
    }
}

template <typename T>
void masked_mean_grad(fm_stream *stream, const fm_masked_mean *args, const void *dy, fm_out dx) {
    dim3 grid((unsigned)args->n_r, MEAN_CHUNKS);
    mean_grad_kernel<T>
        <<<grid, 256, 0, queue(stream)>>>(*args, (const T *)dy, (T *)dx.data, dx.beta);
    FM_LAUNCHED();
}

#define INSTANTIATE(T)                                                                             \
    template void layernorm<T>(fm_stream *, const fm_layernorm *);                                 \
    template void layernorm_grad<T>(fm_stream *, const fm_layernorm_grad *, void *);               \
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
