/* dry_run.h: `foldmill train --dry-run`: what a run would be, without data, ranks or a folder. */
#ifndef FM_TRAINER_DRY_RUN_H
#define FM_TRAINER_DRY_RUN_H

#include "trainer/app/train/train_run.h"

/* Prints the layout of a run whose settings and layout are found, the memory that a rank of each
 * branch would take on the device of this machine, and what `foldmill forecast` says of the layout.
 * The memory is planned for AlphaFold2's network only. Where it cannot be planned or forecast, the
 * output says why. FM_ERR_CANCELLED when a signal ends the wait for the forecast. */
FM_MUST_USE fm_status fm_dry_run(const fm_train_run *run, fm_error *reterr);

#endif
