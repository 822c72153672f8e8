/* train_save.h: the checkpoints of a run: when they are written, and the last one. */
#ifndef FM_TRAINER_TRAIN_SAVE_H
#define FM_TRAINER_TRAIN_SAVE_H

#include "trainer/app/train/train_run.h"

/* FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_train_saves_create(fm_train_run *run, fm_error *reterr);
void fm_train_saves_destroy(fm_train_run *run);

/* The steps begin at run->start_ns, and so does the time to the first checkpoint. */
void fm_train_saves_begin(fm_train_run *run);

/* With several groups of ranks, a checkpoint is that of the last whole step. Call the first once
 * the state is loaded, and the second after each step. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_train_saves_keep_steps(fm_train_run *run, fm_error *reterr);
void fm_train_saves_note_step(fm_train_run *run);

/* Whether this process has written a checkpoint. *ret_place is that of the newest one, else where
 * the process began. */
bool fm_train_has_saved(const fm_train_run *run, fm_checkpoint_place *ret_place);

/* The settings by which checkpoints are written and resumed. */
fm_resume_options fm_train_resume_options(const fm_train_run *run);

/* Returns FM_TRAIN_SAVE_IS_DUE and FM_TRAIN_SAVE_IS_ASKED, where a checkpoint is due or was asked
 * for. Several ranks agree on it. */
enum { FM_TRAIN_SAVE_IS_DUE = 1, FM_TRAIN_SAVE_IS_ASKED = 2 };
unsigned fm_train_wants_checkpoint(fm_train_run *run);

/* Writes a checkpoint if `wants` is not 0. One that cannot be written is logged and tried again
 * later; the older ones stay. The errors of fm_train_drain. */
FM_MUST_USE fm_status fm_train_save(fm_train_run *run, unsigned wants, fm_error *reterr);

/* Writes the last checkpoint of a run, whatever ended it: `status`, with its error in *reterr,
 * which then says how far the run came and what to do. */
FM_MUST_USE fm_status fm_train_save_last(fm_train_run *run, fm_status status, fm_error *reterr);

/* Writes the end of a sentence about where the run is: "after step 12 of 40 and 3 samples". */
void fm_train_describe_place(const fm_train_run *run, char *out, size_t out_bytes);

#endif
