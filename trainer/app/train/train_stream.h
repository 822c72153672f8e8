/* train_stream.h: the samples of a run that come from a server, and AlphaFold2's network, which
 * learns from them. */
#ifndef FM_TRAINER_TRAIN_STREAM_H
#define FM_TRAINER_TRAIN_STREAM_H

#include "trainer/app/train/train_work.h"

extern const fm_train_work fm_train_stream_work;

#endif
