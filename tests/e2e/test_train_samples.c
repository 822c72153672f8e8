/* test_train_samples.c: `foldmill train --samples`: a run of AlphaFold 3 on stored samples, what it
 * writes, the same bytes after a kill, bad samples, evaluations, also those that are made up for,
 * weights out and in, and what is refused. */
#include "tests/testing/complex_sample.h"
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* `same A B N` compares the checkpoints of step N; `refuses TEXT COMMAND` its last error. */
static const char functions[] =
    "train='foldmill train --samples samples --config small.ini --preset af3-tiny -q'; "
    "same() { cmp $1/checkpoint-00000000000$3.safetensors "
    "$2/checkpoint-00000000000$3.safetensors; }; "
    "refuses() { text=$1; shift; \"$@\" >refused.log 2>&1 && return 9; "
    "grep -q -- \"$text\" refused.log || { cat refused.log; return 8; }; }; ";

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
    run_first = functions;
    int failed = run("mkdir samples held bad && printf '[data]\\ncrop_size = 10\\nmax_atoms = 16\\n"
                     "global_batch = 2\\n[metrics]\\neval_every = 2\\n[af3]\\nn_sample = 2\\n"
                     "n_rollout_step = 2\\n' >small.ini && echo notes >samples/readme");
    if (failed) return failed;
    write_sample("samples/a.npz", 1, 0);
    write_sample("samples/b.npz", 2, 0);
    write_sample("samples/c.npz", 3, 0);
    write_sample("held/d.npz", 4, 0);
    write_sample("bad/a.npz", 1, 0);
    write_sample("bad/b.npz", 2, 99);
    return run("$train --eval-samples held --steps 5 --out whole --checkpoint-every 1 --keep 9 "
               ">whole.log 2>&1");
}

static void a_run_writes_its_files(void **state) {
    (void)state;
    assert_int_equal(run("test $(wc -l <whole/metrics.jsonl) = 5 && "
                         "grep -q '\"smooth_lddt\":' whole/metrics.jsonl && "
                         "grep -q '\"learning_rate\":0,' whole/metrics.jsonl && "
                         "! grep -q 'null\\|nan' whole/metrics.jsonl whole/eval.jsonl && "
                         "test \"$(sed 's/{.step.:\\([0-9]*\\),.*/\\1/' whole/eval.jsonl | "
                         "tr '\\n' ' ')\" = '2 4 5 ' && "
                         "grep -q '\"lddt\":0.*\"rollout_rmsd\":[0-9].*\"rollout_lddt\":0' "
                         "whole/eval.jsonl && grep -q '\"lddt\":0' whole/metrics.jsonl && "
                         "grep -q 'rollout_protein_lddt\":[01].*rollout_interface_lddt\":[01]' "
                         "whole/eval.jsonl && head -1 whole/eval.csv | grep -q 'rollout_dockq,"
                         "rollout_pocket_rmsd$' && "
                         "test $(wc -l <whole/eval.csv) = 2 && grep -q '^5,d,' whole/eval.csv && "
                         "test $(grep -c ' evaluated step=[245] lddt=0' whole.log) = 3 && "
                         "foldmill top whole --once >top.log && "
                         "grep -q 'lddt of 1 samples after step 5' top.log && "
                         "foldmill plot whole --out whole.svg && "
                         "grep -q 'dots: held-out samples' whole.svg && "
                         "grep -q 'Held-out loss' whole.svg && grep -q 'Smooth lDDT' whole.svg && "
                         "grep -q 'RMSD of sampled structures' whole.svg && "
                         "! grep -q 'masked MSA' whole.svg && "
                         "foldmill plot whole --terms --out terms.svg && test $(tr -d '\\n' "
                         "<terms.svg | sed 's/.*>plddt<//; s/>pde<.*//' | grep -o '<circle' | "
                         "wc -l) = 3 && "
                         "grep -q 'files read' whole.log && test -s whole/ledger && "
                         /* Files of older programs name no sampling plan either. */
                         "grep -aq 'crop_size = 10' whole/checkpoint-000000000005.safetensors && "
                         "! grep -aq 'plan = ' whole/checkpoint-000000000005.safetensors"),
                     0);
}

/* Evaluations may come at other steps, with more denoising steps. Training does not change. */
static void evaluations_are_chosen_apart(void **state) {
    (void)state;
    assert_int_equal(
        run("sed 's/eval_every = 2/&\\neval_rollout_step = 3/' small.ini >longer.ini && "
            "$train --config longer.ini --eval-samples held --eval-every 3 --steps 5 --out longer "
            ">longer.log 2>&1 && test \"$(sed 's/{.step.:\\([0-9]*\\),.*/\\1/' "
            "longer/eval.jsonl | tr '\\n' ' ')\" = '3 5 ' && "
            "for run in whole longer; do sed 's/,\"step_s.*//' $run/metrics.jsonl >$run.rows; "
            "tail -1 $run/eval.jsonl | grep -o '\"rollout_rmsd\":[^,]*' >$run.rmsd; done && "
            "cmp whole.rows longer.rows && ! cmp -s whole.rmsd longer.rmsd"),
        0);
}

/* Each pass over the files has each file once, in another order. */
static void passes_have_every_file_once(void **state) {
    (void)state;
    assert_int_equal(
        run("sed -i 's/global_batch = 2/global_batch = 1/' small.ini; "
            "$train --eval-samples held --steps 12 --out passes >passes.log 2>&1; "
            "code=$?; "
            "sed -i 's/global_batch = 1/global_batch = 2/' small.ini; test $code = 0 "
            "&& sed 's/.*\"sample\":\"\\(.\\)\".*/\\1/' passes/metrics.jsonl >names && "
            "for pass in 1 4 7 10; do "
            "test $(tail -n +$pass names | head -3 | sort -u | wc -l) = 3 || exit 1; "
            "done && test $(paste - - - <names | sort -u | wc -l) -gt 1"),
        0);
}

/* A run announces each sample while the one before it is computed. A run of one sample per process
 * announces none, and has the same parameters. */
static void announced_samples_change_no_byte(void **state) {
    (void)state;
    assert_int_equal(
        run("sed 's/global_batch = 2/global_batch = 1/; s/eval_every = 2/eval_every = 0/' "
            "small.ini >one.ini && one='foldmill train --samples samples --config one.ini --preset "
            "af3-tiny -q' && $one --steps 5 --out ahead >ahead.log 2>&1 && "
            "$one --steps 1 --out alone >alone.log 2>&1 && "
            "for n in 2 3 4 5; do "
            "$one --steps $n --out alone --resume >alone.log 2>&1 || exit 1; "
            "grep -q '^samples   1 file read' alone.log || exit 2; done && same ahead alone 5"),
        0);
}

/* A run that is killed and resumed has the same parameters, scores and rows. */
static void a_killed_run_ends_with_the_same_bytes(void **state) {
    (void)state;
    assert_int_equal(
        run("$train --eval-samples held --steps 5 --out killed --checkpoint-every 1 --keep 9 "
            ">killed.log 2>&1 & "
            "for i in $(seq 3000); do "
            "test -e killed/checkpoint-000000000002.safetensors && break; sleep 0.01; done; "
            "kill -9 $!; wait $! 2>/dev/null; "
            "$train --eval-samples held --steps 5 --out killed --checkpoint-every 1 --keep 9 "
            "--resume >killed.log 2>&1 && same whole killed 5 && "
            "for run in whole killed; do sed 's/,\"wall_s.*//' $run/eval.jsonl >$run.scores; "
            "sed 's/,\"step_s.*//' $run/metrics.jsonl >$run.rows; done && "
            "cmp whole.scores killed.scores && cmp whole.rows killed.rows"),
        0);
    /* Also inside a batch. */
    assert_int_equal(run("$train --eval-samples held --steps 5 --seed 0 --out half "
                         "--checkpoint-minutes 0.00001 >half.log 2>&1 & "
                         "for i in $(seq 3000); do "
                         "ls half/checkpoint-*+1.safetensors >half.list 2>&1 && break; sleep 0.01; "
                         "done; kill -TERM $!; wait $!; "
                         "$train --eval-samples held --steps 5 --out half --resume >half.log 2>&1 "
                         "&& same whole half 5"),
                     0);
}

/* A line that is removed stands for an evaluation that failed or was given up. */
static void a_missing_evaluation_is_made_first(void **state) {
    (void)state;
    assert_int_equal(
        run("cp -r whole lacking && sed -i '$d' lacking/eval.jsonl && rm lacking/eval.csv && "
            "resume() { $train --eval-samples held --steps 5 --out lacking --checkpoint-every 1 "
            "--keep 9 --resume >lacking.log 2>&1; }; "
            "complete() { sed 's/,.wall_s.*//' lacking/eval.jsonl >lines && "
            "sed 's/,.wall_s.*//' whole/eval.jsonl | cmp - lines && "
            "cmp whole/eval.csv lacking/eval.csv && same whole lacking 5; }; "
            "resume && grep -q ' evaluated step=5 ' lacking.log && complete || exit 1; "
            /* The run does not repeat an evaluation that has its line. */
            "cp lacking/eval.jsonl before && resume && cmp before lacking/eval.jsonl && "
            "! grep -q ' evaluated ' lacking.log || exit 2; "
            /* The run makes a missing evaluation before it makes the next step. */
            "rm lacking/checkpoint-000000000005.safetensors && sed -i '2,$d' lacking/eval.jsonl "
            "&& resume && complete && "
            "test \"$(grep -o ' evaluated step=.\\| first_step' lacking.log | tr -d '\\n')\" = "
            "' evaluated step=4 first_step evaluated step=5'"),
        0);
}

/* A batch may wait for a score of the evaluations. */
static void a_batch_grows_with_a_score(void **state) {
    (void)state;
    assert_int_equal(run("$train --eval-samples held --eval-every 1 --steps 3 --out grown "
                         "--batch-schedule '2@0,4@lddt>=0.001' >grown.log 2>&1 && "
                         "grep -q ' batch_grows samples=4 after_step=[12] lddt=0' grown.log && "
                         "! grep -q nobody_scores grown.log"),
                     0);
}

/* A folder where the table of an evaluation belongs stands for a disk that does not take it. */
static void a_table_that_cannot_be_written_ends_no_run(void **state) {
    (void)state;
    assert_int_equal(
        run("mkdir -p barred/eval.csv && cp -r barred briefly && "
            "{ $train --eval-samples held --steps 5 --out barred >barred.log 2>&1; test $? = 1; } "
            "&& grep -q ' metrics_wait step=2 why=.barred/eval.csv: cannot create: a folder' "
            "barred.log && grep -q '^foldmill train: barred/eval.csv: cannot create: a folder' "
            "barred.log && same whole barred 5 && sed 's/,.wall_s.*//' barred/eval.jsonl >lines && "
            "sed 's/,.wall_s.*//' whole/eval.jsonl | cmp - lines"),
        0);
    /* When the folder is gone, the next checkpoint writes the table, too. */
    assert_int_equal(
        run("$train --eval-samples held --steps 400 --checkpoint-every 1 --out briefly "
            ">briefly.log 2>&1 & "
            "for i in $(seq 600); do grep -qs metrics_wait briefly.log && break; sleep 0.1; done; "
            "rmdir briefly/eval.csv; "
            "for i in $(seq 600); do test -s briefly/eval.csv && break; sleep 0.1; done; "
            "kill -TERM $!; wait $!; test $? = 143 && grep -q ' metrics_written ' briefly.log && "
            "grep -q ',d,' briefly/eval.csv"),
        0);
}

static void bad_samples_end_the_run_or_are_skipped(void **state) {
    (void)state;
    assert_int_equal(run("refuses 'b.npz: msa\\[0\\]: found 99, expected 0 to 31' "
                         "foldmill train --samples bad --config small.ini --preset af3-tiny "
                         "--eval-samples held --steps 3 --out stopped && "
                         "grep -q 'to go on without it: .*--skip-sample' refused.log && "
                         "foldmill train --samples bad --config small.ini --preset af3-tiny "
                         "--eval-samples held --steps 3 --out skipped --bad-samples skip -q "
                         ">skipped.log 2>&1 && grep -q '3 of them bad' skipped.log"),
                     0);
    /* A shell reads the command of the message as it was. */
    assert_int_equal(
        run("! foldmill train --samples bad --config small.ini --preset af3-tiny "
            "--eval-samples held --steps 1 --out \"its 'own'\" -q 2>advice.log && "
            "eval \"$(sed -n 's/.*to go on without it: //p' advice.log)\" >log 2>&1 && "
            "test -s \"its 'own'/checkpoint-000000000001.safetensors\""),
        0);
    /* A run that fails in its first sample leaves nothing. */
    assert_int_equal(run("mkdir worst && cp bad/b.npz worst && refuses 'found 99' foldmill train "
                         "--samples worst --config small.ini --preset af3-tiny --eval-samples held "
                         "--steps 3 --out failed --tensorboard events/deep && "
                         "test ! -e failed && test ! -e events"),
                     0);
}

/* Every bad file is named, and the rest is measured. */
static void a_folder_is_checked_without_a_run(void **state) {
    (void)state;
    assert_int_equal(
        run("check='foldmill train --config small.ini --preset af3-tiny --check-samples'; "
            "$check --samples samples --eval-samples held >check.log 2>check.err && "
            "test ! -s check.err && grep -qx 'samples: 3 samples, 0 bad; 8 to 8 tokens, 14 to 14 "
            "atoms, 5 to 5 MSA rows, 2 to 2 templates' check.log && "
            "grep -q '^held: 1 sample, 0 bad' check.log && "
            "mkfifo bad/aa.npz && cp samples/a.npz bad/c.npz && "
            "head -c 999 samples/a.npz >bad/d.npz && "
            "$check --samples bad >check.log 2>check.err; test $? = 1 && "
            "grep -q '^bad: 5 samples, 3 bad; 8 to 8 tokens' check.log && "
            "test $(wc -l <check.err) = 3 && "
            "grep -q '^bad/aa.npz: not a regular file' check.err && "
            "grep -q '^bad/b.npz: msa\\[0\\]: found 99' check.err && "
            "grep -q '^bad/d.npz:byte 999: found no zip end record' check.err && "
            "rm bad/aa.npz bad/c.npz bad/d.npz && "
            "sed 's/max_atoms.*/max_atoms = 13/' small.ini >tight.ini && "
            "$check --config tight.ini --samples held >check.log 2>check.err; test $? = 1 && "
            "grep -qx 'held/d.npz: found 14 atoms, expected at most 13 (max_atoms)' check.err && "
            "refuses 'needs --samples DIR and a model of af3' foldmill train --preset tiny "
            "--samples samples --check-samples"),
        0);
}

static void weights_go_out_and_in(void **state) {
    (void)state;
    assert_int_equal(
        run("foldmill export-weights whole/checkpoint-000000000005.safetensors --out one.npz "
            ">log 2>&1 && foldmill import one.npz --out in.safetensors >log 2>&1 && "
            "grep -q 'preset    af3-tiny' log && "
            "foldmill export-weights in.safetensors --out two.npz >log 2>&1 && "
            "cmp one.npz two.npz && "
            "foldmill export-weights in.safetensors --out one.safetensors >log 2>&1 && "
            "foldmill import one.safetensors --out again.safetensors >log 2>&1 && "
            "cmp in.safetensors again.safetensors && "
            "strings one.safetensors | "
            "grep -q 'diffusion_module.diffusion_conditioning.fourier_embedding.w' && "
            "$train --eval-samples held --from in.safetensors --steps 1 --out from >log 2>&1 && "
            "refuses 'has only foldmill' foldmill export-weights in.safetensors --out x "
            "--names openfold"),
        0);
}

/* The weights of a run predict a sample, with the same bytes each time. */
static void weights_predict_complexes(void **state) {
    (void)state;
    assert_int_equal(
        run("p='foldmill predict --weights whole/checkpoint-000000000005.safetensors --steps 3 "
            "--recycles 2' && $p samples/a.npz --samples 2 --seeds 1,7 --out p 2>p.log >p.out && "
            "grep -q '^outputs   p/summary.csv, 1 complex, ' p.out && "
            "grep -q '^a: 8 tokens, 14 atoms, 5 MSA rows; needs ' p.log && "
            "grep -q '^a  seed 7  sample 1  pLDDT ' p.log && "
            "test \"$(sed 's/,[^,]*$//' p/a/a_ranking_scores.csv | tr '\\n' ' ')\" = "
            "'seed,sample 1,0 1,1 7,0 7,1 ' && "
            "$p samples/a.npz --samples 1 --seeds 7 --out q -q && "
            "cmp p/a/seed-7_sample-0.npz q/a/seed-7_sample-0.npz && "
            "! cmp -s p/a/seed-7_sample-0.npz p/a/seed-1_sample-0.npz && "
            "mkdir b && cp samples/a.npz b/c.npz && "
            "{ $p -q bad/b.npz b/c.npz --samples 1 --out r 2>r.log; test $? = 3; } && "
            "grep -q '^foldmill predict: bad/b.npz: msa' r.log && test -e r/c/c_ranking_scores.csv "
            "&& { $p b/c.npz --device-memory 0.0001 --out t 2>t.log; test $? = 1; } && "
            "grep -q 'b/c.npz: a complex of 8 tokens, 14 atoms and .* needs .* GiB of 0.000 GiB' "
            "t.log && { $p -q b/c.npz b/c.npz --samples 1 --out s 2>s.log; test $? = 3; } && "
            "grep -q 'b/c.npz: an input before this one has the name c, too' s.log && "
            "refuses 'descriptions need a dictionary of components' $p x.json --out p && "
            "refuses 'max-length cannot be used with weights of AlphaFold 3' $p b/c.npz "
            "--max-length 9 --out p && refuses 'recycle-tol cannot be used' $p b/c.npz "
            "--recycle-tol 0 --out p "
            "&& "
            "for name in lock inputs; do cp b/c.npz b/$name.npz; "
            "refuses \"b/$name.npz: found a name of\" $p b/$name.npz --out u || exit 1; done && "
            "sed 's/^\\[af3\\]/&\\nn_pae_bin = 32/; s/eval_every = 2/eval_every = 0/' small.ini "
            ">bins.ini && foldmill train --samples samples --config bins.ini --preset af3-tiny "
            "-q --steps 1 --out bins >log 2>&1 && "
            "refuses 'the weights have n_pae_bin = 32, expected 64' foldmill predict --weights "
            "bins/checkpoint-000000000001.safetensors b/c.npz --out u"),
        0);
}

/* A description becomes structures, and its prepared sample the same ones. The command can be
 * repeated. */
static void weights_predict_descriptions(void **state) {
    (void)state;
    assert_int_equal(
        run("r=$FM_REFERENCE_DATA; c=$r/complex/components/components.cif; "
            "test -e \"$c\" -a -e $r/af3p/inputs || exit 0; "
            "p='foldmill predict --weights whole/checkpoint-000000000005.safetensors --steps 3 "
            "--recycles 1 --samples 1 -q' && "
            "$p $r/af3p/inputs/ligand.af3.json --components $c --out j 2>j.log && "
            "f=ligand/seed-101_sample-0/ligand_seed-101_sample-0 && "
            "grep -q '^HETATM' j/${f}_model.cif && test -s j/${f}_confidences.json && "
            "cmp j/${f}_summary_confidences.json j/ligand/ligand_summary_confidences.json && "
            "grep -q '^101,0,' j/ligand/ligand_ranking_scores.csv && cp -r j again && "
            "$p $r/af3p/inputs/ligand.af3.json --components $c --out again 2>again.log && "
            "diff -r j again && mkdir e && "
            "sed 's/\"name\": \"ligand\"/\"name\": \"other\"/' "
            "$r/af3p/inputs/ligand.af3.json >e/ligand.af3.json && "
            "cp $r/af3p/inputs/*.a3m e/ && "
            "$p $r/af3p/inputs/ligand.af3.json e/ligand.af3.json --components $c --out again "
            "2>again.log && diff -r j/ligand again/ligand && "
            "test -s again/other/other_model.cif && "
            "$p j/inputs/ligand.npz --out k && cmp j/${f}_model.cif k/${f}_model.cif && "
            "echo '{\"dialect\": 3}' >bad.json && "
            "{ $p bad.json --components $c --out j 2>bad.log; test $? = 1; } && "
            "grep -q '^foldmill predict: bad.json:1:' bad.log"),
        0);
}

/* A file of an older program lacks these settings, and has the first of the two values. */
static void settings_that_a_file_leaves_out_are_named(void **state) {
    (void)state;
    static const char script[] =
        "sed \"s/eval_every = 2/eval_every = 0/; s/^\\[af3\\]/&\\n$key = $was/\" small.ini "
        ">was.ini && sed \"s/= $was$/= $is/\" was.ini >now.ini && "
        "old='foldmill train --samples samples --config was.ini --preset af3-tiny -q' && "
        "new='foldmill train --samples samples --config now.ini --preset af3-tiny -q' && "
        "$old --steps 1 --out $key >log 2>&1 && "
        "refuses \"has '$key = $was', which its file leaves out, but this run has '$key = $is'; "
        "resume with the same settings (.af3. $key = $was in --config).*--change af3.$key=$is\" "
        "$new --resume --steps 2 --out $key && "
        "$old --resume --steps 2 --out $key >log 2>&1 && "
        "$new --resume --change af3.$key=$is --steps 3 --out $key >log 2>&1 && "
        "$new --resume --steps 4 --out $key >log 2>&1";
    static const char *const settings[] = {"key=diffusion_products was=f32 is=auto",
                                           "key=conformers was=stored is=drawn"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char command[sizeof script + 64];
        snprintf(command, sizeof command, "%s; %s", settings[i], script);
        assert_int_equal(run(command), 0);
    }
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    assert_int_equal(
        run("refuses 'eval_every needs --eval-samples' $train --out x && "
            "refuses '^foldmill train: --eval-every needs --eval-samples' $train --eval-every 3 "
            "--out x && "
            "refuses 'had other samples' foldmill train --samples held --eval-samples held "
            "--config small.ini --preset af3-tiny --out whole --resume --steps 9 && "
            "refuses '^foldmill train: --data, --cache and --snapshot are for samples of a server' "
            "$train --eval-samples held --data unix:socket --out x && "
            "refuses 'are for models of af3' foldmill train --samples samples --out x && "
            "refuses '--order and --replay are for samples of a server' "
            "$train --eval-samples held --order free --out x && "
            "refuses 'are for models of af2' $train --eval-samples held --stop-at loss:1 --out x "
            "&& "
            "for score in lddt_ca rollout_rmsd; do refuses "
            "\"--batch-schedule: found the score '$score', expected one that rises: lddt, "
            "rollout_lddt\" $train --eval-samples held --batch-schedule 2@0,4@$score'>=0.1' "
            "--out x || exit 1; done && "
            "refuses '^foldmill train: bad/b.npz: msa' $train --eval-samples bad --out x && "
            "mkdir scored && echo '{\"step\":1}' >scored/eval.jsonl && "
            "refuses 'scored/eval.jsonl: the folder has a run already' "
            "$train --eval-samples held --steps 1 --out scored && "
            "grep -q step scored/eval.jsonl && "
            "mkdir none && refuses 'found no file NAME.npz' foldmill train --samples none "
            "--preset af3-tiny --out x && "
            "refuses 'absent' foldmill train --samples absent --preset af3-tiny --out x && "
            "cp samples/a.npz 'none/a b.npz' && refuses \"found the name 'a b.npz'\" "
            "foldmill train --samples none --preset af3-tiny --out x && "
            "refuses 'runs models of af2' foldmill distill --cache none --weights "
            "whole/checkpoint-000000000005.safetensors --out y && "
            "test ! -e x/metrics.jsonl"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_writes_its_files),
                                       cmocka_unit_test(evaluations_are_chosen_apart),
                                       cmocka_unit_test(passes_have_every_file_once),
                                       cmocka_unit_test(announced_samples_change_no_byte),
                                       cmocka_unit_test(a_killed_run_ends_with_the_same_bytes),
                                       cmocka_unit_test(a_missing_evaluation_is_made_first),
                                       cmocka_unit_test(a_batch_grows_with_a_score),
                                       cmocka_unit_test(a_table_that_cannot_be_written_ends_no_run),
                                       cmocka_unit_test(bad_samples_end_the_run_or_are_skipped),
                                       cmocka_unit_test(a_folder_is_checked_without_a_run),
                                       cmocka_unit_test(weights_go_out_and_in),
                                       cmocka_unit_test(weights_predict_complexes),
                                       cmocka_unit_test(weights_predict_descriptions),
                                       cmocka_unit_test(settings_that_a_file_leaves_out_are_named),
                                       cmocka_unit_test(what_does_not_fit_is_refused)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
