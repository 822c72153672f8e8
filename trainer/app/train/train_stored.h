/* train_stored.h: the samples of a run that are stored in a folder, and AlphaFold 3's network,
 * which learns from them. */
#ifndef FM_TRAINER_TRAIN_STORED_H
#define FM_TRAINER_TRAIN_STORED_H

#include "trainer/app/train/train_work.h"

extern const fm_train_work fm_train_stored_work;

#endif
