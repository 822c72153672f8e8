/* name_draws.h: the hash and the generator behind the numbers of the reference's full-size runs.
 * An array's name gives a start, and each element is a function of the start and its place. */
#ifndef FM_TESTS_TRAINER_NAME_DRAWS_H
#define FM_TESTS_TRAINER_NAME_DRAWS_H

#include <stdint.h>

/* FNV-1a of the text. */
static inline uint64_t fnv1a(const char *text) {
    uint64_t h = 14695981039346656037u;
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 1099511628211u;
    return h;
}

/* SplitMix64. */
static inline uint64_t splitmix(uint64_t x) {
    uint64_t z = x + 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

#endif
