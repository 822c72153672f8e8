/* test_train_samples_ranks.c: `foldmill train --samples` on several ranks that are processes: the
 * losses, scores and bytes of one rank, ranks that are killed or stopped, also in an evaluation,
 * bad samples, and what is refused. */
#include "tests/testing/complex_sample.h"
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Shell functions of all tests, beside those of library.sh.
 *
 *     begin ARGS       starts a run beside the shell, which ends with it; $run is its process
 *     close_to A B     losses, scores and samples of two runs are the same, apart from rounding
 *     equal A B        they are the same to the last digit
 *     same A B N       and the checkpoints after N steps have the same bytes
 *     refuses TEXT ... the command fails with this text in its output */
static const char library[] =
    "train='foldmill train --samples samples --config small.ini --preset af3-tiny "
    "--eval-samples held --seed 3 --checkpoint-every 1 --keep 9 -q'\n"
    "begin() { beside $train \"$@\"; }\n"
    "scores() { sed 's/,\"wall_s.*//' $1/eval.jsonl; }\n"
    "equal() { for f in losses scores; do $f $1 >a && $f $2 >b && cmp a b || return 1; done; }\n"
    "same() { equal $1 $2 && cmp $1/checkpoint-$3.safetensors $2/checkpoint-$3.safetensors; }\n"
    "scores_as_metrics() { mkdir -p $1.s && "
    "sed 's/\"samples\"/\"index\"/' $1/eval.jsonl >$1.s/metrics.jsonl; }\n"
    "close_to() { close_losses $1 $2 && scores_as_metrics $1 && scores_as_metrics $2 && "
    "close_losses $1.s $2.s; }\n"
    "has_checkpoint() { ls $1/checkpoint-$2 >has.log 2>&1; }\n"
    "refuses() { text=$1; shift; \"$@\" >refused.log 2>&1 && return 9; "
    "grep -q -- \"$text\" refused.log || { cat refused.log; return 8; }; }\n";

static void write_sample(const char *name, uint64_t seed, double first_class) {
    char path[600];
    fm_test_complex c;
    fm_test_complex_make(&c, seed);
    fm_test_complex_set(fm_test_complex_find(&c, "msa"), 0, first_class);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    fm_test_complex_write(&c, path);
    fm_test_complex_free(&c);
}

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    run_first = ". ./lib; ";
    if (fm_test_write_library(folder, library)) return 1;
    int failed = run("mkdir samples held bad && printf '[data]\\ncrop_size = 10\\nmax_atoms = 16\\n"
                     "global_batch = 2\\n[metrics]\\neval_every = 2\\n[af3]\\nn_sample = 3\\n"
                     "n_rollout_step = 2\\n' >small.ini");
    if (failed) return failed;
    write_sample("samples/a.npz", 1, 0);
    write_sample("samples/b.npz", 2, 0);
    write_sample("samples/c.npz", 3, 0);
    write_sample("held/d.npz", 4, 0);
    write_sample("held/e.npz", 5, 0);
    write_sample("held/f.npz", 6, 0);
    write_sample("bad/a.npz", 1, 0);
    write_sample("bad/b.npz", 2, 99);
    return run("$train --steps 5 --out one >one.log 2>&1");
}

/* Groups keep the order of sums, so data parallelism has the bytes of one rank; ranks that share a
 * sample sum in another order. */
static void ranks_have_the_losses_of_one(void **state) {
    (void)state;
    assert_int_equal(run("$train --steps 5 --ranks 2 --out groups >log 2>&1 && "
                         "grep -q '^ranks     2: dap 1, bp 1, dp 2$' log && equal one groups && "
                         "test $(wc -l <groups/metrics.jsonl) = 5 && "
                         "test $(wc -l <groups/eval.jsonl) = 3 && "
                         "test $(grep -c ' evaluated step=' log) = 3"),
                     0);
    assert_int_equal(run("$train --steps 5 --dap 2 --out parts >log 2>&1 && close_to one parts && "
                         "$train --steps 5 --ranks 4 --dap 2 --out both >log 2>&1 && "
                         "grep -q '^ranks     4: dap 2, bp 1, dp 2$' log && close_to one both && "
                         "equal parts both"),
                     0);
}

/* The table has a row for each file, also of groups, and the means of eval.jsonl are its means. */
static void the_table_has_every_file(void **state) {
    (void)state;
    assert_int_equal(
        run("$train --steps 5 --ranks 2 --out table >log 2>&1 && cmp one/eval.csv table/eval.csv "
            "&& test $(wc -l <one/eval.csv) = 4 && "
            "test \"$(cut -d, -f1,2 one/eval.csv | tail -3 | tr '\\n' ' ')\" = '5,d 5,e 5,f ' && "
            "awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } "
            "{ rmsd = $at[\"rollout_rmsd\"]; sum += rmsd; if (rmsd > max) max = rmsd; "
            "mirrored += $at[\"rollout_mirror_rmsd\"] < rmsd; n++ } "
            "END { printf \"%.6f %.6f %.6f\\n\", sum / n, max, mirrored / n }' one/eval.csv "
            ">table.own && tail -1 one/eval.jsonl | tr ',' '\\n' | awk -F: "
            "'/rollout_rmsd|rollout_mirrored/ { printf \"%.6f \", $2 }' | sed 's/ $//' "
            ">table.line && echo >>table.line && cmp table.own table.line"),
        0);
}

/* A batch of three on two groups: one has a sample more. */
static void a_batch_need_not_be_divided_evenly(void **state) {
    (void)state;
    assert_int_equal(run("sed 's/^global_batch.*/global_batch = 3/' small.ini >three.ini && "
                         "train=\"$train --config three.ini\"; "
                         "$train --steps 3 --out three >log 2>&1 && "
                         "$train --steps 3 --ranks 2 --out uneven >log 2>&1 && "
                         "close_to three uneven"),
                     0);
}

/* A rank or the whole command is killed; resumed runs end with the bytes of one left alone. */
static void killed_ranks_cost_no_bit(void **state) {
    (void)state;
    assert_int_equal(run("train=\"$train --ranks 4 --dap 2 --steps 8\"; "
                         "$train --out whole >whole.log 2>&1 || exit 1; "
                         "begin --out killed >killed.log 2>&1; until_step killed 2; "
                         "all=$(ranks_of $run); kill -9 $(rank_of $run 2); "
                         "wait $run; test $? = 1 && all_gone $all && "
                         "grep -q 'rank 2 .*process' killed.log || exit 2; "
                         "begin --resume --out killed >killed.log 2>&1; until_step killed 5; "
                         "all=$(ranks_of $run); kill -9 $run; wait $run; "
                         "all_gone $all && $train --resume --out killed >killed.log 2>&1 && "
                         "grep -q 'resumed at step' killed.log && same whole killed 000000000008"),
                     0);
}

/* Ranks that share a sample also stop and continue inside a batch. */
static void a_batch_is_resumed_inside(void **state) {
    (void)state;
    assert_int_equal(run("train=\"$train --dap 2 --steps 5\"; "
                         "begin --checkpoint-minutes 0.00001 --out half >half.log 2>&1; "
                         "until_true has_checkpoint half '*+1.safetensors'; "
                         "kill -TERM $run; wait $run; $train --resume --out half >half.log 2>&1 && "
                         "same parts half 000000000005"),
                     0);
}

/* A signal to one rank stops all; another number of ranks continues the run. */
static void a_stopped_run_continues_with_fewer_ranks(void **state) {
    (void)state;
    assert_int_equal(run("begin --ranks 2 --steps 100000 --out term >term.log 2>&1; "
                         "until_step term 2; kill -TERM $(rank_of $run 1); wait $run; "
                         "test $? = 143 && "
                         "test $(grep -c 'stopped by SIGTERM after step .*; --resume continues' "
                         "term.log) = 1 && n=$(wc -l <term/metrics.jsonl) && "
                         "$train --resume --change dp=none --steps $((n + 1)) --out term "
                         ">term.log 2>&1 && test $(wc -l <term/metrics.jsonl) = $((n + 1))"),
                     0);
}

/* The metrics of a step are written before its evaluation, which takes seconds. A signal to any
 * rank ends it between two files. A resumed run makes it first, on all ranks, though only the first
 * one knows that the scores are missing. */
static void a_cut_evaluation_is_made_up_for(void **state) {
    (void)state;
    assert_int_equal(
        run("mkdir many && for n in $(seq 20); do cp held/d.npz many/$n.npz || exit 1; done; "
            "sed 's/^eval_every.*/eval_every = 1\\neval_rollout_step = 500/' small.ini >slow.ini; "
            "train=\"$train --config slow.ini --eval-samples many --steps 2\"; "
            "stop_after() { begin --ranks $n --resume --out cut.$n >cut.log 2>&1; "
            "until_step cut.$n $1; victim=$run; test $n = 1 || victim=$(rank_of $run 1); "
            "kill -TERM $victim; wait $run; test $? = 143 && "
            "grep -q \" evaluation_given_up step=$1 \" cut.log && "
            "grep -q \"stopped by SIGTERM after step $1 of 2; --resume continues\" cut.log && "
            "test -s cut.$n/checkpoint-00000000000$1.safetensors && "
            "test $(wc -l <cut.$n/eval.jsonl) = $(($1 - 1)); }; "
            "$train --out calm >calm.log 2>&1 && for n in 1 2; do "
            "stop_after 1 && stop_after 2 || exit $n; "
            "$train --ranks $n --resume --out cut.$n >cut.log 2>&1 && "
            "grep -q ' evaluated step=2 ' cut.log && equal calm cut.$n && "
            "cmp calm/eval.csv cut.$n/eval.csv || exit 1$n; done; "
            "same calm cut.1 000000000002"),
        0);
}

static void bad_samples_are_skipped_by_all(void **state) {
    (void)state;
    assert_int_equal(
        run("train=\"$train --samples bad --steps 3\"; "
            "refuses 'b.npz: msa\\[0\\]: found 99, expected 0 to 31' $train --ranks 2 "
            "--out stopped && test $(grep -c 'found 99' refused.log) = 1 && "
            "grep -q 'to go on without it: .*--skip-sample' refused.log && "
            "$train --out skip.1 --bad-samples skip >skip.log 2>&1 && "
            "grep -q '3 of them bad' skip.log && "
            "for n in 1 2; do $train --out skip.2.$n --bad-samples skip --ranks 2 --dap $n "
            ">skip.log 2>&1 && grep -q '3 of them bad' skip.log && close_to skip.1 skip.2.$n || "
            "exit 1; done"),
        0);
    /* A step whose last sample was skipped is scored, too. */
    assert_int_equal(run("$train --steps 2 --skip-sample 3 --out last >last.log 2>&1 && "
                         "test $(wc -l <last/eval.jsonl) = 1 && "
                         "$train --steps 2 --skip-sample 3 --ranks 2 --out last.2 >last.log 2>&1 "
                         "&& equal last last.2"),
                     0);
}

/* Values that are not finite are found by all ranks of a sample, which end together. */
static void losses_that_are_not_finite_end_all(void **state) {
    (void)state;
    assert_int_equal(
        run("(cat small.ini; printf '[optimizer]\\nlearning_rate = 10\\nbeta2 = 0\\n"
            "eps = 1e-30\\nwarmup_samples = 0\\n') >wild.ini; "
            "train=\"$train --config wild.ini --steps 30\"; "
            "for n in 1 2; do refuses 'sample [0-9]* (.*): step .* is not finite' $train "
            "--ranks 2 --dap $n --out wild.$n && "
            "test $(grep -c 'is not finite' refused.log) = 1 || exit 1; done"),
        0);
}

/* The step whose evaluation fails was made, so that the last checkpoint is of this step. */
static void a_failed_evaluation_keeps_its_step(void **state) {
    (void)state;
    assert_int_equal(
        run("(cat small.ini; printf '[optimizer]\\nlearning_rate = 10\\nbeta2 = 0\\neps = 1e-30\\n"
            "warmup_samples = 0\\nema_decay = 0\\n') >judge.ini; "
            "train=\"$train --config judge.ini --steps 30 --checkpoint-every 1000\"; "
            "for n in 1 2; do refuses '(d): .* is not finite, after step 2 of' $train "
            "--ranks $n --out judge.$n && test $(wc -l <judge.$n/metrics.jsonl) = 2 && "
            "test \"$(ls judge.$n | grep checkpoint)\" = checkpoint-000000000002.safetensors || "
            "exit 1; "
            /* A resumed run makes the evaluation again before the next step. */
            "refuses '(d): .* is not finite, after step 2 of 30; --resume continues' $train "
            "--ranks $n --resume --out judge.$n && test $(grep -c 'not finite' refused.log) = 1 && "
            "test $(wc -l <judge.$n/metrics.jsonl) = 2 || exit 2; done"),
        0);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    assert_int_equal(run("refuses 'blocks of af3 have one branch, expected bp = 1' "
                         "$train --ranks 2 --bp 2 --out x && "
                         "refuses '3 groups of ranks cannot share a step of 2 samples' "
                         "$train --ranks 3 --out x && "
                         "refuses 'bad/b.npz: msa' $train --eval-samples bad --ranks 2 --out x && "
                         "test $(grep -c 'found 99' refused.log) = 1 && test ! -e x/metrics.jsonl"),
                     0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_have_the_losses_of_one),
                                       cmocka_unit_test(the_table_has_every_file),
                                       cmocka_unit_test(a_batch_need_not_be_divided_evenly),
                                       cmocka_unit_test(killed_ranks_cost_no_bit),
                                       cmocka_unit_test(a_batch_is_resumed_inside),
                                       cmocka_unit_test(a_stopped_run_continues_with_fewer_ranks),
                                       cmocka_unit_test(a_cut_evaluation_is_made_up_for),
                                       cmocka_unit_test(bad_samples_are_skipped_by_all),
                                       cmocka_unit_test(losses_that_are_not_finite_end_all),
                                       cmocka_unit_test(a_failed_evaluation_keeps_its_step),
                                       cmocka_unit_test(what_does_not_fit_is_refused)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
