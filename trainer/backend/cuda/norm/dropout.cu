/* dropout.cu: shared-axis dropout. The mask is drawn where it is used, forward and backward. A
 * thread takes 16 bytes of channels of eight rows that share their draws, with all loads in flight.
 * So x, the residual and y each move once. Where that leaves most of the device idle, a thread has
 * one row. */
#include "trainer/backend/cuda/core/early.cuh"
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/keep.cuh"

namespace fm_cuda {

enum { KEEP_ROWS = 8, KEEP_THREADS = 256, KEEP_FEW = 1 << 15 /* threads */ };

/* y = old + keep * x; an old of NULL counts as 0, and old may be y. A row has `packs` packs of V
 * channels. */
template <typename T, int V, int ROWS>
__global__ void __launch_bounds__(KEEP_THREADS)
    dropout_kernel(fm_dropout d, keep_runs k, uint32_t packs, const T *old, const T *x, T *y) {
    wait_for_previous();
    let_next_begin();
    uint64_t i = blockIdx.x * (uint64_t)KEEP_THREADS + threadIdx.x;
    if (i >= (uint64_t)k.lines * k.runs * packs) return;
    uint32_t pack_at = (uint32_t)(i % packs) * V;
    keep_run run = keep_run_at(k, (uint32_t)(i / packs), ROWS);
    int64_t first = run.row * d.c + pack_at, step = run.step * d.c;
    raw<T, V> in[ROWS] = {}, before[ROWS] = {};
#pragma unroll
    for (int t = 0; t < ROWS; t++) {
        if (t < run.count) in[t] = read_raw<T, V>(x + first + t * step);
        if (t < run.count && old) before[t] = read_raw<T, V>(old + first + t * step);
    }
    uint32_t bits = ~0u;
    if (k.is_shared) bits = keep_bits<V>(d, k, keep_draw(d, k, run, run.row) + pack_at);
#pragma unroll
    for (int t = 0; t < ROWS; t++) {
        if (k.is_drawn && !k.is_shared) {
            bits = keep_bits<V>(d, k, keep_draw(d, k, run, run.row + t * run.step) + pack_at);
        }
        float v[V];
#pragma unroll
        for (int n = 0; n < V; n++)
            v[n] = keep_factor(k, bits, n) * in[t].at(n) + before[t].at(n);
        if (t < run.count) write_raw<T, V>(y + first + t * step, raw<T, V>::of(v));
    }
}

template <typename T, int V, int ROWS>
static void dropout_as(fm_stream *stream, const fm_dropout *d, const T *old, const T *x, T *y) {
    keep_runs k = keep_runs_of(*d, ROWS);
    int64_t packs = d->c / V, threads = (int64_t)k.lines * k.runs * packs;
    if (threads == 0) return;
    if (ROWS > 1 && threads < KEEP_FEW) {
        dropout_as<T, V, 1>(stream, d, old, x, y);
        return;
    }
    launch_after(stream, dropout_kernel<T, V, ROWS>, (unsigned)divide_up(threads, KEEP_THREADS),
                 KEEP_THREADS, 0, true, *d, k, (uint32_t)packs, old, x, y);
    FM_LAUNCHED();
}

template <typename T>
static void dropout_all(fm_stream *stream, const fm_dropout *d, const T *old, const T *x, T *y) {
    if (is_whole<T>(d->c) && is_aligned(x) && is_aligned(y) && is_aligned(old)) {
        dropout_as<T, vector_of<T>(), KEEP_ROWS>(stream, d, old, x, y);
    } else {
        dropout_as<T, 1, KEEP_ROWS>(stream, d, old, x, y);
    }
}

template <typename T>
void dropout(fm_stream *stream, const fm_dropout *d, const void *residual, const void *x, void *y) {
    dropout_all(stream, d, (const T *)residual, (const T *)x, (T *)y);
}

template <typename T>
void dropout_grad(fm_stream *stream, const fm_dropout *d, const void *dy, fm_out dx) {
    const void *old = dx.beta == FM_ADD ? dx.data : NULL;
    dropout_all(stream, d, (const T *)old, (const T *)dy, (T *)dx.data);
}

#define INSTANTIATE(T)                                                                             \
    template void dropout<T>(fm_stream *, const fm_dropout *, const void *, const void *, void *); \
    template void dropout_grad<T>(fm_stream *, const fm_dropout *, const void *, fm_out);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
