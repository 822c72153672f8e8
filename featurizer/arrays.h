/* arrays.h: values under the reference's names, ready to be written as .npy. */
#ifndef FM_FEATURIZER_ARRAYS_H
#define FM_FEATURIZER_ARRAYS_H

#include <stddef.h>
#include <stdint.h>

enum { FM_ARRAY_RANK = 6 };

/* One array. data is C-order and borrowed from whoever listed it; strings are uint8, joined by
 * newlines where they are several. */
typedef struct fm_array {
    const char *key;
    const char *dtype; /* NumPy's: "<i4", "<f4", "<f8", "|u1", "<i8" */
    size_t rank;
    uint64_t shape[FM_ARRAY_RANK];
    const void *data;
} fm_array;

#endif
