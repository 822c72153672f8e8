/* arrays.h: compares arrays that the featurizer lists with the reference's hashes. */
#ifndef FM_TESTS_ARRAYS_H
#define FM_TESTS_ARRAYS_H

#include "featurizer/arrays.h"
#include "tests/testing/manifest.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Returns whether the array of that key among `n` has the reference's dtype, shape and bytes, and
 * prints differences. False also when there is no such array. */
static inline bool fm_test_listed_agrees(const fm_test_array *expected, const fm_array *arrays,
                                         size_t n) {
    static const char *const dtypes[][2] = {{"uint8", "|u1"},
                                            {"int32", "<i4"},
                                            {"int64", "<i8"},
                                            {"float32", "<f4"},
                                            {"float64", "<f8"}};
    const char *dtype = "";
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(dtypes[i][0], expected->dtype) == 0) dtype = dtypes[i][1];
    }
    for (size_t i = 0; i < n; i++) {
        const fm_array *array = &arrays[i];
        if (strcmp(array->key, expected->key) != 0) continue;
        size_t shape[FM_ARRAY_RANK], bytes = (size_t)(array->dtype[2] - '0');
        for (size_t k = 0; k < array->rank; k++) {
            shape[k] = (size_t)array->shape[k];
            bytes *= shape[k];
        }
        if (strcmp(array->dtype, dtype) != 0) {
            fprintf(stderr, "array %s: %s, expected %s\n", array->key, array->dtype, dtype);
            return false;
        }
        return fm_test_array_agrees(expected, shape, array->rank, array->data, bytes);
    }
    fprintf(stderr, "no array %s\n", expected->key);
    return false;
}

#endif
