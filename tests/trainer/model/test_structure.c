/* test_structure.c: the structure module, its heads and its losses compared with the reference:
 * every unit alone, and the whole module with losses, fed with the output of the Evoformer. */
#include "tests/trainer/common/golden.h"

#include "trainer/loss/losses.h"
#include "trainer/loss/structure_losses.h"
#include "trainer/model/structure_module.h"

enum { N = 16 };

/* af2_config.json. */
static const fm_structure_config CONFIG = {.n_iteration = 2,
                                           .c_s = 24,
                                           .c_z = 16,
                                           .n_head = 3,
                                           .c_head = 6,
                                           .n_qk = 4,
                                           .n_v = 5,
                                           .c_angle = 14,
                                           .n_angle_block = 2,
                                           .c_plddt = 18,
                                           .n_plddt_bin = 50,
                                           .n_aligned_error_bin = 64,
                                           .position_scale = 10};

/* -- units */

typedef enum kind { TRANSITION, UPDATE, ANGLES, PLDDT, RESOLVED, ALIGNED_ERROR, N_KIND } kind;

static const char *const UNIT[N_KIND] = {
    "structure_module.transition/",       "structure_module.bb_update/",
    "structure_module.angle_resnet/",     "aux_heads.plddt/",
    "aux_heads.experimentally_resolved/", "aux_heads.tm/"};

typedef struct unit {
    kind kind;
    fm_structure_transition_weights transition;
    fm_param_ref norm;
    fm_linear_weights linear;
    fm_angle_weights angles;
    fm_plddt_weights plddt;
    fm_tensor_ref unnormalised;
} unit;

static fm_tensor_ref build_unit(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    unit *u = (unit *)(uintptr_t)context;
    switch (u->kind) {
    case TRANSITION:
        return fm_op_norm(tape, "n", fm_op_structure_transition(tape, in[0], &u->transition),
                          u->norm, 0);
    case ANGLES:
        u->unnormalised = fm_op_angles(tape, &in[0], 1, in[1], &u->angles);
        return fm_op_unit_pairs(tape, u->unnormalised);
    case PLDDT: return fm_op_plddt_logits(tape, in[0], &u->plddt);
    case ALIGNED_ERROR: return fm_op_linear(tape, "l", in[0], N * N, &u->linear);
    default: return fm_op_linear(tape, "l", in[0], N, &u->linear);
    }
}

static void add_unit_weights(op_bench *bench, unit *u) {
    fm_scope scope = {&bench->params, &bench->arena, "", "", "", -1, 0};
    fm_scope linear = fm_scope_enter(&scope, "", "linear", "");
    switch (u->kind) {
    case TRANSITION:
        u->transition = fm_scope_structure_transition(&scope, CONFIG.c_s, &u->norm);
        break;
    case ANGLES: u->angles = fm_scope_angles(&scope, &CONFIG); break;
    case PLDDT: u->plddt = fm_scope_plddt(&scope, &CONFIG); break;
    case UPDATE: u->linear = fm_scope_linear(&linear, CONFIG.c_s, 6, true); break;
    case RESOLVED: u->linear = fm_scope_linear(&linear, CONFIG.c_s, 37, true); break;
    default: u->linear = fm_scope_linear(&linear, CONFIG.c_z, 64, true); break;
    }
}

static void check_unit(const golden *g, kind which, fm_element element) {
    unit u = {.kind = which};
    op_bench bench;
    const char *name = UNIT[which];
    char weights[64], gradients[64];
    snprintf(weights, sizeof weights, "%sw.", name);
    snprintf(gradients, sizeof gradients, "%sgw.", name);
    op_begin(&bench, element);
    if (which == ALIGNED_ERROR) {
        op_input(&bench, 3, (int64_t[]){N, N, CONFIG.c_z}, true);
    } else {
        op_input(&bench, 2, (int64_t[]){N, CONFIG.c_s}, true);
    }
    if (which == ANGLES) {
        op_input(&bench, 2, (int64_t[]){N, CONFIG.c_s}, true);
        bench.second_output = &u.unnormalised;
    }
    add_unit_weights(&bench, &u);
    op_finish(&bench, build_unit, &u);
    for (int i = 0; i < bench.n_input; i++)
        golden_load(&bench, op_input_data(&bench, i), golden_find(g, name, i ? "in.a1" : "in.a0"));
    golden_load_parameters(&bench, g, weights);
    /* The reference's angle network returns the unnormalised pairs first. */
    golden_load(&bench, fm_state_data(&bench.state, bench.output_gradient),
                golden_find(g, name, which == ANGLES ? "gout.1" : "gout.0"));
    if (which == ANGLES) {
        golden_load(&bench, fm_state_data(&bench.state, bench.second_gradient),
                    golden_find(g, name, "gout.0"));
    }
    fm_tape_forward(&bench.tape, NULL);
    golden_expect(&bench, name, fm_tape_data(&bench.tape, bench.output_tensor),
                  golden_find(g, name, which == ANGLES ? "out.1" : "out.0"), 1, 1e-5, 1e-3);
    fm_tape_backward(&bench.tape, NULL);
    for (int i = 0; i < bench.n_input; i++) {
        golden_expect(&bench, name, fm_tape_gradient(&bench.tape, bench.input_tensor[i]),
                      golden_find(g, name, i ? "gin.a1" : "gin.a0"), 1, 1e-4, 1e-3);
    }
    golden_expect_gradients(&bench, g, gradients, 1e-3);
    op_end(&bench);
}

static void units_match(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "model/af2_units.npz");
    for (int i = 0; i < N_KIND; i++) {
        check_unit(&g, (kind)i, FM_ELEMENT_F32);
        check_unit(&g, (kind)i, FM_ELEMENT_F64);
    }
    golden_close(&g);
}

/* -- the module with its losses */

enum { SINGLE, PAIR, MASK, AATYPE, INDEX, FIRST_FEATURE };

/* The f32 features of the file, in the order of the enumeration below. */
typedef enum feature {
    F_BACKBONE,
    F_BACKBONE_MASK,
    F_CLAMPED,
    F_POSITIONS,
    F_ALT_POSITIONS,
    F_EXISTS,
    F_ALT_EXISTS,
    F_AMBIGUOUS,
    F_FRAMES,
    F_ALT_FRAMES,
    F_FRAMES_EXIST,
    F_CHI,
    F_CHI_MASK,
    F_SEQ_MASK,
    F_ATOM_EXISTS,
    F_RESOLVED,
    F_ATOM37_EXISTS,
    F_CA,
    F_CA_MASK,
    N_FEATURE
} feature;

static const struct {
    const char *name;
    int64_t row; /* elements per residue; 0: one value for all */
} FEATURES[N_FEATURE] = {{"backbone_rigid_tensor", 16},
                         {"backbone_rigid_mask", 1},
                         {"use_clamped_fape", 0},
                         {"atom14_gt_positions", 42},
                         {"atom14_alt_gt_positions", 42},
                         {"atom14_gt_exists", 14},
                         {"atom14_alt_gt_exists", 14},
                         {"atom14_atom_is_ambiguous", 14},
                         {"rigidgroups_gt_frames", 128},
                         {"rigidgroups_alt_gt_frames", 128},
                         {"rigidgroups_gt_exists", 8},
                         {"chi_angles_sin_cos", 8},
                         {"chi_mask", 4},
                         {"seq_mask", 1},
                         {"atom14_atom_exists", 14},
                         {"all_atom_mask", 37},
                         {"atom37_atom_exists", 37},
                         {"all_atom_positions", 3},
                         {"all_atom_mask", 1}};

enum {
    T_BACKBONE,
    T_SIDE_CHAIN,
    T_TORSION,
    T_PLDDT,
    T_RESOLVED,
    T_ALIGNED_ERROR,
    T_VIOLATION,
    N_TERM
};
static const double WEIGHT[N_TERM] = {0.5, 0.5, 1.0, 0.01, 0.01, 0.1, 1.0};

typedef struct module {
    fm_structure_weights weights;
    fm_structure_heads heads;
    fm_structure_tables tables;
    int32_t feature[N_FEATURE], factors;
    fm_structure_outputs out;
    fm_tensor_ref term[N_TERM], violation_terms;
} module;

static void record_losses(fm_tape *tape, module *m, const fm_tensor_ref *in,
                          const fm_tensor_ref *f) {
    const fm_fape_options fape = {10, 10, 1e-4, 10};
    const fm_structure_outputs *o = &m->out;
    const fm_side_chain_truth side = {f[F_POSITIONS],  f[F_ALT_POSITIONS], f[F_EXISTS],
                                      f[F_ALT_EXISTS], f[F_AMBIGUOUS],     f[F_FRAMES],
                                      f[F_ALT_FRAMES], f[F_FRAMES_EXIST]};
    const fm_torsion_truth torsion = {f[F_CHI], f[F_CHI_MASK], f[F_SEQ_MASK], in[AATYPE],
                                      fm_tape_state(tape, m->tables.pi_periodic, false)};
    const fm_violation_inputs violation = {f[F_ATOM_EXISTS], in[INDEX], in[AATYPE],
                                           fm_tape_state(tape, m->tables.radii, false),
                                           fm_tape_state(tape, m->tables.bounds, false)};
    m->term[T_BACKBONE] = fm_op_backbone_fape(tape, o->frames, f[F_BACKBONE], f[F_BACKBONE_MASK],
                                              f[F_CLAMPED], &fape);
    m->term[T_SIDE_CHAIN] =
        fm_op_side_chain_fape(tape, o->atoms.groups, o->atoms.atoms, &side, &fape);
    m->term[T_TORSION] = fm_op_torsion_loss(tape, o->angles, o->unnormalised, &torsion, 0.5, 0.01);
    m->term[T_PLDDT] = fm_op_plddt_loss(tape, fm_op_plddt_logits(tape, o->s, &m->heads.plddt),
                                        o->atoms.atoms, f[F_CA], f[F_CA_MASK]);
    fm_tensor_ref resolved = fm_op_linear(tape, "resolved", in[SINGLE], N, &m->heads.resolved);
    m->term[T_RESOLVED] = fm_op_resolved_loss(tape, resolved, f[F_RESOLVED], f[F_ATOM37_EXISTS]);
    fm_tensor_ref error = fm_op_linear(tape, "error", in[PAIR], N * N, &m->heads.aligned_error);
    m->term[T_ALIGNED_ERROR] = fm_op_aligned_error_loss(tape, error, o->last_frames, f[F_BACKBONE],
                                                        f[F_BACKBONE_MASK], 10);
    m->term[T_VIOLATION] =
        fm_op_violation_loss(tape, o->atoms.atoms, &violation, &m->violation_terms);
}

static fm_tensor_ref build_module(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    module *m = (module *)(uintptr_t)context;
    const fm_structure_inputs inputs = {.tables = &m->tables,
                                        .single = in[SINGLE],
                                        .pair = in[PAIR],
                                        .aatype = in[AATYPE],
                                        .mask = in[MASK]};
    m->out = fm_structure_record(tape, &CONFIG, &m->weights, &inputs, false);
    fm_tensor_ref features[N_FEATURE];
    for (int i = 0; i < N_FEATURE; i++)
        features[i] = fm_tape_state(tape, m->feature[i], false);
    record_losses(tape, m, in, features);
    const fm_tensor_ref kept[] = {m->out.frames,       m->out.angles,      m->out.unnormalised,
                                  m->out.atoms.groups, m->out.atoms.atoms, m->out.s,
                                  m->violation_terms};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        fm_tape_keep(tape, kept[i]);
    for (int i = 0; i < N_TERM; i++)
        fm_tape_keep(tape, m->term[i]);
    return fm_op_total_loss(tape, m->term, N_TERM, fm_tape_state(tape, m->factors, false));
}

static void begin_module_on(op_bench *bench, module *m, fm_element element, bool without_gradient) {
    op_begin(bench, element);
    bench->without_gradient = without_gradient;
    op_input(bench, 2, (int64_t[]){N, CONFIG.c_s}, true);
    op_input(bench, 3, (int64_t[]){N, N, CONFIG.c_z}, true);
    op_input(bench, 1, (int64_t[]){N}, false);
    op_input_of(bench, FM_ELEMENT_U8, 1, (int64_t[]){N}, false);
    op_input_of(bench, FM_ELEMENT_I32, 1, (int64_t[]){N}, false);
    for (int i = 0; i < N_FEATURE; i++) {
        int64_t count = FEATURES[i].row ? N * FEATURES[i].row : 1;
        m->feature[i] = fm_state_add(&bench->state, FEATURES[i].name, FM_ELEMENT_F32, 1, &count);
    }
    m->factors = fm_state_add(&bench->state, "factors", FM_ELEMENT_F64, 1, (int64_t[]){N_TERM});
    fm_structure_declare_tables(&bench->state, &m->tables);
    fm_scope root = {&bench->params, &bench->arena, "", "", "", -1, 0};
    fm_scope scope = fm_scope_enter(&root, "structure.", "structure_module.", "structure_module/");
    m->weights = fm_scope_structure(&scope, &CONFIG);
    m->heads = fm_scope_structure_heads(&root, &CONFIG);
    op_finish(bench, build_module, m);
    fm_structure_upload_tables(&bench->state, &m->tables);
}

static void begin_module(op_bench *bench, module *m, fm_element element) {
    begin_module_on(bench, m, element, false);
}

/* Returns element k of a feature in the last cycle of the file (its last axis). */
static double feature_value(const fm_npy *array, uint64_t k) {
    uint64_t cycles = array->shape[array->rank - 1];
    return golden_value(array, k * cycles + cycles - 1);
}

static void load_module(op_bench *bench, const module *m, const golden *g) {
    golden_load(bench, op_input_data(bench, SINGLE), golden_find(g, "out/", "single"));
    golden_load(bench, op_input_data(bench, PAIR), golden_find(g, "out/", "pair"));
    golden_load_parameters(bench, g, "w/");
    for (uint64_t i = 0; i < N; i++) {
        ((uint8_t *)op_input_data(bench, AATYPE))[i] =
            (uint8_t)feature_value(golden_find(g, "in/", "aatype"), i);
        ((int32_t *)op_input_data(bench, INDEX))[i] =
            (int32_t)feature_value(golden_find(g, "in/", "residue_index"), i);
        op_set(bench, op_input_data(bench, MASK), (int64_t)i,
               feature_value(golden_find(g, "in/", "seq_mask"), i));
    }
    for (int f = 0; f < N_FEATURE; f++) {
        const fm_npy *array = golden_find(g, "in/", FEATURES[f].name);
        float *to = fm_state_data(&bench->state, m->feature[f]);
        uint64_t row = (uint64_t)FEATURES[f].row, all = f == F_CA ? 111 : f == F_CA_MASK ? 37 : row;
        for (uint64_t k = 0; k < (row ? N * row : 1); k++) {
            uint64_t skip = all == row ? 0 : row; /* CA is the second of 37 atoms */
            uint64_t from = row ? k / row * all + skip + k % row : 0;
            to[k] = (float)feature_value(array, from);
        }
    }
    double *factors = fm_state_data(&bench->state, m->factors), length = 0;
    for (uint64_t i = 0; i < N; i++)
        length += feature_value(golden_find(g, "in/", "seq_mask"), i);
    for (int i = 0; i < N_TERM; i++)
        factors[i] = WEIGHT[i] * sqrt(length);
    op_set(bench, fm_state_data(&bench->state, bench->output_gradient), 0, 1);
}

static void expect_scalar(double value, double expected, const char *what) {
    double error = fabs(value - expected) / fmax(1e-3, fabs(expected));
    if (!(error < 1e-5)) print_error("%s: %.9g, the reference has %.9g\n", what, value, expected);
    assert_true(error < 1e-5);
}

static double term_value(const op_bench *bench, fm_tensor_ref tensor, int64_t i) {
    return op_get(bench, fm_tape_data(&bench->tape, tensor), i);
}

static void expect_losses(const op_bench *bench, const module *m, const golden *g) {
    static const struct {
        const char *name;
        int term;
    } terms[] = {{"supervised_chi", T_TORSION},
                 {"plddt_loss", T_PLDDT},
                 {"experimentally_resolved", T_RESOLVED},
                 {"tm", T_ALIGNED_ERROR},
                 {"violation", T_VIOLATION}};
    for (int i = 0; i < 5; i++) {
        expect_scalar(term_value(bench, m->term[terms[i].term], 0),
                      golden_value(golden_find(g, "loss/", terms[i].name), 0), terms[i].name);
    }
    expect_scalar(0.5 * (term_value(bench, m->term[T_BACKBONE], 0) +
                         term_value(bench, m->term[T_SIDE_CHAIN], 0)),
                  golden_value(golden_find(g, "loss/", "fape"), 0), "fape");
    const char *violations[] = {"bonds_c_n_loss_mean", "angles_ca_c_n_loss_mean",
                                "angles_c_n_ca_loss_mean"};
    for (int i = 0; i < 3; i++) {
        expect_scalar(term_value(bench, m->violation_terms, i),
                      golden_value(golden_find(g, "viol/between_residues.", violations[i]), 0),
                      violations[i]);
    }
}

/* ||a - b|| / ||b|| of the first rows, which are not padding. */
static void expect_rows(const op_bench *bench, const char *what, fm_tensor_ref tensor,
                        const fm_npy *array, int64_t rows, int64_t iterations) {
    double difference = 0, norm = 0;
    int64_t row = (int64_t)array->count / iterations / N;
    for (int64_t k = 0; k < (int64_t)array->count; k++) {
        double value = op_get(bench, fm_tape_data(&bench->tape, tensor), k);
        double expected = golden_value(array, (uint64_t)k);
        if (k / row % N >= rows) continue;
        if (row == 7 && k % 7 >= 4) value *= CONFIG.position_scale; /* frames */
        difference += (value - expected) * (value - expected);
        norm += expected * expected;
    }
    if (!(sqrt(difference / norm) < 1e-5)) {
        print_error("%s: relative error %.3g\n", what, sqrt(difference / norm));
    }
    assert_true(sqrt(difference / norm) < 1e-5);
}

static void check_module(const char *file, int64_t rows, fm_element element) {
    golden g;
    golden_open(&g, file);
    module m;
    op_bench bench;
    begin_module(&bench, &m, element);
    load_module(&bench, &m, &g);
    fm_tape_forward(&bench.tape, NULL);
    expect_rows(&bench, "frames", m.out.frames, golden_find(&g, "out/sm.", "frames"), rows, 2);
    expect_rows(&bench, "angles", m.out.angles, golden_find(&g, "out/sm.", "angles"), rows, 2);
    expect_rows(&bench, "s", m.out.s, golden_find(&g, "out/sm.", "single"), rows, 1);
    const fm_npy *positions = golden_find(&g, "out/sm.", "positions");
    fm_npy last = *positions;
    last.count /= 2;
    last.data = (const float *)positions->data + last.count;
    expect_rows(&bench, "positions", m.out.atoms.atoms, &last, rows, 1);
    expect_losses(&bench, &m, &g);
    fm_tape_backward(&bench.tape, NULL);
    assert_int_equal(fm_tape_used_bytes(&bench.tape), bench.tape.size.arena_bytes);
    for (int32_t p = 0; p < bench.params.n_param; p++) {
        const fm_param *row = &bench.params.param[p];
        /* Their true gradient is zero; the file has rounding noise. */
        double floor = strstr(row->openfold, "ipa.linear_b.bias") ? 10 : 1e-3;
        golden_expect(&bench, row->openfold,
                      fm_params_at(&bench.params, bench.params.gradient, row->offset),
                      golden_find(&g, "grad/", row->openfold), 1, 1e-4, floor);
    }
    op_end(&bench);
    golden_close(&g);
}

static void the_module_and_its_losses_match(void **state) {
    (void)state;
    check_module("model/af2.npz", N, FM_ELEMENT_F32);
    check_module("model/af2.npz", N, FM_ELEMENT_F64);
    check_module("model/af2_rec3.npz", N, FM_ELEMENT_F32);
    check_module("model/opm_first.npz", N, FM_ELEMENT_F32);
}

static void masked_and_unclamped_match(void **state) {
    (void)state;
    check_module("model/af2_masks.npz", N - 3, FM_ELEMENT_F32);
    check_module("model/af2_masks.npz", N - 3, FM_ELEMENT_F64);
}

/* A tape without gradient updates s in place, and records the same angles. */
static void the_module_without_gradient_is_the_same(void **state) {
    (void)state;
    enum { COUNT = 2 * N * 14 };
    double value[2][2][COUNT];
    for (int without = 0; without < 2; without++) {
        op_bench bench = {0};
        module m = {0};
        begin_module_on(&bench, &m, FM_ELEMENT_F64, without);
        for (int i = 0; i < N; i++)
            ((uint8_t *)op_input_data(&bench, AATYPE))[i] = (uint8_t)i;
        fm_tape_forward(&bench.tape, NULL);
        const fm_tensor_ref both[] = {m.out.angles, m.out.unnormalised};
        for (int i = 0; i < 2; i++)
            memcpy(value[without][i], fm_tape_data(&bench.tape, both[i]), sizeof value[0][0]);
        op_end(&bench);
    }
    assert_true(value[0][0][0] != value[0][0][COUNT / 2]); /* the iterations differ */
    assert_memory_equal(value[0], value[1], sizeof value[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_match),
        cmocka_unit_test(the_module_and_its_losses_match),
        cmocka_unit_test(masked_and_unclamped_match),
        cmocka_unit_test(the_module_without_gradient_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
