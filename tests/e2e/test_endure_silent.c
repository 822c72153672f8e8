/* test_endure_silent.c: a server that answers every PING and sends no sample: the client's
 * limit for an event ends the wait, and the trainer says what it waits for, reconnects until --wait
 * has passed, and gives up. */
#include "proto/client.h"
#include "proto/schema.h"
#include "tests/testing/in_folder.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

/* The server: a thread that accepts, and one for each connection. */
enum { MAX_CONNECTION = 8 };
typedef struct silent {
    int listening;
    unsigned n_short; /* the first connections, which end when their stream is open */
    atomic_uint n_connection, n_ping;
    pthread_t thread, each[MAX_CONNECTION];
} silent;

static bool receive(int fd, void *out, size_t bytes) {
    return recv(fd, out, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static void answer(int fd, const fm_wire_message *message, uint64_t sequence) {
    uint8_t frame[FM_WIRE_SMALL_BYTES];
    size_t n = fm_wire_encode(message, sequence, frame, sizeof frame);
    ssize_t sent = send(fd, frame, n, MSG_NOSIGNAL);
    (void)sent; /* a client that is gone is noticed by the next read */
}

/* A connection and its server. */
typedef struct connection {
    silent *server;
    int fd;
    bool is_short;
} connection;

/* The answer to an OPEN, with all that it asks for. */
static fm_wire_message opened_of(const fm_wire_open *open) {
    uint32_t batch = open->global_batch ? open->global_batch : 1;
    return (fm_wire_message){.kind = FM_WIRE_OPENED,
                             .stream = 1,
                             .opened = {.n_sample = fm_wire_open_count(open, batch),
                                        .max_sample_bytes = 4096,
                                        .global_batch = batch,
                                        .crop_size = open->crop_size,
                                        .max_msa_clusters = open->max_msa_clusters,
                                        .max_extra_msa = open->max_extra_msa,
                                        .max_cycle = open->max_cycle,
                                        .epoch_samples = 8,
                                        .samples_per_step = fm_wire_open_per_step(open, batch),
                                        .max_template_date = open->max_template_date}};
}

static void serve_one(silent *s, int fd, bool is_short) {
    static const fm_wire_message welcome = {
        .kind = FM_WIRE_WELCOME,
        .welcome = {.version = FM_WIRE_VERSION_MAX, .heartbeat_ms = 1000, .max_stream = 1}};
    uint8_t head[FM_WIRE_HEADER_BYTES], body[FM_WIRE_CONTROL_BYTES];
    uint64_t sequence = 0;
    for (;;) {
        fm_wire_header header;
        if (!receive(fd, head, sizeof head) || fm_wire_header_decode(head, &header, NULL) ||
            header.body_bytes > sizeof body || !receive(fd, body, header.body_bytes)) {
            return;
        }
        if (header.kind == FM_WIRE_HELLO) {
            fm_wire_message message = welcome;
            message.welcome.schema_hash = fm_schema_hash();
            answer(fd, &message, sequence++);
        } else if (header.kind == FM_WIRE_OPEN) {
            fm_wire_message asked;
            if (fm_wire_decode(&header, (fm_bytes){body, header.body_bytes}, &asked, NULL)) return;
            fm_wire_message opened = opened_of(&asked.open);
            answer(fd, &opened, sequence++);
            if (is_short) {
                shutdown(fd, SHUT_RDWR);
                return;
            }
        } else if (header.kind == FM_WIRE_PING) {
            fm_wire_message pong = {.kind = FM_WIRE_PONG};
            memcpy(&pong.ping, body, sizeof pong.ping);
            answer(fd, &pong, sequence++);
            s->n_ping++;
        }
    }
}

static void *serve_each(void *argument) {
    const connection *c = argument;
    serve_one(c->server, c->fd, c->is_short);
    return NULL;
}

static void *serve(void *argument) {
    silent *s = argument;
    connection each[MAX_CONNECTION];
    unsigned n = 0;
    for (int fd; n < MAX_CONNECTION && (fd = accept(s->listening, NULL, NULL)) >= 0; n++) {
        each[n] = (connection){s, fd, n < s->n_short};
        s->n_connection++;
        if (pthread_create(&s->each[n], NULL, serve_each, &each[n]) != 0) break;
    }
    for (unsigned i = 0; i < n; i++) {
        shutdown(each[i].fd, SHUT_RDWR);
        pthread_join(s->each[i], NULL);
        close(each[i].fd);
    }
    return NULL;
}

static void start(silent *s) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.90s/silent", folder);
    unlink(address.sun_path);
    s->listening = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s->listening, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(s->listening, 8), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(silent *s) {
    shutdown(s->listening, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listening);
}

static void a_pong_does_not_prolong_the_wait_for_a_sample(void **state) {
    (void)state;
    silent s = {.listening = -1};
    start(&s);
    char url[600];
    snprintf(url, sizeof url, "unix:%s/silent", folder);
    fm_client_options options = {.url = url, .silence_ms = 400, .event_ms = 1000};
    fm_wire_open open = {.n_step = 8,
                         .n_group = 1,
                         .order = FM_WIRE_STRICT,
                         .policy = FM_WIRE_SKIP,
                         .credit_items = 2,
                         .credit_bytes = 8192,
                         .plan = "tiny"};
    fm_client *client;
    fm_wire_opened opened;
    fm_client_event event;
    fm_error error = {.message = ""};
    _Alignas(64) static uint8_t slab[4096];
    assert_int_equal(fm_client_connect(&options, &client, &error), FM_OK);
    assert_int_equal(fm_client_open(client, &open, &opened, &error), FM_OK);
    assert_int_equal(fm_client_next(client, slab, sizeof slab, &event, &error), FM_ERR_CLOSED);
    assert_non_null(strstr(error.message, "sent no sample in time"));
    assert_true(s.n_ping >= 3); /* it answered, or it would be "silent" */
    fm_client_close(client);
    stop(&s);
}

/* The second connection is lost after --wait. */
static void the_trainer_says_so_and_reconnects_once(void **state) {
    (void)state;
    silent s = {.listening = -1};
    start(&s);
    int code =
        fm_test_shell(folder, "foldmill train --data unix:silent --data-timeout 1 --wait 500 "
                              "--steps 2 --out none 2>err >log");
    stop(&s);
    assert_int_equal(code, 1);
    assert_int_equal(s.n_connection, 2);
    assert_int_equal(
        fm_test_shell(folder, "grep -q 'warn no_sample waited_s=.* for=\"the next sample of the "
                              "server\" received=0 server=unix:silent' err && "
                              "grep -q 'warn server_lost .*sent no sample in time' err && "
                              "grep -q 'warn reconnected' err && grep -q '^foldmill train: the "
                              "server at unix:silent sent no sample in time' err"),
        0);
}

/* A server that is lost again before it has sent a sample is waited for, as long as --wait says. */
static void a_connection_may_be_lost_again(void **state) {
    (void)state;
    silent s = {.listening = -1, .n_short = 3};
    start(&s);
    int code = fm_test_shell(
        folder, "foldmill train --data unix:silent --wait 600000 --steps 2 --out none 2>lost.err "
                ">log & run=$!; for i in $(seq 6000); do "
                "test $(grep -c 'warn reconnected' lost.err) -ge 3 && break; sleep 0.01; done; "
                "kill -TERM $run; wait $run");
    stop(&s);
    assert_int_equal(code, 143);
    assert_int_equal(s.n_connection, 4);
    assert_int_equal(fm_test_shell(folder, "test $(grep -c 'warn reconnected' lost.err) = 3"), 0);
}

/* A signal is noticed while the trainer waits. */
static void a_signal_ends_the_wait(void **state) {
    (void)state;
    silent s = {.listening = -1};
    start(&s);
    int code = fm_test_shell(folder, "foldmill train --data unix:silent --steps 2 --out wait 2>err "
                                     ">log & pid=$!; until grep -q '^data' err; do sleep 0.02; "
                                     "done; kill -TERM $pid; wait $pid");
    stop(&s);
    assert_int_equal(code, 143);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pong_does_not_prolong_the_wait_for_a_sample),
        cmocka_unit_test(the_trainer_says_so_and_reconnects_once),
        cmocka_unit_test(a_connection_may_be_lost_again),
        cmocka_unit_test(a_signal_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, make_folder, tear_down);
}
