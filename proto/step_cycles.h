/* step_cycles.h: how many recycling cycles a step has, and how many a sample must carry to be used
 * in another step (docs/reference/sampling.md, section 3).
 *
 * Servers and trainers both need these numbers. A server makes the cycles. A trainer uses as many
 * as the step has in which it uses the sample, which is not always the sample's own step. */
#ifndef FM_STEP_CYCLES_H
#define FM_STEP_CYCLES_H

#include "proto/base/status.h"

/* Returns the number of recycling cycles of a step, 1 .. max_cycle, the same for all ranks. */
uint32_t fm_step_cycles(uint64_t seed, uint64_t step, uint32_t max_cycle);

/* Returns the largest number of cycles of the steps first .. last, first <= last. */
uint32_t fm_steps_most_cycles(uint64_t seed, uint64_t first, uint64_t last, uint32_t max_cycle);

#endif
