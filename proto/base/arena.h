/* arena.h: bump allocation with a hard size.
 *
 *     base                 used                         max
 *      |####################|............................|
 *       handed out           address space, no memory yet
 *
 * The whole range is reserved as address space at init and becomes memory only when touched, so a
 * generous maximum costs nothing. Everything goes at once (reset or fini), or back to a mark.
 * Memory handed out is NOT zeroed, unless asked. One thread at a time. */
#ifndef FM_BASE_ARENA_H
#define FM_BASE_ARENA_H

#include "proto/base/status.h"

typedef struct fm_arena {
    uint8_t *base; /* NULL = not initialised */
    size_t used;   /* bytes */
    size_t max;    /* bytes */
} fm_arena;

/* Reserves max_bytes (> 0) of address space. FM_ERR_NOMEM when the system refuses. */
FM_MUST_USE fm_status fm_arena_init(fm_arena *arena, size_t max_bytes, fm_error *reterr);

/* Gives everything back; fine on a zeroed struct. */
void fm_arena_fini(fm_arena *arena);

/* `bytes` (0 is fine: a valid, unusable pointer) aligned to 64, or NULL when the arena's maximum
 * would be passed. */
FM_MUST_USE void *fm_arena_alloc(fm_arena *arena, size_t bytes);

/* As fm_arena_alloc for `count` elements of `size` bytes; NULL also when the product overflows. */
FM_MUST_USE void *fm_arena_alloc_array(fm_arena *arena, size_t count, size_t size);

/* As fm_arena_alloc_array, zeroed. */
FM_MUST_USE void *fm_arena_calloc(fm_arena *arena, size_t count, size_t size);

/* Shrinks the newest allocation `pointer` to `bytes`; the rest can be handed out again. */
void fm_arena_trim(fm_arena *arena, void *pointer, size_t bytes);

/* Forget everything handed out after the mark was taken. */
static inline size_t fm_arena_mark(const fm_arena *arena) {
    return arena->used;
}
static inline void fm_arena_rewind(fm_arena *arena, size_t mark) {
    arena->used = mark;
}

/* Forget everything, keep the memory for the next use. */
static inline void fm_arena_reset(fm_arena *arena) {
    arena->used = 0;
}

/* The status and sentence for a full arena: "needs more than N MiB of memory". */
static inline fm_status fm_arena_full(const fm_arena *arena, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_LIMIT, "needs more than the %zu MiB of memory allowed for it",
                   arena->max >> 20);
}

#endif
