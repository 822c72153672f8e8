/* test_private_server.c: `foldmill train --cache` with the server that it starts for itself: the
 * same run as with a server of others, nothing left behind whatever ends the run, a server that is
 * killed, several ranks, and what is refused. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* Shell functions of all tests, beside those of library.sh. The servers' folders are in tmp/, so
 * what is left there was forgotten.
 *
 *     begin ARGS        starts a run beside the shell, which ends with it; $run is its process
 *     server            waits for the server of the run, and prints its process
 *     nothing_left PIDS waits until none of the processes is left, and no folder of a server */
static const char library[] =
    "export TMPDIR=$PWD/tmp\n"
    "train='foldmill train --config small.ini --seed 3 -q'\n"
    "begin() { beside $train \"$@\"; }\n"
    "find_server() { for c in $(cat /proc/$run/task/*/children); do grep -qz '^serve$' "
    "/proc/$c/cmdline && echo $c >server.pid && return; done; false; }\n"
    "server() { until_true find_server && cat server.pid; }\n"
    "is_empty() { [ -z \"$(ls -A tmp)\" ]; }\n"
    "nothing_left() { all_gone \"$@\" && until_true is_empty; }\n";

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    run_first = ". ./lib; ";
    if (fm_test_write_library(folder, library)) return 1;
    int failed =
        run("mkdir tmp && foldmill synth --chains 4 --seed 5 --max-length 60 --depth 100 -o data "
            "--quiet && foldmill build data --cache cache --quiet >build.log && "
            "printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\n[data]\\n"
            "crop_size = 24\\nmax_msa_clusters = 8\\nglobal_batch = 2\\n' >small.ini && "
            "foldmill snapshot create even --cache cache --weights uniform >snapshot.log");
    if (failed) return failed;
    pid_t serving = fm_test_serve(folder, "socket", "--cache cache --snapshot even");
    failed = run("$train --data unix:socket --steps 8 --out one >one.log 2>&1");
    return fm_test_stop(serving, SIGTERM) || failed;
}

static void one_command_trains_as_two_do(void **state) {
    (void)state;
    assert_int_equal(
        run("$train --cache cache --snapshot even --jobs 1 --steps 8 --out a >a.log 2>a.err"), 0);
    assert_int_equal(run("cmp a/checkpoint-000000000008.safetensors "
                         "one/checkpoint-000000000008.safetensors && losses a >a.l && "
                         "losses one >one.l && cmp a.l one.l"),
                     0);
    assert_int_equal(run("is_empty && grep -q '^data      cache: snapshot even' a.err"), 0);
    /* A resumed run starts another server. */
    assert_int_equal(run("$train --cache cache --snapshot even --steps 5 --out b >b.log 2>&1 && "
                         "$train --cache cache --snapshot even --steps 8 --out b --resume "
                         ">>b.log 2>&1 && cmp b/checkpoint-000000000008.safetensors "
                         "one/checkpoint-000000000008.safetensors && is_empty"),
                     0);
    assert_int_equal(run("$train --cache cache --steps 9 --out b --resume >b.log 2>b.err"), 1);
    assert_int_equal(run("grep -q 'is not served.*had a --snapshot, give it again' b.err"), 0);
    /* A host that is not found has nothing to do with the snapshot. Where no name server answers,
     * the words are others. */
    assert_int_equal(run("$train --data tcp://nowhere.invalid:1 --insecure --wait 100 --steps 9 "
                         "--out b --resume >b.log 2>b.err"),
                     1);
    assert_int_equal(run("grep -Eq 'host nowhere.invalid (has no address|cannot be looked up)' "
                         "b.err && ! grep -q -- --snapshot b.err"),
                     0);
}

static void the_server_ends_with_its_run(void **state) {
    (void)state;
    static const char *const signals[] = {"KILL", "TERM", "INT"};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        assert_int_equal(
            fm_test_shell_format(
                folder,
                ". ./lib; rm -rf k; begin --cache cache --steps 1000000 --out k >k.log 2>&1; "
                "until_step k 2 && s=$(server) && kill -%s $run && nothing_left $s",
                signals[i]),
            0);
    }
    /* A signal to all processes of the terminal reaches the server only through the run, which
     * still finishes the sample in hand and its checkpoint. */
    assert_int_equal(run("rm -rf g; setsid sh -c '. ./lib; exec $train --cache cache --steps "
                         "1000000 --out g >g.log 2>&1' & run=$!; until_step g 2; s=$(server); "
                         "kill -TERM -$run; wait $run; rc=$?; nothing_left $s || exit 1; exit $rc"),
                     143);
    assert_int_equal(run("ls g/checkpoint-*.safetensors >list && grep -q 'stopped by SIGTERM' "
                         "g.log && ! grep -q 'server_lost\\|private_server' g.log"),
                     0);
}

static void a_killed_server_is_started_again(void **state) {
    (void)state;
    assert_int_equal(run("begin --cache cache --snapshot even --ahead 2 --steps 400 --out r "
                         ">r.log 2>&1; until_step r 2; for i in 1 2; do n=$(cat r/metrics.jsonl | "
                         "wc -l); s=$(server); kill -9 $s; until_true is_gone $s; "
                         "until_step r $((n + 8)); done; kill -TERM $run; wait $run; true"),
                     0);
    assert_int_equal(run("is_empty && grep -c 'private_server_restarts why=\"it was killed by "
                         "signal 9 (Killed)\"' r.log | grep -qx 2 && grep -q 'warn reconnected' "
                         "r.log && losses r | head -8 >r.l && losses one >one.l && cmp r.l one.l"),
                     0);
    /* After some attempts, a server that cannot start again is given up. The run ends with its
     * reason, since no other server can come, and keeps its finished steps. */
    assert_int_equal(run("cp -r cache mortal; begin --cache mortal --ahead 2 --wait 600000 "
                         "--steps 1000000 --out d >d.log 2>&1; until_step d 2; mv mortal gone; "
                         "kill -9 $(server); wait $run"),
                     1);
    assert_int_equal(run("is_empty && grep -q 'private_server_restarts why=\"it was killed by' "
                         "d.log && grep -q 'error private_server_lost why=.*no folder mortal' "
                         "d.log && grep -q '^foldmill train: --cache: .*no folder mortal' d.log && "
                         "grep -q -- '--resume continues' d.log && "
                         "ls d/checkpoint-*.safetensors >list"),
                     0);
}

static void ranks_share_one_server(void **state) {
    (void)state;
    assert_int_equal(
        run("$train --cache cache --snapshot even --ranks 2 --steps 8 --out p >p.log 2>&1"), 0);
    assert_int_equal(run("is_empty && test $(wc -l <p/metrics.jsonl) = 8 && close_losses one p"),
                     0);
    assert_int_equal(
        run("begin --cache cache --ranks 2 --steps 1000000 --out q >q.log 2>&1; "
            "until_step q 2 && s=$(server) && kill -9 $run && until_true is_gone $s && "
            "! test -e tmp/*/socket && rm -rf tmp/*"),
        0);
    assert_int_equal(run("env -u FOLDMILL_PRIVATE_SERVER RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 $train "
                         "--meet tcp://localhost:1 --cache cache --out x 2>err"),
                     2);
    assert_int_equal(run("grep -q 'ranks of another launcher need a server' err"), 0);
}

static void a_folder_may_have_a_sign_in_its_name(void **state) {
    (void)state;
    assert_int_equal(run("mkdir lr=0.1 && cp -r cache lr=0.1/cache && $train --cache lr=0.1/cache "
                         "--snapshot even --steps 8 --out lr=0.1/run >log 2>&1 && "
                         "cmp lr=0.1/run/checkpoint-000000000008.safetensors "
                         "one/checkpoint-000000000008.safetensors"),
                     0);
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *arguments, *sentence;
        int code;
    } cases[] = {
        {"--cache nowhere", "--cache: there is no folder nowhere;", 1},
        {"--cache data", "--cache: data is a dataset, not a foldmill cache;", 1},
        {"--cache small.ini", "--cache: small.ini is a file, and a foldmill cache is a folder", 1},
        {"--cache cache --snapshot odd", "there are: all, even", 1},
        {"--cache cache --data unix:socket", "give one of them", 2},
        {"--data unix:socket --jobs 2", "--jobs is for the server of --cache", 2},
        {"", "--data URL or --cache DIR is required", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(
            fm_test_shell_format(folder, ". ./lib; $train %s --out x 2>err", cases[i].arguments),
            cases[i].code);
        assert_int_equal(fm_test_shell_format(folder,
                                              ". ./lib; grep -qF -- \"%s\" err && "
                                              "test ! -e x && is_empty",
                                              cases[i].sentence),
                         0);
    }
    assert_int_equal(run("foldmill serve --cache cache --listen tcp://127.0.0.1:0 --private "
                         "</dev/null 2>err"),
                     2);
    assert_int_equal(run("grep -q 'private needs --listen unix:PATH' err"), 0);
    /* The program of the server is missing. */
    assert_int_equal(run("mkdir -p alone && cp $(command -v foldmill-train) alone/ && PATH=/bin "
                         "alone/foldmill-train train --cache cache --out x 2>err"),
                     1);
    assert_int_equal(run("grep -q 'must be in the folder of foldmill-train' err && is_empty"), 0);
}

int main(void) {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    cmocka_set_test_filter(getenv("FM_TEST_ONLY"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_command_trains_as_two_do),
        cmocka_unit_test(the_server_ends_with_its_run),
        cmocka_unit_test(a_killed_server_is_started_again),
        cmocka_unit_test(ranks_share_one_server),
        cmocka_unit_test(a_folder_may_have_a_sign_in_its_name),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
