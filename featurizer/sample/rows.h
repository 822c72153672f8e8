/* rows.h: operations on every row of an alignment, many columns at once.
 *
 * Two variants give the same result; fm_row_kernels_best chooses one for this processor. */
#ifndef FM_SAMPLE_ROWS_H
#define FM_SAMPLE_ROWS_H

#include <stddef.h>
#include <stdint.h>

typedef struct fm_row_kernels {
    /* Converts n HHblits ids 0..21 to restypes; the mask token 22 stays 22. */
    void (*restypes)(const uint8_t *ids, size_t n, uint8_t *ret_restypes);
    /* Adds deletions[i] to sum[i] for n columns. */
    void (*add_deletions)(const uint16_t *deletions, size_t n, uint32_t *sum);
} fm_row_kernels;

extern const fm_row_kernels fm_row_kernels_portable, fm_row_kernels_avx2;

/* Returns the fastest variant that this processor runs. */
const fm_row_kernels *fm_row_kernels_best(void);

/* Prefetches the cache lines of `bytes` bytes that are read soon. */
static inline void fm_row_prefetch(const void *row, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)row + at);
}

#endif
