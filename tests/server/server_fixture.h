/* server_fixture.h: a server that runs in its own thread with a generated source and listens on a
 * unix socket and on TCP, and clients for it that assert. Only test programs include it. */
#ifndef FM_TESTS_SERVER_FIXTURE_H
#define FM_TESTS_SERVER_FIXTURE_H

#include "proto/address.h"
#include "proto/base/log.h"
#include "proto/client.h"
#include "server/counters.h"
#include "server/server.h"
#include "tests/testing/source.h"
#include "tests/testing/testing.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

typedef struct server_fixture {
    char folder[200];
    char unix_url[256];
    const char *tcp_url;
    fm_test_source test;
    fm_sample_source source;
    fm_server_options options;
    fm_server *server;
    pthread_t thread;
} server_fixture;

static inline void sleep_ms(uint32_t ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

/* Defaults that a test may change before server_start. */
static inline void server_prepare(server_fixture *f) {
    memset(f, 0, sizeof *f);
    fm_log_set_level(getenv("FM_TEST_LOG") ? FM_LOG_INFO : FM_LOG_ERROR);
    fm_test_make_folder(f->folder, sizeof f->folder);
    snprintf(f->unix_url, sizeof f->unix_url, "unix:%s/socket", f->folder);
    f->test.shape = (fm_test_shape){.n_res = 16, .n_clust = 4, .n_extra = 4, .n_cycle = 1};
    f->test.global_batch = 8;
    f->options.listen[0] = f->unix_url;
    f->options.listen[1] = "tcp://127.0.0.1:0";
    f->options.n_job = 2;
    f->options.goodbye_ms = 500;
}

static void *server_thread(void *argument) {
    fm_server_run(argument);
    return NULL;
}

static inline void server_start(server_fixture *f) {
    fm_error error = {0};
    fm_test_source_init(&f->test, &f->source);
    if (fm_server_create(&f->options, &f->source, &f->server, &error)) {
        fail_msg("%s", error.message);
    }
    f->tcp_url = fm_server_get_address(f->server, 1);
    assert_int_equal(pthread_create(&f->thread, NULL, server_thread, f->server), 0);
}

/* Stops the server and checks that nothing is left of any client. */
static inline void server_finish(server_fixture *f) {
    fm_server_stats stats;
    fm_server_stop(f->server);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    fm_server_get_stats(f->server, &stats);
    assert_int_equal(stats.n_connection, 0);
    assert_int_equal(stats.n_stream, 0);
    assert_int_equal(stats.memory_bytes, 0);
    fm_server_destroy(f->server);
    assert_int_equal(f->test.n_plan, 0);
    fm_test_source_fini(&f->test);
    fm_test_remove_tree(f->folder);
}

/* Waits until the server has `n` connections; fails after ten seconds. */
static inline void await_connections(server_fixture *f, uint64_t n) {
    fm_server_stats stats;
    for (int i = 0; i < 1000; i++) {
        fm_server_get_stats(f->server, &stats);
        if (stats.n_connection == n) return;
        sleep_ms(10);
    }
    fail_msg("%llu connections, expected %llu", (unsigned long long)stats.n_connection,
             (unsigned long long)n);
}

static inline uint64_t counter(const server_fixture *f, fm_counter which) {
    return fm_counter_read(fm_server_get_counters(f->server), which);
}

/* Waits until a counter has the value; fails after a minute. */
static inline void await_counter(const server_fixture *f, fm_counter which, uint64_t value) {
    for (int i = 0; i < 6000; i++) {
        if (counter(f, which) == value) return;
        sleep_ms(10);
    }
    fail_msg("%s is %llu, expected %llu", fm_counter_rows[which].name,
             (unsigned long long)counter(f, which), (unsigned long long)value);
}

static inline fm_wire_open stream_of(uint64_t n_step) {
    return (fm_wire_open){.plan = "test",
                          .seed = 42,
                          .n_step = n_step,
                          .n_group = 1,
                          .order = FM_WIRE_STRICT,
                          .policy = FM_WIRE_STOP,
                          .credit_items = 4,
                          .credit_bytes = 1 << 20};
}

static inline fm_client *connect_to(const char *url) {
    fm_client *client = NULL;
    fm_error error = {0};
    fm_client_options options = {.url = url, .agent = "test"};
    if (fm_client_connect(&options, &client, &error)) fail_msg("%s", error.message);
    return client;
}

static inline fm_wire_opened open_on(fm_client *client, const fm_wire_open *params) {
    fm_wire_opened opened = {0};
    fm_error error = {0};
    if (fm_client_open(client, params, &opened, &error)) fail_msg("%s", error.message);
    return opened;
}

enum { SLAB_BYTES = 1 << 18 };

typedef struct slab {
    _Alignas(64) uint8_t bytes[SLAB_BYTES];
} slab;

static inline fm_client_event next_on(fm_client *client, slab *into) {
    fm_client_event event = {0};
    fm_error error = {0};
    if (fm_client_next(client, into->bytes, sizeof into->bytes, &event, &error)) {
        fail_msg("%s", error.message);
    }
    return event;
}

static inline void release_on(fm_client *client, const fm_client_event *event) {
    fm_error error = {0};
    if (fm_client_release(client, 1, event->sample.size, &error)) fail_msg("%s", error.message);
}

/* Checks that the event is sample `index`, byte for byte. */
static inline void assert_sample(const fm_test_source *test, const fm_client_event *event,
                                 uint64_t seed, uint64_t index, uint32_t global_batch) {
    fm_arena arena;
    fm_sample sample;
    assert_int_equal(fm_arena_init(&arena, 16 << 20, NULL), FM_OK);
    fm_test_sample(&test->shape, seed, index, global_batch, &arena, &sample);
    fm_bytes expected = fm_test_sample_bytes(&sample, &arena);
    assert_int_equal(event->kind, FM_CLIENT_SAMPLE);
    assert_int_equal(event->sample.size, expected.size);
    assert_memory_equal(event->sample.data, expected.data, expected.size);
    fm_arena_fini(&arena);
}

/* The index a sample carries, after a full check. */
static inline uint64_t index_of(const fm_client_event *event) {
    fm_arena arena;
    fm_sample sample;
    fm_error error = {0};
    assert_int_equal(event->kind, FM_CLIENT_SAMPLE);
    assert_int_equal(fm_arena_init(&arena, 1 << 20, NULL), FM_OK);
    if (fm_sample_decode(event->sample, true, &arena, &sample, &error)) {
        fail_msg("%s", error.message);
    }
    uint64_t index = sample.index;
    fm_arena_fini(&arena);
    return index;
}

#endif
