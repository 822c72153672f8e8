/* body/embed.h: class lookups, relative positions, outer sums, MSA features. Gradients of tables
 * are summed in double in the workspace, over the positions in order. */
#include "trainer/backend/cpu/body/real.h"

static void lookup_row(const fm_lookup *t, int64_t row, real *y, fm_beta beta) {
    const real *w = (const real *)t->w + row * t->class_stride;
    for (int64_t c = 0; c < t->c; c++)
        put(&y[c], beta, w[c * t->channel_stride]);
}

static void lookup(fm_stream *stream, const fm_lookup *t, int64_t rows, const uint8_t *ids,
                   fm_out y) {
    (void)stream;
    for (int64_t r = 0; r < rows; r++) {
        real *line = (real *)y.data + r * t->c;
        if (ids[r] < t->n_class) {
            lookup_row(t, ids[r], line, y.beta);
        } else if (y.beta == FM_WRITE) {
            fill(NULL, t->c, 0, line);
        }
    }
}

static size_t lookup_grad_workspace(const fm_lookup *t, int64_t rows) {
    (void)rows;
    return (size_t)(t->n_class * t->c) * sizeof(double);
}

static void lookup_start(const fm_lookup *t, double *total) {
    for (int64_t i = 0; i < t->n_class * t->c; i++)
        total[i] = 0;
}

static void lookup_collect(const fm_lookup *t, int64_t row, const real *dy,
                           double *restrict total) {
    for (int64_t c = 0; c < t->c; c++)
        total[row * t->c + c] += (double)dy[c];
}

static void lookup_finish(const fm_lookup *t, const double *total, fm_out dw) {
    for (int64_t row = 0; row < t->n_class; row++)
        for (int64_t c = 0; c < t->c; c++)
            put((real *)dw.data + row * t->class_stride + c * t->channel_stride, dw.beta,
                (real)total[row * t->c + c]);
}

static void lookup_grad(fm_stream *stream, const fm_lookup *t, int64_t rows, const uint8_t *ids,
                        const void *dy, fm_out dw, void *workspace) {
    (void)stream;
    double *total = workspace;
    lookup_start(t, total);
    for (int64_t r = 0; r < rows; r++)
        if (ids[r] < t->n_class) lookup_collect(t, ids[r], (const real *)dy + r * t->c, total);
    lookup_finish(t, total, dw);
}

/* A4:1-2: the class that is nearest to the offset between two residues (A5:2). */
static int64_t relpos_class(const fm_lookup *t, int32_t index_i, int32_t index_j) {
    int64_t reach = (t->n_class - 1) / 2, offset = (int64_t)index_i - index_j;
    return min_size(max_size(offset, -reach), reach) + reach;
}

static void relpos(fm_stream *stream, const fm_lookup *t, int64_t n_i, int64_t n_j,
                   const int32_t *index_i, const int32_t *index_j, fm_out z) {
    (void)stream;
    assert(t->n_class % 2 == 1);
    for (int64_t i = 0; i < n_i; i++)
        for (int64_t j = 0; j < n_j; j++)
            lookup_row(t, relpos_class(t, index_i[i], index_j[j]),
                       (real *)z.data + (i * n_j + j) * t->c, z.beta);
}

static size_t relpos_grad_workspace(const fm_lookup *t, int64_t n_i, int64_t n_j) {
    return lookup_grad_workspace(t, n_i * n_j);
}

static void relpos_grad(fm_stream *stream, const fm_lookup *t, int64_t n_i, int64_t n_j,
                        const int32_t *index_i, const int32_t *index_j, const void *dz, fm_out dw,
                        void *workspace) {
    (void)stream;
    double *total = workspace;
    lookup_start(t, total);
    for (int64_t i = 0; i < n_i; i++)
        for (int64_t j = 0; j < n_j; j++)
            lookup_collect(t, relpos_class(t, index_i[i], index_j[j]),
                           (const real *)dz + (i * n_j + j) * t->c, total);
    lookup_finish(t, total, dw);
}

static void outer_sum(fm_stream *stream, int64_t n_i, int64_t n_j, int64_t c, int64_t lda,
                      int64_t ldb, const void *a, const void *b, fm_out z) {
    (void)stream;
    for (int64_t i = 0; i < n_i; i++) {
        const real *left = (const real *)a + i * lda;
        for (int64_t j = 0; j < n_j; j++) {
            const real *right = (const real *)b + j * ldb;
            real *out = (real *)z.data + (i * n_j + j) * c;
            for (int64_t k = 0; k < c; k++)
                put(&out[k], z.beta, left[k] + right[k]);
        }
    }
}

static void outer_sum_grad(fm_stream *stream, int64_t n_i, int64_t n_j, int64_t c, int64_t lda,
                           int64_t ldb, const void *dz, fm_out da, fm_out db) {
    const int64_t along_j[2] = {0, c}, along_i[2] = {0, n_j * c};
    for (int64_t i = 0; i < n_i && da.data; i++) {
        fm_out row = {(real *)da.data + i * lda, da.beta};
        sum(stream, 1, n_j, c, along_j, (const real *)dz + i * n_j * c, row, false, NULL);
    }
    for (int64_t j = 0; j < n_j && db.data; j++) {
        fm_out row = {(real *)db.data + j * ldb, db.beta};
        sum(stream, 1, n_i, c, along_i, (const real *)dz + j * c, row, false, NULL);
    }
}

static real squash_deletion(real count) {
    return REAL_ATAN(count / (real)3) * (real)0.63661977236758134308;
}

static uint32_t profile_count(const fm_msa_features *f, int64_t index) {
    if (f->profile_element == FM_ELEMENT_U8) return ((const uint8_t *)f->profile)[index];
    if (f->profile_element == FM_ELEMENT_U16) return ((const uint16_t *)f->profile)[index];
    assert(f->profile_element == FM_ELEMENT_U32);
    return ((const uint32_t *)f->profile)[index];
}

static void msa_features(fm_stream *stream, const fm_msa_features *f) {
    (void)stream;
    int64_t width = f->profile ? FM_MSA_FEATURES : FM_EXTRA_MSA_FEATURES;
    for (int64_t at = 0; at < f->n_seq * f->n_res; at++) {
        real *y = (real *)f->y + at * width;
        for (int64_t i = 0; i < FM_MSA_CLASSES; i++)
            y[i] = i == f->msa[at];
        y[23] = f->deletion[at] > 0;
        y[24] = squash_deletion((real)f->deletion[at]);
        if (!f->profile) continue;
        real size = (real)(f->cluster_size[at / f->n_res] - 1);
        real n = ((real)1e-6 + (real)1) + size; /* the reference's order of additions */
        for (int64_t i = 0; i < FM_MSA_CLASSES; i++)
            y[25 + i] = (real)profile_count(f, at * FM_MSA_CLASSES + i) / n;
        y[48] = squash_deletion((real)f->deletion_sum[at] / n);
    }
}
