/* Two sessions of TLS in one process, joined by memory: bytes arrive as they were sent, whatever
 * the pieces, and every file or peer that is not what it must be is refused in words. */
#include "proto/base/file.h"
#include "proto/base/tls.h"
#include "tests/testing/certificates.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char folder[200];
static fm_test_certificates made;

/* A client and a server, and the bytes on their way. */
typedef struct pair {
    fm_tls_context *contexts[2];
    fm_tls *client, *server;
    uint8_t way[1 << 20];
} pair;

static fm_tls_context *context_of(fm_tls_side side, const fm_credentials *files,
                                  uint64_t rekey_bytes) {
    const fm_tls_options options = {.side = side,
                                    .cert = files->tls_cert,
                                    .key = files->tls_key,
                                    .ca = files->tls_ca,
                                    .rekey_bytes = rekey_bytes};
    fm_tls_context *context = NULL;
    fm_error error;
    if (fm_tls_context_create(&options, &context, &error)) fail_msg("%s", error.message);
    return context;
}

static pair *open_pair(const fm_credentials *client, const fm_credentials *server, const char *host,
                       uint64_t rekey_bytes) {
    pair *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->contexts[0] = context_of(FM_TLS_CLIENT, client, rekey_bytes);
    p->contexts[1] = context_of(FM_TLS_SERVER, server, rekey_bytes);
    assert_int_equal(fm_tls_open(p->contexts[0], host, &p->client, NULL), FM_OK);
    assert_int_equal(fm_tls_open(p->contexts[1], NULL, &p->server, NULL), FM_OK);
    return p;
}

static void close_pair(pair *p) {
    fm_tls_context_destroy(p->contexts[0]); /* sessions keep what they need */
    fm_tls_context_destroy(p->contexts[1]);
    fm_tls_close(p->client);
    fm_tls_close(p->server);
    free(p);
}

/* Moves what `from` has put out to `to`, which must have taken all before. */
static size_t carry(pair *p, fm_tls *from, fm_tls *to) {
    fm_bytes out = fm_tls_out(from);
    if (out.size) memcpy(p->way, out.data, out.size);
    size_t bytes = out.size;
    fm_tls_sent(from, bytes);
    if (bytes) fm_tls_feed(to, (fm_bytes){p->way, bytes});
    return bytes;
}

/* Completes the handshake; the first failure of a side is its status. */
static void shake(pair *p, fm_status *ret_client, fm_status *ret_server, fm_error *client_error,
                  fm_error *server_error) {
    bool client_ready = false, server_ready = false;
    *ret_client = *ret_server = FM_OK;
    for (int turn = 0; turn < 10; turn++) {
        if (!*ret_client) *ret_client = fm_tls_handshake(p->client, &client_ready, client_error);
        carry(p, p->client, p->server);
        if (!*ret_server) *ret_server = fm_tls_handshake(p->server, &server_ready, server_error);
        if (fm_tls_fed_bytes(p->client) == 0) carry(p, p->server, p->client);
        if (*ret_server && !*ret_client) { /* the alert reaches a client that thinks it is ready */
            uint8_t ignored[16];
            size_t n;
            *ret_client = client_ready
                              ? fm_tls_read(p->client, ignored, sizeof ignored, &n, client_error)
                              : fm_tls_handshake(p->client, &client_ready, client_error);
        }
        if (*ret_client || *ret_server || (client_ready && server_ready)) return;
    }
}

static pair *ready_pair(uint64_t rekey_bytes) {
    fm_credentials client = fm_test_client(&made.ca, &made.client);
    fm_credentials server = fm_test_server(&made.server, &made.ca);
    fm_status of_client, of_server;
    fm_error error = {0}, other = {0};
    pair *p = open_pair(&client, &server, "localhost", rekey_bytes);
    shake(p, &of_client, &of_server, &error, &other);
    if (of_client || of_server) fail_msg("%s %s", error.message, other.message);
    return p;
}

/* -- bytes */

/* Sends `bytes` bytes of a pattern from one side to the other; compares them. */
static void send_pattern(pair *p, fm_tls *from, fm_tls *to, size_t bytes, size_t step) {
    uint8_t *sent = malloc(bytes), *got = malloc(bytes);
    assert_true(sent && got);
    for (size_t i = 0; i < bytes; i++)
        sent[i] = (uint8_t)(i * 31 + i / 251);
    size_t at = 0, arrived = 0;
    while (arrived < bytes) {
        size_t n = bytes - at < step ? bytes - at : step, taken = 0, put;
        fm_tls_reserve(from, n);
        if (n) assert_int_equal(fm_tls_write(from, (fm_bytes){sent + at, n}, &taken, NULL), FM_OK);
        at += taken;
        assert_true(fm_tls_out(from).size <= FM_TLS_PIECE_BYTES + 8192);
        assert_true(carry(p, from, to) > 0);
        do {
            assert_int_equal(fm_tls_read(to, got + arrived, bytes - arrived, &put, NULL), FM_OK);
            arrived += put;
        } while (put && arrived < bytes);
        if (arrived == bytes) {
            assert_int_equal(fm_tls_read(to, &(uint8_t){0}, 1, &put, NULL), FM_OK);
        }
        assert_int_equal(fm_tls_fed_bytes(to), 0);
    }
    assert_memory_equal(sent, got, bytes);
    free(sent);
    free(got);
}

static void bytes_arrive(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 31, 16384, 16385, 262144, 1000003};
    pair *p = ready_pair(0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        send_pattern(p, p->server, p->client, sizes[i], sizes[i]);
        send_pattern(p, p->client, p->server, sizes[i], 777);
    }
    fm_tls_trim(p->server);
    send_pattern(p, p->server, p->client, 100000, 100000);
    char name[FM_TLS_NAME_BYTES];
    assert_string_equal(fm_tls_peer_name(p->server, name), "client");
    assert_string_equal(fm_tls_peer_name(p->client, name), "server");
    close_pair(p);
}

static size_t bytes_of_one(pair *p) {
    uint8_t byte = 0;
    size_t n;
    assert_int_equal(fm_tls_write(p->server, (fm_bytes){&byte, 1}, &n, NULL), FM_OK);
    size_t bytes = carry(p, p->server, p->client);
    assert_int_equal(fm_tls_read(p->client, &byte, 1, &n, NULL), FM_OK);
    assert_int_equal(n, 1);
    return bytes;
}

/* The key changes after so many bytes; the stream does not notice. */
static void keys_change(void **state) {
    (void)state;
    enum { ONE = 5 + 1 + 1 + 16, KEY_UPDATE = 5 + 5 + 1 + 16 }; /* records */
    pair *p = ready_pair(20000);
    assert_int_equal(bytes_of_one(p), ONE);
    send_pattern(p, p->server, p->client, 20000, 20000);
    assert_int_equal(bytes_of_one(p), KEY_UPDATE + ONE);
    assert_int_equal(bytes_of_one(p), ONE);
    send_pattern(p, p->server, p->client, 1000000, 30000);
    send_pattern(p, p->client, p->server, 300000, 16384);
    close_pair(p);
}

static void an_end_is_told_from_a_cut(void **state) {
    (void)state;
    pair *p = ready_pair(0);
    uint8_t byte;
    size_t n;
    send_pattern(p, p->server, p->client, 100, 100);
    assert_false(fm_tls_is_ended(p->client));
    fm_tls_finish(p->server);
    assert_true(carry(p, p->server, p->client) > 0);
    assert_int_equal(fm_tls_read(p->client, &byte, 1, &n, NULL), FM_ERR_CLOSED);
    assert_true(fm_tls_is_ended(p->client));
    close_pair(p);
}

static void changed_bytes_are_refused(void **state) {
    (void)state;
    for (size_t at = 0; at < 60; at++) {
        pair *p = ready_pair(0);
        uint8_t got[64];
        size_t n;
        fm_error error;
        assert_int_equal(fm_tls_write(p->server, (fm_bytes){got, 38}, &n, NULL), FM_OK);
        assert_true(carry(p, p->server, p->client) >= 60);
        p->way[at] ^= 1;
        fm_status status = fm_tls_read(p->client, got, sizeof got, &n, &error);
        /* A length that grew waits for more, and never gives bytes. */
        if (at == 3 || at == 4) {
            assert_true(status || n == 0);
        } else {
            assert_int_not_equal(status, FM_OK);
        }
        if (at >= 5) assert_int_equal(status, FM_ERR_CORRUPT);
        assert_int_equal(n, 0);
        close_pair(p);
    }
}

/* -- peers */

static void expect(const fm_credentials *client, const fm_credentials *server, const char *host,
                   fm_status status, const char *at_client, const char *at_server) {
    fm_status of_client, of_server;
    fm_error client_error = {0}, server_error = {0};
    pair *p = open_pair(client, server, host, 0);
    shake(p, &of_client, &of_server, &client_error, &server_error);
    if (!strstr(client_error.message, at_client)) fail_msg("client: %s", client_error.message);
    if (!strstr(server_error.message, at_server)) fail_msg("server: %s", server_error.message);
    if (of_client) assert_int_equal(of_client, status);
    if (of_server) assert_int_equal(of_server, status);
    assert_true(of_client || of_server);
    close_pair(p);
}

static void peers_are_checked(void **state) {
    (void)state;
    fm_credentials trusting = fm_test_client(&made.ca, NULL);
    fm_credentials other = fm_test_client(&made.other_ca, NULL);
    fm_credentials server = fm_test_server(&made.server, NULL);
    fm_credentials expired = fm_test_server(&made.expired_server, NULL);
    fm_credentials future = fm_test_server(&made.future_server, NULL);
    fm_credentials elsewhere = fm_test_server(&made.elsewhere_server, NULL);
    fm_credentials no_server = fm_test_server(&made.client, NULL);
    fm_credentials demanding = fm_test_server(&made.server, &made.ca);
    expect(&other, &server, "localhost", FM_ERR_DENIED, "--tls-ca must be the ca.crt",
           "the client does not know the authority of this server's certificate");
    expect(&trusting, &expired, "localhost", FM_ERR_DENIED, "has expired; make a new one", "");
    expect(&trusting, &future, "127.0.0.1", FM_ERR_DENIED, "is not valid yet; compare the clocks",
           "");
    expect(&trusting, &elsewhere, "localhost", FM_ERR_DENIED, "does not name localhost", "");
    expect(&trusting, &elsewhere, "127.0.0.1", FM_ERR_DENIED, "does not name 127.0.0.1", "");
    expect(&trusting, &server, "127.0.0.2", FM_ERR_DENIED, "foldmill certs --host 127.0.0.2", "");
    expect(&trusting, &no_server, "localhost", FM_ERR_DENIED, "is for the other side", "");
    expect(&trusting, &demanding, "localhost", FM_ERR_DENIED,
           "the server wants a client certificate; give one by --tls-cert and --tls-key",
           "which --tls-ca demands");
    fm_credentials wrong = fm_test_client(&made.ca, &made.other_client);
    expect(&wrong, &demanding, "localhost", FM_ERR_DENIED,
           "the server does not know the authority of our certificate",
           "does not come from an authority that is trusted here");
    fm_credentials late = fm_test_client(&made.ca, &made.expired_client);
    expect(&late, &demanding, "localhost", FM_ERR_DENIED, "says that our certificate has expired",
           "the client's certificate, or its authority's, has expired");
    fm_credentials no_client = fm_test_client(&made.ca, &made.server);
    expect(&no_client, &demanding, "localhost", FM_ERR_DENIED, "the server refuses our certificate",
           "the client needs one for clients");
}

/* A peer that speaks something else, from the first byte. */
static void no_tls_is_said(void **state) {
    (void)state;
    fm_credentials client = fm_test_client(&made.ca, NULL);
    fm_credentials server = fm_test_server(&made.server, NULL);
    pair *p = open_pair(&client, &server, "localhost", 0);
    static const uint8_t frame[64] = "FOM1\1\1";
    bool ready;
    fm_error error;
    assert_int_equal(fm_tls_handshake(p->client, &ready, NULL), FM_OK);
    fm_tls_feed(p->client, (fm_bytes){frame, sizeof frame});
    assert_int_equal(fm_tls_handshake(p->client, &ready, &error), FM_ERR_PROTOCOL);
    assert_non_null(strstr(error.message, "the server speaks no TLS at this address"));
    fm_tls_feed(p->server, (fm_bytes){frame, sizeof frame});
    assert_int_equal(fm_tls_handshake(p->server, &ready, &error), FM_ERR_PROTOCOL);
    assert_non_null(strstr(error.message, "the client speaks no TLS"));
    close_pair(p);
}

/* -- files */

static void write_file(const char *name, const char *text, char *out_path) {
    snprintf(out_path, FM_TEST_PATH_BYTES, "%s/%s", folder, name);
    assert_int_equal(fm_file_write_atomic(out_path, text, strlen(text), NULL), FM_OK);
}

static void files_are_checked(void **state) {
    (void)state;
    char text[FM_TEST_PATH_BYTES], locked[FM_TEST_PATH_BYTES], command[1200], cut[1200];
    write_file("text", "not a certificate\n", text);
    snprintf(locked, sizeof locked, "%s/locked", folder);
    snprintf(command, sizeof command,
             "openssl pkcs8 -topk8 -in %s -out %s -passout pass:secret 2>/dev/null",
             made.server.key, locked);
    assert_int_equal(system(command), 0);
    char half[FM_TEST_PATH_BYTES];
    snprintf(half, sizeof half, "%s/half", folder);
    snprintf(cut, sizeof cut, "(cat %s; head -c 300 %s) >%s", made.server.cert, made.ca.cert, half);
    assert_int_equal(system(cut), 0);
    const struct {
        fm_tls_options options;
        fm_status status;
        const char *words;
    } cases[] = {
        {{.side = FM_TLS_SERVER}, FM_ERR_USAGE, "a tls:// address needs both --tls-cert and"},
        {{.side = FM_TLS_CLIENT, .key = text}, FM_ERR_USAGE, "a client certificate needs both"},
        {{.side = FM_TLS_SERVER, .cert = "/nowhere", .key = text}, FM_ERR_NOT_FOUND, ""},
        {{.side = FM_TLS_SERVER, .cert = text, .key = made.server.key},
         FM_ERR_FORMAT,
         "expected certificates in PEM form; number 1 is none"},
        {{.side = FM_TLS_SERVER, .cert = half, .key = made.server.key},
         FM_ERR_FORMAT,
         "number 2 is none"},
        {{.side = FM_TLS_SERVER, .cert = made.server.cert, .key = text},
         FM_ERR_FORMAT,
         "expected a private key in PEM form"},
        {{.side = FM_TLS_SERVER, .cert = made.server.cert, .key = locked},
         FM_ERR_FORMAT,
         "the key has a passphrase"},
        {{.side = FM_TLS_SERVER, .cert = made.server.cert, .key = made.client.key},
         FM_ERR_DATA,
         "the key does not belong to the certificate"},
        {{.side = FM_TLS_CLIENT, .ca = text}, FM_ERR_FORMAT, "expected certificates"},
        {{.side = FM_TLS_CLIENT, .ca = made.ca.key},
         FM_ERR_FORMAT,
         "found a private key, expected certificates in PEM form"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_tls_context *context = NULL;
        fm_error error = {0};
        assert_int_equal(fm_tls_context_create(&cases[i].options, &context, &error),
                         cases[i].status);
        if (!strstr(error.message, cases[i].words)) fail_msg("%zu: %s", i, error.message);
    }
    struct stat info;
    assert_int_equal(stat(made.server.key, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void tokens_are_read(void **state) {
    (void)state;
    char good[FM_TEST_PATH_BYTES], bad[FM_TEST_PATH_BYTES], out[FM_WIRE_SECRET_BYTES + 1];
    fm_error error;
    write_file("token", "0123456789abcdef\n", good);
    fm_credentials credentials = {.token_file = good};
    assert_int_equal(setenv("FOLDMILL_TOKEN", "fedcba9876543210", 1), 0);
    assert_int_equal(fm_credentials_read_token(&credentials, out, &error), FM_OK);
    assert_string_equal(out, "0123456789abcdef");
    static const char *const wrong[] = {"", "short\n", "0123456789abcdef\n0123456789abcdef\n",
                                        "0123456789 abcdefgh\n", "0123456789abcdef\x7f\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        write_file("wrong", wrong[i], bad);
        credentials.token_file = bad;
        assert_int_equal(fm_credentials_read_token(&credentials, out, &error), FM_ERR_FORMAT);
        assert_string_equal(error.source, bad);
    }
    credentials.token_file = NULL;
    assert_int_equal(fm_credentials_read_token(&credentials, out, &error), FM_OK);
    assert_string_equal(out, "fedcba9876543210");
    assert_int_equal(setenv("FOLDMILL_TOKEN", "short", 1), 0);
    assert_int_equal(fm_credentials_read_token(&credentials, out, &error), FM_ERR_FORMAT);
    assert_null(strstr(error.message, "short")); /* a secret is not repeated */
    assert_int_equal(unsetenv("FOLDMILL_TOKEN"), 0);
    assert_int_equal(fm_credentials_read_token(&credentials, out, &error), FM_OK);
    assert_string_equal(out, "");
    credentials.token_file = good;
    assert_int_equal(chmod(good, 0600), 0);
    assert_null(fm_credentials_exposed(&credentials));
    assert_int_equal(chmod(good, 0604), 0);
    assert_string_equal(fm_credentials_exposed(&credentials), good);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive),
        cmocka_unit_test(keys_change),
        cmocka_unit_test(an_end_is_told_from_a_cut),
        cmocka_unit_test(changed_bytes_are_refused),
        cmocka_unit_test(peers_are_checked),
        cmocka_unit_test(no_tls_is_said),
        cmocka_unit_test(files_are_checked),
        cmocka_unit_test(tokens_are_read),
    };
    fm_test_make_folder(folder, sizeof folder);
    fm_test_make_certificates(folder, &made);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fm_test_remove_tree(folder);
    return failed;
}
