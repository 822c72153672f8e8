/* foldmill components: summaries, the written file, and what is refused. */
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static char folder[256];

#define run(...) fm_test_shell_format(folder, __VA_ARGS__)

static int make_folder(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    assert_int_equal(
        run("printf 'data_OH\\n_chem_comp.id OH\\nloop_\\n_chem_comp_atom.atom_id\\n"
            "_chem_comp_atom.type_symbol\\n_chem_comp_atom.pdbx_model_Cartn_x_ideal\\n"
            "_chem_comp_atom.pdbx_model_Cartn_y_ideal\\n_chem_comp_atom.pdbx_model_Cartn_z_ideal\\n"
            "O O 0 0 0\\nH H 1 0 0\\ndata_ZN\\n_chem_comp.id ZN\\n_chem_comp_atom.atom_id ZN\\n"
            "_chem_comp_atom.type_symbol ZN\\n' > a.cif && sed s/ZN/QQ/g a.cif > bad.cif"),
        0);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

/* Text, compressed text, standard input and the written file are the same components. */
static void every_form_has_the_same_hash(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL components a.cif -o a.foldcomp > text && "
                         "grep -q '^a.cif: 2 components$' text && "
                         "grep -q 'heavy atoms  2, with 0 bonds' text && "
                         "grep -q 'without all ideal coordinates  1$' text && "
                         "gzip -k a.cif && $FOLDMILL components a.cif.gz > zipped && "
                         "$FOLDMILL components - < a.cif > piped && "
                         "$FOLDMILL components a.foldcomp > packed && "
                         "for f in text zipped piped packed; do grep hash $f > $f.hash && "
                         "cmp text.hash $f.hash || exit 1; done"),
                     0);
    assert_int_equal(run("$FOLDMILL components a.foldcomp --json | /usr/bin/python3 -c 'import "
                         "json,sys; o=json.load(sys.stdin); assert o[\"components\"] == 2 and "
                         "o[\"atoms\"] == 2 and len(o[\"hash\"]) == 64, o'"),
                     0);
}

static void outputs_are_not_lost(void **state) {
    (void)state;
    assert_int_equal(run("rm -f b && $FOLDMILL components a.cif -o b > out && "
                         "! $FOLDMILL components a.cif -o b 2> err && grep -q b: err && "
                         "$FOLDMILL components a.cif -o b --replace > out"),
                     0);
    assert_int_equal(run("echo note > n; $FOLDMILL components a.cif -o n --replace 2> err"), 2);
    assert_int_equal(run("grep -q 'not of components' err && grep -q note n"), 0);
    assert_int_equal(run("$FOLDMILL components a.cif --replace 2> err"), 2);
    assert_int_equal(run("$FOLDMILL components b -o b --replace 2> err"), 2);
}

static void refusals_have_their_place(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL components bad.cif -o c 2> err"), 1);
    assert_int_equal(run("grep -q \"bad.cif:14:29: _chem_comp_atom.type_symbol is 'QQ'\" err && "
                         "! test -e c"),
                     0);
    assert_int_equal(run("head -c 60 b > cut && $FOLDMILL components cut 2> err"), 1);
    assert_int_equal(run("grep -q '^foldmill components: cut: ' err"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_has_the_same_hash),
        cmocka_unit_test(outputs_are_not_lost),
        cmocka_unit_test(refusals_have_their_place),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
