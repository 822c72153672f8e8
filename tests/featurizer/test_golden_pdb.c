/* test_golden_pdb.c: the features of a predicted structure against the reference's, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/featurizer/mmcif_case.h"

/* Checks the item's arrays that follow from the structure and returns their number. */
static size_t check_item(mmcif_case *test, const fm_test_item *item) {
    static const fm_pdb_options options = {.compat_openfold = true};
    char relative[512];
    fm_pdb pdb;
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_structure_array arrays[FM_STRUCTURE_N_ARRAY];
    fm_error error;
    size_t n = 0, n_checked = 0;
    snprintf(relative, sizeof relative, "golden/%s", item->source);
    assert_true(mmcif_case_read(test, relative));
    fm_status status = fm_pdb_parse(test->bytes, &options, &test->arena, &pdb, &error);
    if (status) fail_msg("%s: %s", item->source, error.message);
    assert_int_equal(
        fm_structure_from_pdb(&pdb, &options, item->chain, &sequence, &structure, &error), FM_OK);
    assert_int_equal(
        fm_structure_list_arrays(&sequence, &structure, test->id, &test->arena, arrays, &n, &error),
        FM_OK);
    for (size_t k = 0; k < item->n_array; k++) {
        const fm_structure_array *array = find_array(arrays, n, item->array[k].key);
        if (!array) continue;
        assert_true(array_agrees(array, &item->array[k]));
        n_checked++;
    }
    assert_int_equal(n_checked, n);
    return n_checked;
}

static void the_predicted_structure_agrees(void **state) {
    (void)state;
    fm_test_manifest *manifest = fm_test_manifest_open();
    if (!manifest) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    mmcif_case test;
    mmcif_case_init(&test);
    size_t n = 0, n_array = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        const char *end = item->source ? strrchr(item->source, '.') : NULL;
        if (strcmp(item->kind, "chain_features") != 0 || !end || strcmp(end, ".pdb") != 0) continue;
        n_array += check_item(&test, item);
        n++;
    }
    fm_arena_fini(&test.arena);
    fm_test_manifest_close(manifest);
    fm_test_golden_line("chain_features of a predicted structure", n_array, n_array);
    assert_int_equal(n, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_predicted_structure_agrees)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
