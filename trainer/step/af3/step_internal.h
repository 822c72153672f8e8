/* step_internal.h: functions that the files of AlphaFold 3's step share. */
#ifndef FM_TRAINER_STEP_AF3_STEP_INTERNAL_H
#define FM_TRAINER_STEP_AF3_STEP_INTERNAL_H

#include "trainer/step/af3/step.h"

/* Makes the passes of the parts, once memory is bound. (step_run.c) */
void fm_af3_trainer_make_parts(fm_af3_trainer *trainer);

/* Adds the tensors that the host writes to the mirrors. Only the device writes the others, such as
 * z and the biases of a rollout. (step_write.c, as the next five) */
void fm_af3_trainer_choose_mirrored(fm_af3_trainer *trainer);
/* Writes the features that all cycles share, unless they are there already. FM_ERR_LIMIT,
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_af3_trainer_write(fm_af3_trainer *trainer, fm_error *reterr);
/* Writes the reference conformers of the sample in hand. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_af3_trainer_write_conformers(fm_af3_trainer *trainer, fm_error *reterr);
/* Writes noise levels and the numbers of the rollout's steps. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_af3_trainer_write_noise(fm_af3_trainer *trainer, fm_error *reterr);
/* Writes the features of the announced sample and the MSA rows of its first cycle, and begins their
 * upload. If that fails, its own step reports it. */
void fm_af3_trainer_write_next(fm_af3_trainer *trainer);
/* Writes the MSA rows of a cycle, unless they are there already, and the clock. */
void fm_af3_trainer_write_cycle(fm_af3_trainer *trainer, uint32_t cycle);

#endif
