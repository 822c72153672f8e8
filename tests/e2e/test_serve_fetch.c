/* `foldmill serve` and `foldmill fetch` as a user runs them, on a synthetic dataset. The samples
 * are the same for every order, number of threads, socket and number of groups, and both programs
 * end cleanly. */
#include "proto/base/hash.h"
#include "proto/batch.h"
#include "proto/client.h"
#include "tests/testing/testing.h"

#include <fcntl.h>
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

/* Runs a shell command; `%s` stands for the test's folder, as often as it occurs. */
static int run(const char *command) {
    char text[4096];
    size_t at = 0;
    for (const char *c = command; *c; c++) {
        bool here = c[0] == '%' && c[1] == 's';
        int n = snprintf(text + at, sizeof text - at, "%.*s", here ? 200 : 1, here ? folder : c);
        at += (size_t)n;
        assert_true(at < sizeof text);
        c += here;
    }
    int status = system(text);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int make_cache(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    assert_int_equal(
        run("\"$FM_BIN\"/foldmill synth --seed 3 --chains 6 --depth 60 --max-length 120 "
            "--min-length 60 -o %s/data >/dev/null 2>&1"),
        0);
    return run("\"$FM_BIN\"/foldmill build %s/data --cache %s/cache --quiet >/dev/null 2>%s/err");
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static pid_t server;

/* Starts a server with `jobs` threads on the unix socket %s/s and a TCP port; its log goes to
 * %s/log. */
static void start_snapshot(const char *jobs, const char *snapshot) {
    char program[1024], cache[256], socket[256], log[256];
    snprintf(program, sizeof program, "%s/foldmill", getenv("FM_BIN"));
    snprintf(cache, sizeof cache, "%s/cache", folder);
    snprintf(socket, sizeof socket, "unix:%s/s", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    unlink(log); /* the log of the server before must not end the wait below */
    server = fork();
    assert_true(server >= 0);
    if (server == 0) {
        fm_test_die_with_parent();
        if (!freopen(log, "w", stderr)) _exit(99);
        execl(program, program, "serve", "--cache", cache, "--listen", socket, "--also-listen",
              "tcp://127.0.0.1:0", "--jobs", jobs, "--snapshot", snapshot, (char *)NULL);
        _exit(98);
    }
    assert_int_equal(run("for i in $(seq 300); do grep -q 'listening address=tcp' %s/log && exit 0;"
                         " sleep 0.1; done; cat %s/log >&2; exit 1"),
                     0);
}

static void start(const char *jobs) {
    start_snapshot(jobs, "all");
}

/* Ends it as a service manager would: it must go with exit code 0, and say so. */
static void stop(void) {
    int status;
    assert_int_equal(kill(server, SIGTERM), 0);
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(run("grep -q ' info stopped accepted=' %s/log"), 0);
    assert_int_equal(run("test ! -e %s/s"), 0);
}

static void the_digest_depends_on_the_samples_alone(void **state) {
    (void)state;
    static const char strict[] =
        "\"$FM_BIN\"/foldmill fetch --data unix:%s/s --steps 30 --batch 4 --seed 7 --digest "
        ">%s/strict 2>%s/err";
    static const char bounded[] =
        "\"$FM_BIN\"/foldmill fetch --data $(grep -o 'tcp://[0-9.:]*' %s/log) --steps 30 --batch 4 "
        "--seed 7 --order bounded:16 --credit 32 --digest >%s/bounded 2>%s/err";
    static const char any_order[] =
        "\"$FM_BIN\"/foldmill fetch --data unix:%s/s --steps 30 --batch 4 --seed 7 --order free "
        "--digest >%s/free 2>%s/err";
    static const char other_seed[] = "\"$FM_BIN\"/foldmill fetch --data unix:%s/s --steps 30 "
                                     "--batch 4 --seed 8 --digest >%s/other";
    start("1");
    assert_int_equal(run(strict), 0);
    assert_int_equal(run("grep digest %s/strict >%s/digest"), 0);
    assert_int_equal(run("grep -q 'samples   120, 0 skipped' %s/strict"), 0);
    stop();
    start("4");
    assert_int_equal(run(bounded), 0);
    assert_int_equal(run("grep digest %s/bounded | cmp - %s/digest"), 0);
    assert_int_equal(run(any_order), 0);
    assert_int_equal(run("grep digest %s/free | cmp - %s/digest"), 0);
    assert_int_equal(run(other_seed), 0);
    assert_int_equal(run("grep digest %s/other | cmp -s - %s/digest"), 1);
    stop();
}

/* Takes group g of G of four steps and adds each sample's hash to its index; returns how many
 * samples carry templates. */
static uint32_t take_group(const char *url, uint32_t g, uint32_t n_group, uint64_t hashes[16]) {
    fm_client *client = NULL;
    fm_error error = {0};
    fm_client_options options = {.url = url};
    if (fm_client_connect(&options, &client, &error)) fail_msg("%s", error.message);
    fm_wire_open params = {.plan = "tiny",
                           .global_batch = 4,
                           .seed = 7,
                           .n_step = 4,
                           .group = g,
                           .n_group = n_group,
                           .order = FM_WIRE_STRICT,
                           .policy = FM_WIRE_STOP,
                           .credit_items = 4,
                           .credit_bytes = 1 << 20};
    fm_wire_opened opened;
    if (fm_client_open(client, &params, &opened, &error)) fail_msg("%s", error.message);
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, opened.max_sample_bytes + (1 << 20), NULL), FM_OK);
    void *slab = fm_arena_alloc(&arena, opened.max_sample_bytes);
    uint32_t n_with_templates = 0;
    for (;;) {
        fm_client_event event;
        fm_sample sample;
        if (fm_client_next(client, slab, opened.max_sample_bytes, &event, &error)) {
            fail_msg("%s", error.message);
        }
        if (event.kind == FM_CLIENT_END) break;
        assert_int_equal(fm_sample_decode(event.sample, true, &arena, &sample, NULL), FM_OK);
        assert_true(sample.index < 16 && sample.slot % n_group == g && sample.seed == 7);
        n_with_templates += fm_sample_find(&sample, FM_T_TEMPLATE_AATYPE, FM_SHARED) != NULL;
        hashes[sample.index] += fm_xxh3(event.sample.data, event.sample.size);
        assert_int_equal(fm_client_release(client, 1, event.sample.size, NULL), FM_OK);
    }
    fm_arena_fini(&arena);
    fm_client_close(client);
    return n_with_templates;
}

static void groups_share_the_same_samples(void **state) {
    (void)state;
    uint64_t one[16] = {0}, three[16] = {0};
    char url[256];
    snprintf(url, sizeof url, "unix:%s/s", folder);
    start("2");
    uint32_t n_with_templates = take_group(url, 0, 1, one), n_of_groups = 0;
    for (uint32_t g = 0; g < 3; g++)
        n_of_groups += take_group(url, g, 3, three);
    assert_int_not_equal(n_with_templates, 0);
    assert_int_equal(n_of_groups, n_with_templates);
    for (size_t i = 0; i < 16; i++) {
        assert_int_not_equal(one[i], 0);
        assert_int_equal(one[i], three[i]);
    }
    stop();
}

static void mistakes_are_reported(void **state) {
    (void)state;
    assert_int_equal(run("\"$FM_BIN\"/foldmill serve --help | grep -q -- --listen"), 0);
    assert_int_equal(run("\"$FM_BIN\"/foldmill fetch --help | grep -q -- --digest"), 0);
    assert_int_equal(run("\"$FM_BIN\"/foldmill serve --cache %s/cache 2>/dev/null"), 2);
    assert_int_equal(
        run("\"$FM_BIN\"/foldmill serve --cache %s/none --listen unix:%s/s 2>/dev/null"), 1);
    assert_int_equal(run("\"$FM_BIN\"/foldmill serve --cache %s/cache --listen http://x 2>%s/err"),
                     2);
    assert_int_equal(run("grep -q 'expected unix:PATH, tls://HOST:PORT or tcp://HOST:PORT' %s/err"),
                     0);
    assert_int_equal(run("\"$FM_BIN\"/foldmill fetch --data tcp://host:65536 --steps 1 2>%s/err"),
                     2);
    assert_int_equal(run("grep -q 'HOST:PORT, the port a number to 65535' %s/err"), 0);
    assert_int_equal(run("\"$FM_BIN\"/foldmill fetch --data unix:%s/s --steps 1 2>%s/err"), 1);
    assert_int_equal(run("grep -q 'cannot connect to unix:' %s/err"), 0);
    start("1");
    assert_int_equal(
        run("\"$FM_BIN\"/foldmill fetch --data unix:%s/s --steps 1 --plan none 2>%s/err"), 1);
    assert_int_equal(run("grep -q \"no plan is called 'none'\" %s/err"), 0);
    assert_int_equal(
        run("\"$FM_BIN\"/foldmill fetch --data unix:%s/s --steps 1 --snapshot other 2>%s/err"), 1);
    assert_int_equal(run("grep -q 'snapshot other is not served here; there are: all' %s/err"), 0);
    assert_int_equal(run("\"$FM_BIN\"/foldmill serve --cache %s/cache --listen unix:%s/s 2>%s/err"),
                     1);
    assert_int_equal(run("grep -q 'another server listens' %s/err"), 0);
    stop();
}

/* A run that pinned its snapshot gets the same samples after others have built and cleaned up. */
static void a_pinned_snapshot_is_served_as_it_was(void **state) {
    (void)state;
    static const char fetch[] = "\"$FM_BIN\"/foldmill fetch --data unix:%s/s --steps 20 --batch 4 "
                                "--seed 7 --digest | grep digest >%s/now";
    assert_int_equal(run("\"$FM_BIN\"/foldmill snapshot create mine --cache %s/cache >/dev/null && "
                         "\"$FM_BIN\"/foldmill snapshot pin mine --cache %s/cache >/dev/null"),
                     0);
    start_snapshot("2", "mine");
    assert_int_equal(run(fetch), 0);
    assert_int_equal(run("mv %s/now %s/before"), 0);
    stop();
    assert_int_equal(
        run("cd %s/data/alignments && for d in *; do sed -n 1,2p $d/mgnify_hits.a3m | tr A-Y C | "
            "sed 's/^>.*/>new/' >> $d/mgnify_hits.a3m; done; cd %s && \"$FM_BIN\"/foldmill build "
            "data "
            "--cache cache --quiet >/dev/null 2>&1 && \"$FM_BIN\"/foldmill gc --cache cache "
            ">/dev/null "
            "&& \"$FM_BIN\"/foldmill snapshot list --cache cache | grep -q 'mine .* pinned to "
            "generation 1'"),
        0);
    start_snapshot("2", "mine");
    assert_int_equal(run("grep -q 'generation=1 ' %s/log"), 0);
    assert_int_equal(run(fetch), 0);
    assert_int_equal(run("cmp %s/now %s/before"), 0);
    stop();
    start("2");
    assert_int_equal(run("grep -q 'generation=2 ' %s/log"), 0);
    assert_int_equal(run(fetch), 0);
    assert_int_equal(run("cmp -s %s/now %s/before"), 1);
    stop();
}

/* 512 workers with the usual memory would need 2 TiB. One line tells what they have instead. */
static void memory_fits_the_machine(void **state) {
    (void)state;
    start("512");
    stop();
    assert_int_equal(run("test $(grep -c 'warn memory_[a-z]* max_memory_mib=[0-9]* "
                         "worker_memory_mib=[0-9]* jobs=512 machine_mib=[0-9]*$' %s/log) = 1 && "
                         "! grep -q 'worker_memory_mib=4096' %s/log"),
                     0);
}

/* The server's log is a pipe that nobody reads. It serves on, and SIGTERM ends it. */
static void a_log_that_nobody_reads_stops_nothing(void **state) {
    (void)state;
    char program[1024], cache[256], socket[256];
    int ends[2], status;
    snprintf(program, sizeof program, "%s/foldmill", getenv("FM_BIN"));
    snprintf(cache, sizeof cache, "%s/cache", folder);
    snprintf(socket, sizeof socket, "unix:%s/s", folder);
    assert_int_equal(pipe(ends), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
    server = fork();
    assert_true(server >= 0);
    if (server == 0) {
        fm_test_die_with_parent();
        dup2(ends[1], STDERR_FILENO);
        execl(program, program, "serve", "--cache", cache, "--listen", socket, (char *)NULL);
        _exit(98);
    }
    close(ends[1]);
    assert_int_equal(run("for i in $(seq 50); do \"$FM_BIN\"/foldmill fetch --data unix:%s/s "
                         "--steps 1 --batch 4 --wait 20000 >/dev/null || exit 1; done"),
                     0);
    assert_int_equal(kill(server, SIGTERM), 0);
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(ends[0]);
}

/* SIGTERM and SIGINT: a client in mid-stream is told, keeps what it has, and says so. */
static void a_stopping_server_tells_its_clients(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < 2; i++) {
        int status;
        start("2");
        assert_int_equal(run("\"$FM_BIN\"/foldmill fetch --data unix:%s/s --steps 1000000000 "
                             "--credit 2 >%s/fetched 2>%s/err & echo $! >%s/pid; "
                             "until grep -q ' stream=1 ' %s/log; do sleep 0.05; done"),
                         0);
        assert_int_equal(kill(server, signals[i]), 0);
        assert_int_equal(waitpid(server, &status, 0), server);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(run("while kill -0 $(cat %s/pid) 2>/dev/null; do sleep 0.05; done; "
                             "grep -q 'the server stopped before the end' %s/fetched && "
                             "grep -q 'stream_end .*stream=1 .*why=.the server stops' %s/log && "
                             "test ! -s %s/err"),
                         0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_digest_depends_on_the_samples_alone),
        cmocka_unit_test(groups_share_the_same_samples),
        cmocka_unit_test(mistakes_are_reported),
        cmocka_unit_test(memory_fits_the_machine),
        cmocka_unit_test(a_pinned_snapshot_is_served_as_it_was),
        cmocka_unit_test(a_log_that_nobody_reads_stops_nothing),
        cmocka_unit_test(a_stopping_server_tells_its_clients),
    };
    return cmocka_run_group_tests(tests, make_cache, drop_folder);
}
