/* bench_fairness.c: measures how much of a server one peer gets while another is greedy.
 *
 *     bench_fairness [--jobs N] [--seconds S] [--rounds N]
 *
 * The greedy peer (127.0.0.2) has 16 connections with 16 streams each, with credit for everything,
 * and reads as fast as it can. The modest one (127.0.0.1) is a client with one stream and the
 * credit of `foldmill fetch`. Two peers have a fair share of half each. The share is in samples,
 * of all that were sent while both ran. In the first rows making a sample costs most, so workers
 * are what peers compete for; in the last ones sending does, and they compete for the loop and its
 * sockets. The programs of both peers run on the same processors as the server. Figures are medians
 * over rounds of S seconds. */
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "proto/schema.h"
#include "tests/bench/bench_server.h"
#include "tests/testing/source.h"
#include "tests/testing/testing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N_CONN = 16, N_STREAM = 16, N_CREDIT = 8, READ_BYTES = 1 << 20 };

/* -- the greedy peer */

typedef struct greedy_peer {
    int fds[N_CONN];
    pthread_t thread;
    _Atomic bool is_over;
} greedy_peer;

static void send_frame(int fd, const fm_wire_message *message, uint64_t sequence) {
    uint8_t frame[FM_WIRE_CONTROL_BYTES];
    size_t bytes = fm_wire_encode(message, sequence, frame, sizeof frame);
    if (send(fd, frame, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) die("send", NULL);
}

static int connect_greedily(uint16_t port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)&from, sizeof from) ||
        connect(fd, (struct sockaddr *)&to, sizeof to)) {
        die("cannot connect from 127.0.0.2", NULL);
    }
    fm_wire_message hello = {.kind = FM_WIRE_HELLO};
    hello.hello = (fm_wire_hello){.version_min = FM_WIRE_VERSION_MIN,
                                  .version_max = FM_WIRE_VERSION_MAX,
                                  .schema_hash = fm_schema_hash(),
                                  .agent = "greedy"};
    send_frame(fd, &hello, 0);
    for (uint32_t s = 1; s <= N_STREAM; s++) {
        fm_wire_message open = {.kind = FM_WIRE_OPEN, .stream = s};
        open.open = (fm_wire_open){.plan = "test",
                                   .seed = s,
                                   .n_group = 1,
                                   .order = FM_WIRE_STRICT,
                                   .policy = FM_WIRE_STOP,
                                   .credit_items = FM_LIMIT_CREDIT_ITEMS,
                                   .credit_bytes = FM_LIMIT_CREDIT_BYTES};
        send_frame(fd, &open, s);
    }
    return fd;
}

static void *read_greedily(void *argument) {
    greedy_peer *peer = argument;
    uint8_t *scratch = malloc(READ_BYTES);
    struct pollfd polls[N_CONN];
    for (size_t i = 0; i < N_CONN; i++)
        polls[i] = (struct pollfd){.fd = peer->fds[i], .events = POLLIN};
    while (!atomic_load(&peer->is_over) && poll(polls, N_CONN, 100) >= 0) {
        for (size_t i = 0; i < N_CONN; i++) {
            bool is_gone = polls[i].revents && recv(peer->fds[i], scratch, READ_BYTES, 0) <= 0;
            if (is_gone) polls[i].fd = -1;
        }
    }
    free(scratch);
    return NULL;
}

static void start_greedy(greedy_peer *peer, uint16_t port) {
    for (size_t i = 0; i < N_CONN; i++)
        peer->fds[i] = connect_greedily(port);
    atomic_store(&peer->is_over, false);
    if (pthread_create(&peer->thread, NULL, read_greedily, peer)) die("no thread", NULL);
}

static void stop_greedy(greedy_peer *peer) {
    atomic_store(&peer->is_over, true);
    pthread_join(peer->thread, NULL);
    for (size_t i = 0; i < N_CONN; i++)
        close(peer->fds[i]);
}

/* -- the table */

typedef struct bench_settings {
    uint64_t jobs, rounds;
    double seconds;
} bench_settings;

typedef struct bench_case {
    const char *name;
    fm_test_source test;
} bench_case;

static uint64_t sent(const fm_server *server) {
    return fm_counter_read(fm_server_get_counters(server), FM_COUNT_SAMPLES_SENT);
}

static void measure(const bench_settings *set, bench_case *of) {
    fm_sample_source source;
    fm_server_options options = {.listen = {"tcp://127.0.0.1:0"}, .n_job = (uint32_t)set->jobs};
    fm_test_source_init(&of->test, &source);
    bench_server running = start_server(&options, &source);
    const fm_server *server = running.server;
    const char *url = fm_server_get_address(server, 0);
    greedy_peer greedy;
    double alone[ROUNDS_MAX], beside[ROUNDS_MAX], shares[ROUNDS_MAX];
    bench_client modest = open_client(url, NULL, "test", N_CREDIT);
    for (uint64_t r = 0; r < set->rounds; r++)
        alone[r] = take_for(&modest, set->seconds, NULL).per_s;
    start_greedy(&greedy, (uint16_t)atoi(strrchr(url, ':') + 1));
    (void)take_for(&modest, set->seconds, NULL);
    for (uint64_t r = 0; r < set->rounds; r++) {
        uint64_t before = sent(server);
        bench_take taken = take_for(&modest, set->seconds, NULL);
        beside[r] = taken.per_s;
        shares[r] = (double)taken.n / (double)(sent(server) - before);
    }
    stop_greedy(&greedy);
    close_client(&modest);
    stop_server(&running);
    double share = median(shares, set->rounds);
    printf("%-28s %9.3f %12.1f %14.1f %8.2f %14.2f\n", of->name,
           (double)fm_test_source_sample_bytes(&of->test) * 1e-6, median(alone, set->rounds),
           median(beside, set->rounds), share, share / 0.5);
    fflush(stdout);
    fm_test_source_fini(&of->test);
}

int main(int argc, char **argv) {
    bench_settings set = {.jobs = 2, .rounds = 5, .seconds = 1};
    const fm_option options[] = {
        {"jobs", FM_OPTION_U64, &set.jobs, "N", .help = "worker threads (2)", .min = 1, .max = 512},
        {"rounds", FM_OPTION_U64, &set.rounds, "N", .help = "rounds of each row (5)", .min = 1,
         .max = ROUNDS_MAX},
        {"seconds", FM_OPTION_F64, &set.seconds, "S", .help = "length of a round (1)"},
        {0}};
    const fm_command command = {.program = "bench_fairness",
                                .arguments = "[options]",
                                .summary = "the share of a peer beside a greedy one",
                                .description = "See the head of tests/bench/bench_fairness.c.",
                                .options = options};
    int n_positional;
    fm_error error;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (status == FM_ERR_CANCELLED) return 0;
    if (status) return fm_test_report("bench_fairness", &error);
    fm_log_set_level(FM_LOG_ERROR);
    const fm_test_shape tiny = {.n_res = 64, .n_clust = 32, .n_extra = 64, .n_cycle = 2};
    const fm_test_shape initial = {.n_res = 256, .n_clust = 124, .n_extra = 1024, .n_cycle = 4};
    bench_case cases[] = {
        {"making costs 5 ms, tiny", {.shape = tiny, .slow_every = 1, .slow_ms = 5}},
        {"making costs 20 ms, initial",
         {.shape = initial, .slow_every = 1, .slow_ms = 20, .copies = true}},
        {"copied, tiny", {.shape = tiny, .copies = true}},
        {"copied, af2-initial", {.shape = initial, .copies = true}},
    };
    printf("%-28s %9s %12s %14s %8s %14s\n", "samples", "MB each", "alone /s", "beside 256 /s",
           "share", "of fair share");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cases[i].test.global_batch = 8;
        measure(&set, &cases[i]);
    }
    return 0;
}
