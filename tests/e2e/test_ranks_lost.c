/* test_ranks_lost.c: `foldmill train` on several ranks of which one is killed or stopped, and on
 * hosts and with servers that are lost: who is named, how the run ends, and that it goes on to the
 * bytes of a run that was left alone.
 *
 * FM_TEST_KILLS sets the number of random instants at which a rank is killed (3). */
#include "tests/e2e/rank_runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* -- lost ranks */

/* A random rank is killed at random instants; the resumed runs end with the bytes of a run that was
 * left alone. Neither a killed rank nor a killed command leaves a process behind. */
static void killed_ranks_cost_no_bit(void **state) {
    (void)state;
    const char *set = getenv("FM_TEST_KILLS");
    int n_kill = set ? (int)strtol(set, NULL, 10) : 3, n_step = 3 * n_kill + 6;
    unsigned seed = (unsigned)time(NULL) % 100000;
    fprintf(stderr, "instants from seed %u\n", seed);
    assert_int_equal(fm_test_shell_format(folder,
                                          ". ./lib; $train --ranks 4 --dap 2 --steps %d "
                                          "--checkpoint-every 2 --out whole >whole.log 2>&1",
                                          n_step),
                     0);
    for (int i = 0; i <= n_kill; i++) {
        seed = seed * 1103515245u + 12345u;
        unsigned rank = seed >> 16 & 3, wait_ms = seed >> 20 & 127;
        char victim[40] = "$run", says[40] = "true";
        if (i < n_kill) {
            snprintf(victim, sizeof victim, "$(rank_of $run %u)", rank);
            snprintf(says, sizeof says, "grep -q 'rank %u .*process' killed.log", rank);
        }
        assert_int_equal(
            fm_test_shell_format(folder,
                                 ". ./lib; begin --ranks 4 --dap 2 --steps %d --checkpoint-every 2 "
                                 "--resume --out killed >killed.log 2>&1; until_step killed %d; "
                                 "sleep 0.%03u; all=$(ranks_of $run); kill -9 %s; "
                                 "wait $run; test $? = %d && all_gone $all && %s",
                                 n_step, 3 * i + 2, wait_ms, victim, i < n_kill ? 1 : 137, says),
            0);
    }
    assert_int_equal(fm_test_shell_format(folder,
                                          ". ./lib; $train --ranks 4 --dap 2 --steps %d "
                                          "--checkpoint-every 2 --resume --out killed "
                                          ">killed.log 2>&1 && grep -q 'resumed at step' "
                                          "killed.log && same whole killed %012d",
                                          n_step, n_step),
                     0);
}

/* A rank that is stopped is named with what it did last, and the run ends; its last checkpoint is
 * whole. It may be the first rank, which writes checkpoints and is alone in its group here. */
static void stopped_ranks_are_named(void **state) {
    (void)state;
    assert_int_equal(
        run("train=\"$train --checkpoint-every 2\"; set='--patience 5 --steps 1000000'; "
            "begin --ranks 2 $set --out writer >writer.log 2>&1; writer=$run; "
            "begin --dap 2 $set --out parts >parts.log 2>&1; parts=$run; "
            "until_step writer 3; until_step parts 3; "
            "all=\"$(ranks_of $writer) $(ranks_of $parts)\"; began=$(date +%s); "
            "kill -STOP $(rank_of $writer 0) $(rank_of $parts 1); "
            "wait $writer; a=$?; wait $parts; b=$?; "
            "test $a = 1 && test $b = 1 && all_gone $all && "
            "test $(($(date +%s) - began)) -le 25 && "
            "last() { ls $1 | sed -n 's/checkpoint-0*\\([0-9]*\\)[.].*/\\1/p' | tail -1; }; "
            "rank='rank [01] .process [0-9]+ on [^ ]+:'; "
            "still='it has not moved for 5 s; the other ranks stop'; "
            "grep -qE \"^foldmill train: $rank .*$still\" writer.log && "
            "grep -qE \"^foldmill train: $rank step [0-9]+, cycle [0-9], (in|after) exchange "
            "[0-9]+ of the (dap|sample) group: $still\" parts.log && "
            "grep -q '^foldmill train: rank 0 ' writer.log && "
            "grep -q '^foldmill train: rank 1 ' parts.log && "
            "$train --ranks 2 --steps $(($(last writer) + 1)) --resume --out writer >log 2>&1 && "
            "! grep -q damaged log && "
            "$train --dap 2 --steps $(($(last parts) + 1)) --resume --out parts >log 2>&1 && "
            "! grep -q damaged log"),
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

/* -- ranks of several hosts that are stopped or hang */

/* Three runs on two hosts, of which a rank without others below it, the leader of its host and the
 * first rank are stopped. All others end and name it; it ends as soon as it may go on. */
static void stopped_ranks_are_named_on_all_hosts(void **state) {
    (void)state;
    assert_int_equal(
        run("stop_one() { mkdir $1.s && cd $1.s && ln -s ../socket ../batch.ini . && "
            "start_on 'a a b b' --dap 2 --steps 1000000 --patience 5 --out run; "
            "until_step run 3; began=$(date +%s); victim=$(eval echo \\$rank$1); "
            "kill -STOP $victim; host=$(echo aabb | cut -c$(($1 + 1))); "
            "for process in $all; do test $process = $victim && continue; wait $process; "
            "test $? = 1 || return 1; done; "
            "test $(($(date +%s) - began)) -le 25 || return 1; "
            "grep -h '^foldmill train: ' on.*.log >said; "
            "test $(wc -l <said) = 2 && "
            "! grep -vE \"rank $1 .process $victim on $host\" said && "
            "kill -CONT $victim && { wait $victim; test $? = 1; }; }; "
            "{ stop_one 0 & a=$!; stop_one 2 & b=$!; stop_one 3 & c=$!; "
            "wait $a && wait $b && wait $c; } || { cat *.s/on.*.log >&2; false; }"),
        0);
}

/* Whether the main thread of a stopped process was computing, and not in a call to the system. */
static bool was_computing(pid_t pid) {
    char path[64], text[16] = "";
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) return true; /* the kernel does not say it */
    bool is_read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    return is_read && strncmp(text, "-1 ", 3) == 0;
}

/* Stops the main thread of a process where it computes, while its other threads go on, until it
 * ends. Returns the exit code of this program when its command line asks for that. */
static int hold_main_thread(const char *process) {
    const pid_t pid = (pid_t)strtol(process, NULL, 10);
    fm_test_die_with_parent();
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0) {
        fprintf(stderr, "cannot stop a thread: %s\n", strerror(errno));
        return FM_TEST_SKIPPED;
    }
    int state = 0;
    for (bool is_held = false; !is_held;) {
        if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0) return 1;
        if (waitpid(pid, &state, __WALL) != pid || !WIFSTOPPED(state)) return 1;
        is_held = was_computing(pid);
        if (!is_held && ptrace(PTRACE_CONT, pid, NULL, NULL) < 0) return 1;
        usleep(is_held ? 0 : 1000);
    }
    printf("held\n");
    fflush(stdout);
    /* A process that is traced is gone when its tracer knows it, too. */
    while (waitpid(pid, &state, __WALL) == pid && !WIFEXITED(state) && !WIFSIGNALED(state))
        ;
    return 0;
}

/* A rank whose main thread hangs is named by its other thread, and all hosts hear of it. */
static void a_rank_that_hangs_is_named_on_all_hosts(void **state) {
    (void)state;
    char self[512];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    const int code = fm_test_shell_format(
        folder,
        ". ./lib; start_on 'a a b b' --dap 2 --steps 1000000 --patience 5 --out hangs; "
        "until_step hangs 3; %s $rank3 >held & until_true grep -q . held || exit 77; "
        "began=$(date +%%s); "
        "for process in $all; do wait $process; test $? = 1 || exit 1; done; "
        "test $(($(date +%%s) - began)) -le 30 || exit 1; "
        "grep -h '^foldmill train: ' on.*.log | sort -u >said; cat said >&2; "
        "test $(wc -l <said) = 1 && grep -qE \"^foldmill train: rank 3 .process $rank3 on b.: "
        "step [0-9]+, .*: its main thread has hung for 5 s; the other ranks stop\" said",
        self);
    if (code == FM_TEST_SKIPPED) skip();
    assert_int_equal(code, 0);
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

int main(int argc, char **argv) {
    if (argc == 2) return hold_main_thread(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_ranks_cost_no_bit),
        cmocka_unit_test(stopped_ranks_are_named),
        cmocka_unit_test(a_lost_host_costs_no_bit),
        cmocka_unit_test(stopped_ranks_are_named_on_all_hosts),
        cmocka_unit_test(a_rank_that_hangs_is_named_on_all_hosts),
        cmocka_unit_test(a_lost_server_costs_no_step),
        cmocka_unit_test(a_server_that_leaves_is_named_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
