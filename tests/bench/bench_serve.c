/* bench_serve.c: measures samples and bytes per second of a server and one client in one process.
 *
 *     bench_serve [--cache DIR] [--jobs N] [--seconds S] [--rounds N]
 *
 * Serving alone: the source copies one synthetic sample of the size in the table. This measures
 * queueing, framing, the socket and the client. The bound is measured in the same run, between two
 * rounds. One thread sends buffers of the same size over the same kind of socket, and another
 * receives them into a slab. The bound of TLS is AES-128-GCM by OpenSSL's EVP: one thread encrypts
 * buffers of the same size in pieces as large as TLS's records. With --cache it also measures
 * samples made from a cache (tiny and af2-initial), where making them is the cost. Figures are
 * medians over rounds of S seconds; waits are those of all rounds. Processor time per GB, of the
 * server's loop and of the client, says what a busy machine would give when it is idle. */
#include "proto/address.h"
#include "proto/base/certificates.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "server/source_cache.h"
#include "tests/bench/bench_server.h"
#include "tests/testing/source.h"
#include "tests/testing/testing.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { N_CREDIT = 16 };

/* Certificates for tls://127.0.0.1. */
typedef struct bench_certificates {
    char ca[256], ca_key[256], cert[256], key[256];
} bench_certificates;

typedef struct bench_settings {
    const char *cache;
    uint64_t jobs, rounds;
    double seconds;
    bench_certificates certificates;
} bench_settings;

typedef struct bench_row {
    double samples_per_s, gb_per_s, bound_gb_per_s;
    double mb_per_sample;
    double server_s_per_gb, client_s_per_gb; /* processor time of the loop, and of the client */
    fm_histogram waits;                      /* ns */
} bench_row;

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

/* -- the bound of TLS */

/* GB/s. */
static double measure_cipher(size_t bytes, double seconds) {
    enum { RECORD = 16384, TAG = 16 };
    static const uint8_t key[16] = {1}, nonce[12] = {2};
    uint8_t *from = slab_of(bytes), out[RECORD + TAG];
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    if (!cipher || EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), NULL, key, nonce) != 1) {
        die("no AES-128-GCM", NULL);
    }
    uint64_t total = 0, start = fm_clock_ns();
    while (seconds_since(start) < seconds) {
        for (size_t at = 0; at < bytes; at += RECORD) {
            int n = bytes - at < RECORD ? (int)(bytes - at) : RECORD, put, rest;
            bool done = EVP_EncryptInit_ex(cipher, NULL, NULL, NULL, nonce) == 1 &&
                        EVP_EncryptUpdate(cipher, out, &put, from + at, n) == 1 &&
                        EVP_EncryptFinal_ex(cipher, out + put, &rest) == 1 &&
                        EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, TAG, out + n) == 1;
            if (!done) die("AES-128-GCM", NULL);
        }
        total += bytes;
    }
    double rate = (double)total * 1e-9 / seconds_since(start);
    EVP_CIPHER_CTX_free(cipher);
    free(from);
    return rate;
}

static bench_certificates make_certificates(const char *folder) {
    static const char *const hosts[] = {"127.0.0.1"};
    bench_certificates made;
    fm_error error;
    snprintf(made.ca, sizeof made.ca, "%s/ca.crt", folder);
    snprintf(made.ca_key, sizeof made.ca_key, "%s/ca.key", folder);
    snprintf(made.cert, sizeof made.cert, "%s/server.crt", folder);
    snprintf(made.key, sizeof made.key, "%s/server.key", folder);
    int64_t now_s = (int64_t)time(NULL);
    fm_certificate_request request = {.kind = FM_CERTIFICATE_AUTHORITY,
                                      .name = "bench authority",
                                      .from_s = now_s - 3600,
                                      .until_s = now_s + 86400};
    const fm_certificate_files ca = {made.ca, made.ca_key}, server = {made.cert, made.key};
    if (fm_certificate_make(&request, NULL, &ca, &error)) die("certificates", &error);
    request.kind = FM_CERTIFICATE_SERVER;
    request.hosts = hosts;
    request.n_host = 1;
    if (fm_certificate_make(&request, &ca, &server, &error)) die("certificates", &error);
    return made;
}

/* -- a server and its client */

/* Seconds of processor time that a thread has used. */
static double thread_seconds(pthread_t thread) {
    clockid_t clock;
    struct timespec used = {0};
    if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &used)) {
        die("no clock of a thread", NULL);
    }
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

/* Receives samples for some seconds; returns how many per second. */
static double take(bench_client *client, double seconds, bench_row *row) {
    bench_take taken = take_for(client, seconds, &row->waits);
    row->mb_per_sample = (double)taken.n_byte * 1e-6 / (double)taken.n;
    return taken.per_s;
}

/* GB/s: what the kind of address cannot exceed. */
static double measure_address(const char *listen, size_t bytes, double seconds) {
    if (strncmp(listen, "tls://", 6) == 0) return measure_cipher(bytes, seconds);
    char url[FM_ADDRESS_TEXT_BYTES];
    bool is_unix = strncmp(listen, "unix:", 5) == 0;
    snprintf(url, sizeof url, "%s%s", listen, is_unix ? ".bound" : "");
    return measure_bound(url, bytes, seconds);
}

static void measure(const bench_settings *set, fm_sample_source *source, const char *listen,
                    const char *plan, bool with_bound, bench_row *row) {
    bool is_tls = strncmp(listen, "tls://", 6) == 0;
    fm_server_options options = {
        .listen = {listen}, .n_job = (uint32_t)set->jobs, .worker_memory_bytes = (size_t)4 << 30};
    if (is_tls) {
        options.credentials.tls_cert = set->certificates.cert;
        options.credentials.tls_key = set->certificates.key;
        options.is_open_to_all = true;
    }
    bench_server running = start_server(&options, source);
    bench_client client = open_client(fm_server_get_address(running.server, 0),
                                      is_tls ? set->certificates.ca : NULL, plan, N_CREDIT);
    bench_row warm = {0};
    (void)take(&client, set->seconds / 2, &warm);
    double rates[ROUNDS_MAX], bounds[ROUNDS_MAX];
    double server_s = 0, client_s = 0, gb = 0;
    for (uint64_t r = 0; r < set->rounds; r++) {
        double server_before = thread_seconds(running.thread),
               client_before = thread_seconds(pthread_self());
        uint64_t start = fm_clock_ns();
        rates[r] = take(&client, set->seconds, row);
        gb += rates[r] * seconds_since(start) * row->mb_per_sample * 1e-3;
        server_s += thread_seconds(running.thread) - server_before;
        client_s += thread_seconds(pthread_self()) - client_before;
        size_t bytes = (size_t)(row->mb_per_sample * 1e6);
        bounds[r] = with_bound ? measure_address(listen, bytes, set->seconds) : 0;
    }
    row->samples_per_s = median(rates, set->rounds);
    row->gb_per_s = row->samples_per_s * row->mb_per_sample * 1e-3;
    row->bound_gb_per_s = median(bounds, set->rounds);
    row->server_s_per_gb = server_s / gb;
    row->client_s_per_gb = client_s / gb;
    close_client(&client);
    stop_server(&running);
}

/* -- the table */

static void print_head(void) {
    printf("%-22s %-6s %8s %10s %7s %10s %6s %11s %11s %11s %11s\n", "samples", "socket", "MB each",
           "samples/s", "GB/s", "bound GB/s", "ratio", "server s/GB", "client s/GB", "wait p50 us",
           "wait p99 us");
}

static void print_row(const char *name, const char *socket, const bench_row *row) {
    printf("%-22s %-6s %8.3f %10.1f %7.3f ", name, socket, row->mb_per_sample, row->samples_per_s,
           row->gb_per_s);
    if (row->bound_gb_per_s > 0) {
        printf("%10.3f %6.2f ", row->bound_gb_per_s, row->gb_per_s / row->bound_gb_per_s);
    } else {
        printf("%10s %6s ", "-", "-");
    }
    printf("%11.3f %11.3f ", row->server_s_per_gb, row->client_s_per_gb);
    printf("%11.1f %11.1f\n", (double)fm_histogram_percentile(&row->waits, 500) * 1e-3,
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
    static const char *const names[] = {"unix", "tcp", "tls"};
    const char *const urls[] = {unix_url, "tcp://127.0.0.1:0", "tls://127.0.0.1:0"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        fm_test_source test = {.shape = sizes[i].shape, .global_batch = 8, .copies = true};
        fm_sample_source source;
        fm_test_source_init(&test, &source);
        for (size_t u = 0; u < sizeof urls / sizeof urls[0]; u++) {
            bench_row row = {0};
            measure(set, &source, urls[u], "test", true, &row);
            print_row(sizes[i].name, names[u], &row);
        }
        fm_test_source_fini(&test);
    }
}

static void bench_cache(const bench_settings *set, const char *unix_url) {
    fm_store *store;
    fm_sample_source *source;
    fm_error error;
    if (fm_store_open(set->cache, &store, &error)) die(set->cache, &error);
    if (fm_cache_source_open(store, "all", "all", &source, &error)) die(set->cache, &error);
    static const char *const plans[] = {"tiny", "af2-initial"};
    for (size_t i = 0; i < 2; i++) {
        bench_row row = {0};
        char name[64];
        snprintf(name, sizeof name, "cache, %s", plans[i]);
        measure(set, source, unix_url, plans[i], false, &row);
        print_row(name, "unix", &row);
    }
    fm_cache_source_close(source);
    fm_store_close(store);
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
    if (status) return fm_test_report("bench_serve", &error);
    char folder[200], unix_url[256];
    fm_log_set_level(FM_LOG_ERROR);
    fm_test_make_folder(folder, sizeof folder);
    snprintf(unix_url, sizeof unix_url, "unix:%s/s", folder);
    set.certificates = make_certificates(folder);
    print_head();
    bench_serving_alone(&set, unix_url);
    if (set.cache) bench_cache(&set, unix_url);
    fm_test_remove_tree(folder);
    return 0;
}
