/* certificates.c: see certificates.h. */
#include "proto/base/certificates.h"

#include "proto/base/bytes.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <unistd.h>

enum {
    NAME_BYTES = 63,
    HOST_BYTES = 253, /* of a name in DNS */
    SERIAL_BYTES = 16,
    FILE_BYTES = 1 << 16,
};

static fm_status fail_openssl(const char *what, fm_error *reterr) {
    const char *words = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return fm_fail(reterr, FM_ERR_UNSUPPORTED, "cannot make %s: %s", what,
                   words ? words : "OpenSSL gives no reason");
}

/* -- what a certificate says */

static bool set_serial(X509 *cert) {
    unsigned char bytes[SERIAL_BYTES];
    if (RAND_bytes(bytes, sizeof bytes) != 1) return false;
    bytes[0] &= 0x7f; /* a serial number is positive */
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool is_set = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return is_set;
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool is_added = extension && X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
    return is_added;
}

static bool add_usage(X509 *cert, X509 *issuer, fm_certificate_kind kind) {
    bool is_authority = kind == FM_CERTIFICATE_AUTHORITY;
    const char *usage = is_authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature";
    const char *limits = is_authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE";
    const char *purpose = kind == FM_CERTIFICATE_SERVER ? "serverAuth" : "clientAuth";
    return add_extension(cert, issuer, NID_basic_constraints, limits) &&
           add_extension(cert, issuer, NID_key_usage, usage) &&
           (is_authority || add_extension(cert, issuer, NID_ext_key_usage, purpose)) &&
           add_extension(cert, issuer, NID_subject_key_identifier, "hash") &&
           (is_authority || add_extension(cert, issuer, NID_authority_key_identifier, "keyid"));
}

static bool is_host_name(const char *host) {
    size_t bytes = strlen(host);
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.*";
    /* Digits and dots alone are an address that is mistyped: no name ends with a number. */
    bool is_number = strspn(host, "0123456789.") == bytes;
    return bytes >= 1 && bytes <= HOST_BYTES && strspn(host, allowed) == bytes && !is_number;
}

/* Names go in as names, addresses as addresses: TLS compares them in different ways. */
static GENERAL_NAME *make_name(const char *host) {
    uint8_t address[16];
    int bytes = inet_pton(AF_INET, host, address) == 1    ? 4
                : inet_pton(AF_INET6, host, address) == 1 ? 16
                                                          : 0;
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_STRING *value = bytes ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
    bool is_set = name && value &&
                  ASN1_STRING_set(value, bytes ? (const void *)address : host,
                                  bytes ? bytes : (int)strlen(host));
    if (!is_set) {
        GENERAL_NAME_free(name);
        ASN1_STRING_free(value);
        return NULL;
    }
    GENERAL_NAME_set0_value(name, bytes ? GEN_IPADD : GEN_DNS, value);
    return name;
}

static bool add_hosts(X509 *cert, const fm_certificate_request *request) {
    GENERAL_NAMES *names = GENERAL_NAMES_new();
    bool is_added = names != NULL;
    for (size_t i = 0; is_added && i < request->n_host; i++) {
        GENERAL_NAME *name = make_name(request->hosts[i]);
        is_added = name && sk_GENERAL_NAME_push(names, name);
        if (!is_added) GENERAL_NAME_free(name);
    }
    is_added = is_added && X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0, 0) == 1;
    GENERAL_NAMES_free(names);
    return is_added;
}

static bool fill(X509 *cert, X509 *issuer, EVP_PKEY *key, const fm_certificate_request *request) {
    X509_NAME *subject = X509_get_subject_name(cert);
    const unsigned char *name = (const unsigned char *)request->name;
    return X509_set_version(cert, X509_VERSION_3) && set_serial(cert) &&
           ASN1_TIME_set(X509_getm_notBefore(cert), (time_t)request->from_s) &&
           ASN1_TIME_set(X509_getm_notAfter(cert), (time_t)request->until_s) &&
           X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, name, -1, -1, 0) &&
           X509_set_issuer_name(cert, X509_get_subject_name(issuer)) &&
           X509_set_pubkey(cert, key) && add_usage(cert, issuer, request->kind) &&
           (request->n_host == 0 || add_hosts(cert, request));
}

/* -- files */

static fm_status read_pem(const char *path, fm_arena *arena, BIO **ret_bio, fm_error *reterr) {
    fm_bytes text;
    fm_status status = fm_file_read(arena, path, FILE_BYTES, &text, reterr);
    if (status) return status;
    *ret_bio = BIO_new_mem_buf(text.data, (int)text.size);
    return *ret_bio ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory to read %s", path);
}

/* Reads the certificate and key of an authority; the caller frees both. */
static fm_status read_authority(const fm_certificate_files *files, X509 **ret_cert,
                                EVP_PKEY **ret_key, fm_error *reterr) {
    fm_arena arena = {0};
    BIO *cert = NULL, *key = NULL;
    fm_status status = fm_arena_init(&arena, 4 * FILE_BYTES, reterr);
    if (!status) status = read_pem(files->cert, &arena, &cert, reterr);
    if (!status) status = read_pem(files->key, &arena, &key, reterr);
    if (!status) {
        *ret_cert = PEM_read_bio_X509(cert, NULL, NULL, NULL);
        *ret_key = PEM_read_bio_PrivateKey(key, NULL, NULL, (void *)(uintptr_t) "");
        bool is_pair = *ret_cert && *ret_key && X509_check_private_key(*ret_cert, *ret_key) == 1;
        if (!is_pair || X509_check_ca(*ret_cert) != 1) {
            status = fm_fail_in(reterr, FM_ERR_FORMAT, files->cert,
                                "expected the certificate of an authority, and its key without "
                                "passphrase in %.200s",
                                files->key);
        }
    }
    ERR_clear_error();
    BIO_free(cert);
    BIO_free(key);
    fm_arena_fini(&arena);
    return status;
}

static int put_certificate(BIO *bio, void *cert) {
    return PEM_write_bio_X509(bio, cert);
}

static int put_key(BIO *bio, void *key) {
    return PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
}

/* `put` writes one PEM object to the memory BIO that is returned; NULL when it cannot. */
static BIO *make_pem(int (*put)(BIO *bio, void *object), void *object) {
    BIO *bio = BIO_new(BIO_s_mem());
    if (bio && put(bio, object) == 1) return bio;
    BIO_free(bio);
    return NULL;
}

static fm_status append(fm_file_writer *writer, BIO *from, fm_error *reterr) {
    char *text = NULL;
    long bytes = BIO_get_mem_data(from, &text);
    return fm_file_writer_append(writer, text, (size_t)bytes, reterr);
}

/* Both files take their places together. So a full disk leaves the files of before, or none, and no
 * key beside the certificate of another one. */
static fm_status write_pair(const fm_certificate_files *out, BIO *cert, BIO *key,
                            fm_error *reterr) {
    fm_path_kind old_cert, old_key;
    fm_file_writer *cert_writer = NULL, *key_writer = NULL;
    fm_status status = fm_path_look(out->cert, &old_cert, reterr);
    if (!status) status = fm_path_look(out->key, &old_key, reterr);
    if (!status) status = fm_file_writer_open(out->cert, &cert_writer, reterr);
    if (!status) status = fm_file_writer_open_secret(out->key, &key_writer, reterr);
    if (!status) status = append(cert_writer, cert, reterr);
    if (!status) status = append(key_writer, key, reterr);
    if (status) {
        fm_file_writer_discard(cert_writer);
        fm_file_writer_discard(key_writer);
        return status;
    }
    status = fm_file_writer_commit_pair(key_writer, cert_writer, reterr);
    if (status && old_cert == FM_PATH_ABSENT && old_key == FM_PATH_ABSENT) {
        unlink(out->key);
        unlink(out->cert);
    }
    return status;
}

/* -- making one */

fm_status fm_certificate_check(const fm_certificate_request *request, fm_error *reterr) {
    size_t bytes = strlen(request->name);
    if (bytes < 1 || bytes > NAME_BYTES) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "a certificate's name has 1 to %d bytes, '%.80s' has %zu", NAME_BYTES,
                       request->name, bytes);
    }
    for (size_t i = 0; i < request->n_host; i++) {
        uint8_t ignored[16];
        const char *host = request->hosts[i];
        bool is_address =
            inet_pton(AF_INET, host, ignored) == 1 || inet_pton(AF_INET6, host, ignored) == 1;
        if (is_address || is_host_name(host)) continue;
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "host '%.200s', expected a name, an IPv4 or an IPv6 address without port and "
            "brackets",
            host);
    }
    return FM_OK;
}

fm_status fm_certificate_make(const fm_certificate_request *request,
                              const fm_certificate_files *authority,
                              const fm_certificate_files *out, fm_error *reterr) {
    fm_status status = fm_certificate_check(request, reterr);
    X509 *issuer = NULL, *cert = NULL;
    EVP_PKEY *issuer_key = NULL, *key = NULL;
    bool is_self_signed = request->kind == FM_CERTIFICATE_AUTHORITY;
    if (!status && !is_self_signed) {
        status = read_authority(authority, &issuer, &issuer_key, reterr);
    }
    if (!status) {
        cert = X509_new();
        key = EVP_EC_gen("P-256");
        bool is_made = cert && key && fill(cert, is_self_signed ? cert : issuer, key, request) &&
                       X509_sign(cert, is_self_signed ? key : issuer_key, EVP_sha256());
        if (!is_made) status = fail_openssl("a certificate", reterr);
    }
    BIO *cert_text = status ? NULL : make_pem(put_certificate, cert);
    BIO *key_text = status ? NULL : make_pem(put_key, key);
    if (!status && !(cert_text && key_text)) status = fail_openssl("a PEM file", reterr);
    if (!status) status = write_pair(out, cert_text, key_text, reterr);
    BIO_free(cert_text);
    BIO_free(key_text);
    EVP_PKEY_free(key);
    EVP_PKEY_free(issuer_key);
    X509_free(cert);
    X509_free(issuer);
    return status;
}
