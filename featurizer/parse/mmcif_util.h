/* mmcif_util.h: what the readers of mmCIF files share: growing arrays, a map keyed by the file's
 * strings, copies, and numbers with their uncertainty. */
#ifndef FM_PARSE_MMCIF_UTIL_H
#define FM_PARSE_MMCIF_UTIL_H

#include "featurizer/parse/cif.h"
#include "proto/base/arena.h"

enum { MMCIF_CHUNK = 4096 };
#define MMCIF_NONE UINT32_MAX /* no such number */

/* A growing array in an arena whose elements never move: chunks of MMCIF_CHUNK elements. */
typedef struct fm_mmcif_array {
    uint8_t **chunks;
    uint32_t n, max; /* elements; `chunks` has room for max */
    uint32_t size;   /* bytes per element */
} fm_mmcif_array;

static inline void *fm_mmcif_array_at(const fm_mmcif_array *array, uint32_t i) {
    return array->chunks[i / MMCIF_CHUNK] + (size_t)(i % MMCIF_CHUNK) * array->size;
}

/* Returns NULL when the arena is full or the array has max elements. */
void *fm_mmcif_array_push(fm_mmcif_array *array, fm_arena *arena);
fm_status fm_mmcif_array_init(fm_mmcif_array *array, fm_arena *arena, uint32_t size, uint32_t max,
                              fm_error *reterr);

/* A map from byte strings of the file to numbers, of fixed capacity. */
typedef struct fm_mmcif_map {
    const fm_cif *cif;
    fm_cif_view *keys;
    uint32_t *values; /* MMCIF_NONE marks a free slot */
    uint32_t mask;
} fm_mmcif_map;

fm_status fm_mmcif_map_init(fm_mmcif_map *map, const fm_cif *cif, fm_arena *arena, uint32_t n_max,
                            fm_error *reterr);
/* Returns the place of the key's value. A new key is entered with the value MMCIF_NONE, and the
 * caller must write another value there. */
uint32_t *fm_mmcif_map_at(fm_mmcif_map *map, fm_cif_view key);
/* Returns MMCIF_NONE when the key is absent. */
uint32_t fm_mmcif_map_get(const fm_mmcif_map *map, fm_cif_view key);

bool fm_mmcif_same(const fm_cif *cif, fm_cif_view a, fm_cif_view b);
/* Returns a terminated copy, or NULL when the arena is full. */
char *fm_mmcif_copy(const fm_cif *cif, fm_cif_view view, fm_arena *arena);
/* Reads a number, which in CIF may carry its standard uncertainty, as in 1.234(5). */
bool fm_mmcif_number(const fm_cif *cif, fm_cif_view value, double *ret_value);

#endif
