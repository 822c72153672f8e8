/* board.c: see board.h.
 *
 * The seconds are a ring; the one that is running collects in `now` until a tick finds that it has
 * passed. Seconds without a tick, when the loop was busy, are empty, and what happened in them
 * counts for the first of them. */
#include "server/board.h"

#include <stdlib.h>
#include <string.h>

struct fm_board {
    uint64_t start_ms, second_ms; /* creation; begin of the running second */
    fm_report_times times;
    fm_report_second now;
    uint32_t first_second, n_second;
    fm_report_second second[FM_REPORT_N_SECOND]; /* ring */
    uint32_t n_slow;
    fm_report_slow slow[FM_REPORT_N_SLOW]; /* the slowest first */
    uint64_t n_refused;                    /* in all; the latest are kept */
    struct {
        fm_report_refusal refusal;
        uint64_t at_ms;
    } refused[FM_REPORT_N_REFUSED]; /* ring; the k-th in all is at k % FM_REPORT_N_REFUSED */
};

fm_board *fm_board_create(uint64_t now_ms) {
    fm_board *board = calloc(1, sizeof *board);
    if (!board) return NULL;
    board->start_ms = board->second_ms = now_ms;
    return board;
}

void fm_board_destroy(fm_board *board) {
    free(board);
}

static void copy_text(char *out, size_t out_bytes, const char *text) {
    size_t size = strnlen(text, out_bytes - 1);
    memcpy(out, text, size);
    out[size] = 0;
}

/* Removes the row of `chain`, if there is one; false when that row is at least as slow. */
static bool forget_faster(fm_board *board, const char *chain, uint64_t prepare_ns) {
    for (uint32_t i = 0; i < board->n_slow; i++) {
        if (strcmp(board->slow[i].chain, chain) != 0) continue;
        if (board->slow[i].prepare_ns >= prepare_ns) return false;
        board->n_slow--;
        memmove(&board->slow[i], &board->slow[i + 1], (board->n_slow - i) * sizeof board->slow[0]);
        return true;
    }
    return true;
}

void fm_board_add_prepared(fm_board *board, const char *chain, uint64_t index,
                           uint64_t prepare_ns) {
    fm_histogram_add(&board->times.prepare, prepare_ns);
    bool is_full = board->n_slow == FM_REPORT_N_SLOW;
    if (is_full && board->slow[FM_REPORT_N_SLOW - 1].prepare_ns >= prepare_ns) return;
    fm_report_slow row = {.index = index, .prepare_ns = prepare_ns};
    copy_text(row.chain, sizeof row.chain, chain);
    if (!forget_faster(board, row.chain, prepare_ns)) return;
    uint32_t at = 0;
    while (at < board->n_slow && board->slow[at].prepare_ns >= prepare_ns)
        at++;
    if (board->n_slow < FM_REPORT_N_SLOW) board->n_slow++;
    memmove(&board->slow[at + 1], &board->slow[at],
            (board->n_slow - at - 1) * sizeof board->slow[0]);
    board->slow[at] = row;
}

void fm_board_add_refused(fm_board *board, const char *chain, uint64_t index, const char *reason,
                          uint64_t now_ms) {
    uint64_t at = board->n_refused++ % FM_REPORT_N_REFUSED;
    board->refused[at].at_ms = now_ms;
    fm_report_refusal *refusal = &board->refused[at].refusal;
    refusal->index = index;
    copy_text(refusal->chain, sizeof refusal->chain, chain);
    copy_text(refusal->reason, sizeof refusal->reason, reason);
}

void fm_board_add_sent(fm_board *board, size_t bytes, uint64_t wait_ns) {
    fm_histogram_add(&board->times.wait, wait_ns);
    board->now.n_sample++;
    board->now.n_byte += bytes;
}

fm_histogram *fm_board_get_send_times(fm_board *board) {
    return &board->times.send;
}

static void close_second(fm_board *board, uint64_t memory_bytes) {
    board->now.memory_bytes = memory_bytes;
    uint32_t at = (board->first_second + board->n_second) % FM_REPORT_N_SECOND;
    board->second[at] = board->now;
    if (board->n_second < FM_REPORT_N_SECOND) {
        board->n_second++;
    } else {
        board->first_second = (board->first_second + 1) % FM_REPORT_N_SECOND;
    }
    board->now = (fm_report_second){0};
}

void fm_board_tick(fm_board *board, uint64_t memory_bytes, uint64_t now_ms) {
    uint64_t passed = (now_ms - board->second_ms) / 1000;
    board->second_ms += passed * 1000;
    for (uint64_t i = 0; i < passed && i < FM_REPORT_N_SECOND; i++)
        close_second(board, memory_bytes);
}

void fm_board_fill(const fm_board *board, uint64_t now_ms, fm_web_report *report) {
    report->uptime_s = (double)(now_ms - board->start_ms) / 1000;
    report->times = board->times;
    report->n_second = board->n_second;
    for (uint32_t i = 0; i < board->n_second; i++)
        report->second[i] = board->second[(board->first_second + i) % FM_REPORT_N_SECOND];
    report->n_slow = board->n_slow;
    memcpy(report->slow, board->slow, sizeof report->slow);
    report->n_refused =
        board->n_refused < FM_REPORT_N_REFUSED ? (uint32_t)board->n_refused : FM_REPORT_N_REFUSED;
    for (uint32_t i = 0; i < report->n_refused; i++) {
        uint64_t at = (board->n_refused - 1 - i) % FM_REPORT_N_REFUSED;
        report->refused[i] = board->refused[at].refusal;
        report->refused[i].age_s = (double)(now_ms - board->refused[at].at_ms) / 1000;
    }
}
