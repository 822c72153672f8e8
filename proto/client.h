/* client.h: the blocking client of a feature server: connects, opens a stream, receives samples.
 *
 *     fm_client_connect -> fm_client_open -> { fm_client_next -> use -> fm_client_release }
 *                       -> fm_client_close
 *
 * Memory. Samples are received directly into slabs of the caller: 64-byte aligned (pinned, if the
 * caller likes), at least fm_wire_opened.max_sample_bytes. fm_sample_decode decodes them in place.
 * The client itself takes about 40 KiB, and 200 KiB more with TLS. Every length that a server
 * declares is checked against limits before it is used.
 *
 * Credit. The first credit, in fm_wire_open, is the number of samples and bytes that the server may
 * send ahead: usually the number of slabs and their bytes. A call of fm_client_release grants
 * credit again when a slab is free. One client is one connection with one stream.
 *
 * Threads. fm_client_next belongs to one thread. Any other thread may call fm_client_release and
 * fm_client_interrupt. The protocol is described in docs/reference/wire.md. */
#ifndef FM_CLIENT_H
#define FM_CLIENT_H

#include "proto/base/bytes.h"
#include "proto/base/cancel.h"
#include "proto/credentials.h"

typedef struct fm_client fm_client;

typedef struct fm_client_options {
    const char *url;            /* unix:PATH, tls://HOST:PORT or tcp://HOST:PORT */
    fm_credentials credentials; /* of tls://; a token is shown over tls: and unix: */
    const char *agent;          /* a name for the server's log; NULL = "foldmill" */
    const char *snapshot_name;  /* the snapshot that must be served; NULL or "" = any */
    fm_sha256 snapshot;         /* its hash; all zero = any */
    uint32_t connect_ms;        /* limit for connecting and for HELLO; 0 = 10,000 */
    uint32_t retry_ms;          /* keep trying to connect for so long; 0 = try once */
    /* A server that is silent for so long, despite PINGs, is gone; 0 = 30,000. */
    uint32_t silence_ms;
    /* fm_client_next waits for so long at most, whatever PONGs come; 0 = for ever. */
    uint32_t event_ms;
    /* Ends fm_client_connect and fm_client_open: FM_ERR_CANCELLED. */
    fm_cancel cancel;
} fm_client_options;

/* Connects, shows the token (AUTH) and exchanges HELLO and WELCOME. A refusal of the server is
 * returned with the status and the text that it sent. FM_ERR_USAGE for the address, and for files
 * of TLS or a token file with tcp://; as fm_client_link_open and fm_credentials_read_token;
 * FM_ERR_CLOSED. */
FM_MUST_USE fm_status fm_client_connect(const fm_client_options *options, fm_client **ret_client,
                                        fm_error *reterr);

/* Closes the connection; samples that are still coming are lost. NULL is fine. */
void fm_client_close(fm_client *client);

/* The WELCOME of the server; valid as long as the client. */
const fm_wire_welcome *fm_client_get_welcome(const fm_client *client);

/* Opens the stream; once per client. FM_ERR_USAGE for the parameters, and the errors of next. */
FM_MUST_USE fm_status fm_client_open(fm_client *client, const fm_wire_open *params,
                                     fm_wire_opened *ret_opened, fm_error *reterr);

typedef enum fm_client_event_kind {
    FM_CLIENT_SAMPLE = 1, /* `sample` was received into the slab */
    /* Policy skip: sample `index` is unreadable, `status` and `text` say why; it took one item
     * of credit. */
    FM_CLIENT_SKIPPED = 2,
    FM_CLIENT_END = 3, /* the stream is over; `reason` says why */
} fm_client_event_kind;

typedef struct fm_client_event {
    fm_client_event_kind kind;
    fm_bytes sample; /* in the slab */
    uint64_t index;
    fm_status status;
    fm_wire_reason reason;
    char text[FM_WIRE_TEXT_BYTES + 1];
    uint64_t wait_ns; /* from the call to the last byte of the event */
} fm_client_event;

/* Waits for the next event of the stream and receives into `slab` ([capacity] bytes, 64-byte
 * aligned). FM_ERR_CLOSED: the server is gone or silent. FM_ERR_CANCELLED: interrupted.
 * FM_ERR_LIMIT: the sample is larger than the slab. FM_ERR_PROTOCOL, FM_ERR_CORRUPT: the server
 * broke the protocol. When the server ended the stream with an ERROR: its status and text. After a
 * failure the client can only be closed. */
FM_MUST_USE fm_status fm_client_next(fm_client *client, void *slab, size_t capacity,
                                     fm_client_event *ret_event, fm_error *reterr);

/* Grants the credit of `items` samples with `bytes` bytes in all again; call it once their slabs
 * are free. Small grants are collected and sent together. Any thread may call it. */
FM_MUST_USE fm_status fm_client_release(fm_client *client, uint32_t items, uint64_t bytes,
                                        fm_error *reterr);

/* Makes the current or the next fm_client_next return FM_ERR_CANCELLED. Any thread may call it. */
void fm_client_interrupt(fm_client *client);

#endif
