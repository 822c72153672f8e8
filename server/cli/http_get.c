/* http_get.c: see http_get.h. With HTTP/1.0 the end of the answer is the end of the connection. */
#include "server/cli/http_get.h"

#include "proto/address.h"
#include "proto/base/histogram.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FIRST_BYTES = 64 << 10, LIMIT_BYTES = 64 << 20 };

/* The answer so far, and when it must be complete. */
typedef struct http_answer {
    const char *url;
    int socket;
    uint64_t deadline_ns;
    char *data;
    size_t size, capacity;
} http_answer;

static fm_status parse_url(const char *url, fm_address *ret_address, fm_error *reterr) {
    static const char scheme[] = "http://";
    const size_t skip = sizeof scheme - 1;
    char text[FM_ADDRESS_TEXT_BYTES];
    if (strncmp(url, scheme, skip) == 0) {
        /* The address of a page, such as /metrics, names the server, too. */
        snprintf(text, sizeof text, "tcp://%.*s", (int)strcspn(url + skip, "/"), url + skip);
        if (!fm_address_parse(text, ret_address, NULL)) return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_USAGE, "address '%.100s', expected http://HOST:PORT", url);
}

/* Waits until the socket is ready for `events` or the deadline has passed. */
static fm_status wait_for(const http_answer *answer, short events, fm_error *reterr) {
    for (;;) {
        uint64_t now = fm_clock_ns();
        int left_ms =
            now < answer->deadline_ns ? (int)((answer->deadline_ns - now) / 1000000) + 1 : 0;
        struct pollfd at = {.fd = answer->socket, .events = events};
        int n = poll(&at, 1, left_ms);
        if (n > 0) return FM_OK;
        if (n < 0 && errno == EINTR) continue;
        return fm_fail_in(reterr, FM_ERR_IO, answer->url, "%s",
                          n ? strerror(errno) : "no answer came in time");
    }
}

static fm_status send_request(const http_answer *answer, const char *host, const char *path,
                              fm_error *reterr) {
    char text[600];
    int size = snprintf(text, sizeof text, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, host);
    for (int sent = 0; sent < size;) {
        fm_status status = wait_for(answer, POLLOUT, reterr);
        if (status) return status;
        ssize_t n = send(answer->socket, text + sent, (size_t)(size - sent), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return fm_fail_in(reterr, FM_ERR_IO, answer->url, "%s", strerror(errno));
        }
        if (n > 0) sent += (int)n;
    }
    return FM_OK;
}

static fm_status grow(http_answer *answer, fm_error *reterr) {
    size_t capacity = answer->capacity ? answer->capacity * 2 : FIRST_BYTES;
    if (capacity > LIMIT_BYTES) {
        return fm_fail_in(reterr, FM_ERR_LIMIT, answer->url, "the answer has more than %d MiB",
                          LIMIT_BYTES >> 20);
    }
    char *data = realloc(answer->data, capacity);
    if (!data) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for an answer");
    answer->data = data;
    answer->capacity = capacity;
    return FM_OK;
}

/* Reads to the end of the connection; the data is terminated. */
static fm_status receive(http_answer *answer, fm_error *reterr) {
    for (;;) {
        fm_status status = FM_OK;
        if (answer->size + 1 >= answer->capacity) status = grow(answer, reterr);
        if (!status) status = wait_for(answer, POLLIN, reterr);
        if (status) return status;
        ssize_t n = recv(answer->socket, answer->data + answer->size,
                         answer->capacity - answer->size - 1, 0);
        if (n == 0) break;
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return fm_fail_in(reterr, FM_ERR_IO, answer->url, "%s", strerror(errno));
        }
        if (n > 0) answer->size += (size_t)n;
    }
    answer->data[answer->size] = 0;
    return FM_OK;
}

/* Checks the status line and moves the body to the front. */
static fm_status take_body(http_answer *answer, fm_error *reterr) {
    int code = 0;
    char *body = memmem(answer->data, answer->size, "\r\n\r\n", 4);
    if (!body || sscanf(answer->data, "HTTP/1.%*1[01] %3d", &code) != 1) {
        return fm_fail_in(reterr, FM_ERR_CORRUPT, answer->url, "the answer is not HTTP");
    }
    body += 4;
    answer->size -= (size_t)(body - answer->data);
    memmove(answer->data, body, answer->size + 1);
    if (code == 200) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_IO, answer->url, "the server answered %d: %.*s", code,
                      (int)strcspn(answer->data, "\r\n"), answer->data);
}

fm_status fm_cli_http_get(const char *url, const char *path, uint32_t timeout_ms, char **ret_body,
                          size_t *ret_bytes, fm_error *reterr) {
    fm_address address;
    http_answer answer = {.url = url,
                          .deadline_ns = fm_clock_ns() + (uint64_t)timeout_ms * 1000000};
    fm_status status = parse_url(url, &address, reterr);
    if (!status) status = fm_address_connect(&address, timeout_ms, &answer.socket, reterr);
    if (status) return status;
    status = send_request(&answer, address.host, path, reterr);
    if (!status) status = receive(&answer, reterr);
    if (!status) status = take_body(&answer, reterr);
    close(answer.socket);
    if (status) {
        free(answer.data);
        return status;
    }
    *ret_body = answer.data;
    *ret_bytes = answer.size;
    return FM_OK;
}
