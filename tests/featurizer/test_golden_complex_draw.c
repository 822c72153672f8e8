/* test_golden_complex_draw.c: samples of every record of the reference's structures can be drawn,
 * sent and expanded, and have whole residues within the plan's limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/complex/draw.h"
#include "proto/complex_sample.h"
#include "tests/featurizer/complex_case.h"
#include "tests/featurizer/made_complex.h"

typedef struct counts {
    uint32_t n_sample, n_partial;
} counts;

/* Returns whether the crop has residues in part. */
static bool is_partial(const fm_assembly *a, const fm_sample *sample) {
    const int32_t *asym = fm_sample_find(sample, FM_T_ASYM_ID, FM_SHARED)->data;
    const int32_t *number = fm_sample_find(sample, FM_T_TOKEN_NUMBER, FM_SHARED)->data;
    uint32_t n_whole = 0, last = UINT32_MAX;
    for (uint32_t i = 0; i < sample->n_res; i++) {
        uint32_t c = 0;
        while (a->chains[c].asym_id != asym[i])
            c++;
        uint32_t residue = a->tokens[a->chains[c].first_token + (uint32_t)number[i]].residue;
        if (residue == last) continue;
        last = residue;
        uint32_t end =
            residue + 1 < a->n_residue ? a->residues[residue + 1].first_token : a->n_token;
        n_whole += end - a->residues[residue].first_token;
    }
    return n_whole != sample->n_res;
}

static void check_sample(complex_case *test, const fm_plan *plan, const fm_sample *sample,
                         bool expands) {
    fm_sample got;
    fm_npz compact, whole;
    fm_error error = {0};
    uint32_t first_row[3];
    size_t bytes = fm_sample_encoded_bytes(sample);
    uint8_t *out = fm_arena_alloc(&test->arena, bytes);
    assert_non_null(out);
    fm_sample_encode(sample, out);
    complex_must(fm_sample_decode((fm_bytes){out, bytes}, true, &test->arena, &got, &error),
                 &error);
    assert_true(got.n_res >= 1 && got.n_res <= plan->crop_size);
    assert_true(fm_sample_find(&got, FM_T_REF_POS, FM_SHARED)->shape[0] <= plan->max_atoms);
    complex_must(fm_complex_sample_list(&got, 2, &test->arena, &compact, first_row, &error),
                 &error);
    if (!expands) return;
    complex_must(fm_complex_sample_expand(&compact, &test->arena, &whole, NULL, &error), &error);
}

static void draw_records(complex_case *test, const fm_plan *plan, const fm_complex *complex,
                         bool expands, counts *all) {
    uint32_t n_row;
    const fm_complex_row *rows = made_records(&complex->assembly, 0, &test->arena, &n_row);
    size_t mark = fm_arena_mark(&test->arena);
    for (uint32_t r = 0; r < n_row; r++) {
        if (rows[r].kind[0] == FM_RECORD_IONS || rows[r].kind[1] == FM_RECORD_IONS) continue;
        for (uint64_t i = 0; i < 3; i++) {
            fm_sample sample;
            fm_error error = {0};
            const fm_complex_request request = {.plan = plan,
                                                .complex = complex,
                                                .record = &rows[r],
                                                .seed = 5,
                                                .index = 3 * r + i,
                                                .n_cycle = 2};
            complex_must(fm_complex_sample_draw(&request, &test->arena, &sample, &error), &error);
            check_sample(test, plan, &sample, expands);
            all->n_sample++;
            all->n_partial += is_partial(&complex->assembly, &sample);
            fm_arena_rewind(&test->arena, mark);
        }
    }
}

static void every_record_is_drawn(void **state) {
    (void)state;
    static const char *const names[] = {"af3-initial", "af3-tiny"};
    complex_case test = {0};
    counts all[2] = {{0, 0}, {0, 0}};
    complex_case_init(&test);
    for (uint32_t i = 0; i < N_COMPLEX; i++) {
        complex_case_load(&test, complex_ids[i]);
        const fm_assembly *a = &test.assembly;
        const fm_complex complex = {
            .name = complex_ids[i],
            .assembly = *a,
            .entities = complex_alloc(&test, a->n_entity, sizeof(fm_complex_entity))};
        for (int k = 0; k < 2; k++) {
            fm_plan plan;
            fm_error error = {0};
            complex_must(fm_plan_find(names[k], &plan, &error), &error);
            draw_records(&test, &plan, &complex, k == 1, &all[k]);
        }
    }
    fm_arena_fini(&test.arena);
    assert_true(all[0].n_sample > 600 && all[1].n_sample == all[0].n_sample);
    assert_int_equal(all[0].n_partial + all[1].n_partial, 0);
}

int main(void) {
    if (!fm_test_reference()) {
        print_message("skipped: FM_REFERENCE_DATA is not set\n");
        return FM_TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_record_is_drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
