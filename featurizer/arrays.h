/* arrays.h: one array of a feature dictionary, named as the reference names it and ready to be
 * written as .npy. */
#ifndef FM_FEATURIZER_ARRAYS_H
#define FM_FEATURIZER_ARRAYS_H

#include <stddef.h>
#include <stdint.h>

enum { FM_ARRAY_RANK = 6 };

/* One array. data is in C order and borrowed from the function that listed the array. Strings are
 * uint8; several strings are joined by newlines. */
typedef struct fm_array {
    const char *key;
    const char *dtype; /* NumPy's: "<i4", "<f4", "<f8", "|u1", "<i8" */
    size_t rank;
    uint64_t shape[FM_ARRAY_RANK];
    const void *data;
} fm_array;

#endif
