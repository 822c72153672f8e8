/* kbench_oracle.cu: the reference of kbench: naive kernels with one thread per element of the
 * output, f32 operands and sums in f64. This file has products, layer norm, gates, SwiGLU, sums,
 * dropout and the optimiser; kbench_oracle_cores.cu has the cores. Other entries are those of the
 * f32 table. They come from the same templates as the bf16 table, so they are not independent;
 * cuda_check compares them with the CPU. */
#include "tests/kbench/kbench_oracle.cuh"

namespace kbench {

using fm_cuda::each;

static size_t no_workspace(int64_t, int64_t) {
    return 0;
}

/* -- products */

static size_t gemm_workspace(const fm_gemm *) {
    return 0;
}

enum { TILE = 16 };

/* Element (i, k) of an operand whose rows are ld apart, or whose columns are where `across`. */
__device__ static double element(const float *x, int64_t ld, bool across, int64_t i, int64_t k) {
    return across ? x[k * ld + i] : x[i * ld + k];
}

/* One thread per element of C; the operands pass through tiles in shared memory. */
__global__ static void __launch_bounds__(TILE *TILE) gemm_kernel(fm_gemm g) {
    __shared__ double a[TILE][TILE + 1], b[TILE][TILE + 1]; /* [row or column][k] */
    int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    int64_t first_row = (int64_t)blockIdx.x * TILE, first_column = (int64_t)blockIdx.y * TILE;
    const float *from_a = (const float *)g.a + blockIdx.z * g.stride_a;
    const float *from_b = (const float *)g.b + blockIdx.z * g.stride_b;
    double sum = 0;
    for (int64_t k = 0; k < g.k; k += TILE) {
        /* Neighbouring threads take neighbouring addresses. */
        int i = g.trans_a ? x : y, at = g.trans_a ? y : x;
        bool is_there = first_row + i < g.m && k + at < g.k;
        a[i][at] = is_there ? element(from_a, g.lda, g.trans_a, first_row + i, k + at) : 0;
        i = g.trans_b ? y : x, at = g.trans_b ? x : y;
        is_there = first_column + i < g.n && k + at < g.k;
        b[i][at] = is_there ? element(from_b, g.ldb, !g.trans_b, first_column + i, k + at) : 0;
        __syncthreads();
        for (int step = 0; step < TILE; step++)
            sum += a[y][step] * b[x][step];
        __syncthreads();
    }
    int64_t row = first_row + y, column = first_column + x;
    if (row >= g.m || column >= g.n) return;
    int64_t at = blockIdx.z * g.stride_c + row * g.ldc + column;
    float *c = (float *)g.c + at;
    bool is_biased = g.epilogue == FM_EPILOGUE_BIAS || g.epilogue == FM_EPILOGUE_BIAS_RELU;
    sum *= g.alpha;
    if (g.beta != 0) sum += g.beta * (g.addend ? ((const float *)g.addend)[at] : *c);
    if (is_biased) sum += ((const float *)g.bias)[column];
    if (g.epilogue == FM_EPILOGUE_BIAS_RELU && sum < 0) sum = 0;
    if (g.epilogue == FM_EPILOGUE_RELU_GRAD && !(((const float *)g.relu)[at] > 0)) sum = 0;
    *c = g.c_is_acc ? (float)sum : act_of(sum);
}

static void sum(fm_stream *stream, int64_t n_a, int64_t n_r, int64_t n_c, const int64_t stride[2],
                const void *x, fm_out y, bool y_is_acc, void *);

static void gemm(fm_stream *stream, const fm_gemm *g, void *) {
    dim3 grid((unsigned)fm_cuda::divide_up(g->m, TILE), (unsigned)fm_cuda::divide_up(g->n, TILE),
              (unsigned)g->batch);
    gemm_kernel<<<grid, TILE * TILE, 0, (cudaStream_t)stream>>>(*g);
    if (!g->sum.data) return;
    bool is_weight = g->epilogue != FM_EPILOGUE_RELU_GRAD;
    const int64_t stride[2] = {0, is_weight ? g->lda : g->ldc};
    if (is_weight) {
        sum(stream, 1, g->k, g->m - g->sum_first, stride, (const float *)g->a + g->sum_first,
            g->sum, true, NULL);
    } else {
        sum(stream, 1, g->m, g->n, stride, g->c, g->sum, true, NULL);
    }
}

/* -- rows */

static void layernorm(fm_stream *stream, const fm_layernorm *args) {
    fm_layernorm a = *args;
    each(stream, a.rows, [=] __device__(int64_t r) {
        const float *x = (const float *)a.x + r * a.ldx;
        double mean = 0, square = 0;
        for (int64_t c = 0; c < a.c; c++)
            mean += x[c];
        mean /= (double)a.c;
        for (int64_t c = 0; c < a.c; c++)
            square += (x[c] - mean) * (x[c] - mean);
        ((float *)a.mean)[r] = (float)mean;
        ((float *)a.rstd)[r] = (float)(1 / sqrt(square / (double)a.c + a.eps));
    });
    each(stream, a.rows * a.c, [=] __device__(int64_t i) {
        int64_t r = i / a.c, c = i % a.c;
        double x = ((const float *)a.x)[r * a.ldx + c];
        double y = (x - ((const float *)a.mean)[r]) * ((const float *)a.rstd)[r];
        ((float *)a.y)[r * a.ldy + c] =
            act_of(y * ((const float *)a.gamma)[c] + ((const float *)a.beta)[c]);
    });
}

static void layernorm_grad(fm_stream *stream, const fm_layernorm_grad *args, void *) {
    fm_layernorm_grad g = *args;
    each(stream, g.rows * 32,
         [=] __device__(int64_t i) { /* dx: one warp per row */
                                     int64_t r = i / 32;
                                     const float *x = (const float *)g.x + r * g.ldx,
                                                 *dy = (const float *)g.dy + r * g.lddy;
                                     const float *gamma = (const float *)g.gamma;
                                     double mean = ((const float *)g.mean)[r],
                                            rstd = ((const float *)g.rstd)[r];
                                     double sum = 0, product = 0;
                                     for (int64_t c = i % 32; c < g.c; c += 32) {
                                         double d = (double)dy[c] * gamma[c];
                                         sum += d, product += d * (x[c] - mean) * rstd;
                                     }
                                     sum = fm_cuda::warp_sum(sum) / (double)g.c;
                                     product = fm_cuda::warp_sum(product) / (double)g.c;
                                     for (int64_t c = i % 32; c < g.c && g.dx.data; c += 32) {
                                         double d = (double)dy[c] * gamma[c];
                                         put_act(g.dx.data, r * g.lddx + c, g.dx.beta,
                                                 rstd * (d - sum - (x[c] - mean) * rstd * product));
                                     }
         });
    each(stream, g.c * 32,
         [=] __device__(int64_t i) { /* dgamma, dbeta: one warp per channel */
                                     int64_t c = i / 32;
                                     double dgamma = 0, dbeta = 0;
                                     for (int64_t r = i % 32; r < g.rows; r += 32) {
                                         double dy = ((const float *)g.dy)[r * g.lddy + c];
                                         double x = ((const float *)g.x)[r * g.ldx + c] -
                                                    ((const float *)g.mean)[r];
                                         dgamma += dy * x * ((const float *)g.rstd)[r], dbeta += dy;
                                     }
                                     dgamma = fm_cuda::warp_sum(dgamma),
                                     dbeta = fm_cuda::warp_sum(dbeta);
                                     if (i % 32 == 0 && g.dgamma.data) {
                                         put(g.dgamma.data, c, g.dgamma.beta, dgamma);
                                     }
                                     if (i % 32 == 0 && g.dbeta.data) {
                                         put(g.dbeta.data, c, g.dbeta.beta, dbeta);
                                     }
         });
}

/* Where the gate of row r reads x. */
__device__ static int64_t gated_row(const fm_gate &a, int64_t r) {
    return (a.x_rows ? r % a.x_rows : r) * a.ldx;
}

static void gate(fm_stream *stream, const fm_gate *args) {
    fm_gate a = *args;
    each(stream, a.rows * a.c, [=] __device__(int64_t i) {
        int64_t r = i / a.c, c = i % a.c;
        double mask = a.mask ? ((const float *)a.mask)[r] : 1;
        double s = sigmoid(((const float *)a.g)[r * a.ldg + c]);
        ((float *)a.y)[r * a.ldy + c] =
            act_of(mask * s * ((const float *)a.x)[gated_row(a, r) + c]);
    });
}

static void gate_grad(fm_stream *stream, const fm_gate *args, const fm_gate_grad *grads) {
    fm_gate a = *args;
    fm_gate_grad g = *grads;
    each(stream, a.rows * a.c, [=] __device__(int64_t i) {
        int64_t r = i / a.c, c = i % a.c;
        double dy = ((const float *)g.dy)[r * a.ldy + c];
        if (a.mask) dy *= ((const float *)a.mask)[r];
        double s = sigmoid(((const float *)a.g)[r * a.ldg + c]);
        double x = ((const float *)a.x)[gated_row(a, r) + c];
        if (g.dg.data) put_act(g.dg.data, r * a.ldg + c, g.dg.beta, dy * x * s * (1 - s));
        if (g.dx.data) put_act(g.dx.data, r * a.ldx + c, g.dx.beta, dy * s);
    });
}

static void swiglu(fm_stream *stream, const fm_swiglu *args) {
    fm_swiglu s = *args;
    each(stream, s.rows * s.c, [=] __device__(int64_t i) {
        int64_t r = i / s.c, c = i % s.c;
        const float *x = (const float *)s.x + r * s.ldx + c;
        ((float *)s.y)[r * s.ldy + c] = act_of(x[0] * sigmoid(x[0]) * x[s.c]);
    });
}

static void swiglu_grad(fm_stream *stream, const fm_swiglu *args, const void *dy, fm_out dx) {
    fm_swiglu s = *args;
    each(stream, s.rows * s.c, [=] __device__(int64_t i) {
        int64_t r = i / s.c, c = i % s.c;
        const float *x = (const float *)s.x + r * s.ldx + c;
        double a = x[0], b = x[s.c], open = sigmoid(a), d = ((const float *)dy)[r * s.ldy + c];
        int64_t at = r * s.ldx + c;
        if (s.y) ((float *)s.y)[r * s.ldy + c] = act_of(a * open * b);
        put_act(dx.data, at, dx.beta, d * b * (open + a * open * (1 - open)));
        put_act(dx.data, at + s.c, dx.beta, d * a * open);
    });
}

static size_t sum_workspace(int64_t, int64_t, int64_t) {
    return 0;
}

static void sum(fm_stream *stream, int64_t n_a, int64_t n_r, int64_t n_c, const int64_t stride[2],
                const void *x, fm_out y, bool y_is_acc, void *) {
    int64_t stride_a = stride[0], stride_r = stride[1];
    each(stream, n_a * n_c * 32, [=] __device__(int64_t i) {
        int64_t a = i / 32 / n_c, c = i / 32 % n_c;
        double total = 0;
        for (int64_t r = i % 32; r < n_r; r += 32)
            total += ((const float *)x)[a * stride_a + r * stride_r + c];
        total = fm_cuda::warp_sum(total);
        if (i % 32 != 0) return;
        if (y_is_acc) put(y.data, a * n_c + c, y.beta, total);
        if (!y_is_acc) put_act(y.data, a * n_c + c, y.beta, total);
    });
}

/* -- dropout */

static void dropout_any(fm_stream *stream, const fm_dropout *args, const float *residual,
                        const float *x, fm_out y) {
    fm_dropout d = *args;
    each(stream, d.n0 * d.n1 * d.c, [=] __device__(int64_t index) {
        int64_t k = index % d.c, j = index / d.c % d.n1, i = index / d.c / d.n1;
        uint64_t draw =
            fm_dropout_index(d.shared, (uint64_t)(d.offset0 + i), (uint64_t)(d.offset1 + j),
                             (uint64_t)k, (uint64_t)d.global_n1, (uint64_t)d.c);
        bool drops = d.rate > 0 && fm_draw_word(&d.draw, draw) < d.rate * 4294967296.0;
        double value = drops ? 0 : x[index] / (1 - d.rate);
        put_act(y.data, index, y.beta, residual ? residual[index] + value : value);
    });
}

static void dropout(fm_stream *stream, const fm_dropout *d, const void *residual, const void *x,
                    void *y) {
    dropout_any(stream, d, (const float *)residual, (const float *)x, {y, FM_WRITE});
}

static void dropout_grad(fm_stream *stream, const fm_dropout *d, const void *dy, fm_out dx) {
    dropout_any(stream, d, NULL, (const float *)dy, dx);
}

/* -- optimiser */

/* One block: slow, and the only naive kernel without one thread per element. */
__global__ static void __launch_bounds__(1024)
    norm_kernel(int64_t n, const float *grad, double max_norm, bool is_sum, fm_step_state *state) {
    __shared__ double space[32];
    double total = 0;
    for (int64_t i = threadIdx.x; i < n; i += 1024)
        total += (double)grad[i] * grad[i];
    total = fm_cuda::block_sum(total, space);
    if (threadIdx.x > 0) return;
    double most = is_sum ? max_norm * (state->pending + 1.0) : max_norm;
    state->norm_squared = total;
    state->clip_scale = isfinite(total) ? fmin(1.0, most / (sqrt(total) + 1e-6)) : 0;
    if (!isfinite(total)) state->nonfinite = 1;
}

static size_t grad_norm_workspace(int64_t) {
    return 0;
}

static void grad_norm(fm_stream *stream, int64_t n, const void *grad, double max_norm, bool is_sum,
                      fm_step_state *state, void *) {
    norm_kernel<<<1, 1024, 0, (cudaStream_t)stream>>>(n, (const float *)grad, max_norm, is_sum,
                                                      state);
}

static void adam(fm_stream *stream, const fm_adam *args) {
    fm_adam a = *args;
    each(stream, a.n, [=] __device__(int64_t i) {
        const fm_step_state *s = a.state;
        if (s->nonfinite || s->holds) return;
        bool only = a.only && !s->pending;
        double g = ((const float *)(only ? a.only : a.grad))[i] * a.grad_scale / (s->pending + 1.0);
        if (only || a.clip) g *= s->clip_scale;
        float *m = (float *)a.m + i, *v = (float *)a.v + i, *p = (float *)a.param + i;
        g += a.l2 * *p;
        *m = (float)(a.beta1 * *m + (1 - a.beta1) * g);
        *v = (float)(a.beta2 * *v + (1 - a.beta2) * g * g);
        double m_hat = *m / (1 - pow(a.beta1, (double)s->step));
        double v_hat = *v / (1 - pow(a.beta2, (double)s->step));
        *p = (float)(*p - s->lr * m_hat / (sqrt(v_hat) + a.eps));
        float *ema = (float *)a.ema + i;
        if (a.ema) *ema = (float)(a.ema_decay * *ema + (1 - a.ema_decay) * *p);
        if (a.copy) ((float *)a.copy)[i] = act_of(*p);
    });
}

void oracle_rounds(bool on) {
    set_rounds(on);
    cores_round(on);
}

const fm_kernels *oracle_table(void) {
    static fm_kernels table;
    if (table.name) return &table;
    table = *f32_table();
    table.name = "oracle";
    table.gemm_workspace = gemm_workspace, table.gemm = gemm;
    table.layernorm = layernorm;
    table.layernorm_grad_workspace = no_workspace, table.layernorm_grad = layernorm_grad;
    table.gate = gate, table.gate_grad = gate_grad;
    table.swiglu = swiglu, table.swiglu_grad = swiglu_grad;
    table.sum_workspace = sum_workspace, table.sum = sum;
    table.dropout = dropout, table.dropout_grad = dropout_grad;
    table.grad_norm_workspace = grad_norm_workspace, table.grad_norm = grad_norm;
    table.adam = adam;
    oracle_cores(&table);
    return &table;
}

} // namespace kbench
