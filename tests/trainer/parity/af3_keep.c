/* af3_keep.c: see af3_keep.h. */
#include "tests/trainer/parity/af3_keep.h"

#include "trainer/backend/row_end.h"
#include "trainer/backend/triangle_block.h"

#include <assert.h>
#include <stdlib.h>

static fm_kernels table;
static const fm_kernels *drawn;
static const double *masks[AF3_KEEP_MASKS];
static int n_masks;

static double get(const void *x, int64_t i) {
    return table.act == FM_ELEMENT_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static void put(void *y, int64_t i, double value) {
    if (table.act == FM_ELEMENT_F64) {
        ((double *)y)[i] = value;
    } else {
        ((float *)y)[i] = (float)value;
    }
}

/* 0, or the factor of what is kept. */
static double keep_of(const fm_dropout *d, int64_t at) {
    assert(d->draw.layer < (uint32_t)n_masks && !d->offset0 && !d->offset1);
    uint64_t i = (uint64_t)(at / (d->n1 * d->c)), j = (uint64_t)(at / d->c % d->n1);
    uint64_t index =
        fm_dropout_index(d->shared, i, j, (uint64_t)(at % d->c), (uint64_t)d->n1, (uint64_t)d->c);
    return masks[d->draw.layer][index] / (1 - d->rate);
}

static void dropout(fm_stream *stream, const fm_dropout *d, const void *residual, const void *x,
                    void *y) {
    if (d->rate == 0) {
        drawn->dropout(stream, d, residual, x, y);
        return;
    }
    for (int64_t at = 0; at < d->n0 * d->n1 * d->c; at++)
        put(y, at, (residual ? get(residual, at) : 0) + keep_of(d, at) * get(x, at));
}

static void dropout_grad(fm_stream *stream, const fm_dropout *d, const void *dy, fm_out dx) {
    if (d->rate == 0) {
        drawn->dropout_grad(stream, d, dy, dx);
        return;
    }
    for (int64_t at = 0; at < d->n0 * d->n1 * d->c; at++) {
        double old = dx.beta == FM_ADD ? get(dx.data, at) : 0;
        put(dx.data, at, old + keep_of(d, at) * get(dy, at));
    }
}

/* The table's own entry makes the rest from the masked update. */
static void update_norm(fm_stream *stream, const fm_update_norm *args, const void *residual,
                        const void *update, void *y, void *n) {
    const fm_dropout *d = &args->dropout;
    void *masked = malloc((size_t)(d->n0 * d->n1 * d->c) * fm_element_bytes(table.act));
    assert(masked);
    dropout(stream, d, NULL, update, masked);
    fm_update_norm rest = *args;
    rest.dropout.rate = 0;
    drawn->update_norm(stream, &rest, residual, masked, y, n);
    free(masked);
}

static void update_norm_grad(fm_stream *stream, const fm_update_norm *args,
                             const fm_update_norm_grad *grad, void *workspace) {
    fm_update_norm rest = *args;
    rest.dropout.rate = 0;
    drawn->update_norm_grad(stream, &rest, grad, workspace);
    if (grad->dupdate) {
        dropout_grad(stream, &args->dropout, grad->dy.data, (fm_out){grad->dupdate, FM_WRITE});
    }
}

static void linear_update(fm_stream *stream, const fm_linear_update *args, void *workspace) {
    fm_linear_update_composed(&table, stream, args, workspace);
}

static void triangle_block(fm_stream *stream, const fm_triangle_block *args, void *workspace) {
    fm_triangle_block_composed(&table, stream, args, workspace);
}

static void triangle_block_grad(fm_stream *stream, const fm_triangle_block *args,
                                const fm_triangle_block_grad *grad, void *workspace) {
    fm_triangle_block_composed_grad(&table, stream, args, grad, workspace);
}

const fm_kernels *af3_keep_table(const fm_kernels *kernels, const double *const *mask, int n_mask) {
    assert(n_mask <= AF3_KEEP_MASKS);
    table = *kernels;
    drawn = kernels;
    n_masks = n_mask;
    for (int i = 0; i < n_mask; i++)
        masks[i] = mask[i];
    table.dropout = dropout;
    table.dropout_grad = dropout_grad;
    table.update_norm = update_norm;
    table.update_norm_grad = update_norm_grad;
    table.linear_update = linear_update;
    table.triangle_block = triangle_block;
    table.triangle_block_grad = triangle_block_grad;
    return &table;
}
