/* meeting_link.c: see meeting_link.h. */
#include "trainer/dist/meeting_link.h"

#include "proto/base/bytes.h"
#include "proto/base/hash.h"
#include "proto/base/histogram.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { LOOK_MS = 200 }; /* between two questions why the run is over */

void fm_frame_encode(const fm_frame *frame, uint8_t out[FM_FRAME_BYTES]) {
    fm_writer w = fm_writer_of(out, FM_FRAME_BYTES);
    fm_write_u32(&w, FM_FRAME_WORD);
    fm_write_u32(&w, frame->kind);
    fm_write_u32(&w, frame->number);
    fm_write_u32(&w, frame->bytes);
    fm_write_u32(&w, frame->check);
}

bool fm_frame_decode(const uint8_t in[FM_FRAME_BYTES], fm_frame *ret_frame) {
    fm_reader r = fm_reader_of(in, FM_FRAME_BYTES);
    uint32_t word = fm_read_u32(&r), kind = fm_read_u32(&r);
    if (word != FM_FRAME_WORD || kind < FM_FRAME_CHALLENGE || kind > FM_FRAME_ALL) return false;
    ret_frame->kind = (fm_frame_kind)kind;
    ret_frame->number = fm_read_u32(&r);
    ret_frame->bytes = fm_read_u32(&r);
    ret_frame->check = fm_read_u32(&r);
    return true;
}

uint32_t fm_frame_check(const void *payload, size_t bytes) {
    return (uint32_t)fm_xxh3(payload, bytes);
}

int fm_link_left_ms(uint64_t deadline_ns) {
    uint64_t now = fm_clock_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    uint64_t ms = (left + 999999) / 1000000;
    return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

uint64_t fm_link_deadline(double seconds) {
    const double year = 365 * 86400.0;
    double bounded = seconds < 0 ? 0 : seconds < year ? seconds : year;
    return fm_clock_ns() + (uint64_t)(bounded * 1e9);
}

fm_status fm_ear_ask(const fm_ear *ear, fm_error *reterr) {
    const char *why = ear->why ? ear->why(ear->context) : NULL;
    return why ? fm_fail(reterr, FM_ERR_CANCELLED, "%s", why) : FM_OK;
}

fm_status fm_link_wait(struct pollfd *polls, int32_t n, uint64_t deadline_ns, const fm_ear *ear,
                       int *ret_ready, fm_error *reterr) {
    int left;
    do {
        fm_status status = fm_ear_ask(ear, reterr);
        if (status) return status;
        left = fm_link_left_ms(deadline_ns);
        *ret_ready = poll(polls, (nfds_t)n, ear->why && left > LOOK_MS ? LOOK_MS : left);
        if (*ret_ready < 0 && errno != EINTR) {
            return fm_fail(reterr, FM_ERR_IO, "cannot wait for the ranks: %s", strerror(errno));
        }
    } while (*ret_ready < 0 || (*ret_ready == 0 && left > 0));
    return FM_OK;
}

/* What the result of send or recv means to the callers of fm_link_*_some. */
static long outcome(ssize_t n) {
    if (n > 0) return (long)n;
    bool is_later = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    return is_later ? 0 : -1;
}

long fm_link_receive_some(int fd, void *data, size_t bytes) {
    return outcome(recv(fd, data, bytes, MSG_DONTWAIT));
}

long fm_link_send_some(int fd, const void *data, size_t bytes) {
    return outcome(send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL));
}

/* Waits until the socket is ready for `event` or has ended. The wait for an answer has begun at
 * `begin_ns`. */
static fm_status wait_for(int fd, short event, uint64_t begin_ns, uint64_t deadline_ns,
                          fm_error *reterr) {
    struct pollfd wait = {.fd = fd, .events = event};
    int ready, left;
    do {
        left = fm_link_left_ms(deadline_ns);
        ready = poll(&wait, 1, left);
    } while (ready < 0 && errno == EINTR);
    if (ready > 0) return FM_OK;
    if (ready < 0) return fm_fail(reterr, FM_ERR_CLOSED, "cannot be polled");
    return fm_fail(reterr, FM_ERR_CLOSED, "did not answer within %.0f s",
                   (double)(fm_clock_ns() - begin_ns) * 1e-9);
}

static fm_status move(int fd, uint8_t *in, const uint8_t *out, size_t bytes, uint64_t deadline_ns,
                      fm_error *reterr) {
    const uint64_t begin_ns = fm_clock_ns();
    size_t done = 0;
    while (done < bytes) {
        long n = in ? fm_link_receive_some(fd, in + done, bytes - done)
                    : fm_link_send_some(fd, out + done, bytes - done);
        if (n < 0) return fm_fail(reterr, FM_ERR_CLOSED, "is gone: its connection has ended");
        done += (size_t)n;
        if (n > 0) continue;
        fm_status status = wait_for(fd, in ? POLLIN : POLLOUT, begin_ns, deadline_ns, reterr);
        if (status) return status;
    }
    return FM_OK;
}

fm_status fm_link_send(int fd, const fm_frame *frame, const void *payload, uint64_t deadline_ns,
                       fm_error *reterr) {
    uint8_t head[FM_FRAME_BYTES];
    fm_frame_encode(frame, head);
    fm_status status = move(fd, NULL, head, sizeof head, deadline_ns, reterr);
    return status ? status : move(fd, NULL, payload, frame->bytes, deadline_ns, reterr);
}

static fm_status receive(int fd, void *data, size_t bytes, uint64_t deadline_ns, fm_error *reterr) {
    return move(fd, data, NULL, bytes, deadline_ns, reterr);
}

/* Receives the reason of FM_FRAME_FAIL and makes it the error. */
static fm_status receive_reason(int fd, const fm_frame *frame, uint64_t deadline_ns,
                                fm_error *reterr) {
    char text[FM_FRAME_TEXT_BYTES + 1];
    size_t kept = frame->bytes < FM_FRAME_TEXT_BYTES ? frame->bytes : FM_FRAME_TEXT_BYTES;
    bool is_known = frame->number == FM_ERR_CLOSED || frame->number == FM_ERR_NOT_FOUND ||
                    frame->number == FM_ERR_CANCELLED;
    fm_status reason = is_known ? (fm_status)frame->number : FM_ERR_PROTOCOL;
    fm_status status = receive(fd, text, kept, deadline_ns, reterr);
    if (status) return status;
    for (size_t i = 0; i < kept; i++)
        text[i] = (unsigned char)text[i] < ' ' ? '?' : text[i];
    text[kept] = '\0';
    return fm_fail(reterr, reason, "%s", text);
}

fm_status fm_link_receive_frame(int fd, const fm_frame *expected, void *payload,
                                uint64_t deadline_ns, bool *ret_is_reason, fm_error *reterr) {
    uint8_t head[FM_FRAME_BYTES];
    fm_frame found;
    *ret_is_reason = false;
    fm_status status = receive(fd, head, sizeof head, deadline_ns, reterr);
    if (status) return status;
    if (!fm_frame_decode(head, &found)) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "sent bytes that are no frame of a meeting");
    }
    *ret_is_reason = found.kind == FM_FRAME_FAIL;
    if (*ret_is_reason) return receive_reason(fd, &found, deadline_ns, reterr);
    if (found.kind != expected->kind || found.number != expected->number ||
        found.bytes != expected->bytes) {
        return fm_fail(reterr, FM_ERR_CORRUPT,
                       "sent frame %d with %u bytes in gather %u, expected %d with %u in %u",
                       (int)found.kind, found.bytes, found.number, (int)expected->kind,
                       expected->bytes, expected->number);
    }
    status = receive(fd, payload, found.bytes, deadline_ns, reterr);
    const bool is_checked = found.kind == FM_FRAME_GIVE || found.kind == FM_FRAME_ALL;
    if (status || !is_checked || found.check == fm_frame_check(payload, found.bytes)) return status;
    return fm_fail(reterr, FM_ERR_CORRUPT,
                   "sent %u bytes in gather %u that were changed on their way", found.bytes,
                   found.number);
}

void fm_link_send_reason(int fd, const fm_error *error) {
    uint8_t message[FM_FRAME_BYTES + FM_FRAME_TEXT_BYTES];
    size_t bytes = strnlen(error->message, FM_FRAME_TEXT_BYTES);
    const fm_frame frame = {FM_FRAME_FAIL, error->status, (uint32_t)bytes, 0};
    fm_frame_encode(&frame, message);
    memcpy(message + FM_FRAME_BYTES, error->message, bytes);
    (void)fm_link_send_some(fd, message, FM_FRAME_BYTES + bytes);
}
