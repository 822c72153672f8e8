/* meeting.h: where the ranks of a run meet to exchange small blobs of bytes, such as the names of
 * shared memory, the handles of device memory and what they agree on before a step.
 *
 * Rank 0 listens at an address; the others connect and say which run they belong to. A gather sends
 * every rank's bytes to rank 0, which sends all of them back. When the ranks know on which hosts
 * they are, the leaders of hosts pass the bytes on (fm_meeting_form_tree). Connections stay open,
 * so the end of a process is noticed at once. Frames have a protocol word, a number and a bounded
 * length, and what does not match is refused.
 *
 * Ranks may share a secret. Each rank and rank 0 then prove to each other that they have it, and
 * who has not gets no seat. Nothing is encrypted, so who can read or change what the network
 * carries must be trusted all the same.
 *
 * An address is one of these, with "#RUN" behind it where several runs might meet by mistake:
 *
 *     tcp://HOST:PORT    rank 0 listens there
 *     unix:PATH          the same between processes of one host
 *     file:PATH          rank 0 listens anywhere and writes to this file of a shared file system
 *                        where that is, with a secret of its own that only the user can read;
 *                        the file is removed when all ranks are there */
#ifndef FM_TRAINER_MEETING_H
#define FM_TRAINER_MEETING_H

#include "proto/base/cancel.h"
#include "proto/base/status.h"

enum {
    FM_MEETING_RANKS = 4096,            /* at most */
    FM_MEETING_GATHER_BYTES = 64 << 20, /* size * bytes of a gather, at most */
    FM_MEETING_HOST_BYTES = 64,         /* a numeric address */
    FM_MEETING_ADDRESS_BYTES = 1024,    /* text of an address, at most */
    FM_MEETING_SECRET_LEAST = 16,       /* characters of a secret, at least */
    FM_MEETING_SECRET_BYTES = 256,      /* and at most */
};

typedef struct fm_meeting fm_meeting;

/* Checks the form of an address, and opens nothing. FM_ERR_USAGE for another form. */
FM_MUST_USE fm_status fm_meeting_check_address(const char *address, fm_error *reterr);

/* Opens the meeting of `size` ranks; waits up to `seconds` for all of them. A meeting of one rank
 * uses no address. FM_ERR_USAGE for an address of another form, FM_ERR_CLOSED naming the ranks that
 * are missing, FM_ERR_PROTOCOL when rank 0 refuses this rank, FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_meeting_open(fm_meeting **ret_meeting, const char *address, int32_t rank,
                                      int32_t size, double seconds, fm_error *reterr);

typedef struct fm_meeting_terms {
    double seconds;          /* to wait for all ranks */
    const fm_cancel *cancel; /* ends the wait with FM_ERR_CANCELLED; NULL: nothing does */
    const char *secret;      /* at most FM_MEETING_SECRET_BYTES characters; NULL or "": none */
} fm_meeting_terms;

/* The same on further terms. With `cancel`, rank 0 logs after 10 s which ranks it waits for. A rank
 * with another secret is refused with FM_ERR_PROTOCOL, and does not take a rank 0 with another one
 * for its own. Without a secret, rank 0 warns when others than this host reach tcp://HOST:PORT. */
FM_MUST_USE fm_status fm_meeting_open_on(fm_meeting **ret_meeting, const char *address,
                                         int32_t rank, int32_t size, const fm_meeting_terms *terms,
                                         fm_error *reterr);

/* Collective: gathers go along a tree of hosts from then on, so that no rank talks to all others
 * (tree.h). The connections to rank 0 end. Nothing changes on one host. FM_ERR_NOMEM, the same
 * errors on all ranks as far as these can be reached, and those of a gather. */
struct fm_topology;
FM_MUST_USE fm_status fm_meeting_form_tree(fm_meeting *meeting, const struct fm_topology *topology,
                                           double seconds, fm_error *reterr);

/* Lets a gather end before its time: a rank that waits in one asks `why` several times a second,
 * which returns why the run is over, or NULL. The gather then fails with FM_ERR_CANCELLED and that
 * reason, along a tree on all ranks. */
void fm_meeting_heed(fm_meeting *meeting, const char *(*why)(void *context), void *context);

/* Collective: every rank gives `bytes` bytes, the same number; `all` [size * bytes] receives them
 * in rank order. FM_ERR_CLOSED, naming the rank and its host, when a rank is gone or does not come
 * within `seconds`; FM_ERR_PROTOCOL when ranks give different numbers of bytes; FM_ERR_CANCELLED
 * with a reason that fm_meeting_heed has heard on some rank. After a failure the
 * meeting can only be closed, and so it is for all other ranks. */
FM_MUST_USE fm_status fm_meeting_gather(fm_meeting *meeting, const void *mine, size_t bytes,
                                        void *all, double seconds, fm_error *reterr);

/* Collective: whether all ranks have succeeded in something, `what` ("exchange with others"). A
 * rank that has failed gives its status and *error, and returns them. The others then fail as the
 * lowest of these has: "rank 3 cannot exchange with others: REASON". `error` is not NULL.
 * FM_ERR_NOMEM, and the errors of fm_meeting_gather. */
FM_MUST_USE fm_status fm_meeting_agree(fm_meeting *meeting, fm_status status, const char *what,
                                       double seconds, fm_error *error);

int32_t fm_meeting_rank(const fm_meeting *meeting);
int32_t fm_meeting_size(const fm_meeting *meeting);

/* The numeric address by which this host takes part, for other connections between the ranks. It is
 * 127.0.0.1 where the meeting uses no network. */
void fm_meeting_local_host(const fm_meeting *meeting, char out[FM_MEETING_HOST_BYTES]);

/* Makes the gather that is under way on another thread, and all later ones, fail. */
void fm_meeting_cancel(fm_meeting *meeting);

/* Leaves; the other ranks notice at their next gather. NULL is allowed. */
void fm_meeting_close(fm_meeting *meeting);

#endif
