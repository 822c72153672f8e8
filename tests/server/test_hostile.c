/* Clients that vanish, stall, break the protocol or send garbage, beside a good one. The good one
 * must receive every sample of its stream exactly, and afterwards nothing of the others may
 * remain. */
#include "tests/server/raw_client.h"

#include "proto/base/rng.h"

#include <errno.h>
#include <unistd.h>

static slab into;

/* Each does its harm, is judged, and leaves. */
typedef void (*villain)(server_fixture *f, const char *url);

static void vanishes_mid_sample(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_hello(fd);
    raw_open(fd, 1, 1, 1000);
    uint8_t some[2000];
    size_t got = 0;
    while (got < sizeof some) {
        ssize_t n = recv(fd, some + got, sizeof some - got, 0);
        assert_true(n > 0);
        got += (size_t)n;
    }
    close(fd);
}

static void vanishes_at_once(server_fixture *f, const char *url) {
    (void)f;
    close(raw_connect(url));
}

static void sends_garbage(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_send(fd, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 43);
    expect_refusal(fd, "not a foldmill frame");
}

static void lies_about_length(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_hello(fd);
    uint8_t bytes[FM_WIRE_HEADER_BYTES];
    fm_wire_header header = {
        .kind = FM_WIRE_OPEN, .stream = 1, .body_bytes = 1u << 31, .sequence = 1};
    fm_wire_header_encode(&header, bytes);
    raw_send(fd, bytes, sizeof bytes);
    expect_refusal(fd, "OPEN of 2147483648 bytes, at most 8500");
}

static void sends_a_sample(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_hello(fd);
    uint8_t bytes[FM_WIRE_HEADER_BYTES];
    fm_wire_header header = {
        .kind = FM_WIRE_SAMPLE, .stream = 1, .body_bytes = 1u << 28, .sequence = 1};
    fm_wire_header_encode(&header, bytes);
    raw_send(fd, bytes, sizeof bytes);
    expect_refusal(fd, "SAMPLE cannot come in state ready");
}

static void flips_a_bit(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_hello(fd);
    fm_wire_message open = {.kind = FM_WIRE_OPEN, .stream = 1, .open = stream_of(0)};
    uint8_t frame[FM_WIRE_CONTROL_BYTES];
    size_t bytes = fm_wire_encode(&open, 1, frame, sizeof frame);
    frame[bytes - 1] ^= 4;
    raw_send(fd, frame, bytes);
    expect_refusal(fd, "the body of OPEN does not match its checksum");
}

static void skips_a_frame(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_hello(fd);
    raw_open(fd, 1, 2, 1);
    expect_refusal(fd, "a frame is missing or came twice");
}

static void sends_half_a_header(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_send(fd, "FOM1\1\1", 6);
    expect_refusal(fd, "no HELLO came in time");
}

static void never_says_hello(server_fixture *f, const char *url) {
    (void)f;
    expect_refusal(raw_connect(url), "no HELLO came in time");
}

static void opens_before_hello(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_open(fd, 1, 0, 1);
    expect_refusal(fd, "OPEN cannot come in state hello");
}

static void speaks_of_the_future(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    fm_wire_message hello = {.kind = FM_WIRE_HELLO};
    hello.hello = (fm_wire_hello){.version_min = 7, .version_max = 9};
    raw_send_message(fd, &hello, 0);
    expect_refusal(fd,
                   "the client speaks protocol 7 to 9, this server 2 to 2: use the same version "
                   "of foldmill for both");
    fd = raw_connect(url);
    hello.hello = (fm_wire_hello){.version_min = 1, .version_max = 9, .schema_hash = 5};
    raw_send_message(fd, &hello, 0);
    expect_refusal(fd, "the client's feature table is 0000000000000005");
}

/* A client whose samples of complexes have rows of whole bytes. */
static void speaks_of_the_past(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    fm_wire_message hello = {.kind = FM_WIRE_HELLO};
    hello.hello = (fm_wire_hello){
        .version_min = 1, .version_max = 1, .schema_hash = UINT64_C(0x0138476d8026d5de)};
    raw_send_message(fd, &hello, 0);
    expect_refusal(fd,
                   "the client speaks protocol 1 to 1, this server 2 to 2: use the same version "
                   "of foldmill for both");
}

static void opens_too_many_streams(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_hello(fd);
    for (uint32_t s = 1; s <= FM_LIMIT_N_STREAM + 1; s++)
        raw_open(fd, s, s, 0);
    fm_wire_message close_all = {.kind = FM_WIRE_CLOSE};
    raw_send_message(fd, &close_all, FM_LIMIT_N_STREAM + 2);
    expect_refusal(fd, "a connection has at most 16 streams");
}

static void opens_a_stream_twice(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_hello(fd);
    raw_open(fd, 5, 1, 0);
    raw_open(fd, 5, 2, 0);
    expect_refusal(fd, "OPEN of a stream that is open already");
}

static void grants_too_much(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_hello(fd);
    raw_open(fd, 5, 1, 0);
    fm_wire_message credit = {
        .kind = FM_WIRE_CREDIT, .stream = 5, .credit = {.bytes = FM_LIMIT_CREDIT_BYTES}};
    raw_send_message(fd, &credit, 2);
    expect_refusal(fd, "credit for 0 items");
}

/* Answers pile up until the ring is full. */
static void asks_and_never_reads(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_hello(fd);
    uint64_t sequence = 1;
    uint8_t frames[64 * 40];
    int n_block = 0;
    for (;;) {
        for (size_t i = 0; i < 64; i++) {
            fm_wire_message ping = {.kind = FM_WIRE_PING, .ping = i};
            (void)fm_wire_encode(&ping, sequence++, frames + i * 40, 40);
        }
        ssize_t sent = send(fd, frames, sizeof frames, MSG_NOSIGNAL);
        if (sent < 0) break; /* cut off */
        assert_true(++n_block < 100000);
    }
    close(fd);
}

/* Credit for thousands, and none is read: the write stalls and is cut off after stall_ms. */
static void grants_and_never_reads(server_fixture *f, const char *url) {
    int fd = raw_connect(url);
    raw_hello(fd);
    raw_open(fd, 1, 1, 60000);
    await_connections(f, 2);
    await_connections(f, 1);
    close(fd);
}

static void gives_up_with_an_error(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_hello(fd);
    raw_open(fd, 1, 1, 3);
    fm_wire_message error = {
        .kind = FM_WIRE_ERROR,
        .error = {.status = FM_ERR_CORRUPT, .scope = 3, .text = "I cannot read this"}};
    raw_send_message(fd, &error, 2);
    char text[600] = "";
    assert_true(is_closed(fd, text, sizeof text));
    assert_string_equal(text, "");
    close(fd);
}

/* An impossible stream is refused, and the connection continues. */
static void asks_for_what_cannot_be(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    raw_hello(fd);
    fm_wire_message open = {.kind = FM_WIRE_OPEN, .stream = 1, .open = stream_of(0)};
    open.open.order = FM_WIRE_FREE + 1;
    raw_send_message(fd, &open, 1);
    fm_wire_message close_all = {.kind = FM_WIRE_CLOSE};
    raw_send_message(fd, &close_all, 2);
    expect_refusal(fd, "order 4, expected strict (1), bounded (2) or free (3)");
}

static void wants_features_of_the_future(server_fixture *f, const char *url) {
    (void)f;
    int fd = raw_connect(url);
    fm_wire_message hello = {.kind = FM_WIRE_HELLO};
    hello.hello = (fm_wire_hello){.version_min = FM_WIRE_VERSION_MIN,
                                  .version_max = FM_WIRE_VERSION_MAX,
                                  .schema_hash = fm_schema_hash(),
                                  .features = 4};
    raw_send_message(fd, &hello, 0);
    expect_refusal(fd, "the server does not know features 4");
}

static const villain villains[] = {
    vanishes_mid_sample,
    vanishes_at_once,
    sends_garbage,
    lies_about_length,
    sends_a_sample,
    flips_a_bit,
    skips_a_frame,
    sends_half_a_header,
    never_says_hello,
    opens_before_hello,
    speaks_of_the_future,
    speaks_of_the_past,
    opens_too_many_streams,
    opens_a_stream_twice,
    gives_up_with_an_error,
    asks_for_what_cannot_be,
    wants_features_of_the_future,
    grants_too_much,
    asks_and_never_reads,
    grants_and_never_reads,
};

/* The good client: takes samples until told to stop, checking each. */
typedef struct good_client {
    server_fixture *fixture;
    fm_client *client;
    slab slab;
    _Atomic uint64_t n_taken;
    _Atomic bool is_over, failed;
} good_client;

static void *be_good(void *argument) {
    good_client *good = argument;
    uint64_t expected = 0;
    while (!atomic_load(&good->is_over)) {
        fm_client_event event;
        fm_error error = {0};
        fm_sample sample = {0};
        fm_arena arena;
        bool fine = !fm_arena_init(&arena, 1 << 20, NULL) &&
                    !fm_client_next(good->client, good->slab.bytes, SLAB_BYTES, &event, &error) &&
                    event.kind == FM_CLIENT_SAMPLE &&
                    !fm_sample_decode(event.sample, true, &arena, &sample, &error) &&
                    sample.index == expected++ &&
                    !fm_client_release(good->client, 1, event.sample.size, &error);
        fm_arena_fini(&arena);
        if (!fine) {
            fprintf(stderr, "the good client failed at %llu: %s\n", (unsigned long long)expected,
                    error.message);
            atomic_store(&good->failed, true);
            break;
        }
        atomic_fetch_add(&good->n_taken, 1);
        sleep_ms(1); /* a steady consumer, not a benchmark */
    }
    return NULL;
}

static void the_good_client_is_undisturbed(void **state) {
    (void)state;
    static good_client good;
    server_fixture f;
    server_prepare(&f);
    f.options.hello_ms = 300;
    f.options.stall_ms = 1500;
    f.options.max_memory_bytes = 2 << 20;
    f.test.shape = (fm_test_shape){.n_res = 64, .n_clust = 4, .n_extra = 4, .n_cycle = 1};
    server_start(&f);
    good.fixture = &f;
    good.client = connect_to(f.unix_url);
    fm_wire_open params = stream_of(0);
    (void)open_on(good.client, &params);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, be_good, &good), 0);
    for (size_t i = 0; i < sizeof villains / sizeof villains[0]; i++) {
        uint64_t before = atomic_load(&good.n_taken);
        villains[i](&f, i % 2 ? f.unix_url : f.tcp_url);
        await_connections(&f, 1);
        fm_server_stats stats;
        fm_server_get_stats(f.server, &stats);
        assert_true(stats.memory_bytes <= f.options.max_memory_bytes);
        for (int k = 0; k < 1000 && atomic_load(&good.n_taken) < before + 5; k++)
            sleep_ms(10);
        assert_false(atomic_load(&good.failed));
        assert_true(atomic_load(&good.n_taken) >= before + 5);
    }
    atomic_store(&good.is_over, true);
    pthread_join(thread, NULL);
    assert_false(atomic_load(&good.failed));
    fm_client_close(good.client);
    server_finish(&f);
}

/* One client holds credit for nothing, another all it can: the one that reads is served. */
static void a_stalled_client_delays_no_other(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    fm_client *stalled[6];
    fm_wire_open params = stream_of(0);
    for (size_t i = 0; i < 6; i++) {
        stalled[i] = connect_to(i % 2 ? f.tcp_url : f.unix_url);
        params.credit_items = i < 3 ? 0 : 500;
        (void)open_on(stalled[i], &params);
    }
    fm_client *client = connect_to(f.unix_url);
    params = stream_of(20);
    (void)open_on(client, &params);
    for (uint64_t i = 0; i < 160; i++) {
        fm_client_event event = next_on(client, &into);
        assert_sample(&f.test, &event, 42, i, 8);
        release_on(client, &event);
    }
    fm_client_close(client);
    for (size_t i = 0; i < 6; i++)
        fm_client_close(stalled[i]);
    server_finish(&f);
}

static void an_idle_client_is_asked_once(void **state) {
    (void)state;
    static fm_wire_message message;
    server_fixture f;
    server_prepare(&f);
    f.options.heartbeat_ms = 100;
    server_start(&f);
    int fd = raw_connect(f.unix_url);
    raw_hello(fd);
    assert_true(hear(fd, FM_WIRE_PING, &message));
    sleep_ms(400); /* no answer, no second PING, and no harm */
    uint8_t more;
    assert_int_equal(recv(fd, &more, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    message.kind = FM_WIRE_PONG;
    raw_send_message(fd, &message, 1);
    assert_true(hear(fd, FM_WIRE_PING, &message));
    close(fd);
    server_finish(&f);
}

/* CLOSE ends one stream, the other continues; the number can be used again. */
static void streams_of_a_connection_end_alone(void **state) {
    (void)state;
    static fm_wire_message message;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    int fd = raw_connect(f.tcp_url);
    raw_hello(fd);
    raw_open(fd, 7, 1, 2);
    raw_open(fd, 9, 2, 0);
    fm_wire_message end_seven = {.kind = FM_WIRE_CLOSE, .stream = 7};
    raw_send_message(fd, &end_seven, 3);
    raw_send_message(fd, &end_seven, 4); /* crossed the END: ignored */
    assert_true(hear(fd, FM_WIRE_END, &message));
    assert_int_equal(message.stream, 7);
    assert_int_equal(message.end.reason, FM_WIRE_CLOSED);
    assert_true(message.end.n_sent <= 2);
    raw_open(fd, 7, 5, 0);
    assert_true(hear(fd, FM_WIRE_OPENED, &message));
    fm_wire_message end_nine = {.kind = FM_WIRE_CLOSE, .stream = 9};
    raw_send_message(fd, &end_nine, 6);
    assert_true(hear(fd, FM_WIRE_END, &message));
    assert_int_equal(message.stream, 9);
    assert_int_equal(message.end.n_sent, 0);
    close(fd);
    server_finish(&f);
}

/* At the end of a server, a client that does not read gets its time and not more. */
static void a_deaf_client_does_not_keep_a_server(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.options.goodbye_ms = 300;
    server_start(&f);
    int fd = raw_connect(f.unix_url);
    raw_hello(fd);
    raw_open(fd, 1, 1, 60000);
    sleep_ms(200);
    server_finish(&f);
    close(fd);
}

static void connections_are_limited(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.options.max_connection = 3;
    server_start(&f);
    fm_client *clients[3];
    for (size_t i = 0; i < 3; i++)
        clients[i] = connect_to(f.unix_url);
    fm_client *more = NULL;
    fm_error error = {0};
    fm_client_options options = {.url = f.unix_url};
    assert_int_equal(fm_client_connect(&options, &more, &error), FM_ERR_LIMIT);
    assert_string_equal(error.message,
                        "the server has reached its limit of connections (--max-connections)");
    fm_client_close(clients[0]);
    await_connections(&f, 2);
    clients[0] = connect_to(f.unix_url);
    for (size_t i = 0; i < 3; i++)
        fm_client_close(clients[i]);
    server_finish(&f);
}

/* -- babble: lawful frames in no sensible order, cut off anywhere */

typedef struct dice {
    uint64_t seed;
    uint32_t n;
} dice;

static uint32_t roll(dice *d, uint32_t below) {
    fm_philox_counter drawn = fm_philox(d->seed, (fm_philox_counter){{d->n++}});
    return fm_uniform_below((uint64_t)drawn.word[0] << 32 | drawn.word[1], below);
}

static fm_wire_open random_open(dice *d) {
    fm_wire_open params = stream_of(roll(d, 4));
    params.global_batch = roll(d, 3) ? 8 + roll(d, 12) : roll(d, 8);
    params.n_group = 1 + roll(d, 9);
    params.group = roll(d, params.n_group);
    params.seed = roll(d, 1000);
    params.first_step = roll(d, 5) ? roll(d, 100) : FM_LIMIT_STEP;
    params.order = roll(d, 2) ? FM_WIRE_STRICT : FM_WIRE_BOUNDED;
    params.window = params.order == FM_WIRE_BOUNDED ? 1 + roll(d, FM_LIMIT_WINDOW) : 0;
    params.policy = roll(d, 2) ? FM_WIRE_STOP : FM_WIRE_SKIP;
    params.credit_items = roll(d, 3) ? roll(d, 30) : 0;
    params.credit_bytes = roll(d, 3) ? roll(d, 1000000) : 0;
    params.token.watermark = roll(d, 3) ? 0 : roll(d, 900);
    if (roll(d, 8) == 0) params.plan[0] = 'x';
    return params;
}

static fm_wire_message random_message(dice *d) {
    static const uint8_t kinds[] = {FM_WIRE_OPEN,   FM_WIRE_OPEN,   FM_WIRE_OPEN, FM_WIRE_CREDIT,
                                    FM_WIRE_CREDIT, FM_WIRE_CREDIT, FM_WIRE_PING, FM_WIRE_PONG,
                                    FM_WIRE_CLOSE,  FM_WIRE_CLOSE};
    fm_wire_message message = {.kind = kinds[roll(d, sizeof kinds)]};
    message.stream = 1 + roll(d, 20);
    switch (message.kind) {
    case FM_WIRE_OPEN: message.open = random_open(d); break;
    case FM_WIRE_CREDIT:
        message.credit = (fm_wire_credit){.items = roll(d, 20), .bytes = roll(d, 1000000)};
        break;
    case FM_WIRE_CLOSE:
        if (roll(d, 10) == 0) message.stream = 0;
        break;
    default: message.stream = 0; message.ping = roll(d, 5);
    }
    return message;
}

/* One connection: up to 40 frames, sometimes reading what comes, then gone in the middle. */
static void babble(const char *url, dice *d) {
    static uint8_t heard[1 << 16];
    int fd = raw_connect(url);
    raw_hello(fd);
    uint32_t n = roll(d, 40);
    for (uint32_t i = 0; i < n; i++) {
        static fm_wire_message message;
        uint8_t frame[FM_WIRE_CONTROL_BYTES];
        message = random_message(d);
        size_t bytes = fm_wire_encode(&message, i + 1, frame, sizeof frame);
        if (roll(d, 100) == 0) bytes = roll(d, (uint32_t)bytes);
        if (send(fd, frame, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) break; /* cut off */
        if (roll(d, 6) == 0) sleep_ms(2); /* long enough for samples to be made */
        if (roll(d, 4) == 0) (void)!recv(fd, heard, sizeof heard, MSG_DONTWAIT);
    }
    close(fd);
}

static void babble_breaks_nothing(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    fm_log_set_level(FM_LOG_ERROR - 1); /* made-up failures are logged as errors */
    f.options.n_job = 3;
    f.options.max_memory_bytes = 1 << 20;
    f.options.goodbye_ms = 100;
    f.test.fail_every = 13;
    f.test.slow_every = 7;
    f.test.slow_ms = 1;
    server_start(&f);
    dice d = {.seed = 1};
    for (int i = 0; i < 300; i++) {
        babble(i % 3 ? f.unix_url : f.tcp_url, &d);
        fm_server_stats stats;
        fm_server_get_stats(f.server, &stats);
        assert_true(stats.memory_bytes <= f.options.max_memory_bytes);
    }
    await_connections(&f, 0);
    fm_server_stats stats; /* it was not all refused at the door */
    fm_server_get_stats(f.server, &stats);
    assert_true(stats.n_accepted == 300 && stats.n_sample_sent > 100 && stats.n_sample_failed > 5);
    fm_client *client = connect_to(f.unix_url);
    fm_wire_open params = stream_of(1);
    params.policy = FM_WIRE_SKIP;
    (void)open_on(client, &params);
    assert_int_equal(next_on(client, &into).kind, FM_CLIENT_SKIPPED);
    for (uint64_t i = 1; i < 8; i++) {
        fm_client_event event = next_on(client, &into);
        assert_sample(&f.test, &event, 42, i, 8);
        release_on(client, &event);
    }
    fm_client_close(client);
    server_finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(babble_breaks_nothing),
        cmocka_unit_test(the_good_client_is_undisturbed),
        cmocka_unit_test(a_stalled_client_delays_no_other),
        cmocka_unit_test(an_idle_client_is_asked_once),
        cmocka_unit_test(streams_of_a_connection_end_alone),
        cmocka_unit_test(a_deaf_client_does_not_keep_a_server),
        cmocka_unit_test(connections_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
