/* `foldmill simulate` as a user runs it: from a list, from a running server, and with mistakes. */
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/testing/must.h"

static char folder[200];

static void must(const char *command) {
    fm_test_must(folder, command, "out err");
}

static int make_folder(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    must("printf '20 890\\n200 100\\n2000 10\\n' >times");
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

/* The fewest servers: one fewer stalls more than is allowed. */
static void servers_are_planned(void **state) {
    (void)state;
    must("$FOLDMILL simulate --times times --ranks 64 --step-ms 100 --workers 4 --order bounded:32 "
         "--steps 300 --json >out 2>err");
    must("n=$(sed -n 's/.*\"servers\": \\([0-9]*\\).*/\\1/p' out) && test $n -ge 10 && "
         "$FOLDMILL simulate --times - --ranks 64 --step-ms 100 --workers 4 --order bounded:32 "
         "--steps 300 --servers $((n - 1)) --json <times >out 2>err && "
         "sed -n 's/.*\"stall_percent\": \\([0-9.]*\\).*/\\1/p' out | awk '{exit !($1 > 1)}'");
    must(
        "$FOLDMILL simulate --times times --ranks 8 --step-ms 100 --servers 1 --workers 10 >out && "
        "grep -q '^times     mean 57.8 ms' out && "
        "awk '$1 == \"loader\" {l = $8} $1 == \"free\" {f = $8} END {exit !(l > 50 && f < 1)}' "
        "out");
    must("$FOLDMILL simulate --times times --ranks 8 --step-ms 10 --workers 1 --order strict "
         "--steps 50 --max-stall 0 >out && grep -q 'strict .*no number of servers' out");
    must("$FOLDMILL simulate --times times --step-ms 10 --order strict,fast >out 2>err; "
         "test $? = 2 && grep -q \"found 'fast', expected strict, .*, free or loader\" err");
}

static void a_servers_own_times_are_taken(void **state) {
    (void)state;
    must("$FOLDMILL synth --seed 3 --chains 4 --depth 60 --max-length 80 --min-length 60 -o data "
         ">/dev/null 2>err && $FOLDMILL build data --cache cache --quiet >/dev/null 2>err");
    pid_t server = fm_test_serve(folder, "s", "--cache cache --http 127.0.0.1:0");
    fm_test_must_have_url(folder);
    must("$FOLDMILL simulate --times $(cat url) --step-ms 10 >out 2>err; "
         "test $? = 1 && grep -q 'found no preparation times' err");
    must("$FOLDMILL fetch --data unix:s --steps 200 >/dev/null");
    /* The address of a page of the server does as well. */
    must("for page in '' / /metrics; do $FOLDMILL simulate --times $(cat url)$page --step-ms 10000 "
         "--servers 1 --ranks 2 --steps 20 --order strict --json >out 2>err || exit 1; done");
    must("grep -q '\"stall_percent\": 0.000' out");
    fm_test_stop(server, SIGTERM);
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *arguments, *words;
        int code;
    } cases[] = {
        {"--times times", "--step-ms", 2},
        {"--times none --step-ms 5", "none", 1},
        {"--times http:// --step-ms 5", "address .http://., expected http://HOST:PORT", 2},
        {"--times http://host --step-ms 5", "address .http://host., expected http://HOST:PORT", 2},
        {"--times https://host:1 --step-ms 5",
         "address .https://host:1., expected http://HOST:PORT", 2},
        {"--times times --step-ms 0", "--step-ms: found 0, expected more than 0", 2},
        {"--times times --step-ms 5 --sample-mb -1", "--sample-mb: found -1, expected at least 0",
         2},
        {"--times times --step-ms 5 --network-gbit 0", "--network-gbit: found 0, expected more", 2},
        {"--times times --step-ms 5 --max-stall nan", "--max-stall: found", 2},
        {"--times times --step-ms 5 --servers 3 --ranks 2", "servers: found 3, expected 1 to 2", 2},
        {"--times times --step-ms 5 --order often", "often", 2},
        {"--times times --step-ms 5 --order ''", "--order: found an empty value, expected LIST", 2},
        {"--times times --step-ms 5 --order strict,", "--order: found .., expected strict", 2},
        {"--times times --step-ms 5 --ranks 3000 --per-rank 30",
         "samples of a step: found 90000, expected 1 to 65536", 2},
        {"--times times --step-ms 5 --order bounded:9999", "9999", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code =
            fm_test_shell_format(folder, "$FOLDMILL simulate %s >out 2>err", cases[i].arguments);
        if (code != cases[i].code) fail_msg("%s: code %d", cases[i].arguments, code);
        if (fm_test_shell_format(folder, "grep -q -e '%s' err", cases[i].words)) {
            fm_test_shell(folder, "cat err >&2");
            fail_msg("%s: without '%s'", cases[i].arguments, cases[i].words);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(servers_are_planned),
        cmocka_unit_test(a_servers_own_times_are_taken),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
