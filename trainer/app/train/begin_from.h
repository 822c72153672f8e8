/* begin_from.h: begins a new run with the parameters of a checkpoint. */
#ifndef FM_TRAINER_BEGIN_FROM_H
#define FM_TRAINER_BEGIN_FROM_H

#include "trainer/tensor/params.h"

/* Takes over the parameters and the average of a checkpoint. The trainer is new: its moments are 0,
 * and it has made no step. The checkpoint's model must have the same sizes; its other settings do
 * not matter. There are two exceptions, which the log names. The aligned error head may be new, and
 * keeps the values that the trainer has drawn. An aligned error head or template embedders that
 * this model does not have are not used. FM_ERR_CORRUPT, FM_ERR_NOT_FOUND, FM_ERR_IO,
 * FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_begin_from(const char *path, fm_params *params, fm_error *reterr);

#endif
