/* optim.cu: gradient norm, non-finite search, Adam with EMA in one pass, initial parameters. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/normal.h"

#include <math.h>

namespace fm_cuda {

/* Each block sums a fixed share of the elements; the sums of the blocks are added in order. */
static int64_t norm_blocks(int64_t n) {
    return max_size(1, min_size(1024, n / 4096));
}

size_t grad_norm_workspace(int64_t n) {
    return (size_t)norm_blocks(n) * sizeof(double);
}

__global__ void __launch_bounds__(256) squares_kernel(int64_t n, const float *g, double *partial) {
    __shared__ double space[32];
    double total = 0;
    for (int64_t i = blockIdx.x * (int64_t)256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256)
        total += (double)g[i] * (double)g[i];
    total = block_sum(total, space);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(256)
    norm_kernel(const double *partial, int64_t blocks, double max_norm, bool is_sum,
                fm_step_state *state) {
    __shared__ double space[32];
    double total = 0;
    for (int64_t i = threadIdx.x; i < blocks; i += 256)
        total += partial[i];
    total = block_sum(total, space);
    if (threadIdx.x > 0) return;
    double norm = sqrt(total) + 1e-6;
    bool finite = isfinite(total);
    if (is_sum) max_norm *= state->pending + 1.0;
    state->norm_squared = total;
    state->clip_scale = !finite ? 0 : norm > max_norm ? max_norm / norm : 1;
    if (!finite) state->nonfinite |= is_sum ? FM_NONFINITE_SUM : FM_NONFINITE_SAMPLE;
}

void grad_norm(fm_stream *stream, int64_t n, const void *grad, double max_norm, bool is_sum,
               fm_step_state *state, void *workspace) {
    double *partial = (double *)workspace;
    int64_t blocks = norm_blocks(n);
    squares_kernel<<<(unsigned)blocks, 256, 0, queue(stream)>>>(n, (const float *)grad, partial);
    FM_LAUNCHED();
    norm_kernel<<<1, 256, 0, queue(stream)>>>(partial, blocks, max_norm, is_sum, state);
    FM_LAUNCHED();
}

template <typename T>
void find_nonfinite(fm_stream *stream, int64_t n, const void *x, uint32_t *flag) {
    const T *in = (const T *)x;
    each(stream, n, [=] __device__(int64_t i) {
        if (!isfinite(get(in[i]))) *flag = 1; /* all writers write the same */
    });
}

/* Blocks of 256 threads over flat buffers of n elements, four of them per thread and turn. */
static unsigned flat_blocks(int64_t n) {
    return (unsigned)max_size(1, min_size(divide_up(n / 4, 256), n_multiprocessor() * 8));
}

__global__ void __launch_bounds__(256)
    accumulate_kernel(int64_t n, const fm_step_state *state, bool always, const float *grad,
                      float *sum) {
    bool adds = state->pending > 0;
    if (state->nonfinite || (!always && !adds && !state->holds)) return;
    float scale = (float)state->clip_scale;
    int64_t packs = n / 4, stride = (int64_t)gridDim.x * 256;
    int64_t thread = blockIdx.x * (int64_t)256 + threadIdx.x;
    for (int64_t i = thread; i < packs; i += stride) {
        float v[4];
        load<float, 4>(grad + i * 4, v);
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] *= scale;
        put_pack<float, 4>(sum + i * 4, adds ? FM_ADD : FM_WRITE, v);
    }
    int64_t rest = packs * 4 + thread;
    if (rest < n) put(sum + rest, adds ? FM_ADD : FM_WRITE, scale * grad[rest]);
}

/* Flat buffers are aligned (fm_plan_round). */
void accumulate(fm_stream *stream, int64_t n, const fm_step_state *state, bool always,
                const void *grad, void *sum) {
    assert(is_aligned(grad) && is_aligned(sum));
    unsigned blocks = flat_blocks(n);
    accumulate_kernel<<<blocks, 256, 0, queue(stream)>>>(n, state, always, (const float *)grad,
                                                         (float *)sum);
    FM_LAUNCHED();
}

/* The constants of one step, computed once per block from device memory. */
struct adam_step {
    float rate, correction, scale;
};

/* Updates V neighbouring elements. */
template <typename T, int V>
__device__ inline void adam_pack(const fm_adam &a, const adam_step &s, const float *grad,
                                 int64_t i) {
    float g[V], m[V], v[V], p[V], ema[V];
    load<float, V>(grad + i, g);
    load<float, V>((const float *)a.m + i, m);
    load<float, V>((const float *)a.v + i, v);
    load<float, V>((const float *)a.param + i, p);
    if (a.ema) load<float, V>((const float *)a.ema + i, ema);
    float rest1 = (float)(1 - a.beta1), rest2 = (float)(1 - a.beta2);
    float rest = (float)(1 - a.ema_decay);
#pragma unroll
    for (int k = 0; k < V; k++) {
        g[k] *= s.scale;
        if (a.l2 != 0) g[k] += (float)a.l2 * p[k];
        m[k] = (float)a.beta1 * m[k] + rest1 * g[k];
        v[k] = (float)a.beta2 * v[k] + rest2 * (g[k] * g[k]);
        p[k] -= s.rate * m[k] / (sqrtf(v[k]) * s.correction + (float)a.eps);
        if (a.ema) ema[k] -= rest * (ema[k] - p[k]);
    }
    store<float, V>((float *)a.m + i, m);
    store<float, V>((float *)a.v + i, v);
    store<float, V>((float *)a.param + i, p);
    if (a.ema) store<float, V>((float *)a.ema + i, ema);
    if (a.copy) store<T, V>((T *)a.copy + i, p);
}

template <typename T, int V> __global__ void __launch_bounds__(256) adam_kernel(fm_adam a) {
    __shared__ adam_step s;
    if (a.state->nonfinite || a.state->holds) return;
    bool only = a.only && !a.state->pending, clip = a.clip || only;
    const float *grad = (const float *)(only ? a.only : a.grad);
    if (threadIdx.x == 0) {
        double step = (double)a.state->step;
        s.correction = (float)(1 / sqrt(1 - pow(a.beta2, step)));
        s.rate = (float)(a.state->lr / (1 - pow(a.beta1, step)));
        s.scale =
            (float)(a.grad_scale / (a.state->pending + 1.0) * (clip ? a.state->clip_scale : 1));
    }
    __syncthreads();
    int64_t packs = a.n / V, stride = (int64_t)gridDim.x * 256;
    int64_t thread = blockIdx.x * (int64_t)256 + threadIdx.x;
    for (int64_t i = thread; i < packs; i += stride)
        adam_pack<T, V>(a, s, grad, i * V);
    if (thread < a.n - packs * V) adam_pack<T, 1>(a, s, grad, packs * V + thread);
}

/* Reads grad, param, m, v and ema once, and writes all but grad, and the copy, once. */
template <typename T> void adam(fm_stream *stream, const fm_adam *a) {
    unsigned blocks = flat_blocks(a->n);
    if (is_aligned(a->grad) && is_aligned(a->param) && is_aligned(a->m) && is_aligned(a->v) &&
        is_aligned(a->ema) && is_aligned(a->copy) && is_aligned(a->only)) {
        adam_kernel<T, 4><<<blocks, 256, 0, queue(stream)>>>(*a);
    } else {
        adam_kernel<T, 1><<<blocks, 256, 0, queue(stream)>>>(*a);
    }
    FM_LAUNCHED();
}

void init(fm_stream *stream, fm_init_kind kind, int64_t n, uint64_t first, double scale,
          const fm_draw *args, void *y) {
    fm_draw draw = *args;
    float *out = (float *)y;
    each(stream, n, [=] __device__(int64_t i) {
        double value = scale;
        uint32_t word = kind == FM_INIT_CONSTANT ? 0 : fm_draw_word(&draw, first + (uint64_t)i);
        if (kind == FM_INIT_UNIFORM) value *= fm_uniform_two_sided(word);
        if (kind == FM_INIT_TRUNCATED_NORMAL) value *= fm_truncated_normal(word) / 0.87962566;
        out[i] = (float)value;
    });
}

#define INSTANTIATE(T)                                                                             \
    template void find_nonfinite<T>(fm_stream *, int64_t, const void *, uint32_t *);               \
    template void adam<T>(fm_stream *, const fm_adam *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
