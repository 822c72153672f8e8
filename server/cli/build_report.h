/* build_report.h: how `foldmill build` shows its progress and its end. */
#ifndef FM_CLI_BUILD_REPORT_H
#define FM_CLI_BUILD_REPORT_H

#include "cache/build/build.h"

#include <stdio.h>

/* State of the progress line; context of fm_build_options.progress. */
typedef struct fm_build_display {
    bool quiet;
    bool json;         /* a JSON object a line, every second */
    bool terminal;     /* stderr is one: a bar that redraws itself; else a line every few seconds */
    bool drawn;        /* a bar stands on the terminal */
    double last_shown; /* seconds since the start */
} fm_build_display;

void fm_build_display_show(void *context, const fm_build_progress *progress);
/* Takes the bar away. */
void fm_build_display_end(fm_build_display *display);

/* The report for people, and the same figures as one JSON object. */
void fm_build_print_report(FILE *out, const char *cache, const fm_build_report *report);
/* Only what it says about the generation: refusals, bytes, content, where it lies. */
void fm_build_print_generation(FILE *out, const char *cache, const fm_build_report *report);
FM_MUST_USE fm_status fm_build_write_json(const char *path, const char *dataset, const char *cache,
                                          const char *outcome, const fm_build_report *report,
                                          fm_error *reterr);

#endif
