/* cuda_check_gemm.cu: cases of matrix products: shapes for cuBLASLt, for the kernels of this
 * backend and for the plain one, and their epilogues; see cuda_check.cu. */
#include "tests/trainer/cuda/cuda_check.cuh"

namespace cuda_check {
namespace {

/* cuBLASLt may take f32 for products of few rows or columns, or of rows at odd distances. */
bool is_rounded(int64_t m, int64_t n, int64_t k, int64_t gap) {
    bool is_wide = m % 16 == 0 && n % 16 == 0 && k % 16 == 0;
    return is_wide && gap % 4 == 0;
}

void check_gemm(const char *name, int64_t m, int64_t n, int64_t k, int64_t batch, int trans,
                fm_epilogue epilogue, bool add, bool is_acc, int64_t gap) {
    const auto run = [=](work_bench &b) {
        fm_gemm g = {};
        g.m = m, g.n = n, g.k = k, g.batch = batch;
        g.trans_a = trans & 1, g.trans_b = trans & 2;
        bool is_special =
            m == 4 || n == 4 || k == 4 || n == 1024; /* kernels that want an alpha of 1 */
        g.alpha = is_special ? 1 : 0.5, g.beta = add ? 1 : 0;
        g.lda = (g.trans_a ? m : k) + gap, g.ldb = (g.trans_b ? k : n) + gap, g.ldc = n + gap;
        g.stride_a = (g.trans_a ? k : m) * g.lda, g.stride_b = (g.trans_b ? n : k) * g.ldb;
        g.stride_c = m * g.ldc;
        g.a = b.act(batch * g.stride_a), g.b = b.act(batch * g.stride_b);
        g.epilogue = epilogue;
        if (epilogue != FM_EPILOGUE_NONE) g.bias = b.act(n);
        g.c_is_acc = is_acc;
        fm_out c = b.grad(batch * g.stride_c, add ? FM_ADD : FM_WRITE, is_acc);
        g.c = c.data;
        b.k->gemm(NULL, &g, b.space(b.k->gemm_workspace(&g)));
    };
    check(name, 1, run, is_rounded(m, n, k, gap));
}

/* Inputs are bf16 numbers, in which a product of f32 has no digits to lose. So this multiplies the
 * product of two inputs, C [m, n], by itself from either side, in all orders of storage. */
void check_digits(const char *name, int64_t m, int64_t n, int64_t k) {
    const auto run = [=](work_bench &b) {
        void *c = b.out(m * n);
        const auto multiply = [&](int64_t rows, int64_t columns, int64_t depth, int trans,
                                  const void *x, const void *y, void *out) {
            fm_gemm g = {};
            g.m = rows, g.n = columns, g.k = depth, g.batch = 1, g.alpha = 1;
            g.trans_a = trans & 1, g.trans_b = trans & 2;
            g.lda = g.trans_a ? rows : depth, g.ldb = g.trans_b ? depth : columns, g.ldc = columns;
            g.a = x, g.b = y, g.c = out;
            b.k->gemm(NULL, &g, b.space(b.k->gemm_workspace(&g)));
        };
        multiply(m, n, k, 2, b.act(m * k), b.act(n * k), c);
        multiply(m, m, n, 2, c, c, b.out(m * m));
        multiply(n, n, m, 1, c, c, b.out(n * n));
        multiply(m, m, n, 0, c, b.act(n * m), b.out(m * m));
        multiply(n, n, m, 3, c, b.act(n * m), b.out(n * n));
    };
    check(name, 2, run, is_rounded(m, n, k, 0));
}

/* y = x W^T + bias + residual, also with a bias that begins with zeros. */
void check_addend(const char *name, int64_t m, int64_t n, int64_t k, int64_t gap) {
    const auto run = [=](work_bench &b) {
        fm_gemm g = {};
        g.m = m, g.n = n, g.k = k, g.batch = 1, g.trans_b = true, g.alpha = 1, g.beta = 1;
        g.lda = k, g.ldb = k, g.ldc = n + gap;
        g.a = b.act(m * k), g.b = b.act(n * k), g.addend = b.act(m * g.ldc), g.bias = b.act(n);
        g.epilogue = FM_EPILOGUE_BIAS;
        g.c = b.grad(m * g.ldc, FM_WRITE).data;
        b.k->gemm(NULL, &g, b.space(b.k->gemm_workspace(&g)));
    };
    check(name, 1, run, is_rounded(m, n, k, gap));
}

void check_relu_grad(const char *name, int64_t m, int64_t n, int64_t k, int64_t gap,
                     fm_beta sum_beta, bool has_sum) {
    const auto run = [=](work_bench &b) {
        fm_gemm g = {};
        g.m = m, g.n = n, g.k = k, g.batch = 1, g.alpha = 1;
        g.lda = k, g.ldb = n, g.ldc = n + gap;
        g.a = b.act(m * k), g.b = b.act(n * k);
        std::vector<double> relu = b.draw(m * g.ldc, 1);
        for (double &v : relu)
            v = v > 0 ? v : 0;
        g.relu = b.input(relu, b.k->act);
        g.epilogue = FM_EPILOGUE_RELU_GRAD;
        g.c = b.grad(m * g.ldc, FM_WRITE).data;
        if (has_sum) g.sum = b.grad(n, sum_beta, true);
        b.k->gemm(NULL, &g, b.space(b.k->gemm_workspace(&g)));
    };
    check(name, 1, run, is_rounded(m, n, k, gap));
}

/* A weight gradient dW [m, n] over k rows, with the sums of dy's columns from sum_first on, or (m)
 * without sums. */
void check_weights(const char *name, int64_t m, int64_t n, int64_t k, int64_t gap,
                   int64_t sum_first, fm_beta beta) {
    const auto run = [=](work_bench &b) {
        fm_gemm g = {};
        g.m = m, g.n = n, g.k = k, g.batch = 1, g.trans_a = true, g.alpha = 1, g.c_is_acc = true;
        g.lda = m + gap, g.ldb = n + gap, g.ldc = n + gap, g.beta = beta == FM_ADD ? 1 : 0;
        g.a = b.act(k * g.lda), g.b = b.act(k * g.ldb);
        g.c = b.grad(m * g.ldc, beta, true).data;
        if (sum_first < m) {
            g.sum = b.grad(m - sum_first, beta, true);
            g.sum_first = sum_first;
        }
        b.k->gemm(NULL, &g, b.space(b.k->gemm_workspace(&g)));
    };
    check(name, 1, run, is_rounded(m, n, k, gap));
}

void check_few_rows(void) {
    check_gemm("gemm few rows", 256, 384, 384, 1, 2, FM_EPILOGUE_BIAS_RELU, false, false, 0);
    check_gemm("gemm few rows, 6 columns", 256, 6, 384, 1, 2, FM_EPILOGUE_BIAS, true, false, 0);
    check_gemm("gemm few rows, deep", 200, 384, 2112, 1, 2, FM_EPILOGUE_NONE, false, false, 0);
    check_gemm("gemm few rows, of the input", 250, 2112, 384, 1, 0, FM_EPILOGUE_NONE, true, false,
               4);
    check_gemm("gemm few rows, of weights", 1152, 384, 256, 1, 1, FM_EPILOGUE_NONE, true, true, 0);
    check_gemm("gemm few rows, both", 76, 40, 68, 1, 3, FM_EPILOGUE_NONE, false, false, 8);
    check_digits("gemm few rows, all digits", 256, 384, 64);
}

void check_all_weights(void) {
    check_weights("gemm weights 128 x 128", 128, 128, 16384, 0, 0, FM_WRITE);
    check_weights("gemm weights 512 x 128, last sums", 512, 128, 9000, 0, 384, FM_ADD);
    check_weights("gemm weights 512 x 128, odd part of the sums", 512, 128, 4097, 8, 333, FM_WRITE);
    check_weights("gemm weights 128 x 512", 128, 512, 8192, 0, 0, FM_ADD);
    check_weights("gemm weights 1024 x 256", 1024, 256, 4160, 0, 768, FM_WRITE);
    check_weights("gemm weights 256 x 1024", 256, 1024, 4096, 16, 0, FM_WRITE);
    check_weights("gemm weights 256 x 256", 256, 256, 8191, 0, 0, FM_ADD);
    check_weights("gemm weights 64 x 128", 64, 128, 5000, 0, 0, FM_WRITE);
    check_weights("gemm weights 64 x 256", 64, 256, 20001, 0, 0, FM_WRITE);
    check_weights("gemm weights 256 x 64", 256, 64, 8200, 24, 0, FM_ADD);
    check_weights("gemm weights 512 x 64", 512, 64, 8200, 0, 0, FM_WRITE);
    check_weights("gemm weights 64 x 64, without sums", 64, 64, 131073, 8, 64, FM_ADD);
    check_weights("gemm weights 128 x 64", 128, 64, 2048, 0, 0, FM_WRITE);
    check_weights("gemm weights 192 x 320", 192, 320, 3001, 0, 0, FM_ADD);
    check_weights("gemm weights 128 x 1024", 128, 1024, 8200, 0, 0, FM_WRITE);
    check_weights("gemm weights of the library, without sums", 256, 256, 8200, 0, 256, FM_ADD);
    check_weights("gemm weights 640 x 128", 640, 128, 6400, 0, 0, FM_WRITE);
    check_weights("gemm weights of the library, few rows", 128, 128, 1000, 0, 64, FM_ADD);
    check_weights("gemm weights of the library, distances of 4", 64, 64, 4096, 4, 0, FM_WRITE);
    check_weights("gemm weights of four heads", 4, 128, 4133, 0, 0, FM_ADD);
    check_weights("gemm weights odd", 37, 19, 2301, 3, 5, FM_WRITE);
}

/* -- linear layers with the end of a sublayer */

/* Makes n again of y. Its difference from the n that was made with y must be 0, not only small. */
void norm_again(work_bench &b, const fm_linear_update &a) {
    int64_t count = a.end.dropout.n0 * a.end.dropout.n1 * a.end.dropout.c;
    fm_linear_update again = a;
    again.x = again.residual = NULL, again.n = b.out(count);
    b.k->linear_update(NULL, &again, b.space(b.k->linear_update_workspace(&again)));
    b.k->axpy(NULL, count, -1, a.n, {again.n, FM_ADD});
}

/* The last linear layer with the end of its sublayer, with and without the next norm. */
void check_linear_update(const char *name, int64_t n0, int64_t n1, fm_shared_axis shared, int64_t c,
                         int64_t c_in, double rate) {
    check(name, 4, [=](work_bench &b) {
        uint32_t *clock = b.raw(std::vector<uint32_t>{5, 1, 2, 0});
        fm_dropout d = {n0, n1, c, 3, 4, n1 + 9, shared, rate, {77, clock, 8, FM_PURPOSE_DROPOUT}};
        int64_t rows = n0 * n1;
        fm_linear_update a = {{d, 1e-5, b.act(c), b.act(c)},
                              c_in,
                              b.act(rows * c_in),
                              b.act(c * c_in, 0.1),
                              b.act(c),
                              b.act(rows * c, 3),
                              b.out(rows * c),
                              b.out(rows * c)};
        b.k->linear_update(NULL, &a, b.space(b.k->linear_update_workspace(&a)));
        norm_again(b, a);
        a.end.gamma = a.end.beta = a.n = NULL, a.bias = NULL;
        a.y = b.out(rows * c);
        b.k->linear_update(NULL, &a, b.space(b.k->linear_update_workspace(&a)));
    });
}

/* The same of both norms of a transition, and of the later one alone. */
void norms_again(work_bench &b, const fm_transition &a) {
    int64_t count = a.end.dropout.n0 * a.end.dropout.n1 * a.end.dropout.c;
    fm_transition again = a;
    again.x = again.residual = NULL;
    again.n = b.out(count), again.later.n = b.out(count);
    b.k->transition(NULL, &again, b.space(b.k->transition_workspace(&again)));
    b.k->axpy(NULL, count, -1, a.n, {again.n, FM_ADD});
    b.k->axpy(NULL, count, -1, a.later.n, {again.later.n, FM_ADD});
    again.end.gamma = again.end.beta = again.n = NULL, again.later.n = b.out(count);
    b.k->transition(NULL, &again, b.space(b.k->transition_workspace(&again)));
    b.k->axpy(NULL, count, -1, a.later.n, {again.later.n, FM_ADD});
}

/* The forward of a transition, with its hidden layer kept, with both norms, and with none. */
void check_transition(const char *name, int64_t n0, int64_t n1, int64_t c, int64_t hidden) {
    check(name, 5, [=](work_bench &b) {
        fm_dropout d = {n0, n1, c, 0, 0, n1, FM_SHARED_NONE, 0, {}};
        int64_t rows = n0 * n1;
        fm_transition a = {};
        a.end = {d, 1e-5, b.act(c), b.act(c)}, a.hidden = hidden, a.x = b.act(rows * c);
        a.w1 = b.act(hidden * c, 0.1), a.b1 = b.act(hidden), a.w2 = b.act(hidden * c, 0.1);
        a.b2 = b.act(c), a.residual = b.act(rows * c, 3);
        a.kept = b.out(rows * hidden), a.y = b.out(rows * c), a.n = b.out(rows * c);
        b.k->transition(NULL, &a, b.space(b.k->transition_workspace(&a)));
        a.later = {b.act(c), b.act(c), b.out(rows * c)};
        a.kept = NULL, a.y = b.out(rows * c), a.n = b.out(rows * c);
        b.k->transition(NULL, &a, b.space(b.k->transition_workspace(&a)));
        norms_again(b, a);
        a.end.gamma = a.end.beta = a.n = NULL, a.later = {};
        a.y = b.out(rows * c);
        b.k->transition(NULL, &a, b.space(b.k->transition_workspace(&a)));
    });
}

/* Multiples of 1/8 of `size`, a power of two: sums of their products are exact in f32. */
void *eighths(work_bench &b, int64_t n, double size) {
    std::vector<double> values = b.draw(n, 8);
    for (double &v : values)
        v = nearbyint(v) / 8 * size;
    return b.input(values, b.k->act);
}

/* A transition backward. Without a kept hidden layer, x and W1 are eighths. The layer that is made
 * again is then exact, so that no table has a channel above 0 where another has 0. */
struct transition_backward {
    fm_transition a;

    transition_backward(work_bench &b, int64_t rows, int64_t c, int64_t hidden, bool keeps) : a() {
        fm_dropout d = {1, rows, c, 0, 0, rows, FM_SHARED_NONE, 0, {}};
        a.end = {d, 1e-5, b.act(c), b.act(c)}, a.hidden = hidden, a.x = b.act(rows * c);
        a.w1 = b.act(hidden * c, 0.1), a.w2 = b.act(hidden * c, 0.1);
        if (keeps) {
            a.kept = b.act(rows * hidden);
        } else {
            a.x = eighths(b, rows * c, 1), a.w1 = eighths(b, hidden * c, 0.125);
            a.b1 = eighths(b, hidden, 0.5);
        }
        a.y = b.act(rows * c, 3);
    }
    void run(work_bench &b, fm_beta dy, fm_beta beta) const {
        int64_t c = a.end.dropout.c, n = a.end.dropout.n1 * c, weights = a.hidden * c;
        fm_transition_grad g = {};
        g.dn = b.act(n);
        g.dy = b.grad(n, dy), g.dx = b.grad(n, FM_WRITE);
        g.dgamma = b.grad(c, beta, true), g.dbeta = b.grad(c, beta, true);
        g.dw1 = b.grad(weights, beta, true), g.db1 = b.grad(a.hidden, beta, true);
        g.dw2 = b.grad(weights, beta, true), g.db2 = b.grad(c, beta, true);
        b.k->transition_grad(NULL, &a, &g, b.space(b.k->transition_grad_workspace(&a, &g)));
    }
};

/* With the norm behind it and without. */
void check_transition_grad(const char *name, int64_t rows, int64_t c, int64_t hidden, fm_beta beta,
                           bool keeps = true) {
    check(name, 4, [=](work_bench &b) {
        transition_backward t(b, rows, c, hidden, keeps);
        t.run(b, beta, beta);
        t.a.end.gamma = t.a.end.beta = NULL;
        t.run(b, FM_ADD, beta);
    });
}

/* A linear layer behind its norm with few further outputs, and both left out. */
void check_norm_linear(const char *name, int64_t rows, int64_t c, int64_t n, int64_t few) {
    check(name, 4, [=](work_bench &b) {
        fm_norm_linear a = {rows,
                            c,
                            n,
                            1e-5,
                            b.act(c),
                            b.act(c),
                            b.act(rows * c, 3),
                            b.act(n * c, 0.1),
                            b.act(n),
                            0,
                            b.out(rows * n),
                            {few, b.act(few * c, 0.1), b.out(rows * few)}};
        b.k->norm_linear(NULL, &a, b.space(b.k->norm_linear_workspace(&a)));
        a.gamma = a.beta = a.bias = NULL, a.few = {};
        a.y = b.out(rows * n);
        b.k->norm_linear(NULL, &a, b.space(b.k->norm_linear_workspace(&a)));
    });
}

/* The gradients of a linear layer with few outputs; with a norm, with and without n and its other
 * readers' gradient. */
void check_few_grad(const char *name, int64_t rows, int64_t c_in, int64_t c_out, fm_beta beta,
                    bool has_norm = false) {
    check(name, 4, [=](work_bench &b) {
        fm_few_grad a = {rows,
                         c_in,
                         c_out,
                         b.act(rows * c_in, has_norm ? 3 : 1),
                         b.act(c_out * c_in, 0.1),
                         b.act(rows * c_out),
                         b.grad(rows * c_in, beta),
                         b.grad(c_out * c_in, beta, true),
                         {}};
        if (has_norm) {
            a.norm = {1e-5,
                      b.act(c_in),
                      b.act(c_in),
                      b.act(rows * c_in),
                      b.out(rows * c_in),
                      b.grad(c_in, beta, true),
                      b.grad(c_in, beta, true)};
        }
        b.k->few_grad(NULL, &a, b.space(b.k->few_grad_workspace(&a)));
        if (!has_norm) return;
        a.norm.dn = NULL, a.norm.n = NULL;
        a.dx = b.grad(rows * c_in, beta), a.dw = b.grad(c_out * c_in, beta, true);
        a.norm.dgamma = b.grad(c_in, beta, true), a.norm.dbeta = b.grad(c_in, beta, true);
        b.k->few_grad(NULL, &a, b.space(b.k->few_grad_workspace(&a)));
    });
}

/* dw and db of a linear layer over `rows` rows from column `first` on, to given places. */
void weights_of(work_bench &b, int64_t rows, int64_t c_out, int64_t c_in, fm_out dw, fm_out db) {
    fm_gemm g = {};
    g.m = c_out, g.n = c_in, g.k = rows, g.batch = 1, g.trans_a = true, g.alpha = 1;
    g.beta = dw.beta == FM_ADD ? 1 : 0;
    g.a = b.act(rows * c_out), g.b = b.act(rows * c_in), g.c = dw.data, g.c_is_acc = true;
    g.lda = c_out, g.ldb = c_in, g.ldc = c_in, g.sum = db;
    b.k->gemm(NULL, &g, b.space(b.k->gemm_workspace(&g)));
}

void few_sums(work_bench &b, int64_t rows, bool has_norm = false) {
    fm_few_grad few = {rows,
                       128,
                       4,
                       b.act(rows * 128),
                       b.act(4 * 128, 0.1),
                       b.act(rows * 4),
                       b.grad(rows * 128, FM_WRITE),
                       b.grad(4 * 128, FM_WRITE, true),
                       {}};
    if (has_norm) {
        few.norm.eps = 1e-5, few.norm.gamma = b.act(128), few.norm.beta = b.act(128);
        few.norm.dgamma = b.grad(128, FM_WRITE, true), few.norm.dbeta = b.grad(128, FM_ADD, true);
    }
    b.k->few_grad(NULL, &few, b.space(b.k->few_grad_workspace(&few)));
}

void put_off_sums(work_bench &b) {
    size_t room = b.k->sums_room();
    if (room) b.k->put_off_sums(NULL, b.space(room), NULL, (const void *)UINTPTR_MAX);
}

/* More sums than wait at once: the table of those that wait holds 12. */
void check_many_late_sums(void) {
    check("sums that fill the table", 4, [](work_bench &b) {
        put_off_sums(b);
        for (int i = 0; i < 14; i++)
            few_sums(b, 4100 + i);
        b.k->finish_sums(NULL);
    });
    /* One place is left for two sums. */
    check("sums that fill the table with a norm's", 4, [](work_bench &b) {
        put_off_sums(b);
        for (int i = 0; i < 11; i++)
            few_sums(b, 4100 + i);
        few_sums(b, 4200, true);
        few_sums(b, 4300);
        b.k->finish_sums(NULL);
    });
}

/* More partial sums than sums_room: on 132 multiprocessors, two calls have room for theirs. The
 * last call adds to the first one's target. */
void check_large_late_sums(void) {
    check("sums that fill the room", 4, [](work_bench &b) {
        put_off_sums(b);
        fm_out dw = b.grad(1024 * 256, FM_WRITE, true), db = b.grad(1024, FM_WRITE, true);
        weights_of(b, 2112, 1024, 256, dw, db);
        for (int i = 0; i < 3; i++) {
            fm_out next = b.grad(1024 * 256, FM_ADD, true);
            weights_of(b, 2112, 1024, 256, next, b.grad(1024, FM_ADD, true));
        }
        weights_of(b, 2112, 1024, 256, {dw.data, FM_ADD}, {db.data, FM_ADD});
        b.k->finish_sums(NULL);
    });
}

/* A transition has three sums or, with 256 channels, four, two of which one kernel makes. `few`
 * calls before it leave one place in the table of those that wait, and `large` ones half of the
 * room. */
void check_late_transition(const char *name, int64_t c, int few, int large) {
    check(name, 4, [=](work_bench &b) {
        transition_backward t(b, 2200, c, 4 * c, false);
        put_off_sums(b);
        for (int i = 0; i < large; i++)
            weights_of(b, 2112, 1024, 256, b.grad(1024 * 256, FM_WRITE, true),
                       b.grad(1024, FM_WRITE, true));
        for (int i = 0; i < few; i++)
            few_sums(b, 4100 + i);
        for (int i = 0; i < 2; i++)
            t.run(b, FM_WRITE, FM_WRITE);
        few_sums(b, 4200);
        b.k->finish_sums(NULL);
    });
}

/* Sums of several calls that end together. The third call adds to the first one's target, so that
 * the first must have ended; its rows are too few for partial sums. */
void check_late_sums(const char *name, int64_t rows) {
    check(name, 4, [=](work_bench &b) {
        put_off_sums(b);
        fm_out dw = b.grad(256 * 128, FM_WRITE, true), db = b.grad(256, FM_ADD, true);
        weights_of(b, rows, 256, 128, dw, db);
        weights_of(b, rows, 512, 128, b.grad(512 * 128, FM_ADD, true), {});
        weights_of(b, 100, 256, 128, {dw.data, FM_ADD}, {db.data, FM_ADD});
        weights_of(b, rows, 256, 128, {dw.data, FM_ADD}, {db.data, FM_ADD});
        few_sums(b, rows);
        fm_layernorm_grad norm = {rows,
                                  128,
                                  128,
                                  128,
                                  128,
                                  b.act(rows * 128, 3),
                                  b.act(128),
                                  b.act(rows * 128),
                                  b.acc(rows),
                                  b.acc(rows),
                                  {},
                                  b.grad(128, FM_WRITE, true),
                                  b.grad(128, FM_ADD, true),
                                  0};
        b.k->layernorm_grad(NULL, &norm, b.space(b.k->layernorm_grad_workspace(rows, 128)));
        b.k->finish_sums(NULL);
    });
}

void check_all_transitions(void) {
    check_late_transition("sums of a transition that fill the table", 128, 10, 0);
    check_late_transition("sums of a transition that fill the room", 128, 0, 1);
    check_late_transition("sums of a transition c 256 that fill the table", 256, 10, 0);
    check_late_transition("sums of a transition c 256 that fill the room", 256, 0, 1);
    /* A turn of 132 blocks takes 16,896 rows. With three turns or more, the second group of a block
     * begins with the second half of the hidden layer. */
    check_transition("transition one", 1, 1, 1, 4);
    check_transition("transition c 64, a tile", 8, 8, 64, 128);
    check_transition("transition c 64", 33, 70, 64, 256);
    check_transition("transition c 128", 63, 71, 128, 512);
    check_transition("transition c 128, long", 163, 209, 128, 512);
    check_transition("transition c 256", 63, 70, 256, 1024);
    check_transition_grad("transition grad one", 1, 1, 4, FM_WRITE);
    check_transition_grad("transition grad c 128", 4473, 128, 512, FM_ADD);
    check_transition_grad("transition grad c 256", 4490, 256, 1024, FM_WRITE);
    check_transition_grad("transition again one", 1, 1, 4, FM_WRITE, false);
    check_transition_grad("transition again c 64", 2310, 64, 256, FM_ADD, false);
    check_transition_grad("transition again c 64, a tile", 64, 64, 128, FM_WRITE, false);
    check_transition_grad("transition again c 64, long", 70001, 64, 256, FM_WRITE, false);
    check_transition_grad("transition again c 128", 34067, 128, 512, FM_WRITE, false);
    check_transition_grad("transition again c 128, a tile", 50, 128, 512, FM_ADD, false);
    check_transition_grad("transition again c 128, few", 4473, 128, 384, FM_ADD, false);
    check_transition_grad("transition again c 256", 17010, 256, 1024, FM_ADD, false);
}

/* Shapes that have a kernel of their own. */
void check_own_shapes(void) {
    for (int64_t k = 64; k <= 256; k *= 2) {
        check_gemm("gemm to four heads", 4100 + k, 4, k, 1, 2, FM_EPILOGUE_NONE, false, false, 0);
        check_gemm("gemm from four heads", 4133, k, 4, 1, 0, FM_EPILOGUE_NONE, true, false, 0);
        check_gemm("gemm four heads' weights", 4, k, 4133, 1, 1, FM_EPILOGUE_NONE, true, true, 0);
        check_gemm("gemm eight heads' weights", 8, k, 4133, 1, 2, FM_EPILOGUE_NONE, true, true, 0);
    }
    check_gemm("gemm four heads' weights, long", 4, 128, 65536, 1, 1, FM_EPILOGUE_NONE, false, true,
               0);
    for (int64_t rows : {4096, 4097, 30010})
        check_gemm("gemm q k v g", rows, 1024, 256, 1, 2, FM_EPILOGUE_BIAS, false, false, 0);
}

} // namespace

void check_gemms(void) {
    check_addend("gemm addend", 4096, 256, 1024, 0);
    check_addend("gemm addend of 128", 16384, 128, 64, 0);
    check_addend("gemm addend odd", 37, 19, 23, 3);
    check_relu_grad("gemm relu_grad pair", 4352, 1024, 128, 0, FM_WRITE, true);
    check_relu_grad("gemm relu_grad msa", 2176, 2048, 256, 0, FM_ADD, true);
    check_relu_grad("gemm relu_grad template", 2048, 128, 64, 0, FM_ADD, true);
    check_relu_grad("gemm relu_grad without sum", 2048, 512, 128, 8, FM_WRITE, false);
    check_relu_grad("gemm relu_grad few rows", 1000, 256, 256, 0, FM_WRITE, true);
    check_relu_grad("gemm relu_grad rows 4100", 4100, 256, 64, 0, FM_WRITE, true);
    check_relu_grad("gemm relu_grad odd", 37, 19, 23, 3, FM_WRITE, true);
    check_relu_grad("gemm relu_grad one", 1, 1, 1, 0, FM_ADD, true);
    check_own_shapes();
    check_gemm("gemm bias, many rows", 16384, 128, 64, 1, 2, FM_EPILOGUE_BIAS_RELU, false, false,
               0);
    check_gemm("gemm bias, many rows of 384", 16384, 384, 64, 1, 2, FM_EPILOGUE_BIAS, false, false,
               0);
    check_gemm("gemm linear", 300, 128, 64, 1, 2, FM_EPILOGUE_NONE, false, false, 0);
    check_gemm("gemm bias", 4096, 256, 256, 1, 2, FM_EPILOGUE_BIAS, false, false, 0);
    check_gemm("gemm bias relu", 4096, 1024, 256, 1, 2, FM_EPILOGUE_BIAS_RELU, false, false, 0);
    check_gemm("gemm weight gradient", 256, 128, 32768, 1, 1, FM_EPILOGUE_NONE, true, true, 0);
    check_gemm("gemm add", 512, 128, 512, 1, 0, FM_EPILOGUE_NONE, true, false, 0);
    check_all_weights();
    check_gemm("gemm odd", 37, 19, 23, 1, 0, FM_EPILOGUE_BIAS, false, false, 3);
    check_gemm("gemm odd transposed", 37, 19, 23, 3, 3, FM_EPILOGUE_NONE, true, false, 1);
    check_gemm("gemm odd acc", 9, 5, 1001, 1, 1, FM_EPILOGUE_NONE, false, true, 0);
    check_few_rows();
    check_gemm("gemm one", 1, 1, 1, 1, 2, FM_EPILOGUE_BIAS_RELU, false, false, 0);
    check_gemm("gemm head of 8", 65536, 8, 128, 1, 2, FM_EPILOGUE_NONE, false, false, 0);
    check_gemm("gemm batched", 256, 256, 256, 16, 2, FM_EPILOGUE_NONE, false, false, 0);
    check_linear_update("linear update one", 1, 1, FM_SHARED_AXIS0, 1, 1, 0.25);
    check_linear_update("linear update c 64", 33, 70, FM_SHARED_AXIS1, 64, 64, 0.25);
    check_linear_update("linear update c 64 axis 0", 70, 33, FM_SHARED_AXIS0, 64, 64, 0.25);
    check_linear_update("linear update c 64 from 32", 33, 70, FM_SHARED_AXIS1, 64, 32, 0.25);
    check_linear_update("linear update c 128", 63, 70, FM_SHARED_AXIS0, 128, 128, 0.25);
    check_linear_update("linear update c 128 axis 1", 263, 271, FM_SHARED_AXIS1, 128, 128, 0.25);
    check_linear_update("linear update c 128, one line", 203, 1, FM_SHARED_AXIS0, 128, 128, 0.25);
    check_linear_update("linear update c 128 alone", 63, 71, FM_SHARED_NONE, 128, 128, 0.1);
    check_linear_update("linear update c 256", 127, 70, FM_SHARED_AXIS0, 256, 256, 0.15);
    check_linear_update("linear update c 256 axis 1", 70, 127, FM_SHARED_AXIS1, 256, 256, 0.15);
    check_linear_update("linear update c 256 long", 300, 262, FM_SHARED_AXIS0, 256, 256, 0.15);
    check_linear_update("linear update c 256 rate 0", 256, 260, FM_SHARED_AXIS1, 256, 256, 0);
    check_norm_linear("norm linear one", 1, 1, 4, 1);
    check_norm_linear("norm linear c 64", 4127, 64, 256, 8);
    check_norm_linear("norm linear c 64, 2 few", 40000, 64, 256, 2);
    check_norm_linear("norm linear c 128", 4100, 128, 512, 4);
    check_norm_linear("norm linear c 128, long", 30010, 128, 512, 4);
    check_norm_linear("norm linear c 256", 4100, 256, 1024, 8);
    check_few_grad("few grad one", 1, 1, 1, FM_WRITE);
    for (int64_t c = 64; c <= 256; c *= 2) {
        check_few_grad("few grad of four", 4100 + c, c, 4, FM_ADD);
        check_few_grad("few grad of eight", 5000 - c, c, 8, FM_WRITE);
    }
    check_few_grad("few grad of four, long", 40000, 128, 4, FM_WRITE);
    check_few_grad("few grad of three", 4100, 128, 3, FM_ADD);
    check_few_grad("few grad behind a norm, one", 1, 1, 1, FM_WRITE, true);
    for (int64_t c = 64; c <= 256; c *= 2) {
        check_few_grad("few grad of four behind a norm", 4100 + c, c, 4, FM_ADD, true);
        check_few_grad("few grad of eight behind a norm", 5000 - c, c, 8, FM_WRITE, true);
    }
    check_few_grad("few grad of two behind a norm", 4111, 128, 2, FM_WRITE, true);
    check_few_grad("few grad behind a norm, long", 40007, 128, 8, FM_ADD, true);
    check_late_sums("sums that end together", 4200);
    check_late_sums("sums that end together, long", 20000);
    check_many_late_sums();
    check_large_late_sums();
    check_all_transitions();
}

} // namespace cuda_check
