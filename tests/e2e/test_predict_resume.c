/* test_predict_resume.c: `foldmill predict --resume` of complexes: what is kept and what is made
 * again, and where a signal ends the work. The weights are those of one step of training. */
#include "tests/testing/complex_sample.h"
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* `$p` predicts two structures of each of two seeds. */
static const char functions[] =
    "w=run/checkpoint-000000000001.safetensors; "
    "p=\"foldmill predict --weights $w --steps 3 --recycles 2 --samples 2 --seeds 1,7\"; "
    "line() { grep -q -- \"$1\" \"$2\" || { cat \"$2\"; return 9; }; }; ";

static int set_up(void **state) {
    make_folder(state);
    run_first = functions;
    if (run("mkdir samples")) return 1;
    fm_test_complex_write_seed(folder, "samples/a.npz", 1);
    fm_test_complex_write_seed(folder, "other.npz", 2);
    return run("printf '[data]\\ncrop_size = 10\\nmax_atoms = 16\\nglobal_batch = 1\\n' >small.ini "
               "&& foldmill train --samples samples --config small.ini --preset af3-tiny -q "
               "--steps 1 --out run >log 2>&1 && $p samples/a.npz --out whole 2>whole.log >out");
}

/* Damaged, cut and missing files are made again, and nothing else. */
static void what_is_not_whole_is_made_again(void **state) {
    (void)state;
    assert_int_equal(
        run("cp -r whole some && cd some/a && rm seed-1_sample-1.npz && "
            ": >seed-7_sample-0.npz && echo '{' >seed-7_sample-1_run.json && "
            "rm a_ranking_scores.csv && cd ../.. && "
            "$p samples/a.npz --out some --resume 2>log >out && "
            "line 'seed 1  sample 0 .*  done earlier$' log && "
            "test $(grep -c 'done earlier' log) = 1 && "
            "line '^outputs   some/summary.csv, 1 complex (1 structure done earlier), ' out && "
            "diff -r whole/a some/a && $p samples/a.npz --out some --resume 2>log >out && "
            "test $(grep -c 'done earlier' log) = 4 && ! grep -q trunk log && "
            "line '(4 structures done earlier), ' out && diff -r whole/a some/a"),
        0);
}

/* Structures of other inputs and settings are made again; more of the same are added. */
static void other_structures_are_made_again(void **state) {
    (void)state;
    assert_int_equal(
        run("cp -r whole more && $p samples/a.npz --out more --resume --samples 3 2>log >out && "
            "test $(grep -c 'done earlier' log) = 4 && "
            "test $(wc -l <more/a/a_ranking_scores.csv) = 7 && "
            "cmp whole/a/seed-7_sample-1.npz more/a/seed-7_sample-1.npz && "
            "for other in '--steps 4' '--recycles 1' '--msa-rows 1' '--set model'; do "
            "$p samples/a.npz --out more --resume $other 2>log >out || exit 1; "
            "test $(grep -c 'done earlier' log) = 0 || exit 2; done && "
            "mkdir b && cp other.npz b/a.npz && $p b/a.npz --out more --resume 2>log >out && "
            "test $(grep -c 'done earlier' log) = 0 && "
            "! cmp -s whole/a/seed-7_sample-1.npz more/a/seed-7_sample-1.npz"),
        0);
}

/* A signal ends the work after the structure in hand, and the resumed command ends with the files
 * of one that was not stopped. */
static void a_stopped_command_ends_with_the_same_files(void **state) {
    (void)state;
    assert_int_equal(
        run("q='foldmill predict --weights '$w' --recycles 1 --steps 60 --samples 40 --seeds 3 "
            "samples/a.npz' && { $q --out sig 2>sig.log >out & } && pid=$! && "
            "for i in $(seq 6000); do test -e sig/a/seed-3_sample-0_run.json && break; sleep 0.01; "
            "done; kill -TERM $pid; wait $pid; test $? = 143 && "
            "line '^foldmill predict: stopped by SIGTERM after [1-9][0-9]* structures*; --resume "
            "continues$' sig.log && test ! -e sig/a/seed-3_sample-39.npz && "
            "test ! -e sig/a/a_ranking_scores.csv && $q --out sig --resume 2>log >out && "
            "line 'sample 0 .*  done earlier' log && $q --out all 2>log >out && "
            "diff -r all/a sig/a"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_whole_is_made_again),
        cmocka_unit_test(other_structures_are_made_again),
        cmocka_unit_test(a_stopped_command_ends_with_the_same_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
