/* test_golden_complex.c: from mmCIF files to the tables of their assemblies, against the
 * reference's, bit for bit; and the files that it refuses or does not get through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/complex/assembly_arrays.h"
#include "featurizer/complex/read.h"
#include "tests/featurizer/complex_case.h"
#include "tests/testing/manifest.h"

static complex_case test;

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

static bool has_reference(void) {
    if (fm_test_reference()) return true;
    fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
    return false;
}

/* Reads a file of the reference data behind the present content of the arena. */
static fm_status read_file(const char *relative, bool compat, fm_assembly *ret_assembly,
                           fm_error *reterr) {
    const fm_assembly_options options = {.compat_protenix = compat};
    char path[4096];
    fm_bytes text = {0};
    fm_test_reference_path(path, sizeof path, relative);
    complex_must(fm_file_read_text(&test.arena, path, FM_LIMIT_INPUT_BYTES, &text, reterr), reterr);
    return fm_assembly_read(text, &test.components, &options, &test.arena, ret_assembly, reterr);
}

static bool is_same(const char *id, const fm_array *array) {
    const fm_npy *golden = complex_array(&test, array->key);
    bool same = strcmp(golden->dtype, array->dtype) == 0 && golden->rank == array->rank &&
                memcmp(golden->shape, array->shape, array->rank * sizeof *array->shape) == 0 &&
                memcmp(golden->data, array->data, (size_t)golden->count * golden->item_bytes) == 0;
    if (!same) fprintf(stderr, "%s: %s differs\n", id, array->key);
    return same;
}

static void the_tables_agree(void **state) {
    (void)state;
    size_t n_array = 0, n_same = 0;
    if (!has_reference()) skip();
    for (size_t i = 0; i < N_COMPLEX; i++) {
        char relative[64];
        fm_assembly assembly = {0};
        fm_array arrays[FM_ASSEMBLY_ARRAYS];
        size_t n = 0;
        fm_error error = {0};
        complex_case_load(&test, complex_ids[i]);
        snprintf(relative, sizeof relative, "dev/mmcif/%s.cif", complex_ids[i]);
        complex_must(read_file(relative, true, &assembly, &error), &error);
        complex_must(fm_assembly_list_arrays(&assembly, &test.arena, arrays, &n, &error), &error);
        for (size_t k = 0; k < n; k++)
            n_same += is_same(complex_ids[i], &arrays[k]);
        n_array += n;
    }
    fm_test_golden_line("assemblies from mmCIF", n_array, n_same);
    assert_int_equal(n_same, n_array);
    assert_int_equal(n_array, N_COMPLEX * 44);
}

/* The reference's refusals; the default accepts files that only lack an assembly. */
static void refused_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *id, *message;
    } refused[] = {
        {"1a7y", "component X2AVD of the polymer is not among the components"},
        {"1cwp", "the file has no _pdbx_struct_assembly.oligomeric_count"},
        {"1ffk", "the file has no _pdbx_struct_assembly.oligomeric_count"},
        {"1hyh", "the file has no _pdbx_struct_assembly.oligomeric_count"},
        {"1psm", "the file has no _pdbx_struct_assembly.oligomeric_count"},
        {"1qxb", "the file has no _pdbx_struct_assembly.oligomeric_count"},
        {"1tqh", "the file has no _pdbx_struct_assembly.oligomeric_count"},
        {"2jo4", "the file has no _pdbx_struct_assembly.oligomeric_count"},
        {"4a10", "the file has no _pdbx_struct_assembly.oligomeric_count"},
        {"7qrr", "the file has no _pdbx_struct_assembly.oligomeric_count"},
        {"7vbq", "oligomeric_count of assembly 1 is '?', expected 1 to 1000"},
    };
    if (!has_reference()) skip();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char relative[64];
        fm_assembly assembly;
        fm_error error = {0};
        fm_arena_rewind(&test.arena, test.mark);
        snprintf(relative, sizeof relative, "dev/mmcif/%s.cif", refused[i].id);
        assert_int_not_equal(read_file(relative, true, &assembly, &error), FM_OK);
        assert_string_equal(error.message, refused[i].message);
        assert_true(error.line > 0);
    }
}

/* 2fyc is lawful, and the reference's reader of CIF is not; the other two have 600 and 800 polymer
 * chains, of which 20 molecules stay. */
static void files_that_the_reference_cannot_read_are_read(void **state) {
    (void)state;
    static const char *const ids[] = {"2fyc", "7cth", "7q5a"};
    if (!has_reference()) skip();
    for (size_t i = 0; i < 3; i++) {
        char relative[64];
        fm_assembly assembly = {0};
        fm_error error = {0};
        fm_arena_rewind(&test.arena, test.mark);
        snprintf(relative, sizeof relative, "dev/mmcif/%s.cif", ids[i]);
        complex_must(read_file(relative, true, &assembly, &error), &error);
        assert_true(assembly.n_chain > 1);
        assert_in_range(fm_arena_mark(&test.arena) - test.mark, 0, (size_t)256 << 20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tables_agree),
        cmocka_unit_test(refused_files_are_refused),
        cmocka_unit_test(files_that_the_reference_cannot_read_are_read),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
