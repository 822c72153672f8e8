/* test_infer.c: inference gives what the forward pass of training gives, for any recorded length,
 * within its memory plan. */
#include "tests/trainer/step_sample.h"

#include "trainer/infer/infer.h"

#include <math.h>

static const unsigned all_heads =
    1u << FM_HEAD_PLDDT | 1u << FM_HEAD_DISTOGRAM | 1u << FM_HEAD_ALIGNED_ERROR;

static fm_infer_options infer_options(void) {
    const fm_trainer_options small = small_options();
    fm_infer_options options = {.model = small.model, .heads = all_heads};
    memcpy(options.weight, small.weight, sizeof options.weight);
    return options;
}

/* Moves every parameter away from its initial value: many of those are 0, so that a new model's
 * blocks add nothing. */
static void shake(fm_params *params) {
    float *master = params->master;
    for (int32_t p = 0; p < params->n_param; p++)
        for (int64_t i = 0; i < fm_param_count(&params->param[p]); i++)
            master[params->param[p].offset + i] += (float)(0.1 * op_uniform(100 + (uint32_t)p, i));
}

static fm_infer *create_infer(const fm_infer_options *options) {
    fm_infer *infer = NULL;
    fm_error error = {0};
    if (fm_infer_create(options, &infer, &error)) fail_msg("%s", error.message);
    fm_params_draw(fm_infer_get_params(infer), small_options().seed);
    shake(fm_infer_get_params(infer));
    return infer;
}

static fm_infer_result run_infer(fm_infer *infer, const fm_features *features, fm_arena *arena) {
    fm_infer_result result = {0};
    fm_error error = {0};
    if (fm_infer_run(infer, features, arena, &result, &error)) fail_msg("%s", error.message);
    return result;
}

static int set_up(void **state) {
    static fm_arena arena;
    *state = &arena;
    return fm_arena_init(&arena, (size_t)1 << 30, NULL) ? 1 : 0;
}

static int tear_down(void **state) {
    fm_arena_fini(*state);
    return 0;
}

static void assert_near(const float *a, const float *b, size_t n, double tolerance) {
    for (size_t i = 0; i < n; i++)
        assert_true(fabs((double)a[i] - (double)b[i]) <= tolerance);
}

/* A trainer of exactly this sample's sizes, without dropout: what training's forward pass gives. */
static fm_trainer *exact_trainer(bool forward_only) {
    fm_trainer_options options = small_options();
    options.model.dropout_msa = options.model.dropout_pair = options.model.structure.dropout = 0;
    options.forward_only = forward_only;
    fm_trainer *trainer = create(&options);
    shake(&trainer->params);
    return trainer;
}

/* Exactly recorded, inference has the losses and atoms of a training step to the bit; recorded for
 * 16 residues instead of 11, to rounding. */
static void forward_is_that_of_training(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_trainer *trained = exact_trainer(false), *forward = exact_trainer(true);
    const fm_sample_result a = take(trained, &s.features), b = take(forward, &s.features);
    assert_true(b.loss > 0);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    assert_memory_equal(a.term, b.term, sizeof a.term);
    const float *atoms = fm_tape_data(&trained->last, trained->atoms);
    assert_memory_equal(atoms, fm_tape_data(&forward->last, forward->atoms),
                        sizeof(float) * N_RES * 42);
    const fm_infer_options options = infer_options();
    fm_infer *infer = create_infer(&options);
    const fm_infer_result padded = run_infer(infer, &s.features, arena);
    for (int i = 0; i < FM_LOSS_TERMS; i++)
        assert_float_equal(padded.losses.term[i], a.term[i], 2e-5 * fabs(a.term[i]));
    assert_near(padded.atoms, atoms, N_RES * 42, 1e-4);
    for (int i = 0; i < N_RES; i++) {
        assert_true(padded.plddt[i] > 0 && padded.plddt[i] < 100);
        for (int k = 0; k < 14; k++)
            assert_true(padded.known[14 * i + k] <= (i != 6)); /* residue 6 has no atoms */
    }
    assert_near(padded.truth + 42 + 3, s.positions[1][1], 3, 0); /* CA of residue 1 */
    fm_infer_destroy(infer);
    fm_trainer_destroy(forward);
    fm_trainer_destroy(trained);
}

/* Every head of the model gives its logits, the distogram symmetric ones. */
static void heads_are_without_padding(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    const fm_infer_options options = infer_options();
    fm_infer *infer = create_infer(&options);
    run_infer(infer, &s.features, arena);
    const int64_t bins[FM_HEADS] = {50, 64, 64};
    for (int h = 0; h < FM_HEADS; h++) {
        float *logits;
        int64_t n_bin;
        assert_int_equal(fm_infer_head(infer, (fm_head)h, arena, &logits, &n_bin, NULL), FM_OK);
        assert_int_equal(n_bin, bins[h]);
        int64_t n = (h ? N_RES * N_RES : N_RES) * n_bin;
        for (int64_t i = 0; i < n; i++)
            assert_true(isfinite(logits[i]));
        for (int i = 0; i < N_RES && h == FM_HEAD_DISTOGRAM; i++)
            for (int j = 0; j < N_RES; j++)
                assert_memory_equal(logits + (i * N_RES + j) * n_bin,
                                    logits + (j * N_RES + i) * n_bin,
                                    (size_t)n_bin * sizeof *logits);
    }
    fm_infer_destroy(infer);
}

/* The mean over pairs of the distogram's cross entropy, from the logits, is the loss. */
static void the_distogram_explains_its_loss(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    const fm_infer_options options = infer_options();
    fm_infer *infer = create_infer(&options);
    fm_trainer *forward = exact_trainer(true);
    fm_infer_result result = run_infer(infer, &s.features, arena);
    take(forward, &s.features);
    const float *beta = (const void *)(forward->host + forward->state.offset[forward->pseudo_beta]),
                *mask = (const void *)(forward->host +
                                       forward->state.offset[forward->pseudo_beta_mask]);
    float *logits;
    int64_t n_bin;
    assert_int_equal(fm_infer_head(infer, FM_HEAD_DISTOGRAM, arena, &logits, &n_bin, NULL), FM_OK);
    double sum = 0, weight = 0;
    for (int i = 0; i < N_RES; i++) {
        for (int j = 0; j < N_RES; j++) {
            const float *x = logits + (i * N_RES + j) * n_bin;
            double d = 0, total = 0, w = (double)mask[i] * (double)mask[j];
            for (int k = 0; k < 3; k++)
                d += pow((double)beta[3 * i + k] - (double)beta[3 * j + k], 2);
            int target = 0; /* 64 classes with 63 boundaries from 2.3125 to 21.6875 Å */
            while (target < 63 && sqrt(d) > 2.3125 + target * (21.6875 - 2.3125) / 62)
                target++;
            for (int b = 0; b < n_bin; b++)
                total += exp((double)x[b]);
            sum += w * (log(total) - (double)x[target]);
            weight += w;
        }
    }
    assert_float_equal(result.losses.term[FM_TERM_DISTOGRAM], sum / weight, 1e-4);
    fm_trainer_destroy(forward);
    fm_infer_destroy(infer);
}

/* Lengths of about the same size share a recording; other lengths in between change nothing. */
static void recordings_are_used_again(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    const fm_infer_options options = infer_options();
    fm_infer *infer = create_infer(&options);
    const fm_infer_result first = run_infer(infer, &s.features, arena);
    fm_features shorter = s.features;
    for (uint32_t n = N_RES; n > 2; n--) { /* a prefix of the chain; its rows are not contiguous */
        shorter.n_res = n;
        shorter.n_cycle = 1;
        shorter.cycle[0].n_clust = 1;
        shorter.cycle[0].n_extra = 0;
        shorter.n_templ = 0;
        run_infer(infer, &shorter, arena);
    }
    const fm_infer_result again = run_infer(infer, &s.features, arena);
    assert_memory_equal(first.atoms, again.atoms, sizeof(float) * N_RES * 42);
    assert_memory_equal(first.plddt, again.plddt, sizeof(float) * N_RES);
    fm_infer_destroy(infer);
}

static void lengths_are_rounded_little(void **state) {
    (void)state;
    const int64_t expected[][2] = {{1, 16},      {16, 16},     {17, 32},     {255, 256},
                                   {256, 256},   {257, 272},   {513, 544},   {1000, 1024},
                                   {1025, 1088}, {2048, 2048}, {2049, 2176}, {6600, 6656}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(fm_infer_round(expected[i][0]), expected[i][1]);
    for (int64_t n = 1; n < 9000; n++) {
        int64_t rounded = fm_infer_round(n);
        assert_true(rounded >= n && (rounded - n) * 8 <= (n > 128 ? n : 128));
        assert_int_equal(fm_infer_round(rounded), rounded);
    }
}

/* What is planned is what is taken, and a chain that does not fit is refused with the length that
 * does. */
static void memory_is_planned(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_infer_options options = infer_options();
    fm_infer *infer = create_infer(&options);
    int64_t bytes, longer;
    assert_int_equal(fm_infer_plan(infer, N_RES, &bytes, NULL), FM_OK);
    assert_int_equal(fm_infer_plan(infer, 200, &longer, NULL), FM_OK);
    assert_true(longer > 4 * bytes / 2 && bytes > fm_infer_get_params(infer)->memory_bytes);
    fm_infer_destroy(infer);
    options.memory_budget_bytes = bytes;
    infer = create_infer(&options);
    run_infer(infer, &s.features, arena);
    fm_features large = s.features;
    large.n_res = 200;
    fm_infer_result result;
    fm_error error;
    assert_int_equal(fm_infer_run(infer, &large, arena, &result, &error), FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "a chain of 200 residues needs"));
    assert_non_null(strstr(error.message, "the longest that fits has about 1"));
    fm_infer_destroy(infer);
}

/* No memory is read before it is written, and nothing but values is kept of the parameters. */
static void nothing_of_training_is_kept(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_infer_options options = infer_options();
    fm_infer *infer = create_infer(&options);
    const fm_infer_result plain = run_infer(infer, &s.features, arena);
    const fm_params *params = fm_infer_get_params(infer);
    assert_int_equal(params->memory_bytes, params->n_element * (int64_t)sizeof(float));
    assert_null(params->gradient);
    options.spoils = true;
    fm_infer *spoilt = create_infer(&options);
    const fm_infer_result other = run_infer(spoilt, &s.features, arena);
    assert_memory_equal(plain.atoms, other.atoms, sizeof(float) * N_RES * 42);
    fm_infer_destroy(spoilt);
    fm_infer_destroy(infer);
    fm_trainer *trained = exact_trainer(false), *forward = exact_trainer(true);
    assert_true(fm_trainer_memory_bytes(forward) < fm_trainer_memory_bytes(trained) / 3);
    take(forward, &s.features);
    assert_int_equal(fm_tape_used_bytes(&forward->last), forward->last.size.arena_bytes);
    fm_trainer_destroy(forward);
    fm_trainer_destroy(trained);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_that_of_training),
        cmocka_unit_test(heads_are_without_padding),
        cmocka_unit_test(the_distogram_explains_its_loss),
        cmocka_unit_test(recordings_are_used_again),
        cmocka_unit_test(lengths_are_rounded_little),
        cmocka_unit_test(memory_is_planned),
        cmocka_unit_test(nothing_of_training_is_kept),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
