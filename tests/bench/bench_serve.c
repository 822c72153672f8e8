/* bench_serve.c: measures samples and bytes per second of a server and one client in one process.
 *
 *     bench_serve [--cache DIR] [--jobs N] [--seconds S] [--rounds N]
 *
 * Serving alone: the source copies one synthetic sample of the size in the table. This measures
 * queueing, framing, the socket and the client. The bound is measured in the same run, between two
 * rounds. One thread sends buffers of the same size over the same kind of socket, and another
 * receives them into a slab. With --cache it also measures samples made from a cache (tiny and
 * af2-initial), where making them is the cost. Figures are medians over rounds of S seconds; waits
 * are those of all rounds. */
#include "proto/address.h"
#include "proto/base/histogram.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "proto/client.h"
#include "server/server.h"
#include "server/source_cache.h"
#include "tests/testing/source.h"
#include "tests/testing/testing.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUNDS_MAX = 101, N_CREDIT = 16 };

typedef struct bench_settings {
    const char *cache;
    uint64_t jobs, rounds;
    double seconds;
} bench_settings;

typedef struct bench_row {
    double samples_per_s, gb_per_s, bound_gb_per_s;
    double mb_per_sample;
    fm_histogram waits; /* ns */
} bench_row;

static void die(const char *what, const fm_error *error) {
    fprintf(stderr, "bench_serve: %s: %s\n", what, error ? error->message : "");
    exit(1);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, compare_doubles);
    return values[n / 2];
}

static double seconds_since(uint64_t start_ns) {
    return (double)(fm_clock_ns() - start_ns) * 1e-9;
}

static uint8_t *slab_of(size_t bytes) {
    uint8_t *slab = aligned_alloc(4096, (bytes / 4096 + 1) * 4096);
    if (!slab) die("no memory for a slab", NULL);
    memset(slab, 1, bytes);
    return slab;
}

/* -- the bound: bytes through the same kind of socket */

typedef struct pipe_run {
    fm_address address; /* where it listens */
    int listening;
    size_t bytes; /* size of a buffer */
    _Atomic bool is_over;
} pipe_run;

static void *send_buffers(void *argument) {
    pipe_run *run = argument;
    struct pollfd wait = {.fd = run->listening, .events = POLLIN};
    int fd = poll(&wait, 1, 5000) > 0 ? accept(run->listening, NULL, NULL) : -1;
    uint8_t *from = slab_of(run->bytes);
    bool open = fd >= 0;
    while (open && !atomic_load(&run->is_over)) {
        for (size_t sent = 0; open && sent < run->bytes;) {
            ssize_t n = send(fd, from + sent, run->bytes - sent, MSG_NOSIGNAL);
            open = n > 0;
            if (open) sent += (size_t)n;
        }
    }
    close(fd);
    free(from);
    return NULL;
}

/* GB/s. */
static double measure_bound(const char *url, size_t bytes, double seconds) {
    pipe_run run = {.bytes = bytes};
    fm_address asked;
    fm_error error;
    int fd = -1;
    if (fm_address_parse(url, &asked, &error)) die(url, &error);
    if (fm_address_listen(&asked, &run.listening, &run.address, &error)) die(url, &error);
    if (fm_address_connect(&run.address, 1000, &fd, &error)) die(url, &error);
    if (fcntl(fd, F_SETFL, 0) < 0) die("cannot make a socket blocking", NULL);
    pthread_t thread;
    if (pthread_create(&thread, NULL, send_buffers, &run)) die("cannot start a thread", NULL);
    uint8_t *slab = slab_of(bytes);
    uint64_t total = 0, start = fm_clock_ns();
    while (seconds_since(start) < seconds) {
        ssize_t n = recv(fd, slab + total % bytes, bytes - total % bytes, 0);
        if (n > 0) total += (uint64_t)n;
    }
    double rate = (double)total * 1e-9 / seconds_since(start);
    atomic_store(&run.is_over, true);
    close(fd);
    pthread_join(thread, NULL);
    close(run.listening);
    if (run.address.kind == FM_ADDRESS_UNIX) unlink(run.address.path);
    free(slab);
    return rate;
}

/* -- a server and its client */

static void *run_server(void *server) {
    fm_server_run(server);
    return NULL;
}

static fm_client *open_client(const char *url, const char *plan, fm_wire_opened *opened) {
    fm_client *client;
    fm_error error;
    const fm_client_options options = {.url = url, .agent = "bench"};
    fm_wire_open params = {.n_group = 1,
                           .order = FM_WIRE_STRICT,
                           .policy = FM_WIRE_STOP,
                           .credit_items = N_CREDIT,
                           .credit_bytes = FM_LIMIT_CREDIT_BYTES / 2};
    fm_wire_text(params.plan, sizeof params.plan, plan);
    if (fm_client_connect(&options, &client, &error)) die(url, &error);
    if (fm_client_open(client, &params, opened, &error)) die(plan, &error);
    return client;
}

/* Receives samples for some seconds; returns how many per second. */
static double take(fm_client *client, uint8_t *slab, size_t capacity, double seconds,
                   bench_row *row) {
    uint64_t n = 0, bytes = 0, start = fm_clock_ns();
    while (seconds_since(start) < seconds) {
        fm_client_event event;
        fm_error error;
        if (fm_client_next(client, slab, capacity, &event, &error)) die("next", &error);
        if (event.kind != FM_CLIENT_SAMPLE) die("the stream ended", NULL);
        if (fm_client_release(client, 1, event.sample.size, &error)) die("release", &error);
        fm_histogram_add(&row->waits, event.wait_ns);
        n++;
        bytes += event.sample.size;
    }
    row->mb_per_sample = (double)bytes * 1e-6 / (double)n;
    return (double)n / seconds_since(start);
}

static void measure(const bench_settings *set, const fm_sample_source *source, const char *listen,
                    const char *plan, bool with_bound, bench_row *row) {
    fm_server_options options = {
        .listen = {listen}, .n_job = (uint32_t)set->jobs, .worker_memory_bytes = (size_t)4 << 30};
    fm_server *server;
    fm_error error;
    if (fm_server_create(&options, source, &server, &error)) die(listen, &error);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_server, server)) die("cannot start a thread", NULL);
    fm_wire_opened opened;
    fm_client *client = open_client(fm_server_get_address(server, 0), plan, &opened);
    uint8_t *slab = slab_of(opened.max_sample_bytes);
    bench_row warm = {0};
    (void)take(client, slab, opened.max_sample_bytes, set->seconds / 2, &warm);
    double rates[ROUNDS_MAX], bounds[ROUNDS_MAX];
    char bound_url[FM_ADDRESS_TEXT_BYTES];
    snprintf(bound_url, sizeof bound_url, "%s%s", listen,
             strncmp(listen, "unix:", 5) == 0 ? ".bound" : "");
    for (uint64_t r = 0; r < set->rounds; r++) {
        rates[r] = take(client, slab, opened.max_sample_bytes, set->seconds, row);
        bounds[r] = with_bound
                        ? measure_bound(bound_url, (size_t)(row->mb_per_sample * 1e6), set->seconds)
                        : 0;
    }
    row->samples_per_s = median(rates, set->rounds);
    row->gb_per_s = row->samples_per_s * row->mb_per_sample * 1e-3;
    row->bound_gb_per_s = median(bounds, set->rounds);
    fm_client_close(client);
    fm_server_stop(server);
    pthread_join(thread, NULL);
    fm_server_destroy(server);
    free(slab);
}

/* -- the table */

static void print_head(void) {
    printf("%-22s %-6s %10s %12s %9s %11s %7s %12s %12s\n", "samples", "socket", "MB each",
           "samples/s", "GB/s", "bound GB/s", "ratio", "wait p50 us", "wait p99 us");
}

static void print_row(const char *name, const char *socket, const bench_row *row) {
    printf("%-22s %-6s %10.3f %12.1f %9.3f ", name, socket, row->mb_per_sample, row->samples_per_s,
           row->gb_per_s);
    if (row->bound_gb_per_s > 0) {
        printf("%11.3f %7.2f ", row->bound_gb_per_s, row->gb_per_s / row->bound_gb_per_s);
    } else {
        printf("%11s %7s ", "-", "-");
    }
    printf("%12.1f %12.1f\n", (double)fm_histogram_percentile(&row->waits, 500) * 1e-3,
           (double)fm_histogram_percentile(&row->waits, 990) * 1e-3);
    fflush(stdout);
}

static void bench_serving_alone(const bench_settings *set, const char *unix_url) {
    static const struct {
        const char *name;
        fm_test_shape shape;
    } sizes[] = {
        {"copied, 4 KB", {.n_res = 4, .n_clust = 4, .n_extra = 4, .n_cycle = 1}},
        {"copied, tiny", {.n_res = 64, .n_clust = 32, .n_extra = 64, .n_cycle = 2}},
        {"copied, af2-initial", {.n_res = 256, .n_clust = 124, .n_extra = 1024, .n_cycle = 4}},
    };
    const char *const urls[] = {unix_url, "tcp://127.0.0.1:0"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        fm_test_source test = {.shape = sizes[i].shape, .global_batch = 8, .copies = true};
        fm_sample_source source;
        fm_test_source_init(&test, &source);
        for (size_t u = 0; u < 2; u++) {
            bench_row row = {0};
            measure(set, &source, urls[u], "test", true, &row);
            print_row(sizes[i].name, u ? "tcp" : "unix", &row);
        }
        fm_test_source_fini(&test);
    }
}

static void bench_cache(const bench_settings *set, const char *unix_url) {
    fm_cache_source *cache;
    fm_sample_source source;
    fm_error error;
    if (fm_cache_source_open(set->cache, "all", &cache, &source, &error)) die(set->cache, &error);
    static const char *const plans[] = {"tiny", "af2-initial"};
    for (size_t i = 0; i < 2; i++) {
        bench_row row = {0};
        char name[64];
        snprintf(name, sizeof name, "cache, %s", plans[i]);
        measure(set, &source, unix_url, plans[i], false, &row);
        print_row(name, "unix", &row);
    }
    fm_cache_source_close(cache);
}

int main(int argc, char **argv) {
    bench_settings set = {.jobs = 2, .rounds = 5, .seconds = 0.5};
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &set.cache, "DIR", .help = "also serve from this cache"},
        {"jobs", FM_OPTION_U64, &set.jobs, "N", .help = "worker threads (2)", .min = 1, .max = 512},
        {"rounds", FM_OPTION_U64, &set.rounds, "N", .help = "rounds of each row (5)", .min = 1,
         .max = ROUNDS_MAX},
        {"seconds", FM_OPTION_F64, &set.seconds, "S", .help = "length of a round (0.5)"},
        {0}};
    const fm_command command = {.program = "bench_serve",
                                .arguments = "[options]",
                                .summary = "serving over sockets",
                                .description = "See the head of tests/bench/bench_serve.c.",
                                .options = options};
    int n_positional;
    fm_error error;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (status == FM_ERR_CANCELLED) return 0;
    if (status) die("usage", &error);
    char folder[200], unix_url[256];
    fm_log_set_level(FM_LOG_ERROR);
    fm_test_make_folder(folder, sizeof folder);
    snprintf(unix_url, sizeof unix_url, "unix:%s/s", folder);
    print_head();
    bench_serving_alone(&set, unix_url);
    if (set.cache) bench_cache(&set, unix_url);
    fm_test_remove_tree(folder);
    return 0;
}
