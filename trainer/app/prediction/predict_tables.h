/* predict_tables.h: writes the files that compare the predictions of a command. */
#ifndef FM_TRAINER_PREDICT_TABLES_H
#define FM_TRAINER_PREDICT_TABLES_H

#include "trainer/app/prediction/predict_run.h"

/* Writes each chain's ranking.json. FM_ERR_IO, FM_ERR_NOMEM, as the others. */
FM_MUST_USE fm_status fm_predict_write_rankings(const fm_predict_run_options *options,
                                                const fm_results *results, fm_error *reterr);

/* Writes OUT/chains.txt, the names of the chains whose structures are kept. There is one run. */
FM_MUST_USE fm_status fm_predict_write_kept(const fm_predict_run_options *options,
                                            const fm_results *results, fm_error *reterr);

/* Writes the lists of the outputs, and OUT/summary.csv. */
FM_MUST_USE fm_status fm_predict_write_tables(const fm_predict_run_options *options,
                                              const fm_results *results, fm_error *reterr);

/* Writes OUT/timings.json: the seconds of the inputs, of everything, and of each prediction.
 */
FM_MUST_USE fm_status fm_predict_write_timings(const fm_predict_run_options *options,
                                               const fm_results *results, double inputs_s,
                                               double all_s, fm_error *reterr);

#endif
