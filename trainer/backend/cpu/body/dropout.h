/* body/dropout.h: shared-axis dropout, alone and followed by the LayerNorm of the next sublayer
 * (body/rows.h). The mask is drawn where it is used, forward and backward. */
#include "trainer/backend/cpu/body/real.h"

enum { DROPOUT_STRIP = 64 };

/* keep of channels first .. first + n - 1 at global position (i, j). */
static void dropout_keep(const fm_dropout *d, int64_t i, int64_t j, int64_t first, int64_t n,
                         real *keep) {
    uint32_t threshold = fm_drop_threshold(d->rate);
    real kept = (real)(1 / (1 - d->rate));
    for (int64_t c = 0; c < n; c++) {
        uint64_t index =
            fm_dropout_index(d->shared, (uint64_t)(d->offset0 + i), (uint64_t)(d->offset1 + j),
                             (uint64_t)(first + c), (uint64_t)d->global_n1, (uint64_t)d->c);
        keep[c] = fm_draw_word(&d->draw, index) < threshold ? 0 : kept;
    }
}

/* y = residual + keep * x for the channels of a strip, at the `count` positions that share one row
 * of the mask, stride elements apart. At most one of residual and beta adds. */
static void dropout_strip(const real *keep, int64_t n, int64_t count, int64_t stride,
                          const real *residual, const real *x, real *y, fm_beta beta) {
    for (int64_t p = 0; p < count; p++) {
        for (int64_t c = 0; c < n; c++) {
            real value = keep[c] * x[p * stride + c];
            if (residual) value += residual[p * stride + c];
            put(&y[p * stride + c], beta, value);
        }
    }
}

static void dropout_all(const fm_dropout *d, const real *residual, const real *x, real *y,
                        fm_beta beta) {
    assert(d->rate >= 0 && d->rate < 1);
    real keep[DROPOUT_STRIP];
    bool share0 = d->shared == FM_SHARED_AXIS0, share1 = d->shared == FM_SHARED_AXIS1;
    if (d->rate == 0) share0 = true; /* everything is kept, so any order is right */
    for (int64_t i = 0; i < (share0 ? 1 : d->n0); i++) {
        for (int64_t j = 0; j < (share1 && !share0 ? 1 : d->n1); j++) {
            for (int64_t first = 0; first < d->c; first += DROPOUT_STRIP) {
                int64_t n = min_size(DROPOUT_STRIP, d->c - first);
                int64_t at = (i * d->n1 + j) * d->c + first;
                int64_t count = share0 ? d->n0 : share1 ? d->n1 : 1;
                int64_t stride = share0 ? d->n1 * d->c : d->c;
                for (int64_t c = 0; c < n; c++)
                    keep[c] = 1;
                if (d->rate > 0) dropout_keep(d, i, j, first, n, keep);
                dropout_strip(keep, n, count, stride, residual ? residual + at : NULL, x + at,
                              y + at, beta);
            }
        }
    }
}

static void dropout(fm_stream *stream, const fm_dropout *args, const void *residual, const void *x,
                    void *y) {
    (void)stream;
    dropout_all(args, residual, x, y, FM_WRITE);
}

static void dropout_grad(fm_stream *stream, const fm_dropout *args, const void *dy, fm_out dx) {
    (void)stream;
    dropout_all(args, NULL, dy, dx.data, dx.beta);
}

/* Dropout and then LayerNorm. Backends that do both in one pass are compared with this. */
static void update_norm(fm_stream *stream, const fm_update_norm *args, const void *residual,
                        const void *update, void *y, void *n) {
    const fm_dropout *d = &args->dropout;
    dropout(stream, d, residual, update, y);
    layernorm(stream, &(fm_layernorm){.rows = d->n0 * d->n1,
                                      .c = d->c,
                                      .ldx = d->c,
                                      .ldy = d->c,
                                      .eps = args->eps,
                                      .x = y,
                                      .gamma = args->gamma,
                                      .beta = args->beta,
                                      .y = n});
}

static size_t update_norm_grad_workspace(int64_t rows, int64_t c) {
    return layernorm_grad_workspace(rows, c) + (size_t)(2 * rows + c) * sizeof(real);
}

static void update_norm_grad(fm_stream *stream, const fm_update_norm *args,
                             const fm_update_norm_grad *grad, void *workspace) {
    const fm_dropout *d = &args->dropout;
    int64_t rows = d->n0 * d->n1, c = d->c;
    real *mean = (real *)((char *)workspace + layernorm_grad_workspace(rows, c));
    real *rstd = mean + rows, *centred = rstd + rows;
    for (int64_t r = 0; r < rows; r++)
        row_statistics((const real *)grad->y + r * c, c, args->eps, centred, &mean[r], &rstd[r]);
    fm_layernorm_grad norm = {.rows = rows,
                              .c = c,
                              .ldx = c,
                              .lddy = c,
                              .lddx = c,
                              .x = grad->y,
                              .gamma = args->gamma,
                              .dy = grad->dn,
                              .mean = mean,
                              .rstd = rstd,
                              .dx = grad->dy,
                              .dgamma = grad->dgamma,
                              .dbeta = grad->dbeta};
    layernorm_grad(stream, &norm, workspace);
    if (grad->dupdate) dropout_grad(stream, d, grad->dy.data, (fm_out){grad->dupdate, FM_WRITE});
}
