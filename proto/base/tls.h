/* tls.h: TLS 1.3 between two streams of bytes, without a socket; the only door to OpenSSL's libssl.
 *
 *     socket --- fm_tls_feed ---> [ fm_tls ] --- fm_tls_read  ---> plain bytes
 *     socket <-- fm_tls_out  ---- [        ] <-- fm_tls_write ---- plain bytes
 *
 * A context holds one side's certificate, key and authorities; a session is one connection. The
 * owner of a session feeds it what the socket received, and sends what it puts out. It asks
 * fm_tls_out after every call, and calls fm_tls_sent when the socket has taken the bytes. So the
 * same code serves the loop of the server and the blocking client.
 *
 * Rules of both sides: TLS 1.3 only, no resumption, no tickets, no early data, the ALPN name below.
 * The client always checks the server's certificate and that it names the host. A server with `ca`
 * demands a certificate of its clients. A session changes its sending key after rekey_bytes, long
 * before AES-GCM's limit of about 2^38 bytes of full records for one key.
 *
 * Memory. A session takes about 60 KB during the handshake and 35 KB later, and while it sends at
 * most FM_TLS_PIECE_BYTES and the overhead of its records. Nothing a peer sends makes it grow.
 *
 * Threads. A session, and all contexts and sessions that belong together, need one thread at a
 * time. */
#ifndef FM_BASE_TLS_H
#define FM_BASE_TLS_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"

/* The protocol's name in the handshake, with the version of the frame layout. */
#define FM_TLS_ALPN "foldmill/1"

enum {
    FM_TLS_PIECE_BYTES = 256 << 10, /* the most plain bytes that are encrypted and unsent */
    FM_TLS_NAME_BYTES = 128,        /* of a peer's name, with the terminator */
};

typedef enum fm_tls_side { FM_TLS_CLIENT = 1, FM_TLS_SERVER = 2 } fm_tls_side;

/* PEM files. The server needs `cert` and `key`; the client may have both or neither. `cert` is the
 * own certificate, then the authorities between it and a root. `ca` holds the authorities that the
 * peer's certificate must come from; a client without it uses those of the system. */
typedef struct fm_tls_options {
    fm_tls_side side;
    const char *cert, *key, *ca;
    uint64_t rekey_bytes; /* plain bytes sent with one key; 0 = 2^36 */
} fm_tls_options;

typedef struct fm_tls_context fm_tls_context;
typedef struct fm_tls fm_tls;

/* Reads and checks the files. Returns FM_ERR_NOT_FOUND or FM_ERR_IO when a file cannot be read, and
 * FM_ERR_USAGE when an option is missing. A file without a certificate or key in PEM is
 * FM_ERR_FORMAT, and a key of another certificate is FM_ERR_DATA. */
FM_MUST_USE fm_status fm_tls_context_create(const fm_tls_options *options,
                                            fm_tls_context **ret_context, fm_error *reterr);
/* Sessions that were opened with the context stay valid. NULL is fine. */
void fm_tls_context_destroy(fm_tls_context *context);
/* Seconds since 1970 at which the own certificate expires; 0 without one. */
int64_t fm_tls_context_get_expiry(const fm_tls_context *context);

/* Begins a session. `host` is the name or address that the server's certificate must have; NULL at
 * a server. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_tls_open(fm_tls_context *context, const char *host, fm_tls **ret_tls,
                                  fm_error *reterr);
/* NULL is fine. */
void fm_tls_close(fm_tls *tls);

/* Gives the session bytes that arrived. They are borrowed until fm_tls_fed_bytes is 0, and must all
 * be taken before the next call. */
void fm_tls_feed(fm_tls *tls, fm_bytes received);
/* Fed bytes that the session has not taken. */
size_t fm_tls_fed_bytes(const fm_tls *tls);

/* Continues the handshake as far as the fed bytes allow; *ret_ready says whether it is over. On
 * failure an alert for the peer may be in fm_tls_out. FM_ERR_DENIED for a certificate that is
 * refused, on either side; FM_ERR_UNSUPPORTED for another version or protocol; FM_ERR_PROTOCOL. */
FM_MUST_USE fm_status fm_tls_handshake(fm_tls *tls, bool *ret_ready, fm_error *reterr);

/* Decrypts at most `capacity` bytes; *ret_bytes is 0 when more must be fed first. FM_ERR_CLOSED:
 * the peer said close_notify, so nothing is missing. A client learns only here that the server
 * refused its certificate. Errors as fm_tls_handshake; FM_ERR_CORRUPT for changed bytes. */
FM_MUST_USE fm_status fm_tls_read(fm_tls *tls, void *out, size_t capacity, size_t *ret_bytes,
                                  fm_error *reterr);

/* Makes room to encrypt so many plain bytes at once, at most a piece. Does nothing while bytes are
 * unsent, or without memory: fm_tls_write takes less then. */
void fm_tls_reserve(fm_tls *tls, size_t plain_bytes);
/* Encrypts as much of the plain bytes as there is room for: *ret_bytes of them, 0 when fm_tls_out
 * must be sent first. The handshake must be over. */
FM_MUST_USE fm_status fm_tls_write(fm_tls *tls, fm_bytes plain, size_t *ret_bytes,
                                   fm_error *reterr);
/* Puts close_notify out: nothing more is sent. */
void fm_tls_finish(fm_tls *tls);

/* The bytes to send, in order. They stay where they are until fm_tls_sent took them, also while
 * more is put out. */
fm_bytes fm_tls_out(const fm_tls *tls);
/* The first `bytes` of fm_tls_out were sent. */
void fm_tls_sent(fm_tls *tls, size_t bytes);
/* Gives the room of fm_tls_reserve back, if nothing is unsent. */
void fm_tls_trim(fm_tls *tls);

/* True when the peer has said close_notify: a stream that ends without it was cut. */
bool fm_tls_is_ended(const fm_tls *tls);
/* The common name of the peer's certificate, "" without one. Returns out. */
const char *fm_tls_peer_name(const fm_tls *tls, char out[FM_TLS_NAME_BYTES]);

#endif
