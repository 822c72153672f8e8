/* Tests several `foldmill serve` processes in one list of addresses. One is killed in mid-epoch;
 * then all are killed and start again. A consumer in C and `foldmill fetch` receive every sample
 * exactly once, with the bytes that a single server sends. */
#include "proto/base/hash.h"
#include "proto/batch.h"
#include "proto/supply.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/testing/must.h"

enum { N_SERVER = 3, N_STEP = 40, BATCH = 4, N_ALL = N_STEP * BATCH };

static char folder[200];
static pid_t server[N_SERVER];

static void must(const char *command) {
    fm_test_must(folder, command, "s*.log out err");
}

static int make_cache(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    must("$FOLDMILL synth --seed 5 --chains 6 --depth 60 --max-length 120 --min-length 60 -o data "
         ">/dev/null 2>err && $FOLDMILL build data --cache cache --quiet >/dev/null 2>err");
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static void start(int i) {
    char socket[8], arguments[64];
    snprintf(socket, sizeof socket, "s%d", i);
    snprintf(arguments, sizeof arguments, "--cache cache --jobs %d", i + 1);
    server[i] = fm_test_serve(folder, socket, arguments);
}

static void stop(int i, int signal_number) {
    fm_test_stop(server[i], signal_number);
    server[i] = 0;
}

static int stop_all(void **state) {
    (void)state;
    for (int i = 0; i < N_SERVER; i++) {
        if (server[i]) stop(i, SIGKILL);
    }
    return 0;
}

static int start_all(void **state) {
    (void)state;
    for (int i = 0; i < N_SERVER; i++)
        start(i);
    return 0;
}

/* -- a consumer */

typedef struct consumer {
    fm_supply *supply;
    fm_wire_opened opened;
    fm_arena arena;
    void *slab;
    uint64_t hash[N_ALL];
    uint32_t n;
} consumer;

static void begin(consumer *c, const char *urls, fm_wire_order order, uint32_t window) {
    const fm_supply_options options = {.client = {.url = urls, .agent = "consumer"},
                                       .resume_ms = 60000};
    const fm_wire_open params = {.plan = "tiny",
                                 .global_batch = BATCH,
                                 .seed = 7,
                                 .n_step = N_STEP,
                                 .n_group = 1,
                                 .order = order,
                                 .window = window,
                                 .policy = FM_WIRE_STOP,
                                 .credit_items = 4,
                                 .credit_bytes = 1 << 20};
    fm_error error;
    memset(c, 0, sizeof *c);
    if (fm_supply_open(&options, &params, &c->supply, &c->opened, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(fm_arena_init(&c->arena, c->opened.max_sample_bytes + (2 << 20), NULL), FM_OK);
    c->slab = fm_arena_alloc(&c->arena, c->opened.max_sample_bytes);
}

/* Takes samples until `upto` have come in all. */
static void take(consumer *c, uint32_t upto) {
    for (; c->n < upto; c->n++) {
        fm_client_event event;
        fm_error error;
        fm_sample head;
        if (fm_supply_next(c->supply, c->slab, c->opened.max_sample_bytes, &event, &error)) {
            fail_msg("after %u samples: %s", c->n, error.message);
        }
        assert_int_equal(event.kind, FM_CLIENT_SAMPLE);
        assert_int_equal(fm_sample_decode_head(event.sample, &head, NULL), FM_OK);
        assert_true(head.index < N_ALL && c->hash[head.index] == 0);
        c->hash[head.index] = fm_xxh3(event.sample.data, event.sample.size);
        fm_supply_release(c->supply, 1, event.sample.size);
    }
}

static int current_of(const consumer *c) {
    for (uint32_t i = 0; i < N_SERVER; i++) {
        const fm_supply_server told = fm_supply_get_server(c->supply, i);
        if (told.is_current) return told.url[strlen(told.url) - 1] - '0';
    }
    fail_msg("no server is the current one");
    return -1;
}

static void end(consumer *c, uint64_t out[N_ALL]) {
    take(c, N_ALL);
    memcpy(out, c->hash, sizeof c->hash);
    fm_supply_close(c->supply);
    fm_arena_fini(&c->arena);
}

static const char *list_of_all(char out[1024]) {
    snprintf(out, 1024, "unix:%s/s0,%s/s1, unix:%s/s2", folder, folder, folder);
    return out;
}

/* -- tests */

static void killed_servers_lose_and_repeat_nothing(void **state) {
    (void)state;
    static const struct {
        fm_wire_order order;
        uint32_t window;
    } orders[] = {{FM_WIRE_STRICT, 0}, {FM_WIRE_BOUNDED, 8}, {FM_WIRE_FREE, 0}};
    static uint64_t expected[N_ALL], got[N_ALL];
    static consumer c;
    char urls[1024], one[256];
    snprintf(one, sizeof one, "unix:%s/s1", folder);
    begin(&c, one, FM_WIRE_STRICT, 0);
    end(&c, expected);
    for (size_t k = 0; k < sizeof orders / sizeof orders[0]; k++) {
        begin(&c, list_of_all(urls), orders[k].order, orders[k].window);
        take(&c, 30);
        stop(current_of(&c), SIGKILL);
        take(&c, 60);
        for (int i = 0; i < N_SERVER; i++) {
            if (server[i]) stop(i, i == 1 ? SIGTERM : SIGKILL);
        }
        start_all(NULL);
        end(&c, got);
        assert_memory_equal(got, expected, sizeof got);
    }
}

/* `foldmill fetch` over three servers, of which the first is not there. */
static void fetch_takes_a_list(void **state) {
    (void)state;
    stop(0, SIGKILL);
    must("$FOLDMILL fetch --data unix:s1 --seed 7 --batch 4 --steps 100 --digest >one 2>err");
    must("$FOLDMILL fetch --data unix:s0,s1,s2 --seed 7 --batch 4 --steps 100 --digest >out 2>err");
    must("grep digest one >1 && grep digest out | cmp - 1");
    must("grep -q 'samples   400, 0 skipped' out && grep -q 'server    unix:s0  0 samples' out && "
         "grep -q 'server    unix:s1  [1-9]' out");
}

/* A trainer whose server is killed between two steps ends with the bits of one that lost none. */
static void a_run_goes_on_from_another_server(void **state) {
    (void)state;
    static const char train[] =
        "foldmill train --seed 3 --config small.ini --ahead 2 --steps 40 -q";
    must("printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\n[data]\\ncrop_size = 24\\n"
         "max_msa_clusters = 8\\nglobal_batch = 1\\n' >small.ini");
    assert_int_equal(
        fm_test_shell_format(folder, "%s --data unix:s2 --out plain >out 2>err", train), 0);
    int code = fm_test_shell_format(
        folder,
        "%s --data unix:s0,s1 --out lost >out 2>err & run=$!; "
        "for i in $(seq 6000); do test -s lost/metrics.jsonl && break; sleep 0.01; done; "
        "kill -9 %d; wait $run",
        train, (int)server[0]);
    if (code) fail_msg("code %d", code);
    stop(0, SIGKILL);
    must("cmp plain/checkpoint-*40.safetensors lost/checkpoint-*40.safetensors && "
         "grep -q 'warn server_changed from=unix:s0 to=unix:s1' err");
}

static void what_is_wrong_with_a_list_is_said(void **state) {
    (void)state;
    assert_int_equal(
        fm_test_shell(folder, "$FOLDMILL fetch --data unix:s0,unix:s0 --steps 1 2>err"), 2);
    must("grep -q 'unix:s0 is listed twice' err");
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL fetch --data unix:none,s9 --steps 1 2>err"),
                     1);
    must("grep -q 'cannot connect to unix:' err");
    assert_int_equal(
        fm_test_shell(folder, "$FOLDMILL fetch --data unix:none,s0 --plan no --steps 1 2>err"), 1);
    must("grep -q \"no plan is called 'no'\" err");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_servers_lose_and_repeat_nothing, start_all,
                                        stop_all),
        cmocka_unit_test_setup_teardown(fetch_takes_a_list, start_all, stop_all),
        cmocka_unit_test_setup_teardown(a_run_goes_on_from_another_server, start_all, stop_all),
        cmocka_unit_test_setup_teardown(what_is_wrong_with_a_list_is_said, start_all, stop_all),
    };
    return cmocka_run_group_tests(tests, make_cache, drop_folder);
}
