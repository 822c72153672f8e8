/* report.c: the memory of a report; see report.h. */
#include "server/web/report.h"

#include <stdlib.h>

void fm_report_free(fm_web_report *report) {
    if (!report) return;
    free(report->value);
    free(report->stream);
    free(report->consumer);
    free(report->snapshot);
    free(report);
}
