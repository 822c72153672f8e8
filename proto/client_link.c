/* client_link.c: see client_link.h.
 *
 * A session of TLS is one state for both directions, and two threads use it: `lock` is held while
 * OpenSSL works, never while anything waits. Encrypted bytes leave in the order in which they were
 * put out, because only the one sender gives them to the socket. */
#include "proto/client_link.h"

#include "proto/base/histogram.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { IN_BYTES = 128 << 10 }; /* received at once from a TLS server */

struct fm_client_link {
    int fd;
    fm_tls *tls;          /* NULL: plain */
    pthread_mutex_t lock; /* guards tls */
    uint8_t *in;          /* [IN_BYTES], with TLS; used by the receiver alone */
};

int fm_client_link_get_fd(const fm_client_link *link) {
    return link->fd;
}

/* -- the socket: 0 bytes when it would have to wait */

static fm_status send_plain(fm_client_link *link, const void *data, size_t bytes, size_t *ret_bytes,
                            fm_error *reterr) {
    *ret_bytes = 0;
    ssize_t sent = send(link->fd, data, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        return fm_fail(reterr, FM_ERR_CLOSED, "closed the connection");
    }
    if (sent > 0) *ret_bytes = (size_t)sent;
    return FM_OK;
}

static fm_status receive_plain(fm_client_link *link, void *out, size_t capacity, size_t *ret_bytes,
                               bool *ret_is_end, fm_error *reterr) {
    *ret_bytes = 0;
    ssize_t got = recv(link->fd, out, capacity, 0);
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
        return fm_fail(reterr, FM_ERR_CLOSED, "broke the connection");
    }
    if (got > 0) *ret_bytes = (size_t)got;
    *ret_is_end = got == 0;
    return FM_OK;
}

/* -- TLS */

/* Gives the socket what the session has put out, as far as it takes it. */
static fm_status flush(fm_client_link *link, fm_error *reterr) {
    for (;;) {
        fm_bytes out = fm_tls_out(link->tls);
        if (out.size == 0) return FM_OK;
        size_t sent;
        fm_status status = send_plain(link, out.data, out.size, &sent, reterr);
        if (status || sent == 0) return status;
        fm_tls_sent(link->tls, sent);
    }
}

static fm_status send_secure(fm_client_link *link, fm_bytes plain, size_t *ret_bytes,
                             fm_error *reterr) {
    *ret_bytes = 0;
    fm_status status = flush(link, reterr);
    if (status || fm_tls_out(link->tls).size) return status; /* it has to wait */
    if (plain.size) status = fm_tls_write(link->tls, plain, ret_bytes, reterr);
    return status ? status : flush(link, reterr);
}

static fm_status read_locked(fm_client_link *link, void *out, size_t capacity, size_t *ret_bytes,
                             fm_error *reterr) {
    pthread_mutex_lock(&link->lock);
    fm_status status = fm_tls_read(link->tls, out, capacity, ret_bytes, reterr);
    pthread_mutex_unlock(&link->lock);
    if (status == FM_ERR_CLOSED) return fm_fail(reterr, FM_ERR_CLOSED, "closed the connection");
    return status;
}

/* Feeds the session with what the socket has; *ret_bytes says how much. */
static fm_status feed(fm_client_link *link, size_t *ret_bytes, fm_error *reterr) {
    bool is_end;
    fm_status status = receive_plain(link, link->in, IN_BYTES, ret_bytes, &is_end, reterr);
    if (status) return status;
    if (is_end) {
        return fm_fail(reterr, FM_ERR_CLOSED,
                       "was cut off: the stream ended without close_notify of TLS");
    }
    pthread_mutex_lock(&link->lock);
    if (*ret_bytes) fm_tls_feed(link->tls, (fm_bytes){link->in, *ret_bytes});
    pthread_mutex_unlock(&link->lock);
    return FM_OK;
}

static fm_status receive_secure(fm_client_link *link, void *out, size_t capacity, size_t *ret_bytes,
                                fm_error *reterr) {
    for (;;) {
        fm_status status = read_locked(link, out, capacity, ret_bytes, reterr);
        if (status || *ret_bytes) return status;
        if (fm_tls_fed_bytes(link->tls)) { /* what the session wants to send does not fit */
            return fm_fail(reterr, FM_ERR_PROTOCOL, "does not read the answers of TLS");
        }
        size_t fed;
        status = feed(link, &fed, reterr);
        if (status || fed == 0) return status;
    }
}

/* -- connecting */

static fm_status wait_for(fm_client_link *link, bool for_writing, uint64_t deadline_ns,
                          const fm_cancel *cancel, fm_error *reterr) {
    uint64_t now = fm_clock_ns();
    if (fm_cancel_is_asked(cancel)) return fm_fail(reterr, FM_ERR_CANCELLED, "interrupted");
    if (now >= deadline_ns) {
        return fm_fail(reterr, FM_ERR_CLOSED, "did not complete the TLS handshake in time");
    }
    struct pollfd wait = {.fd = link->fd, .events = for_writing ? POLLOUT : POLLIN};
    uint64_t left_ms = (deadline_ns - now) / 1000000u + 1;
    int ready = poll(&wait, 1, (int)fm_cancel_slice_ms(cancel, left_ms));
    if (ready < 0 && errno != EINTR) {
        return fm_fail(reterr, FM_ERR_CLOSED, "cannot be waited for: %s", strerror(errno));
    }
    return FM_OK;
}

static fm_status shake_hands(fm_client_link *link, uint64_t deadline_ns, const fm_cancel *cancel,
                             fm_error *reterr) {
    for (;;) {
        bool is_ready;
        fm_status status = fm_tls_handshake(link->tls, &is_ready, reterr);
        fm_status sent = flush(link, status ? NULL : reterr); /* the alert, after a failure */
        if (status || sent) return status ? status : sent;
        bool for_writing = fm_tls_out(link->tls).size != 0;
        if (is_ready && !for_writing) return FM_OK;
        size_t fed = 0;
        if (!for_writing && !fm_tls_fed_bytes(link->tls)) status = feed(link, &fed, reterr);
        if (!status && !fed) status = wait_for(link, for_writing, deadline_ns, cancel, reterr);
        if (status) return status;
    }
}

static fm_status secure(fm_client_link *link, const fm_address *address,
                        const fm_credentials *credentials, uint32_t timeout_ms,
                        const fm_cancel *cancel, fm_error *reterr) {
    const fm_tls_options options = {.side = FM_TLS_CLIENT,
                                    .cert = credentials->tls_cert,
                                    .key = credentials->tls_key,
                                    .ca = credentials->tls_ca};
    fm_tls_context *context;
    fm_status status = fm_tls_context_create(&options, &context, reterr);
    if (status) return status;
    status = fm_tls_open(context, address->host, &link->tls, reterr);
    fm_tls_context_destroy(context);
    if (status) return status;
    link->in = malloc(IN_BYTES);
    if (!link->in) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a TLS connection");
    status = shake_hands(link, fm_clock_ns() + (uint64_t)timeout_ms * 1000000u, cancel, reterr);
    char why[FM_ERROR_MESSAGE_BYTES], text[FM_ADDRESS_TEXT_BYTES];
    if (status && reterr) (void)fm_error_in(reterr, fm_address_format(address, text));
    if (status != FM_ERR_CLOSED) return status;
    if (reterr) memcpy(why, reterr->message, sizeof why);
    return fm_fail(reterr, FM_ERR_CLOSED, "the server at %s %.200s during the TLS handshake",
                   fm_address_format(address, text), reterr ? why : "");
}

fm_status fm_client_link_open(const fm_address *address, const fm_credentials *credentials,
                              uint32_t timeout_ms, const fm_cancel *cancel,
                              fm_client_link **ret_link, fm_error *reterr) {
    fm_client_link *link = calloc(1, sizeof *link);
    if (!link) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a client");
    link->fd = -1;
    pthread_mutex_init(&link->lock, NULL);
    fm_address asked = *address;
    asked.is_insecure = credentials->is_insecure;
    fm_status status = fm_address_connect_unless(&asked, timeout_ms, cancel, &link->fd, reterr);
    if (!status && address->kind == FM_ADDRESS_TLS) {
        status = secure(link, address, credentials, timeout_ms, cancel, reterr);
    }
    if (status) {
        fm_client_link_close(link);
        return status;
    }
    *ret_link = link;
    return FM_OK;
}

void fm_client_link_close(fm_client_link *link) {
    if (!link) return;
    if (link->tls) {
        fm_tls_finish(link->tls);
        (void)flush(link, NULL);
        fm_tls_close(link->tls);
    }
    if (link->fd >= 0) close(link->fd);
    pthread_mutex_destroy(&link->lock);
    free(link->in);
    free(link);
}

/* -- bytes */

fm_status fm_client_link_send(fm_client_link *link, const void *data, size_t bytes,
                              size_t *ret_bytes, fm_error *reterr) {
    if (!link->tls) return send_plain(link, data, bytes, ret_bytes, reterr);
    pthread_mutex_lock(&link->lock);
    fm_status status = send_secure(link, (fm_bytes){data, bytes}, ret_bytes, reterr);
    pthread_mutex_unlock(&link->lock);
    return status;
}

bool fm_client_link_has_unsent(fm_client_link *link) {
    if (!link->tls) return false;
    pthread_mutex_lock(&link->lock);
    bool has = fm_tls_out(link->tls).size != 0;
    pthread_mutex_unlock(&link->lock);
    return has;
}

fm_status fm_client_link_receive(fm_client_link *link, void *out, size_t capacity,
                                 size_t *ret_bytes, fm_error *reterr) {
    if (link->tls) return receive_secure(link, out, capacity, ret_bytes, reterr);
    bool is_end;
    fm_status status = receive_plain(link, out, capacity, ret_bytes, &is_end, reterr);
    if (!status && is_end) return fm_fail(reterr, FM_ERR_CLOSED, "closed the connection");
    return status;
}
