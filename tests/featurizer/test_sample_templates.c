/* test_sample_templates.c: tests the templates of samples: the choice of hits and the distribution
 * of their number (docs/reference/sampling.md, section 9). Their columns are the crop's, and
 * nothing else in a sample depends on them. */
#include "featurizer/sample/sample.h"
#include "proto/template_date.h"
#include "tests/featurizer/synthetic_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    N_RES = 90,      /* of the chain; the plan's crop has 64 */
    N_TEMPLATE = 64, /* residues of each template's chain */
    N_HIT = 30,
    N_RUN = 2,
    N_LETTER = 50,
    DUPLICATE = 1, /* has hit 0's letters at the same positions */
    UNMAPPED = 2,
    SHORT = 3, /* covers exactly a tenth of the chain */
    N_SAMPLE = 630,
    CA = 1,
};

static const uint16_t run_query[N_RUN] = {3, 40}, run_template[N_RUN] = {7, 30},
                      run_size[N_RUN] = {20, 30};

typedef struct fixture {
    fm_arena arena;
    fm_plan plan;
    fm_synthetic_record chain;
    fm_part_hits hits;
    fm_template_hit hit[N_HIT];
    char letters[N_HIT][N_LETTER];
    uint8_t mask[N_TEMPLATE * FM_N_ATOM37];
    float positions[N_TEMPLATE * FM_N_ATOM37 * 3];
    fm_part_structure structure;
    fm_sample_templates templates;
    uint32_t max_template_date; /* of the plan */
    const char *query_date;     /* of the chain's structure */
    uint8_t is_predicted, has_no_structure;
} fixture;

/* Gives the chain of hit h, with residue r at (1000 h + r, h, 2 r). All sums and means are exact in
 * float32. */
static fm_status load(void *context, const fm_sha256 *identity,
                      const fm_part_structure **ret_structure, fm_error *reterr) {
    fixture *f = context;
    uint8_t h = identity->bytes[0];
    if (h >= N_HIT) return fm_fail(reterr, FM_ERR_CORRUPT, "there is no structure %u", h);
    for (size_t r = 0; r < N_TEMPLATE; r++) {
        float *at = f->positions + (r * FM_N_ATOM37 + CA) * 3;
        at[0] = (float)(1000 * (size_t)h + r);
        at[1] = (float)h;
        at[2] = (float)(2 * r);
        f->mask[r * FM_N_ATOM37 + CA] = 1;
    }
    f->structure = (fm_part_structure){
        .n_res = N_TEMPLATE, .all_atom_positions = f->positions, .all_atom_mask = f->mask};
    *ret_structure = &f->structure;
    return FM_OK;
}

static void make_hits(fixture *f) {
    for (uint32_t h = 0; h < N_HIT; h++) {
        uint32_t like = h == DUPLICATE ? 0 : h;
        for (uint32_t i = 0; i < N_LETTER; i++)
            f->letters[h][i] = fm_restype_letters[(i * 7 + (i % 2 ? like : like / 20)) % 20];
        f->hit[h] = (fm_template_hit){.name = "1tpl_A",
                                      .sum_probs = 100.0 - h,
                                      .aligned_cols = h == SHORT ? N_RES / 10 : N_LETTER,
                                      .n_letter = N_LETTER,
                                      .structure.bytes = {(uint8_t)h},
                                      .n_run = N_RUN,
                                      .run_query = run_query,
                                      .run_template = run_template,
                                      .run_size = run_size,
                                      .letters = f->letters[h]};
    }
    f->hit[UNMAPPED].fault = FM_HIT_NO_FILE;
    f->hit[UNMAPPED].n_run = 0;
    f->hits = (fm_part_hits){.n_res = N_RES, .n_hit = N_HIT, .hit = f->hit};
}

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (!f || fm_arena_init(&f->arena, (size_t)1 << 28, NULL)) return 1;
    make_hits(f);
    f->templates = (fm_sample_templates){load, f};
    f->max_template_date = FM_TEMPLATE_DATE_ANY;
    f->query_date = "";
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    fm_arena_fini(&f->arena);
    free(f);
    return 0;
}

static fm_sample make(fixture *f, const char *plan, uint64_t index, bool with_hits) {
    fm_sample sample;
    fm_arena_reset(&f->arena);
    assert_int_equal(fm_plan_find(plan, &f->plan, NULL), FM_OK);
    f->plan.crop_size = 64;
    f->plan.max_template_date = f->max_template_date;
    fm_synthetic_record_make(&f->chain, 10, N_RES, f->is_predicted, &f->arena);
    snprintf(f->chain.structure.release_date, FM_RELEASE_DATE, "%s", f->query_date);
    if (f->has_no_structure) f->chain.record.structure = NULL;
    if (with_hits) f->chain.record.hits = &f->hits;
    fm_error error;
    if (fm_sample_make(&(fm_sample_request){.plan = &f->plan,
                                            .record = &f->chain.record,
                                            .templates = &f->templates,
                                            .seed = 42,
                                            .index = index,
                                            .n_cycle = 2},
                       &f->arena, &sample, &error)) {
        fail_msg("%s", error.message);
    }
    return sample;
}

/* Finds a column in the runs: which letter it has, and which residue of the template. */
static bool find_mapping(uint32_t residue, uint32_t *ret_letter, uint32_t *ret_template) {
    uint32_t before = 0;
    for (size_t k = 0; k < N_RUN; before += run_size[k++]) {
        if (residue < run_query[k] || residue >= (uint32_t)run_query[k] + run_size[k]) continue;
        *ret_letter = before + residue - run_query[k];
        *ret_template = run_template[k] + residue - run_query[k];
        return true;
    }
    return false;
}

static void check_column(uint32_t residue, const char *letters, uint8_t aatype, uint64_t mask,
                         const float *positions) {
    uint32_t letter = 0, r = 0;
    bool mapped = find_mapping(residue, &letter, &r);
    uint8_t expected = mapped ? fm_restype_from_letter(letters[letter]) : FM_MSA_GAP;
    assert_int_equal(aatype, expected);
    assert_int_equal(mask, mapped ? 1u << CA : 0);
    for (uint32_t k = 0; k < FM_N_ATOM37 * 3; k++) {
        float from_centre = (float)r - 31.5f, wanted = 0.0f;
        if (mapped && k == CA * 3) wanted = from_centre;
        if (mapped && k == CA * 3 + 2) wanted = 2.0f * from_centre;
        assert_true(positions[k] == wanted);
    }
}

/* Checks the templates of a sample, counts its hits in `taken` and returns their number. */
static uint32_t check_templates(const fixture *f, const fm_sample *sample, uint32_t taken[N_HIT]) {
    const fm_tensor_view *aatype = fm_sample_find(sample, FM_T_TEMPLATE_AATYPE, FM_SHARED),
                         *atoms =
                             fm_sample_find(sample, FM_T_TEMPLATE_ALL_ATOM_POSITIONS, FM_SHARED),
                         *mask = fm_sample_find(sample, FM_T_TEMPLATE_ALL_ATOM_MASK, FM_SHARED),
                         *sums = fm_sample_find(sample, FM_T_TEMPLATE_SUM_PROBS, FM_SHARED);
    const int32_t *index = fm_sample_find(sample, FM_T_RESIDUE_INDEX, FM_SHARED)->data;
    if (!aatype) {
        assert_true(!atoms && !mask && !sums);
        return 0;
    }
    uint32_t n_templ = sums->shape[0];
    bool seen[N_HIT] = {false};
    assert_in_range(n_templ, 1, 4);
    for (size_t t = 0; t < n_templ; t++) {
        size_t h = (size_t)(100.0f - ((const float *)sums->data)[t]);
        assert_true(h < N_HIT && !seen[h]);
        seen[h] = true;
        taken[h]++;
        for (size_t i = 0; i < sample->n_res; i++) {
            size_t cell = t * sample->n_res + i;
            check_column((uint32_t)index[i], f->letters[h], ((const uint8_t *)aatype->data)[cell],
                         ((const uint64_t *)mask->data)[cell],
                         (const float *)atoms->data + cell * FM_N_ATOM37 * 3);
        }
    }
    return n_templ;
}

static void take_samples(fixture *f, const char *plan, uint32_t taken[N_HIT], uint32_t counts[5]) {
    memset(taken, 0, N_HIT * sizeof *taken);
    memset(counts, 0, 5 * sizeof *counts);
    for (uint64_t i = 0; i < N_SAMPLE; i++) {
        fm_sample sample = make(f, plan, i, true);
        counts[check_templates(f, &sample, taken)]++;
    }
    assert_int_equal(taken[UNMAPPED], 0);
    assert_int_equal(taken[SHORT], 0);
}

/* The pool of 20 is hits 0 and 4 to 22. 0 to 20 of them are drawn and at most four kept. */
static void the_best_twenty_are_equally_likely(void **state) {
    fixture *f = *state;
    uint32_t taken[N_HIT], counts[5];
    take_samples(f, "tiny", taken, counts);
    for (size_t n = 0; n < 4; n++)
        assert_in_range(counts[n], 12, 52); /* 30 expected */
    assert_in_range(counts[4], 460, 560);   /* 510 expected */
    for (uint32_t h = 0; h < N_HIT; h++) {
        bool in_pool = h == 0 || (h > SHORT && h <= 22);
        assert_in_range(taken[h], in_pool ? 70 : 0, in_pool ? 160 : 0); /* 111 expected */
    }
}

enum { LATE = 5, UNDATED = 6 };

static void set_dates(fixture *f) {
    for (uint32_t h = 0; h < N_HIT; h++)
        snprintf(f->hit[h].release_date, FM_RELEASE_DATE, "%s",
                 h == UNDATED ? ""
                 : h == LATE  ? "2018-05-01"
                              : "2018-04-30");
}

/* Hits released after the plan's date, or at an unknown date, are not used; compat_openfold accepts
 * the latter. Other hits move up into the pool. */
static void later_templates_are_not_used(void **state) {
    fixture *f = *state;
    set_dates(f);
    f->max_template_date = 20180430;
    uint32_t taken[N_HIT], counts[5];
    take_samples(f, "tiny", taken, counts);
    assert_int_equal(taken[LATE] + taken[UNDATED], 0);
    assert_true(taken[LATE - 1] > 0 && taken[23] > 0 && taken[24] > 0 && taken[25] == 0);
    take_samples(f, "openfold-initial", taken, counts);
    assert_true(taken[LATE] == 0 && taken[UNDATED] > 0);
    f->max_template_date = FM_TEMPLATE_DATE_ANY;
    take_samples(f, "tiny", taken, counts);
    assert_true(taken[LATE] > 0 && taken[UNDATED] > 0 && taken[23] == 0);
    make_hits(f);
}

/* Under the rule query the chain's own date is the bound, also with compat_openfold. A predicted
 * structure may use every hit, as with any. A chain without a date or a structure uses none. */
static void the_chains_own_date_is_the_bound(void **state) {
    fixture *f = *state;
    fm_plan plan;
    assert_int_equal(fm_plan_find("openfold-initial", &plan, NULL), FM_OK);
    assert_int_equal(plan.max_template_date, FM_TEMPLATE_DATE_ANY);
    assert_int_equal(fm_plan_find("af2-initial", &plan, NULL), FM_OK);
    assert_int_equal(plan.max_template_date, FM_TEMPLATE_DATE_QUERY);
    f->max_template_date = plan.max_template_date;
    set_dates(f);
    uint32_t taken[N_HIT], counts[5];
    f->query_date = "2018-04-30";
    take_samples(f, "tiny", taken, counts);
    assert_int_equal(taken[LATE] + taken[UNDATED], 0);
    assert_true(taken[LATE - 1] > 0 && taken[24] > 0 && taken[25] == 0);
    take_samples(f, "openfold-initial", taken, counts);
    assert_true(taken[LATE] == 0 && taken[UNDATED] > 0);
    f->query_date = "2018-05-01";
    take_samples(f, "tiny", taken, counts);
    assert_true(taken[LATE] > 0 && taken[UNDATED] == 0);
    f->query_date = "2018-04-29";
    take_samples(f, "tiny", taken, counts);
    assert_int_equal(counts[0], N_SAMPLE);
    f->query_date = "";
    take_samples(f, "tiny", taken, counts);
    assert_int_equal(counts[0], N_SAMPLE);
    f->is_predicted = 1;
    take_samples(f, "tiny", taken, counts);
    assert_true(taken[LATE] > 0 && taken[UNDATED] > 0 && taken[23] == 0);
    f->is_predicted = 0;
    f->has_no_structure = 1;
    take_samples(f, "tiny", taken, counts);
    assert_int_equal(counts[0], N_SAMPLE);
    f->has_no_structure = 0;
    f->max_template_date = FM_TEMPLATE_DATE_ANY;
    make_hits(f);
}

/* OpenFold reads four of the 20 best hits in random order, the unmapped and the duplicate included,
 * and then keeps 0 to 4 of those. */
static void openfold_reads_four(void **state) {
    fixture *f = *state;
    uint32_t taken[N_HIT], counts[5];
    take_samples(f, "openfold-initial", taken, counts);
    for (size_t n = 0; n <= 4; n++)
        assert_in_range(counts[n], 90, 165); /* 126 expected */
    assert_true(taken[0] > 0 && taken[DUPLICATE] > 0 && taken[20] > 0);
    for (uint32_t h = 21; h < N_HIT; h++)
        assert_int_equal(taken[h], 0);
}

/* Templates shift no other draw, and a sample without templates has none of their tensors. */
static void the_rest_is_as_without_hits(void **state) {
    fixture *f = *state;
    static uint8_t first[1 << 20] __attribute__((aligned(64))),
        other[1 << 20] __attribute__((aligned(64)));
    for (uint64_t i = 0; i < 20; i++) {
        fm_sample sample = make(f, "tiny", i, false);
        size_t bytes = fm_sample_encoded_bytes(&sample);
        assert_true(bytes <= sizeof first);
        assert_null(fm_sample_find(&sample, FM_T_TEMPLATE_SUM_PROBS, FM_SHARED));
        fm_sample_encode(&sample, first);
        sample = make(f, "tiny", i, true);
        uint32_t n = 0;
        fm_tensor_view rest[64];
        assert_true(sample.n_tensor <= 64);
        for (uint32_t t = 0; t < sample.n_tensor; t++) {
            uint16_t id = sample.tensor[t].id;
            if (id < FM_T_TEMPLATE_AATYPE || id > FM_T_TEMPLATE_SUM_PROBS) {
                rest[n++] = sample.tensor[t];
            }
        }
        sample.tensor = rest;
        sample.n_tensor = n;
        assert_int_equal(fm_sample_encoded_bytes(&sample), bytes);
        fm_sample_encode(&sample, other);
        assert_memory_equal(first, other, bytes);
    }
}

static void encoded_samples_fit_and_decode_to_the_same(void **state) {
    fixture *f = *state;
    for (uint64_t i = 0; i < 20; i++) {
        fm_sample sample = make(f, "tiny", i, true), again;
        size_t bytes = fm_sample_encoded_bytes(&sample);
        assert_true(bytes <= fm_sample_max_bytes(64, 32, 64, 4, 2));
        uint8_t *out = fm_arena_alloc(&f->arena, bytes);
        assert_non_null(out);
        fm_sample_encode(&sample, out);
        assert_int_equal(fm_sample_decode((fm_bytes){out, bytes}, true, &f->arena, &again, NULL),
                         FM_OK);
        assert_int_equal(again.n_tensor, sample.n_tensor);
    }
}

/* Returns an index whose sample carries templates. */
static uint64_t find_index(fixture *f) {
    for (uint64_t i = 0;; i++) {
        fm_sample sample = make(f, "tiny", i, true);
        if (fm_sample_find(&sample, FM_T_TEMPLATE_AATYPE, FM_SHARED)) return i;
    }
}

static void failures_are_reported(void **state) {
    fixture *f = *state;
    fm_sample sample;
    fm_error error;
    const fm_sample_request without = {.plan = &f->plan,
                                       .record = &f->chain.record,
                                       .seed = 42,
                                       .index = find_index(f),
                                       .n_cycle = 1};
    fm_sample_request with_templates = without;
    with_templates.templates = &f->templates;
    for (uint32_t h = 0; h < N_HIT; h++)
        f->hit[h].structure.bytes[0] = 200;
    assert_int_equal(fm_sample_make(&with_templates, &f->arena, &sample, &error), FM_ERR_CORRUPT);
    assert_string_equal(error.message, "there is no structure 200");
    assert_int_equal(fm_sample_make(&without, &f->arena, &sample, &error), FM_OK);
    assert_null(fm_sample_find(&sample, FM_T_TEMPLATE_AATYPE, FM_SHARED));
    make_hits(f);
    f->hits.n_res = N_RES - 1;
    assert_int_equal(fm_sample_make(&with_templates, &f->arena, &sample, &error), FM_ERR_DATA);
    assert_string_equal(
        error.message,
        "chain 1syn_A: the template hits are for 89 residues, but the sequence has 90");
    make_hits(f);
    static uint8_t memory[2 << 20] __attribute__((aligned(64)));
    fm_status status = FM_ERR_LIMIT;
    for (size_t max = 0; max <= sizeof memory && status; max += 2048) {
        fm_arena small = {.base = memory, .max = max};
        status = fm_sample_make(&with_templates, &small, &sample, NULL);
        assert_true(!status || status == FM_ERR_LIMIT);
    }
    assert_int_equal(status, FM_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_twenty_are_equally_likely),
        cmocka_unit_test(later_templates_are_not_used),
        cmocka_unit_test(the_chains_own_date_is_the_bound),
        cmocka_unit_test(openfold_reads_four),
        cmocka_unit_test(the_rest_is_as_without_hits),
        cmocka_unit_test(encoded_samples_fit_and_decode_to_the_same),
        cmocka_unit_test(failures_are_reported),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
