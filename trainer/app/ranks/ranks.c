/* ranks.c: see ranks.h. */
#include "trainer/app/ranks/ranks.h"

#include "proto/base/hash.h"
#include "proto/base/log.h"
#include "trainer/app/common/last_words.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/device/device_groups.h"
#include "trainer/app/ranks/cores.h"
#include "trainer/app/ranks/pulse.h"
#include "trainer/app/ranks/watch.h"
#include "trainer/dist/comm_shm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WHY_BYTES = 320, PIECE_BYTES = 1 << 20, REASON_TRIES = 40, REASON_US = 50000 };
static const double meet_s = 120, /* for all ranks to come */
    exchange_s = 60,              /* for a rank in an exchange on GPUs */
    patience_s = 20,              /* for a rank that gives no sign */
    gather_s = 3600; /* longer than a step or a checkpoint takes; lost ranks are noticed before */

struct fm_ranks {
    fm_world world;
    fm_layout layout;
    fm_meeting *meeting;
    fm_board *board;
    fm_watch *watch;
    fm_pulse *pulse;         /* of ranks on several hosts */
    fm_shm_groups *shm;      /* of ranks on CPUs */
    fm_device_groups device; /* of ranks with a GPU each */
    fm_groups groups;
};

static fm_status open_all(fm_ranks *ranks, const char *program, fm_error *reterr) {
    const fm_world *world = &ranks->world;
    const double still_s = world->patience_s > 0 ? world->patience_s : patience_s;
    const fm_meeting_terms terms = {meet_s, &fm_stop_cancel, world->secret};
    fm_status status = fm_meeting_open_on(&ranks->meeting, world->meeting, world->rank, world->size,
                                          &terms, reterr);
    if (!status) status = fm_board_open(ranks->meeting, meet_s, &ranks->board, reterr);
    if (!status) {
        status =
            fm_meeting_form_tree(ranks->meeting, fm_board_topology(ranks->board), meet_s, reterr);
    }
    if (!status) {
        status =
            fm_watch_start(program, ranks->board, ranks->meeting, still_s, &ranks->watch, reterr);
    }
    if (status || fm_board_size(ranks->board) == world->size) return status;
    const fm_pulse_options options = {.address = world->meeting,
                                      .secret = world->secret,
                                      .open_s = meet_s,
                                      .still_s = still_s,
                                      .topology = fm_board_topology(ranks->board),
                                      .end = fm_watch_end};
    return fm_pulse_start(ranks->board, world->rank, world->size, &options, &ranks->pulse, reterr);
}

fm_status fm_ranks_open(const char *program, const fm_world *world, const fm_layout *layout,
                        fm_ranks **ret_ranks, fm_error *reterr) {
    fm_ranks *ranks = calloc(1, sizeof *ranks);
    if (!ranks) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the ranks of a run");
    ranks->world = *world;
    ranks->layout = *layout;
    fm_status status = open_all(ranks, program, reterr);
    if (status) {
        fm_ranks_close(ranks);
        return status;
    }
    *ret_ranks = ranks;
    return FM_OK;
}

void fm_ranks_stay_near(const fm_kernels *kernels) {
    char address[64], why[FM_ERROR_TEXT_BYTES], quoted[sizeof why];
    fm_error error;
    int n_core;
    if (!fm_device_address(kernels, address, sizeof address)) return;
    fm_status status = fm_cores_bind_near(FM_PCI_DEVICES, address, &n_core, &error);
    if (!status) {
        fm_log(FM_LOG_DEBUG, "near_cores", "gpu=%s cores=%d", address, n_core);
        return;
    }
    fm_error_format(&error, why, sizeof why);
    fm_log(FM_LOG_WARN, "near_cores_unused", "gpu=%s why=%s", address,
           fm_log_quote(quoted, sizeof quoted, why));
}

static const char *find_reason(void *context) {
    return fm_board_reason(((const fm_ranks *)context)->board);
}

/* Ends the run for this host, naming this rank. */
static void end_run(void *context, const char *why) {
    const fm_ranks *ranks = context;
    char what[200], text[FM_BOARD_REASON_BYTES];
    fm_board_describe(ranks->board, fm_board_place(ranks->board), what, sizeof what);
    snprintf(text, sizeof text, "%s: %s", what, why);
    fm_watch_end(ranks->board, text);
}

fm_status fm_ranks_join(fm_ranks *ranks, const char *device, const fm_kernels *kernels,
                        const fm_groups **ret_groups, fm_error *reterr) {
    fm_status status = FM_OK;
    if (!ranks->world.crosses_hosts) {
        status = fm_topology_check(fm_board_topology(ranks->board), &ranks->layout,
                                   ranks->world.launcher, reterr);
    }
    if (status) return status;
    if (strcmp(device, "cpu") == 0) {
        const fm_shm_options options = {.end = fm_watch_end};
        status = fm_shm_groups_open(&ranks->layout, kernels, ranks->meeting, ranks->board, &options,
                                    gather_s, &ranks->shm, reterr);
        if (!status) ranks->groups = *fm_shm_groups_get(ranks->shm);
    } else {
        const fm_run_end run = {.reason = find_reason, .end = end_run, .context = ranks};
        status = fm_device_groups_create(&ranks->layout, kernels, ranks->meeting, "peer",
                                         exchange_s, &run, &ranks->device, reterr);
        if (!status) ranks->groups = *ranks->device.groups;
    }
    if (status) return status;
    ranks->groups.entry = fm_board_own(ranks->board);
    ranks->groups.is_sliced = fm_board_topology(ranks->board)->n_host > 1;
    *ret_groups = &ranks->groups;
    return FM_OK;
}

int32_t fm_ranks_rank(const fm_ranks *ranks) {
    return ranks->world.rank;
}

int32_t fm_ranks_size(const fm_ranks *ranks) {
    return ranks->world.size;
}

bool fm_ranks_note_work(fm_ranks *ranks, bool works) {
    return ranks->shm && atomic_exchange(&fm_board_own(ranks->board)->works, works);
}

fm_status fm_ranks_gather(fm_ranks *ranks, const void *own, size_t bytes, void *all,
                          fm_error *reterr) {
    const bool works = fm_ranks_note_work(ranks, false); /* it waits for the slowest rank */
    fm_status status = fm_meeting_gather(ranks->meeting, own, bytes, all, gather_s, reterr);
    (void)fm_ranks_note_work(ranks, works);
    return status;
}

/* -- papers */

/* What a rank shows at the start. */
typedef struct statement {
    fm_papers papers;
    int32_t process;
    uint32_t status;
    char host[64], why[WHY_BYTES];
} statement;

int32_t fm_ranks_compared_with(const fm_layout *layout, int32_t rank, fm_paper paper) {
    return paper == FM_PAPER_SCHEDULE ? fm_layout_place(layout, rank).bp * layout->dap : 0;
}

static fm_status judge(const fm_ranks *ranks, statement *all, fm_error *reterr) {
    static const char *const names[FM_PAPERS] = {
        "program file", "configuration",         "seed (--seed)",
        "command line", "device or processor",   "checkpoint",
        "snapshot",     "exchanges of branches", "schedule of exchanges"};
    for (int32_t r = 0; r < ranks->world.size; r++) {
        all[r].why[WHY_BYTES - 1] = all[r].host[sizeof all[r].host - 1] = '\0';
        if (!all[r].status) continue;
        if (r == 0 || all[r].status == FM_ERR_CANCELLED) { /* it speaks for all */
            return fm_fail(reterr, (fm_status)all[r].status, "%s", all[r].why);
        }
        return fm_fail(reterr, (fm_status)all[r].status, "rank %d: %s", (int)r, all[r].why);
    }
    for (int32_t r = 0; r < ranks->world.size; r++) {
        for (fm_paper p = 0; p < FM_PAPERS; p++) {
            int32_t with = fm_ranks_compared_with(&ranks->layout, r, p);
            if (all[r].papers.paper[p] == all[with].papers.paper[p]) continue;
            return fm_fail(reterr, FM_ERR_USAGE,
                           "rank %d (process %d on %s) has another %s than rank %d (process %d on "
                           "%s)",
                           (int)r, (int)all[r].process, all[r].host, names[p], (int)with,
                           (int)all[with].process, all[with].host);
        }
    }
    return FM_OK;
}

fm_status fm_ranks_compare(fm_ranks *ranks, const fm_papers *own, fm_status status,
                           bool *ret_is_met, fm_error *reterr) {
    *ret_is_met = false;
    statement mine = {.papers = *own, .process = getpid(), .status = status};
    statement *all = calloc((size_t)ranks->world.size, sizeof *all);
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for comparing the ranks");
    snprintf(mine.host, sizeof mine.host, "%s", fm_board_host(ranks->board));
    char text[FM_ERROR_TEXT_BYTES];
    if (status) {
        fm_error_format(reterr, text, sizeof text);
        snprintf(mine.why, sizeof mine.why, "%s", text);
    }
    fm_status met = fm_ranks_gather(ranks, &mine, sizeof mine, all, reterr);
    *ret_is_met = !met;
    if (!met) met = judge(ranks, all, reterr);
    free(all);
    return met;
}

uint64_t fm_paper_of_program(void) {
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    uint8_t *piece = malloc(PIECE_BYTES);
    fm_xxh3_state *hash = fm_xxh3_create();
    ssize_t n = 0;
    while (fd >= 0 && piece && (n = read(fd, piece, PIECE_BYTES)) > 0)
        fm_xxh3_update(hash, piece, (size_t)n);
    bool is_read = fd >= 0 && piece && n == 0;
    uint64_t digest = is_read ? fm_xxh3_digest(hash) : 0;
    fm_xxh3_destroy(hash);
    free(piece);
    if (fd >= 0) close(fd);
    return digest;
}

static void add_buffer(fm_xxh3_state *hash, const fm_params *params, const void *buffer,
                       uint8_t *piece) {
    size_t bytes = (size_t)params->n_element * fm_element_bytes(params->element);
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        params->kernels->download(NULL, piece, (const uint8_t *)buffer + at, n);
        params->kernels->synchronize(NULL);
        fm_xxh3_update(hash, piece, n);
    }
}

uint64_t fm_paper_of_parameters(const fm_params *params) {
    uint8_t *piece = malloc(PIECE_BYTES);
    if (!piece) return 0;
    fm_xxh3_state *hash = fm_xxh3_create();
    add_buffer(hash, params, params->master, piece);
    add_buffer(hash, params, params->moment1, piece);
    add_buffer(hash, params, params->moment2, piece);
    add_buffer(hash, params, params->ema, piece);
    uint64_t digest = fm_xxh3_digest(hash);
    fm_xxh3_destroy(hash);
    free(piece);
    return digest;
}

/* -- the end */

void fm_ranks_leave(fm_ranks *ranks) {
    uint8_t all[FM_MEETING_RANKS];
    fm_error ignored;
    fm_pulse_quieten(ranks->pulse);
    fm_status status = fm_ranks_gather(ranks, "", 1, all, &ignored);
    if (!status) atomic_store(&fm_board_own(ranks->board)->has_left, 1);
}

/* Ends the run for this host, unless another rank has. */
static void fail_alone(fm_ranks *ranks, const fm_error *error) {
    /* A connection may end a moment before the end of its process is seen, which says more. */
    for (int i = 0; i < REASON_TRIES && error->status == FM_ERR_CLOSED; i++) {
        if (fm_ranks_is_over(ranks)) return;
        usleep(REASON_US);
    }
    char text[FM_BOARD_REASON_BYTES], what[FM_ERROR_TEXT_BYTES];
    fm_error_format(error, what, sizeof what);
    bool is_named = strncmp(what, "rank ", 5) == 0;
    if (is_named) {
        snprintf(text, sizeof text, "%s", what);
    } else {
        snprintf(text, sizeof text, "rank %d: %s", (int)ranks->world.rank, what);
    }
    fm_watch_end(ranks->board, text);
}

void fm_ranks_fail(fm_ranks *ranks, const fm_error *error) {
    fail_alone(ranks, error);
    const char *why = fm_board_reason(ranks->board);
    if (why) fm_last_words_say_why(why);
}

bool fm_ranks_is_over(const fm_ranks *ranks) {
    return fm_board_reason(ranks->board) != NULL;
}

void fm_ranks_close(fm_ranks *ranks) {
    if (!ranks) return;
    if (ranks->device.context) fm_device_groups_destroy(&ranks->device);
    fm_pulse_stop(ranks->pulse);
    fm_watch_stop(ranks->watch);
    fm_shm_groups_close(ranks->shm);
    fm_board_close(ranks->board);
    fm_meeting_close(ranks->meeting);
    free(ranks);
}
