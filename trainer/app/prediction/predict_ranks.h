/* predict_ranks.h: predictions of chains by several processes of this host (predict_group.h). Each
 * group takes a block of neighbouring chains. So the command has all results, as if it had made the
 * predictions. */
#ifndef FM_TRAINER_PREDICT_RANKS_H
#define FM_TRAINER_PREDICT_RANKS_H

#include "trainer/app/prediction/predict_group.h"
#include "trainer/app/prediction/predict_run.h"

/* In the command: starts the ranks, which predict what `run` describes, and waits for them. Returns
 * FM_ERR_CANCELLED when a signal asked to stop. Returns FM_ERR_CLOSED after a rank failed or was
 * killed, and has reported it on standard error; finished predictions stay. The other errors are
 * those of fm_launch. The caller releases *ret_results, also after a failure. */
FM_MUST_USE fm_status fm_predict_ranks_run(const fm_predict_ranks_options *options,
                                           const fm_predict_run_options *run,
                                           fm_results *ret_results, fm_error *reterr);

/* In a rank: predicts the chains of its group. Rank 0 calls run->on_model; no rank calls
 * run->on_result. Also returns FM_OK when the rank was asked to stop, because the command knows it.
 */
FM_MUST_USE fm_status fm_predict_rank_run(fm_predict_group *group,
                                          const fm_predict_run_options *run, fm_error *reterr);

#endif
