/* test_golden_complex_features.c: tokens, features and crops of real structures against the
 * reference's, bit for bit, from the reference's own tables of the assemblies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/complex/crop_rows.h"
#include "featurizer/complex/features.h"
#include "tests/featurizer/complex_case.h"
#include "tests/testing/manifest.h"

static complex_case test;
static size_t n_array, n_same;

static int set_up(void **state) {
    (void)state;
    if (fm_test_reference()) complex_case_init(&test);
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    if (fm_test_reference()) fm_arena_fini(&test.arena);
    return 0;
}

static void need_reference(void) {
    n_array = n_same = 0;
    if (fm_test_reference()) return;
    fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
    skip();
}

/* Compares the values with the golden's array of that name. */
static void compare(const char *id, const char *name, const char *dtype, size_t rank,
                    const uint64_t *shape, const void *data) {
    const fm_npy *golden = complex_array(&test, name);
    bool same = strcmp(golden->dtype, dtype) == 0 && golden->rank == rank &&
                memcmp(golden->shape, shape, rank * sizeof *shape) == 0 &&
                memcmp(golden->data, data, (size_t)golden->count * golden->item_bytes) == 0;
    if (!same) fprintf(stderr, "%s: %s differs\n", id, name);
    n_array++;
    n_same += same;
}

/* Compares all features of these tokens, whose names start with `prefix`. */
static void compare_features(const char *id, const char *prefix, const uint32_t *tokens,
                             uint32_t n_token) {
    fm_complex_features features = {0};
    fm_array arrays[FM_COMPLEX_FEATURE_ARRAYS];
    fm_error error = {0};
    size_t n = 0;
    complex_must(fm_complex_features_make(&test.assembly, tokens, n_token, NULL, &test.arena,
                                          &features, &error),
                 &error);
    complex_must(fm_complex_features_list(&features, prefix, &test.arena, arrays, &n, &error),
                 &error);
    for (size_t k = 0; k < n; k++) {
        compare(id, arrays[k].key, arrays[k].dtype, arrays[k].rank, arrays[k].shape,
                arrays[k].data);
    }
}

static void the_features_agree(void **state) {
    (void)state;
    need_reference();
    for (size_t i = 0; i < N_COMPLEX; i++) {
        complex_case_load(&test, complex_ids[i]);
        compare_features(complex_ids[i], "features/", NULL, 0);
    }
    fm_test_golden_line("features of assemblies", n_array, n_same);
    assert_int_equal(n_same, n_array);
}

/* The features of the reference's crops that have them. */
static void the_features_of_crops_agree(void **state) {
    (void)state;
    need_reference();
    size_t n_crop = 0;
    for (size_t i = 0; i < N_COMPLEX; i++) {
        complex_case_load(&test, complex_ids[i]);
        for (uint32_t k = 0;; k++) {
            char name[64];
            snprintf(name, sizeof name, "crop%u/tokens", k);
            const fm_npy *tokens = fm_npz_find(&test.npz, name);
            if (!tokens) break;
            snprintf(name, sizeof name, "crop%u/features/token_index", k);
            if (!fm_npz_find(&test.npz, name)) continue;
            snprintf(name, sizeof name, "crop%u/features/", k);
            compare_features(complex_ids[i], name, tokens->data, (uint32_t)tokens->count);
            n_crop++;
        }
    }
    fm_test_golden_line("features of crops", n_array, n_same);
    assert_int_equal(n_same, n_array);
    assert_int_equal(n_crop, 102);
}

/* The number `k` crop's array of one value. */
static int32_t crop_value(uint32_t k, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "crop%u/%s", k, name);
    return complex_i4(&test, full)[0];
}

/* Writes a golden crop as a row of a table of crops. */
static void write_row(const char *id, uint32_t k, char *out, size_t room) {
    char name[64];
    snprintf(name, sizeof name, "crop%u/draws", k);
    const fm_npy *draws = complex_array(&test, name);
    snprintf(name, sizeof name, "crop%u/ref_asym_id", k);
    const fm_npy *reference = complex_array(&test, name);
    snprintf(name, sizeof name, "crop%u/tokens", k);
    size_t n =
        (size_t)snprintf(out, room, "id\tcrop\n%s\t%u\t%d\t%d\t%d\t", id, k,
                         crop_value(k, "method"), crop_value(k, "size"), crop_value(k, "complete"));
    for (uint64_t i = 0; i < reference->count; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%d", i ? "," : "",
                              ((const int32_t *)reference->data)[i]);
    n += (size_t)snprintf(out + n, room - n, "\t%u\t", (unsigned)complex_array(&test, name)->count);
    for (uint64_t i = 0; i < draws->count; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%d",
                              i % 4 ? ","
                              : i   ? ";"
                                    : "",
                              ((const int32_t *)draws->data)[i]);
    assert_true(n < room);
}

/* Draws the crop again from its row, with its recorded draws. */
static void compare_crop(const char *id, uint32_t k) {
    char name[64], text[16384];
    const fm_crop_row *row = NULL;
    fm_complex_crop crop = {0};
    fm_error error = {0};
    uint32_t n_row = 0;
    write_row(id, k, text, sizeof text);
    fm_bytes bytes = {(const uint8_t *)text, strlen(text)};
    complex_must(fm_crop_rows_parse(bytes, &test.arena, &row, &n_row, &error), &error);
    assert_int_equal(n_row, 1);
    complex_must(fm_crop_row_replay(row, &test.assembly, &test.arena, &crop, &error), &error);
    uint64_t one = 1, n = crop.n_token, n_full = crop.n_full;
    snprintf(name, sizeof name, "crop%u/tokens", k);
    compare(id, name, "<i4", 1, &n, crop.tokens);
    snprintf(name, sizeof name, "crop%u/ref_token", k);
    compare(id, name, "<i4", 1, &one, &crop.reference);
    snprintf(name, sizeof name, "crop%u/full_atoms", k);
    compare(id, name, "<i4", 1, &n_full, crop.full);
}

static void the_crops_agree(void **state) {
    (void)state;
    need_reference();
    size_t n_crop = 0;
    for (size_t i = 0; i < N_COMPLEX; i++) {
        complex_case_load(&test, complex_ids[i]);
        for (uint32_t k = 0;; k++, n_crop++) {
            char name[64];
            snprintf(name, sizeof name, "crop%u/tokens", k);
            if (!fm_npz_find(&test.npz, name)) break;
            compare_crop(complex_ids[i], k);
        }
    }
    fm_test_golden_line("crops", n_array, n_same);
    assert_int_equal(n_same, n_array);
    assert_int_equal(n_crop, 191);
}

static void the_tokens_agree(void **state) {
    (void)state;
    need_reference();
    for (size_t i = 0; i < N_COMPLEX; i++) {
        complex_case_load(&test, complex_ids[i]);
        const fm_assembly *a = &test.assembly;
        int32_t *centre = complex_alloc(&test, a->n_token, 4);
        int32_t *n_atom = complex_alloc(&test, a->n_token, 4);
        uint8_t *restype = complex_alloc(&test, a->n_residue, 1);
        uint8_t *is_modified = complex_alloc(&test, a->n_residue, 1);
        for (uint32_t t = 0; t < a->n_token; t++) {
            centre[t] = (int32_t)a->tokens[t].centre;
            n_atom[t] = (int32_t)a->tokens[t].n_atom;
        }
        for (uint32_t r = 0; r < a->n_residue; r++) {
            restype[r] = a->residues[r].restype;
            is_modified[r] = a->residues[r].is_modified;
        }
        uint64_t t = a->n_token, r = a->n_residue;
        compare(complex_ids[i], "assembly/token/centre_atom", "<i4", 1, &t, centre);
        compare(complex_ids[i], "assembly/token/n_atom", "<i4", 1, &t, n_atom);
        compare(complex_ids[i], "assembly/residue/restype", "|u1", 1, &r, restype);
        compare(complex_ids[i], "assembly/residue/modified", "|u1", 1, &r, is_modified);
    }
    fm_test_golden_line("tokens of assemblies", n_array, n_same);
    assert_int_equal(n_same, n_array);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tokens_agree),
        cmocka_unit_test(the_features_agree),
        cmocka_unit_test(the_features_of_crops_agree),
        cmocka_unit_test(the_crops_agree),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
