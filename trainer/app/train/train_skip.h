/* train_skip.h: bad samples: whether one ends the run or is skipped, and how its step ends without
 * it. */
#ifndef FM_TRAINER_TRAIN_SKIP_H
#define FM_TRAINER_TRAIN_SKIP_H

#include "trainer/app/train/train_run.h"

/* Decides about a bad sample: FM_OK to skip it, else the error in *reterr, with its sample. */
FM_MUST_USE fm_status fm_train_judge(fm_train_run *run, const fm_train_sample *sample,
                                     fm_status status, fm_error *reterr);
/* Notes that the sample is skipped. `why` says what is bad about it; NULL when the command line
 * names the sample. */
FM_MUST_USE fm_status fm_train_note_skipped(fm_train_run *run, const fm_train_sample *sample,
                                            const fm_error *why, fm_error *reterr);
/* Skips the sample at run->slot. No sample is in flight, and the caller has asked whether a skip is
 * allowed. */
FM_MUST_USE fm_status fm_train_skip(fm_train_run *run, const fm_train_sample *sample,
                                    const fm_error *why, fm_error *reterr);
/* Makes the sample the source of the error, unless it has one. */
void fm_train_name_sample(uint64_t index, const char *name, fm_error *reterr);

/* Prints how many samples were skipped, if any were. */
void fm_train_print_skipped(const fm_train_run *run);

#endif
