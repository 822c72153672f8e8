/* cofold_summary.h: OUT/summary.csv of complexes: a row for each structure, in the order of the
 * jobs and of the ranks of each, and one for each job that was refused or failed, with the reason.
 */
#ifndef FM_TRAINER_COFOLD_SUMMARY_H
#define FM_TRAINER_COFOLD_SUMMARY_H

#include "trainer/app/prediction/cofold_record.h"

#include <stdio.h>

void fm_cofold_summary_begin(FILE *out);
/* order [n]: the numbers of the results, best first. */
void fm_cofold_summary_put(FILE *out, const fm_cofold_input *input, const fm_cofold_result *results,
                           const uint32_t *order, uint32_t n);
void fm_cofold_summary_put_failed(FILE *out, const char *name, const char *why);

#endif
