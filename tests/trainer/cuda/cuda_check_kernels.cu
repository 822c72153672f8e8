/* cuda_check_kernels.cu: cases of memory, rows, the trunk's cores, embeddings, losses on classes
 * and the optimiser; see cuda_check.cu. Attention has a file of its own. */
#include "tests/trainer/cuda/cuda_check.cuh"

#include <math.h>
#include <string.h>

namespace cuda_check {
namespace {

/* -- memory */

void check_memory(int64_t n) {
    check("fill", 1, [=](work_bench &b) { b.k->fill(NULL, n, 0.75, b.out(n)); });
    check("copy", 1, [=](work_bench &b) { b.k->copy(NULL, n, b.act(n), b.out(n)); });
    check("cast f32", 1, [=](work_bench &b) {
        b.k->cast(NULL, n, FM_ELEMENT_F32, b.input(b.draw(n, 1), FM_ELEMENT_F32), b.out(n));
    });
    check("cast bf16", 1, [=](work_bench &b) {
        b.k->cast(NULL, n, FM_ELEMENT_BF16, b.input(b.draw(n, 1), FM_ELEMENT_BF16), b.out(n));
    });
    check("cast f64", 1, [=](work_bench &b) {
        b.k->cast(NULL, n, FM_ELEMENT_F64, b.input(b.draw(n, 1), FM_ELEMENT_F64), b.out(n));
    });
    check("axpy", 1, [=](work_bench &b) {
        b.k->axpy(NULL, n, -0.3, b.act(n), b.grad(n, FM_ADD));
        b.k->axpy(NULL, n, 3, b.act(n), b.grad(n, FM_WRITE));
    });
    check("axpy_device", 1, [=](work_bench &b) {
        b.k->axpy_device(NULL, n, b.raw(std::vector<double>{0.7}), b.acc(n),
                         b.grad(n, FM_ADD, true));
    });
    check("widen, unpack_bits", 1, [=](work_bench &b) {
        std::vector<uint8_t> bytes((size_t)n);
        for (size_t i = 0; i < bytes.size(); i++)
            bytes[i] = (uint8_t)(i * 37 + 11);
        uint8_t *x = b.raw(bytes);
        b.k->widen(NULL, n, x, (int32_t *)b.keep(INTEGERS, FM_ELEMENT_I32, n, 0));
        b.k->unpack_bits(NULL, n, x, b.out(n));
    });
}

void check_strided(void) {
    check("copy_strided", 1, [](work_bench &b) {
        fm_strided s = {};
        s.rank = 4;
        const int64_t shape[4] = {3, 5, 7, 6}, from[4] = {210, 6, 30, 1}, at[4] = {300, 50, 7, 1};
        memcpy(s.shape, shape, sizeof shape);
        memcpy(s.x_stride, from, sizeof from);
        memcpy(s.y_stride, at, sizeof at);
        s.alpha = -2;
        s.x = b.act(630);
        s.y = b.grad(900, FM_WRITE);
        b.k->copy_strided(NULL, &s);
        s.y = b.grad(900, FM_ADD);
        b.k->copy_strided(NULL, &s);
    });
}

void check_sum(const char *name, int64_t n_a, int64_t n_r, int64_t n_c, int64_t gap) {
    check(name, 1, [=](work_bench &b) {
        int64_t ld = n_c + gap, stride[2] = {n_r * ld, ld};
        void *x = b.act(n_a * n_r * ld);
        void *space = b.space(b.k->sum_workspace(n_a, n_r, n_c));
        b.k->sum(NULL, n_a, n_r, n_c, stride, x, b.grad(n_a * n_c, FM_WRITE), false, space);
        b.k->sum(NULL, n_a, n_r, n_c, stride, x, b.grad(n_a * n_c, FM_ADD, true), true, space);
    });
}

/* -- rows */

void check_layernorm(const char *name, int64_t rows, int64_t c, int64_t gap, fm_beta beta) {
    check(name, 2, [=](work_bench &b) {
        int64_t ld = c + gap;
        fm_layernorm a = {rows,
                          c,
                          ld,
                          ld,
                          1e-5,
                          b.act(rows * ld, 3),
                          b.act(c),
                          b.act(c),
                          b.out(rows * ld),
                          b.out_acc(rows),
                          b.out_acc(rows)};
        b.k->layernorm(NULL, &a);
        fm_layernorm_grad g = {rows,
                               c,
                               ld,
                               ld,
                               ld,
                               a.x,
                               a.gamma,
                               b.act(rows * ld),
                               a.mean,
                               a.rstd,
                               b.grad(rows * ld, beta),
                               b.grad(c, beta, true),
                               b.grad(c, beta, true),
                               0};
        b.k->layernorm_grad(NULL, &g, b.space(b.k->layernorm_grad_workspace(rows, c)));
    });
}

/* Without weights; backward makes the statistics again. */
void check_bare_layernorm(const char *name, int64_t rows, int64_t c, fm_beta beta) {
    check(name, 2, [=](work_bench &b) {
        fm_layernorm a = {};
        a.rows = rows, a.c = a.ldx = a.ldy = c, a.eps = 1e-5;
        a.x = b.act(rows * c, 3), a.y = b.out(rows * c);
        b.k->layernorm(NULL, &a);
        fm_layernorm_grad g = {};
        g.rows = rows, g.c = g.ldx = g.lddy = g.lddx = c, g.eps = a.eps;
        g.x = a.x, g.dy = b.act(rows * c), g.dx = b.grad(rows * c, beta);
        b.k->layernorm_grad(NULL, &g, b.space(b.k->layernorm_grad_workspace(rows, c)));
    });
}

void check_gate(const char *name, int64_t rows, int64_t c, int64_t gap, bool masked,
                int64_t x_rows) {
    check(name, 2, [=](work_bench &b) {
        int64_t ld = c + gap;
        fm_gate a = {rows,
                     c,
                     ld,
                     ld,
                     ld,
                     b.act(rows * ld, 4),
                     b.act(rows * ld),
                     masked ? b.mask(rows, 5) : NULL,
                     b.out(rows * ld),
                     x_rows};
        b.k->gate(NULL, &a);
        fm_gate_grad g = {b.act(rows * ld), b.grad(rows * ld, FM_WRITE), b.grad(rows * ld, FM_ADD)};
        b.k->gate_grad(NULL, &a, &g);
    });
}

void check_swiglu_transition(const char *name, int64_t rows, int64_t c, int64_t hidden,
                             bool residual, fm_beta beta) {
    const auto run = [=](work_bench &b) {
        fm_swiglu_transition a = {};
        a.rows = rows, a.c = c, a.hidden = hidden, a.eps = 1e-5, a.residual = residual;
        a.x = b.act(rows * c, 2), a.norm = b.act(2 * c);
        a.w1 = b.act(2 * hidden * c, 0.25), a.w2 = b.act(hidden * c, 0.125);
        size_t kept = b.k->swiglu_transition_kept(&a);
        if (kept > 0) a.kept = b.space(kept * fm_element_bytes(b.k->act));
        a.y = b.out(rows * c);
        b.k->swiglu_transition(NULL, &a, b.space(b.k->swiglu_transition_workspace(&a)));
        fm_swiglu_transition_grad g = {};
        g.dy = b.act(rows * c), g.dx = b.grad(rows * c, beta);
        g.dnorm = b.grad(2 * c, beta, true);
        g.dw1 = b.grad(2 * hidden * c, beta, true), g.dw2 = b.grad(hidden * c, beta, true);
        b.k->swiglu_transition_grad(NULL, &a, &g,
                                    b.space(b.k->swiglu_transition_grad_workspace(&a, &g)));
    };
    check(name, 4, run, true);
}

/* Gaps of both kinds. The gradient also computes y again, once to other memory and once to dy. */
void check_swiglu(const char *name, int64_t rows, int64_t c, int64_t gap, fm_beta beta) {
    check(name, 2, [=](work_bench &b) {
        int64_t ldx = 2 * c + gap, ldy = c + gap;
        fm_swiglu a = {rows, c, ldx, ldy, b.act(rows * ldx, 4), b.out(rows * ldy)};
        b.k->swiglu(NULL, &a);
        void *dy = b.act(rows * ldy);
        a.y = b.out(rows * ldy);
        b.k->swiglu_grad(NULL, &a, dy, b.grad(rows * ldx, beta));
        a.y = b.out(rows * ldy);
        b.k->copy(NULL, rows * ldy, dy, a.y);
        b.k->swiglu_grad(NULL, &a, a.y, b.grad(rows * ldx, beta));
        a.y = NULL;
        b.k->swiglu_grad(NULL, &a, dy, b.grad(rows * ldx, FM_ADD));
    });
}

void check_rows(int64_t rows, int64_t c) {
    check("bias_add", 1, [=](work_bench &b) {
        b.k->bias_add(NULL, rows, c, b.act(rows * c), b.act(c), b.out(rows * c));
    });
    check("relu", 1, [=](work_bench &b) {
        void *y = b.out(rows * c);
        b.k->relu(NULL, rows * c, b.act(rows * c), y);
        b.k->relu_grad(NULL, rows * c, y, b.act(rows * c), b.grad(rows * c, FM_WRITE));
        b.k->relu_grad(NULL, rows * c, y, b.act(rows * c), b.grad(rows * c, FM_ADD));
    });
    check("scale_rows", 1, [=](work_bench &b) {
        b.k->scale_rows(NULL, rows, c, c, c + 2, b.act(rows), b.act(rows * c),
                        b.grad(rows * (c + 2), FM_ADD));
    });
    check("masked_mean", 2, [=](work_bench &b) {
        fm_masked_mean m = {rows, 3, c, 1e-10, b.act(rows * 3 * c), b.mask(rows * 3, 7)};
        b.k->masked_mean(NULL, &m, b.out(3 * c));
        b.k->masked_mean_grad(NULL, &m, b.act(3 * c), b.grad(rows * 3 * c, FM_ADD));
    });
}

/* -- outer product mean, triangle multiplication */

void check_outer(const char *name, int64_t n_seq, int64_t n_i, int64_t n_j, int64_t c, int64_t c_z,
                 fm_beta beta, bool residual = false) {
    check(name, 3, [=](work_bench &b) {
        fm_outer o = {};
        o.n_seq = n_seq, o.n_i = n_i, o.n_j = n_j, o.c = c, o.c_z = c_z, o.eps = 1e-3;
        int64_t ld = 2 * c, n_a = n_seq * n_i * ld, n_b = n_seq * n_j * ld;
        o.a = b.act(n_a), o.b = b.act(n_b);
        o.a_stride[0] = n_i * ld, o.a_stride[1] = ld;
        o.b_stride[0] = n_j * ld, o.b_stride[1] = ld;
        o.mask_a = b.mask(n_seq * n_i, 7), o.mask_b = b.mask(n_seq * n_j, 9);
        o.w = b.act(c_z * c * c, 0.2), o.bias = b.act(c_z);
        o.z = b.grad(n_i * n_j * c_z, beta);
        if (residual) o.residual = b.act(n_i * n_j * c_z);
        b.k->outer(NULL, &o, b.space(b.k->outer_workspace(&o)));
        fm_outer_grad g = {b.act(n_i * n_j * c_z), b.grad(n_a, beta), b.grad(n_b, beta),
                           b.grad(c_z * c * c, beta, true), b.grad(c_z, beta, true)};
        b.k->outer_grad(NULL, &o, &g, b.space(b.k->outer_grad_workspace(&o)));
    });
}

/* b is ordered by residue, [n_j, n_seq, c], as ranks gather it. */
void check_outer_gathered(const char *name, int64_t n_seq, int64_t n_i, int64_t n_j, int64_t c,
                          int64_t c_z) {
    check(name, 3, [=](work_bench &b) {
        fm_outer o = {};
        o.n_seq = n_seq, o.n_i = n_i, o.n_j = n_j, o.c = c, o.c_z = c_z, o.eps = 1e-3;
        int64_t n_a = n_seq * n_i * c, n_b = n_seq * n_j * c;
        o.a = b.act(n_a), o.b = b.act(n_b);
        o.a_stride[0] = n_i * c, o.a_stride[1] = c;
        o.b_stride[0] = c, o.b_stride[1] = n_seq * c;
        o.mask_a = b.mask(n_seq * n_i, 7), o.mask_b = b.mask(n_seq * n_j, 9);
        o.w = b.act(c_z * c * c, 0.2), o.bias = b.act(c_z);
        o.z = b.grad(n_i * n_j * c_z, FM_WRITE);
        b.k->outer(NULL, &o, b.space(b.k->outer_workspace(&o)));
        fm_outer_grad g = {b.act(n_i * n_j * c_z), b.grad(n_a, FM_WRITE), b.grad(n_b, FM_WRITE),
                           b.grad(c_z * c * c, FM_WRITE, true), b.grad(c_z, FM_WRITE, true)};
        b.k->outer_grad(NULL, &o, &g, b.space(b.k->outer_grad_workspace(&o)));
    });
}

/* Operands without gates, one of them gathered. */
void check_triangle_plain(const char *name, int64_t n_i, int64_t n_j, int64_t n_k, int64_t c) {
    check(name, 3, [=](work_bench &b) {
        int64_t n_a = n_i * n_k * c, n_b = n_j * n_k * c;
        fm_triangle t = {};
        t.n_i = n_i, t.n_j = n_j, t.n_k = n_k, t.c = c, t.lda = c, t.ldb = c;
        t.pa = b.act(n_a), t.pb = b.act(n_b), t.x = b.out(n_i * n_j * c);
        b.k->triangle(NULL, &t, b.space(b.k->triangle_workspace(&t)));
        fm_triangle_grad g = {};
        g.dx = b.act(n_i * n_j * c);
        g.dpa = b.grad(n_a, FM_WRITE), g.dpb = b.grad(n_b, FM_ADD);
        b.k->triangle_grad(NULL, &t, &g, b.space(b.k->triangle_grad_workspace(&t)));
    });
}

void check_triangle(const char *name, int64_t n_i, int64_t n_j, int64_t n_k, int64_t c,
                    bool incoming, fm_beta beta) {
    check(name, 3, [=](work_bench &b) {
        int64_t lda = 2 * c, ldb = 2 * c + 8, n_a = n_i * n_k * lda, n_b = n_j * n_k * ldb;
        fm_triangle t = {n_i,
                         n_j,
                         n_k,
                         c,
                         incoming,
                         b.act(n_a),
                         b.act(n_a, 3),
                         b.act(n_b),
                         b.act(n_b, 3),
                         lda,
                         ldb,
                         b.mask(n_i * n_k, 7),
                         b.mask(n_j * n_k, 9),
                         b.out(n_i * n_j * c)};
        b.k->triangle(NULL, &t, b.space(b.k->triangle_workspace(&t)));
        fm_triangle_grad g = {b.act(n_i * n_j * c), b.grad(n_a, beta), b.grad(n_a, beta),
                              b.grad(n_b, beta), b.grad(n_b, beta)};
        b.k->triangle_grad(NULL, &t, &g, b.space(b.k->triangle_grad_workspace(&t)));
    });
}

/* The whole sublayer. `kept` has a form of each table's choice and is not compared. With `is_far`
 * the first number of a row, from which the kernels measure its statistics, is thousands of
 * deviations away from the other numbers. */
void check_triangle_block(const char *name, int64_t n, int64_t c_z, int64_t c, bool incoming,
                          double rate, bool residual, fm_beta beta, bool is_far = false) {
    check(name, 8, [=](work_bench &b) {
        int64_t rows = n * n, c_projected = 4 * c + c_z;
        uint32_t *clock = b.raw(std::vector<uint32_t>{5, 1, 2, 0});
        fm_triangle_block t = {};
        t.n = n, t.c_z = c_z, t.c = c, t.incoming = incoming, t.residual = residual;
        t.eps = 1e-5;
        std::vector<double> z = b.draw(rows * c_z, 2);
        for (int64_t row = 0; is_far && row < rows; row += 3)
            z[(size_t)(row * c_z)] = row % 2 ? -3000 : 9000;
        t.z = b.input(z, b.k->act), t.mask = b.mask(rows, 7);
        t.norm_in = b.act(2 * c_z), t.norm_out = b.act(2 * c);
        t.projections = b.act(c_projected * c_z, 0.3), t.projections_bias = b.act(c_projected);
        t.out = b.act(c_z * c, 0.2), t.out_bias = b.act(c_z);
        t.dropout = {
            n, n, c_z, 3, 4, n + 9, FM_SHARED_AXIS0, rate, {77, clock, 8, FM_PURPOSE_DROPOUT}};
        t.y = b.out(rows * c_z);
        b.k->triangle_block(NULL, &t, b.space(b.k->triangle_block_workspace(&t)));
        t.keeps = true;
        t.kept = b.space(b.k->triangle_block_kept(&t) * fm_element_bytes(b.k->act));
        t.y = b.out(rows * c_z);
        b.k->triangle_block(NULL, &t, b.space(b.k->triangle_block_workspace(&t)));
        /* Backward reads what a recomputation keeps, which writes no y. */
        t.kept = b.space(b.k->triangle_block_kept(&t) * fm_element_bytes(b.k->act));
        t.y = NULL;
        b.k->triangle_block(NULL, &t, b.space(b.k->triangle_block_workspace(&t)));
        fm_triangle_block_grad g = {};
        g.dy = b.act(rows * c_z), g.dz = b.grad(rows * c_z, beta);
        g.dnorm_in = b.grad(2 * c_z, beta, true), g.dnorm_out = b.grad(2 * c, beta, true);
        g.dprojections = b.grad(c_projected * c_z, beta, true),
        g.dprojections_bias = b.grad(c_projected, beta, true);
        g.dout = b.grad(c_z * c, beta, true), g.dout_bias = b.grad(c_z, beta, true);
        b.k->triangle_block_grad(NULL, &t, &g, b.space(b.k->triangle_block_grad_workspace(&t)));
    });
}

void check_cores(void) {
    check_outer("outer odd", 5, 3, 7, 4, 6, FM_WRITE);
    check_outer("outer odd add", 9, 5, 5, 3, 5, FM_ADD);
    check_outer("outer 128x96, c 32", 128, 96, 96, 32, 128, FM_WRITE);
    check_outer("outer 40, 16x40, c 32", 40, 16, 40, 32, 128, FM_ADD);
    check_outer("outer 72, 200x88, c 32", 72, 200, 88, 32, 128, FM_WRITE, true);
    check_outer("outer 1, 8x8, c 32", 1, 8, 8, 32, 128, FM_WRITE);
    check_outer("outer 136, 12x32, c 32", 136, 12, 32, 32, 128, FM_ADD);
    check_outer("outer 300, 100x80, c 32", 300, 100, 80, 32, 128, FM_WRITE, true);
    check_outer("outer 512, 64x144, c 32", 512, 64, 144, 32, 128, FM_WRITE);
    check_outer("outer odd residual", 9, 5, 7, 3, 5, FM_WRITE, true);
    check_outer("outer of one", 1, 1, 1, 32, 128, FM_WRITE);
    check_outer("outer 5, 9x3, c 32", 5, 9, 3, 32, 128, FM_ADD);
    check_outer("outer 130, 37x70, c 32", 130, 37, 70, 32, 128, FM_WRITE, true);
    check_outer("outer 24, 67x130, c 32", 24, 67, 130, 32, 128, FM_ADD);
    check_outer("outer 512, 13x18, c 32", 512, 13, 18, 32, 128, FM_WRITE, true);
    check_outer("outer 520, 5x67, c 32", 520, 5, 67, 32, 128, FM_ADD);
    check_outer("outer 1290, 67x9, c 32", 1290, 67, 9, 32, 128, FM_WRITE, true);
    check_outer("outer 1290, 66x10, c 32", 1290, 66, 10, 32, 128, FM_ADD);
    check_outer("outer 3080, 3x130, c 32", 3080, 3, 130, 32, 128, FM_WRITE, true);
    check_outer("outer 40, 200x136, c 32", 40, 200, 136, 32, 128, FM_WRITE, true);
    /* blocks that take a second place; parts of the places of a longer sum */
    check_outer("outer 40, 13x802, c 32", 40, 13, 802, 32, 128, FM_ADD);
    check_outer("outer 600, 5x600, c 32", 600, 5, 600, 32, 128, FM_WRITE, true);
    check_outer_gathered("outer gathered odd", 5, 3, 7, 4, 6);
    check_outer_gathered("outer gathered 128, 32x96", 128, 32, 96, 32, 128);
    check_triangle_plain("triangle plain odd", 5, 7, 9, 3);
    check_triangle_plain("triangle plain 24x96", 24, 96, 96, 128);
    check_triangle("triangle odd", 5, 7, 9, 3, false, FM_WRITE);
    check_triangle("triangle odd incoming", 5, 7, 9, 3, true, FM_ADD);
    check_triangle("triangle 96", 96, 96, 96, 128, false, FM_WRITE);
    check_triangle("triangle 96 incoming", 96, 96, 96, 128, true, FM_WRITE);
    check_triangle_block("triangle block one", 1, 3, 2, false, 0, true, FM_WRITE);
    check_triangle_block("triangle block odd", 7, 6, 5, true, 0.25, false, FM_ADD);
    check_triangle_block("triangle block 16, c 64", 16, 64, 64, false, 0.25, true, FM_ADD);
    check_triangle_block("triangle block 48 incoming, c 64", 48, 64, 64, true, 0, false, FM_WRITE);
    check_triangle_block("triangle block 16, c 128", 16, 128, 128, true, 0.25, true, FM_WRITE);
    check_triangle_block("triangle block 96, c 128", 96, 128, 128, false, 0.25, true, FM_ADD);
    check_triangle_block("triangle block 24, c 128", 24, 128, 128, false, 0.25, true, FM_WRITE);
    check_triangle_block("triangle block 176 incoming, c 128", 176, 128, 128, true, 0.25, true,
                         FM_ADD);
    check_triangle_block("triangle block 30, c 128", 30, 128, 128, true, 0, true, FM_ADD);
    check_triangle_block("triangle block 32, outliers, c 128", 32, 128, 128, false, 0, false,
                         FM_WRITE, true);
    check_triangle_block("triangle block 32, outliers, c 64", 32, 64, 64, true, 0.25, false,
                         FM_WRITE, true);
    check_triangle_block("triangle block 16, c_z 64, c 128", 16, 64, 128, false, 0.25, true,
                         FM_WRITE);
    check_triangle_block("triangle block 48 incoming, c_z 64, c 128", 48, 64, 128, true, 0.25,
                         false, FM_ADD);
    check_triangle_block("triangle block 64, c_z 64, c 128", 64, 64, 128, false, 0, true, FM_WRITE);
    check_triangle_block("triangle block 32, c_z 128, c 64", 32, 128, 64, false, 0, true, FM_ADD);
    check_triangle_block("triangle block 32, outliers, c_z 64, c 128", 32, 64, 128, true, 0.25,
                         true, FM_WRITE, true);
}

/* -- dropout, embeddings, losses, optimiser */

void check_dropout(const char *name, fm_shared_axis shared, int64_t c, double rate, int64_t n0 = 9,
                   int64_t n1 = 11) {
    check(name, 1, [=](work_bench &b) {
        uint32_t *clock = b.raw(std::vector<uint32_t>{5, 1, 2, 0});
        fm_dropout d = {n0, n1, c, 3, 4, n1 + 9, shared, rate, {77, clock, 8, FM_PURPOSE_DROPOUT}};
        int64_t n = d.n0 * d.n1 * c;
        b.k->dropout(NULL, &d, b.act(n), b.act(n), b.out(n));
        b.k->dropout(NULL, &d, NULL, b.act(n), b.out(n));
        b.k->dropout_grad(NULL, &d, b.act(n), b.grad(n, FM_ADD));
    });
}

void check_update_norm(const char *name, int64_t n0, int64_t n1, fm_shared_axis shared, int64_t c,
                       double rate, fm_beta beta) {
    check(name, 3, [=](work_bench &b) {
        uint32_t *clock = b.raw(std::vector<uint32_t>{5, 1, 2, 0});
        fm_dropout d = {n0, n1, c, 3, 4, n1 + 9, shared, rate, {77, clock, 8, FM_PURPOSE_DROPOUT}};
        int64_t n = n0 * n1 * c;
        fm_update_norm a = {d, 1e-5, b.act(c), b.act(c)};
        void *y = b.out(n);
        b.k->update_norm(NULL, &a, b.act(n, 3), b.act(n), y, b.out(n));
        fm_update_norm_grad g = {b.act(n, 3),           b.act(n),
                                 b.grad(n, beta),       b.out(n),
                                 b.grad(c, beta, true), b.grad(c, beta, true)};
        void *space = b.space(b.k->update_norm_grad_workspace(n0 * n1, c));
        b.k->update_norm_grad(NULL, &a, &g, space);
        g.dy = b.grad(n, beta), g.dupdate = NULL;
        g.dgamma = b.grad(c, FM_ADD, true), g.dbeta = b.grad(c, FM_WRITE, true);
        b.k->update_norm_grad(NULL, &a, &g, space);
    });
}

void check_embed(int64_t rows, int64_t n_i, int64_t n_j, int64_t c) {
    check("lookup", 1, [=](work_bench &b) {
        std::vector<uint8_t> classes((size_t)rows);
        for (size_t i = 0; i < classes.size(); i++)
            classes[i] = (uint8_t)(i * 7 % 25);
        uint8_t *ids = b.raw(classes);
        fm_lookup t = {23, c, 1, 23, b.act(23 * c)};
        b.k->lookup(NULL, &t, rows, ids, b.grad(rows * c, FM_WRITE));
        b.k->lookup(NULL, &t, rows, ids, b.grad(rows * c, FM_ADD));
        b.k->lookup_grad(NULL, &t, rows, ids, b.act(rows * c), b.grad(23 * c, FM_ADD, true),
                         b.space(b.k->lookup_grad_workspace(&t, rows)));
    });
    check("relpos", 1, [=](work_bench &b) {
        std::vector<int32_t> index_i((size_t)n_i), index_j((size_t)n_j);
        for (size_t i = 0; i < index_i.size(); i++)
            index_i[i] = (int32_t)(i + i / 10 * 5);
        for (size_t j = 0; j < index_j.size(); j++)
            index_j[j] = (int32_t)(2 * j);
        int32_t *i = b.raw(index_i), *j = b.raw(index_j);
        fm_lookup t = {65, c, c, 1, b.act(65 * c)};
        b.k->relpos(NULL, &t, n_i, n_j, i, j, b.grad(n_i * n_j * c, FM_ADD));
        b.k->relpos_grad(NULL, &t, n_i, n_j, i, j, b.act(n_i * n_j * c),
                         b.grad(65 * c, FM_WRITE, true),
                         b.space(b.k->relpos_grad_workspace(&t, n_i, n_j)));
    });
    check("outer_sum", 1, [=](work_bench &b) {
        b.k->outer_sum(NULL, n_i, n_j, c, c + 8, 2 * c, b.act(n_i * (c + 8)), b.act(n_j * 2 * c),
                       b.grad(n_i * n_j * c, FM_WRITE));
        b.k->outer_sum_grad(NULL, n_i, n_j, c, c + 1, c + 2, b.act(n_i * n_j * c),
                            b.grad(n_i * (c + 1), FM_ADD), b.grad(n_j * (c + 2), FM_WRITE));
    });
}

void check_msa_features(fm_element element) {
    check("msa_features", 1, [=](work_bench &b) {
        const int64_t n_seq = 5, n_res = 37, n = n_seq * n_res;
        std::vector<uint8_t> msa((size_t)n), profile8((size_t)n * 23);
        std::vector<uint16_t> deletion((size_t)n), profile16((size_t)n * 23);
        std::vector<uint32_t> sums((size_t)n), sizes = {1, 3, 2, 900, 7}, profile32((size_t)n * 23);
        for (size_t i = 0; i < (size_t)n; i++) {
            msa[i] = (uint8_t)(i % 23);
            deletion[i] = (uint16_t)(i % 4 * i % 77);
            sums[i] = (uint32_t)(i * 3 % 101);
        }
        for (size_t i = 0; i < profile8.size(); i++)
            profile8[i] = profile16[i] = profile32[i] = (uint8_t)(i * 5 % 9);
        fm_msa_features f = {n_seq,       n_res,        b.raw(msa), b.raw(deletion), NULL, element,
                             b.raw(sums), b.raw(sizes), NULL};
        const void *profiles[3] = {b.raw(profile8), b.raw(profile16), b.raw(profile32)};
        f.profile = profiles[element == FM_ELEMENT_U8 ? 0 : element == FM_ELEMENT_U16 ? 1 : 2];
        f.y = b.out(n * FM_MSA_FEATURES);
        b.k->msa_features(NULL, &f);
        f.profile = NULL;
        f.y = b.out(n * FM_EXTRA_MSA_FEATURES);
        b.k->msa_features(NULL, &f);
    });
}

void check_distances(void) {
    check("distance_bins, distance_ids", 1, [](work_bench &b) {
        const int64_t n = 61;
        std::vector<float> x(3 * n), mask(n);
        for (size_t i = 0; i < x.size(); i++)
            x[i] = (float)(i * 7919 % 401) * 0.1f;
        for (size_t i = 0; i < mask.size(); i++)
            mask[i] = i % 7 != 3;
        float *at = b.raw(x), *m = b.raw(mask);
        b.k->distance_bins(NULL, n, n, at, at, m, m, 64, 2.3125f, 21.6875f,
                           (int32_t *)b.keep(INTEGERS, FM_ELEMENT_I32, n * n, 0), b.out(n * n));
        b.k->distance_ids(NULL, n, n, at, at, 15, 3.25f, 20.75f, 1e8f,
                          (uint8_t *)b.keep(INTEGERS, FM_ELEMENT_U8, n * n, 0));
    });
}

void check_cross_entropy(int64_t rows, int64_t n_class) {
    check("cross_entropy", 1, [=](work_bench &b) {
        int64_t ld = n_class + 3;
        std::vector<int32_t> target((size_t)rows);
        for (size_t i = 0; i < target.size(); i++)
            target[i] = (int32_t)(i * 13 % (size_t)(n_class + 1)) - (i % 50 == 3);
        fm_cross_entropy a = {rows,
                              n_class,
                              ld,
                              1e-6,
                              b.act(rows * ld, 5),
                              b.raw(target),
                              b.mask(rows, 4),
                              b.out_acc(rows),
                              b.out_acc(1),
                              b.out_acc(1)};
        b.k->cross_entropy(NULL, &a, b.space(b.k->cross_entropy_workspace(rows)));
        b.k->cross_entropy_grad(NULL, &a, b.acc(1), b.grad(rows * ld, FM_WRITE));
        b.k->cross_entropy_grad(NULL, &a, b.acc(1), b.grad(rows * ld, FM_ADD));
    });
}

void check_optimiser(int64_t n, bool has_nan) {
    check(has_nan ? "optimiser, not finite" : "optimiser", 1, [=](work_bench &b) {
        std::vector<double> values = b.draw(n, 1);
        if (has_nan) values[(size_t)n / 2] = NAN;
        void *grad = b.input(values, b.k->acc);
        std::vector<uint32_t> zero = {0};
        uint32_t *flag = (uint32_t *)b.keep(INTEGERS, FM_ELEMENT_U32, 1, 0);
        b.k->upload(NULL, flag, zero.data(), 4);
        b.k->find_nonfinite(NULL, n, b.input(values, b.k->act), flag);
        std::vector<double> host(sizeof(fm_step_state) / sizeof(double), 0);
        fm_step_state start = {0, 0, 1e-3, 3, 0, 0, 0, 0};
        memcpy(host.data(), &start, sizeof start);
        fm_step_state *state = (fm_step_state *)b.raw(host);
        b.k->grad_norm(NULL, n, grad, 0.1, false, state, b.space(b.k->grad_norm_workspace(n)));
        fm_adam a = {n,
                     0.9,
                     0.999,
                     1e-6,
                     0.999,
                     0.5,
                     true,
                     state,
                     grad,
                     NULL,
                     b.updated(n, 1, false),
                     b.updated(n, 0.1, false),
                     b.updated(n, 0.1, true),
                     b.updated(n, 1, false),
                     b.out(n),
                     1e-2};
        b.k->adam(NULL, &a);
        double *kept = (double *)b.keep(DOUBLES, FM_ELEMENT_F64, 2, 0);
        b.k->synchronize(NULL);
        b.k->download(NULL, host.data(), state, sizeof start);
        b.k->synchronize(NULL);
        b.k->upload(NULL, kept, host.data(), 2 * sizeof(double));
        b.k->synchronize(NULL);
    });
}

/* The step's scalars decide whether the sum is written, added to or left alone. The CPU's doubles
 * have a scale that f32 can hold. */
void check_accumulate(int64_t n) {
    check("accumulate", 1, [=](work_bench &b) {
        const uint32_t pending[] = {0, 2, 0}, holds[] = {1, 0, 0};
        for (int i = 0; i < 3; i++) {
            fm_step_state start = {0, 0.375, 1e-3, 3, 0, pending[i], holds[i], 0};
            const uint8_t *bytes = (const uint8_t *)&start;
            void *state = b.raw(std::vector<uint8_t>(bytes, bytes + sizeof start));
            b.k->accumulate(NULL, n, (const fm_step_state *)state, false, b.acc(n),
                            b.grad(n, FM_ADD, true).data);
        }
    });
}

/* A term that is not finite marks the record and the step's scalars. */
void check_report(void) {
    check("report", 1, [=](work_bench &b) {
        const double last[] = {3, INFINITY, NAN};
        uint32_t *flags = (uint32_t *)b.keep(INTEGERS, FM_ELEMENT_U32, 6, 0);
        double *kept = (double *)b.keep(DOUBLES, FM_ELEMENT_F64, 6, 0);
        for (int i = 0; i < 3; i++) {
            fm_step_record record = {};
            fm_step_state state = {};
            fm_report report = {};
            report.n_term = 3, report.n_record = 1;
            for (int t = 0; t < 3; t++)
                report.term[t] = b.input({t < 2 ? 1.5 * t : last[i]}, b.k->acc);
            report.step = b.raw(std::vector<fm_step_state>(1, state));
            report.n_made = b.raw(std::vector<uint64_t>(1, 0));
            report.record = b.raw(std::vector<fm_step_record>(1, record));
            b.k->report(NULL, &report);
            b.k->synchronize(NULL);
            b.k->download(NULL, &record, report.record, sizeof record);
            b.k->download(NULL, &state, report.step, sizeof state);
            b.k->synchronize(NULL);
            const uint32_t found[] = {record.nonfinite, state.nonfinite};
            b.k->upload(NULL, flags + 2 * i, found, sizeof found);
            b.k->upload(NULL, kept + 2 * i, record.term, 2 * sizeof *kept);
            b.k->synchronize(NULL);
        }
    });
}

/* A packet with one item that becomes act elements. x is the data behind the header. */
void take_item(work_bench &b, fm_item item, const std::vector<uint8_t> &x) {
    std::vector<uint8_t> bytes((sizeof(fm_packet) + 15) / 16 * 16, 0);
    fm_packet packet = {};
    packet.n_item = 1;
    item.x = (int64_t)bytes.size();
    item.y_element = (uint8_t)b.k->act;
    packet.item[0] = item;
    memcpy(bytes.data(), &packet, sizeof packet);
    bytes.insert(bytes.end(), x.begin(), x.end());
    bytes.resize((bytes.size() + 15) / 16 * 16);
    fm_take take = {b.raw(bytes),
                    (int64_t)bytes.size(),
                    1,
                    b.raw(std::vector<uint64_t>{4}),
                    b.out(item.n),
                    b.raw(std::vector<uint32_t>(FM_CLOCK_WORDS, 0)),
                    (fm_step_state *)b.raw(std::vector<uint64_t>(sizeof(fm_step_state) / 8, 0))};
    b.k->take_packet(NULL, &take);
}

void check_packet(void) {
    check("take_packet", 1, [](work_bench &b) {
        const int64_t lines = 9, rows = 13, c = 5, n0 = 7, n1 = 11;
        std::vector<uint8_t> x(n0 * n1 * c * 4);
        for (size_t i = 0; i < x.size(); i++)
            x[i] = (uint8_t)(i * 37 % 64);
        fm_item item = {};
        item.n = lines * rows * c, item.rows = rows, item.c = c, item.n0 = n0, item.n1 = n1;
        item.padding = 21;
        item.kind = FM_ITEM_VALUES;
        const fm_element elements[] = {FM_ELEMENT_U8, FM_ELEMENT_U16, FM_ELEMENT_F32};
        for (fm_element element : elements) {
            item.x_element = (uint8_t)element;
            take_item(b, item, x);
        }
        item.n = lines * rows, item.c = 1;
        item.kind = FM_ITEM_BITS;
        take_item(b, item, x);
        item.kind = FM_ITEM_INSIDE;
        take_item(b, item, x);
    });
}

void check_init(void) {
    check("init", 1, [](work_bench &b) {
        fm_draw draw = {5, NULL, 17, FM_PURPOSE_INIT};
        const int64_t n = 1003;
        b.k->init(NULL, FM_INIT_CONSTANT, n, 0, 0.25, &draw, b.out_acc(n));
        b.k->init(NULL, FM_INIT_UNIFORM, n, 3, 0.25, &draw, b.out_acc(n));
        b.k->init(NULL, FM_INIT_TRUNCATED_NORMAL, n, 1, 0.25, &draw, b.out_acc(n));
    });
}

} // namespace

void check_transitions(void) {
    check_swiglu_transition("swiglu transition 7x24x40", 7, 24, 40, true, FM_ADD);
    check_swiglu_transition("swiglu transition 200x128x256, bare", 200, 128, 256, false, FM_WRITE);
    check_swiglu_transition("swiglu transition 64x64x64", 64, 64, 64, true, FM_WRITE);
    check_swiglu_transition("swiglu transition 401x64x256", 401, 64, 256, true, FM_ADD);
    check_swiglu_transition("swiglu transition 90x128x128", 90, 128, 128, true, FM_WRITE);
    check_swiglu_transition("swiglu transition 34003x128x192", 34003, 128, 192, true, FM_ADD);
}

void check_kernels(void) {
    check_memory(1);
    check_memory(100003);
    check_memory(1 << 16);
    check_strided();
    check_sum("sum bias gradient", 1, 32768, 256, 0);
    check_sum("sum of 512 columns", 1, 4096, 512, 0);
    check_sum("sum of a slice of 640 columns", 1, 2051, 640, 128);
    check_sum("sum of 1032 columns", 2, 700, 1032, 8);
    check_sum("sum of few rows", 1, 5, 65536, 0);
    check_sum("sum of few odd rows", 2, 3, 20001, 3);
    check_sum("sum of 8 columns", 1, 65536, 8, 0);
    check_sum("sum of small batches", 7, 300, 48, 16);
    check_sum("sum of one row", 1, 1, 3, 0);
    check_sum("sum of odd distances", 1, 9001, 260, 3);
    check_sum("sum odd", 3, 77, 5, 2);
    check_sum("sum rows", 33, 1001, 1, 0);
    check_layernorm("layernorm c 5, gaps", 7, 5, 3, FM_WRITE);
    check_layernorm("layernorm c 37", 301, 37, 0, FM_ADD);
    check_layernorm("layernorm one", 1, 1, 0, FM_WRITE);
    check_layernorm("layernorm c 1024", 3, 1024, 0, FM_ADD);
    check_layernorm("layernorm c 64", 4096, 64, 0, FM_WRITE);
    check_layernorm("layernorm c 128", 4099, 128, 0, FM_WRITE);
    check_layernorm("layernorm c 256", 4099, 256, 8, FM_ADD);
    check_layernorm("layernorm c 384", 259, 384, 0, FM_WRITE);
    check_layernorm("layernorm c 16", 4099, 16, 0, FM_ADD);
    check_layernorm("layernorm c 768", 259, 768, 0, FM_ADD);
    check_bare_layernorm("bare layernorm c 5", 7, 5, FM_ADD);
    check_bare_layernorm("bare layernorm c 16", 301, 16, FM_WRITE);
    check_bare_layernorm("bare layernorm c 128", 301, 128, FM_ADD);
    check_bare_layernorm("bare layernorm c 768", 61, 768, FM_WRITE);
    check_gate("gate odd", 13, 7, 2, true, 0);
    check_gate("gate 128", 1000, 128, 64, true, 0);
    check_gate("gate odd, shared rows", 15, 7, 2, false, 5);
    check_gate("gate 64, shared rows", 1024, 64, 32, false, 256);
    check_swiglu("swiglu one", 1, 1, 0, FM_WRITE);
    check_swiglu("swiglu odd", 13, 7, 3, FM_ADD);
    check_swiglu("swiglu 512, gaps", 259, 512, 8, FM_ADD);
    check_swiglu("swiglu 512", 4099, 512, 0, FM_WRITE);
    check_swiglu("swiglu 1536", 384, 1536, 0, FM_WRITE);
    check_rows(129, 17);
    check_rows(129, 48);
    check_cores();
    check_dropout("dropout none shared", FM_SHARED_NONE, 5, 0.1);
    check_dropout("dropout none shared, whole packs", FM_SHARED_NONE, 64, 0.1);
    check_dropout("dropout axis 0", FM_SHARED_AXIS0, 64, 0.25);
    check_dropout("dropout axis 1", FM_SHARED_AXIS1, 64, 0.25);
    check_dropout("dropout axis 0, many rows", FM_SHARED_AXIS0, 64, 0.25, 300, 263);
    check_dropout("dropout axis 1, many rows", FM_SHARED_AXIS1, 64, 0.25, 263, 300);
    check_dropout("dropout rate 0", FM_SHARED_AXIS1, 6, 0);
    check_dropout("dropout rate 0, whole packs", FM_SHARED_AXIS1, 128, 0);
    check_update_norm("update norm one", 1, 1, FM_SHARED_AXIS0, 1, 0.25, FM_WRITE);
    check_update_norm("update norm c 37", 9, 11, FM_SHARED_AXIS0, 37, 0.25, FM_ADD);
    check_update_norm("update norm c 37 axis 1", 9, 11, FM_SHARED_AXIS1, 37, 0.25, FM_ADD);
    check_update_norm("update norm c 64", 33, 70, FM_SHARED_AXIS1, 64, 0.25, FM_ADD);
    check_update_norm("update norm c 128", 63, 70, FM_SHARED_AXIS0, 128, 0.25, FM_ADD);
    check_update_norm("update norm c 128 axis 1", 63, 71, FM_SHARED_AXIS1, 128, 0.25, FM_WRITE);
    check_update_norm("update norm c 128 alone", 63, 71, FM_SHARED_NONE, 128, 0.25, FM_ADD);
    check_update_norm("update norm c 128 rate 0", 96, 96, FM_SHARED_AXIS1, 128, 0, FM_ADD);
    check_update_norm("update norm c 256", 127, 70, FM_SHARED_AXIS0, 256, 0.15, FM_ADD);
    check_update_norm("update norm c 384", 3, 71, FM_SHARED_AXIS1, 384, 0.15, FM_WRITE);
    check_embed(1001, 33, 41, 48);
    check_embed(1, 1, 1, 1);
    check_msa_features(FM_ELEMENT_U8);
    check_msa_features(FM_ELEMENT_U16);
    check_msa_features(FM_ELEMENT_U32);
    check_distances();
    check_cross_entropy(1003, 64);
    check_cross_entropy(1, 1);
    check_optimiser(100003, false);
    check_optimiser(100003, true);
    check_report();
    check_accumulate(10007);
    check_packet();
    check_init();
}

} // namespace cuda_check
