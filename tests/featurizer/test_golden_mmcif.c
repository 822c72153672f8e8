/* test_golden_mmcif.c: structure and sequence features against the reference's, bit for bit: every
 * chain of the golden mmCIF files and of the edge cases, including the reference's refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "featurizer/sequence.h"
#include "tests/featurizer/mmcif_case.h"

static void check_header(const fm_test_manifest *manifest, size_t i, const fm_mmcif *mmcif) {
    const char *text = fm_test_item_text(manifest, i, "header.structure_method");
    if (text) assert_string_equal(mmcif->method, text);
    text = fm_test_item_text(manifest, i, "header.release_date");
    if (text) assert_string_equal(mmcif->release_date, text);
    text = fm_test_item_text(manifest, i, "header.resolution");
    if (text) assert_true(mmcif->resolution == strtod(text, NULL));
}

static void check_missing(const fm_test_manifest *manifest, size_t i, const fm_mmcif_chain *chain) {
    static int64_t missing[FM_LIMIT_N_RES];
    size_t n = fm_test_item_integers(manifest, i, "missing", missing, FM_LIMIT_N_RES), found = 0;
    assert_true(n != SIZE_MAX);
    for (uint32_t res = 0; res < chain->n_res; res++) {
        if (!chain->is_missing[res]) continue;
        assert_true(found < n);
        assert_int_equal(missing[found++], res);
    }
    assert_int_equal(found, n);
}

/* Returns the number of arrays compared. */
static size_t check_item(mmcif_case *test, const fm_test_manifest *manifest, size_t i) {
    const fm_test_item *item = fm_test_manifest_item(manifest, i);
    char relative[512];
    snprintf(relative, sizeof relative, "golden/%s", item->source);
    (void)mmcif_case_read(test, relative); /* one item's file is empty and missing */
    fm_mmcif mmcif;
    fm_error error = {0};
    fm_structure_array arrays[FM_STRUCTURE_N_ARRAY];
    size_t n = 0;
    fm_status status = mmcif_case_parse(test, true, &mmcif, &error);
    const fm_mmcif_chain *chain = NULL;
    if (!status && item->chain) {
        assert_int_equal(fm_mmcif_find_chain(&mmcif, item->chain, &chain, &error), FM_OK);
        assert_string_equal(chain->sequence, fm_test_item_text(manifest, i, "seqres"));
        status = mmcif_case_arrays(test, &mmcif, true, item->chain, arrays, &n, &error);
    }
    if (item->error) {
        if (!status) fprintf(stderr, "%s: expected %s\n", item->source, item->error);
        assert_int_not_equal(status, FM_OK);
        return 0;
    }
    if (status) fprintf(stderr, "%s: %s\n", item->source, error.message);
    assert_int_equal(status, FM_OK);
    assert(chain);
    check_header(manifest, i, &mmcif);
    check_missing(manifest, i, chain);
    assert_int_equal(n, item->n_array);
    for (size_t k = 0; k < n; k++) {
        const fm_structure_array *array = find_array(arrays, n, item->array[k].key);
        assert_non_null(array);
        assert_true(array_agrees(array, &item->array[k]));
    }
    return n;
}

/* Runs all items of a kind and returns their number. */
static size_t check_kind(const char *kind) {
    fm_test_manifest *manifest = fm_test_manifest_open();
    if (!manifest) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    mmcif_case test;
    mmcif_case_init(&test);
    size_t n = 0, n_array = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        if (strcmp(fm_test_manifest_item(manifest, i)->kind, kind) != 0) continue;
        n_array += check_item(&test, manifest, i);
        n++;
    }
    fm_test_golden_line(kind, n_array, n_array);
    fm_arena_fini(&test.arena);
    fm_test_manifest_close(manifest);
    return n;
}

static void every_chain_of_the_golden_files_agrees(void **state) {
    (void)state;
    assert_int_equal(check_kind("mmcif"), 23);
}

static void every_edge_case_agrees(void **state) {
    (void)state;
    assert_int_equal(check_kind("mmcif_edge"), 18);
}

/* The sequences are those of the mmcif items with the same name. */
static void sequence_features_agree(void **state) {
    (void)state;
    fm_test_manifest *manifest = fm_test_manifest_open();
    if (!manifest) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, 64 << 20, NULL), FM_OK);
    size_t n_checked = 0, n_array = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        if (strcmp(item->kind, "sequence_features") != 0) continue;
        const char *name = strrchr(item->file, '/') + 1, *letters = NULL;
        for (size_t k = 0; k < fm_test_manifest_count(manifest); k++) {
            const fm_test_item *other = fm_test_manifest_item(manifest, k);
            if (strcmp(other->kind, "mmcif") != 0 || !other->file) continue;
            if (strcmp(strrchr(other->file, '/') + 1, name) == 0) {
                letters = fm_test_item_text(manifest, k, "seqres");
            }
        }
        assert(letters);
        char domain[64];
        snprintf(domain, sizeof domain, "%.*s", (int)(strlen(name) - 4), name);
        uint32_t n_res = (uint32_t)strlen(letters);
        fm_arena_reset(&arena);
        const fm_part_sequence sequence = {.n_res = n_res, .sequence = letters};
        const fm_part_structure structure = {
            .n_res = n_res, .all_atom_mask = fm_arena_calloc(&arena, n_res, FM_N_ATOM37)};
        fm_structure_array arrays[FM_STRUCTURE_N_ARRAY];
        size_t n;
        assert_int_equal(
            fm_structure_list_arrays(&sequence, &structure, domain, &arena, arrays, &n, NULL),
            FM_OK);
        for (size_t k = 0; k < item->n_array; k++) {
            const fm_structure_array *array = find_array(arrays, n, item->array[k].key);
            assert_non_null(array);
            assert_true(array_agrees(array, &item->array[k]));
        }
        n_array += item->n_array;
        n_checked++;
    }
    fm_test_golden_line("sequence_features", n_array, n_array);
    assert_int_equal(n_checked, 22);
    fm_arena_fini(&arena);
    fm_test_manifest_close(manifest);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chain_of_the_golden_files_agrees),
        cmocka_unit_test(every_edge_case_agrees),
        cmocka_unit_test(sequence_features_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
