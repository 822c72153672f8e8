/* job_data.h: a job as AlphaFold 3's JSON with the alignments and templates that it used, so that
 * one file is enough to predict it again (AlphaFold 3 calls it NAME_data.json).
 *
 * Alignments are A3M text in the file. A template is mmCIF text of its chain with its index map,
 * also where an alignment made the map. Components of molfiles are written as userCCD. */
#ifndef FM_JOB_DATA_H
#define FM_JOB_DATA_H

#include "featurizer/job/prepare.h"

/* Makes the text, which fm_jobs_read reads as the same job, in the arena. Its size is 0, and a
 * warning says so, where the job cannot be written: an id of a chain is none of AlphaFold 3's, or
 * the text is longer than FM_LIMIT_JOB_BYTES. Needs what fm_job_read_inputs has kept. Returns
 * FM_ERR_NOMEM, FM_ERR_LIMIT when the arena is full, and the errors of the user's files. */
FM_MUST_USE fm_status fm_job_make_data(fm_job_work *work, fm_bytes *ret_text);

#endif
