/* step_rows.h: the values that differ between the denoising steps of a rollout. The state has them
 * for all steps, and before a step a copy on the device moves its row into the tensors that the
 * step reads. So the host writes everything before the first step, and one graph serves all. */
#ifndef FM_TRAINER_INFER_STEP_ROWS_H
#define FM_TRAINER_INFER_STEP_ROWS_H

#include "trainer/model/af3/rollout.h"
#include "trainer/step/af3/mirror.h"

enum { FM_AF3_STEP_ROWS = 11 };

/* A tensor that has another value in each denoising step: `now` gets row k of `all` before step k.
 */
typedef struct fm_af3_step_row {
    int32_t all, now;
} fm_af3_step_row;

typedef struct fm_af3_step_rows {
    fm_af3_step_row row[FM_AF3_STEP_ROWS];
    int n;
} fm_af3_step_rows;

/* Declares the rows of n_step steps for the tensors of a rollout and for the clock. */
void fm_af3_declare_step_rows(fm_state *state, const fm_af3_rollout *rollout, int32_t clock,
                              int64_t n_step, fm_af3_step_rows *ret_rows);

/* Adds the rows to a mirror. */
void fm_af3_mirror_step_rows(const fm_af3_step_rows *rows, fm_mirror *mirror);

/* Returns the tensor that has the values of `now` for all steps. */
int32_t fm_af3_step_rows_of(const fm_af3_step_rows *rows, int32_t now);

/* Writes elements of the tensors of one step into its row. */
typedef struct fm_af3_step_writer {
    const fm_af3_step_rows *rows;
    fm_mirror *mirror;
    int64_t k; /* the number of the step */
} fm_af3_step_writer;

/* Writes element `at` of a tensor of step k; the context is a fm_af3_step_writer. */
void fm_af3_step_put(void *context, int32_t tensor, int64_t at, double value);

/* Queues the copies before step k. */
void fm_af3_queue_step_rows(const fm_af3_step_rows *rows, const fm_state *state, int64_t k,
                            fm_stream *stream);

#endif
