/* bench_order.c: what a consumer waits for samples of which a few take long to make, in each order.
 *
 *     bench_order
 *
 * One of 100 samples takes 600 ms, the others none; the consumer takes one every 20 ms and receives
 * 8 ahead; the server has 10 workers. Only waits after the first 250 samples count, when the server
 * knows how long samples take. Workers and consumer sleep, so that a busy machine disturbs
 * little. */
#include "proto/base/histogram.h"
#include "proto/base/log.h"
#include "proto/client.h"
#include "server/server.h"
#include "tests/testing/source.h"
#include "tests/testing/testing.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    N_WARM = 250,
    N_SAMPLE = 800,
    STEP_MS = 20,
    SLOW_MS = 600,
    SLOW_EVERY = 100,
    N_CREDIT = 8,
    N_WORKER = 10,
    SLAB_BYTES = 1 << 18,
};

static void die(const char *what, const fm_error *error) {
    fprintf(stderr, "bench_order: %s: %s\n", what, error->message);
    exit(1);
}

static void *serve(void *argument) {
    fm_server_run(argument);
    return NULL;
}

/* Uses the samples of one stream. */
static void measure(const char *url, const char *order) {
    static _Alignas(64) uint8_t slab[SLAB_BYTES];
    const fm_client_options options = {.url = url, .agent = "bench_order"};
    fm_wire_open params = {.plan = "test",
                           .n_step = N_SAMPLE,
                           .n_group = 1,
                           .policy = FM_WIRE_STOP,
                           .credit_items = N_CREDIT,
                           .credit_bytes = 1 << 24};
    fm_wire_opened opened;
    fm_client *client;
    fm_client_event event;
    fm_error error;
    fm_histogram waits = {0};
    if (fm_wire_order_parse(order, &params.order, &params.window, &error)) die(order, &error);
    if (fm_client_connect(&options, &client, &error)) die(url, &error);
    if (fm_client_open(client, &params, &opened, &error)) die("open", &error);
    for (int i = 0; i < N_SAMPLE; i++) {
        const struct timespec step = {.tv_nsec = STEP_MS * 1000000L};
        uint64_t begin_ns = fm_clock_ns();
        if (fm_client_next(client, slab, sizeof slab, &event, &error)) die("next", &error);
        if (i >= N_WARM) fm_histogram_add(&waits, fm_clock_ns() - begin_ns);
        nanosleep(&step, NULL);
        if (fm_client_release(client, 1, event.sample.size, &error)) die("release", &error);
    }
    fm_client_close(client);
    printf("%-11s %8.1f ms in %d steps of %d ms, p99 %.1f ms, longest %.1f ms\n", order,
           (double)waits.sum * 1e-6, N_SAMPLE - N_WARM, STEP_MS,
           (double)fm_histogram_percentile(&waits, 990) * 1e-6, (double)waits.max * 1e-6);
}

int main(void) {
    static const char *const orders[] = {"strict", "bounded:32", "free"};
    char folder[200], url[256];
    fm_test_source test = {.shape = {.n_res = 16, .n_clust = 4, .n_extra = 4, .n_cycle = 1},
                           .global_batch = 1,
                           .slow_every = SLOW_EVERY,
                           .slow_ms = SLOW_MS};
    fm_sample_source source;
    fm_server *server;
    fm_error error;
    pthread_t thread;
    fm_log_set_level(FM_LOG_ERROR);
    fm_test_make_folder(folder, sizeof folder);
    snprintf(url, sizeof url, "unix:%s/socket", folder);
    fm_test_source_init(&test, &source);
    const fm_server_options options = {.listen = {url}, .n_job = N_WORKER};
    if (fm_server_create(&options, &source, &server, &error)) die("server", &error);
    if (pthread_create(&thread, NULL, serve, server) != 0) return 1;
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
        measure(url, orders[i]);
    fm_server_stop(server);
    pthread_join(thread, NULL);
    fm_server_destroy(server);
    fm_test_source_fini(&test);
    fm_test_remove_tree(folder);
    return 0;
}
