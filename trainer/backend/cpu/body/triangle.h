/* body/triangle.h: triangle multiplication (A11, A12), a few channels at a time.
 *
 * The product over k is one matrix product for each channel. So a group of channels is gated,
 * masked and copied to channel-major order [c, rows], multiplied, and copied back. */
#include "trainer/backend/cpu/body/real.h"

enum { TRIANGLE_CHANNELS = 16 };

typedef struct triangle_space {
    real *a, *b, *x; /* channel-major [TRIANGLE_CHANNELS, rows]: gated operands, and x or dx */
    real *da, *db;   /* gradients of the gated operands */
} triangle_space;

static int64_t triangle_layout(const fm_triangle *t, bool backward, real *base,
                               triangle_space *ret) {
    int64_t group = min_size(TRIANGLE_CHANNELS, t->c);
    int64_t a = t->n_i * t->n_k * group, b = t->n_j * t->n_k * group, x = t->n_i * t->n_j * group;
    int64_t sizes[] = {a, b, x, backward ? a : 0, backward ? b : 0};
    real **slots[] = {&ret->a, &ret->b, &ret->x, &ret->da, &ret->db};
    int64_t used = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        *slots[i] = base ? base + used : NULL;
        used += sizes[i];
    }
    return used;
}

static size_t triangle_workspace(const fm_triangle *args) {
    triangle_space space;
    return (size_t)triangle_layout(args, false, NULL, &space) * sizeof(real);
}

static size_t triangle_grad_workspace(const fm_triangle *args) {
    triangle_space space;
    return (size_t)triangle_layout(args, true, NULL, &space) * sizeof(real);
}

/* One operand: channels first .. first + n - 1 of mask * sigmoid(g) * p, or of p where g is NULL,
 * channel-major. */
static void triangle_load(const void *p, const void *g, const void *mask, int64_t rows, int64_t ld,
                          int64_t first, int64_t n, real *packed) {
    for (int64_t r = 0; r < rows; r++) {
        const real *value = (const real *)p + r * ld + first;
        real line[TRIANGLE_CHANNELS];
        if (g) {
            const real *gate_row = (const real *)g + r * ld + first;
            real factor = ((const real *)mask)[r];
            for (int64_t c = 0; c < n; c++)
                line[c] = factor * sigmoid(gate_row[c]) * value[c];
        } else {
            for (int64_t c = 0; c < n; c++)
                line[c] = value[c];
        }
        for (int64_t c = 0; c < n; c++)
            packed[c * rows + r] = line[c];
    }
}

/* The gradient of an operand without gate. */
static void triangle_plain_grad(int64_t rows, int64_t ld, int64_t first, int64_t n,
                                const real *packed, fm_out dp) {
    for (int64_t r = 0; r < rows && dp.data; r++) {
        for (int64_t c = 0; c < n; c++)
            put((real *)dp.data + r * ld + first + c, dp.beta, packed[c * rows + r]);
    }
}

/* Gradients of p and g from the gradient of the gated operand. */
static void triangle_gate_grad(const void *p, const void *g, const void *mask, int64_t rows,
                               int64_t ld, int64_t first, int64_t n, const real *packed, fm_out dp,
                               fm_out dg) {
    if (!g) {
        triangle_plain_grad(rows, ld, first, n, packed, dp);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = r * ld + first;
        const real *value = (const real *)p + at, *gate_row = (const real *)g + at;
        real up[TRIANGLE_CHANNELS], open[TRIANGLE_CHANNELS], factor = ((const real *)mask)[r];
        for (int64_t c = 0; c < n; c++)
            up[c] = factor * packed[c * rows + r];
        for (int64_t c = 0; c < n; c++)
            open[c] = sigmoid(gate_row[c]);
        for (int64_t c = 0; c < n && dp.data; c++)
            put((real *)dp.data + at + c, dp.beta, up[c] * open[c]);
        for (int64_t c = 0; c < n && dg.data; c++)
            put((real *)dg.data + at + c, dg.beta,
                up[c] * value[c] * open[c] * ((real)1 - open[c]));
    }
}

static void triangle(fm_stream *stream, const fm_triangle *t, void *workspace) {
    (void)stream;
    triangle_space space;
    triangle_layout(t, false, workspace, &space);
    int64_t ni = t->n_i, nj = t->n_j, nk = t->n_k;
    for (int64_t first = 0; first < t->c; first += TRIANGLE_CHANNELS) {
        int64_t n = min_size(TRIANGLE_CHANNELS, t->c - first);
        triangle_load(t->pa, t->ga, t->mask_a, ni * nk, t->lda, first, n, space.a);
        triangle_load(t->pb, t->gb, t->mask_b, nj * nk, t->ldb, first, n, space.b);
        for (int64_t c = 0; c < n; c++)
            REAL_GEMM(t->incoming, !t->incoming, ni, nj, nk, 1, space.a + c * ni * nk,
                      t->incoming ? ni : nk, space.b + c * nj * nk, t->incoming ? nj : nk, 0,
                      space.x + c * ni * nj, nj);
        for (int64_t p = 0; p < ni * nj; p++) {
            real *x = (real *)t->x + p * t->c + first;
            for (int64_t c = 0; c < n; c++)
                x[c] = space.x[c * ni * nj + p];
        }
    }
}

/* da and db of one channel. Outgoing: da = dx b, db = dx^T a; incoming: da = b dx^T, db = a dx. */
static void triangle_grad_channel(const fm_triangle *t, const real *a, const real *b,
                                  const real *dx, real *da, real *db) {
    int64_t ni = t->n_i, nj = t->n_j, nk = t->n_k;
    if (t->incoming) {
        REAL_GEMM(false, true, nk, ni, nj, 1, b, nj, dx, nj, 0, da, ni);
        REAL_GEMM(false, false, nk, nj, ni, 1, a, ni, dx, nj, 0, db, nj);
    } else {
        REAL_GEMM(false, false, ni, nk, nj, 1, dx, nj, b, nk, 0, da, nk);
        REAL_GEMM(true, false, nj, nk, ni, 1, dx, nj, a, nk, 0, db, nk);
    }
}

static void triangle_grad(fm_stream *stream, const fm_triangle *t, const fm_triangle_grad *grad,
                          void *workspace) {
    (void)stream;
    triangle_space space;
    triangle_layout(t, true, workspace, &space);
    int64_t rows_a = t->n_i * t->n_k, rows_b = t->n_j * t->n_k, rows_x = t->n_i * t->n_j;
    for (int64_t first = 0; first < t->c; first += TRIANGLE_CHANNELS) {
        int64_t n = min_size(TRIANGLE_CHANNELS, t->c - first);
        triangle_load(t->pa, t->ga, t->mask_a, rows_a, t->lda, first, n, space.a);
        triangle_load(t->pb, t->gb, t->mask_b, rows_b, t->ldb, first, n, space.b);
        for (int64_t p = 0; p < rows_x; p++) {
            const real *dx = (const real *)grad->dx + p * t->c + first;
            for (int64_t c = 0; c < n; c++)
                space.x[c * rows_x + p] = dx[c];
        }
        for (int64_t c = 0; c < n; c++)
            triangle_grad_channel(t, space.a + c * rows_a, space.b + c * rows_b,
                                  space.x + c * rows_x, space.da + c * rows_a,
                                  space.db + c * rows_b);
        triangle_gate_grad(t->pa, t->ga, t->mask_a, rows_a, t->lda, first, n, space.da, grad->dpa,
                           grad->dga);
        triangle_gate_grad(t->pb, t->gb, t->mask_b, rows_b, t->ldb, first, n, space.db, grad->dpb,
                           grad->dgb);
    }
}
