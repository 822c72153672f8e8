/* fuzz_weights.c: arbitrary bytes as a file of weights (safetensors or .npz) and as a checkpoint.
 * Accepted files must describe themselves truly: sorted names that are found again, counts that are
 * the products of shapes, and float arrays that can all be read. */
#include "proto/base/hash.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/weights_file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const fm_weights_file *file, size_t input_bytes) {
    for (size_t i = 0; i < fm_weights_file_count(file); i++) {
        const fm_weights_array *array = fm_weights_file_at(file, i);
        uint64_t count = 1;
        assert(array->rank >= 0 && array->rank <= FM_WEIGHTS_RANK);
        for (int axis = 0; axis < array->rank; axis++)
            count *= array->shape[axis];
        assert(count == array->count);
        assert(i == 0 || strcmp(fm_weights_file_at(file, i - 1)->name, array->name) <= 0);
        assert(strcmp(fm_weights_file_find(file, array->name)->name, array->name) == 0);
        /* An .npz may hold more than its own bytes, at deflate's 1032 to 1. */
        assert(count <= 1100 * (uint64_t)input_bytes || !array->is_float);
        float *values = malloc(count * sizeof *values + 1);
        if (values && array->is_float && !fm_weights_file_read(file, array, values, NULL)) {
            fm_xxh3(values, count * sizeof *values);
        }
        free(values);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    fm_error error;
    fm_weights_file *file;
    int fd = memfd_create("weights", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!fm_weights_file_open(path, &file, &error)) {
        check(file, size);
        fm_weights_file_close(file);
    } else {
        assert(error.message[0] != '\0');
    }
    fm_arena arena;
    fm_checkpoint_state state;
    if (fm_arena_init(&arena, (size_t)1 << 20, NULL)) abort();
    if (!fm_checkpoint_peek(path, &arena, &state, &error)) {
        assert(strlen(state.token) + strlen(state.config) <= size);
    }
    fm_arena_fini(&arena);
    close(fd);
    return 0;
}
