/* kbench_rows.cu: layer norm, gates, SwiGLU, dropout and residual, the two with the next layer
 * norm, sums over rows. */
#include "tests/kbench/kbench.cuh"
#include "trainer/backend/cuda/core/cuda.h"
#include "trainer/backend/few_grad.h"
#include "trainer/backend/norm_linear.h"
#include "trainer/backend/row_end.h"
#include "trainer/backend/swiglu_transition.h"

namespace kbench {
namespace {

void layernorm(bench &b, int64_t rows, int64_t c) {
    const fm_kernels *k = b.k;
    fm_layernorm a = {rows,
                      c,
                      c,
                      c,
                      1e-5,
                      b.act(rows * c, 3),
                      b.act(c),
                      b.act(c),
                      b.out("y", rows * c),
                      b.out_acc("mean", rows),
                      b.out_acc("rstd", rows)};
    fm_layernorm_grad g = {rows,
                           c,
                           c,
                           c,
                           c,
                           a.x,
                           a.gamma,
                           b.act(rows * c),
                           a.mean,
                           a.rstd,
                           b.grad("dx", rows * c),
                           b.grad("dgamma", c, true),
                           b.grad("dbeta", c, true),
                           0};
    void *space = b.scratch(k->layernorm_grad_workspace(rows, c));
    double size = b.size((double)(rows * c));
    b.part("fwd", 0, 2 * size, [=](fm_stream *q) { k->layernorm(q, &a); });
    b.part("bwd", 0, 3 * size, [=](fm_stream *q) { k->layernorm_grad(q, &g, space); });
}

/* AdaLN behind its products. Composed: LayerNorm with weights of ones and zeros, then modulate. */
void adaln(bench &b, int64_t samples, int64_t n, int64_t c) {
    const fm_kernels *k = b.k;
    int64_t rows = samples * n, count = rows * c;
    size_t acc = fm_element_bytes(k->acc) * (size_t)rows;
    fm_adaln a = {
        rows, c,    n,   1e-5, b.act(count, 2), b.act(n * c, 3), b.act(n * c), b.out("y", count),
        NULL, NULL, NULL};
    fm_adaln_grad g = {b.act(count), b.grad("dx", count), b.grad("dg", n * c), {}};
    if (samples > 1) g.dshift = b.grad("dshift", n * c);
    void *normed = b.scratch((size_t)b.size((double)count));
    void *dnormed = b.scratch((size_t)b.size((double)count));
    void *zeros = b.scratch((size_t)b.size((double)c));
    k->fill(NULL, c, 0, zeros);
    fm_layernorm l = {rows,          c, c, c, 1e-5, a.x, b.ones(c), zeros, normed, b.scratch(acc),
                      b.scratch(acc)};
    fm_layernorm_grad lg = {rows,    c,      c,      c,    c,  a.x, l.gamma,
                            dnormed, l.mean, l.rstd, g.dx, {}, {},  0};
    fm_modulate m = {rows, c, n, a.g, normed, a.shift, NULL, a.y};
    fm_modulate_grad mg = {g.dy, {dnormed, FM_WRITE}, g.dg, g.dshift};
    void *space = b.scratch(k->layernorm_grad_workspace(rows, c));
    bool is_composed = b.is("composed") || b.is_oracle;
    double size = b.size((double)count), shared = b.size((double)(n * c));
    b.part("fwd", 0, 2 * size + 2 * shared, [=](fm_stream *q) {
        if (!is_composed) {
            k->adaln(q, &a);
            return;
        }
        k->layernorm(q, &l);
        k->modulate(q, &m);
    });
    b.part("bwd", 0, 3 * size + 2 * shared, [=](fm_stream *q) {
        if (!is_composed) {
            k->adaln_grad(q, &a, &g);
            return;
        }
        k->modulate_grad(q, &m, &mg);
        k->layernorm_grad(q, &lg, space);
    });
}

void gate(bench &b, int64_t rows, int64_t c) {
    const fm_kernels *k = b.k;
    int64_t n = rows * c;
    fm_gate a = {rows, c, c, c, c, b.act(n, 3), b.act(n), b.mask(rows, 37), b.out("y", n), 0};
    fm_gate_grad g = {b.act(n), b.grad("dg", n), b.grad("dx", n)};
    double size = b.size((double)n);
    b.part("fwd", 0, 3 * size, [=](fm_stream *q) { k->gate(q, &a); });
    b.part("bwd", 0, 5 * size, [=](fm_stream *q) { k->gate_grad(q, &a, &g); });
}

/* The part between the products of an AlphaFold 3 transition with hidden = 4 c. Backward computes
 * the product again, as the op does. */
void swiglu(bench &b, int64_t rows, int64_t hidden) {
    const fm_kernels *k = b.k;
    int64_t n = rows * hidden;
    fm_swiglu a = {rows, hidden, 2 * hidden, hidden, b.act(2 * n, 3), b.out("y", n)};
    fm_swiglu again = a;
    again.y = b.out("y again", n);
    const void *dy = b.act(n);
    fm_out dx = b.grad("dx", 2 * n);
    double size = b.size((double)n);
    b.part("fwd", 0, 3 * size, [=](fm_stream *q) { k->swiglu(q, &a); });
    b.part("bwd", 0, 6 * size, [=](fm_stream *q) { k->swiglu_grad(q, &again, dy, dx); });
}

/* AlphaFold 3's transition as a whole, in one kernel or in the table's other entries. */
void swiglu_transition(bench &b, int64_t rows, int64_t c, int64_t hidden) {
    const fm_kernels *k = b.k;
    fm_swiglu_transition a = {};
    a.rows = rows, a.c = c, a.hidden = hidden, a.eps = 1e-5, a.residual = true;
    a.x = b.act(rows * c, 2), a.norm = b.act(2 * c);
    a.w1 = b.act(2 * hidden * c, 0.25), a.w2 = b.act(hidden * c, 0.125);
    a.y = b.out("y", rows * c);
    size_t kept = k->swiglu_transition_kept(&a) * fm_element_bytes(k->act);
    if (kept > 0) a.kept = b.scratch(kept);
    fm_swiglu_transition_grad g = {
        b.act(rows * c), b.grad("dx", rows * c), b.grad("dnorm", 2 * c, true),
        b.grad("dw1", 2 * hidden * c, true), b.grad("dw2", hidden * c, true)};
    void *space = b.scratch(k->swiglu_transition_workspace(&a));
    void *more = b.scratch(k->swiglu_transition_grad_workspace(&a, &g));
    double size = b.size((double)(rows * c)), flops = 6.0 * (double)(rows * c * hidden);
    b.part("fwd", flops, 2 * size, [=](fm_stream *q) { k->swiglu_transition(q, &a, space); });
    b.part("bwd", 2 * flops, 3 * size,
           [=](fm_stream *q) { k->swiglu_transition_grad(q, &a, &g, more); });
}

/* Draws by a clock, as in a step. */
fm_dropout dropout_of(bench &b, int64_t n0, int64_t n1, int64_t c, double rate,
                      fm_shared_axis shared = FM_SHARED_AXIS0) {
    const uint32_t *clock = (const uint32_t *)b.indices(FM_CLOCK_WORDS);
    return {n0, n1, c, 0, 0, n1, shared, rate, {1, clock, 2, FM_PURPOSE_DROPOUT}};
}

fm_update_norm end_of(bench &b, int64_t n0, int64_t n1, int64_t c, double rate,
                      fm_shared_axis shared = FM_SHARED_AXIS0) {
    return {dropout_of(b, n0, n1, c, rate, shared), 1e-5, b.act(c), b.act(c)};
}

void dropout(bench &b, int64_t n0, int64_t n1, int64_t c, double rate) {
    const fm_kernels *k = b.k;
    int64_t n = n0 * n1 * c;
    fm_dropout d = dropout_of(b, n0, n1, c, rate);
    const void *x = b.act(n), *residual = b.act(n), *dy = b.act(n);
    void *y = b.out("y", n);
    fm_out dx = b.grad("dx", n);
    double size = b.size((double)n);
    b.part("fwd", 0, 3 * size, [=](fm_stream *q) { k->dropout(q, &d, residual, x, y); });
    b.part("bwd", 0, 2 * size, [=](fm_stream *q) { k->dropout_grad(q, &d, dy, dx); });
}

/* Residual, dropout and the next layer norm in one pass, or in two. */
void update_norm(bench &b, int64_t n0, int64_t n1, int64_t c, double rate) {
    const fm_kernels *k = b.k;
    int64_t rows = n0 * n1, n = rows * c;
    fm_update_norm a = end_of(b, n0, n1, c, rate);
    const void *residual = b.act(n, 3), *update = b.act(n), *dn = b.act(n);
    void *y = b.out("y", n), *normed = b.out("n", n), *dupdate = b.out("dupdate", n);
    fm_update_norm_grad g = {
        y, dn, b.grad("dy", n), dupdate, b.grad("dgamma", c, true), b.grad("dbeta", c, true)};
    size_t acc = fm_element_bytes(k->acc) * (size_t)rows;
    void *mean = b.scratch(acc), *rstd = b.scratch(acc);
    fm_layernorm l = {rows, c, c, c, a.eps, y, a.gamma, a.beta, normed, mean, rstd};
    fm_layernorm_grad lg = {rows, c,    c,    c,    c,        y,       a.gamma,
                            dn,   mean, rstd, g.dy, g.dgamma, g.dbeta, 0};
    bool is_composed = b.is("composed") || b.is_oracle;
    void *space = b.scratch(is_composed ? k->layernorm_grad_workspace(rows, c)
                                        : k->update_norm_grad_workspace(rows, c));
    double size = b.size((double)n);
    b.part("fwd", 0, 4 * size, [=](fm_stream *q) {
        if (!is_composed) {
            k->update_norm(q, &a, residual, update, y, normed);
            return;
        }
        k->dropout(q, &a.dropout, residual, update, y);
        k->layernorm(q, &l);
    });
    b.part("bwd", 0, 4 * size, [=](fm_stream *q) {
        if (!is_composed) {
            k->update_norm_grad(q, &a, &g, space);
            return;
        }
        k->layernorm_grad(q, &lg, space);
        k->dropout_grad(q, &a.dropout, g.dy.data, {dupdate, FM_WRITE});
    });
}

/* The last linear layer of a sublayer with the end of the sublayer, or one after the other. */
void linear_update(bench &b, int64_t n0, int64_t n1, int64_t c, double rate,
                   fm_shared_axis shared) {
    const fm_kernels *k = b.k;
    int64_t rows = n0 * n1, n = rows * c;
    fm_linear_update a = {end_of(b, n0, n1, c, rate, shared),
                          c,
                          b.act(n),
                          b.act(c * c, 0.1),
                          b.act(c),
                          b.act(n, 3),
                          b.out("y", n),
                          b.out("n", n)};
    void *space = b.scratch(k->linear_update_workspace(&a));
    b.part("fwd", 2.0 * (double)n * (double)c, b.size((double)(4 * n + c * c)),
           [=](fm_stream *q) { k->linear_update(q, &a, space); });
}

/* A transition from its normalised input to the next layer norm, in one or in three kernels. */
void transition(bench &b, int64_t n0, int64_t n1, int64_t c, int64_t hidden,
                bool has_later = false) {
    const fm_kernels *k = b.k;
    int64_t rows = n0 * n1, n = rows * c;
    fm_transition a = {};
    a.end = end_of(b, n0, n1, c, 0), a.hidden = hidden, a.x = b.act(n);
    a.w1 = b.act(hidden * c, 0.1), a.b1 = b.act(hidden), a.w2 = b.act(hidden * c, 0.1);
    a.b2 = b.act(c), a.residual = b.act(n, 3), a.y = b.out("y", n), a.n = b.out("n", n);
    if (has_later) a.later = {b.act(c), b.act(c), b.out("later n", n)};
    void *space = b.scratch(k->transition_workspace(&a));
    b.part("fwd", 4.0 * (double)n * (double)hidden,
           b.size((double)((has_later ? 5 : 4) * n + 2 * c * hidden)),
           [=](fm_stream *q) { k->transition(q, &a, space); });
}

/* Only the norms of a transition. y is an input. */
void transition_norms(bench &b, int64_t rows, int64_t c, bool has_later) {
    const fm_kernels *k = b.k;
    int64_t n = rows * c;
    fm_transition a = {};
    a.end = end_of(b, 1, rows, c, 0), a.hidden = 4 * c, a.y = (void *)b.act(n, 3);
    a.n = b.out("n", n);
    if (has_later) a.later = {b.act(c), b.act(c), b.out("later n", n)};
    b.part("fwd", 0, b.size((double)((has_later ? 3 : 2) * n)),
           [=](fm_stream *q) { k->transition(q, &a, NULL); });
}

/* The backward of a transition with its end and both weights. The hidden layer is made again; the
 * reference makes it first. */
void transition_grad(bench &b, int64_t rows, int64_t c, int64_t hidden) {
    const fm_kernels *k = b.k;
    int64_t n = rows * c, weights = c * hidden;
    fm_transition a = {};
    a.end = end_of(b, 1, rows, c, 0), a.hidden = hidden, a.x = b.act(n);
    a.w1 = b.act(weights, 0.1), a.b1 = b.act(hidden), a.w2 = b.act(weights, 0.1);
    a.y = b.act(n, 3);
    fm_transition_grad g = {};
    g.dn = b.act(n), g.dy = b.grad("dy", n), g.dx = b.grad("dx", n);
    g.dgamma = b.grad("dgamma", c, true), g.dbeta = b.grad("dbeta", c, true);
    g.dw1 = b.grad("dw1", weights, true), g.db1 = b.grad("db1", hidden, true);
    g.dw2 = b.grad("dw2", weights, true), g.db2 = b.grad("db2", c, true);
    void *space = b.scratch(k->transition_grad_workspace(&a, &g));
    b.part("bwd", 10.0 * (double)n * (double)hidden, b.size((double)(5 * n + 2 * weights)),
           [=](fm_stream *q) { k->transition_grad(q, &a, &g, space); });
}

/* q k v g and the pair bias of an attention behind their norm, in one or in three kernels. */
void norm_linear(bench &b, int64_t rows, int64_t c, int64_t few) {
    const fm_kernels *k = b.k;
    fm_norm_linear a = {rows,
                        c,
                        4 * c,
                        1e-5,
                        b.act(c),
                        b.act(c),
                        b.act(rows * c, 3),
                        b.act(4 * c * c, 0.1),
                        b.act(4 * c),
                        0,
                        b.out("y", rows * 4 * c),
                        {few, b.act(few * c, 0.1), b.out("few", rows * few)}};
    void *space = b.scratch(k->norm_linear_workspace(&a));
    b.part("fwd", 2.0 * (double)(rows * c * (4 * c + few)),
           b.size((double)(rows * (5 * c + few) + 4 * c * c)),
           [=](fm_stream *q) { k->norm_linear(q, &a, space); });
}

/* Both gradients of the pair bias of an attention, in one or in two kernels; with a norm, also that
 * of the norm before, and n for four outputs, as triangle attention needs it. */
void few_grad(bench &b, int64_t rows, int64_t c_in, int64_t c_out, bool has_norm) {
    const fm_kernels *k = b.k;
    fm_few_grad a = {rows,
                     c_in,
                     c_out,
                     b.act(rows * c_in, has_norm ? 3 : 1),
                     b.act(c_out * c_in, 0.1),
                     b.act(rows * c_out),
                     b.grad("dx", rows * c_in),
                     b.grad("dw", c_out * c_in, true),
                     {}};
    if (has_norm) {
        a.norm = {1e-5,
                  b.act(c_in),
                  b.act(c_in),
                  b.act(rows * c_in),
                  c_out == 4 ? b.out("n", rows * c_in) : NULL,
                  b.grad("dgamma", c_in, true),
                  b.grad("dbeta", c_in, true)};
    }
    void *space = b.scratch(k->few_grad_workspace(&a));
    b.part("bwd", 4.0 * (double)(rows * c_in * c_out),
           b.size((double)(rows * ((has_norm ? 4 + (c_out == 4) : 3) * c_in + c_out))),
           [=](fm_stream *q) { k->few_grad(q, &a, space); });
}

/* Composes them of other entries. */
const fm_kernels *bf16_table(void) {
    return fm_kernels_cuda(FM_ELEMENT_BF16);
}
void compose(fm_kernels *k) {
    k->linear_update_workspace = [](const fm_linear_update *a) {
        return fm_linear_update_composed_workspace(bf16_table(), a);
    };
    k->linear_update = [](fm_stream *q, const fm_linear_update *a, void *space) {
        fm_linear_update_composed(bf16_table(), q, a, space);
    };
    k->transition_workspace = [](const fm_transition *a) {
        return fm_transition_composed_workspace(bf16_table(), a);
    };
    k->transition_grad_workspace = [](const fm_transition *a, const fm_transition_grad *g) {
        return fm_transition_grad_composed_workspace(bf16_table(), a, g);
    };
    k->transition_grad = [](fm_stream *q, const fm_transition *a, const fm_transition_grad *g,
                            void *space) {
        fm_transition_grad_composed(bf16_table(), q, a, g, space);
    };
    k->norm_linear_workspace = [](const fm_norm_linear *a) {
        return fm_norm_linear_composed_workspace(bf16_table(), a);
    };
    k->norm_linear = [](fm_stream *q, const fm_norm_linear *a, void *space) {
        fm_norm_linear_composed(bf16_table(), q, a, space);
    };
    k->few_grad_workspace = [](const fm_few_grad *a) {
        return fm_few_grad_composed_workspace(bf16_table(), a);
    };
    k->few_grad = [](fm_stream *q, const fm_few_grad *a, void *space) {
        fm_few_grad_composed(bf16_table(), q, a, space);
    };
    k->transition = [](fm_stream *q, const fm_transition *a, void *space) {
        fm_transition_composed(bf16_table(), q, a, space);
    };
}

void sum(bench &b, int64_t rows, int64_t c) {
    const fm_kernels *k = b.k;
    const void *x = b.act(rows * c);
    fm_out y = b.grad("y", c, true);
    void *space = b.scratch(k->sum_workspace(1, rows, c));
    b.part("sum", 0, b.size((double)(rows * c)), [=](fm_stream *q) {
        const int64_t stride[2] = {0, c};
        k->sum(q, 1, rows, c, stride, x, y, true, space);
    });
}

/* AlphaFold 3's transition composed of other entries. */
void compose_swiglu(fm_kernels *k) {
    k->swiglu_transition_kept = fm_swiglu_transition_composed_kept;
    k->swiglu_transition_workspace = [](const fm_swiglu_transition *a) {
        return fm_swiglu_transition_composed_workspace(bf16_table(), a);
    };
    k->swiglu_transition = [](fm_stream *q, const fm_swiglu_transition *a, void *space) {
        fm_swiglu_transition_composed(bf16_table(), q, a, space);
    };
    k->swiglu_transition_grad_workspace = [](const fm_swiglu_transition *a,
                                             const fm_swiglu_transition_grad *g) {
        return fm_swiglu_transition_grad_composed_workspace(bf16_table(), a, g);
    };
    k->swiglu_transition_grad = [](fm_stream *q, const fm_swiglu_transition *a,
                                   const fm_swiglu_transition_grad *g, void *space) {
        fm_swiglu_transition_grad_composed(bf16_table(), q, a, g, space);
    };
}

void add_layernorm(const char *name, peer other, int64_t rows, int64_t c,
                   const std::vector<path> &paths = {}) {
    options how;
    how.stages = 2;
    add(
        name, other, how, [=](bench &b) { layernorm(b, rows, c); }, paths);
}

void add_linear_updates(const options &how, const std::vector<path> &paths) {
    const auto add_one = [&](const char *name, int64_t n0, int64_t n1, int64_t c, double rate,
                             fm_shared_axis shared) {
        add(
            name, {0, 0}, how, [=](bench &b) { linear_update(b, n0, n1, c, rate, shared); }, paths);
    };
    add_one("linear update 256x256x128", 256, 256, 128, 0.25, FM_SHARED_AXIS0);
    add_one("linear update 256x256x128, rows share", 256, 256, 128, 0.25, FM_SHARED_AXIS1);
    add_one("linear update 128x256x256, all kept", 128, 256, 256, 0, FM_SHARED_AXIS0);
    add_one("linear update 128x256x256", 128, 256, 256, 0.15, FM_SHARED_AXIS0);
    add_one("linear update 1024x256x64", 1024, 256, 64, 0.15, FM_SHARED_AXIS0);
}

void add_norm_linear(const char *name, int64_t rows, int64_t c, int64_t few,
                     const std::vector<path> &paths) {
    options how;
    how.stages = 2;
    add(
        name, {0, 0}, how, [=](bench &b) { norm_linear(b, rows, c, few); }, paths);
}

void add_transition_norms(const std::vector<path> &paths) {
    options how;
    how.stages = 2;
    const auto add_one = [&](const char *name, int64_t rows, int64_t c, bool has_later) {
        add(
            name, {0, 0}, how, [=](bench &b) { transition_norms(b, rows, c, has_later); }, paths);
    };
    add_one("transition, norms alone 32768x256", 32768, 256, true);
    add_one("transition, norms alone 65536x128", 65536, 128, false);
    add_one("transition, norms alone 262144x64", 262144, 64, true);
}

} // namespace

void add_row_cases(void) {
    options how;
    how.stages = 2;
    /* Peers: PyTorch's LayerNorm. */
    add_layernorm("layer norm 32768x256", {0.050, 0.206}, 32768, 256);
    add_layernorm("layer norm 65536x128", {0.071, 0.374}, 65536, 128);
    add_layernorm("layer norm 262144x64", {0.291, 0.541}, 262144, 64);
    add_layernorm("ft layer norm 196608x256", {0.252, 0.523}, 196608, 256);
    add_layernorm("ft layer norm 147456x128", {0.162, 0.331}, 147456, 128);
    add_layernorm("af3 layer norm 18432x768", {0, 0}, 18432, 768);
    add_layernorm("af3 layer norm 409600x16", {0, 0}, 409600, 16);
    const std::vector<path> one_by_one = {{"composed", NULL}};
    for (bool is_f32 : {false, true}) {
        options of = how;
        of.is_f32 = is_f32;
        std::string type = is_f32 ? " f32" : "";
        add(("af3 adaln tokens 48x384x768" + type).c_str(), {0, 0}, of,
            [](bench &b) { adaln(b, 1, 48 * 384, 768); }, one_by_one);
        add(("af3 adaln atoms 48x3200x128" + type).c_str(), {0, 0}, of,
            [](bench &b) { adaln(b, 48, 3200, 128); }, one_by_one);
    }
    add("gate 65536x128", {0, 0}, how, [](bench &b) { gate(b, 65536, 128); });
    /* Peers: PyTorch's eager silu(a) * b and its gradient, without the product again. */
    add("af3 swiglu pair 65536x512", {0.190, 0.504}, how, [](bench &b) { swiglu(b, 65536, 512); });
    add("af3 swiglu pair 147456x512", {0.408, 1.101}, how,
        [](bench &b) { swiglu(b, 147456, 512); });
    add("af3 swiglu single 384x1536", {0, 0}, how, [](bench &b) { swiglu(b, 384, 1536); });
    how.stages = 4;
    const std::vector<path> swiglu_paths = {{"composed", compose_swiglu}};
    add(
        "af3 pair transition 384x384x128x512", {0, 0}, how,
        [](bench &b) { swiglu_transition(b, 147456, 128, 512); }, swiglu_paths);
    add(
        "af3 MSA transition 1024x384x64x256", {0, 0}, how,
        [](bench &b) { swiglu_transition(b, 393216, 64, 256); }, swiglu_paths);
    how.stages = 2;
    add("dropout and residual 256x256x128", {0, 0}, how,
        [](bench &b) { dropout(b, 256, 256, 128, 0.25); });
    add("dropout and residual 128x256x256", {0, 0}, how,
        [](bench &b) { dropout(b, 128, 256, 256, 0.15); });
    how.stages = 3;
    const std::vector<path> composed = {{"composed", NULL}};
    add(
        "update and norm 256x256x128", {0, 0}, how,
        [](bench &b) { update_norm(b, 256, 256, 128, 0.25); }, composed);
    add(
        "update and norm 128x256x256", {0, 0}, how,
        [](bench &b) { update_norm(b, 128, 256, 256, 0.15); }, composed);
    const std::vector<path> in_parts = {{"composed", compose}};
    add_linear_updates(how, in_parts);
    add_transition_norms(in_parts);
    how.stages = 2;
    add_norm_linear("norm linear 65536x128x512", 65536, 128, 4, in_parts);
    add_norm_linear("norm linear 262144x64x256", 262144, 64, 8, in_parts);
    for (int64_t heads : {4, 8}) {
        std::string name = "few grad 65536x128x" + std::to_string(heads);
        add(
            name.c_str(), {0, 0}, how, [=](bench &b) { few_grad(b, 65536, 128, heads, false); },
            in_parts);
        add((name + " behind a norm").c_str(), {0, 0}, how,
            [=](bench &b) { few_grad(b, 65536, 128, heads, true); }, in_parts);
    }
    how.stages = 4;
    add(
        "transition 128x256x256x1024", {0, 0}, how,
        [](bench &b) { transition(b, 128, 256, 256, 1024); }, in_parts);
    add(
        "transition 128x256x256x1024, two norms", {0, 0}, how,
        [](bench &b) { transition(b, 128, 256, 256, 1024, true); }, in_parts);
    add(
        "transition 256x256x128x512", {0, 0}, how,
        [](bench &b) { transition(b, 256, 256, 128, 512); }, in_parts);
    add(
        "transition 1024x256x64x256", {0, 0}, how,
        [](bench &b) { transition(b, 1024, 256, 64, 256); }, in_parts);
    add(
        "transition backward 32768x256x1024", {0, 0}, how,
        [](bench &b) { transition_grad(b, 32768, 256, 1024); }, in_parts);
    add(
        "transition backward 65536x128x512", {0, 0}, how,
        [](bench &b) { transition_grad(b, 65536, 128, 512); }, in_parts);
    add(
        "transition backward 262144x64x256", {0, 0}, how,
        [](bench &b) { transition_grad(b, 262144, 64, 256); }, in_parts);
    add(
        "ft transition backward 196608x256x1024", {0, 0}, how,
        [](bench &b) { transition_grad(b, 196608, 256, 1024); }, in_parts);
    add(
        "ft transition backward 147456x128x512", {0, 0}, how,
        [](bench &b) { transition_grad(b, 147456, 128, 512); }, in_parts);
    how.stages = 2;
    add_norm_linear("ft norm linear 147456x128x512", 147456, 128, 4, in_parts);
    add("bias gradient 65536x128", {0, 0}, how, [](bench &b) { sum(b, 65536, 128); });
    add("bias gradient 32768x1024", {0, 0}, how, [](bench &b) { sum(b, 32768, 1024); });
}

} // namespace kbench
