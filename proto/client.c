/* client.c: see client.h.
 *
 * The socket is non-blocking, and every wait is a poll with a limit, so no call can hang:
 * connecting, HELLO and OPEN have a deadline. In a stream the client sends PING while the server
 * is silent and gives up after silence_ms. event_ms limits the wait for each event, which a PONG
 * does not prolong.
 *
 * Two threads may send: the receiver (PONG, PING, CREDIT) and the one that calls fm_client_release
 * (CREDIT). send_lock makes each frame one piece and orders the frame numbers. Only the receiver
 * reads.
 *
 * Credit that the caller releases is held back until it is worth a frame: half the first credit, or
 * any amount when the server may send nothing more (room_items is 0), since the stream would stand
 * still otherwise. */
#include "proto/client.h"

#include "proto/address.h"
#include "proto/base/histogram.h"
#include "proto/schema.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    DEFAULT_CONNECT_MS = 10000,
    DEFAULT_SILENCE_MS = 30000,
    RETRY_PAUSE_MS = 50,
    STREAM = 1, /* the number of the only stream */
};

struct fm_client {
    int fd;
    char url[FM_ADDRESS_TEXT_BYTES];
    uint32_t silence_ms, connect_ms, event_ms;
    fm_wire_welcome welcome;
    bool is_open, is_over;
    uint64_t n_received; /* frames */
    _Atomic bool interrupted;
    pthread_mutex_t send_lock;         /* guards writes to fd and the counters that follow */
    uint64_t n_sent;                   /* frames */
    uint32_t window_items, held_items; /* the first credit; released and not granted yet */
    uint32_t room_items;               /* items that the server may still send */
    uint64_t window_bytes, held_bytes;
    fm_wire_message message; /* the last control message; used by the receiver alone */
    uint8_t body[FM_WIRE_CONTROL_BYTES];
};

/* -- bytes out */

static fm_status fail_gone(const fm_client *client, const char *why, fm_error *reterr) {
    if (atomic_load(&client->interrupted)) return fm_fail(reterr, FM_ERR_CANCELLED, "interrupted");
    return fm_fail(reterr, FM_ERR_CLOSED, "the server at %s %s", client->url, why);
}

static fm_status wait_writable(fm_client *client, fm_error *reterr) {
    struct pollfd wait = {.fd = client->fd, .events = POLLOUT};
    int ready = poll(&wait, 1, (int)client->silence_ms);
    if (ready > 0 || (ready < 0 && errno == EINTR)) return FM_OK;
    return fail_gone(client, ready == 0 ? "does not read" : strerror(errno), reterr);
}

static fm_status send_all(fm_client *client, const uint8_t *data, size_t bytes, fm_error *reterr) {
    while (bytes) {
        ssize_t sent = send(client->fd, data, bytes, MSG_NOSIGNAL);
        if (sent >= 0) {
            data += sent;
            bytes -= (size_t)sent;
        } else if (errno == EAGAIN) {
            fm_status status = wait_writable(client, reterr);
            if (status) return status;
        } else if (errno != EINTR) {
            return fail_gone(client, "closed the connection", reterr);
        }
    }
    return FM_OK;
}

/* The caller holds send_lock. */
static fm_status send_message(fm_client *client, const fm_wire_message *message, fm_error *reterr) {
    uint8_t frame[FM_WIRE_CONTROL_BYTES];
    size_t bytes = fm_wire_encode(message, client->n_sent++, frame, sizeof frame);
    return send_all(client, frame, bytes, reterr);
}

static fm_status send_locked(fm_client *client, const fm_wire_message *message, fm_error *reterr) {
    pthread_mutex_lock(&client->send_lock);
    fm_status status = send_message(client, message, reterr);
    pthread_mutex_unlock(&client->send_lock);
    return status;
}

/* -- bytes in */

/* The state of a wait: when the server was heard last, and when it was sent a PING last. */
typedef struct patience {
    uint64_t heard_ns, asked_ns;
    uint64_t deadline_ns; /* 0 = none */
} patience;

static patience patience_of(uint32_t deadline_ms) {
    uint64_t now = fm_clock_ns();
    return (patience){.heard_ns = now,
                      .asked_ns = now,
                      .deadline_ns = deadline_ms ? now + (uint64_t)deadline_ms * 1000000u : 0};
}

/* Waits for bytes for at most a quarter of silence_ms. Sends a PING to a silent server, and fails
 * when it stays silent or the deadline has passed. */
static fm_status wait_readable(fm_client *client, patience *wait, fm_error *reterr) {
    if (atomic_load(&client->interrupted)) return fail_gone(client, "", reterr);
    uint64_t now = fm_clock_ns(), silence_ns = (uint64_t)client->silence_ms * 1000000u;
    if (client->is_open && now - wait->heard_ns > silence_ns) {
        return fail_gone(client, "is silent", reterr);
    }
    if (wait->deadline_ns && now > wait->deadline_ns) {
        return fail_gone(
            client, client->is_open ? "sent no sample in time" : "did not answer in time", reterr);
    }
    uint64_t slice_ns = silence_ns / 4;
    if (client->is_open && now - wait->asked_ns > slice_ns) {
        wait->asked_ns = now;
        fm_wire_message ping = {.kind = FM_WIRE_PING, .ping = now};
        fm_status status = send_locked(client, &ping, reterr);
        if (status) return status;
    }
    if (wait->deadline_ns && wait->deadline_ns - now < slice_ns) slice_ns = wait->deadline_ns - now;
    struct pollfd poll_for = {.fd = client->fd, .events = POLLIN};
    int ready = poll(&poll_for, 1, (int)(slice_ns / 1000000u) + 1);
    if (ready < 0 && errno != EINTR) return fail_gone(client, strerror(errno), reterr);
    return FM_OK;
}

static fm_status receive_all(fm_client *client, patience *wait, void *out, size_t bytes,
                             fm_error *reterr) {
    uint8_t *at = out;
    while (bytes) {
        ssize_t got = recv(client->fd, at, bytes, 0);
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
            wait->heard_ns = fm_clock_ns();
        } else if (got == 0) {
            return fail_gone(client, "closed the connection", reterr);
        } else if (errno == EAGAIN) {
            fm_status status = wait_readable(client, wait, reterr);
            if (status) return status;
        } else if (errno != EINTR) {
            return fail_gone(client, "broke the connection", reterr);
        }
    }
    return FM_OK;
}

/* Receives one frame: the body of a SAMPLE into the slab, any other into client->message. */
static fm_status receive_frame(fm_client *client, patience *wait, void *slab, size_t capacity,
                               fm_wire_header *ret_header, fm_error *reterr) {
    uint8_t head[FM_WIRE_HEADER_BYTES];
    fm_status status = receive_all(client, wait, head, sizeof head, reterr);
    if (status) return status;
    fm_wire_header header;
    status = fm_wire_header_decode(head, &header, reterr);
    if (status) return status;
    if (header.sequence != client->n_received) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "received frame %llu, expected frame %llu",
                       (unsigned long long)header.sequence, (unsigned long long)client->n_received);
    }
    client->n_received++;
    if (header.stream > STREAM) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "%s of stream %u, which was never opened",
                       fm_wire_kind_name(header.kind), header.stream);
    }
    bool is_sample = header.kind == FM_WIRE_SAMPLE;
    if (is_sample && header.body_bytes > capacity) {
        return fm_fail(reterr, FM_ERR_LIMIT, "a sample of %u bytes does not fit a slab of %zu",
                       header.body_bytes, capacity);
    }
    assert(is_sample || header.body_bytes <= sizeof client->body);
    status = receive_all(client, wait, is_sample ? slab : client->body, header.body_bytes, reterr);
    if (status) return status;
    if (!is_sample) {
        fm_bytes body = {client->body, header.body_bytes};
        status = fm_wire_decode(&header, body, &client->message, reterr);
        if (status) return status;
    }
    *ret_header = header;
    return FM_OK;
}

/* Turns an ERROR of the server into an error with its status and text, and its sample, if any. */
static fm_status fail_as_reported(const fm_client *client, fm_error *reterr) {
    const fm_wire_error *told = &client->message.error;
    fm_status status = told->status <= FM_ERR_DATA ? (fm_status)told->status : FM_ERR_PROTOCOL;
    if (told->index == FM_WIRE_NO_INDEX) {
        fm_fail(reterr, status, "%s", told->text);
    } else {
        fm_fail(reterr, status, "sample %llu: %s", (unsigned long long)told->index, told->text);
    }
    if (reterr) (void)fm_error_in(reterr, client->url);
    return status;
}

/* Handles the frames that may come at any time: PING, PONG, and an ERROR that ends the stream.
 * *ret_handled says whether the frame needs nothing more. */
static fm_status handle_common(fm_client *client, const fm_wire_header *header, bool *ret_handled,
                               fm_error *reterr) {
    *ret_handled = true;
    switch (header->kind) {
    case FM_WIRE_PONG: return FM_OK;
    case FM_WIRE_PING: {
        fm_wire_message pong = {.kind = FM_WIRE_PONG, .ping = client->message.ping};
        return send_locked(client, &pong, reterr);
    }
    case FM_WIRE_ERROR:
        if (client->message.error.scope != FM_WIRE_SCOPE_SAMPLE) {
            return fail_as_reported(client, reterr);
        }
        break;
    default: break;
    }
    *ret_handled = false;
    return FM_OK;
}

/* Receives the frame of kind `kind`; any other frame but those of handle_common is a breach. */
static fm_status expect(fm_client *client, fm_wire_kind kind, fm_error *reterr) {
    patience wait = patience_of(client->connect_ms);
    for (;;) {
        fm_wire_header header;
        fm_status status = receive_frame(client, &wait, NULL, 0, &header, reterr);
        if (status) return status;
        if (header.kind == kind) return FM_OK;
        bool handled;
        status = handle_common(client, &header, &handled, reterr);
        if (status) return status;
        if (handled) continue;
        return fm_fail(reterr, FM_ERR_PROTOCOL, "received %s, expected %s",
                       fm_wire_kind_name(header.kind), fm_wire_kind_name(kind));
    }
}

/* -- connecting */

static fm_status connect_with_retry(const fm_address *address, const fm_client_options *options,
                                    uint32_t connect_ms, int *ret_fd, fm_error *reterr) {
    uint64_t give_up = fm_clock_ns() + (uint64_t)options->retry_ms * 1000000u;
    for (;;) {
        fm_status status = fm_address_connect(address, connect_ms, ret_fd, reterr);
        if (!status || fm_clock_ns() >= give_up) return status;
        struct timespec pause = {.tv_nsec = RETRY_PAUSE_MS * 1000000L};
        nanosleep(&pause, NULL);
    }
}

static fm_status say_hello(fm_client *client, const fm_client_options *options, fm_error *reterr) {
    fm_wire_message message = {.kind = FM_WIRE_HELLO};
    message.hello = (fm_wire_hello){.version_min = FM_WIRE_VERSION_MIN,
                                    .version_max = FM_WIRE_VERSION_MAX,
                                    .schema_hash = fm_schema_hash(),
                                    .snapshot = options->snapshot};
    fm_wire_text(message.hello.snapshot_name, sizeof message.hello.snapshot_name,
                 options->snapshot_name ? options->snapshot_name : "");
    fm_wire_text(message.hello.agent, sizeof message.hello.agent,
                 options->agent ? options->agent : "foldmill");
    fm_status status = send_locked(client, &message, reterr);
    if (status) return status;
    status = expect(client, FM_WIRE_WELCOME, reterr);
    if (status) return status;
    client->welcome = client->message.welcome;
    if (client->welcome.version < FM_WIRE_VERSION_MIN ||
        client->welcome.version > FM_WIRE_VERSION_MAX ||
        client->welcome.schema_hash != fm_schema_hash()) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "the server speaks protocol %u with another feature table than ours",
                       client->welcome.version);
    }
    return FM_OK;
}

fm_status fm_client_connect(const fm_client_options *options, fm_client **ret_client,
                            fm_error *reterr) {
    fm_address address;
    fm_status status = fm_address_parse(options->url, &address, reterr);
    if (status) return status;
    uint32_t connect_ms = options->connect_ms ? options->connect_ms : DEFAULT_CONNECT_MS;
    int fd;
    status = connect_with_retry(&address, options, connect_ms, &fd, reterr);
    if (status) return status;
    fm_client *client = calloc(1, sizeof *client);
    if (!client) {
        close(fd);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a client");
    }
    client->fd = fd;
    client->connect_ms = connect_ms;
    client->event_ms = options->event_ms;
    client->silence_ms = options->silence_ms ? options->silence_ms : DEFAULT_SILENCE_MS;
    fm_address_format(&address, client->url);
    pthread_mutex_init(&client->send_lock, NULL);
    status = say_hello(client, options, reterr);
    if (status) {
        fm_client_close(client);
        return status;
    }
    *ret_client = client;
    return FM_OK;
}

void fm_client_close(fm_client *client) {
    if (!client) return;
    close(client->fd);
    pthread_mutex_destroy(&client->send_lock);
    free(client);
}

const fm_wire_welcome *fm_client_get_welcome(const fm_client *client) {
    return &client->welcome;
}

/* -- the stream */

fm_status fm_client_open(fm_client *client, const fm_wire_open *params, fm_wire_opened *ret_opened,
                         fm_error *reterr) {
    assert(!client->is_open);
    fm_status status = fm_wire_open_check(params, reterr);
    if (status) return status;
    fm_wire_message message = {.kind = FM_WIRE_OPEN, .stream = STREAM, .open = *params};
    client->window_items = params->credit_items;
    client->window_bytes = params->credit_bytes;
    client->room_items = params->credit_items;
    status = send_locked(client, &message, reterr);
    if (status) return status;
    status = expect(client, FM_WIRE_OPENED, reterr);
    if (status) return status;
    client->is_open = true;
    *ret_opened = client->message.opened;
    return FM_OK;
}

static void event_of_message(fm_client *client, fm_client_event *event) {
    if (client->message.kind == FM_WIRE_END) {
        client->is_over = true;
        event->kind = FM_CLIENT_END;
        event->reason = (fm_wire_reason)client->message.end.reason;
        return;
    }
    event->kind = FM_CLIENT_SKIPPED;
    event->index = client->message.error.index;
    event->status = (fm_status)client->message.error.status;
    memcpy(event->text, client->message.error.text, sizeof event->text);
}

/* Is the held credit worth a frame? See the top of the file. */
static bool is_worth_sending(const fm_client *client) {
    if (client->held_items == 0 && client->held_bytes == 0) return false;
    return client->room_items == 0 || client->held_items * (uint64_t)2 >= client->window_items ||
           client->held_bytes * 2 >= client->window_bytes;
}

/* Sends the held credit if it is worth a frame. The caller holds send_lock. */
static fm_status send_credit(fm_client *client, fm_error *reterr) {
    if (!is_worth_sending(client)) return FM_OK;
    fm_wire_message credit = {.kind = FM_WIRE_CREDIT, .stream = STREAM};
    credit.credit = (fm_wire_credit){.items = client->held_items, .bytes = client->held_bytes};
    client->room_items += client->held_items;
    client->held_items = 0;
    client->held_bytes = 0;
    return send_message(client, &credit, reterr);
}

/* Counts an item that the server sent. */
static fm_status take_item(fm_client *client, fm_error *reterr) {
    pthread_mutex_lock(&client->send_lock);
    if (client->room_items) client->room_items--;
    fm_status status = send_credit(client, reterr);
    pthread_mutex_unlock(&client->send_lock);
    return status;
}

fm_status fm_client_next(fm_client *client, void *slab, size_t capacity, fm_client_event *ret_event,
                         fm_error *reterr) {
    assert(client->is_open && !client->is_over);
    patience wait = patience_of(client->event_ms);
    uint64_t start = wait.heard_ns;
    fm_client_event event = {0};
    while (!event.kind) {
        fm_wire_header header;
        fm_status status = receive_frame(client, &wait, slab, capacity, &header, reterr);
        if (status) return status;
        bool handled;
        status = handle_common(client, &header, &handled, reterr);
        if (status) return status;
        if (handled) continue;
        if (header.kind == FM_WIRE_SAMPLE) {
            event.kind = FM_CLIENT_SAMPLE;
            event.sample = (fm_bytes){slab, header.body_bytes};
        } else if (header.kind == FM_WIRE_END || header.kind == FM_WIRE_ERROR) {
            event_of_message(client, &event);
        } else {
            return fm_fail(reterr, FM_ERR_PROTOCOL, "%s came in the middle of a stream",
                           fm_wire_kind_name(header.kind));
        }
    }
    event.wait_ns = fm_clock_ns() - start;
    *ret_event = event;
    return event.kind == FM_CLIENT_END ? FM_OK : take_item(client, reterr);
}

fm_status fm_client_release(fm_client *client, uint32_t items, uint64_t bytes, fm_error *reterr) {
    pthread_mutex_lock(&client->send_lock);
    client->held_items += items;
    client->held_bytes += bytes;
    fm_status status = send_credit(client, reterr);
    pthread_mutex_unlock(&client->send_lock);
    return status;
}

void fm_client_interrupt(fm_client *client) {
    atomic_store(&client->interrupted, true);
    shutdown(client->fd, SHUT_RDWR);
}
