/* results_folder.h: checks that the folder of --out belongs to nothing else: for the results of
 * `foldmill predict`, `distill` and `eval`, and for the files of a training run. */
#ifndef FM_TRAINER_RESULTS_FOLDER_H
#define FM_TRAINER_RESULTS_FOLDER_H

#include "proto/base/status.h"

/* Refuses a folder that belongs to something else, and changes nothing: a cache, the folder of a
 * training run, or a dataset without results. Returns FM_ERR_USAGE, or FM_ERR_IO for a folder that
 * cannot be read. */
FM_MUST_USE fm_status fm_results_folder_check(const char *folder, fm_error *reterr);

/* The same for the folder of a training run: refuses a cache, and a dataset without a run. */
FM_MUST_USE fm_status fm_train_folder_check(const char *folder, fm_error *reterr);

#endif
