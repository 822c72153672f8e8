/* meeting.c: see meeting.h. Rank 0 receives the bytes of all ranks at the same time, so that a
 * rank that is gone is noticed even when another is slow. It sends the result to one after another.
 * When a gather fails on rank 0, it sends the reason to all others; that is why these wait a little
 * longer than rank 0. */
#include "trainer/dist/meeting.h"

#include "proto/address.h"
#include "trainer/dist/meeting_link.h"
#include "trainer/dist/meeting_open.h"
#include "trainer/dist/meeting_tree.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const double reason_s = 5; /* for the reason of rank 0 to arrive */

/* A rank's bytes on their way to rank 0: the frame's head, then the payload. */
typedef struct arrival {
    uint8_t head[FM_FRAME_BYTES];
    size_t done; /* bytes of both */
} arrival;

struct fm_meeting {
    int32_t rank, size;
    uint32_t number;   /* gathers so far */
    bool is_over;      /* one has failed */
    fm_attendee *peer; /* [size] of rank 0, else [1]: rank 0 */
    fm_ear ear;
    fm_meeting_tree *tree; /* in place of the connections to rank 0; NULL: there is none */
    char local_host[FM_MEETING_HOST_BYTES]; /* of a meeting with a tree */
    arrival *arrival;                       /* [size] of rank 0 */
    struct pollfd *polls;                   /* [size] of rank 0 */
};

void fm_meeting_cancel(fm_meeting *meeting) {
    if (meeting->tree) fm_meeting_tree_cancel(meeting->tree);
    int32_t n = meeting->rank == 0 ? meeting->size : 1;
    for (int32_t r = 0; meeting->peer && r < n; r++)
        if (meeting->peer[r].fd >= 0) shutdown(meeting->peer[r].fd, SHUT_RDWR);
}

/* Ends all connections, and keeps their descriptors until the meeting is closed. */
static void end(fm_meeting *meeting) {
    fm_meeting_cancel(meeting);
    meeting->is_over = true;
}

void fm_meeting_heed(fm_meeting *meeting, const char *(*why)(void *context), void *context) {
    meeting->ear = (fm_ear){why, context};
    if (meeting->tree) fm_meeting_tree_heed(meeting->tree, &meeting->ear);
}

static fm_status enter(fm_meeting *meeting, const char *address, const fm_meeting_terms *terms,
                       fm_error *reterr) {
    size_t n = meeting->rank == 0 ? (size_t)meeting->size : 1;
    meeting->peer = calloc(n, sizeof *meeting->peer);
    meeting->arrival = calloc(n, sizeof *meeting->arrival);
    meeting->polls = calloc(n, sizeof *meeting->polls);
    if (!meeting->peer || !meeting->arrival || !meeting->polls) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a meeting of %d ranks",
                       (int)meeting->size);
    }
    for (size_t r = 0; r < n; r++)
        meeting->peer[r].fd = -1;
    if (meeting->size == 1) return FM_OK;
    const double wait_s = meeting->rank == 0 ? terms->seconds : terms->seconds + reason_s;
    const fm_patience patience = {fm_link_deadline(wait_s), terms->cancel};
    const char *secret = terms->secret ? terms->secret : "";
    return meeting->rank == 0
               ? fm_meeting_host(address, meeting->size, secret, &patience, meeting->peer, reterr)
               : fm_meeting_join(address, meeting->rank, meeting->size, secret, &patience,
                                 meeting->peer, reterr);
}

fm_status fm_meeting_open_on(fm_meeting **ret_meeting, const char *address, int32_t rank,
                             int32_t size, const fm_meeting_terms *terms, fm_error *reterr) {
    assert(size >= 1 && size <= FM_MEETING_RANKS && rank >= 0 && rank < size);
    assert(!terms->secret || strlen(terms->secret) <= FM_MEETING_SECRET_BYTES);
    fm_meeting *meeting = calloc(1, sizeof *meeting);
    if (!meeting) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a meeting of ranks");
    meeting->rank = rank;
    meeting->size = size;
    fm_status status = enter(meeting, address, terms, reterr);
    if (status) {
        fm_meeting_close(meeting);
        return status;
    }
    *ret_meeting = meeting;
    return FM_OK;
}

fm_status fm_meeting_open(fm_meeting **ret_meeting, const char *address, int32_t rank, int32_t size,
                          double seconds, fm_error *reterr) {
    const fm_meeting_terms terms = {.seconds = seconds};
    return fm_meeting_open_on(ret_meeting, address, rank, size, &terms, reterr);
}

void fm_meeting_close(fm_meeting *meeting) {
    if (!meeting) return;
    int32_t n = meeting->rank == 0 ? meeting->size : 1;
    for (int32_t r = 0; meeting->peer && r < n; r++)
        if (meeting->peer[r].fd >= 0) close(meeting->peer[r].fd);
    fm_meeting_tree_close(meeting->tree);
    free(meeting->peer);
    free(meeting->arrival);
    free(meeting->polls);
    free(meeting);
}

int32_t fm_meeting_rank(const fm_meeting *meeting) {
    return meeting->rank;
}

int32_t fm_meeting_size(const fm_meeting *meeting) {
    return meeting->size;
}

/* Writes the address to which the connection is bound here; false where that is none. */
static bool find_bound(int fd, char out[FM_MEETING_HOST_BYTES]) {
    struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof at;
    static const char mapped[] = "::ffff:"; /* before an IPv4 address */
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&at, &bytes) < 0) return false;
    if (at.ss_family != AF_INET && at.ss_family != AF_INET6) return false;
    if (getnameinfo((struct sockaddr *)&at, bytes, out, FM_MEETING_HOST_BYTES, NULL, 0,
                    NI_NUMERICHOST) != 0) {
        return false;
    }
    const size_t n = sizeof mapped - 1;
    if (strncmp(out, mapped, n) == 0) memmove(out, out + n, strlen(out + n) + 1);
    return true;
}

void fm_meeting_local_host(const fm_meeting *meeting, char out[FM_MEETING_HOST_BYTES]) {
    const int32_t n = meeting->rank == 0 ? meeting->size : 1;
    bool is_found = false;
    if (meeting->tree) {
        memcpy(out, meeting->local_host, FM_MEETING_HOST_BYTES);
        return;
    }
    /* Rank 0 may have ranks of its own host, too, which use an address of this host alone. */
    for (int32_t r = 0; r < n; r++) {
        const int fd = meeting->peer[r].fd;
        if (is_found && (fd < 0 || fm_address_is_loopback(fd))) continue;
        is_found = find_bound(fd, out) || is_found;
        if (is_found && !fm_address_is_loopback(fd)) return;
    }
    if (!is_found) snprintf(out, FM_MEETING_HOST_BYTES, "127.0.0.1");
}

/* -- rank 0 */

/* Takes what rank r has sent so far; *ret_whole: that is all of it. */
static fm_status take(fm_meeting *meeting, int32_t r, size_t bytes, uint8_t *all, bool *ret_whole,
                      fm_error *reterr) {
    arrival *a = &meeting->arrival[r];
    const char *name = meeting->peer[r].name;
    bool in_head = a->done < FM_FRAME_BYTES;
    size_t until = FM_FRAME_BYTES + (in_head ? 0 : bytes);
    uint8_t *to = in_head ? a->head + a->done : all + (size_t)r * bytes + a->done - FM_FRAME_BYTES;
    long n = fm_link_receive_some(meeting->peer[r].fd, to, until - a->done);
    if (n < 0) return fm_fail(reterr, FM_ERR_CLOSED, "%s is gone: its connection has ended", name);
    a->done += (size_t)n;
    *ret_whole = a->done == FM_FRAME_BYTES + bytes;
    if (a->done < FM_FRAME_BYTES) return FM_OK;
    fm_frame frame;
    if (!fm_frame_decode(a->head, &frame) || frame.kind != FM_FRAME_GIVE) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "%s sent bytes that are no frame of a gather",
                       name);
    }
    if (frame.number == meeting->number && frame.bytes == bytes) {
        if (!*ret_whole || frame.check == fm_frame_check(all + (size_t)r * bytes, bytes)) {
            return FM_OK;
        }
        return fm_fail(reterr, FM_ERR_CORRUPT,
                       "%s sent %zu bytes in gather %u that were changed on their way", name, bytes,
                       frame.number);
    }
    return fm_fail(reterr, FM_ERR_PROTOCOL,
                   "%s gives %u bytes to gather %u, but rank 0 gives %zu to gather %u", name,
                   frame.bytes, frame.number, bytes, meeting->number);
}

/* Lists the ranks that have not sent everything, as far as they fit. */
static fm_status fail_late(const fm_meeting *meeting, size_t bytes, double seconds,
                           fm_error *reterr) {
    char names[256] = "";
    int32_t n_late = 0;
    for (int32_t r = 1; r < meeting->size; r++) {
        if (meeting->arrival[r].done == FM_FRAME_BYTES + bytes) continue;
        size_t at = strlen(names);
        if (n_late++ < 4) {
            snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", meeting->peer[r].name);
        }
    }
    return fm_fail(reterr, FM_ERR_CLOSED, "%s%s did not come to gather %u within %.0f s", names,
                   n_late > 4 ? " and others" : "", meeting->number, seconds);
}

static fm_status receive_all(fm_meeting *meeting, size_t bytes, uint8_t *all, double seconds,
                             fm_error *reterr) {
    const uint64_t deadline_ns = fm_link_deadline(seconds);
    int32_t n_left = meeting->size - 1;
    for (int32_t r = 0; r < meeting->size; r++) {
        meeting->arrival[r].done = 0;
        meeting->polls[r] = (struct pollfd){.fd = r ? meeting->peer[r].fd : -1, .events = POLLIN};
    }
    while (n_left > 0) {
        int ready;
        fm_status status =
            fm_link_wait(meeting->polls, meeting->size, deadline_ns, &meeting->ear, &ready, reterr);
        if (status) return status;
        if (ready == 0) return fail_late(meeting, bytes, seconds, reterr);
        for (int32_t r = 1; r < meeting->size; r++) {
            bool is_whole;
            if (!meeting->polls[r].revents) continue;
            status = take(meeting, r, bytes, all, &is_whole, reterr);
            if (status) return status;
            if (!is_whole) continue;
            meeting->polls[r].fd = -1;
            n_left--;
        }
    }
    return FM_OK;
}

static fm_status gather_as_host(fm_meeting *meeting, size_t bytes, uint8_t *all, double seconds,
                                fm_error *reterr) {
    fm_status status = receive_all(meeting, bytes, all, seconds, reterr);
    const size_t all_bytes = bytes * (size_t)meeting->size;
    const fm_frame frame = {FM_FRAME_ALL, meeting->number, (uint32_t)all_bytes,
                            status ? 0 : fm_frame_check(all, all_bytes)};
    const uint64_t deadline_ns = fm_link_deadline(seconds);
    for (int32_t r = 1; r < meeting->size && !status; r++) {
        status = fm_link_send(meeting->peer[r].fd, &frame, all, deadline_ns, reterr);
        if (status) status = fm_attendee_fail(&meeting->peer[r], status, reterr);
    }
    for (int32_t r = 1; r < meeting->size && status; r++)
        fm_link_send_reason(meeting->peer[r].fd, reterr);
    return status;
}

/* -- the others */

static fm_status gather_as_guest(fm_meeting *meeting, const void *mine, size_t bytes, uint8_t *all,
                                 double seconds, fm_error *reterr) {
    const fm_attendee *host = &meeting->peer[0];
    const fm_frame give = {FM_FRAME_GIVE, meeting->number, (uint32_t)bytes,
                           fm_frame_check(mine, bytes)};
    const fm_frame frame = {FM_FRAME_ALL, meeting->number,
                            (uint32_t)(bytes * (size_t)meeting->size), 0};
    const uint64_t deadline_ns = fm_link_deadline(seconds + reason_s);
    /* When rank 0 has closed the connection, its reason may still be there to read. */
    fm_status sent = fm_link_send(host->fd, &give, mine, deadline_ns, reterr);
    bool is_reason;
    int ready; /* where nothing comes, there is no time left to receive it */
    struct pollfd polls = {.fd = host->fd, .events = POLLIN};
    fm_status status = fm_link_wait(&polls, 1, deadline_ns, &meeting->ear, &ready, reterr);
    if (status) return status;
    status = fm_link_receive_frame(host->fd, &frame, all, deadline_ns, &is_reason, reterr);
    if (status && !is_reason) return fm_attendee_fail(host, status, reterr);
    return status ? status : sent;
}

fm_status fm_meeting_gather(fm_meeting *meeting, const void *mine, size_t bytes, void *all,
                            double seconds, fm_error *reterr) {
    assert(bytes <= FM_MEETING_GATHER_BYTES / (size_t)meeting->size);
    fm_error own;
    fm_error *error = reterr ? reterr : &own;
    if (meeting->is_over) return fm_fail(error, FM_ERR_CLOSED, "the meeting of the ranks is over");
    memcpy((uint8_t *)all + (size_t)meeting->rank * bytes, mine, bytes);
    fm_status status = FM_OK;
    if (meeting->tree) {
        status = fm_meeting_tree_gather(meeting->tree, meeting->number, mine, bytes, all, seconds,
                                        error);
    } else if (meeting->size > 1) {
        status = meeting->rank == 0 ? gather_as_host(meeting, bytes, all, seconds, error)
                                    : gather_as_guest(meeting, mine, bytes, all, seconds, error);
    }
    if (status) end(meeting);
    meeting->number++;
    return status;
}

enum { WHY_BYTES = 320 }; /* of a rank's reason for a failure */

/* What a rank tells the others when they agree. */
typedef struct outcome {
    uint32_t status;
    char why[WHY_BYTES];
} outcome;

fm_status fm_meeting_agree(fm_meeting *meeting, fm_status status, const char *what, double seconds,
                           fm_error *error) {
    outcome own = {.status = status}, *all = calloc((size_t)meeting->size, sizeof *all);
    fm_error ignored;
    if (!all) return fm_fail(error, FM_ERR_NOMEM, "no memory for what the ranks say");
    if (status) snprintf(own.why, sizeof own.why, "%.*s", WHY_BYTES - 1, error->message);
    fm_status met =
        fm_meeting_gather(meeting, &own, sizeof own, all, seconds, status ? &ignored : error);
    if (!status) status = met;
    for (int32_t r = 0; r < meeting->size && !status; r++) {
        if (!all[r].status) continue;
        all[r].why[WHY_BYTES - 1] = '\0';
        status = fm_fail(error, (fm_status)all[r].status, "rank %d cannot %s: %s", (int)r, what,
                         all[r].why);
    }
    free(all);
    return status;
}

/* -- the tree */

fm_status fm_meeting_form_tree(fm_meeting *meeting, const fm_topology *topology, double seconds,
                               fm_error *reterr) {
    const int32_t n = meeting->rank == 0 ? meeting->size : 1;
    fm_meeting_tree *tree = NULL;
    fm_error own, *error = reterr ? reterr : &own;
    assert(!meeting->tree && topology->n_rank == meeting->size);
    if (topology->n_host == 1) return FM_OK;
    fm_status status = fm_meeting_tree_open(meeting, topology, seconds, &tree, error);
    status = fm_meeting_agree(meeting, status, "connect to other hosts", seconds, error);
    if (status) {
        fm_meeting_tree_close(tree);
        return status;
    }
    fm_meeting_local_host(meeting, meeting->local_host);
    fm_meeting_tree_heed(tree, &meeting->ear);
    for (int32_t r = 0; r < n; r++) {
        if (meeting->peer[r].fd >= 0) close(meeting->peer[r].fd);
        meeting->peer[r].fd = -1;
    }
    meeting->tree = tree;
    return FM_OK;
}
