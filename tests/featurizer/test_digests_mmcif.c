/* test_digests_mmcif.c: every mmCIF file of the development data against the reference's hashes of
 * its results: chains, header, features and missing residues, and its refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/featurizer/mmcif_case.h"

/* Files whose results differ from the reference's on purpose, and why. */
static const struct {
    const char *path, *cause;
} known[] = {
    {NULL, NULL},
};

typedef struct tally {
    const char *kind;
    size_t n_agree, n_disagree, n_known, n_absent;
} tally;

static tally tallies[] = {{"mmcif_file", 0, 0, 0, 0},
                          {"mmcif", 0, 0, 0, 0},
                          {"mmcif_missing", 0, 0, 0, 0},
                          {"mmcif_norelease", 0, 0, 0, 0}};

static tally *find_tally(const char *kind) {
    for (size_t i = 0; i < sizeof tallies / sizeof tallies[0]; i++) {
        if (strcmp(tallies[i].kind, kind) == 0) return &tallies[i];
    }
    return NULL;
}

/* The open file, parsed once in each reading. */
typedef struct open_file {
    mmcif_case test;
    const char *path;
    fm_mmcif compat, fixed;
    fm_status compat_status, fixed_status;
    fm_error compat_error, fixed_error;
    size_t mark;
    bool is_there;
} open_file;

/* Opens a file and returns whether it exists: a few files of the table are not part of the data. */
static bool open_path(open_file *file, const char *path) {
    char relative[1024];
    if (file->path && strcmp(file->path, path) == 0) {
        fm_arena_rewind(&file->test.arena, file->mark);
        return file->is_there;
    }
    snprintf(relative, sizeof relative, "dev/%s", path);
    file->is_there = mmcif_case_read(&file->test, relative);
    file->path = path;
    file->compat_status = mmcif_case_parse(&file->test, true, &file->compat, &file->compat_error);
    file->fixed_status = mmcif_case_parse(&file->test, false, &file->fixed, &file->fixed_error);
    file->mark = fm_arena_mark(&file->test.arena);
    return file->is_there;
}

static bool check_file_row(open_file *file, const fm_test_digest *row) {
    const fm_test_array *expected = &row->array;
    if (strcmp(expected->key, "ERROR") == 0) return file->compat_status;
    if (file->compat_status) return false;
    const fm_mmcif *mmcif = &file->compat;
    size_t one = 1, size;
    if (strcmp(expected->key, "resolution") == 0) {
        return fm_test_array_agrees(expected, &one, 1, &mmcif->resolution, 8);
    }
    if (strcmp(expected->key, "structure_method") == 0) {
        size = strlen(mmcif->method);
        return fm_test_array_agrees(expected, &size, 1, mmcif->method, size);
    }
    if (strcmp(expected->key, "release_date") == 0) {
        size = strlen(mmcif->release_date);
        return fm_test_array_agrees(expected, &size, 1, mmcif->release_date, size);
    }
    assert_string_equal(expected->key, "chains");
    static char joined[1 << 20];
    size = 0;
    for (uint32_t i = 0; i < mmcif->n_chain; i++) {
        size += (size_t)snprintf(joined + size, sizeof joined - size, "%s%s", i ? "\n" : "",
                                 mmcif->chains[i].author_id);
        assert_true(size < sizeof joined);
    }
    return expected->rank == 1 && size == expected->shape[0]
               ? fm_test_array_agrees(expected, &size, 1, joined, size)
               : fm_test_array_agrees(expected, (size_t[]){mmcif->n_chain}, 1, joined, size);
}

static bool check_chain_row(open_file *file, const fm_test_digest *row, bool compat) {
    fm_status status = compat ? file->compat_status : file->fixed_status;
    const fm_mmcif *mmcif = compat ? &file->compat : &file->fixed;
    fm_structure_array arrays[FM_STRUCTURE_N_ARRAY];
    size_t n = 0;
    fm_error error = compat ? file->compat_error : file->fixed_error;
    if (!status) {
        status = mmcif_case_arrays(&file->test, mmcif, compat, row->chain, arrays, &n, &error);
    }
    if (strcmp(row->array.key, "ERROR") == 0) return status;
    if (status) {
        fprintf(stderr, "%s %s: %s\n", row->path, row->chain, error.message);
        return false;
    }
    const fm_structure_array *array = find_array(arrays, n, row->array.key);
    return array && array_agrees(array, &row->array);
}

static bool check_missing_row(open_file *file, const fm_test_digest *row) {
    static int32_t missing[FM_LIMIT_N_RES];
    const fm_mmcif_chain *chain;
    if (file->compat_status || fm_mmcif_find_chain(&file->compat, row->chain, &chain, NULL)) {
        return false;
    }
    size_t n = 0;
    for (uint32_t res = 0; res < chain->n_res; res++) {
        if (chain->is_missing[res]) missing[n++] = (int32_t)res;
    }
    return fm_test_array_agrees(&row->array, &n, 1, missing, n * sizeof missing[0]);
}

static bool check_row(open_file *file, const fm_test_digest *row) {
    if (strcmp(row->kind, "mmcif_file") == 0) return check_file_row(file, row);
    if (strcmp(row->kind, "mmcif_missing") == 0) return check_missing_row(file, row);
    return check_chain_row(file, row, strcmp(row->kind, "mmcif") == 0);
}

static bool is_known(const char *path) {
    for (size_t i = 0; known[i].path; i++) {
        if (strcmp(known[i].path, path) == 0) return true;
    }
    return false;
}

static void check_table(const char *name) {
    fm_test_digests digests;
    if (!fm_test_digests_open(&digests, name)) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    open_file *file = test_calloc(1, sizeof *file);
    mmcif_case_init(&file->test);
    size_t n_unexpected = 0;
    for (size_t i = 0; i < digests.n_row; i++) {
        const fm_test_digest *row = &digests.row[i];
        tally *count = find_tally(row->kind);
        if (!count) continue;
        if (!open_path(file, row->path)) {
            count->n_absent++;
            continue;
        }
        if (check_row(file, row)) {
            count->n_agree++;
            continue;
        }
        count->n_disagree++;
        if (is_known(row->path)) {
            count->n_known++;
            continue;
        }
        n_unexpected++;
        fprintf(stderr, "disagrees: %s %s chain '%s' %s %s %s; ours: %s\n", row->kind, row->path,
                row->chain, row->array.key, row->error_class, row->error,
                file->compat_status ? file->compat_error.message : "read");
    }
    for (size_t i = 0; i < sizeof tallies / sizeof tallies[0]; i++) {
        tally *count = &tallies[i];
        printf("digests: %zu agree, %zu disagree (%zu of known cause): %s in %s", count->n_agree,
               count->n_disagree, count->n_known, count->kind, name);
        if (count->n_absent) printf("; %zu of files that are not there", count->n_absent);
        printf("\n");
        *count = (tally){.kind = count->kind};
    }
    fm_arena_fini(&file->test.arena);
    test_free(file);
    fm_test_digests_close(&digests);
    assert_int_equal(n_unexpected, 0);
}

/* Entries for which the default reading differs from the reference, and why. */
static const struct {
    const char *path, *cause;
} differing[] = {
    {"mmcif/1cbn.cif", "microheterogeneity: the reference shifts what follows"},
    {NULL, NULL},
};

static bool may_differ(const char *path) {
    for (size_t i = 0; differing[i].path; i++) {
        if (strcmp(differing[i].path, path) == 0) return true;
    }
    return false;
}

/* Both readings are equal where neither the entry nor the reference is wrong. */
static void the_default_reading_differs_where_it_should(void **state) {
    (void)state;
    fm_test_digests digests;
    if (!fm_test_digests_open(&digests, "digests.tsv")) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    open_file *file = test_calloc(1, sizeof *file);
    mmcif_case_init(&file->test);
    size_t n_same = 0, n_other = 0, n_unexpected = 0;
    for (size_t i = 0; i < digests.n_row; i++) {
        const fm_test_digest *row = &digests.row[i];
        bool is_array = strcmp(row->kind, "mmcif") == 0 && strcmp(row->array.key, "ERROR") != 0;
        if (!is_array || !open_path(file, row->path)) continue;
        bool same = check_chain_row(file, row, false);
        n_same += same;
        n_other += !same;
        if (same || may_differ(row->path)) continue;
        fprintf(stderr, "differs: %s %s %s\n", row->path, row->chain, row->array.key);
        n_unexpected++;
    }
    printf("default reading: %zu arrays as the reference's, %zu others\n", n_same, n_other);
    fm_arena_fini(&file->test.arena);
    test_free(file);
    fm_test_digests_close(&digests);
    assert_int_equal(n_unexpected, 0);
}

static void pdb_entries_agree(void **state) {
    (void)state;
    check_table("digests.tsv");
}

static void other_and_bad_files_agree(void **state) {
    (void)state;
    check_table("digests_extra.tsv");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pdb_entries_agree),
        cmocka_unit_test(the_default_reading_differs_where_it_should),
        cmocka_unit_test(other_and_bad_files_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
