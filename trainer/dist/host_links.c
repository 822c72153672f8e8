/* host_links.c: see host_links.h.
 *
 * Of two ranks the higher one connects. The system accepts for a rank that listens, so all ranks
 * connect first and accept then, and none waits for another in a ring.
 *
 *     greeting    word u64 (of the rank that listens), rank i32, group i32 (of the one that
 *                 connects) */
#include "trainer/dist/host_links.h"

#include "proto/address.h"
#include "proto/base/bytes.h"
#include "trainer/dist/meeting_link.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
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

/* Pieces in one direction, as a ring. */
typedef struct fifo {
    struct {
        uint8_t *at;
        size_t bytes;
    } piece[FM_HOST_LINKS_PIECES];
    uint32_t given, moved; /* pieces */
    size_t done;           /* bytes of the one that moves */
} fifo;

typedef struct host_link {
    fm_host_end end;
    int fd; /* -1: none yet, or it has ended */
    fifo out, in;
} host_link;

struct fm_host_links {
    int32_t n;
    bool is_cut;
    host_link *link;
    struct pollfd *polls; /* [n] */
};

/* Where a rank listens. */
typedef struct port {
    char host[FM_MEETING_HOST_BYTES];
    uint64_t word;
    uint32_t port, status;
} port;

/* -- opening */

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
static fm_status call(host_link *l, int32_t rank, const port *to, uint64_t deadline_ns,
                      fm_error *reterr) {
    fm_address at = {.kind = FM_ADDRESS_TCP, .port = (uint16_t)to->port, .is_insecure = true};
    uint8_t greeting[GREETING_BYTES];
    memcpy(at.host, to->host, sizeof to->host);
    fm_status status =
        fm_address_connect(&at, (uint32_t)fm_link_left_ms(deadline_ns), &l->fd, reterr);
    if (status) return status;
    fm_writer w = fm_writer_of(greeting, sizeof greeting);
    fm_write_u64(&w, to->word);
    fm_write_u32(&w, (uint32_t)rank);
    fm_write_u32(&w, (uint32_t)l->end.group);
    /* An empty buffer of the system takes a greeting whole. */
    if (fm_link_send_some(l->fd, greeting, sizeof greeting) == (long)sizeof greeting) return FM_OK;
    return fm_fail(reterr, FM_ERR_CLOSED, "rank %d ended its connection", (int)l->end.rank);
}

/* Reads who has connected; -1 for a stranger. */
static int32_t hear(const fm_host_links *links, int fd, uint64_t word) {
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
    for (int32_t i = 0; i < links->n; i++) {
        const host_link *l = &links->link[i];
        if (l->end.rank == rank && l->end.group == group && l->fd < 0) return i;
    }
    return -1;
}

static fm_status accept_all(fm_host_links *links, int32_t n_left, int listener, uint64_t word,
                            uint64_t deadline_ns, fm_error *reterr) {
    while (n_left > 0) {
        wait_for(listener, POLLIN, deadline_ns);
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), yes = 1;
        const int32_t i = fd >= 0 ? hear(links, fd, word) : -1;
        if (i >= 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            links->link[i].fd = fd;
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
static fm_status connect_all(fm_host_links *links, int32_t rank, const port *all, int listener,
                             double seconds, fm_error *reterr) {
    const uint64_t deadline_ns = fm_link_deadline(seconds);
    int32_t n_higher = 0;
    for (int32_t i = 0; i < links->n; i++) {
        host_link *l = &links->link[i];
        n_higher += l->end.rank > rank;
        if (l->end.rank > rank) continue;
        fm_status status = call(l, rank, &all[l->end.rank], deadline_ns, reterr);
        if (status) return status;
    }
    return accept_all(links, n_higher, listener, all[rank].word, deadline_ns, reterr);
}

static fm_status open_with(fm_host_links *links, fm_meeting *meeting, const fm_topology *topology,
                           port *all, double seconds, fm_error *reterr) {
    int listener = -1;
    fm_status status = introduce(meeting, topology, all, seconds, &listener, reterr);
    if (!status) {
        status = connect_all(links, fm_meeting_rank(meeting), all, listener, seconds, reterr);
    }
    if (listener >= 0) close(listener);
    return status;
}

fm_status fm_host_links_open(fm_meeting *meeting, const fm_topology *topology,
                             const fm_host_end *ends, int32_t n, double seconds,
                             fm_host_links **ret_links, fm_error *reterr) {
    fm_host_links *links = calloc(1, sizeof *links);
    port *all = calloc((size_t)topology->n_rank, sizeof *all);
    if (links) {
        links->link = calloc((size_t)n + 1, sizeof *links->link);
        links->polls = calloc((size_t)n + 1, sizeof *links->polls);
    }
    fm_status status = FM_ERR_NOMEM;
    if (links && all && links->link && links->polls) {
        links->n = n;
        for (int32_t i = 0; i < n; i++)
            links->link[i] = (host_link){.end = ends[i], .fd = -1};
        status = open_with(links, meeting, topology, all, seconds, reterr);
    } else {
        fm_fail(reterr, FM_ERR_NOMEM, "no memory for %d connections to other hosts", (int)n);
    }
    free(all);
    if (status) {
        fm_host_links_close(links);
        return status;
    }
    *ret_links = links;
    return FM_OK;
}

void fm_host_links_cut(fm_host_links *links) {
    links->is_cut = true;
    for (int32_t i = 0; i < links->n; i++) {
        host_link *l = &links->link[i];
        if (l->fd >= 0) close(l->fd);
        l->fd = -1;
        l->out.moved = l->out.given;
        l->in.moved = l->in.given;
    }
}

void fm_host_links_close(fm_host_links *links) {
    if (!links) return;
    fm_host_links_cut(links);
    free(links->link);
    free(links->polls);
    free(links);
}

/* -- moving */

static uint32_t give(const fm_host_links *links, fifo *lane, void *piece, size_t bytes) {
    assert(bytes > 0 && lane->given - lane->moved < FM_HOST_LINKS_PIECES);
    const uint32_t place = lane->given++ % FM_HOST_LINKS_PIECES;
    lane->piece[place].at = piece;
    lane->piece[place].bytes = bytes;
    if (links->is_cut) lane->moved = lane->given;
    return lane->given;
}

static bool is_moving(const fifo *lane) {
    return lane->given != lane->moved;
}

static bool has_moved(const fifo *lane, uint32_t number) {
    return (int32_t)(lane->moved - number) >= 0;
}

uint32_t fm_host_links_send(fm_host_links *links, int32_t number, const void *piece, size_t bytes) {
    return give(links, &links->link[number].out, (void *)piece, bytes);
}

uint32_t fm_host_links_receive(fm_host_links *links, int32_t number, void *piece, size_t bytes) {
    return give(links, &links->link[number].in, piece, bytes);
}

bool fm_host_links_is_sent(const fm_host_links *links, int32_t number, uint32_t piece) {
    return has_moved(&links->link[number].out, piece);
}

bool fm_host_links_has_come(const fm_host_links *links, int32_t number, uint32_t piece) {
    return has_moved(&links->link[number].in, piece);
}

/* Moves what the connection takes. Returns false when it has ended. */
static bool move_lane(int fd, fifo *lane, bool sends, bool *ret_has_moved) {
    while (is_moving(lane)) {
        const uint32_t place = lane->moved % FM_HOST_LINKS_PIECES;
        uint8_t *at = lane->piece[place].at + lane->done;
        const size_t left = lane->piece[place].bytes - lane->done;
        long n = sends ? fm_link_send_some(fd, at, left) : fm_link_receive_some(fd, at, left);
        if (n < 0) return false;
        if (n == 0) return true;
        *ret_has_moved = true;
        lane->done += (size_t)n;
        if (lane->done < lane->piece[place].bytes) continue;
        lane->done = 0;
        lane->moved++;
    }
    return true;
}

/* Moves on all links once. */
static int32_t move_all(fm_host_links *links, bool *ret_has_moved) {
    for (int32_t i = 0; i < links->n; i++) {
        host_link *l = &links->link[i];
        if (!is_moving(&l->out) && !is_moving(&l->in)) continue;
        bool lives = l->fd >= 0 && move_lane(l->fd, &l->out, true, ret_has_moved) &&
                     move_lane(l->fd, &l->in, false, ret_has_moved);
        if (!lives) return i;
    }
    return -1;
}

int32_t fm_host_links_move(fm_host_links *links, int wait_ms) {
    bool has_moved_some = false;
    int32_t lost = move_all(links, &has_moved_some);
    if (lost >= 0 || has_moved_some) return lost;
    for (int32_t i = 0; i < links->n; i++) {
        const host_link *l = &links->link[i];
        const int events = (is_moving(&l->out) ? POLLOUT : 0) | (is_moving(&l->in) ? POLLIN : 0);
        links->polls[i] = (struct pollfd){.fd = events ? l->fd : -1, .events = (short)events};
    }
    (void)poll(links->polls, (nfds_t)links->n, wait_ms);
    return move_all(links, &has_moved_some);
}
