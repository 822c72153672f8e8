/* test_predict.c: tests `foldmill featurize` and `foldmill predict` as a user runs them: the files
 * and how other programs read them, ensembles, results that do not depend on other chains, refused
 * inputs with their reasons, and a command that is stopped and resumed. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* A tiny model with pTM, and FASTA files of the chains that it was trained on, with their
 * alignments in `msas`. Chains are short and predictions are few, because programs are ten times
 * slower with a sanitizer. */
static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    int failed = run("foldmill synth --chains 3 --seed 5 --min-length 14 --max-length 24 --depth "
                     "40 -o data --quiet");
    failed |= run("foldmill build data --cache cache --quiet >build.log");
    failed |= run("printf '[model]\\nn_aligned_error_bin = 64\\n[loss]\\naligned_error = "
                  "0.1\\n[data]\\ncrop_size = 16\\nmax_msa_clusters = 8\\n' >small.ini");
    failed |= run("foldmill train --cache cache --config small.ini --steps 2 --quiet --out run "
                  ">run.log 2>&1 && cp run/checkpoint-000000000002.safetensors tiny.safetensors");
    failed |= run("mkdir seqs msas && for d in data/alignments/*; do n=$(basename $d); cp -r $d "
                  "msas/; { echo \">$n\"; sed -n 2p $d/uniref90_hits.a3m; } >seqs/$n.fasta; cp "
                  "$d/uniref90_hits.a3m seqs/flat-$n.a3m; done");
    failed |= run("echo 'p() { foldmill predict --weights tiny.safetensors \"$@\"; }' >lib");
    return failed;
}

static void every_file_is_written_and_read_back(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; p seqs/*.fasta --alignments msas --templates data/mmcifs "
                         "--seeds 0,1 --recycle-tol 0 --pdb --out out >out.log 2>out.err"),
                     0);
    assert_int_equal(run("test $(ls out/*/*.cif | wc -l) = 6 && test ! -e out/.features"), 0);
    assert_int_equal(run("for c in out/*/*.cif; do \"$OLDPWD\"/tests/e2e/check_structure.py $c "
                         "${c%.cif}.pdb || exit 1; done >check.log"),
                     0);
    /* The files of scores agree with each other and with the table. */
    assert_int_equal(
        run("python3 -c 'import csv, glob, json\n"
            "rows = list(csv.DictReader(open(\"out/summary.csv\")))\n"
            "assert len(rows) == 6 and all(r[\"cycles\"] == \"4\" and not r[\"failed\"] for r in "
            "rows)\n"
            "for r in rows:\n"
            "    base = \"out/%s/%s_%s_seed-%s\" % (r[\"chain\"], r[\"chain\"], r[\"model\"], "
            "r[\"seed\"])\n"
            "    s = json.load(open(base + \"_scores.json\")); n = int(r[\"n_res\"])\n"
            "    p = json.load(open(base + \"_pae.json\"))[0]\n"
            "    assert len(s[\"plddt\"]) == n == len(s[\"pae\"]) == len(s[\"pae\"][0])\n"
            "    assert p[\"predicted_aligned_error\"] == s[\"pae\"]\n"
            "    assert p[\"max_predicted_aligned_error\"] == s[\"max_pae\"] == 31.75\n"
            "    assert abs(sum(s[\"plddt\"]) / n - float(r[\"mean_plddt\"])) < 0.006\n"
            "    assert s[\"ptm\"] == float(r[\"ptm\"]) and 0 < s[\"ptm\"] < 1\n"
            "    k = json.load(open(\"out/%s/ranking.json\" % r[\"chain\"]))\n"
            "    assert k[\"order\"][int(r[\"rank\"]) - 1] == \"%s_seed-%s\" % (r[\"model\"], "
            "r[\"seed\"])\n"
            "    v = [k[\"plddts\"][o] for o in k[\"order\"]]; assert v == sorted(v)[::-1]\n"
            "'"),
        0);
    assert_int_equal(run("grep -q 'templates, pTM' out.err"), 0);
}

static void gemmi_reads_the_same_atoms(void **state) {
    (void)state;
    if (run("command -v gemmi >/dev/null") != 0) {
        print_message("skipped: there is no gemmi\n");
        skip();
    }
    assert_int_equal(run("c=$(ls out/*/*.cif | head -1); gemmi validate $c && gemmi convert $c "
                         "g.pdb && gemmi convert ${c%.cif}.pdb g.cif && "
                         "\"$OLDPWD\"/tests/e2e/check_structure.py $c g.pdb g.cif >gemmi.log"),
                     0);
}

/* Scores and rankings have the layouts of ColabFold and AlphaFold, and mmCIF follows ModelCIF. */
static void files_follow_their_formats(void **state) {
    (void)state;
    if (run("command -v gemmi >/dev/null") != 0) {
        print_message("skipped: there is no gemmi\n");
        skip();
    }
    assert_int_equal(
        run("grep -q _ma_template_trans_matrix out/*/*.cif && "
            "\"$OLDPWD\"/tests/e2e/check_formats.py out/*/ >formats.log 2>formats.err"),
        0);
}

/* The project's own reader: a prediction is a dataset of predictions, with pLDDT as confidence. */
static void foldmill_reads_its_predictions(void **state) {
    (void)state;
    assert_int_equal(run("mkdir -p again/data && for d in seqs/*.fasta; do n=$(basename $d "
                         ".fasta); cp out/$n/${n}_tiny_seed-0.cif again/data/$n.cif; done; cp -r "
                         "msas again/alignments; foldmill build again --predicted --cache "
                         "again.cache --quiet --json >again.json"),
                     0);
    assert_int_equal(run("python3 -c 'import json; r = json.load(open(\"again.json\")); "
                         "exit(r[\"chains\"] != 3 or r[\"refused\"])'"),
                     0);
    assert_int_equal(run("foldmill export --help >export.log; n=$(basename $(ls seqs/*.fasta | "
                         "head -1) .fasta); foldmill inspect --cache again.cache --chain $n | grep "
                         "-q 'predicted'"),
                     0);
}

/* Room for a million extra rows makes samples so large that a stream begins with chains of 14
 * residues. It is opened again for longer ones, which changes no bit. */
static void long_chains_open_larger_streams(void **state) {
    (void)state;
    assert_int_equal(
        run(". ./lib; p --cache cache --extra-msa 1000000 --recycles 5 --recycle-tol 0 --out roomy "
            ">roomy.log 2>&1 && p --cache cache --extra-msa 4000 --recycles 5 --recycle-tol 0 "
            "--out few -q >few.log && test $(tail -n +2 roomy/summary.csv | cut -d , -f 2 | sort "
            "-n | tail -1) -gt 15 && for f in $(cd few && ls */*.cif */*_scores.json); do cmp "
            "few/$f roomy/$f || exit 1; done"),
        0);
    assert_int_equal(run(". ./lib; p --cache cache --extra-msa 1000000 --msa-clusters 60000 "
                         "--recycles 20 --out narrow -q >narrow.log 2>narrow.err; test $? = 1 && "
                         "grep -q 'residues, and at most 9 are taken' narrow.err && grep -q "
                         "'^outputs .* 0 predictions, 3 failed, ' narrow.log"),
                     0);
}

/* An alignment gives what a FASTA file with the same alignment gives; one chain alone gives what
 * it gives among others. */
static void results_depend_on_the_chain_alone(void **state) {
    (void)state;
    assert_int_equal(
        run("n=$(basename $(ls seqs/*.fasta | tail -1) .fasta); echo $n >name; . "
            "./lib; p seqs/$n.fasta --alignments msas --templates data/mmcifs "
            "--recycle-tol 0 --out alone -q >alone.log && test -s \"$(sed -n 's/^page  *//p' "
            "alone.log)\" && cmp alone/$n/${n}_tiny_seed-0.cif "
            "out/$n/${n}_tiny_seed-0.cif"),
        0);
    assert_int_equal(run("n=$(cat name); . ./lib; mkdir one && sed 's/^$//' seqs/flat-$n.a3m "
                         ">one/$n.a3m && cp seqs/$n.fasta one/ && mkdir -p two && cp one/$n.fasta "
                         "two/ && cp one/$n.a3m two/ && p one/$n.a3m --out x1 -q >x1.log && p "
                         "two/$n.fasta --out x2 -q >x2.log && cmp x1/$n/${n}_tiny_seed-0.cif "
                         "x2/$n/${n}_tiny_seed-0.cif"),
                     0);
    assert_int_equal(run("n=$(cat name); . ./lib; p --cache cache --chain $n --seeds 1 --out one.c "
                         "-q >one.log && p --cache cache --seeds 0,1 --out whole -q >whole.log && "
                         "cmp one.c/$n/${n}_tiny_seed-1.cif whole/$n/${n}_tiny_seed-1.cif && test "
                         "$(ls -d one.c/*/ | wc -l) = 1 && test $(ls -d whole/*/ | wc -l) = 3"),
                     0);
    /* A sequence alone is another input, of which seeds draw nothing. */
    assert_int_equal(run("n=$(cat name); . ./lib; p two/$n.fasta --single-sequence --seeds 0,1 "
                         "--out x3 -q >x3.log && for s in 0 1; do grep ^ATOM "
                         "x3/$n/${n}_tiny_seed-$s.cif >x3.$s; done && cmp x3.0 x3.1 && grep -q "
                         "'^noted  *1 chain whose seeds all "
                         "gave the same structure' x3.log && ! cmp -s x2/$n/${n}_tiny_seed-0.cif "
                         "x3/$n/${n}_tiny_seed-0.cif && grep -q \"^$n,[0-9]*,1,\" x3/summary.csv"),
                     0);
}

static void weights_of_other_programs_are_taken(void **state) {
    (void)state;
    assert_int_equal(run("foldmill export-weights tiny.safetensors --out open.safetensors "
                         ">export.log && foldmill export-weights tiny.safetensors --out deep.npz "
                         ">>export.log && n=$(cat name) && foldmill predict two/$n.fasta --weights "
                         "tiny.safetensors --weights open.safetensors --weights deep.npz "
                         "--msa-clusters 8 --extra-msa 64 --out both -q >both.log"),
                     0);
    assert_int_equal(run("n=$(cat name); test $(ls both/$n/*.cif | wc -l) = 3 && python3 -c "
                         "'import csv; r = list(csv.DictReader(open(\"both/summary.csv\"))); "
                         "exit(len(r) != 3 or len({x[\"mean_plddt\"] for x in r}) != 1)' && "
                         "sha256sum deep.npz | cut -c 1-64 | grep -qf - both/$n/*_deep_*_run.json"),
                     0);
    /* Weights that lack an array are of no model, and nothing is written. */
    assert_int_equal(
        run("python3 -c 'import zipfile as z; a = z.ZipFile(\"deep.npz\"); b = "
            "z.ZipFile(\"cut.npz\", \"w\"); [b.writestr(n, a.read(n)) for n in "
            "a.namelist()[1:]]; b.close()'; foldmill predict two/*.fasta --weights "
            "cut.npz --out cut 2>cut.err; test $? = 1 && test ! -e cut && grep -q "
            "'cut.npz: these weights fit no model of foldmill.*1 array differs' cut.err"),
        0);
    /* Those of AlphaFold-Multimer are named as such, here and by import. */
    assert_int_equal(
        run("python3 -c 'import zipfile as z; a = z.ZipFile(\"deep.npz\"); b = "
            "z.ZipFile(\"many.npz\", \"w\"); [b.writestr(n, a.read(n)) for n in a.namelist()]; "
            "b.writestr(\"alphafold/alphafold_iteration/evoformer/~_relative_encoding/"
            "position_activations//weights.npy\", a.read(a.namelist()[0])); b.close()'; foldmill "
            "predict two/*.fasta --weights many.npz --out many 2>many.err; test $? = 1 && grep -q "
            "\"FILE. lists them. They are AlphaFold-Multimer's\" many.err; foldmill import "
            "many.npz "
            "--out many.ckpt 2>many.err; test $? = 1 && grep -q \"They are AlphaFold-Multimer's\" "
            "many.err"),
        0);
}

/* An alignment in Stockholm format gives what the same one gives as A3M, and the chains of a server
 * what those of its cache give. */
static void sources_agree(void **state) {
    (void)state;
    assert_int_equal(
        run("mkdir forms forms/b; python3 -c 'q = \"MKTAYIAKQRQISFVKSH\"; r = [q, \"MRTAYIA\" + "
            "q[7:], q[:9] + \"E\" + q[10:]]; n = (\"q\", \"a/1-18\", \"b/1-18\")\n"
            "open(\"forms/q.sto\", \"w\").write(\"# STOCKHOLM 1.0\\n\" + \"\".join(\"%s %s\\n\" "
            "% x for x in zip(n, r)) + \"//\\n\")\n"
            "open(\"forms/b/q.a3m\", \"w\").write(\"\".join(\">%s\\n%s\\n\" % x for x in zip(n, "
            "r)))' && . ./lib && p forms/q.sto --out f1 -q >f.log && p forms/b/q.a3m --out f2 -q "
            ">>f.log && cmp f1/q/q_tiny_seed-0.cif f2/q/q_tiny_seed-0.cif && cut -d , -f 3 "
            "f1/summary.csv | grep -qx 3"),
        0);
    assert_int_equal(
        run("foldmill serve --cache cache --listen unix:$PWD/s --quiet >serve.log 2>&1 & pid=$!; "
            "until test -S s; do kill -0 $pid || exit 1; sleep 0.02; done; . ./lib; p --data "
            "unix:$PWD/s --seeds 0,1 --out served -q >served.log 2>&1; rc=$?; kill $pid; wait "
            "$pid; "
            "test $rc = 0 && for f in $(cd whole && ls */*.cif */*_scores.json); do cmp whole/$f "
            "served/$f || exit 1; done"),
        0);
}

static void mistakes_are_named(void **state) {
    (void)state;
    assert_int_equal(run("mkdir bad; n=$(cat name); printf '>x\\nMKJ\\n' >bad/letter.fasta; cp "
                         "two/$n.a3m bad/letter.a3m; printf '>x\\nMK\\n>y\\nMA\\n' >bad/two.fasta; "
                         "cp two/$n.a3m bad/two.a3m; cp two/$n.fasta bad/alone.fasta; printf "
                         "'>x\\nMKTAY\\n' >bad/other.fasta; cp two/$n.a3m bad/other.a3m; printf "
                         "'>x\\nMK\\n>y\\nMA\\n' >bad/bare.fasta; cp bad/bare.fasta 'bad/a "
                         "word.fasta'; . ./lib; "
                         "p two/$n.fasta bad/*.fasta bad/gone.fa --out some 2>some.err >some.log"),
                     3);
    assert_int_equal(
        run("grep -q 'bad/letter.fasta:2:3: found .J. in the sequence' some.err && "
            "grep -q 'bad/two.fasta:3:1: found a second record; .* a separate file' "
            "some.err && grep -q 'bad/alone.fasta: found no alignments of it.*"
            "colabfold_search' some.err && grep -q 'other.a3m:.*of another sequence' some.err && "
            "grep -q "
            "'bad/gone.fa' some.err && grep -q 'bad/bare.fasta:3:1: found a second record' "
            "some.err && grep -q '1 prediction, 7 inputs refused, ' some.log"),
        0);
    /* Each refused input has a row with its name and the reason. */
    assert_int_equal(
        run("test $(ls -d some/*/ | wc -l) = 1 && python3 -c 'import csv\n"
            "rows = {r[\"chain\"]: r for r in csv.DictReader(open(\"some/summary.csv\"))}\n"
            "assert len(rows) == 8 and \"a%20word\" in rows, list(rows)\n"
            "bad = [r for r in rows.values() if not r[\"rank\"]]\n"
            "assert len(bad) == 7 and all(not r[\"n_res\"] for r in bad)\n"
            "assert \"bad/two.fasta:3:1: found a second\" in rows[\"two\"][\"failed\"]\n"
            "' 2>rows.err"),
        0);
}

static void mistakes_of_commands_are_named(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; p bad/two.fasta --out none 2>none.err >none.log"), 1);
    assert_int_equal(run("grep -q 'the only input cannot be predicted' none.err && ! grep -q "
                         "'foldmill featurize' none.err && ! ls none/*/ 2>ls.err"),
                     0);
    assert_int_equal(run(". ./lib; p two/*.fasta --templates nowhere --out none 2>none.err"), 1);
    assert_int_equal(
        run("grep -q 'nowhere: found no such folder or zip archive of templates; give' "
            "none.err"),
        0);
    assert_int_equal(run(". ./lib; p two --out none 2>none.err"), 2);
    assert_int_equal(run("grep -q 'two: found a folder, expected a file; give its files' none.err"),
                     0);
    assert_int_equal(
        run("f=$(printf 'bad/a\\377.a3m'); cp bad/two.a3m $f; . ./lib; p $f --out none 2>none.err"),
        1);
    assert_int_equal(run("grep -aq 'its name is not UTF-8; rename the file' none.err"), 0);
    /* Template hits whose structures are broken are reported. */
    assert_int_equal(
        run("mkdir junk && for f in data/mmcifs/*.cif; do echo junk >junk/$(basename "
            "$f); done; . ./lib; p seqs/*.fasta --alignments msas --templates junk "
            "--recycles 0 --out junked -q 2>junk.err >junk.log && grep -q 'none of its "
            "[0-9]* template hits* is used; no structure in junk fits' junk.err"),
        0);
    assert_int_equal(run(". ./lib; p two/*.fasta --alignments nowhere --out none 2>none.err"), 1);
    assert_int_equal(run("grep -q 'nowhere: found no such folder of alignments' none.err"), 0);
    /* Weights are checked before the inputs, and nothing is written. */
    assert_int_equal(run("foldmill predict bad/two.fasta --weights two/*.a3m --out new 2>new.err"),
                     1);
    assert_int_equal(run("foldmill predict bad/two.fasta --weights cache/CURRENT --out new "
                         "2>>new.err"),
                     1);
    assert_int_equal(run("foldmill predict bad/two.fasta --weights cache --out new 2>>new.err"), 2);
    assert_int_equal(run("foldmill predict bad/two.fasta --weights run --out new 2>>new.err"), 2);
    assert_int_equal(
        run("grep -q 'its newest checkpoint is run/checkpoint-000000000002' new.err && "
            "grep -q 'cache: found a folder, expected a file of weights' new.err && ! "
            "grep -q 'two.fasta' new.err && test ! -e new"),
        0);
    assert_int_equal(
        run("for o in cache run data tiny.safetensors; do . ./lib; p two/*.fasta --out "
            "$o 2>$o.err; test $? = 2 && grep -q 'expected a new folder' $o.err || "
            "exit 1; done; test ! -e cache/lock && test ! -e data/lock"),
        0);
    assert_int_equal(run("foldmill predict two/*.fasta --out none 2>none.err"), 2);
    assert_int_equal(run("grep -q -- '--weights FILE is required' none.err"), 0);
    assert_int_equal(run(". ./lib; p --cache cache --chain 1xxx_Z --out none 2>none.err"), 1);
    assert_int_equal(run("grep -q '1xxx_Z' none.err"), 0);
    assert_int_equal(run(". ./lib; p --seeds 0,1,0 two/*.fasta --out none 2>none.err"), 2);
    assert_int_equal(run(". ./lib; p --seeds 9223372036854775808 two/*.fasta --out none "
                         "2>>none.err"),
                     2);
    assert_int_equal(run("foldmill predict --help | sed -n 1,12p | grep -q 'Alignments must exist "
                         "already'"),
                     0);
}

/* A process that prepares inputs and ignores SIGTERM does not delay the end of the command. */
static void a_program_that_hangs_is_killed(void **state) {
    (void)state;
    assert_int_equal(
        run("mkdir hang && cp $(command -v foldmill-train) hang/ && printf '#!/bin/sh\\n"
            "trap \"\" TERM\\n: >begun\\nwhile :; do sleep 0.1; done\\n' >hang/foldmill && "
            "chmod +x hang/foldmill"),
        0);
    assert_int_equal(
        run("hang/foldmill-train predict seqs/*.fasta --weights tiny.safetensors --out "
            "hung 2>hang.err & pid=$!; until test -e begun; do kill -0 $pid || exit 1; "
            "sleep 0.02; done; kill -INT $pid; wait $pid"),
        130);
    assert_int_equal(run("! ls hung/*/ 2>ls.err"), 0);
}

/* A command that is killed in the middle and resumed writes the same files, and keeps what was
 * finished. The command cannot end before it is killed, because its error output goes to a pipe
 * that is full after a few lines. */
static void a_killed_command_is_resumed(void **state) {
    (void)state;
    static const char kill_it[] =
        "import fcntl, glob, os, subprocess, time\n"
        "end, full = os.pipe()\n"
        "fcntl.fcntl(full, 1031, 4096)\n" /* F_SETPIPE_SZ */
        "os.write(full, b'x' * 3800)\n"
        "with open('killed.log', 'w') as log:\n"
        "    p = subprocess.Popen(['foldmill', 'predict', '--weights', 'tiny.safetensors', "
        "'--cache', 'cache', '--seeds', '0,1', '--out', 'killed'], stdout=log, stderr=full)\n"
        "while not glob.glob('killed/*/*_run.json'):\n"
        "    assert p.poll() is None\n"
        "    time.sleep(0.01)\n"
        "p.kill()\n"
        "assert p.wait() == -9\n";
    assert_int_equal(fm_test_shell_format(folder, "python3 -c \"%s\"", kill_it), 0);
    assert_int_equal(
        run("n=$(ls killed/*/*_run.json | wc -l); test $n -lt 6 && . ./lib && p --cache cache "
            "--seeds 0,1 --resume --out killed >resumed.log 2>resumed.err && test $(grep -c ' done "
            "earlier, ' resumed.err) = $n"),
        0);
    assert_int_equal(
        run("for f in $(cd whole && ls */*.cif */*_scores.json */ranking.json); do cmp whole/$f "
            "killed/$f || exit 1; done"),
        0);
    assert_int_equal(run("! find killed -name '*.tmp*' -o -name '.*' -type f | grep ."), 0);
    /* A prediction without one of its files, or with an empty one, is made again. */
    assert_int_equal(run("lost=$(ls killed/*/*_scores.json | head -1); rm $lost && "
                         "empty=$(ls killed/*/*.cif | tail -1); : >$empty && . ./lib && p "
                         "--cache cache --seeds 0,1 --resume --out killed >resumed.log "
                         "2>resumed.err && test $(grep -c ' done earlier, ' resumed.err) = 4 && "
                         "cmp $lost whole/${lost#killed/} && cmp $empty whole/${empty#killed/}"),
                     0);
    /* A file that the later command does not write would show the structure of the earlier one. */
    assert_int_equal(run("n=$(cat name); . ./lib; p --cache cache --chain $n --pdb --out pdbs -q "
                         ">pdbs.log && ls pdbs/$n/*.pdb >ls.log && p --cache cache --chain $n "
                         "--out pdbs -q >pdbs.log && ! ls pdbs/$n/*.pdb 2>ls.err && ls "
                         "pdbs/$n/*.cif pdbs/$n/*_run.json >ls.log"),
                     0);
    /* A limit on the size of files fails like a full disk: with the file's name, and no signal. */
    assert_int_equal(run("(ulimit -f 8; n=$(cat name); . ./lib; p --cache cache --chain $n --out "
                         "limited -q) 2>limited.err"),
                     1);
    assert_int_equal(run("grep -q 'limited/.*: cannot write: File too large' limited.err"), 0);
    /* Other settings give other predictions, so nothing is kept. */
    assert_int_equal(run("n=$(cat name); . ./lib; p --cache cache --chain $n --seeds 0 --recycles "
                         "0 --resume --out "
                         "killed >other.log 2>&1 && ! grep -q 'done earlier' other.log"),
                     0);
}

/* Recycling ends early where the structure has settled; dropout gives each seed a structure of its
 * own, and the same seed the same one. */
static void cycles_and_dropout(void **state) {
    (void)state;
    assert_int_equal(run("n=$(cat name); . ./lib; p --cache cache --chain $n --recycles 9 "
                         "--recycle-tol 1000 --out tol -q >tol.log && python3 -c 'import csv; r = "
                         "list(csv.DictReader(open(\"tol/summary.csv\"))); exit(r[0][\"cycles\"] "
                         "!= \"2\" or not 0 <= float(r[0][\"ca_change\"]) < 1000)'"),
                     0);
    assert_int_equal(run("n=$(cat name); . ./lib; p --cache cache --chain $n --dropout --seeds "
                         "0,1 --out d1 -q >d1.log && ! grep -q '^noted' d1.log && p --cache cache "
                         "--chain $n --dropout --seeds 1 "
                         "--out d2 -q >d2.log && cmp d1/$n/${n}_tiny_seed-1.cif "
                         "d2/$n/${n}_tiny_seed-1.cif && ! cmp -s d1/$n/${n}_tiny_seed-0.cif "
                         "d1/$n/${n}_tiny_seed-1.cif && ! cmp -s whole/$n/${n}_tiny_seed-1.cif "
                         "d1/$n/${n}_tiny_seed-1.cif"),
                     0);
}

/* The page needs no other file, and a browser shows what it has. */
static void a_browser_shows_the_page(void **state) {
    (void)state;
    assert_int_equal(run("n=$(cat name); python3 -c 'import re, sys; t = open(sys.argv[1]).read(); "
                         "r = re.findall(r\"(?:href|src)=.([^\\x22]*)\", t); exit(not r or any(not "
                         "x.startswith(\"./\") for x in r) or \"<script\" in t or \"@import\" in t "
                         "or \"url(\" in t)' out/$n/$n.html && python3 -c 'import glob, "
                         "xml.etree.ElementTree as e; [e.parse(f) for f in "
                         "glob.glob(\"out/*/*.svg\")]'"),
                     0);
    /* Two hits of one chain are one name of a template. */
    assert_int_equal(run("python3 -c 'import glob, re\n"
                         "lists = [re.search(r\"; templates ([^<]*)<\", open(f).read()) for f in "
                         "glob.glob(\"out/*/*.html\")]\n"
                         "names = [l.group(1).split(\", \") for l in lists if l]\n"
                         "assert names and all(len(set(n)) == len(n) for n in names), names\n' "
                         "2>names.err"),
                     0);
    if (run("command -v chromium >/dev/null") != 0) {
        print_message("skipped: there is no chromium\n");
        skip();
    }
    assert_int_equal(run("n=$(cat name); timeout 120 chromium --headless --no-sandbox "
                         "--disable-gpu --user-data-dir=profile --enable-logging=stderr "
                         "--dump-dom file://$PWD/out/$n/$n.html >page.html 2>page.log"),
                     0);
    static const char *const parts[] = {
        "<th class=\"t\">structure</th>",
        "Path of the chain: tiny",
        "rows by identity",
        "Predicted aligned error: tiny",
        "mean pLDDT",
        "very high (≥ 90)",
        "Sequence by pLDDT of the best prediction",
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (fm_test_shell_format(folder, "grep -qF -e '%s' page.html", parts[i]) != 0) {
            fail_msg("the page lacks '%s'", parts[i]);
        }
    }
    assert_int_equal(run("! grep -E 'CONSOLE|Refused|ERR_' page.log"), 0);
    /* On paper two pictures are side by side, and nothing that scrolls is cut off. */
    assert_int_equal(run("n=$(cat name); timeout 120 chromium --headless --no-sandbox "
                         "--disable-gpu --user-data-dir=profile --print-to-pdf=page.pdf "
                         "file://$PWD/out/$n/$n.html >print.log 2>&1 && python3 -c 'import re; n = "
                         "len(re.findall(rb\"/Type */Page[^s]\", open(\"page.pdf\", "
                         "\"rb\").read())); assert 1 <= n <= 2, n'"),
                     0);
}

/* Train, distil, build, train: self-distillation, each step one command. */
static void a_model_teaches_the_next(void **state) {
    (void)state;
    assert_int_equal(run("foldmill distill --cache cache --weights tiny.safetensors --min-plddt 0 "
                         "--out distilled >distill.log 2>&1 && foldmill build distilled "
                         "--predicted --alignments data/alignments --cache taught --quiet "
                         ">taught.log && foldmill train --cache taught --config small.ini --steps "
                         "3 --quiet --out student >student.log 2>&1 && test -e "
                         "student/checkpoint-000000000003.safetensors"),
                     0);
    assert_int_equal(
        run("test $(ls distilled/data/*.cif | wc -l) = 3 && test $(wc -l "
            "<distilled/chains.txt) = 3 && grep -q '^kept *3 of 3' distill.log && grep "
            "-q '^outputs .* 3 predictions, .* an hour$' distill.log && grep -q ' an "
            "hour, [0-9]* s left$' distill.log && foldmill stats --cache taught --json "
            ">taught.json"),
        0);
    /* A missing structure is predicted again, and everything else is kept. */
    assert_int_equal(
        run("rm $(ls distilled/data/*.cif | head -1); foldmill distill --cache cache "
            "--weights tiny.safetensors --min-plddt 0 --resume --out distilled 2>&1 | "
            "grep -q '3 predictions (2 done earlier)' && test $(ls distilled/data/*.cif "
            "| wc -l) = 3"),
        0);
    /* A higher limit takes back what a lower one kept, since the build reads the whole folder. No
     * chain is predicted again for another limit, also where an empty folder is gone. */
    assert_int_equal(
        run("cp -r distilled/data lower && rmdir distilled/rejected && foldmill distill --cache "
            "cache --weights tiny.safetensors --min-plddt 100 --resume --out distilled 2>&1 | grep "
            "-q '3 "
            "predictions (3 done earlier)' && ! ls distilled/data/*.cif 2>ls.err && test ! -s "
            "distilled/chains.txt && test $(ls distilled/confidences/*_scores.json | wc -l) = 3 && "
            "diff -r lower distilled/rejected"),
        0);
    assert_int_equal(
        run("foldmill distill --cache cache --weights tiny.safetensors --min-plddt 0 --resume "
            "--out distilled 2>&1 | grep -q '3 predictions (3 done earlier)' && diff -r lower "
            "distilled/data && test -z \"$(ls distilled/rejected)\" && test $(wc -l "
            "<distilled/chains.txt) = 3"),
        0);
    /* A structure that cannot be moved ends the command; it does not count as missing. */
    assert_int_equal(
        run("rmdir distilled/rejected && touch distilled/rejected && { foldmill distill --cache "
            "cache --weights tiny.safetensors --min-plddt 100 --resume --out distilled "
            "2>moved.err; "
            "test $? = 1; } && grep -q 'distilled/rejected: ' moved.err && diff -r lower "
            "distilled/data && rm distilled/rejected"),
        0);
    /* Without --resume, a prediction below the limit replaces the one that was kept. */
    assert_int_equal(
        run("foldmill distill --cache cache --weights tiny.safetensors --min-plddt 100 --out "
            "distilled >higher.log 2>&1 && grep -q '^kept *0 of 3' higher.log && diff -r lower "
            "distilled/rejected && test -z \"$(ls distilled/data)\""),
        0);
    assert_int_equal(run("for c in distill predict; do foldmill $c --cache cache --snapshot none "
                         "--weights tiny.safetensors --out refused 2>err; test $? = 1 && "
                         "grep -q 'no snapshot .none.' err && test ! -e refused || exit 1; done"),
                     0);
    assert_int_equal(run("foldmill distill --help >help && ! grep -q ensemble help && grep -q -- "
                         "'--seeds S  *the seed of' help"),
                     0);
    assert_int_equal(run("foldmill distill seqs/*.fasta --weights tiny.safetensors --out none "
                         "2>none.err"),
                     2);
}

/* Chains of two datasets with the same names have different files, which are two datasets. Chains
 * that fail leave no structure of an earlier command. */
static void datasets_are_distilled_apart(void **state) {
    (void)state;
    assert_int_equal(
        run("foldmill build --dataset a=data --dataset b=data --cache pair --quiet "
            ">pair.log && foldmill distill --cache pair --weights tiny.safetensors "
            "--min-plddt 0 --recycles 0 --out apart -q >apart.log && test $(ls "
            "apart/a/data/*.cif | wc -l) = 3 && test $(ls apart/b/data/*.cif | wc -l) = "
            "3 && test ! -e apart/data && test $(grep -c '^[ab]:' apart/chains.txt) = "
            "6 && ! cmp -s apart/a/data/$(cat name).cif apart/b/data/$(cat name).cif"),
        0);
    assert_int_equal(
        run("for d in a b; do ln -s ../../data/alignments apart/$d/alignments; done; "
            "foldmill build --dataset a:predicted=apart/a --dataset b:predicted=apart/b "
            "--cache pair.taught --json >pair.json 2>pair.err && python3 -c 'import "
            "json; exit(json.load(open(\"pair.json\"))[\"chains\"] != 6)'"),
        0);
    assert_int_equal(
        run("least=$(grep -v chain apart/summary.csv | cut -d , -f 2 | sort -n | head "
            "-1); foldmill distill --cache pair --weights tiny.safetensors --min-plddt "
            "0 --recycles 0 --max-length $least --out apart 2>apart.err >apart.log"),
        3);
    assert_int_equal(
        run("n=$(wc -l <apart/chains.txt); test $n -ge 2 && test $n -lt 6 && test $(ls "
            "apart/?/data/*.cif | wc -l) = $n && test $(ls apart/?/confidences/*.json | "
            "wc -l) = $((2 * n)) && grep -q '^foldmill distill: [ab]:.*residues, and at "
            "most' apart.err"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_is_written_and_read_back),
        cmocka_unit_test(gemmi_reads_the_same_atoms),
        cmocka_unit_test(files_follow_their_formats),
        cmocka_unit_test(foldmill_reads_its_predictions),
        cmocka_unit_test(results_depend_on_the_chain_alone),
        cmocka_unit_test(weights_of_other_programs_are_taken),
        cmocka_unit_test(sources_agree),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(mistakes_of_commands_are_named),
        cmocka_unit_test(a_program_that_hangs_is_killed),
        cmocka_unit_test(a_killed_command_is_resumed),
        cmocka_unit_test(cycles_and_dropout),
        cmocka_unit_test(a_browser_shows_the_page),
        cmocka_unit_test(a_model_teaches_the_next),
        cmocka_unit_test(datasets_are_distilled_apart),
        cmocka_unit_test(long_chains_open_larger_streams),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
