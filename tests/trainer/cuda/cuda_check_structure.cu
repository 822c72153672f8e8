/* cuda_check_structure.cu: cases of invariant point attention, frames and atoms, and the losses on
 * structures; see cuda_check.cu. */
#include "tests/trainer/cuda/cuda_check.cuh"

#include <math.h>

namespace cuda_check {
namespace {

const int64_t FRAME = FM_FRAME, MATRIX = FM_MATRIX_FRAME;

/* -- operands */

/* f32 on every table. */
float *floats(work_bench &b, const std::vector<double> &x) {
    return b.raw(std::vector<float>(x.begin(), x.end()));
}

float *random_floats(work_bench &b, int64_t n, double size) {
    return floats(b, b.draw(n, size));
}

/* 0 at every period-th place, else 1. */
float *float_mask(work_bench &b, int64_t n, int64_t period) {
    std::vector<double> x((size_t)n);
    for (int64_t i = 0; i < n; i++)
        x[(size_t)i] = i % period != 2;
    return floats(b, x);
}

uint8_t *residue_types(work_bench &b, int64_t n) {
    std::vector<uint8_t> x((size_t)n);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (uint8_t)(i * 8 % 21);
    return b.raw(x);
}

/* Rows of `width` numbers below `size`, from column `first` on below `far`. */
std::vector<double> rows_of(work_bench &b, int64_t n, int64_t width, int64_t first, double size,
                            double far) {
    std::vector<double> x = b.draw(n * width, size);
    for (size_t i = 0; i < x.size(); i++)
        if ((int64_t)i % width >= first) x[i] *= far / size;
    return x;
}

void *frames(work_bench &b, int64_t n) {
    return b.input(rows_of(b, n, FRAME, 4, 0.75, 2), b.k->act);
}

void *matrix_frames(work_bench &b, int64_t n, double far) {
    return b.input(rows_of(b, n, MATRIX, 9, 0.75, far), b.k->act);
}

/* [n, 4, 4]: rotations, translations in the last column. */
float *target_frames(work_bench &b, int64_t n, double far) {
    std::vector<double> x = b.draw(n * 16, 0.75);
    for (size_t i = 0; i < x.size(); i++)
        if (i % 4 == 3) x[i] *= far / 0.75;
    return floats(b, x);
}

/* -- the structure module */

struct ipa_shape {
    int64_t n, n_head, c, n_qk, n_v, c_z, gap, period;
    fm_beta beta;
};

/* Stages of backward: points of values in global axes, y's points, and the gradient. */
void check_ipa(const char *name, const ipa_shape &s) {
    check(name, 3, [=](work_bench &b) {
        fm_ipa a = {};
        a.n = s.n, a.n_head = s.n_head, a.c = s.c, a.n_qk = s.n_qk, a.n_v = s.n_v, a.c_z = s.c_z;
        a.ld = s.n_head * 3 * (s.c + 2 * s.n_qk + s.n_v) + s.gap;
        a.mask_value = 1e5, a.eps = 1e-8;
        int64_t n_y = s.n * s.n_head * (s.c + 4 * s.n_v + s.c_z), pairs = s.n * s.n;
        a.projections = b.act(s.n * a.ld), a.bias = b.act(pairs * s.n_head);
        a.z = b.act(pairs * s.c_z), a.frames = frames(b, s.n), a.mask = b.mask(s.n, s.period);
        a.head_weights = b.act(s.n_head), a.y = b.out(n_y), a.lse = b.acc(s.n * s.n_head * 2);
        b.k->ipa(NULL, &a, b.space(b.k->ipa_workspace(&a)));
        fm_ipa_grad g = {};
        g.dy = b.act(n_y), g.dprojections = b.out(s.n * a.ld);
        g.dbias = b.grad(pairs * s.n_head, s.beta);
        g.dz = b.grad(pairs * s.c_z, s.beta), g.dframes = b.grad(s.n * FRAME, s.beta);
        g.dhead_weights = b.grad(s.n_head, s.beta, true);
        b.k->ipa_grad(NULL, &a, &g, b.space(b.k->ipa_grad_workspace(&a)));
    });
}

void check_ipas(void) {
    const fm_beta W = FM_WRITE, A = FM_ADD;
    /*                         n head c qk v z gap period */
    check_ipa("ipa one", {1, 1, 1, 1, 1, 1, 0, 5, W});
    check_ipa("ipa 5 odd, gap", {5, 3, 6, 4, 5, 5, 3, 5, A});
    check_ipa("ipa 37, 13 heads", {37, 13, 5, 2, 3, 7, 0, 4, A});
    check_ipa("ipa 70, 14 heads, c_z 150", {70, 14, 9, 4, 8, 150, 0, 9, W});
    check_ipa("ipa 300, more features", {300, 2, 40, 9, 11, 33, 0, 50, W});
    check_ipa("ipa 140", {140, 2, 3, 1, 1, 5, 0, 50, A});
    check_ipa("ipa 256 12x16", {256, 12, 16, 4, 8, 128, 0, 50, W});
    check_ipa("ipa 1000", {1000, 12, 2, 1, 1, 3, 0, 50, W});
}

void check_frames(int64_t n, fm_beta beta) {
    check("frame_update", 2, [=](work_bench &b) {
        void *x = frames(b, n), *update = b.act(n * 6);
        b.k->frame_update(NULL, n, x, update, b.out(n * FRAME));
        b.k->frame_update_grad(NULL, n, x, update, b.act(n * FRAME), b.grad(n * FRAME, beta),
                               b.grad(n * 6, beta));
    });
    check("matrix_frames", 2, [=](work_bench &b) {
        void *x = frames(b, n);
        b.k->matrix_frames(NULL, n, 10, x, b.out(n * MATRIX));
        b.k->matrix_frames_grad(NULL, n, 10, x, b.act(n * MATRIX), b.grad(n * FRAME, beta));
    });
    check("unit_pairs", 2, [=](work_bench &b) {
        void *x = b.act(n * 2);
        b.k->unit_pairs(NULL, n, 0.1, x, b.out(n * 2));
        b.k->unit_pairs_grad(NULL, n, 0.1, x, b.act(n * 2), b.grad(n * 2, beta));
    });
    check("pseudo_beta", 1, [=](work_bench &b) {
        b.k->pseudo_beta(NULL, n, b.act(n * 42, 10), residue_types(b, n),
                         (float *)b.keep(OUTPUT, FM_ELEMENT_F32, n * 3, NAN));
    });
}

void check_residue_atoms(int64_t n, fm_beta beta) {
    check("residue_atoms", 2, [=](work_bench &b) {
        fm_residue_atoms a = {};
        std::vector<uint8_t> group(21 * 14);
        for (size_t i = 0; i < group.size(); i++)
            group[i] = i * 5 % 9 == 8 ? 255 : (uint8_t)(i * 5 % 9);
        a.n = n, a.position_scale = 10;
        a.frames = frames(b, n), a.angles = b.act(n * 14), a.aatype = residue_types(b, n);
        a.group_frames = floats(b, rows_of(b, 21 * 8, MATRIX, 9, 0.75, 2));
        a.atom_positions = random_floats(b, 21 * 42, 2), a.atom_group = b.raw(group);
        a.groups = b.out(n * 8 * MATRIX), a.atoms = b.out(n * 42);
        b.k->residue_atoms(NULL, &a);
        fm_residue_atoms backbone = a;
        backbone.angles = NULL, backbone.groups = b.out(n * 8 * MATRIX);
        backbone.atoms = b.out(n * 42);
        b.k->residue_atoms(NULL, &backbone);
        void *dgroups = b.act(n * 8 * MATRIX), *datoms = b.act(n * 42);
        const fm_out none = {NULL, FM_WRITE};
        b.k->residue_atoms_grad(NULL, &a, dgroups, datoms, b.grad(n * FRAME, beta),
                                b.grad(n * 14, beta));
        b.k->residue_atoms_grad(NULL, &a, NULL, datoms, b.grad(n * FRAME, beta), none);
        b.k->residue_atoms_grad(NULL, &a, dgroups, NULL, none, b.grad(n * 14, beta));
    });
}

/* -- losses */

/* n_point 0: the points are the translations of the frames. */
void check_fape(const char *name, int64_t n_batch, int64_t n_frame, int64_t n_point, double clamp,
                double clamped, fm_beta beta) {
    check(name, 2, [=](work_bench &b) {
        fm_fape a = {};
        a.n_batch = n_batch, a.n_frame = n_frame, a.n_point = n_point ? n_point : n_frame;
        a.clamp = clamp, a.length_scale = 10, a.eps = 1e-4;
        a.frames = matrix_frames(b, n_batch * n_frame, 6);
        a.target_frames = target_frames(b, n_frame, 6);
        a.frame_mask = float_mask(b, n_frame, 5);
        a.point_mask = n_point ? float_mask(b, n_point, 7) : a.frame_mask;
        if (n_point) a.points = b.act(n_batch * n_point * 3, 6);
        if (n_point) a.target_points = random_floats(b, n_point * 3, 6);
        if (clamped < 1) a.clamped = floats(b, {clamped});
        a.loss = b.out_acc(1);
        b.k->fape(NULL, &a, b.space(b.k->fape_workspace(&a)));
        void *dloss = b.acc(1);
        fm_out dpoints = {NULL, beta};
        if (n_point) dpoints = b.grad(n_batch * n_point * 3, beta);
        b.k->fape_grad(NULL, &a, dloss, b.grad(n_batch * n_frame * MATRIX, beta), dpoints);
    });
}

void check_naming(int64_t n) {
    check("choose_naming", 1, [=](work_bench &b) {
        fm_naming a = {};
        std::vector<double> ambiguous((size_t)n * 14);
        for (size_t i = 0; i < ambiguous.size(); i++)
            ambiguous[i] = i / 14 % 3 != 1 && (i % 14 == 6 || i % 14 == 7);
        a.n = n, a.atoms = b.act(n * 42, 10);
        a.positions = random_floats(b, n * 42, 10), a.alt_positions = random_floats(b, n * 42, 10);
        a.exists = float_mask(b, n * 14, 9), a.alt_exists = float_mask(b, n * 14, 10);
        a.is_ambiguous = floats(b, ambiguous);
        a.frames = random_floats(b, n * 128, 1), a.alt_frames = random_floats(b, n * 128, 1);
        a.ret_positions = (float *)b.keep(OUTPUT, FM_ELEMENT_F32, n * 42, NAN);
        a.ret_exists = (float *)b.keep(OUTPUT, FM_ELEMENT_F32, n * 14, NAN);
        a.ret_frames = (float *)b.keep(OUTPUT, FM_ELEMENT_F32, n * 128, NAN);
        b.k->choose_naming(NULL, &a);
    });
}

void check_torsion_loss(int64_t n_batch, int64_t n, fm_beta beta) {
    check("torsion_loss", 2, [=](work_bench &b) {
        fm_torsion_loss a = {};
        std::vector<uint8_t> periodic(21);
        for (size_t i = 0; i < periodic.size(); i++)
            periodic[i] = (uint8_t)(i * 5 % 16);
        int64_t count = n_batch * n * 14;
        a.n_batch = n_batch, a.n = n, a.chi_weight = 0.5, a.norm_weight = 0.01, a.eps = 1e-8;
        a.angles = b.act(count), a.unnormalised = b.act(count, 1.5);
        a.chi = random_floats(b, n * 8, 1), a.chi_mask = float_mask(b, n * 4, 3);
        a.seq_mask = float_mask(b, n, 7), a.aatype = residue_types(b, n);
        a.pi_periodic = b.raw(periodic), a.loss = b.out_acc(1);
        b.k->torsion_loss(NULL, &a);
        b.k->torsion_loss_grad(NULL, &a, b.acc(1), b.grad(count, beta), b.grad(count, beta));
    });
}

/* Rotations that only exchange axes, and numbers of a few bits, so that f32 and f64 agree exactly.
 */
std::vector<double> exact_frames(int64_t n, int64_t width, int64_t salt) {
    const int order[3][3] = {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}};
    std::vector<double> x((size_t)(n * width), 0);
    int64_t row = width == 16 ? 4 : 3;
    for (int64_t i = 0; i < n; i++)
        for (int64_t axis = 0; axis < 3; axis++) {
            double *frame = &x[(size_t)(i * width)];
            frame[row * axis + order[(i + salt) % 3][axis]] = (i + axis + salt) % 2 ? -1 : 1;
            frame[width == 16 ? 4 * axis + 3 : 9 + axis] =
                (double)((i * 37 + axis * 11 + salt * 5) % 61 - 30) / 4;
        }
    return x;
}

void check_bins(int64_t n) {
    check("lddt_bins", 1, [=](work_bench &b) {
        fm_lddt_bins a = {};
        a.n = n, a.n_bin = 50, a.cutoff = 15, a.eps = 1e-8;
        std::vector<double> atoms = b.draw(n * 42, 8), truth((size_t)n * 3);
        for (size_t i = 0; i < truth.size(); i++) /* CA moved by up to 2 Å */
            truth[i] = atoms[i / 3 * 42 + 3 + i % 3] + (double)(i * 29 % 17) / 8;
        a.atoms = b.input(atoms, b.k->act), a.positions = floats(b, truth);
        a.mask = float_mask(b, n, 7);
        a.target = (int32_t *)b.keep(INTEGERS, FM_ELEMENT_I32, n, 0), a.w = b.out(n);
        b.k->lddt_bins(NULL, &a);
    });
    check("aligned_error_bins", 1, [=](work_bench &b) {
        fm_aligned_error_bins a = {};
        a.n = n, a.n_bin = 64, a.last = 31;
        a.frames = b.input(exact_frames(n, MATRIX, 0), b.k->act);
        a.target_frames = floats(b, exact_frames(n, 16, 1));
        a.mask = float_mask(b, n, 7);
        a.target = (int32_t *)b.keep(INTEGERS, FM_ELEMENT_I32, n * n, 0), a.w = b.out(n * n);
        b.k->aligned_error_bins(NULL, &a);
    });
}

void check_binary_entropy(int64_t n, fm_beta beta) {
    check("binary_entropy", 2, [=](work_bench &b) {
        fm_binary_entropy a = {
            n, 1e-8, b.act(n, 8), float_mask(b, n, 3), float_mask(b, n, 5), b.out_acc(1)};
        b.k->binary_entropy(NULL, &a);
        b.k->binary_entropy_grad(NULL, &a, b.acc(1), b.grad(n, beta));
    });
}

/* Residues about `apart` Å from each other with gaps in the chain, two of one index, missing
 * atoms. */
void check_violation(int64_t n, double apart, fm_beta beta) {
    check("violation", 2, [=](work_bench &b) {
        fm_violation a = {};
        std::vector<double> atoms = b.draw(n * 42, 2.5), radii = b.draw(21 * 14, 0.25);
        std::vector<double> bounds = b.draw(21 * 14 * 14 * 2, 0.25);
        std::vector<int32_t> index((size_t)n);
        for (int64_t i = 0; i < n; i++) {
            index[(size_t)i] = (int32_t)(i + (i > 9) * 3 - (i == 5));
            for (int64_t k = 0; k < 42; k++)
                atoms[(size_t)(i * 42 + k)] += apart * (double)(k % 3 == 0 ? i % 8 : i / 8 % 4);
        }
        for (double &radius : radii)
            radius += 1.5;
        for (size_t i = 0; i < bounds.size(); i++)
            bounds[i] += i % 2 ? 3 : 1.5;
        a.n = n, a.tolerance_factor = 12, a.overlap_tolerance = 1.5, a.eps = 1e-8;
        a.atoms = b.input(atoms, b.k->act), a.exists = float_mask(b, n * 14, 11);
        a.residue_index = b.raw(index), a.aatype = residue_types(b, n);
        a.radii = floats(b, radii), a.bounds = floats(b, bounds);
        a.loss = b.out_acc(1), a.terms = b.out_acc(4);
        b.k->violation(NULL, &a, b.space(b.k->violation_workspace(&a)));
        b.k->violation_grad(NULL, &a, b.acc(1), b.grad(n * 42, beta));
    });
}

} // namespace

void check_structure(void) {
    check_ipas();
    check_frames(1, FM_WRITE);
    check_frames(301, FM_ADD);
    check_residue_atoms(1, FM_WRITE);
    check_residue_atoms(37, FM_ADD);
    check_residue_atoms(2048, FM_WRITE);
    check_fape("fape one", 1, 1, 0, 10, 1, FM_WRITE);
    check_fape("fape backbone 3x37", 3, 37, 0, 10, 0.25, FM_ADD);
    check_fape("fape side chains 19x45", 2, 19, 45, 10, 1, FM_ADD);
    check_fape("fape not clamped", 1, 33, 31, 10, 0, FM_WRITE);
    check_fape("fape backbone 8x256", 8, 256, 0, 1000, 1, FM_WRITE);
    check_fape("fape side chains 2048x3584", 1, 2048, 3584, 1000, 1, FM_WRITE);
    check_naming(1);
    check_naming(101);
    check_torsion_loss(1, 1, FM_WRITE);
    check_torsion_loss(3, 37, FM_ADD);
    check_torsion_loss(8, 256, FM_WRITE);
    check_bins(1);
    check_bins(61);
    check_bins(256);
    check_binary_entropy(1, FM_WRITE);
    check_binary_entropy(9472, FM_ADD);
    check_violation(1, 4, FM_WRITE);
    check_violation(2, 2, FM_ADD);
    check_violation(37, 4, FM_ADD);
    check_violation(256, 6, FM_WRITE);
}

} // namespace cuda_check
