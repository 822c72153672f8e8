/* cofold_ranks.h: predictions of complexes by several ranks (predict_group.h). Groups take seeds of
 * jobs from one list (cofold_share.h). The command writes what compares a job's structures, when
 * its last seed has ended. */
#ifndef FM_TRAINER_COFOLD_RANKS_H
#define FM_TRAINER_COFOLD_RANKS_H

#include "trainer/app/prediction/cofold_jobs.h"
#include "trainer/app/prediction/cofold_work.h"

/* What a group has done. */
typedef struct fm_cofold_report {
    int32_t signal;     /* the group was asked to stop by this signal; 0: it has ended a seed */
    uint32_t job, seed; /* numbers, from 0 */
    uint32_t n_structure, n_resumed;
    double seconds;
    fm_sha256 weights; /* of the file that the ranks have read */
    fm_status status;  /* of an input that cannot be predicted, with `error` */
    fm_error error;
} fm_cofold_report;

/* In the command: starts the ranks for n_seed[i] seeds of job i, and waits for them. `take` takes
 * each report about a seed. FM_ERR_CANCELLED when a signal asked to stop; FM_ERR_CLOSED after a
 * rank failed or was killed, and has reported it on standard error; the errors of fm_launch, of
 * fm_cofold_share_make, and of `take`. */
FM_MUST_USE fm_status fm_cofold_ranks_run(
    const fm_predict_ranks_options *options, const fm_cofold_jobs *jobs, const uint32_t *n_seed,
    fm_status (*take)(void *context, const fm_cofold_report *report, fm_error *reterr),
    void *context, fm_error *reterr);

/* In a rank: predicts seeds of jobs until none is left. Returns FM_OK when the rank was asked to
 * stop, too, because the command knows it. Errors are reported on standard error. */
FM_MUST_USE fm_status fm_cofold_rank_run(fm_predict_group *group, const fm_predict_settings *set,
                                         const fm_predict_model_options *options,
                                         fm_predict_model *model, fm_error *reterr);

#endif
