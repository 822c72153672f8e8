/* stream.h: one consumer's stream, without any input or output: which sample is made next, which
 * may be sent next, and what memory they take.
 *
 *     positions of the stream:   sent ... | head  . . . . . . next |  not begun
 *                                           waiting, being made,
 *                                           ready, or sent ahead
 *
 * Position p is the p-th sample of the stream in order of index. `head` is the lowest position not
 * sent; strict order sends only head, bounded:W any ready one up to head + W. Work is begun up to
 * two samples ahead of the credit (at least W + 1 while there is any), in the order of positions.
 *
 * Memory: every sample under way lies in a block as large as the plan's largest sample. The first
 * block is taken from the budget when the stream is made, so the head of the line always has
 * memory; further blocks are taken up to a quarter of the budget for one stream and three quarters
 * for all, and given back when it gets short. A block is the stream's from next_job until release.
 * One thread. */
#ifndef FM_SERVER_STREAM_H
#define FM_SERVER_STREAM_H

#include "server/pool.h"

/* Memory for samples, shared by the streams of a server. */
typedef struct fm_budget {
    size_t max_bytes, used_bytes;
} fm_budget;

typedef struct fm_server_stream fm_server_stream;

/* A sample under way, and its memory. */
typedef struct fm_work {
    fm_job job; /* owner = this; bytes, status, error when it is done */
    fm_server_stream *stream;
    uint64_t position;
    uint32_t slot;        /* the stream's */
    struct fm_work *next; /* the stream's */
} fm_work;

/* Opens the plan and takes the first block. The source's refusals; FM_ERR_USAGE for a token or
 * group that does not fit the plan; FM_ERR_LIMIT when memory is short. source, budget and owner
 * must outlive the stream. */
FM_MUST_USE fm_status fm_server_stream_create(const fm_sample_source *source,
                                              const fm_wire_open *params, fm_budget *budget,
                                              void *owner, fm_server_stream **ret_stream,
                                              fm_error *reterr);
/* Only when idle. */
void fm_server_stream_destroy(fm_server_stream *stream);

/* The `owner` of create, NULL after fm_server_stream_abandon. */
void *fm_server_stream_get_owner(const fm_server_stream *stream);
const fm_wire_opened *fm_server_stream_get_opened(const fm_server_stream *stream);
fm_wire_policy fm_server_stream_get_policy(const fm_server_stream *stream);
uint64_t fm_server_stream_get_n_sent(const fm_server_stream *stream);

/* The next job to submit, or NULL when order, credit or memory forbid one now. */
fm_job *fm_server_stream_next_job(fm_server_stream *stream);
/* A job that came back from the pool. */
void fm_server_stream_finish_job(fm_server_stream *stream, fm_job *job);
/* The next sample to send, made or failed (job.status), its credit taken; NULL when order or credit
 * forbid one now. */
fm_work *fm_server_stream_pick(fm_server_stream *stream);
/* The picked sample was sent (or will never be): its memory is free. */
void fm_server_stream_release(fm_server_stream *stream, fm_work *work);

/* FM_ERR_LIMIT when a client grants more than there may be. */
FM_MUST_USE fm_status fm_server_stream_grant(fm_server_stream *stream, uint32_t items,
                                             uint64_t bytes, fm_error *reterr);

/* True when every sample of the stream was picked. */
bool fm_server_stream_is_delivered(const fm_server_stream *stream);
/* No more jobs, nothing more to pick; what is under way comes back as before. */
void fm_server_stream_abandon(fm_server_stream *stream);
/* True when no sample is under way, in the pool or being sent. */
bool fm_server_stream_is_idle(const fm_server_stream *stream);

#endif
