/* test_parse_mmcif.c: `foldmill parse mmcif` as a user runs it: what is printed, exit codes, and
 * that the .npz holds the reference's arrays bit for bit, in its order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "tests/e2e/parse_case.h"
#include "tests/testing/manifest.h"

static const char entry[] =
    "data_T\n_entry.id T\n_exptl.method 'Solution NMR'\n_refine.ls_d_res_high 1.5\n"
    "_chem_comp.id ALA\n_chem_comp.type 'L-peptide linking'\n"
    "_struct_asym.id A\n_struct_asym.entity_id 1\n"
    "loop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n_entity_poly_seq.mon_id\n"
    "1 1 ALA\n1 2 ALA\n"
    "loop_\n_atom_site.label_atom_id\n_atom_site.label_comp_id\n_atom_site.label_asym_id\n"
    "_atom_site.label_seq_id\n_atom_site.auth_asym_id\n_atom_site.Cartn_x\n_atom_site.Cartn_y\n"
    "_atom_site.Cartn_z\nCA ALA A 2 X 1 2 3\n";

static void summaries_and_refusals(void **state) {
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s/t.cif", folder);
    write_file("t.cif", entry);
#define SUMMARY                                                                                    \
    "t.cif: mmCIF, 1 protein chains, 1 atom rows\n  method      solution nmr\n"                    \
    "  released    not given\n  resolution  1.5 Å\n"                                              \
    "  chain X     label A         2 residues,     1 without coordinates,      1 atoms\n"
    expect("mmcif t.cif", 0, SUMMARY);
    expect("mmcif t.cif --chain X", 0, SUMMARY "  AA\n");
    expect("mmcif t.cif --chain A", 1,
           "foldmill parse: t.cif: no protein chain 'A'; the file has X\n");
    expect("mmcif t.cif --compat openfold", 1,
           "foldmill parse: t.cif:15:1: the file has no _atom_site.pdbx_PDB_model_num\n");
    assert_int_equal(truncate(path, (off_t)sizeof entry - 4), 0);
    expect("mmcif t.cif", 1,
           "foldmill parse: t.cif:24:1: the row of a loop ends after 7 values, but the loop has 8 "
           "columns\n");
}

static void the_file_s_own_arrays(void **state) {
    (void)state;
    fm_arena arena;
    char out[1024];
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 20, NULL), FM_OK);
    write_file("t.cif", entry);
    assert_int_equal(run_parse("mmcif t.cif -o t.npz", out, sizeof out), 0);
    fm_npz npz = read_npz(&arena, "t.npz");
    assert_int_equal(npz.n_array, 4); /* no release date */
    const fm_npy *array = fm_npz_find(&npz, "chains");
    assert_non_null(array);
    assert_int_equal(array->count, 1);
    assert_memory_equal(array->data, "X", 1);
    array = fm_npz_find(&npz, "resolution");
    assert_non_null(array);
    assert_string_equal(array->dtype, "<f8");
    assert_true(*(const double *)array->data == 1.5);
    array = fm_npz_find(&npz, "missing_X");
    assert_non_null(array);
    assert_int_equal(array->count, 1);
    assert_int_equal(*(const int32_t *)array->data, 0);
    fm_arena_fini(&arena);
}

/* One golden item through the program. */
static void check_item(const fm_test_item *item, fm_arena *arena) {
    char arguments[2048], out[4096];
    snprintf(arguments, sizeof arguments,
             "mmcif '%s/golden/%s' --chain %s --compat openfold -o out.npz --replace",
             fm_test_reference(), item->source, item->chain ? item->chain : "A");
    int code = run_parse(arguments, out, sizeof out);
    if (item->error) {
        assert_int_equal(code, 1);
        return;
    }
    if (code != 0) fail_msg("%s", out);
    fm_npz npz = read_npz(arena, "out.npz");
    assert_int_equal(npz.n_array, item->n_array);
    for (size_t i = 0; i < item->n_array; i++) {
        const fm_test_array *expected = &item->array[i];
        const fm_npy *array = &npz.arrays[i]; /* in the reference's order */
        size_t shape[FM_NPZ_RANK_MAX];
        const char *dtype = strcmp(expected->dtype, "uint8") == 0   ? "|u1"
                            : strcmp(expected->dtype, "int32") == 0 ? "<i4"
                                                                    : "<f4";
        assert_string_equal(array->name, expected->key);
        assert_string_equal(array->dtype, dtype);
        for (size_t k = 0; k < array->rank; k++)
            shape[k] = (size_t)array->shape[k];
        assert_true(fm_test_array_agrees(expected, shape, array->rank, array->data,
                                         (size_t)array->count * array->item_bytes));
    }
}

static void writes_the_reference_s_arrays(void **state) {
    (void)state;
    fm_test_manifest *manifest = fm_test_manifest_open();
    if (!manifest) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 30, NULL), FM_OK);
    size_t n = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        if (strncmp(item->kind, "mmcif", 5) != 0) continue;
        check_item(item, &arena);
        n++;
    }
    assert_int_equal(n, 41);
    fm_arena_fini(&arena);
    fm_test_manifest_close(manifest);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(summaries_and_refusals, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(the_file_s_own_arrays, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(writes_the_reference_s_arrays, make_folder, drop_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
