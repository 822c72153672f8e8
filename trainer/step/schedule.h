/* schedule.h: the exchanges of a step as one number, by which ranks find out before the first step
 * that they would wait for different things. */
#ifndef FM_TRAINER_STEP_SCHEDULE_H
#define FM_TRAINER_STEP_SCHEDULE_H

#include "trainer/step/step.h"

/* The hash of the nodes of n tapes, in the order in which they run, recomputed ones included. It is
 * the same for all ranks of a run that have the same branch of the blocks. With `joint` it has only
 * the exchanges that all branches make, so it is the same for all ranks. */
uint64_t fm_schedule_digest_tapes(const fm_tape *const *tape, int n, bool joint);
/* That of both tapes of a trainer. */
uint64_t fm_schedule_digest(const fm_trainer *trainer, bool joint);

#endif
