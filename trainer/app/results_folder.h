/* results_folder.h: the folder of the results of `foldmill predict`, `distill` and `eval`. */
#ifndef FM_TRAINER_RESULTS_FOLDER_H
#define FM_TRAINER_RESULTS_FOLDER_H

#include "proto/base/status.h"

/* Refuses a folder that belongs to something else, and changes nothing: a cache, the folder of a
 * training run, or a dataset without results. Returns FM_ERR_USAGE, or FM_ERR_IO for a folder that
 * cannot be read. */
FM_MUST_USE fm_status fm_results_folder_check(const char *folder, fm_error *reterr);

#endif
