/* check_samples.h: `foldmill train --check-samples`, which reads stored samples as a run would. */
#ifndef FM_TRAINER_CHECK_SAMPLES_H
#define FM_TRAINER_CHECK_SAMPLES_H

#include "trainer/app/train/train_options.h"

/* Reads every file of --samples and --eval-samples. Prints each error, and the sizes of the samples
 * of each folder. *ret_n_bad is the number of files that a run of this configuration could not use.
 * FM_ERR_USAGE for another network, FM_ERR_NOMEM, and as fm_sample_folder_open. */
FM_MUST_USE fm_status fm_check_samples(const fm_train_options *set, uint32_t *ret_n_bad,
                                       fm_error *reterr);

#endif
