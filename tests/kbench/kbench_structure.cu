/* kbench_structure.cu: the structure module and its losses, f32 in every run, compared with the
 * CPU's f32 table, at the sizes of initial training. They move few bytes, so their times are
 * latency. */
#include "tests/kbench/kbench.cuh"

namespace kbench {
namespace {

void ipa(bench &b, int64_t n, int64_t c_z) {
    const fm_kernels *k = b.k;
    const int64_t head = 12, c = 16, qk = 4, v = 8, y = n * head * (c + 4 * v + c_z);
    int64_t ld = head * 3 * (c + 2 * qk + v), pairs = n * n;
    fm_ipa a = {n,
                head,
                c,
                qk,
                v,
                c_z,
                ld,
                1e5,
                1e-8,
                b.act(n * ld),
                b.act(pairs * head),
                b.act(pairs * c_z),
                b.act(n * FM_FRAME),
                b.ones(n),
                b.act(head),
                b.out("y", y),
                b.scratch((size_t)(2 * n * head) * 4)};
    fm_ipa_grad g = {b.act(y),
                     b.out("dprojections", n * ld),
                     b.grad("dbias", pairs * head),
                     b.grad("dz", pairs * c_z),
                     b.grad("dframes", n * FM_FRAME),
                     b.grad("dhead_weights", head, true)};
    void *less = b.scratch(k->ipa_workspace(&a)), *space = b.scratch(k->ipa_grad_workspace(&a));
    double flops = 2.0 * (double)(pairs * head * (c + 3 * qk + c + 3 * v + c_z));
    double bytes = b.size((double)(pairs * (c_z + head) + n * ld + y));
    b.part("fwd", flops, bytes, [=](fm_stream *q) { k->ipa(q, &a, less); });
    b.part("bwd", 2 * flops, 2 * bytes, [=](fm_stream *q) { k->ipa_grad(q, &a, &g, space); });
}

void frame_update(bench &b, int64_t n) {
    const fm_kernels *k = b.k;
    const void *frames = b.act(n * 7), *update = b.act(n * 6), *dy = b.act(n * 7);
    void *y = b.out("y", n * 7);
    fm_out dframes = b.grad("dframes", n * 7), dupdate = b.grad("dupdate", n * 6);
    b.part("fwd", 0, 4.0 * 20 * (double)n,
           [=](fm_stream *q) { k->frame_update(q, n, frames, update, y); });
    b.part("bwd", 0, 4.0 * 33 * (double)n,
           [=](fm_stream *q) { k->frame_update_grad(q, n, frames, update, dy, dframes, dupdate); });
}

void atoms(bench &b, int64_t n) {
    const fm_kernels *k = b.k;
    fm_residue_atoms a = {n,
                          10,
                          b.act(n * 7),
                          b.act(n * 14),
                          b.bytes(n, 21),
                          b.floats(21 * 96, 0.7),
                          b.floats(21 * 42, 2),
                          b.bytes(21 * 14, 9),
                          b.out("groups", n * 96),
                          b.out("atoms", n * 42)};
    const void *dgroups = b.act(n * 96), *datoms = b.act(n * 42);
    fm_out dframes = b.grad("dframes", n * 7), dangles = b.grad("dangles", n * 14);
    b.part("fwd", 0, 4.0 * 159 * (double)n, [=](fm_stream *q) { k->residue_atoms(q, &a); });
    b.part("bwd", 0, 4.0 * 180 * (double)n,
           [=](fm_stream *q) { k->residue_atoms_grad(q, &a, dgroups, datoms, dframes, dangles); });
}

void fape(bench &b, int64_t n_batch, int64_t n_frame, int64_t n_point) {
    const fm_kernels *k = b.k;
    int64_t points = n_point ? n_point : n_frame;
    const float *mask = b.float_ones(points > n_frame ? points : n_frame);
    fm_fape a = {n_batch,
                 n_frame,
                 points,
                 10,
                 10,
                 1e-4,
                 b.act(n_batch * n_frame * 12, 5),
                 n_point ? b.act(n_batch * points * 3, 5) : NULL,
                 b.floats(n_frame * 16, 5),
                 b.floats(points * 3, 5),
                 mask,
                 mask,
                 NULL,
                 b.out_acc("loss", 1)};
    fm_out dframes = b.grad("dframes", n_batch * n_frame * 12);
    fm_out dpoints = n_point ? b.grad("dpoints", n_batch * points * 3) : fm_out{NULL, FM_WRITE};
    const void *dloss = b.acc(1);
    void *space = b.scratch(k->fape_workspace(&a));
    double pairs = (double)(n_batch * n_frame * points);
    b.part("fwd", 60 * pairs, 0, [=](fm_stream *q) { k->fape(q, &a, space); });
    b.part("bwd", 180 * pairs, 0,
           [=](fm_stream *q) { k->fape_grad(q, &a, dloss, dframes, dpoints); });
}

void violation(bench &b, int64_t n) {
    const fm_kernels *k = b.k;
    fm_violation a = {n,
                      12,
                      1.5,
                      1e-8,
                      b.act(n * 42, 30),
                      b.float_ones(n * 14),
                      b.indices(n),
                      b.bytes(n, 21),
                      b.floats(21 * 14, 1.7),
                      b.floats(21 * 14 * 14 * 2, 3),
                      b.out_acc("loss", 1),
                      b.out_acc("terms", 4)};
    const void *dloss = b.acc(1);
    fm_out datoms = b.grad("datoms", n * 42);
    void *space = b.scratch(k->violation_workspace(&a));
    b.part("fwd", 0, 0, [=](fm_stream *q) { k->violation(q, &a, space); });
    b.part("bwd", 0, 0, [=](fm_stream *q) { k->violation_grad(q, &a, dloss, datoms); });
}

/* Every residue is ambiguous. */
void naming(bench &b, int64_t n) {
    const fm_kernels *k = b.k;
    const float *exists = b.float_ones(n * 14);
    fm_naming a = {n,
                   b.act(n * 42, 30),
                   b.floats(n * 42, 30),
                   b.floats(n * 42, 30),
                   exists,
                   exists,
                   b.floats(n * 14, 0.1),
                   b.floats(n * 128, 5),
                   b.floats(n * 128, 5),
                   (float *)b.out("positions", n * 42),
                   (float *)b.out("exists", n * 14),
                   (float *)b.out("frames", n * 128)};
    b.part("naming", 0, 0, [=](fm_stream *q) { k->choose_naming(q, &a); });
}

void torsion(bench &b, int64_t iterations, int64_t n) {
    const fm_kernels *k = b.k;
    int64_t angles = iterations * n * 14;
    fm_torsion_loss a = {iterations,
                         n,
                         0.5,
                         0.01,
                         1e-8,
                         b.act(angles),
                         b.act(angles),
                         b.floats(n * 8),
                         b.float_ones(n * 4),
                         b.float_ones(n),
                         b.bytes(n, 21),
                         b.bytes(21, 16),
                         b.out_acc("loss", 1)};
    const void *dloss = b.acc(1);
    fm_out dangles = b.grad("dangles", angles), draw = b.grad("draw", angles);
    double size = 4.0 * (double)angles;
    b.part("fwd", 0, 2 * size, [=](fm_stream *q) { k->torsion_loss(q, &a); });
    b.part("bwd", 0, 4 * size,
           [=](fm_stream *q) { k->torsion_loss_grad(q, &a, dloss, dangles, draw); });
}

void entropy(bench &b, int64_t n) {
    const fm_kernels *k = b.k;
    fm_binary_entropy a = {
        n, 1e-8, b.act(n), b.float_ones(n), b.float_ones(n), b.out_acc("loss", 1)};
    const void *dloss = b.acc(1);
    fm_out dx = b.grad("dx", n);
    b.part("fwd", 0, 12.0 * (double)n, [=](fm_stream *q) { k->binary_entropy(q, &a); });
    b.part("bwd", 0, 16.0 * (double)n,
           [=](fm_stream *q) { k->binary_entropy_grad(q, &a, dloss, dx); });
}

void bins(bench &b, int64_t n) {
    const fm_kernels *k = b.k;
    int32_t *classes = (int32_t *)b.scratch((size_t)(n * n) * 4);
    fm_lddt_bins l = {n,
                      50,
                      15,
                      1e-8,
                      b.act(n * 42, 30),
                      b.floats(n * 3, 30),
                      b.float_ones(n),
                      classes,
                      b.out("lddt weights", n)};
    fm_aligned_error_bins e = {n,
                               64,
                               31,
                               b.act(n * 12, 5),
                               b.floats(n * 16, 5),
                               b.float_ones(n),
                               classes,
                               b.out("error weights", n * n)};
    b.part("lDDT", 0, 0, [=](fm_stream *q) { k->lddt_bins(q, &l); });
    b.part("PAE", 0, 8.0 * (double)(n * n), [=](fm_stream *q) { k->aligned_error_bins(q, &e); });
}

} // namespace

void add_structure_cases(void) {
    options how;
    how.oracle = ORACLE_CPU, how.is_f32 = true;
    add("invariant point attention 256", {0, 0}, how, [](bench &b) { ipa(b, 256, 128); });
    add("ft invariant point attention 384", {0, 0}, how, [](bench &b) { ipa(b, 384, 128); });
    add("frame update 256", {0, 0}, how, [](bench &b) { frame_update(b, 256); });
    add("frames and atoms 256", {0, 0}, how, [](bench &b) { atoms(b, 256); });
    add("fape backbone 8x256", {0, 0}, how, [](bench &b) { fape(b, 8, 256, 0); });
    add("fape side chains 2048x3584", {0, 0}, how, [](bench &b) { fape(b, 1, 2048, 3584); });
    add("violation 256", {0, 0}, how, [](bench &b) { violation(b, 256); });
    add("choose naming 256", {0, 0}, how, [](bench &b) { naming(b, 256); });
    add("torsion loss 8x256", {0, 0}, how, [](bench &b) { torsion(b, 8, 256); });
    add("binary cross-entropy 9472", {0, 0}, how, [](bench &b) { entropy(b, 9472); });
    add("lDDT and aligned error bins 256", {0, 0}, how, [](bench &b) { bins(b, 256); });
}

} // namespace kbench
