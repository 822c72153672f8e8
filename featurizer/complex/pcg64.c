/* pcg64.c: see pcg64.h. */
#include "featurizer/complex/pcg64.h"

#include <stdbool.h>

__extension__ typedef unsigned __int128 u128;

typedef struct pcg64 {
    u128 state, increment;
    uint32_t kept; /* the upper half of the last draw of 64 bits */
    bool has_kept;
} pcg64;

/* -- seeding: NumPy's SeedSequence with one word of entropy */

static uint32_t hash_word(uint32_t value, uint32_t *constant, uint32_t multiplier) {
    value ^= *constant;
    *constant *= multiplier;
    value *= *constant;
    return value ^ value >> 16;
}

static void make_seed(uint32_t seed, uint64_t words[4]) {
    uint32_t pool[4], constant = 0x43b0d7e5;
    for (uint32_t i = 0; i < 4; i++)
        pool[i] = hash_word(i == 0 ? seed : 0, &constant, 0x931e8875);
    for (uint32_t from = 0; from < 4; from++) {
        for (uint32_t to = 0; to < 4; to++) {
            if (from == to) continue;
            uint32_t other = hash_word(pool[from], &constant, 0x931e8875);
            uint32_t mixed = pool[to] * 0xca01f9ddU - other * 0x4973f715U;
            pool[to] = mixed ^ mixed >> 16;
        }
    }
    constant = 0x8b51f9dd;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t low = hash_word(pool[2 * i % 4], &constant, 0x58f38ded);
        uint64_t high = hash_word(pool[(2 * i + 1) % 4], &constant, 0x58f38ded);
        words[i] = low | high << 32;
    }
}

/* -- drawing */

static void step(pcg64 *rng) {
    const u128 multiplier =
        (u128)UINT64_C(2549297995355413924) << 64 | UINT64_C(4865540595714422341);
    rng->state = rng->state * multiplier + rng->increment;
}

static pcg64 open_pcg64(uint32_t seed) {
    uint64_t words[4];
    make_seed(seed, words);
    pcg64 rng = {.increment = ((u128)words[2] << 64 | words[3]) << 1 | 1};
    step(&rng);
    rng.state += (u128)words[0] << 64 | words[1];
    step(&rng);
    return rng;
}

static uint32_t draw(pcg64 *rng) {
    if (rng->has_kept) {
        rng->has_kept = false;
        return rng->kept;
    }
    step(rng);
    uint64_t mixed = (uint64_t)(rng->state >> 64) ^ (uint64_t)rng->state;
    uint32_t turn = (uint32_t)(rng->state >> 122);
    uint64_t value = mixed >> turn | mixed << (-turn & 63);
    rng->kept = (uint32_t)(value >> 32);
    rng->has_kept = true;
    return (uint32_t)value;
}

/* Returns a uniform number of 0 .. last: draws of as many bits until one is not above it. */
static uint32_t draw_upto(pcg64 *rng, uint32_t last) {
    uint32_t mask = last, value;
    for (uint32_t shift = 1; shift < 32; shift *= 2)
        mask |= mask >> shift;
    do {
        value = draw(rng) & mask;
    } while (value > last);
    return value;
}

void fm_pcg64_shuffle(uint32_t seed, uint32_t *items, uint32_t n) {
    pcg64 rng = open_pcg64(seed);
    for (uint32_t i = n; i-- > 1;) {
        uint32_t k = draw_upto(&rng, i), item = items[i];
        items[i] = items[k];
        items[k] = item;
    }
}
