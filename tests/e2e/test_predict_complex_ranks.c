/* test_predict_complex_ranks.c: `foldmill predict` of complexes by several processes: seeds of jobs
 * that are divided among ranks, complexes that ranks share, ranks that are killed and signals. The
 * weights are those of one step of training. */
#include "tests/testing/complex_sample.h"
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Shell functions of all tests, beside those of library.sh.
 *
 *     p OUT ARGS        predicts two structures of each of three seeds; OUT.log has both streams
 *     long OUT ARGS     the same beside the shell, with steps and structures that take a while
 *     until_one OUT     waits until the first structure is finished
 *     line TEXT FILE    the file has such a line; else shows the file */
static const char library[] =
    "w=run/checkpoint-000000000001.safetensors\n"
    "p() { out=$1; shift; foldmill predict --weights $w --steps 3 --recycles 2 --samples 2 --seeds "
    "7,1,4 --out $out \"$@\" >$out.log 2>&1; }\n"
    "long() { out=$1; shift; beside foldmill predict --weights $w --recycles 1 --steps 60 "
    "--samples 10 --seeds 3,9,5,2 samples/a.npz --out $out \"$@\" >$out.log 2>&1; }\n"
    "has_one() { ls $1/*/*_run.json >ls.log 2>&1; }\n"
    "until_one() { until_true has_one $1; }\n"
    "has_ranks() { ranks=$(ranks_of $run); [ $(echo $ranks | wc -w) = $1 ]; }\n"
    "until_ranks() { until_true has_ranks $1; }\n"
    "line() { grep -q -- \"$1\" \"$2\" || { cat \"$2\"; return 9; }; }\n";

static int set_up(void **state) {
    make_folder(state);
    run_first = ". ./lib; ";
    if (fm_test_write_library(folder, library)) return 1;
    if (run("mkdir samples samples/again")) return 1;
    fm_test_complex_write_seed(folder, "samples/a.npz", 1);
    fm_test_complex_write_seed(folder, "samples/b.npz", 2);
    return run("printf x >samples/broken.npz && cp samples/b.npz samples/again/a.npz && "
               "printf '[data]\\ncrop_size = 10\\nmax_atoms = 16\\nglobal_batch = 1\\n' "
               ">small.ini && mkdir one && cp samples/a.npz one && foldmill train --samples one "
               "--config small.ini --preset af3-tiny -q --steps 1 --out run >log 2>&1 && rm -r "
               "one && { p one samples samples/again/a.npz; test $? = 3; }");
}

/* Any number of ranks leaves the files of a command without ranks, and says the same of jobs that
 * fail. */
static void ranks_write_the_files_of_one(void **state) {
    (void)state;
    assert_int_equal(run("for n in 2 3 5; do p $n samples samples/again/a.npz --ranks $n; "
                         "test $? = 3 && diff -r one $n || { cat $n.log; exit 1; }; done"),
                     0);
    assert_int_equal(
        run("line '^outputs   3/summary.csv, 2 complexes, 2 failed, ' 3.log && "
            "line '^foldmill predict: samples/again/a.npz: an input before this one' 3.log && "
            "line '^foldmill predict: samples/broken.npz:byte 1: ' 3.log && line '^4/4 ' 3.log && "
            "test $(grep -c '^model ' 3.log) = 1 && test $(grep -c '; needs ' 3.log) = 2 && "
            "test $(grep -c '^a  seed [147]  sample [01]  pLDDT ' 3.log) = 6"),
        0);
}

/* A complex that ranks share has the structures of one rank to rounding, and the same bytes every
 * time. --resume keeps those of the same number of ranks. */
static void ranks_share_a_complex(void **state) {
    (void)state;
    assert_int_equal(
        run("p two samples/a.npz --dap 2 && p four samples/a.npz --dap 2 --ranks 4 && "
            "diff -r two four && python3 - one two <<'END'\n"
            "import array, glob, sys, zipfile\n"
            "def read(path):\n"
            "    with zipfile.ZipFile(path) as z:\n"
            "        for name in z.namelist():\n"
            "            raw = z.read(name)\n"
            "            yield array.array('f', raw[10 + int.from_bytes(raw[8:10], 'little'):])\n"
            "a, b = (sorted(glob.glob(d + '/a/*.npz')) for d in sys.argv[1:])\n"
            "assert len(a) == len(b) == 6\n"
            "for f, g in zip(a, b):\n"
            "    for x, y in zip(read(f), read(g)):\n"
            "        assert len(x) == len(y) > 0\n"
            "        assert max(abs(u - v) for u, v in zip(x, y)) < 0.01, f\n"
            "END"),
        0);
    assert_int_equal(
        run("cp -r two kept && p kept samples/a.npz --dap 2 --ranks 4 --resume && "
            "line '1 complex (6 structures done earlier), ' kept.log && diff -r two kept && "
            "p kept samples/a.npz --resume && line '1 complex, ' kept.log && "
            "rm kept/a/seed-1_* && p kept samples/a.npz --resume --ranks 2 && "
            "line '1 complex (4 structures done earlier), ' kept.log && diff -r one/a kept/a"),
        0);
}

/* Errors of a complex are found by all ranks that share it, and the others are predicted. */
static void a_complex_that_does_not_fit_is_refused(void **state) {
    (void)state;
    assert_int_equal(
        run("for how in '--ranks 2' '--dap 2'; do p small samples/a.npz --device-memory 0.0001 "
            "$how; test $? = 1 && line '^foldmill predict: samples/a.npz: a complex of 8 tokens, "
            "14 atoms and .* needs .* GiB of 0.000 GiB' small.log && "
            "line '^a,,.*needs .* of 0.000 GiB' small/summary.csv || exit 1; done"),
        0);
}

/* A killed rank ends the command, which names it; --resume makes what is left. */
static void a_killed_rank_is_named(void **state) {
    (void)state;
    assert_int_equal(
        run("long killed --ranks 2; until_ranks 2; victim=$(rank_of $run 1); until_one killed; "
            "kill -9 $victim; wait $run; test $? = 1 && all_gone $ranks && "
            "line \"^foldmill predict: rank 1 (process $victim) was killed by signal 9\" "
            "killed.log && test ! -e killed/summary.csv && long killed --ranks 2 --resume && "
            "wait $run && line 'done earlier' killed.log && long whole && wait $run && "
            "diff -r whole killed"),
        0);
}

/* A signal to the command or to any rank stops all ranks after the structure in hand. */
static void signals_stop_all_ranks(void **state) {
    (void)state;
    assert_int_equal(
        run("long term --ranks 2; until_one term; kill -TERM $run; wait $run; test $? = 143 && "
            "line '^foldmill predict: stopped by SIGTERM' term.log && test ! -e term/summary.csv"),
        0);
    assert_int_equal(
        run("long int --dap 2; until_ranks 2; other=$(rank_of $run 1); until_one int; "
            "kill -INT $other; wait $run; test $? = 130 && "
            "line '^foldmill predict: stopped by SIGINT' int.log && ! grep -q failed int.log"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_write_the_files_of_one),
        cmocka_unit_test(ranks_share_a_complex),
        cmocka_unit_test(a_complex_that_does_not_fit_is_refused),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(signals_stop_all_ranks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
