/* af3_units_losses.c: the units of AlphaFold 3's losses and of the moves of structures; see
 * af3_unit.h. */
#include "tests/trainer/parity/af3_units_kernels.h"

#include "trainer/backend/frame_of_atoms.h"
#include "trainer/loss/diffusion_losses.h"
#include "trainer/model/af3/sampling.h"
#include "trainer/ops/frames.h"
#include "trainer/ops/reshape.h"

#include <math.h>
#include <stdio.h>

/* 0 where the file does not have the array. */
static double flag(const af3_unit *u, const char *key, int64_t i) {
    const fm_npy *array = fm_npz_find(u->file, key);
    return array ? unit_value(array, i) : 0;
}

static fm_tensor_ref made(af3_unit *u, int64_t n, const double *values) {
    return unit_made(u, u->kernels->act, 1, &n, values);
}

static af3_atoms atoms_of(af3_unit *u) {
    int64_t n = unit_extent(u, "in.true", 0);
    double *radius = unit_numbers(u, n), *partner = unit_numbers(u, n);
    for (int64_t i = 0; i < n; i++) {
        radius[i] = flag(u, "in.is_dna", i) + flag(u, "in.is_rna", i) > 0 ? 30 : 15;
        partner[i] = flag(u, "in.m", i) * (1 - flag(u, "in.is_ligand", i));
    }
    return (af3_atoms){n, unit_values(u, unit_array(u, "in.true")),
                       unit_values(u, unit_array(u, "in.mask")), radius, partner};
}

static fm_atom_truth truth_input(af3_unit *u, const af3_atoms *atoms) {
    double *weight = unit_numbers(u, atoms->n);
    for (int64_t i = 0; i < atoms->n; i++) {
        double nucleotide = flag(u, "in.is_dna", i) + flag(u, "in.is_rna", i);
        weight[i] = atoms->mask[i] * (1 + 5 * nucleotide + 10 * flag(u, "in.is_ligand", i));
    }
    return (fm_atom_truth){.position = unit_input(u, "true"),
                           .mask = unit_input(u, "mask"),
                           .weight = made(u, atoms->n, weight),
                           .radius = made(u, atoms->n, atoms->radius)};
}

/* A value of the host as an output. */
static void output_values(af3_unit *u, int rank, const int64_t *shape, const double *values) {
    fm_tensor_ref made_tensor = unit_made(u, u->kernels->act, rank, shape, values);
    unit_output(u, fm_op_lift(&u->tape, "values", made_tensor));
}

static void record_mse(af3_unit *u) {
    fm_tensor_ref x = unit_input(u, "pred"), scale = unit_input(u, "scale");
    const af3_atoms atoms = atoms_of(u);
    fm_atom_truth truth = truth_input(u, &atoms);
    fm_tensor_ref aligned = fm_op_align_truth(&u->tape, x, &truth);
    unit_output(u, fm_op_mse_loss(&u->tape, x, aligned, &truth, scale));
}

static void record_bond(af3_unit *u) {
    fm_tensor_ref x = unit_input(u, "pred"), scale = unit_input(u, "scale");
    const fm_npy *bonds = unit_array(u, "in.bond_mask"), *truth = unit_array(u, "in.true");
    const fm_npy *mask = unit_array(u, "in.mask");
    int64_t n = unit_extent(u, "in.true", 0), count = 0;
    for (int64_t at = 0; at < n * n; at++)
        count += unit_value(bonds, at) != 0;
    double *bond = unit_numbers(u, 2 * count), *length = unit_numbers(u, count);
    double *weight = unit_numbers(u, count);
    for (int64_t at = 0, p = 0; at < n * n; at++) {
        if (unit_value(bonds, at) == 0) continue;
        int64_t a = at / n, b = at % n;
        double square = 0;
        for (int axis = 0; axis < 3; axis++) {
            double d = unit_value(truth, 3 * a + axis) - unit_value(truth, 3 * b + axis);
            square += d * d;
        }
        bond[2 * p] = (double)a, bond[2 * p + 1] = (double)b;
        length[p] = sqrt(square);
        weight[p++] = unit_value(mask, a) * unit_value(mask, b);
    }
    fm_bonds list = {unit_made(u, FM_ELEMENT_I32, 2, (int64_t[]){count, 2}, bond),
                     made(u, count, length), made(u, count, weight)};
    unit_output(u, fm_op_bond_loss(&u->tape, x, &list, scale));
}

static void record_smooth_lddt(af3_unit *u) {
    fm_tensor_ref x = unit_input(u, "pred");
    const af3_atoms atoms = atoms_of(u);
    fm_atom_truth truth = truth_input(u, &atoms);
    unit_output(u, fm_op_smooth_lddt_loss(&u->tape, x, &truth));
    output_values(u, 2, (int64_t[]){atoms.n, atoms.n}, af3_smooth_lddt_pairs(u, &atoms));
}

/* The atoms that in.KEY marks, in order; returns their number. */
static int64_t marked(af3_unit *u, const char *key, double **ret_atoms) {
    const fm_npy *array = unit_array(u, key);
    int64_t n = 0;
    *ret_atoms = unit_numbers(u, (int64_t)array->count);
    for (int64_t i = 0; i < (int64_t)array->count; i++) {
        if (unit_value(array, i) != 0) (*ret_atoms)[n++] = (double)i;
    }
    return n;
}

/* Rows of in.KEY [n_batch, n, width] for `count` atoms. */
static double *rows(af3_unit *u, const char *key, int64_t n_batch, int64_t n, int64_t width,
                    int64_t count, const double *atoms) {
    const fm_npy *array = unit_array(u, key);
    double *to = unit_numbers(u, n_batch * count * width), *at = to;
    for (int64_t b = 0; b < n_batch; b++)
        for (int64_t k = 0; k < count; k++)
            for (int64_t c = 0; c < width; c++)
                *at++ = unit_value(array, (b * n + (int64_t)atoms[k]) * width + c);
    return to;
}

static void record_distogram(af3_unit *u) {
    double *atoms;
    int64_t n = unit_extent(u, "in.true", 0), count = marked(u, "in.rep", &atoms);
    fm_tensor_ref position = unit_made(u, FM_ELEMENT_F32, 2, (int64_t[]){count, 3},
                                       rows(u, "in.true", 1, n, 3, count, atoms));
    fm_tensor_ref mask =
        unit_made(u, FM_ELEMENT_F32, 1, &count, rows(u, "in.mask", 1, n, 1, count, atoms));
    unit_output(u, fm_op_distance_loss(&u->tape, unit_input(u, "logits"), position, mask, 2.3125f,
                                       21.6875f));
}

static void record_pde(af3_unit *u) {
    double *atoms;
    fm_element act = u->kernels->act;
    int64_t n = unit_extent(u, "in.true", 0), count = marked(u, "in.rep", &atoms);
    int64_t n_batch = unit_extent(u, "in.pred", 0);
    fm_tensor_ref x = unit_made(u, act, 3, (int64_t[]){n_batch, count, 3},
                                rows(u, "in.pred", n_batch, n, 3, count, atoms));
    fm_tensor_ref truth =
        unit_made(u, act, 2, (int64_t[]){count, 3}, rows(u, "in.true", 1, n, 3, count, atoms));
    fm_tensor_ref mask = made(u, count, rows(u, "in.mask", 1, n, 1, count, atoms));
    unit_output(u, fm_op_pde_loss(&u->tape, unit_input(u, "logits"), x, truth, mask));
}

static void record_pae(af3_unit *u) {
    double *centre;
    int64_t n = marked(u, "in.centre", &centre);
    const fm_npy *index = unit_array(u, "in.frame_atom_index");
    double *frame = unit_numbers(u, 3 * n);
    for (int64_t i = 0; i < 3 * n; i++)
        frame[i] = flag(u, "in.has_frame", i / 3) != 0 ? unit_value(index, i) : -1;
    const af3_atoms atoms = atoms_of(u);
    fm_atom_truth truth = truth_input(u, &atoms);
    unit_output(u, fm_op_pae_loss(&u->tape, unit_input(u, "logits"), unit_input(u, "pred"), &truth,
                                  unit_made(u, FM_ELEMENT_I32, 2, (int64_t[]){n, 3}, frame),
                                  unit_made(u, FM_ELEMENT_I32, 1, &n, centre)));
}

static void record_plddt(af3_unit *u) {
    const af3_atoms atoms = atoms_of(u);
    fm_atom_truth truth = truth_input(u, &atoms);
    unit_output(u, fm_op_atom_plddt_loss(&u->tape, unit_input(u, "logits"), unit_input(u, "pred"),
                                         &truth, made(u, atoms.n, atoms.partner)));
    /* The file has the sums and partners of known atoms only. */
    int64_t n_batch = unit_extent(u, "in.pred", 0), known = 0;
    const double *partners = af3_lddt_partners(u, &atoms);
    const double *sums =
        af3_lddt_sums(u, &atoms, n_batch, unit_values(u, unit_array(u, "in.pred")), partners);
    double *of_known = unit_numbers(u, (1 + n_batch) * atoms.n), *at = of_known;
    for (int64_t i = 0; i < (1 + n_batch) * atoms.n; i++) {
        if (atoms.mask[i % atoms.n] == 0) continue;
        known += i < atoms.n;
        *at++ = i < atoms.n ? partners[i] : sums[i - atoms.n];
    }
    output_values(u, 3, (int64_t[]){n_batch, known, 1}, of_known + known);
    output_values(u, 3, (int64_t[]){1, known, 1}, of_known);
}

static void record_resolved(af3_unit *u) {
    int64_t n = unit_extent(u, "in.mask", 0), count = n * unit_extent(u, "in.logits", 0);
    double *target = unit_numbers(u, count);
    for (int64_t i = 0; i < count; i++)
        target[i] = unit_value(unit_array(u, "in.mask"), i % n);
    unit_output(u, fm_op_class_loss(&u->tape, "resolved loss", unit_input(u, "logits"),
                                    unit_made(u, FM_ELEMENT_I32, 1, &count, target),
                                    unit_ones(u, 1, &count)));
}

/* -- structures */

static void record_augmentation(af3_unit *u) {
    int64_t n = unit_extent(u, "in.rot", 0);
    fm_structure_draws draws = {unit_input_as(u, "rot", u->kernels->act, 2, (int64_t[]){n, 9}),
                                unit_input(u, "trans"), FM_TENSOR_NONE};
    unit_output(u, fm_op_augment(&u->tape, unit_input(u, "x"), unit_input(u, "mask"), &draws));
}

/* Slice b of in.KEY [n_batch, n, width]. */
static fm_tensor_ref slice(af3_unit *u, const char *key, int64_t b, int64_t n, int64_t width,
                           int rank, const int64_t *shape) {
    const fm_npy *array = unit_array(u, key);
    double *values = unit_numbers(u, n * width);
    for (int64_t i = 0; i < n * width; i++)
        values[i] = unit_value(array, b * n * width + i);
    return unit_made(u, u->kernels->act, rank, shape, values);
}

/* The file's structures each have a target of their own. */
static void record_align(af3_unit *u) {
    enum { MOST = 8 };
    int64_t n_batch = unit_extent(u, "in.x", 0), n = unit_extent(u, "in.x", 1);
    fm_tensor_ref moved[MOST];
    for (int64_t b = 0; b < n_batch && b < MOST; b++) {
        fm_atom_truth truth = {.position = slice(u, "in.x", b, n, 3, 2, (int64_t[]){n, 3}),
                               .weight = slice(u, "in.weight", b, n, 1, 1, &n)};
        fm_tensor_ref target = slice(u, "in.target", b, n, 3, 3, (int64_t[]){1, n, 3});
        moved[b] = fm_op_align_truth(&u->tape, target, &truth);
    }
    unit_output(u, fm_op_stack(&u->tape, moved, (int)(n_batch < MOST ? n_batch : MOST)));
    double *rotation = unit_numbers(u, 9 * n_batch), *translation = unit_numbers(u, 3 * n_batch);
    af3_alignments(u, n_batch, n, unit_values(u, unit_array(u, "in.x")),
                   unit_values(u, unit_array(u, "in.target")),
                   unit_values(u, unit_array(u, "in.weight")), rotation, translation);
    output_values(u, 3, (int64_t[]){n_batch, 3, 3}, rotation);
    output_values(u, 3, (int64_t[]){n_batch, 1, 3}, translation);
}

static void record_express(af3_unit *u) {
    const fm_npy *x = unit_array(u, "in.x"), *frames = unit_array(u, "in.frames");
    int64_t n = unit_extent(u, "in.x", 0), n_frame = unit_extent(u, "in.frames", 0);
    double *values = unit_numbers(u, n_frame * n * 3);
    for (int64_t at = 0; at < n_frame * n; at++) {
        double point[4][3];
        for (int64_t k = 0; k < 4; k++)
            for (int64_t axis = 0; axis < 3; axis++)
                point[k][axis] = k < 3 ? unit_value(frames, (at / n * 3 + k) * 3 + axis)
                                       : unit_value(x, at % n * 3 + axis);
        fm_express_in_frame(point[0], point[1], point[2], point[3], values + 3 * at);
    }
    output_values(u, 3, (int64_t[]){n_frame, n, 3}, values);
}

static void record_schedule(af3_unit *u) {
    const fm_af3_noise noise = fm_af3_config_initial().noise;
    for (int i = 0;; i++) {
        char key[32];
        snprintf(key, sizeof key, "out.%d", i);
        if (!fm_npz_find(u->file, key)) return;
        int64_t n = unit_extent(u, key, 0);
        double *levels = unit_numbers(u, n);
        fm_af3_schedule(&noise, n - 1, levels);
        output_values(u, 1, &n, levels);
    }
}

const af3_unit_entry AF3_LOSS_UNITS[] = {
    {"loss_mse", record_mse, 0, false},
    {"loss_bond", record_bond, 0, false},
    {"loss_smooth_lddt", record_smooth_lddt, 0, false},
    {"loss_distogram", record_distogram, 0, false},
    {"loss_pde", record_pde, 0, false},
    {"loss_pae", record_pae, 0, false},
    {"loss_plddt", record_plddt, 0, false},
    {"loss_resolved", record_resolved, 0, false},
    {"centre_random_augmentation", record_augmentation, 0, false},
    {"weighted_rigid_align", record_align, 0, false},
    {"express_in_frame", record_express, 0, false},
    {"noise_schedule", record_schedule, 0, false},
    {NULL, NULL, 0, false},
};
