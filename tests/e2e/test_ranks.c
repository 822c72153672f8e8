/* test_ranks.c: `foldmill train` on several ranks that are processes, as a user meets it: the
 * losses of one rank, signals, other numbers of ranks, ranks that do not belong together, several
 * hosts, and the environments of other launchers. */
#include "tests/e2e/rank_runs.h"

/* -- the same losses */

/* Data parallelism (with a batch that 3 does not divide, too), parts, both, and branches. */
static void several_ranks_have_the_losses_of_one(void **state) {
    (void)state;
    static const char *const layouts[] = {"--ranks 2", "--ranks 3", "--dap 2", "--ranks 4 --dap 2"};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        assert_int_equal(fm_test_shell_format(folder,
                                              ". ./lib; $train --steps 5 %s --out many.%zu "
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
                         "$train --config parts.ini --steps 5 --out parts >log 2>&1 && "
                         "same parts many.2 000000000005"),
                     0);
}

/* Four steps of eight samples on eight ranks with a group each, and fewer with groups of parts and
 * of branches. Data parallelism alone keeps the order of sums, so it has exactly the losses of one
 * rank. */
static void eight_ranks_have_the_losses_of_one(void **state) {
    (void)state;
    assert_int_equal(run("for c in batch branches; do sed 's/^global_batch.*/global_batch = 8/' "
                         "$c.ini >$c.8.ini; done; train=\"$train --config batch.8.ini\"; "
                         "$train --steps 4 --out eight >log 2>&1 && "
                         "$train --steps 4 --ranks 8 --out eight.dp >log 2>&1 && "
                         "losses eight >a && losses eight.dp >b && cmp a b && "
                         "$train --steps 4 --ranks 8 --dap 4 --out eight.parts >log 2>&1 && "
                         "grep -q '^ranks     8: dap 4, bp 1, dp 2$' log && "
                         "$train --steps 4 --ranks 8 --dap 8 --out eight.all >log 2>&1 && "
                         "close_losses eight eight.parts && close_losses eight eight.all"),
                     0);
    assert_int_equal(run("train=\"$train --config branches.8.ini --steps 2\"; "
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
    assert_int_equal(run("$train --ranks 4 --dap 2 --steps 2 --out moved >moved.log 2>&1 && "
                         "$train --steps 3 --resume --out moved 2>err"),
                     2);
    assert_int_equal(run("grep -q -- '--change parallel.dap=1 --change dp=none' err"), 0);
    assert_int_equal(run("$train --steps 3 --resume --change parallel.dap=1 --change dp=none "
                         "--out moved >moved.log 2>&1 && "
                         "$train --ranks 3 --steps 5 --resume --change dp=3 --out moved "
                         ">moved.log 2>&1 && grep -q 'resumed at step 3' moved.log && "
                         "close_losses one moved"),
                     0);
    /* One rank stops inside a batch; three go on there. */
    assert_int_equal(run("begin --steps 5 --out inside >inside.log 2>&1; until_step inside 2; "
                         "kill -TERM $run; wait $run; "
                         "$train --ranks 3 --steps 5 --resume --change dp=3 --out inside "
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
        {"--from one/checkpoint-000000000005.safetensors --out pair", "checkpoint"},
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

/* Runs that the tests compare others with. */
static int make_runs(void **state) {
    int failed = set_up(state);
    return failed ? failed : run("$train --steps 5 --out one >one.log 2>&1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_ranks_have_the_losses_of_one),
        cmocka_unit_test(eight_ranks_have_the_losses_of_one),
        cmocka_unit_test(bad_samples_are_skipped_by_all),
        cmocka_unit_test(signals_reach_all_ranks),
        cmocka_unit_test(a_signal_ends_the_wait_for_ranks),
        cmocka_unit_test(another_number_of_ranks_continues),
        cmocka_unit_test(ranks_are_found_in_the_environment),
        cmocka_unit_test(ranks_that_differ_are_refused),
        cmocka_unit_test(samples_across_hosts_are_refused),
        cmocka_unit_test(several_hosts_have_the_bytes_of_one),
        cmocka_unit_test(many_ranks_train),
        cmocka_unit_test(impossible_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, make_runs, tear_down);
}
