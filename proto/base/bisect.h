/* bisect.h: finds an element of a sorted array. */
#ifndef FM_BASE_BISECT_H
#define FM_BASE_BISECT_H

#include <stdbool.h>
#include <stdint.h>

/* Compares element i of the array with the key: negative, 0 or positive, as strcmp does. */
typedef int (*fm_bisect_order)(const void *array, uint32_t i, const void *key);

/* Finds an element that equals the key among the n elements, which are sorted by `order`. `array`
 * is only passed on. Returns false when there is none. */
bool fm_bisect(const void *array, uint32_t n, fm_bisect_order order, const void *key,
               uint32_t *ret_i);

#endif
