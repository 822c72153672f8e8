/* test_predict_complex.c: the files of a predicted complex, from the command to what other programs
 * read in them. The job is the reference's peptide with caps, a glycan, a ligand that the user
 * describes, and a template; its weights are tiny. */
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char folder[512], reference[4096];

static int set_up(void **state) {
    char path[4096];
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    if (!fm_test_reference()) return 0;
    fm_test_reference_path(path, sizeof path, "af3p/tiny_checkpoint.pt");
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    fclose(file);
    snprintf(reference, sizeof reference, "%s", fm_test_reference());
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static void skip_without_reference(void) {
    if (reference[0]) return;
    print_message("skipped: FM_REFERENCE_DATA is not set or has no af3p\n");
    skip();
}

static void predict(const char *job, const char *out) {
    assert_int_equal(
        fm_test_shell_format(folder,
                             "$FOLDMILL predict %s --components "
                             "'%s/complex/components/components.cif' --weights "
                             "'%s/af3p/tiny_checkpoint.pt' --out %s --recycles 1 --steps 5 "
                             "--samples 1 >%s.log 2>&1 || { cat %s.log; exit 1; }",
                             job, reference, reference, out, out, out),
        0);
}

/* A prediction of the data that a prediction wrote has the same files. */
static void results_are_made_again_of_their_data(void **state) {
    (void)state;
    char job[4200];
    skip_without_reference();
    snprintf(job, sizeof job, "'%s/af3p/inputs/glyco.af3.json'", reference);
    predict(job, "first");
    predict("first/glyco/glyco_data.json", "second");
    assert_int_equal(fm_test_shell(folder, "test -s first/glyco/glyco_model.cif && "
                                           "diff -r first/glyco second/glyco"),
                     0);
}

/* The page of a command that is continued shows the best structure, which an earlier command has
 * made. */
static void a_page_has_structures_of_an_earlier_command(void **state) {
    (void)state;
    char job[4200];
    skip_without_reference();
    snprintf(job, sizeof job, "'%s/af3p/inputs/glyco.af3.json'", reference);
    predict(job, "first");
    assert_int_equal(
        fm_test_shell(folder,
                      "cp -r first third && cd third/glyco && rm glyco.html glyco_model.cif && "
                      "grep -q '\"page\":' seed-*_sample-0/*_run.json"),
        0);
    strcat(job, " --resume");
    predict(job, "third");
    assert_int_equal(fm_test_shell(folder, "grep -q 'done earlier' third.log && "
                                           "diff -r first/glyco third/glyco"),
                     0);
}

/* gemmi and Biopython read entities, chains, components, bonds and pLDDT in the file. */
static void other_programs_read_the_structure(void **state) {
    (void)state;
    skip_without_reference();
    int code = fm_test_shell(folder, "python3 \"$OLDPWD\"/tests/e2e/read_complex.py first/glyco "
                                     ">read.log 2>&1; code=$?; cat read.log; exit $code");
    if (code == 77) skip();
    assert_int_equal(code, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_made_again_of_their_data),
        cmocka_unit_test(a_page_has_structures_of_an_earlier_command),
        cmocka_unit_test(other_programs_read_the_structure),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
