/* raw_client.h: a connection to a server that sends any bytes, for tests of bad clients. Only test
 * programs include it. */
#ifndef FM_TESTS_RAW_CLIENT_H
#define FM_TESTS_RAW_CLIENT_H

#include "proto/schema.h"
#include "tests/server/server_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* A raw, blocking connection. */
static inline int raw_connect(const char *url) {
    fm_address address;
    int fd = -1;
    assert_int_equal(fm_address_parse(url, &address, NULL), FM_OK);
    assert_int_equal(fm_address_connect(&address, 5000, &fd, NULL), FM_OK);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
    return fd;
}

static inline void raw_send(int fd, const void *data, size_t bytes) {
    assert_int_equal(send(fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

static inline void raw_send_message(int fd, const fm_wire_message *message, uint64_t sequence) {
    uint8_t frame[FM_WIRE_CONTROL_BYTES];
    raw_send(fd, frame, fm_wire_encode(message, sequence, frame, sizeof frame));
}

static inline void raw_hello(int fd) {
    fm_wire_message hello = {.kind = FM_WIRE_HELLO};
    hello.hello = (fm_wire_hello){.version_min = FM_WIRE_VERSION_MIN,
                                  .version_max = FM_WIRE_VERSION_MAX,
                                  .schema_hash = fm_schema_hash(),
                                  .agent = "raw"};
    raw_send_message(fd, &hello, 0);
}

static inline void raw_open(int fd, uint32_t stream, uint64_t sequence, uint32_t credit_items) {
    fm_wire_message open = {.kind = FM_WIRE_OPEN, .stream = stream, .open = stream_of(0)};
    open.open.credit_items = credit_items;
    open.open.credit_bytes = FM_LIMIT_CREDIT_BYTES;
    raw_send_message(fd, &open, sequence);
}

/* True when the other side closes within five seconds; what it says before is the last ERROR's
 * text. */
static inline bool is_closed(int fd, char *out_text, size_t out_bytes) {
    static uint8_t buffer[1 << 20];
    size_t used = 0;
    bool closed = false;
    while (!closed && used < sizeof buffer) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, 5000) <= 0) return false;
        ssize_t got = recv(fd, buffer + used, sizeof buffer - used, 0);
        closed = got <= 0;
        if (got > 0) used += (size_t)got;
    }
    size_t at = 0;
    while (used - at >= FM_WIRE_HEADER_BYTES) {
        fm_wire_header header;
        static fm_wire_message message;
        if (fm_wire_header_decode(buffer + at, &header, NULL)) break;
        at += FM_WIRE_HEADER_BYTES;
        if (used - at < header.body_bytes) break;
        fm_bytes body = {buffer + at, header.body_bytes};
        at += header.body_bytes;
        if (header.kind != FM_WIRE_ERROR || fm_wire_decode(&header, body, &message, NULL)) continue;
        snprintf(out_text, out_bytes, "%s", message.error.text);
    }
    return closed;
}

static inline void expect_refusal(int fd, const char *words) {
    char text[600] = "";
    assert_true(is_closed(fd, text, sizeof text));
    if (!strstr(text, words)) fail_msg("'%s', expected '%s'", text, words);
    close(fd);
}

/* Reads whole frames until one of `kind` came; false when the connection ends. */
static inline bool hear(int fd, fm_wire_kind kind, fm_wire_message *ret_message) {
    static uint8_t body[SLAB_BYTES];
    for (;;) {
        uint8_t head[FM_WIRE_HEADER_BYTES];
        fm_wire_header header;
        if (recv(fd, head, sizeof head, MSG_WAITALL) != sizeof head) return false;
        assert_int_equal(fm_wire_header_decode(head, &header, NULL), FM_OK);
        assert_true(header.body_bytes <= sizeof body);
        ssize_t got = header.body_bytes ? recv(fd, body, header.body_bytes, MSG_WAITALL) : 0;
        if (got != (ssize_t)header.body_bytes) return false;
        if (header.kind != kind) continue;
        fm_bytes bytes = {body, header.body_bytes};
        assert_int_equal(fm_wire_decode(&header, bytes, ret_message, NULL), FM_OK);
        return true;
    }
}

#endif
