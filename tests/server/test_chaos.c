/* Chaos: a server among clients that do everything wrong, and clients whose server is killed again
 * and again. Consumers that behave must get every sample of their streams exactly once with the
 * right bytes. In the end nothing is left of the others: no connection, stream, memory or
 * descriptor.
 *
 * The test takes a minute. FM_CHAOS_SECONDS sets another time: 600 for a soak by hand. Random
 * choices come from FM_CHAOS_SEED (1). */
#include "tests/server/raw_client.h"

#include "proto/base/histogram.h"
#include "proto/base/rng.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
    N_STEP = 20,
    BATCH = 8,
    N_SAMPLE = N_STEP * BATCH, /* of an epoch of the test */
    N_GOOD = 4,
    N_PARKED = 192,     /* bad connections that are kept open */
    SCRIPT_BYTES = 700, /* what a bad client says */
    N_SILENT = 1000,
};

static uint64_t setting(const char *name, uint64_t fallback) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : fallback;
}

static size_t count_descriptors(void) {
    size_t n = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* The samples as they must come, made without a server. */
static uint64_t expected[N_SAMPLE];

static void make_expected(const fm_test_shape *shape) {
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, 16 << 20, NULL), FM_OK);
    for (uint64_t i = 0; i < N_SAMPLE; i++) {
        fm_sample sample;
        fm_arena_reset(&arena);
        fm_test_sample(shape, 42, i, BATCH, &arena, &sample);
        fm_bytes bytes = fm_test_sample_bytes(&sample, &arena);
        expected[i] = fm_xxh3(bytes.data, bytes.size);
    }
    fm_arena_fini(&arena);
}

/* -- consumers that behave */

typedef struct consumer {
    char url[256];
    uint32_t group, n_group;
    uint32_t window;
    bool may_lose_server; /* reconnects with its token */
    const _Atomic bool *is_over;
    pthread_t thread;
    fm_token token;           /* what was delivered in this epoch */
    uint64_t n_epoch, n_lost; /* whole epochs; servers that went away */
    char trouble[700];        /* "" when all went well */
    slab slab;
} consumer;

static fm_status take(consumer *c, const fm_client_event *event, fm_error *reterr) {
    fm_arena arena;
    fm_sample sample;
    fm_status status = fm_arena_init(&arena, 1 << 20, reterr);
    if (status) return status;
    status = fm_sample_decode(event->sample, true, &arena, &sample, reterr);
    uint64_t index = status ? 0 : sample.index;
    fm_arena_fini(&arena);
    if (status) return status;
    if (index >= N_SAMPLE || index % BATCH % c->n_group != c->group ||
        fm_xxh3(event->sample.data, event->sample.size) != expected[index]) {
        return fm_fail(reterr, FM_ERR_DATA, "sample %llu is not the right one",
                       (unsigned long long)index);
    }
    return fm_token_deliver(&c->token, index, reterr); /* FM_ERR_EXISTS: it came twice */
}

/* One connection: from the token to the end of the epoch, or until the server is gone. */
static fm_status consume(consumer *c, fm_error *reterr) {
    fm_client *client = NULL;
    fm_client_options options = {
        .url = c->url, .agent = "chaos", .retry_ms = 20000, .event_ms = 60000};
    fm_wire_open params = stream_of(N_STEP);
    params.group = c->group;
    params.n_group = c->n_group;
    params.order = c->window ? FM_WIRE_BOUNDED : FM_WIRE_STRICT;
    params.window = c->window;
    params.token = c->token;
    fm_wire_opened opened;
    fm_client_event event = {0};
    fm_status status = fm_client_connect(&options, &client, reterr);
    if (!status) status = fm_client_open(client, &params, &opened, reterr);
    while (!status && event.kind != FM_CLIENT_END) {
        status = fm_client_next(client, c->slab.bytes, SLAB_BYTES, &event, reterr);
        if (status || event.kind != FM_CLIENT_SAMPLE) continue;
        status = take(c, &event, reterr);
        if (!status) status = fm_client_release(client, 1, event.sample.size, reterr);
    }
    fm_client_close(client);
    if (!status && event.reason != FM_WIRE_DELIVERED) {
        status = fm_fail(reterr, FM_ERR_CLOSED, "the stream ended early");
    }
    return status;
}

static bool has_whole_epoch(const consumer *c) {
    for (uint64_t i = 0; i < N_SAMPLE; i++) {
        bool is_ours = i % BATCH % c->n_group == c->group;
        if (fm_token_has(&c->token, i) != is_ours) return false;
    }
    return true;
}

/* Epoch after epoch. Where the server is lost, the token says what is still to come. */
static void *behave(void *argument) {
    consumer *c = argument;
    while (!atomic_load(c->is_over) && !c->trouble[0]) {
        memset(&c->token, 0, sizeof c->token);
        fm_error error = {0};
        fm_status status = consume(c, &error);
        while (c->may_lose_server && (status == FM_ERR_CLOSED || status == FM_ERR_IO)) {
            c->n_lost++;
            status = consume(c, &error);
        }
        if (status) {
            fm_error_format(&error, c->trouble, sizeof c->trouble);
        } else if (!has_whole_epoch(c)) {
            snprintf(c->trouble, sizeof c->trouble, "an epoch was not whole");
        }
        c->n_epoch++;
    }
    return NULL;
}

static void start_consumers(consumer *all, size_t n, const _Atomic bool *is_over) {
    for (size_t i = 0; i < n; i++) {
        all[i].is_over = is_over;
        assert_int_equal(pthread_create(&all[i].thread, NULL, behave, &all[i]), 0);
    }
}

static void join_consumers(consumer *all, size_t n) {
    for (size_t i = 0; i < n; i++) {
        pthread_join(all[i].thread, NULL);
        if (all[i].trouble[0]) fail_msg("consumer %zu: %s", i, all[i].trouble);
        assert_true(all[i].n_epoch > 0);
    }
}

/* -- clients that do not */

typedef struct dice {
    uint64_t seed;
    uint32_t n;
} dice;

static uint32_t roll(dice *d, uint32_t below) {
    fm_philox_counter drawn = fm_philox(d->seed, (fm_philox_counter){{d->n++}});
    return fm_uniform_below((uint64_t)drawn.word[0] << 32 | drawn.word[1], below);
}

/* A bad connection; one with a script sends it byte by byte. */
typedef struct parked {
    int fd; /* -1: the place is free */
    uint32_t at, bytes;
    uint8_t script[SCRIPT_BYTES];
} parked;

/* A socket to the server from 127.0.0.`host`, or to the Unix socket; -1 when it does not connect.
 * */
static int connect_badly(const server_fixture *f, uint32_t host) {
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(f->tcp_url, ':') + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    snprintf(local.sun_path, sizeof local.sun_path, "%.100s", f->unix_url + strlen("unix:"));
    int fd = socket(host ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    int failed = host ? bind(fd, (struct sockaddr *)&from, sizeof from) : 0;
    if (!failed) {
        failed = host ? connect(fd, (struct sockaddr *)&to, sizeof to)
                      : connect(fd, (struct sockaddr *)&local, sizeof local);
    }
    if (!failed || errno == EINPROGRESS) return fd;
    close(fd);
    return -1;
}

/* HELLO, OPEN, some credit or PINGs; with a mistake in it or without. Returns its size. */
static uint32_t write_script(dice *d, uint8_t out[SCRIPT_BYTES]) {
    fm_wire_message message = {.kind = FM_WIRE_HELLO};
    message.hello = (fm_wire_hello){.version_min = FM_WIRE_VERSION_MIN,
                                    .version_max = FM_WIRE_VERSION_MAX,
                                    .schema_hash = fm_schema_hash()};
    if (roll(d, 6) == 0) message.hello.version_min = message.hello.version_max = 9;
    uint32_t at = (uint32_t)fm_wire_encode(&message, 0, out, SCRIPT_BYTES);
    uint64_t sequence = 1;
    message = (fm_wire_message){.kind = FM_WIRE_OPEN, .stream = 1, .open = stream_of(0)};
    message.open.credit_items = roll(d, 2) ? 60000 : 0;
    message.open.credit_bytes = FM_LIMIT_CREDIT_BYTES;
    message.open.order = 1 + roll(d, 4);
    message.open.window = message.open.order == FM_WIRE_BOUNDED ? 1 + roll(d, 50) : 0;
    at += (uint32_t)fm_wire_encode(&message, sequence++, out + at, SCRIPT_BYTES - at);
    for (uint32_t n = roll(d, 5); n; n--) {
        message = (fm_wire_message){.kind = roll(d, 2) ? FM_WIRE_PING : FM_WIRE_CLOSE};
        at += (uint32_t)fm_wire_encode(&message, sequence++, out + at, SCRIPT_BYTES - at);
    }
    if (roll(d, 3) == 0) out[roll(d, at)] ^= (uint8_t)(1u << roll(d, 8)); /* a flipped bit */
    if (roll(d, 3) == 0) at = roll(d, at);                                /* truncated */
    return at;
}

static void leave(int fd, dice *d) {
    struct linger abrupt = {.l_onoff = 1};
    if (roll(d, 2)) setsockopt(fd, SOL_SOCKET, SO_LINGER, &abrupt, sizeof abrupt); /* RST */
    close(fd);
}

/* Takes one bad action: a new connection, or something with an old one. */
static void misbehave(const server_fixture *f, parked places[N_PARKED], dice *d) {
    parked *p = &places[roll(d, N_PARKED)];
    static uint8_t heard[1 << 16];
    if (p->fd < 0) {
        p->fd = connect_badly(f, roll(d, 6) ? 2 + roll(d, 5) : 0);
        p->at = 0;
        p->bytes = roll(d, 4) ? write_script(d, p->script) : 0; /* or it stays silent */
        if (p->fd >= 0 && roll(d, 3)) {                         /* says all at once */
            (void)!send(p->fd, p->script, p->bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
            p->at = p->bytes;
        }
        return;
    }
    switch (roll(d, 5)) {
    case 0: (void)!recv(p->fd, heard, sizeof heard, MSG_DONTWAIT); break;
    case 1: (void)!recv(p->fd, heard, 1 + roll(d, 200), MSG_DONTWAIT); break;
    case 2: (void)!send(p->fd, heard, roll(d, 500), MSG_NOSIGNAL | MSG_DONTWAIT); break;
    case 3: shutdown(p->fd, SHUT_WR); break;
    default: leave(p->fd, d); p->fd = -1;
    }
}

/* Each connection that sends byte by byte sends one more. */
static void dribble(parked places[N_PARKED]) {
    for (size_t i = 0; i < N_PARKED; i++) {
        parked *p = &places[i];
        if (p->fd < 0 || p->at >= p->bytes) continue;
        (void)!send(p->fd, p->script + p->at++, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* A thousand connections that say nothing, held for a while and until the server has ended one that
 * waits. */
static void flood_silently(const server_fixture *f) {
    static int fds[N_SILENT];
    const fm_counters *counters = fm_server_get_counters(f->server);
    uint64_t before = fm_counter_read(counters, FM_COUNT_HELLO_EVICTED);
    for (size_t i = 0; i < N_SILENT; i++)
        fds[i] = connect_badly(f, 7 + (uint32_t)i % 5);
    sleep_ms(500);
    for (int i = 0; i < 1000 && fm_counter_read(counters, FM_COUNT_HELLO_EVICTED) == before; i++)
        sleep_ms(10);
    for (size_t i = 0; i < N_SILENT; i++) {
        if (fds[i] >= 0) close(fds[i]);
    }
}

static void prepare_chaos(server_fixture *f) {
    server_prepare(f);
    if (!getenv("FM_TEST_LOG")) fm_log_set_level(FM_LOG_ERROR - 1);
    f->options.max_connection = 512; /* more than the bad ones have, or the good are refused */
    f->options.hello_ms = 3000;      /* a good client may have to wait for a processor so long */
    f->options.idle_ms = 5000;
    f->options.stall_ms = 5000;
    f->options.goodbye_ms = 200;
    f->options.max_memory_bytes = 1 << 20; /* about sixty samples */
    f->test.slow_every = 11;
    f->test.slow_ms = 2;
}

/* Whether the bad clients made the server refuse each thing that it refuses here on any machine. A
 * quick server refuses no flood: test_limits.c has that case. */
static bool has_refused_all(const server_fixture *f) {
    const fm_counters *counters = fm_server_get_counters(f->server);
    return fm_counter_read(counters, FM_COUNT_PROTOCOL_ERRORS) > 0 &&
           fm_counter_read(counters, FM_COUNT_STREAMS_REFUSED) > 0 &&
           fm_counter_read(counters, FM_COUNT_HELLO_EVICTED) > 0;
}

/* Goes on for `seconds`, and longer until the server has refused all that it must. */
static void good_clients_among_bad_ones(uint64_t seconds) {
    static consumer good[N_GOOD];
    static parked places[N_PARKED];
    _Atomic bool is_over = false;
    server_fixture f;
    prepare_chaos(&f);
    server_start(&f);
    size_t n_descriptor = count_descriptors();
    for (uint32_t i = 0; i < N_GOOD; i++) {
        good[i] = (consumer){.n_group = 1 + i % 2, .window = i % 3 * 4};
        snprintf(good[i].url, sizeof good[i].url, "%s", i % 2 ? f.tcp_url : f.unix_url);
    }
    for (size_t i = 0; i < N_PARKED; i++)
        places[i].fd = -1;
    start_consumers(good, N_GOOD, &is_over);
    dice d = {.seed = setting("FM_CHAOS_SEED", 1)};
    uint64_t end_ns = fm_clock_ns() + seconds * 1000000000u, last_ns = end_ns + 60 * 1000000000ull;
    for (uint64_t turn = 0; fm_clock_ns() < (has_refused_all(&f) ? end_ns : last_ns); turn++) {
        misbehave(&f, places, &d);
        dribble(places);
        if (turn % 3000 == 100) flood_silently(&f);
        if (turn % 16 == 0) sleep_ms(1);
    }
    atomic_store(&is_over, true);
    for (size_t i = 0; i < N_PARKED; i++) {
        if (places[i].fd >= 0) close(places[i].fd);
    }
    join_consumers(good, N_GOOD);
    await_connections(&f, 0);
    assert_true(has_refused_all(&f));
    assert_int_equal(fm_counter_read(fm_server_get_counters(f.server), FM_COUNT_MEMORY), 0);
    assert_int_equal(count_descriptors(), n_descriptor);
    server_finish(&f);
}

static uint64_t chaos_seconds(void) {
    uint64_t seconds = setting("FM_CHAOS_SECONDS", 60);
    return seconds < 3 ? 3 : seconds;
}

/* Two rounds: what the first leaves in memory the second does not add to. */
static void nothing_is_left_of_bad_clients(void **state) {
    (void)state;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    fm_test_shape shape = {.n_res = 16, .n_clust = 4, .n_extra = 4, .n_cycle = 1};
    make_expected(&shape);
    good_clients_among_bad_ones(chaos_seconds() / 6);
    size_t n_descriptor = count_descriptors(); /* with those that libuv keeps for good */
    size_t used = mallinfo2().uordblks;
    good_clients_among_bad_ones(chaos_seconds() / 2);
    assert_int_equal(count_descriptors(), n_descriptor);
    if (mallinfo2().uordblks > used + (256 << 10)) {
        fail_msg("%zu bytes are in use, %zu before", mallinfo2().uordblks, used);
    }
}

/* -- a server that is killed */

/* Starts servers one after the other and kills each after a random time, until `stop` is closed;
 * the last one gets SIGTERM. A process with one thread, since it forks. */
static void keep_killing(server_fixture *f, int stop) {
    dice d = {.seed = setting("FM_CHAOS_SEED", 1) + 1};
    struct pollfd wait = {.fd = stop, .events = POLLIN};
    for (bool is_over = false; !is_over;) {
        pid_t child = fork();
        if (child == 0) {
            fm_test_die_with_parent();
            close(stop);
            f->options.watch_signals = true;
            fm_test_source_init(&f->test, &f->source);
            if (fm_server_create(&f->options, &f->source, &f->server, NULL)) _exit(9);
            fm_server_run(f->server);
            fm_server_destroy(f->server);
            _exit(0);
        }
        is_over = poll(&wait, 1, 50 + (int)roll(&d, 400)) > 0;
        kill(child, is_over ? SIGTERM : SIGKILL);
        int status;
        waitpid(child, &status, 0);
        if (is_over) _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 8);
    }
}

static void a_killed_server_loses_nothing(void **state) {
    (void)state;
    static consumer good[3];
    int stop[2], status;
    _Atomic bool is_over = false;
    server_fixture f;
    prepare_chaos(&f);
    f.options.listen[1] = NULL; /* a port would be another one each time */
    f.test.slow_every = 2;      /* an epoch takes longer than a server lives */
    f.test.slow_ms = 5;
    make_expected(&f.test.shape);
    assert_int_equal(pipe(stop), 0);
    pid_t killer = fork();
    assert_true(killer >= 0);
    if (killer == 0) {
        fm_test_die_with_parent();
        close(stop[1]);
        keep_killing(&f, stop[0]);
    }
    close(stop[0]);
    for (uint32_t i = 0; i < 3; i++) {
        good[i] = (consumer){.group = i, .n_group = 3, .window = i * 3, .may_lose_server = true};
        snprintf(good[i].url, sizeof good[i].url, "%s", f.unix_url);
    }
    start_consumers(good, 3, &is_over);
    sleep_ms((uint32_t)chaos_seconds() * 1000 / 3);
    atomic_store(&is_over, true);
    join_consumers(good, 3);
    uint64_t n_lost = good[0].n_lost + good[1].n_lost + good[2].n_lost;
    assert_true(n_lost > chaos_seconds() / 3);
    close(stop[1]);
    assert_int_equal(waitpid(killer, &status, 0), killer);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    fm_test_remove_tree(f.folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_server_loses_nothing), /* first: it forks, threads come later */
        cmocka_unit_test(nothing_is_left_of_bad_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
