/* mmcif_case.h: helpers of the tests over real mmCIF files: read a file below the reference data,
 * and compare a chain's arrays with the reference's hashes. */
#ifndef FM_TESTS_MMCIF_CASE_H
#define FM_TESTS_MMCIF_CASE_H

#include "featurizer/structure.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "tests/testing/manifest.h"
#include "tests/testing/testing.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

typedef struct mmcif_case {
    fm_arena arena;
    fm_bytes bytes;
    char path[4096];
    char id[256]; /* the file's name without its extension */
} mmcif_case;

static inline void mmcif_case_init(mmcif_case *test) {
    fm_status status = fm_arena_init(&test->arena, (size_t)4 << 30, NULL);
    assert(!status);
    (void)status;
}

/* Reads `relative` below the reference data and discards what was read before. A missing file reads
 * as an empty one and returns false. */
static inline bool mmcif_case_read(mmcif_case *test, const char *relative) {
    fm_arena_reset(&test->arena);
    fm_test_reference_path(test->path, sizeof test->path, relative);
    fm_error error;
    fm_status status =
        fm_file_read_text(&test->arena, test->path, FM_LIMIT_INPUT_BYTES, &test->bytes, &error);
    bool is_there = status != FM_ERR_NOT_FOUND;
    if (!is_there) test->bytes = (fm_bytes){NULL, 0};
    if (status && is_there) fprintf(stderr, "%s: %s\n", test->path, error.message);
    assert(!status || !is_there);
    const char *slash = strrchr(test->path, '/');
    snprintf(test->id, sizeof test->id, "%s", slash + 1);
    char *dot = strrchr(test->id, '.');
    if (dot) *dot = '\0';
    return is_there;
}

static inline fm_status mmcif_case_parse(mmcif_case *test, bool compat, fm_mmcif *ret_mmcif,
                                         fm_error *reterr) {
    const fm_mmcif_options options = {.compat_openfold = compat};
    return fm_mmcif_parse(test->bytes, &options, &test->arena, ret_mmcif, reterr);
}

static inline size_t array_bytes(const fm_structure_array *array) {
    size_t bytes = array->dtype[1] == 'u' ? 1 : 4;
    for (size_t i = 0; i < array->rank; i++)
        bytes *= array->shape[i];
    return bytes;
}

static inline bool array_agrees(const fm_structure_array *array, const fm_test_array *expected) {
    size_t shape[3];
    for (size_t i = 0; i < array->rank; i++)
        shape[i] = (size_t)array->shape[i];
    return fm_test_array_agrees(expected, shape, array->rank, array->data, array_bytes(array));
}

/* Lists all arrays of the chain with that author id. */
static inline fm_status mmcif_case_arrays(mmcif_case *test, const fm_mmcif *mmcif, bool compat,
                                          const char *chain, fm_structure_array *arrays,
                                          size_t *ret_n, fm_error *reterr) {
    const fm_mmcif_options options = {.compat_openfold = compat};
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_status status =
        fm_structure_from_mmcif(mmcif, &options, chain, &sequence, &structure, reterr);
    if (status) return status;
    size_t size = strlen(test->id) + strlen(chain) + 2;
    char *name = fm_arena_alloc(&test->arena, size);
    assert(name);
    snprintf(name, size, "%s_%s", test->id, chain);
    return fm_structure_list_arrays(&sequence, &structure, name, &test->arena, arrays, ret_n,
                                    reterr);
}

static inline const fm_structure_array *find_array(const fm_structure_array *arrays, size_t n,
                                                   const char *key) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(arrays[i].key, key) == 0) return &arrays[i];
    }
    return NULL;
}

#endif
