/* feed.c: see feed.h. */
#include "trainer/app/samples/feed.h"

#include "proto/backoff.h"
#include "proto/base/log.h"
#include "trainer/app/common/stop.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SLICE_MS = 100,        /* of a wait for a sample, or before another connection */
    CONNECT_SLICE_MS = 250 /* of a wait for a server */
};
static const uint64_t notice_ms = 60000; /* a wait for so long is said in the log */

static fm_status fail_cancelled(fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
}

/* Called by the receiver thread. */
static void log_change(void *context, const fm_supply_change *change) {
    (void)context;
    char quoted[FM_ERROR_MESSAGE_BYTES];
    const char *why = change->why ? change->why : "it kept the run waiting";
    fm_log(change->why ? FM_LOG_WARN : FM_LOG_INFO, "server_changed", "from=%s to=%s why=%s",
           change->from, change->to, fm_log_quote(quoted, sizeof quoted, why));
}

/* Sleeps in slices; false when the run was asked to stop. */
static bool sleep_for(uint32_t ms) {
    for (uint32_t slept = 0; slept < ms && !fm_stop_is_asked(); slept += SLICE_MS) {
        struct timespec pause = {.tv_nsec = SLICE_MS * 1000000L};
        nanosleep(&pause, NULL);
    }
    return !fm_stop_is_asked();
}

/* Connects and opens the stream; tries until wait_ms have passed, in slices, so that a signal and
 * the end of the private server are noticed. What accepts and closes at once, as a proxy without a
 * server does, is not asked thousands of times a second. */
static fm_status connect_now(fm_feed *feed, const fm_token *token, fm_loader **ret_loader,
                             fm_error *reterr) {
    uint64_t begin_ns = fm_clock_ns(), wait_ns = (uint64_t)feed->wait_ms * 1000000u, gone_ns = 0;
    fm_client_options *client = &feed->options.supply.client;
    fm_status status;
    feed->options.stream.token = *token;
    feed->options.supply.on_change = log_change;
    client->cancel = fm_stop_cancel;
    client->event_ms = feed->timeout_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)feed->timeout_ms;
    for (;;) {
        uint64_t left_ms = gone_ns < wait_ns ? (wait_ns - gone_ns) / 1000000u : 0;
        if (fm_stop_is_asked()) return fail_cancelled(reterr);
        fm_error failed;
        if (feed->server && fm_private_server_has_failed(feed->server, &failed)) {
            if (reterr) *reterr = failed;
            return failed.status;
        }
        client->retry_ms = (uint32_t)(left_ms < CONNECT_SLICE_MS ? left_ms : CONNECT_SLICE_MS);
        status = fm_loader_open(&feed->options, ret_loader, reterr);
        if (status == FM_ERR_CANCELLED) return fail_cancelled(reterr);
        gone_ns = fm_clock_ns() - begin_ns;
        bool may_come = status == FM_ERR_CLOSED || status == FM_ERR_IO;
        if (!may_come || gone_ns >= wait_ns) return status;
        if (status == FM_ERR_CLOSED && !sleep_for(SLICE_MS)) return fail_cancelled(reterr);
    }
}

static void log_full(const fm_feed *feed, const fm_backoff *backoff, uint32_t pause_ms,
                     const fm_error *why) {
    char quoted[FM_ERROR_MESSAGE_BYTES];
    fm_log(FM_LOG_WARN, "server_full",
           "server=%s attempt=%u again_in_s=%.1f waited_s=%.1f gives_up_after_s=%.0f why=%s",
           feed->options.supply.client.url, backoff->n_attempt, pause_ms * 1e-3,
           (double)(fm_clock_ns() - backoff->begin_ns) * 1e-9, (double)feed->full_ms * 1e-3,
           fm_log_quote(quoted, sizeof quoted, why->message));
}

/* Connects as connect_now does, and waits for room where the server has none: the connections of a
 * run that was killed, for example, last a while longer than the run. */
static fm_status connect_with_room(fm_feed *feed, const fm_token *token, fm_loader **ret_loader,
                                   fm_error *reterr) {
    fm_backoff backoff = fm_backoff_begin(feed->full_ms, fm_clock_ns());
    for (;;) {
        fm_error error;
        fm_status status = connect_now(feed, token, ret_loader, &error);
        if (status && reterr) *reterr = error;
        if (status != FM_ERR_LIMIT) return status;
        uint32_t pause_ms = fm_backoff_next(&backoff, fm_clock_ns());
        if (!pause_ms) {
            return fm_fail(
                reterr, status, "the server at %s had no room in %.0f s (--full-wait): %s",
                feed->options.supply.client.url, (double)feed->full_ms * 1e-3, error.message);
        }
        log_full(feed, &backoff, pause_ms, &error);
        if (!sleep_for(pause_ms)) return fail_cancelled(reterr);
    }
}

fm_status fm_feed_open(fm_feed *feed, const fm_token *token, fm_error *reterr) {
    feed->held = calloc((size_t)feed->most_held + 1, sizeof *feed->held);
    if (!feed->held) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for samples that come early");
    return connect_with_room(feed, token, &feed->loader, reterr);
}

void fm_feed_close(fm_feed *feed) {
    fm_loader_close(feed->loader);
    free(feed->held);
    feed->loader = NULL;
    feed->held = NULL;
    feed->n_held = 0;
}

static void log_wait(const fm_feed *feed, uint64_t waited_ms) {
    fm_log(FM_LOG_WARN, "no_sample",
           "waited_s=%.0f for=\"the next sample of the server\" received=%llu server=%s "
           "reconnects_after_s=%.0f",
           (double)waited_ms * 1e-3, (unsigned long long)feed->n_taken,
           feed->options.supply.client.url, (double)feed->timeout_ms * 1e-3);
}

/* The next connection is told which sample came damaged on this one. */
static void note_damaged(fm_feed *feed) {
    uint64_t index;
    if (!fm_loader_is_damaged(feed->loader, &index)) return;
    feed->options.has_damaged = true;
    feed->options.damaged = index;
}

/* Takes the wanted sample, or the first of any, out of those that are held; false if there is
 * none. */
static bool take_held(fm_feed *feed, uint64_t wanted, fm_loaded *ret_loaded) {
    for (uint32_t i = 0; i < feed->n_held; i++) {
        if (wanted != FM_FEED_ANY && feed->held[i].index != wanted) continue;
        *ret_loaded = feed->held[i];
        feed->n_held--;
        memmove(feed->held + i, feed->held + i + 1, (feed->n_held - i) * sizeof *feed->held);
        return true;
    }
    return false;
}

/* Holds a sample that came before the wanted one. */
static fm_status hold(fm_feed *feed, uint64_t wanted, const fm_loaded *loaded, fm_error *reterr) {
    if (feed->n_held == feed->most_held) {
        return fm_fail(reterr, FM_ERR_PROTOCOL,
                       "the server sent %u samples before sample %llu, more than its order allows",
                       feed->n_held + 1, (unsigned long long)wanted);
    }
    feed->held[feed->n_held++] = *loaded;
    return FM_OK;
}

fm_status fm_feed_next_within(fm_feed *feed, uint64_t wanted, uint32_t wait_ms, bool *ret_ready,
                              fm_loaded *ret_loaded, fm_error *reterr) {
    *ret_ready = take_held(feed, wanted, ret_loaded);
    while (!*ret_ready) {
        bool has_come = false;
        fm_status status = fm_loader_next(feed->loader, wait_ms, &has_come, ret_loaded, reterr);
        if (status) note_damaged(feed);
        if (status || !has_come) return status;
        feed->n_taken++;
        *ret_ready = wanted == FM_FEED_ANY || ret_loaded->index == wanted;
        if (!*ret_ready) status = hold(feed, wanted, ret_loaded, reterr);
        if (status) return status;
    }
    return FM_OK;
}

fm_status fm_feed_next(fm_feed *feed, uint64_t wanted, fm_loaded *ret_loaded, fm_error *reterr) {
    uint64_t begin_ns = fm_clock_ns();
    uint64_t every_ms = feed->timeout_ms / 2 < notice_ms ? feed->timeout_ms / 2 : notice_ms;
    uint64_t said_ms = 0;
    for (;;) {
        bool ready;
        fm_status status = fm_feed_next_within(feed, wanted, SLICE_MS, &ready, ret_loaded, reterr);
        if (status || ready) return status;
        if (fm_stop_is_asked()) return fail_cancelled(reterr);
        uint64_t waited_ms = (fm_clock_ns() - begin_ns) / 1000000u;
        if (waited_ms - said_ms < every_ms) continue;
        said_ms = waited_ms;
        log_wait(feed, waited_ms);
    }
}

/* Whether no sample has come since the last reconnect. */
static bool is_retry(const fm_feed *feed) {
    return feed->retried_at == feed->n_taken + 1;
}

bool fm_feed_may_reconnect(const fm_feed *feed, fm_status status) {
    bool is_lost = status == FM_ERR_CLOSED || status == FM_ERR_IO;
    bool is_broken =
        status == FM_ERR_CORRUPT || status == FM_ERR_PROTOCOL || status == FM_ERR_FORMAT;
    if (feed->wait_ms == 0 || !(is_lost || is_broken)) return false;
    if (!is_retry(feed)) return true;
    return is_lost && fm_clock_ns() - feed->retry.begin_ns < (uint64_t)feed->wait_ms * 1000000u;
}

static void add_stats(fm_loader_stats *sum, const fm_loader_stats *more) {
    sum->n_sample += more->n_sample;
    sum->n_skipped += more->n_skipped;
    sum->bytes += more->bytes;
    fm_histogram_merge(&sum->ready_wait_ns, &more->ready_wait_ns);
}

fm_loader_stats fm_feed_get_stats(const fm_feed *feed) {
    fm_loader_stats stats = fm_loader_get_stats(feed->loader);
    add_stats(&stats, &feed->earlier);
    return stats;
}

fm_status fm_feed_reconnect(fm_feed *feed, const fm_token *token, fm_error *reterr) {
    uint64_t begin_ns = fm_clock_ns();
    fm_loader *loader = NULL;
    if (!is_retry(feed)) {
        feed->retried_at = feed->n_taken + 1;
        feed->retry = fm_backoff_begin(feed->wait_ms, begin_ns);
    } else if (!sleep_for(fm_backoff_next(&feed->retry, begin_ns))) {
        return fail_cancelled(reterr);
    }
    feed->n_held = 0; /* they belong to the old connection */
    fm_status status = connect_with_room(feed, token, &loader, reterr);
    if (status) return status;
    fm_loader_stats stats = fm_loader_get_stats(feed->loader);
    add_stats(&feed->earlier, &stats);
    fm_loader_close(feed->loader);
    feed->loader = loader;
    fm_log(FM_LOG_WARN, "reconnected", "server=%s after_s=%.1f sample=%llu",
           feed->options.supply.client.url, (double)(fm_clock_ns() - begin_ns) * 1e-9,
           (unsigned long long)token->watermark);
    return FM_OK;
}
