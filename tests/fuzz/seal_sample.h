/* seal_sample.h: corrects the length and the header's checksum of an encoded sample, so that
 * mutations get past them. */
#ifndef FM_FUZZ_SEAL_SAMPLE_H
#define FM_FUZZ_SEAL_SAMPLE_H

#include "proto/base/hash.h"

#include <stdbool.h>
#include <string.h>

/* Bytes before the data that the table declares; 0 when they are not all there. */
static inline size_t fm_fuzz_sample_head(const uint8_t *bytes, size_t size) {
    if (size < 88) return 0;
    uint16_t n_tensor;
    memcpy(&n_tensor, bytes + 6, 2);
    size_t end = ((88 + (size_t)bytes[86] + 7) & ~(size_t)7) + (size_t)n_tensor * 56;
    return end <= size ? end : 0;
}

/* Returns false, without a change, when the table that the bytes declare is outside of them. */
static inline bool fm_fuzz_seal_sample(uint8_t *bytes, size_t size) {
    size_t end = fm_fuzz_sample_head(bytes, size);
    if (end == 0) return false;
    uint64_t total = size, check = fm_xxh3(bytes + 24, end - 24);
    memcpy(bytes + 8, &total, 8);
    memcpy(bytes + 16, &check, 8);
    return true;
}

#endif
