/* test_reference_tables.c: the tables of the reference data can be read and have the counts that
 * its README states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/testing/manifest.h"
#include "tests/testing/testing.h"

static size_t count_kind(const fm_test_manifest *manifest, const char *kind) {
    size_t count = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++)
        count += strcmp(fm_test_manifest_item(manifest, i)->kind, kind) == 0;
    return count;
}

static void manifest_lists_the_items(void **state) {
    (void)state;
    fm_test_manifest *manifest = fm_test_manifest_open();
    if (!manifest) skip();
    assert_int_equal(count_kind(manifest, "parse_a3m"), 18);
    assert_int_equal(count_kind(manifest, "parse_sto"), 59);
    assert_int_equal(count_kind(manifest, "msa_features"), 18);
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        if (strcmp(item->kind, "mmcif") == 0 && !item->error) {
            assert_non_null(fm_test_item_text(manifest, i, "header.resolution"));
            assert_non_null(fm_test_item_text(manifest, i, "seqres"));
            assert_non_null(item->chain);
        }
    }
    fm_test_manifest_close(manifest);
}

static void digests_keep_rows_apart(void **state) {
    (void)state;
    fm_test_digests digests;
    if (!fm_test_digests_open(&digests, "digests.tsv")) skip();
    assert_int_equal(digests.n_row, 12656);
    size_t n_error = 0;
    for (size_t i = 0; i < digests.n_row; i++) {
        const fm_test_digest *row = &digests.row[i];
        bool is_error = strcmp(row->array.key, "ERROR") == 0;
        assert_int_equal(is_error, row->error_class[0] != 0);
        if (strcmp(row->kind, "parse_a3m") == 0 && !is_error) {
            assert_int_equal(strlen(row->array.sha256), 64);
        }
        n_error += is_error;
    }
    assert_true(n_error > 0);
    fm_test_digests_close(&digests);
}

int main(void) {
    if (!fm_test_reference()) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        return FM_TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifest_lists_the_items),
        cmocka_unit_test(digests_keep_rows_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
