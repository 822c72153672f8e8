/* step_cycles.h: how many recycling cycles a step has, and how many a sample must carry so that it
 * can be used in a step of another place (docs/reference/sampling.md, section 3).
 *
 * Servers and trainers both need these numbers: a server makes the cycles, and a trainer uses those
 * of the step in which a sample is used, which is not always the sample's own. */
#ifndef FM_STEP_CYCLES_H
#define FM_STEP_CYCLES_H

#include "proto/base/status.h"

/* Returns the number of recycling cycles of a step, 1 .. max_cycle, the same for all ranks. */
uint32_t fm_step_cycles(uint64_t seed, uint64_t step, uint32_t max_cycle);

/* Returns the largest number of cycles of the steps first .. last, first <= last. */
uint32_t fm_steps_most_cycles(uint64_t seed, uint64_t first, uint64_t last, uint32_t max_cycle);

#endif
