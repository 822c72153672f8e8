/* build_report.h: how foldmill build shows its progress and its result. */
#ifndef FM_CLI_BUILD_REPORT_H
#define FM_CLI_BUILD_REPORT_H

#include "cache/build/build.h"
#include "server/cli/build_share.h"
#include "proto/base/json_text.h"
#include "server/cli/template_counts.h"

#include <stdio.h>

/* State of the progress line; the context of fm_build_options.progress. */
typedef struct fm_build_display {
    bool quiet;
    bool json;         /* one JSON object on a line, every second */
    bool terminal;     /* draw a bar on standard error; otherwise a line every few seconds */
    bool drawn;        /* there is a bar on the terminal */
    double last_shown; /* seconds since the start */
} fm_build_display;

void fm_build_display_show(void *context, const fm_build_progress *progress);
/* Removes the bar. */
void fm_build_display_end(fm_build_display *display);

/* The report for people. */
void fm_build_print_report(FILE *out, const char *cache, const fm_build_report *report);
/* Only the line about chains that came, stayed and went, if any stayed or went. `what`: what is
 * built, as the line calls it: "dataset" or "job". */
void fm_build_print_change(FILE *out, const fm_build_report *report, const char *what);
/* Only the lines about the generation: refusals, sizes, content digest, folder. */
void fm_build_print_generation(FILE *out, const char *cache, const fm_build_report *report);

/* What the JSON object of a build is made of. */
typedef struct fm_build_summary {
    const char *outcome; /* "all", "some", "none", "stopped" */
    const char *dataset, *cache;
    const fm_build_report *report;
    const fm_template_counts *templates; /* NULL when the build published no generation */
    const fm_build_share *share;         /* NULL for a build that shares no job */
    const fm_build_share_report *shared;
} fm_build_summary;

/* The report as one JSON object; `foldmill build --help` lists its members. */
void fm_build_print_json(FILE *out, const fm_build_summary *summary);
/* The same into a file. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_build_write_json(const char *path, const fm_build_summary *summary,
                                          fm_error *reterr);

/* Members of the open object that describe the generation: "cache", "generation", "published",
 * "content", "chains", "complexes", "refused", "refused_by_reason", "refusals",
 * "proteins_of_complexes", "proteins_without_cluster", "stored_bytes", "decoded_bytes", "added",
 * "kept", "left". */
void fm_build_json_generation(fm_json_writer *json, const char *cache,
                              const fm_build_report *report);

#endif
