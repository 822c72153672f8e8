/* mmcif_util.c: growing arrays, a map keyed by the file's strings, and copies and
 * numbers; see mmcif_util.h and mmcif_internal.h. */
#include "featurizer/parse/mmcif_internal.h"

#include "featurizer/parse/decimal.h"
#include "proto/base/hash.h"
#include "proto/chem/residue.h"

#include <math.h>
#include <string.h>

fm_status fm_mmcif_array_init(fm_mmcif_array *array, fm_arena *arena, uint32_t size, uint32_t max,
                              fm_error *reterr) {
    uint32_t n_chunk = max / MMCIF_CHUNK + 1;
    uint8_t **chunks = fm_arena_calloc(arena, n_chunk, sizeof *chunks);
    if (!chunks) return fm_arena_full(arena, reterr);
    *array = (fm_mmcif_array){.chunks = chunks, .max = max, .size = size};
    return FM_OK;
}

void *fm_mmcif_array_push(fm_mmcif_array *array, fm_arena *arena) {
    if (array->n >= array->max) return NULL;
    if (array->n % MMCIF_CHUNK == 0 && !array->chunks[array->n / MMCIF_CHUNK]) {
        uint8_t *chunk = fm_arena_alloc_array(arena, MMCIF_CHUNK, array->size);
        if (!chunk) return NULL;
        array->chunks[array->n / MMCIF_CHUNK] = chunk;
    }
    return fm_mmcif_array_at(array, array->n++);
}

bool fm_mmcif_same(const fm_cif *cif, fm_cif_view a, fm_cif_view b) {
    size_t size = fm_cif_size(a);
    return size == fm_cif_size(b) && memcmp(fm_cif_text(cif, a), fm_cif_text(cif, b), size) == 0;
}

char *fm_mmcif_copy(const fm_cif *cif, fm_cif_view view, fm_arena *arena) {
    size_t size = fm_cif_size(view);
    char *copy = fm_arena_alloc(arena, size + 1);
    if (!copy) return NULL;
    memcpy(copy, fm_cif_text(cif, view), size);
    copy[size] = '\0';
    return copy;
}

/* The map uses open addressing with linear probing and is at most half full. */
fm_status fm_mmcif_map_init(fm_mmcif_map *map, const fm_cif *cif, fm_arena *arena, uint32_t n_max,
                            fm_error *reterr) {
    uint32_t room = 16;
    while (room / 2 < n_max)
        room *= 2;
    fm_cif_view *keys = fm_arena_alloc_array(arena, room, sizeof *keys);
    uint32_t *values = fm_arena_alloc_array(arena, room, sizeof *values);
    if (!keys || !values) return fm_arena_full(arena, reterr);
    memset(values, 0xff, room * sizeof *values);
    *map = (fm_mmcif_map){.cif = cif, .keys = keys, .values = values, .mask = room - 1};
    return FM_OK;
}

static uint32_t find(const fm_mmcif_map *map, fm_cif_view key) {
    uint32_t i = (uint32_t)fm_xxh3(fm_cif_text(map->cif, key), fm_cif_size(key)) & map->mask;
    while (map->values[i] != MMCIF_NONE && !fm_mmcif_same(map->cif, map->keys[i], key))
        i = (i + 1) & map->mask;
    return i;
}

uint32_t *fm_mmcif_map_at(fm_mmcif_map *map, fm_cif_view key) {
    uint32_t i = find(map, key);
    if (map->values[i] == MMCIF_NONE) map->keys[i] = key;
    return &map->values[i];
}

uint32_t fm_mmcif_map_get(const fm_mmcif_map *map, fm_cif_view key) {
    return map->values[find(map, key)];
}

/* Cuts off a standard uncertainty. */
static fm_cif_view without_uncertainty(const fm_cif *cif, fm_cif_view value) {
    const uint8_t *text = fm_cif_text(cif, value);
    size_t size = fm_cif_size(value);
    const uint8_t *open = memchr(text, '(', size);
    if (!open || open + 2 >= text + size || text[size - 1] != ')') return value;
    for (const uint8_t *digit = open + 1; digit < text + size - 1; digit++) {
        if (*digit < '0' || *digit > '9') return value;
    }
    return (fm_cif_view){value.start, value.start + (uint32_t)(open - text)};
}

bool fm_mmcif_number(const fm_cif *cif, fm_cif_view value, double *ret_value) {
    if (fm_decimal_parse(fm_cif_text(cif, value), fm_cif_size(value), false, ret_value)) {
        return true;
    }
    fm_cif_view plain = without_uncertainty(cif, value);
    return fm_decimal_parse(fm_cif_text(cif, plain), fm_cif_size(plain), false, ret_value);
}

fm_status fm_mmcif_alloc_chain(fm_mmcif_scan *scan, uint32_t n_res, fm_mmcif_chain *chain) {
    float *positions = fm_arena_calloc(scan->arena, (size_t)n_res * FM_N_ATOM37 * 3, sizeof(float));
    uint8_t *mask = fm_arena_calloc(scan->arena, n_res, FM_N_ATOM37);
    uint8_t *is_missing = fm_arena_alloc(scan->arena, n_res);
    char *sequence = fm_arena_alloc(scan->arena, (size_t)n_res + 1);
    if (!positions || !mask || !is_missing || !sequence) {
        return fm_arena_full(scan->arena, scan->reterr);
    }
    memset(is_missing, 1, n_res);
    sequence[n_res] = '\0';
    chain->n_res = n_res;
    chain->all_atom_positions = positions;
    chain->all_atom_mask = mask;
    chain->is_missing = is_missing;
    chain->sequence = sequence;
    return FM_OK;
}

/* Returns the length of a - b, computed in float32 and in this order. */
static float distance(const float *a, const float *b) {
    float x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
    return sqrtf(x * x + y * y + z * z);
}

void fm_mmcif_fix_arginine(float (*positions)[3], uint8_t *mask) {
    if (!mask[FM_ATOM37_CD] || !mask[FM_ATOM37_NH1] || !mask[FM_ATOM37_NH2]) return;
    if (!(distance(positions[FM_ATOM37_NH1], positions[FM_ATOM37_CD]) >
          distance(positions[FM_ATOM37_NH2], positions[FM_ATOM37_CD]))) {
        return;
    }
    float first[3];
    memcpy(first, positions[FM_ATOM37_NH1], sizeof first);
    memcpy(positions[FM_ATOM37_NH1], positions[FM_ATOM37_NH2], sizeof first);
    memcpy(positions[FM_ATOM37_NH2], first, sizeof first);
}
