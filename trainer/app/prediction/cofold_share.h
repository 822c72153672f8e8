/* cofold_share.h: the work that a command and its ranks share: a list of jobs' seeds, in memory
 * that all of them see. Each group of ranks takes the next seed when it has finished one, so a long
 * job does not wait behind others. */
#ifndef FM_TRAINER_COFOLD_SHARE_H
#define FM_TRAINER_COFOLD_SHARE_H

#include "trainer/app/prediction/cofold_jobs.h"

typedef struct fm_cofold_share fm_cofold_share;

/* One seed of a job. */
typedef struct fm_cofold_unit {
    uint32_t job;  /* its number among all jobs of the command */
    uint32_t seed; /* its number among the job's seeds, from 0 */
    uint32_t path; /* where the path of the job's sample is */
} fm_cofold_unit;

enum { FM_COFOLD_NO_UNIT = INT32_MAX };

/* In the command: lists job after job, with n_seed[i] seeds of job i. Processes that are started
 * until it is closed find it. FM_ERR_NOMEM, FM_ERR_IO, FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_cofold_share_make(const fm_cofold_jobs *jobs, const uint32_t *n_seed,
                                           fm_cofold_share **ret_share, fm_error *reterr);
/* In a rank: opens the list. FM_ERR_USAGE when no command has made one. */
FM_MUST_USE fm_status fm_cofold_share_open(fm_cofold_share **ret_share, fm_error *reterr);
/* NULL is allowed. */
void fm_cofold_share_close(fm_cofold_share *share);

/* Takes the number of the next unit, which no other process takes; FM_COFOLD_NO_UNIT: none is left.
 */
uint32_t fm_cofold_share_take(fm_cofold_share *share);
const fm_cofold_unit *fm_cofold_share_unit(const fm_cofold_share *share, uint32_t number);
const char *fm_cofold_share_path(const fm_cofold_share *share, const fm_cofold_unit *unit);

#endif
