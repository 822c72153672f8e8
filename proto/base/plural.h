/* plural.h: the ending of a counted noun: printf("%u chain%s", n, fm_plural(n)). */
#ifndef FM_BASE_PLURAL_H
#define FM_BASE_PLURAL_H

#include <stdint.h>

static inline const char *fm_plural(uint64_t n) {
    return n == 1 ? "" : "s";
}

#endif
