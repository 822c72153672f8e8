/* loader.h: receives samples from a feature server ahead of the step that needs them.
 *
 *     server -> socket -> [receiver thread] -> slab, decoded -> ready queue -> fm_loader_next
 *                               ^                                                  |
 *                               +---- free slabs <---- fm_loader_release <---------+
 *
 * The whole memory is n_slab slabs. Each holds one encoded sample as it came off the wire, and the
 * views into it. Credits limit what the server sends to what fits the free slabs. Samples come in
 * the order of the stream (strict, bounded:W or free), from one of several servers
 * (proto/supply.h). With policy skip, a sample that the server could not make comes in its place,
 * without content. A sample that arrives damaged ends the stream, because a new connection usually
 * brings it whole. The caller names it to the next loader, which passes it on without content if it
 * is damaged again. Only one thread may call next and release. */
#ifndef FM_TRAINER_LOADER_H
#define FM_TRAINER_LOADER_H

#include "proto/base/histogram.h"
#include "proto/batch.h"
#include "proto/supply.h"

typedef struct fm_loader fm_loader;

typedef struct fm_loader_options {
    fm_supply_options supply;
    fm_wire_open stream; /* the loader fills in the credit fields */
    uint32_t n_slab;     /* samples received ahead or in use; 2 .. 131072 */
    bool has_damaged;    /* `damaged`: the sample that ended an earlier stream */
    uint64_t damaged;
} fm_loader_options;

/* One sample; the caller owns it until fm_loader_release. */
typedef struct fm_loaded {
    const fm_sample *sample; /* views borrow the slab; NULL: it is unreadable */
    const fm_error *why;     /* of an unreadable sample: its status and the reason */
    uint64_t index;
    uint32_t slab;
    size_t bytes; /* of the encoded sample */
} fm_loaded;

typedef struct fm_loader_stats {
    uint64_t n_sample, n_skipped, bytes; /* skipped: unreadable; not among n_sample */
    fm_histogram ready_wait_ns;          /* how long each fm_loader_next waited */
} fm_loader_stats;

/* Connects, opens the stream and starts receiving. Errors are those of
 * fm_supply_open. */
FM_MUST_USE fm_status fm_loader_open(const fm_loader_options *options, fm_loader **ret_loader,
                                     fm_error *reterr);

/* Stops receiving and frees everything; NULL is allowed. */
void fm_loader_close(fm_loader *loader);

/* What the server announced about the stream and about itself. */
const fm_wire_opened *fm_loader_get_stream(const fm_loader *loader);
const fm_wire_welcome *fm_loader_get_server(const fm_loader *loader);

/* Waits at most wait_ms for the next sample of the stream; *ret_ready says whether there is one.
 * FM_ERR_CLOSED with "stream ended" after the last one; any other error also ends the stream. */
FM_MUST_USE fm_status fm_loader_next(fm_loader *loader, uint32_t wait_ms, bool *ret_ready,
                                     fm_loaded *ret_loaded, fm_error *reterr);

/* After an error of next: whether a damaged sample was the reason, and its index. False when its
 * header is damaged, too. */
bool fm_loader_is_damaged(fm_loader *loader, uint64_t *ret_index);

/* Returns the sample's slab to the receiver and its credit to the server. */
void fm_loader_release(fm_loader *loader, const fm_loaded *loaded);

/* A copy of the counters. */
fm_loader_stats fm_loader_get_stats(fm_loader *loader);

#endif
