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

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    GREETING_BYTES = 8 + 4 + 4,
    GREET_S = 5, /* for one that has connected to say who it is */
    NAMED = 2,   /* ranks in a message, at most */
};
static const double connect_s = 60; /* at most, since all ranks have just said where they listen */

/* Where a rank listens. */
typedef struct port {
    char host[FM_MEETING_HOST_BYTES];
    uint64_t word;
    uint32_t port, status;
} port;

/* What a rank has of its connections while they are made. */
typedef struct calls {
    const fm_topology *topology;
    int32_t rank; /* this one */
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
        char name[FM_TOPOLOGY_NAME_BYTES];
        if (!all[r].status) continue;
        return fm_fail(reterr, (fm_status)all[r].status, "%s cannot listen for other hosts",
                       fm_topology_name_rank(topology, r, name));
    }
    return FM_OK;
}

static void wait_for(int fd, short event, uint64_t deadline_ns) {
    struct pollfd wait = {.fd = fd, .events = event};
    (void)poll(&wait, 1, fm_link_left_ms(deadline_ns));
}

/* Connects to an address and sends a greeting. */
static fm_status greet(const fm_address *at, const uint8_t greeting[GREETING_BYTES],
                       uint64_t deadline_ns, int *ret_fd, fm_error *reterr) {
    fm_status status =
        fm_address_connect(at, (uint32_t)fm_link_left_ms(deadline_ns), ret_fd, reterr);
    if (status) return status;
    /* An empty buffer of the system takes a greeting whole. */
    const long sent = fm_link_send_some(*ret_fd, greeting, GREETING_BYTES);
    if (sent == GREETING_BYTES) return FM_OK;
    return fm_fail(reterr, FM_ERR_CLOSED, "the connection has ended");
}

/* Connects to the lower of two ranks. */
static fm_status call(const calls *c, int32_t i, const port *to, uint64_t deadline_ns,
                      fm_error *reterr) {
    const fm_host_end *end = &c->end[i];
    char own[FM_TOPOLOGY_NAME_BYTES], other[FM_TOPOLOGY_NAME_BYTES];
    fm_address at = {.kind = FM_ADDRESS_TCP, .port = (uint16_t)to->port, .is_insecure = true};
    uint8_t greeting[GREETING_BYTES];
    fm_error why;
    memcpy(at.host, to->host, sizeof to->host);
    fm_writer w = fm_writer_of(greeting, sizeof greeting);
    fm_write_u64(&w, to->word);
    fm_write_u32(&w, (uint32_t)c->rank);
    fm_write_u32(&w, (uint32_t)end->group);
    fm_status status = greet(&at, greeting, deadline_ns, &c->fd[i], &why);
    if (!status) return FM_OK;
    const int bytes = (int)strcspn(why.message, ";"); /* the advice behind it is about servers */
    return fm_fail(reterr, status, "%s cannot reach %s: %.*s",
                   fm_topology_name_rank(c->topology, c->rank, own),
                   fm_topology_name_rank(c->topology, end->rank, other), bytes, why.message);
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

static bool is_missing(const calls *c, int32_t i) {
    return c->end[i].rank > c->rank && c->fd[i] < 0;
}

/* Lists the ranks that have not connected, as far as they fit. A rank may be missing in several
 * groups. */
static fm_status fail_late(const calls *c, double seconds, fm_error *reterr) {
    char names[NAMED * (FM_TOPOLOGY_NAME_BYTES + 2)] = "";
    char name[FM_TOPOLOGY_NAME_BYTES];
    int32_t n_late = 0;
    for (int32_t i = 0; i < c->n; i++) {
        bool is_new = is_missing(c, i);
        for (int32_t k = 0; k < i && is_new; k++)
            is_new = !is_missing(c, k) || c->end[k].rank != c->end[i].rank;
        if (!is_new || n_late++ >= NAMED) continue;
        const size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                 fm_topology_name_rank(c->topology, c->end[i].rank, name));
    }
    return fm_fail(reterr, FM_ERR_CLOSED, "%s%s did not connect to %s within %.0f s", names,
                   n_late > NAMED ? " and others" : "",
                   fm_topology_name_rank(c->topology, c->rank, name), seconds);
}

/* Whether accept fails because of the system, and not because of a connection that has ended. */
static bool is_of_system(int code) {
    return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
}

static fm_status accept_all(const calls *c, int32_t n_left, int listener, uint64_t word,
                            double seconds, uint64_t deadline_ns, fm_error *reterr) {
    while (n_left > 0) {
        wait_for(listener, POLLIN, deadline_ns);
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), yes = 1;
        const int code = fd < 0 ? errno : 0;
        const int32_t i = fd >= 0 ? hear(c, fd, word) : -1;
        if (i >= 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            c->fd[i] = fd;
            n_left--;
        } else if (fd >= 0) {
            close(fd);
        } else if (is_of_system(code)) {
            char own[FM_TOPOLOGY_NAME_BYTES];
            return fm_fail(reterr, FM_ERR_IO, "%s cannot accept the connection of another rank: %s",
                           fm_topology_name_rank(c->topology, c->rank, own), strerror(code));
        } else if (fm_link_left_ms(deadline_ns) == 0) {
            return fail_late(c, seconds, reterr);
        }
    }
    return FM_OK;
}

/* Makes all connections of this rank. */
static fm_status connect_all(const calls *c, const port *all, int listener, double seconds,
                             fm_error *reterr) {
    const uint64_t deadline_ns = fm_link_deadline(seconds);
    int32_t n_higher = 0;
    for (int32_t i = 0; i < c->n; i++) {
        const int32_t other = c->end[i].rank;
        n_higher += other > c->rank;
        if (other > c->rank) continue;
        fm_status status = call(c, i, &all[other], deadline_ns, reterr);
        if (status) return status;
    }
    return accept_all(c, n_higher, listener, all[c->rank].word, seconds, deadline_ns, reterr);
}

fm_status fm_host_connect(fm_meeting *meeting, const fm_topology *topology, const fm_host_end *ends,
                          int32_t n, double seconds, int *fds, fm_error *reterr) {
    const calls c = {
        .topology = topology, .rank = fm_meeting_rank(meeting), .end = ends, .fd = fds, .n = n};
    port *all = calloc((size_t)topology->n_rank, sizeof *all);
    int listener = -1;
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for connections to other hosts");
    for (int32_t i = 0; i < n; i++)
        fds[i] = -1;
    fm_status status = introduce(meeting, topology, all, seconds, &listener, reterr);
    /* A rank that has failed waits for the others, and tells them why. */
    const double half_s = seconds / 2, within_s = half_s < connect_s ? half_s : connect_s;
    if (!status) status = connect_all(&c, all, listener, within_s, reterr);
    for (int32_t i = 0; i < n && status; i++)
        if (fds[i] >= 0) close(fds[i]);
    if (listener >= 0) close(listener);
    free(all);
    return status;
}
