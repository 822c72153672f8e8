/* test_complex_sample_made.c: samples that the featurizer makes of real structures are samples that
 * the trainer reads: whole assemblies and crops of the reference's 30 structures, with and without
 * alignments and templates. */
#include "tests/trainer/common/golden.h"

#include "featurizer/complex/crop.h"
#include "featurizer/complex/sample.h"
#include "tests/featurizer/complex_case.h"
#include "trainer/step/af3/stored.h"

enum { CROP = 48 };

static fm_npz as_archive(complex_case *test, const fm_array *arrays, size_t n) {
    fm_npy *to = complex_alloc(test, n, sizeof *to);
    for (size_t i = 0; i < n; i++) {
        to[i] = (fm_npy){.name = arrays[i].key,
                         .rank = arrays[i].rank,
                         .count = 1,
                         .item_bytes = (size_t)(arrays[i].dtype[2] - '0'),
                         .data = arrays[i].data};
        snprintf(to[i].dtype, sizeof to[i].dtype, "%s", arrays[i].dtype);
        for (size_t k = 0; k < to[i].rank; k++)
            to[i].count *= to[i].shape[k] = arrays[i].shape[k];
    }
    return (fm_npz){n, to};
}

static fm_af3_features make(complex_case *test, const char *id,
                            const fm_complex_entity_inputs *inputs, const uint32_t *tokens,
                            uint32_t n_token) {
    static const fm_complex_sample_options options = {
        .max_row = 64, .n_template = 2, .prefix = "features/"};
    fm_array arrays[FM_COMPLEX_SAMPLE_ARRAYS];
    fm_af3_features features;
    fm_error error = {.message = ""};
    size_t n;
    complex_must(fm_complex_sample_make(&test->assembly, inputs, tokens, n_token, &options,
                                        &test->arena, arrays, &n, &error),
                 &error);
    fm_npz npz = as_archive(test, arrays, n);
    if (fm_stored_sample_check(&npz, &test->arena, &features, &error)) {
        fail_msg("%s: %s", id, error.message);
    }
    return features;
}

/* The first tokens, whole residues. */
static uint32_t first_tokens(const fm_assembly *a, uint32_t *tokens) {
    uint32_t n = 0;
    for (; n < CROP && n < a->n_token; n++)
        tokens[n] = n;
    while (n > 1 && n < a->n_token && a->tokens[n].residue == a->tokens[n - 1].residue)
        n--;
    return n;
}

static void samples_of_structures(void **state) {
    (void)state;
    complex_case test = {0};
    uint32_t n_whole = 0;
    if (!fm_test_reference()) skip();
    complex_case_init(&test);
    for (uint32_t i = 0; i < N_COMPLEX; i++) {
        uint32_t tokens[CROP];
        complex_case_load(&test, complex_ids[i]);
        const fm_assembly *a = &test.assembly;
        uint32_t n = first_tokens(a, tokens);
        fm_af3_features crop = make(&test, complex_ids[i], NULL, tokens, n);
        assert_int_equal(crop.sample.n_token, n);
        assert_int_equal(crop.sample.n_msa, 1);
        for (uint32_t t = 0; t < n; t++)
            assert_true(crop.number[t] < a->n_token);
        if (a->n_atom > 3000) continue;
        fm_af3_features whole = make(&test, complex_ids[i], NULL, NULL, 0);
        assert_int_equal(whole.sample.n_token, a->n_token);
        assert_int_equal(whole.sample.n_atom, a->n_atom);
        n_whole++;
    }
    assert_int_equal(n_whole, 21);
    fm_arena_fini(&test.arena);
}

/* Rows and templates of an entity stand in all its copies. */
static void copies_share_their_inputs(void **state) {
    (void)state;
    complex_case test = {0};
    if (!fm_test_reference()) skip();
    complex_case_init(&test);
    complex_case_load(&test, "1hho");
    const fm_assembly *a = &test.assembly;
    fm_complex_entity_inputs *inputs = complex_alloc(&test, a->n_entity, sizeof *inputs);
    const fm_assembly_entity *entity = &a->entities[a->chains[0].entity];
    uint32_t n_res = entity->n_residue;
    char *text = complex_alloc(&test, 2 * (size_t)n_res + 64, 1);
    char *gaps = complex_alloc(&test, (size_t)n_res + 1, 1);
    memset(gaps, '-', n_res);
    gaps[0] = 'W';
    snprintf(text, 2 * (size_t)n_res + 64, ">q\n%s\n>a\n%s\n", entity->sequence, gaps);
    fm_sequence_rows rows;
    const fm_msa_input input = {"a.a3m", {(const uint8_t *)text, strlen(text)}, FM_MSA_A3M};
    fm_error error = {.message = ""};
    complex_must(fm_sequence_rows_read(&input, 1,
                                       (fm_bytes){(const uint8_t *)entity->sequence, n_res},
                                       FM_POLYMER_PEPTIDE_L, NULL, &test.arena, &rows, &error),
                 &error);
    const fm_mapped_hit hit = {(const uint8_t *)gaps,
                               complex_alloc(&test, n_res, 37 * 3 * sizeof(float)),
                               complex_alloc(&test, n_res, 37)};
    inputs[a->chains[0].entity] = (fm_complex_entity_inputs){&rows, &rows, {1, &hit}};
    fm_af3_features f = make(&test, "1hho", inputs, NULL, 0);
    assert_int_equal(f.sample.n_msa, 2);
    uint32_t n_first = 0;
    for (int64_t t = 0; t < f.sample.n_token; t++) {
        const fm_assembly_residue *residue = &a->residues[a->tokens[t].residue];
        bool is_first =
            a->chains[residue->chain].entity == a->chains[0].entity && residue->number == 1;
        n_first += is_first;
        if (!is_first) continue;
        assert_int_equal(f.sample.msa[f.sample.n_token + t], 17); /* W */
        assert_int_equal(f.sample.template_aatype[t], 17);
    }
    assert_int_equal(n_first, 2);
    fm_arena_fini(&test.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_of_structures),
        cmocka_unit_test(copies_share_their_inputs),
    };
    return cmocka_run_group_tests_name("complex_sample_made", tests, NULL, NULL);
}
