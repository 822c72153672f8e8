/* greeting.h: what a server answers to HELLO: whether it and the client fit, and its WELCOME. */
#ifndef FM_SERVER_GREETING_H
#define FM_SERVER_GREETING_H

#include "server/access_tokens.h"
#include "server/source.h"

/* Checks versions, schema and snapshot of a HELLO, and that the token (NULL: all is allowed) is for
 * the snapshot that is served. FM_ERR_DENIED, which tells nothing of the server;
 * FM_ERR_UNSUPPORTED, FM_ERR_NOT_FOUND. */
FM_MUST_USE fm_status fm_greeting_check(const fm_wire_hello *hello, const fm_sample_source *source,
                                        const fm_access_token *token, fm_error *reterr);

/* The answer to a HELLO that fits. */
fm_wire_message fm_greeting_welcome(const fm_sample_source *source, uint32_t heartbeat_ms);

#endif
