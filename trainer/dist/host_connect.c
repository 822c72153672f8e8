/* host_connect.c: see host_connect.h.
 *
 * Of two ranks the higher one connects. The system accepts for a rank that listens, so all ranks
 * connect first and accept then, and none waits for another in a ring.
 *
 *     greeting    word u64 (of the rank that listens), rank i32, group i32 (of the one that
 *                 connects) */
#include "trainer/dist/host_connect.h"

#include "proto/address.h"
#include "proto/base/bytes.h"
#include "trainer/dist/meeting_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    GREETING_BYTES = 8 + 4 + 4,
    GREET_S = 5, /* for one that has connected to say who it is */
};

/* Where a rank listens. */
typedef struct port {
    char host[FM_MEETING_HOST_BYTES];
    uint64_t word;
    uint32_t port, status;
} port;

/* What a rank has of its connections while they are made. */
typedef struct calls {
    const fm_host_end *end;
    int *fd; /* -1: not yet */
    int32_t n;
} calls;

static bool is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

/* The address that other hosts use for a rank: a rank that meets rank 0 inside its own host has the
 * address of another one there. */
static void choose_host(const fm_topology *topology, const port *all, int32_t rank,
                        char out[FM_MEETING_HOST_BYTES]) {
    memcpy(out, all[rank].host, FM_MEETING_HOST_BYTES);
    for (int32_t r = 0; r < topology->n_rank && is_loopback(out); r++) {
        if (topology->rank[r].host != topology->rank[rank].host) continue;
        if (!is_loopback(all[r].host)) memcpy(out, all[r].host, FM_MEETING_HOST_BYTES);
    }
}

static fm_status listen_at(port *own, int *ret_listener, fm_error *reterr) {
    fm_address at = {.kind = FM_ADDRESS_TCP, .is_insecure = true}, bound;
    memcpy(at.host, own->host, sizeof own->host);
    if (getrandom(&own->word, sizeof own->word, 0) != sizeof own->word) {
        return fm_fail(reterr, FM_ERR_IO, "the system gives no random bytes");
    }
    fm_status status = fm_address_listen(&at, ret_listener, &bound, reterr);
    if (!status) own->port = bound.port;
    return status;
}

/* Tells all ranks where this one listens. */
static fm_status introduce(fm_meeting *meeting, const fm_topology *topology, port *all,
                           double seconds, int *ret_listener, fm_error *reterr) {
    const int32_t rank = fm_meeting_rank(meeting);
    port own = {.port = 0};
    fm_meeting_local_host(meeting, own.host);
    fm_status status = fm_meeting_gather(meeting, &own, sizeof own, all, seconds, reterr);
    if (status) return status;
    choose_host(topology, all, rank, own.host);
    fm_error ignored;
    status = listen_at(&own, ret_listener, reterr);
    own.status = status;
    fm_status met =
        fm_meeting_gather(meeting, &own, sizeof own, all, seconds, status ? &ignored : reterr);
    if (status || met) return status ? status : met;
    for (int32_t r = 0; r < topology->n_rank; r++) {
        if (!all[r].status) continue;
        return fm_fail(reterr, (fm_status)all[r].status, "rank %d cannot listen for other hosts",
                       (int)r);
    }
    return FM_OK;
}

static void wait_for(int fd, short event, uint64_t deadline_ns) {
    struct pollfd wait = {.fd = fd, .events = event};
    (void)poll(&wait, 1, fm_link_left_ms(deadline_ns));
}

/* Connects to the lower of two ranks and greets it. */
static fm_status call(const fm_host_end *end, int32_t rank, const port *to, uint64_t deadline_ns,
                      int *ret_fd, fm_error *reterr) {
    fm_address at = {.kind = FM_ADDRESS_TCP, .port = (uint16_t)to->port, .is_insecure = true};
    uint8_t greeting[GREETING_BYTES];
    memcpy(at.host, to->host, sizeof to->host);
    fm_status status =
        fm_address_connect(&at, (uint32_t)fm_link_left_ms(deadline_ns), ret_fd, reterr);
    if (status) return status;
    fm_writer w = fm_writer_of(greeting, sizeof greeting);
    fm_write_u64(&w, to->word);
    fm_write_u32(&w, (uint32_t)rank);
    fm_write_u32(&w, (uint32_t)end->group);
    /* An empty buffer of the system takes a greeting whole. */
    const long sent = fm_link_send_some(*ret_fd, greeting, sizeof greeting);
    if (sent == (long)sizeof greeting) return FM_OK;
    return fm_fail(reterr, FM_ERR_CLOSED, "rank %d ended its connection", (int)end->rank);
}

/* Reads who has connected; -1 for a stranger. */
static int32_t hear(const calls *c, int fd, uint64_t word) {
    uint8_t greeting[GREETING_BYTES];
    size_t done = 0;
    const uint64_t deadline_ns = fm_link_deadline(GREET_S);
    while (done < sizeof greeting && fm_link_left_ms(deadline_ns) > 0) {
        wait_for(fd, POLLIN, deadline_ns);
        long n = fm_link_receive_some(fd, greeting + done, sizeof greeting - done);
        if (n < 0) return -1;
        done += (size_t)n;
    }
    fm_reader r = fm_reader_of(greeting, done);
    if (done < sizeof greeting || fm_read_u64(&r) != word) return -1;
    const int32_t rank = (int32_t)fm_read_u32(&r), group = (int32_t)fm_read_u32(&r);
    for (int32_t i = 0; i < c->n; i++)
        if (c->end[i].rank == rank && c->end[i].group == group && c->fd[i] < 0) return i;
    return -1;
}

static fm_status accept_all(const calls *c, int32_t n_left, int listener, uint64_t word,
                            uint64_t deadline_ns, fm_error *reterr) {
    while (n_left > 0) {
        wait_for(listener, POLLIN, deadline_ns);
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), yes = 1;
        const int32_t i = fd >= 0 ? hear(c, fd, word) : -1;
        if (i >= 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            c->fd[i] = fd;
            n_left--;
        } else if (fd >= 0) {
            close(fd);
        } else if (fm_link_left_ms(deadline_ns) == 0) {
            return fm_fail(reterr, FM_ERR_CLOSED, "%d ranks did not connect in time", (int)n_left);
        }
    }
    return FM_OK;
}

/* Makes all connections of this rank. */
static fm_status connect_all(const calls *c, int32_t rank, const port *all, int listener,
                             double seconds, fm_error *reterr) {
    const uint64_t deadline_ns = fm_link_deadline(seconds);
    int32_t n_higher = 0;
    for (int32_t i = 0; i < c->n; i++) {
        const fm_host_end *end = &c->end[i];
        n_higher += end->rank > rank;
        if (end->rank > rank) continue;
        fm_status status = call(end, rank, &all[end->rank], deadline_ns, &c->fd[i], reterr);
        if (status) return status;
    }
    return accept_all(c, n_higher, listener, all[rank].word, deadline_ns, reterr);
}

fm_status fm_host_connect(fm_meeting *meeting, const fm_topology *topology, const fm_host_end *ends,
                          int32_t n, double seconds, int *fds, fm_error *reterr) {
    const calls c = {.end = ends, .fd = fds, .n = n};
    port *all = calloc((size_t)topology->n_rank, sizeof *all);
    int listener = -1;
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for connections to other hosts");
    for (int32_t i = 0; i < n; i++)
        fds[i] = -1;
    fm_status status = introduce(meeting, topology, all, seconds, &listener, reterr);
    const int32_t rank = fm_meeting_rank(meeting);
    if (!status) status = connect_all(&c, rank, all, listener, seconds, reterr);
    for (int32_t i = 0; i < n && status; i++)
        if (fds[i] >= 0) close(fds[i]);
    if (listener >= 0) close(listener);
    free(all);
    return status;
}
