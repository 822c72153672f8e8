/* hash_map.h: a map from SHA-256 to numbers: open addressing by the hash's first eight bytes, which
 * are uniform already. Entries are never removed. One thread at a time. */
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

/* The value of `hash`, or NULL; borrowed until the next add. */
uint32_t *fm_hash_map_find(const fm_hash_map *map, const fm_sha256 *hash);

/* Adds `hash`, which must be new. False when memory ran out. */
FM_MUST_USE bool fm_hash_map_add(fm_hash_map *map, const fm_sha256 *hash, uint32_t value);

#endif
