/* arena.c: see arena.h. */
#include "proto/base/arena.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64 }; /* a cache line, and the widest vector */

static size_t align_up(size_t n) {
    return (n + (ALIGNMENT - 1)) & ~(size_t)(ALIGNMENT - 1);
}

fm_status fm_arena_init(fm_arena *arena, size_t max_bytes, fm_error *reterr) {
    assert(max_bytes > 0);
    void *base = mmap(NULL, max_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return fm_fail(
            reterr, FM_ERR_NOMEM,
            "cannot reserve %zu MiB of address space, most of which would stay unused; a "
            "limit forbids it (ulimit -v, or vm.overcommit_memory = 2): lift it",
            max_bytes >> 20);
    }
    *arena = (fm_arena){.base = base, .used = 0, .max = max_bytes};
    return FM_OK;
}

void fm_arena_fini(fm_arena *arena) {
    if (arena->base) munmap(arena->base, arena->max);
    *arena = (fm_arena){0};
}

void *fm_arena_alloc(fm_arena *arena, size_t bytes) {
    size_t start = align_up(arena->used);
    if (start > arena->max || bytes > arena->max - start) return NULL;
    arena->used = start + bytes;
    return arena->base + start;
}

void *fm_arena_alloc_array(fm_arena *arena, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    return fm_arena_alloc(arena, bytes);
}

void *fm_arena_calloc(fm_arena *arena, size_t count, size_t size) {
    void *memory = fm_arena_alloc_array(arena, count, size);
    if (memory) memset(memory, 0, count * size);
    return memory;
}

void fm_arena_trim(fm_arena *arena, void *pointer, size_t bytes) {
    size_t start = (size_t)((uint8_t *)pointer - arena->base);
    assert(start <= arena->used && bytes <= arena->used - start);
    arena->used = start + bytes;
}
