/* A server that has no room: `foldmill train` and `foldmill fetch` wait for it and say so, up to a
 * limit that the user sets. */
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/testing/must.h"

static char folder[200];
static pid_t server, holder;

static void must(const char *command) {
    fm_test_must(folder, command, "s.log err");
}

/* One stream is allowed, and a fetch that does not end has it. It is stopped, to cost nothing. */
static void hold_the_only_stream(void) {
    must("grep -c ' stream connection=' s.log >before || true");
    holder = fm_test_start(folder, "foldmill fetch --data unix:s --steps 1000000000 --full-wait 60 "
                                   ">/dev/null 2>err.holder");
    must("for i in $(seq 600); do test $(grep -c ' stream connection=' s.log) -gt $(cat before) && "
         "exit 0; sleep 0.1; done; exit 1");
    assert_int_equal(kill(holder, SIGSTOP), 0);
}

static int make_server(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    if (fm_test_shell(folder, "$FOLDMILL synth --seed 3 --chains 6 --depth 60 --max-length 120 "
                              "--min-length 60 -o data >/dev/null 2>&1 && "
                              "$FOLDMILL build data --cache cache --quiet >/dev/null 2>err")) {
        return -1;
    }
    server = fm_test_serve(folder, "s", "--cache cache --peer-streams 1");
    return 0;
}

static int drop_server(void **state) {
    (void)state;
    fm_test_stop(server, SIGTERM);
    fm_test_remove_tree(folder);
    return 0;
}

/* Waits until the program has said that it waits, then makes room. */
static void make_room(const char *words) {
    if (fm_test_shell_format(folder,
                             "for i in $(seq 600); do grep -qs '%s' err && exit 0; sleep 0.1; "
                             "done; exit 1",
                             words)) {
        fm_test_shell(folder, "cat s.log err >&2");
        fail_msg("it did not say '%s'", words);
    }
    fm_test_stop(holder, SIGKILL);
}

static void a_run_waits_for_room(void **state) {
    (void)state;
    hold_the_only_stream();
    pid_t run = fm_test_start(folder, "foldmill train --data unix:s --steps 1 --checkpoint-every 0 "
                                      "--out run >out 2>err");
    make_room("server_full server=unix:s attempt=1 again_in_s=0.* gives_up_after_s=300 "
              "why=.*has 1 streams, as many as the server allows it");
    assert_int_equal(fm_test_stop(run, 0), 0);
    must("grep -q '\"step\":1,' run/metrics.jsonl");
}

/* A wait for room ends at once when the run is asked to stop. */
static void a_run_that_waits_can_be_stopped(void **state) {
    (void)state;
    hold_the_only_stream();
    pid_t run = fm_test_start(folder, "foldmill train --data unix:s --steps 1 --checkpoint-every 0 "
                                      "--out stopped >out 2>err");
    must("for i in $(seq 600); do grep -qs server_full err && exit 0; sleep 0.1; done; exit 1");
    assert_int_equal(fm_test_stop(run, SIGTERM), 143);
    fm_test_stop(holder, SIGKILL);
}

static void a_wait_has_an_end(void **state) {
    (void)state;
    hold_the_only_stream();
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL train --data unix:s --steps 1 --full-wait 1 "
                                           "--checkpoint-every 0 --out none >out 2>err"),
                     1);
    must("test $(grep -c ' server_full ' err) -ge 1 && grep -q 'had no room in 1 s (--full-wait): "
         ".*has 1 streams, as many as the server allows it' err");
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL train --data unix:s --steps 1 --full-wait 0 "
                                           "--checkpoint-every 0 --out none >out 2>err"),
                     1);
    must("! grep -q server_full err");
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL fetch --data unix:s --steps 1 >out 2>err"),
                     1);
    must("grep -q 'as many as the server allows it' err && ! grep -q 'asking again' err");
    fm_test_stop(holder, SIGKILL);
}

static void a_fetch_waits_when_it_is_asked_to(void **state) {
    (void)state;
    hold_the_only_stream();
    pid_t fetch = fm_test_start(folder, "foldmill fetch --data unix:s --steps 2 --full-wait 300 "
                                        ">out 2>err");
    make_room("the server has no room, asking again in .* has 1 streams");
    assert_int_equal(fm_test_stop(fetch, 0), 0);
}

/* Something that takes connections and closes them at once is asked again, with pauses. */
static void a_closing_server_is_not_stormed(void **state) {
    (void)state;
    must("cat >closer.py <<'E'\n"
         "import socket\n"
         "s = socket.socket(socket.AF_UNIX)\n"
         "s.bind('closer')\n"
         "s.listen(100)\n"
         "n = 0\n"
         "while True:\n"
         "    s.accept()[0].close()\n"
         "    n += 1\n"
         "    open('closed', 'w').write(str(n))\n"
         "E\n");
    pid_t closer = fm_test_start(folder, "python3 closer.py 2>err.closer");
    must("for i in $(seq 600); do test -S closer && exit 0; sleep 0.1; done; exit 1");
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL train --data unix:closer --steps 1 --wait "
                                           "2000 --out none >out 2>err"),
                     1);
    fm_test_stop(closer, SIGKILL);
    must("n=$(cat closed) && test $n -ge 3 && test $n -le 30");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_waits_for_room),
        cmocka_unit_test(a_run_that_waits_can_be_stopped),
        cmocka_unit_test(a_wait_has_an_end),
        cmocka_unit_test(a_fetch_waits_when_it_is_asked_to),
        cmocka_unit_test(a_closing_server_is_not_stormed),
    };
    return cmocka_run_group_tests(tests, make_server, drop_server);
}
