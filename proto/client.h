/* client.h: the blocking client of a feature server: connect, open a stream, take samples.
 *
 *     fm_client_connect -> fm_client_open -> { fm_client_next -> use -> fm_client_release } ->
 * close
 *
 * Samples are received straight into memory of the caller's (pinned slabs, 64-byte aligned, at
 * least fm_wire_opened.max_sample_bytes), and decoded there by fm_sample_decode. The first credit
 * of the OPEN says how many samples and bytes may be on their way: usually the number of slabs and
 * their bytes; fm_client_release gives credit back when a slab is free again. One client is one
 * connection with one stream.
 *
 * Threads: next belongs to one thread; release and interrupt may be called from any other.
 * Memory: one allocation of about 40 KiB; whatever a server declares is checked against limits
 * before it is believed. The protocol: docs/reference/wire.md. */
#ifndef FM_CLIENT_H
#define FM_CLIENT_H

#include "proto/base/bytes.h"
#include "proto/wire.h"

#include <stdbool.h>

typedef struct fm_client fm_client;

typedef struct fm_client_options {
    const char *url;           /* unix:PATH or tcp://HOST:PORT */
    const char *agent;         /* what the server's log calls us; NULL = "foldmill" */
    const char *snapshot_name; /* NULL or "" = whatever is served */
    fm_sha256 snapshot;        /* all zero = whatever is served */
    uint32_t connect_ms;       /* for connecting and HELLO; 0 = 10,000 */
    uint32_t retry_ms;         /* go on trying to connect for so long; 0 = once */
    uint32_t silence_ms;       /* no word from the server, asked by PING, for so long: it is gone;
                                  0 = 30,000 */
} fm_client_options;

/* Connects and says HELLO. The server's refusal comes back with its own status and words. */
FM_MUST_USE fm_status fm_client_connect(const fm_client_options *options, fm_client **ret_client,
                                        fm_error *reterr);

/* Closes the connection; what was on its way is lost. NULL is fine. */
void fm_client_close(fm_client *client);

/* What the server said to HELLO; lives as long as the client. */
const fm_wire_welcome *fm_client_get_welcome(const fm_client *client);

/* Opens the stream (once per client). */
FM_MUST_USE fm_status fm_client_open(fm_client *client, const fm_wire_open *params,
                                     fm_wire_opened *ret_opened, fm_error *reterr);

typedef enum fm_client_event_kind {
    FM_CLIENT_SAMPLE = 1,  /* `sample` lies in the slab */
    FM_CLIENT_SKIPPED = 2, /* policy skip: sample `index` is unreadable, `status` and `text` say
                              why; it used one item of credit */
    FM_CLIENT_END = 3,     /* nothing more comes; `reason` */
} fm_client_event_kind;

typedef struct fm_client_event {
    fm_client_event_kind kind;
    fm_bytes sample; /* borrows the slab */
    uint64_t index;
    fm_status status;
    fm_wire_reason reason;
    char text[FM_WIRE_TEXT_BYTES + 1];
    uint64_t wait_ns; /* from the call to the last byte: how long the caller was kept */
} fm_client_event;

/* Waits for the next event of the stream, receiving into `slab` ([capacity] bytes, 64-byte
 * aligned). FM_ERR_CLOSED: the server is gone or silent; FM_ERR_CANCELLED: interrupted;
 * FM_ERR_LIMIT: the sample is larger than the slab; the server's status and words when it gave up
 * the stream. After a failure the client can only be closed. */
FM_MUST_USE fm_status fm_client_next(fm_client *client, void *slab, size_t capacity,
                                     fm_client_event *ret_event, fm_error *reterr);

/* Gives back the credit of `items` samples of together `bytes` bytes: as many as were taken, once
 * their slabs are free. Small credits are collected and sent together. Any thread. */
FM_MUST_USE fm_status fm_client_release(fm_client *client, uint32_t items, uint64_t bytes,
                                        fm_error *reterr);

/* Makes a running or the following fm_client_next return FM_ERR_CANCELLED. Any thread. */
void fm_client_interrupt(fm_client *client);

#endif
