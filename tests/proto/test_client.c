/* The client against servers that break the protocol. Each server sends a script of bytes, and the
 * client must fail with a message: without a crash, a hang, or an allocation of a declared size. */
#include "proto/address.h"
#include "proto/client.h"
#include "proto/schema.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { SCRIPT_BYTES = 1 << 16, SLAB_BYTES = 4096 };

/* What the server says, all at once, and then closes or stays silent. */
typedef struct script {
    uint8_t bytes[SCRIPT_BYTES];
    size_t n;
    uint64_t sequence;
    bool stays;
} script;

typedef struct fake_server {
    char folder[200], url[256];
    int listening;
    const script *script;
    pthread_t thread;
    uint8_t heard[SCRIPT_BYTES]; /* the client's frames */
    size_t n_heard;
} fake_server;

static fm_wire_message welcome(void) {
    return (fm_wire_message){
        .kind = FM_WIRE_WELCOME,
        .welcome = {.version = FM_WIRE_VERSION_MAX, .schema_hash = fm_schema_hash()}};
}

static fm_wire_message opened(void) {
    return (fm_wire_message){
        .kind = FM_WIRE_OPENED,
        .stream = 1,
        .opened = {
            .n_sample = 5, .max_sample_bytes = 4096, .global_batch = 1, .samples_per_step = 1}};
}

static void say(script *s, fm_wire_message message) {
    s->n += fm_wire_encode(&message, s->sequence++, s->bytes + s->n, sizeof s->bytes - s->n);
}

static void say_bytes(script *s, const void *bytes, size_t n) {
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
}

static void say_sample(script *s, uint32_t declared, size_t sent) {
    fm_wire_header header = {
        .kind = FM_WIRE_SAMPLE, .stream = 1, .body_bytes = declared, .sequence = s->sequence++};
    fm_wire_header_encode(&header, s->bytes + s->n);
    s->n += FM_WIRE_HEADER_BYTES;
    memset(s->bytes + s->n, 7, sent);
    s->n += sent;
}

static void *play(void *argument) {
    fake_server *server = argument;
    struct pollfd wait = {.fd = server->listening, .events = POLLIN};
    if (poll(&wait, 1, 5000) <= 0) return NULL;
    int fd = accept(server->listening, NULL, NULL);
    (void)!send(fd, server->script->bytes, server->script->n, MSG_NOSIGNAL);
    if (!server->script->stays) shutdown(fd, SHUT_WR);
    for (;;) { /* until the client is gone */
        size_t room = sizeof server->heard - server->n_heard;
        ssize_t n = recv(fd, server->heard + server->n_heard, room, 0);
        if (n <= 0) break;
        server->n_heard += (size_t)n;
    }
    close(fd);
    return NULL;
}

/* Connects, opens, takes one event; the first failure is the result. */
static fm_status use(const char *url, fm_client_event *ret_event, fm_error *reterr) {
    static _Alignas(64) uint8_t slab[SLAB_BYTES];
    fm_client *client = NULL;
    fm_client_options options = {.url = url, .connect_ms = 2000, .silence_ms = 400};
    fm_wire_open params = {.plan = "tiny",
                           .n_step = 5,
                           .n_group = 1,
                           .order = FM_WIRE_STRICT,
                           .policy = FM_WIRE_STOP,
                           .credit_items = 1,
                           .credit_bytes = 1};
    fm_wire_opened facts;
    fm_status status = fm_client_connect(&options, &client, reterr);
    if (status) return status;
    status = fm_client_open(client, &params, &facts, reterr);
    if (!status) status = fm_client_next(client, slab, sizeof slab, ret_event, reterr);
    fm_client_close(client);
    return status;
}

static fm_status meet(const script *s, fake_server *server, fm_client_event *ret_event,
                      fm_error *reterr) {
    memset(server, 0, sizeof *server);
    server->script = s;
    fm_test_make_folder(server->folder, sizeof server->folder);
    snprintf(server->url, sizeof server->url, "unix:%s/s", server->folder);
    fm_address address, bound;
    assert_int_equal(fm_address_parse(server->url, &address, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&address, &server->listening, &bound, NULL), FM_OK);
    int blocking = server->listening;
    assert_int_equal(pthread_create(&server->thread, NULL, play, server), 0);
    fm_status status = use(server->url, ret_event, reterr);
    assert_int_equal(pthread_join(server->thread, NULL), 0);
    close(blocking);
    fm_test_remove_tree(server->folder);
    return status;
}

static void expect(const script *s, fm_status status, const char *words) {
    static fake_server server;
    fm_client_event event;
    fm_error error = {0};
    assert_int_equal(meet(s, &server, &event, &error), status);
    if (!strstr(error.message, words)) fail_msg("'%s', expected '%s'", error.message, words);
}

static void broken_greetings_are_errors(void **state) {
    (void)state;
    script s = {0};
    expect(&s, FM_ERR_CLOSED, "closed the connection");
    say_bytes(&s, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", 47);
    expect(&s, FM_ERR_PROTOCOL, "not a foldmill frame");

    s = (script){0};
    say(&s, welcome());
    s.bytes[20] ^= 1; /* the sequence */
    expect(&s, FM_ERR_PROTOCOL, "does not match its checksum");

    s = (script){.sequence = 1};
    say(&s, welcome());
    expect(&s, FM_ERR_PROTOCOL, "received frame 1, expected frame 0");

    s = (script){0};
    say(&s, welcome());
    s.bytes[40] ^= 1; /* the body */
    expect(&s, FM_ERR_CORRUPT, "the body of WELCOME");

    s = (script){0};
    fm_wire_message other = welcome();
    other.welcome.schema_hash ^= 1;
    say(&s, other);
    expect(&s, FM_ERR_UNSUPPORTED, "another feature table");

    s = (script){0};
    other = welcome();
    other.welcome.version = FM_WIRE_VERSION_MAX + 1;
    say(&s, other);
    expect(&s, FM_ERR_UNSUPPORTED, "speaks protocol 3");

    s = (script){0};
    say(&s, opened());
    expect(&s, FM_ERR_PROTOCOL, "received OPENED, expected WELCOME");

    s = (script){0};
    say_sample(&s, 1u << 28, 100);
    expect(&s, FM_ERR_LIMIT, "a sample of 268435456 bytes does not fit a slab of 0");

    s = (script){.stays = true};
    expect(&s, FM_ERR_CLOSED, "did not answer in time");
}

static void refused_streams_are_errors(void **state) {
    (void)state;
    script s = {0};
    say(&s, welcome());
    script after_welcome = s;
    expect(&s, FM_ERR_CLOSED, "closed the connection");

    fm_wire_message large = opened();
    large.opened.max_sample_bytes = (uint64_t)1 << 40;
    say(&s, large);
    expect(&s, FM_ERR_LIMIT, "samples of up to 1099511627776 bytes");

    s = after_welcome;
    fm_wire_message refusal = {.kind = FM_WIRE_ERROR,
                               .stream = 1,
                               .error = {.status = 200, .scope = 2, .text = "not today"}};
    say(&s, refusal);
    expect(&s, FM_ERR_PROTOCOL, "not today");

    s = after_welcome;
    say(&s, opened());
    script after_opened = s;
    say_sample(&s, SLAB_BYTES + 1, SLAB_BYTES + 1);
    expect(&s, FM_ERR_LIMIT, "a sample of 4097 bytes does not fit a slab of 4096");

    s = after_opened;
    say_sample(&s, 1000, 999);
    expect(&s, FM_ERR_CLOSED, "closed the connection");

    s = after_opened;
    say(&s, welcome());
    expect(&s, FM_ERR_PROTOCOL, "WELCOME came in the middle of a stream");

    s = after_opened;
    fm_wire_header other_stream = {.kind = FM_WIRE_SAMPLE, .stream = 2, .sequence = s.sequence};
    fm_wire_header_encode(&other_stream, s.bytes + s.n);
    s.n += FM_WIRE_HEADER_BYTES;
    expect(&s, FM_ERR_PROTOCOL, "SAMPLE of stream 2, which was never opened");

    s = after_opened;
    s.stays = true;
    expect(&s, FM_ERR_CLOSED, "is silent");
}

/* A server answers an OPEN with another stream than was asked. */
static void other_streams_are_errors(void **state) {
    (void)state;
    static const struct {
        fm_wire_opened opened;
        const char *words;
    } cases[] = {
        {{.n_sample = 0, .global_batch = 1, .samples_per_step = 1},
         "opened a stream with samples 0, expected 5"},
        {{.n_sample = UINT64_MAX, .global_batch = 1, .samples_per_step = 1}, "expected 5"},
        {{.n_sample = 10, .global_batch = 2, .samples_per_step = 1},
         "samples per step 1, expected 2"},
        {{.n_sample = 5, .global_batch = 0, .samples_per_step = 1},
         "a global batch of 0, expected 1 to 65536"},
        {{.n_sample = 5, .global_batch = 1u << 31, .samples_per_step = 1},
         "a global batch of 2147483648"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        script s = {0};
        say(&s, welcome());
        say(&s, (fm_wire_message){.kind = FM_WIRE_OPENED, .stream = 1, .opened = cases[i].opened});
        expect(&s, FM_ERR_PROTOCOL, cases[i].words);
    }
}

static script opened_stream(void) {
    script s = {0};
    say(&s, welcome());
    say(&s, opened());
    return s;
}

/* What the server was not asked for, or not granted. */
static void breaches_in_a_stream_are_errors(void **state) {
    (void)state;
    script s = opened_stream();
    say(&s, (fm_wire_message){.kind = FM_WIRE_END, .stream = 1, .end = {FM_WIRE_DELIVERED, 0}});
    expect(&s, FM_ERR_PROTOCOL, "ended the stream after 0 of 5 samples");

    s = opened_stream();
    say(&s, (fm_wire_message){.kind = FM_WIRE_END, .stream = 1, .end = {FM_WIRE_SHUTDOWN, 3}});
    expect(&s, FM_ERR_PROTOCOL, "says that it sent 3 samples, and 0 came");

    s = opened_stream();
    say(&s, (fm_wire_message){.kind = FM_WIRE_PONG, .ping = 1});
    expect(&s, FM_ERR_PROTOCOL, "received a PONG without a PING");

    s = opened_stream(); /* with policy stop no sample is left out */
    fm_wire_message left_out = {
        .kind = FM_WIRE_ERROR, .stream = 1, .error = {.status = 13, .scope = 1, .text = "bad"}};
    say(&s, left_out);
    expect(&s, FM_ERR_PROTOCOL, "left out sample 0, which it must not");
}

/* -- servers that do not stop */

/* Sends the script, then the same bytes again and again with a pause, until the client is gone. */
typedef struct drip {
    fake_server server;
    script start;
    uint8_t piece[64];
    size_t piece_bytes;
    uint32_t pause_ms;
    bool is_frame; /* the piece is a frame, which gets the next number */
    fm_wire_message frame;
} drip;

static void *play_drip(void *argument) {
    drip *d = argument;
    struct pollfd wait = {.fd = d->server.listening, .events = POLLIN};
    if (poll(&wait, 1, 5000) <= 0) return NULL;
    int fd = accept(d->server.listening, NULL, NULL);
    ssize_t sent = send(fd, d->start.bytes, d->start.n, MSG_NOSIGNAL);
    for (uint64_t sequence = d->start.sequence; sent >= 0; sequence++) {
        if (d->is_frame) {
            d->piece_bytes = fm_wire_encode(&d->frame, sequence, d->piece, sizeof d->piece);
        }
        sent = send(fd, d->piece, d->piece_bytes, MSG_NOSIGNAL);
        struct timespec pause = {.tv_nsec = d->pause_ms * 1000000L};
        if (d->pause_ms) nanosleep(&pause, NULL);
    }
    close(fd);
    return NULL;
}

static void expect_from_drip(drip *d, fm_status expected, const char *words) {
    static _Alignas(64) uint8_t slab[1 << 20];
    fake_server *server = &d->server;
    fm_test_make_folder(server->folder, sizeof server->folder);
    snprintf(server->url, sizeof server->url, "unix:%s/s", server->folder);
    fm_address address, bound;
    assert_int_equal(fm_address_parse(server->url, &address, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&address, &server->listening, &bound, NULL), FM_OK);
    assert_int_equal(pthread_create(&server->thread, NULL, play_drip, d), 0);
    fm_client *client = NULL;
    fm_error error = {0};
    const fm_client_options options = {
        .url = server->url, .connect_ms = 500, .silence_ms = 400, .event_ms = 700};
    const fm_wire_open params = {.plan = "tiny",
                                 .n_step = 5,
                                 .n_group = 1,
                                 .order = FM_WIRE_STRICT,
                                 .policy = FM_WIRE_SKIP,
                                 .credit_items = 2,
                                 .credit_bytes = 1};
    fm_wire_opened facts;
    fm_client_event event;
    fm_status status = fm_client_connect(&options, &client, &error);
    if (!status) status = fm_client_open(client, &params, &facts, &error);
    while (!status)
        status = fm_client_next(client, slab, sizeof slab, &event, &error);
    fm_client_close(client);
    assert_int_equal(pthread_join(server->thread, NULL), 0);
    close(server->listening);
    fm_test_remove_tree(server->folder);
    assert_int_equal(status, expected);
    if (!strstr(error.message, words)) fail_msg("'%s', expected '%s'", error.message, words);
}

static void bytes_that_trickle_are_no_sign_of_life(void **state) {
    (void)state;
    static drip d;
    d = (drip){.piece = "F", .piece_bytes = 1, .pause_ms = 30}; /* before WELCOME */
    expect_from_drip(&d, FM_ERR_CLOSED, "sends too slowly");

    d = (drip){.start = opened_stream(), .piece_bytes = 1, .pause_ms = 30};
    say_sample(&d.start, 1 << 20, 100);
    expect_from_drip(&d, FM_ERR_CLOSED, "sends too slowly");
}

static void floods_do_not_prolong_a_wait(void **state) {
    (void)state;
    static drip d;
    d = (drip){.is_frame = true, .frame = {.kind = FM_WIRE_PING, .ping = 7}};
    say(&d.start, welcome());
    expect_from_drip(&d, FM_ERR_CLOSED, "did not answer in time");

    d = (drip){
        .start = opened_stream(), .is_frame = true, .frame = {.kind = FM_WIRE_PING, .ping = 7}};
    expect_from_drip(&d, FM_ERR_CLOSED, "sent no sample in time");

    d = (drip){
        .start = opened_stream(), .is_frame = true, .frame = {.kind = FM_WIRE_PONG, .ping = 7}};
    expect_from_drip(&d, FM_ERR_PROTOCOL, "received a PONG without a PING");

    /* Two samples are granted, and nothing was given back. */
    d = (drip){.start = opened_stream(), .is_frame = true};
    d.frame = (fm_wire_message){
        .kind = FM_WIRE_ERROR, .stream = 1, .error = {.status = 13, .scope = 1, .index = 3}};
    expect_from_drip(&d, FM_ERR_PROTOCOL, "sent a sample too many");

    d = (drip){.start = opened_stream(), .is_frame = true};
    d.frame = (fm_wire_message){
        .kind = FM_WIRE_ERROR, .stream = 1, .error = {.status = 13, .scope = 1, .index = 5}};
    expect_from_drip(&d, FM_ERR_PROTOCOL, "left out sample 5, which it must not");
}

static void pings_are_answered_and_the_event_arrives(void **state) {
    (void)state;
    static fake_server server;
    static script s;
    say(&s, welcome());
    say(&s, opened());
    say(&s, (fm_wire_message){.kind = FM_WIRE_PING, .ping = 99});
    say(&s, (fm_wire_message){.kind = FM_WIRE_END, .stream = 1, .end = {FM_WIRE_SHUTDOWN, 0}});
    fm_client_event event = {0};
    fm_error error = {0};
    if (meet(&s, &server, &event, &error)) fail_msg("%s", error.message);
    assert_int_equal(event.kind, FM_CLIENT_END);
    assert_int_equal(event.reason, FM_WIRE_SHUTDOWN);
    static const uint8_t kinds[] = {FM_WIRE_HELLO, FM_WIRE_OPEN, FM_WIRE_PONG};
    size_t at = 0;
    for (size_t i = 0; i < sizeof kinds; i++) { /* what the client said, frame by frame */
        fm_wire_header header;
        static fm_wire_message message;
        assert_true(server.n_heard - at >= FM_WIRE_HEADER_BYTES);
        assert_int_equal(fm_wire_header_decode(server.heard + at, &header, NULL), FM_OK);
        at += FM_WIRE_HEADER_BYTES;
        fm_bytes body = {server.heard + at, header.body_bytes};
        assert_int_equal(fm_wire_decode(&header, body, &message, NULL), FM_OK);
        assert_int_equal(message.kind, kinds[i]);
        if (kinds[i] == FM_WIRE_PONG) assert_int_equal(message.ping, 99);
        at += header.body_bytes;
    }
}

/* -- waits that are cancelled */

static bool is_asked_again(void *n_asked) {
    return ++*(int *)n_asked > 2;
}

/* The system accepts connections for a server that does nothing. */
static void a_wait_for_a_mute_server_is_cancelled(void **state) {
    (void)state;
    static const char *const places[] = {"unix:%s/s", "tcp://127.0.0.1:0", "tls://127.0.0.1:0"};
    char folder[200], place[256], url[FM_ADDRESS_TEXT_BYTES];
    fm_test_make_folder(folder, sizeof folder);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        fm_address address, bound;
        int listening, n_asked = 0;
        fm_client *client;
        snprintf(place, sizeof place, places[i], folder);
        assert_int_equal(fm_address_parse(place, &address, NULL), FM_OK);
        assert_int_equal(fm_address_listen(&address, &listening, &bound, NULL), FM_OK);
        const fm_client_options options = {.url = fm_address_format(&bound, url),
                                           .connect_ms = 3600000,
                                           .retry_ms = 3600000,
                                           .cancel = {is_asked_again, &n_asked}};
        assert_int_equal(fm_client_connect(&options, &client, NULL), FM_ERR_CANCELLED);
        assert_int_equal(n_asked, 3);
        close(listening);
    }
    fm_test_remove_tree(folder);
}

static void a_search_for_a_server_is_cancelled(void **state) {
    (void)state;
    int n_asked = 0;
    fm_client *client;
    const fm_client_options options = {
        .url = "unix:/nowhere/at/all", .retry_ms = 3600000, .cancel = {is_asked_again, &n_asked}};
    assert_int_equal(fm_client_connect(&options, &client, NULL), FM_ERR_CANCELLED);
}

/* Connections beyond a full queue are not answered. */
static void connecting_is_cancelled(void **state) {
    (void)state;
    enum { MOST = 64 };
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof name;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), sockets[MOST], n = 0, n_asked;
    assert_int_equal(bind(listening, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&name, &bytes), 0);
    assert_int_equal(listen(listening, 0), 0);
    const fm_address address = {
        .kind = FM_ADDRESS_TCP, .host = "127.0.0.1", .port = ntohs(name.sin_port)};
    const fm_cancel cancel = {is_asked_again, &n_asked};
    fm_status status = FM_OK;
    while (n < MOST && !status) {
        n_asked = 0;
        status = fm_address_connect_unless(&address, 3600000, &cancel, &sockets[n], NULL);
        n += !status;
    }
    assert_int_equal(status, FM_ERR_CANCELLED);
    while (n)
        close(sockets[--n]);
    close(listening);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_greetings_are_errors),
        cmocka_unit_test(refused_streams_are_errors),
        cmocka_unit_test(other_streams_are_errors),
        cmocka_unit_test(breaches_in_a_stream_are_errors),
        cmocka_unit_test(bytes_that_trickle_are_no_sign_of_life),
        cmocka_unit_test(floods_do_not_prolong_a_wait),
        cmocka_unit_test(pings_are_answered_and_the_event_arrives),
        cmocka_unit_test(a_wait_for_a_mute_server_is_cancelled),
        cmocka_unit_test(a_search_for_a_server_is_cancelled),
        cmocka_unit_test(connecting_is_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
