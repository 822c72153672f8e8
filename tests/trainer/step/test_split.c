/* test_split.c: compares whole steps on several ranks with one rank: DAP, BP and DP, all block
 * orders, with dropout, recycling and sizes that do not divide. Also the bytes that a block sends
 * and the planned memory.
 */
#include "tests/trainer/common/step_sample.h"
#include "tests/trainer/common/team.h"

#include "trainer/app/ranks/ranks.h"
#include "trainer/step/schedule.h"

#include <pthread.h>

static const double SAME = 1e-10; /* relative, in f64: sums have another order */

static rank_team *create_team(const fm_trainer_options *options, int32_t dap, int32_t bp) {
    return team_create(options, &(fm_layout){dap, bp, 1});
}

static fm_trainer_options exact_options(fm_block_order order, fm_recompute_policy recompute) {
    fm_trainer_options options = small_options();
    options.element = FM_ELEMENT_F64;
    options.model.order = order;
    options.model.recompute = recompute;
    return options;
}

static double distance(const double *a, const double *b, int64_t n) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(difference / norm);
}

static void assert_close(double a, double b) {
    assert_true(fabs(a - b) <= SAME * fmax(1, fabs(b)));
}

static void assert_same_result(const fm_sample_result *a, const fm_sample_result *b) {
    assert_close(a->loss, b->loss);
    assert_close(a->gradient_norm, b->gradient_norm);
    for (int i = 0; i < FM_LOSS_TERMS; i++)
        assert_close(a->term[i], b->term[i]);
}

static void assert_all_memory_used(const fm_trainer *trainer) {
    assert_int_equal(fm_tape_used_bytes(&trainer->recording.tape[FM_TRAINER_CYCLE]),
                     trainer->recording.tape[FM_TRAINER_CYCLE].size.arena_bytes);
    assert_int_equal(fm_tape_used_bytes(&trainer->recording.tape[FM_TRAINER_LAST]),
                     trainer->recording.tape[FM_TRAINER_LAST].size.arena_bytes);
}

/* Compares two steps of a sample with three cycles and dropout. */
static void compare_with_one(fm_block_order order, fm_recompute_policy recompute, int32_t dap,
                             int32_t bp) {
    static sample s;
    make_sample(&s);
    fm_trainer_options options = exact_options(order, recompute);
    fm_trainer *one = create(&options);
    rank_team *team = create_team(&options, dap, bp);
    const fm_trainer *first = team_get_first(team);
    fm_error error = {0};
    for (int step = 0; step < 2; step++) {
        fm_sample_result expected = take(one, &s.features), got = {0};
        assert_int_equal(team_queue(team, &s.features, true, &error), FM_OK);
        assert_int_equal(team_collect(team, &got, &error), FM_OK);
        assert_same_result(&got, &expected);
        assert_true(distance(first->recording.params.gradient, one->recording.params.gradient,
                             one->recording.params.n_element) < SAME);
        fm_trainer_update(one);
    }
    assert_true(distance(first->recording.params.master, one->recording.params.master,
                         one->recording.params.n_element) < 1e-7);
    assert_all_memory_used(first);
    team_destroy(team);
    fm_trainer_destroy(one);
}

static void dap_gives_the_same_numbers(void **state) {
    (void)state;
    compare_with_one(FM_ORDER_ORIGINAL, FM_RECOMPUTE_NONE, 2, 1);
    compare_with_one(FM_ORDER_ORIGINAL, FM_RECOMPUTE_BLOCK, 4, 1);
    compare_with_one(FM_ORDER_OUTER_FIRST, FM_RECOMPUTE_HIDDEN, 3, 1);
    compare_with_one(FM_ORDER_PARALLEL, FM_RECOMPUTE_NONE, 4, 1);
    compare_with_one(FM_ORDER_PARALLEL, FM_RECOMPUTE_BLOCK, 2, 1);
    compare_with_one(FM_ORDER_ORIGINAL, FM_RECOMPUTE_NONE, 8, 1); /* more than its templates */
}

/* Losses of several steps. Differences grow tenfold about every four steps, however they began
 * (docs/reference/parallelism.md). In f64 they begin at 1e-16, so an error of a rank would show. */
static void several_steps_give_the_same_losses(void **state) {
    (void)state;
    enum { STEPS = 15, SAMPLES = 4 };
    static sample s[SAMPLES];
    fm_trainer_options options = exact_options(FM_ORDER_ORIGINAL, FM_RECOMPUTE_NONE);
    fm_trainer *one = create(&options);
    rank_team *team = create_team(&options, 8, 1);
    fm_error error = {0};
    for (int i = 0; i < SAMPLES; i++) {
        make_sample(&s[i]);
        s[i].aatype[3] = (uint8_t)(i + 4);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        fm_features *features = &s[step % SAMPLES].features;
        features->n_cycle = 1 + step % 3;
        fm_sample_result expected = take(one, features), got = {0};
        assert_int_equal(team_queue(team, features, true, &error), FM_OK);
        assert_int_equal(team_collect(team, &got, &error), FM_OK);
        assert_true(fabs(got.loss / expected.loss - 1) < 1e-11);
        fm_trainer_update(one);
    }
    team_destroy(team);
    fm_trainer_destroy(one);
}

static void bp_gives_the_same_numbers(void **state) {
    (void)state;
    compare_with_one(FM_ORDER_OUTER_FIRST, FM_RECOMPUTE_NONE, 1, 2);
    compare_with_one(FM_ORDER_OUTER_FIRST, FM_RECOMPUTE_BLOCK, 2, 2);
    compare_with_one(FM_ORDER_PARALLEL, FM_RECOMPUTE_BLOCK, 1, 2);
    compare_with_one(FM_ORDER_PARALLEL, FM_RECOMPUTE_NONE, 2, 2);
}

/* Every rank stops and none waits for another. After the cause is removed the next sample is right.
 */
static void a_nonfinite_value_stops_all_ranks(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options options = exact_options(FM_ORDER_PARALLEL, FM_RECOMPUTE_BLOCK);
    rank_team *team = create_team(&options, 2, 2);
    fm_params *params = &team_get_first(team)->recording.params;
    double *w = params->master;
    w += fm_params_find(params, "evoformer.1.triangle_attention_starting.q.weight")->offset;
    double kept = w[0];
    fm_sample_result result;
    fm_error error = {0};
    w[0] = NAN;
    team_copy_first(team);
    assert_int_equal(team_queue(team, &s.features, true, &error), FM_OK);
    assert_int_equal(team_collect(team, &result, &error), FM_ERR_DATA);
    assert_non_null(strstr(error.message, "is not finite"));
    w[0] = kept;
    team_copy_first(team);
    assert_int_equal(team_queue(team, &s.features, true, &error), FM_OK);
    assert_int_equal(team_collect(team, &result, &error), FM_OK);
    assert_true(isfinite(result.loss));
    team_destroy(team);
}

/* Ranks that are compared with each other make the same exchanges in the same order. Returns the
 * hash of the first rank's. */
static uint64_t compare_schedules(const fm_trainer_options *options, fm_layout layout) {
    uint64_t all[FM_COMM_LOCAL_RANKS], joint[FM_COMM_LOCAL_RANKS];
    fm_local_groups *groups;
    assert_int_equal(fm_local_groups_create(&layout, fm_kernels_cpu(FM_ELEMENT_F32), &groups, NULL),
                     FM_OK);
    for (int32_t r = 0; r < fm_layout_ranks(&layout); r++) {
        fm_trainer_options own = *options;
        own.groups = fm_local_groups_get(groups, r);
        fm_trainer *trainer = create(&own);
        all[r] = fm_schedule_digest(trainer, false);
        joint[r] = fm_schedule_digest(trainer, true);
        fm_trainer_destroy(trainer);
        assert_true(all[r] == all[fm_ranks_compared_with(&layout, r, FM_PAPER_SCHEDULE)]);
        assert_true(joint[r] == joint[fm_ranks_compared_with(&layout, r, FM_PAPER_BRANCHES)]);
    }
    fm_local_groups_destroy(groups);
    return all[0];
}

static void all_ranks_have_one_schedule(void **state) {
    (void)state;
    fm_trainer_options options = small_options();
    options.model.n_block = 1;
    for (fm_block_order order = FM_ORDER_ORIGINAL; order <= FM_ORDER_PARALLEL; order++) {
        for (int policy = FM_RECOMPUTE_NONE; policy <= FM_RECOMPUTE_BLOCK; policy++) {
            uint64_t before = 0;
            options.model.order = order;
            options.model.recompute = (fm_recompute_policy)policy;
            for (int32_t dap = 1; dap <= 8; dap++) {
                uint64_t digest = compare_schedules(&options, (fm_layout){dap, 1, 2});
                assert_true(digest != before); /* parts of another size */
                before = digest;
                if (order == FM_ORDER_ORIGINAL) continue;
                const fm_layout branches = {dap, 2, dap > 4 ? 1 : 2};
                assert_true(compare_schedules(&options, branches) != digest);
            }
        }
    }
}

static void expect_refusal(const fm_trainer_options *options, fm_layout layout, const char *words) {
    fm_error error = {0};
    fm_local_groups *groups = NULL;
    fm_status status = fm_trainer_check_layout(&options->model, &layout, &error);
    if (!status) {
        status = fm_local_groups_create(&layout, fm_kernels_cpu(FM_ELEMENT_F32), &groups, &error);
    }
    assert_int_equal(status, FM_ERR_USAGE);
    assert_non_null(strstr(error.message, words));
}

static void sizes_that_cannot_be_split_are_refused(void **state) {
    (void)state;
    fm_trainer_options options = small_options();
    expect_refusal(&options, (fm_layout){1, 2, 1}, "order = opm_first or parallel");
    options.model.order = FM_ORDER_PARALLEL;
    options.model.recompute = FM_RECOMPUTE_AUTO;
    expect_refusal(&options, (fm_layout){1, 2, 1}, "not auto");
    options.model.recompute = FM_RECOMPUTE_NONE;
    expect_refusal(&options, (fm_layout){1, 3, 1}, "bp = 3");
    expect_refusal(&options, (fm_layout){9, 2, 1}, "18 ranks");
}

/* -- ranks of several samples */

enum { MAX_RANK = 8 };

typedef struct runner {
    fm_trainer *trainer;
    const fm_features *features;
    fm_sample_result result;
    bool update;
} runner;

static void *run_rank(void *argument) {
    runner *r = argument;
    r->result = take(r->trainer, r->features);
    if (r->update) fm_trainer_update(r->trainer);
    return NULL;
}

static void run_all(runner *ranks, int32_t n) {
    pthread_t threads[MAX_RANK];
    for (int32_t r = 0; r < n; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    for (int32_t r = 0; r < n; r++)
        pthread_join(threads[r], NULL);
}

/* Samples of the groups side by side compared with the same ones, one after the other. */
static void compare_groups_with_one(fm_block_order order, fm_layout layout) {
    static sample s[MAX_RANK];
    fm_trainer_options options = exact_options(order, FM_RECOMPUTE_NONE);
    fm_trainer *one = create(&options);
    for (int i = 0; i < layout.dp; i++) {
        make_sample(&s[i]);
        s[i].features.slot = (uint32_t)i;
        s[i].aatype[3] = (uint8_t)(i + 4);
        take(one, &s[i].features);
    }
    fm_trainer_update(one);
    fm_local_groups *groups;
    assert_int_equal(fm_local_groups_create(&layout, one->recording.params.kernels, &groups, NULL),
                     FM_OK);
    runner ranks[MAX_RANK];
    const int32_t n = fm_layout_ranks(&layout);
    for (int32_t r = 0; r < n; r++) {
        options.groups = fm_local_groups_get(groups, r);
        ranks[r] = (runner){.trainer = create(&options),
                            .features = &s[options.groups->place.dp].features,
                            .update = true};
    }
    run_all(ranks, n);
    size_t bytes = (size_t)one->recording.params.n_element * sizeof(double);
    for (int32_t r = 0; r < n; r++) {
        const fm_trainer *rank = ranks[r].trainer;
        assert_memory_equal(rank->recording.params.master,
                            ranks[0].trainer->recording.params.master, bytes);
        assert_true(distance(rank->recording.optimizer.sum, one->recording.optimizer.sum,
                             one->recording.params.n_element) < SAME);
        assert_true(rank->recording.optimizer.samples == (uint64_t)layout.dp &&
                    rank->recording.optimizer.step == 1);
    }
    for (int32_t r = 0; r < n; r++)
        fm_trainer_destroy(ranks[r].trainer);
    fm_local_groups_destroy(groups);
    fm_trainer_destroy(one);
}

static void dp_takes_the_mean_over_groups(void **state) {
    (void)state;
    compare_groups_with_one(FM_ORDER_PARALLEL, (fm_layout){2, 2, 2});
    compare_groups_with_one(FM_ORDER_ORIGINAL, (fm_layout){4, 1, 2});
    compare_groups_with_one(FM_ORDER_OUTER_FIRST, (fm_layout){1, 2, 4});
    compare_groups_with_one(FM_ORDER_ORIGINAL, (fm_layout){1, 1, 8});
}

/* -- sent bytes */

/* A communicator that counts the exchanges that its rank begins, by kind. */
typedef struct counter {
    fm_comm comm;
    fm_comm *inner;
    int64_t messages[FM_EXCHANGE_BROADCAST + 1];
    int64_t elements[FM_EXCHANGE_BROADCAST + 1]; /* sent to other ranks */
    int64_t exchanges;                           /* lists of messages */
} counter;

static fm_ticket count_begin(fm_comm *comm, const fm_message *messages, int32_t n,
                             fm_stream *stream) {
    counter *c = comm->context;
    c->exchanges++;
    for (int32_t i = 0; i < n; i++) {
        c->messages[messages[i].exchange]++;
        c->elements[messages[i].exchange] += messages[i].rows * messages[i].run * (comm->size - 1);
    }
    return c->inner->begin(c->inner, messages, n, stream);
}

static void count_finish(fm_comm *comm, fm_ticket ticket, fm_stream *stream) {
    const counter *c = comm->context;
    c->inner->finish(c->inner, ticket, stream);
}

static fm_comm *count(counter *c, fm_comm *inner) {
    *c = (counter){.comm = *inner, .inner = inner};
    c->comm.context = c;
    c->comm.begin = count_begin;
    c->comm.finish = count_finish;
    return &c->comm;
}

/* Counts what the first rank sends in one step, forward and backward; `bp`: to the other branch. */
static counter sent_with(fm_trainer_options options, fm_layout layout, uint32_t n_cycle, bool bp) {
    static sample s;
    make_sample(&s);
    s.features.n_cycle = n_cycle;
    fm_local_groups *all;
    assert_int_equal(fm_local_groups_create(&layout, fm_kernels_cpu(FM_ELEMENT_F32), &all, NULL),
                     FM_OK);
    runner ranks[MAX_RANK];
    counter counted = {0};
    fm_groups own = *fm_local_groups_get(all, 0);
    if (bp) {
        own.bp = count(&counted, own.bp);
    } else {
        own.dap = count(&counted, own.dap);
    }
    int32_t n = fm_layout_ranks(&layout);
    for (int32_t r = 0; r < n; r++) {
        options.groups = r ? fm_local_groups_get(all, r) : &own;
        ranks[r] = (runner){.trainer = create(&options), .features = &s.features};
    }
    run_all(ranks, n);
    for (int32_t r = 0; r < n; r++)
        fm_trainer_destroy(ranks[r].trainer);
    fm_local_groups_destroy(all);
    return counted;
}

/* The same for one cycle of a model of n_block Evoformer blocks. */
static counter sent(fm_block_order order, fm_recompute_policy recompute, fm_layout layout,
                    int32_t n_block, bool bp) {
    fm_trainer_options options = small_options();
    options.model.order = order;
    options.model.recompute = recompute;
    options.model.n_block = n_block;
    return sent_with(options, layout, 1, bp);
}

/* What one block sends: a model of three blocks less one of two. */
static counter sent_by_block(fm_block_order order, fm_recompute_policy recompute, fm_layout layout,
                             bool bp) {
    counter three = sent(order, recompute, layout, 3, bp);
    counter two = sent(order, recompute, layout, 2, bp);
    for (int i = 0; i <= FM_EXCHANGE_BROADCAST; i++) {
        three.messages[i] -= two.messages[i];
        three.elements[i] -= two.elements[i];
    }
    three.exchanges -= two.exchanges;
    return three;
}

/* docs/reference/parallelism.md: 8 all-to-alls, 6 all-gathers and 6 reduce-scatters per block. */
static void a_block_sends_what_the_page_says(void **state) {
    (void)state;
    const int64_t dap = 4, n = 12, rows = 8; /* 11 residues, 5 clusters and 2 templates, padded */
    const fm_model_config c = small_options().model;
    for (int order = 0; order < 3; order++) {
        counter s = sent_by_block((fm_block_order)order, FM_RECOMPUTE_NONE,
                                  (fm_layout){(int32_t)dap, 1, 1}, false);
        assert_int_equal(s.messages[FM_EXCHANGE_ALL_TO_ALL], 8);
        assert_int_equal(s.messages[FM_EXCHANGE_ALL_GATHER], 6);
        assert_int_equal(s.messages[FM_EXCHANGE_REDUCE_SCATTER], 6);
        assert_int_equal(s.messages[FM_EXCHANGE_ALL_REDUCE], 0);
        /* The bias of ending nodes travels with the change of z where that is awaited at once. */
        assert_int_equal(s.exchanges, order == FM_ORDER_ORIGINAL ? 18 : 20);
        int64_t m = rows * n * c.c_m, z = n * n * c.c_z;
        int64_t gathered = rows * n * c.c_outer + 2 * n * n * c.c_triangle +
                           n * n * (c.n_head_msa + 2 * c.n_head_pair);
        assert_int_equal(s.elements[FM_EXCHANGE_ALL_TO_ALL],
                         2 * (2 * m + 2 * z) * (dap - 1) / (dap * dap));
        assert_int_equal(s.elements[FM_EXCHANGE_ALL_GATHER], gathered * (dap - 1) / dap);
        assert_int_equal(s.elements[FM_EXCHANGE_REDUCE_SCATTER], gathered * (dap - 1) / dap);
    }
}

/* Exchanges of the last cycle, or of another one, of a small model on four ranks. */
static double exchanges_of_cycle(bool is_last, int32_t n_block, int32_t n_extra_block) {
    const fm_layout layout = {4, 1, 1};
    fm_trainer_options options = small_options();
    options.model.n_template = layout.dap;
    options.model.n_block = n_block;
    options.model.n_extra_block = n_extra_block;
    double last = (double)sent_with(options, layout, 1, false).exchanges;
    return is_last ? last : (double)sent_with(options, layout, 2, false).exchanges - last;
}

/* A mean step of 1 to 4 cycles, in the original order, with AlphaFold2's numbers of blocks. Besides
 * these there are a few for the sum of gradients. */
static void a_mean_step_has_few_exchanges(void **state) {
    (void)state;
    const double n_block = 48, n_extra_block = 4, further_cycles = 1.5, most = 1750;
    double sum = 0;
    for (int is_last = 0; is_last < 2; is_last++) {
        double small = exchanges_of_cycle(is_last, 1, 1);
        double block = exchanges_of_cycle(is_last, 2, 1) - small;
        double extra = exchanges_of_cycle(is_last, 1, 2) - small;
        double all = small + block * (n_block - 1) + extra * (n_extra_block - 1);
        assert_true(block == (is_last ? 18 : 9) && extra == block);
        sum += is_last ? all : further_cycles * all;
    }
    assert_true(sum > 1500 && sum <= most);
}

/* One sum forward and one backward, each of this rank's part of z. */
static void branches_meet_once_a_block(void **state) {
    (void)state;
    const fm_model_config c = small_options().model;
    for (int order = FM_ORDER_OUTER_FIRST; order <= FM_ORDER_PARALLEL; order++) {
        counter s =
            sent_by_block((fm_block_order)order, FM_RECOMPUTE_NONE, (fm_layout){1, 2, 1}, true);
        for (int i = 0; i <= FM_EXCHANGE_BROADCAST; i++)
            assert_int_equal(s.messages[i], i == FM_EXCHANGE_ALL_REDUCE ? 2 : 0);
        assert_int_equal(s.elements[FM_EXCHANGE_ALL_REDUCE], 2 * c.n_res * c.n_res * c.c_z);
    }
}

/* Counts the exchanges of a tape that have the node of a sublayer (one with parameters) between
 * their begin and finish. */
static int count_overlapped(const fm_tape *tape) {
    int count = 0;
    for (int32_t b = 0; b < tape->n_node; b++) {
        if (!tape->node[b].begins_forward) continue;
        bool work = false;
        for (int32_t n = b + 1; tape->node[n].n_input == 0 || !tape->node[n].begins_backward ||
                                tape->node[n].input[0] != tape->node[b].output[0];
             n++)
            work |= tape->node[n].n_param > 0;
        count += work;
    }
    return count;
}

/* Out of 10 messages per block, forward. In the original order the change of z to columns is not
 * among them: its exchange also carries the bias, so that is computed before. */
static void exchanges_run_under_work(void **state) {
    (void)state;
    static const int expected[] = {
        [FM_ORDER_ORIGINAL] = 6, [FM_ORDER_OUTER_FIRST] = 8, [FM_ORDER_PARALLEL] = 8};
    for (int order = 0; order < 3; order++) {
        int counts[2];
        for (int i = 0; i < 2; i++) {
            fm_trainer_options options = exact_options((fm_block_order)order, FM_RECOMPUTE_NONE);
            options.model.n_block = 2 + i;
            rank_team *team = create_team(&options, 2, 1);
            counts[i] = count_overlapped(&team_get_first(team)->recording.tape[FM_TRAINER_LAST]);
            team_destroy(team);
        }
        assert_int_equal(counts[1] - counts[0], expected[order]);
    }
}

/* An exchange is not sent again when its result leaves the recomputed block, or when no node in the
 * block reads it again. */
static void recomputed_blocks_repeat_their_exchanges(void **state) {
    (void)state;
    for (int order = 0; order < 3; order++) {
        bool outer_first = order == FM_ORDER_OUTER_FIRST;
        counter s =
            sent_by_block((fm_block_order)order, FM_RECOMPUTE_BLOCK, (fm_layout){2, 1, 1}, false);
        assert_int_equal(s.messages[FM_EXCHANGE_ALL_TO_ALL], outer_first ? 11 : 10);
        assert_int_equal(s.messages[FM_EXCHANGE_ALL_GATHER], 11);
        assert_int_equal(s.messages[FM_EXCHANGE_REDUCE_SCATTER], 7);
        if (order != FM_ORDER_ORIGINAL) {
            s = sent_by_block((fm_block_order)order, FM_RECOMPUTE_BLOCK, (fm_layout){1, 2, 1},
                              true);
            assert_int_equal(s.messages[FM_EXCHANGE_ALL_REDUCE], outer_first ? 3 : 2);
        }
    }
}

static void places_follow_from_the_rank(void **state) {
    (void)state;
    const fm_layout layout = {2, 2, 3};
    for (int32_t r = 0; r < fm_layout_ranks(&layout); r++) {
        fm_rank_place p = fm_layout_place(&layout, r);
        assert_int_equal((p.dp * layout.bp + p.bp) * layout.dap + p.dap, r);
        assert_int_equal(p.sample, r % 4);
        assert_true(p.dap_group < 6 && p.bp_group < 6 && p.dp_group < 4);
        for (int32_t q = 0; q < r; q++) { /* one rank for each place of a group */
            fm_rank_place other = fm_layout_place(&layout, q);
            assert_false(other.dap_group == p.dap_group && other.dap == p.dap);
            assert_false(other.bp_group == p.bp_group && other.bp == p.bp);
            assert_false(other.dp_group == p.dp_group && other.dp == p.dp);
            assert_int_equal(other.dap_group == p.dap_group, other.dp == p.dp && other.bp == p.bp);
            assert_int_equal(other.bp_group == p.bp_group, other.dp == p.dp && other.dap == p.dap);
        }
    }
}

/* Sizes that are rounded up for a device are masked: on the CPU, whose multiple is 1, a table that
 * asks for 16 gives the same losses and norms of the gradient. */
static void a_devices_multiple_changes_no_result(void **state) {
    (void)state;
    fm_model_config odd = small_options().model;
    odd.n_res = 21, odd.n_seq = 5, odd.n_template = 2, odd.n_extra = 17, odd.axis_multiple = 16;
    fm_model_config padded = fm_split_pad(&odd);
    assert_int_equal(padded.n_res, 32);
    assert_int_equal(padded.n_seq + padded.n_template, 16);
    assert_int_equal(padded.n_extra, 32);
    odd.axis_multiple = 0;
    assert_int_equal(fm_split_pad(&odd).n_res, 21);

    static sample s;
    fm_kernels wide = *fm_kernels_cpu(FM_ELEMENT_F64);
    wide.axis_multiple = 16;
    fm_trainer_options options = exact_options(FM_ORDER_ORIGINAL, FM_RECOMPUTE_NONE);
    fm_sample_result result[2];
    make_sample(&s);
    for (int i = 0; i < 2; i++) {
        options.kernels = i ? &wide : fm_kernels_cpu(FM_ELEMENT_F64);
        fm_trainer *trainer = create(&options);
        assert_int_equal(trainer->options.model.n_res, i ? 16 : N_RES);
        result[i] = take(trainer, &s.features);
        fm_trainer_destroy(trainer);
    }
    assert_same_result(&result[0], &result[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dap_gives_the_same_numbers),
        cmocka_unit_test(several_steps_give_the_same_losses),
        cmocka_unit_test(bp_gives_the_same_numbers),
        cmocka_unit_test(a_nonfinite_value_stops_all_ranks),
        cmocka_unit_test(all_ranks_have_one_schedule),
        cmocka_unit_test(sizes_that_cannot_be_split_are_refused),
        cmocka_unit_test(dp_takes_the_mean_over_groups),
        cmocka_unit_test(a_block_sends_what_the_page_says),
        cmocka_unit_test(a_mean_step_has_few_exchanges),
        cmocka_unit_test(branches_meet_once_a_block),
        cmocka_unit_test(exchanges_run_under_work),
        cmocka_unit_test(recomputed_blocks_repeat_their_exchanges),
        cmocka_unit_test(places_follow_from_the_rank),
        cmocka_unit_test(a_devices_multiple_changes_no_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
