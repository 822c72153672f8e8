/* client.c: see client.h.
 *
 * The socket is non-blocking, and every wait is a poll with a limit, so no call can hang:
 * connecting, HELLO and OPEN have a deadline. In a stream the client sends PING while the server
 * is silent and gives up after silence_ms. event_ms limits the wait for each event, which other
 * frames do not prolong. A frame that has begun must go on at MIN_BYTES_PER_S, measured over
 * silence_ms of waiting, so that bytes that trickle in are no sign of life.
 *
 * The server's frames are checked against what was asked and granted: OPENED, the credit, samples
 * left out, the number of samples, and answers to PING. When sending fails because the server has
 * closed, the client reads on: what it sent before, such as an END, is still to come.
 *
 * Two threads may send: the receiver (PONG, PING, CREDIT) and the one that calls fm_client_release
 * (CREDIT). send_lock makes each frame one piece and orders the frame numbers. Only the receiver
 * reads.
 *
 * Credit that the caller releases is held back until it is worth a frame: half the first credit, or
 * any amount when the server may send nothing more (room_items is 0), since the stream would stand
 * still otherwise. */
#include "proto/client.h"

#include "proto/base/histogram.h"
#include "proto/client_link.h"
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
    STREAM = 1,                /* the number of the only stream */
    MIN_BYTES_PER_S = 4 << 10, /* of a frame that has begun */
};

struct fm_client {
    fm_client_link *link;
    char url[FM_ADDRESS_TEXT_BYTES];
    uint32_t silence_ms, connect_ms, event_ms;
    fm_cancel cancel; /* of connecting; none once the stream is open */
    fm_wire_welcome welcome;
    fm_wire_open params;
    fm_wire_opened opened;
    bool is_open, is_over;
    uint64_t n_received;          /* frames */
    uint64_t n_sample, n_skipped; /* that came */
    uint64_t n_ping;              /* PINGs without an answer; used by the receiver alone */
    _Atomic bool interrupted;
    pthread_mutex_t send_lock;         /* guards sending and the counters that follow */
    bool is_deaf;                      /* the server reads no more */
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
    struct pollfd wait = {.fd = fm_client_link_get_fd(client->link), .events = POLLOUT};
    int ready = poll(&wait, 1, (int)client->silence_ms);
    if (ready > 0 || (ready < 0 && errno == EINTR)) return FM_OK;
    return fail_gone(client, ready == 0 ? "does not read" : strerror(errno), reterr);
}

/* Says what happened to the link; an error of TLS stays as it is. */
static fm_status fail_link(const fm_client *client, fm_status status, const fm_error *error,
                           fm_error *reterr) {
    if (status == FM_ERR_CLOSED) return fail_gone(client, error->message, reterr);
    fm_fail(reterr, status, "%s", error->message);
    if (reterr) (void)fm_error_in(reterr, client->url);
    return status;
}

static fm_status send_all(fm_client *client, const uint8_t *data, size_t bytes, fm_error *reterr) {
    while (bytes || fm_client_link_has_unsent(client->link)) {
        size_t sent;
        fm_error error;
        fm_status status = fm_client_link_send(client->link, data, bytes, &sent, &error);
        if (status) return fail_link(client, status, &error, reterr);
        data += sent;
        bytes -= sent;
        if (sent || !(bytes || fm_client_link_has_unsent(client->link))) continue;
        status = wait_writable(client, reterr);
        if (status) return status;
    }
    return FM_OK;
}

/* A server that has closed may have sent something before, so this is no error: the receiver learns
 * when there is nothing more. The caller holds send_lock. */
static fm_status send_message(fm_client *client, const fm_wire_message *message, fm_error *reterr) {
    uint8_t frame[FM_WIRE_CONTROL_BYTES];
    if (client->is_deaf) return FM_OK;
    size_t bytes = fm_wire_encode(message, client->n_sent++, frame, sizeof frame);
    fm_status status = send_all(client, frame, bytes, reterr);
    client->is_deaf = status == FM_ERR_CLOSED;
    return client->is_deaf ? FM_OK : status;
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
    uint64_t deadline_ns;                  /* 0 = none */
    uint64_t frame_waited_ns, frame_bytes; /* in the middle of a frame, since the last judgement */
} patience;

static patience patience_of(uint32_t deadline_ms) {
    uint64_t now = fm_clock_ns();
    return (patience){.heard_ns = now,
                      .asked_ns = now,
                      .deadline_ns = deadline_ms ? now + (uint64_t)deadline_ms * 1000000u : 0};
}

static fm_status check_deadline(const fm_client *client, const patience *wait, fm_error *reterr) {
    if (!wait->deadline_ns || fm_clock_ns() <= wait->deadline_ns) return FM_OK;
    return fail_gone(client, client->is_open ? "sent no sample in time" : "did not answer in time",
                     reterr);
}

/* Judges a frame that has begun by the bytes that came in silence_ms of waiting. Time in which this
 * process did not wait, or did not run, is not counted. */
static fm_status check_frame(const fm_client *client, patience *wait, fm_error *reterr) {
    uint64_t silence_ns = (uint64_t)client->silence_ms * 1000000u;
    if (wait->frame_waited_ns <= silence_ns) return FM_OK;
    if (wait->frame_bytes < MIN_BYTES_PER_S * (uint64_t)client->silence_ms / 1000) {
        return fail_gone(client, "sends too slowly", reterr);
    }
    wait->frame_waited_ns = wait->frame_bytes = 0;
    return FM_OK;
}

/* Waits for bytes, for at most a quarter of silence_ms. Sends a PING to a silent server, and fails
 * when it stays silent, the deadline has passed, or the wait is cancelled. */
static fm_status wait_readable(fm_client *client, patience *wait, bool is_in_frame,
                               fm_error *reterr) {
    if (atomic_load(&client->interrupted)) return fail_gone(client, "", reterr);
    if (fm_cancel_is_asked(&client->cancel)) {
        return fm_fail(reterr, FM_ERR_CANCELLED, "interrupted");
    }
    uint64_t now = fm_clock_ns(), silence_ns = (uint64_t)client->silence_ms * 1000000u;
    if (client->is_open && now - wait->heard_ns > silence_ns) {
        return fail_gone(client, "is silent", reterr);
    }
    fm_status status = check_deadline(client, wait, reterr);
    if (!status && is_in_frame) status = check_frame(client, wait, reterr);
    if (status) return status;
    uint64_t slice_ns = silence_ns / 4;
    if (client->is_open && now - wait->asked_ns > slice_ns) {
        wait->asked_ns = now;
        fm_wire_message ping = {.kind = FM_WIRE_PING, .ping = now};
        client->n_ping++;
        status = send_locked(client, &ping, reterr);
        if (status) return status;
    }
    if (wait->deadline_ns && wait->deadline_ns < now + slice_ns) {
        slice_ns = wait->deadline_ns > now ? wait->deadline_ns - now : 0;
    }
    struct pollfd poll_for = {.fd = fm_client_link_get_fd(client->link), .events = POLLIN};
    uint64_t slice_ms = fm_cancel_slice_ms(&client->cancel, slice_ns / 1000000u + 1);
    int ready = poll(&poll_for, 1, (int)slice_ms);
    if (ready < 0 && errno != EINTR) return fail_gone(client, strerror(errno), reterr);
    uint64_t waited_ns = fm_clock_ns() - now;
    wait->frame_waited_ns += waited_ns < slice_ns ? waited_ns : slice_ns;
    return FM_OK;
}

/* Receives a part of a frame; is_in_frame: not its first byte. */
static fm_status receive_all(fm_client *client, patience *wait, bool is_in_frame, void *out,
                             size_t bytes, fm_error *reterr) {
    uint8_t *at = out;
    while (bytes) {
        size_t got;
        fm_error error;
        fm_status status = fm_client_link_receive(client->link, at, bytes, &got, &error);
        if (status) return fail_link(client, status, &error, reterr);
        at += got;
        bytes -= got;
        if (got) {
            wait->heard_ns = fm_clock_ns();
            wait->frame_bytes += got;
            if (!is_in_frame) wait->frame_waited_ns = 0;
            is_in_frame = true;
        } else {
            status = wait_readable(client, wait, is_in_frame, reterr);
            if (status) return status;
        }
    }
    return FM_OK;
}

/* Receives one frame: the body of a SAMPLE into the slab, any other into client->message. */
static fm_status receive_frame(fm_client *client, patience *wait, void *slab, size_t capacity,
                               fm_wire_header *ret_header, fm_error *reterr) {
    uint8_t head[FM_WIRE_HEADER_BYTES];
    wait->frame_bytes = 0;
    fm_wire_header header;
    fm_status status = receive_all(client, wait, false, head, sizeof head, reterr);
    if (!status) status = fm_wire_header_decode(head, &header, reterr);
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
    status =
        receive_all(client, wait, true, is_sample ? slab : client->body, header.body_bytes, reterr);
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
    fm_status status = told->status <= FM_ERR_DENIED ? (fm_status)told->status : FM_ERR_PROTOCOL;
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
    case FM_WIRE_PONG:
        if (client->n_ping == 0) {
            return fm_fail(reterr, FM_ERR_PROTOCOL, "received a PONG without a PING");
        }
        client->n_ping--;
        return FM_OK;
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
        if (!status && handled) status = check_deadline(client, &wait, reterr);
        if (status) return status;
        if (handled) continue;
        return fm_fail(reterr, FM_ERR_PROTOCOL, "received %s, expected %s",
                       fm_wire_kind_name(header.kind), fm_wire_kind_name(kind));
    }
}

/* -- connecting */

/* A server that is not there yet may come; one that refuses us stays the same. */
static bool may_come(fm_status status) {
    return status == FM_ERR_IO || status == FM_ERR_CLOSED || status == FM_ERR_NOT_FOUND;
}

static fm_status connect_with_retry(const fm_address *address, const fm_client_options *options,
                                    uint32_t connect_ms, fm_client_link **ret_link,
                                    fm_error *reterr) {
    uint64_t give_up = fm_clock_ns() + (uint64_t)options->retry_ms * 1000000u;
    for (;;) {
        fm_status status = fm_client_link_open(address, &options->credentials, connect_ms,
                                               &options->cancel, ret_link, reterr);
        if (!status || !may_come(status) || fm_clock_ns() >= give_up) return status;
        struct timespec pause = {.tv_nsec = RETRY_PAUSE_MS * 1000000L};
        nanosleep(&pause, NULL);
        if (fm_cancel_is_asked(&options->cancel)) {
            return fm_fail(reterr, FM_ERR_CANCELLED, "interrupted");
        }
    }
}

/* Shows the token, if there is one. Plain TCP never carries it. */
static fm_status show_token(fm_client *client, fm_address_kind kind,
                            const fm_credentials *credentials, fm_error *reterr) {
    if (kind == FM_ADDRESS_TCP) {
        if (!credentials->token_file) return FM_OK;
        return fm_fail(reterr, FM_ERR_USAGE,
                       "a token (--token-file) is not sent over %s, where others can read it: use "
                       "tls://",
                       client->url);
    }
    fm_wire_message message = {.kind = FM_WIRE_AUTH};
    fm_status status = fm_credentials_read_token(credentials, message.auth.secret, reterr);
    if (!status && message.auth.secret[0]) status = send_locked(client, &message, reterr);
    return status;
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
    if (status && status != FM_ERR_CLOSED) return status;
    status = expect(client, FM_WIRE_WELCOME, reterr); /* or why the server closed */
    bool may_be_tls = strncmp(client->url, "tcp://", 6) == 0 && client->n_received == 0;
    if (status == FM_ERR_CLOSED && may_be_tls) {
        return fm_fail(reterr, status,
                       "the server at %s closed the connection without an answer; if it speaks "
                       "TLS, use a tls:// address",
                       client->url);
    }
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

/* Options that promise what an address does not do are a mistake, not a wish. */
static fm_status check_credentials(const fm_client_options *options, fm_address_kind kind,
                                   fm_error *reterr) {
    const fm_credentials *set = &options->credentials;
    if (kind != FM_ADDRESS_TCP || !(set->tls_cert || set->tls_key || set->tls_ca)) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "--tls-ca, --tls-cert and --tls-key have no use with %s, which is not "
                   "encrypted: use tls://",
                   options->url);
}

fm_status fm_client_connect(const fm_client_options *options, fm_client **ret_client,
                            fm_error *reterr) {
    fm_address address;
    fm_status status = fm_address_parse(options->url, &address, reterr);
    if (!status) status = check_credentials(options, address.kind, reterr);
    if (status) return status;
    uint32_t connect_ms = options->connect_ms ? options->connect_ms : DEFAULT_CONNECT_MS;
    fm_client_link *link;
    status = connect_with_retry(&address, options, connect_ms, &link, reterr);
    if (status) return status;
    fm_client *client = calloc(1, sizeof *client);
    if (!client) {
        fm_client_link_close(link);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a client");
    }
    client->link = link;
    client->connect_ms = connect_ms;
    client->event_ms = options->event_ms;
    client->cancel = options->cancel;
    client->silence_ms = options->silence_ms ? options->silence_ms : DEFAULT_SILENCE_MS;
    fm_address_format(&address, client->url);
    pthread_mutex_init(&client->send_lock, NULL);
    status = show_token(client, address.kind, &options->credentials, reterr);
    if (!status) status = say_hello(client, options, reterr);
    if (status) {
        fm_client_close(client);
        return status;
    }
    *ret_client = client;
    return FM_OK;
}

void fm_client_close(fm_client *client) {
    if (!client) return;
    fm_client_link_close(client->link);
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
    if (!status) status = fm_wire_opened_check(params, &client->message.opened, reterr);
    if (status) return status;
    client->params = *params;
    client->opened = client->message.opened;
    client->is_open = true;
    client->cancel = (fm_cancel){0};
    *ret_opened = client->opened;
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

/* Checks the end of the stream against what was opened and what came. */
static fm_status check_end(const fm_client *client, fm_error *reterr) {
    const fm_wire_end *end = &client->message.end;
    uint64_t n = client->n_sample + client->n_skipped, due = client->opened.n_sample;
    if (end->reason == FM_WIRE_DELIVERED && n != due) {
        return fm_fail(reterr, FM_ERR_PROTOCOL,
                       "the server at %s ended the stream after %llu of %llu samples", client->url,
                       (unsigned long long)n, (unsigned long long)due);
    }
    if (end->n_sent == client->n_sample) return FM_OK;
    return fm_fail(reterr, FM_ERR_PROTOCOL,
                   "the server at %s says that it sent %llu samples, and %llu came", client->url,
                   (unsigned long long)end->n_sent, (unsigned long long)client->n_sample);
}

/* Checks a frame that is an event: what was neither asked nor granted is a breach. */
static fm_status check_event(fm_client *client, const fm_wire_header *header, fm_error *reterr) {
    if (header->kind == FM_WIRE_END) return check_end(client, reterr);
    if (header->kind != FM_WIRE_SAMPLE && header->kind != FM_WIRE_ERROR) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "%s came in the middle of a stream",
                       fm_wire_kind_name(header->kind));
    }
    pthread_mutex_lock(&client->send_lock);
    bool has_room = client->room_items > 0;
    pthread_mutex_unlock(&client->send_lock);
    if (!has_room || client->n_sample + client->n_skipped >= client->opened.n_sample) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "the server at %s sent a sample too many",
                       client->url);
    }
    if (header->kind == FM_WIRE_SAMPLE) {
        client->n_sample++;
        return FM_OK;
    }
    client->n_skipped++;
    uint64_t index = client->message.error.index;
    bool is_ours = fm_wire_open_wants(&client->params, client->opened.global_batch, index);
    if (client->params.policy == FM_WIRE_SKIP && is_ours) return FM_OK;
    return fm_fail(reterr, FM_ERR_PROTOCOL,
                   "the server at %s left out sample %llu, which it must not", client->url,
                   (unsigned long long)index);
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
    client->room_items--; /* check_event found one */
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
        if (!status && handled) status = check_deadline(client, &wait, reterr);
        if (!status && !handled) status = check_event(client, &header, reterr);
        if (status) return status;
        if (handled) continue;
        if (header.kind == FM_WIRE_SAMPLE) {
            event.kind = FM_CLIENT_SAMPLE;
            event.sample = (fm_bytes){slab, header.body_bytes};
        } else {
            event_of_message(client, &event);
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
    shutdown(fm_client_link_get_fd(client->link), SHUT_RDWR);
}
