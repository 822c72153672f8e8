/* adaln.cu: AdaLN behind the products of its conditioning signal, forward and backward, in one pass
 * over the rows each (fm_adaln in atom_operands.h). norm_row.cuh describes how a warp holds rows.
 *
 * Backward: the lanes of a row of g take the rows of all samples that read it, in order, so the
 * sums over the samples stay in registers. Statistics are made again from x. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/norm/norm_row.cuh"

namespace fm_cuda {

/* -- forward */

/* The row of x behind the gate of the sublayer before, as it is stored. */
template <typename T, typename S>
__device__ inline lane_row<T, S> move_row(const fm_adaln &a, int64_t row, int64_t from,
                                          const lane_row<T, S> &x) {
    lane_row<T, S> update = read_row<T, S>((const T *)a.update + row * a.c, a.c);
    lane_row<T, S> end = read_row<T, S>((const T *)a.end + from * a.c, a.c);
    float y[S::N];
#pragma unroll
    for (int i = 0; i < S::N; i++)
        y[i] = x.at(i) + sigmoid(end.at(i)) * update.at(i);
    return lane_row<T, S>::of(y);
}

/* MOVES: the gate of the sublayer before comes first. */
template <typename T, typename S, bool MOVES>
__global__ void __launch_bounds__(NORM_THREADS) adaln_kernel(fm_adaln a, keep_runs k) {
    uint32_t group = first_group<S>(NORM_WARPS);
    keep_run run = {};
    if (group < k.runs) run = keep_run_at(k, group, S::ROWS);
    lane_row<T, S> x[S::ROWS], g[S::ROWS], shift[S::ROWS];
#pragma unroll
    for (int t = 0; t < S::ROWS; t++) {
        uint32_t row = t < run.count ? run.row + t * run.step : 0, from = row % (uint32_t)a.g_rows;
        x[t] = read_row<T, S>((const T *)a.x + row * a.c, a.c);
        g[t] = read_row<T, S>((const T *)a.g + from * a.c, a.c);
        shift[t] = read_row<T, S>((const T *)a.shift + from * a.c, a.c);
        if (MOVES) x[t] = move_row<T, S>(a, row, from, x[t]);
    }
#pragma unroll
    for (int t = 0; t < S::ROWS; t++) {
        row_statistics of = statistics_of<T, S>(x[t], a.c, (float)a.eps);
        if (t >= run.count) continue;
        float y[S::N];
#pragma unroll
        for (int i = 0; i < S::N; i++)
            y[i] = sigmoid(g[t].at(i)) * ((x[t].at(i) - of.mean) * of.rstd) + shift[t].at(i);
        uint32_t row = run.row + t * run.step;
        if (MOVES) write_row<T, S>((T *)a.moved + row * a.c, a.c, x[t]);
        write_row<T, S>((T *)a.y + row * a.c, a.c, lane_row<T, S>::of(y));
    }
}

/* -- backward */

/* Writes a row, or adds it to the place. */
template <typename T, typename S>
__device__ inline void put_row(fm_out out, int64_t row, int64_t c, float (&x)[S::N]) {
    T *at = (T *)out.data + row * c;
    if (out.beta == FM_ADD) {
        lane_row<T, S> old = read_row<T, S>(at, c);
#pragma unroll
        for (int i = 0; i < S::N; i++)
            x[i] += old.at(i);
    }
    write_row<T, S>(at, c, lane_row<T, S>::of(x));
}

/* The gradient of one row of x; adds to the sums of the row of g. `open` is the sigmoid of g. */
template <typename T, typename S>
__device__ inline void adaln_grad_row(const lane_row<T, S> &x, const lane_row<T, S> &dy,
                                      const float (&open)[S::N], row_statistics of, int64_t c,
                                      float (&sum_g)[S::N], float (&sum_shift)[S::N],
                                      float (&dx)[S::N]) {
    float total = 0, dot = 0, inverse = 1.0f / (float)c;
#pragma unroll
    for (int i = 0; i < S::N; i++) {
        float up = dy.at(i), hat = (x.at(i) - of.mean) * of.rstd;
        sum_g[i] += up * hat;
        sum_shift[i] += up;
        dx[i] = up * open[i];
        total += dx[i];
        dot += dx[i] * hat;
    }
    total = row_sum<S>(total) * inverse;
    dot = row_sum<S>(dot) * inverse;
#pragma unroll
    for (int i = 0; i < S::N; i++)
        dx[i] = of.rstd * (dx[i] - total - (x.at(i) - of.mean) * of.rstd * dot);
}

/* SHARED: several samples read a row of g. */
template <typename T, typename S, bool SHARED>
__global__ void __launch_bounds__(NORM_THREADS) adaln_grad_kernel(fm_adaln a, fm_adaln_grad d) {
    constexpr int ROWS = SHARED ? S::ROWS : 1;
    uint32_t row = first_group<S>(NORM_WARPS), samples = SHARED ? a.rows / a.g_rows : 1;
    bool is_there = row < a.g_rows;
    lane_row<T, S> g = read_row<T, S>((const T *)a.g + (is_there ? row : 0) * a.c, a.c);
    float open[S::N], sum_g[S::N] = {}, sum_shift[S::N] = {};
#pragma unroll
    for (int i = 0; i < S::N; i++)
        open[i] = sigmoid(g.at(i));
    for (uint32_t first = 0; first < samples; first += ROWS) {
        lane_row<T, S> x[ROWS] = {}, dy[ROWS] = {};
#pragma unroll
        for (int t = 0; t < ROWS; t++) {
            int64_t at = ((first + t) * a.g_rows + row) * a.c;
            if (!is_there || first + t >= samples) continue;
            x[t] = read_row<T, S>((const T *)a.x + at, a.c);
            dy[t] = read_row<T, S>((const T *)d.dy + at, a.c);
        }
#pragma unroll
        for (int t = 0; t < ROWS; t++) {
            float dx[S::N];
            row_statistics of = statistics_of<T, S>(x[t], a.c, (float)a.eps);
            adaln_grad_row<T, S>(x[t], dy[t], open, of, a.c, sum_g, sum_shift, dx);
            if (!is_there || first + t >= samples || !d.dx.data) continue;
            put_row<T, S>(d.dx, (first + t) * a.g_rows + row, a.c, dx);
        }
    }
    if (!is_there) return;
#pragma unroll
    for (int i = 0; i < S::N; i++)
        sum_g[i] *= open[i] * (1 - open[i]);
    if (d.dg.data) put_row<T, S>(d.dg, row, a.c, sum_g);
    if (d.dshift.data) put_row<T, S>(d.dshift, row, a.c, sum_shift);
}

/* -- calls */

template <typename S> static unsigned blocks_of(int64_t groups) {
    return (unsigned)divide_up(groups, NORM_WARPS * S::GROUPS);
}

template <typename T> void adaln(fm_stream *stream, const fm_adaln *a) {
    bool is_even = is_aligned(a->x) && is_aligned(a->g) && is_aligned(a->shift) &&
                   is_aligned(a->y) && is_aligned(a->update) && is_aligned(a->end) &&
                   is_aligned(a->moved);
    assert(a->rows % a->g_rows == 0);
    with_shape<T, true>(choose_norm(a->c, is_even), [=](auto shape) {
        typedef decltype(shape) S;
        keep_runs k = plain_runs(a->rows, S::ROWS);
        auto kernel = a->update ? adaln_kernel<T, S, true> : adaln_kernel<T, S, false>;
        kernel<<<blocks_of<S>(k.runs), NORM_THREADS, 0, queue(stream)>>>(*a, k);
        FM_LAUNCHED();
    });
}

template <typename T>
void adaln_grad(fm_stream *stream, const fm_adaln *a, const fm_adaln_grad *grad) {
    bool is_even = is_aligned(a->x) && is_aligned(a->g) && is_aligned(grad->dy) &&
                   is_aligned(grad->dx.data) && is_aligned(grad->dg.data) &&
                   is_aligned(grad->dshift.data);
    assert(a->rows % a->g_rows == 0 && a->rows < (int64_t)1 << 31);
    with_shape<T, true>(choose_norm(a->c, is_even), [=](auto shape) {
        typedef decltype(shape) S;
        auto kernel =
            a->rows > a->g_rows ? adaln_grad_kernel<T, S, true> : adaln_grad_kernel<T, S, false>;
        kernel<<<blocks_of<S>(a->g_rows), NORM_THREADS, 0, queue(stream)>>>(*a, *grad);
        FM_LAUNCHED();
    });
}

#define INSTANTIATE(T)                                                                             \
    template void adaln<T>(fm_stream *, const fm_adaln *);                                         \
    template void adaln_grad<T>(fm_stream *, const fm_adaln *, const fm_adaln_grad *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
