/* board.c: see board.h. Waits are futexes in the shared memory; each lasts a short time at most, so
 * a waiter also sees that the run is over when nobody is left to wake it. */
#include "trainer/dist/board.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPINS = 200,                 /* looks before a wait sleeps */
    WAIT_NS = 100 * 1000 * 1000, /* of one futex, at most */
};

enum { IS_ON = 0, IS_BEING_WRITTEN, IS_OVER };

typedef struct shared {
    uint64_t word; /* random, so that no other memory is taken for it */
    _Atomic uint32_t state;
    char reason[FM_BOARD_REASON_BYTES];
    fm_board_rank rank[];
} shared;

struct fm_board {
    int32_t host, size, place; /* host: its number in the topology */
    int fd;
    size_t bytes;
    shared *shared;
    fm_topology topology;
};

/* -- opening */

/* What a rank says to the others when a board is opened. */
typedef struct introduction {
    uint64_t word;
    int32_t process, fd;
} introduction;

static fm_status fail_errno(const char *what, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_IO, "shared memory of the ranks cannot be %s: %s", what,
                   strerror(errno));
}

static fm_status map(fm_board *board, fm_error *reterr) {
    board->bytes = sizeof(shared) + (size_t)board->size * sizeof(fm_board_rank);
    if (board->place == 0 && ftruncate(board->fd, (off_t)board->bytes) < 0) {
        return fail_errno("sized", reterr);
    }
    void *memory = mmap(NULL, board->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, board->fd, 0);
    if (memory == MAP_FAILED) return fail_errno("mapped", reterr);
    board->shared = memory;
    return FM_OK;
}

/* Of the lowest rank of the host. */
static fm_status create(fm_board *board, uint64_t *ret_word, fm_error *reterr) {
    board->fd = memfd_create("foldmill-board", MFD_CLOEXEC);
    if (board->fd < 0) return fail_errno("made", reterr);
    if (getrandom(ret_word, sizeof *ret_word, 0) != sizeof *ret_word) {
        return fail_errno("named", reterr);
    }
    fm_status status = map(board, reterr);
    if (!status) board->shared->word = *ret_word;
    return status;
}

static fm_status open_first(fm_board *board, const introduction *first, fm_error *reterr) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)first->process, (int)first->fd);
    board->fd = open(path, O_RDWR | O_CLOEXEC);
    if (board->fd < 0) return fail_errno("opened", reterr);
    fm_status status = map(board, reterr);
    if (status || board->shared->word == first->word) return status;
    return fm_fail(reterr, FM_ERR_IO, "%s is not the shared memory of this run", path);
}

/* Finds on which host each rank is, and this rank's place on its own. Returns the host's lowest
 * rank. */
static fm_status find_hosts(fm_board *board, fm_meeting *meeting, double seconds,
                            int32_t *ret_first, fm_error *reterr) {
    const int32_t rank = fm_meeting_rank(meeting), size = fm_meeting_size(meeting);
    fm_host own, *all = calloc((size_t)size, sizeof *all);
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the hosts of the ranks");
    fm_host_find(&own);
    fm_status status = fm_meeting_gather(meeting, &own, sizeof own, all, seconds, reterr);
    if (!status) status = fm_topology_make(all, size, &board->topology, reterr);
    free(all);
    if (status) return status;
    const fm_topology_rank *place = &board->topology.rank[rank];
    board->host = place->host;
    board->place = place->place;
    board->size = board->topology.host[place->host].size;
    *ret_first = board->topology.host[place->host].leader;
    return FM_OK;
}

/* Two gathers: who is on this host, then where its memory is. A third one lets the entries be
 * filled before anybody reads them, and the memory be opened before anybody leaves. */
static fm_status open_with(fm_board *board, fm_meeting *meeting, introduction *all, double seconds,
                           fm_error *reterr) {
    int32_t rank = fm_meeting_rank(meeting), size = fm_meeting_size(meeting), first;
    introduction own = {.process = getpid(), .fd = -1};
    fm_status status = find_hosts(board, meeting, seconds, &first, reterr);
    if (status) return status;
    if (first == rank) status = create(board, &own.word, reterr);
    own.fd = board->fd;
    fm_error ignored;
    fm_status met =
        fm_meeting_gather(meeting, &own, sizeof own, all, seconds, status ? &ignored : reterr);
    if (!status && !met && first != rank) status = open_first(board, &all[first], reterr);
    if (!status && !met) {
        fm_board_rank *entry = fm_board_own(board);
        *entry = (fm_board_rank){.rank = rank, .process = getpid(), .outbox = -1};
    }
    uint8_t is_bad = status ? 1 : 0;
    uint8_t *bad = (uint8_t *)all;
    if (!met) {
        met = fm_meeting_gather(meeting, &is_bad, 1, bad, seconds, status ? &ignored : reterr);
    }
    for (int32_t r = 0; r < size && !status && !met; r++)
        if (bad[r]) status = fm_fail(reterr, FM_ERR_IO, "rank %d has no shared memory", (int)r);
    return status ? status : met;
}

fm_status fm_board_open(fm_meeting *meeting, double seconds, fm_board **ret_board,
                        fm_error *reterr) {
    fm_board *board = calloc(1, sizeof *board);
    introduction *all = calloc((size_t)fm_meeting_size(meeting), sizeof *all);
    fm_status status = FM_ERR_NOMEM;
    if (board && all) {
        board->fd = -1;
        status = open_with(board, meeting, all, seconds, reterr);
    } else {
        fm_fail(reterr, FM_ERR_NOMEM, "no memory for the ranks of this host");
    }
    free(all);
    if (status) {
        fm_board_close(board);
        return status;
    }
    *ret_board = board;
    return FM_OK;
}

void fm_board_close(fm_board *board) {
    if (!board) return;
    if (board->shared) munmap(board->shared, board->bytes);
    if (board->fd >= 0) close(board->fd);
    fm_topology_free(&board->topology);
    free(board);
}

/* -- entries */

int32_t fm_board_size(const fm_board *board) {
    return board->size;
}

int32_t fm_board_place(const fm_board *board) {
    return board->place;
}

const fm_topology *fm_board_topology(const fm_board *board) {
    return &board->topology;
}

const char *fm_board_host(const fm_board *board) {
    return board->topology.host[board->host].name;
}

fm_board_rank *fm_board_entry(const fm_board *board, int32_t place) {
    assert(place >= 0 && place < board->size);
    return &board->shared->rank[place];
}

int32_t fm_board_find(const fm_board *board, int32_t rank) {
    for (int32_t place = 0; place < board->size; place++)
        if (board->shared->rank[place].rank == rank) return place;
    return -1;
}

const char *fm_board_group_name(int32_t group) {
    static const char *const names[FM_BOARD_GROUPS] = {"dap", "bp", "sample", "dp"};
    assert(group >= 0 && group < FM_BOARD_GROUPS);
    return names[group];
}

void fm_board_describe(const fm_board *board, int32_t place, char *out, size_t out_bytes) {
    const fm_board_rank *r = fm_board_entry(board, place);
    int n = snprintf(out, out_bytes, "rank %d (process %d on %s): ", (int)r->rank, (int)r->process,
                     fm_board_host(board));
    if (n < 0 || (size_t)n >= out_bytes) return;
    const char *work = r->predicts ? "chain" : "step";
    if (!r->step) {
        snprintf(out + n, out_bytes - (size_t)n, "before the first %s", work);
        return;
    }
    snprintf(out + n, out_bytes - (size_t)n, "%s %llu, cycle %u, %s exchange %u of the %s group",
             work, (unsigned long long)r->step, (unsigned)r->cycle, r->is_inside ? "in" : "after",
             (unsigned)r->exchange, fm_board_group_name((int32_t)(r->group % FM_BOARD_GROUPS)));
}

/* -- the end */

bool fm_board_end(fm_board *board, const char *reason) {
    uint32_t expected = IS_ON;
    shared *s = board->shared;
    if (!atomic_compare_exchange_strong(&s->state, &expected, IS_BEING_WRITTEN)) return false;
    snprintf(s->reason, sizeof s->reason, "%s", reason);
    atomic_store(&s->state, IS_OVER);
    return true;
}

const char *fm_board_reason(const fm_board *board) {
    return atomic_load(&board->shared->state) == IS_OVER ? board->shared->reason : NULL;
}

/* -- waiting */

void fm_board_wait(const fm_board *board, const _Atomic uint32_t *word, uint32_t value) {
    for (int i = 0; i < SPINS; i++)
        if (atomic_load_explicit(word, memory_order_acquire) != value) return;
    if (fm_board_reason(board)) return;
    const struct timespec most = {.tv_nsec = WAIT_NS};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &most, NULL, 0);
}

void fm_board_store(_Atomic uint32_t *word, uint32_t value) {
    atomic_store_explicit(word, value, memory_order_release);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
