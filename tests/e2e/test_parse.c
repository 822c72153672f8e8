/* `foldmill parse` on alignments as a user runs it: what is printed, exit codes, and that the .npz
 * holds the reference's arrays bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/e2e/parse_case.h"
#include "tests/testing/manifest.h"

static void prints_summaries(void **state) {
    (void)state;
    write_file("t.a3m", ">q\nACDE\n>sp|P12345|ABC_HUMAN\nAxxxCy--\n>r\nACDE\n");
    write_file("t.sto", "# STOCKHOLM 1.0\nq AC-D\nr A-xD\n//\n");
    expect("a3m t.a3m", 0,
           "t.a3m: A3M, 3 rows of 4 match columns\n"
           "  gaps        16.7 % of 12 cells\n"
           "  deletions   4 letters before 2 columns, at most 3 at one place\n");
    expect("sto t.sto", 0,
           "t.sto: Stockholm, 2 rows of 3 match columns\n"
           "  gaps        16.7 % of 6 cells\n"
           "  deletions   1 letters before 1 columns, at most 1 at one place\n");
    expect("msa t.a3m", 0,
           "t.a3m: A3M, 2 distinct rows of 4 residues\n"
           "  rows        3 read, 1 of them duplicates\n"
           "  gaps        25.0 % of 8 cells\n"
           "  deletions   4 letters before 2 columns, at most 3 at one place\n"
           "  species     known for 1 rows\n");
    write_file("h.sto", "#=GS 1abc_A/1-2 DE mol:protein length:2\n1abc_A/1-2 AC\n");
    expect("hmmsearch h.sto", 0,
           "h.sto: hmmsearch, 1 template hits\n"
           "      1  1abc_A               2 columns\n");
    write_file("t.hhr",
               "No 1\n>1abc_A thing\nProbab=1 E-value=1 Score=1 Aligned_cols=1 Sum_probs=1.5\n");
    expect("hhr t.hhr", 0,
           "t.hhr: HHR, 1 template hits\n"
           "      1  1abc_A               1 columns  sum_probs 1.5\n");
    char gz[2048], plain[2048];
    assert_int_equal(run_parse("msa t.sto", plain, sizeof plain), 0);
    char command[1024];
    snprintf(command, sizeof command, "gzip %s/t.sto", folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(run_parse("msa t.sto.gz", gz, sizeof gz), 0);
    assert_string_equal(strchr(gz, ':'), strchr(plain, ':'));
}

#define PDB_ATOM(chain, b)                                                                         \
    "ATOM      2  CA  TRP " chain "   1       4.000   5.000   6.000  1.00" b "           C\n"

static void reads_predicted_structures(void **state) {
    (void)state;
    write_file("p.pdb", PDB_ATOM("A", " 50.00") PDB_ATOM("B", " 90.50"));
    expect("pdb p.pdb", 0,
           "p.pdb: PDB, 2 chains, 2 atom records\n"
           "  chain A     1 residues,      1 atoms, mean confidence 50.0, 0 residues above 50\n"
           "  W\n"
           "  chain B     1 residues,      1 atoms, mean confidence 90.5, 1 residues above 50\n"
           "  W\n");
    expect("pdb p.pdb -o p.npz", 1,
           "foldmill parse: p.pdb: the file has the chains A, B, so one of them must be named\n");
    expect("pdb p.pdb --chain C", 1, "foldmill parse: p.pdb: no chain 'C'; the file has A, B\n");
    expect("pdb p.pdb --chain B -o p.npz", 0, "");
    expect("pdb p.pdb --compat openfold -o p.npz --replace", 0, "");
    expect("pdb p.pdb --predicted", 2, "foldmill parse: kind 'pdb' takes no --predicted\n");
    write_file("b.pdb", PDB_ATOM("A", "190.00"));
    expect("pdb b.pdb", 1,
           "foldmill parse: b.pdb:1:61: the B factor is 190, expected a confidence of 0 to 100\n");
}

static void errors_name_the_cause(void **state) {
    (void)state;
    write_file("t.a3m", ">q\nABC\n>r\nAB\n");
    expect("a3m t.a3m", 1,
           "foldmill parse: t.a3m:4:1: row 1 has 2 match columns, the query has 3\n");
    expect("a3m t.a3m -o out.npz", 1,
           "foldmill parse: t.a3m:4:1: row 1 has 2 match columns, the query has 3\n");
    expect("a3m none.a3m", 1, "foldmill parse: none.a3m: cannot open: No such file or directory\n");
    expect("a3m t.a3m --compat other", 2,
           "foldmill parse: --compat: found 'other', expected openfold or protenix\n");
    expect("a3m t.a3m --chain A", 2, "foldmill parse: kind 'a3m' takes no --chain\n");
    expect("a3m t.a3m --query AC", 2, "foldmill parse: kind 'a3m' takes no --query\n");
    write_file("t.sto", "#=GS 1abc_A/1-2 DE mol:protein length:2\n1abc_A/1-2 AC\n");
    expect("hmmsearch t.sto -o out.npz", 2,
           "foldmill parse: t.sto: the arrays need the chain's sequence: give it with --query\n");
    char out[8192];
    assert_int_equal(run_parse("nothing t.a3m", out, sizeof out), 2);
    assert_non_null(strstr(out, "unknown kind 'nothing'"));
    assert_int_equal(run_parse("a3m", out, sizeof out), 2);
    assert_int_equal(run_parse("--help", out, sizeof out), 0);
    assert_non_null(strstr(out, "--compat"));
}

static const char *dtype_of(const fm_test_array *array) {
    if (strcmp(array->dtype, "uint8") == 0) return "|u1";
    return strcmp(array->dtype, "float64") == 0 ? "<f8" : "<i4";
}

/* One golden item through the program. */
static void check_item(const fm_test_item *item, const char *kind, fm_arena *arena) {
    char arguments[4096], out[4096];
    snprintf(arguments, sizeof arguments,
             "%s '%s/golden/%s' --compat openfold -o out.npz --replace", kind, fm_test_reference(),
             item->source);
    if (run_parse(arguments, out, sizeof out) != 0) fail_msg("%s", out);
    fm_npz npz = read_npz(arena, "out.npz");
    assert_int_equal(npz.n_array, item->n_array);
    for (size_t i = 0; i < item->n_array; i++) {
        const fm_test_array *expected = &item->array[i];
        const fm_npy *array = fm_npz_find(&npz, expected->key);
        size_t shape[FM_NPZ_RANK_MAX];
        assert_non_null(array);
        assert_string_equal(array->name, npz.arrays[i].name); /* in the reference's order */
        assert_string_equal(array->dtype, dtype_of(expected));
        for (size_t k = 0; k < array->rank; k++)
            shape[k] = (size_t)array->shape[k];
        assert_true(fm_test_array_agrees(expected, shape, array->rank, array->data,
                                         (size_t)array->count * array->item_bytes));
    }
}

static void writes_the_references_arrays(void **state) {
    (void)state;
    fm_test_manifest *manifest = fm_test_manifest_open();
    if (!manifest) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, (size_t)4 << 30, NULL), FM_OK);
    size_t n = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        bool a3m = strcmp(item->kind, "parse_a3m") == 0, sto = strcmp(item->kind, "parse_sto") == 0;
        bool hhr = strcmp(item->kind, "parse_hhr") == 0;
        if (!a3m && !sto && !hhr) continue;
        check_item(item, a3m ? "a3m" : sto ? "sto" : "hhr", &arena);
        n++;
    }
    assert_int_equal(n, 88);
    fm_arena_fini(&arena);
    fm_test_manifest_close(manifest);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(prints_summaries, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(reads_predicted_structures, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(errors_name_the_cause, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(writes_the_references_arrays, make_folder, drop_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
