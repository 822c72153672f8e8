/* test_af3_trainer.c: AlphaFold 3's training step: the same bits twice and over memory that held
 * NaN, labels that are permuted, a head that learns alone, evaluation, memory, values that are not
 * finite, and activations that are narrower than islands. */
#include "tests/testing/complex_sample.h"
#include "tests/trainer/common/mixed_table.h"
#include "tests/trainer/common/most_blocks.h"

#include "trainer/app/settings/setup.h"
#include "trainer/step/af3/stored.h"
#include "trainer/tensor/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct bench {
    fm_test_complex complex;
    fm_arena arena;
    fm_af3_features features;
    fm_af3_trainer_options options;
    fm_af3_trainer *trainer;
} bench;

/* The smallest network that has every module. */
static void open_bench(bench *b, uint64_t seed) {
    fm_train_config config;
    fm_error error = {.message = ""};
    *b = (bench){.trainer = NULL};
    fm_test_complex_make(&b->complex, 3);
    assert_int_equal(fm_arena_init(&b->arena, (size_t)1 << 20, NULL), FM_OK);
    if (fm_stored_sample_check(&b->complex.npz, &b->arena, &b->features, &error)) {
        fail_msg("%s", error.message);
    }
    b->features.n_cycle = 2;
    assert_int_equal(fm_train_config_preset("af3-tiny", &config, NULL), FM_OK);
    b->options = fm_af3_trainer_options_of(&config, fm_kernels_cpu(FM_ELEMENT_F32), seed);
    b->options.optimizer.warmup_samples = 0;
    b->options.optimizer.behind_samples = 0;
    b->options.model.n_token = FM_TEST_TOKENS + 3;
    b->options.model.n_atom = FM_TEST_ATOMS + 2;
    b->options.model.n_rollout_step = 2;
    b->options.model.n_sample = 2;
}

static void create(bench *b) {
    fm_error error = {.message = ""};
    if (fm_af3_trainer_create(&b->options, &b->trainer, &error)) fail_msg("%s", error.message);
}

static fm_sample_result add_sample(bench *b, const fm_af3_features *features) {
    fm_sample_result result;
    fm_error error = {.message = ""};
    if (fm_af3_trainer_add_sample(b->trainer, features, &result, &error)) {
        fail_msg("%s", error.message);
    }
    return result;
}

static fm_sample_result add(bench *b) {
    return add_sample(b, &b->features);
}

static void close_bench(bench *b) {
    fm_af3_trainer_destroy(b->trainer);
    fm_arena_fini(&b->arena);
    fm_test_complex_free(&b->complex);
}

typedef struct next_sample {
    fm_af3_trainer *trainer;
    const fm_af3_features *features;
    uint64_t step;
    int n_call;
} next_sample;

static void announce_next(void *context) {
    next_sample *next = context;
    next->n_call++;
    fm_af3_trainer_announce(next->trainer, next->features, next->step);
}

/* The bytes of the parameters after two steps of two samples. `announces`: 0 never, 1 each sample,
 * 2 with a wrong step, for which other MSA rows are drawn, 3 while the sample before it is
 * computed. */
static void run_steps(bench *b, int announces, float **ret_values, size_t *ret_bytes) {
    fm_af3_features of_slot[2] = {b->features, b->features};
    of_slot[1].slot = 1;
    create(b);
    for (uint64_t step = 0; step < 2; step++) {
        for (uint32_t slot = 0; slot < 2; slot++) {
            next_sample next = {b->trainer, &of_slot[!slot], step + slot, 0};
            fm_af3_trainer_set_look_ahead(b->trainer, announces == 3 ? announce_next : NULL, &next);
            if (announces == 1 || announces == 2) {
                fm_af3_trainer_announce(b->trainer, &of_slot[!slot],
                                        announces == 1 ? step + slot : step + 7);
            }
            fm_sample_result result = add_sample(b, &of_slot[slot]);
            assert_true(result.loss > 0 && result.gradient_norm > 0);
            assert_int_equal(next.n_call > 0, announces == 3);
        }
        fm_optimizer_step(&b->trainer->recording.optimizer, b->trainer->recording.stream);
    }
    *ret_bytes = (size_t)b->trainer->recording.params.n_element * sizeof(float);
    *ret_values = malloc(*ret_bytes);
    assert_non_null(*ret_values);
    memcpy(*ret_values, b->trainer->recording.params.master, *ret_bytes);
}

/* All stacks may have the most blocks that their keys allow. */
static void the_deepest_network_is_made(void **state) {
    (void)state;
    fm_train_config config;
    assert_int_equal(fm_train_config_preset("af3-tiny", &config, NULL), FM_OK);
    assert_int_equal(fm_test_take_most_blocks(&config, "af3"), FM_AF3_STACKS);
    bench b;
    open_bench(&b, 5);
    fm_af3_config model = config.af3;
    model.n_token = b.options.model.n_token;
    model.n_atom = b.options.model.n_atom;
    model.n_rollout_step = 2;
    model.n_sample = 1;
    b.options.model = model;
    create(&b);
    close_bench(&b);
}

static void the_same_seed_gives_the_same_bits(void **state) {
    (void)state;
    static const struct {
        uint64_t seed;
        bool spoils, same;
        fm_recompute_policy recompute;
    } cases[] = {{5, true, true, FM_RECOMPUTE_NONE},     {5, false, true, FM_RECOMPUTE_BLOCK},
                 {5, true, true, FM_RECOMPUTE_HIDDEN},   {5, true, true, FM_RECOMPUTE_PROJECTIONS},
                 {5, true, true, FM_RECOMPUTE_OPERANDS}, {6, false, false, FM_RECOMPUTE_NONE}};
    bench b;
    float *first, *again;
    size_t bytes, bytes_again;
    open_bench(&b, 5);
    run_steps(&b, 0, &first, &bytes);
    close_bench(&b);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_bench(&b, cases[i].seed);
        b.options.spoils = cases[i].spoils;
        b.options.model.recompute = cases[i].recompute;
        run_steps(&b, (int)(i % 4), &again, &bytes_again);
        assert_int_equal(bytes, bytes_again);
        assert_int_equal(memcmp(first, again, bytes) == 0, cases[i].same);
        for (int t = 0; t < FM_AF3_TAPES; t++) {
            const fm_tape *tape = &b.trainer->recording.tape[t];
            assert_int_equal(fm_tape_used_bytes(tape), tape->size.arena_bytes);
        }
        free(again);
        close_bench(&b);
    }
    free(first);
}

/* A sample that is refused takes back what was announced for after it, so a later sample in the
 * same place is read anew. */
static void a_refused_sample_forgets_the_announced_one(void **state) {
    (void)state;
    fm_sample_result results[2];
    for (int announces = 0; announces < 2; announces++) {
        bench b;
        fm_error error = {.message = ""};
        open_bench(&b, 5);
        create(&b);
        fm_af3_features large = b.features;
        large.sample.n_template++;
        if (announces) fm_af3_trainer_announce(b.trainer, &b.features, 0);
        assert_int_equal(fm_af3_trainer_add_sample(b.trainer, &large, &results[announces], &error),
                         FM_ERR_LIMIT);
        (void)add(&b);
        float *charge = (float *)(uintptr_t)fm_test_complex_find(&b.complex, "ref_charge")->data;
        charge[0] += 3;
        results[announces] = add(&b);
        close_bench(&b);
    }
    assert_true(results[0].loss == results[1].loss);
}

/* Returns what the step takes with a policy, or with `auto` and a budget, and the policy. */
static int64_t memory_of(fm_recompute_policy *policy, int64_t budget) {
    bench b;
    open_bench(&b, 5);
    b.options.model.recompute = *policy;
    b.options.memory_budget_bytes = budget;
    create(&b);
    *policy = b.trainer->options.model.recompute;
    int64_t bytes = fm_af3_trainer_memory_bytes(b.trainer);
    close_bench(&b);
    return bytes;
}

/* Budgets between those of all policies give steps between them, whose parameters have the same
 * bits. They take the memory that was planned, which is within the budget. */
static void a_budget_chooses_the_recomputation(void **state) {
    (void)state;
    enum { N_BUDGET = 6, N_POLICY = FM_RECOMPUTE_BLOCK + 1 };
    int64_t bytes[N_POLICY];
    for (int i = 0; i < N_POLICY; i++) {
        fm_recompute_policy policy = (fm_recompute_policy)i;
        bytes[i] = memory_of(&policy, 0);
        assert_int_equal(policy, i);
        assert_true(i == 0 || bytes[i] < bytes[i - 1]);
    }
    bench b;
    float *kept = NULL, *values;
    size_t n_byte;
    int32_t last = -1;
    for (int i = 0; i <= N_BUDGET; i++) {
        int64_t budget = bytes[0] - (bytes[0] - bytes[FM_RECOMPUTE_BLOCK]) * i / N_BUDGET;
        open_bench(&b, 5);
        b.options.model.recompute = FM_RECOMPUTE_AUTO;
        b.options.memory_budget_bytes = budget;
        run_steps(&b, false, &values, &n_byte);
        const fm_af3_config *took = &b.trainer->options.model;
        assert_true(fm_af3_trainer_memory_bytes(b.trainer) <= budget);
        assert_int_equal(took->recompute, i == 0 ? FM_RECOMPUTE_NONE : FM_RECOMPUTE_AUTO);
        assert_true(i == 0 || took->recompute_steps > last);
        last = took->recompute_steps;
        for (int t = 0; t < FM_AF3_TAPES; t++)
            assert_int_equal(fm_tape_used_bytes(&b.trainer->recording.tape[t]),
                             b.trainer->recording.tape[t].size.arena_bytes);
        if (!kept) kept = values;
        assert_memory_equal(kept, values, n_byte);
        if (kept != values) free(values);
        close_bench(&b);
    }
    free(kept);
    fm_recompute_policy unbounded = FM_RECOMPUTE_AUTO; /* a CPU does not say what it has free */
    assert_int_equal(memory_of(&unbounded, 0), bytes[FM_RECOMPUTE_BLOCK]);
}

/* The error names what the least step needs. */
static void a_budget_that_is_too_small_is_refused(void **state) {
    (void)state;
    fm_recompute_policy policy = FM_RECOMPUTE_BLOCK;
    int64_t least = memory_of(&policy, 0);
    bench b;
    fm_error error = {.message = ""};
    open_bench(&b, 5);
    b.options.model.recompute = FM_RECOMPUTE_AUTO;
    b.options.memory_budget_bytes = least - 1;
    assert_int_equal(fm_af3_trainer_create(&b.options, &b.trainer, &error), FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "the memory budget is"));
    close_bench(&b);
}

/* What the device has left, in bytes, beside the 2 GiB that `auto` leaves free. */
static int64_t room;

static void *alloc_from_room(size_t bytes) {
    room -= (int64_t)bytes;
    return fm_kernels_cpu(FM_ELEMENT_F32)->alloc(bytes);
}

static size_t free_with_room(void) {
    return (size_t)(((int64_t)2 << 30) + room);
}

/* Without a budget, `auto` leaves a network of evaluations its memory if that is created first. If
 * it comes second, it must take from what is left for graphs and libraries. */
static void the_judge_takes_its_memory_first(void **state) {
    (void)state;
    fm_recompute_policy none = FM_RECOMPUTE_NONE, block = FM_RECOMPUTE_BLOCK;
    const int64_t middle = (memory_of(&none, 0) + memory_of(&block, 0)) / 2;
    fm_device device = *fm_kernels_cpu(FM_ELEMENT_F32)->device;
    fm_kernels kernels = *fm_kernels_cpu(FM_ELEMENT_F32);
    kernels.device = &device;
    kernels.alloc = alloc_from_room;
    device.free_bytes = free_with_room;
    bench b;
    open_bench(&b, 5);
    b.options.kernels = &kernels;
    b.options.model.recompute = FM_RECOMPUTE_AUTO;
    fm_af3_trainer_options options = b.options;
    options.forward_only = true;
    fm_af3_trainer *judge;
    assert_int_equal(fm_af3_trainer_create(&options, &judge, NULL), FM_OK);
    const int64_t judge_bytes = fm_af3_trainer_memory_bytes(judge);
    fm_af3_trainer_destroy(judge);
    for (int is_first = 0; is_first < 2; is_first++) {
        room = middle + judge_bytes;
        if (!is_first) create(&b);
        assert_int_equal(fm_af3_trainer_create(&options, &judge, NULL), FM_OK);
        if (is_first) create(&b);
        assert_int_equal(room >= 0, is_first);
        fm_af3_trainer_destroy(judge);
        fm_af3_trainer_destroy(b.trainer);
    }
    b.trainer = NULL;
    close_bench(&b);
}

/* The host has no copy of what only the device writes, and one of everything else. */
static void the_host_copies_what_it_writes(void **state) {
    (void)state;
    bench b;
    open_bench(&b, 5);
    create(&b);
    const fm_af3_trainer *t = b.trainer;
    const fm_af3_inputs *in = &t->inputs;
    const int32_t of_device[] = {
        in->previous_s,       in->previous_z, in->s_inputs,     in->s, in->z, in->prepared_c,
        in->prepared_bias[0], in->training.x, t->recording.flag};
    for (size_t i = 0; i < sizeof of_device / sizeof of_device[0]; i++)
        assert_false(t->mirror.holds[of_device[i]] || t->shared.holds[of_device[i]]);
    int64_t bytes = 0;
    for (int32_t i = 0; i < t->recording.state.n_tensor; i++) {
        assert_false(t->mirror.holds[i] && t->shared.holds[i]);
        bool held = t->mirror.holds[i] || t->shared.holds[i];
        bytes += held ? fm_plan_round(fm_tensor_local_bytes(&t->recording.state.tensor[i])) : 0;
    }
    assert_int_equal(t->mirror.bytes + t->shared.bytes, bytes);
    assert_true(bytes < t->recording.state.bytes);
    close_bench(&b);
}

/* Exchanges the labels of the two equal chains in the sample. */
static void exchange_chains(bench *b) {
    float *x = (float *)(uintptr_t)fm_test_complex_find(&b->complex, "coordinate")->data;
    float *mask = (float *)(uintptr_t)fm_test_complex_find(&b->complex, "coordinate_mask")->data;
    for (int i = 0; i < 18; i++) {
        float other = x[18 + i];
        x[18 + i] = x[i];
        x[i] = other;
    }
    for (int l = 0; l < 6; l++) {
        float other = mask[6 + l];
        mask[6 + l] = mask[l];
        mask[l] = other;
    }
}

/* The rollout decides which chain gets which labels, so their order in the sample does not matter.
 * Without numbers of tokens it does. */
static void labels_are_permuted(void **state) {
    (void)state;
    for (int permutes = 0; permutes < 2; permutes++) {
        fm_sample_result results[2];
        for (int k = 0; k < 2; k++) {
            bench b;
            open_bench(&b, 5);
            if (!permutes) b.features.number = NULL;
            if (k) exchange_chains(&b);
            create(&b);
            results[k] = add(&b);
            close_bench(&b);
        }
        bool same = results[0].loss == results[1].loss &&
                    results[0].gradient_norm == results[1].gradient_norm;
        assert_int_equal(same, permutes);
    }
}

static void the_confidence_head_learns_alone(void **state) {
    (void)state;
    bench b;
    open_bench(&b, 5);
    b.options.confidence_only = true;
    b.options.loss.pae = 1;
    create(&b);
    const fm_params *params = &b.trainer->recording.params;
    size_t bytes = (size_t)params->n_element * sizeof(float);
    float *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, params->master, bytes);
    fm_sample_result result = add(&b);
    assert_true(result.term[FM_COMPLEX_MSE] == 0 && result.term[FM_COMPLEX_PAE] > 0);
    fm_optimizer_step(&b.trainer->recording.optimizer, b.trainer->recording.stream);
    int n_same = 0, n_changed = 0;
    for (int32_t p = 0; p < params->n_param; p++) {
        const fm_param *row = &params->param[p];
        const float *now = (const float *)params->master + row->offset;
        size_t row_bytes = (size_t)fm_param_count(row) * sizeof(float);
        bool same = memcmp(now, before + row->offset, row_bytes) == 0;
        bool learns = strncmp(row->name, "confidence_head.", 16) == 0;
        assert_true(same || learns);
        n_same += same && !learns;
        n_changed += !same;
    }
    assert_true(n_same > 400 && n_changed > 20);
    free(before);
    close_bench(&b);
}

static void an_evaluation_changes_nothing(void **state) {
    (void)state;
    bench b;
    open_bench(&b, 5);
    b.options.forward_only = true;
    create(&b);
    const fm_params *params = &b.trainer->recording.params;
    size_t bytes = (size_t)params->n_element * sizeof(float);
    float *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, params->master, bytes);
    fm_sample_result first = add(&b);
    const fm_af3_score score = b.trainer->score;
    fm_sample_result again = add(&b);
    assert_true(score.is_known && score.rmsd == b.trainer->score.rmsd);
    assert_memory_equal(before, params->master, bytes);
    assert_memory_equal(&first, &again, sizeof first);
    assert_true(first.loss > 0 && first.gradient_norm == 0);
    assert_true(first.term[FM_COMPLEX_SMOOTH_LDDT] > 0 && first.term[FM_COMPLEX_SMOOTH_LDDT] < 1);
    free(before);
    close_bench(&b);
}

static void values_that_are_not_finite_are_named(void **state) {
    (void)state;
    bench b;
    fm_sample_result result;
    fm_error error = {.message = ""};
    open_bench(&b, 5);
    create(&b);
    const fm_param *row =
        fm_params_find(&b.trainer->recording.params,
                       "pairformer_stack.blocks.1.pair_transition.layernorm1.weight");
    assert_non_null(row);
    ((float *)b.trainer->recording.params.master)[row->offset] = NAN;
    assert_int_equal(fm_af3_trainer_add_sample(b.trainer, &b.features, &result, &error),
                     FM_ERR_DATA);
    assert_non_null(strstr(error.message, "is not finite"));
    assert_non_null(strstr(error.message, "cycle 0"));
    assert_int_equal(b.trainer->recording.optimizer.pending, 0);
    close_bench(&b);
}

/* A sum of gradients that overflows updates nothing and is an error. */
static void a_sum_that_is_not_finite_is_an_error(void **state) {
    (void)state;
    bench b;
    fm_error error = {.message = ""};
    open_bench(&b, 5);
    create(&b);
    const fm_params *params = &b.trainer->recording.params;
    size_t bytes = (size_t)params->n_element * sizeof(float);
    float *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, params->master, bytes);
    add(&b);
    ((float *)b.trainer->recording.optimizer.sum)[7] = INFINITY;
    assert_int_equal(fm_af3_trainer_update_with(b.trainer, 1, &error), FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "step 1: the norm of the sum of its gradients"));
    assert_memory_equal(before, params->master, bytes);
    /* The next update is made. */
    add(&b);
    assert_int_equal(fm_af3_trainer_update_with(b.trainer, 1, &error), FM_OK);
    assert_memory_not_equal(before, params->master, bytes);
    free(before);
    close_bench(&b);
}

static void samples_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *message;
        int64_t n_token, n_atom, n_template, n_bond, slots;
    } cases[] = {{"found 8 tokens, expected at most 7 (crop_size)", 7, 16, 2, 4, 24},
                 {"found 14 atoms, expected at most 13 (max_atoms)", 8, 13, 2, 4, 24},
                 {"found 2 templates, expected 1 (n_template)", 8, 16, 1, 4, 24},
                 {"found 1 bonds of polymers and ligands, expected at most 0", 8, 16, 2, 0, 24},
                 {"in slot 1, expected at most 0", 8, 16, 2, 4, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench b;
        fm_sample_result result;
        fm_error error = {.message = ""};
        open_bench(&b, 5);
        b.options.model.n_token = cases[i].n_token;
        b.options.model.n_atom = cases[i].n_atom;
        b.options.model.n_template = cases[i].n_template;
        b.options.model.max_atoms_per_token = cases[i].slots;
        b.options.n_bond = cases[i].n_bond;
        create(&b);
        assert_int_equal(fm_af3_trainer_add_sample(b.trainer, &b.features, &result, &error),
                         FM_ERR_LIMIT);
        if (!strstr(error.message, cases[i].message)) fail_msg("found: %s", error.message);
        close_bench(&b);
    }
}

static void msa_rows_are_drawn_without_repetition(void **state) {
    (void)state;
    enum { N = 40, MOST = 16, DRAWS = 400 };
    int64_t rows[N], counts[N] = {0}, few = 0, many = 0;
    for (uint32_t step = 0; step < DRAWS; step++) {
        const uint32_t clock[FM_CLOCK_WORDS] = {step, 0, 0, 0};
        int64_t n = fm_af3_draw_msa_rows(3, clock, N, MOST, rows);
        uint64_t seen = 0;
        assert_true(n >= 1 && n <= MOST);
        for (int64_t i = 0; i < n; i++) {
            assert_true(rows[i] >= 0 && rows[i] < N && !(seen >> rows[i] & 1));
            seen |= (uint64_t)1 << rows[i];
            counts[rows[i]]++;
        }
        few += n <= 8;
        many += n == MOST;
    }
    /* The number is uniform from 1 to 40 before it is bounded: 8 or fewer in a fifth of the draws,
     * 16 in 25 of 40. */
    assert_true(few > 50 && few < 110 && many > 210 && many < 290);
    for (int i = 0; i < N; i++)
        assert_true(counts[i] > 60 && counts[i] < 190);
}

/* -- reference conformers */

static double distance(const float *x, int64_t i, int64_t j) {
    double square = 0;
    for (int64_t axis = 0; axis < 3; axis++)
        square += pow((double)x[3 * i + axis] - (double)x[3 * j + axis], 2);
    return sqrt(square);
}

/* A conformer moves as a whole, and its mean by at most 1 Å along each axis. Its place follows from
 * the seed, the step and the sample, and is its own. */
static void conformers_are_placed_anew(void **state) {
    (void)state;
    enum { N = 12, PLACEMENTS = 2000 };
    static const float ideal[] = {1, 0, 0, -1, 0, 0, 0, 2, 0, 0, -2, 0, 0, 0, 3, 0, 0, -3};
    const int64_t uid[N] = {7, 7, 7, 7, 7, 7, 2147483647, 2147483647, 2147483647, 9, 9, 9};
    float x[3 * N], placed[3 * N], other[3 * N];
    memcpy(x, ideal, sizeof ideal);
    memcpy(x + 18, ideal, sizeof ideal);
    const fm_af3_sample sample = {.n_atom = N, .ref_space_uid = uid, .ref_pos = x};
    double sum[2] = {0}, most = 0;
    for (uint32_t step = 0; step < PLACEMENTS; step++) {
        const uint32_t clock[FM_CLOCK_WORDS] = {step, 0, 0, 0};
        fm_af3_place_conformers(3, clock, &sample, placed);
        double length = 0;
        for (int64_t i = 1; i < N; i++) {
            const int64_t first = i < 6 ? 0 : i < 9 ? 6 : 9; /* the first atom of its conformer */
            assert_true(fabs(distance(placed, i, first) - distance(x, i, first)) < 1e-5);
        }
        for (int64_t axis = 0; axis < 3; axis++) {
            double mean = 0;
            for (int64_t i = 0; i < 6; i++)
                mean += (double)placed[3 * i + axis] / 6;
            length += mean * mean;
        }
        most = fmax(most, length);
        sum[0] += (double)(placed[0] - placed[3]) / 2 / PLACEMENTS; /* the image of the x axis */
        sum[1] += length / PLACEMENTS;
    }
    assert_true(most > 2 && most < 3.0001); /* a cube from -1 to 1 */
    assert_true(fabs(sum[1] - 1) < 0.05 && fabs(sum[0]) < 0.05);
    static const struct {
        uint64_t seed;
        uint32_t clock[FM_CLOCK_WORDS];
        bool same;
    } cases[] = {{3, {4, 1}, true}, {4, {4, 1}, false}, {3, {5, 1}, false}, {3, {4, 2}, false}};
    fm_af3_place_conformers(3, cases[0].clock, &sample, placed);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_af3_place_conformers(cases[i].seed, cases[i].clock, &sample, other);
        assert_int_equal(placed[0] == other[0], cases[i].same);
    }
    /* One that is alone in its sample has the same place. */
    const fm_af3_sample last = {.n_atom = 3, .ref_space_uid = uid + 9, .ref_pos = x + 27};
    fm_af3_place_conformers(3, cases[0].clock, &last, other);
    assert_memory_equal(placed + 27, other, 9 * sizeof *other);
}

static const float *conformers_of(const bench *b) {
    return fm_state_data(&b->trainer->recording.state, b->trainer->inputs.position);
}

/* The network reads the conformers of its own step and sample, also when the host wrote the sample
 * ahead of it, or those of the sample. */
static void a_step_has_its_own_conformers(void **state) {
    (void)state;
    bench b;
    float placed[3 * FM_TEST_ATOMS];
    open_bench(&b, 5);
    create(&b);
    for (uint32_t step = 0; step < 2; step++) {
        for (uint32_t slot = 0; slot < 2; slot++) {
            const uint32_t clock[FM_CLOCK_WORDS] = {step, slot, 0, 0};
            b.features.slot = slot;
            fm_af3_trainer_announce(b.trainer, &b.features, step);
            (void)add(&b);
            fm_af3_place_conformers(5, clock, &b.features.sample, placed);
            assert_memory_equal(conformers_of(&b), placed, sizeof placed);
        }
        fm_optimizer_step(&b.trainer->recording.optimizer, b.trainer->recording.stream);
    }
    close_bench(&b);
    open_bench(&b, 5);
    b.options.keeps_conformers = true;
    create(&b);
    (void)add(&b);
    assert_memory_equal(conformers_of(&b), b.features.sample.ref_pos, sizeof placed);
    close_bench(&b);
}

/* -- narrow activations */

/* The gradient of a sample, [*ret_count], on the heap. */
static double *gradient_of(bench *b, const fm_kernels *kernels, fm_af3_products products,
                           fm_sample_result *ret_result, size_t *ret_count) {
    open_bench(b, 5);
    b->options.kernels = kernels;
    b->options.model.products = products;
    b->options.model.recompute = FM_RECOMPUTE_BLOCK;
    b->options.spoils = true;
    create(b);
    *ret_result = add(b);
    *ret_count = (size_t)b->trainer->recording.params.n_element;
    double *gradient = malloc(*ret_count * sizeof *gradient);
    assert_non_null(gradient);
    memcpy(gradient, b->trainer->recording.params.gradient, *ret_count * sizeof *gradient);
    close_bench(b);
    return gradient;
}

/* With activations of f32, islands of f64, and the diffusion module in either, a step has the
 * gradient of f64 but for the rounding of f32. */
static void narrow_activations_round_only(void **state) {
    (void)state;
    static bench b;
    const fm_af3_products products[] = {FM_AF3_PRODUCTS_F32, FM_AF3_PRODUCTS_BF16};
    fm_sample_result wide, narrow;
    size_t n;
    double *expected =
        gradient_of(&b, fm_kernels_cpu(FM_ELEMENT_F64), FM_AF3_PRODUCTS_F32, &wide, &n);
    double apart[2];
    for (int i = 0; i < 2; i++) {
        double *got = gradient_of(&b, mixed_table(), products[i], &narrow, &n);
        double error = 0, norm = 0;
        for (size_t k = 0; k < n; k++) {
            error += (got[k] - expected[k]) * (got[k] - expected[k]);
            norm += expected[k] * expected[k];
        }
        apart[i] = sqrt(error / norm);
        assert_true(fabs(narrow.loss - wide.loss) < 1e-5 * wide.loss);
        assert_true(apart[i] < 1e-4);
        free(got);
    }
    print_message("f32 with f64 islands: gradient %.1e off, %.1e with narrow diffusion\n", apart[0],
                  apart[1]);
    assert_true(apart[0] > 0 && apart[1] > apart[0]);
    free(expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_deepest_network_is_made),
                                       cmocka_unit_test(the_same_seed_gives_the_same_bits),
                                       cmocka_unit_test(a_refused_sample_forgets_the_announced_one),
                                       cmocka_unit_test(narrow_activations_round_only),
                                       cmocka_unit_test(a_budget_chooses_the_recomputation),
                                       cmocka_unit_test(a_budget_that_is_too_small_is_refused),
                                       cmocka_unit_test(the_judge_takes_its_memory_first),
                                       cmocka_unit_test(the_host_copies_what_it_writes),
                                       cmocka_unit_test(labels_are_permuted),
                                       cmocka_unit_test(the_confidence_head_learns_alone),
                                       cmocka_unit_test(an_evaluation_changes_nothing),
                                       cmocka_unit_test(values_that_are_not_finite_are_named),
                                       cmocka_unit_test(a_sum_that_is_not_finite_is_an_error),
                                       cmocka_unit_test(samples_that_do_not_fit_are_refused),
                                       cmocka_unit_test(msa_rows_are_drawn_without_repetition),
                                       cmocka_unit_test(conformers_are_placed_anew),
                                       cmocka_unit_test(a_step_has_its_own_conformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
