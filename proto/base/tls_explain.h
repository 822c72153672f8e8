/* tls_explain.h: OpenSSL's error codes as sentences that say what to do; for tls.c. */
#ifndef FM_BASE_TLS_EXPLAIN_H
#define FM_BASE_TLS_EXPLAIN_H

#include "proto/base/tls.h"

/* Takes the oldest error from OpenSSL's queue and empties it. `verify` is SSL_get_verify_result;
 * `host` is the name that the server's certificate must have, at a client. */
fm_status fm_tls_explain(fm_tls_side side, const char *host, long verify, fm_error *reterr);

/* OpenSSL's own words for the oldest error, and an empty queue; "unknown error" without one. */
const char *fm_tls_take_reason(void);

#endif
