/* turns.h: the streams of all peers, asked for jobs in turn.
 *
 *     peer A: stream 1, 2, 3      turn: A1  B1  A2  B1  A3  B1  A1 ...
 *     peer B: stream 1
 *
 * Peers take turns with one job each, and the streams of a peer share its turns. So a peer that
 * opens many streams does not get more of the workers than one that opens one. A stream that its
 * connection dropped is kept until it is idle, since workers or a write may still use its blocks.
 *
 * All functions are called on the thread of the loop. */
#ifndef FM_SERVER_TURNS_H
#define FM_SERVER_TURNS_H

#include "server/counters.h"
#include "server/stream.h"

typedef struct fm_turns fm_turns;

/* `counters` must outlive the turns. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_turns_create(fm_counters *counters, fm_turns **ret_turns,
                                      fm_error *reterr);
/* Every stream was reaped. NULL is allowed. */
void fm_turns_destroy(fm_turns *turns);

/* Adds a stream; it belongs to the turns from now on. `peer` is only compared. FM_ERR_NOMEM: it was
 * not added. */
FM_MUST_USE fm_status fm_turns_add(fm_turns *turns, const void *peer, fm_server_stream *stream,
                                   fm_error *reterr);
/* The stream gets no further turn. It was abandoned, and reap destroys it once it is idle. */
void fm_turns_drop(fm_turns *turns, const void *peer, fm_server_stream *stream);
void fm_turns_reap(fm_turns *turns);

/* The next job; NULL when no stream has one. A stream that lacks memory for its only block makes
 * all others give back what they do not need. */
fm_job *fm_turns_next_job(fm_turns *turns);
/* Makes streams give back memory that they do not need, where another one waits for it. Call it
 * from time to time, since a stream may have lost its credit in the meantime. */
void fm_turns_reclaim(fm_turns *turns);

/* Fills in the rows of at most `capacity` streams that were not dropped; returns how many. */
size_t fm_turns_describe(const fm_turns *turns, fm_report_stream *rows, size_t capacity);

/* Streams that were added and not destroyed. */
size_t fm_turns_get_n_stream(const fm_turns *turns);

#endif
