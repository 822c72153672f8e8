/* meeting_open.h: how the ranks of a meeting find each other; for meeting*.c only. */
#ifndef FM_TRAINER_MEETING_OPEN_H
#define FM_TRAINER_MEETING_OPEN_H

#include "proto/base/cancel.h"
#include "proto/base/status.h"

enum { FM_PEER_NAME_BYTES = 112 };

/* The other end of a connection. */
typedef struct fm_attendee {
    int fd;                        /* -1: not there */
    char name[FM_PEER_NAME_BYTES]; /* "rank 3 (process 1234 on node7)", for messages */
} fm_attendee;

/* Completes the sentence of a link's error, "is gone ...", by the name of its other end. */
fm_status fm_attendee_fail(const fm_attendee *peer, fm_status status, fm_error *error);

/* How long to wait for others. */
typedef struct fm_patience {
    uint64_t deadline_ns;
    const fm_cancel *cancel;
} fm_patience;

/* Of rank 0: waits for all others; peer[r] [size] is filled for r >= 1. What connects and is not a
 * rank of this run, or does not know its secret ("" = none), is refused. Errors are those of
 * fm_meeting_open. The caller closes what is open in `peer`, also after a failure, whose reason the
 * others have been sent. */
FM_MUST_USE fm_status fm_meeting_host(const char *address, int32_t size, const char *secret,
                                      const fm_patience *patience, fm_attendee *peer,
                                      fm_error *reterr);

/* Of the others: connects to rank 0, which may come later, and waits until all are there. */
FM_MUST_USE fm_status fm_meeting_join(const char *address, int32_t rank, int32_t size,
                                      const char *secret, const fm_patience *patience,
                                      fm_attendee *ret_peer, fm_error *reterr);

#endif
