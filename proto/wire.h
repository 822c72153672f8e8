/* wire.h: encodes and decodes the frames between server and client.
 *
 *     0      4       5    6     8      12     16       24         28             32
 *     | magic|version|kind|flags|stream|length|sequence|body check|header check | body [length]
 *
 * docs/reference/wire.md has the byte tables, the states and the rules of the protocol. Control
 * messages (all kinds but SAMPLE) are small structs without pointers. The body of a SAMPLE is the
 * encoded sample of proto/batch.h, and never passes through this file. Decoding trusts nothing and
 * allocates nothing. Encoding is canonical: each message has exactly one byte string. */
#ifndef FM_WIRE_H
#define FM_WIRE_H

#include "proto/base/bytes.h"
#include "proto/base/hash.h"
#include "proto/base/status.h"
#include "proto/limits.h"
#include "proto/token.h"

#include <stdbool.h>

enum {
    FM_WIRE_HEADER_BYTES = 32,
    FM_WIRE_VERSION_MIN = 2, /* protocol versions that this build speaks */
    FM_WIRE_VERSION_MAX = 2,
    FM_WIRE_PLAN_BYTES = 31,       /* a plan's name */
    FM_WIRE_AGENT_BYTES = 63,      /* the name of a peer's program */
    FM_WIRE_SECRET_BYTES = 255,    /* an access token */
    FM_WIRE_TEXT_BYTES = 511,      /* an error's sentence */
    FM_WIRE_SMALL_BYTES = 1024,    /* holds any frame but OPEN and SAMPLE, with its header */
    FM_WIRE_CONTROL_BYTES = 16384, /* holds any frame but SAMPLE, with its header */
};

/* The tables of wire.c and server/conn_in.c have a row for each kind; a kind without one does not
 * compile. */
typedef enum fm_wire_kind {
    FM_WIRE_HELLO = 1,   /* client -> server, first: agent, versions, schema, requested snapshot */
    FM_WIRE_WELCOME = 2, /* server -> client: chosen version and snapshot, limits */
    FM_WIRE_OPEN = 3,    /* client -> server: opens a stream */
    FM_WIRE_OPENED = 4,  /* server -> client: the facts of the stream */
    FM_WIRE_CREDIT = 5,  /* client -> server: the server may send more items and bytes */
    FM_WIRE_SAMPLE = 6,  /* server -> client: an encoded sample */
    FM_WIRE_PING = 7,    /* both ways: asks for a PONG */
    FM_WIRE_PONG = 8,    /* both ways: the answer, with the number of the PING */
    FM_WIRE_END = 9,     /* server -> client: the stream is over, and why */
    FM_WIRE_ERROR = 10,  /* both ways: the error, and what it ends */
    FM_WIRE_CLOSE = 11,  /* client -> server: ends this stream; on stream 0, the connection */
    FM_WIRE_AUTH = 12,   /* client -> server, before HELLO: an access token */
    FM_WIRE_N_KIND       /* one more than the last kind */
} fm_wire_kind;

/* "HELLO", ...; "?" for any other value. */
const char *fm_wire_kind_name(uint32_t kind);

typedef struct fm_wire_header {
    uint8_t kind;        /* fm_wire_kind */
    uint32_t stream;     /* 0 = the connection itself */
    uint32_t body_bytes; /* within the limit of its kind */
    uint64_t sequence;   /* frames sent before this one, in this direction of this connection */
    uint32_t body_check; /* low half of xxh3 over the body; 0 for SAMPLE, which has its own */
} fm_wire_header;

typedef enum fm_wire_order {
    FM_WIRE_STRICT = 1,
    FM_WIRE_BOUNDED = 2, /* at most `window` later samples overtake a sample */
    FM_WIRE_FREE = 3,    /* any sample that is ready; see fm_wire_open_window */
} fm_wire_order;

typedef enum fm_wire_policy {
    FM_WIRE_STOP = 1, /* an unreadable sample ends the stream */
    FM_WIRE_SKIP = 2, /* the server reports it (ERROR, scope sample) and the stream continues */
} fm_wire_policy;

typedef enum fm_wire_reason {
    FM_WIRE_DELIVERED = 1, /* all samples of the stream were sent */
    FM_WIRE_SHUTDOWN = 2,  /* the server stops; another server can continue with the token */
    FM_WIRE_CLOSED = 3,    /* the client sent CLOSE */
} fm_wire_reason;

typedef enum fm_wire_scope {
    FM_WIRE_SCOPE_SAMPLE = 1,     /* this sample is skipped, the stream continues */
    FM_WIRE_SCOPE_STREAM = 2,     /* the stream is over */
    FM_WIRE_SCOPE_CONNECTION = 3, /* the connection is over */
} fm_wire_scope;

#define FM_WIRE_NO_INDEX UINT64_MAX

typedef struct fm_wire_hello {
    uint16_t version_min, version_max;
    uint32_t features;    /* bits of optional abilities; there are none, so 0 */
    uint64_t schema_hash; /* fm_schema_hash */
    fm_sha256 snapshot;   /* the snapshot's hash; all zero accepts any */
    char snapshot_name[FM_LIMIT_NAME_BYTES + 1]; /* "" accepts any */
    char agent[FM_WIRE_AGENT_BYTES + 1];         /* for the server's log */
} fm_wire_hello;

typedef struct fm_wire_welcome {
    uint16_t version;
    uint32_t features;
    uint64_t schema_hash;
    fm_sha256 snapshot;
    uint32_t n_chain;
    uint32_t heartbeat_ms; /* the server sends PING after so much silence */
    uint32_t max_stream;   /* streams of this connection */
    char snapshot_name[FM_LIMIT_NAME_BYTES + 1];
    char agent[FM_WIRE_AGENT_BYTES + 1];
} fm_wire_welcome;

/* The parameters of a stream. Its samples are a pure function of the snapshot and this message. */
typedef struct fm_wire_open {
    char plan[FM_WIRE_PLAN_BYTES + 1];
    /* Changes to the plan; 0 keeps the value of the plan. The server checks them against bounds. */
    uint32_t global_batch, crop_size, max_msa_clusters, max_extra_msa, max_cycle;
    uint32_t max_template_date; /* a rule of proto/template_date.h */
    uint64_t seed;
    uint64_t first_step;
    uint64_t n_step;         /* 0 = endless */
    uint32_t group, n_group; /* the samples whose slot % n_group == group */
    uint32_t order;          /* fm_wire_order */
    uint32_t window;         /* W of bounded:W; else 0 */
    /* How many places earlier or later than its own a sample may be used. It carries the cycles of
     * every step within that distance; 0: those of its own step. */
    uint32_t reach;
    uint32_t policy;       /* fm_wire_policy */
    uint32_t credit_items; /* the first credit */
    uint64_t credit_bytes;
    fm_token token; /* the samples that were delivered already; all zero = none */
} fm_wire_open;

typedef struct fm_wire_opened {
    uint64_t n_sample;         /* samples that the stream will deliver; UINT64_MAX = endless */
    uint64_t max_sample_bytes; /* the most bytes of an encoded sample: the size of a slab */
    uint32_t global_batch;     /* this and the following: the plan in effect */
    uint32_t crop_size;
    uint32_t max_msa_clusters;
    uint32_t max_extra_msa;
    uint32_t max_cycle;
    uint32_t epoch_samples;
    uint32_t samples_per_step; /* of this group */
    uint32_t max_template_date;
} fm_wire_opened;

typedef struct fm_wire_credit {
    uint32_t items;
    uint64_t bytes;
} fm_wire_credit;

typedef struct fm_wire_end {
    uint32_t reason; /* fm_wire_reason */
    uint64_t n_sent; /* samples sent on this stream */
} fm_wire_end;

typedef struct fm_wire_error {
    uint16_t status; /* fm_status */
    uint8_t scope;   /* fm_wire_scope */
    uint64_t index;  /* the sample's, or FM_WIRE_NO_INDEX */
    char text[FM_WIRE_TEXT_BYTES + 1];
} fm_wire_error;

typedef struct fm_wire_auth {
    char secret[FM_WIRE_SECRET_BYTES + 1];
} fm_wire_auth;

typedef struct fm_wire_message {
    uint8_t kind; /* fm_wire_kind, not FM_WIRE_SAMPLE */
    uint32_t stream;
    union {
        fm_wire_hello hello;
        fm_wire_welcome welcome;
        fm_wire_open open;
        fm_wire_opened opened;
        fm_wire_credit credit;
        uint64_t ping; /* PING: any number; PONG: that of the PING */
        fm_wire_end end;
        fm_wire_error error;
        fm_wire_auth auth;
    };
} fm_wire_message;

/* Writes the 32 bytes of a frame header. */
void fm_wire_header_encode(const fm_wire_header *header, uint8_t out[FM_WIRE_HEADER_BYTES]);

/* Reads and checks 32 bytes: magic, header check, version, kind, flags, stream number, and the
 * length allowed for the kind. FM_ERR_PROTOCOL; FM_ERR_LIMIT for the length. A receiver must not
 * use anything else of a frame before this succeeds. */
FM_MUST_USE fm_status fm_wire_header_decode(const uint8_t in[FM_WIRE_HEADER_BYTES],
                                            fm_wire_header *ret_header, fm_error *reterr);

/* Writes a whole frame and returns its size, at most FM_WIRE_CONTROL_BYTES (FM_WIRE_SMALL_BYTES
 * for all kinds but OPEN). Asserts that `capacity` suffices and that texts have no control
 * bytes. */
size_t fm_wire_encode(const fm_wire_message *message, uint64_t sequence, uint8_t *out,
                      size_t capacity);

/* Decodes the body of a control frame (any kind but SAMPLE) whose header was decoded. Checks the
 * body's checksum and every range, and that no bytes are left over. FM_ERR_USAGE: a well-formed
 * OPEN whose parameters are out of range (fm_wire_open_check); only the stream fails.
 * FM_ERR_PROTOCOL, FM_ERR_CORRUPT, FM_ERR_LIMIT: the connection must end. */
FM_MUST_USE fm_status fm_wire_decode(const fm_wire_header *header, fm_bytes body,
                                     fm_wire_message *ret_message, fm_error *reterr);

/* Copies `text` into out[0..out_bytes-1] for a message: cut to fit; control characters and bytes
 * that are not UTF-8 become '?'. */
void fm_wire_text(char *out, size_t out_bytes, const char *text);

/* FM_ERR_USAGE names the first field of an OPEN that is out of range. */
FM_MUST_USE fm_status fm_wire_open_check(const fm_wire_open *params, fm_error *reterr);

/* How many samples a stream of this OPEN delivers when the plan in effect has this global batch;
 * UINT64_MAX when it has no end. n_group is at most global_batch. */
uint64_t fm_wire_open_count(const fm_wire_open *params, uint32_t global_batch);

/* How many samples of each step belong to the group of this OPEN. */
uint32_t fm_wire_open_per_step(const fm_wire_open *params, uint32_t global_batch);

/* By how many later samples of its group a sample may be overtaken: 0 for strict, W for bounded:W,
 * FM_LIMIT_FREE_WINDOW for free. It is less where a token could not name the samples that came, so
 * that every stream can resume. free takes at most half of what a token can name. A trainer merges
 * the tokens of its groups, and one group may be late by a window when another is early. */
uint32_t fm_wire_open_window(const fm_wire_open *params, uint32_t global_batch);

/* How many samples of this OPEN's group are before `index`: the place of that sample. */
uint64_t fm_wire_open_place(const fm_wire_open *params, uint32_t global_batch, uint64_t index);

/* How many cycles sample `index` of this OPEN carries, when the plan in effect has this global
 * batch and at most max_cycle cycles. */
uint32_t fm_wire_open_cycles(const fm_wire_open *params, uint32_t global_batch, uint32_t max_cycle,
                             uint64_t index);

/* Is sample `index` one of this OPEN: in its steps and its group, and not delivered before? */
bool fm_wire_open_wants(const fm_wire_open *params, uint32_t global_batch, uint64_t index);

/* The first sample at or after `index` that belongs to the group and was not delivered before. It
 * may be past the last step. It takes the time of the bits of a token, however many groups there
 * are. n_group is at most global_batch. */
uint64_t fm_wire_open_next(const fm_wire_open *params, uint32_t global_batch, uint64_t index);

/* What a server answers to an OPEN must be what was asked: FM_ERR_PROTOCOL names the first field of
 * `opened` that does not fit `params`. */
FM_MUST_USE fm_status fm_wire_opened_check(const fm_wire_open *params, const fm_wire_opened *opened,
                                           fm_error *reterr);

/* Reads "strict", "bounded:W" or "free" as order and window of an OPEN. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_wire_order_parse(const char *text, uint32_t *ret_order,
                                          uint32_t *ret_window, fm_error *reterr);

#endif
