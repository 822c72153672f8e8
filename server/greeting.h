/* greeting.h: what a server answers to HELLO: whether it and the client fit, and its WELCOME. */
#ifndef FM_SERVER_GREETING_H
#define FM_SERVER_GREETING_H

#include "server/source.h"

/* Checks versions, schema and features of a HELLO. FM_ERR_UNSUPPORTED. */
FM_MUST_USE fm_status fm_greeting_check(const fm_wire_hello *hello, fm_error *reterr);

/* The answer to a HELLO that fits. */
fm_wire_message fm_greeting_welcome(const fm_sample_source *source, uint32_t heartbeat_ms);

#endif
