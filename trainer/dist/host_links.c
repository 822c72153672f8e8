/* host_links.c: see host_links.h. */
#include "trainer/dist/host_links.h"

#include "trainer/dist/meeting_link.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

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
    int fd; /* -1: none yet, or it has ended */
    fifo out, in;
} host_link;

struct fm_host_links {
    int32_t n;
    bool is_cut;
    host_link *link;
    struct pollfd *polls; /* [n] */
};

/* -- opening */

fm_status fm_host_links_open(fm_meeting *meeting, const fm_topology *topology,
                             const fm_host_end *ends, int32_t n, double seconds,
                             fm_host_links **ret_links, fm_error *reterr) {
    fm_host_links *links = calloc(1, sizeof *links);
    int *fds = calloc((size_t)n + 1, sizeof *fds);
    if (links) {
        links->link = calloc((size_t)n + 1, sizeof *links->link);
        links->polls = calloc((size_t)n + 1, sizeof *links->polls);
    }
    fm_status status = FM_ERR_NOMEM;
    if (links && fds && links->link && links->polls) {
        status = fm_host_connect(meeting, topology, ends, n, seconds, fds, reterr);
    } else {
        fm_fail(reterr, FM_ERR_NOMEM, "no memory for %d connections to other hosts", (int)n);
    }
    for (int32_t i = 0; i < n && !status; i++)
        links->link[i].fd = fds[i];
    if (!status) links->n = n;
    free(fds);
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
    if (links->link) fm_host_links_cut(links);
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
