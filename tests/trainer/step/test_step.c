/* test_step.c: whole steps of a small model: memory, determinism, recomputation, padding,
 * recycling, and a loss that falls on one sample. */
#include "tests/trainer/common/step_sample.h"

#include <assert.h>

static void train(fm_trainer *trainer, const fm_features *features, int steps) {
    for (int i = 0; i < steps; i++) {
        take(trainer, features);
        fm_trainer_update(trainer);
    }
}

static void assert_same_parameters(const fm_trainer *a, const fm_trainer *b) {
    size_t bytes =
        (size_t)a->recording.params.n_element * fm_element_bytes(a->recording.params.element);
    assert_memory_equal(a->recording.params.master, b->recording.params.master, bytes);
    assert_memory_equal(a->recording.params.ema, b->recording.params.ema, bytes);
    assert_memory_equal(a->recording.params.gradient, b->recording.params.gradient, bytes);
}

static void planned_bytes_are_used_bytes(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    for (int order = 0; order < 3; order++) {
        for (int policy = 0; policy <= FM_RECOMPUTE_BLOCK; policy++) {
            fm_trainer_options options = small_options();
            options.model.order = (fm_block_order)order;
            options.model.recompute = (fm_recompute_policy)policy;
            fm_trainer *trainer = create(&options);
            take(trainer, &s.features);
            assert_int_equal(fm_tape_used_bytes(&trainer->recording.tape[FM_TRAINER_CYCLE]),
                             trainer->recording.tape[FM_TRAINER_CYCLE].size.arena_bytes);
            assert_int_equal(fm_tape_used_bytes(&trainer->recording.tape[FM_TRAINER_LAST]),
                             trainer->recording.tape[FM_TRAINER_LAST].size.arena_bytes);
            char text[200];
            fm_trainer_describe(trainer, text, sizeof text);
            assert_non_null(strstr(text, "step arena"));
            fm_trainer_destroy(trainer);
        }
    }
}

static void the_same_seed_gives_the_same_bits(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = small_options();
    fm_trainer *a = create(&options), *b = create(&options);
    options.seed = 8;
    fm_trainer *c = create(&options);
    train(a, &s.features, 3);
    train(b, &s.features, 3);
    train(c, &s.features, 3);
    assert_same_parameters(a, b);
    assert_true(memcmp(a->recording.params.master, c->recording.params.master,
                       (size_t)a->recording.params.n_element * sizeof(float)) != 0);
    fm_trainer_destroy(a);
    fm_trainer_destroy(b);
    fm_trainer_destroy(c);
}

static void recomputing_changes_no_bit(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = small_options();
    fm_trainer *keep = create(&options);
    int64_t saved_bytes = keep->recording.tape[FM_TRAINER_LAST].size.saved_bytes;
    train(keep, &s.features, 2);
    for (int policy = FM_RECOMPUTE_HIDDEN; policy <= FM_RECOMPUTE_BLOCK; policy++) {
        options.model.recompute = (fm_recompute_policy)policy;
        fm_trainer *drop = create(&options);
        train(drop, &s.features, 2);
        assert_same_parameters(keep, drop);
        assert_true(drop->recording.tape[FM_TRAINER_LAST].size.saved_bytes < saved_bytes);
        saved_bytes = drop->recording.tape[FM_TRAINER_LAST].size.saved_bytes;
        fm_trainer_destroy(drop);
    }
    fm_trainer_destroy(keep);
}

/* All memory holds NaN before its first use, so an op that reads unwritten memory shows. */
static void spoiled_memory_changes_no_bit(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = small_options();
    fm_trainer *clean = create(&options);
    train(clean, &s.features, 2);
    options.spoils = true;
    for (int policy = FM_RECOMPUTE_NONE; policy <= FM_RECOMPUTE_BLOCK; policy++) {
        options.model.recompute = (fm_recompute_policy)policy;
        fm_trainer *spoiled = create(&options);
        train(spoiled, &s.features, 2);
        assert_same_parameters(clean, spoiled);
        fm_trainer_destroy(spoiled);
    }
    fm_trainer_destroy(clean);
}

static int64_t planned_bytes(const fm_trainer_options *options) {
    fm_trainer *trainer = create(options);
    const int64_t bytes = fm_trainer_memory_bytes(trainer);
    fm_trainer_destroy(trainer);
    return bytes;
}

static int count_steps(const fm_trainer *trainer, fm_phase phase) {
    int count = 0;
    for (int32_t i = 0; i < trainer->recording.tape[FM_TRAINER_LAST].n_step; i++)
        count += trainer->recording.tape[FM_TRAINER_LAST].step[i].phase == phase;
    return count;
}

/* Before a budget makes any node run again, it drops normalised rows in as few blocks as possible,
 * and backward makes them again from the rows that are kept. `none` does the same. */
static void drop_rows_within_budgets(const sample *s, fm_trainer_options options) {
    fm_trainer *keep = create(&options);
    train(keep, &s->features, 2);
    assert_int_equal(count_steps(keep, FM_PHASE_DERIVE), 0);
    const int64_t most = fm_trainer_memory_bytes(keep);
    options.model.norm_blocks = fm_model_config_blocks(&options.model);
    const int64_t least = planned_bytes(&options);
    options.model.norm_blocks = 0;
    for (int way = 0; way < 2; way++) {
        options.model.recompute = way ? FM_RECOMPUTE_AUTO : FM_RECOMPUTE_NONE;
        options.spoils = way;
        int32_t last = 0;
        for (int part = 1; part <= 3; part++) {
            options.memory_budget_bytes = most - (most - least) * part / 3;
            fm_trainer *trainer = create(&options);
            const fm_model_config *took = &trainer->options.model;
            assert_true(fm_trainer_memory_bytes(trainer) <= options.memory_budget_bytes);
            assert_int_equal(took->recompute, FM_RECOMPUTE_NONE);
            assert_true(took->norm_blocks > last);
            last = took->norm_blocks;
            assert_int_equal(count_steps(trainer, FM_PHASE_RECOMPUTE), 0);
            assert_true(count_steps(trainer, FM_PHASE_DERIVE) > 0);
            train(trainer, &s->features, 2);
            assert_int_equal(fm_tape_used_bytes(&trainer->recording.tape[FM_TRAINER_LAST]),
                             trainer->recording.tape[FM_TRAINER_LAST].size.arena_bytes);
            assert_same_parameters(keep, trainer);
            char text[512];
            fm_trainer_describe(trainer, text, sizeof text);
            assert_non_null(strstr(text, "recompute none, normalised rows made again in "));
            fm_trainer_destroy(trainer);
        }
    }
    fm_trainer_destroy(keep);
}

static void a_memory_budget_first_drops_normalised_rows(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = small_options();
    options.model.n_block = 4;
    for (int order = 0; order < 3; order++) {
        options.model.order = (fm_block_order)order;
        drop_rows_within_budgets(&s, options);
    }
}

/* A budget that is smaller than that chooses the least recomputation that it allows: hidden layers,
 * projections, operands and whole blocks, each in as few blocks as possible. */
static void a_memory_budget_chooses_recomputation(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = small_options();
    options.model.n_block = 4;
    fm_trainer *keep = create(&options);
    train(keep, &s.features, 2);
    options.model.norm_blocks = fm_model_config_blocks(&options.model);
    const int64_t most = planned_bytes(&options);
    options.model.norm_blocks = 0;
    options.model.recompute = FM_RECOMPUTE_BLOCK;
    const int64_t least = planned_bytes(&options);
    int32_t n_block = fm_model_config_blocks(&options.model), last = -1;
    assert_int_equal(n_block, 4 + 1 + 2);
    options.model.recompute = FM_RECOMPUTE_AUTO;
    for (int part = 0; part <= 6; part++) {
        options.memory_budget_bytes = most - (most - least) * part / 6;
        fm_trainer *trainer = create(&options);
        const fm_model_config *took = &trainer->options.model;
        assert_true(fm_trainer_memory_bytes(trainer) <= options.memory_budget_bytes);
        assert_true((took->recompute == FM_RECOMPUTE_NONE) == (part == 0));
        assert_true((took->norm_blocks > 0) == (part == 0));
        assert_true(part == 0 || took->recompute_steps > last);
        last = took->recompute_steps;
        train(trainer, &s.features, 2);
        assert_same_parameters(keep, trainer);
        fm_trainer_destroy(trainer);
    }
    assert_true(last > FM_RECOMPUTE_OPERANDS * n_block && last <= FM_RECOMPUTE_BLOCK * n_block);
    fm_trainer_destroy(keep);
}

static void a_budget_that_is_too_small_is_refused(void **state) {
    (void)state;
    fm_trainer_options options = small_options();
    fm_trainer *trainer = NULL;
    fm_error error;
    for (int policy = FM_RECOMPUTE_NONE; policy <= FM_RECOMPUTE_AUTO; policy++) {
        options.model.recompute = (fm_recompute_policy)policy;
        options.memory_budget_bytes = 1 << 20;
        assert_int_equal(fm_trainer_create(&options, &trainer, &error), FM_ERR_LIMIT);
        assert_non_null(strstr(error.message, "GiB, the memory budget is 0.001 GiB"));
    }
}

static size_t most_free_bytes(void) {
    return (size_t)64 << 30;
}
static size_t no_free_bytes(void) {
    return 0;
}
static size_t few_free_bytes(void) {
    return ((size_t)2 << 30) + 1024;
}

/* Without a budget the free memory of the device is the budget. */
static void without_a_budget_the_device_reports_its_memory(void **state) {
    (void)state;
    fm_device device = *fm_kernels_cpu(FM_ELEMENT_F32)->device;
    fm_kernels kernels = *fm_kernels_cpu(FM_ELEMENT_F32);
    kernels.device = &device;
    fm_trainer_options options = small_options();
    options.kernels = &kernels;
    options.model.recompute = FM_RECOMPUTE_AUTO;
    device.free_bytes = most_free_bytes;
    fm_trainer *trainer = create(&options);
    assert_int_equal(trainer->options.model.recompute, FM_RECOMPUTE_NONE);
    fm_trainer_destroy(trainer);
    device.free_bytes = no_free_bytes;
    trainer = create(&options);
    assert_int_equal(trainer->options.model.recompute, FM_RECOMPUTE_BLOCK);
    fm_trainer_destroy(trainer);
    device.free_bytes = few_free_bytes; /* 1 KiB more than the reserve */
    fm_error error;
    assert_int_equal(fm_trainer_create(&options, &trainer, &error), FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "the memory budget is"));
    options.model.recompute = FM_RECOMPUTE_NONE; /* what is free is no bound for it */
    trainer = create(&options);
    assert_int_equal(trainer->options.model.norm_blocks, fm_model_config_blocks(&options.model));
    fm_trainer_destroy(trainer);
    device.free_bytes = most_free_bytes;
    trainer = create(&options);
    assert_int_equal(trainer->options.model.norm_blocks, 0);
    fm_trainer_destroy(trainer);
}

/* Compares one update with two samples, with both ways of clipping, with Adam's first step computed
 * by hand. */
static void clipping_is_by_sample_or_by_batch(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    for (int clip = FM_CLIP_SAMPLE; clip <= FM_CLIP_BATCH; clip++) {
        fm_trainer_options options = small_options();
        options.element = FM_ELEMENT_F64;
        options.optimizer.clip = (fm_clip_policy)clip;
        fm_trainer *trainer = create(&options);
        size_t n = (size_t)trainer->recording.params.n_element;
        double *before = calloc(n, sizeof *before), *mean = calloc(n, sizeof *mean), norm = 0;
        assert_true(before && mean);
        memcpy(before, trainer->recording.params.master, n * sizeof *before);
        for (uint32_t slot = 0; slot < 2; slot++) {
            s.features.slot = slot; /* gives another dropout mask */
            s.features.n_cycle = 1 + slot;
            norm = take(trainer, &s.features).gradient_norm;
            double scale = clip == FM_CLIP_SAMPLE ? fmin(1, 0.1 / (norm + 1e-6)) : 1;
            for (size_t i = 0; i < n; i++)
                mean[i] += scale / 2 * ((const double *)trainer->recording.params.gradient)[i];
        }
        assert_true(norm > 1);
        norm = 0;
        for (size_t i = 0; i < n; i++)
            norm += mean[i] * mean[i];
        double scale = clip == FM_CLIP_BATCH ? 0.1 / (sqrt(norm) + 1e-6) : 1;
        fm_trainer_update(trainer);
        for (size_t i = 0; i < n; i++) {
            double g = scale * mean[i], step = 1e-3 * g / (fabs(g) + 1e-6);
            double moved = before[i] - ((const double *)trainer->recording.params.master)[i];
            assert_true(fabs(moved - step) < 1e-8);
        }
        free(before);
        free(mean);
        fm_trainer_destroy(trainer);
    }
}

/* A model recorded for a larger shape gives the same losses and gradients to rounding. */
static void padding_changes_nothing(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = small_options();
    options.element = FM_ELEMENT_F64;
    options.model.dropout_msa = options.model.dropout_pair = options.model.structure.dropout = 0;
    fm_trainer *tight = create(&options);
    options.model.n_res += 4;
    options.model.n_seq += 3;
    options.model.n_extra += 2;
    options.model.n_template += 1;
    fm_trainer *loose = create(&options);
    for (int step = 0; step < 2; step++) {
        fm_sample_result a = take(tight, &s.features), b = take(loose, &s.features);
        assert_true(fabs(a.loss - b.loss) < 1e-9 * a.loss);
        assert_true(fabs(a.gradient_norm - b.gradient_norm) < 1e-9 * a.gradient_norm);
        fm_trainer_update(tight);
        fm_trainer_update(loose);
    }
    fm_trainer_destroy(tight);
    fm_trainer_destroy(loose);
}

/* The templates of a sample change the loss; those beyond the model's number are not used. */
static void templates_are_read(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = small_options();
    fm_trainer *trainer = create(&options);
    train(trainer, &s.features, 3); /* heads and output layers start as 0 */
    double loss[N_TEMPL + 1];
    for (uint32_t n = 0; n <= N_TEMPL; n++) {
        s.features.n_templ = n;
        loss[n] = take(trainer, &s.features).loss;
    }
    assert_true(loss[0] != loss[1] && loss[1] != loss[2] && loss[2] == loss[3]);
    fm_trainer_destroy(trainer);
}

static void more_cycles_recycle(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = small_options();
    fm_trainer *trainer = create(&options);
    train(trainer, &s.features, 3); /* heads and output layers start as 0 */
    double three = take(trainer, &s.features).loss;
    s.features.n_cycle = 1;
    s.features.cycle[0] = s.features.cycle[N_CYCLE - 1];
    double one = take(trainer, &s.features).loss;
    assert_true(three != one);
    fm_trainer_destroy(trainer);
}

/* Compares the gradient of the whole model, in f64, with a difference along a random direction. The
 * difference is small because thousands of ReLUs have their kinks nearby. */
static void the_whole_gradient_matches_a_difference(void **state) {
    (void)state;
    const double STEP = 1e-8;
    static sample s;
    make_sample(&s);
    for (int order = 0; order < 3; order++) {
        fm_trainer_options options = small_options();
        options.element = FM_ELEMENT_F64;
        options.model.structure.n_iteration =
            1; /* between two iterations, rotations have no gradient */
        options.model.order = (fm_block_order)order;
        fm_trainer *trainer = create(&options);
        double *w = trainer->recording.params.master, *g = trainer->recording.params.gradient;
        int64_t n = trainer->recording.params.n_element;
        s.features.n_cycle = 1; /* earlier cycles have no gradient */
        double *direction = calloc((size_t)n, sizeof *direction);
        assert_non_null(direction);
        for (int32_t p = 0; p < trainer->recording.params.n_param;
             p++) { /* the gaps between blocks stay 0 */
            const fm_param *row = &trainer->recording.params.param[p];
            for (int64_t i = row->offset; i < row->offset + fm_param_count(row); i++) {
                w[i] += 0.1 * op_uniform(50, i);
                direction[i] = op_uniform(51, i);
            }
        }
        take(trainer, &s.features);
        assert(n > 0);
        double *old = calloc((size_t)n, sizeof *old), slope = 0, loss[2];
        memcpy(old, w, (size_t)n * sizeof *old);
        for (int64_t i = 0; i < n; i++)
            slope += g[i] * direction[i];
        for (int side = 0; side < 2; side++) {
            for (int64_t i = 0; i < n; i++)
                w[i] = old[i] + (side ? STEP : -STEP) * direction[i];
            loss[side] = take(trainer, &s.features).loss;
        }
        double difference = (loss[1] - loss[0]) / (2 * STEP);
        assert_true(fabs(slope - difference) < 1e-5 * fmax(1, fabs(difference)));
        free(old);
        free(direction);
        fm_trainer_destroy(trainer);
    }
}

/* Terms that need a known resolution are 0 and give no gradient for a sample without one. */
static void confidence_heads_need_a_resolution(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = small_options();
    for (int known = 0; known < 2; known++) {
        fm_trainer *trainer = create(&options);
        s.features.resolution = known ? 2 : 0;
        fm_sample_result result = take(trainer, &s.features);
        for (int i = 0; i < FM_LOSS_TERMS; i++) {
            bool counts = known || !(fm_loss_terms[i].needs & FM_LOSS_RESOLUTION);
            assert_true(isfinite(result.term[i]) && (result.term[i] > 0) == counts);
        }
        const char *const heads[] = {"plddt.logits.bias", "experimentally_resolved.bias",
                                     "aligned_error.bias"};
        for (int i = 0; i < 3; i++) {
            const fm_param *row = fm_params_find(&trainer->recording.params, heads[i]);
            assert_non_null(row);
            const float *g = (const float *)trainer->recording.params.gradient + row->offset;
            assert_true((g[0] != 0) == known);
        }
        fm_trainer_destroy(trainer);
    }
}

static void the_loss_falls_on_one_sample(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = small_options();
    fm_trainer *trainer = create(&options);
    double first = 0, last = 0;
    enum { STEPS = 60, MEAN = 5 };
    for (int step = 0; step < STEPS; step++) {
        double loss = take(trainer, &s.features).loss;
        assert_true(fm_trainer_update(trainer) == 1e-3);
        first += step < MEAN ? loss / MEAN : 0;
        last += step >= STEPS - MEAN ? loss / MEAN : 0;
    }
    print_message("loss %.3f -> %.3f\n", first, last);
    assert_true(last < 0.5 * first);
    fm_trainer_destroy(trainer);
}

static void bad_samples_are_refused_by_name(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = small_options();
    fm_trainer *trainer = create(&options);
    fm_sample_result result;
    fm_error error;
    s.features.n_res = N_RES + 1;
    assert_int_equal(fm_trainer_add_sample(trainer, &s.features, &result, &error), FM_ERR_LIMIT);
    assert_string_equal(error.message, "the sample has 12 residues, the model takes 1 to 11");
    s.features.n_res = N_RES;
    s.true_msa[1][2][3] = 23;
    assert_int_equal(fm_trainer_add_sample(trainer, &s.features, &result, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "element 25 of true_msa is 23, expected 0 to 22");
    s.true_msa[1][2][3] = 0;
    s.residue_index[1] = INT32_MIN;
    assert_int_equal(fm_trainer_add_sample(trainer, &s.features, &result, &error), FM_ERR_DATA);
    s.residue_index[1] = 1;
    s.size[0][4] = 0;
    assert_int_equal(fm_trainer_add_sample(trainer, &s.features, &result, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "element 4 of cluster_size is 0, expected 1 or more");
    s.size[0][4] = 1;
    s.template_aatype[0][4] = 22;
    assert_int_equal(fm_trainer_add_sample(trainer, &s.features, &result, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "element 4 of template_aatype is 22, expected 0 to 21");
    s.template_aatype[0][4] = 0;
    const fm_param *row =
        fm_params_find(&trainer->recording.params, "evoformer.1.msa_transition.1.bias");
    assert_non_null(row);
    ((float *)trainer->recording.params.master)[row->offset] = NAN;
    row = fm_params_find(&trainer->recording.params, "evoformer.1.msa_transition.2.weight");
    ((float *)trainer->recording.params.master)[row->offset] = NAN;
    assert_int_equal(fm_trainer_add_sample(trainer, &s.features, &result, &error), FM_ERR_DATA);
    assert_non_null(strstr(error.message, "step 0, sample 0, cycle 0: element "));
    assert_non_null(strstr(error.message, "] of msa transition (op transition, node "));
    assert_int_equal(trainer->recording.optimizer.pending, 0);
    fm_trainer_destroy(trainer);
}

/* Steps of two samples, each queued while the one before it is not yet collected, give the same
 * bits as samples that are taken one at a time. */
static void queueing_ahead_changes_no_bit(void **state) {
    (void)state;
    enum { SAMPLES = 6 };
    static sample s;
    make_sample(&s);
    fm_features second = s.features;
    second.slot = 1;
    second.n_cycle = 1;
    const fm_features *features[] = {&s.features, &second};
    fm_trainer_options options = small_options();
    fm_trainer *alone = create(&options), *ahead = create(&options);
    double loss[SAMPLES], norm[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        fm_sample_result result = take(alone, features[i % 2]);
        loss[i] = result.loss;
        norm[i] = result.gradient_norm;
        if (i % 2) fm_trainer_update(alone);
    }
    int collected = 0;
    for (int i = 0; i <= SAMPLES; i++) {
        if (i < SAMPLES) {
            assert_int_equal(fm_trainer_queue(ahead, features[i % 2], i % 2, NULL), FM_OK);
        }
        if (i > 0) {
            fm_sample_result result;
            assert_int_equal(fm_trainer_collect(ahead, &result, NULL), FM_OK);
            assert_true(result.loss == loss[collected] && result.gradient_norm == norm[collected]);
            collected++;
        }
    }
    assert_int_equal(ahead->recording.optimizer.step, SAMPLES / 2);
    assert_int_equal(ahead->recording.optimizer.samples, SAMPLES);
    assert_true(fm_trainer_rate(ahead) == fm_trainer_rate(alone));
    assert_same_parameters(alone, ahead);
    fm_trainer_destroy(alone);
    fm_trainer_destroy(ahead);
}

/* A sample that is queued behind one that is not finite changes nothing, whether it ends a step or
 * not; the trainer continues from where it was. */
static void nothing_runs_after_a_nonfinite_value(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_features bad = s.features;
    static float positions[N_RES][37][3];
    memcpy(positions, s.positions, sizeof positions);
    positions[2][1][0] = INFINITY;
    bad.all_atom_positions = &positions[0][0][0];
    fm_trainer_options options = small_options();
    for (int is_last = 0; is_last < 2; is_last++) {
        fm_trainer *met = create(&options), *spared = create(&options);
        fm_sample_result result;
        fm_error error = {0};
        assert_int_equal(fm_trainer_queue(met, &s.features, true, NULL), FM_OK);
        assert_int_equal(fm_trainer_collect(met, &result, NULL), FM_OK);
        assert_int_equal(fm_trainer_queue(met, &bad, is_last, NULL), FM_OK);
        assert_int_equal(fm_trainer_queue(met, &s.features, true, NULL), FM_OK);
        assert_int_equal(fm_trainer_collect(met, &result, &error), FM_ERR_DATA);
        assert_non_null(
            strstr(error.message,
                   "step 1, sample 0, cycle 2: element 0 of output 0 [1] of backbone fape (op "));
        assert_int_equal(fm_trainer_n_queued(met), 0);
        assert_int_equal(met->recording.optimizer.step, 1);
        assert_int_equal(met->recording.optimizer.samples, 1);
        train(met, &s.features, 1);
        train(spared, &s.features, 2);
        assert_same_parameters(met, spared);
        fm_trainer_destroy(met);
        fm_trainer_destroy(spared);
    }
}

/* A sum that overflows is an error of the step and of no sample, whether or not a sample is queued
 * behind it. The parameters stay unchanged. */
static void an_overflowing_sum_names_its_step(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_features second = s.features;
    second.slot = 1;
    fm_trainer_options options = small_options();
    options.optimizer.clip = FM_CLIP_BATCH;
    for (int is_ahead = 0; is_ahead < 2; is_ahead++) {
        fm_trainer *met = create(&options), *spared = create(&options);
        fm_sample_result result;
        fm_error error = {0};
        train(met, &s.features, 1);
        train(spared, &s.features, 1);
        assert_int_equal(fm_trainer_queue(met, &s.features, false, NULL), FM_OK);
        assert_int_equal(fm_trainer_collect(met, &result, NULL), FM_OK);
        ((float *)met->recording.optimizer.sum)[0] = INFINITY;
        assert_int_equal(fm_trainer_queue(met, &second, true, NULL), FM_OK);
        if (is_ahead) assert_int_equal(fm_trainer_queue(met, &s.features, false, NULL), FM_OK);
        fm_status status = fm_trainer_collect(met, &result, &error);
        if (is_ahead) {
            assert_int_equal(status, FM_OK);
            status = fm_trainer_collect(met, &result, &error);
        }
        assert_int_equal(status, FM_ERR_LIMIT);
        assert_string_equal(error.message,
                            "step 2: the norm of the sum of its gradients is not finite, although "
                            "each gradient is; the update was not made");
        assert_int_equal(fm_trainer_n_queued(met), 0);
        size_t bytes = (size_t)met->recording.params.n_element * sizeof(float);
        assert_memory_equal(met->recording.params.master, spared->recording.params.master, bytes);
        assert_memory_equal(met->recording.params.ema, spared->recording.params.ema, bytes);
        fm_trainer_destroy(met);
        fm_trainer_destroy(spared);
    }
}

static void rates_follow_samples(void **state) {
    (void)state;
    fm_optimizer_options options = fm_optimizer_defaults();
    assert_true(fm_optimizer_rate(&options, 64000) == 0.5e-3);
    assert_true(fm_optimizer_rate(&options, 128000) == 1e-3);
    assert_true(fm_optimizer_rate(&options, 6400000) == 0.95e-3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planned_bytes_are_used_bytes),
        cmocka_unit_test(the_same_seed_gives_the_same_bits),
        cmocka_unit_test(recomputing_changes_no_bit),
        cmocka_unit_test(spoiled_memory_changes_no_bit),
        cmocka_unit_test(a_memory_budget_first_drops_normalised_rows),
        cmocka_unit_test(a_memory_budget_chooses_recomputation),
        cmocka_unit_test(a_budget_that_is_too_small_is_refused),
        cmocka_unit_test(without_a_budget_the_device_reports_its_memory),
        cmocka_unit_test(clipping_is_by_sample_or_by_batch),
        cmocka_unit_test(padding_changes_nothing),
        cmocka_unit_test(templates_are_read),
        cmocka_unit_test(more_cycles_recycle),
        cmocka_unit_test(the_whole_gradient_matches_a_difference),
        cmocka_unit_test(confidence_heads_need_a_resolution),
        cmocka_unit_test(the_loss_falls_on_one_sample),
        cmocka_unit_test(bad_samples_are_refused_by_name),
        cmocka_unit_test(queueing_ahead_changes_no_bit),
        cmocka_unit_test(nothing_runs_after_a_nonfinite_value),
        cmocka_unit_test(an_overflowing_sum_names_its_step),
        cmocka_unit_test(rates_follow_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
