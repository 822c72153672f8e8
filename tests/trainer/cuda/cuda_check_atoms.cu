/* cuda_check_atoms.cu: cases of atoms, tokens and windows, and of structures with noise and the
 * losses on them; see cuda_check.cu. */
#include "tests/trainer/cuda/cuda_check.cuh"

#include <math.h>

namespace cuda_check {
namespace {

/* -- rows */

void check_modulate(int64_t samples, int64_t n, int64_t c, fm_beta beta) {
    check("modulate", 2, [=](work_bench &b) {
        fm_modulate a = {};
        a.rows = samples * n, a.c = c, a.g_rows = n;
        a.g = b.act(n * c, 3), a.x = b.act(samples * n * c);
        a.shift = b.act(n * c), a.residual = b.act(samples * n * c), a.y = b.out(samples * n * c);
        b.k->modulate(NULL, &a);
        fm_modulate_grad g = {};
        g.dy = b.act(samples * n * c);
        g.dx = b.grad(samples * n * c, beta);
        g.dg = b.grad(n * c, beta), g.dshift = b.grad(n * c, beta);
        b.k->modulate_grad(NULL, &a, &g);
    });
}

void check_adaln(int64_t samples, int64_t n, int64_t c, fm_beta beta) {
    check("adaln", 2, [=](work_bench &b) {
        fm_adaln a = {};
        a.rows = samples * n, a.c = c, a.g_rows = n, a.eps = 1e-5;
        a.x = b.act(samples * n * c, 2), a.g = b.act(n * c, 3), a.shift = b.act(n * c);
        a.y = b.out(samples * n * c);
        b.k->adaln(NULL, &a);
        fm_adaln_grad g = {};
        g.dy = b.act(samples * n * c);
        g.dx = b.grad(samples * n * c, beta);
        g.dg = b.grad(n * c, beta), g.dshift = b.grad(n * c, beta);
        b.k->adaln_grad(NULL, &a, &g);
    });
    check("adaln after a gate", 2, [=](work_bench &b) {
        fm_adaln a = {};
        a.rows = samples * n, a.c = c, a.g_rows = n, a.eps = 1e-5;
        a.x = b.act(samples * n * c, 2), a.g = b.act(n * c, 3), a.shift = b.act(n * c);
        a.update = b.act(samples * n * c), a.end = b.act(n * c, 3);
        a.y = b.out(samples * n * c), a.moved = b.out(samples * n * c);
        b.k->adaln(NULL, &a);
    });
}

/* Token t has t % 5 atoms; atoms behind the last token's are padding. */
struct atoms {
    int32_t *token, *first;
};
atoms atom_map(work_bench &b, int64_t n_atom, int64_t n_token) {
    std::vector<int32_t> token((size_t)n_atom, -1), first;
    int32_t at = 0;
    for (int64_t t = 0; t < n_token; t++) {
        first.push_back(at);
        for (int64_t k = 0; k < t % 5 && at < n_atom; k++)
            token[(size_t)at++] = (int32_t)t;
    }
    first.push_back(at);
    return {b.raw(token), b.raw(first)};
}

void check_rows(int64_t batch, int64_t n_atom, int64_t n_token, int64_t c, bool mean,
                fm_beta beta) {
    check("gather_rows, sum_rows", 1, [=](work_bench &b) {
        atoms map = atom_map(b, n_atom, n_token);
        fm_rows a = {batch, n_token, n_atom, c, map.token, map.first, mean};
        b.k->gather_rows(NULL, &a, b.act(batch * n_token * c), b.grad(batch * n_atom * c, beta));
        fm_rows back = {batch, n_atom, n_token, c, NULL, map.first, mean};
        b.k->sum_rows(NULL, &back, b.act(batch * n_atom * c), b.grad(batch * n_token * c, beta));
    });
}

/* -- windows */

void check_windows(int64_t n_atom, int64_t n_token, int64_t c, fm_beta beta) {
    int64_t n_window = (n_atom + FM_WINDOW_QUERIES - 1) / FM_WINDOW_QUERIES;
    int64_t pairs = n_window * FM_WINDOW_QUERIES * FM_WINDOW_KEYS;
    check("window_pairs", 1, [=](work_bench &b) {
        atoms map = atom_map(b, n_atom, n_token);
        fm_window_pairs a = {n_atom, n_token, n_window, c, map.token, map.first};
        b.k->window_pairs(NULL, &a, b.act(n_token * n_token * c), b.grad(pairs * c, beta));
        b.k->window_pairs_grad(NULL, &a, b.act(pairs * c), b.grad(n_token * n_token * c, beta));
    });
    check("window_geometry", 1, [=](work_bench &b) {
        std::vector<double> x = b.draw(n_atom * 3, 4);
        std::vector<int32_t> id;
        for (int64_t l = 0; l < n_atom; l++)
            id.push_back(l % 11 == 3 ? -1 : (int32_t)(l / 9));
        fm_window_geometry a = {};
        a.n_atom = n_atom, a.n_window = n_window, a.id = b.raw(id);
        a.x = b.raw(std::vector<float>(x.begin(), x.end()));
        a.y = b.out(pairs * FM_WINDOW_GEOMETRY);
        b.k->window_geometry(NULL, &a);
    });
}

void check_embeddings(int64_t rows, int64_t c) {
    check("fourier", 1, [=](work_bench &b) {
        b.k->fourier(NULL, rows, c, b.act(rows), b.act(c), b.act(c), b.out(rows * c));
    });
}

/* -- structures */

void check_moves(int64_t samples, int64_t n) {
    check("rigid_align", 2, [=](work_bench &b) {
        fm_rigid_align a = {};
        a.n_batch = samples, a.n = n, a.y_stride = 3 * n;
        a.x = b.act(3 * n, 10), a.y = b.act(samples * 3 * n, 10), a.w = b.mask(n, 7);
        a.moved = b.out(samples * 3 * n), a.transform = b.out_acc(samples * 12);
        b.k->rigid_align(NULL, &a);
    });
    check("augment", 1, [=](work_bench &b) {
        fm_augment a = {};
        a.n_sample = samples, a.n = n, a.eps = 1e-12;
        a.x = b.act(3 * n, 10), a.mask = b.mask(n, 5);
        a.rotation = b.act(samples * 9), a.offset = b.act(samples * 3);
        a.y = b.out(samples * 3 * n);
        b.k->augment(NULL, &a);
    });
    check("draw_normal, draw_rotations", 1, [=](work_bench &b) {
        fm_draw draw = {};
        draw.seed = 77, draw.layer = 2, draw.purpose = FM_PURPOSE_NOISE;
        b.k->draw_normal(NULL, samples * n, &draw, b.out(samples * n));
        b.k->draw_rotations(NULL, samples, &draw, b.out(samples * 9));
    });
}

/* -- losses */

void check_diffusion_losses(int64_t samples, int64_t n, fm_beta beta) {
    check("square_loss", 2, [=](work_bench &b) {
        fm_square_loss a = {};
        a.n_sample = samples, a.n = n, a.factor = 1.0 / 3, a.eps = 1e-6;
        a.x = b.act(samples * 3 * n, 10), a.y = b.act(samples * 3 * n, 10);
        a.mask = b.mask(n, 5), a.w = b.act(n), a.scale = b.act(samples);
        a.loss = b.out_acc(1);
        b.k->square_loss(NULL, &a);
        b.k->square_loss_grad(NULL, &a, b.acc(1), b.grad(samples * 3 * n, beta));
    });
    check("bond_loss", 2, [=](work_bench &b) {
        std::vector<int32_t> bond;
        for (int64_t p = 0; p < n; p++) {
            bond.push_back(p % 4 == 3 ? -1 : (int32_t)p);
            bond.push_back(p % 4 == 3 ? -1 : (int32_t)((p * 7 + 1) % n));
        }
        fm_bond_loss a = {};
        a.n_sample = samples, a.n = n, a.n_bond = n, a.bond = b.raw(bond);
        a.x = b.act(samples * 3 * n, 4), a.length = b.act(n), a.w = b.mask(n, 3);
        a.scale = b.act(samples), a.loss = b.out_acc(1);
        b.k->bond_loss(NULL, &a);
        b.k->bond_loss_grad(NULL, &a, b.acc(1), b.grad(samples * 3 * n, beta));
    });
    check("smooth_lddt", 2, [=](work_bench &b) {
        fm_smooth_lddt a = {};
        a.n_sample = samples, a.n = n, a.eps = 1e-6;
        a.x = b.act(samples * 3 * n, 10), a.truth = b.act(3 * n, 10), a.mask = b.mask(n, 5);
        std::vector<double> radius;
        for (int64_t l = 0; l < n; l++)
            radius.push_back(l % 3 ? 15 : 30);
        a.radius = b.input(radius, b.k->act), a.count = b.out_acc(1), a.loss = b.out_acc(1);
        b.k->smooth_lddt(NULL, &a, b.space(b.k->smooth_lddt_workspace(&a)));
        b.k->smooth_lddt_grad(NULL, &a, b.acc(1), b.grad(samples * 3 * n, beta));
    });
}

void check_errors(int64_t n) {
    check("distance_errors", 1, [=](work_bench &b) {
        fm_distance_errors a = {};
        a.n_batch = 2, a.n = n, a.n_bin = 64, a.last = 32;
        a.x = b.act(2 * 3 * n, 20), a.truth = b.act(3 * n, 20), a.mask = b.mask(n, 5);
        a.target = (int32_t *)b.keep(INTEGERS, FM_ELEMENT_I32, 2 * n * n, 0);
        a.w = b.out(2 * n * n);
        b.k->distance_errors(NULL, &a);
    });
    check("frame_errors", 1, [=](work_bench &b) {
        std::vector<int32_t> frame, centre;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t k = 0; k < 3; k++)
                frame.push_back(i % 6 == 5 ? -1 : (int32_t)(3 * i + k));
            centre.push_back(i % 9 == 7 ? -1 : (int32_t)(3 * i + 1));
        }
        fm_frame_errors a = {};
        a.n_batch = 2, a.n_atom = 3 * n, a.n_token = n, a.n_bin = 64, a.last = 32;
        a.x = b.act(2 * 9 * n, 20), a.truth = b.act(9 * n, 20), a.mask = b.mask(3 * n, 7);
        a.frame = b.raw(frame), a.centre = b.raw(centre);
        a.target = (int32_t *)b.keep(INTEGERS, FM_ELEMENT_I32, 2 * n * n, 0);
        a.w = b.out(2 * n * n);
        b.k->frame_errors(NULL, &a);
    });
    check("atom_lddt", 1, [=](work_bench &b) {
        std::vector<double> truth = b.draw(3 * n, 12), radius;
        for (int64_t l = 0; l < n; l++)
            radius.push_back(l % 3 ? 15 : 30);
        fm_atom_lddt a = {};
        a.n_batch = 2, a.n = n, a.n_bin = 50;
        a.truth = b.input(truth, b.k->act), a.x = b.act(2 * 3 * n, 12);
        a.mask = b.mask(n, 5), a.partner = b.mask(n, 4), a.radius = b.input(radius, b.k->act);
        a.target = (int32_t *)b.keep(INTEGERS, FM_ELEMENT_I32, 2 * n, 0), a.w = b.out(2 * n);
        b.k->atom_lddt(NULL, &a);
    });
}

} // namespace

void check_atoms(void) {
    check_modulate(1, 1, 1, FM_WRITE);
    check_modulate(3, 37, 24, FM_ADD);
    check_modulate(1, 384, 768, FM_WRITE);
    check_adaln(2, 5, 7, FM_WRITE);
    check_adaln(3, 37, 24, FM_ADD);
    check_adaln(7, 41, 16, FM_WRITE);
    check_adaln(6, 301, 128, FM_ADD);
    check_adaln(1, 67, 384, FM_WRITE);
    check_adaln(1, 384, 768, FM_ADD);
    check_adaln(2, 19, 768, FM_WRITE);
    check_rows(2, 70, 40, 5, false, FM_ADD);
    check_rows(1, 300, 140, 128, true, FM_WRITE);
    check_windows(43, 17, 4, FM_WRITE);
    check_windows(141, 61, 16, FM_ADD);
    check_embeddings(3, 256);
    check_embeddings(61, 18);
    check_moves(1, 4);
    check_moves(3, 301);
    check_diffusion_losses(1, 3, FM_WRITE);
    check_diffusion_losses(3, 157, FM_ADD);
    check_errors(5);
    check_errors(61);
}

} // namespace cuda_check
