/* hash_map.h: SHA-256 -> number: open addressing on the hash's first eight bytes, which are uniform
 * already. Entries are never removed. One thread at a time. */
#ifndef FM_CACHE_HASH_MAP_H
#define FM_CACHE_HASH_MAP_H

#include "proto/base/hash.h"

#include <stdbool.h>

typedef struct fm_hash_slot {
    fm_sha256 hash;
    uint32_t value;
    uint32_t used;
} fm_hash_slot;

typedef struct fm_hash_map {
    fm_hash_slot *slot; /* heap */
    uint32_t n, max;    /* max: 0 or a power of two */
} fm_hash_map;

void fm_hash_map_fini(fm_hash_map *map);

/* The value of `hash`, or NULL. Borrowed until the next add. */
uint32_t *fm_hash_map_find(const fm_hash_map *map, const fm_sha256 *hash);

/* Adds `hash`, which must not be there. False when memory ran out. */
FM_MUST_USE bool fm_hash_map_add(fm_hash_map *map, const fm_sha256 *hash, uint32_t value);

#endif
