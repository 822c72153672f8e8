/* test_train_complexes.c: from structures of complexes to a trained network: entries are built,
 * served and trained on, a run that was cut short ends with the same bytes, and so does one that
 * repeats an order of samples. */
#include "tests/featurizer/complex_text.h"
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* `same A B N` compares the checkpoints of step N; `refuses TEXT COMMAND` its last error. */
static const char functions[] =
    "train='foldmill train --config small.ini --preset af3-tiny -q'; "
    "same() { cmp $1/checkpoint-00000000000$3.safetensors "
    "$2/checkpoint-00000000000$3.safetensors; }; "
    "refuses() { text=$1; shift; \"$@\" >refused.log 2>&1 && return 9; "
    "grep -q -- \"$text\" refused.log || { cat refused.log; return 8; }; }; ";

static void write_text(const char *name, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    run_first = functions;
    if (run("mkdir -p data/mmcifs")) return -1;
    write_text("known.cif", COMPLEX_COMPONENTS);
    write_text("data/mmcifs/1abc.cif", COMPLEX_HEAD COMPLEX_POLY COMPLEX_CONN COMPLEX_ASSEMBLY
                                           COMPLEX_SITE COMPLEX_CHAIN_A COMPLEX_LIGANDS);
    write_text("data/mmcifs/2abc.cif",
               COMPLEX_HEAD COMPLEX_POLY COMPLEX_CONN COMPLEX_SITE COMPLEX_CHAIN_A COMPLEX_LIGANDS);
    if (run("printf '[data]\\nglobal_batch = 2\\n[af3]\\nn_sample = 2\\nn_rollout_step = 2\\n' "
            ">small.ini && sed 's/.data./&\\nn_template = 1/' small.ini >other.ini && foldmill "
            "build data --complexes --components known.cif --cache cache "
            ">build.log 2>&1 || { cat build.log; exit 1; }")) {
        return -1;
    }
    server = fm_test_serve(folder, "socket", "--cache cache");
    return run("$train --data unix:socket --steps 4 --out whole >whole.log 2>&1 || "
               "{ cat whole.log; exit 1; }");
}

static void a_run_learns_from_the_server(void **state) {
    (void)state;
    assert_int_equal(run("grep -q 'snapshot all, plan af3-tiny' whole.log && "
                         "test $(wc -l <whole/metrics.jsonl) = 4 && "
                         "grep -q '\"sample\":\"[12]abc\"' whole/metrics.jsonl && "
                         "! grep -q 'null\\|nan' whole/metrics.jsonl"),
                     0);
}

/* Also with a server of its own. */
static void a_resumed_run_has_the_same_bytes(void **state) {
    (void)state;
    assert_int_equal(run("$train --cache cache --steps 2 --out again >again.log 2>&1 && "
                         "$train --cache cache --steps 4 --out again --resume >again.log 2>&1 && "
                         "same whole again 4"),
                     0);
}

static void a_replay_has_the_same_bytes(void **state) {
    (void)state;
    assert_int_equal(
        run("$train --data unix:socket --order bounded:2 --steps 3 --out free >free.log 2>&1 && "
            "$train --data unix:socket --replay free/ledger --steps 3 --out replay >log 2>&1 && "
            "same free replay 3"),
        0);
}

/* Every client has the same samples, in any order of its requests. */
static void samples_have_one_digest(void **state) {
    (void)state;
    assert_int_equal(
        run("fetch='foldmill fetch --data unix:socket --plan af3-tiny --steps 6 --digest --json'; "
            "$fetch >strict.json && $fetch --order bounded:4 >free.json && "
            "for run in strict free; do grep -o '\"digest\": *\"[0-9a-f]*\"' $run.json "
            ">$run.digest; "
            "done && test -s strict.digest && cmp strict.digest free.digest"),
        0);
}

/* Each complex of the held-out snapshot is scored once, on the same crop wherever it comes from.
 * Training does not change. A run that was cut short has the same scores, and so have two ranks. */
static void complexes_are_held_out(void **state) {
    (void)state;
    assert_int_equal(
        run("scores() { sed 's/,.wall_s.*//' $1/eval.jsonl; }; "
            "$train --cache cache --eval-snapshot all --eval-every 2 --steps 4 --out judged "
            ">judged.log 2>&1 || { cat judged.log; exit 1; }; same whole judged 4 && "
            "test \"$(cut -d, -f1,2 judged/eval.csv | tr '\\n' ' ')\" = "
            "'step,sample 4,1abc 4,2abc ' && grep -q 'held out  all: 2 samples' judged.log && "
            "grep -q '\"step\":2,\"samples\":2,.*\"rollout_pocket_rmsd\":[0-9]' "
            "judged/eval.jsonl && "
            "$train --data unix:socket --eval-snapshot all --eval-every 2 --steps 2 --out cut "
            ">cut.log 2>&1 && "
            "$train --data unix:socket --eval-snapshot all --eval-every 2 --steps 4 --out cut "
            "--resume >cut.log 2>&1 && scores judged >judged.txt && scores cut >cut.txt && "
            "cmp judged.txt cut.txt && cmp judged/eval.csv cut/eval.csv && "
            "$train --cache cache --ranks 2 --eval-snapshot all --steps 4 --out ranks "
            ">ranks.log 2>&1 && cmp judged/eval.csv ranks/eval.csv"),
        0);
    assert_int_equal(
        run("printf '2abc\\n' >list.txt && "
            "foldmill snapshot create held --cache cache --chains list.txt >snapshot.log && "
            "$train --cache cache --eval-snapshot held --steps 1 --out held >held.log 2>&1 && "
            "test \"$(tail -n +2 held/eval.csv | cut -d, -f1,2)\" = 1,2abc && "
            "refuses 'give no --samples or --eval-samples' $train --cache cache --eval-snapshot "
            "all --eval-samples x --steps 1 --out x && "
            "refuses 'eval-data needs --eval-snapshot' $train --cache cache --eval-data "
            "unix:socket --steps 1 --out x && "
            "refuses 'held' $train --data unix:socket --eval-snapshot held --steps 1 --out x"),
        0);
}

/* A plan of chains finds none here, and says what there is. */
static void the_other_kind_is_refused(void **state) {
    (void)state;
    assert_int_equal(run("refuses 'the plan tiny samples chains, and the snapshot all has none, "
                         "but 2 complexes' "
                         "foldmill train --data unix:socket --preset tiny --steps 1 --out x && "
                         "refuses 'found 2 templates, expected 1 (n_template)' foldmill train "
                         "--data unix:socket "
                         "--config other.ini --preset af3-tiny --steps 1 --out x"),
                     0);
}

/* Beside the complexes there is a chain, whose alignment is in the dataset. Whole chains are
 * counted and served alone, and complexes by their plans. */
static void a_cache_has_both_kinds(void **state) {
    (void)state;
    assert_int_equal(run("mkdir -p data/alignments/1abc_X && "
                         "printf '>query\\nGMG\\n>other\\nGAG\\n' "
                         ">data/alignments/1abc_X/uniref90_hits.a3m && "
                         "foldmill build data --complexes --components known.cif --cache both "
                         ">both.log 2>&1 || { cat both.log; exit 1; }"),
                     0);
    const pid_t other = fm_test_serve(folder, "both.socket", "--cache both");
    const int failed =
        run("fetch='foldmill fetch --data unix:both.socket --steps 1 --batch 1'; "
            "$fetch --plan eval >eval.txt && grep -q '^snapshot .* 1 chain$' eval.txt && "
            "$fetch --plan af3-tiny >af3.txt && grep -q 'samples   1,' af3.txt");
    assert_int_equal(fm_test_stop(other, SIGTERM), 0);
    assert_int_equal(failed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_learns_from_the_server),
        cmocka_unit_test(a_resumed_run_has_the_same_bytes),
        cmocka_unit_test(a_replay_has_the_same_bytes),
        cmocka_unit_test(samples_have_one_digest),
        cmocka_unit_test(complexes_are_held_out),
        cmocka_unit_test(the_other_kind_is_refused),
        cmocka_unit_test(a_cache_has_both_kinds),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
