/* test_train.c: tests `foldmill train`, `import` and `export-weights` as a user runs them. There
 * are a dataset, a cache, a server, a run whose loss falls, the same run again to the bit, and the
 * messages for mistakes. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    int failed =
        run("foldmill synth --chains 3 --seed 5 --max-length 60 --depth 100 -o data --quiet");
    failed |= run("foldmill build data --cache cache --quiet >build.log");
    if (failed) return failed;
    server = fm_test_serve(folder, "socket", "--cache cache");
    return 0;
}

static const char *const small =
    "printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\n[data]\\ncrop_size = "
    "32\\nmax_msa_clusters = 12\\nmax_extra_msa = 16\\n' >small.ini";

static void the_loss_falls_and_the_run_repeats_to_the_bit(void **state) {
    (void)state;
    assert_int_equal(run(small), 0);
    assert_int_equal(run("foldmill train --data unix:socket --config small.ini --steps 40 --seed 3 "
                         "--out a >a.log 2>a.err"),
                     0);
    assert_int_equal(run("foldmill train --data unix:socket --config small.ini --steps 12 --seed 3 "
                         "--out b --ahead 2 >b.log 2>&1"),
                     0);
    assert_int_equal(run("foldmill train --data unix:socket --config small.ini --steps 2 --seed 4 "
                         "--out c >c.log 2>&1"),
                     0);
    assert_int_equal(run("test $(wc -l <a/metrics.jsonl) = 40"), 0);
    assert_int_equal(
        run("python3 -c 'import json; r=[json.loads(l) for l in open(\"a/metrics.jsonl\")]; "
            "m=lambda x: sum(s[\"loss\"] for s in x)/len(x); exit(not m(r[-10:]) < "
            "0.9*m(r[:10]))'"),
        0);
    assert_int_equal(
        run("for r in a b c; do sed 's/,\"step_s\".*//' $r/metrics.jsonl >$r.losses; done"), 0);
    assert_int_equal(run("head -12 a.losses | cmp - b.losses"), 0);
    assert_int_equal(run("head -2 a.losses | cmp -s - c.losses"), 1);
    assert_int_equal(
        run("grep -q 'step 40/40' a.err && grep -q 'mean of the first 10 steps' a.log"), 0);
}

/* A step whose only sample is skipped has no loss, and takes no part in the closing summary. */
static void a_skipped_step_spoils_no_summary(void **state) {
    (void)state;
    assert_int_equal(run(small), 0);
    assert_int_equal(run("foldmill train --data unix:socket --config small.ini --steps 4 --seed 3 "
                         "--skip-sample 0 --skip-sample 2 --out gap >gap.log 2>&1"),
                     0);
    assert_int_equal(
        run("python3 -c 'import json; r = [json.loads(l)[\"loss\"] for l in "
            "open(\"gap/metrics.jsonl\")]; m = (r[1] + r[3]) / 2; assert [r[0], r[2]] == "
            "[None, None]; print(f\"loss      {m:.4f} mean of the first 2 steps, {m:.4f} of the "
            "last\")' >loss && grep -qxFf loss gap.log"),
        0);
}

/* Two ranks per sample, as threads, give the losses of one rank except for rounding; resumed as
 * well. */
static void ranks_of_a_sample_train_the_same(void **state) {
    (void)state;
    assert_int_equal(run("cp small.ini parts.ini && printf '[parallel]\\ndap = 2\\n' >>parts.ini"),
                     0);
    for (int resumed = 0; resumed < 2; resumed++) {
        assert_int_equal(run(resumed ? "foldmill train --data unix:socket --config parts.ini "
                                       "--steps 6 --seed 3 --resume --out parts >>parts.log 2>&1"
                                     : "foldmill train --data unix:socket --config parts.ini "
                                       "--steps 4 --seed 3 --out parts >parts.log 2>&1"),
                         0);
    }
    assert_int_equal(
        run("python3 -c 'import json; a, b = ([json.loads(l)[\"loss\"] for l in open(r + "
            "\"/metrics.jsonl\")][:6] for r in (\"a\", \"parts\")); exit(len(b) != 6 or max("
            "abs(x / y - 1) for x, y in zip(a, b)) > 1e-3)'"),
        0);
    assert_int_equal(run("cp small.ini two.ini && printf '[parallel]\\nbp = 2\\n' >>two.ini"), 0);
    assert_int_equal(run("foldmill train --data unix:socket --config two.ini --out z 2>err"), 2);
    assert_int_equal(run("grep -q 'order = opm_first or parallel, not original' err"), 0);
}

/* A run that is killed and resumed twice ends with the same bits as one that is not. */
static void a_killed_run_resumes_to_the_same_bits(void **state) {
    (void)state;
    assert_int_equal(run(small), 0);
    const char *train = "foldmill train --data unix:socket --config small.ini --steps 18 --seed 9 "
                        "--checkpoint-every 4";
    char command[1024];
    snprintf(command, sizeof command, "%s --keep 2 --out whole >whole.log 2>&1", train);
    assert_int_equal(run(command), 0);
    assert_int_equal(run("ls whole | grep -c checkpoint | grep -qx 2"), 0);
    for (int kill_at = 5; kill_at <= 11; kill_at += 6) {
        snprintf(command, sizeof command,
                 "%s --resume --out killed >>killed.log 2>&1 & pid=$!; "
                 "until [ $(cat killed/metrics.jsonl 2>/dev/null | wc -l) -ge %d ]; do sleep 0.01; "
                 "done; kill -9 $pid; "
                 "wait $pid; true",
                 train, kill_at);
        assert_int_equal(run(command), 0);
    }
    snprintf(command, sizeof command, "%s --resume --out killed >>killed.log 2>&1", train);
    assert_int_equal(run(command), 0);
    assert_int_equal(run("grep -q 'resumed at step' killed.log"), 0);
    assert_int_equal(run("cmp whole/checkpoint-000000000018.safetensors "
                         "killed/checkpoint-000000000018.safetensors"),
                     0);
    assert_int_equal(
        run("for r in whole killed; do sed 's/,\"step_s\".*//' $r/metrics.jsonl >$r.losses; done; "
            "cmp whole.losses killed.losses"),
        0);
    /* A damaged newest file is skipped; another seed or setting is refused. */
    assert_int_equal(run("printf x | dd of=killed/checkpoint-000000000018.safetensors bs=1 "
                         "seek=200000 conv=notrunc 2>/dev/null"),
                     0);
    assert_int_equal(run(command), 0);
    assert_int_equal(
        run("grep -q checkpoint_damaged killed.log && grep -q 'resumed at step 16' killed.log"), 0);
    assert_int_equal(run("cmp whole/checkpoint-000000000018.safetensors "
                         "killed/checkpoint-000000000018.safetensors"),
                     0);
    assert_int_equal(run("foldmill train --data unix:socket --config small.ini --seed 8 --resume "
                         "--out killed 2>err"),
                     2);
    assert_int_equal(run("grep -q 'run has seed 9, but --seed is 8' err"), 0);
    assert_int_equal(run("foldmill train --data unix:socket --seed 9 --resume --out killed 2>err"),
                     2);
    assert_int_equal(
        run("cp small.ini other.ini; printf '[optimizer]\\nlearning_rate = 1e-4\\n' >>other.ini; "
            "foldmill train --data unix:socket --config other.ini --seed 9 --resume --out killed "
            "2>err"),
        2);
    assert_int_equal(run("grep -q 'run has .learning_rate = 0.003' err"), 0);
}

/* A run's weights are exported, imported again, and start another run. */
static void exported_weights_import_to_the_same(void **state) {
    (void)state;
    const char *checkpoint = "a/checkpoint-000000000040.safetensors"; /* of the first test */
    static const char *const ways[] = {
        "--format npz", "--format npz --names openfold", "--format safetensors",
        "--format safetensors --names openfold-1", "--format safetensors --names foldmill"};
    char command[1024];
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        snprintf(
            command, sizeof command,
            "foldmill export-weights %s %s --set model --out out --replace >export.log && "
            "foldmill import out --preset tiny --config small.ini --out in.safetensors --replace "
            ">import.log && "
            "foldmill export-weights in.safetensors %s --out again --replace >again.log && "
            "cmp out again",
            checkpoint, ways[i], ways[i]);
        assert_int_equal(run(command), 0);
    }
    assert_int_equal(run("grep -q 'arrays with foldmill names' import.log"), 0);
    snprintf(command, sizeof command,
             "foldmill export-weights %s --out by_name.npz >export.log && "
             "grep -q 'with deepmind names' export.log && "
             "foldmill export-weights %s --format npz --out other && cmp by_name.npz other",
             checkpoint, checkpoint);
    assert_int_equal(run(command), 0);
    /* The first loss is that of a trained model, and --resume continues the new run. */
    assert_int_equal(run("foldmill train --data unix:socket --config small.ini --steps 4 --seed 3 "
                         "--from in.safetensors --out f --quiet >f.log 2>&1"),
                     0);
    assert_int_equal(
        run("python3 -c 'import json; l=lambda f: json.loads(open(f).readline())[\"loss\"]; "
            "exit(not l(\"f/metrics.jsonl\") < 0.95*l(\"a/metrics.jsonl\"))'"),
        0);
    assert_int_equal(run("foldmill train --data unix:socket --config small.ini --steps 6 --seed 3 "
                         "--from in.safetensors --resume --out f --quiet >f.log 2>&1 && "
                         "grep -q 'resumed at step 4' f.log"),
                     0);
    /* A model of other sizes: the first arrays are listed and the others counted, or all listed. */
    assert_int_equal(run("foldmill import out --preset tiny --out x.safetensors 2>err"), 1);
    assert_int_equal(run("test $(grep -c '^missing  ' err) = 10 && test $(wc -l <err) -le 12 && "
                         "grep -qE '^and [0-9]+ more arrays; --verbose lists all' err"),
                     0);
    assert_int_equal(run("foldmill import out --preset tiny --out x.safetensors --verbose 2>err"),
                     1);
    assert_int_equal(
        run("grep -c '^missing  evoformer.1.' err | grep -qx 93 && test ! -e x.safetensors"), 0);
    assert_int_equal(run("foldmill train --data unix:socket --from in.safetensors --out x 2>err"),
                     1);
    assert_int_equal(run("grep -q 'both must have the same sizes' err && test ! -e x"), 0);
    assert_int_equal(run("foldmill import out 2>err"), 2);
    assert_int_equal(run("foldmill export-weights in.safetensors --out x --format pt 2>err"), 2);
    assert_int_equal(run("grep -q 'found .pt., expected npz or safetensors' err"), 0);
}

/* The aligned error head is added to a checkpoint without one, and template embedders are left out:
 * the log says so, and every other parameter is that of the checkpoint. */
static void a_stage_adds_a_head_and_drops_templates(void **state) {
    (void)state;
    assert_int_equal(
        run("printf '[model]\nn_block = 1\n[data]\ncrop_size = 16\nmax_msa_clusters = 4\n"
            "global_batch = 2\n' >first.ini; "
            "sed 's/n_block = 1/&\\nn_aligned_error_bin = 64\\nn_template = 0/' first.ini "
            ">second.ini; printf '[loss]\naligned_error = 0.1\n' >>second.ini; "
            "foldmill train --data unix:socket --config first.ini --steps 2 --out stage1 -q "
            ">stage1.log 2>&1 && "
            "foldmill train --data unix:socket --config second.ini --steps 1 --seed 9 --out stage2 "
            "-q --from stage1/checkpoint-000000000002.safetensors >stage2.log 2>&1"),
        0);
    assert_int_equal(
        run("grep -q 'info part_added part=.aligned error head. parameters=1088 ' stage2.log && "
            "grep -q 'info part_left_out part=.template embedders. parameters=[0-9]* ' stage2.log"),
        0);
    /* The average after one step is 0.999 of what it was and 0.001 of the parameters. */
    assert_int_equal(
        run("python3 -c '\n"
            "import json, struct, sys\n"
            "def read(path):\n"
            "    data = open(path, \"rb\").read()\n"
            "    n, = struct.unpack(\"<Q\", data[:8])\n"
            "    head = json.loads(data[8:8 + n])\n"
            "    head.pop(\"__metadata__\")\n"
            "    return {k: struct.unpack(\"<%df\" % ((v[\"data_offsets\"][1] - "
            "v[\"data_offsets\"][0]) // 4), data[8 + n + v[\"data_offsets\"][0]:8 + n + "
            "v[\"data_offsets\"][1]]) for k, v in head.items()}\n"
            "a = read(\"stage1/checkpoint-000000000002.safetensors\")\n"
            "b = read(\"stage2/checkpoint-000000000001.safetensors\")\n"
            "new = {k for k in b if k.startswith(\"ema.\") and k not in a}\n"
            "old = {k for k in a if k.startswith(\"ema.\") and k not in b}\n"
            "ok = new == {\"ema.aligned_error.weight\", \"ema.aligned_error.bias\"}\n"
            "ok &= bool(old) and all(k.startswith(\"ema.template.\") for k in old)\n"
            "both = [k for k in b if k.startswith(\"ema.\") and k in a]\n"
            "worst = max(abs(x - y) for k in both for x, y in zip(a[k], b[k]))\n"
            "print(new, len(old), len(both), worst)\n"
            "sys.exit(not (ok and len(both) > 100 and worst < 2e-5))\n'"),
        0);
    /* Not the other way round: templates are not added. */
    assert_int_equal(run("foldmill train --data unix:socket --config first.ini --out none --from "
                         "stage2/checkpoint-000000000001.safetensors 2>err"),
                     1);
    assert_int_equal(run("grep -q '(template\\..*); both must have the same sizes' err"), 0);
}

/* The server of a run with two samples per step is killed. The samples seen until then are
 * kept, and the resumed run ends with the same bits as an undisturbed one. */
static void a_lost_server_costs_no_step(void **state) {
    (void)state;
    const char *serve = "rm -f lost; foldmill serve --cache cache --listen unix:lost -q & "
                        "server=$!; until [ -S lost ]; do sleep 0.02; done; ";
    const char *train = "foldmill train --data unix:lost --config pairs.ini --seed 2 "
                        "--out lost.run --wait 300";
    char command[1024];
    assert_int_equal(run(small), 0);
    assert_int_equal(run("sed 's/^.data.$/[data]\\nglobal_batch = 2/' small.ini >pairs.ini"), 0);
    snprintf(command, sizeof command,
             "%s %s --steps 1000000 2>lost.err >lost.log & trainer=$!; "
             "until [ $(cat lost.run/metrics.jsonl 2>/dev/null | wc -l) -ge 3 ]; do sleep 0.01; "
             "done; kill -9 $server; wait $trainer",
             serve, train);
    assert_int_equal(run(command), 1);
    assert_int_equal(
        run("n=$(cat lost.run/metrics.jsonl | wc -l); ls lost.run/checkpoint* | "
            "grep -qE \"0$n([+]1)?.safetensors\" && "
            "grep -qE \"after step $n of 1000000( and 1 sample)?; --resume continues\" "
            "lost.err && echo $((n + 1)) >goal"),
        0);
    snprintf(
        command, sizeof command,
        "%s %s --steps $(cat goal) --resume 2>lost.err >lost.log; rc=$?; kill $server; exit $rc",
        serve, train);
    assert_int_equal(run(command), 0);
    assert_int_equal(run("foldmill train --data unix:socket --config pairs.ini --seed 2 --steps "
                         "$(cat goal) --out whole.run >whole.log 2>&1"),
                     0);
    assert_int_equal(run("n=$(printf %012d $(cat goal)); cmp lost.run/checkpoint-$n.safetensors "
                         "whole.run/checkpoint-$n.safetensors"),
                     0);
    assert_int_equal(run("foldmill train --data unix:socket --config pairs.ini --seed 2 --steps 2 "
                         "--resume --out whole.run 2>err && grep -q 'needs no more' err"),
                     0);
}

/* The run continues when the server restarts, also in the middle of a step, unless the server has
 * other data. */
static void the_run_continues_after_a_server_restart(void **state) {
    (void)state;
    const char *serve = "foldmill serve --cache cache --listen unix:back -q";
    const char *wait_for = "until [ $(cat %s/metrics.jsonl 2>/dev/null | wc -l) -ge 3 ]; do sleep "
                           "0.01; done; kill -9 $server";
    const char *train = "foldmill train --data unix:back --config pairs.ini --seed 2 --wait 60000";
    char until[256], command[1024];
    assert_int_equal(run(small), 0);
    assert_int_equal(run("sed 's/^.data.$/[data]\\nglobal_batch = 2/' small.ini >pairs.ini"), 0);
    snprintf(until, sizeof until, wait_for, "back.run");
    snprintf(command, sizeof command,
             "rm -f back; %s & server=$!; %s --steps 9 --ahead 2 --out back.run 2>err >back.log & "
             "trainer=$!; %s; %s & server=$!; wait $trainer; rc=$?; kill $server; exit $rc",
             serve, train, until, serve);
    assert_int_equal(run(command), 0);
    assert_int_equal(run("grep -q 'warn reconnected server=unix:back' err && "
                         "grep -q '^samples   18 received' back.log"),
                     0);
    assert_int_equal(run("foldmill train --data unix:socket --config pairs.ini --seed 2 --steps 9 "
                         "--out left.run >left.log 2>&1 && cmp "
                         "left.run/checkpoint-000000000009.safetensors "
                         "back.run/checkpoint-000000000009.safetensors"),
                     0);
    assert_int_equal(run("foldmill snapshot create other --cache cache --weights uniform >log"), 0);
    snprintf(until, sizeof until, wait_for, "other.run");
    snprintf(command, sizeof command,
             "rm -f back; %s & server=$!; %s --steps 1000 --ahead 2 --out other.run 2>err >log & "
             "trainer=$!; %s; %s --snapshot other & server=$!; wait $trainer; rc=$?; "
             "kill $server; exit $rc",
             serve, train, until, serve);
    assert_int_equal(run(command), 1);
    assert_int_equal(run("grep -q 'snapshot [0-9a-f]*... is not served' err && "
                         "grep -q 'resume continues' err"),
                     0);
    snprintf(command, sizeof command,
             "%s --snapshot other & server=$!; %s --steps 1000 --resume --out other.run 2>err; "
             "rc=$?; kill $server; exit $rc",
             serve, train);
    assert_int_equal(run(command), 1); /* the checkpoint stores the snapshot */
    assert_int_equal(run("grep -q 'unix:back: snapshot [0-9a-f]*... is not served' err"), 0);
}

static void two_processes_never_train_into_one_folder(void **state) {
    (void)state;
    assert_int_equal(run(small), 0);
    assert_int_equal(
        run("foldmill train --data unix:socket --config small.ini --steps 1000000 --out held "
            "--checkpoint-every 0 >held.log 2>&1 & "
            "pid=$!; until [ -s held/metrics.jsonl ]; do sleep 0.05; done; "
            "foldmill train --data unix:socket --config small.ini --steps 9 --out held --resume "
            "2>err; rc=$?; kill $pid; wait $pid; exit $rc"),
        1);
    assert_int_equal(run("grep -q 'held: another process is writing into this folder' err"), 0);
}

/* What no array shows is kept in safetensors, and named where .npz cannot have it. */
static void an_export_keeps_all_settings_of_the_model(void **state) {
    (void)state;
    assert_int_equal(
        run("printf '[model]\\nn_structure_iteration = 3\\norder = opm_first\\n' >shown.ini && "
            "foldmill train --data unix:socket --config shown.ini --steps 1 --out shown -q >log "
            "2>&1 && c=shown/checkpoint-000000000001.safetensors && "
            "foldmill export-weights $c --out shown.st >log && "
            "foldmill export-weights $c --out shown.npz >lost.log && "
            "for f in shown.st $c; do foldmill import $f --out shown.in --replace >log && "
            "grep -q 'tiny with n_structure_iteration = 3, order = opm_first, found by the "
            "settings of the file$' log && ! grep assumed log || exit 1; done && "
            "foldmill import shown.npz --out shown.in --replace >log && "
            "grep -q '^not in it n_structure_iteration = 3, order = opm_first; give' lost.log && "
            "grep -q '^assumed   n_structure_iteration = 2, .*order = original' log"),
        0);
}

/* Without --preset the arrays of the file decide: the number of blocks, the templates and the heads
 * may differ from the preset; other widths fit no preset. Bare pickles are refused. */
static void an_import_finds_its_preset(void **state) {
    (void)state;
    static const struct {
        const char *config, *found;
    } cases[] = {
        {"n_dummy", "tiny"},
        {"n_block = 1", "tiny with n_block = 1"},
        {"n_template = 0\\nn_aligned_error_bin = 8\\nn_extra_block = 0",
         "tiny with n_extra_block = 0, n_template = 0, n_aligned_error_bin = 8"},
    };
    static const char *const names[] = {"deepmind", "openfold", "openfold-1", "foldmill"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(
            fm_test_shell_format(
                folder,
                "printf '[model]\\n%s\\n[data]\\ncrop_size = 16\\nmax_msa_clusters = 8\\n' | "
                "grep -v n_dummy >sizes.ini && rm -rf sizes && "
                "foldmill train --data unix:socket --config sizes.ini --steps 1 --out sizes -q "
                ">log 2>&1",
                cases[i].config),
            0);
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            assert_int_equal(
                fm_test_shell_format(
                    folder,
                    "foldmill export-weights sizes/checkpoint-000000000001.safetensors --names %s "
                    "--out sizes.%s --replace >log && "
                    "foldmill import sizes.%s --out sizes.in --replace >log 2>err && "
                    "grep -q '^preset    %s, found by the %s of the file$' log",
                    names[k], k % 2 ? "safetensors" : "npz", k % 2 ? "safetensors" : "npz",
                    cases[i].found, k % 2 ? "settings" : "arrays"),
                0);
        }
        assert_int_equal(
            fm_test_shell_format(folder,
                                 "foldmill train --data unix:socket --config sizes.ini --steps 1 "
                                 "--from sizes.in --out sizes.%zu -q >log 2>&1",
                                 i),
            0);
    }
    assert_int_equal(run("printf '[model]\\nc_z = 24\\n[data]\\ncrop_size = 16\\n' >wide.ini && "
                         "foldmill train --data unix:socket --config wide.ini --steps 1 --out wide "
                         "-q >log 2>&1 && foldmill export-weights "
                         "wide/checkpoint-000000000001.safetensors --out wide.npz >log && "
                         "foldmill import wide.npz --out none >log 2>err"),
                     1);
    assert_int_equal(run("grep -q '^no preset fits the file; the nearest is tiny, where' err && "
                         "grep -q '^shape .*, expected ' err && test ! -e none && "
                         "foldmill import wide.npz --config wide.ini --out by_config >log && "
                         "grep -q '^preset    tiny, found' log"),
                     0);
    assert_int_equal(
        run("python3 -c 'import pickle; "
            "[pickle.dump({str(i): i for i in range(99)}, open(f\"{p}.ckpt\", \"wb\"), p) "
            "for p in (2, 4)]'"),
        0);
    static const char *const pickles[] = {"2.ckpt", "4.ckpt"};
    for (size_t i = 0; i < sizeof pickles / sizeof pickles[0]; i++) {
        assert_int_equal(
            fm_test_shell_format(folder, "foldmill import %s --out none 2>err", pickles[i]), 1);
        assert_int_equal(run("grep -q 'this is a bare Python pickle' err && "
                             "grep -q 'weights_only=True' err && test ! -e none"),
                         0);
    }
}

static void an_import_names_the_file_that_it_does_not_know(void **state) {
    (void)state;
    assert_int_equal(
        run("python3 -c 'import json, struct; h = json.dumps({\"a\": {\"dtype\": \"F32\", "
            "\"shape\": [1], \"data_offsets\": [0, 4]}}).encode(); open(\"a.st\", \"wb\").write("
            "struct.pack(\"<Q\", len(h)) + h + bytes(4))'; "
            "foldmill import a.st --out none 2>err; test $? = 1 && "
            "grep -q '^foldmill import: a.st: none of its 1 array has a name that' err"),
        0);
}

/* Progress lines of a run on a terminal of 50 columns, then with $COLUMNS = 30, then on a terminal
 * of unknown width. No line reaches the last column, and the wider ones have more fields. */
static void progress_fits_the_terminal(void **state) {
    (void)state;
    assert_int_equal(run(small), 0);
    char path[600];
    snprintf(path, sizeof path, "%s/terminal.py", folder);
    FILE *script = fopen(path, "w");
    assert_non_null(script);
    assert_true(
        fputs("import fcntl, os, pty, struct, sys, termios\n"
              "def lines(columns, given, out):\n"
              "    pid, fd = pty.fork()\n"
              "    if pid == 0:\n"
              "        size = struct.pack('HHHH', 24 if columns else 0, columns, 0, 0)\n"
              "        fcntl.ioctl(2, termios.TIOCSWINSZ, size)\n"
              "        os.environ.pop('COLUMNS', None)\n"
              "        if given: os.environ['COLUMNS'] = given\n"
              "        os.execvp('foldmill', ('foldmill train --data unix:socket --config '\n"
              "            'small.ini --steps 3 --out ' + out).split())\n"
              "    text = b''\n"
              "    while True:\n"
              "        try: read = os.read(fd, 4096)\n"
              "        except OSError: break\n"
              "        if not read: break\n"
              "        text += read\n"
              "    assert os.waitpid(pid, 0)[1] == 0, text\n"
              "    parts = text.decode().split('\\r\\033[K')[1:]\n"
              "    found = [p.split('\\r\\n')[0] for p in parts]\n"
              "    assert len(found) == 3 and found[0].startswith('step 1/3  loss '), text\n"
              "    return max(map(len, found))\n"
              "narrow, less, plain = lines(50, '', 't1'), lines(50, '30', 't2'), "
              "lines(0, '', 't3')\n"
              "assert less <= 29 < narrow <= 49 < plain <= 79, (less, narrow, plain)\n",
              script) >= 0);
    assert_int_equal(fclose(script), 0);
    assert_int_equal(run("python3 terminal.py"), 0);
    assert_int_equal(run("for c in train import export-weights; do COLUMNS=80 foldmill $c --help; "
                         "done | awk 'length > 80 {exit 1}'"),
                     0);
}

/* The terms on the progress lines of steps with two samples. */
static void the_terms_add_up_to_the_loss(void **state) {
    (void)state;
    assert_int_equal(run(small), 0);
    assert_int_equal(
        run("sed 's/^.data.$/[data]\\nglobal_batch = 2/' small.ini >pairs.ini && COLUMNS=400 "
            "foldmill train --data unix:socket --config pairs.ini --steps 2 --out sum >log "
            "2>sum.err"
            " && python3 -c \"import re; "
            "found = re.findall(r'^step .*  loss ([0-9.]+) .*  \\((.*)\\)$', "
            "open('sum.err').read(), re.M); "
            "terms = [[float(t.split()[1]) for t in line.split('  ')] for _, line in found]; "
            "exit(not (len(found) == 2 and all(len(t) > 5 and abs(sum(t) - float(loss)) < 0.01 "
            "for (loss, _), t in zip(found, terms))))\""),
        0);
}

static void versions_and_full_disks(void **state) {
    (void)state;
    static const char *const versions[] = {"foldmill train --version", "foldmill train -V",
                                           "foldmill import --version", "foldmill-train --version",
                                           "foldmill-train -V"};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        assert_int_equal(
            fm_test_shell_format(folder, "%s | grep -qxE 'foldmill(-train)? [0-9]+(\\.[0-9]+)+'",
                                 versions[i]),
            0);
    }
    assert_int_equal(run(small), 0);
    assert_int_equal(
        run("foldmill train --data unix:socket --config small.ini --steps 1 --out full "
            "-q >full.log 2>&1 && foldmill export-weights "
            "full/checkpoint-000000000001.safetensors --out full.npz >full.log"),
        0);
    static const char *const commands[] = {
        "train --help",
        "train --version",
        "train --show-config",
        "train --data unix:socket --config small.ini --steps 1 --out full.run -q",
        "import full.npz --out full.in",
        "export-weights full/checkpoint-000000000001.safetensors --out full.again"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        assert_int_equal(fm_test_shell_format(folder, "foldmill %s >/dev/full 2>err", commands[i]),
                         1);
        assert_int_equal(
            run("grep -q 'cannot write the results to standard output: No space left' err"), 0);
    }
    assert_int_equal(run("foldmill-train fly 2>err"), 2);
    assert_int_equal(run("grep -q \"unknown command 'fly'\" err"), 0);
}

static void mistakes_are_reported(void **state) {
    (void)state;
    assert_int_equal(run("foldmill train --help | grep -q -- --preset"), 0);
    assert_int_equal(run("foldmill train --show-config >shown.ini && "
                         "foldmill train --preset overfit --config shown.ini --show-config | cmp "
                         "- shown.ini"),
                     0);
    assert_int_equal(run("foldmill train 2>err"), 2);
    assert_int_equal(run("grep -q 'URL or --cache DIR is required' err"), 0);
    assert_int_equal(run("foldmill train --data unix:socket --preset huge --out x 2>err"), 2);
    assert_int_equal(run("grep -q 'there are: af2-finetuning, af2-finetuning-ptm, af2-initial, .*, "
                         "overfit, tiny' err"),
                     0);
    assert_int_equal(run("printf '[model]\\nn_blok = 1\\n' >bad.ini; foldmill train --data "
                         "unix:socket --config bad.ini --out x 2>err"),
                     2);
    assert_int_equal(run("grep -q 'bad.ini:2:1: there is no key .n_blok. in section .model.' err"),
                     0);
    assert_int_equal(
        run("printf '[model]\\nrecompute = auto\\nmemory_budget = 0.001\\n' >auto.ini; "
            "foldmill train --data unix:socket --config auto.ini --out x 2>err"),
        1);
    assert_int_equal(run("grep -q 'the memory budget is 0.001 GiB; raise it' err && test ! -e x"),
                     0);
    assert_int_equal(run("foldmill train --data unix:nowhere --wait 0 --out x 2>err"), 1);
    assert_int_equal(run("mkdir -p y && touch y/metrics.jsonl && foldmill train --data unix:socket "
                         "--out y 2>err"),
                     1);
    assert_int_equal(run("grep -q 'the folder has a run already' err"), 0);
    assert_int_equal(run("mkdir -p old && echo lines >old/ledger && foldmill train --data "
                         "unix:socket --out old 2>err"),
                     1);
    assert_int_equal(run("grep -q 'old/ledger: the folder has a run already' err && "
                         "test \"$(cat old/ledger)\" = lines"),
                     0);
    assert_int_equal(run("foldmill train --data unix:socket --device tpu --out z 2>err"), 2);
    assert_int_equal(run("foldmill train --data unix:socket --dtype bf16 --out z 2>err"), 2);
    assert_int_equal(run("grep -q 'found bf16, but the CPU computes in fp32 only; leave it out' "
                         "err && test ! -e z"),
                     0);
    assert_int_equal(run("foldmill train --data unix:socket --order sideways --out z 2>err"), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_falls_and_the_run_repeats_to_the_bit),
        cmocka_unit_test(a_skipped_step_spoils_no_summary),
        cmocka_unit_test(ranks_of_a_sample_train_the_same),
        cmocka_unit_test(a_killed_run_resumes_to_the_same_bits),
        cmocka_unit_test(exported_weights_import_to_the_same),
        cmocka_unit_test(a_stage_adds_a_head_and_drops_templates),
        cmocka_unit_test(an_export_keeps_all_settings_of_the_model),
        cmocka_unit_test(an_import_finds_its_preset),
        cmocka_unit_test(an_import_names_the_file_that_it_does_not_know),
        cmocka_unit_test(progress_fits_the_terminal),
        cmocka_unit_test(the_terms_add_up_to_the_loss),
        cmocka_unit_test(versions_and_full_disks),
        cmocka_unit_test(a_lost_server_costs_no_step),
        cmocka_unit_test(the_run_continues_after_a_server_restart),
        cmocka_unit_test(two_processes_never_train_into_one_folder),
        cmocka_unit_test(mistakes_are_reported),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
