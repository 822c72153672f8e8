/* body/atoms.h: kernels that gather and sum rows by token, handle pairs of atoms in windows, and
 * modulate by a conditioning signal. */
#include "trainer/backend/cpu/body/real.h"

static void modulate(fm_stream *stream, const fm_modulate *a) {
    (void)stream;
    assert(a->g_rows > 0 && a->rows % a->g_rows == 0);
    for (int64_t r = 0; r < a->rows; r++) {
        const real *g = (const real *)a->g + r % a->g_rows * a->c;
        const real *x = (const real *)a->x + r * a->c;
        const real *shift = a->shift ? (const real *)a->shift + r % a->g_rows * a->c : NULL;
        const real *residual = a->residual ? (const real *)a->residual + r * a->c : NULL;
        real *y = (real *)a->y + r * a->c;
        for (int64_t i = 0; i < a->c; i++)
            y[i] = (residual ? residual[i] : 0) + sigmoid(g[i]) * x[i] + (shift ? shift[i] : 0);
    }
}

/* The gradients of one row of g and of shift: sums over the rows that read it, in order. */
static void modulate_grad_shared(const fm_modulate *a, const fm_modulate_grad *grad, int64_t row) {
    const real *g = (const real *)a->g + row * a->c;
    for (int64_t i = 0; i < a->c; i++) {
        double dg = 0, dshift = 0;
        for (int64_t r = row; r < a->rows; r += a->g_rows) {
            double dy = (double)((const real *)grad->dy)[r * a->c + i];
            dg += dy * (double)((const real *)a->x)[r * a->c + i];
            dshift += dy;
        }
        real s = sigmoid(g[i]);
        int64_t at = row * a->c + i;
        if (grad->dg.data) put((real *)grad->dg.data + at, grad->dg.beta, (real)dg * s * (1 - s));
        if (grad->dshift.data) put((real *)grad->dshift.data + at, grad->dshift.beta, (real)dshift);
    }
}

static void modulate_grad(fm_stream *stream, const fm_modulate *a, const fm_modulate_grad *grad) {
    (void)stream;
    if (grad->dg.data || grad->dshift.data) {
        for (int64_t row = 0; row < a->g_rows; row++)
            modulate_grad_shared(a, grad, row);
    }
    for (int64_t r = 0; r < a->rows && grad->dx.data; r++) {
        const real *g = (const real *)a->g + r % a->g_rows * a->c;
        const real *dy = (const real *)grad->dy + r * a->c;
        real *dx = (real *)grad->dx.data + r * a->c;
        for (int64_t i = 0; i < a->c; i++)
            put(&dx[i], grad->dx.beta, sigmoid(g[i]) * dy[i]);
    }
}

/* The gate of the sublayer before, LayerNorm without weights, then modulate. */
static void adaln(fm_stream *stream, const fm_adaln *a) {
    if (a->update) {
        modulate(stream, &(fm_modulate){.rows = a->rows,
                                        .c = a->c,
                                        .g_rows = a->g_rows,
                                        .g = a->end,
                                        .x = a->update,
                                        .residual = a->x,
                                        .y = a->moved});
    }
    layernorm(stream, &(fm_layernorm){.rows = a->rows,
                                      .c = a->c,
                                      .ldx = a->c,
                                      .ldy = a->c,
                                      .eps = a->eps,
                                      .x = a->update ? a->moved : a->x,
                                      .y = a->y});
    modulate(stream, &(fm_modulate){.rows = a->rows,
                                    .c = a->c,
                                    .g_rows = a->g_rows,
                                    .g = a->g,
                                    .x = a->y,
                                    .shift = a->shift,
                                    .y = a->y});
}

/* The rows of one row of g, in order. hat and dhat are scratch of c elements, sums [2, c] of the
 * gradients of g and shift. */
static void adaln_grad_shared(const fm_adaln *a, const fm_adaln_grad *grad, int64_t row,
                              real *restrict hat, real *restrict dhat, double *restrict sums) {
    const real *g = (const real *)a->g + row * a->c;
    double *restrict dg = sums, *restrict dshift = sums + a->c;
    for (int64_t i = 0; i < 2 * a->c; i++)
        sums[i] = 0;
    for (int64_t r = row; r < a->rows; r += a->g_rows) {
        const real *dy = (const real *)grad->dy + r * a->c;
        real mean, rstd;
        row_statistics((const real *)a->x + r * a->c, a->c, a->eps, hat, &mean, &rstd);
        for (int64_t i = 0; i < a->c; i++) {
            hat[i] *= rstd;
            dhat[i] = dy[i] * sigmoid(g[i]);
            dg[i] += (double)dy[i] * (double)hat[i];
            dshift[i] += (double)dy[i];
        }
        if (!grad->dx.data) continue;
        real mean_dhat = (real)(sum_of(dhat, a->c) / (double)a->c);
        real mean_hat = (real)(dot_product(dhat, hat, a->c) / (double)a->c);
        for (int64_t i = 0; i < a->c; i++)
            dhat[i] = rstd * (dhat[i] - mean_dhat - hat[i] * mean_hat);
        put_row((real *)grad->dx.data + r * a->c, grad->dx.beta, dhat, a->c);
    }
    for (int64_t i = 0; i < a->c; i++) {
        int64_t at = row * a->c + i;
        real s = sigmoid(g[i]);
        if (grad->dg.data) {
            put((real *)grad->dg.data + at, grad->dg.beta, (real)dg[i] * s * (1 - s));
        }
        if (grad->dshift.data) {
            put((real *)grad->dshift.data + at, grad->dshift.beta, (real)dshift[i]);
        }
    }
}

static void adaln_grad(fm_stream *stream, const fm_adaln *a, const fm_adaln_grad *grad) {
    enum { MOST = 1024 };
    real hat[MOST], dhat[MOST];
    double sums[2 * MOST];
    (void)stream;
    assert(a->c <= MOST && a->rows % a->g_rows == 0);
    for (int64_t row = 0; row < a->g_rows; row++)
        adaln_grad_shared(a, grad, row, hat, dhat, sums);
}

/* -- rows by index */

static double share_of_group(const fm_rows *a, int64_t group) {
    if (!a->mean) return 1;
    int32_t count = a->first[group + 1] - a->first[group];
    return count > 0 ? 1.0 / (double)count : 0;
}

static void gather_rows(fm_stream *stream, const fm_rows *a, const void *x, fm_out y) {
    (void)stream;
    for (int64_t r = 0; r < a->n_batch * a->n_y; r++) {
        int32_t from = a->index[r % a->n_y];
        assert(from < a->n_x);
        real *to = (real *)y.data + r * a->c;
        const real *row = (const real *)x + (r / a->n_y * a->n_x + (from < 0 ? 0 : from)) * a->c;
        real factor = from < 0 ? 0 : (real)share_of_group(a, from);
        for (int64_t i = 0; i < a->c; i++)
            put(&to[i], y.beta, factor == 0 ? 0 : factor * row[i]);
    }
}

static void sum_rows(fm_stream *stream, const fm_rows *a, const void *x, fm_out y) {
    (void)stream;
    for (int64_t r = 0; r < a->n_batch * a->n_y; r++) {
        int64_t group = r % a->n_y;
        const real *batch = (const real *)x + r / a->n_y * a->n_x * a->c;
        assert(a->first[group] >= 0 && a->first[group + 1] <= a->n_x);
        for (int64_t i = 0; i < a->c; i++) {
            double total = 0;
            for (int64_t k = a->first[group]; k < a->first[group + 1]; k++)
                total += (double)batch[k * a->c + i];
            real *to = (real *)y.data + r * a->c + i;
            put(to, y.beta, (real)(total * share_of_group(a, group)));
        }
    }
}

/* -- pairs in windows */

/* Finds the atoms of pair `at` of [n_window, 32, 128]. Returns false if one of them is outside 0 ..
 * n - 1. */
static bool window_atoms(int64_t n, int64_t at, int64_t *ret_query, int64_t *ret_key) {
    int64_t window = at / (FM_WINDOW_QUERIES * FM_WINDOW_KEYS);
    int64_t first = window * FM_WINDOW_QUERIES;
    *ret_query = first + at / FM_WINDOW_KEYS % FM_WINDOW_QUERIES;
    *ret_key = first - FM_WINDOW_BEFORE + at % FM_WINDOW_KEYS;
    return *ret_query < n && *ret_key >= 0 && *ret_key < n;
}

static void window_pairs(fm_stream *stream, const fm_window_pairs *a, const void *z, fm_out y) {
    (void)stream;
    int64_t pairs = a->n_window * FM_WINDOW_QUERIES * FM_WINDOW_KEYS;
    for (int64_t at = 0; at < pairs; at++) {
        int64_t query, key;
        bool inside = window_atoms(a->n_atom, at, &query, &key);
        int32_t i = inside ? a->token[query] : -1, j = inside ? a->token[key] : -1;
        real *to = (real *)y.data + at * a->c;
        bool known = i >= 0 && j >= 0;
        const real *from = (const real *)z + (known ? i * a->n_token + j : 0) * a->c;
        for (int64_t c = 0; c < a->c; c++)
            put(&to[c], y.beta, known ? from[c] : 0);
    }
}

static void window_pairs_grad(fm_stream *stream, const fm_window_pairs *a, const void *dy,
                              fm_out dz) {
    (void)stream;
    for (int64_t at = 0; at < a->n_token * a->n_token * a->c; at++) {
        int64_t c = at % a->c, j = at / a->c % a->n_token, i = at / a->c / a->n_token;
        double total = 0;
        for (int64_t query = a->first[i]; query < a->first[i + 1]; query++) {
            int64_t window = query / FM_WINDOW_QUERIES;
            int64_t begin = window * FM_WINDOW_QUERIES - FM_WINDOW_BEFORE;
            int64_t from = max_size(begin, a->first[j]);
            int64_t end = min_size(begin + FM_WINDOW_KEYS, a->first[j + 1]);
            for (int64_t key = from; key < end; key++)
                total +=
                    (double)((const real *)dy)[(query * FM_WINDOW_KEYS + key - begin) * a->c + c];
        }
        put((real *)dz.data + at, dz.beta, (real)total);
    }
}

static void window_geometry(fm_stream *stream, const fm_window_geometry *a) {
    (void)stream;
    int64_t pairs = a->n_window * FM_WINDOW_QUERIES * FM_WINDOW_KEYS;
    for (int64_t at = 0; at < pairs; at++) {
        real *y = (real *)a->y + at * FM_WINDOW_GEOMETRY, square = 0;
        int64_t query, key;
        bool inside = window_atoms(a->n_atom, at, &query, &key);
        bool same = inside && a->id[query] >= 0 && a->id[query] == a->id[key];
        for (int axis = 0; axis < 3; axis++) {
            y[axis] = same ? (real)a->x[3 * query + axis] - (real)a->x[3 * key + axis] : 0;
            square += y[axis] * y[axis];
        }
        y[3] = same ? 1 / (1 + square) : 0;
        y[4] = same;
    }
}

static void fourier(fm_stream *stream, int64_t rows, int64_t c, const void *x, const void *w,
                    const void *b, void *y) {
    (void)stream;
    const double turn = 6.283185307179586477;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < c; i++) {
            real phase = ((const real *)x)[r] * ((const real *)w)[i] + ((const real *)b)[i];
            ((real *)y)[r * c + i] = (real)cos(turn * (double)phase);
        }
    }
}
