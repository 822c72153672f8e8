/* One `foldmill serve` with several caches and snapshots: clients get what they ask for by name, a
 * new generation is taken over while streams of the old one end on what they began with, and what
 * cannot be opened changes nothing. */
#include "proto/base/hash.h"
#include "proto/client.h"
#include "tests/testing/testing.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/testing/must.h"

enum { N_STEP = 12, BATCH = 4, CREDIT = 2, N_TAKEOVER = 100 };

static char folder[200];
static pid_t server;

static void must(const char *command) {
    fm_test_must(folder, command, "s.log out err");
}

/* Waits until a command succeeds; fails after a minute. */
static void await(const char *command) {
    char text[2048];
    snprintf(text, sizeof text, "for i in $(seq 600); do %s && exit 0; sleep 0.1; done; exit 1",
             command);
    must(text);
}

/* Caches a (6 chains, snapshots all and train) and b (5 chains), each with what changes them. */
static int make_caches(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    must("for d in a b; do $FOLDMILL synth --seed $(test $d = a && echo 3 || echo 4) --chains 6 "
         "--depth 60 --max-length 120 --min-length 60 -o data_$d >/dev/null 2>err || exit 1; "
         "$FOLDMILL build data_$d --cache first_$d --quiet >/dev/null 2>err || exit 1; done");
    must("ls data_a/alignments | head -3 >list && $FOLDMILL snapshot create train --chains list "
         "--cache first_a >/dev/null 2>err");
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static int copy_caches(void **state) {
    (void)state;
    must("rm -rf a b s.log out err && cp -r first_a a && cp -r first_b b");
    return 0;
}

static int stop_server(void **state) {
    (void)state;
    if (server) fm_test_stop(server, SIGKILL);
    server = 0;
    return 0;
}

static void serve(const char *arguments) {
    server = fm_test_serve(folder, "s", arguments);
}

static void stop(void) {
    assert_int_equal(fm_test_stop(server, SIGTERM), 0);
    server = 0;
}

/* Changes the alignments of cache a and builds its next generation, in which every chain has other
 * bytes. */
static void build_next(void) {
    must("for d in data_a/alignments/*; do sed -n 1,2p $d/mgnify_hits.a3m | tr A-Y C | "
         "sed 's/^>.*/>new/' >>$d/mgnify_hits.a3m; done; "
         "$FOLDMILL build data_a --cache a --quiet >/dev/null 2>err");
}

static void await_log(const char *pattern) {
    char command[400];
    snprintf(command, sizeof command, "grep -q -e '%s' s.log", pattern);
    await(command);
}

/* -- names */

/* Three snapshots of two caches, fetched at once, have the same bytes as from separate servers. */
static void every_client_gets_its_snapshot(void **state) {
    (void)state;
    static const char fetch[] = "$FOLDMILL fetch --data unix:s --steps 12 --batch 4 --seed 7 "
                                "--digest --snapshot ";
    char command[1024];
    static const struct {
        const char *arguments, *alone, *name, *file;
    } rows[] = {{"--cache a", "all", "all", "a_all"},
                {"--cache a --snapshot train", "train", "train", "a_train"},
                {"--cache b", "all", "other/all", "b_all"}};
    for (size_t i = 0; i < 3; i++) {
        serve(rows[i].arguments);
        snprintf(command, sizeof command, "%s%s 2>err | grep digest >%s.alone", fetch,
                 rows[i].alone, rows[i].file);
        must(command);
        stop();
    }
    must("! cmp -s a_all.alone a_train.alone && ! cmp -s a_all.alone b_all.alone");
    serve("--cache a --snapshot all --snapshot train --cache other=b");
    int at = snprintf(command, sizeof command, "for i in 1 2 3; do ");
    for (size_t i = 0; i < 3; i++) {
        at += snprintf(command + at, sizeof command - (size_t)at,
                       "{ %s%s | grep digest >%s.$i & }; ", fetch, rows[i].name, rows[i].file);
    }
    snprintf(command + at, sizeof command - (size_t)at, "done; wait");
    must(command);
    must("for f in a_all a_train b_all; do for i in 1 2 3; do cmp $f.alone $f.$i || exit 1; done; "
         "done");
    must("$FOLDMILL fetch --data unix:s --steps 12 --batch 4 --seed 7 --digest | grep digest | "
         "cmp - a_all.alone");
    assert_int_equal(
        fm_test_shell(folder, "$FOLDMILL fetch --data unix:s --steps 1 --snapshot other 2>err"), 1);
    must("grep -q 'snapshot other is not served here; there are: all, train, other/all' err");
    must("grep -q 'hello .*snapshot=other/all generation=1' s.log");
    stop();
}

/* A token for one snapshot gets that one without asking, and is refused every other in the same
 * words, whether it exists or not. */
static void a_token_sees_its_snapshot_only(void **state) {
    (void)state;
    must("$FOLDMILL certs --out certs >/dev/null 2>err && "
         "echo 'lab 0123456789abcdef0123 snapshots=other/all' >tokens && chmod 600 tokens && "
         "echo 0123456789abcdef0123 >token && chmod 600 token");
    serve("--cache a --snapshot all --snapshot train --cache other=b --also-listen "
          "tls://127.0.0.1:0 --tls-cert certs/server.crt --tls-key certs/server.key "
          "--token-file tokens");
    await("grep -q 'address=tls' s.log");
    must("grep -o 'tls://[0-9.:]*' s.log | head -1 >url");
    must("for data in unix:s $(cat url); do "
         "$FOLDMILL fetch --data $data --tls-ca certs/ca.crt --token-file token --steps 1 "
         "2>err >out && grep -q '^snapshot  other/all ' out || exit 1; done");
    static const char *const others[] = {"all", "train", "other/none", "none"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(fm_test_shell_format(folder,
                                              "$FOLDMILL fetch --data $(cat url) --tls-ca "
                                              "certs/ca.crt --token-file token --steps 1 "
                                              "--snapshot %s >out 2>err.%zu",
                                              others[i], i),
                         1);
    }
    must("for i in 0 1 2 3; do cmp err.0 err.$i || exit 1; done; "
         "grep -q 'this access token is not for the snapshot that was asked for' err.0");
    stop();
}

/* -- takeover */

/* A stream that the test reads sample by sample. */
typedef struct reader {
    fm_client *client;
    fm_wire_opened opened;
    uint8_t *slab;
    fm_sha256 snapshot;
    uint64_t digest; /* of all samples so far, in order */
    uint32_t n;
} reader;

static void open_reader(reader *r, uint64_t seed, const fm_sha256 *snapshot) {
    fm_error error = {0};
    char url[300];
    snprintf(url, sizeof url, "unix:%s/s", folder);
    *r = (reader){0};
    fm_client_options options = {.url = url, .agent = "reader"};
    if (snapshot) options.snapshot = *snapshot;
    if (fm_client_connect(&options, &r->client, &error)) fail_msg("%s", error.message);
    r->snapshot = fm_client_get_welcome(r->client)->snapshot;
    const fm_wire_open params = {.plan = "tiny",
                                 .global_batch = BATCH,
                                 .seed = seed,
                                 .n_step = N_STEP,
                                 .n_group = 1,
                                 .order = FM_WIRE_STRICT,
                                 .policy = FM_WIRE_STOP,
                                 .credit_items = CREDIT,
                                 .credit_bytes = 1 << 24};
    if (fm_client_open(r->client, &params, &r->opened, &error)) fail_msg("%s", error.message);
    r->slab = aligned_alloc(64, (r->opened.max_sample_bytes / 64 + 1) * 64);
    assert_non_null(r->slab);
}

/* Takes `n` samples; with more than there are, also the END. */
static void take(reader *r, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        fm_client_event event;
        fm_error error = {0};
        if (fm_client_next(r->client, r->slab, r->opened.max_sample_bytes, &event, &error)) {
            fail_msg("%s", error.message);
        }
        if (event.kind == FM_CLIENT_END) {
            assert_int_equal(event.reason, FM_WIRE_DELIVERED);
            return;
        }
        assert_int_equal(event.kind, FM_CLIENT_SAMPLE);
        r->digest = r->digest * 31 + fm_xxh3(event.sample.data, event.sample.size);
        r->n++;
        assert_int_equal(fm_client_release(r->client, 1, event.sample.size, NULL), FM_OK);
    }
}

static void close_reader(reader *r) {
    fm_client_close(r->client);
    free(r->slab);
}

/* The digest of a whole stream, and the snapshot that it is of. */
static uint64_t read_all(uint64_t seed, const fm_sha256 *snapshot, fm_sha256 *ret_snapshot) {
    reader r;
    open_reader(&r, seed, snapshot);
    take(&r, N_STEP * BATCH + 1);
    assert_int_equal(r.n, N_STEP * BATCH);
    *ret_snapshot = r.snapshot;
    close_reader(&r);
    return r.digest;
}

/* Streams in mid-epoch end on what they began with, new ones see the new generation, a client that
 * lost its connection resumes by hash, and gc waits for all of them. */
static void streams_end_on_what_they_began_with(void **state) {
    (void)state;
    enum { N_READER = 3 };
    reader old[N_READER];
    fm_sha256 first, second, resumed;
    uint64_t digests[N_READER];
    serve("--cache a --http 127.0.0.1:0");
    fm_test_must_have_url(folder);
    for (uint32_t i = 0; i < N_READER; i++) {
        digests[i] = read_all(i, NULL, &first);
        open_reader(&old[i], i, NULL);
        take(&old[i], 5 + i);
    }
    build_next();
    kill(server, SIGHUP);
    await_log("snapshot snapshot=all generation=2 before=1 ");
    uint64_t of_second = read_all(0, NULL, &second);
    assert_memory_not_equal(&first, &second, sizeof first);
    assert_true(of_second != digests[0]);
    must("$FOLDMILL gc --cache a >out 2>err && grep -q '2 kept (1 in use by a server), 0 removed' "
         "out");
    must("$FOLDMILL top $(cat url) --once >out 2>err && grep -q 'all (until its streams end)' out");
    must("/usr/bin/python3 -c 'import urllib.request as u; "
         "print(u.urlopen(open(\"url\").read().strip() + \"/metrics\").read().decode())' >out && "
         "grep -q 'foldmill_snapshots_old 1' out && "
         "grep -q 'foldmill_snapshot_users{snapshot=\"all\",generation=\"1\".*old=\"1\"} 6' out && "
         "grep -q 'foldmill_snapshot_samples_total{snapshot=\"all\",generation=\"2\".*} 48' out");
    for (uint32_t i = 0; i < N_READER; i++) {
        take(&old[i], N_STEP * BATCH + 1);
        assert_int_equal(old[i].n, N_STEP * BATCH);
        assert_true(old[i].digest == digests[i]);
        close_reader(&old[i]);
    }
    await_log("let_go snapshot=all generation=1");
    assert_true(read_all(1, &first, &resumed) == digests[1]);
    assert_memory_equal(&first, &resumed, sizeof first);
    char command[300], hash[FM_SHA256_HEX];
    fm_sha256_format(&first, hash);
    await("test $(grep -c 'let_go snapshot=all generation=1' s.log) = 2");
    must("$FOLDMILL gc --cache a >out 2>err && grep -q '1 kept, 1 removed' out");
    snprintf(command, sizeof command,
             "$FOLDMILL fetch --data unix:s --steps 1 --snapshot-hash %s >out 2>err", hash);
    assert_int_equal(fm_test_shell(folder, command), 1);
    must("grep -q 'is not served, nor kept by a generation on disk; served are: all' err");
    assert_true(read_all(0, NULL, &resumed) == of_second);
    stop();
}

/* A server that was started again serves what a client began with before. */
static void a_new_server_resumes_an_old_snapshot(void **state) {
    (void)state;
    fm_sha256 first, again;
    serve("--cache a");
    uint64_t digest = read_all(5, NULL, &first);
    stop();
    build_next();
    serve("--cache a");
    must("grep -q 'listening .*generation=2 ' s.log");
    assert_true(read_all(5, &first, &again) == digest);
    assert_memory_equal(&first, &again, sizeof first);
    stop();
}

/* A damaged generation, and one that is not there, are reported; the one before is served until the
 * damage is mended. */
static void a_broken_generation_changes_nothing(void **state) {
    (void)state;
    fm_sha256 first, now;
    serve("--cache a --http 127.0.0.1:0");
    fm_test_must_have_url(folder);
    uint64_t digest = read_all(0, NULL, &first);
    reader held;
    open_reader(&held, 0, NULL);
    take(&held, 3);
    build_next();
    must("cp a/generations/00000002.index whole && printf X | dd "
         "of=a/generations/00000002.index bs=1 seek=100 conv=notrunc 2>/dev/null");
    kill(server, SIGHUP);
    await_log("takeover_failed snapshot=all generation=2 kept=1 why=");
    assert_true(read_all(0, NULL, &now) == digest);
    must("echo 7 >a/CURRENT");
    kill(server, SIGHUP);
    await_log("takeover_failed snapshot=all generation=7 kept=1 why=");
    must("echo nonsense >a/CURRENT");
    kill(server, SIGHUP);
    await_log("takeover_failed snapshot=all generation=0 kept=1 why=");
    must("$FOLDMILL top $(cat url) --once --json >out 2>err && "
         "grep -q '\"snapshots_failed_total\": 3' out");
    must("cp whole a/generations/00000002.index && echo 2 >a/CURRENT");
    kill(server, SIGHUP);
    await_log("snapshot snapshot=all generation=2 before=1 ");
    assert_true(read_all(0, NULL, &now) != digest);
    take(&held, N_STEP * BATCH + 1);
    assert_true(held.digest == digest);
    close_reader(&held);
    stop();
}

/* A server with --follow needs no signal. With --all-snapshots, new snapshots appear and deleted
 * ones go. */
static void a_server_follows_its_caches(void **state) {
    (void)state;
    serve("--cache a --cache other=b --all-snapshots --follow");
    must("grep -q 'snapshot snapshot=train generation=1 before=0 ' s.log");
    must("$FOLDMILL snapshot pin train --cache a >/dev/null 2>err");
    must("$FOLDMILL snapshot create more --min-length 1 --cache b >/dev/null 2>err");
    await_log("snapshot snapshot=other/more generation=1 before=0 ");
    must("$FOLDMILL fetch --data unix:s --steps 1 --snapshot other/more >/dev/null 2>err");
    build_next();
    await_log("snapshot snapshot=all generation=2 before=1 ");
    must("! grep -q 'snapshot snapshot=train generation=2' s.log");
    must("$FOLDMILL fetch --data unix:s --steps 1 --snapshot train >/dev/null 2>err && "
         "grep -q 'hello .*snapshot=train generation=1' s.log");
    must("rm b/snapshots/more");
    await_log("let_go snapshot=other/more generation=1");
    assert_int_equal(fm_test_shell(folder,
                                   "$FOLDMILL fetch --data unix:s --steps 1 --snapshot other/more "
                                   ">out 2>err"),
                     1);
    must("grep -q 'snapshot other/more is not served here; there are: all, train, other/all' err");
    stop();
}

static unsigned count_descriptors(void) {
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)server);
    DIR *fds = opendir(path);
    assert_non_null(fds);
    while (readdir(fds))
        n++;
    closedir(fds);
    return n;
}

/* Kilobytes of a row of /proc/PID/status. */
static long memory_of(const char *row) {
    char path[64], line[256], format[64];
    long kilobytes = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)server);
    snprintf(format, sizeof format, "%s: %%ld kB", row);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (kilobytes < 0 && fgets(line, sizeof line, file))
        (void)sscanf(line, format, &kilobytes);
    fclose(file);
    assert_true(kilobytes >= 0);
    return kilobytes;
}

static void point_at(unsigned generation) {
    assert_int_equal(
        fm_test_shell_format(folder, "echo %u >a/new && mv a/new a/CURRENT", generation), 0);
}

/* Takes over again and again, under load, with signals in the middle of a takeover. Every stream
 * has the bytes of the generation that it began with. Memory and descriptors return. */
static void a_hundred_takeovers_leave_nothing(void **state) {
    (void)state;
    fm_sha256 snapshots[2];
    uint64_t digests[2];
    serve("--cache a");
    digests[0] = read_all(3, NULL, &snapshots[0]);
    build_next();
    kill(server, SIGHUP);
    await_log("generation=2 before=1 ");
    digests[1] = read_all(3, NULL, &snapshots[1]);
    await("test $(grep -c let_go s.log) = 1");
    unsigned n_descriptor = count_descriptors();
    long resident = memory_of("VmRSS"), address_space = memory_of("VmSize");
    for (unsigned i = 0; i < N_TAKEOVER; i++) {
        char pattern[80];
        reader r;
        unsigned to = 1 + i % 2;
        open_reader(&r, 3, NULL);
        take(&r, 2);
        point_at(to);
        kill(server, SIGHUP);
        if (i % 5 == 0) kill(server, SIGHUP);
        if (i % 10 == 0) take(&r, N_STEP * BATCH + 1);
        snprintf(pattern, sizeof pattern, "test $(grep -c ' before=[12] ' s.log) = %u", i + 2);
        await(pattern);
        if (i % 10 == 0) {
            bool is_second = memcmp(&r.snapshot, &snapshots[1], sizeof r.snapshot) == 0;
            assert_true(is_second == (to == 1)); /* the reader began before the switch */
            assert_true(r.digest == digests[is_second]);
        }
        close_reader(&r);
    }
    await("test $(grep -c let_go s.log) = 101");
    assert_int_equal(count_descriptors(), n_descriptor);
    print_message("%d takeovers: resident %ld -> %ld kB, address space %ld -> %ld kB\n", N_TAKEOVER,
                  resident, memory_of("VmRSS"), address_space, memory_of("VmSize"));
    assert_true(memory_of("VmSize") < address_space + (1 << 20)); /* an index reserves 24 GiB */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(memory_of("VmRSS") < resident + (16 << 10));
#endif
    stop();
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, copy_caches, stop_server)
    const struct CMUnitTest tests[] = {
        CASE(every_client_gets_its_snapshot),      CASE(a_token_sees_its_snapshot_only),
        CASE(streams_end_on_what_they_began_with), CASE(a_new_server_resumes_an_old_snapshot),
        CASE(a_broken_generation_changes_nothing), CASE(a_server_follows_its_caches),
        CASE(a_hundred_takeovers_leave_nothing),
    };
    return cmocka_run_group_tests(tests, make_caches, drop_folder);
}
