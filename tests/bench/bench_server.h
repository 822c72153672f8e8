/* bench_server.h: the code that benchmarks of a running server share: the server in a thread, and a
 * client that receives for some seconds. Only one source file of a program may include it. */
#ifndef FM_TESTS_BENCH_SERVER_H
#define FM_TESTS_BENCH_SERVER_H

#include "proto/base/histogram.h"
#include "proto/client.h"
#include "server/server.h"
#include "tests/bench/bench_time.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void die(const char *what, const fm_error *error) {
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
            error ? error->message : "");
    exit(1);
}

static inline double seconds_since(uint64_t start_ns) {
    return (double)(fm_clock_ns() - start_ns) * 1e-9;
}

static inline uint8_t *slab_of(size_t bytes) {
    uint8_t *slab = aligned_alloc(4096, (bytes / 4096 + 1) * 4096);
    if (!slab) die("no memory for a slab", NULL);
    memset(slab, 1, bytes);
    return slab;
}

/* -- the server */

typedef struct bench_server {
    fm_server *server;
    pthread_t thread;
} bench_server;

static inline void *run_server(void *server) {
    fm_server_run(server);
    return NULL;
}

static inline bench_server start_server(const fm_server_options *options,
                                        fm_sample_source *source) {
    bench_server bench;
    fm_error error;
    if (fm_server_create(options, source, &bench.server, &error)) die("server", &error);
    if (pthread_create(&bench.thread, NULL, run_server, bench.server)) {
        die("cannot start a thread", NULL);
    }
    return bench;
}

static inline void stop_server(bench_server *bench) {
    fm_server_stop(bench->server);
    pthread_join(bench->thread, NULL);
    fm_server_destroy(bench->server);
}

/* -- a client */

/* A client with one stream, and the slab that it receives into. */
typedef struct bench_client {
    fm_client *client;
    uint8_t *slab;
    size_t capacity;
} bench_client;

/* `ca` is for tls://, or NULL. */
static inline bench_client open_client(const char *url, const char *ca, const char *plan,
                                       uint32_t n_credit) {
    bench_client bench;
    fm_error error;
    fm_wire_opened opened;
    const fm_client_options options = {.url = url, .agent = "bench", .credentials = {.tls_ca = ca}};
    fm_wire_open params = {.n_group = 1,
                           .order = FM_WIRE_STRICT,
                           .policy = FM_WIRE_STOP,
                           .credit_items = n_credit,
                           .credit_bytes = FM_LIMIT_CREDIT_BYTES / 2};
    fm_wire_text(params.plan, sizeof params.plan, plan);
    if (fm_client_connect(&options, &bench.client, &error)) die(url, &error);
    if (fm_client_open(bench.client, &params, &opened, &error)) die(plan, &error);
    bench.capacity = opened.max_sample_bytes;
    bench.slab = slab_of(bench.capacity);
    return bench;
}

static inline void close_client(bench_client *bench) {
    fm_client_close(bench->client);
    free(bench->slab);
}

typedef struct bench_take {
    uint64_t n, n_byte; /* samples, and their bytes */
    double per_s;       /* samples */
} bench_take;

/* Receives samples for some seconds, and adds their waits in ns to `waits`, unless it is NULL. */
static inline bench_take take_for(bench_client *bench, double seconds, fm_histogram *waits) {
    bench_take taken = {0};
    uint64_t start = fm_clock_ns();
    while (seconds_since(start) < seconds) {
        fm_client_event event;
        fm_error error;
        fm_status status =
            fm_client_next(bench->client, bench->slab, bench->capacity, &event, &error);
        if (status) die("next", &error);
        if (event.kind != FM_CLIENT_SAMPLE) die("the stream ended", NULL);
        if (fm_client_release(bench->client, 1, event.sample.size, &error)) die("release", &error);
        if (waits) fm_histogram_add(waits, event.wait_ns);
        taken.n++;
        taken.n_byte += event.sample.size;
    }
    taken.per_s = (double)taken.n / seconds_since(start);
    return taken;
}

#endif
