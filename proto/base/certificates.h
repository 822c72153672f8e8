/* certificates.h: makes the certificates of a small authority: for a laboratory, and for tests.
 *
 * Keys are ECDSA P-256. An authority signs servers and clients only, never another authority. */
#ifndef FM_BASE_CERTIFICATES_H
#define FM_BASE_CERTIFICATES_H

#include "proto/base/status.h"

#include <stddef.h>

typedef enum fm_certificate_kind {
    FM_CERTIFICATE_AUTHORITY = 1,
    FM_CERTIFICATE_SERVER,
    FM_CERTIFICATE_CLIENT,
} fm_certificate_kind;

typedef struct fm_certificate_request {
    fm_certificate_kind kind;
    const char *name;         /* the common name, at most 63 bytes */
    const char *const *hosts; /* a server's names and addresses */
    size_t n_host;
    int64_t from_s, until_s; /* seconds since 1970 */
} fm_certificate_request;

/* PEM files. */
typedef struct fm_certificate_files {
    const char *cert, *key;
} fm_certificate_files;

/* Whether a certificate can have that name and those hosts. FM_ERR_USAGE where not. */
FM_MUST_USE fm_status fm_certificate_check(const fm_certificate_request *request, fm_error *reterr);

/* Makes a key and its certificate and writes both, or neither where the disk has no room; the
 * key's file has mode 0600. The certificate is signed by the authority, or by itself for an
 * authority. FM_ERR_USAGE for a name or host that a certificate cannot hold; FM_ERR_FORMAT for
 * files that are no authority's; FM_ERR_IO. */
FM_MUST_USE fm_status fm_certificate_make(const fm_certificate_request *request,
                                          const fm_certificate_files *authority,
                                          const fm_certificate_files *out, fm_error *reterr);

#endif
