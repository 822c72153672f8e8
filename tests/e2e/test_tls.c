/* A server on a network as its operator runs it: `foldmill certs`, `serve` on tls://, `fetch` and
 * `train` with certificates and tokens, SIGHUP, and OpenSSL's own client as a stranger. */
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[200];

/* Runs a shell command in the test's folder; $FOLDMILL is the program. */
static int run(const char *command) {
    char text[4096];
    int n =
        snprintf(text, sizeof text, "cd %s; FOLDMILL=\"$FM_BIN\"/foldmill; %s", folder, command);
    assert_true(n > 0 && (size_t)n < sizeof text);
    int status = system(text);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int make_cache(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    unsetenv("FOLDMILL_TOKEN");
    return run("$FOLDMILL synth --seed 3 --chains 6 --depth 60 --max-length 120 --min-length 60 "
               "-o data >/dev/null 2>&1 && $FOLDMILL build data --cache cache --quiet >/dev/null "
               "2>err && $FOLDMILL certs --out certs >names && "
               "echo 'lab u6Fh3jsQ0pXw9ZkT2mVb plans=tiny' >tokens && chmod 600 tokens && "
               "echo u6Fh3jsQ0pXw9ZkT2mVb >token && chmod 600 token");
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static pid_t server;

/* Starts a server on tls://, with these further options, and on the unix socket s. Its address is
 * in the file url, its process in $SERVER. */
static void start(const char *options) {
    char command[1024];
    snprintf(command, sizeof command,
             "cd %s; exec \"$FM_BIN\"/foldmill serve --cache cache --listen tls://127.0.0.1:0 "
             "--also-listen unix:s --tls-cert certs/server.crt --tls-key certs/server.key %s 2>log",
             folder, options);
    assert_int_equal(run("rm -f log url"), 0);
    server = fork();
    assert_true(server >= 0);
    if (server == 0) {
        fm_test_die_with_parent();
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(98);
    }
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)server);
    assert_int_equal(setenv("SERVER", pid, 1), 0);
    assert_int_equal(
        run("for i in $(seq 300); do grep -qs 'listening address=unix' log && break; sleep 0.1; "
            "done; grep -o 'address=tls://[0-9.:]*' log | cut -d= -f2 >url; test -s url || "
            "{ cat log >&2; exit 1; }"),
        0);
}

static void stop(void) {
    int status;
    assert_int_equal(kill(server, SIGTERM), 0);
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void certs_are_never_overwritten(void **state) {
    (void)state;
    assert_int_equal(run("test $(wc -l <names) = 3 && test $(stat -c %a certs/ca.key) = 600 && "
                         "test $(stat -c %a certs/server.key) = 600"),
                     0);
    assert_int_equal(run("sha256sum certs/* >before; $FOLDMILL certs --out certs 2>err"), 1);
    assert_int_equal(run("grep -q 'exists; --replace makes it anew' err && "
                         "sha256sum --quiet -c before"),
                     0);
    assert_int_equal(run("$FOLDMILL certs --out certs --client node-2 >/dev/null && "
                         "openssl verify -CAfile certs/ca.crt certs/node-2.crt >/dev/null && "
                         "sha256sum --quiet -c before"),
                     0);
    assert_int_equal(run("$FOLDMILL certs --out certs --server two --host two.lab --host 10.0.0.7 "
                         "--host fe80::7 >/dev/null && openssl x509 -in certs/two.crt -noout -text "
                         ">text && grep -q 'DNS:localhost, IP Address:127.0.0.1' text && "
                         "grep -q 'DNS:two.lab, IP Address:10.0.0.7, IP Address:FE80' text"),
                     0);
    assert_int_equal(run("$FOLDMILL certs --out certs --client node-2 --replace >/dev/null && "
                         "sha256sum --quiet -c before"),
                     0);
    assert_int_equal(run("$FOLDMILL certs --out certs --host 'a b' --server x 2>err"), 2);
    assert_int_equal(run("$FOLDMILL certs --out certs --client ../x 2>err"), 2);
    assert_int_equal(run("mkdir half; cp certs/ca.crt half; $FOLDMILL certs --out half 2>err"), 1);
    assert_int_equal(run("grep -q 'is here without half/ca.key' err"), 0);
}

/* Nothing is made before all names and hosts are known to be right. */
static void wrong_names_make_no_certificate(void **state) {
    (void)state;
    static const struct {
        const char *options, *words;
    } cases[] = {
        {"--client ca --replace", "'ca' is the name of the authority's files"},
        {"--server x --client x", "'x' is given twice"},
        {"--client x --host data1.lab", "--host is for the certificate of a server"},
        {"--host 10.0.0.300", "host '10.0.0.300', expected a name"},
        {"--host 'a b'", "host 'a b', expected a name"},
        {"--host data1.lab:7420", "without port"},
        {"--server a/b", "'a/b' cannot be the name"},
    };
    assert_int_equal(run("sha256sum certs/* >before"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "for out in certs wrong; do $FOLDMILL certs --out $out %s 2>err; test $? = 2 && "
                 "grep -qF -- \"%s\" err && ! test -e wrong || exit 1; done",
                 cases[i].options, cases[i].words);
        assert_int_equal(run(command), 0);
    }
    assert_int_equal(run("sha256sum --quiet -c before && test $(ls certs | wc -l) = "
                         "$(wc -l <before)"),
                     0);
}

static const char stream[] = " --steps 20 --batch 4 --seed 7 --digest";

static int fetch(const char *options, const char *out) {
    char command[1024];
    snprintf(command, sizeof command, "$FOLDMILL fetch %s %s >%s 2>err", options, stream, out);
    return run(command);
}

static void one_digest_on_all_transports(void **state) {
    (void)state;
    start("--tls-ca certs/ca.crt");
    assert_int_equal(fetch("--data unix:s", "one"), 0);
    assert_int_equal(fetch("--data $(cat url) --tls-ca certs/ca.crt --tls-cert certs/client.crt "
                           "--tls-key certs/client.key",
                           "two"),
                     0);
    assert_int_equal(run("grep digest one >digest && grep -q -f digest two"), 0);
    assert_int_equal(
        run("$FOLDMILL train --data $(cat url) --tls-ca certs/ca.crt --tls-cert certs/client.crt "
            "--tls-key certs/client.key --steps 1 --quiet --checkpoint-every 0 --out mutual "
            ">/dev/null 2>err || { cat err >&2; exit 1; }"),
        0);
    assert_int_equal(fetch("--data $(cat url) --tls-ca certs/ca.crt", "none"), 1);
    assert_int_equal(run("grep -q 'tls://127.0.0.1:[0-9]*: the server wants a client certificate' "
                         "err"),
                     0);
    stop();
    assert_int_equal(run("$FOLDMILL serve --cache cache --listen tcp://0.0.0.0:0 2>err"), 2);
    assert_int_equal(run("grep -q 'tcp://0.0.0.0:0 is plain TCP beyond this machine' err"), 0);
    assert_int_equal(run("$FOLDMILL serve --cache cache --listen unix:s --also-listen unix:s "
                         "2>err"),
                     2);
    assert_int_equal(run("grep -q -- '--also-listen: unix:s is the address of --listen' err"), 0);
    int code = run("$FOLDMILL serve --cache cache --listen unix:s --http 0.0.0.0:0 2>err");
    assert_true(code == 2 || run("grep -q 'without libmicrohttpd' err") == 0);
    assert_int_equal(run("grep -q 'use ssh -L, or add --insecure\\|without libmicrohttpd' err"), 0);
    assert_int_equal(run("$FOLDMILL serve --cache cache --listen tcp://0.0.0.0:0 --insecure "
                         "2>log & server=$!; for i in $(seq 300); do "
                         "grep -q 'listening' log && break; sleep 0.1; done; "
                         "$FOLDMILL fetch --data tcp://127.0.0.1:$(grep -o 'tcp://[0-9.:]*' log | "
                         "cut -d: -f3) --steps 20 --batch 4 --seed 7 --digest >three 2>err; "
                         "kill $server; wait $server; grep -q -f digest three"),
                     0);
}

static void tokens_come_from_files_and_the_environment(void **state) {
    (void)state;
    start("--token-file tokens");
    assert_int_equal(fetch("--data $(cat url) --tls-ca certs/ca.crt --token-file token", "one"), 0);
    assert_int_equal(run("test ! -s err"), 0);
    assert_int_equal(run("chmod 644 token"), 0);
    assert_int_equal(fetch("--data $(cat url) --tls-ca certs/ca.crt --token-file token", "one"), 0);
    assert_int_equal(run("grep -q 'warning: every user can read token; chmod 600' err"), 0);
    assert_int_equal(run("chmod 600 token; FOLDMILL_TOKEN=u6Fh3jsQ0pXw9ZkT2mVb $FOLDMILL fetch "
                         "--data $(cat url) --tls-ca certs/ca.crt --steps 1 >/dev/null 2>err"),
                     0);
    assert_int_equal(fetch("--data $(cat url) --tls-ca certs/ca.crt", "none"), 1);
    assert_int_equal(run("grep -q 'the server wants an access token' err"), 0);
    assert_int_equal(run("! grep -q u6Fh3jsQ0pXw9ZkT2mVb log && grep -q 'peer=token:lab' log"), 0);
    assert_int_equal(
        run("$FOLDMILL train --data $(cat url) --tls-ca certs/ca.crt --token-file "
            "token --steps 2 --quiet --out run >/dev/null 2>err || { cat err >&2; exit 1; }"),
        0);
    stop();
}

/* A server on the network demands that clients identify themselves, unless --open-to-all is
 * given. */
static void a_server_is_not_open_to_all_by_accident(void **state) {
    (void)state;
    static const char serve[] = "timeout 60 $FOLDMILL serve --cache cache --listen "
                                "tls://127.0.0.1:0 --tls-cert certs/server.crt --tls-key "
                                "certs/server.key 2>log";
    assert_int_equal(run(serve), 2);
    assert_int_equal(run("grep -q 'or --open-to-all for whoever reaches the port' log"), 0);
    start("--open-to-all");
    assert_int_equal(run("grep -q ' open_to_all ' log"), 0);
    assert_int_equal(fetch("--data $(cat url) --tls-ca certs/ca.crt", "any"), 0);
    stop();
}

/* SIGHUP reads new certificates; a fetch that runs goes on, and bad files change nothing. */
static void a_hangup_reads_the_files_again(void **state) {
    (void)state;
    assert_int_equal(run("cp certs/server.crt own.crt; cp certs/server.key own.key"), 0);
    start("--tls-cert own.crt --tls-key own.key --open-to-all");
    assert_int_equal(
        run("$FOLDMILL certs --out new >/dev/null; $FOLDMILL fetch --data $(cat url) --tls-ca "
            "certs/ca.crt --steps 400 "
            "--digest >long 2>longerr & fetch=$!; "
            "for i in $(seq 300); do grep -q ' stream ' log && break; sleep 0.05; done; "
            "echo none >own.key; kill -HUP $SERVER; "
            "for i in $(seq 300); do grep -q reload_failed log && break; sleep 0.05; done; "
            "$FOLDMILL fetch --data $(cat url) --tls-ca certs/ca.crt --steps 1 >/dev/null || exit "
            "1; "
            "cp new/server.crt own.crt; cp new/server.key own.key; kill -HUP $SERVER; "
            "for i in $(seq 300); do grep -q ' reloaded ' log && break; sleep 0.05; done; "
            "$FOLDMILL fetch --data $(cat url) --tls-ca new/ca.crt --steps 1 >/dev/null || exit 2; "
            "$FOLDMILL fetch --data $(cat url) --tls-ca certs/ca.crt --steps 1 2>err && exit 3; "
            "wait $fetch || exit 4; grep -q 'expected a private key in PEM form' log"),
        0);
    assert_int_equal(run("$FOLDMILL fetch --data unix:s --steps 400 --digest >same && "
                         "grep digest same >digest && grep -q -f digest long"),
                     0);
    stop();
}

/* What a stranger with OpenSSL's own client gets. */
static void strangers_get_nothing(void **state) {
    (void)state;
    start("--tls-ca certs/ca.crt");
    static const char s_client[] =
        "p=$(cut -d/ -f3 url); s() { timeout 20 openssl s_client -connect $p -CAfile certs/ca.crt "
        "-alpn foldmill/1 \"$@\" >out 2>&1; }; ";
    char command[1024];
    static const struct {
        const char *commands, *words;
    } cases[] = {
        {"s -tls1_2 </dev/null", "alert protocol version"},
        {"timeout 20 openssl s_client -connect $p </dev/null >out 2>&1",
         "alert no application protocol"},
        {"s -alpn h2 </dev/null", "alert no application protocol"},
        {"s -ign_eof </dev/null", "alert certificate required"},
        {"s -cert certs/client.crt -key certs/client.key </dev/null", "Verify return code: 0 (ok)"},
        {"s -cert certs/client.crt -key certs/client.key </dev/null", "ALPN protocol: foldmill/1"},
        /* TLS 1.3 has no renegotiation: the client's own library refuses the command R. */
        {"echo R | s -cert certs/client.crt -key certs/client.key", "RENEGOTIATING"},
        {"echo K | s -cert certs/client.crt -key certs/client.key", "KEYUPDATE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(command, sizeof command, "%s %s; grep -q '%s' out || { cat out >&2; exit 1; }",
                 s_client, cases[i].commands, cases[i].words);
        if (run(command)) fail_msg("%s", cases[i].commands);
    }
    /* No session to resume, and nothing of ours was told. */
    snprintf(command, sizeof command,
             "%s s -cert certs/client.crt -key certs/client.key -sess_out session </dev/null; "
             "test ! -s session && grep -q 'Compression: NONE' out && ! grep -q foldmill.serve out",
             s_client);
    assert_int_equal(run(command), 0);
    assert_int_equal(fetch("--data $(cat url) --tls-ca certs/ca.crt --tls-cert certs/client.crt "
                           "--tls-key certs/client.key",
                           "two"),
                     0);
    stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certs_are_never_overwritten),
        cmocka_unit_test(wrong_names_make_no_certificate),
        cmocka_unit_test(one_digest_on_all_transports),
        cmocka_unit_test(tokens_come_from_files_and_the_environment),
        cmocka_unit_test(a_server_is_not_open_to_all_by_accident),
        cmocka_unit_test(a_hangup_reads_the_files_again),
        cmocka_unit_test(strangers_get_nothing),
    };
    return cmocka_run_group_tests(tests, make_cache, drop_folder);
}
