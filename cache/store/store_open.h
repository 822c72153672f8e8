/* store_open.h: what an open store is made of; for cache/store*.c and snapshot.c. */
#ifndef FM_CACHE_STORE_OPEN_H
#define FM_CACHE_STORE_OPEN_H

#include "cache/store/blob.h"
#include "cache/store/generation.h"
#include "cache/store/store.h"

#include <limits.h>

struct fm_store {
    char path[PATH_MAX];
    fm_arena arena; /* the generation's arrays */
    fm_generation generation;
    fm_store_info info;
    int *fd; /* [n_shard], owned */
};

/* Reads the stored bytes of one blob into packed[0..stored_bytes-1], which *ret_blob borrows, and
 * checks its header and checksum against the index. */
FM_MUST_USE fm_status fm_store_read_packed(const fm_store *store, uint32_t blob, uint8_t *packed,
                                           fm_blob *ret_blob, fm_error *reterr);

/* Reads and checks one blob into the arena: its decoded bytes. */
FM_MUST_USE fm_status fm_store_read_blob(const fm_store *store, uint32_t blob, fm_arena *arena,
                                         fm_bytes *ret_bytes, fm_error *reterr);

/* The blob of that content among the generation's. */
bool fm_store_find_blob(const fm_store *store, const fm_sha256 *identity, uint32_t *ret_blob);

#endif
