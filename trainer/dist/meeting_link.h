/* meeting_link.h: the frames of a meeting, on one connection between rank 0 and another rank; for
 * meeting*.c only.
 *
 *     word     u32    FM_FRAME_WORD
 *     kind     u32    fm_frame_kind
 *     number   u32    of the gather, from 0; 0 before the first one; the fm_status in FM_FRAME_FAIL
 *     bytes    u32    of the payload that follows
 *     check    u32    fm_frame_check of the payload of a gather's frames; else 0, and not read
 *
 * All numbers are little-endian. The receiver knows which kind, number and length it expects, so a
 * length from outside never decides how much memory is written. */
#ifndef FM_TRAINER_MEETING_LINK_H
#define FM_TRAINER_MEETING_LINK_H

#include "proto/base/status.h"

#include <stdbool.h>

enum {
    FM_FRAME_WORD = 0x33544d46, /* "FMT3" */
    FM_FRAME_BYTES = 20,        /* of a frame's head */
    FM_FRAME_TEXT_BYTES = 400,  /* of the reason in FM_FRAME_FAIL, at most */
};

typedef enum fm_frame_kind {
    FM_FRAME_CHALLENGE = 1, /* rank 0 to a connection: what it must prove its secret with */
    FM_FRAME_HELLO,         /* a rank to rank 0: who it is, with the proof */
    FM_FRAME_WELCOME,       /* rank 0 to a rank: all are there, with its own proof */
    FM_FRAME_FAIL,          /* rank 0 to a rank: the reason why the meeting is over for it */
    FM_FRAME_GIVE,          /* a rank to rank 0: its bytes of a gather */
    FM_FRAME_ALL,           /* rank 0 to a rank: the bytes of all ranks */
} fm_frame_kind;

typedef struct fm_frame {
    fm_frame_kind kind;
    uint32_t number, bytes, check;
} fm_frame;

/* The low half of XXH3-64. It finds bytes that the network has changed, not those that somebody has
 * changed on purpose. */
uint32_t fm_frame_check(const void *payload, size_t bytes);

void fm_frame_encode(const fm_frame *frame, uint8_t out[FM_FRAME_BYTES]);
/* Returns false for a wrong word or kind. */
bool fm_frame_decode(const uint8_t in[FM_FRAME_BYTES], fm_frame *ret_frame);

/* Milliseconds from now to `deadline_ns` (fm_clock_ns), rounded up, at least 0. */
int fm_link_left_ms(uint64_t deadline_ns);
/* fm_clock_ns at `seconds` from now; at most a year. */
uint64_t fm_link_deadline(double seconds);

/* Receives or sends what does not block. Returns the number of bytes, 0 when nothing is ready, and
 * -1 when the connection is over. */
long fm_link_receive_some(int fd, void *data, size_t bytes);
long fm_link_send_some(int fd, const void *data, size_t bytes);

/* Whom a rank asks while it waits for others: `why` returns why the run is over, or NULL. */
typedef struct fm_ear {
    const char *(*why)(void *context); /* NULL: nobody is asked */
    void *context;
} fm_ear;

/* FM_ERR_CANCELLED with the reason why the run is over; FM_OK where it is not. */
FM_MUST_USE fm_status fm_ear_ask(const fm_ear *ear, fm_error *reterr);

/* Waits until something has come from one of n connections; *ret_ready: from how many, 0 when the
 * deadline has passed. Asks the ear several times a second. FM_ERR_CANCELLED, FM_ERR_IO. */
struct pollfd;
FM_MUST_USE fm_status fm_link_wait(struct pollfd *polls, int32_t n, uint64_t deadline_ns,
                                   const fm_ear *ear, int *ret_ready, fm_error *reterr);

/* Sends a frame with its payload. FM_ERR_CLOSED, without naming the other end, when it is gone or
 * the deadline passes. */
FM_MUST_USE fm_status fm_link_send(int fd, const fm_frame *frame, const void *payload,
                                   uint64_t deadline_ns, fm_error *reterr);

/* Receives the frame that `expected` describes, whose check is not read, into `payload`. Where
 * FM_FRAME_FAIL arrives instead, its status and reason are the error, and *ret_is_reason.
 * FM_ERR_CORRUPT for any other frame, and for a payload of a gather that has another check. */
FM_MUST_USE fm_status fm_link_receive_frame(int fd, const fm_frame *expected, void *payload,
                                            uint64_t deadline_ns, bool *ret_is_reason,
                                            fm_error *reterr);

/* Sends FM_FRAME_FAIL with the reason of *error, as far as the connection takes it at once. */
void fm_link_send_reason(int fd, const fm_error *error);

#endif
