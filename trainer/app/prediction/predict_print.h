/* predict_print.h: prints the results of `foldmill predict` and `foldmill distill`, in lists of at
 * most ten lines. */
#ifndef FM_TRAINER_PREDICT_PRINT_H
#define FM_TRAINER_PREDICT_PRINT_H

#include "trainer/app/prediction/predict_run.h"

/* Prints the best prediction of each chain. */
void fm_predict_print_best(const fm_results *results);

/* Prints where the page of the only predicted chain is, or where all pages are. */
void fm_predict_print_pages(const char *out, const fm_results *results);

/* Prints how many structures have a mean pLDDT of at least least_plddt; there is one run. */
void fm_predict_print_kept(const fm_results *results, double least_plddt);

/* Prints the predictions that failed, with their reasons, to stderr. */
void fm_predict_print_failed(const char *program, const fm_results *results);

/* The predictions of this command in an hour. */
double fm_predict_hourly_rate(const fm_predict_pace *pace);
/* Writes "  1204 an hour, 13 min left"; "" before there is a rate, and after the last one. */
const char *fm_predict_format_pace(const fm_predict_pace *pace, char out[64]);

#endif
