/* predict_pages.h: writes the pictures and pages of chains from the files of their predictions. */
#ifndef FM_TRAINER_PREDICT_PAGES_H
#define FM_TRAINER_PREDICT_PAGES_H

#include "trainer/app/prediction/predict_run.h"

/* Writes plddt.svg, CHAIN.html and, if the alignment is known, coverage.svg to OUT/CHAIN for each
 * chain with a prediction. Returns FM_ERR_CANCELLED when a signal asked to stop, FM_ERR_FORMAT for
 * a file that is not a prediction's, FM_ERR_IO or FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_predict_write_pages(const fm_predict_run_options *options,
                                             const fm_results *results, fm_error *reterr);

#endif
