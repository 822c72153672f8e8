/* predict_pages.h: the pictures and pages of chains, made of the files that predictions left. */
#ifndef FM_TRAINER_PREDICT_PAGES_H
#define FM_TRAINER_PREDICT_PAGES_H

#include "trainer/app/predict_run.h"

/* Writes OUT/CHAIN/coverage.svg (where the alignment is known), plddt.svg and CHAIN.html for each
 * chain with a prediction. FM_ERR_CANCELLED when a signal asked to stop; FM_ERR_IO, FM_ERR_NOMEM,
 * FM_ERR_FORMAT for a file that is not what a prediction left. */
FM_MUST_USE fm_status fm_predict_write_pages(const fm_predict_run_options *options,
                                             const fm_results *results, fm_error *reterr);

#endif
