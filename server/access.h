/* access.h: who may connect to the server, by TLS, by access token, by the user of a Unix socket.
 *
 * Unix sockets need no token: the kernel names the peer's user, who must be that of the server,
 * root, or a member of the allowed group. Where an authority is set, tls:// demands a certificate
 * of it. Where a token file is set, it demands a token. With both, it demands both. tcp:// knows
 * nothing of its peer, so a server with a token file has no tcp:// address.
 *
 * Files are read again by fm_access_reload. Connections keep what they were admitted with.
 *
 * Handshakes cost processor time before anything is known of the peer. So only some run at a time,
 * in all and for one address. Others wait for their turn until their deadline.
 *
 * One thread uses it, that of the loop. */
#ifndef FM_SERVER_ACCESS_H
#define FM_SERVER_ACCESS_H

#include "proto/base/tls.h"
#include "proto/credentials.h"
#include "server/access_tokens.h"
#include "server/loop.h"

enum {
    FM_ACCESS_N_HANDSHAKE = 32,             /* TLS handshakes at a time */
    FM_ACCESS_N_HANDSHAKE_PER_ADDRESS = 16, /* of them, from one address; of IPv6 its /64 */
};

typedef struct fm_access fm_access;

/* Reads the files. The options are those of the server and must outlive it: they are read again.
 * TLS needs certificate and key only if `has_tls`. `unix_group` is a name or a number, or NULL.
 * FM_ERR_NOT_FOUND for an unknown group; errors of the files (base/tls.h, access_tokens.h). */
FM_MUST_USE fm_status fm_access_create(const fm_credentials *credentials, bool has_tls,
                                       const char *unix_group, fm_access **ret_access,
                                       fm_error *reterr);
void fm_access_destroy(fm_access *access);

/* Reads the files again. On failure everything stays as it was. */
FM_MUST_USE fm_status fm_access_reload(fm_access *access, fm_error *reterr);

/* For a new session. */
fm_tls_context *fm_access_get_tls(const fm_access *access);
/* The group that may use the unix sockets; false when there is none. */
bool fm_access_get_group(const fm_access *access, uint32_t *ret_gid);

/* False for a unix socket of a user who may not connect. */
bool fm_access_admits(const fm_access *access, const fm_socket *socket);

/* True when peers of this kind must show a token. */
bool fm_access_wants_token(const fm_access *access, fm_address_kind kind);
/* Finds the token; *ret_tokens is retained for the caller. Both are NULL when the server has no
 * token file, so that any token will do. FM_ERR_DENIED for a token that is not in the file. */
FM_MUST_USE fm_status fm_access_check_token(const fm_access *access, const char *secret,
                                            fm_access_tokens **ret_tokens,
                                            const fm_access_token **ret_token, fm_error *reterr);

/* Takes a turn for a handshake; false when it has to wait. */
bool fm_access_enter_handshake(fm_access *access, const fm_peer *peer);
/* Gives the turn back. */
void fm_access_leave_handshake(fm_access *access, const fm_peer *peer);

#endif
