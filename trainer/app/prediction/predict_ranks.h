/* predict_ranks.h: predictions by several processes of this host.
 *
 * The command prepares the inputs, starts the ranks (launch.h) and waits. Its N ranks form N / D
 * groups of D. The ranks of a group share each of its chains: each rank holds a part of the chain's
 * arrays (Dynamic Axial Parallelism). Each group takes a block of neighbouring chains. The first
 * rank of a group writes the files of a prediction, and reports it to the command through a pipe.
 * So the command has all results, as if it had made the predictions.
 *
 * Groups do not wait for each other. Within a group, all ranks agree before each chain whether one
 * of them was asked to stop. */
#ifndef FM_TRAINER_PREDICT_RANKS_H
#define FM_TRAINER_PREDICT_RANKS_H

#include "trainer/app/prediction/predict_run.h"

typedef struct fm_predict_ranks_options {
    const char *program; /* "foldmill predict" */
    int argc;
    char **argv;    /* the command line, from the command's name on */
    int32_t n_rank; /* 1: the command works alone */
    int32_t dap;    /* D, which divides n_rank */
    bool divides;   /* the cores, for ranks on CPUs */
} fm_predict_ranks_options;

/* -- in the command */

/* Starts the ranks, which predict what `run` describes, and waits for them. Returns
 * FM_ERR_CANCELLED when a signal asked to stop. Returns FM_ERR_CLOSED after a rank failed or was
 * killed, and has reported it on standard error; finished predictions stay. The other errors are
 * those of fm_launch. The caller releases *ret_results, also after a failure. */
FM_MUST_USE fm_status fm_predict_ranks_run(const fm_predict_ranks_options *options,
                                           const fm_predict_run_options *run,
                                           fm_results *ret_results, fm_error *reterr);

/* -- in a rank */

/* Returns the address of the server that the command has started; NULL in a process that is not a
 * rank. */
const char *fm_predict_rank_server(void);

typedef struct fm_predict_rank fm_predict_rank;

/* Meets the other ranks of the group, and finds the device. The errors of fm_world_find,
 * fm_device_find, fm_ranks_open and fm_ranks_join, which one rank of the group reports on standard
 * error, like all errors below. */
FM_MUST_USE fm_status fm_predict_rank_open(const fm_predict_ranks_options *options,
                                           const char *device, const char *dtype,
                                           fm_predict_rank **ret_rank, fm_error *reterr);

/* Ends the work of the group because this rank has failed alone. */
void fm_predict_rank_fail(fm_predict_rank *rank, const fm_error *error);

/* Predicts the chains of this rank's group. Rank 0 calls run->on_model; no rank calls
 * run->on_result. Also returns FM_OK when the rank was asked to stop, because the command knows it.
 */
FM_MUST_USE fm_status fm_predict_rank_run(fm_predict_rank *rank, const fm_predict_run_options *run,
                                          fm_error *reterr);

void fm_predict_rank_close(fm_predict_rank *rank);

#endif
