/* test_supervise.c: `foldmill train --supervise`: runs that are killed and start again by
 * themselves, to the bytes of a run that was left alone; and when none is started again. */
#include "tests/e2e/rank_runs.h"

/* The command and its ranks are killed one after another. The folder has the reasons, and the
 * ledger is that of a run that was left alone. */
static void killed_ranks_start_again(void **state) {
    (void)state;
    assert_int_equal(
        run("set='--ranks 4 --dap 2 --steps 24 --checkpoint-every 2'; "
            "begin --supervise $set --out again >again.log 2>again.err; "
            "child() { tr ' ' '\\n' <\"/proc/$run/task/$run/children\" | head -1; }; "
            "until_step again 3; kill -9 $(rank_of $(child) 1); "
            "until_true test -f again/restarts.jsonl; until_step again 9; kill -9 $(child); "
            "wait $run || { cat again.err >&2; exit 1; }; "
            "$train $set --out alone >alone.log 2>&1 && same alone again 000000000024 && "
            "cmp alone/ledger again/ledger && test $(wc -l <again/restarts.jsonl) = 2 && "
            "grep -q '\"restart\": 1,.*\"why\": \"rank 1 .process' again/restarts.jsonl && "
            "grep -q '\"restart\": 2,.*\"signal\": 9,.*killed by signal 9' again/restarts.jsonl && "
            "test $(grep -c 'warn run_restarts' again.err) = 2"),
        0);
}

/* A run of one process, which has written no checkpoint, starts from its begin. */
static void one_process_starts_again(void **state) {
    (void)state;
    assert_int_equal(
        run("begin --supervise --steps 8 --out one >one.log 2>&1; until_step one 3; "
            "kill -9 $(cat /proc/$run/task/$run/children); wait $run || exit 1; "
            "$train --steps 8 --out left >left.log 2>&1 && same left one 000000000008 && "
            "grep -q '\"checkpoint_step\": 0,' one/restarts.jsonl"),
        0);
}

/* Every rank that another launcher starts has a supervisor, and all start again. */
static void ranks_of_several_hosts_start_again(void **state) {
    (void)state;
    assert_int_equal(
        run("set='--dap 2 --steps 12 --checkpoint-every 2'; "
            "start_on 'a a b b' --supervise $set --out hosts; until_step hosts 3; "
            "kill -9 $(cat /proc/$rank3/task/$rank3/children); "
            "end_on || { cat on.*.log >&2; exit 1; }; "
            "$train --ranks 4 $set --out host >host.log 2>&1 && same host hosts 000000000012 && "
            "test $(wc -l <hosts/restarts.jsonl) = 1 && "
            "grep -q 'rank 3 ' hosts/restarts.jsonl"),
        0);
}

/* A launcher that ignores SIGCHLD leaves that to what it starts. Ends are seen all the same. */
static void ends_are_seen_where_nobody_waits(void **state) {
    (void)state;
    assert_int_equal(run("timeout 100 env --ignore-signal=CHLD $train --supervise --ranks 2 "
                         "--steps 2 --out deaf >deaf.log 2>&1 || { cat deaf.log >&2; exit 1; }"),
                     0);
}

/* A signal ends the run with a checkpoint, also while it waits to start again. */
static void a_signal_ends_it_for_good(void **state) {
    (void)state;
    assert_int_equal(run("begin --supervise --ranks 2 --steps 1000000 --out asked >asked.log 2>&1; "
                         "until_step asked 3; child=$(cat /proc/$run/task/$run/children); "
                         "all=$(ranks_of $child); kill -TERM $run; wait $run; test $? = 143 && "
                         "all_gone $child $all && test ! -f asked/restarts.jsonl && "
                         "ls asked/checkpoint-*.safetensors >log"),
                     0);
    assert_int_equal(
        run("begin --supervise --steps 1000000 --out waits >waits.log 2>&1; until_step waits 2; "
            "child() { cat /proc/$run/task/$run/children; }; has_child() { test \"$(child)\"; }; "
            "for i in 1 2 3; do until_true has_child; kill -9 $(child); "
            "until_true grep -q \"\\\"restart\\\": $i,\" waits/restarts.jsonl; done; "
            "kill -TERM $run; wait $run; test $? = 143"),
        0);
}

/* What does not begin, and what fails again and again, is not tried for ever. */
static void some_failures_are_final(void **state) {
    (void)state;
    assert_int_equal(run("$train --steps 2 --out there >log 2>&1 && "
                         "{ $train --supervise --steps 4 --out there >log 2>&1; test $? = 1; } && "
                         "grep -q 'has a run already' log && test ! -f there/restarts.jsonl && "
                         "{ $train --supervise --ranks 3 --dap 2 >log 2>&1; test $? = 2; }"),
                     0);
    assert_int_equal(
        run("serve() { rm -f gone; foldmill serve --cache cache --listen unix:gone -q & server=$!; "
            "until_true test -S gone; }; serve; "
            "begin --supervise --restarts 2 --data unix:gone --wait 200 --steps 1000000 "
            "--out lost >lost.log 2>&1; trap 'kill -9 $run $server 2>/dev/null' EXIT; "
            "until_step lost 2; kill -9 $server; wait $run; test $? = 1 && "
            "test $(wc -l <lost/restarts.jsonl) = 2 && grep -q 'unix:gone' lost/restarts.jsonl && "
            "grep -q 'foldmill train: given up after 2 restarts' lost.log"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_ranks_start_again),
        cmocka_unit_test(one_process_starts_again),
        cmocka_unit_test(ranks_of_several_hosts_start_again),
        cmocka_unit_test(ends_are_seen_where_nobody_waits),
        cmocka_unit_test(a_signal_ends_it_for_good),
        cmocka_unit_test(some_failures_are_final),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
