/* score_report.h: prints what foldmill score has found. */
#ifndef FM_CLI_SCORE_REPORT_H
#define FM_CLI_SCORE_REPORT_H

#include "server/cli/score_match.h"

typedef struct fm_score_report {
    const char *predicted_path, *truth_path;
    const fm_assembly *predicted, *truth;
    const fm_score_match *match;
    const fm_complex_comparison *comparison;
} fm_score_report;

/* Prints tables, or one JSON object, to standard output. Returns FM_ERR_LIMIT when the arena is
 * full. */
FM_MUST_USE fm_status fm_score_report_print(const fm_score_report *report, bool json,
                                            fm_arena *arena, fm_error *reterr);

#endif
