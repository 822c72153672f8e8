/* test_mistakes.c: what users get wrong, and what the commands say: settings that cannot work,
 * names that do not exist or are no text, pipes in place of files, endings in upper case, outputs
 * that are inputs, damaged checkpoints, snapshots that are still needed, folders of others, lost
 * readers and narrow terminals. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return run("foldmill synth --chains 4 --seed 5 --max-length 50 --depth 50 -o data --quiet && "
               "foldmill build data --cache cache --quiet >build.log");
}

static void ranks_are_checked_before_the_server_is_asked(void **state) {
    (void)state;
    assert_int_equal(run("printf '[parallel]\\nbp = 2\\n' >bp.ini; "
                         "foldmill train --data unix:none --config bp.ini --out none 2>err"),
                     2);
    assert_int_equal(run("grep -q 'bp = 2 needs a block with two branches' err && "
                         "! grep -q unix:none err && ! test -e none"),
                     0);
    assert_int_equal(run("foldmill train --data unix:none --change dtype=bf16 --out none 2>err"),
                     2);
    assert_int_equal(run("grep -q -- '--change is for --resume' err"), 0);
}

static void steps_that_are_done_are_said(void **state) {
    (void)state;
    assert_int_equal(
        run("foldmill serve --cache cache --listen unix:s -q 2>serve.log & server=$!; "
            "until [ -S s ]; do sleep 0.02; done; "
            "printf '[model]\\nn_block = 1\\n' >small.ini; "
            "train='foldmill train --data unix:s --config small.ini --out r -q'; "
            "$train --steps 2 >log 2>err && $train --steps 2 --resume >log 2>same && "
            "$train --steps 1 --resume >log 2>less; rc=$?; kill $server; wait $server; exit $rc"),
        0);
    assert_int_equal(run("grep -q '^steps     2 are done already; --steps 2 needs no more' same && "
                         "grep -q '^steps     2 are done already; --steps 1 needs no more' less"),
                     0);
}

static void a_misspelt_action_is_said_first(void **state) {
    (void)state;
    assert_int_equal(run("foldmill snapshot creat x 2>err"), 2);
    assert_int_equal(run("grep -q \"no action 'creat'; did you mean 'create'\" err"), 0);
    assert_int_equal(run("foldmill snapshot create x 2>err"), 2);
    assert_int_equal(run("grep -q -- '--cache DIR is required' err"), 0);
}

static void rules_that_leave_no_chain_are_counted(void **state) {
    (void)state;
    assert_int_equal(
        run("c='foldmill snapshot create x --cache cache'; "
            "$c --min-length 5000 2>err; test $? = 1 && grep -q '^excluded  4 too short or too "
            "long$' err && grep -q 'no chain is left; no snapshot is made' err && "
            "{ $c --min-length 60 --max-length 10 2>err; test $? = 2; } && "
            "grep -q -- '--min-length: found 60, expected at most --max-length 10' err && "
            "{ $c --share a=1 2>err; test $? = 1; } && "
            "grep -q \"no chain of dataset 'a' is left, so it cannot have a share\" err"),
        0);
}

static void a_list_may_be_a_pipe_by_its_name(void **state) {
    (void)state;
    assert_int_equal(run("mkfifo pipe && "
                         "foldmill snapshot create x --cache cache --chains pipe 2>err"),
                     1);
    assert_int_equal(
        run("grep -q \"pipe: not a regular file but a device, a pipe or a socket; a pipe is read "
            "with '-', as standard input\" err"),
        0);
    assert_int_equal(run("ls data/alignments | head -1 | foldmill snapshot create one --cache "
                         "cache --chains - >log && grep -q '^chains    1, sum' log && "
                         "foldmill snapshot list --cache cache | grep -q '^one  .* 1 chain, sum'"),
                     0);
}

/* Clusters of other chains, such as those of PDB entries for predictions, would weigh nothing. */
static void clusters_of_other_chains_are_refused(void **state) {
    (void)state;
    assert_int_equal(
        run("c='foldmill snapshot create clustered --cache cache --clusters'; "
            "echo 'A0A000 A0A001' >others; { $c others 2>err; test $? = 1; } && "
            "grep -q \"others: found none of the cache's .* expected a cluster on each line\" err "
            "&& "
            "ls data/alignments | head -1 >>others && $c others >log && grep -q '^chains' log && "
            "foldmill snapshot delete clustered --cache cache >log"),
        0);
}

static void an_ending_may_be_in_upper_case(void **state) {
    (void)state;
    assert_int_equal(run("cp -r data upper && (cd upper/mmcifs && for f in *; do "
                         "mv $f $(echo $f | tr a-z A-Z); done) && "
                         "foldmill build upper --cache upper.cache -q >log && "
                         "for c in cache upper.cache; do foldmill verify --cache $c | "
                         "grep content >$c.content; done && "
                         "cmp cache.content upper.cache.content"),
                     0);
}

/* A snapshot is deleted unless it is pinned or served; gc then removes what only it needed. */
static void snapshots_are_deleted(void **state) {
    (void)state;
    assert_int_equal(run("foldmill snapshot create set --cache cache --max-length 49 >log && "
                         "foldmill snapshot pin set --cache cache >log"),
                     0);
    assert_int_equal(run("foldmill snapshot delete set --cache cache 2>err"), 1);
    assert_int_equal(run("grep -q 'set is pinned to generation 1; foldmill snapshot unpin' err && "
                         "foldmill snapshot unpin set --cache cache"),
                     0);
    assert_int_equal(
        run("foldmill serve --cache cache --snapshot set --listen unix:d -q 2>d.log & server=$!; "
            "until [ -S d ]; do sleep 0.02; done; "
            "foldmill snapshot delete set --cache cache 2>err; rc=$?; "
            "kill $server; wait $server; exit $rc"),
        1);
    assert_int_equal(run("grep -q 'snapshot set is in use: foldmill serve' err && "
                         "test -e cache/snapshots/set"),
                     0);
    assert_int_equal(run("foldmill snapshot delete set --cache cache --json | "
                         "grep -q '\"deleted\": *true' && ! test -e cache/snapshots/set && "
                         "foldmill gc --cache cache >log && foldmill verify --cache cache >log && "
                         "foldmill snapshot create set --cache cache >log"),
                     0);
    assert_int_equal(run("foldmill snapshot delete none --cache cache 2>err"), 1);
    assert_int_equal(run("grep -q \"there is no snapshot 'none'\" err"), 0);
    assert_int_equal(run("foldmill snapshot delete all --cache cache 2>err"), 2);
    assert_int_equal(run("foldmill snapshot delete ../CURRENT --cache cache 2>err"), 2);
}

/* Weights for the tests below: weights.safetensors. */
#define TRAIN_WEIGHTS                                                                              \
    "printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\nn_extra_block = 0\\n"             \
    "n_template = 0\\n[data]\\ncrop_size = 16\\nmax_msa_clusters = 4\\n' >fast.ini; "              \
    "test -e weights.safetensors || { foldmill train --cache cache --config fast.ini --steps 1 "   \
    "--out made -q >log 2>err && mv made/checkpoint-000000000001.safetensors "                     \
    "weights.safetensors; }"

/* A run would mix its files with the shards of a cache or with the inputs of a build. */
static void a_run_takes_no_folder_of_others(void **state) {
    (void)state;
    assert_int_equal(run("for out in cache data; do ls $out >before; "
                         "foldmill train --cache cache --steps 1 --out $out 2>$out.err; "
                         "test $? = 2 && ls $out | cmp - before || exit 1; done"),
                     0);
    assert_int_equal(run("grep -q 'cache: --out: found a cache of foldmill build, expected a new "
                         "folder or that of a run; choose another folder' cache.err && "
                         "grep -q 'data: --out: found a dataset' data.err"),
                     0);
    /* Folders of these names are no sign of a dataset. */
    assert_int_equal(run(TRAIN_WEIGHTS
                         " && mkdir -p mine/data mine/pdb mine/uniclust30 && cp -r mine own && "
                         "foldmill train --cache cache --config fast.ini --steps 1 --out mine -q "
                         ">log && foldmill predict --cache cache --weights weights.safetensors "
                         "--out own -q >log && test -e own/summary.csv"),
                     0);
}

/* Chains to predict would replace those of a dataset, whether it was built in one piece or
 * merged. */
static void featurize_replaces_no_built_cache(void **state) {
    (void)state;
    assert_int_equal(run("n=$(ls data/alignments | head -1); "
                         "cp data/alignments/$n/uniref90_hits.a3m q.a3m; "
                         "foldmill build data --catalogue job --cache worker -q >log && "
                         "foldmill merge --catalogue job --cache merged --from worker -q >log"),
                     0);
    assert_int_equal(run("for c in cache merged; do cp $c/CURRENT before; "
                         "foldmill featurize q.a3m --cache $c 2>err; "
                         "test $? = 1 && cmp before $c/CURRENT && "
                         "grep -q \"$c: found a cache of foldmill build with 4 chains, which would "
                         "be replaced; expected a new folder\" err || exit 1; done"),
                     0);
    assert_int_equal(run("foldmill featurize q.a3m --cache queries -q >log && "
                         "cp q.a3m p.a3m && foldmill featurize p.a3m --cache queries -q >log && "
                         "foldmill inspect --cache queries --chain p >log"),
                     0);
}

static void a_number_out_of_its_range_is_named(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"train --cache cache --checkpoint-minutes -1 --out x",
         "--checkpoint-minutes: found -1, expected 0 to 1000000"},
        {"predict --cache cache --weights w --recycle-tol 1001 --out x",
         "--recycle-tol: found 1001, expected 0 to 1000"},
        {"predict --cache cache --weights w --device-memory -2 --out x",
         "--device-memory: found -2, expected 0 to 1000000 GiB"},
        {"eval --cache cache --checkpoint c --device-memory -2 --out x",
         "--device-memory: found -2, expected 0 to 1000000 GiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(fm_test_shell_format(folder,
                                              "foldmill %s 2>err; test $? = 2 && "
                                              "grep -qF -- '%s' err",
                                              cases[i][0], cases[i][1]),
                         0);
    }
}

/* Ctrl-C ends `tee` too: neither its end nor a line that it does not read ends the command. */
static void a_lost_reader_ends_no_command(void **state) {
    (void)state;
    assert_int_equal(
        run(TRAIN_WEIGHTS
            " && mkfifo reader && "
            "{ foldmill train --cache cache --config fast.ini --steps 1000000 --out piped "
            ">reader 2>&1 & run=$!; head -n 3 reader >log; "
            "for i in $(seq 3000); do test \"$(cat piped/metrics.jsonl | wc -l)\" -ge 11 && break; "
            "sleep 0.02; done; kill -TERM $run; wait $run; test $? = 143 && "
            "test -e piped/checkpoint-*.safetensors; }"),
        0);
    assert_int_equal(run("{ foldmill build data --cache piped.cache 2>&1 >log; echo $? >code; } | "
                         "true; grep -q '^0$' code && foldmill verify --cache piped.cache >log"),
                     0);
    /* Its report cannot be written, but its cache is. */
    assert_int_equal(run("cp $(ls data/alignments/*/uniref90_hits.a3m | head -1) lost.a3m && "
                         "{ foldmill featurize lost.a3m --cache lost.cache 2>err; echo $? >code; } "
                         "| true; grep -q '^[01]$' code && foldmill verify --cache lost.cache "
                         ">log"),
                     0);
}

/* The signal comes before the first sample, mostly while the model is made. On a busy machine it
 * may come later; then there is a checkpoint, and the run is made again. */
static void a_run_that_did_nothing_leaves_nothing(void **state) {
    (void)state;
    assert_int_equal(
        run("for try in $(seq 9); do foldmill train --cache cache --preset tiny --steps 1000000 "
            "--out early >log 2>err & run=$!; for i in $(seq 3000); do "
            "grep -q '^SigCgt:.*[4-7c-f]...$' /proc/$run/status && break; sleep 0.01; done; "
            "kill -TERM $run; wait $run; test $? = 143 || exit 1; test -e early || exit 0; "
            "ls early/checkpoint-*.safetensors >log && rm -r early || exit 1; done; exit 1"),
        0);
}

/* A line that wraps could not be erased. The last line of `predict` and `eval` stays whole. */
static void progress_fits_the_terminal(void **state) {
    (void)state;
    if (run("command -v script >log")) {
        print_message("skipped: there is no program script to make a terminal\n");
        skip();
    }
    assert_int_equal(run(TRAIN_WEIGHTS), 0);
    assert_int_equal(
        run("for c in 'predict --weights weights.safetensors --out wide' "
            "'eval --checkpoint weights.safetensors --out scored'; do "
            "COLUMNS=30 script -qec \"foldmill $c --cache cache\" typed >log && "
            "tr '\\r' '\\n' <typed | sed 's/^.\\[K//' | grep -E '^(chain )?[1-3]/4 ' >lines && "
            "test $(wc -l <lines) -ge 3 && awk 'length($0) > 29 { exit 1 }' lines || exit 1; done"),
        0);
}

/* A distillation whose structures were all rejected is such a dataset. */
static void a_dataset_without_chains_is_said(void **state) {
    (void)state;
    assert_int_equal(run("mkdir -p void/data void/alignments && "
                         "foldmill build void --cache void.cache 2>err >log; test $? = 1 && "
                         "grep -q 'foldmill build: the dataset has no chain to build: no structure "
                         "or no folder of alignments was found for any' err && "
                         "! test -e void.cache"),
                     0);
}

/* A stream can take hours: the terminal shows its rate and what is left, and a signal does not
 * write into that line. */
static void a_stream_shows_its_progress(void **state) {
    (void)state;
    if (run("command -v script >log")) {
        print_message("skipped: there is no program script to make a terminal\n");
        skip();
    }
    assert_int_equal(
        run("foldmill serve --cache cache --listen unix:p -q 2>p.log & server=$!; "
            "until [ -S p ]; do sleep 0.02; done; "
            "script -qec 'timeout -s INT 2 foldmill fetch --data unix:p --steps 99999999' typed "
            ">log; script -qec 'foldmill fetch --data unix:p --steps 9 -q' quiet >log; "
            "kill $server; wait $server; tr '\\r' '\\n' <typed | sed 's/^.\\[K//' >lines && "
            "grep -qE '^fetch [0-9]+ of 99999999 samples, [0-9.]+ samples/s, [0-9.]+ MB/s, "
            "[0-9:]+ left$' lines && grep -q '^foldmill fetch: stopped by a signal' lines && "
            "grep -q '^samples   9' quiet && ! grep -q 'fetch 0 of' quiet"),
        0);
}

/* A dataset with a cache in it would no longer be taken as a dataset. */
static void a_cache_is_made_in_no_dataset(void **state) {
    (void)state;
    assert_int_equal(
        run("cp -r data other && ls other >before && cp $(ls data/alignments/*/uniref90_hits.a3m | "
            "head -1) x.a3m && "
            "foldmill build data --catalogue job2 --cache worker2 -q >log && "
            "for c in 'build data' 'merge --catalogue job2' 'featurize x.a3m'; do "
            "foldmill $c --cache other 2>err; test $? = 2 && ls other | cmp - before && "
            "grep -q -- '--cache: other is a dataset; expected another folder' err || exit 1; "
            "done"),
        0);
    assert_int_equal(run("foldmill build data --cache '' 2>err; test $? = 2 && "
                         "grep -q -- '--cache: found an empty value, expected DIR' err"),
                     0);
}

/* Where a worker would write, what it would read, and options that the action does not have. */
static void places_of_a_shared_job_are_checked(void **state) {
    (void)state;
    assert_int_equal(
        run("foldmill build data --catalogue job3 --cache worker3 -q >log && ls data >before && "
            "{ foldmill build data --catalogue job3 --cache worker4 --publish data 2>err; "
            "test $? = 2 && ls data | cmp - before && grep -q -- '--publish: data is the dataset "
            "itself; expected another folder' err; } && "
            "{ foldmill merge --catalogue job3 --cache none --from nowhere 2>err; test $? = 1 && "
            "! test -e none && grep -q 'nowhere: --from: there is no such folder' err; } && "
            "{ foldmill catalogue status --catalogue job3 --from worker3 2>err; test $? = 2 && "
            "grep -q -- '--from is for rebuild; status reads no cache' err; } && "
            "{ foldmill catalogue rebuild --catalogue job3 --from worker3 --all 2>err; "
            "test $? = 2 && grep -q -- '--all is for status' err; }"),
        0);
    /* A shard is a file of LMDB, as a catalogue is. */
    assert_int_equal(
        run("shard=$(ls worker3/shards/*.lmdb) && sha256sum $shard >sum && "
            "for c in 'build data --cache worker5' 'merge --cache none' "
            "'catalogue rebuild --from worker3' 'catalogue status'; do "
            "foldmill $c --catalogue $shard 2>err; test $? = 1 && sha256sum --quiet -c sum && "
            "grep -q 'lmdb: is no catalogue of foldmill' err || exit 1; done; "
            "test $(ls worker3/shards | wc -l) = 1"),
        0);
}

/* The reason is found before any chain is scored. */
static void an_evaluation_needs_a_checkpoint_and_a_folder(void **state) {
    (void)state;
    assert_int_equal(
        run(TRAIN_WEIGHTS
            " && foldmill export-weights weights.safetensors --out weights.npz >log && "
            "head -c -8 weights.safetensors >cut.safetensors && for c in weights.npz "
            "cut.safetensors; do foldmill eval --checkpoint $c --cache cache --out none 2>$c.err; "
            "test $? = 1 && ! test -e none && grep -q 'expected a whole checkpoint of foldmill "
            "train or foldmill import' $c.err || exit 1; done && grep -q 'cut.safetensors: the "
            "file is cut off, it ends before the end of: ' cut.safetensors.err"),
        0);
    assert_int_equal(run("foldmill eval --checkpoint weights.safetensors --cache cache "
                         "--out /proc/none 2>err; test $? = 1 && "
                         "grep -q '/proc/none: cannot make folder' err && ! grep -q '^chain' err"),
                     0);
}

/* A file has the name of the longest chain, which is predicted last, so its folder cannot be
 * made. */
static void an_error_says_what_is_done(void **state) {
    (void)state;
    assert_int_equal(run(TRAIN_WEIGHTS
                         " && predict='foldmill predict --cache cache -q --weights "
                         "weights.safetensors'; $predict --out all >log && mkdir blocked && "
                         "touch blocked/$(sed 1d all/summary.csv | sort -t, -k2,2n | tail -n 1 | "
                         "cut -d, -f1) && $predict --out blocked 2>err; test $? = 1 && "
                         "grep -q 'ended after [1-3] predictions*; --resume continues' err && "
                         "find blocked -type f -empty -delete && "
                         "$predict --out blocked --resume >log && "
                         "grep -q '4 predictions ([1-3] done earlier)' log"),
                     0);
}

/* What a command reads, it never replaces, whatever name is given for it. */
static void an_output_replaces_no_input(void **state) {
    (void)state;
    assert_int_equal(
        run(TRAIN_WEIGHTS
            " && foldmill export-weights weights.safetensors --out theirs.npz >log && "
            "ln -s weights.safetensors link && ln theirs.npz twin && "
            "printf '>q\\nACDE\\n' >q.a3m && "
            "sha256sum weights.safetensors theirs.npz q.a3m >sums && "
            "{ foldmill export-weights weights.safetensors --out ./link 2>err; test $? = 2; } && "
            "grep -q '^foldmill export-weights: ./link: --out: found the file that is read, "
            "expected another; choose another name$' err && "
            "{ foldmill import theirs.npz --out twin 2>err; test $? = 2; } && "
            "grep -q 'twin: --out: found the file that is read' err && "
            "{ foldmill parse a3m q.a3m -o $PWD/q.a3m 2>err; test $? = 2; } && "
            "grep -q 'q.a3m: --out: found the file that is read' err && sha256sum -c sums >log && "
            "foldmill parse a3m - -o q.npz <q.a3m"),
        0);
    /* A picture replaces an earlier one only. */
    assert_int_equal(
        run("foldmill train --cache cache --config fast.ini --steps 1 --out drawn -q >log 2>&1 && "
            "for end in svg png; do echo mine >mine.$end; foldmill plot drawn --out mine.$end "
            "2>err; test $? = 2 && grep -qx mine mine.$end && grep -qE \"mine.$end: --out: found "
            "a file that is no (PNG|SVG of foldmill), expected none\" err || exit 1; done && "
            "{ foldmill stats --cache cache --svg mine.svg 2>err >log; test $? = 2; } && "
            "grep -qx mine mine.svg && for n in 1 2; do foldmill plot drawn --out own.svg && "
            "foldmill stats --cache cache --svg own.svg >log || exit 1; done"),
        0);
    /* A report replaces an earlier one only. */
    assert_int_equal(
        run("input=$(ls data/mmcifs/* | head -1); sha256sum $input >sums; "
            "{ foldmill build data --cache reported --report $input -q 2>err >log; test $? = 2; } "
            "&& sha256sum -c sums >log && ! test -e reported && "
            "grep -q \"$input: --report: found a file that is no report\" err && "
            "echo '{\"mine\": 1}' >list.json && "
            "{ foldmill build data --cache reported --report list.json -q 2>err >log; "
            "test $? = 2; } && grep -q mine list.json && ! test -e reported && "
            "for n in 1 2; do foldmill build data --cache reported --report r.json -q >log "
            "|| exit 1; done"),
        0);
    /* What cannot be replaced is found before the cache is built. */
    assert_int_equal(run("mkdir folder && mkfifo fifo && for report in folder fifo; do "
                         "{ foldmill build data --cache unreported --report $report -q 2>err >log; "
                         "test $? = 1; } && ! test -e unreported && "
                         "grep -q \"$report: not a regular file but a\" err || exit 1; done"),
                     0);
}

/* With --replace, a command takes what it has written, and never the checkpoint of a run. */
static void an_output_replaces_only_its_like(void **state) {
    (void)state;
    assert_int_equal(
        run(TRAIN_WEIGHTS
            " && ex='foldmill export-weights weights.safetensors --out' "
            "im='foldmill import out.npz --out' && $ex out.npz >log && $im in.st >log && "
            "cp weights.safetensors run.st && cp out.npz twin.npz && echo mine >note.txt && "
            "LC_ALL=C sed '1s/\"format\":\"1\"/\"format\":\"9\"/' run.st >later.st && "
            "! cmp -s run.st later.st && sha256sum in.st out.npz run.st later.st note.txt >sums && "
            "for c in \"$im in.st\" \"$ex out.npz\" \"$im run.st\" \"$ex note.txt\"; do "
            "$c 2>err; test $? = 1 && grep -q 'the file exists; give another --out, or --replace' "
            "err || exit 1; done && "
            "for c in \"$im run.st\" \"$im later.st\" \"$im note.txt\" \"$im twin.npz\" "
            "\"$ex run.st\" \"$ex later.st\" \"$ex note.txt\" \"$ex in.st\"; do "
            "$c --replace 2>err; test $? = 2 && grep -q 'found a file that this command did not "
            "write, expected none or ' err || exit 1; done && cmp twin.npz out.npz && "
            "sha256sum -c sums >log && "
            "$im in.st --seed 7 --replace >log && ! grep in.st sums | sha256sum -c >log 2>&1 && "
            "$ex out.npz --names openfold --replace >log && "
            "! grep out.npz sums | sha256sum -c >log 2>&1"),
        0);
}

/* A name that is mistyped may be that of weights, of an input or of a part of the cache. */
static void features_replace_only_features(void **state) {
    (void)state;
    assert_int_equal(
        run(TRAIN_WEIGHTS
            " && name=$(ls data/alignments | head -1) && a3m=$(ls data/alignments/*/mgnify* | "
            "head -1) && ex=\"foldmill export --cache cache --chain $name --out\" && "
            "pa=\"foldmill parse a3m $a3m --out\" && other=$(ls data/alignments/*/bfd* | head -1) "
            "&& foldmill export-weights weights.safetensors --out plain.npz --replace >log && "
            "$ex made.npz && sha256sum cache/CURRENT weights.safetensors plain.npz $other made.npz "
            ">sums && for c in \"$ex\" \"$pa\"; do "
            "for f in cache/CURRENT weights.safetensors plain.npz $other; do "
            "$c $f 2>err; test $? = 1 && grep -q 'the file exists; give another --out, or "
            "--replace' err || exit 1; "
            "$c $f --replace 2>err; test $? = 2 && grep -q 'found a file that is not of features, "
            "expected one or none' err || exit 1; done; done && sha256sum -c sums >log && "
            "foldmill export-weights weights.safetensors --out made.npz --replace 2>err; "
            "test $? = 2 && grep -q 'expected none or one of exported weights' err && "
            "sha256sum -c sums >log && $ex made.npz --format safetensors --replace && "
            "! grep made.npz sums | sha256sum -c >log 2>&1 && sha256sum made.npz >made.sum && "
            "$pa made.npz --replace && ! sha256sum -c made.sum >log 2>&1"),
        0);
}

/* Its arrays have the right names and shapes, so only the hash tells. */
static void a_damaged_checkpoint_is_not_imported(void **state) {
    (void)state;
    assert_int_equal(
        run(TRAIN_WEIGHTS
            " && cp weights.safetensors bent.safetensors && printf x | dd of=bent.safetensors "
            "bs=1 seek=$(($(stat -c %s bent.safetensors) - 99)) conv=notrunc 2>log && "
            "foldmill import weights.safetensors --out whole >log && "
            "foldmill import bent.safetensors --out none 2>err; test $? = 1 && "
            "grep -q 'bent.safetensors: the content does not match its hash; the file is damaged' "
            "err && ! test -e none"),
        0);
}

static void an_empty_file_is_said(void **state) {
    (void)state;
    assert_int_equal(run(": >empty; foldmill build data --cache new --chain-data empty 2>err; "
                         "test $? = 1 && grep -q 'empty:1:1: the JSON text ends early' err"),
                     0);
    assert_int_equal(run("foldmill import empty --out none 2>err; test $? = 1 && "
                         "grep -q 'empty: the file is empty; weights are a checkpoint' err"),
                     0);
    assert_int_equal(run("foldmill snapshot create x --cache cache --clusters empty 2>err; "
                         "test $? = 1 && grep -q 'empty: found no cluster, expected one' err"),
                     0);
}

static void what_weights_are_is_said(void **state) {
    (void)state;
    assert_int_equal(
        run("echo ACDE >text && for c in 'import text' 'predict q.a3m --weights "
            "text'; do foldmill $c --out none 2>err; test $? = 1 && "
            "grep -q 'text: this is not an .npz archive and not a safetensors file, .*; "
            "weights are a checkpoint of foldmill, an .npz of AlphaFold, or "
            "safetensors' err && ! test -e none || exit 1; "
            "done"),
        0);
    /* The command that converts such a file is not cut off. */
    assert_int_equal(run("printf '\\200\\2}q\\0.    ' >old.pt && for c in 'import old.pt' "
                         "'predict q.a3m --weights old.pt'; do foldmill $c --out none 2>err; "
                         "test $? = 1 && grep -q \"old.pt: .* 'weights.safetensors')\\\"$\" err "
                         "|| exit 1; done"),
                     0);
}

static void a_folder_of_damaged_checkpoints_is_no_run(void **state) {
    (void)state;
    assert_int_equal(
        run(TRAIN_WEIGHTS
            " && mkdir hurt && head -c 999 weights.safetensors "
            ">hurt/checkpoint-000000000001.safetensors && foldmill train --cache cache --config "
            "fast.ini --steps 1 --out hurt --resume 2>err; test $? = 1 && "
            "grep -q 'hurt: the only checkpoint in this folder is damaged; put a whole copy of one "
            "into it, or start again with another --out' err"),
        0);
}

/* A run removes old checkpoints, and would begin with those that it finds. */
static void a_run_removes_no_checkpoint_of_another(void **state) {
    (void)state;
    assert_int_equal(
        run(TRAIN_WEIGHTS
            " && mkdir alone && cp weights.safetensors alone/checkpoint-000000000002.safetensors "
            "&& train='foldmill train --cache cache --config fast.ini --steps 4 -q --out alone "
            "--checkpoint-every 1 --keep 1' && { $train 2>err; test $? = 1; } && "
            "grep -q 'alone/checkpoint-000000000002.safetensors: the folder has a run already; "
            "give --resume or another --out' err && test \"$(ls alone | grep -v lock)\" = "
            "checkpoint-000000000002.safetensors && cmp weights.safetensors alone/ch*"),
        0);
}

/* A scheduler gives --resume at the first start, too. A mistyped folder would begin a run in
 * silence. */
static void a_resume_without_a_run_is_said(void **state) {
    (void)state;
    assert_int_equal(run(TRAIN_WEIGHTS
                         " && for n in 1 2; do foldmill train --cache cache --config fast.ini "
                         "--steps $n --out fresh --resume -q >log 2>$n.err || exit 1; done; "
                         "grep -q '^resume    fresh has no checkpoint: a new run begins$' 1.err && "
                         "! grep -q '^resume' 2.err"),
                     0);
}

/* The stop is heard while the server is awaited; the wait's own end would be a failure. */
static void a_mute_server_holds_up_no_stop(void **state) {
    (void)state;
    assert_int_equal(
        run(TRAIN_WEIGHTS
            " && for c in 'train --config fast.ini --steps 9' 'predict --weights "
            "weights.safetensors' 'eval --checkpoint weights.safetensors'; do "
            "rm -f mute heard; python3 -c 'import socket, time; s = socket.socket(socket.AF_UNIX); "
            "s.bind(\"mute\"); s.listen(); c = s.accept()[0]; c.recv(1); open(\"heard\", \"w\"); "
            "time.sleep(60)' & mute=$!; until [ -S mute ]; do sleep 0.02; done; "
            "foldmill $c --data unix:mute --out none >log 2>err & pid=$!; "
            "until [ -e heard ] || ! kill -0 $pid; do sleep 0.02; done; kill -TERM $pid; wait "
            "$pid; code=$?; "
            "kill $mute; wait $mute; test $code = 143 && ! grep -q 'did not answer' err || exit 1; "
            "done"),
        0);
}

/* A limit on the size of files fails like a full disk. */
static void a_last_checkpoint_without_room_is_said(void **state) {
    (void)state;
    assert_int_equal(
        run(TRAIN_WEIGHTS
            " && train='foldmill train --cache cache --config fast.ini --out tight -q --resume'; "
            "(ulimit -f 90; $train --steps 2 >log) 2>err; test $? = 1 && "
            "grep -q 'foldmill train: tight/checkpoint-.*: cannot write: File too large' err && "
            "grep -q 'train: no step is saved; make room or mend it, then run the command again' "
            "err && "
            "$train --steps 2 >log 2>err && "
            "{ (ulimit -f 90; $train --steps 4 >log) 2>err; test $? = 1; } && grep -q 'train: what "
            "came after step 2 is not saved; make room or mend it, and --resume continues there' "
            "err && "
            "$train --steps 4 >log 2>err && grep -q 'resumed at step 2' log"),
        0);
}

static void training_without_structures_is_said(void **state) {
    (void)state;
    assert_int_equal(run("printf '>q\\nACDE\\n' >q.fasta && foldmill featurize q.fasta "
                         "--single-sequence --cache bare -q >log && foldmill train --cache bare "
                         "--steps 2 --out bare.run >log 2>err && "
                         "grep -c ' warn no_structure sample=q why=' err | grep -qx 1"),
                     0);
    /* Nor can they be scored: an evaluation of no chain at all has failed. */
    assert_int_equal(run(TRAIN_WEIGHTS " && foldmill eval --checkpoint weights.safetensors --cache "
                                       "bare --out bare.eval >log 2>err; test $? = 1 && grep -q "
                                       "'^chains    0 scored, 1 failed' log && grep -q 'q: it has "
                                       "no two known CA atoms' err"),
                     0);
    assert_int_equal(run(TRAIN_WEIGHTS " && foldmill train --cache cache --config fast.ini --steps "
                                       "2 --out real.run >log 2>err && ! grep no_structure err"),
                     0);
}

/* Paths are bytes; what is written about them is text. */
static void paths_need_not_be_utf8(void **state) {
    (void)state;
    assert_int_equal(
        run(TRAIN_WEIGHTS
            " && printf '>q\\nACDE\\n' >q.fasta && odd=$(printf 'o\\377\\351') && "
            "cp weights.safetensors $odd.safetensors && "
            "foldmill predict q.fasta --single-sequence --weights $odd.safetensors --out odd --pdb "
            "-q >log 2>err && foldmill eval --checkpoint $odd.safetensors --cache cache --out "
            "odd.eval >log 2>err && mkdir $odd.run && printf '{\"step\":1,\"loss\":2}\\n' "
            ">$odd.run/metrics.jsonl && foldmill plot $odd.run --title \"$odd\" --out odd/p.svg && "
            "foldmill top $odd.run --once --json >odd/top.json && "
            "python3 -c 'import json, os, sys\n"
            "import xml.etree.ElementTree as tree\n"
            "read = 0\n"
            "for at, _, names in list(os.walk(b\"odd\")) + list(os.walk(b\"odd.eval\")):\n"
            "    for name in names:\n"
            "        name.decode()\n"
            "        text = open(os.path.join(at, name), encoding=\"utf-8\").read()\n"
            "        if name.endswith(b\".json\"): json.loads(text)\n"
            "        if name.endswith(b\".svg\"): tree.fromstring(text)\n"
            "        read += name.endswith((b\".json\", b\".svg\", b\".html\"))\n"
            "sys.exit(read < 8)'"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_checked_before_the_server_is_asked),
        cmocka_unit_test(steps_that_are_done_are_said),
        cmocka_unit_test(a_misspelt_action_is_said_first),
        cmocka_unit_test(rules_that_leave_no_chain_are_counted),
        cmocka_unit_test(a_list_may_be_a_pipe_by_its_name),
        cmocka_unit_test(clusters_of_other_chains_are_refused),
        cmocka_unit_test(an_ending_may_be_in_upper_case),
        cmocka_unit_test(snapshots_are_deleted),
        cmocka_unit_test(a_run_takes_no_folder_of_others),
        cmocka_unit_test(featurize_replaces_no_built_cache),
        cmocka_unit_test(a_number_out_of_its_range_is_named),
        cmocka_unit_test(a_lost_reader_ends_no_command),
        cmocka_unit_test(a_run_that_did_nothing_leaves_nothing),
        cmocka_unit_test(progress_fits_the_terminal),
        cmocka_unit_test(a_dataset_without_chains_is_said),
        cmocka_unit_test(a_stream_shows_its_progress),
        cmocka_unit_test(a_cache_is_made_in_no_dataset),
        cmocka_unit_test(places_of_a_shared_job_are_checked),
        cmocka_unit_test(an_evaluation_needs_a_checkpoint_and_a_folder),
        cmocka_unit_test(an_error_says_what_is_done),
        cmocka_unit_test(an_output_replaces_no_input),
        cmocka_unit_test(an_output_replaces_only_its_like),
        cmocka_unit_test(features_replace_only_features),
        cmocka_unit_test(a_damaged_checkpoint_is_not_imported),
        cmocka_unit_test(an_empty_file_is_said),
        cmocka_unit_test(what_weights_are_is_said),
        cmocka_unit_test(a_folder_of_damaged_checkpoints_is_no_run),
        cmocka_unit_test(a_run_removes_no_checkpoint_of_another),
        cmocka_unit_test(a_resume_without_a_run_is_said),
        cmocka_unit_test(a_last_checkpoint_without_room_is_said),
        cmocka_unit_test(a_mute_server_holds_up_no_stop),
        cmocka_unit_test(training_without_structures_is_said),
        cmocka_unit_test(paths_need_not_be_utf8),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
