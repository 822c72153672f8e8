/* step_internal.h: functions that the files of AlphaFold 3's step share. */
#ifndef FM_TRAINER_STEP_AF3_STEP_INTERNAL_H
#define FM_TRAINER_STEP_AF3_STEP_INTERNAL_H

#include "trainer/step/af3/step.h"

/* Makes the passes of the parts, once memory is bound. (step_run.c) */
void fm_af3_trainer_make_parts(fm_af3_trainer *trainer);

/* Adds the tensors that the host writes to the mirrors. Only the device writes the others, such as
 * z and the biases of a rollout. (step_write.c, as the next four) */
void fm_af3_trainer_choose_mirrored(fm_af3_trainer *trainer);
/* Writes everything of the sample in hand that does not depend on its results: features, noise
 * levels, and the numbers of the rollout's steps. FM_ERR_LIMIT, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_af3_trainer_write(fm_af3_trainer *trainer, fm_error *reterr);
/* Writes the features of the announced sample. If that fails, its own step reports it. */
void fm_af3_trainer_write_next(fm_af3_trainer *trainer);
/* Writes the MSA rows of a cycle, and the clock. */
void fm_af3_trainer_write_cycle(fm_af3_trainer *trainer, uint32_t cycle);
/* Writes the clock. */
void fm_af3_trainer_write_clock(fm_af3_trainer *trainer, uint32_t cycle);

#endif
