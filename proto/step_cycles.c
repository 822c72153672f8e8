/* step_cycles.c: see step_cycles.h. */
#include "proto/step_cycles.h"

#include "proto/base/rng.h"

/* The purpose of this draw in docs/reference/sampling.md, section 2. */
enum { PURPOSE = 3 };

/* A31:1 */
uint32_t fm_step_cycles(uint64_t seed, uint64_t step, uint32_t max_cycle) {
    const fm_philox_counter counter = {
        {0, (uint32_t)PURPOSE << 16, (uint32_t)step, (uint32_t)(step >> 32)}};
    const fm_philox_counter word = fm_philox(seed, counter);
    return 1 + fm_uniform_below((uint64_t)word.word[1] << 32 | word.word[0], max_cycle);
}

uint32_t fm_steps_most_cycles(uint64_t seed, uint64_t first, uint64_t last, uint32_t max_cycle) {
    uint32_t most = 1;
    for (uint64_t step = first; step <= last && most < max_cycle; step++) {
        uint32_t n = fm_step_cycles(seed, step, max_cycle);
        if (n > most) most = n;
    }
    return most;
}
