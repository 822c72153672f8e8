/* kbench_modules.cu: whole sublayers as the model runs them (kbench_module.h): layer norm,
 * projections, core, gate, output projection, dropout, residual. Bytes: x read and y written;
 * backward x, dy read and dx written; z in the same way. Values in between could stay on the chip.
 *
 * They follow the ops of trainer/ops, fused or not, and are compared with the same ops over the
 * oracle's table. */
#include "tests/kbench/kbench.cuh"

extern "C" {
#include "tests/kbench/kbench_module.h"
}

namespace kbench {
namespace {

void fill(bench &b, fm_element element, const kbench_tensor *t, int n) {
    for (int i = 0; i < n; i++)
        b.fill(t[i].data, element, t[i].count, t[i].range);
}

void sublayer(bench &b, const kbench_shape &shape) {
    const fm_kernels *k = b.k;
    kbench_module *m = kbench_module_create(k, &shape);
    b.ends.push_back([=] { kbench_module_destroy(m); });
    kbench_tensor t[KBENCH_TENSORS];
    double bytes = 0;
    int n = kbench_module_inputs(m, t);
    fill(b, k->act, t, n);
    for (int i = 0; i < n; i++)
        bytes += t[i].range > 0 ? b.size((double)t[i].count) : 0;
    fill(b, k->acc, t, kbench_module_parameters(m, t));
    kbench_module_refresh(m);
    kbench_tensor y = kbench_module_output(m), dy = kbench_module_output_gradient(m);
    kbench_tensor other = kbench_module_other_gradient(m);
    const void *drawn = b.act(dy.count);
    b.borrow("y", k->act, y.count, y.data);
    b.borrow("dx", k->act, dy.count, dy.data);
    if (other.count) b.borrow("dz", k->act, other.count, other.data);
    n = kbench_module_gradients(m, t);
    for (int i = 0; i < n; i++)
        b.borrow(t[i].name, k->acc, t[i].count, t[i].data);
    double written = b.size((double)y.count);
    b.part("fwd", kbench_module_flops(m, false), bytes + written,
           [=](fm_stream *q) { kbench_module_forward(m, q); });
    b.part(
        "bwd", kbench_module_flops(m, true), 2 * bytes + written,
        [=](fm_stream *q) { kbench_module_backward(m, q); },
        [=](fm_stream *q) { k->copy(q, dy.count, drawn, dy.data); });
}

void add_module(const char *name, peer other, const kbench_shape &shape,
                const std::vector<path> &paths = {}) {
    options how;
    how.stages = 8, how.is_measured = true;
    add((std::string("module ") + name).c_str(), other, how, [=](bench &b) { sublayer(b, shape); },
        paths);
}

} // namespace

void add_module_cases(void) {
    /* Peers: OpenFold's eager modules. Shapes: kind n0 n1 c c_z heads c_inner dropout. */
    add_module("row attention 128x256", {0.816, 1.838},
               {KBENCH_ROW, 128, 256, 256, 128, 8, 32, 0.15});
    add_module("column attention 128x256", {0.562, 1.400},
               {KBENCH_COLUMN, 128, 256, 256, 0, 8, 32, 0});
    add_module("triangle attention 256", {0.848, 2.038},
               {KBENCH_STARTING, 256, 256, 128, 0, 4, 32, 0.25});
    add_module("ending triangle attention 256", {0.848, 2.038},
               {KBENCH_ENDING, 256, 256, 128, 0, 4, 32, 0.25});
    add_module("triangle multiplication 256 out", {0.508, 2.409},
               {KBENCH_OUTGOING, 256, 256, 128, 0, 0, 128, 0.25});
    add_module("triangle multiplication 256 in", {0.508, 2.411},
               {KBENCH_INCOMING, 256, 256, 128, 0, 0, 128, 0.25});
    add_module("outer product mean 128x256", {0.346, 0.979},
               {KBENCH_OUTER, 128, 256, 256, 128, 0, 32, 0});
    add_module("MSA transition 128x256", {0.163, 0.594},
               {KBENCH_TRANSITION, 128, 256, 256, 0, 0, 4, 0});
    add_module("pair transition 256", {0.181, 0.774},
               {KBENCH_TRANSITION, 256, 256, 128, 0, 0, 4, 0});
    add_module("extra row attention 1024x256", {0, 0},
               {KBENCH_ROW, 1024, 256, 64, 128, 8, 8, 0.15});
    add_module("extra global column attention 1024x256", {0, 0},
               {KBENCH_GLOBAL_COLUMN, 1024, 256, 64, 0, 8, 8, 0});
    add_module("extra outer product mean 1024x256", {0, 0},
               {KBENCH_OUTER, 1024, 256, 64, 128, 0, 32, 0});
    add_module("extra MSA transition 1024x256", {0, 0},
               {KBENCH_TRANSITION, 1024, 256, 64, 0, 0, 4, 0});
    add_module("template triangle attention 256", {0, 0},
               {KBENCH_STARTING, 256, 256, 64, 0, 4, 16, 0.25});
    add_module("template triangle multiplication 256 out", {0, 0},
               {KBENCH_OUTGOING, 256, 256, 64, 0, 0, 64, 0.25});
    add_module("template pair transition 256", {0, 0},
               {KBENCH_TRANSITION, 256, 256, 64, 0, 0, 2, 0});
    add_module("ft triangle attention 384", {2.443, 4.908},
               {KBENCH_STARTING, 384, 384, 128, 0, 4, 32, 0.25});
    add_module("ft triangle multiplication 384 out", {1.039, 4.238},
               {KBENCH_OUTGOING, 384, 384, 128, 0, 0, 128, 0.25});
    add_module("af3 template triangle multiplication 384 out", {0, 0},
               {KBENCH_OUTGOING, 384, 384, 64, 0, 0, 128, 0.25});
    add_module("ft outer product mean 512x384", {1.069, 2.713},
               {KBENCH_OUTER, 512, 384, 256, 128, 0, 32, 0});
    add_module("ft row attention 512x384", {0, 0}, {KBENCH_ROW, 512, 384, 256, 128, 8, 32, 0.15});
    add_module("ft column attention 512x384", {0, 0}, {KBENCH_COLUMN, 512, 384, 256, 0, 8, 32, 0});
    add_module("ft MSA transition 512x384", {0, 0}, {KBENCH_TRANSITION, 512, 384, 256, 0, 0, 4, 0});
}

} // namespace kbench
