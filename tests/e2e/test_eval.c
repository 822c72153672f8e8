/* test_eval.c: tests `foldmill eval` and the evaluator beside a training run as a user runs them:
 * the files, the same numbers whatever way the chains come, chains that fail, a run whose evaluator
 * is killed, stopped or has no server, the end at a target, and the messages for mistakes. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Shell functions. `same FILE STEP SUMMARY`: whether the line of that step in an eval.jsonl has
 * every score of a summary.json, to the last bit. */
static const char library[] =
    "cat >lib <<'E'\n"
    "train() { foldmill train --config small.ini --seed 3 --eval-snapshot all --quiet \"$@\"; }\n"
    "begin() { exec foldmill train --config small.ini --seed 3 --eval-snapshot all --quiet \"$@\"; "
    "}\n"
    "score() { foldmill eval --quiet \"$@\"; }\n"
    "same() { python3 -c 'import json, sys; line = [l for l in map(json.loads, open(sys.argv[1])) "
    "if l[\"step\"] == int(sys.argv[2])]; s = json.load(open(sys.argv[3])); exit(len(line) != 1 or "
    "any(s[k] != v for k, v in line[0].items() if k not in (\"eval_s\", \"wall_s\")))' \"$@\"; }\n"
    "steps() { python3 -c 'import json, sys; print(*[json.loads(l)[\"step\"] for l in "
    "open(sys.argv[1])])' $1/eval.jsonl; }\n"
    "child() { for t in $(seq 1000); do c=$(cat /proc/$1/task/$1/children 2>/dev/null); "
    "[ \"$c\" ] && break; sleep 0.02; done; echo $c; }\n"
    "E\n";

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    int failed =
        run("foldmill synth --chains 5 --seed 5 --max-length 44 --depth 100 -o data --quiet");
    failed |= run("foldmill build data --cache cache --quiet >build.log");
    failed |=
        run("printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\n[data]\\ncrop_size = "
            "24\\nmax_msa_clusters = 12\\nmax_extra_msa = 16\\n' >small.ini");
    failed |= run(library);
    if (failed) return failed;
    server = fm_test_serve(folder, "socket", "--cache cache");
    return run(". ./lib; train --data unix:socket --steps 12 --checkpoint-every 6 --out run "
               ">run.log 2>&1");
}

#define CHECKPOINT "run/checkpoint-000000000012.safetensors"

/* The means of the summary follow from the table, and the pictures are whole SVG without links. */
static void a_checkpoint_is_scored(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; score -c " CHECKPOINT " --data unix:socket --snapshot all "
                         "-o scores >scores.log"),
                     0);
    assert_int_equal(
        run("python3 -c 'import csv, json, math; s = json.load(open(\"scores/summary.json\")); r = "
            "list(csv.DictReader(open(\"scores/chains.csv\"))); m = lambda k: sum(float(x[k]) for "
            "x "
            "in r) / len(r); bad = [k for k in (\"lddt_ca\", \"lddt\", \"rmsd_ca\", \"drmsd_ca\", "
            "\"tm_score\", \"gdt_ts\", \"gdt_ha\", \"plddt\", \"loss\", \"distogram\", "
            "\"backbone_fape\") if abs(m(k) - s[k]) > 1e-9 * abs(s[k])]; exit(bool(bad) or len(r) "
            "!= "
            "5 or s[\"n_chain\"] != 5 or s[\"n_failed\"] or s[\"step\"] != 12 or s[\"set\"] != "
            "\"ema\" or sum(int(x[\"n_res\"]) for x in r) != s[\"n_residue\"])'"),
        0);
    /* No picture has a script or a link, and each is XML. */
    assert_int_equal(
        run("python3 -c 'import xml.etree.ElementTree as e; [e.parse(\"scores/%s.svg\" % n) for n "
            "in "
            "(\"lddt\", \"calibration\", \"length\")]' && ! grep -lE 'href|<script' scores/*.svg"),
        0);
    assert_int_equal(run("grep -q '^lddt_ca ' scores.log && grep -q 'scores/summary.json' "
                         "scores.log"),
                     0);
}

/* The same numbers again: from a private server, in pieces, and with the differences to before. */
static void the_same_chains_give_the_same_bits(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; score -c " CHECKPOINT " --cache cache -o again >again.log"), 0);
    assert_int_equal(run("cmp scores/chains.csv again/chains.csv"), 0);
    assert_int_equal(run("cmp scores/length.svg again/length.svg"), 0);
    /* One MiB holds few of the chains at a time. */
    assert_int_equal(run(". ./lib; score -c " CHECKPOINT " --data unix:socket --memory 1 "
                         "--against scores/summary.json -o pieces >pieces.log"),
                     0);
    assert_int_equal(run("cmp scores/chains.csv pieces/chains.csv"), 0);
    assert_int_equal(run("grep -q 'lddt_ca .* before *+0.0000' pieces.log"), 0);
    assert_int_equal(run("python3 -c 'import json; a = json.load(open(\"pieces/summary.json\"))["
                         "\"against\"]; exit(a[\"lddt_ca\"] != 0 or a[\"loss\"] != 0)'"),
                     0);
    assert_int_equal(run(". ./lib; score -c " CHECKPOINT " --data unix:socket --set model -o again "
                         "--replace >model.log"),
                     0);
    assert_int_equal(run("cmp -s scores/chains.csv again/chains.csv"), 1);
}

/* A folder in the place of a picture stops a command within its files. The summary of the
 * evaluation before must not stay beside the new table. */
static void a_summary_belongs_to_its_table(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; score -c " CHECKPOINT " --data unix:socket --set model -o torn "
                         ">torn.log && rm torn/length.svg && mkdir torn/length.svg"),
                     0);
    assert_int_equal(run(". ./lib; score -c " CHECKPOINT " --data unix:socket -o torn --replace "
                         ">torn.log 2>torn.err"),
                     1);
    assert_int_equal(run("grep -q 'length.svg: cannot create: a folder is here' torn.err && "
                         "cmp scores/chains.csv torn/chains.csv && test ! -e torn/summary.json"),
                     0);
    assert_int_equal(run(". ./lib; rmdir torn/length.svg; score -c " CHECKPOINT
                         " --data unix:socket -o torn >torn.log && test -e torn/summary.json"),
                     0);
}

static void chains_that_fail_are_named(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; score -c " CHECKPOINT " --data unix:socket --max-length 34 "
                         "-o partial >partial.log 2>partial.err"),
                     3);
    assert_int_equal(
        run("python3 -c 'import json; s = json.load(open(\"partial/summary.json\")); exit(not "
            "s[\"n_failed\"] or s[\"n_failed\"] + s[\"n_chain\"] != 5 or len(s[\"failed\"]) != "
            "s[\"n_failed\"] or \"at most 34 are taken\" not in s[\"failed\"][0][\"why\"])'"),
        0);
    assert_int_equal(run("grep -q 'residues, and at most 34 are taken' partial.err"), 0);
}

static void a_signal_leaves_nothing_behind(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; exec 2>stop.err; foldmill eval -c " CHECKPOINT " --cycles 21 "
                         "--data unix:socket -o stopped/deep >stop.log & pid=$!; until grep -q "
                         "'^data ' stop.err; do sleep 0.01; done; kill -TERM $pid; wait $pid"),
                     143);
    assert_int_equal(run("grep -q 'stopped by SIGTERM after [0-9] of 5 chains' stop.err"), 0);
    assert_int_equal(run("test -e stopped"), 1);
}

/* The evaluator's scores are those of `foldmill eval`; the run's own bits do not depend on it. */
static void a_run_is_scored_beside_it(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; train --data unix:socket --steps 12 --checkpoint-every 6 "
                         "--eval-every 4 --keep 9 --out beside >beside.log 2>beside.err"),
                     0);
    assert_int_equal(run(". ./lib; test \"$(steps beside)\" = '4 8 12'"), 0);
    assert_int_equal(run("cmp " CHECKPOINT " beside/checkpoint-000000000012.safetensors"), 0);
    for (int step = 4; step <= 12; step += 4) {
        char command[512];
        snprintf(command, sizeof command,
                 ". ./lib; score -c beside/checkpoint-%012d.safetensors --data unix:socket -o at%d "
                 ">at.log && same beside/eval.jsonl %d at%d/summary.json",
                 step, step, step, step);
        assert_int_equal(run(command), 0);
    }
    assert_int_equal(run("ls beside/eval | grep -qx events.out.tfevents.foldmill && test $(ls "
                         "beside/eval | wc -l) = 1"),
                     0);
    assert_int_equal(run("grep -c evaluated beside.err | grep -qx 3"), 0);
    /* tests/e2e/read_events.py is an independent reader of event files. */
    assert_int_equal(run("\"$OLDPWD\"/tests/e2e/read_events.py beside/eval/events.* >events.jsonl "
                         "&& python3 -c 'import json; e = [r for r in map(json.loads, "
                         "open(\"events.jsonl\")) if \"structure/lddt_ca\" in r]; l = "
                         "list(map(json.loads, open(\"beside/eval.jsonl\"))); exit(len(e) != 3 or "
                         "any(a[\"step\"] != b[\"step\"] or abs(a[\"structure/lddt_ca\"] - "
                         "b[\"lddt_ca\"]) > 1e-6 for a, b in zip(e, l)))'"),
                     0);
}

/* With a cache, the run starts a server for its own chains and one for those of the evaluator. */
static void a_cache_serves_both(void **state) {
    (void)state;
    assert_int_equal(run("sed -n 2,3p scores/chains.csv | cut -d, -f1 >few.txt; foldmill snapshot "
                         "create few --cache cache --chains few.txt >few.log"),
                     0);
    assert_int_equal(run(". ./lib; foldmill train --config small.ini --cache cache --eval-snapshot "
                         "few --eval-every 3 --steps 3 --quiet --out both >both.log 2>both.err"),
                     0);
    assert_int_equal(run("grep -q '\"n_chain\":2,' both/eval.jsonl"), 0);
}

/* Killed in the middle, the evaluator comes back, and no step is lost or scored twice. */
static void a_killed_evaluator_comes_back(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; begin --data unix:socket --steps 12 --checkpoint-every 6 "
                         "--eval-every 4 --out killed >killed.log 2>killed.err & pid=$!; until "
                         "ls killed/eval 2>ls.err | grep -q checkpoint; do sleep 0.01; done; "
                         "kill -9 $(child $pid); wait $pid"),
                     0);
    assert_int_equal(run("grep -q 'evaluator_ended signal=9 starts_again_after_s=1' killed.err"),
                     0);
    assert_int_equal(run(". ./lib; test \"$(steps killed)\" = '4 8 12'"), 0);
    assert_int_equal(run("cmp " CHECKPOINT " killed/checkpoint-000000000012.safetensors"), 0);
}

/* A stopped evaluator delays only the end of the run, by --eval-wait, and is ended with the run. */
static void a_stopped_evaluator_holds_nothing_up(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; begin --data unix:socket --steps 12 --checkpoint-every 6 "
                         "--eval-every 4 --eval-wait 1 --out still >still.log 2>still.err & "
                         "pid=$!; c=$(child $pid); kill -STOP $c; wait $pid; code=$?; test ! -e "
                         "/proc/$c && exit $code"),
                     0);
    assert_int_equal(run("grep -q 'evaluations_left_out .*no more time' still.err"), 0);
    assert_int_equal(run("test -s still/eval.jsonl"), 1);
    /* What waits is scored when the run is resumed. */
    assert_int_equal(run(". ./lib; train --data unix:socket --steps 16 --checkpoint-every 6 "
                         "--eval-every 4 --resume --out still >still.log 2>still.err"),
                     0);
    assert_int_equal(run(". ./lib; test \"$(steps still)\" = '4 8 12 16'"), 0);
}

/* Without its server the evaluator fails again and again; the run does not. */
static void an_evaluator_without_server_harms_nothing(void **state) {
    (void)state;
    assert_int_equal(
        run(". ./lib; foldmill serve --cache cache --listen unix:$PWD/other 2>other.log & "
            "other=$!; "
            "until grep -q listening other.log; do sleep 0.01; done; begin --data unix:socket "
            "--steps 12 --checkpoint-every 6 --eval-every 4 --eval-data unix:other --wait 0 --out "
            "alone >alone.log 2>alone.err & pid=$!; c=$(child $pid); kill -STOP $c; kill $other; "
            "wait $other; kill -CONT $c; wait $pid"),
        0);
    assert_int_equal(run("grep -q 'evaluator_ended code=1' alone.err && grep -q "
                         "'fails again and again' alone.err"),
                     0);
    assert_int_equal(run("cmp " CHECKPOINT " alone/checkpoint-000000000012.safetensors"), 0);
}

/* The run ends at its target, with a checkpoint and the time that it took; ranks agree on it. */
static void a_target_ends_the_run(void **state) {
    (void)state;
    assert_int_equal(
        run(". ./lib; train --data unix:socket --steps 100000 --eval-every 4 --stop-at "
            "loss=1000 --out target >target.log 2>target.err"),
        0);
    assert_int_equal(
        run("grep -q 'target    loss 1000 reached at step 4 (.*), [0-9.]* s after' target.log"), 0);
    assert_int_equal(run("ls target | grep -q checkpoint && ! grep -q 'stopped by' target.err"), 0);
    assert_int_equal(run("cp small.ini two.ini; printf 'global_batch = 2\\n' >>two.ini; foldmill "
                         "train --data unix:socket --config two.ini --ranks 2 --steps 100000 "
                         "--eval-snapshot all --eval-every 4 --stop-at plddt=1 --quiet --out ranks "
                         ">ranks.log 2>ranks.err"),
                     0);
    assert_int_equal(run("grep -q 'target    plddt 1 reached at step 4' ranks.log"), 0);
    /* A target that no score reaches. */
    assert_int_equal(run(". ./lib; train --data unix:socket --steps 4 --eval-every 4 --eval-share "
                         "--stop-at lddt_ca=1 --out missed >missed.log 2>missed.err"),
                     3);
    assert_int_equal(run("grep -q 'target    lddt_ca 1 not reached; 0[.0-9]* after step 4' "
                         "missed.log && grep -q 'no score reached lddt_ca 1 in 4 steps' "
                         "missed.err"),
                     0);
}

/* Every mistake is refused with what to do, and leaves no files. */
static void mistakes_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *command, *message;
        int code;
    } cases[] = {
        {"foldmill eval -c " CHECKPOINT " -o x", "expected one of --data URL and --cache DIR", 2},
        {"foldmill eval --data unix:socket -o x", "--checkpoint FILE is required", 2},
        {"foldmill eval -c " CHECKPOINT " --data unix:socket --set best -o x",
         "found 'best', expected ema or model", 2},
        {"foldmill eval -c nothing --data unix:socket -o x/y", "nothing: ", 1},
        {"foldmill eval -c run --data unix:socket -o x",
         "its newest checkpoint is run/checkpoint-000000000012", 2},
        {"foldmill eval -c small.ini --data unix:socket -o x", "small.ini: ", 1},
        {"foldmill eval -c " CHECKPOINT " --data unix:socket --snapshot held-out -o x",
         "snapshot held-out is not served here; there are: all", 1},
        {"foldmill eval -c " CHECKPOINT " --cache cache --snapshot held-out -o x", "held-out", 1},
        {"foldmill eval -c " CHECKPOINT " --data unix:socket --against small.ini -o x",
         "expected the summary.json of an evaluation", 1},
        {"foldmill eval -c " CHECKPOINT " --data unix:socket -o scores",
         "the folder has an evaluation already; give another --out, or --replace", 1},
        {"foldmill eval -c " CHECKPOINT " --data unix:socket -o cache",
         "cache: --out: found a cache of foldmill build, expected a new folder", 2},
        {"foldmill eval -c " CHECKPOINT " --data unix:socket --replace -o run",
         "run: --out: found the folder of a training run, expected a new folder", 2},
        {"foldmill eval --follow run --data unix:socket -o x", "give no --checkpoint, --out", 2},
        {"foldmill train --data unix:socket --stop-at lddt_ca=0.8 --out x",
         "--stop-at needs scores: give --eval-every N", 2},
        {"foldmill train --data unix:socket --stop-at foo --out x", "found 'foo', expected SCORE",
         2},
        {"foldmill train --data unix:socket --eval-every 5 --out x",
         "--eval-every needs --eval-snapshot NAME", 2},
        {"foldmill train --data unix:socket --eval-every 5 --eval-snapshot held-out --out x",
         "or give the server that does, --eval-data", 1},
        {"foldmill train --data unix:socket --eval-every 5 --eval-snapshot all --stop-at rmsd=1 "
         "--out x",
         "found 'rmsd=1', expected SCORE=VALUE with one of lddt_ca", 2},
        {"foldmill train --data unix:socket --eval-every 5 --eval-snapshot all --eval-device gpu "
         "--out x",
         "expected cpu, cuda or cuda:N", 2},
        {"foldmill train --data unix:socket --eval-every 5 --eval-snapshot all --checkpoint-every "
         "0 --out x",
         "--checkpoint-every 0 writes none", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char command[1024];
        snprintf(command, sizeof command, "%s 2>err", cases[i].command);
        if (run(command) != cases[i].code) fail_msg("%s", cases[i].command);
        snprintf(command, sizeof command, "grep -qF -e \"%s\" err", cases[i].message);
        if (run(command) != 0) fail_msg("%s", cases[i].message);
        assert_int_equal(run("test -e x"), 1);
    }
    assert_int_equal(run("grep -q ' warn nothing_scored snapshot=all why=' run.log"), 0);
    assert_int_equal(
        run("printf '[model]\\nn_structure_iteration = 0\\n' >flat.ini; foldmill train "
            "--data unix:socket --config flat.ini --steps 1 --quiet --out flat >flat.log "
            "2>&1 && foldmill eval -c flat/checkpoint-000000000001.safetensors --data "
            "unix:socket -o x 2>err"),
        1);
    assert_int_equal(run("grep -q 'has no structure module' err"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_is_scored),
        cmocka_unit_test(the_same_chains_give_the_same_bits),
        cmocka_unit_test(a_summary_belongs_to_its_table),
        cmocka_unit_test(chains_that_fail_are_named),
        cmocka_unit_test(a_signal_leaves_nothing_behind),
        cmocka_unit_test(a_run_is_scored_beside_it),
        cmocka_unit_test(a_cache_serves_both),
        cmocka_unit_test(a_killed_evaluator_comes_back),
        cmocka_unit_test(a_stopped_evaluator_holds_nothing_up),
        cmocka_unit_test(an_evaluator_without_server_harms_nothing),
        cmocka_unit_test(a_target_ends_the_run),
        cmocka_unit_test(mistakes_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
