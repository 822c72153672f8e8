/* element.h: the types of elements in device memory, and the place where an entry of the kernel
 * table writes or adds a gradient. */
#ifndef FM_BACKEND_ELEMENT_H
#define FM_BACKEND_ELEMENT_H

#include <stddef.h>
#include <stdint.h>

/* Element types of the trainer's memory. The types of the wire are in proto/schema.h. */
typedef enum fm_element {
    FM_ELEMENT_F32 = 1,
    FM_ELEMENT_F64 = 2,
    FM_ELEMENT_BF16 = 3, /* no CPU table; storage only */
    FM_ELEMENT_I32 = 4,
    FM_ELEMENT_U8 = 5,
    FM_ELEMENT_U16 = 6,
    FM_ELEMENT_U32 = 7,
} fm_element;

/* Bytes of one element; 0 for a value that is not a type. */
static inline size_t fm_element_bytes(fm_element element) {
    static const uint8_t bytes[] = {0, 4, 8, 2, 4, 1, 2, 4};
    return (unsigned)element < sizeof bytes ? bytes[element] : 0;
}

/* Whether a result replaces the content of its place or is added to it. */
typedef enum fm_beta { FM_WRITE = 0, FM_ADD = 1 } fm_beta;

typedef struct fm_out {
    void *data; /* NULL: this result is not needed */
    fm_beta beta;
} fm_out;

#endif
