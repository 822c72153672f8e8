/* test_complex_draw.c: which complex and record a sample is of, and the sample that is drawn: its
 * crop, its templates and the MSA rows of its cycles. */
#include "featurizer/complex/chooser.h"
#include "featurizer/complex/draw.h"
#include "featurizer/complex/draw_templates.h"
#include "proto/complex_sample.h"
#include "proto/template_date.h"
#include "tests/featurizer/made_complex.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

static fm_arena arena;
static fm_components components;
static size_t mark;
static const made_shape usual = {{40, 30}, {500, 300}, 3};

static int set_up(void **state) {
    (void)state;
    if (fm_arena_init(&arena, (size_t)1 << 30, NULL)) return 1;
    made_components(&arena, &components);
    mark = fm_arena_mark(&arena);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

static fm_plan plan_of(const char *name) {
    fm_plan plan;
    assert_int_equal(fm_plan_find(name, &plan, NULL), FM_OK);
    assert_int_equal(fm_plan_check(&plan, NULL), FM_OK);
    return plan;
}

static made_complex make(const made_shape *shape) {
    made_complex made;
    fm_arena_rewind(&arena, mark);
    made_complex_make(shape, 0, &components, &arena, &made);
    return made;
}

static const fm_complex_row *record_of(const made_complex *made, bool is_interface) {
    for (uint32_t i = 0; i < made->n_row; i++) {
        if (made->rows[i].is_interface == is_interface &&
            made->rows[i].kind[0] == FM_RECORD_PROTEIN &&
            made->rows[i].kind[1] == FM_RECORD_PROTEIN) {
            return &made->rows[i];
        }
    }
    fail_msg("no such record");
    abort();
}

static fm_sample draw(const fm_plan *plan, const made_complex *made, const fm_complex_row *record,
                      uint64_t index, uint32_t n_cycle) {
    fm_sample sample;
    fm_error error = {0};
    const fm_complex_request request = {.plan = plan,
                                        .complex = &made->complex,
                                        .record = record,
                                        .seed = 7,
                                        .index = index,
                                        .place = 5,
                                        .n_cycle = n_cycle};
    if (fm_complex_sample_draw(&request, &arena, &sample, &error)) fail_msg("%s", error.message);
    return sample;
}

static fm_bytes encode(const fm_sample *sample) {
    fm_bytes bytes = {NULL, fm_sample_encoded_bytes(sample)};
    uint8_t *out = fm_arena_alloc(&arena, bytes.size);
    assert_non_null(out);
    fm_sample_encode(sample, out);
    bytes.data = out;
    return bytes;
}

/* -- plans */

static void plans_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *words;
        size_t at;
        uint32_t value;
    } cases[] = {
        {"the plan's crop_size is 4097, expected 1 to 4096", offsetof(fm_plan, crop_size), 4097},
        {"the plan's max_atoms is 0, expected 32 to 11585", offsetof(fm_plan, max_atoms), 0},
        {"the plan's max_msa is 0, expected 1 to 65536", offsetof(fm_plan, max_msa), 0},
        {"the plan's max_planned_msa is 1, expected 2 to 65536", offsetof(fm_plan, max_planned_msa),
         1},
        {"the plan's max_templates is 21, expected 0 to 20", offsetof(fm_plan, max_templates), 21},
        {"the plan's template_pool is 257, expected 0 to 256", offsetof(fm_plan, template_pool),
         257},
        {"the plan's crop weights' sum is 4294967301, expected 1 to 4294967295",
         offsetof(fm_plan, crop_weight), UINT32_MAX - 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_plan plan = plan_of("af3-initial");
        fm_error error = {0};
        memcpy((char *)&plan + cases[i].at, &cases[i].value, sizeof cases[i].value);
        assert_int_equal(fm_plan_check(&plan, &error), FM_ERR_USAGE);
        assert_string_equal(error.message, cases[i].words);
    }
}

/* -- choosing */

static void weights_are_those_of_the_records(void **state) {
    (void)state;
    enum { N_ITEM = 4 };
    fm_weighted_record weighted[256];
    fm_complex_row rows[256];
    fm_error error = {0};
    uint32_t n_row = 0, weights[256];
    static const char *const entries[] = {"1aaa", "1bbb", "1ccc", "1ddd"};
    fm_arena_rewind(&arena, mark);
    for (uint32_t item = 0; item < N_ITEM; item++) {
        made_complex made;
        const made_shape shape = {{12 + item % 2, 20}, {0, 0}, 1 + item};
        made_complex_make(&shape, item, &components, &arena, &made);
        const fm_record_options options = {.compat_protenix = false};
        const fm_complex_record *records;
        uint32_t n;
        made_must(
            fm_complex_records_list(&made.complex.assembly, &options, &arena, &records, &n, &error),
            &error);
        assert_int_equal(n, made.n_row);
        for (uint32_t i = 0; i < n; i++) {
            rows[n_row] = made.rows[i];
            weighted[n_row++] = (fm_weighted_record){.entry = entries[item], .record = &records[i]};
        }
    }
    made_must(fm_complex_rows_weigh(rows, n_row, weights, &arena, &error), &error);
    uint32_t n_drawn = 0, n_ion = 0;
    for (uint32_t i = 0; i < n_row; i++) {
        bool is_drawn = fm_complex_record_is_drawn(weighted[i].record);
        assert_true(is_drawn == (weights[i] > 0));
        n_ion += !is_drawn;
        if (is_drawn) weighted[n_drawn] = weighted[i];
        if (is_drawn) weights[n_drawn++] = weights[i];
    }
    assert_true(n_ion > 0 && n_drawn > 20);
    made_must(fm_complex_records_weigh(weighted, n_drawn, &arena, &error), &error);
    for (uint32_t i = 0; i < n_drawn; i++)
        assert_true(fabs(weighted[i].weight * 536870912.0 - weights[i]) <= 2);
}

/* Three items of the cache, of which the snapshot has the first and the last. */
static void samples_are_of_the_snapshots_items(void **state) {
    (void)state;
    enum { N_DRAW = 4000 };
    fm_complex_row rows[128];
    uint32_t n_row = 0;
    fm_error error = {0};
    fm_arena_rewind(&arena, mark);
    for (uint32_t item = 0; item < 3; item++) {
        made_complex made;
        const made_shape shape = {{20 + item, 25}, {0, 0}, item};
        made_complex_make(&shape, 10 * item, &components, &arena, &made);
        memcpy(rows + n_row, made.rows, made.n_row * sizeof *rows);
        n_row += made.n_row;
    }
    static const uint32_t items[] = {0, 20}, share[] = {900000000, 100000000};
    static const uint8_t of_item[] = {0, 1};
    const fm_chooser_shares shares = {2, share, of_item};
    fm_complex_choice choice = {rows, items, n_row, 2, NULL};
    static const struct {
        const char *plan;
        fm_plan_order order;
        bool has_shares;
        double first; /* expected share of the first item */
    } cases[] = {{"af3-initial", FM_ORDER_WEIGHTED, true, 0.9},
                 {"af3-tiny", FM_ORDER_SHUFFLED, false, 0.5},
                 {"af3-tiny", FM_ORDER_LISTED, false, 0.5}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        fm_plan plan = plan_of(cases[k].plan);
        fm_complex_chooser *chooser;
        uint32_t n_first = 0, n_interface = 0, place;
        plan.order = cases[k].order;
        choice.shares = cases[k].has_shares ? &shares : NULL;
        made_must(fm_complex_chooser_create(&plan, &choice, &chooser, &error), &error);
        for (uint64_t i = 0; i < N_DRAW; i++) {
            const fm_complex_row *row = fm_complex_chooser_record(chooser, 3, i, &place);
            assert_true(place < 2 && row->item == items[place]);
            assert_true(row->kind[0] != FM_RECORD_IONS && row->kind[1] != FM_RECORD_IONS);
            if (cases[k].order == FM_ORDER_LISTED) assert_int_equal(place, i % 2);
            n_first += place == 0;
            n_interface += row->is_interface;
        }
        assert_true(fabs(n_first / (double)N_DRAW - cases[k].first) < 0.03);
        assert_true(n_interface > N_DRAW / 4 && n_interface < N_DRAW);
        fm_complex_chooser_destroy(chooser);
    }
    choice.n_item = 0;
    fm_plan plan = plan_of("af3-tiny");
    fm_complex_chooser *chooser;
    assert_int_equal(fm_complex_chooser_create(&plan, &choice, &chooser, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "no complex of the snapshot has a chain that is drawn");
}

/* -- samples */

/* What is drawn can be sent and expanded, and the header says what it is. */
static void a_sample_travels_and_expands(void **state) {
    (void)state;
    fm_plan plan = plan_of("af3-tiny");
    const made_complex made = make(&usual);
    fm_sample sample = draw(&plan, &made, record_of(&made, true), 11, 2), got;
    fm_bytes bytes = encode(&sample);
    fm_error error = {0};
    made_must(fm_sample_decode(bytes, true, &arena, &got, &error), &error);
    assert_string_equal(got.name, "made");
    assert_int_equal(got.index, 11);
    assert_int_equal(got.chain, 5);
    assert_int_equal(got.n_res_chain, made.complex.assembly.n_token);
    assert_true(got.n_res >= 1 && got.n_res <= plan.crop_size);
    assert_true(got.resolution == 1.5f);
    assert_true(got.n_seq_chain >= 300);
    fm_npz compact, whole;
    uint32_t first[3];
    made_must(fm_complex_sample_list(&got, 2, &arena, &compact, first, &error), &error);
    made_must(fm_complex_sample_expand(&compact, &arena, &whole, NULL, &error), &error);
    const fm_npy *msa = fm_npz_find(&whole, "msa");
    assert_int_equal(msa->shape[0], first[2]);
    assert_int_equal(msa->shape[1], got.n_res);
    assert_true(first[1] >= 1 && first[1] <= plan.max_msa);
    assert_int_equal(fm_npz_find(&whole, "template_distogram")->shape[0], plan.max_templates);
}

static void samples_are_pure(void **state) {
    (void)state;
    fm_plan plan = plan_of("af3-tiny");
    const made_complex made = make(&usual);
    fm_sample one = draw(&plan, &made, record_of(&made, false), 11, 1);
    fm_sample two = draw(&plan, &made, record_of(&made, false), 11, 3);
    fm_sample other = draw(&plan, &made, record_of(&made, false), 12, 1);
    two.n_cycle = 1;
    two.n_tensor = one.n_tensor; /* later cycles follow, so the first is the same */
    fm_bytes a = encode(&one), b = encode(&two), c = encode(&other);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    assert_false(a.size == c.size && memcmp(a.data, c.data, a.size) == 0);
}

/* The number of rows is uniform up to all, and then bounded; no row comes twice. */
static void rows_of_cycles_are_drawn(void **state) {
    (void)state;
    enum { N_DRAW = 200, N_ROW = 50 };
    fm_plan plan = plan_of("af3-initial");
    const made_shape shape = {{30, 20}, {N_ROW, 0}, 0};
    const made_complex made = make(&shape);
    plan.max_msa = 30;
    uint32_t n_most = 0, n_few = 0;
    size_t here = fm_arena_mark(&arena);
    for (uint64_t i = 0; i < N_DRAW; i++) {
        fm_sample s = draw(&plan, &made, record_of(&made, false), i, 1);
        uint32_t n = fm_sample_find(&s, FM_T_COMPLEX_MSA, 0)->shape[0];
        assert_true(n >= 1 && n <= 30);
        n_most += n == 30;
        n_few += n <= 10;
        fm_arena_rewind(&arena, here);
    }
    assert_true(n_most > N_DRAW * 3 / 10 && n_most < N_DRAW * 6 / 10);
    assert_true(n_few > N_DRAW / 10 && n_few < N_DRAW * 3 / 10);
}

/* Interfaces of a kind are drawn alike: the record names A and C, and B touches C, too. */
static void pairs_of_an_interface_are_drawn(void **state) {
    (void)state;
    fm_plan plan = plan_of("af3-initial");
    const made_complex made = make(&usual);
    plan.crop_weight[0] = plan.crop_weight[2] = 0;
    plan.crop_size = 1;
    uint32_t n_of[3] = {0};
    size_t here = fm_arena_mark(&arena);
    for (uint64_t i = 0; i < 120; i++) {
        fm_sample s = draw(&plan, &made, record_of(&made, true), i, 1);
        int32_t asym = *(const int32_t *)fm_sample_find(&s, FM_T_ASYM_ID, FM_SHARED)->data;
        if (asym < 3) n_of[asym]++;
        fm_arena_rewind(&arena, here);
    }
    assert_true(n_of[0] + n_of[1] + n_of[2] == 120);
    assert_true(n_of[0] > 10 && n_of[1] > 10);
}

/* A crop of one token has no whole sugar, so that the residue comes in part. */
static void a_crop_that_cannot_be_whole_is_partial(void **state) {
    (void)state;
    fm_plan plan = plan_of("af3-initial");
    const made_complex made = make(&usual);
    const fm_complex_row *sugar = NULL;
    for (uint32_t i = 0; i < made.n_row && !sugar; i++) {
        if (made.rows[i].kind[0] == FM_RECORD_LIGAND) sugar = &made.rows[i];
    }
    if (!sugar) abort();
    plan.crop_size = 1;
    plan.crop_weight[0] = plan.crop_weight[2] = 0;
    fm_sample s = draw(&plan, &made, sugar, 3, 1);
    assert_int_equal(s.n_res, 1);
    assert_int_equal(*(const int32_t *)fm_sample_find(&s, FM_T_ASYM_ID, FM_SHARED)->data,
                     sugar->asym_id[0]);
}

static void a_record_of_another_complex_is_refused(void **state) {
    (void)state;
    fm_plan plan = plan_of("af3-initial");
    const made_complex made = make(&usual);
    fm_complex_row record = *record_of(&made, false);
    record.asym_id[0] = 77;
    const fm_complex_request request = {
        .plan = &plan, .complex = &made.complex, .record = &record, .n_cycle = 1};
    fm_sample sample;
    fm_error error = {0};
    assert_int_equal(fm_complex_sample_draw(&request, &arena, &sample, &error), FM_ERR_DATA);
    assert_non_null(strstr(error.message, "the record's chain"));
}

static void an_alignment_of_another_length_is_refused(void **state) {
    (void)state;
    fm_plan plan = plan_of("af3-initial");
    const made_complex made = make(&usual);
    fm_complex_entity *entities = (fm_complex_entity *)(uintptr_t)made.complex.entities;
    fm_sequence_rows cut = *entities[0].paired;
    cut.n_col--;
    entities[0].paired = &cut;
    const fm_complex_request request = {
        .plan = &plan, .complex = &made.complex, .record = record_of(&made, false), .n_cycle = 1};
    fm_sample sample;
    fm_error error = {0};
    assert_int_equal(fm_complex_sample_draw(&request, &arena, &sample, &error), FM_ERR_DATA);
    assert_string_equal(
        error.message, "entity 1: an alignment has 500 rows of 39 columns, but it has 40 residues");
}

/* -- templates */

enum { N_HIT = 6, N_LETTER = 20 };

/* Hits released on the 10th of consecutive months from January 2011 on. */
static void make_hits(fm_template_hit hit[N_HIT], char letters[N_HIT][N_LETTER]) {
    static const uint16_t run_query[] = {2}, run_template[] = {0}, run_size[] = {N_LETTER};
    for (uint32_t h = 0; h < N_HIT; h++) {
        memset(letters[h], 'A', N_LETTER);
        letters[h][0] = (char)('A' + h);
        hit[h] = (fm_template_hit){.name = "1tpl_A",
                                   .sum_probs = N_HIT - h,
                                   .aligned_cols = N_LETTER,
                                   .n_letter = N_LETTER,
                                   .n_run = 1,
                                   .run_query = run_query,
                                   .run_template = run_template,
                                   .run_size = run_size,
                                   .letters = letters[h]};
        snprintf(hit[h].release_date, FM_RELEASE_DATE, "2011-%02u-10", h + 1);
    }
}

/* Templates are at least 60 days older than the complex, of 2011-07-13: until 2011-05-14. */
static void templates_are_older_than_the_complex(void **state) {
    (void)state;
    static const struct {
        uint32_t rule, days, most;
        const char *date;
        bool compat;
    } cases[] = {
        {FM_TEMPLATE_DATE_QUERY, 60, 5, "2011-07-13", false},
        {FM_TEMPLATE_DATE_QUERY, 64, 5, "2011-07-13", false},
        {FM_TEMPLATE_DATE_QUERY, 65, 4, "2011-07-13", false},
        {FM_TEMPLATE_DATE_QUERY, 0, 6, "2011-07-13", false},
        {20110310, 60, 3, "2011-07-13", false},
        {20110310, 60, 3, "9999-12-31", false},
        {20120310, 60, 5, "2011-07-13", false},
        {FM_TEMPLATE_DATE_ANY, 60, 6, "2011-07-13", false},
        {FM_TEMPLATE_DATE_QUERY, 60, 0, "9999-12-31", false},
        {FM_TEMPLATE_DATE_QUERY, 60, 6, "9999-12-31", true},
    };
    fm_template_hit hit[N_HIT];
    char letters[N_HIT][N_LETTER];
    make_hits(hit, letters);
    const fm_part_hits hits = {.n_res = 90, .n_hit = N_HIT, .hit = hit};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        fm_plan plan = plan_of("af3-initial");
        fm_assembly assembly = {0};
        uint32_t *chosen, n;
        fm_sample_draw key = {.seed = 1, .index = k};
        const fm_draws draws = fm_draws_philox(&key);
        memcpy(assembly.release_date, cases[k].date, 11);
        plan.max_template_date = cases[k].rule;
        plan.template_days = cases[k].days;
        plan.compat_protenix = cases[k].compat;
        plan.best_templates = true;
        plan.max_templates = 20;
        assert_int_equal(
            fm_draw_hits(&plan, &draws, &assembly, 0, &hits, &arena, &chosen, &n, NULL), FM_OK);
        assert_int_equal(n, cases[k].most);
    }
}

/* The number is uniform from 0 to the usable ones, then bounded. */
static void templates_are_drawn(void **state) {
    (void)state;
    enum { N_DRAW = 700 };
    fm_template_hit hit[N_HIT];
    char letters[N_HIT][N_LETTER];
    make_hits(hit, letters);
    const fm_part_hits hits = {.n_res = 90, .n_hit = N_HIT, .hit = hit};
    fm_plan plan = plan_of("af3-initial");
    plan.max_template_date = FM_TEMPLATE_DATE_ANY;
    fm_assembly assembly = {0};
    uint32_t n_times[5] = {0}, n_hit[N_HIT] = {0};
    for (uint64_t i = 0; i < N_DRAW; i++) {
        uint32_t *chosen, n;
        fm_sample_draw key = {.seed = 1, .index = i};
        const fm_draws draws = fm_draws_philox(&key);
        assert_int_equal(
            fm_draw_hits(&plan, &draws, &assembly, 3, &hits, &arena, &chosen, &n, NULL), FM_OK);
        assert_true(n <= 4);
        n_times[n]++;
        for (uint32_t k = 0; k < n; k++)
            n_hit[chosen[k]]++;
    }
    for (int k = 0; k < 4; k++)
        assert_true(n_times[k] > 60 && n_times[k] < 145);
    assert_true(n_times[4] > 240 && n_times[4] < 360);
    for (int k = 0; k < N_HIT; k++)
        assert_true(n_hit[k] > 220 && n_hit[k] < 380);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_checked),
        cmocka_unit_test(weights_are_those_of_the_records),
        cmocka_unit_test(samples_are_of_the_snapshots_items),
        cmocka_unit_test(a_sample_travels_and_expands),
        cmocka_unit_test(samples_are_pure),
        cmocka_unit_test(rows_of_cycles_are_drawn),
        cmocka_unit_test(pairs_of_an_interface_are_drawn),
        cmocka_unit_test(a_crop_that_cannot_be_whole_is_partial),
        cmocka_unit_test(a_record_of_another_complex_is_refused),
        cmocka_unit_test(an_alignment_of_another_length_is_refused),
        cmocka_unit_test(templates_are_older_than_the_complex),
        cmocka_unit_test(templates_are_drawn),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
