/* comm_shm.c: see comm_shm.h.
 *
 * Exchange number n of a group, from 1, uses slot n % FM_BOARD_SLOTS of every member's board entry:
 *
 *     publish    the sender copies its parts into its outbox and stores n in slot.published
 *     receive    the receiver waits for n in every member's slot.published, reads the outboxes in
 *                rank order, and stores n in its own slot.taken
 *
 * Parts stay in the outbox until every member's slot.taken is n. A sender looks for that when it
 * needs memory or the slot. The outbox is a sparse file, of which the lowest free range is used. So
 * it takes only as much memory as is under way at once. */
#include "trainer/dist/comm_shm.h"

#include "proto/base/hash.h"
#include "trainer/dist/combine.h"
#include "trainer/dist/comm_hosts.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 64 };
static const size_t outbox_bytes = (size_t)1 << 36; /* address space */

/* A range of the outbox that is not free. */
typedef struct range {
    uint64_t at, bytes;
    int32_t group;
    uint32_t number;
} range;

/* The messages of one exchange. */
typedef struct exchange {
    fm_message message[FM_COMM_MESSAGES];
    int32_t count;
} exchange;

/* One of this rank's groups. */
typedef struct member {
    fm_comm comm;
    fm_shm_groups *groups;
    int32_t number;         /* of the group: dap, bp, sample, dp */
    fm_board_rank **entry;  /* [size] */
    const uint8_t **outbox; /* [size] */
    const void **source;    /* [size] scratch */
    uint32_t begun;         /* exchanges */
    exchange exchange[FM_BOARD_SLOTS];
    bool is_done[FM_BOARD_SLOTS]; /* received already, at begin */
} member;

struct fm_shm_groups {
    fm_groups groups;
    fm_board *board;
    fm_shm_options options;
    int fd;           /* of the outbox */
    uint8_t **outbox; /* [ranks of the host]; NULL: not mapped */
    range *live;      /* sorted by `at` */
    int32_t n_live;
    member member[FM_BOARD_GROUPS];
    fm_hosts *hosts; /* of the groups that are not inside this host */
};

/* -- the outbox */

static fm_board_slot *slot_of(const member *m, int32_t rank, uint32_t number) {
    return &m->entry[rank]->slot[m->number][number % FM_BOARD_SLOTS];
}

static bool is_taken(const member *m, uint32_t number) {
    for (int32_t r = 0; r < m->comm.size; r++) {
        uint32_t taken = atomic_load(&slot_of(m, r, number)->taken);
        if ((int32_t)(taken - number) < 0) return false;
    }
    return true;
}

/* Forgets the ranges that all receivers have read. */
static void reclaim(fm_shm_groups *g) {
    int32_t kept = 0;
    for (int32_t i = 0; i < g->n_live; i++) {
        const range *r = &g->live[i];
        if (!is_taken(&g->member[r->group], r->number)) g->live[kept++] = *r;
    }
    g->n_live = kept;
}

/* Takes the lowest range that is free. */
static uint64_t take_range(fm_shm_groups *g, const member *m, uint32_t number, size_t bytes) {
    reclaim(g);
    uint64_t at = 0, needed = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    int32_t i = 0;
    while (i < g->n_live && g->live[i].at - at < needed) {
        at = g->live[i].at + g->live[i].bytes;
        i++;
    }
    assert(at + needed <= outbox_bytes && g->n_live < FM_BOARD_GROUPS * FM_BOARD_SLOTS);
    memmove(&g->live[i + 1], &g->live[i], (size_t)(g->n_live - i) * sizeof g->live[0]);
    g->live[i] = (range){at, needed, m->number, number};
    g->n_live++;
    return at;
}

/* -- one exchange */

static bool is_over(const member *m) {
    return fm_board_reason(m->groups->board) != NULL;
}

static bool has_parts(const fm_message *message, int32_t rank) {
    return message->exchange != FM_EXCHANGE_BROADCAST || message->root == rank;
}

/* Elements from the first to the last that a rank sends, with what is between its rows. */
static int64_t span_of(const fm_message *message, int32_t size) {
    int32_t parts = fm_exchange_parts_sent(message->exchange, size);
    return (parts - 1) * message->sent.part + (message->rows - 1) * message->sent.row +
           message->run;
}

/* Bytes of a message in the outbox. */
static size_t outbox_bytes_of(const fm_message *message, int32_t size) {
    size_t bytes = (size_t)span_of(message, size) * fm_element_bytes(message->element);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Copies what this rank sends, in the layout that it has, message after message. */
static void publish(member *m, uint32_t number, const exchange *e) {
    fm_shm_groups *g = m->groups;
    const int32_t size = m->comm.size;
    fm_board_slot *slot = slot_of(m, m->comm.rank, number);
    if (is_over(m)) return; /* nobody takes it, so its range would never be free again */
    size_t bytes = 0;
    for (int32_t i = 0; i < e->count; i++)
        bytes += outbox_bytes_of(&e->message[i], size);
    slot->at = take_range(g, m, number, bytes);
    uint8_t *to = g->outbox[fm_board_place(g->board)] + slot->at;
    for (int32_t i = 0; i < e->count; i++) {
        const fm_message *message = &e->message[i];
        if (has_parts(message, m->comm.rank)) {
            fm_comm_table(&m->comm, message->element)
                ->copy(NULL, span_of(message, size), message->send, to);
        }
        to += outbox_bytes_of(message, size);
    }
    slot->digest = fm_messages_digest(e->message, e->count);
    fm_board_store(&slot->published, number);
}

/* Fills the receive buffers with NaN. */
static void spoil(const member *m, const exchange *e) {
    for (int32_t i = 0; i < e->count; i++)
        fm_comm_spoil(&m->comm, &e->message[i]);
}

/* Reads the outboxes of all members. */
static void combine(member *m, uint32_t number, const exchange *e) {
    size_t offset = 0;
    for (int32_t i = 0; i < e->count; i++) {
        for (int32_t r = 0; r < m->comm.size; r++)
            m->source[r] = m->outbox[r] + slot_of(m, r, number)->at + offset;
        fm_comm_combine(&e->message[i], m->comm.rank, m->comm.size, m->source);
        offset += outbox_bytes_of(&e->message[i], m->comm.size);
    }
}

/* Waits for the parts of all members. Returns false when the run is over. */
static bool wait_for_all(member *m, uint32_t number) {
    for (int32_t r = 0; r < m->comm.size; r++) {
        const fm_board_slot *slot = slot_of(m, r, number);
        for (;;) {
            uint32_t seen = atomic_load_explicit(&slot->published, memory_order_acquire);
            if (seen == number) break;
            if (is_over(m)) return false;
            atomic_fetch_add(&m->entry[m->comm.rank]->turns, 1);
            fm_board_wait(m->groups->board, &slot->published, seen);
        }
    }
    return true;
}

static void receive(member *m, uint32_t number, const exchange *e) {
    fm_board_rank *own = m->entry[m->comm.rank];
    atomic_store(&own->is_inside, 1);
    if (wait_for_all(m, number)) {
        for (int32_t r = 0; r < m->comm.size; r++)
            assert(slot_of(m, r, number)->digest == fm_messages_digest(e->message, e->count) &&
                   "ranks exchange different things");
        combine(m, number, e);
    } else {
        spoil(m, e);
    }
    atomic_store(&own->is_inside, 0);
    fm_board_store(&slot_of(m, m->comm.rank, number)->taken, number);
}

/* Makes ranks fast and slow in turns: one call in eight pauses for up to half a millisecond. The
 * numbers follow from the rank and the exchange, so a failure can be repeated. */
static void delay(const member *m, uint32_t number, uint32_t call) {
    if (!m->groups->options.delays) return;
    const uint32_t which[] = {(uint32_t)fm_board_place(m->groups->board), (uint32_t)m->number,
                              number, call};
    const uint64_t drawn = fm_xxh3(which, sizeof which);
    if ((drawn & 7) == 0) usleep((useconds_t)((drawn >> 3) % 500));
}

static fm_ticket begin(fm_comm *comm, const fm_message *messages, int32_t count,
                       fm_stream *stream) {
    (void)stream;
    member *m = comm->context;
    fm_shm_groups *g = m->groups;
    fm_board_rank *own = m->entry[comm->rank];
    uint32_t number = ++m->begun;
    assert(count >= 1 && count <= FM_COMM_MESSAGES);
    delay(m, number, 0);
    atomic_store(&own->exchange, number);
    atomic_store(&own->group, (uint32_t)m->number);
    /* The slot is free when all have taken the exchange that used it before. */
    while (number > FM_BOARD_SLOTS && !is_taken(m, number - FM_BOARD_SLOTS) && !is_over(m)) {
        for (int32_t r = 0; r < comm->size; r++) {
            const fm_board_slot *slot = slot_of(m, r, number);
            uint32_t taken = atomic_load(&slot->taken);
            if (taken != number - FM_BOARD_SLOTS) fm_board_wait(g->board, &slot->taken, taken);
        }
    }
    exchange *e = &m->exchange[number % FM_BOARD_SLOTS];
    memcpy(e->message, messages, (size_t)count * sizeof *messages);
    e->count = count;
    if (g->options.delivery != FM_DELIVERY_AT_FINISH) publish(m, number, e);
    if (g->options.spoils) spoil(m, e);
    if (g->options.delivery == FM_DELIVERY_AT_BEGIN) receive(m, number, e);
    return number;
}

static void finish(fm_comm *comm, fm_ticket ticket, fm_stream *stream) {
    (void)stream;
    member *m = comm->context;
    const exchange *e = &m->exchange[ticket % FM_BOARD_SLOTS];
    assert(ticket >= 1 && ticket <= m->begun);
    delay(m, ticket, 1);
    if (m->groups->options.delivery == FM_DELIVERY_AT_FINISH) publish(m, ticket, e);
    if (m->groups->options.delivery != FM_DELIVERY_AT_BEGIN) receive(m, ticket, e);
}

/* -- groups */

static fm_status fail_outbox(int code, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_IO, "the memory for exchanges between ranks cannot be made: %s",
                   strerror(code));
}

/* Maps the outbox at that place of the board. */
static fm_status map_outbox(fm_shm_groups *g, int32_t place, fm_error *reterr) {
    bool is_own = place == fm_board_place(g->board);
    const fm_board_rank *entry = fm_board_entry(g->board, place);
    int fd = g->fd;
    if (!is_own) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)entry->process, (int)entry->outbox);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return fail_outbox(errno, reterr);
    }
    void *memory =
        mmap(NULL, outbox_bytes, is_own ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    int failed = memory == MAP_FAILED ? errno : 0;
    if (!is_own) close(fd);
    if (failed) return fail_outbox(failed, reterr);
    g->outbox[place] = memory;
    return FM_OK;
}

static fm_status make_outbox(fm_shm_groups *g, fm_error *reterr) {
    g->fd = memfd_create("foldmill-outbox", MFD_CLOEXEC);
    if (g->fd < 0 || ftruncate(g->fd, (off_t)outbox_bytes) < 0) return fail_outbox(errno, reterr);
    fm_board_own(g->board)->outbox = g->fd;
    return map_outbox(g, fm_board_place(g->board), reterr);
}

/* Makes the communicator of group `number`, in which this rank is `rank`; NULL for a group of one.
 */
static fm_status join(fm_shm_groups *g, int32_t number, const fm_kernels *kernels, int32_t rank,
                      const fm_rank_set *set, fm_comm **ret_comm, fm_error *reterr) {
    member *m = &g->member[number];
    const int32_t size = set->size;
    if (size == 1) return FM_OK;
    assert(g->outbox);
    m->groups = g;
    m->number = number;
    m->entry = calloc((size_t)size, sizeof(void *));
    m->outbox = calloc((size_t)size, sizeof(void *));
    m->source = calloc((size_t)size, sizeof(void *));
    if (!m->entry || !m->outbox || !m->source) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a group of %d ranks", (int)size);
    }
    for (int32_t r = 0; r < size; r++) {
        int32_t place = fm_board_find(g->board, fm_rank_set_at(set, r));
        fm_status status = g->outbox[place] ? FM_OK : map_outbox(g, place, reterr);
        if (status) return status;
        m->entry[r] = fm_board_entry(g->board, place);
        m->outbox[r] = g->outbox[place];
    }
    m->comm = (fm_comm){.rank = rank,
                        .size = size,
                        .context = m,
                        .begin = begin,
                        .finish = finish,
                        .kernels = kernels};
    *ret_comm = &m->comm;
    return FM_OK;
}

/* Ends the run where the caller does not say how. */
static void end_run(fm_board *board, const char *reason) {
    (void)fm_board_end(board, reason);
}

/* Connects the groups that are not inside this host; the others are NULL in `sets` then. */
static fm_status join_hosts(fm_shm_groups *g, const fm_rank_set *sets[FM_BOARD_GROUPS],
                            const fm_kernels *kernels, fm_meeting *meeting, double seconds,
                            fm_error *reterr) {
    const fm_topology *topology = fm_board_topology(g->board);
    const fm_rank_set *far[FM_BOARD_GROUPS] = {NULL};
    const double exchange_s = g->options.exchange_s > 0 ? g->options.exchange_s : seconds;
    const fm_hosts_options options = {.open_s = seconds,
                                      .exchange_s = exchange_s,
                                      .end = g->options.end ? g->options.end : end_run};
    if (topology->n_host == 1) return FM_OK;
    for (int i = 0; i < FM_BOARD_GROUPS; i++) {
        if (fm_topology_span(topology, sets[i]) == FM_SPAN_HOST) continue;
        far[i] = sets[i];
        sets[i] = NULL;
    }
    return fm_hosts_open(far, meeting, g->board, &options, kernels, &g->hosts, reterr);
}

static fm_status join_all(fm_shm_groups *g, const fm_kernels *kernels, fm_meeting *meeting,
                          double seconds, fm_error *reterr) {
    const fm_rank_place *place = &g->groups.place;
    const fm_group_sets of_rank = fm_layout_sets(&g->groups.layout, place->rank);
    const fm_rank_set *sets[FM_BOARD_GROUPS] = {&of_rank.dap, &of_rank.bp, &of_rank.sample,
                                                &of_rank.dp};
    const int32_t places[FM_BOARD_GROUPS] = {place->dap, place->bp, place->sample, place->dp};
    fm_comm **comms[FM_BOARD_GROUPS] = {&g->groups.dap, &g->groups.bp, &g->groups.sample,
                                        &g->groups.dp};
    fm_status status = join_hosts(g, sets, kernels, meeting, seconds, reterr);
    for (int32_t i = 0; i < FM_BOARD_GROUPS && !status; i++) {
        if (sets[i]) {
            status = join(g, i, kernels, places[i], sets[i], comms[i], reterr);
        } else {
            *comms[i] = fm_hosts_comm(g->hosts, i);
        }
    }
    return status;
}

static fm_status open_groups(fm_shm_groups *g, const fm_kernels *kernels, fm_meeting *meeting,
                             double seconds, fm_error *reterr) {
    static const char what[] = "exchange with others";
    int32_t size = fm_board_size(g->board);
    fm_status status = FM_OK;
    fm_error own, *error = reterr ? reterr : &own;
    g->outbox = calloc((size_t)size, sizeof g->outbox[0]);
    g->live = calloc(FM_BOARD_GROUPS * FM_BOARD_SLOTS, sizeof g->live[0]);
    if (!g->outbox || !g->live) {
        status = fm_fail(error, FM_ERR_NOMEM, "no memory for groups of ranks");
    }
    if (!status) status = make_outbox(g, error);
    status = fm_meeting_agree(meeting, status, what, seconds, error);
    if (!status) status = join_all(g, kernels, meeting, seconds, error);
    return fm_meeting_agree(meeting, status, what, seconds, error);
}

fm_status fm_shm_groups_open(const fm_layout *layout, const fm_kernels *kernels,
                             fm_meeting *meeting, fm_board *board, const fm_shm_options *options,
                             double seconds, fm_shm_groups **ret_groups, fm_error *reterr) {
    fm_status status = fm_layout_check(layout, reterr);
    if (status) return status;
    assert(fm_layout_ranks(layout) == fm_meeting_size(meeting));
    static_assert((int)FM_COMBINE_RANKS >= (int)FM_LAYOUT_RANKS, "a group may have all ranks");
    fm_shm_groups *g = calloc(1, sizeof *g);
    if (!g) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for groups of ranks");
    g->groups.layout = *layout;
    g->groups.place = fm_layout_place(layout, fm_meeting_rank(meeting));
    g->board = board;
    g->fd = -1;
    if (options) g->options = *options;
    status = open_groups(g, kernels, meeting, seconds, reterr);
    if (status) {
        fm_shm_groups_close(g);
        return status;
    }
    *ret_groups = g;
    return FM_OK;
}

void fm_shm_groups_close(fm_shm_groups *groups) {
    if (!groups) return;
    fm_hosts_close(groups->hosts);
    for (int32_t i = 0; groups->outbox && i < fm_board_size(groups->board); i++)
        if (groups->outbox[i]) munmap(groups->outbox[i], outbox_bytes);
    for (int32_t i = 0; i < FM_BOARD_GROUPS; i++) {
        free(groups->member[i].entry);
        free(groups->member[i].outbox);
        free(groups->member[i].source);
    }
    if (groups->fd >= 0) close(groups->fd);
    free(groups->outbox);
    free(groups->live);
    free(groups);
}

const fm_groups *fm_shm_groups_get(const fm_shm_groups *groups) {
    return &groups->groups;
}
