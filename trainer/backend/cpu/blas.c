/* blas.c: see blas.h. OpenBLAS has 32-bit indices; larger sizes are asserted against. */
#include "trainer/backend/cpu/blas.h"

#include "trainer/backend/cpu_threads.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

void fm_blas_init(void) {
    openblas_set_num_threads(1);
}

const char *fm_blas_processor(void) {
    return openblas_get_corename();
}

/* The configuration is "OpenBLAS 0.3.21 DYNAMIC_ARCH ... Haswell"; its first two words count. Every
 * thread has its own copy of them. */
const char *fm_blas_version(void) {
    static _Thread_local char version[64];
    const char *config = openblas_get_config();
    size_t name = strcspn(config, " "),
           number = strcspn(config + name + (config[name] == ' '), " ");
    snprintf(version, sizeof version, "%.*s", (int)(name + 1 + number), config);
    return version;
}

static blasint narrow(int64_t size) {
    assert(size >= 0 && size <= INT_MAX);
    return (blasint)size;
}

static CBLAS_TRANSPOSE transpose(bool is_transposed) {
    return is_transposed ? CblasTrans : CblasNoTrans;
}

/* Rows of a part of a product, and products that are worth a division. */
enum { PART_ROWS = 48 };
static const double PART_FLOPS = 2e7;

typedef struct product {
    bool trans_a, trans_b;
    int64_t m, n, k, lda, ldb, ldc;
    float alpha, beta;
    const float *a, *b;
    float *c;
    int n_part;
} product;

static void multiply_f32(const product *p) {
    cblas_sgemm(CblasRowMajor, transpose(p->trans_a), transpose(p->trans_b), narrow(p->m),
                narrow(p->n), narrow(p->k), p->alpha, p->a, narrow(p->lda), p->b, narrow(p->ldb),
                p->beta, p->c, narrow(p->ldc));
}

static void multiply_part(void *context, int part) {
    product p = *(const product *)context;
    int64_t first = fm_cpu_part_begin(p.m, PART_ROWS, part, p.n_part);
    p.m = fm_cpu_part_begin(p.m, PART_ROWS, part + 1, p.n_part) - first;
    p.a += p.trans_a ? first : first * p.lda;
    p.c += first * p.ldc;
    if (p.m > 0) multiply_f32(&p);
}

void fm_blas_gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                      const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                      float *c, int64_t ldc) {
    product p = {trans_a, trans_b, m, n, k, lda, ldb, ldc, alpha, beta, a, b, c, fm_cpu_threads()};
    bool is_large = 2 * (double)m * (double)n * (double)k > PART_FLOPS && m > PART_ROWS;
    if (p.n_part == 1 || !is_large) {
        multiply_f32(&p);
    } else {
        fm_cpu_run_parts(multiply_part, &p, p.n_part);
    }
}

/* Tiles of the operands that are rounded at a time. */
enum { ROUNDED_ROWS = 128, ROUNDED_DEPTH = 256, ROUNDED_COLUMNS = 128 };

/* A number with 11 significant bits; ties go away from 0, as on a GPU. Infinities and NaN stay. */
static float round_tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & 0xffffe000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Rounds `rows` rows of n numbers of x to y, whose rows are n apart. */
static void round_rows(int64_t rows, int64_t n, const float *x, int64_t ldx, float *y) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = round_tf32(x[r * ldx + i]);
}

/* Rounds the tile of an operand that begins at (row, column) of op(x); returns the distance of its
 * rows as they are stored, which is never 0: a product of depth 0 still applies beta. */
static int64_t round_tile(bool is_transposed, const float *x, int64_t ldx, int64_t row,
                          int64_t column, int64_t rows, int64_t columns, float *tile) {
    if (is_transposed) {
        round_rows(columns, rows, x + column * ldx + row, ldx, tile);
        return rows > 0 ? rows : 1;
    }
    round_rows(rows, columns, x + row * ldx + column, ldx, tile);
    return columns > 0 ? columns : 1;
}

static int64_t at_most(int64_t a, int64_t b) {
    return a < b ? a : b;
}

void fm_blas_gemm_tf32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                       const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                       float *c, int64_t ldc) {
    static _Thread_local float a_tile[ROUNDED_ROWS * ROUNDED_DEPTH];
    static _Thread_local float b_tile[ROUNDED_DEPTH * ROUNDED_COLUMNS];
    product p = {.trans_a = trans_a, .trans_b = trans_b, .ldc = ldc, .alpha = alpha};
    p.a = a_tile, p.b = b_tile;
    for (int64_t at_k = 0; at_k < k || at_k == 0; at_k += ROUNDED_DEPTH) {
        p.k = at_most(ROUNDED_DEPTH, k - at_k), p.beta = at_k == 0 ? beta : 1;
        for (int64_t at_n = 0; at_n < n; at_n += ROUNDED_COLUMNS) {
            p.n = at_most(ROUNDED_COLUMNS, n - at_n);
            p.ldb = round_tile(trans_b, b, ldb, at_k, at_n, p.k, p.n, b_tile);
            for (int64_t at_m = 0; at_m < m; at_m += ROUNDED_ROWS) {
                p.m = at_most(ROUNDED_ROWS, m - at_m);
                p.lda = round_tile(trans_a, a, lda, at_m, at_k, p.m, p.k, a_tile);
                p.c = c + at_m * ldc + at_n;
                multiply_f32(&p);
            }
        }
    }
}

void fm_blas_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
                      const double *a, int64_t lda, const double *b, int64_t ldb, double beta,
                      double *c, int64_t ldc) {
    cblas_dgemm(CblasRowMajor, transpose(trans_a), transpose(trans_b), narrow(m), narrow(n),
                narrow(k), alpha, a, narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}
