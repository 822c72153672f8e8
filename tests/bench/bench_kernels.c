/* bench_kernels.c: measures the CPU kernels at the shapes of the tiny model, in float32 on one
 * thread. It prints milliseconds (median of repetitions) and GFLOP/s of the matrix products in each
 * kernel, beside the rate of one large OpenBLAS product measured in the same run.
 *
 *     bench_kernels [N_res [N_seq]]     default 64 and 32 */
#include "tests/bench/bench_time.h"
#include "trainer/backend/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 9, HEADS = 4, C_HEAD = 8, C_M = 64, C_Z = 32, C_OPM = 16 };

typedef struct sizes {
    int64_t n_res, n_seq;
} sizes;

typedef struct job {
    const fm_kernels *k;
    const void *args, *grad;
    void *space;
} job;

static void report(const char *name, double flops, void (*run)(const job *), const job *j) {
    double seconds[REPEATS];
    run(j);
    for (int i = 0; i < REPEATS; i++) {
        double start = now_s();
        run(j);
        seconds[i] = now_s() - start;
    }
    double middle = median(seconds, REPEATS);
    printf("%-34s %9.3f ms %8.2f GFLOP/s\n", name, middle * 1e3, flops / middle * 1e-9);
}

/* Memory filled with small values; it is not freed before the program ends. */
static float *buffer(int64_t n) {
    float *x = aligned_alloc(64, ((size_t)n * 4 + 63) & ~(size_t)63);
    if (!x) abort();
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((i * 7919) % 1000) * 1e-3f - 0.5f;
    return x;
}

static float *ones(int64_t n) {
    float *x = buffer(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = 1;
    return x;
}

static void run_gemm(const job *j) {
    j->k->gemm(NULL, j->args, NULL);
}
static void run_attention(const job *j) {
    j->k->attention(NULL, j->args, j->space);
}
static void run_attention_grad(const job *j) {
    j->k->attention_grad(NULL, j->args, j->grad, j->space);
}
static void run_outer(const job *j) {
    j->k->outer(NULL, j->args, j->space);
}
static void run_outer_grad(const job *j) {
    j->k->outer_grad(NULL, j->args, j->grad, j->space);
}
static void run_triangle(const job *j) {
    j->k->triangle(NULL, j->args, j->space);
}
static void run_triangle_grad(const job *j) {
    j->k->triangle_grad(NULL, j->args, j->grad, j->space);
}
static void run_layernorm(const job *j) {
    j->k->layernorm(NULL, j->args);
}
static void run_layernorm_grad(const job *j) {
    j->k->layernorm_grad(NULL, j->args, j->space);
}

static void bench_gemm(const fm_kernels *k, const char *name, int64_t m, int64_t n, int64_t depth) {
    fm_gemm g = {.m = m,
                 .n = n,
                 .k = depth,
                 .batch = 1,
                 .trans_b = true,
                 .alpha = 1,
                 .a = buffer(m * depth),
                 .b = buffer(n * depth),
                 .c = buffer(m * n),
                 .lda = depth,
                 .ldb = depth,
                 .ldc = n};
    report(name, 2.0 * (double)m * (double)n * (double)depth, run_gemm, &(job){k, &g, NULL, NULL});
}

/* rows = the axis that is batch, n = the attended axis; q k v g in one matrix. */
static void bench_attention(const fm_kernels *k, const char *name, int64_t rows, int64_t n,
                            bool biased, bool transposed) {
    int64_t width = HEADS * C_HEAD, ld = 4 * width, size = rows * n;
    float *qkvg = buffer(size * ld), *d = buffer(size * ld), *bias = buffer(n * n * HEADS);
    float *dbias = buffer(n * n * HEADS), *o = buffer(size * width);
    fm_attention_stride in = {0, n * ld, ld, C_HEAD}, out = {0, n * width, width, C_HEAD};
    if (transposed) in.batch = ld, in.row = rows * ld, out.batch = width, out.row = rows * width;
    fm_attention a = {1,
                      rows,
                      n,
                      n,
                      HEADS,
                      HEADS,
                      C_HEAD,
                      1 / sqrt(C_HEAD),
                      1e9,
                      .q = qkvg,
                      .k = qkvg + width,
                      .v = qkvg + 2 * width,
                      .g = qkvg + 3 * width,
                      .bias = biased ? bias : NULL,
                      .mask = ones(size),
                      .q_stride = in,
                      .k_stride = in,
                      .v_stride = in,
                      .g_stride = in,
                      .o_stride = out,
                      .bias_stride = {0, 1, n * HEADS, HEADS},
                      .mask_stride = {0, n, 1},
                      .o = o,
                      .lse = buffer(size * HEADS)};
    fm_attention_grad grad = {.dout = buffer(size * width),
                              .dq = {d, FM_WRITE},
                              .dk = {d + width, FM_WRITE},
                              .dv = {d + 2 * width, FM_WRITE},
                              .dg = {d + 3 * width, FM_WRITE},
                              .dbias = {dbias, FM_WRITE}};
    job j = {k, &a, &grad, buffer((int64_t)k->attention_grad_workspace(&a) / 4)};
    double product = 2.0 * (double)(size * n * width);
    char line[64];
    snprintf(line, sizeof line, "%s forward", name);
    report(line, 2 * product, run_attention, &j);
    snprintf(line, sizeof line, "%s backward", name);
    report(line, 6 * product, run_attention_grad, &j);
}

/* One query per pair of residues, over four templates (A17). */
static void bench_pointwise(const fm_kernels *k, sizes s) {
    int64_t pairs = s.n_res * s.n_res, width = HEADS * C_HEAD, n_key = 4;
    float *q = buffer(pairs * width), *kv = buffer(n_key * pairs * 2 * width);
    float *d = buffer(n_key * pairs * 2 * width);
    fm_attention_stride one = {0, width, width, C_HEAD};
    fm_attention_stride many = {0, 2 * width, pairs * 2 * width, C_HEAD};
    fm_attention a = {.n_group = 1,
                      .n_batch = pairs,
                      .n_query = 1,
                      .n_key = n_key,
                      .n_head = HEADS,
                      .n_kv_head = HEADS,
                      .c_head = C_HEAD,
                      .scale = 1 / sqrt(C_HEAD),
                      .mask_value = 1e5,
                      .q = q,
                      .k = kv,
                      .v = kv + width,
                      .mask = ones(n_key),
                      .q_stride = one,
                      .k_stride = many,
                      .v_stride = many,
                      .o_stride = one,
                      .mask_stride = {0, 0, 1},
                      .o = buffer(pairs * width),
                      .lse = buffer(pairs * HEADS)};
    fm_attention_grad grad = {.dout = buffer(pairs * width),
                              .dq = {buffer(pairs * width), FM_WRITE},
                              .dk = {d, FM_WRITE},
                              .dv = {d + width, FM_WRITE}};
    job j = {k, &a, &grad, buffer((int64_t)k->attention_grad_workspace(&a) / 4)};
    double product = 2.0 * (double)(pairs * n_key * width);
    report("template pointwise forward", 2 * product, run_attention, &j);
    report("template pointwise backward", 5 * product, run_attention_grad, &j);
}

static void bench_outer(const fm_kernels *k, sizes s) {
    int64_t n = s.n_res, ld = 2 * C_OPM, square = C_OPM * C_OPM;
    float *ab = buffer(s.n_seq * n * ld), *d = buffer(s.n_seq * n * ld), *mask = ones(s.n_seq * n);
    fm_outer o = {s.n_seq,
                  n,
                  n,
                  C_OPM,
                  C_Z,
                  1e-3,
                  .a = ab,
                  .b = ab + C_OPM,
                  .a_stride = {n * ld, ld},
                  .b_stride = {n * ld, ld},
                  .mask_a = mask,
                  .mask_b = mask,
                  .w = buffer(C_Z * square),
                  .bias = buffer(C_Z),
                  .z = {buffer(n * n * C_Z), FM_WRITE}};
    fm_outer_grad grad = {buffer(n * n * C_Z),
                          {d, FM_WRITE},
                          {d + C_OPM, FM_WRITE},
                          {buffer(C_Z * square), FM_WRITE},
                          {buffer(C_Z), FM_WRITE}};
    job j = {k, &o, &grad, buffer((int64_t)k->outer_grad_workspace(&o) / 4)};
    double flops = 2.0 * (double)(n * n * square) * (double)(s.n_seq + C_Z);
    report("outer product mean forward", flops, run_outer, &j);
    report("outer product mean backward", 3 * flops, run_outer_grad, &j);
}

static void bench_triangle(const fm_kernels *k, sizes s) {
    int64_t n = s.n_res, ld = 4 * C_Z;
    float *p = buffer(n * n * ld), *d = buffer(n * n * ld), *mask = ones(n * n);
    fm_triangle t = {n,           n,           n,  C_Z, false, p,    p + C_Z,
                     p + 2 * C_Z, p + 3 * C_Z, ld, ld,  mask,  mask, buffer(n * n * C_Z)};
    fm_triangle_grad grad = {buffer(n * n * C_Z),
                             {d, FM_WRITE},
                             {d + C_Z, FM_WRITE},
                             {d + 2 * C_Z, FM_WRITE},
                             {d + 3 * C_Z, FM_WRITE}};
    job j = {k, &t, &grad, buffer((int64_t)k->triangle_grad_workspace(&t) / 4)};
    double flops = 2.0 * (double)(n * n * n * C_Z);
    report("triangle multiplication forward", flops, run_triangle, &j);
    report("triangle multiplication backward", 2 * flops, run_triangle_grad, &j);
}

static void bench_layernorm(const fm_kernels *k, int64_t rows, int64_t c) {
    float *x = buffer(rows * c), *y = buffer(rows * c), *mean = buffer(rows), *rstd = buffer(rows);
    fm_layernorm a = {rows, c, c, c, 1e-5, x, ones(c), ones(c), y, mean, rstd};
    fm_layernorm_grad g = {rows,
                           c,
                           c,
                           c,
                           c,
                           x,
                           ones(c),
                           y,
                           mean,
                           rstd,
                           {buffer(rows * c), FM_WRITE},
                           {buffer(c), FM_WRITE},
                           {buffer(c), FM_WRITE},
                           0};
    report("layernorm forward", 8.0 * (double)(rows * c), run_layernorm, &(job){k, &a, NULL, NULL});
    void *space = buffer((int64_t)k->layernorm_grad_workspace(rows, c) / 4);
    report("layernorm backward", 16.0 * (double)(rows * c), run_layernorm_grad,
           &(job){k, &g, NULL, space});
}

int main(int argc, char **argv) {
    sizes s = {argc > 1 ? strtol(argv[1], NULL, 10) : 64,
               argc > 2 ? strtol(argv[2], NULL, 10) : 32};
    if (s.n_res < 1 || s.n_seq < 1) return 2;
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F32);
    printf("%s, N_res %ld, N_seq %ld, %d heads of %d, c_z %d\n", k->name, (long)s.n_res,
           (long)s.n_seq, HEADS, C_HEAD, C_Z);
    bench_gemm(k, "bound: one product of 768 cubed", 768, 768, 768);
    bench_gemm(k, "transition, pair", s.n_res * s.n_res, 4 * C_Z, C_Z);
    bench_attention(k, "MSA row attention", s.n_seq, s.n_res, true, false);
    bench_attention(k, "MSA column attention", s.n_res, s.n_seq, false, true);
    bench_attention(k, "triangle attention", s.n_res, s.n_res, true, false);
    bench_pointwise(k, s);
    bench_outer(k, s);
    bench_triangle(k, s);
    bench_layernorm(k, s.n_res * s.n_res, C_Z);
    return 0;
}
