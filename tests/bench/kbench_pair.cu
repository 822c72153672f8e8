/* kbench_pair.cu: outer product mean and triangle multiplication. */
#include "tests/bench/kbench.cuh"

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
                  b.grad("z", n * n * c_z)};
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

void add_outer(const char *name, peer other, int64_t n_seq, int64_t n,
               const std::vector<path> &paths = {}) {
    options how;
    how.stages = 3;
    add(
        name, other, how, [=](bench &b) { outer(b, n_seq, n, 32, 128); }, paths);
}

void add_triangle(const char *name, int64_t n, int64_t c, bool incoming,
                  const std::vector<path> &paths = {}) {
    options how;
    how.stages = 3;
    add(
        name, {0, 0}, how, [=](bench &b) { triangle(b, n, c, incoming); }, paths);
}

} // namespace

void add_pair_cases(void) {
    /* Peers: OpenFold's eager module, with its layer norm and projections. */
    add_outer("outer product mean 128x256", {0.346, 0.979}, 128, 256);
    add_outer("extra outer product mean 1024x256", {0, 0}, 1024, 256);
    add_outer("ft outer product mean 512x384", {1.069, 2.713}, 512, 384);
    add_outer("ft extra outer product mean 5120x384", {0, 0}, 5120, 384);
    add_triangle("triangle multiplication core 256 out", 256, 128, false);
    add_triangle("triangle multiplication core 256 in", 256, 128, true);
    add_triangle("template triangle multiplication core 256 out", 256, 64, false);
    add_triangle("ft triangle multiplication core 384 out", 384, 128, false);
    add_triangle("ft triangle multiplication core 384 in", 384, 128, true);
}

} // namespace kbench
