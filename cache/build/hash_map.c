/* hash_map.c: see hash_map.h. */
#include "cache/build/hash_map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_MAX = 1024 };

void fm_hash_map_fini(fm_hash_map *map) {
    free(map->slot);
    *map = (fm_hash_map){0};
}

/* The slot that holds `hash`, or the free slot for it. */
static fm_hash_slot *slot_of(fm_hash_slot *slot, uint32_t max, const fm_sha256 *hash) {
    uint64_t at;
    memcpy(&at, hash->bytes, sizeof at);
    for (;; at++) {
        fm_hash_slot *here = &slot[at & (max - 1)];
        if (!here->used || memcmp(&here->hash, hash, sizeof *hash) == 0) return here;
    }
}

uint32_t *fm_hash_map_find(const fm_hash_map *map, const fm_sha256 *hash) {
    if (!map->max) return NULL;
    fm_hash_slot *slot = slot_of(map->slot, map->max, hash);
    return slot->used ? &slot->value : NULL;
}

static bool grow(fm_hash_map *map) {
    uint32_t max = map->max ? 2 * map->max : FIRST_MAX;
    fm_hash_slot *slot = calloc(max, sizeof *slot);
    if (!slot) return false;
    for (uint32_t i = 0; i < map->max; i++) {
        if (map->slot[i].used) *slot_of(slot, max, &map->slot[i].hash) = map->slot[i];
    }
    free(map->slot);
    map->slot = slot;
    map->max = max;
    return true;
}

bool fm_hash_map_add(fm_hash_map *map, const fm_sha256 *hash, uint32_t value) {
    if (map->n >= map->max / 4 * 3 && !grow(map)) return false;
    fm_hash_slot *slot = slot_of(map->slot, map->max, hash);
    assert(!slot->used);
    *slot = (fm_hash_slot){*hash, value, 1};
    map->n++;
    return true;
}

/* -- the index of a list */

void fm_hash_index_fini(fm_hash_index *index) {
    free(index->place);
    *index = (fm_hash_index){0};
}

static const uint8_t *element(const void *list, size_t size, uint32_t position) {
    return (const uint8_t *)list + position * size;
}

/* The place that names `hash`, or the free place for it. */
static uint32_t *place_of(uint32_t *place, uint32_t max, const void *list, size_t size,
                          const uint8_t *hash) {
    uint64_t at;
    memcpy(&at, hash, sizeof at);
    for (;; at++) {
        uint32_t *here = &place[at & (max - 1)];
        if (!*here || memcmp(element(list, size, *here - 1), hash, sizeof(fm_sha256)) == 0) {
            return here;
        }
    }
}

uint32_t fm_hash_index_find(const fm_hash_index *index, const void *list, size_t size,
                            const fm_sha256 *hash) {
    if (!index->max) return UINT32_MAX;
    return *place_of(index->place, index->max, list, size, hash->bytes) - 1;
}

static bool grow_index(fm_hash_index *index, const void *list, size_t size) {
    uint32_t max = index->max ? 2 * index->max : FIRST_MAX;
    uint32_t *place = max > index->max ? calloc(max, sizeof *place) : NULL;
    if (!place) return false;
    for (uint32_t i = 0; i < index->n; i++)
        *place_of(place, max, list, size, element(list, size, i)) = i + 1;
    free(index->place);
    index->place = place;
    index->max = max;
    return true;
}

bool fm_hash_index_add(fm_hash_index *index, const void *list, size_t size) {
    if (index->n >= index->max / 4 * 3 && !grow_index(index, list, size)) return false;
    uint32_t *place = place_of(index->place, index->max, list, size, element(list, size, index->n));
    assert(!*place);
    *place = ++index->n;
    return true;
}
