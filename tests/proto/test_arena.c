/* test_arena.c: the arena: alignment, its fixed size, rewinding, releasing. */
#include "proto/base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void blocks_are_aligned_and_apart(void **state) {
    (void)state;
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, 1 << 20, NULL), FM_OK);
    uint8_t *a = fm_arena_alloc(&arena, 1), *b = fm_arena_alloc(&arena, 100);
    uint8_t *nothing = fm_arena_alloc(&arena, 0), *c = fm_arena_alloc(&arena, 3);
    assert_int_equal(((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 64, 0);
    assert_non_null(nothing);
    assert_true(b >= a + 1 && c >= b + 100);
    memset(b, 0xee, 100);
    assert_int_equal(((uint8_t *)fm_arena_calloc(&arena, 10, 10))[99], 0);
    fm_arena_fini(&arena);
    assert_null(arena.base);
    fm_arena_fini(&arena);
}

static void size_is_hard(void **state) {
    (void)state;
    fm_arena arena;
    fm_error error;
    assert_int_equal(fm_arena_init(&arena, 4096, NULL), FM_OK);
    assert_null(fm_arena_alloc(&arena, 4097));
    assert_null(fm_arena_alloc(&arena, SIZE_MAX));
    assert_non_null(fm_arena_alloc(&arena, 4096));
    assert_null(fm_arena_alloc(&arena, 1));
    assert_non_null(fm_arena_alloc(&arena, 0));
    assert_null(fm_arena_alloc_array(&arena, SIZE_MAX / 2, 3));
    assert_null(fm_arena_calloc(&arena, SIZE_MAX, SIZE_MAX));
    assert_int_equal(fm_arena_full(&arena, &error), FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "needs more than the 0 MiB"));
    fm_arena_fini(&arena);
    assert_int_equal(fm_arena_init(&arena, SIZE_MAX / 2, &error), FM_ERR_NOMEM);
    assert_non_null(strstr(error.message, "ulimit -v"));
}

/* A maximum far above the machine's memory costs nothing until it is touched. */
static void reserve_is_not_memory(void **state) {
    (void)state;
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 38, NULL), FM_OK);
    uint8_t *far = fm_arena_alloc(&arena, (size_t)1 << 37);
    far[0] = 1;
    far[((size_t)1 << 37) - 1] = 2;
    fm_arena_fini(&arena);
    fm_error error;
    assert_int_equal(fm_arena_init(&arena, SIZE_MAX / 2, &error), FM_ERR_NOMEM);
}

static void mark_trim_reset(void **state) {
    (void)state;
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, 4096, NULL), FM_OK);
    uint8_t *kept = fm_arena_alloc(&arena, 10);
    memset(kept, 7, 10);
    size_t mark = fm_arena_mark(&arena);
    uint8_t *first = fm_arena_alloc(&arena, 1000);
    fm_arena_rewind(&arena, mark);
    assert_ptr_equal(fm_arena_alloc(&arena, 2000), first);
    fm_arena_trim(&arena, first, 64);
    assert_ptr_equal(fm_arena_alloc(&arena, 1), first + 64);
    assert_int_equal(kept[9], 7);
    fm_arena_reset(&arena);
    assert_ptr_equal(fm_arena_alloc(&arena, 1), kept);
    fm_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_apart),
        cmocka_unit_test(size_is_hard),
        cmocka_unit_test(reserve_is_not_memory),
        cmocka_unit_test(mark_trim_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
