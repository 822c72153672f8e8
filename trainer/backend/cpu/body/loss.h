/* body/loss.h: distance bins and ids, and weighted softmax cross-entropy. */
#include "trainer/backend/cpu/body/real.h"

static float square_distance(const float a[3], const float b[3]) {
    float square = 0;
    for (int axis = 0; axis < 3; axis++)
        square += (a[axis] - b[axis]) * (a[axis] - b[axis]);
    return square;
}

static void distance_bins(fm_stream *stream, int64_t n_i, int64_t n_j, const float *x_i,
                          const float *x_j, const float *mask_i, const float *mask_j, int32_t n_bin,
                          float first, float last, int32_t *target, void *w) {
    (void)stream;
    assert(n_bin >= 3);
    float step = (last - first) / (float)(n_bin - 2);
    for (int64_t i = 0; i < n_i; i++) {
        for (int64_t j = 0; j < n_j; j++) {
            float square = square_distance(x_i + 3 * i, x_j + 3 * j);
            int32_t bin = 0;
            for (int32_t b = 0; b < n_bin - 1; b++) {
                float boundary = first + step * (float)b;
                bin += square > boundary * boundary;
            }
            target[i * n_j + j] = bin;
            ((real *)w)[i * n_j + j] = (real)(mask_i[i] * mask_j[j]);
        }
    }
}

static void distance_ids(fm_stream *stream, int64_t n_i, int64_t n_j, const float *x_i,
                         const float *x_j, int32_t n_bin, float first, float last,
                         float most_square, uint8_t *ids) {
    (void)stream;
    assert(n_bin >= 2 && n_bin < 255);
    float step = (last - first) / (float)(n_bin - 1);
    for (int64_t i = 0; i < n_i; i++) {
        for (int64_t j = 0; j < n_j; j++) {
            float square = square_distance(x_i + 3 * i, x_j + 3 * j);
            uint8_t id = 255;
            for (int32_t b = 0; b < n_bin; b++) {
                float bound = first + step * (float)b;
                if (square > bound * bound) id = (uint8_t)b;
                if (square == bound * bound) id = 255; /* a bound belongs to no interval */
            }
            ids[i * n_j + j] = square < most_square ? id : 255;
        }
    }
}

static size_t cross_entropy_workspace(int64_t rows) {
    (void)rows;
    return 0;
}

static real row_lse(const real *x, int64_t n) {
    real largest = max_of(x, n);
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += (double)real_exp(x[i] - largest);
    return largest + REAL_LOG((real)total);
}

static bool is_class(const fm_cross_entropy *a, int64_t r) {
    return a->target[r] >= 0 && a->target[r] < a->n_class;
}

static void cross_entropy(fm_stream *stream, const fm_cross_entropy *a, void *workspace) {
    (void)stream, (void)workspace;
    const real *w = a->w;
    double loss = 0, weight = 0;
    for (int64_t r = 0; r < a->rows; r++) {
        const real *x = (const real *)a->x + r * a->ldx;
        real lse = row_lse(x, a->n_class);
        ((real *)a->lse)[r] = lse;
        if (!is_class(a, r)) continue;
        loss += (double)w[r] * (double)(lse - x[a->target[r]]);
        weight += (double)w[r];
    }
    *(real *)a->weight_sum = (real)weight;
    *(real *)a->loss = (real)(loss / (a->eps + weight));
}

static void cross_entropy_grad(fm_stream *stream, const fm_cross_entropy *a, const void *dloss,
                               fm_out dx) {
    (void)stream;
    double scale = (double)*(const real *)dloss / (a->eps + (double)*(const real *)a->weight_sum);
    for (int64_t r = 0; r < a->rows; r++) {
        const real *x = (const real *)a->x + r * a->ldx;
        real *d = (real *)dx.data + r * a->ldx, lse = ((const real *)a->lse)[r];
        real factor = is_class(a, r) ? (real)(scale * (double)((const real *)a->w)[r]) : 0;
        for (int64_t i = 0; i < a->n_class; i++) {
            real hit = i == a->target[r] ? 1 : 0;
            put(&d[i], dx.beta, factor * (real_exp(x[i] - lse) - hit));
        }
    }
}
