/* tls.c: see tls.h.
 *
 * OpenSSL reads and writes through a BIO of our own, which is two ranges of the session: `in`, what
 * the owner fed, and `out`, a buffer of fixed capacity. Such a BIO never blocks and never grows. A
 * write of application data is cut to what surely fits. So only the handshake, alerts and answers
 * to KeyUpdate can find `out` full. They are tried again with the next call.
 *
 * `out` holds the unsent bytes [out_first, out_used). It only moves while it is empty, because the
 * owner may have given its bytes to the kernel. */
#include "proto/base/tls.h"

#include "proto/base/file.h"
#include "proto/base/tls_explain.h"

#include <arpa/inet.h>
#include <assert.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    FILE_BYTES = 1 << 20,    /* of a PEM file */
    RECORD_BYTES = 16384,    /* plain bytes of a full record */
    OVERHEAD_BYTES = 256,    /* at most, of a record: header, type, code (22 bytes today) */
    SMALL_OUT_BYTES = 20480, /* a handshake's flight, or one record */
    SPARE_OUT_BYTES = 2048,  /* kept for alerts and KeyUpdate beside application data */
    N_RECORD = FM_TLS_PIECE_BYTES / RECORD_BYTES,
    PIECE_OUT_BYTES = FM_TLS_PIECE_BYTES + N_RECORD * OVERHEAD_BYTES + SPARE_OUT_BYTES,
};

static const uint64_t default_rekey_bytes = (uint64_t)1 << 36;

struct fm_tls_context {
    uint32_t n_user; /* the creator and the sessions */
    fm_tls_side side;
    SSL_CTX *ssl;
    BIO_METHOD *method;
    int64_t expiry;
    uint64_t rekey_bytes;
};

struct fm_tls {
    fm_tls_context *context;
    SSL *ssl;
    fm_bytes in;
    uint8_t *out;
    size_t out_capacity, out_first, out_used;
    bool is_ready;
    uint64_t n_plain; /* bytes sent with the current key */
    char host[256];
};

/* -- the BIO */

static int take_fed(BIO *bio, char *to, int bytes) {
    fm_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (tls->in.size == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t n = tls->in.size < (size_t)bytes ? tls->in.size : (size_t)bytes;
    memcpy(to, tls->in.data, n);
    tls->in.data += n;
    tls->in.size -= n;
    return (int)n;
}

static int put_out(BIO *bio, const char *from, int bytes) {
    fm_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    size_t room = tls->out_capacity - tls->out_used;
    if (room == 0) {
        BIO_set_retry_write(bio);
        return -1;
    }
    size_t n = room < (size_t)bytes ? room : (size_t)bytes;
    memcpy(tls->out + tls->out_used, from, n);
    tls->out_used += n;
    return (int)n;
}

static long control(BIO *bio, int command, long number, void *pointer) {
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_method(void) {
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "fm_tls");
    if (!method) return NULL;
    BIO_meth_set_read(method, take_fed);
    BIO_meth_set_write(method, put_out);
    BIO_meth_set_ctrl(method, control);
    return method;
}

/* -- files */

/* Never asks a terminal for a passphrase. */
static int refuse_passphrase(char *out, int capacity, int is_encrypting, void *is_asked) {
    (void)out;
    (void)capacity;
    (void)is_encrypting;
    *(bool *)is_asked = true;
    return -1;
}

static fm_status read_file(const char *path, fm_arena *arena, BIO **ret_bio, fm_error *reterr) {
    fm_bytes content;
    fm_status status = fm_arena_init(arena, FILE_BYTES + 4096, reterr);
    if (!status) status = fm_file_read(arena, path, FILE_BYTES, &content, reterr);
    BIO *bio = status ? NULL : BIO_new_mem_buf(content.data, (int)content.size);
    if (!status && !bio) status = fm_fail(reterr, FM_ERR_NOMEM, "no memory to read %s", path);
    if (status) {
        fm_arena_fini(arena);
        return status;
    }
    *ret_bio = bio;
    return FM_OK;
}

/* Gives each certificate of a PEM file to `take`, which owns it. */
static fm_status read_certificates(const char *path,
                                   bool (*take)(fm_tls_context *context, X509 *one, size_t i),
                                   fm_tls_context *context, fm_error *reterr) {
    fm_arena arena = {0};
    BIO *bio;
    fm_status status = read_file(path, &arena, &bio, reterr);
    if (status) return status;
    size_t n = 0;
    bool is_taken = true;
    char *text = NULL;
    long bytes = BIO_get_mem_data(bio, &text);
    bool is_key = bytes > 0 && memmem(text, (size_t)bytes, "PRIVATE KEY-----", 16) &&
                  !memmem(text, (size_t)bytes, "BEGIN CERTIFICATE", 17);
    for (X509 *one; is_taken && (one = PEM_read_bio_X509(bio, NULL, NULL, NULL)); n++)
        is_taken = take(context, one, n);
    BIO_free(bio);
    fm_arena_fini(&arena);
    bool is_at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    const char *reason = fm_tls_take_reason();
    if (n && !is_taken) {
        return fm_fail_in(reterr, FM_ERR_FORMAT, path, "certificate %zu cannot be used: %s", n,
                          reason);
    }
    if (n && is_at_end) return FM_OK;
    if (is_key) {
        return fm_fail_in(reterr, FM_ERR_FORMAT, path,
                          "found a private key, expected certificates in PEM form");
    }
    return fm_fail_in(reterr, FM_ERR_FORMAT, path,
                      "expected certificates in PEM form; number %zu is none", n + 1);
}

static int64_t seconds_of(const ASN1_TIME *time) {
    struct tm parts;
    return ASN1_TIME_to_tm(time, &parts) ? (int64_t)timegm(&parts) : 0;
}

/* The first is the own certificate; the others lead to its root. */
static bool take_own(fm_tls_context *context, X509 *one, size_t i) {
    bool is_taken = i == 0 ? SSL_CTX_use_certificate(context->ssl, one) == 1
                           : SSL_CTX_add1_chain_cert(context->ssl, one) == 1;
    if (i == 0) context->expiry = seconds_of(X509_get0_notAfter(one));
    X509_free(one);
    return is_taken;
}

static bool take_authority(fm_tls_context *context, X509 *one, size_t i) {
    (void)i;
    bool is_taken = X509_STORE_add_cert(SSL_CTX_get_cert_store(context->ssl), one) == 1;
    /* A client with several certificates learns from the names which one is meant. */
    if (is_taken && context->side == FM_TLS_SERVER) {
        is_taken = SSL_CTX_add_client_CA(context->ssl, one) == 1;
    }
    X509_free(one);
    return is_taken;
}

static fm_status read_key(fm_tls_context *context, const fm_tls_options *options,
                          fm_error *reterr) {
    fm_arena arena = {0};
    BIO *bio;
    fm_status status = read_file(options->key, &arena, &bio, reterr);
    if (status) return status;
    bool is_encrypted = false;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, refuse_passphrase, &is_encrypted);
    BIO_free(bio);
    fm_arena_fini(&arena);
    ERR_clear_error();
    if (!key) {
        return fm_fail_in(reterr, FM_ERR_FORMAT, options->key,
                          is_encrypted ? "the key has a passphrase, expected a key without one"
                                       : "expected a private key in PEM form");
    }
    bool is_used = SSL_CTX_use_PrivateKey(context->ssl, key) == 1 &&
                   SSL_CTX_check_private_key(context->ssl) == 1;
    EVP_PKEY_free(key);
    ERR_clear_error();
    if (is_used) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_DATA, options->key,
                      "the key does not belong to the certificate %.200s", options->cert);
}

static fm_status read_files(fm_tls_context *context, const fm_tls_options *options,
                            fm_error *reterr) {
    if (!options->cert != !options->key || (context->side == FM_TLS_SERVER && !options->cert)) {
        return fm_fail(reterr, FM_ERR_USAGE, "%s --tls-cert and --tls-key",
                       context->side == FM_TLS_SERVER ? "a tls:// address needs both"
                                                      : "a client certificate needs both");
    }
    fm_status status =
        options->cert ? read_certificates(options->cert, take_own, context, reterr) : FM_OK;
    if (!status && options->key) status = read_key(context, options, reterr);
    if (status) return status;
    if (options->ca) return read_certificates(options->ca, take_authority, context, reterr);
    if (context->side == FM_TLS_CLIENT) SSL_CTX_set_default_verify_paths(context->ssl);
    return FM_OK;
}

/* -- contexts */

/* The wire form of the one protocol: its length and its name. */
static const unsigned char alpn[] = {
    sizeof FM_TLS_ALPN - 1, 'f', 'o', 'l', 'd', 'm', 'i', 'l', 'l', '/', '1'};

static int choose_alpn(SSL *ssl, const unsigned char **ret_name, unsigned char *ret_bytes,
                       const unsigned char *offered, unsigned offered_bytes, void *unused) {
    (void)ssl;
    (void)unused;
    unsigned char *found;
    int how = SSL_select_next_proto(&found, ret_bytes, alpn, sizeof alpn, offered, offered_bytes);
    *ret_name = found;
    return how == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* OpenSSL does not call choose_alpn for a client that offers nothing. */
static int demand_alpn(SSL *ssl, int *ret_alert, void *unused) {
    (void)unused;
    const unsigned char *extension;
    size_t bytes;
    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation,
                                  &extension, &bytes)) {
        return SSL_CLIENT_HELLO_SUCCESS;
    }
    *ret_alert = SSL_AD_NO_APPLICATION_PROTOCOL;
    return SSL_CLIENT_HELLO_ERROR;
}

static bool set_rules(fm_tls_context *context, bool has_ca) {
    SSL_CTX *ssl = context->ssl;
    SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    if (context->side == FM_TLS_SERVER) {
        SSL_CTX_set_alpn_select_cb(ssl, choose_alpn, NULL);
        SSL_CTX_set_client_hello_cb(ssl, demand_alpn, NULL);
        int demand = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
        SSL_CTX_set_verify(ssl, has_ca ? demand : SSL_VERIFY_NONE, NULL);
    } else {
        SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
        if (SSL_CTX_set_alpn_protos(ssl, alpn, sizeof alpn)) return false; /* 0 is success */
    }
    return SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) &&
           SSL_CTX_set_max_proto_version(ssl, TLS1_3_VERSION) && SSL_CTX_set_num_tickets(ssl, 0) &&
           SSL_CTX_set_ciphersuites(ssl, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                                         "TLS_CHACHA20_POLY1305_SHA256");
}

fm_status fm_tls_context_create(const fm_tls_options *options, fm_tls_context **ret_context,
                                fm_error *reterr) {
    fm_tls_context *context = calloc(1, sizeof *context);
    if (!context) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for TLS");
    context->n_user = 1;
    context->side = options->side;
    context->rekey_bytes = options->rekey_bytes ? options->rekey_bytes : default_rekey_bytes;
    context->method = make_method();
    context->ssl = SSL_CTX_new(TLS_method());
    fm_status status = FM_OK;
    if (!context->method || !context->ssl || !set_rules(context, options->ca != NULL)) {
        status = fm_fail(reterr, FM_ERR_UNSUPPORTED, "this OpenSSL cannot do TLS 1.3: %s",
                         fm_tls_take_reason());
    }
    if (!status) status = read_files(context, options, reterr);
    if (status) {
        fm_tls_context_destroy(context);
        return status;
    }
    *ret_context = context;
    return FM_OK;
}

void fm_tls_context_destroy(fm_tls_context *context) {
    if (!context || --context->n_user) return;
    SSL_CTX_free(context->ssl);
    BIO_meth_free(context->method);
    free(context);
}

int64_t fm_tls_context_get_expiry(const fm_tls_context *context) {
    return context->expiry;
}

/* -- sessions */

static bool is_ip_address(const char *host) {
    uint8_t ignored[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, ignored) == 1 || inet_pton(AF_INET6, host, ignored) == 1;
}

/* Sets the name that the server's certificate must have. */
static bool expect_host(SSL *ssl, const char *host) {
    if (is_ip_address(host)) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

fm_status fm_tls_open(fm_tls_context *context, const char *host, fm_tls **ret_tls,
                      fm_error *reterr) {
    assert(!host == (context->side == FM_TLS_SERVER));
    fm_tls *tls = calloc(1, sizeof *tls);
    if (!tls) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for TLS");
    tls->context = context;
    context->n_user++;
    tls->out_capacity = SMALL_OUT_BYTES;
    tls->out = malloc(tls->out_capacity);
    tls->ssl = SSL_new(context->ssl);
    BIO *bio = BIO_new(context->method);
    bool is_made = tls->out && tls->ssl && bio;
    if (is_made) {
        BIO_set_data(bio, tls);
        BIO_set_init(bio, 1);
        SSL_set_bio(tls->ssl, bio, bio); /* owns it */
    } else {
        BIO_free(bio);
    }
    if (is_made && host) {
        snprintf(tls->host, sizeof tls->host, "%s", host);
        is_made = expect_host(tls->ssl, host);
    }
    if (!is_made) {
        fm_tls_close(tls);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for TLS: %s", fm_tls_take_reason());
    }
    if (host) {
        SSL_set_connect_state(tls->ssl);
    } else {
        SSL_set_accept_state(tls->ssl);
    }
    *ret_tls = tls;
    return FM_OK;
}

void fm_tls_close(fm_tls *tls) {
    if (!tls) return;
    SSL_free(tls->ssl);
    fm_tls_context_destroy(tls->context);
    free(tls->out);
    free(tls);
}

/* -- bytes in */

void fm_tls_feed(fm_tls *tls, fm_bytes received) {
    assert(tls->in.size == 0);
    tls->in = received;
}

size_t fm_tls_fed_bytes(const fm_tls *tls) {
    return tls->in.size;
}

/* What a call of OpenSSL that did not succeed means: FM_OK when more bytes have to move first. */
static fm_status check_result(fm_tls *tls, int result, fm_error *reterr) {
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
    case SSL_ERROR_WANT_CLIENT_HELLO_CB: return FM_OK;
    case SSL_ERROR_ZERO_RETURN: return fm_fail(reterr, FM_ERR_CLOSED, "the peer closed");
    default:
        return fm_tls_explain(tls->context->side, tls->host, SSL_get_verify_result(tls->ssl),
                              reterr);
    }
}

fm_status fm_tls_handshake(fm_tls *tls, bool *ret_ready, fm_error *reterr) {
    ERR_clear_error();
    int result = tls->is_ready ? 1 : SSL_do_handshake(tls->ssl);
    if (result != 1) {
        *ret_ready = false;
        return check_result(tls, result, reterr);
    }
    const unsigned char *name;
    unsigned bytes;
    SSL_get0_alpn_selected(tls->ssl, &name, &bytes);
    if (bytes != sizeof FM_TLS_ALPN - 1 || memcmp(name, FM_TLS_ALPN, bytes) != 0) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "the peer does not speak " FM_TLS_ALPN " (ALPN)");
    }
    tls->is_ready = *ret_ready = true;
    return FM_OK;
}

fm_status fm_tls_read(fm_tls *tls, void *out, size_t capacity, size_t *ret_bytes,
                      fm_error *reterr) {
    ERR_clear_error();
    *ret_bytes = 0;
    int result = SSL_read_ex(tls->ssl, out, capacity, ret_bytes);
    return result == 1 ? FM_OK : check_result(tls, result, reterr);
}

/* -- bytes out */

void fm_tls_reserve(fm_tls *tls, size_t plain_bytes) {
    if (plain_bytes <= RECORD_BYTES || tls->out_used) return;
    if (tls->out_capacity == PIECE_OUT_BYTES) return;
    uint8_t *grown = malloc(PIECE_OUT_BYTES);
    if (!grown) return;
    free(tls->out);
    tls->out = grown;
    tls->out_capacity = PIECE_OUT_BYTES;
}

/* The plain bytes whose records surely fit `out`. */
static size_t plain_room(const fm_tls *tls) {
    size_t room = tls->out_capacity - tls->out_used;
    if (room <= SPARE_OUT_BYTES + OVERHEAD_BYTES) return 0;
    room -= SPARE_OUT_BYTES;
    size_t n_record = room / (RECORD_BYTES + OVERHEAD_BYTES);
    return n_record ? n_record * RECORD_BYTES : room - OVERHEAD_BYTES;
}

fm_status fm_tls_write(fm_tls *tls, fm_bytes plain, size_t *ret_bytes, fm_error *reterr) {
    assert(tls->is_ready);
    ERR_clear_error();
    *ret_bytes = 0;
    size_t bytes = plain_room(tls);
    if (bytes > plain.size) bytes = plain.size;
    if (tls->n_plain >= tls->context->rekey_bytes &&
        SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
        tls->n_plain = 0;
    }
    if (bytes == 0) return FM_OK;
    int result = SSL_write_ex(tls->ssl, plain.data, bytes, ret_bytes);
    tls->n_plain += *ret_bytes;
    return result == 1 ? FM_OK : check_result(tls, result, reterr);
}

void fm_tls_finish(fm_tls *tls) {
    ERR_clear_error();
    if (tls->is_ready) (void)SSL_shutdown(tls->ssl); /* 0: the peer has not said the same yet */
    ERR_clear_error();
}

fm_bytes fm_tls_out(const fm_tls *tls) {
    return (fm_bytes){tls->out + tls->out_first, tls->out_used - tls->out_first};
}

void fm_tls_sent(fm_tls *tls, size_t bytes) {
    assert(bytes <= tls->out_used - tls->out_first);
    tls->out_first += bytes;
    if (tls->out_first == tls->out_used) tls->out_first = tls->out_used = 0;
}

void fm_tls_trim(fm_tls *tls) {
    if (tls->out_used || tls->out_capacity == SMALL_OUT_BYTES) return;
    uint8_t *small = realloc(tls->out, SMALL_OUT_BYTES);
    if (!small) return;
    tls->out = small;
    tls->out_capacity = SMALL_OUT_BYTES;
}

/* -- about the peer */

bool fm_tls_is_ended(const fm_tls *tls) {
    return (SSL_get_shutdown(tls->ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
}

const char *fm_tls_peer_name(const fm_tls *tls, char out[FM_TLS_NAME_BYTES]) {
    out[0] = '\0';
    const X509 *peer = SSL_get0_peer_certificate(tls->ssl);
    const X509_NAME *subject = peer ? X509_get_subject_name(peer) : NULL;
    int at = subject ? X509_NAME_get_index_by_NID(subject, NID_commonName, -1) : -1;
    if (at < 0) return out;
    const ASN1_STRING *name = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
    size_t bytes = (size_t)ASN1_STRING_length(name);
    if (bytes >= FM_TLS_NAME_BYTES) bytes = FM_TLS_NAME_BYTES - 1;
    memcpy(out, ASN1_STRING_get0_data(name), bytes);
    out[bytes] = '\0';
    return out;
}

static_assert(sizeof alpn == sizeof FM_TLS_ALPN, "the wire form has the length of the name");
