/* test_op_ipa.c: invariant point attention compared with differences and with the reference. */
#include "tests/trainer/common/golden.h"

#include "trainer/model/structure_module.h"

enum { IN_S, IN_Z, IN_FRAMES, IN_MASK };

typedef struct setup {
    fm_structure_config config;
    fm_ipa_weights weights;
    bool residual;
    int more;    /* further iterations on the result of the first */
    bool shared; /* they share the pair bias of the first; else each makes it again */
} setup;

static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    fm_tensor_ref x = in[IN_S], bias = FM_TENSOR_NONE;
    for (int i = 0; i <= s->more; i++) {
        bias = i && s->shared ? bias : fm_op_ipa_bias(tape, in[IN_Z], &s->weights);
        x = fm_op_ipa(tape, "ipa", x, in[IN_Z], bias, in[IN_FRAMES], in[IN_MASK], &s->weights,
                      s->residual);
    }
    return x;
}

static void begin(op_bench *bench, setup *s, fm_element element, int64_t n) {
    op_begin(bench, element);
    op_input(bench, 2, (int64_t[]){n, s->config.c_s}, true);
    op_input(bench, 3, (int64_t[]){n, n, s->config.c_z}, true);
    op_input(bench, 2, (int64_t[]){n, FM_FRAME}, true);
    op_input(bench, 1, (int64_t[]){n}, false);
    fm_scope scope = {&bench->params, &bench->arena, "", "", "", -1, 0};
    s->weights = fm_scope_ipa(&scope, &s->config);
    op_finish(bench, build, s);
}

static void gradients_match_differences(void **state) {
    (void)state;
    static const struct {
        int64_t n;
        fm_structure_config config;
    } cases[] = {
        {5, {.c_s = 7, .c_z = 5, .n_head = 3, .c_head = 6, .n_qk = 4, .n_v = 5}},
        {1, {.c_s = 3, .c_z = 1, .n_head = 1, .c_head = 1, .n_qk = 1, .n_v = 1}},
        {3, {.c_s = 8, .c_z = 8, .n_head = 2, .c_head = 16, .n_qk = 4, .n_v = 8}},
    };
    for (int i = 0; i < 6; i++) {
        setup s = {.config = cases[i / 2].config, .residual = i % 2};
        op_bench bench;
        begin(&bench, &s, FM_ELEMENT_F64, cases[i / 2].n);
        op_fill_mask(&bench, IN_MASK, 5);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

/* Iterations that share the pair bias give what iterations give that make it each for themselves,
 * and differences confirm the sum of its gradients. */
static void iterations_share_the_pair_bias(void **state) {
    (void)state;
    double *value[2];
    int64_t n[2];
    for (int shared = 0; shared < 2; shared++) {
        setup s = {.config = {.c_s = 7, .c_z = 5, .n_head = 3, .c_head = 6, .n_qk = 4, .n_v = 5},
                   .residual = true,
                   .more = 1,
                   .shared = shared};
        op_bench bench;
        begin(&bench, &s, FM_ELEMENT_F64, 4);
        op_fill_mask(&bench, IN_MASK, 5);
        n[shared] = op_run(&bench, &value[shared]);
        if (shared) op_check_gradients(&bench);
        op_end(&bench);
    }
    op_expect_same(n[0], value[0], n[1], value[1]);
}

/* Rotating and moving all frames together changes nothing. */
static void a_rigid_motion_changes_nothing(void **state) {
    (void)state;
    setup s = {.config = {.c_s = 7, .c_z = 5, .n_head = 3, .c_head = 6, .n_qk = 4, .n_v = 5}};
    op_bench bench;
    begin(&bench, &s, FM_ELEMENT_F64, 4);
    op_fill_mask(&bench, IN_MASK, 5);
    double *frames = op_input_data(&bench, IN_FRAMES), before[4 * 7];
    const double q[4] = {0.5, -0.5, 0.5, 0.5}; /* a turn of the axes: x -> -y or the like, exact */
    for (int64_t i = 0; i < 4; i++) {
        double size = 0;
        for (int k = 0; k < 4; k++)
            size += frames[7 * i + k] * frames[7 * i + k];
        for (int k = 0; k < 4; k++)
            frames[7 * i + k] /= sqrt(size);
    }
    fm_tape_forward(&bench.tape, NULL);
    memcpy(before, fm_tape_data(&bench.tape, bench.output_tensor), sizeof before);
    for (int64_t i = 0; i < 4; i++) {
        double *f = frames + 7 * i, old[7];
        memcpy(old, f, sizeof old);
        f[0] = q[0] * old[0] - q[1] * old[1] - q[2] * old[2] - q[3] * old[3];
        f[1] = q[0] * old[1] + q[1] * old[0] + q[2] * old[3] - q[3] * old[2];
        f[2] = q[0] * old[2] - q[1] * old[3] + q[2] * old[0] + q[3] * old[1];
        f[3] = q[0] * old[3] + q[1] * old[2] - q[2] * old[1] + q[3] * old[0];
        /* the rotation of q has rows (0 -1 0) (0 0 1) (-1 0 0) */
        f[4] = -old[5] + 3, f[5] = old[6] - 2, f[6] = -old[4] + 1;
    }
    fm_tape_forward(&bench.tape, NULL);
    const double *after = fm_tape_data(&bench.tape, bench.output_tensor);
    for (int i = 0; i < 4 * 7; i++)
        assert_true(fabs(after[i] - before[i]) < 1e-11);
    op_end(&bench);
}

static void the_unit_matches_the_reference(void **state) {
    (void)state;
    enum { N = 16 };
    const char unit[] = "structure_module.ipa/";
    golden g;
    golden_open(&g, "model/af2_units.npz");
    for (int wide = 0; wide < 2; wide++) {
        setup s = {.config = {.c_s = 24, .c_z = 16, .n_head = 3, .c_head = 6, .n_qk = 4, .n_v = 5}};
        op_bench bench;
        begin(&bench, &s, wide ? FM_ELEMENT_F64 : FM_ELEMENT_F32, N);
        golden_load(&bench, op_input_data(&bench, IN_S), golden_find(&g, unit, "in.a0"));
        golden_load(&bench, op_input_data(&bench, IN_Z), golden_find(&g, unit, "in.a1"));
        golden_load(&bench, op_input_data(&bench, IN_MASK), golden_find(&g, unit, "in.a3"));
        const fm_npy *translation = golden_find(&g, unit, "in.a2.trans");
        for (int i = 0; i < N * FM_FRAME; i++) { /* the unit's rotations are the identity */
            int k = i % FM_FRAME;
            double value = k == 0 ? 1 : 0;
            if (k >= 4) value = golden_value(translation, (uint64_t)(i / FM_FRAME * 3 + k - 4));
            op_set(&bench, op_input_data(&bench, IN_FRAMES), i, value);
        }
        golden_load_parameters(&bench, &g, "structure_module.ipa/w.");
        golden_load(&bench, fm_state_data(&bench.state, bench.output_gradient),
                    golden_find(&g, unit, "gout.0"));
        fm_tape_forward(&bench.tape, NULL);
        golden_expect(&bench, "out", fm_tape_data(&bench.tape, bench.output_tensor),
                      golden_find(&g, unit, "out.0"), 1, 1e-5, 1e-3);
        fm_tape_backward(&bench.tape, NULL);
        golden_expect(&bench, "ds", fm_tape_gradient(&bench.tape, bench.input_tensor[IN_S]),
                      golden_find(&g, unit, "gin.a0"), 1, 1e-4, 1e-3);
        golden_expect(&bench, "dz", fm_tape_gradient(&bench.tape, bench.input_tensor[IN_Z]),
                      golden_find(&g, unit, "gin.a1"), 1, 1e-4, 1e-3);
        double parts[2][N * 4]; /* room for either type */
        const void *dframes = fm_tape_gradient(&bench.tape, bench.input_tensor[IN_FRAMES]);
        for (int i = 0; i < N * FM_FRAME; i++) {
            int k = i % FM_FRAME, row = i / FM_FRAME;
            op_set(&bench, parts[k >= 4], k < 4 ? 4 * row + k : 3 * row + k - 4,
                   op_get(&bench, dframes, i));
        }
        golden_expect(&bench, "dquaternion", parts[0], golden_find(&g, unit, "gin.a2.quat"), 1,
                      1e-4, 1e-3);
        golden_expect(&bench, "dtranslation", parts[1], golden_find(&g, unit, "gin.a2.trans"), 1,
                      1e-4, 1e-3);
        /* The bias of the pair bias is the same for all keys, so its gradient is noise. */
        golden_expect_gradients(&bench, &g, "structure_module.ipa/gw.", 1.0);
        op_end(&bench);
    }
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(iterations_share_the_pair_bias),
        cmocka_unit_test(a_rigid_motion_changes_nothing),
        cmocka_unit_test(the_unit_matches_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
