/* build_share.h: the options of foldmill build with which it shares a job with other workers, and
 * the lines about the job in its report. */
#ifndef FM_CLI_BUILD_SHARE_H
#define FM_CLI_BUILD_SHARE_H

#include "cache/build/build_shared.h"
#include "proto/base/options.h"
#include "proto/base/json_text.h"

#include <stdio.h>

enum { FM_BUILD_SHARE_OPTIONS = 10 }; /* including the end of the table */

typedef struct fm_build_share_arguments {
    const char *catalogue, *job, *publish;
    bool renew, again;
    double lease, heartbeat, pause; /* seconds; 0 = default */
    uint64_t attempts;
} fm_build_share_arguments;

/* Writes the rows of the option table, with the row that ends it. */
void fm_build_share_list(fm_build_share_arguments *arguments,
                         fm_option out[FM_BUILD_SHARE_OPTIONS]);

/* Checks the options and translates them. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_build_share_read(const fm_build_share_arguments *arguments,
                                          fm_build_share *ret_share, fm_error *reterr);

/* Prints the state of the job and what this worker did. */
void fm_build_share_print(FILE *out, const fm_build_share *share,
                          const fm_build_share_report *report);
/* The same as members of the open object: "worker": {"name", "items", "lost",
 * "connections_lost"}, "job": {"name", "done", "refused", "leased", "pending"}. */
void fm_build_share_json(fm_json_writer *json, const fm_build_share *share,
                         const fm_build_share_report *report);

#endif
