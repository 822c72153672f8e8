/* test_synth_complexes.c: synthetic complexes from the command to a trained network: the files are
 * the same ones each time, a build refuses none of them, AlphaFold 3 learns from them, and a run
 * that was cut short or repeats an order of samples ends with the same bytes. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* `same A B` compares the last checkpoints; `refuses CODE TEXT COMMAND` its exit code and error. */
static const char functions[] =
    "steps=20; synth='foldmill synth --max-length 40 --depth 40 --quiet'; "
    "train='foldmill train --config small.ini --preset af3-tiny -q'; "
    "same() { cmp $1/checkpoint-000000000020.safetensors "
    "$2/checkpoint-000000000020.safetensors; }; "
    "refuses() { expected=$1 text=$2 code=0; shift 2; \"$@\" >refused.log 2>&1 || code=$?; "
    "test $code = $expected && grep -q -- \"$text\" refused.log || "
    "{ cat refused.log; return 8; }; }; ";

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    run_first = functions;
    return run(
        "printf '%s\\n' '[data]' 'max_cycle = 1' '[af3]' 'n_sample = 1' 'n_rollout_step = 1' "
        "'n_pairformer_block = 1' 'n_msa_block = 1' 'n_diffusion_block = 1' "
        "'n_atom_block = 1' >small.ini && $synth --complexes 8 -o data >synth.log && "
        "foldmill build data --complexes --components data/components.cif --cache cache "
        ">build.log 2>&1 || { cat build.log; exit 1; }");
}

static void the_files_are_the_same_each_time(void **state) {
    (void)state;
    assert_int_equal(
        run("grep -q ' in 8 complexes, ' synth.log && grep -q complexes data/synth.json && "
            "$synth --complexes 3 -o again >log && "
            "refuses 1 'a dataset of other options' $synth --chains 8 --force -o again && "
            "$synth --complexes 8 --force -o again >log && diff -r data again && "
            "refuses 2 'found also --chains' $synth --chains 2 --complexes 2 -o other && "
            "test ! -e other"),
        0);
}

/* Chains and complexes of all entries are in the cache, with rows for each entity. */
static void a_build_refuses_nothing(void **state) {
    (void)state;
    assert_int_equal(run("grep -q '^refused *0' build.log && "
                         "grep -q 'with 11 chains and 8 complexes' build.log && "
                         "! grep -q 'without alignments' build.log && "
                         "foldmill verify --cache cache >verify.log"),
                     0);
}

static void a_network_learns_from_them(void **state) {
    (void)state;
    server = fm_test_serve(folder, "socket", "--cache cache");
    assert_int_equal(
        run("$train --data unix:socket --steps $steps --out whole >log 2>&1 || "
            "{ cat log; exit 1; }; test $(wc -l <whole/metrics.jsonl) = $steps && "
            "! grep -q 'null\\|nan' whole/metrics.jsonl && "
            "LC_ALL=C awk '{ match($0, /\"loss\":[0-9.e+-]+/); "
            "x = substr($0, RSTART + 7, RLENGTH - 7); if (NR <= 8) a += x; if (NR > 12) b += x } "
            "END { exit !(b < 0.8 * a) }' whole/metrics.jsonl"),
        0);
}

/* With a server of its own. */
static void a_resumed_run_has_the_same_bytes(void **state) {
    (void)state;
    assert_int_equal(run("$train --cache cache --steps 9 --out again-run >log 2>&1 && "
                         "$train --cache cache --steps $steps --out again-run --resume >log 2>&1 "
                         "&& same whole again-run || { cat log; exit 1; }"),
                     0);
}

static void a_replay_has_the_same_bytes(void **state) {
    (void)state;
    assert_int_equal(run("$train --data unix:socket --replay whole/ledger --steps $steps "
                         "--out replay >log 2>&1 && same whole replay || { cat log; exit 1; }"),
                     0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_files_are_the_same_each_time),
        cmocka_unit_test(a_build_refuses_nothing),
        cmocka_unit_test(a_network_learns_from_them),
        cmocka_unit_test(a_resumed_run_has_the_same_bytes),
        cmocka_unit_test(a_replay_has_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
