/* feed.h: the stream of samples of a run. It waits for samples in short slices, so that a signal
 * is noticed. It says in the log when none comes, and connects again when the server is lost. */
#ifndef FM_TRAINER_FEED_H
#define FM_TRAINER_FEED_H

#include "proto/backoff.h"
#include "trainer/app/samples/private_server.h"
#include "trainer/data/loader.h"

#define FM_FEED_ANY UINT64_MAX

typedef struct fm_feed {
    fm_loader_options options; /* of every connection; the feed fills in token and retry_ms */
    uint32_t most_held;        /* samples that may come before one that is asked for by number */
    uint32_t wait_ms;          /* how long to try to connect or reconnect */
    uint64_t full_ms;          /* how long to ask a server again that has no room */
    uint64_t timeout_ms;       /* without a sample for so long, the connection is given up */
    /* That of the run, which is not waited for when it has failed; NULL: another process has the
     * server. */
    fm_private_server *server;
    fm_loader *loader;
    fm_loaded *held; /* [most_held] samples that came before the one that was asked for */
    uint32_t n_held;
    fm_loader_stats earlier; /* counts of earlier connections */
    uint64_t n_taken;        /* samples received in all */
    uint64_t retried_at;     /* n_taken + 1 at the last reconnect; 0 = none yet */
    fm_backoff retry;        /* between reconnects without a sample */
} fm_feed;

/* Connects and opens the stream at the token; tries until wait_ms have passed. A server that
 * refuses with FM_ERR_LIMIT is asked again, less and less often, until full_ms have passed.
 * FM_ERR_CANCELLED when the run was asked to stop; FM_ERR_NOMEM; else the errors of
 * fm_loader_open. */
FM_MUST_USE fm_status fm_feed_open(fm_feed *feed, const fm_token *token, fm_error *reterr);
void fm_feed_close(fm_feed *feed);

/* The sample of number `wanted`, or the next one that comes (FM_FEED_ANY). Samples that come before
 * a wanted one wait in the feed, at most most_held of them. FM_ERR_CANCELLED when the run was asked
 * to stop. Any other error ends the connection. */
FM_MUST_USE fm_status fm_feed_next(fm_feed *feed, uint64_t wanted, fm_loaded *ret_loaded,
                                   fm_error *reterr);

/* As fm_feed_next, but waits for at most wait_ms and for no signal; *ret_ready: there is one. */
FM_MUST_USE fm_status fm_feed_next_within(fm_feed *feed, uint64_t wanted, uint32_t wait_ms,
                                          bool *ret_ready, fm_loaded *ret_loaded, fm_error *reterr);

/* Whether it is worth connecting again after that error: the connection was broken, and a sample
 * has come since the last attempt, or the connection was lost, and none has come for less than
 * wait_ms. */
bool fm_feed_may_reconnect(const fm_feed *feed, fm_status status);

/* As fm_feed_open, and closes the old connection, whose samples must not be used any more. If none
 * has come since the last attempt, it pauses first, longer and longer. */
FM_MUST_USE fm_status fm_feed_reconnect(fm_feed *feed, const fm_token *token, fm_error *reterr);

/* The counts of all connections. */
fm_loader_stats fm_feed_get_stats(const fm_feed *feed);

#endif
