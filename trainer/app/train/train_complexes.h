/* train_complexes.h: the samples of complexes of a run that come from a server, from which
 * AlphaFold 3's network learns. */
#ifndef FM_TRAINER_TRAIN_COMPLEXES_H
#define FM_TRAINER_TRAIN_COMPLEXES_H

#include "trainer/app/train/train_work.h"

extern const fm_train_work fm_train_complexes_work;

#endif
