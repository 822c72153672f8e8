/* test_parse_complex.c: `foldmill parse complex` as a user runs it: what is printed, exit codes,
 * and what is in the .npz. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/e2e/parse_case.h"
#include "tests/featurizer/complex_text.h"

static void write_inputs(void) {
    write_file("known.cif", COMPLEX_COMPONENTS);
    write_file("t.cif", COMPLEX_HEAD COMPLEX_POLY COMPLEX_CONN COMPLEX_ASSEMBLY COMPLEX_SITE
                            COMPLEX_CHAIN_A COMPLEX_LIGANDS);
    write_file("none.cif", COMPLEX_HEAD COMPLEX_POLY COMPLEX_SITE COMPLEX_CHAIN_A);
    write_file("bare.cif", "data_T\n" COMPLEX_POLY COMPLEX_SITE COMPLEX_CHAIN_A);
}

static void summaries_and_refusals(void **state) {
    (void)state;
    write_inputs();
    expect("complex none.cif --components known.cif", 0,
           "none.cif: mmCIF, 1 chains, 3 residues, 3 tokens, 15 atoms, 14 bonds, 0 interfaces\n"
           "  method      X-RAY DIFFRACTION\n  released    2011-07-13\n  resolution  1.5 Å\n"
           "  chain A      author X     entity 1    protein      3 residues,     3 tokens,"
           "     15 atoms,      5 without coordinates\n");
    expect("complex bare.cif --components known.cif", 0,
           "bare.cif: mmCIF, 1 chains, 3 residues, 3 tokens, 15 atoms, 14 bonds, 0 interfaces\n"
           "  method      not given\n  released    not given\n  resolution  not given\n"
           "  chain A      author X     entity 1    protein      3 residues,     3 tokens,"
           "     15 atoms,      5 without coordinates\n");
    expect("complex none.cif --components known.cif --compat protenix", 1,
           "foldmill parse: none.cif:1:1: the file has no "
           "_pdbx_struct_assembly.oligomeric_count\n");
    expect("complex t.cif", 2, "foldmill parse: kind 'complex' needs --components\n");
    expect("mmcif t.cif --components known.cif", 2,
           "foldmill parse: kind 'mmcif' takes no --components\n");
    expect("complex t.cif --components known.cif --compat openfold", 2,
           "foldmill parse: kind 'complex' takes --compat protenix\n");
    expect("mmcif t.cif --compat protenix", 2,
           "foldmill parse: kind 'mmcif' takes --compat openfold\n");
    expect("complex t.cif --components nothing.cif", 1,
           "foldmill parse: nothing.cif: cannot open: No such file or directory\n");
    expect("complex t.cif --components t.cif", 1,
           "foldmill parse: t.cif:1:1: _chem_comp.id is '', expected 1 to 7 letters\n");
    char out[8192];
    assert_int_equal(run_parse("complex t.cif --components known.cif --json", out, sizeof out), 0);
    assert_non_null(strstr(out, "\"chain\": \"A.1\""));
}

static void the_arrays_have_the_tables(void **state) {
    (void)state;
    fm_arena arena;
    char out[1024];
    assert_int_equal(fm_arena_init(&arena, (size_t)16 << 20, NULL), FM_OK);
    write_inputs();
    assert_int_equal(run_parse("complex t.cif --components known.cif -o t.npz", out, sizeof out),
                     0);
    fm_npz npz = read_npz(&arena, "t.npz");
    assert_int_equal(npz.n_array, 48 + 35 + 8);
    const fm_npy *ids = fm_npz_find(&npz, "assembly/chain/id");
    const fm_npy *coord = fm_npz_find(&npz, "assembly/atom/coord");
    assert_non_null(ids);
    assert_non_null(coord);
    assert_int_equal(ids->count, strlen("A\nA.1\nB\nB.1\nC\nC.1"));
    assert_memory_equal(ids->data, "A\nA.1\nB\nB.1\nC\nC.1", (size_t)ids->count);
    assert_int_equal(coord->shape[0], 2 * (15 + 2 + 1));
    fm_arena_fini(&arena);
}

/* The features, with the sequences as MSA, are a sample that the trainer reads. */
static void the_trainer_reads_the_arrays(void **state) {
    (void)state;
    char out[1024];
    write_inputs();
    assert_int_equal(run_parse("complex t.cif --components known.cif -o t.npz", out, sizeof out),
                     0);
    assert_int_equal(fm_test_shell(folder,
                                   "\"$FOLDMILL\" train --preset af3-tiny --show-config | "
                                   "sed 's/^n_template = 2/n_template = 4/' >c.ini && "
                                   "mkdir samples && mv t.npz samples && "
                                   "\"$FOLDMILL\" train --check-samples --samples samples "
                                   "--config c.ini >samples.txt && "
                                   "grep -q '1 sample, 0 bad; 12 to 12 tokens' samples.txt"),
                     0);
}

/* A recorded crop is drawn again, and its arrays have its number. */
static void recorded_crops_are_drawn_again(void **state) {
    (void)state;
    fm_arena arena;
    char out[1024];
    assert_int_equal(fm_arena_init(&arena, (size_t)16 << 20, NULL), FM_OK);
    write_inputs();
    write_file("c.tsv", "T\t3\t1\t2\t0\t0\t2\t0,0,2,1\nother\t0\t0\t4\t0\t\t0\t\n");
    assert_int_equal(
        run_parse("complex t.cif --components known.cif --crops c.tsv -o c.npz", out, sizeof out),
        0);
    fm_npz npz = read_npz(&arena, "c.npz");
    assert_int_equal(npz.n_array, 48 + 35 + 8 + 8 + 35);
    const fm_npy *tokens = fm_npz_find(&npz, "crop3/tokens");
    const fm_npy *restype = fm_npz_find(&npz, "crop3/features/restype");
    assert_non_null(tokens);
    assert_non_null(restype);
    assert_int_equal(tokens->count, 2);
    assert_int_equal(restype->count, 2);
    assert_int_equal(
        run_parse("complex t.cif --components known.cif --crops c.tsv -o c.npz --replace", out,
                  sizeof out),
        0);
    write_file("bad.tsv", "t\t3\t1\t2\t0\t0\t2\t0,0,9,1\n");
    expect(
        "complex t.cif --components known.cif --crops bad.tsv -o b.npz", 1,
        "foldmill parse: bad.tsv:1:1: crop 3 of t asks for other draws than the 1 recorded ones, "
        "from draw 1 on\n");
    write_file("none.tsv", "other\t0\t0\t4\t0\t\t0\t\n");
    expect("complex t.cif --components known.cif --crops none.tsv -o b.npz", 1,
           "foldmill parse: none.tsv: no row is for t.cif\n");
    expect("complex t.cif --components known.cif --crops c.tsv", 2,
           "foldmill parse: --crops adds arrays to the file of -o\n");
    expect("mmcif t.cif --crops c.tsv -o b.npz", 2,
           "foldmill parse: kind 'mmcif' takes no --crops\n");
    fm_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(summaries_and_refusals, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(the_arrays_have_the_tables, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(the_trainer_reads_the_arrays, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(recorded_crops_are_drawn_again, make_folder, drop_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
