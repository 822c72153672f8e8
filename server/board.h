/* board.h: what the server remembers for its operator: durations, the last ten minutes second by
 * second, the chains that were slowest to prepare, and the samples that could not be made.
 *
 * The thread of the loop writes it, at a fixed cost per sample and without allocating. It is copied
 * into a report (web/report.h) when somebody asks for one. */
#ifndef FM_SERVER_BOARD_H
#define FM_SERVER_BOARD_H

#include "server/web/report.h"

typedef struct fm_board fm_board;

/* Returns NULL when there is no memory. `now_ms` is the time of the loop in all functions. */
fm_board *fm_board_create(uint64_t now_ms);
void fm_board_destroy(fm_board *board);

/* A worker made sample `index`, of `chain`, in `prepare_ns`. A chain is listed once, with its
 * slowest sample. */
void fm_board_add_prepared(fm_board *board, const char *chain, uint64_t index, uint64_t prepare_ns);
/* A sample could not be made. */
void fm_board_add_refused(fm_board *board, const char *chain, uint64_t index, const char *reason,
                          uint64_t now_ms);
/* A sample of `bytes` was handed to its socket, `wait_ns` after it was ready. */
void fm_board_add_sent(fm_board *board, size_t bytes, uint64_t wait_ns);
/* Where streams add the time of each write of a sample. */
fm_histogram *fm_board_get_send_times(fm_board *board);
/* Closes every second that has passed; call it at least a few times a second. */
void fm_board_tick(fm_board *board, uint64_t memory_bytes, uint64_t now_ms);

/* Fills times, uptime, seconds, slow and refused of the report. */
void fm_board_fill(const fm_board *board, uint64_t now_ms, fm_web_report *report);

#endif
