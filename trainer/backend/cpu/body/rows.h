/* body/rows.h: layer normalisation, and kernels on rows or single elements. */
#include "trainer/backend/cpu/body/real.h"

/* Writes x - mean to `centred`. */
static void row_statistics(const real *restrict x, int64_t c, double eps, real *restrict centred,
                           real *mean, real *rstd) {
    *mean = (real)(sum_of(x, c) / (double)c);
    for (int64_t i = 0; i < c; i++)
        centred[i] = x[i] - *mean;
    real variance = (real)(dot_product(centred, centred, c) / (double)c);
    *rstd = (real)1 / REAL_SQRT(variance + (real)eps);
}

static void layernorm(fm_stream *stream, const fm_layernorm *a) {
    (void)stream;
    const real *gamma = a->gamma, *beta = a->beta;
    for (int64_t r = 0; r < a->rows; r++) {
        real *restrict y = (real *)a->y + r * a->ldy;
        real mean, rstd;
        row_statistics((const real *)a->x + r * a->ldx, a->c, a->eps, y, &mean, &rstd);
        for (int64_t i = 0; i < a->c; i++)
            y[i] = y[i] * rstd * (gamma ? gamma[i] : 1) + (beta ? beta[i] : 0);
        if (a->mean) ((real *)a->mean)[r] = mean;
        if (a->rstd) ((real *)a->rstd)[r] = rstd;
    }
}

/* Rows of one partial sum of dgamma and dbeta. */
enum { LAYERNORM_BLOCK = 128 };

static size_t layernorm_grad_workspace(int64_t rows, int64_t c) {
    int64_t blocks = (rows + LAYERNORM_BLOCK - 1) / LAYERNORM_BLOCK;
    return (size_t)(blocks * 2 * c) * sizeof(double) + (size_t)(2 * c) * sizeof(real);
}

/* dx of one row. hat and wdy are scratch of c elements; hat keeps the normalised row. */
static void layernorm_grad_row(const fm_layernorm_grad *a, int64_t r, real *restrict hat,
                               real *restrict wdy) {
    const real *restrict x = (const real *)a->x + r * a->ldx, *restrict gamma = a->gamma;
    const real *restrict dy = (const real *)a->dy + r * a->lddy;
    real mean, rstd;
    if (a->mean) {
        mean = ((const real *)a->mean)[r], rstd = ((const real *)a->rstd)[r];
    } else {
        row_statistics(x, a->c, a->eps, hat, &mean, &rstd);
    }
    for (int64_t i = 0; i < a->c; i++)
        hat[i] = (x[i] - mean) * rstd;
    if (!a->dx.data) return;
    for (int64_t i = 0; i < a->c; i++)
        wdy[i] = gamma ? dy[i] * gamma[i] : dy[i];
    real mean_wdy = (real)(sum_of(wdy, a->c) / (double)a->c);
    real mean_hat = (real)(dot_product(wdy, hat, a->c) / (double)a->c);
    for (int64_t i = 0; i < a->c; i++)
        wdy[i] = rstd * (wdy[i] - mean_wdy - hat[i] * mean_hat);
    put_row((real *)a->dx.data + r * a->lddx, a->dx.beta, wdy, a->c);
}

/* Adds the partial sums of the blocks, 2c elements apart, in order. */
static void layernorm_grad_finish(const double *partial, int64_t blocks, int64_t c, fm_out out) {
    if (!out.data) return;
    for (int64_t i = 0; i < c; i++) {
        double total = 0;
        for (int64_t block = 0; block < blocks; block++)
            total += partial[block * 2 * c + i];
        put((real *)out.data + i, out.beta, (real)total);
    }
}

static void layernorm_grad(fm_stream *stream, const fm_layernorm_grad *a, void *workspace) {
    (void)stream;
    int64_t c = a->c, blocks = (a->rows + LAYERNORM_BLOCK - 1) / LAYERNORM_BLOCK;
    double *partial = workspace;
    real *hat = (real *)(partial + blocks * 2 * c), *wdy = hat + c;
    for (int64_t block = 0; block < blocks; block++) {
        double *restrict dgamma = partial + block * 2 * c, *restrict dbeta = dgamma + c;
        for (int64_t i = 0; i < 2 * c; i++)
            dgamma[i] = 0;
        int64_t end = min_size(a->rows, (block + 1) * LAYERNORM_BLOCK);
        for (int64_t r = block * LAYERNORM_BLOCK; r < end; r++) {
            const real *dy = (const real *)a->dy + r * a->lddy;
            layernorm_grad_row(a, r, hat, wdy);
            for (int64_t i = 0; i < c; i++)
                dgamma[i] += (double)dy[i] * (double)hat[i];
            for (int64_t i = 0; i < c; i++)
                dbeta[i] += (double)dy[i];
        }
    }
    layernorm_grad_finish(partial, blocks, c, a->dgamma);
    layernorm_grad_finish(partial + c, blocks, c, a->dbeta);
}

static void bias_add(fm_stream *stream, int64_t rows, int64_t c, const void *x, const void *bias,
                     void *y) {
    (void)stream;
    const real *row_bias = bias;
    for (int64_t r = 0; r < rows; r++) {
        const real *in = (const real *)x + r * c;
        real *out = (real *)y + r * c;
        for (int64_t i = 0; i < c; i++)
            out[i] = in[i] + row_bias[i];
    }
}

static void relu(fm_stream *stream, int64_t n, const void *x, void *y) {
    (void)stream;
    const real *in = x;
    real *out = y;
    for (int64_t i = 0; i < n; i++)
        out[i] = in[i] < 0 ? 0 : in[i]; /* NaN stays NaN */
}

static void relu_grad(fm_stream *stream, int64_t n, const void *y, const void *dy, fm_out dx) {
    (void)stream;
    const real *out = y, *up = dy;
    real *down = dx.data;
    if (dx.beta == FM_ADD) {
        for (int64_t i = 0; i < n; i++)
            down[i] += out[i] > 0 ? up[i] : 0;
    } else {
        for (int64_t i = 0; i < n; i++)
            down[i] = out[i] > 0 ? up[i] : 0;
    }
}

/* The row of x that row r reads. */
static const real *gate_operand(const fm_gate *a, int64_t r) {
    return (const real *)a->x + (a->x_rows ? r % a->x_rows : r) * a->ldx;
}

static void gate(fm_stream *stream, const fm_gate *a) {
    (void)stream;
    const real *mask = a->mask;
    for (int64_t r = 0; r < a->rows; r++) {
        const real *g = (const real *)a->g + r * a->ldg, *x = gate_operand(a, r);
        real *y = (real *)a->y + r * a->ldy, factor = mask ? mask[r] : 1;
        for (int64_t i = 0; i < a->c; i++)
            y[i] = factor * sigmoid(g[i]) * x[i];
    }
}

static void gate_grad(fm_stream *stream, const fm_gate *a, const fm_gate_grad *grad) {
    (void)stream;
    const real *mask = a->mask;
    for (int64_t r = 0; r < a->rows; r++) {
        const real *g = (const real *)a->g + r * a->ldg, *x = gate_operand(a, r);
        const real *dy = (const real *)grad->dy + r * a->ldy;
        real factor = mask ? mask[r] : 1;
        real *dg = (real *)grad->dg.data + (grad->dg.data ? r * a->ldg : 0);
        real *dx = (real *)grad->dx.data + (grad->dx.data ? r * a->ldx : 0);
        if (grad->dg.data) {
            for (int64_t i = 0; i < a->c; i++) {
                real s = sigmoid(g[i]);
                put(&dg[i], grad->dg.beta, factor * dy[i] * x[i] * s * ((real)1 - s));
            }
        }
        if (grad->dx.data) {
            for (int64_t i = 0; i < a->c; i++)
                put(&dx[i], grad->dx.beta, factor * dy[i] * sigmoid(g[i]));
        }
    }
}

static void swiglu(fm_stream *stream, const fm_swiglu *args) {
    (void)stream;
    for (int64_t r = 0; r < args->rows; r++) {
        const real *a = (const real *)args->x + r * args->ldx, *b = a + args->c;
        real *y = (real *)args->y + r * args->ldy;
        for (int64_t i = 0; i < args->c; i++)
            y[i] = a[i] * sigmoid(a[i]) * b[i]; /* AF3-11:4 */
    }
}

static void swiglu_grad(fm_stream *stream, const fm_swiglu *args, const void *dy, fm_out dx) {
    (void)stream;
    for (int64_t r = 0; r < args->rows; r++) {
        const real *a = (const real *)args->x + r * args->ldx, *b = a + args->c;
        const real *up = (const real *)dy + r * args->ldy;
        real *da = (real *)dx.data + r * args->ldx, *db = da + args->c;
        real *y = (real *)args->y + (args->y ? r * args->ldy : 0);
        for (int64_t i = 0; i < args->c; i++) {
            real s = sigmoid(a[i]), swish = a[i] * s, d = up[i];
            put(&da[i], dx.beta, d * b[i] * (s + swish * ((real)1 - s)));
            put(&db[i], dx.beta, d * swish);
            if (args->y) y[i] = swish * b[i];
        }
    }
}

static void scale_rows(fm_stream *stream, int64_t rows, int64_t c, int64_t ldx, int64_t ldy,
                       const void *scale, const void *x, fm_out y) {
    (void)stream;
    for (int64_t r = 0; r < rows; r++) {
        const real *in = (const real *)x + r * ldx;
        real *out = (real *)y.data + r * ldy, factor = ((const real *)scale)[r];
        for (int64_t i = 0; i < c; i++)
            put(&out[i], y.beta, factor * in[i]);
    }
}

/* Sums a strip of channels at a time, over the rows in order, in double. */
static void masked_mean_strip(const fm_masked_mean *a, int64_t r, int64_t first, int64_t width,
                              double norm, real *y) {
    enum { STRIP = 64 };
    double total[STRIP] = {0};
    const real *mask = a->mask;
    for (int64_t s = 0; s < a->n_s; s++) {
        const real *x = (const real *)a->x + (s * a->n_r + r) * a->c + first;
        double factor = (double)mask[s * a->n_r + r];
        for (int64_t c = 0; c < width; c++)
            total[c] += factor * (double)x[c];
    }
    for (int64_t c = 0; c < width; c++)
        y[c] = (real)(total[c] / norm);
}

/* eps + the sum of the mask over s. */
static double masked_mean_norm(const fm_masked_mean *a, int64_t r) {
    double norm = a->eps;
    for (int64_t s = 0; s < a->n_s; s++)
        norm += (double)((const real *)a->mask)[s * a->n_r + r];
    return norm;
}

static void masked_mean(fm_stream *stream, const fm_masked_mean *a, void *y) {
    (void)stream;
    for (int64_t r = 0; r < a->n_r; r++) {
        double norm = masked_mean_norm(a, r);
        for (int64_t c = 0; c < a->c; c += 64)
            masked_mean_strip(a, r, c, min_size(64, a->c - c), norm, (real *)y + r * a->c + c);
    }
}

static void masked_mean_grad(fm_stream *stream, const fm_masked_mean *a, const void *dy,
                             fm_out dx) {
    (void)stream;
    for (int64_t r = 0; r < a->n_r; r++) {
        double norm = masked_mean_norm(a, r);
        const real *up = (const real *)dy + r * a->c;
        for (int64_t s = 0; s < a->n_s; s++) {
            int64_t row = s * a->n_r + r;
            real *d = (real *)dx.data + row * a->c;
            real factor = (real)((double)((const real *)a->mask)[row] / norm);
            for (int64_t c = 0; c < a->c; c++)
                put(&d[c], dx.beta, factor * up[c]);
        }
    }
}
