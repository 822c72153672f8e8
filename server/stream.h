/* stream.h: one client's stream, without input and output: which sample is made next, which one may
 * be sent next, and in which memory they are.
 *
 * Positions. Position p is the p-th sample of the stream in the order of the index. `head` is the
 * lowest position that was not sent.
 *
 *     sent ... | head  .  .  .  .  .  .  next | not begun
 *                being made, ready, or sent ahead of head
 *
 * Jobs begin in the order of positions, but they finish in any order. With order strict, only
 * `head` may be sent. With order bounded:W, the first ready position up to head + W may be sent. So
 * at most W later samples overtake a sample. This is the out-of-order window. Order free has the
 * widest window, and samples that are still being made do not count as made ahead.
 *
 * Credits. The client grants credit in items and bytes: the free slabs that it has. Sending a
 * sample takes one item and the sample's bytes; the client grants them again when the slab is free.
 * A sample may be sent while any bytes are left, so that the byte credit can become negative by
 * less than one sample. Jobs begin up to two samples ahead of the item credit, and at least W + 1
 * while there is any credit, so that the window can be filled. The look-ahead goes further where
 * samples take long. It covers the 99.5 % quantile of their times: as many samples are under way as
 * the consumer uses in that time, up to 64 or the window. So a slow sample has begun early enough.
 *
 * Memory. A sample is made in a block that is as large as the largest sample of the plan. While a
 * job runs, only the worker writes to it; while it is sent, only the socket reads it. It is free
 * again after fm_server_stream_release. Blocks are charged to two budgets, that of the peer and
 * that of the server. A stream that has credit and no block is served before all others. It stands
 * in line in the budget that lacks room; nobody else takes memory there, and free blocks go back. A
 * stream takes further blocks, and blocks for samples without credit, only while it has less than a
 * quarter of the server's budget and both budgets have a quarter left. fm_server_stream_give_back
 * takes the memory of a stream that waits for credit; its samples are made again when credit comes.
 * So a client that is silent cannot hold memory that others need.
 *
 * All functions are called on one thread, that of the loop. */
#ifndef FM_SERVER_STREAM_H
#define FM_SERVER_STREAM_H

#include "server/pool.h"
#include "server/web/report.h"

typedef struct fm_server_stream fm_server_stream;

/* The memory for samples that the streams of a server, or of one peer, share. */
typedef struct fm_budget {
    size_t max_bytes, used_bytes;
    const fm_server_stream *first_in_line; /* waits for its only block; NULL = nobody */
    uint32_t n_stream; /* that were not destroyed yet; the budget must outlive them */
} fm_budget;

typedef struct fm_budgets {
    fm_budget *peer, *server;
} fm_budgets;

/* A block of memory, and the sample that is made in it or sent from it. */
typedef struct fm_work {
    fm_job job; /* its owner is this fm_work; bytes, status and error are set when it is done */
    fm_server_stream *stream;
    uint64_t position;
    uint64_t ready_ns;    /* when the job was taken back */
    uint64_t picked_ns;   /* when it was picked */
    struct fm_work *next; /* in the stream's list of free blocks */
} fm_work;

/* Opens the plan; takes no block yet. Fails as source->open does; FM_ERR_USAGE for a token or group
 * that does not fit the plan; FM_ERR_UNSUPPORTED when a block is larger than a budget. `source` and
 * the budgets must outlive the stream. */
FM_MUST_USE fm_status fm_server_stream_create(fm_sample_source *source, const fm_wire_open *params,
                                              fm_budgets budgets, void *owner,
                                              fm_server_stream **ret_stream, fm_error *reterr);
/* Frees all blocks. The stream must be idle. */
void fm_server_stream_destroy(fm_server_stream *stream);

/* The `owner` given to create; NULL after fm_server_stream_abandon. */
void *fm_server_stream_get_owner(const fm_server_stream *stream);
fm_sample_source *fm_server_stream_get_source(const fm_server_stream *stream);
const fm_wire_opened *fm_server_stream_get_opened(const fm_server_stream *stream);
fm_wire_policy fm_server_stream_get_policy(const fm_server_stream *stream);
uint64_t fm_server_stream_get_n_sent(const fm_server_stream *stream);

/* Says whose the stream is, for its row of a report. Texts are copied. */
void fm_server_stream_set_label(fm_server_stream *stream, uint64_t connection, uint32_t id,
                                const char *peer, const char *agent);
/* Adds the time of each write of a sample to `send_ns`, which must outlive the stream. */
void fm_server_stream_set_send_times(fm_server_stream *stream, fm_histogram *send_ns);
/* The same for its consumer's row, which must outlive the stream. */
void fm_server_stream_set_consumer(fm_server_stream *stream, fm_report_consumer *consumer);
fm_report_consumer *fm_server_stream_get_consumer(const fm_server_stream *stream);
/* The peer and the agent that the label has. */
const fm_report_stream *fm_server_stream_get_label(const fm_server_stream *stream);
/* Fills in the stream's row of a report. */
void fm_server_stream_describe(const fm_server_stream *stream, fm_report_stream *ret_row);

/* The next job to submit to the pool, or NULL while order, credit or memory allow none. */
fm_job *fm_server_stream_next_job(fm_server_stream *stream);
/* True once after next_job found no memory for the only block of a stream with credit. */
bool fm_server_stream_got_in_line(fm_server_stream *stream);
/* Where another stream waits for memory: gives back the blocks that are free, and while this stream
 * has no credit also those of samples that are ready. Returns the number of samples to be made
 * again. */
uint32_t fm_server_stream_give_back(fm_server_stream *stream);
/* Takes a job back from the pool. */
void fm_server_stream_finish_job(fm_server_stream *stream, fm_job *job);
/* Takes the credit for the next sample to send and returns it; NULL while order or credit allow
 * none. job.status says whether the sample could be made. */
fm_work *fm_server_stream_pick(fm_server_stream *stream);
/* Frees the block of a picked sample, when it was sent or never will be. */
void fm_server_stream_release(fm_server_stream *stream, fm_work *work);

/* Adds credit. FM_ERR_LIMIT when the sum exceeds the limits of the protocol. */
FM_MUST_USE fm_status fm_server_stream_grant(fm_server_stream *stream, uint32_t items,
                                             uint64_t bytes, fm_error *reterr);

/* True when every sample of the stream was picked. */
bool fm_server_stream_is_delivered(const fm_server_stream *stream);
/* Stops the stream: no further job begins, no further sample is picked, and blocks go back to the
 * budgets at once. Jobs in the pool and samples in a write still come back through finish_job and
 * release. */
void fm_server_stream_abandon(fm_server_stream *stream);
/* True when no job is in the pool and no picked sample is unreleased. */
bool fm_server_stream_is_idle(const fm_server_stream *stream);

#endif
