/* certificates.h: certificates for tests: two authorities, and what can be wrong with a
 * certificate. */
#ifndef FM_TESTS_CERTIFICATES_H
#define FM_TESTS_CERTIFICATES_H

#include "proto/credentials.h"

enum { FM_TEST_PATH_BYTES = 256 };

typedef struct fm_test_pair {
    char cert[FM_TEST_PATH_BYTES], key[FM_TEST_PATH_BYTES];
} fm_test_pair;

/* All in one folder. Servers are for localhost and 127.0.0.1 unless the name says otherwise. */
typedef struct fm_test_certificates {
    fm_test_pair ca, server, client;
    fm_test_pair expired_server, future_server, elsewhere_server, expired_client;
    fm_test_pair other_ca, other_server, other_client;
} fm_test_certificates;

/* Aborts when they cannot be made. */
void fm_test_make_certificates(const char *folder, fm_test_certificates *out);

/* Of a server with a pair, which demands certificates of `ca` (NULL: of nobody); of a client that
 * trusts `ca` and shows a pair (NULL: nothing). */
fm_credentials fm_test_server(const fm_test_pair *pair, const fm_test_pair *ca);
fm_credentials fm_test_client(const fm_test_pair *ca, const fm_test_pair *pair);

#endif
