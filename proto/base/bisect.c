/* bisect.c: see bisect.h. */
#include "proto/base/bisect.h"

bool fm_bisect(const void *array, uint32_t n, fm_bisect_order order, const void *key,
               uint32_t *ret_i) {
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int found = order(array, middle, key);
        if (found == 0) {
            *ret_i = middle;
            return true;
        }
        if (found < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}
