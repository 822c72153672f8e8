/* certificates.c: see certificates.h. */
#include "tests/testing/certificates.h"

#include "proto/base/certificates.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { HOUR_S = 3600 };

static void make(const char *folder, const char *name, fm_certificate_request request,
                 const fm_test_pair *ca, fm_test_pair *out) {
    fm_error error;
    snprintf(out->cert, sizeof out->cert, "%s/%s.crt", folder, name);
    snprintf(out->key, sizeof out->key, "%s/%s.key", folder, name);
    const fm_certificate_files to = {out->cert, out->key};
    const fm_certificate_files from = {ca ? ca->cert : NULL, ca ? ca->key : NULL};
    request.name = name;
    if (!fm_certificate_make(&request, &from, &to, &error)) return;
    fprintf(stderr, "certificate %s: %s\n", name, error.message);
    abort();
}

void fm_test_make_certificates(const char *folder, fm_test_certificates *out) {
    static const char *const here[] = {"localhost", "127.0.0.1"}, *const there[] = {"elsewhere"};
    int64_t now_s = (int64_t)time(NULL);
    fm_certificate_request ca = {
        .kind = FM_CERTIFICATE_AUTHORITY, .from_s = now_s - 9 * HOUR_S, .until_s = now_s + HOUR_S};
    make(folder, "ca", ca, NULL, &out->ca);
    make(folder, "other_ca", ca, NULL, &out->other_ca);
    fm_certificate_request server = ca, client = ca;
    server.kind = FM_CERTIFICATE_SERVER;
    server.hosts = here;
    server.n_host = 2;
    client.kind = FM_CERTIFICATE_CLIENT;
    make(folder, "server", server, &out->ca, &out->server);
    make(folder, "other_server", server, &out->other_ca, &out->other_server);
    make(folder, "client", client, &out->ca, &out->client);
    make(folder, "other_client", client, &out->other_ca, &out->other_client);
    server.until_s = client.until_s = now_s - HOUR_S;
    make(folder, "expired_server", server, &out->ca, &out->expired_server);
    make(folder, "expired_client", client, &out->ca, &out->expired_client);
    server.from_s = now_s + HOUR_S;
    server.until_s = now_s + 2 * HOUR_S;
    make(folder, "future_server", server, &out->ca, &out->future_server);
    server.from_s = ca.from_s;
    server.hosts = there;
    server.n_host = 1;
    make(folder, "elsewhere_server", server, &out->ca, &out->elsewhere_server);
}

fm_credentials fm_test_server(const fm_test_pair *pair, const fm_test_pair *ca) {
    return (fm_credentials){
        .tls_cert = pair->cert, .tls_key = pair->key, .tls_ca = ca ? ca->cert : NULL};
}

fm_credentials fm_test_client(const fm_test_pair *ca, const fm_test_pair *pair) {
    return (fm_credentials){.tls_ca = ca->cert,
                            .tls_cert = pair ? pair->cert : NULL,
                            .tls_key = pair ? pair->key : NULL};
}
