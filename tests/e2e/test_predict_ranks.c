/* test_predict_ranks.c: `foldmill predict` by several processes, as a user runs it: chains that are
 * split over ranks, chains that are divided among groups of ranks, ranks that are killed, signals
 * and mistakes. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Shell functions of all tests, beside those of library.sh.
 *
 *     p ARGS            predicts with the tiny model, without stopping early
 *     begin ARGS        starts predictions beside the shell, which end with it; $run is the command
 *     $many             seeds whose predictions are far from their end after the first one
 *     $two              the first and the last of these seeds
 *     until_ranks N     waits until $run has N ranks; $ranks are their processes
 *     until_one DIR     waits until the first prediction is finished
 *     close_to A B      both have the same predictions, with about the same atoms and scores
 *     same A B          both have the same predictions, with the same bytes */
static const char library[] =
    "p() { foldmill predict --weights tiny.safetensors --recycle-tol 0 \"$@\"; }\n"
    "begin() { beside foldmill predict --weights tiny.safetensors --recycle-tol 0 --recycles 5 "
    "--cache cache \"$@\"; }\n"
    "many='--seeds 11,10,9,8,7,6,5,4,3,2,1,0'; two='--seeds 11,0'\n"
    "has_one() { ls $1/*/*_run.json >ls.log 2>&1; }\n"
    "until_one() { until_true has_one $1; }\n"
    "has_ranks() { ranks=$(ranks_of $run); [ $(echo $ranks | wc -w) = $1 ]; }\n"
    "until_ranks() { until_true has_ranks $1; }\n"
    "same() { (cd $1 && ls */*.cif */*_scores.json) >$1.ls; (cd $2 && ls */*.cif */*_scores.json) "
    ">$2.ls; cmp $1.ls $2.ls && for f in $(cat $1.ls); do cmp $1/$f $2/$f || return 1; done; }\n"
    "close_to() { python3 - $1 $2 <<'END'\n"
    "import glob, json, os, sys\n"
    "a, b = sys.argv[1:]\n"
    "names = lambda d: sorted(os.path.relpath(f, d) for f in glob.glob(d + '/*/*.cif'))\n"
    "assert names(a) and names(a) == names(b), (names(a), names(b))\n"
    "for f in names(a):\n"
    "    x, y = ([l.split() for l in open(d + '/' + f) if l.startswith('ATOM')] for d in (a, b))\n"
    "    assert len(x) == len(y) > 0\n"
    "    for r, s in zip(x, y):\n"
    "        assert len(r) == len(s)\n"
    "        for u, v in zip(r, s):\n"
    "            assert u == v or abs(float(u) - float(v)) < 0.02, (f, r, s)\n"
    "    p, q = (json.load(open(d + '/' + f[:-4] + '_scores.json')) for d in (a, b))\n"
    "    for k in p:\n"
    "        u, v = (t if isinstance(t, list) else [t] for t in (p[k], q[k]))\n"
    "        flat = lambda t: [z for w in t for z in (w if isinstance(w, list) else [w])]\n"
    "        assert all(abs(i - j) < 0.05 for i, j in zip(flat(u), flat(v))), (f, k)\n"
    "END\n"
    "}\n";

/* A tiny model that was trained at a high rate, so that its blocks count. Chains are short (some
 * are padded, some are not), because ranks wait for each other many times in each cycle. */
static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    run_first = ". ./lib; ";
    if (fm_test_write_library(folder, library)) return 1;
    int failed =
        run("foldmill synth --chains 5 --seed 5 --min-length 14 --max-length 24 --depth 40 -o data "
            "--quiet && "
            "foldmill build data --cache cache --quiet >build.log && "
            "printf '[model]\\nn_aligned_error_bin = 64\\n[loss]\\naligned_error = 0.1\\n[data]\\n"
            "crop_size = 16\\nmax_msa_clusters = 8\\n[optimizer]\\nlearning_rate = 0.01\\n"
            "warmup_samples = 0\\n' >small.ini && foldmill train --cache cache --config small.ini "
            "--steps 8 --quiet --out run >run.log 2>&1 && "
            "cp run/checkpoint-000000000008.safetensors tiny.safetensors");
    return failed ? failed : run("p --cache cache --seeds 0,1 --out one >one.log 2>&1");
}

/* Chains that are split over two ranks have the structures of one rank to rounding, and the same
 * bytes every time, also where the chains are divided among several groups of ranks. */
static void ranks_predict_what_one_predicts(void **state) {
    (void)state;
    assert_int_equal(run("p --cache cache --seeds 0,1 --dap 2 --out two >two.log 2>&1 && "
                         "close_to one two && grep -q '10 predictions' two.log"),
                     0);
    assert_int_equal(run("p --cache cache --seeds 0,1 --dap 2 --ranks 4 --out four >four.log 2>&1 "
                         "&& same two four"),
                     0);
    assert_int_equal(run("p --cache cache --seeds 0,1 --ranks 3 --out three >three.log 2>&1 && "
                         "same one three && test $(ls three/*/*.html | wc -l) = 5 && "
                         "cut -d, -f1-9 one/summary.csv >one.csv && "
                         "cut -d, -f1-9 three/summary.csv | cmp one.csv"),
                     0);
    /* Averages over draws, which also cross the ranks. */
    assert_int_equal(run("p --cache cache --seeds 0 --ensemble 3 --out mean >mean.log 2>&1 && "
                         "p --cache cache --seeds 0 --ensemble 3 --dap 2 --out mean2 >mean2.log "
                         "2>&1 && close_to mean mean2 && n=$(ls mean | head -1) && ! cmp -s "
                         "mean/$n/${n}_tiny_seed-0.cif "
                         "one/$n/${n}_tiny_seed-0.cif"),
                     0);
    /* Threads change no bit. */
    assert_int_equal(run("p --cache cache --seeds 0,1 --threads 3 --out threads >threads.log 2>&1 "
                         "&& same one threads"),
                     0);
    /* There may be more ranks than chains, and a chain may be named. */
    assert_int_equal(run("n=$(ls one | head -1); p --cache cache --chain $n --seeds 0,1 --ranks 3 "
                         "--out few >few.log 2>&1 && cmp one/$n/${n}_tiny_seed-1.cif "
                         "few/$n/${n}_tiny_seed-1.cif && grep -q '2 predictions' few.log"),
                     0);
}

/* Files are prepared once, by the command; a bad one is refused there. */
static void files_are_inputs_of_ranks(void **state) {
    (void)state;
    assert_int_equal(run("mkdir seqs msas; for d in data/alignments/*; do n=$(basename $d); cp -r "
                         "$d msas/; { echo \">$n\"; sed -n 2p $d/uniref90_hits.a3m; } "
                         ">seqs/$n.fasta; done; printf '>x\\nMKJ\\n' >seqs/zz.fasta; "
                         "p seqs/*.fasta --alignments msas --templates data/mmcifs --dap 2 --out "
                         "files >files.log 2>files.err; test $? = 3"),
                     0);
    assert_int_equal(run("rm seqs/zz.fasta; p seqs/*.fasta --alignments msas --templates "
                         "data/mmcifs --out plain >plain.log 2>&1 && close_to plain files && "
                         "test $(grep -c 'zz.fasta:2:3' files.err) = 1 && ! ls -d files/.features"),
                     0);
}

/* A killed rank ends the command, which names it. Finished predictions stay, and --resume makes the
 * others, here of two of the seeds. */
static void a_killed_rank_is_named(void **state) {
    (void)state;
    assert_int_equal(run("begin $many --dap 2 --ranks 4 --out killed >killed.log 2>killed.err; "
                         "until_ranks 4; victim=$(rank_of $run 3); until_one killed; "
                         "kill -9 $victim; wait $run; test $? = 1 && all_gone $ranks && grep -q "
                         "\"^foldmill predict: rank 3 (process $victim) was killed by signal 9\" "
                         "killed.err && grep -q 'a rank has failed; --resume keeps' killed.err && "
                         "! grep -q 'before the first step' killed.err"),
                     0);
    assert_int_equal(
        run("test ! -e killed/summary.csv && "
            "test $(sed -n 's/.*keeps the \\([0-9]*\\) finished.*/\\1/p' killed.err) -le "
            "$(ls killed/*/*_run.json | wc -l) && "
            "rm -f killed/*/*_seed-[1-9][_.]* killed/*/*_seed-10* && "
            "n=$(ls killed/*/*_run.json | wc -l) && test $n -gt 0 && test $n -lt 10 && "
            "begin $two --dap 2 --ranks 4 --resume --out killed >resumed.log "
            "2>resumed.err; wait $run && "
            "test $(grep -c ' done earlier, ' resumed.err) = $n && "
            "begin $two --dap 2 --out whole >whole.log 2>&1; wait $run && same whole killed"),
        0);
    /* Predictions of one rank have other bits, so they are not kept. */
    assert_int_equal(
        run("begin $two --resume --chain $(ls killed | head -1) --out killed >other.log "
            "2>&1; wait $run && ! grep -q 'done earlier' other.log"),
        0);
    assert_int_equal(run("begin $many --ranks 2 --out gone >gone.log 2>&1; until_ranks 2; "
                         "until_one gone; kill -9 $run; wait $run; all_gone $ranks"),
                     0);
}

/* A signal to the command or to any rank stops all ranks after the chain in hand. */
static void signals_stop_all_ranks(void **state) {
    (void)state;
    assert_int_equal(run("begin $many --dap 2 --out term >term.log 2>term.err; until_one term; "
                         "kill -TERM $run; wait $run; test $? = 143 && grep -q 'stopped by SIGTERM "
                         "after [0-9]* predictions*\\(; --resume continues\\)*$' term.err"),
                     0);
    assert_int_equal(
        run("begin $many --dap 2 --out int >int.log 2>int.err; until_ranks 2; "
            "other=$(rank_of $run 1); until_one int; kill -INT $other; wait $run; test $? = 130 && "
            "grep -q 'stopped by SIGINT' int.err && ! grep -q failed int.err"),
        0);
}

static void mistakes_are_named(void **state) {
    (void)state;
    assert_int_equal(run("p --cache cache --dap 2 --ranks 3 --out none 2>err"), 2);
    assert_int_equal(run("grep -q 'found 3 ranks, expected a multiple' err"), 0);
    assert_int_equal(run("p --cache cache --gpus 2 --out none 2>err"), 2);
    assert_int_equal(run("grep -q -- '--gpus needs --device cuda' err"), 0);
    assert_int_equal(run("p --cache cache --gpus 2 --ranks 2 --out none 2>err"), 2);
    assert_int_equal(run("p --cache cache --ensemble 13 --out none 2>err"), 2);
    assert_int_equal(run("grep -q 'needs more than 48 draws' err"), 0);
    /* The server ends with the command, so a rank that comes too late does not find it. */
    assert_int_equal(
        run("FOLDMILL_RESULTS=1 FOLDMILL_RANK=0 FOLDMILL_RANKS=2 FOLDMILL_PRIVATE_SERVER=unix:x "
            "FOLDMILL_MEETING=unix:meet p --cache cache --ranks 3 --out none 2>err"),
        2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_predict_what_one_predicts),
        cmocka_unit_test(files_are_inputs_of_ranks),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(signals_stop_all_ranks),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
