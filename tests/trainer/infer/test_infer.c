/* test_infer.c: inference gives what the forward pass of training gives, for any recorded length,
 * within its memory plan. */
#include "tests/trainer/infer/infer_case.h"
#include "tests/testing/local_groups.h"

#include <math.h>
#include <pthread.h>

/* A trainer of exactly this sample's sizes, without dropout: what training's forward pass gives. */
static fm_trainer *exact_trainer(void) {
    fm_trainer_options options = small_options();
    options.model.dropout_msa = options.model.dropout_pair = options.model.structure.dropout = 0;
    fm_trainer *trainer = create(&options);
    shake(&trainer->recording.params);
    return trainer;
}

/* Forward passes with losses on the parameters of such a trainer. */
static fm_forward *exact_forward(const fm_trainer *trained) {
    fm_forward_options options = {.model = trained->options.model,
                                  .kernels = trained->recording.options.kernels,
                                  .params = &trained->recording.params,
                                  .has_losses = true};
    fm_forward *forward;
    memcpy(options.weight, trained->options.weight, sizeof options.weight);
    assert_int_equal(fm_forward_create(&options, &forward, NULL), FM_OK);
    return forward;
}

static fm_sample_result score(fm_forward *forward, const fm_features *features) {
    fm_sample_result result = {0};
    fm_error error = {0};
    if (fm_forward_score(forward, features, &result, &error)) fail_msg("%s", error.message);
    return result;
}

/* Whether all of a tape's planned memory is used. */
static void assert_all_used(const fm_tape *tape) {
    assert_int_equal(fm_tape_used_bytes(tape), tape->size.arena_bytes);
}

/* Exactly recorded, inference has the losses and atoms of a training step to the bit; recorded for
 * 16 residues instead of 11, to rounding. */
static void forward_is_that_of_training(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_trainer *trained = exact_trainer();
    fm_forward *forward = exact_forward(trained);
    const fm_sample_result a = take(trained, &s.features), b = score(forward, &s.features);
    assert_true(b.loss > 0);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    assert_memory_equal(a.term, b.term, sizeof a.term);
    const float *atoms =
        fm_tape_data(&trained->recording.tape[FM_TRAINER_LAST], trained->cycles.atoms);
    assert_memory_equal(
        atoms, fm_tape_data(&forward->recording.tape[FM_FORWARD_RESULTS], forward->cycles.atoms),
        sizeof(float) * N_RES * 42);
    fm_infer_options options = infer_options();
    options.exact = true;
    fm_infer *infer = create_infer(&options);
    const fm_infer_result exact = run_infer(infer, &s.features, arena);
    assert_int_equal(fm_infer_get_recording(infer)->options.model.n_res, N_RES);
    assert_memory_equal(exact.losses.term, a.term, sizeof a.term);
    assert_memory_equal(exact.atoms, atoms, sizeof(float) * N_RES * 42);
    fm_infer_destroy(infer);
    options.exact = false;
    infer = create_infer(&options);
    const fm_infer_result padded = run_infer(infer, &s.features, arena);
    assert_int_equal(fm_infer_get_recording(infer)->options.model.n_res, 16);
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
    fm_forward_destroy(forward);
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
    fm_trainer *trained = exact_trainer();
    fm_infer_result result = run_infer(infer, &s.features, arena);
    take(trained, &s.features);
    const fm_cycles *c = &trained->cycles;
    const fm_state *state_of = &trained->recording.state;
    const float *beta = (const void *)(c->host + state_of->offset[c->pseudo_beta]),
                *mask = (const void *)(c->host + state_of->offset[c->pseudo_beta_mask]);
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
    fm_trainer_destroy(trained);
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

/* Twelve recordings, of chains with more and more extra rows, fit into a known memory. Eight are
 * kept where the free memory is not known. */
static void recordings_are_kept_as_memory_allows(void **state) {
    enum { SHAPES = 12, STEP = 16 };
    static const uint8_t extra[SHAPES * STEP * N_RES];
    static const uint16_t deletions[SHAPES * STEP * N_RES];
    static sample s;
    make_sample(&s);
    s.features.n_cycle = 1;
    s.features.cycle[0].extra_msa = extra;
    s.features.cycle[0].extra_deletion_matrix = deletions;
    fm_infer_options options = infer_options();
    options.predicts = true;
    options.model.n_extra = SHAPES * STEP;
    for (int is_known = 0; is_known < 2; is_known++) {
        options.memory_budget_bytes = is_known ? (int64_t)1 << 34 : 0;
        fm_infer *infer = create_infer(&options);
        for (uint32_t run = 0; run < 2 * SHAPES; run++) {
            s.features.cycle[0].n_extra = (run % SHAPES + 1) * STEP;
            const fm_infer_result r = run_infer(infer, &s.features, *state);
            assert_true(is_known && run >= SHAPES ? r.record_s == 0 : r.record_s > 0);
        }
        fm_infer_destroy(infer);
    }
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
    bytes = planned_bytes(infer, N_RES);
    longer = planned_bytes(infer, 200);
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
    fm_trainer *trained = exact_trainer();
    fm_forward *forward = exact_forward(trained);
    const int64_t values = trained->recording.params.n_element * (int64_t)sizeof(float);
    assert_true(fm_forward_taken(forward).device_bytes + values <
                fm_trainer_memory_bytes(trained) / 3);
    score(forward, &s.features);
    assert_all_used(&forward->recording.tape[FM_FORWARD_RESULTS]);
    fm_forward_destroy(forward);
    fm_trainer_destroy(trained);
}

/* Predictions need no truth and have the atoms and the confidence of a run with losses. */
static void predictions_need_no_truth(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_infer_options options = infer_options();
    fm_infer *scored = create_infer(&options);
    const fm_infer_result expected = run_infer(scored, &s.features, arena);
    options.predicts = true;
    fm_infer *infer = create_infer(&options);
    fm_features f = s.features;
    f.all_atom_positions = NULL;
    f.all_atom_mask = NULL;
    for (int c = 0; c < N_CYCLE; c++)
        f.cycle[c].true_msa = f.cycle[c].bert_mask = NULL;
    const fm_infer_result result = run_infer(infer, &f, arena);
    assert_memory_equal(result.atoms, expected.atoms, sizeof(float) * N_RES * 42);
    assert_memory_equal(result.plddt, expected.plddt, sizeof(float) * N_RES);
    assert_null(result.truth);
    assert_int_equal(result.n_cycle, N_CYCLE);
    assert_true(isnan(result.ca_change) && result.record_s > 0 && result.run_s > 0);
    float *whole, *rows;
    int64_t n_bin;
    assert_int_equal(fm_infer_head(scored, FM_HEAD_ALIGNED_ERROR, arena, &whole, &n_bin, NULL),
                     FM_OK);
    assert_int_equal(fm_infer_aligned_error(infer, 3, 5, arena, &rows, &n_bin, NULL), FM_OK);
    assert_memory_equal(rows, whole + 3 * N_RES * n_bin, sizeof(float) * 5 * N_RES * 64);
    fm_infer_destroy(infer);
    fm_infer_destroy(scored);
}

/* A prediction is recorded with the rows that its alignment has; masked rows would change nothing
 * but the time. */
static void shallow_alignments_take_few_rows(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_infer_options options = infer_options();
    options.predicts = true;
    fm_infer *small = create_infer(&options);
    const fm_infer_result expected = run_infer(small, &s.features, arena);
    options.model.n_seq = 100;
    options.model.n_extra = 200;
    fm_infer *infer = create_infer(&options);
    const fm_infer_result result = run_infer(infer, &s.features, arena);
    const fm_model_config *recorded = &fm_infer_get_recording(infer)->options.model;
    assert_int_equal(recorded->n_seq + recorded->n_template, 16);
    assert_int_equal(recorded->n_extra, 16);
    assert_near(result.atoms, expected.atoms, N_RES * 42, 1e-4);
    options.predicts = false; /* losses keep all rows */
    fm_infer *scored = create_infer(&options);
    run_infer(scored, &s.features, arena);
    assert_int_equal(fm_infer_get_recording(scored)->options.model.n_extra, 200);
    fm_infer_destroy(scored);
    fm_infer_destroy(infer);
    fm_infer_destroy(small);
}

/* Recycling ends when the structure does not change any more, with what that cycle predicts. */
static void recycling_stops_early(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_infer_options options = infer_options();
    options.predicts = true;
    options.recycle_tol = 1e-9;
    fm_infer *infer = create_infer(&options);
    const fm_infer_result all = run_infer(infer, &s.features, arena);
    assert_int_equal(all.n_cycle, N_CYCLE);
    assert_true(all.ca_change > 1e-9);
    fm_features two = s.features;
    two.n_cycle = 2;
    const fm_infer_result second = run_infer(infer, &two, arena);
    fm_infer_destroy(infer);
    options.recycle_tol = second.ca_change * 1.01;
    infer = create_infer(&options);
    const fm_infer_result stopped = run_infer(infer, &s.features, arena);
    assert_int_equal(stopped.n_cycle, 2);
    assert_true(stopped.ca_change == second.ca_change);
    assert_memory_equal(stopped.atoms, second.atoms, sizeof(float) * N_RES * 42);
    double sum = 0; /* the definition, from the atoms of one and of two cycles */
    two.n_cycle = 1;
    const fm_infer_result first = run_infer(infer, &two, arena);
    for (int i = 0; i < N_RES; i++) {
        for (int j = 0; j < N_RES; j++) {
            double d[2] = {0, 0};
            for (int k = 0; k < 3; k++) {
                d[0] += pow((double)first.atoms[42 * i + 3 + k] - first.atoms[42 * j + 3 + k], 2);
                d[1] += pow((double)second.atoms[42 * i + 3 + k] - second.atoms[42 * j + 3 + k], 2);
            }
            sum += pow(sqrt(d[0]) - sqrt(d[1]), 2);
        }
    }
    assert_float_equal(stopped.ca_change, sqrt(sum) / N_RES, 1e-6);
    fm_infer_destroy(infer);
}

/* Sampling: dropout changes the prediction, and its seed decides how. */
static void seeds_decide_samples(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_infer_options options = infer_options();
    options.predicts = true;
    options.dropout = true;
    fm_infer *infer = create_infer(&options);
    const fm_infer_result first = run_infer(infer, &s.features, arena);
    fm_infer_seed(infer, 1);
    const fm_infer_result other = run_infer(infer, &s.features, arena);
    fm_infer_seed(infer, 0);
    const fm_infer_result again = run_infer(infer, &s.features, arena);
    assert_memory_equal(first.atoms, again.atoms, sizeof(float) * N_RES * 42);
    assert_memory_not_equal(first.atoms, other.atoms, sizeof(float) * N_RES * 42);
    fm_infer_destroy(infer);
}

/* -- slabs */

/* A recording of more than one slab along every axis: 48 residues, 40 rows of both MSAs. */
static fm_forward *create_slabs(const fm_params *params, const fm_groups *groups,
                                int64_t chunk_bytes, bool triangles, bool dropout) {
    fm_forward_options options = {.model = small_options().model,
                                  .kernels = params->kernels,
                                  .groups = groups,
                                  .params = params,
                                  .heads = all_heads,
                                  .dropout = dropout,
                                  .chunk_bytes = chunk_bytes,
                                  .chunks_triangles = triangles,
                                  .spoils = true};
    fm_forward *passes = NULL;
    options.model.n_res = 48;
    options.model.n_seq = 38; /* and two template rows */
    options.model.n_extra = 40;
    assert_int_equal(fm_forward_create(&options, &passes, NULL), FM_OK);
    return passes;
}

static void run_slabs(fm_forward *passes, const sample *s) {
    for (uint32_t c = 0; c < N_CYCLE; c++)
        fm_forward_queue_cycle(passes, &s->features, 5, c);
}

static void assert_near_tensors(const fm_forward *a, fm_tensor_ref x, const fm_forward *b,
                                fm_tensor_ref y, double tolerance) {
    const fm_tape *first = &a->recording.tape[FM_FORWARD_RESULTS];
    const fm_tape *second = &b->recording.tape[FM_FORWARD_RESULTS];
    size_t n = (size_t)fm_tensor_local_count(fm_tape_tensor(first, x));
    assert_near(fm_tape_data(first, x), fm_tape_data(second, y), n, tolerance);
}

/* Slabs of 16 rows give what whole arrays give, with the same dropout, in less memory. All that is
 * planned is used. */
static void slabs_give_what_whole_arrays_give(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    const fm_infer_options options = infer_options();
    fm_infer *infer = create_infer(&options);
    for (int dropout = 0; dropout < 2; dropout++) {
        fm_forward *whole = create_slabs(fm_infer_get_params(infer), NULL, 0, false, dropout);
        run_slabs(whole, &s);
        int64_t before = whole->recording.tape[FM_FORWARD_RESULTS].size.arena_bytes;
        for (int triangles = 0; triangles < 2; triangles++) {
            fm_forward *slabs =
                create_slabs(fm_infer_get_params(infer), NULL, 1, triangles, dropout);
            run_slabs(slabs, &s);
            assert_near_tensors(whole, whole->cycles.atoms, slabs, slabs->cycles.atoms, 1e-3);
            for (int h = 0; h < FM_HEADS; h++)
                assert_near_tensors(whole, whole->head[h], slabs, slabs->head[h], 1e-4);
            assert_true(slabs->recording.tape[FM_FORWARD_RESULTS].size.arena_bytes < before);
            assert_all_used(&slabs->recording.tape[FM_FORWARD_RESULTS]);
            before = slabs->recording.tape[FM_FORWARD_RESULTS].size.arena_bytes;
            fm_forward_destroy(slabs);
        }
        fm_forward_destroy(whole);
    }
    fm_infer_destroy(infer);
}

/* The bytes with the smallest slabs that the planner tries, and whole triangle multiplications. */
static int64_t least_without_triangles(const fm_infer_options *options, int64_t n_res) {
    fm_infer_options smallest = *options;
    int64_t bytes;
    smallest.chunk_bytes = (int64_t)32 << 20;
    fm_infer *infer = create_infer(&smallest);
    bytes = planned_bytes(infer, n_res);
    fm_infer_destroy(infer);
    return bytes;
}

/* Triangle multiplications are whole if any plan with whole ones fits. */
static void triangles_in_slabs_are_the_last_choice(void **state) {
    (void)state;
    enum { LONG = 2000 };
    fm_infer_options options = infer_options();
    options.predicts = true;
    fm_infer_need need;
    fm_error error;
    options.memory_budget_bytes = least_without_triangles(&options, LONG);
    fm_infer *infer = create_infer(&options);
    assert_int_equal(fm_infer_find_need(infer, LONG, &need, &error), FM_OK);
    assert_true(!need.chunks_triangles);
    fm_infer_destroy(infer);
    options.memory_budget_bytes = need.bytes - 1; /* whole arrays may take less than slabs */
    infer = create_infer(&options);
    assert_int_equal(fm_infer_find_need(infer, LONG, &need, &error), FM_OK);
    assert_true(need.chunks_triangles && need.bytes <= options.memory_budget_bytes);
    fm_infer_destroy(infer);
}

/* Where whole arrays do not fit, the planner takes slabs. Where nothing fits, it says what would.
 */
static void slabs_follow_from_the_memory(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_infer_options options = infer_options();
    options.predicts = true;
    options.model.n_extra = 2048;
    fm_infer_need need;
    fm_error error;
    fm_infer *infer = create_infer(&options);
    int64_t whole;
    whole = planned_bytes(infer, 300);
    fm_infer_destroy(infer);
    options.memory_budget_bytes = whole - 1;
    infer = create_infer(&options);
    assert_int_equal(fm_infer_find_need(infer, 300, &need, &error), FM_OK);
    assert_true(need.chunk_bytes > 0 && need.bytes < whole && need.n_res == 304);
    assert_int_equal(need.available_bytes, whole - 1);
    run_infer(infer, &s.features, arena);
    fm_infer_destroy(infer);
    options.memory_budget_bytes = need.bytes / 2;
    infer = create_infer(&options);
    assert_int_equal(fm_infer_find_need(infer, 300, &need, &error), FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "a chain of 300 residues needs"));
    assert_non_null(strstr(error.message, "it fits with 1,024 extra MSA rows"));
    fm_infer_destroy(infer);
}

/* -- ranks */

enum { MOST_RANK = 4 };

typedef struct rank {
    fm_infer *infer;
    const fm_features *features;
    fm_arena arena;
    fm_infer_result result;
    float *errors; /* logits of the aligned errors */
} rank;

static void *run_rank(void *argument) {
    rank *r = argument;
    int64_t n_bin;
    r->result = run_infer(r->infer, r->features, &r->arena);
    assert_int_equal(
        fm_infer_head(r->infer, FM_HEAD_ALIGNED_ERROR, &r->arena, &r->errors, &n_bin, NULL), FM_OK);
    return NULL;
}

/* Predicts with each chain split over n ranks, which are threads, and compares with one rank. */
static void run_ranks(const fm_infer_options *one, int n, const sample *s, rank *ranks) {
    const fm_layout layout = {n, 1, 1};
    fm_local_groups *groups;
    pthread_t threads[MOST_RANK];
    assert_int_equal(fm_local_groups_create(&layout, fm_kernels_cpu(FM_ELEMENT_F32), &groups, NULL),
                     FM_OK);
    for (int r = 0; r < n; r++) {
        fm_infer_options options = *one;
        options.groups = fm_local_groups_get(groups, r);
        ranks[r] = (rank){.infer = create_infer(&options), .features = &s->features};
        assert_int_equal(fm_arena_init(&ranks[r].arena, (size_t)1 << 30, NULL), FM_OK);
    }
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    for (int r = 0; r < n; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < n; r++) { /* what is planned for a rank is what it takes */
        const fm_forward *t = fm_infer_get_recording(ranks[r].infer);
        int64_t bytes;
        assert_all_used(&t->recording.tape[FM_FORWARD_RESULTS]);
        bytes = planned_bytes(ranks[r].infer, N_RES);
        assert_int_equal(bytes, fm_infer_get_params(ranks[r].infer)->memory_bytes +
                                    fm_forward_taken(t).device_bytes);
        fm_infer_destroy(ranks[r].infer);
    }
    fm_local_groups_destroy(groups);
}

/* What ranks with GPUs share with each other is memory that exists. */
static fm_status share(const fm_groups *groups, void *memory, size_t bytes, fm_error *reterr) {
    (void)groups;
    if (memory && bytes) return FM_OK;
    return fm_fail(reterr, FM_ERR_UNSUPPORTED, "%zu bytes cannot be shared", bytes);
}

static void ranks_share_what_they_have(void **state) {
    const fm_layout layout = {1, 1, 1};
    fm_local_groups *groups;
    static sample s;
    make_sample(&s);
    assert_int_equal(fm_local_groups_create(&layout, fm_kernels_cpu(FM_ELEMENT_F32), &groups, NULL),
                     FM_OK);
    fm_groups sharing = *fm_local_groups_get(groups, 0);
    sharing.share = share;
    fm_infer_options options = infer_options();
    options.predicts = true;
    options.groups = &sharing;
    fm_infer *infer = create_infer(&options);
    run_infer(infer, &s.features, *state);
    fm_infer_destroy(infer);
    fm_local_groups_destroy(groups);
}

static void release_ranks(rank *ranks, int n) {
    for (int r = 0; r < n; r++)
        fm_arena_fini(&ranks[r].arena);
}

/* A chain that is split over ranks has the structure and the confidences of one rank to rounding.
 * All ranks have the same bits, and so has a second run. With slabs the same holds. */
static void ranks_give_what_one_rank_gives(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_infer_options options = infer_options();
    options.predicts = options.spoils = true;
    options.recycle_tol = 1e-9;
    fm_infer *infer = create_infer(&options);
    float *errors;
    int64_t n_bin;
    const fm_infer_result one = run_infer(infer, &s.features, arena);
    assert_int_equal(fm_infer_head(infer, FM_HEAD_ALIGNED_ERROR, arena, &errors, &n_bin, NULL),
                     FM_OK);
    for (int n = 2; n <= MOST_RANK; n += 2) {
        for (int slabs = 0; slabs < 2; slabs++) {
            rank first[MOST_RANK], again[MOST_RANK];
            options.chunk_bytes = slabs;
            run_ranks(&options, n, &s, first);
            run_ranks(&options, n, &s, again);
            assert_near(first[0].result.atoms, one.atoms, N_RES * 42, 1e-3);
            assert_near(first[0].result.plddt, one.plddt, N_RES, 1e-2);
            assert_near(first[0].errors, errors, (size_t)(N_RES * N_RES * n_bin), 1e-4);
            for (int r = 0; r < n; r++) {
                assert_int_equal(first[r].result.n_cycle, one.n_cycle);
                assert_memory_equal(first[0].result.atoms, again[r].result.atoms,
                                    sizeof(float) * N_RES * 42);
                assert_memory_equal(first[0].errors, again[r].errors,
                                    sizeof(float) * (size_t)(N_RES * N_RES * n_bin));
            }
            release_ranks(first, n);
            release_ranks(again, n);
        }
    }
    fm_infer_destroy(infer);
}

typedef struct slab_rank {
    fm_forward *passes;
    const sample *sample;
} slab_rank;

static void *run_slab_rank(void *argument) {
    const slab_rank *r = argument;
    run_slabs(r->passes, r->sample);
    return NULL;
}

/* Slabs of the parts of two ranks, with dropout, give what whole arrays of one rank give. */
static void slabs_of_parts_give_what_whole_arrays_give(void **state) {
    (void)state;
    enum { N_RANK = 2 };
    static sample s;
    make_sample(&s);
    const fm_infer_options options = infer_options();
    const fm_layout layout = {N_RANK, 1, 1};
    fm_infer *infer = create_infer(&options);
    fm_forward *whole = create_slabs(fm_infer_get_params(infer), NULL, 0, false, true);
    fm_local_groups *groups;
    assert_int_equal(
        fm_local_groups_create(&layout, whole->recording.params.kernels, &groups, NULL), FM_OK);
    run_slabs(whole, &s);
    slab_rank ranks[N_RANK];
    pthread_t threads[N_RANK];
    for (int r = 0; r < N_RANK; r++) {
        ranks[r] = (slab_rank){create_slabs(fm_infer_get_params(infer),
                                            fm_local_groups_get(groups, r), 1, false, true),
                               &s};
    }
    for (int r = 0; r < N_RANK; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run_slab_rank, &ranks[r]), 0);
    for (int r = 0; r < N_RANK; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < N_RANK; r++) {
        fm_forward *part = ranks[r].passes;
        assert_near_tensors(whole, whole->cycles.atoms, part, part->cycles.atoms, 1e-3);
        for (int h = 0; h < FM_HEADS; h++)
            assert_near_tensors(whole, whole->head[h], part, part->head[h], 1e-4);
        assert_all_used(&part->recording.tape[FM_FORWARD_RESULTS]);
        fm_forward_destroy(part);
    }
    fm_local_groups_destroy(groups);
    fm_forward_destroy(whole);
    fm_infer_destroy(infer);
}

/* Parts of a long chain need less memory, so a longer chain fits. */
static void ranks_take_less_memory_each(void **state) {
    (void)state;
    const fm_layout layout = {4, 1, 1};
    fm_local_groups *groups;
    assert_int_equal(fm_local_groups_create(&layout, fm_kernels_cpu(FM_ELEMENT_F32), &groups, NULL),
                     FM_OK);
    fm_infer_options options = infer_options();
    options.predicts = true;
    options.model.n_extra = 512;
    fm_infer *one = create_infer(&options);
    options.groups = fm_local_groups_get(groups, 1);
    fm_infer *part = create_infer(&options);
    int64_t bytes, bytes_of_part;
    bytes = planned_bytes(one, 256);
    bytes_of_part = planned_bytes(part, 256);
    print_message("%.1f MiB on one rank, %.1f on each of four\n", (double)bytes / (1 << 20),
                  (double)bytes_of_part / (1 << 20));
    assert_true(bytes_of_part < bytes * 2 / 3);
    fm_infer_destroy(part);
    fm_infer_destroy(one);
    fm_local_groups_destroy(groups);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_that_of_training),
        cmocka_unit_test(heads_are_without_padding),
        cmocka_unit_test(the_distogram_explains_its_loss),
        cmocka_unit_test(recordings_are_used_again),
        cmocka_unit_test(recordings_are_kept_as_memory_allows),
        cmocka_unit_test(lengths_are_rounded_little),
        cmocka_unit_test(memory_is_planned),
        cmocka_unit_test(nothing_of_training_is_kept),
        cmocka_unit_test(predictions_need_no_truth),
        cmocka_unit_test(shallow_alignments_take_few_rows),
        cmocka_unit_test(recycling_stops_early),
        cmocka_unit_test(seeds_decide_samples),
        cmocka_unit_test(slabs_give_what_whole_arrays_give),
        cmocka_unit_test(triangles_in_slabs_are_the_last_choice),
        cmocka_unit_test(slabs_follow_from_the_memory),
        cmocka_unit_test(ranks_share_what_they_have),
        cmocka_unit_test(ranks_give_what_one_rank_gives),
        cmocka_unit_test(slabs_of_parts_give_what_whole_arrays_give),
        cmocka_unit_test(ranks_take_less_memory_each),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
