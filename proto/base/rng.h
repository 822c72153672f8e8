/* rng.h: counter-based random numbers: Philox4x32-10 (Salmon et al. 2011) and integers drawn from
 * it.
 *
 * A draw is a pure function of (key, counter), with no state and no order. The page
 * docs/reference/sampling.md defines how samples use the counter's words; trainer/backend defines
 * the trainer's use. Header-only, so that CUDA code can compile the same lines. */
#ifndef FM_BASE_RNG_H
#define FM_BASE_RNG_H

#include <stdint.h>

#ifdef __CUDACC__
#define FM_HOST_DEVICE __host__ __device__
#else
#define FM_HOST_DEVICE
#endif

typedef struct fm_philox_counter {
    uint32_t word[4];
} fm_philox_counter;

/* Returns four independent, uniform 32-bit words for (key, counter). */
FM_HOST_DEVICE static inline fm_philox_counter fm_philox(uint64_t key, fm_philox_counter counter) {
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * counter.word[0];
        uint64_t product1 = (uint64_t)0xCD9E8D57u * counter.word[2];
        fm_philox_counter next = {{
            (uint32_t)(product1 >> 32) ^ counter.word[1] ^ key0,
            (uint32_t)product1,
            (uint32_t)(product0 >> 32) ^ counter.word[3] ^ key1,
            (uint32_t)product0,
        }};
        counter = next;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

/* Returns a uniform integer in [0, n), n >= 1, from 64 random bits: the high part of a 64 x 32 bit
 * product. The bias is below n / 2^64, and no floating point is involved. */
FM_HOST_DEVICE static inline uint32_t fm_uniform_below(uint64_t bits, uint32_t n) {
    uint64_t high = (bits >> 32) * n, low = (bits & 0xffffffffu) * n;
    return (uint32_t)((high + (low >> 32)) >> 32);
}

#endif
