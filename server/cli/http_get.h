/* http_get.h: fetches one document of a foldmill server's own HTTP listener, for `foldmill top`.
 *
 * It speaks HTTP/1.0 without encryption, without redirects and without names of other schemes: as
 * much as that listener needs. A library for HTTP would bring its own TLS, proxies and name lookup
 * into every static build. */
#ifndef FM_CLI_HTTP_GET_H
#define FM_CLI_HTTP_GET_H

#include "proto/base/status.h"

#include <stddef.h>

/* Gets `path` from the server of `url`, "http://HOST:PORT" or any page of it. *ret_body is
 * terminated, has *ret_bytes bytes and belongs to the caller (free).
 *
 * FM_ERR_USAGE: `url` is no such address. FM_ERR_NOT_FOUND: there is no such host. FM_ERR_IO: the
 * server cannot be reached, does not answer within `timeout_ms`, or answers with an error.
 * FM_ERR_CORRUPT: the answer is not HTTP. FM_ERR_LIMIT: it has more than 64 MiB. */
FM_MUST_USE fm_status fm_cli_http_get(const char *url, const char *path, uint32_t timeout_ms,
                                      char **ret_body, size_t *ret_bytes, fm_error *reterr);

#endif
