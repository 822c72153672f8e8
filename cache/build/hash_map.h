/* hash_map.h: a map from SHA-256 to numbers, and an index of lists whose elements begin with one:
 * open addressing by the hash's first eight bytes, which are uniform already. Entries are never
 * removed. One thread at a time. */
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

/* An index of the elements of a list, each of which begins with its hash. It takes 6 to 11 bytes
 * for each, a map 53 to 107. */
typedef struct fm_hash_index {
    uint32_t *place; /* heap; position in the list + 1, 0 = free */
    uint32_t n, max; /* max: 0 or a power of two */
} fm_hash_index;

void fm_hash_index_fini(fm_hash_index *index);

/* The position of `hash` in a list of elements of `size` bytes; UINT32_MAX = it is not there. */
uint32_t fm_hash_index_find(const fm_hash_index *index, const void *list, size_t size,
                            const fm_sha256 *hash);

/* Adds the element at position index->n, which the list has already; its hash must be new. False
 * when memory ran out. */
FM_MUST_USE bool fm_hash_index_add(fm_hash_index *index, const void *list, size_t size);

#endif
