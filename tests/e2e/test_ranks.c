/* test_ranks.c: `foldmill train` on several ranks that are processes, as a user meets it: the
 * losses of one rank, ranks that are killed or stopped, signals, other numbers of ranks, ranks that
 * do not belong together, and the environments of other launchers.
 *
 * FM_TEST_KILLS sets the number of random instants at which a rank is killed (3). */
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static char folder[512];
static pid_t server;

/* Runs a shell command in the test's folder with the programs on PATH. */
static int run(const char *command) {
    return fm_test_shell_format(folder, ". ./lib; %s", command);
}

/* Shell functions of all tests, beside those of library.sh.
 *
 *     begin ARGS        starts a run beside the shell, which ends with it; $run is its process
 *     free_port         prints a TCP port that nobody uses
 *     start_on NAMES ARGS  starts a rank on each of the hosts that are named so, beside the shell;
 *                       $rank0, $rank1, ... are their processes
 *     end_on            waits for them
 *     same A B N        two runs have the same bytes after N steps, and the same losses */
static const char library[] =
    "train='foldmill train --data unix:socket --seed 3 --config batch.ini -q'\n"
    "begin() { beside $train \"$@\"; }\n"
    "free_port() { python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); "
    "print(s.getsockname()[1])'; }\n"
    "start_on() { names=$1; shift; rank=0; all=; for name in $names; do "
    "FOLDMILL_RANK=$rank FOLDMILL_RANKS=$(echo $names | wc -w) FOLDMILL_HOST=$name "
    "FOLDMILL_MEETING=file:$PWD/meeting $train \"$@\" >on.$rank.log 2>&1 & "
    "all=\"$all $!\"; eval rank$rank=$!; rank=$((rank + 1)); done; "
    "trap 'kill -9 $all 2>/dev/null' EXIT; }\n"
    "end_on() { code=0; for process in $all; do wait $process || code=$?; done; return $code; }\n"
    "same() { cmp $1/checkpoint-$3.safetensors $2/checkpoint-$3.safetensors && losses $1 >$1.l && "
    "losses $2 >$2.l && cmp $1.l $2.l; }\n";

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    if (fm_test_write_library(folder, library)) return 1;
    int failed =
        run("foldmill synth --chains 6 --seed 5 --max-length 60 --depth 100 -o data --quiet && "
            "foldmill build data --cache cache --quiet >build.log && "
            "ls data/alignments | sed 1d | foldmill snapshot create few --cache cache --chains - "
            ">few.log && "
            "printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\n[data]\\ncrop_size = 24\\n"
            "max_msa_clusters = 8\\nglobal_batch = 4\\n[metrics]\\nstructure_every = 4\\n' "
            ">batch.ini && sed 's/^n_block.*/&\\norder = opm_first/' batch.ini >branches.ini");
    if (failed) return failed;
    server = fm_test_serve(folder, "socket", "--cache cache --snapshot all --snapshot few");
    return run("$train --steps 8 --out one >one.log 2>&1");
}

static int tear_down(void **state) {
    (void)state;
    int code = server ? fm_test_stop(server, SIGTERM) : 0;
    fm_test_remove_tree(folder);
    return code;
}

/* -- the same losses */

/* Data parallelism (with a batch that 3 does not divide, too), parts, both, and branches. */
static void several_ranks_have_the_losses_of_one(void **state) {
    (void)state;
    static const char *const layouts[] = {"--ranks 2", "--ranks 3", "--dap 2", "--ranks 4 --dap 2"};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        assert_int_equal(fm_test_shell_format(folder,
                                              ". ./lib; $train --steps 8 %s --out many.%zu "
                                              ">many.log 2>&1 && close_losses one many.%zu",
                                              layouts[i], i, i),
                         0);
    }
    assert_int_equal(run("grep -q '^ranks     4: dap 2, bp 1, dp 2$' many.log && "
                         "grep -q lddt_ca many.3/metrics.jsonl"),
                     0);
    /* The first rank says once how long the start took; its phases are rounded to 0.01 s. */
    assert_int_equal(
        run("grep ' info first_step ' many.log >first && test $(wc -l <first) = 1 && "
            "awk '{ split($4, all, \"=\"); for (i = 5; i < 13; i++) "
            "{ split($i, part, \"=\"); sum += part[2] } "
            "exit all[2] < 0.01 || sum - all[2] > 0.05 || all[2] - sum > 0.05 }' first "
            "&& grep -q 'meeting_s=.* step_s=.* sample_wait_s=' first"),
        0);
    assert_int_equal(run("train=\"$train --config branches.ini --steps 4\"; "
                         "$train --out trunk >log 2>&1 && $train --bp 2 --out branches >log 2>&1 "
                         "&& close_losses trunk branches"),
                     0);
    assert_int_equal(run("printf '[parallel]\\ndap = 2\\n' | cat batch.ini - >parts.ini && "
                         "$train --config parts.ini --steps 8 --out parts >log 2>&1 && "
                         "same parts many.2 000000000008"),
                     0);
}

/* Fifty steps of eight samples on eight ranks with a group each, and fewer with groups of parts and
 * of branches. Data parallelism alone keeps the order of sums, so it has exactly the losses of one
 * rank. */
static void eight_ranks_have_the_losses_of_one(void **state) {
    (void)state;
    assert_int_equal(
        run("for c in batch branches; do sed 's/^global_batch.*/global_batch = 8/' "
            "$c.ini >$c.8.ini; done; train=\"$train --config batch.8.ini\"; "
            "$train --steps 50 --out eight >log 2>&1 && "
            "$train --steps 50 --ranks 8 --out eight.dp >log 2>&1 && "
            "losses eight >a && losses eight.dp >b && cmp a b && "
            "$train --steps 4 --ranks 8 --dap 4 --out eight.parts >log 2>&1 && "
            "grep -q '^ranks     8: dap 4, bp 1, dp 2$' log && "
            "$train --steps 4 --ranks 8 --dap 8 --out eight.all >log 2>&1 && "
            "head -4 eight/metrics.jsonl >eight.l && mv eight.l eight/metrics.jsonl && "
            "close_losses eight eight.parts && close_losses eight eight.all"),
        0);
    assert_int_equal(run("train=\"$train --config branches.8.ini --steps 4\"; "
                         "$train --out pairs >log 2>&1 && "
                         "$train --ranks 8 --bp 2 --out pairs.8 >log 2>&1 && "
                         "grep -q '^ranks     8: dap 1, bp 2, dp 4$' log && "
                         "close_losses pairs pairs.8"),
                     0);
}

/* Samples that the command line names, and samples that are not finite, are skipped by all groups
 * together. */
static void bad_samples_are_skipped_by_all(void **state) {
    (void)state;
    assert_int_equal(run("skip='--steps 4 --skip-sample 2 --skip-sample 5 --skip-sample 12 "
                         "--skip-sample 13 --skip-sample 14 --skip-sample 15'; "
                         "$train $skip --out few >few.log 2>&1 && "
                         "for n in 2 3; do $train $skip --ranks $n --out few.$n >few.$n.log 2>&1 "
                         "&& grep -v ':nan\\|:null' few/metrics.jsonl >/dev/null && "
                         "grep -q '^skipped   6 samples, 0 of them bad' few.$n.log && "
                         "test $(grep -c sample_skipped few.$n.log) = 6 || exit 1; done"),
                     0);
    assert_int_equal(run("python3 -c 'import json; a, b = ([json.loads(l)[\"loss\"] for l in "
                         "open(r + \"/metrics.jsonl\")][:3] for r in (\"few\", \"few.3\")); "
                         "exit(max(abs(x / y - 1) for x, y in zip(a, b)) > 1e-3)'"),
                     0);
    assert_int_equal(run("(cat batch.ini; printf '[optimizer]\\nlearning_rate = 10\\nbeta2 = 0\\n"
                         "eps = 1e-30\\nwarmup_samples = 0\\n') >wild.ini"),
                     0);
    for (int parts = 1; parts <= 2; parts++) {
        assert_int_equal(fm_test_shell_format(folder,
                                              ". ./lib; rm -rf wild; $train --config wild.ini "
                                              "--steps 30 --ranks 2 --dap %d --out wild >wild.log "
                                              "2>&1",
                                              parts),
                         1);
        assert_int_equal(run("test $(grep -c '^foldmill train: sample [0-9]* (.*): step .* is not "
                             "finite' wild.log) = 1 && grep -q -- '--resume --skip-sample' "
                             "wild.log && ls wild | grep -q checkpoint"),
                         0);
        assert_int_equal(fm_test_shell_format(folder,
                                              ". ./lib; $train --config wild.ini --steps 30 "
                                              "--ranks 2 --dap %d --out wild --resume "
                                              "--bad-samples skip --bad-sample-budget 4 >wild.log "
                                              "2>&1",
                                              parts),
                         1);
        assert_int_equal(run("test $(grep -c 'warn sample_skipped' wild.log) = 4 && "
                             "grep -q '4 bad samples were skipped already' wild.log"),
                         0);
    }
}

/* -- lost ranks */

/* A random rank is killed at random instants; the resumed runs end with the bytes of a run that was
 * left alone. Neither a killed rank nor a killed command leaves a process behind. */
static void killed_ranks_cost_no_bit(void **state) {
    (void)state;
    const char *set = getenv("FM_TEST_KILLS");
    int n_kill = set ? (int)strtol(set, NULL, 10) : 3;
    unsigned seed = (unsigned)time(NULL) % 100000;
    fprintf(stderr, "instants from seed %u\n", seed);
    assert_int_equal(run("$train --ranks 4 --dap 2 --steps 30 --checkpoint-every 3 --out whole "
                         ">whole.log 2>&1"),
                     0);
    for (int i = 0; i < n_kill; i++) {
        seed = seed * 1103515245u + 12345u;
        unsigned rank = seed >> 16 & 3, wait_ms = seed >> 20 & 255;
        assert_int_equal(
            fm_test_shell_format(folder,
                                 ". ./lib; begin --ranks 4 --dap 2 --steps 30 --checkpoint-every 3 "
                                 "--resume --out killed >killed.log 2>&1; until_step killed %d; "
                                 "sleep 0.%03u; all=$(ranks_of $run); kill -9 $(rank_of $run %u); "
                                 "wait $run; test $? = 1 && all_gone $all && "
                                 "grep -q 'rank %u .*process' killed.log",
                                 6 * i + 4, wait_ms, rank, rank),
            0);
    }
    assert_int_equal(run("begin --ranks 4 --dap 2 --steps 30 --checkpoint-every 3 --resume "
                         "--out killed >killed.log 2>&1; until_step killed 22; "
                         "all=$(ranks_of $run); kill -9 $run; wait $run; all_gone $all"),
                     0);
    assert_int_equal(run("$train --ranks 4 --dap 2 --steps 30 --checkpoint-every 3 --resume "
                         "--out killed >killed.log 2>&1 && grep -q 'resumed at step' killed.log && "
                         "same whole killed 000000000030"),
                     0);
}

/* The first rank writes the checkpoints, and belongs to a group of its own here. */
static void the_first_rank_may_stop(void **state) {
    (void)state;
    assert_int_equal(run("begin --ranks 2 --steps 1000000 --checkpoint-every 2 --out writer "
                         ">writer.log 2>&1; until_step writer 3; all=$(ranks_of $run); "
                         "kill -STOP $(rank_of $run 0); wait $run; "
                         "test $? = 1 && all_gone $all"),
                     0);
    assert_int_equal(run("grep -qE '^foldmill train: rank 0 .process [0-9]+ on .*: it has not "
                         "moved for 20 s; the other ranks stop' writer.log && "
                         "n=$(ls writer | sed -n 's/checkpoint-0*\\([0-9]*\\)[.].*/\\1/p' | "
                         "tail -1) && $train --ranks 2 --steps $((n + 1)) --resume --out writer "
                         ">writer.log 2>&1 && ! grep -q damaged writer.log"),
                     0);
}

/* A rank that is stopped is named with what it did last, and the run ends within a minute; its last
 * checkpoint is whole. */
static void a_stopped_rank_is_named(void **state) {
    (void)state;
    assert_int_equal(run("begin --ranks 2 --dap 2 --steps 1000000 --checkpoint-every 2 "
                         "--out stopped >stopped.log 2>&1; until_step stopped 3; "
                         "all=$(ranks_of $run); kill -STOP $(rank_of $run 1); wait $run; "
                         "test $? = 1 && all_gone $all"),
                     0);
    assert_int_equal(run("grep -qE '^foldmill train: rank 1 .process [0-9]+ on .*: step [0-9]+, "
                         "cycle [0-9], (in|after) exchange [0-9]+ of the (dap|sample) group: it "
                         "has not moved for 20 s; the other ranks stop' stopped.log && "
                         "n=$(ls stopped | sed -n 's/checkpoint-0*\\([0-9]*\\)[.].*/\\1/p' | "
                         "tail -1) && $train --dap 2 --steps $((n + 1)) --resume --out stopped "
                         ">stopped.log 2>&1 && ! grep -q damaged stopped.log"),
                     0);
}

/* -- stopping and resuming */

/* A signal to any rank stops all of them, with one checkpoint. */
static void signals_reach_all_ranks(void **state) {
    (void)state;
    assert_int_equal(run("begin --ranks 4 --dap 2 --steps 1000000 --out term >term.log 2>&1; "
                         "until_step term 2; kill -USR1 $run; "
                         "until_true grep -q 'info checkpoint asked_by=SIGUSR1' term.log; "
                         "kill -TERM $(rank_of $run 3); wait $run; test $? = 143 && "
                         "test $(grep -c 'stopped by SIGTERM after step .*; --resume continues' "
                         "term.log) = 1"),
                     0);
    assert_int_equal(run("begin --ranks 2 --steps 1000000 --out int >int.log 2>&1; "
                         "until_step int 2; kill -INT $run; wait $run; test $? = 130"),
                     0);
}

/* Ranks that wait for others end at once, and leave nothing. The first of them says whom it has
 * waited for. */
static void a_signal_ends_the_wait_for_ranks(void **state) {
    (void)state;
    assert_int_equal(
        run("train=\"$train --meet file:$PWD/meeting --out alone\"; for rank in 0 1; do "
            "RANK=$rank WORLD_SIZE=3 begin --steps 2 >alone.log 2>&1; "
            "if [ $rank = 0 ]; then until_true test -s meeting; else sleep 0.5; fi; "
            "began=$(date +%s); kill -TERM $run; wait $run; "
            "test $? = 143 && test $(($(date +%s) - began)) -le 10 && test ! -e alone && "
            "test ! -e meeting || exit 1; test $rank = 1 || grep -q '^foldmill train: 2 of 3 ranks "
            "had not come when the wait was stopped: rank 1, 2$' alone.log || exit 1; done"),
        0);
    /* A mistyped file is not that of a meeting. */
    assert_int_equal(run("cp batch.ini mine.ini; RANK=0 WORLD_SIZE=2 $train --steps 1 --out alone "
                         "--meet file:mine.ini 2>err"),
                     1);
    assert_int_equal(run("grep -q 'mine.ini: found a file that is not of a meeting of ranks' err "
                         "&& cmp batch.ini mine.ini"),
                     0);
}

static void another_number_of_ranks_continues(void **state) {
    (void)state;
    assert_int_equal(run("$train --ranks 4 --dap 2 --steps 3 --out moved >moved.log 2>&1 && "
                         "$train --steps 5 --resume --out moved 2>err"),
                     2);
    assert_int_equal(run("grep -q -- '--change parallel.dap=1 --change dp=none' err"), 0);
    assert_int_equal(run("$train --steps 5 --resume --change parallel.dap=1 --change dp=none "
                         "--out moved >moved.log 2>&1 && "
                         "$train --ranks 3 --steps 8 --resume --change dp=3 --out moved "
                         ">moved.log 2>&1 && grep -q 'resumed at step 5' moved.log && "
                         "close_losses one moved"),
                     0);
    /* One rank stops inside a batch; three go on there. */
    assert_int_equal(run("begin --steps 8 --out inside >inside.log 2>&1; until_step inside 2; "
                         "kill -TERM $run; wait $run; "
                         "$train --ranks 3 --steps 8 --resume --change dp=3 --out inside "
                         ">inside.log 2>&1 && close_losses one inside"),
                     0);
}

/* -- ranks of other launchers */

/* Starts ranks 0 and 1 by their variables and expects both to end with `code`. */
static int run_two(const char *variables, const char *zero, const char *one, int code) {
    return fm_test_shell_format(
        folder,
        ". ./lib; rm -rf pair; %s; eval \"$(set_rank 0)\"; begin --steps 2 %s 2>zero.err "
        ">zero.log; zero=$run; eval \"$(set_rank 1)\"; begin --steps 2 %s 2>one.err >one.log; "
        "wait $run; a=$?; wait $zero; b=$?; test $a = %d && test $b = %d",
        variables, zero, one, code, code);
}

static void ranks_are_found_in_the_environment(void **state) {
    (void)state;
    static const char *const environments[] = {
        "export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port); "
        "set_rank() { echo export RANK=$1 LOCAL_RANK=$1; }",
        "export OMPI_COMM_WORLD_SIZE=2 FOLDMILL_MEETING=file:$PWD/meeting#a; "
        "set_rank() { echo export OMPI_COMM_WORLD_RANK=$1; }",
        "export PMI_SIZE=2; train=\"$train --meet file:$PWD/meeting\"; "
        "set_rank() { echo export PMI_RANK=$1; }",
        "export SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=localhost SLURM_STEP_ID=0 "
        "SLURM_JOB_ID=$$; set_rank() { echo export SLURM_PROCID=$1; }",
    };
    for (size_t i = 0; i < sizeof environments / sizeof environments[0]; i++) {
        assert_int_equal(
            run_two(environments[i], "--ranks 2 --out pair", "--ranks 2 --out pair", 0), 0);
        assert_int_equal(
            run("grep -q '^ranks     2: dap 1, bp 1, dp 2$' zero.err && "
                "grep -q 'make this process rank 1 of 2, so --ranks 2 starts no "
                "others$' one.err && test ! -s one.log && test $(wc -l <pair/metrics.jsonl) = 2"),
            0);
    }
    assert_int_equal(run("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 $train --steps 1 2>err"),
                     2);
    assert_int_equal(run("grep -q 'Open MPI has started rank 0 of 2, but not said' err"), 0);
    assert_int_equal(run("RANK=two WORLD_SIZE=2 $train --steps 1 2>err"), 2);
    /* A batch script is no rank. */
    assert_int_equal(run("SLURM_PROCID=0 SLURM_NTASKS=2 $train --steps 1 --out script >log 2>&1"),
                     0);
}

/* The first rank has said who differs, where and in what, and nothing was written. */
static void expect_refusal(const char *paper) {
    assert_int_equal(fm_test_shell_format(
                         folder,
                         "at='(process [0-9]* on '$(uname -n)')'; "
                         "grep -q \"^foldmill train: rank 1 $at has another %s than rank 0 $at$\" "
                         "zero.err && test ! -s one.err && test ! -e pair",
                         paper),
                     0);
}

static void ranks_that_differ_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *one, *paper;
    } cases[] = {
        {"--seed 4 --out pair", "seed (--seed)"},
        {"--config branches.ini --out pair", "configuration"},
        {"--skip-sample 3 --out pair", "command line"},
        {"--resume --change dp=2 --out one", "checkpoint"},
        {"--from one/checkpoint-000000000008.safetensors --out pair", "checkpoint"},
        {"--snapshot few --out pair", "snapshot"},
    };
    static const char variables[] = "export FOLDMILL_RANKS=2 FOLDMILL_MEETING=unix:$PWD/meeting; "
                                    "set_rank() { echo export FOLDMILL_RANK=$1; }";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(run_two(variables, "--out pair", cases[i].one, 2), 0);
        expect_refusal(cases[i].paper);
    }
    /* Another program: the same with a byte behind its end. Another processor: the matrix library's
     * kernels for an old one. */
    static const struct {
        const char *change, *paper;
    } others[] = {{"PATH=$PWD/other:$PATH", "program file"},
                  {"OPENBLAS_CORETYPE=Prescott", "device or processor"}};
    assert_int_equal(run("mkdir other && cp $FM_BIN/foldmill $FM_BIN/foldmill-train other && "
                         "printf x >>other/foldmill-train"),
                     0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char of_one[300];
        snprintf(of_one, sizeof of_one,
                 "export FOLDMILL_RANKS=2 FOLDMILL_MEETING=unix:$PWD/meeting; "
                 "set_rank() { echo \"export FOLDMILL_RANK=$1; [ $1 = 0 ] || export %s\"; }",
                 others[i].change);
        assert_int_equal(run_two(of_one, "--out pair", "--out pair", 2), 0);
        expect_refusal(others[i].paper);
    }
}

/* Ranks that a launcher has dealt out to the hosts in turn work on one sample over the network. */
static void samples_across_hosts_are_refused(void **state) {
    (void)state;
    static const char variables[] =
        "export SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=localhost SLURM_STEP_ID=0 "
        "SLURM_JOB_ID=$$; "
        "set_rank() { echo export SLURM_PROCID=$1 FOLDMILL_HOST=host$1; }";
    assert_int_equal(run_two(variables, "--dap 2 --out pair", "--dap 2 --out pair", 2), 0);
    assert_int_equal(run("grep -q '^foldmill train: ranks 0 to 1 work on one sample, but rank 0 is "
                         "on host host0 and rank 1 on host host1; start them with srun "
                         "--distribution=block, or let them exchange over the network with "
                         "--across-hosts$' zero.err && test ! -s one.err && test ! -e pair"),
                     0);
}

/* Two hosts of two ranks, four of two and eight of one, whose ranks talk over TCP. */
static void several_hosts_have_the_bytes_of_one(void **state) {
    (void)state;
    assert_int_equal(run("$train --ranks 4 --dap 2 --steps 4 --out near >log 2>&1 && "
                         "start_on 'a a b b' --dap 2 --steps 4 --out far; end_on && "
                         "same near far 000000000004 && "
                         "grep -q '^ranks     4: dap 2, bp 1, dp 2$' on.0.log"),
                     0);
    assert_int_equal(run("train=\"$train --config batch.8.ini\"; "
                         "$train --ranks 8 --dap 2 --steps 2 --out near.8 >log 2>&1 && "
                         "start_on 'a a b b c c d d' --dap 2 --steps 2 --out far.8; end_on && "
                         "same near.8 far.8 000000000002 && "
                         "$train --ranks 8 --steps 2 --out near.dp >log 2>&1 && "
                         "start_on 'a b c d e f g h' --steps 2 --out far.dp; end_on && "
                         "same near.dp far.dp 000000000002"),
                     0);
    /* The parts of a sample may cross hosts where that is wanted. */
    assert_int_equal(run("$train --dap 2 --steps 2 --out near.dap >log 2>&1 && "
                         "start_on 'a b' --dap 2 --steps 2 --across-hosts --out far.dap; "
                         "end_on && same near.dap far.dap 000000000002"),
                     0);
}

/* A killed rank ends the run on all hosts; it goes on from its checkpoint to the same bytes. */
static void a_lost_host_costs_no_bit(void **state) {
    (void)state;
    assert_int_equal(run("set='--dap 2 --steps 1000000 --checkpoint-every 2 --out lost'; "
                         "start_on 'a a b b' $set; until_step lost 3; kill -9 $rank3; end_on; "
                         "all_gone $all && grep -q '^foldmill train: .*rank 3 .*on "
                         "b' on.[0-2].log"),
                     0);
    assert_int_equal(
        run("n=$(ls lost | sed -n 's/checkpoint-0*\\([0-9]*\\)[.].*/\\1/p' | tail -1); "
            "n=$((n + 2)); start_on 'a a b b' --dap 2 --steps $n --resume --out lost; "
            "end_on && grep -q 'resumed at step' on.0.log && "
            "$train --ranks 4 --dap 2 --steps $n --out kept >log 2>&1 && "
            "same kept lost $(printf %012d $n)"),
        0);
}

/* More ranks than cores and than a host has devices. */
static void many_ranks_train(void **state) {
    (void)state;
    assert_int_equal(run("sed 's/^global_batch.*/global_batch = 18/' batch.ini >wide.ini && "
                         "$train --config wide.ini --steps 1 --out wide >log 2>&1 && "
                         "$train --config wide.ini --steps 1 --ranks 18 --out wide.18 >log 2>&1 && "
                         "close_losses wide wide.18"),
                     0);
}

static void impossible_numbers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *arguments, *message;
        int code;
    } cases[] = {
        {"--ranks 3 --dap 2", "3 ranks cannot be divided into groups of dap . bp = 2 . 1", 2},
        {"--ranks 5", "5 groups of ranks cannot share a step of 4 samples; raise", 2},
        {"--gpus 2", "gpus needs --device cuda", 2},
        {"--gpus 2 --ranks 2", "give one", 2},
        {"--bp 2", "order = opm_first or parallel, not original", 2},
        {"--device cuda --gpus 5", "5 groups of ranks cannot share a step of 4 samples", 2},
        {"--ranks 2 --order bounded:0", "order .bounded:0., expected strict, bounded:W or free", 2},
        {"--dap 17", "dap", 2},
        {"--ranks 0", "ranks: found .0., expected a whole number from 1", 2},
        {"--meet foo", "found .foo. as the place where ranks meet, expected tcp:", 2},
        {"--ranks 2 --meet tcp://127.0.0.1:0", "expected a port above 0", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(
            fm_test_shell_format(folder, ". ./lib; $train %s --out none 2>err", cases[i].arguments),
            cases[i].code);
        assert_int_equal(
            fm_test_shell_format(folder, "grep -q -- '%s' err && test ! -e none", cases[i].message),
            0);
    }
}

/* -- the server */

/* All ranks connect again when the server comes back, and the run ends with the same bytes. */
static void a_lost_server_costs_no_step(void **state) {
    (void)state;
    assert_int_equal(
        run("serve() { rm -f back; foldmill serve --cache cache --listen unix:back -q & server=$!; "
            "until_true test -S back; }; serve; "
            "begin --data unix:back --wait 60000 --ahead 2 --ranks 3 --steps 12 --out back.r "
            "2>back.err >back.log; trap 'kill -9 $run $server 2>/dev/null' EXIT; "
            "until_step back.r 3; kill -9 $server; wait $server; serve; wait $run; rc=$?; "
            "kill $server; test $rc = 0"),
        0);
    assert_int_equal(run("$train --ranks 3 --steps 12 --out left.r >log 2>&1 && "
                         "grep -q 'warn reconnected' back.err && same left.r back.r 000000000012"),
                     0);
}

/* A server that stays away ends the run of all ranks with one message and a whole checkpoint, from
 * which the run goes on to the same bytes. */
static void a_server_that_leaves_is_named_once(void **state) {
    (void)state;
    assert_int_equal(
        run("serve() { rm -f gone; foldmill serve --cache cache --listen unix:gone -q & server=$!; "
            "until_true test -S gone; }; serve; "
            "begin --data unix:gone --wait 500 --ahead 2 --ranks 4 --dap 2 --steps 12 --out gone.r "
            "2>gone.err >gone.log; trap 'kill -9 $run $server 2>/dev/null' EXIT; "
            "until_step gone.r 3; all=$(ranks_of $run); kill -9 $server; wait $server; "
            "began=$(date +%s); wait $run; test $? = 1 && "
            "test $(($(date +%s) - began)) -le 40 && all_gone $all && "
            "test $(grep -c '^foldmill train: ' gone.err) = 1 && "
            "grep -q '^foldmill train: .*unix:gone' gone.err"),
        0);
    assert_int_equal(run("$train --ranks 4 --dap 2 --steps 12 --resume --out gone.r >gone.log 2>&1 "
                         "&& grep -q 'resumed at step' gone.log && "
                         "$train --ranks 4 --dap 2 --steps 12 --out here.r >log 2>&1 && "
                         "same here.r gone.r 000000000012"),
                     0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_ranks_have_the_losses_of_one),
        cmocka_unit_test(eight_ranks_have_the_losses_of_one),
        cmocka_unit_test(bad_samples_are_skipped_by_all),
        cmocka_unit_test(killed_ranks_cost_no_bit),
        cmocka_unit_test(a_stopped_rank_is_named),
        cmocka_unit_test(the_first_rank_may_stop),
        cmocka_unit_test(signals_reach_all_ranks),
        cmocka_unit_test(a_signal_ends_the_wait_for_ranks),
        cmocka_unit_test(another_number_of_ranks_continues),
        cmocka_unit_test(ranks_are_found_in_the_environment),
        cmocka_unit_test(ranks_that_differ_are_refused),
        cmocka_unit_test(samples_across_hosts_are_refused),
        cmocka_unit_test(several_hosts_have_the_bytes_of_one),
        cmocka_unit_test(a_lost_host_costs_no_bit),
        cmocka_unit_test(many_ranks_train),
        cmocka_unit_test(impossible_numbers_are_refused),
        cmocka_unit_test(a_lost_server_costs_no_step),
        cmocka_unit_test(a_server_that_leaves_is_named_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
