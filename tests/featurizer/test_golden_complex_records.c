/* test_golden_complex_records.c: the chains and interfaces that training draws, and their weights,
 * against the reference's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/complex/record_rows.h"
#include "tests/featurizer/complex_case.h"
#include "tests/testing/manifest.h"

enum { MOST_RECORDS = 1024, N_COLUMN = 12 };

typedef struct all_records {
    complex_case test;
    fm_weighted_record rows[MOST_RECORDS];
    char chains[MOST_RECORDS][2][64];
    uint32_t n;
} all_records;

static all_records all;

/* Returns how many of the two arrays of a structure's index agree. */
static size_t compare_rows(const fm_assembly *a) {
    const fm_record_options options = {.compat_protenix = true};
    fm_array arrays[FM_RECORD_ARRAYS];
    fm_error error = {0};
    size_t n, n_same = 0;
    complex_must(fm_record_rows_list(a, &options, &all.test.arena, arrays, &n, &error), &error);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) {
        const fm_npy *theirs = complex_array(&all.test, arrays[i].key);
        bool same = theirs->count == arrays[i].shape[0] &&
                    memcmp(theirs->data, arrays[i].data, (size_t)theirs->count) == 0;
        if (!same) fprintf(stderr, "%s differs\n", arrays[i].key);
        n_same += same;
    }
    return n_same;
}

/* Lists the records of all structures, and compares them with the structure's index. Structures
 * stay in the arena, since records keep their texts. */
static void list_records(size_t *n_array, size_t *n_same) {
    const fm_record_options options = {.compat_protenix = true};
    for (size_t i = 0; i < N_COMPLEX; i++) {
        fm_error error = {0};
        const fm_complex_record *records = NULL;
        uint32_t n = 0;
        complex_case_load(&all.test, complex_ids[i]);
        const fm_assembly *a = &all.test.assembly;
        complex_must(fm_complex_records_list(a, &options, &all.test.arena, &records, &n, &error),
                     &error);
        *n_array += 2;
        *n_same += compare_rows(a);
        for (uint32_t k = 0; k < n; k++) {
            const fm_complex_record *r = &records[k];
            if (!fm_complex_record_is_drawn(r)) continue;
            for (int side = 0; side < 1 + r->is_interface; side++) {
                snprintf(all.chains[all.n][side], sizeof all.chains[all.n][side], "%s",
                         a->chains[r->chain[side]].id);
            }
            all.rows[all.n++] = (fm_weighted_record){.entry = complex_ids[i], .record = r};
            assert_true(all.n < MOST_RECORDS);
        }
        all.test.mark = fm_arena_mark(&all.test.arena);
    }
}

/* Cuts a line of tab-separated values in place. */
static void split(char *line, char *columns[N_COLUMN]) {
    for (int i = 0; i < N_COLUMN; i++) {
        columns[i] = line ? line : "";
        line = line ? strchr(line, '\t') : NULL;
        if (line) *line++ = '\0';
    }
}

static void compare_weights(char *text) {
    size_t n_same = 0;
    uint32_t n = 0;
    char *line = strchr(text, '\n'); /* behind the names of columns */
    while (line && line[1]) {
        char *end = strchr(line + 1, '\n'), *columns[N_COLUMN];
        if (end) *end = '\0';
        split(line + 1, columns);
        assert_true(n < all.n);
        const fm_weighted_record *row = &all.rows[n];
        bool same = strcmp(columns[0], row->entry) == 0 &&
                    strcmp(columns[2], all.chains[n][0]) == 0 &&
                    strcmp(columns[3], all.chains[n][1]) == 0 &&
                    strcmp(columns[8], row->record->cluster) == 0 &&
                    strtoul(columns[9], NULL, 10) == row->cluster_size &&
                    strtoul(columns[10], NULL, 10) == row->n_member &&
                    strtod(columns[11], NULL) == row->weight;
        if (!same) {
            fprintf(stderr, "%s %s: %u %u %.17g, expected %s %s %s\n", row->entry,
                    row->record->cluster, row->cluster_size, row->n_member, row->weight, columns[9],
                    columns[10], columns[11]);
        }
        n_same += same;
        n++;
        line = end;
    }
    fm_test_golden_line("weights of records", n, n_same);
    assert_int_equal(n, all.n);
    assert_int_equal(n_same, n);
}

static void records_and_weights_agree(void **state) {
    (void)state;
    if (!fm_test_reference()) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    size_t n_array = 0, n_same = 0;
    char path[4096];
    fm_error error = {0};
    fm_bytes bytes = {0};
    complex_case_init(&all.test);
    list_records(&n_array, &n_same);
    fm_test_golden_line("index of assemblies", n_array, n_same);
    assert_int_equal(n_same, n_array);
    complex_must(fm_complex_records_weigh(all.rows, all.n, &all.test.arena, &error), &error);
    fm_test_reference_path(path, sizeof path, "complex/sampling/weights.tsv");
    complex_must(fm_file_read(&all.test.arena, path, FM_LIMIT_INPUT_BYTES, &bytes, &error), &error);
    char *text = complex_alloc(&all.test, bytes.size + 1, 1);
    memcpy(text, bytes.data, bytes.size);
    compare_weights(text);
    fm_arena_fini(&all.test.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(records_and_weights_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
