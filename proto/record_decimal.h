/* record_decimal.h: numbers of parts as small integers; for proto/record*.c only.
 *
 * Coordinates in PDB files are decimals with three places. A number is therefore stored as its
 * thousandths, and these as differences in zigzag code, where small ones of either sign are small
 * numbers. */
#ifndef FM_RECORD_DECIMAL_H
#define FM_RECORD_DECIMAL_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t fm_part_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float fm_part_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float fm_part_of_thousandths(int32_t k) {
    return (float)(k / 1000.0);
}

/* Finds the only k that represents `value` bit for bit; returns false when there is none. */
static inline bool fm_part_to_thousandths(float value, int32_t *ret_k) {
    double k = nearbyint((double)value * 1000.0);
    if (!(k >= -2147483647.0 && k <= 2147483647.0)) return false;
    if (fm_part_float_bits(fm_part_of_thousandths((int32_t)k)) != fm_part_float_bits(value)) {
        return false;
    }
    *ret_k = (int32_t)k;
    return true;
}

static inline uint32_t fm_part_zigzag(uint32_t difference) {
    return difference << 1 ^ (0u - (difference >> 31));
}

static inline uint32_t fm_part_unzigzag(uint32_t coded) {
    return coded >> 1 ^ (0u - (coded & 1));
}

#endif
