/* tape_internal.h: what the three files of the tape share. */
#ifndef FM_TRAINER_TAPE_INTERNAL_H
#define FM_TRAINER_TAPE_INTERNAL_H

#include "trainer/autograd/tape.h"

/* A new tensor shaped like `of`, for its gradient. */
fm_tensor_ref fm_tape_add_gradient(fm_tape *tape, fm_tensor_ref of);

/* Runs step `at`, dry or for real; returns the workspace bytes that it asked for. */
int64_t fm_tape_run_step(fm_tape *tape, int32_t at, fm_stream *stream, bool dry);

/* NaN into all that step `at` is the first to use: buffers that begin to live, its workspace and,
 * when backward begins, gradients of parameters that it writes. */
void fm_tape_spoil(const fm_tape *tape, int32_t at, fm_stream *stream);

/* Where a tensor lies at a step, NULL for FM_TENSOR_NONE; asserts that it is alive. */
void *fm_tape_place(const fm_tape *tape, fm_tensor_ref ref, int32_t step);

#endif
