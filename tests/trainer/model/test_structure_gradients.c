/* test_structure_gradients.c: the ops of the structure module and its losses compared with central
 * differences in f64, on odd, masked and size-one shapes. */
#include "tests/trainer/common/op_check.h"

#include "trainer/loss/structure_losses.h"
#include "trainer/model/structure_module.h"

#include "proto/chem/residue.h"

/* -- layers */

typedef struct layers {
    int which;
    double rate;
    fm_param_ref norm;
    fm_structure_transition_weights transition;
    fm_angle_weights angles;
    fm_plddt_weights plddt;
} layers;

enum { NORM, TRANSITION, ANGLES, UNIT_PAIRS, PLDDT, N_LAYER };

static fm_tensor_ref build_layer(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const layers *l = context;
    switch (l->which) {
    case NORM: return fm_op_norm(tape, "norm", in[0], l->norm, l->rate);
    case TRANSITION: return fm_op_structure_transition(tape, in[0], &l->transition);
    case ANGLES: return fm_op_angles(tape, in, 1, in[1], &l->angles);
    case PLDDT: return fm_op_plddt_logits(tape, in[0], &l->plddt);
    default: return fm_op_unit_pairs(tape, in[0]);
    }
}

static void check_layer(layers *l, int64_t n, int64_t c_s, int64_t c) {
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    op_input(&bench, 2, (int64_t[]){n, l->which == UNIT_PAIRS ? 2 : c_s}, true);
    op_input(&bench, 2, (int64_t[]){n, c_s}, l->which == ANGLES);
    fm_scope scope = {&bench.params, &bench.arena, "", "", "", -1, 0};
    const fm_structure_config config = {
        .c_s = c_s, .c_angle = c, .n_angle_block = 2, .c_plddt = c, .n_plddt_bin = 5};
    if (l->which == NORM) {
        l->norm = op_block(&bench, 2, c_s);
    } else if (l->which == TRANSITION) {
        l->transition.w = op_block(&bench, 3 * c_s, c_s);
        l->transition.b = op_block(&bench, 3, c_s);
    } else if (l->which == ANGLES) {
        l->angles = fm_scope_angles(&scope, &config);
    } else if (l->which == PLDDT) {
        l->plddt = fm_scope_plddt(&scope, &config);
    }
    op_finish(&bench, build_layer, l);
    op_check_gradients(&bench);
    op_end(&bench);
}

static void layers_match_differences(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{5, 7, 3}, {1, 2, 1}, {3, 8, 16}};
    for (int which = 0; which < N_LAYER; which++) {
        for (int i = 0; i < 3; i++) {
            layers l = {.which = which, .rate = i ? 0.25 : 0};
            check_layer(&l, shapes[i][0], shapes[i][1], shapes[i][2]);
        }
    }
}

enum { N_ITERATION = 3 };

typedef struct iterations {
    fm_angle_weights angles;
    bool together; /* one node for all iterations; else one for each */
} iterations;

/* Inputs: s of the iterations, then the initial s. */
static fm_tensor_ref build_angles(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const iterations *it = context;
    fm_tensor_ref parts[N_ITERATION], initial = in[N_ITERATION];
    if (it->together) return fm_op_angles(tape, in, N_ITERATION, initial, &it->angles);
    for (int i = 0; i < N_ITERATION; i++)
        parts[i] = fm_op_angles(tape, &in[i], 1, initial, &it->angles);
    return fm_op_stack(tape, parts, N_ITERATION);
}

/* The angles of all iterations in one node are those of a node for each, with the same
 * gradients. */
static void angles_of_iterations_together(void **state) {
    (void)state;
    const fm_structure_config config = {.c_s = 7, .c_angle = 6, .n_angle_block = 2};
    double *value[2];
    int64_t n[2];
    for (int together = 0; together < 2; together++) {
        iterations it = {.together = together};
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        for (int i = 0; i <= N_ITERATION; i++)
            op_input(&bench, 2, (int64_t[]){5, config.c_s}, true);
        fm_scope scope = {&bench.params, &bench.arena, "", "", "", -1, 0};
        it.angles = fm_scope_angles(&scope, &config);
        op_finish(&bench, build_angles, &it);
        n[together] = op_run(&bench, &value[together]);
        if (together) {
            memcpy(fm_state_data(&bench.state, bench.output_gradient), value[together],
                   (size_t)(N_ITERATION * 5 * 14) * sizeof(double));
            op_check_gradients(&bench);
        }
        op_end(&bench);
    }
    op_expect_same(n[0], value[0], n[1], value[1]);
}

/* -- frames and atoms */

typedef struct frames {
    int64_t n;
    bool stop, groups;
    fm_structure_tables tables;
} frames;

static fm_tensor_ref build_update(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const frames *f = context;
    fm_tensor_ref from = f->stop ? fm_op_stop_rotation(tape, in[0]) : in[0];
    fm_tensor_ref first = fm_op_frame_update(tape, from, in[1]);
    const fm_tensor_ref both[] = {first, fm_op_frame_update(tape, first, in[1])};
    return fm_op_stack(tape, both, 2);
}

static void updates_match_differences(void **state) {
    (void)state;
    for (int64_t n = 1; n <= 5; n += 2) {
        frames f = {.n = n};
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        op_input(&bench, 2, (int64_t[]){n, FM_FRAME}, true);
        op_input(&bench, 2, (int64_t[]){n, FM_UPDATE}, true);
        op_finish(&bench, build_update, &f);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

/* The translation's gradient passes, the rotation's does not. */
static void rotations_stop(void **state) {
    (void)state;
    double d[2][3 * FM_FRAME];
    for (int stop = 0; stop < 2; stop++) {
        frames f = {.n = 3, .stop = stop};
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        op_input(&bench, 2, (int64_t[]){3, FM_FRAME}, true);
        op_input(&bench, 2, (int64_t[]){3, FM_UPDATE}, true);
        op_finish(&bench, build_update, &f);
        fm_tape_forward(&bench.tape, NULL);
        fm_tape_backward(&bench.tape, NULL);
        memcpy(d[stop], fm_tape_gradient(&bench.tape, bench.input_tensor[0]), sizeof d[stop]);
        op_end(&bench);
    }
    for (int k = 0; k < 3 * FM_FRAME; k++) {
        assert_true(d[0][k] != 0);
        assert_true(d[1][k] == (k % FM_FRAME < 4 ? 0 : d[0][k]));
    }
}

static fm_tensor_ref build_atoms(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const frames *f = context;
    fm_atom_tables tables = {fm_tape_state(tape, f->tables.group_frames, false),
                             fm_tape_state(tape, f->tables.atom_positions, false),
                             fm_tape_state(tape, f->tables.atom_group, false)};
    fm_atoms atoms = fm_op_atoms(tape, in[0], in[1], in[2], &tables, 10);
    return f->groups ? atoms.groups : atoms.atoms;
}

static fm_tensor_ref build_backbone(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const frames *f = context;
    fm_atom_tables tables = {fm_tape_state(tape, f->tables.group_frames, false),
                             fm_tape_state(tape, f->tables.atom_positions, false),
                             fm_tape_state(tape, f->tables.atom_group, false)};
    return fm_op_atoms(tape, in[0], FM_TENSOR_NONE, in[2], &tables, 10).atoms;
}

/* Without angles N, CA, C and CB are those of any angles: they are all that pseudo-beta reads. */
static void the_backbone_needs_no_angles(void **state) {
    (void)state;
    enum { RES = 21, ATOM_O = 3 };
    double *value[2];
    for (int with = 0; with < 2; with++) {
        frames f = {.n = RES};
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        bench.without_gradient = true;
        op_input(&bench, 2, (int64_t[]){RES, FM_FRAME}, true);
        op_input(&bench, 3, (int64_t[]){RES, 7, 2}, true);
        op_input_of(&bench, FM_ELEMENT_U8, 1, (int64_t[]){RES}, false);
        fm_structure_declare_tables(&bench.state, &f.tables);
        op_finish(&bench, with ? build_atoms : build_backbone, &f);
        fm_structure_upload_tables(&bench.state, &f.tables);
        for (int k = 0; k < RES; k++)
            ((uint8_t *)op_input_data(&bench, 2))[k] = (uint8_t)k;
        value[with] = calloc(RES * 42, sizeof(double));
        fm_tape_forward(&bench.tape, NULL);
        memcpy(value[with], fm_tape_data(&bench.tape, bench.output_tensor),
               RES * 42 * sizeof(double));
        op_end(&bench);
    }
    for (int i = 0; i < RES * 5; i++) { /* N CA C O CB */
        int at = i / 5 * 42 + i % 5 * 3;
        bool same = true;
        for (int axis = 0; axis < 3; axis++)
            same &= value[0][at + axis] == value[1][at + axis];
        assert_true(same || i % 5 == ATOM_O);
        assert_true(!same || i % 5 != ATOM_O || i / 5 == RES - 1); /* X has no O */
    }
    free(value[0]);
    free(value[1]);
}

/* The atoms of the last angles of several, and the gradient 0 of the others. */
static void atoms_read_the_last_angles(void **state) {
    (void)state;
    enum { RES = 4 };
    frames f = {.n = RES};
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    op_input(&bench, 2, (int64_t[]){RES, FM_FRAME}, true);
    op_input(&bench, 4, (int64_t[]){3, RES, 7, 2}, true);
    op_input_of(&bench, FM_ELEMENT_U8, 1, (int64_t[]){RES}, false);
    fm_structure_declare_tables(&bench.state, &f.tables);
    op_finish(&bench, build_atoms, &f);
    fm_structure_upload_tables(&bench.state, &f.tables);
    for (int k = 0; k < RES; k++)
        ((uint8_t *)op_input_data(&bench, 2))[k] = (uint8_t)(5 * k);
    op_check_gradients(&bench);
    const double *dangles = fm_tape_gradient(&bench.tape, bench.input_tensor[1]);
    bool any = false;
    for (int k = 0; k < 3 * RES * 14; k++) {
        any |= dangles[k] != 0;
        assert_true(k >= 2 * RES * 14 || dangles[k] == 0);
    }
    assert_true(any);
    op_end(&bench);
}

static void atoms_match_differences(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        frames f = {.n = i / 2 ? 21 : 1, .groups = i % 2};
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        op_input(&bench, 2, (int64_t[]){f.n, FM_FRAME}, true);
        op_input(&bench, 3, (int64_t[]){f.n, 7, 2}, true);
        op_input_of(&bench, FM_ELEMENT_U8, 1, (int64_t[]){f.n}, false);
        fm_structure_declare_tables(&bench.state, &f.tables);
        op_finish(&bench, build_atoms, &f);
        fm_structure_upload_tables(&bench.state, &f.tables);
        for (int64_t k = 0; k < f.n; k++) /* every residue type, X among them */
            ((uint8_t *)op_input_data(&bench, 2))[k] = (uint8_t)(f.n == 1 ? 1 : k);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

/* -- losses */

enum { BACKBONE, SIDE_CHAIN, TORSION, RESOLVED, VIOLATION, N_LOSS };

typedef struct losses {
    int which;
    int64_t n;
    fm_structure_tables tables;
    int32_t f32[10], index, aatype;
} losses;

static const int64_t F32_ROWS[N_LOSS][10] = {
    {16, 1, 0}, {42, 42, 14, 14, 14, 128, 128, 8}, {8, 4, 1}, {37, 37}, {14}};
static const int F32_COUNT[N_LOSS] = {3, 8, 3, 2, 1};

static fm_tensor_ref build_loss(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const losses *l = context;
    const fm_fape_options options = {10, 10, 1e-4, 10};
    fm_tensor_ref f[10];
    for (int i = 0; i < F32_COUNT[l->which]; i++)
        f[i] = fm_tape_state(tape, l->f32[i], false);
    fm_tensor_ref aatype = fm_tape_state(tape, l->aatype, false);
    fm_tensor_ref index = fm_tape_state(tape, l->index, false);
    switch (l->which) {
    case BACKBONE: return fm_op_backbone_fape(tape, in[0], f[0], f[1], f[2], &options);
    case SIDE_CHAIN: {
        fm_side_chain_truth truth = {f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]};
        return fm_op_side_chain_fape(tape, in[0], in[1], &truth, &options);
    }
    case TORSION: {
        fm_torsion_truth truth = {f[0], f[1], f[2], aatype,
                                  fm_tape_state(tape, l->tables.pi_periodic, false)};
        return fm_op_torsion_loss(tape, in[0], in[1], &truth, 0.5, 0.01);
    }
    case RESOLVED: return fm_op_resolved_loss(tape, in[0], f[0], f[1]);
    default: {
        fm_violation_inputs inputs = {f[0], index, aatype,
                                      fm_tape_state(tape, l->tables.radii, false),
                                      fm_tape_state(tape, l->tables.bounds, false)};
        return fm_op_violation_loss(tape, in[0], &inputs, NULL);
    }
    }
}

static void add_loss_inputs(op_bench *bench, losses *l) {
    int64_t n = l->n;
    switch (l->which) {
    case BACKBONE: op_input(bench, 3, (int64_t[]){2, n, FM_FRAME}, true); break;
    case SIDE_CHAIN:
        op_input(bench, 3, (int64_t[]){n, FM_N_GROUP, FM_MATRIX_FRAME}, true);
        op_input(bench, 3, (int64_t[]){n, FM_N_ATOM, 3}, true);
        break;
    case TORSION:
        op_input(bench, 4, (int64_t[]){2, n, 7, 2}, true);
        op_input(bench, 4, (int64_t[]){2, n, 7, 2}, true);
        break;
    case RESOLVED: op_input(bench, 2, (int64_t[]){n, FM_N_ATOM37}, true); break;
    default: op_input(bench, 3, (int64_t[]){n, FM_N_ATOM, 3}, true); break;
    }
    for (int i = 0; i < F32_COUNT[l->which]; i++) {
        int64_t count = F32_ROWS[l->which][i] ? n * F32_ROWS[l->which][i] : 1;
        l->f32[i] = fm_state_add(&bench->state, "f32", FM_ELEMENT_F32, 1, &count);
    }
    l->aatype = fm_state_add(&bench->state, "aatype", FM_ELEMENT_U8, 1, &n);
    l->index = fm_state_add(&bench->state, "index", FM_ELEMENT_I32, 1, &n);
    fm_structure_declare_tables(&bench->state, &l->tables);
}

/* Positions spread over some 10 Å, masks of zeros and ones, a gap in the numbering. */
static void fill_loss(op_bench *bench, losses *l, double clamped) {
    for (int i = 0; i < F32_COUNT[l->which]; i++) {
        float *to = fm_state_data(&bench->state, l->f32[i]);
        int64_t row = F32_ROWS[l->which][i];
        bool is_mask =
            row == 1 || row == 14 || row == 37 || (row == 8 && l->which == SIDE_CHAIN) || row == 4;
        for (int64_t k = 0; k < (row ? l->n * row : 1); k++) {
            double u = op_uniform((uint32_t)(20 + i), k);
            to[k] = (float)(!row ? clamped : is_mask ? (k == 0 || u > -0.5) : row == 8 ? u : 6 * u);
        }
    }
    for (int64_t k = 0; k < l->n; k++) {
        ((uint8_t *)fm_state_data(&bench->state, l->aatype))[k] = (uint8_t)((k * 11 + 3) % 21);
        ((int32_t *)fm_state_data(&bench->state, l->index))[k] = (int32_t)(k + (k > 2) * 4);
    }
    double spread = l->which == BACKBONE || l->which == TORSION || l->which == RESOLVED ? 1 : 5;
    for (int i = 0; i < bench->n_input; i++) {
        for (int64_t k = 0; k < op_input_count(bench, i); k++) {
            double value = op_get(bench, op_input_data(bench, i), k);
            op_set(bench, op_input_data(bench, i), k, spread * value);
        }
    }
}

static void losses_match_differences(void **state) {
    (void)state;
    for (int which = 0; which < N_LOSS; which++) {
        for (int i = 0; i < 3; i++) {
            losses l = {.which = which, .n = i ? 1 + 4 * (i - 1) : 3};
            op_bench bench;
            op_begin(&bench, FM_ELEMENT_F64);
            add_loss_inputs(&bench, &l);
            op_finish(&bench, build_loss, &l);
            fm_structure_upload_tables(&bench.state, &l.tables);
            fill_loss(&bench, &l, i == 0 ? 1 : i == 1 ? 0 : 0.5);
            op_check_gradients(&bench);
            op_end(&bench);
        }
    }
}

/* -- losses over classes */

typedef struct binned {
    bool pairs; /* aligned error; else pLDDT */
    int64_t n, n_bin;
} binned;

/* Inputs: 0 logits, 1 atoms or frames, 2 their truth, 3 its mask. */
static fm_tensor_ref build_binned(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const binned *b = context;
    return b->pairs ? fm_op_aligned_error_loss(tape, in[0], in[1], in[2], in[3], 10)
                    : fm_op_plddt_loss(tape, in[0], in[1], in[2], in[3]);
}

static void check_binned(binned *b) {
    const int64_t one[] = {b->n, b->n_bin}, two[] = {b->n, b->n, b->n_bin}, mask[] = {b->n};
    const int64_t rigid[] = {b->n, FM_FRAME}, atoms[] = {b->n, FM_N_ATOM, 3};
    const int64_t truth[] = {b->n, b->pairs ? 16 : 3};
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    op_input(&bench, b->pairs ? 3 : 2, b->pairs ? two : one, true);
    op_input(&bench, b->pairs ? 2 : 3, b->pairs ? rigid : atoms, false);
    op_input_of(&bench, FM_ELEMENT_F32, 2, truth, false);
    op_input_of(&bench, FM_ELEMENT_F32, 1, mask, false);
    op_finish(&bench, build_binned, b);
    float *to = op_input_data(&bench, 2);
    for (int64_t k = 0; k < op_input_count(&bench, 2); k++) {
        bool diagonal = b->pairs && k % 16 % 5 == 0; /* rotations are the identity */
        bool shift = !b->pairs || k % 4 == 3;
        to[k] = diagonal ? 1 : shift ? (float)(4 * op_uniform(71, k)) : 0;
    }
    for (int64_t k = 0; k < b->n; k++)
        ((float *)op_input_data(&bench, 3))[k] = k == 0 || op_uniform(72, k) > -0.5;
    for (int64_t k = 0; k < op_input_count(&bench, 1); k++)
        op_set(&bench, op_input_data(&bench, 1), k, 4 * op_uniform(73, k));
    op_check_gradients(&bench);
    op_end(&bench);
}

static void binned_losses_match_differences(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{5, 7}, {1, 2}, {3, 50}};
    for (int i = 0; i < 6; i++) {
        binned b = {.pairs = i % 2, .n = shapes[i / 2][0], .n_bin = shapes[i / 2][1]};
        check_binned(&b);
    }
}

/* -- naming */

/* A prediction that matches the alternative naming has no error except the smoothing of A28. */
static void the_better_naming_is_taken(void **state) {
    (void)state;
    enum { RES = 3, FRAME_FLOATS = RES * 8 * 16 };
    float positions[RES * 42], other[RES * 42], exists[RES * 14], ambiguous[RES * 14] = {0};
    float truth[FRAME_FLOATS], turned[FRAME_FLOATS], chosen[FRAME_FLOATS];
    float ret_positions[RES * 42], ret_exists[RES * 14];
    for (int k = 0; k < RES * 42; k++)
        positions[k] = other[k] = (float)(9 * op_uniform(3, k));
    for (int k = 0; k < RES * 14; k++)
        exists[k] = 1;
    for (int k = 0; k < FRAME_FLOATS; k++)
        truth[k] = (float)k, turned[k] = -(float)k;
    ambiguous[14 + 6] = ambiguous[14 + 7] = 1; /* of the second residue */
    for (int axis = 0; axis < 3; axis++) {
        other[(14 + 6) * 3 + axis] = positions[(14 + 7) * 3 + axis];
        other[(14 + 7) * 3 + axis] = positions[(14 + 6) * 3 + axis];
    }
    fm_naming naming = {.n = RES,
                        .positions = positions,
                        .alt_positions = other,
                        .exists = exists,
                        .alt_exists = exists,
                        .is_ambiguous = ambiguous,
                        .frames = truth,
                        .alt_frames = turned,
                        .ret_positions = ret_positions,
                        .ret_exists = ret_exists,
                        .ret_frames = chosen};
    for (int swapped = 0; swapped < 2; swapped++) {
        naming.atoms = swapped ? other : positions;
        fm_kernels_cpu(FM_ELEMENT_F32)->choose_naming(NULL, &naming);
        assert_memory_equal(ret_positions, naming.atoms, sizeof ret_positions);
        for (int k = 0; k < FRAME_FLOATS; k++) {
            bool second = k / 128 == 1;
            assert_true(chosen[k] == (swapped && second ? turned[k] : truth[k]));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_match_differences),
        cmocka_unit_test(angles_of_iterations_together),
        cmocka_unit_test(updates_match_differences),
        cmocka_unit_test(rotations_stop),
        cmocka_unit_test(atoms_match_differences),
        cmocka_unit_test(the_backbone_needs_no_angles),
        cmocka_unit_test(atoms_read_the_last_angles),
        cmocka_unit_test(losses_match_differences),
        cmocka_unit_test(binned_losses_match_differences),
        cmocka_unit_test(the_better_naming_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
