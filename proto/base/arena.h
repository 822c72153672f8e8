/* arena.h: a bump allocator with a fixed maximum.
 *
 *     base                 used                         max
 *      |####################|............................|
 *       allocated            address space, no memory yet
 *
 * The whole range is reserved as address space at init and becomes memory only when touched, so a
 * generous maximum costs nothing. Allocations are released all at once (reset or fini) or back to a
 * mark. Allocated memory is NOT zeroed, except by fm_arena_calloc. An arena may be used by one
 * thread at a time. */
#ifndef FM_BASE_ARENA_H
#define FM_BASE_ARENA_H

#include "proto/base/status.h"

typedef struct fm_arena {
    uint8_t *base; /* NULL when not initialised */
    size_t used;   /* bytes */
    size_t max;    /* bytes */
} fm_arena;

/* Reserves max_bytes (> 0) of address space. Returns FM_ERR_NOMEM when the system refuses. */
FM_MUST_USE fm_status fm_arena_init(fm_arena *arena, size_t max_bytes, fm_error *reterr);

/* Releases everything; allowed on a zeroed struct. */
void fm_arena_fini(fm_arena *arena);

/* Returns `bytes` bytes aligned to 64, or NULL when they would exceed the arena's maximum. With 0
 * bytes the pointer is valid but must not be dereferenced. */
FM_MUST_USE void *fm_arena_alloc(fm_arena *arena, size_t bytes);

/* Like fm_arena_alloc for `count` elements of `size` bytes; NULL also when the product
 * overflows. */
FM_MUST_USE void *fm_arena_alloc_array(fm_arena *arena, size_t count, size_t size);

/* Like fm_arena_alloc_array, zeroed. */
FM_MUST_USE void *fm_arena_calloc(fm_arena *arena, size_t count, size_t size);

/* Shrinks the newest allocation `pointer` to `bytes`; the rest can be allocated again. */
void fm_arena_trim(fm_arena *arena, void *pointer, size_t bytes);

/* Rewinding releases everything allocated after the mark was taken. */
static inline size_t fm_arena_mark(const fm_arena *arena) {
    return arena->used;
}
static inline void fm_arena_rewind(fm_arena *arena, size_t mark) {
    arena->used = mark;
}

/* Releases everything but keeps the memory for the next use. */
static inline void fm_arena_reset(fm_arena *arena) {
    arena->used = 0;
}

/* Returns FM_ERR_LIMIT with the message for a full arena: "needs more than the N MiB ...". */
static inline fm_status fm_arena_full(const fm_arena *arena, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_LIMIT, "needs more than the %zu MiB of memory allowed for it",
                   arena->max >> 20);
}

#endif
