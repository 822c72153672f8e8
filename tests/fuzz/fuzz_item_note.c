/* fuzz_item_note.c: arbitrary bytes as the note of an item. What decodes must encode to the same
 * bytes. */
#include "cache/build/item_note.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    fm_item_note note;
    fm_bytes again;
    fm_error error;
    if (fm_arena_init(&arena, (size_t)1 << 28, &error)) return 0;
    if (!fm_item_note_decode((fm_bytes){data, size}, &arena, &note, &error)) {
        fm_status status = fm_item_note_encode(&note, &again, &error);
        assert(!status);
        assert(again.size == size && memcmp(again.data, data, size) == 0);
        free((void *)(uintptr_t)again.data);
    }
    fm_arena_fini(&arena);
    return 0;
}
