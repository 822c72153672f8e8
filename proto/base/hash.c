/* hash.c: see hash.h. */
#include "proto/base/hash.h"

#include <assert.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <xxhash.h>

uint64_t fm_xxh3(const void *data, size_t size) {
    return XXH3_64bits(data, size);
}

fm_xxh3_state *fm_xxh3_create(void) {
    XXH3_state_t *state = XXH3_createState();
    assert(state);
    XXH3_64bits_reset(state);
    return (fm_xxh3_state *)state;
}

void fm_xxh3_update(fm_xxh3_state *state, const void *data, size_t size) {
    XXH3_64bits_update((XXH3_state_t *)state, data, size);
}

uint64_t fm_xxh3_digest(const fm_xxh3_state *state) {
    return XXH3_64bits_digest((const XXH3_state_t *)state);
}

void fm_xxh3_destroy(fm_xxh3_state *state) {
    XXH3_freeState((XXH3_state_t *)state);
}

fm_sha256 fm_sha256_of(const void *data, size_t size) {
    fm_sha256 hash;
    int ok = EVP_Digest(data, size, hash.bytes, NULL, EVP_sha256(), NULL);
    assert(ok == 1);
    (void)ok;
    return hash;
}

fm_sha256_state *fm_sha256_create(void) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    assert(context);
    int ok = EVP_DigestInit_ex(context, EVP_sha256(), NULL);
    assert(ok == 1);
    (void)ok;
    return (fm_sha256_state *)context;
}

void fm_sha256_update(fm_sha256_state *state, const void *data, size_t size) {
    int ok = EVP_DigestUpdate((EVP_MD_CTX *)state, data, size);
    assert(ok == 1);
    (void)ok;
}

fm_sha256 fm_sha256_digest(fm_sha256_state *state) {
    fm_sha256 hash;
    int ok = EVP_DigestFinal_ex((EVP_MD_CTX *)state, hash.bytes, NULL);
    assert(ok == 1);
    (void)ok;
    return hash;
}

void fm_sha256_destroy(fm_sha256_state *state) {
    EVP_MD_CTX_free((EVP_MD_CTX *)state);
}

fm_sha256 fm_hmac_sha256(const void *key, size_t key_size, const void *data, size_t size) {
    fm_sha256 hash;
    unsigned int written = sizeof hash.bytes;
    assert(key_size <= INT_MAX);
    /* The library takes NULL for a key that was set before. */
    const void *given = key_size ? key : "";
    const uint8_t *made =
        HMAC(EVP_sha256(), given, (int)key_size, data, size, hash.bytes, &written);
    assert(made && written == sizeof hash.bytes);
    (void)made;
    return hash;
}

bool fm_sha256_is_equal_secret(const fm_sha256 *a, const fm_sha256 *b) {
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void fm_sha256_format(const fm_sha256 *hash, char out[FM_SHA256_HEX]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < FM_SHA256_BYTES; i++) {
        out[2 * i] = digits[hash->bytes[i] >> 4];
        out[2 * i + 1] = digits[hash->bytes[i] & 15];
    }
    out[FM_SHA256_HEX - 1] = '\0';
}

/* A table, because a large snapshot has hundreds of thousands of hashes: 1 + the digit, 0 = none.
 * */
static int hex_value(char c) {
    static const uint8_t digits[256] = {
        ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,
        ['6'] = 7,  ['7'] = 8,  ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12,
        ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16};
    return digits[(uint8_t)c] - 1;
}

fm_status fm_sha256_parse(const char *text, size_t size, fm_sha256 *ret_hash) {
    if (size < 2 * FM_SHA256_BYTES) return FM_ERR_FORMAT;
    fm_sha256 hash;
    for (size_t i = 0; i < FM_SHA256_BYTES; i++) {
        int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
        if (high < 0 || low < 0) return FM_ERR_FORMAT;
        hash.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *ret_hash = hash;
    return FM_OK;
}
