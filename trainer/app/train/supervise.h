/* supervise.h: `foldmill train --supervise`: runs the same command as a child and starts it again
 * with --resume when it fails, so that a run survives the loss of a rank or a crash.
 *
 * The child is what the command would be without the option: the only process of a run, the
 * command that starts ranks, or a rank that another launcher has started. So each rank of such a
 * launcher has a supervisor, and all of them start their ranks again when the run has ended for
 * all; these meet as at the first start.
 *
 * The child is started again when it was killed or ended with exit code 1, after it has begun the
 * run once (last_words.h). What fails before is not cured by another start. Before the n-th restart
 * in a row without a new checkpoint it waits 2^(n-1) s, at most 60. It gives up after --restarts of
 * them in all, and after three failures in a row at one checkpoint for the same reason. */
#ifndef FM_TRAINER_SUPERVISE_H
#define FM_TRAINER_SUPERVISE_H

#include "trainer/app/train/train_options.h"

/* Supervises until the run is done, was asked to stop or is given up; *ret_code is its exit code.
 * The first rank's supervisor logs every restart and appends it to OUT/restarts.jsonl. FM_ERR_USAGE
 * of fm_world_find, FM_ERR_NOMEM, and FM_ERR_IO when no process can be started. */
FM_MUST_USE fm_status fm_supervise(const fm_train_options *set, int *ret_code, fm_error *reterr);

#endif
