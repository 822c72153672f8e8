/* kbench_pair.cu: outer product mean and triangle multiplication. */
#include "tests/kbench/kbench.cuh"
#include "trainer/backend/cuda/pair/outer.cuh"
#include "trainer/backend/triangle_block.h"

namespace kbench {
namespace {

void outer(bench &b, int64_t n_seq, int64_t n, int64_t c, int64_t c_z) {
    const fm_kernels *k = b.k;
    int64_t ld = 2 * c, square = c * c;
    void *ab = b.act(n_seq * n * ld), *d = b.out("dab", n_seq * n * ld);
    fm_outer o = {n_seq,
                  n,
                  n,
                  c,
                  c_z,
                  1e-3,
                  ab,
                  b.at(ab, c),
                  {n * ld, ld},
                  {n * ld, ld},
                  b.mask(n_seq * n, 37),
                  b.ones(n_seq * n),
                  b.act(c_z * square, 0.1),
                  b.act(c_z),
                  b.grad("z", n * n * c_z),
                  b.act(n * n * c_z)};
    fm_outer_grad g = {b.act(n * n * c_z),
                       {d, FM_WRITE},
                       {b.at(d, c), FM_WRITE},
                       b.grad("dw", c_z * square, true),
                       b.grad("dbias", c_z, true)};
    void *less = b.scratch(k->outer_workspace(&o)), *space = b.scratch(k->outer_grad_workspace(&o));
    double flops = 2.0 * (double)(n * n * square) * (double)(n_seq + c_z);
    double bytes = b.size((double)(n_seq * n * ld + n * n * c_z + c_z * square));
    b.part("fwd", flops, bytes, [=](fm_stream *q) { k->outer(q, &o, less); });
    b.part("bwd", 2 * flops, 2 * bytes, [=](fm_stream *q) { k->outer_grad(q, &o, &g, space); });
}

/* Of the gradients that of W alone, and what every gradient packs first. */
void outer_weight(bench &b, int64_t n_seq, int64_t n) {
    const fm_kernels *k = b.k;
    int64_t c = 32, c_z = 128, ld = 2 * c, square = c * c;
    void *ab = b.act(n_seq * n * ld);
    fm_outer o = {};
    o.n_seq = n_seq, o.n_i = n, o.n_j = n, o.c = c, o.c_z = c_z, o.eps = 1e-3;
    o.a = ab, o.b = b.at(ab, c);
    o.a_stride[0] = o.b_stride[0] = n * ld, o.a_stride[1] = o.b_stride[1] = ld;
    o.mask_a = b.mask(n_seq * n, 37), o.mask_b = b.ones(n_seq * n);
    o.w = b.act(c_z * square, 0.1), o.bias = b.act(c_z);
    fm_outer_grad g = {}, packs = {};
    g.dz = packs.dz = b.act(n * n * c_z);
    g.dw = b.grad("dw", c_z * square, true);
    void *space = b.scratch(k->outer_grad_workspace(&o));
    double flops = 2.0 * (double)(n * n * square) * (double)(n_seq + c_z);
    double bytes = b.size((double)(n_seq * n * ld + n * n * c_z + c_z * square));
    b.part("pack", 0, bytes, [=](fm_stream *q) { k->outer_grad(q, &o, &packs, space); });
    b.part("bwd", flops, bytes, [=](fm_stream *q) { k->outer_grad(q, &o, &g, space); });
}

void triangle(bench &b, int64_t n, int64_t c, bool incoming) {
    const fm_kernels *k = b.k;
    int64_t ld = 4 * c;
    void *p = b.act(n * n * ld), *d = b.out("dpg", n * n * ld);
    const void *mask = b.mask(n * n, 37);
    fm_triangle t = {n,
                     n,
                     n,
                     c,
                     incoming,
                     p,
                     b.at(p, c),
                     b.at(p, 2 * c),
                     b.at(p, 3 * c),
                     ld,
                     ld,
                     mask,
                     mask,
                     b.out("x", n * n * c)};
    fm_triangle_grad g = {b.act(n * n * c),
                          {d, FM_WRITE},
                          {b.at(d, c), FM_WRITE},
                          {b.at(d, 2 * c), FM_WRITE},
                          {b.at(d, 3 * c), FM_WRITE}};
    void *less = b.scratch(k->triangle_workspace(&t));
    void *space = b.scratch(k->triangle_grad_workspace(&t));
    double flops = 2.0 * (double)(n * n * n * c), size = b.size((double)(n * n * c));
    b.part("fwd", flops, 5 * size, [=](fm_stream *q) { k->triangle(q, &t, less); });
    b.part("bwd", 2 * flops, 9 * size, [=](fm_stream *q) { k->triangle_grad(q, &t, &g, space); });
}

/* The whole sublayer. The path "composed" is made of the table's other entries. */
void triangle_block(bench &b, int64_t n, int64_t c, bool incoming) {
    const fm_kernels *k = b.k;
    bool composed = b.is("composed");
    int64_t rows = n * n, c_projected = 5 * c;
    fm_triangle_block t = {};
    t.n = n, t.c_z = c, t.c = c, t.incoming = incoming, t.residual = true, t.eps = 1e-5;
    t.z = b.act(rows * c), t.mask = b.mask(rows, 37), t.y = b.out("y", rows * c);
    t.norm_in = b.act(2 * c), t.norm_out = b.act(2 * c);
    t.projections = b.act(c_projected * c, 0.2), t.projections_bias = b.act(c_projected);
    t.out = b.act(c * c, 0.2), t.out_bias = b.act(c);
    t.dropout = {n, n, c, 0, 0, n, FM_SHARED_AXIS0, 0.25, {1, NULL, 2, FM_PURPOSE_DROPOUT}};
    fm_triangle_block keeps = t;
    size_t kept = composed ? fm_triangle_block_composed_kept(&t) : k->triangle_block_kept(&t);
    keeps.keeps = true, keeps.kept = b.scratch(kept * fm_element_bytes(k->act));
    keeps.y = b.out("y kept", rows * c);
    fm_triangle_block_grad g = {b.act(rows * c),
                                b.grad("dz", rows * c),
                                b.grad("dnorm_in", 2 * c, true),
                                b.grad("dnorm_out", 2 * c, true),
                                b.grad("dprojections", c_projected * c, true),
                                b.grad("dprojections_bias", c_projected, true),
                                b.grad("dout", c * c, true),
                                b.grad("dout_bias", c, true)};
    double flops = 2.0 * (double)(rows * c) * (double)(6 * c + n),
           size = b.size((double)(rows * c));
    auto forward = [=](fm_triangle_block at, void *space) {
        return [=](fm_stream *q) {
            if (composed) {
                fm_triangle_block_composed(k, q, &at, space);
            } else {
                k->triangle_block(q, &at, space);
            }
        };
    };
    size_t bytes = fm_triangle_block_composed_workspace(k, &t);
    size_t grad_bytes = composed ? fm_triangle_block_composed_grad_workspace(k, &keeps)
                                 : k->triangle_block_grad_workspace(&keeps);
    void *less = b.scratch(bytes), *space = b.scratch(grad_bytes);
    b.part("no backward", flops, 9 * size, forward(t, less));
    b.part("fwd", flops, 10 * size, forward(keeps, less));
    b.part("bwd", 2 * flops, 22 * size, [=](fm_stream *q) {
        if (composed) {
            fm_triangle_block_composed_grad(k, q, &keeps, &g, space);
        } else {
            k->triangle_block_grad(q, &keeps, &g, space);
        }
    });
}

void add_outer(const char *name, peer other, int64_t n_seq, int64_t n,
               const std::vector<path> &paths = {}) {
    options how;
    how.stages = 3;
    add(
        name, other, how, [=](bench &b) { outer(b, n_seq, n, 32, 128); }, paths);
}

/* The gradient of W from P in memory, as for numbers of residues without a kernel of their own. */
void store_p(fm_kernels *k) {
    k->outer_grad_workspace = fm_cuda::outer_grad_storing_workspace;
    k->outer_grad = fm_cuda::outer_grad_storing;
}

void add_outer_weight(const char *name, int64_t n_seq, int64_t n,
                      const std::vector<path> &paths = {}) {
    options how;
    how.stages = 3;
    add(
        name, {0, 0}, how, [=](bench &b) { outer_weight(b, n_seq, n); }, paths);
}

void add_triangle(const char *name, int64_t n, int64_t c, bool incoming,
                  const std::vector<path> &paths = {}) {
    options how;
    how.stages = 3;
    add(
        name, {0, 0}, how, [=](bench &b) { triangle(b, n, c, incoming); }, paths);
}

void add_triangle_block(const char *name, int64_t n, int64_t c, bool incoming) {
    options how;
    how.stages = 8;
    add(name, {0, 0}, how, [=](bench &b) { triangle_block(b, n, c, incoming); },
        {{"composed", NULL}});
}

} // namespace

void add_pair_cases(void) {
    /* Peers: kbench_modules.cu. */
    add_outer("outer product mean 128x256", {0, 0}, 128, 256, {{"P in memory", store_p}});
    add_outer_weight("outer product weights 128x256", 128, 256, {{"P in memory", store_p}});
    add_outer_weight("outer product weights 128x384", 128, 384, {{"P in memory", store_p}});
    add_outer_weight("outer product weights 256x256", 256, 256, {{"P in memory", store_p}});
    add_outer_weight("ft outer product weights 512x384", 512, 384, {{"P in memory", store_p}});
    add_outer("extra outer product mean 1024x256", {0, 0}, 1024, 256);
    add_outer("ft outer product mean 512x384", {0, 0}, 512, 384);
    add_outer("ft extra outer product mean 5120x384", {0, 0}, 5120, 384);
    add_triangle_block("triangle multiplication 256 out", 256, 128, false);
    add_triangle_block("triangle multiplication 256 in", 256, 128, true);
    add_triangle_block("template triangle multiplication 256 out", 256, 64, false);
    add_triangle_block("ft triangle multiplication 384 in", 384, 128, true);
    add_triangle("triangle multiplication core 256 out", 256, 128, false);
    add_triangle("triangle multiplication core 256 in", 256, 128, true);
    add_triangle("template triangle multiplication core 256 out", 256, 64, false);
    add_triangle("ft triangle multiplication core 384 out", 384, 128, false);
    add_triangle("ft triangle multiplication core 384 in", 384, 128, true);
}

} // namespace kbench
