/* hash.h: XXH3 (integrity of our own data) and SHA-256 (identity of content). Only hash.c includes
 * the two libraries. */
#ifndef FM_BASE_HASH_H
#define FM_BASE_HASH_H

#include "proto/base/status.h"

#include <stdbool.h>

/* Returns the XXH3-64 of the bytes, with seed 0. */
uint64_t fm_xxh3(const void *data, size_t size);

/* A streaming XXH3-64. Creation asserts when memory runs out, since the state is only 576 bytes;
 * nothing else can fail. */
typedef struct fm_xxh3_state fm_xxh3_state;
fm_xxh3_state *fm_xxh3_create(void);
void fm_xxh3_update(fm_xxh3_state *state, const void *data, size_t size);
uint64_t fm_xxh3_digest(const fm_xxh3_state *state);
void fm_xxh3_destroy(fm_xxh3_state *state);

enum { FM_SHA256_BYTES = 32, FM_SHA256_HEX = 65 /* with its terminator */ };

typedef struct fm_sha256 {
    uint8_t bytes[FM_SHA256_BYTES];
} fm_sha256;

/* Returns the SHA-256 of the bytes. */
fm_sha256 fm_sha256_of(const void *data, size_t size);

/* A streaming SHA-256. Failures of the library, such as no memory, assert. */
typedef struct fm_sha256_state fm_sha256_state;
fm_sha256_state *fm_sha256_create(void);
void fm_sha256_update(fm_sha256_state *state, const void *data, size_t size);
/* Returns the digest. After this the state may only be destroyed. */
fm_sha256 fm_sha256_digest(fm_sha256_state *state);
void fm_sha256_destroy(fm_sha256_state *state);

/* Returns the HMAC-SHA256 of the bytes (RFC 2104). Who has the key can make it, and nobody else. */
fm_sha256 fm_hmac_sha256(const void *key, size_t key_size, const void *data, size_t size);

/* Compares in a time that does not depend on the bytes, for digests of secrets. */
bool fm_sha256_is_equal_secret(const fm_sha256 *a, const fm_sha256 *b);

/* Writes 64 lower-case hex digits and a terminator. */
void fm_sha256_format(const fm_sha256 *hash, char out[FM_SHA256_HEX]);
/* Parses the output of fm_sha256_format. Returns FM_ERR_FORMAT unless text starts with 64
 * lower-case hex digits. */
FM_MUST_USE fm_status fm_sha256_parse(const char *text, size_t size, fm_sha256 *ret_hash);

#endif
