/* address.h: where a server listens: `unix:PATH`, `tls://HOST:PORT` or `tcp://HOST:PORT`.
 *
 * HOST is a name, an IPv4 address or an IPv6 address in brackets. tls:// is TCP with TLS, for
 * any network. tcp:// is plain TCP, neither encrypted nor authenticated. It stays on this
 * machine unless the user allows more. */
#ifndef FM_ADDRESS_H
#define FM_ADDRESS_H

#include "proto/base/cancel.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef enum fm_address_kind {
    FM_ADDRESS_UNIX = 1,
    FM_ADDRESS_TCP = 2,
    FM_ADDRESS_TLS = 3,
} fm_address_kind;

/* A socket's path leaves room in the system's 108 bytes for the listener's temporary name. */
enum { FM_ADDRESS_PATH_BYTES = 96, FM_ADDRESS_HOST_BYTES = 256, FM_ADDRESS_TEXT_BYTES = 300 };

typedef struct fm_address {
    fm_address_kind kind;
    char path[FM_ADDRESS_PATH_BYTES]; /* unix */
    char host[FM_ADDRESS_HOST_BYTES]; /* tcp, tls; without brackets */
    uint16_t port;                    /* tcp, tls; 0 = any, for a listener only */
    bool is_insecure;                 /* tcp may leave this machine; parsing sets false */
} fm_address;

/* Who is on the other side of a connection. */
typedef struct fm_peer {
    fm_address_kind kind;
    uint32_t uid, gid; /* unix: the user who connected, and its group */
    uint8_t ip[16];    /* tcp, tls: IPv6, or an IPv4 address mapped into it */
    char text[56];     /* for the log: "192.0.2.1", "2001:db8::1", "uid 1000" */
} fm_peer;

/* Reads an address. FM_ERR_USAGE names the expected form and the address that the user probably
 * meant. */
FM_MUST_USE fm_status fm_address_parse(const char *text, fm_address *ret_address, fm_error *reterr);

/* Writes the address as fm_address_parse reads it, always terminated. Returns out. */
const char *fm_address_format(const fm_address *address, char out[FM_ADDRESS_TEXT_BYTES]);

/* Makes a connected, non-blocking, close-on-exec socket. FM_ERR_NOT_FOUND for a host without an
 * address; FM_ERR_USAGE for tcp beyond this machine without is_insecure; FM_ERR_IO for every other
 * failure. */
FM_MUST_USE fm_status fm_address_connect(const fm_address *address, uint32_t timeout_ms,
                                         int *ret_socket, fm_error *reterr);
/* The same, until it is cancelled: FM_ERR_CANCELLED. */
FM_MUST_USE fm_status fm_address_connect_unless(const fm_address *address, uint32_t timeout_ms,
                                                const fm_cancel *cancel, int *ret_socket,
                                                fm_error *reterr);

/* Makes a listening, non-blocking, close-on-exec socket. The file of a unix socket is replaced when
 * no server listens on it any more; FM_ERR_EXISTS when one does. Only its owner may connect, and it
 * appears when connections are accepted, not before. *ret_bound is the address with the port that
 * the system chose for port 0. FM_ERR_USAGE for tcp beyond this machine without is_insecure. */
FM_MUST_USE fm_status fm_address_listen(const fm_address *address, int *ret_socket,
                                        fm_address *ret_bound, fm_error *reterr);

/* Checks a listening stream socket that another program has made, and names the address that it is
 * bound to: unix, or tls if is_tls, else tcp. The socket becomes non-blocking and close-on-exec.
 * FM_ERR_USAGE for any other descriptor, and for tcp beyond this machine without is_insecure. */
FM_MUST_USE fm_status fm_address_adopt(int fd, bool is_tls, bool is_insecure, fm_address *ret_bound,
                                       fm_error *reterr);

/* Whether the TCP socket is bound to an address of this machine alone: 127.0.0.0/8, as IPv4 or
 * mapped into IPv6, or ::1. Every listener asks here. */
bool fm_address_is_loopback(int fd);

/* Lets the members of a group connect to the unix socket that is bound at the address. */
FM_MUST_USE fm_status fm_address_open_to_group(const fm_address *bound, uint32_t gid,
                                               fm_error *reterr);

/* Fills in the peer of a connected socket; false when the system does not say. */
bool fm_address_peer(int fd, fm_address_kind kind, fm_peer *ret_peer);
/* True when the user on the other side of a unix socket belongs to the group. */
bool fm_address_peer_is_in_group(int fd, const fm_peer *peer, uint32_t gid);

#endif
