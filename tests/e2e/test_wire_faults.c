/* test_wire_faults.c: `foldmill train` on two hosts between which the network is slow, ends,
 * changes a bit, or loses everything (tests/testing/wire_shim.c): what is said, with which exit
 * code, and that the run goes on to the bytes of one that was left alone. */
#include "tests/e2e/rank_runs.h"
#include "tests/testing/faults.h"

#include <stdlib.h>

/* A fault of the connections of one rank in the middle of a run, and its end. */
typedef struct fault_case {
    const char *name, *fault;
    int32_t rank;
    int code;
    const char *said; /* an extended regular expression for one line of each host; NULL: no line */
} fault_case;

/* Runs four ranks on the hosts a and b. All end with the code, and each host says the same of it
 * once. A run that was disturbed then goes on by itself. */
static void run_case(const fault_case *c) {
    const bool is_lost = c->code != 0;
    const int failed = fm_test_shell_format(
        folder,
        ". ./lib; mkdir %s && cd %s && ln -s ../socket ../batch.ini . && export "
        "ASAN_OPTIONS=\"$ASAN_OPTIONS:verify_asan_link_order=0\" FM_WIRE_FAULT=%s FM_WIRE_RANK=%d "
        "FM_WIRE_WHEN=$PWD/now && preload=$FM_BIN/../tests/libfm_wire_shim.so; "
        "set='--dap 2 --patience 5 --checkpoint-every 2 --out run'; export LD_PRELOAD=$preload; "
        "start_on 'a a b b' $set --steps %d; unset LD_PRELOAD; until_step run 3; >now; "
        "for process in $all; do wait $process; test $? = %d || exit 1; done; "
        "grep -h '^foldmill train: ' on.*.log >said; test $(wc -l <said) = %d || exit 2; "
        "! grep -vE '%s' said || exit 3; rm now; "
        "n=$(ls run | sed -n 's/checkpoint-0*\\([0-9]*\\)[.].*/\\1/p' | tail -1); n=$((n + %d)); "
        "{ test %d = 0 || $train --ranks 4 $set --steps $n --resume >again.log 2>&1; } && "
        "$train --ranks 4 --dap 2 --steps $n --out alone >alone.log 2>&1 && "
        "same alone run $(printf %%012d $n)",
        c->name, c->name, c->fault, (int)c->rank, is_lost ? 1000000 : 8, c->code, is_lost ? 2 : 0,
        c->said ? c->said : "^$", is_lost ? 2 : 0, is_lost);
    if (!failed) return;
    fprintf(stderr, "%s: ended with %d\n", c->name, failed);
    (void)fm_test_shell_format(folder, "cat %s/said %s/on.*.log %s/again.log >&2", c->name, c->name,
                               c->name);
    assert_int_equal(failed, 0);
}

static void every_fault_has_its_end(void **state) {
    (void)state;
    static const fault_case cases[] = {
        {"slow", "delay:20", 3, 0, NULL},
        {"cut", "cut", 3, 1,
         "rank [0-3] .*(ended its connection in exchange [0-9]+ of the dp group|"
         "is gone: its connection has ended)"},
        {"part", "flip:2000", 3, 1,
         "rank 3 .*sent parts that were changed on their way in exchange "
         "[0-9]+ of the dp group"},
        {"word", "flip:500", 2, 1, "rank [0-3] .*changed on their way"},
        {"half", "half", 3, 1, "rank 3 .*did not come to gather [0-9]+ within 5 s"},
    };
    if (!fm_test_has_faults()) skip();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        run_case(&cases[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_fault_has_its_end)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
