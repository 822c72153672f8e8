/* client_link.h: a client's connection as plain bytes, over a Unix socket, TCP or TLS.
 *
 * Sending and receiving never wait: 0 bytes mean that the owner polls the descriptor first. One
 * thread receives; any thread may send, one at a time. */
#ifndef FM_CLIENT_LINK_H
#define FM_CLIENT_LINK_H

#include "proto/address.h"
#include "proto/base/tls.h"
#include "proto/credentials.h"

typedef struct fm_client_link fm_client_link;

/* Connects, and for tls:// completes the handshake, within timeout_ms each. The errors of
 * fm_address_connect_unless and base/tls.h; FM_ERR_CLOSED when the server leaves during the
 * handshake. */
FM_MUST_USE fm_status fm_client_link_open(const fm_address *address,
                                          const fm_credentials *credentials, uint32_t timeout_ms,
                                          const fm_cancel *cancel, fm_client_link **ret_link,
                                          fm_error *reterr);
/* Tells a TLS server that nothing more comes, if that works at once, and closes. NULL is fine. */
void fm_client_link_close(fm_client_link *link);

/* For poll and shutdown. */
int fm_client_link_get_fd(const fm_client_link *link);

/* Sends some of the bytes; *ret_bytes is how many were taken. With TLS, taken bytes may wait to be
 * sent: call it, with no bytes at the end, until fm_client_link_has_unsent is false.
 * FM_ERR_CLOSED. */
FM_MUST_USE fm_status fm_client_link_send(fm_client_link *link, const void *data, size_t bytes,
                                          size_t *ret_bytes, fm_error *reterr);
bool fm_client_link_has_unsent(fm_client_link *link);

/* Receives at most `capacity` bytes. FM_ERR_CLOSED: the server ended the connection, broke it, or,
 * with TLS, was cut off; the message says which. Errors of base/tls.h. */
FM_MUST_USE fm_status fm_client_link_receive(fm_client_link *link, void *out, size_t capacity,
                                             size_t *ret_bytes, fm_error *reterr);

#endif
