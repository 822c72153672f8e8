/* cofold_jobs.h: the complexes of a command line. Inputs are prepared samples, descriptions of one
 * job or several, and folders of both. `foldmill prepare` makes the samples of all descriptions,
 * in the folder `inputs` of the results, before anything is predicted. */
#ifndef FM_TRAINER_COFOLD_JOBS_H
#define FM_TRAINER_COFOLD_JOBS_H

#include "trainer/app/prediction/predict_options.h"

/* A complex: its prepared sample, or why there is none. */
typedef struct fm_cofold_job {
    char *path; /* of the sample; NULL: refused */
    char *name; /* of a refused job; of an input without one, its path */
    char *why;  /* with the place in the input; NULL: not refused */
} fm_cofold_job;

typedef struct fm_cofold_jobs {
    uint32_t n, most;
    fm_cofold_job *job; /* in the order of the inputs */
} fm_cofold_jobs;

/* Lists the complexes. What is wrong with an input is the reason of its refusal. FM_ERR_DATA when
 * descriptions cannot be prepared at all, which is printed; FM_ERR_CANCELLED, FM_ERR_IO,
 * FM_ERR_NOMEM. The caller releases *jobs, also on failure. */
FM_MUST_USE fm_status fm_cofold_jobs_list(const fm_predict_settings *set, fm_cofold_jobs *jobs,
                                          fm_error *reterr);
void fm_cofold_jobs_release(fm_cofold_jobs *jobs);

#endif
