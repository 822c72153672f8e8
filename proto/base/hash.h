/* hash.h: XXH3 (integrity of what we wrote ourselves) and SHA-256 (identity of content). The only
 * includer of both libraries is hash.c. */
#ifndef FM_BASE_HASH_H
#define FM_BASE_HASH_H

#include "proto/base/status.h"

/* XXH3-64 with seed 0. */
uint64_t fm_xxh3(const void *data, size_t size);

/* A streaming XXH3-64 over runs of bytes. Never fails but for memory, which asserts: the state is
 * 576 bytes. */
typedef struct fm_xxh3_state fm_xxh3_state;
fm_xxh3_state *fm_xxh3_create(void);
void fm_xxh3_update(fm_xxh3_state *state, const void *data, size_t size);
uint64_t fm_xxh3_digest(const fm_xxh3_state *state);
void fm_xxh3_destroy(fm_xxh3_state *state);

enum { FM_SHA256_BYTES = 32, FM_SHA256_HEX = 65 /* with its terminator */ };

typedef struct fm_sha256 {
    uint8_t bytes[FM_SHA256_BYTES];
} fm_sha256;

/* SHA-256 of one run of bytes. */
fm_sha256 fm_sha256_of(const void *data, size_t size);

/* A streaming SHA-256. */
typedef struct fm_sha256_state fm_sha256_state;
fm_sha256_state *fm_sha256_create(void);
void fm_sha256_update(fm_sha256_state *state, const void *data, size_t size);
/* The digest; the state must be destroyed next. */
fm_sha256 fm_sha256_digest(fm_sha256_state *state);
void fm_sha256_destroy(fm_sha256_state *state);

/* 64 lower-case hex digits and a terminator. */
void fm_sha256_format(const fm_sha256 *hash, char out[FM_SHA256_HEX]);
/* The inverse; FM_ERR_FORMAT unless text starts with exactly 64 lower-case hex digits. */
FM_MUST_USE fm_status fm_sha256_parse(const char *text, size_t size, fm_sha256 *ret_hash);

#endif
