/* comm_hosts.c: see comm_hosts.h.
 *
 * Exchange number n of a group, from 1, sends each other member one piece, also where that has no
 * parts: a head, then the parts of all messages for this member, each without gaps.
 *
 *     number u64, digest u64 (of the messages, which must agree), check u64 (XXH3-64 of the parts)
 *
 * What comes from the members has the same form, so the size of each piece follows from the
 * messages. A message of one part per member is then combined as an all-gather or an all-reduce. */
#include "trainer/dist/comm_hosts.h"

#include "proto/base/hash.h"
#include "trainer/dist/combine.h"
#include "trainer/dist/meeting_link.h"
#include "trainer/dist/host_links.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAD_BYTES = 24,
    ALIGN = 64, /* of the first part in a piece */
    MOVE_MS = 100,
    GONE_MS = 2000, /* for those that watch processes to say more of one whose connection ended */
    SLOTS = FM_HOST_LINKS_PIECES,
};

/* What is on its way between this rank and another member. */
typedef struct parcel {
    uint8_t *out, *in;    /* pieces, their heads ALIGN - HEAD_BYTES behind the memory's begin */
    uint32_t sent, comes; /* their numbers on the link */
} parcel;

typedef struct exchange {
    fm_message message[FM_COMM_MESSAGES];
    int32_t count;
    uint64_t digest;
    parcel *parcel; /* [size]; this rank's own `in` has its own parts */
} exchange;

/* One of this rank's groups. */
typedef struct member {
    fm_comm comm;
    fm_hosts *hosts;
    fm_rank_set set;
    int32_t number;      /* of the group: dap, bp, sample, dp */
    int32_t *link;       /* [size] of the links; -1: this rank */
    const void **source; /* [size] scratch */
    uint32_t begun;
    exchange exchange[SLOTS];
} member;

struct fm_hosts {
    fm_board *board;
    fm_hosts_options options;
    fm_host_links *links;
    bool is_over;                    /* no exchange is completed any more */
    member *member[FM_BOARD_GROUPS]; /* NULL: the group is inside this host */
};

/* -- pieces */

static bool has_parts(const fm_message *m, int32_t rank) {
    return m->exchange != FM_EXCHANGE_BROADCAST || m->root == rank;
}

static size_t part_bytes(const fm_message *m) {
    return (size_t)(m->rows * m->run) * fm_element_bytes(m->element);
}

/* Bytes of what `rank` sends to each other member, without the head. */
static size_t parts_bytes(const exchange *e, int32_t rank) {
    size_t bytes = 0;
    for (int32_t i = 0; i < e->count; i++)
        bytes += has_parts(&e->message[i], rank) ? part_bytes(&e->message[i]) : 0;
    return bytes;
}

static uint8_t *make_piece(size_t parts) {
    uint8_t *piece = malloc(ALIGN + parts);
    assert(piece && "an exchange has memory");
    return piece;
}

static uint8_t *head_of(uint8_t *piece) {
    return piece + ALIGN - HEAD_BYTES;
}

/* Copies the part for `to` without gaps. */
static uint8_t *pack(const fm_message *m, int32_t size, int32_t to, uint8_t *out) {
    const size_t element = fm_element_bytes(m->element), run = (size_t)m->run * element;
    const int64_t part = fm_exchange_parts_sent(m->exchange, size) > 1 ? to : 0;
    const uint8_t *from = (const uint8_t *)m->send + (size_t)(part * m->sent.part) * element;
    for (int64_t row = 0; row < m->rows; row++) {
        memcpy(out, from + (size_t)(row * m->sent.row) * element, run);
        out += run;
    }
    return out;
}

/* What this rank sends to a member. */
static uint8_t *pack_all(const member *m, const exchange *e, int32_t to, uint32_t number) {
    uint8_t *piece = make_piece(parts_bytes(e, m->comm.rank)), *at = piece + ALIGN;
    for (int32_t i = 0; i < e->count; i++) {
        const fm_message *message = &e->message[i];
        if (has_parts(message, m->comm.rank)) at = pack(message, m->comm.size, to, at);
    }
    const uint64_t head[] = {number, e->digest,
                             fm_xxh3(piece + ALIGN, (size_t)(at - piece) - ALIGN)};
    static_assert(sizeof head == HEAD_BYTES, "the head above");
    memcpy(head_of(piece), head, sizeof head);
    return piece;
}

static void release(const member *m, exchange *e) {
    for (int32_t r = 0; r < m->comm.size; r++) {
        free(e->parcel[r].out);
        free(e->parcel[r].in);
        e->parcel[r] = (parcel){.out = NULL};
    }
}

/* -- results */

/* Each member has one part for this rank, so what was sent in many parts is now as if each had sent
 * one to all. */
static fm_exchange combined_as(fm_exchange kind) {
    switch (kind) {
    case FM_EXCHANGE_ALL_TO_ALL: return FM_EXCHANGE_ALL_GATHER;
    case FM_EXCHANGE_REDUCE_SCATTER: return FM_EXCHANGE_ALL_REDUCE;
    default: return kind;
    }
}

static void combine(member *m, const exchange *e) {
    size_t *at = calloc((size_t)m->comm.size, sizeof *at);
    assert(at);
    for (int32_t i = 0; i < e->count; i++) {
        fm_message message = e->message[i];
        const int64_t count = message.rows * message.run;
        for (int32_t r = 0; r < m->comm.size; r++) {
            m->source[r] = e->parcel[r].in + ALIGN + at[r];
            at[r] += has_parts(&message, r) ? part_bytes(&message) : 0;
        }
        message.exchange = combined_as(message.exchange);
        message.sent = (fm_parts){count, message.run};
        fm_comm_combine(&message, m->comm.rank, m->comm.size, m->source);
    }
    free(at);
}

/* -- waiting */

/* Ends the run because of a member. */
static void give_up(const member *m, int32_t r, uint32_t number, const char *what) {
    char name[FM_TOPOLOGY_NAME_BYTES], reason[FM_BOARD_REASON_BYTES];
    const fm_topology *topology = fm_board_topology(m->hosts->board);
    snprintf(reason, sizeof reason, "%s %s exchange %u of the %s group",
             fm_topology_name_rank(topology, fm_rank_set_at(&m->set, r), name), what, number,
             fm_board_group_name(m->number));
    m->hosts->options.end(m->hosts->board, reason);
}

/* The member that has not sent all, or does not take what this rank has sent; -1: none. */
static int32_t find_late(const member *m, const exchange *e) {
    for (int32_t r = 0; r < m->comm.size; r++) {
        const parcel *p = &e->parcel[r];
        const int32_t link = m->link[r];
        if (link < 0) continue;
        if (!fm_host_links_has_come(m->hosts->links, link, p->comes)) return r;
        if (!fm_host_links_is_sent(m->hosts->links, link, p->sent)) return r;
    }
    return -1;
}

/* A connection has ended, which says less than what ends the run in a moment. */
static void lose(const fm_hosts *hosts, int32_t lost) {
    for (int ms = 0; ms < GONE_MS && !fm_board_reason(hosts->board); ms += MOVE_MS)
        poll(NULL, 0, MOVE_MS);
    for (int32_t i = 0; i < FM_BOARD_GROUPS; i++) {
        const member *m = hosts->member[i];
        for (int32_t r = 0; m && r < m->comm.size; r++)
            if (m->link[r] == lost) give_up(m, r, m->begun, "ended its connection in");
    }
}

/* Waits until all parts have moved. Returns false when the run is over. */
static bool wait_for_all(const member *m, uint32_t number, const exchange *e) {
    const uint64_t deadline_ns = fm_link_deadline(m->hosts->options.exchange_s);
    for (int32_t late; (late = find_late(m, e)) >= 0;) {
        if (fm_board_reason(m->hosts->board)) return false;
        atomic_fetch_add(&fm_board_own(m->hosts->board)->turns, 1);
        const int32_t lost = fm_host_links_move(m->hosts->links, MOVE_MS);
        if (lost >= 0) {
            lose(m->hosts, lost);
            return false;
        }
        if (fm_link_left_ms(deadline_ns) > 0) continue;
        char what[60];
        snprintf(what, sizeof what, "did not come within %.0f s to", m->hosts->options.exchange_s);
        give_up(m, late, number, what);
        return false;
    }
    return true;
}

/* Whether all members have sent parts of the same exchange, and the network has not changed them.
 */
static bool is_same(const member *m, uint32_t number, const exchange *e) {
    for (int32_t r = 0; r < m->comm.size; r++) {
        uint64_t found[HEAD_BYTES / 8];
        memcpy(found, head_of(e->parcel[r].in), sizeof found);
        if (found[0] != number || found[1] != e->digest) {
            give_up(m, r, number, "sent the parts of another exchange in");
            return false;
        }
        if (found[2] == fm_xxh3(e->parcel[r].in + ALIGN, parts_bytes(e, r))) continue;
        give_up(m, r, number, "sent parts that were changed on their way in");
        return false;
    }
    return true;
}

/* -- one exchange */

static fm_ticket begin(fm_comm *comm, const fm_message *messages, int32_t count,
                       fm_stream *stream) {
    (void)stream;
    member *m = comm->context;
    fm_hosts *hosts = m->hosts;
    fm_board_rank *own = fm_board_own(hosts->board);
    const uint32_t number = ++m->begun;
    exchange *e = &m->exchange[number % SLOTS];
    assert(count >= 1 && count <= FM_COMM_MESSAGES);
    assert(!e->parcel[comm->rank].in && "too many exchanges are under way");
    atomic_store(&own->exchange, number);
    atomic_store(&own->group, (uint32_t)m->number);
    memcpy(e->message, messages, (size_t)count * sizeof *messages);
    e->count = count;
    e->digest = fm_messages_digest(e->message, count);
    for (int32_t r = 0; r < comm->size; r++) {
        parcel *p = &e->parcel[r];
        uint8_t *piece = pack_all(m, e, r, number);
        if (m->link[r] < 0) {
            p->in = piece;
            continue;
        }
        p->out = piece;
        p->in = make_piece(parts_bytes(e, r));
        p->sent = fm_host_links_send(hosts->links, m->link[r], head_of(p->out),
                                     HEAD_BYTES + parts_bytes(e, comm->rank));
        p->comes = fm_host_links_receive(hosts->links, m->link[r], head_of(p->in),
                                         HEAD_BYTES + parts_bytes(e, r));
    }
    (void)fm_host_links_move(hosts->links, 0); /* finish says what is wrong */
    return number;
}

static void finish(fm_comm *comm, fm_ticket ticket, fm_stream *stream) {
    (void)stream;
    member *m = comm->context;
    exchange *e = &m->exchange[ticket % SLOTS];
    fm_board_rank *own = fm_board_own(m->hosts->board);
    assert(ticket >= 1 && ticket <= m->begun);
    atomic_store(&own->is_inside, 1);
    if (!m->hosts->is_over && wait_for_all(m, ticket, e) && is_same(m, ticket, e)) {
        combine(m, e);
    } else {
        fm_host_links_cut(m->hosts->links);
        m->hosts->is_over = true;
        for (int32_t i = 0; i < e->count; i++)
            fm_comm_spoil(comm, &e->message[i]);
    }
    atomic_store(&own->is_inside, 0);
    release(m, e);
}

/* -- opening */

/* Makes a member, and adds the ends of its links to `ends`. */
static fm_status add_member(fm_hosts *hosts, int32_t number, const fm_rank_set *set, int32_t rank,
                            const fm_kernels *kernels, fm_host_end *ends, int32_t *n_end,
                            fm_error *reterr) {
    member *m = calloc(1, sizeof *m);
    const size_t size = (size_t)set->size;
    hosts->member[number] = m;
    bool is_made = m && (m->link = calloc(size, sizeof *m->link)) &&
                   (m->source = calloc(size, sizeof *m->source));
    for (int i = 0; i < SLOTS && is_made; i++)
        is_made = (m->exchange[i].parcel = calloc(size, sizeof(parcel))) != NULL;
    if (!is_made) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a group of %d ranks", (int)set->size);
    }
    m->hosts = hosts;
    m->set = *set;
    m->number = number;
    m->comm = (fm_comm){
        .size = set->size, .context = m, .begin = begin, .finish = finish, .kernels = kernels};
    for (int32_t r = 0; r < set->size; r++) {
        const int32_t other = fm_rank_set_at(set, r);
        m->link[r] = other == rank ? -1 : *n_end;
        if (other == rank) m->comm.rank = r;
        if (other != rank) ends[(*n_end)++] = (fm_host_end){number, other};
    }
    return FM_OK;
}

fm_status fm_hosts_open(const fm_rank_set *const sets[FM_BOARD_GROUPS], fm_meeting *meeting,
                        fm_board *board, const fm_hosts_options *options, const fm_kernels *kernels,
                        fm_hosts **ret_hosts, fm_error *reterr) {
    int32_t n_end = 0, most = 1;
    for (int32_t i = 0; i < FM_BOARD_GROUPS; i++)
        most += sets[i] ? sets[i]->size : 0;
    fm_hosts *hosts = calloc(1, sizeof *hosts);
    fm_host_end *ends = calloc((size_t)most, sizeof *ends);
    fm_status status = FM_OK;
    if (!hosts || !ends) status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for groups of ranks");
    if (!status) {
        hosts->board = board;
        hosts->options = *options;
    }
    for (int32_t i = 0; i < FM_BOARD_GROUPS && !status; i++) {
        if (!sets[i]) continue;
        status =
            add_member(hosts, i, sets[i], fm_meeting_rank(meeting), kernels, ends, &n_end, reterr);
    }
    if (!status) {
        status = fm_host_links_open(meeting, fm_board_topology(board), ends, n_end, options->open_s,
                                    &hosts->links, reterr);
    }
    free(ends);
    if (status) {
        fm_hosts_close(hosts);
        return status;
    }
    *ret_hosts = hosts;
    return FM_OK;
}

void fm_hosts_close(fm_hosts *hosts) {
    if (!hosts) return;
    fm_host_links_close(hosts->links);
    for (int32_t i = 0; i < FM_BOARD_GROUPS; i++) {
        member *m = hosts->member[i];
        if (!m) continue;
        for (int k = 0; k < SLOTS; k++) {
            if (m->exchange[k].parcel) release(m, &m->exchange[k]);
            free(m->exchange[k].parcel);
        }
        free(m->link);
        free(m->source);
        free(m);
    }
    free(hosts);
}

fm_comm *fm_hosts_comm(fm_hosts *hosts, int32_t group) {
    return &hosts->member[group]->comm;
}
