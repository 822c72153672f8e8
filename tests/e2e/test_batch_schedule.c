/* test_batch_schedule.c: `foldmill train --batch-schedule`: which samples steps use, the same bits
 * after a resume, on several ranks and behind a score, and what is refused. */
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[512];
static pid_t server;

/* firsts RUN: the first sample of each step; same A B N: checkpoints after N steps and losses. */
static int run(const char *command) {
    return fm_test_shell_format(
        folder,
        "firsts() { echo $(sed 's/.*\"index\":\\([0-9]*\\).*/\\1/' $1/metrics.jsonl); }; "
        "losses() { sed 's/,\"step_s\".*//' $1/metrics.jsonl >$1.l; }; "
        "same() { losses $1; losses $2; cmp $1.l $2.l && "
        "cmp $1/checkpoint-$3.safetensors $2/checkpoint-$3.safetensors; }; "
        "train='foldmill train --data unix:socket --seed 3 --config small.ini -q'; %s",
        command);
}

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    int failed =
        run("foldmill synth --chains 4 --seed 5 --max-length 60 --depth 100 -o data --quiet && "
            "foldmill build data --cache cache --quiet >build.log && "
            "printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\n[data]\\ncrop_size = 24\\n"
            "max_msa_clusters = 8\\nglobal_batch = 7\\n' >small.ini");
    if (failed) return failed;
    server = fm_test_serve(folder, "socket", "--cache cache");
    return run("$train --batch-schedule 2@0,4@3 --steps 6 --out one >one.log 2>&1");
}

static int tear_down(void **state) {
    (void)state;
    int code = server ? fm_test_stop(server, SIGTERM) : 0;
    fm_test_remove_tree(folder);
    return code;
}

static void steps_use_the_stream_in_order(void **state) {
    (void)state;
    assert_int_equal(run("test \"$(firsts one)\" = '0 2 4 6 10 14'"), 0);
    /* The first stage is a run of that batch, to the bit. */
    assert_int_equal(run("sed 's/= 7/= 2/' small.ini >two.ini && foldmill train --data unix:socket "
                         "--seed 3 --config two.ini -q --steps 3 --out two >two.log 2>&1 && "
                         "losses two && losses one && head -3 one.l | cmp - two.l"),
                     0);
}

/* Stopped in the middle of a grown batch, by one sample and at a step. */
static void a_resumed_run_has_the_same_bits(void **state) {
    (void)state;
    assert_int_equal(run("train=\"$train --batch-schedule 2@0,4@3 --out part\"; "
                         "$train --steps 2 >part.log 2>&1 && $train --steps 4 --resume >part.log "
                         "2>&1 && $train --steps 6 --resume >part.log 2>&1 && "
                         "same one part 000000000006"),
                     0);
    assert_int_equal(run("$train --batch-schedule 2@0,4@3 --out cut --steps 1000000 >cut.log 2>&1 "
                         "& pid=$!; until [ $(cat cut/metrics.jsonl 2>/dev/null | wc -l) -ge 4 ]; "
                         "do sleep 0.01; done; kill -TERM $pid; wait $pid; "
                         "$train --batch-schedule 2@0,4@3 --out cut --steps 12 --resume >cut.log "
                         "2>&1 && $train --batch-schedule 2@0,4@3 --out all --steps 12 >all.log "
                         "2>&1 && n=$(ls cut/checkpoint-*12.safetensors | wc -l) && test $n = 1 && "
                         "same all cut 000000000012"),
                     0);
    assert_int_equal(run("$train --batch-schedule 2@0,4@5 --out part --steps 8 --resume 2>err; "
                         "test $? = 2 && grep -q 'batch_schedule' err"),
                     0);
}

static void ranks_share_a_grown_batch(void **state) {
    (void)state;
    assert_int_equal(
        run("$train --batch-schedule 2@0,4@3 --steps 6 --ranks 2 --out ranks >ranks.log 2>&1 && "
            "python3 -c 'import json; a, b = ([json.loads(l) for l in open(r + "
            "\"/metrics.jsonl\")] for r in (\"one\", \"ranks\")); exit(len(b) != 6 or any("
            "abs(x[\"loss\"] / y[\"loss\"] - 1) > 1e-3 or x[\"index\"] != y[\"index\"] for x, y "
            "in zip(a, b)))'"),
        0);
}

/* The batch grows behind the score, and the run is that of the schedule with its step. */
static void a_score_makes_the_batch_grow(void **state) {
    (void)state;
    assert_int_equal(
        run("mkdir gate && printf '{\"step\":1,\"lddt_ca\":0.5}\\n{\"step\":2,\"lddt_ca\":0.9' "
            ">gate/eval.jsonl; train=\"$train --batch-schedule 2@0,6@lddt_ca>=0.8 --out gate\"; "
            "$train --steps 3 >gate.log 2>&1 && ! grep -q batch_grows gate.log && "
            "echo '}' >>gate/eval.jsonl && $train --steps 5 --resume >gate.log 2>&1 && "
            "grep -q 'info batch_grows samples=6 after_step=4 lddt_ca=0.9 of_step=2' gate.log && "
            "$train --steps 6 --resume >gate.log 2>&1 && ! grep -q batch_grows gate.log && "
            "test \"$(firsts gate)\" = '0 2 4 6 8 14'"),
        0);
    assert_int_equal(run("$train --batch-schedule 2@0,6@4 --steps 6 --out step >step.log 2>&1 && "
                         "losses gate && losses step && cmp gate.l step.l"),
                     0);
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *arguments, *sentence;
    } cases[] = {
        {"--batch-schedule 2@0,3@5", "--batch-schedule:1:5: found '3@5', expected a multiple of"},
        {"--batch-schedule '2@0,4@lddt_ca>=0.8' --ranks 2", "needs a run of one rank"},
        {"--batch-schedule 3@0,6@2 --ranks 2", "batch of 3 samples cannot be divided evenly"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(fm_test_shell_format(folder,
                                              "foldmill train --data unix:socket --config "
                                              "small.ini %s --out x 2>err",
                                              cases[i].arguments),
                         2);
        assert_int_equal(fm_test_shell_format(folder,
                                              "grep -qF -- \"%s\" err && test ! -e x || "
                                              "{ cat err >&2; false; }",
                                              cases[i].sentence),
                         0);
    }
}

int main(void) {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    cmocka_set_test_filter(getenv("FM_TEST_ONLY"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_use_the_stream_in_order),
        cmocka_unit_test(a_resumed_run_has_the_same_bits),
        cmocka_unit_test(ranks_share_a_grown_batch),
        cmocka_unit_test(a_score_makes_the_batch_grow),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
