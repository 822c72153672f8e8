/* tape_internal.h: the declarations that the source files of the tape share. */
#ifndef FM_TRAINER_TAPE_INTERNAL_H
#define FM_TRAINER_TAPE_INTERNAL_H

#include "trainer/autograd/tape.h"

/* Adds a tensor shaped like `of`, for its gradient. */
fm_tensor_ref fm_tape_add_gradient(fm_tape *tape, fm_tensor_ref of);

/* Runs step `at`, dry or for real. Returns the workspace bytes that it asked for. */
int64_t fm_tape_run_step(fm_tape *tape, int32_t at, fm_stream *stream, bool dry);

/* Writes NaN into all memory that step `at` is the first to use: buffers whose life begins here and
 * the step's workspace. At the first backward step these are also the gradients of parameters that
 * backward writes. */
void fm_tape_spoil(const fm_tape *tape, int32_t at, fm_stream *stream);

/* Device pointer of a tensor at a step; NULL for FM_TENSOR_NONE. Asserts that the tensor is
 * alive. */
void *fm_tape_place(const fm_tape *tape, fm_tensor_ref ref, int32_t step);

#endif
