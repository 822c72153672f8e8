/* norm.cu: layer normalisation, alone (layernorm) and as the end of one sublayer with the beginning
 * of the next (update_norm: residual + dropout + LayerNorm), forward and backward.
 *
 * norm_row.cuh describes how a warp holds rows. Rows that share a dropout mask are taken together
 * (keep.cuh).
 *
 * Backward has one block per multiprocessor, which walks over its rows and loads the next ones
 * while it computes. Each lane sums dgamma and dbeta of its channels. The sums of a block's warps
 * are added in order, and sums.cu adds the sums of the blocks in order. */
#include "trainer/backend/cuda/core/early.cuh"
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/norm/norm.cuh"
#include "trainer/backend/cuda/norm/norm_row.cuh"

namespace fm_cuda {

enum { NORM_SLICES = 32 };

/* -- forward */

template <typename T, typename S>
__global__ void __launch_bounds__(NORM_THREADS) layernorm_kernel(fm_layernorm a, keep_runs k) {
    wait_for_previous();
    uint32_t group = first_group<S>(NORM_WARPS);
    keep_run run = {};
    if (group < k.runs) run = keep_run_at(k, group, S::ROWS);
    lane_row<T, S> x[S::ROWS], gamma = read_weights<T, S>(a.gamma, a.c, 1),
                               beta = read_weights<T, S>(a.beta, a.c, 0);
#pragma unroll
    for (int t = 0; t < S::ROWS; t++) {
        int64_t r = t < run.count ? run.row + t * run.step : 0;
        x[t] = read_row<T, S>((const T *)a.x + r * a.ldx, a.c);
    }
#pragma unroll
    for (int t = 0; t < S::ROWS; t++) {
        int64_t r = run.row + t * run.step;
        row_statistics of = statistics_of<T, S>(x[t], a.c, (float)a.eps);
        if (t >= run.count) continue;
        write_row<T, S>((T *)a.y + r * a.ldy, a.c, normalised<T, S>(x[t], of, gamma, beta));
        if (threadIdx.x % S::LANES == 0 && a.mean) ((float *)a.mean)[r] = of.mean;
        if (threadIdx.x % S::LANES == 0 && a.rstd) ((float *)a.rstd)[r] = of.rstd;
    }
}

/* A bit for each of this lane's channels, 1 where the channel is kept. */
template <typename S>
__device__ inline uint32_t lane_bits(const fm_dropout &d, const keep_runs &k, const keep_run &run,
                                     uint32_t row) {
    uint32_t bits = 0;
    uint64_t draw = keep_draw(d, k, run, row);
#pragma unroll
    for (int p = 0; p < S::PARTS; p++)
        if (is_inside<S>(p * S::V, d.c)) {
            bits |= keep_bits<S::V>(d, k, draw + channel_of<S>(p * S::V)) << (p * S::V);
        }
    return bits;
}

template <typename T, typename S>
__global__ void __launch_bounds__(NORM_THREADS)
    update_norm_kernel(fm_update_norm a, keep_runs k, const T *residual, const T *x, T *y, T *n) {
    wait_for_previous();
    const fm_dropout &d = a.dropout;
    uint32_t group = first_group<S>(NORM_WARPS);
    keep_run run = {};
    if (group < k.lines * k.runs) run = keep_run_at(k, group, S::ROWS);
    lane_row<T, S> in[S::ROWS], old[S::ROWS];
#pragma unroll
    for (int t = 0; t < S::ROWS; t++) {
        int64_t at = t < run.count ? (run.row + t * run.step) * d.c : 0;
        in[t] = read_row<T, S>(x + at, d.c);
        old[t] = read_row<T, S>(residual + at, d.c);
    }
    lane_row<T, S> gamma = read_row<T, S>((const T *)a.gamma, d.c),
                   beta = read_row<T, S>((const T *)a.beta, d.c);
    uint32_t bits = ~0u;
    if (k.is_shared) bits = lane_bits<S>(d, k, run, run.row);
#pragma unroll
    for (int t = 0; t < S::ROWS; t++) {
        uint32_t row = run.row + t * run.step;
        if (k.is_drawn && !k.is_shared) bits = lane_bits<S>(d, k, run, row);
        float value[S::N];
#pragma unroll
        for (int i = 0; i < S::N; i++)
            value[i] = keep_factor(k, bits, i) * in[t].at(i) + old[t].at(i);
        lane_row<T, S> sum = lane_row<T, S>::of(value);
        row_statistics of = statistics_of<T, S>(sum, d.c, (float)a.eps);
        if (t >= run.count) continue;
        write_row<T, S>(y + row * d.c, d.c, sum);
        write_row<T, S>(n + row * d.c, d.c, normalised<T, S>(sum, of, gamma, beta));
    }
}

/* -- backward */

/* A lane's sums of dgamma and dbeta. */
template <typename S> struct lane_sums { float gamma[S::N], beta[S::N]; };

/* The gradient of a row's x from that of y. Also adds to the sums; a row of zeros adds nothing. */
template <typename T, typename S>
__device__ inline void norm_grad_row(const lane_row<T, S> &x, const lane_row<T, S> &dy,
                                     const lane_row<T, S> &gamma, row_statistics of, int64_t c,
                                     lane_sums<S> &sums, float *dx) {
    float hat[S::N], sum_dy = 0, sum_hat = 0, inverse = 1.0f / (float)c;
#pragma unroll
    for (int i = 0; i < S::N; i++) {
        float up = dy.at(i);
        hat[i] = (x.at(i) - of.mean) * of.rstd;
        sums.gamma[i] += up * hat[i];
        sums.beta[i] += up;
        dx[i] = up * gamma.at(i);
        sum_dy += dx[i];
        sum_hat += dx[i] * hat[i];
    }
    sum_dy = row_sum<S>(sum_dy) * inverse;
    sum_hat = row_sum<S>(sum_hat) * inverse;
#pragma unroll
    for (int i = 0; i < S::N; i++)
        dx[i] = of.rstd * (dx[i] - sum_dy - hat[i] * sum_hat);
}

/* Writes the block's sums of dgamma and dbeta to partial [blocks, 2, c]. Warps w, w + SLOTS, ...
 * add to slot w in turn; then the slots are added in order. */
template <typename S>
__device__ inline void leave_sums(lane_sums<S> &sums, int64_t c, float *partial) {
    __shared__ float total[S::SLOTS][2][S::WIDTH];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < S::N; i++) {
#pragma unroll
        for (int step = S::LANES; step < 32; step *= 2) {
            sums.gamma[i] += __shfl_xor_sync(0xffffffffu, sums.gamma[i], step);
            sums.beta[i] += __shfl_xor_sync(0xffffffffu, sums.beta[i], step);
        }
    }
    float *gamma = total[warp % S::SLOTS][0], *beta = total[warp % S::SLOTS][1];
    for (int turn = 0; turn < S::GRAD_WARPS / S::SLOTS; turn++) {
        if (turn == warp / S::SLOTS && lane < S::LANES) {
#pragma unroll
            for (int i = 0; i < S::N; i++) {
                int at = channel_of<S>(i);
                gamma[at] = turn ? gamma[at] + sums.gamma[i] : sums.gamma[i];
                beta[at] = turn ? beta[at] + sums.beta[i] : sums.beta[i];
            }
        }
        __syncthreads();
    }
    for (int64_t i = threadIdx.x; i < 2 * c; i += S::GRAD_WARPS * 32) {
        int which = i >= c, at = (int)(which ? i - c : i);
        float sum = total[0][which][at];
#pragma unroll
        for (int slot = 1; slot < S::SLOTS; slot++)
            sum += total[slot][which][at];
        partial[blockIdx.x * 2 * c + i] = sum;
    }
}

/* The rows of a run while they are loaded; rows beyond its end are zeros. */
template <typename T, typename S> struct grad_rows {
    keep_run run;
    lane_row<T, S> x[S::GRAD_ROWS], dy[S::GRAD_ROWS], old[S::GRAD_ROWS];
    row_statistics of[S::GRAD_ROWS];
};

template <typename T, typename S>
__device__ inline grad_rows<T, S> fetch(const fm_layernorm_grad &a, const keep_runs &k,
                                        uint32_t group) {
    grad_rows<T, S> rows = {};
    if (group < k.lines * k.runs) rows.run = keep_run_at(k, group, S::GRAD_ROWS);
#pragma unroll
    for (int t = 0; t < S::GRAD_ROWS; t++) {
        int64_t r = rows.run.row + t * rows.run.step;
        if (t >= rows.run.count) continue;
        rows.x[t] = read_row<T, S>((const T *)a.x + r * a.ldx, a.c);
        rows.dy[t] = read_row<T, S>((const T *)a.dy + r * a.lddy, a.c);
        if (a.dx.data && a.dx.beta == FM_ADD) {
            rows.old[t] = read_row<T, S>((const T *)a.dx.data + r * a.lddx, a.c);
        }
        if (a.mean) rows.of[t] = {((const float *)a.mean)[r], ((const float *)a.rstd)[r]};
    }
    return rows;
}

/* dx of row t plus the old content of its place. */
template <typename T, typename S>
__device__ inline lane_row<T, S> add_old(const grad_rows<T, S> &rows, int t, float *dx) {
#pragma unroll
    for (int i = 0; i < S::N; i++)
        dx[i] += rows.old[t].at(i);
    return lane_row<T, S>::of(dx);
}

template <typename T, typename S>
__global__ void __launch_bounds__(S::GRAD_WARPS * 32, 1)
    layernorm_grad_kernel(fm_layernorm_grad a, keep_runs k, float *partial) {
    wait_for_previous();
    lane_row<T, S> gamma = read_weights<T, S>(a.gamma, a.c, 1);
    lane_sums<S> sums = {};
    uint32_t stride = gridDim.x * S::GRAD_WARPS * S::GROUPS, group = first_group<S>(S::GRAD_WARPS);
    uint32_t warp = group - threadIdx.x % 32 / S::LANES;
    grad_rows<T, S> rows = fetch<T, S>(a, k, group), next;
    for (; warp < k.runs; warp += stride) {
        group += stride;
        if (!S::IS_ANY) next = fetch<T, S>(a, k, group);
#pragma unroll
        for (int t = 0; t < S::GRAD_ROWS; t++) {
            int64_t r = rows.run.row + t * rows.run.step;
            float dx[S::N];
            row_statistics of = rows.of[t];
            if (!a.mean) of = statistics_of<T, S>(rows.x[t], a.c, (float)a.eps);
            norm_grad_row<T, S>(rows.x[t], rows.dy[t], gamma, of, a.c, sums, dx);
            if (t < rows.run.count && a.dx.data) {
                write_row<T, S>((T *)a.dx.data + r * a.lddx, a.c, add_old<T, S>(rows, t, dx));
            }
        }
        rows = S::IS_ANY ? fetch<T, S>(a, k, group) : next;
    }
    let_next_begin();
    if (partial) leave_sums<S>(sums, a.c, partial);
}

template <typename T, typename S>
__global__ void __launch_bounds__(S::GRAD_WARPS * 32, 1)
    update_norm_grad_kernel(fm_update_norm a, fm_update_norm_grad g, keep_runs k, float *partial) {
    wait_for_previous();
    const fm_dropout &d = a.dropout;
    lane_row<T, S> gamma = read_row<T, S>((const T *)a.gamma, d.c);
    lane_sums<S> sums = {};
    const fm_layernorm_grad norm = {0, d.c, d.c, d.c, d.c, g.y, NULL, g.dn, NULL, NULL, g.dy};
    uint32_t stride = gridDim.x * S::GRAD_WARPS * S::GROUPS, group = first_group<S>(S::GRAD_WARPS);
    uint32_t warp = group - threadIdx.x % 32 / S::LANES;
    grad_rows<T, S> rows = fetch<T, S>(norm, k, group), next;
    for (; warp < k.lines * k.runs; warp += stride) {
        group += stride;
        if (!S::IS_ANY) next = fetch<T, S>(norm, k, group);
        uint32_t bits = ~0u;
        if (k.is_shared && g.dupdate) bits = lane_bits<S>(d, k, rows.run, rows.run.row);
#pragma unroll
        for (int t = 0; t < S::GRAD_ROWS; t++) {
            float dx[S::N];
            row_statistics of = statistics_of<T, S>(rows.x[t], d.c, (float)a.eps);
            norm_grad_row<T, S>(rows.x[t], rows.dy[t], gamma, of, d.c, sums, dx);
            if (t >= rows.run.count) continue;
            uint32_t row = rows.run.row + t * rows.run.step;
            lane_row<T, S> total = add_old<T, S>(rows, t, dx);
            write_row<T, S>((T *)g.dy.data + row * d.c, d.c, total);
            if (!g.dupdate) continue;
            if (k.is_drawn && !k.is_shared) bits = lane_bits<S>(d, k, rows.run, row);
#pragma unroll
            for (int i = 0; i < S::N; i++)
                dx[i] = keep_factor(k, bits, i) * total.at(i);
            write_row<T, S>((T *)g.dupdate + row * d.c, d.c, lane_row<T, S>::of(dx));
        }
        rows = S::IS_ANY ? fetch<T, S>(norm, k, group) : next;
    }
    let_next_begin();
    if (partial) leave_sums<S>(sums, d.c, partial);
}

/* -- launches */

template <typename S> static unsigned blocks_of(const keep_runs &k) {
    return (unsigned)divide_up((int64_t)k.lines * k.runs, NORM_WARPS * S::GROUPS);
}
template <typename S> static unsigned grad_blocks_of(const keep_runs &k) {
    int64_t wanted = divide_up((int64_t)k.lines * k.runs, S::GRAD_WARPS * S::GROUPS);
    return (unsigned)min_size(wanted, n_multiprocessor());
}

/* The partial sums of the largest possible number of blocks, for every path. */
size_t layernorm_grad_workspace(int64_t rows, int64_t c) {
    (void)rows;
    return (size_t)(n_multiprocessor() * 2 * c) * sizeof(float);
}

size_t update_norm_grad_workspace(int64_t rows, int64_t c) {
    return layernorm_grad_workspace(rows, c);
}

partial_sums norm_sums(int64_t count, int64_t c, fm_out dgamma, fm_out dbeta) {
    partial_sums s = {};
    s.stride = 2 * c, s.count = (int)count, s.slices = NORM_SLICES;
    s.target[0] = {dgamma.data, c, 0, dgamma.beta, false};
    s.target[1] = {dbeta.data, c, 0, dbeta.beta, false};
    return s;
}

template <typename T> void layernorm(fm_stream *stream, const fm_layernorm *a) {
    bool is_even = is_aligned(a->x) && is_aligned(a->y) && is_aligned(a->gamma) &&
                   is_aligned(a->beta) && is_whole<T>(a->ldx) && is_whole<T>(a->ldy);
    if (a->rows == 0) return;
    with_shape<T, true>(choose_norm(a->c, is_even), [=](auto shape) {
        typedef decltype(shape) S;
        keep_runs k = plain_runs(a->rows, S::ROWS);
        launch_after(stream, layernorm_kernel<T, S>, blocks_of<S>(k), NORM_THREADS, 0, true, *a, k);
        FM_LAUNCHED();
    });
}

template <typename T>
void layernorm_grad(fm_stream *stream, const fm_layernorm_grad *a, void *workspace) {
    bool has_sums = a->dgamma.data || a->dbeta.data;
    bool is_even = is_aligned(a->x) && is_aligned(a->dy) && is_aligned(a->gamma) &&
                   is_aligned(a->dx.data) && is_whole<T>(a->ldx) && is_whole<T>(a->lddy) &&
                   is_whole<T>(a->lddx);
    with_shape<T, true>(choose_norm(a->c, is_even), [=](auto shape) {
        typedef decltype(shape) S;
        keep_runs k = plain_runs(a->rows, S::GRAD_ROWS);
        unsigned blocks = grad_blocks_of<S>(k);
        partial_sums sums = norm_sums(blocks, a->c, a->dgamma, a->dbeta);
        size_t bytes = layernorm_grad_workspace(a->rows, a->c);
        float *partial = has_sums ? sums_place(stream, sums, bytes, workspace) : NULL;
        if (blocks > 0) {
            launch_after(stream, layernorm_grad_kernel<T, S>, blocks, S::GRAD_WARPS * 32, 0, true,
                         *a, k, partial);
            FM_LAUNCHED();
        }
        sums.partial = partial;
        if (has_sums) end_sums(stream, sums);
    });
}

template <typename T>
void update_norm(fm_stream *stream, const fm_update_norm *a, const void *residual, const void *x,
                 void *y, void *n) {
    bool is_even = is_aligned(residual) && is_aligned(x) && is_aligned(y) && is_aligned(n) &&
                   is_aligned(a->gamma) && is_aligned(a->beta);
    with_shape<T, false>(choose_norm(a->dropout.c, is_even), [=](auto shape) {
        typedef decltype(shape) S;
        keep_runs k = keep_runs_of(a->dropout, S::ROWS);
        if (k.lines * k.runs == 0) return;
        launch_after(stream, update_norm_kernel<T, S>, blocks_of<S>(k), NORM_THREADS, 0, true, *a,
                     k, (const T *)residual, (const T *)x, (T *)y, (T *)n);
        FM_LAUNCHED();
    });
}

template <typename T>
void update_norm_grad(fm_stream *stream, const fm_update_norm *a, const fm_update_norm_grad *g,
                      void *workspace) {
    bool has_sums = g->dgamma.data || g->dbeta.data;
    bool is_even = is_aligned(g->y) && is_aligned(g->dn) && is_aligned(g->dy.data) &&
                   is_aligned(g->dupdate) && is_aligned(a->gamma);
    with_shape<T, false>(choose_norm(a->dropout.c, is_even), [=](auto shape) {
        typedef decltype(shape) S;
        keep_runs k = keep_runs_of(a->dropout, S::GRAD_ROWS);
        unsigned blocks = grad_blocks_of<S>(k);
        partial_sums sums = norm_sums(blocks, a->dropout.c, g->dgamma, g->dbeta);
        size_t bytes = layernorm_grad_workspace(0, a->dropout.c);
        float *partial = has_sums ? sums_place(stream, sums, bytes, workspace) : NULL;
        if (blocks > 0) {
            launch_after(stream, update_norm_grad_kernel<T, S>, blocks, S::GRAD_WARPS * 32, 0, true,
                         *a, *g, k, partial);
            FM_LAUNCHED();
        }
        sums.partial = partial;
        if (has_sums) end_sums(stream, sums);
    });
}

#define INSTANTIATE(T)                                                                             \
    template void layernorm<T>(fm_stream *, const fm_layernorm *);                                 \
    template void layernorm_grad<T>(fm_stream *, const fm_layernorm_grad *, void *);               \
    template void update_norm<T>(fm_stream *, const fm_update_norm *, const void *, const void *,  \
                                 void *, void *);                                                  \
    template void update_norm_grad<T>(fm_stream *, const fm_update_norm *,                         \
                                      const fm_update_norm_grad *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
