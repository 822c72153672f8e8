/* Attacks that would keep a server from its other clients. Each test does one and then asks for
 * service, as another client or as another address. 127.0.0.2 and so on are other peers. */
#include "tests/server/raw_client.h"

#include "server/public_text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>

static slab into;

/* A blocking connection to the TCP address of the server, from 127.0.0.`host`. */
static int connect_from(const server_fixture *f, uint8_t host) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(f->tcp_url, ':') + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static int greet_from(const server_fixture *f, uint8_t host) {
    static fm_wire_message message;
    int fd = connect_from(f, host);
    raw_hello(fd);
    assert_true(hear(fd, FM_WIRE_WELCOME, &message));
    return fd;
}

/* A client that behaves gets all it asks for. */
static void assert_served(const server_fixture *f, const char *url) {
    fm_client *client = connect_to(url);
    fm_wire_open params = stream_of(10);
    (void)open_on(client, &params);
    for (uint64_t i = 0; i < 80; i++) {
        fm_client_event event = next_on(client, &into);
        assert_sample(&f->test, &event, 42, i, 8);
        release_on(client, &event);
    }
    assert_int_equal(next_on(client, &into).kind, FM_CLIENT_END);
    fm_client_close(client);
}

/* -- memory and streams */

static void silent_streams_hold_no_memory(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.options.max_memory_bytes = 100000; /* six blocks, and three for a peer */
    server_start(&f);
    int silent[3];
    for (size_t i = 0; i < 3; i++) {
        static fm_wire_message message;
        silent[i] = greet_from(&f, 1);
        for (uint32_t s = 1; s <= 9; s++) {
            raw_open(silent[i], s, s, 0);
            assert_true(hear(silent[i], FM_WIRE_OPENED, &message));
        }
    }
    await_counter(&f, FM_COUNT_STREAMS, 27);
    assert_served(&f, f.tcp_url);  /* the same peer */
    assert_served(&f, f.unix_url); /* another */
    for (size_t i = 0; i < 3; i++)
        close(silent[i]);
    server_finish(&f);
}

/* Credit without reading: the blocks in the write stay taken, but only half of the memory. */
static void a_deaf_peer_has_a_share_of_memory(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.test.shape = (fm_test_shape){.n_res = 64, .n_clust = 32, .n_extra = 32, .n_cycle = 2};
    f.options.max_memory_bytes = 4 << 20;
    server_start(&f);
    int deaf[4];
    for (size_t i = 0; i < 4; i++) {
        deaf[i] = greet_from(&f, 1);
        for (uint32_t s = 1; s <= 4; s++)
            raw_open(deaf[i], s, s, 60000);
    }
    await_counter(&f, FM_COUNT_STREAMS, 16);
    sleep_ms(300); /* let them take what they can */
    assert_true(counter(&f, FM_COUNT_MEMORY) <= 2 << 20);
    assert_served(&f, f.unix_url);
    for (size_t i = 0; i < 4; i++)
        close(deaf[i]);
    server_finish(&f);
}

static void a_peer_has_a_limit_of_streams(void **state) {
    (void)state;
    static fm_wire_message message;
    server_fixture f;
    server_prepare(&f);
    f.options.peer.n_stream = 3;
    server_start(&f);
    int one = greet_from(&f, 1), two = greet_from(&f, 1);
    raw_open(one, 1, 1, 0);
    raw_open(one, 2, 2, 0);
    raw_open(two, 1, 1, 0);
    await_counter(&f, FM_COUNT_STREAMS, 3);
    raw_open(two, 2, 2, 0);
    assert_true(hear(two, FM_WIRE_ERROR, &message));
    assert_int_equal(message.error.status, FM_ERR_LIMIT);
    assert_string_equal(
        message.error.text,
        "127.0.0.1 has 3 streams, as many as the server allows it (--peer-streams)");
    assert_int_equal(counter(&f, FM_COUNT_STREAMS_REFUSED_PEER), 1);
    assert_served(&f, f.unix_url);
    close(one); /* its streams count no more */
    await_counter(&f, FM_COUNT_STREAMS, 1);
    raw_open(two, 2, 3, 0);
    assert_true(hear(two, FM_WIRE_OPENED, &message));
    close(two);
    server_finish(&f);
}

/* -- connections */

static void silent_connections_keep_nobody_out(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.options.max_connection = 32; /* two are kept for Unix sockets, a peer may have 16 */
    f.options.idle_ms = 4000;
    server_start(&f);
    int silent[30];
    for (size_t i = 0; i < 16; i++)
        silent[i] = greet_from(&f, 1);
    expect_refusal(connect_from(&f, 1), "connections of one peer (--peer-connections)");
    assert_int_equal(counter(&f, FM_COUNT_REFUSED_PEER), 1);
    for (size_t i = 16; i < 30; i++)
        silent[i] = greet_from(&f, 2);
    expect_refusal(connect_from(&f, 3), "its limit of connections (--max-connections)");
    assert_int_equal(counter(&f, FM_COUNT_REFUSED_FULL), 1);
    assert_served(&f, f.unix_url);
    for (size_t i = 0; i < 30; i++)
        expect_refusal(silent[i], "no stream was opened for too long");
    assert_int_equal(counter(&f, FM_COUNT_IDLE_CLOSED), 30);
    await_connections(&f, 0);
    assert_served(&f, f.tcp_url);
    server_finish(&f);
}

/* An open stream keeps a connection: its consumer may be in the middle of a long step. */
static void a_stream_without_credit_is_not_idle(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.options.idle_ms = f.options.stall_ms = 1500;
    server_start(&f);
    fm_client *client = connect_to(f.unix_url);
    fm_wire_open params = stream_of(1);
    params.credit_items = 1;
    (void)open_on(client, &params);
    fm_client_event event = next_on(client, &into);
    sleep_ms(3500);
    for (uint64_t i = 1; i < 8; i++) {
        release_on(client, &event);
        event = next_on(client, &into);
        assert_sample(&f.test, &event, 42, i, 8);
    }
    fm_client_close(client);
    server_finish(&f);
}

static void greet_late(uint32_t grace_ms) {
    server_fixture f;
    server_prepare(&f);
    f.options.max_connection = 64;
    f.options.n_greeting = 8;
    f.options.peer.n_greeting = 4;
    f.options.hello_ms = 60000;
    f.options.grace_ms = grace_ms;
    server_start(&f);
    int silent[10];
    for (size_t i = 0; i < 8; i++)
        silent[i] = connect_from(&f, i < 4 ? 1 : 2);
    await_counter(&f, FM_COUNT_GREETINGS, 8);
    assert_served(&f, f.unix_url); /* who has places of its own */
    sleep_ms(20);
    if (grace_ms > 1) { /* the eight have time left */
        expect_refusal(connect_from(&f, 3), "too many connections wait for their HELLO");
        expect_refusal(connect_from(&f, 1), "too many connections wait for their HELLO");
        assert_int_equal(counter(&f, FM_COUNT_REFUSED_GREETING), 2);
        silent[8] = connect_from(&f, 2);
    } else {
        close(greet_from(&f, 3));
        expect_refusal(silent[0], "no HELLO came, and others wait to connect");
        assert_int_equal(counter(&f, FM_COUNT_HELLO_EVICTED), 1);
        silent[0] = connect_from(&f, 1);
        silent[8] = connect_from(&f, 1); /* a peer with its maximum pushes out its own */
        expect_refusal(silent[1], "no HELLO came, and others wait to connect");
        assert_int_equal(counter(&f, FM_COUNT_HELLO_EVICTED), 2);
        silent[1] = connect_from(&f, 2);
    }
    assert_true(counter(&f, FM_COUNT_GREETINGS) <= 8);
    for (size_t i = 0; i < 9; i++)
        close(silent[i]);
    server_finish(&f);
}

static void connections_without_hello_make_room(void **state) {
    (void)state;
    greet_late(60000);
    greet_late(1);
}

/* A peer that has taken most places makes room at once, and holds no place while it is told. */
static void a_greedy_peer_makes_room_first(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.options.max_connection = 45; /* one of them for Unix sockets */
    f.options.n_unix_slot = 1;
    f.options.n_greeting = 40;
    f.options.peer.n_greeting = f.options.peer.n_connection = 30;
    f.options.hello_ms = f.options.goodbye_ms = f.options.grace_ms = 60000;
    server_start(&f);
    int silent[40];
    for (size_t i = 0; i < 40; i++)
        silent[i] = connect_from(&f, i < 30 ? 1 : 2);
    await_counter(&f, FM_COUNT_GREETINGS, 40);
    int greeted = greet_from(&f, 3); /* it had its place for a moment only */
    expect_refusal(silent[0], "no HELLO came, and others wait to connect");
    int more[4];
    for (size_t i = 0; i < 4; i++)
        more[i] = connect_from(&f, 3);
    await_counter(&f, FM_COUNT_HELLO_EVICTED, 4);
    close(greet_from(&f, 4));
    for (size_t i = 1; i < 5; i++)
        expect_refusal(silent[i], "no HELLO came, and others wait to connect");
    assert_int_equal(counter(&f, FM_COUNT_HELLO_EVICTED), 5);
    for (size_t i = 5; i < 40; i++)
        close(silent[i]);
    for (size_t i = 0; i < 4; i++)
        close(more[i]);
    close(greeted);
    server_finish(&f);
}

/* -- requests */

static size_t put_pings(uint8_t *out, uint32_t n, uint64_t sequence) {
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        fm_wire_message ping = {.kind = FM_WIRE_PING, .ping = i};
        at += fm_wire_encode(&ping, sequence + i, out + at, 64);
    }
    return at;
}

static void many_requests_at_once_are_answered_or_refused(void **state) {
    (void)state;
    static uint8_t frames[64 * 1000];
    static fm_wire_message message;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    int fd = greet_from(&f, 1);
    raw_send(fd, frames, put_pings(frames, 100, 1));
    for (uint64_t i = 0; i < 100; i++) {
        assert_true(hear(fd, FM_WIRE_PONG, &message));
        assert_int_equal(message.ping, i);
    }
    raw_send(fd, frames, put_pings(frames, 1000, 101));
    expect_refusal(fd, "too many requests before their answers were read");
    assert_int_equal(counter(&f, FM_COUNT_ANSWERS_UNREAD), 1);
    server_finish(&f);
}

static void a_peer_has_a_rate_of_requests(void **state) {
    (void)state;
    static uint8_t frames[64 * 32];
    static fm_wire_message message;
    server_fixture f;
    server_prepare(&f);
    f.options.peer.requests_per_s = 1; /* ten at once */
    server_start(&f);
    int fd = greet_from(&f, 1);
    raw_send(fd, frames, put_pings(frames, 5, 1));
    for (int i = 0; i < 5; i++)
        assert_true(hear(fd, FM_WIRE_PONG, &message));
    raw_send(fd, frames, put_pings(frames, 32, 6));
    expect_refusal(fd, "too many requests a second from one peer (--peer-requests)");
    assert_int_equal(counter(&f, FM_COUNT_REQUESTS_REFUSED), 1);
    /* A new connection is a request too, and the account remembers. */
    for (int i = 0; i < 100 && counter(&f, FM_COUNT_REFUSED_FLOOD) == 0; i++) {
        close(connect_from(&f, 1));
        sleep_ms(10);
    }
    assert_true(counter(&f, FM_COUNT_REFUSED_FLOOD) > 0);
    assert_served(&f, f.unix_url);
    server_finish(&f);
}

/* Opens a stream with a token of so many bytes, then asks for a sign of life. */
static int open_with_token(const server_fixture *f, uint8_t host, uint32_t bitmap_bytes) {
    static fm_wire_message open;
    open = (fm_wire_message){.kind = FM_WIRE_OPEN, .stream = 1, .open = stream_of(0)};
    open.open.n_group = 65536;
    open.open.group = 65535;
    open.open.credit_items = 0;
    open.open.token.bitmap_bytes = bitmap_bytes;
    if (bitmap_bytes) {
        memset(open.open.token.bitmap, 0xff, bitmap_bytes);
        open.open.token.bitmap[0] = 0xfe;
    }
    int fd = greet_from(f, host);
    raw_send_message(fd, &open, 1);
    raw_send_message(fd, &(fm_wire_message){.kind = FM_WIRE_PING}, 2);
    return fd;
}

/* Work of an OPEN is charged as requests, to the peer whose work it is. */
static void a_peer_has_a_rate_of_work(void **state) {
    (void)state;
    static fm_wire_message message;
    server_fixture f;
    server_prepare(&f);
    f.test.global_batch = 65536;
    f.options.peer.requests_per_s = 1; /* ten at once */
    server_start(&f);
    int light = open_with_token(&f, 1, 0);
    assert_true(hear(light, FM_WIRE_OPENED, &message));
    assert_true(hear(light, FM_WIRE_PONG, &message));
    int heavy = open_with_token(&f, 2, FM_LIMIT_TOKEN_BYTES); /* as much as 17 requests */
    expect_refusal(heavy, "too many requests a second from one peer (--peer-requests)");
    assert_int_equal(counter(&f, FM_COUNT_STREAMS_OPENED), 2);
    assert_int_equal(counter(&f, FM_COUNT_REQUESTS_REFUSED), 1);
    raw_send_message(light, &(fm_wire_message){.kind = FM_WIRE_PING}, 3);
    assert_true(hear(light, FM_WIRE_PONG, &message));
    close(light);
    server_finish(&f);
}

/* An ill-formed OPEN of an open stream breaks the protocol, like a well-formed one. */
static void an_ill_formed_open_leaves_no_stream_running(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    int fd = greet_from(&f, 1);
    raw_open(fd, 5, 1, 0);
    await_counter(&f, FM_COUNT_STREAMS, 1);
    fm_wire_message again = {.kind = FM_WIRE_OPEN, .stream = 5, .open = stream_of(0)};
    again.open.order = FM_WIRE_FREE + 1;
    raw_send_message(fd, &again, 2);
    expect_refusal(fd, "order 4, expected strict (1), bounded (2) or free (3)");
    await_counter(&f, FM_COUNT_STREAMS, 0);
    assert_int_equal(counter(&f, FM_COUNT_PROTOCOL_ERRORS), 1);
    server_finish(&f);
}

/* -- slow readers */

/* Reads `bytes` at once, at most as often as every `pause_ms`, until the other side closes; returns
 * how many came and the reason of the last END in *ret_reason. */
static uint64_t read_slowly(int fd, size_t bytes, uint32_t pause_ms, uint32_t *ret_reason) {
    static uint8_t all[64 << 20];
    uint64_t n = 0;
    for (;;) {
        assert_true(n + bytes <= sizeof all);
        ssize_t got = recv(fd, all + n, bytes, 0);
        if (got <= 0) break;
        n += (uint64_t)got;
        sleep_ms(pause_ms);
    }
    *ret_reason = 0;
    for (uint64_t at = 0; n - at >= FM_WIRE_HEADER_BYTES;) {
        static fm_wire_message message;
        fm_wire_header header;
        if (fm_wire_header_decode(all + at, &header, NULL)) break;
        at += FM_WIRE_HEADER_BYTES;
        if (n - at < header.body_bytes) break;
        fm_bytes body = {all + at, header.body_bytes};
        if (header.kind == FM_WIRE_END && !fm_wire_decode(&header, body, &message, NULL)) {
            *ret_reason = message.end.reason;
        }
        at += header.body_bytes;
    }
    return n;
}

static void prepare_large(server_fixture *f) {
    server_prepare(f);
    f->test.shape = (fm_test_shape){.n_res = 128, .n_clust = 32, .n_extra = 128, .n_cycle = 2};
    f->test.copies = true;
    f->options.max_memory_bytes = 256 << 20;
}

/* Reads a few bytes now and then until the server counts that it had enough of it. */
static void trickle(const server_fixture *f, int fd, fm_counter which) {
    uint8_t some[100];
    for (int i = 0; counter(f, which) == 0; i++) {
        assert_true(i < 1000);
        if (recv(fd, some, sizeof some, 0) <= 0) break;
        sleep_ms(10);
    }
    await_counter(f, which, 1);
}

/* Takes several times goodbye_ms for what was queued, and still gets its END. */
static void a_slow_reader_gets_its_end(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        server_fixture f;
        prepare_large(&f);
        f.options.goodbye_ms = 1000;
        server_start(&f);
        int fd = raw_connect(i ? f.unix_url : f.tcp_url);
        raw_hello(fd);
        raw_open(fd, 1, 1, 20);
        await_counter(&f, FM_COUNT_SAMPLES_SENT, 20);
        fm_server_stop(f.server);
        uint32_t reason;
        uint64_t n = read_slowly(fd, 100000, 40, &reason);
        assert_true(n > 20 * fm_test_source_sample_bytes(&f.test));
        assert_int_equal(reason, FM_WIRE_SHUTDOWN);
        assert_int_equal(counter(&f, FM_COUNT_GOODBYE_CUT), 0);
        close(fd);
        server_finish(&f);
    }
}

/* One that takes a few bytes now and then does not keep a server from ending. */
static void a_trickle_is_no_progress_at_the_end(void **state) {
    (void)state;
    server_fixture f;
    prepare_large(&f);
    f.options.goodbye_ms = 500;
    server_start(&f);
    int fd = raw_connect(f.unix_url);
    raw_hello(fd);
    raw_open(fd, 1, 1, 20);
    await_counter(&f, FM_COUNT_SAMPLES_SENT, 20);
    fm_server_stop(f.server);
    trickle(&f, fd, FM_COUNT_GOODBYE_CUT);
    close(fd);
    server_finish(&f);
}

static void a_trickle_is_no_progress(void **state) {
    (void)state;
    server_fixture f;
    prepare_large(&f);
    f.options.stall_ms = 2000;
    server_start(&f);
    uint32_t reason;
    int fd = raw_connect(f.unix_url);
    raw_hello(fd);
    raw_open(fd, 1, 1, 20);
    trickle(&f, fd, FM_COUNT_STALLED_CLOSED); /* 10 KB/s, of 64 KiB/s that are due */
    close(fd);
    fd = raw_connect(f.unix_url); /* 2 MB/s is slow and fine */
    raw_hello(fd);
    raw_open(fd, 1, 1, 10);
    static fm_wire_message close_all = {.kind = FM_WIRE_CLOSE};
    await_counter(&f, FM_COUNT_SAMPLES_SENT, 30);
    raw_send_message(fd, &close_all, 2);
    uint64_t n = read_slowly(fd, 50000, 20, &reason);
    assert_true(n > 10 * fm_test_source_sample_bytes(&f.test));
    close(fd);
    assert_int_equal(counter(&f, FM_COUNT_STALLED_CLOSED), 1);
    server_finish(&f);
}

/* -- what clients learn */

static void paths_stay_at_the_server(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    fm_log_set_level(FM_LOG_ERROR - 1);
    f.test.fail_every = 1;
    f.test.fail_source = "/srv/secret/cache/shards/0001.shard";
    server_start(&f);
    fm_client *client = connect_to(f.unix_url);
    fm_wire_open params = stream_of(1);
    params.policy = FM_WIRE_SKIP;
    (void)open_on(client, &params);
    fm_client_event event = next_on(client, &into);
    assert_int_equal(event.kind, FM_CLIENT_SKIPPED);
    assert_string_equal(event.text, "0001.shard: sample 0 is made to fail");
    fm_client_close(client);
    server_finish(&f);
}

static void public_texts(void **state) {
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"no path at all", "no path at all"},
        {"/srv/cache/a.shard:12: page 3", "a.shard:12: page 3"},
        {"cannot open '/srv/my cache/x' (unix:/run/s)", "cannot open 'my x' (s)"},
        {"../other/x, /a/b", "x, b"},
        {"/srv/cache/ is empty", "cache/ is empty"},
        {"group 1/2 at 20/s, crop 0..3", "group 1/2 at 20/s, crop 0..3"},
        {"/", "/"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[100];
        snprintf(text, sizeof text, "%s", cases[i].text);
        fm_public_text(text);
        assert_string_equal(text, cases[i].shown);
    }
}

/* Every line of a connection says which one, whose and what it calls itself; rates come of
 * themselves. */
static void the_log_names_who_and_how_fast(void **state) {
    (void)state;
    static char text[1 << 16];
    server_fixture f;
    server_prepare(&f);
    char path[300];
    snprintf(path, sizeof path, "%s/log", f.folder);
    FILE *log = fopen(path, "w");
    int kept = dup(STDERR_FILENO);
    assert_true(log && kept >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    fm_log_set_level(FM_LOG_INFO);
    f.options.rates_ms = 100;
    server_start(&f);
    assert_served(&f, f.unix_url);
    fm_client *client = connect_to(f.tcp_url);
    for (int i = 0; i < 100 && !strstr(text, " rates connections=1 streams=0 "); i++) {
        sleep_ms(100);
        FILE *from = fopen(path, "r"); /* `log` shares its position with standard error */
        assert_non_null(from);
        text[fread(text, 1, sizeof text - 1, from)] = '\0';
        fclose(from);
    }
    fm_client_close(client);
    fm_log_set_level(FM_LOG_ERROR);
    dup2(kept, STDERR_FILENO);
    close(kept);
    fclose(log);
    server_finish(&f);
    char who[200], expected[400];
    snprintf(who, sizeof who, "connection=1 peer=uid:%u consumer=test", getuid());
    static const char *const lines[] = {
        " info hello %s version=2 from=", " info stream %s stream=1 plan=test seed=42 group=0/1 ",
        " info stream_end %s stream=1 samples=80 why=", " info closed %s state=ready why="};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const char *at = strstr(lines[i], "%s");
        snprintf(expected, sizeof expected, "%.*s%s%s", (int)(at - lines[i]), lines[i], who,
                 at + 2);
        if (!strstr(text, expected)) fail_msg("no '%s' in: %s", expected, text);
    }
    assert_non_null(strstr(text, " rates connections=1 streams=0 "));
    assert_non_null(strstr(text, " prepare_ms_p50="));
}

/* Each counter has a name that monitoring accepts, its own, and a sentence. */
static void counters_have_names(void **state) {
    (void)state;
    for (size_t i = 0; i < FM_N_COUNTER; i++) {
        const fm_counter_row *row = &fm_counter_rows[i];
        size_t bytes = strlen(row->name);
        bool is_total = bytes > 6 && strcmp(row->name + bytes - 6, "_total") == 0;
        assert_int_equal(strspn(row->name, "abcdefghijklmnopqrstuvwxyz_"), bytes);
        assert_int_equal(row->kind, is_total ? FM_COUNTS : FM_GAUGES);
        assert_int_equal(row->help[strlen(row->help) - 1], '.');
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(row->name, fm_counter_rows[k].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_streams_hold_no_memory),
        cmocka_unit_test(a_deaf_peer_has_a_share_of_memory),
        cmocka_unit_test(a_peer_has_a_limit_of_streams),
        cmocka_unit_test(silent_connections_keep_nobody_out),
        cmocka_unit_test(a_stream_without_credit_is_not_idle),
        cmocka_unit_test(connections_without_hello_make_room),
        cmocka_unit_test(a_greedy_peer_makes_room_first),
        cmocka_unit_test(many_requests_at_once_are_answered_or_refused),
        cmocka_unit_test(a_peer_has_a_rate_of_requests),
        cmocka_unit_test(a_peer_has_a_rate_of_work),
        cmocka_unit_test(an_ill_formed_open_leaves_no_stream_running),
        cmocka_unit_test(a_slow_reader_gets_its_end),
        cmocka_unit_test(a_trickle_is_no_progress_at_the_end),
        cmocka_unit_test(a_trickle_is_no_progress),
        cmocka_unit_test(paths_stay_at_the_server),
        cmocka_unit_test(public_texts),
        cmocka_unit_test(the_log_names_who_and_how_fast),
        cmocka_unit_test(counters_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
