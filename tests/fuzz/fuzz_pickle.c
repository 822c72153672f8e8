/* fuzz_pickle.c: arbitrary bytes as a pickle of tensors. Tensors that are accepted have names that
 * end, counts that are the products of their shapes, and lie inside of their storages. */
#include "proto/pickle.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    fm_error error = {.message = ""};
    const fm_pickled_tensor *tensor;
    size_t n;
    if (fm_arena_init(&arena, (size_t)256 << 20, NULL)) return 0;
    if (fm_pickle_read((fm_bytes){data, size}, &arena, &tensor, &n, &error)) {
        assert(error.message[0] != '\0');
        n = 0;
    }
    for (size_t i = 0; i < n; i++) {
        const fm_pickled_tensor *t = &tensor[i];
        uint64_t count = 1;
        assert(t->rank >= 0 && t->rank <= FM_PICKLE_RANK);
        for (int axis = 0; axis < t->rank; axis++)
            count *= t->shape[axis];
        assert(count == t->count);
        assert(strlen(t->name) <= FM_PICKLE_NAME_BYTES && t->name[0] != '\0');
        assert(strlen(t->storage) <= FM_PICKLE_NAME_BYTES && t->storage[0] != '\0');
        if (t->is_contiguous) {
            assert(t->offset <= t->storage_count && t->count <= t->storage_count - t->offset);
        }
    }
    fm_arena_fini(&arena);
    return 0;
}
