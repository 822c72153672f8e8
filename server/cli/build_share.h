/* build_share.h: the options of `foldmill build` that share a job with other workers, and what is
 * said at its end. */
#ifndef FM_CLI_BUILD_SHARE_H
#define FM_CLI_BUILD_SHARE_H

#include "cache/build/build_shared.h"
#include "proto/base/options.h"

#include <stdio.h>

enum { FM_BUILD_SHARE_OPTIONS = 10 }; /* the end of the table among them */

typedef struct fm_build_share_arguments {
    const char *catalogue, *job, *publish;
    bool renew, again;
    double lease, heartbeat, pause; /* seconds; 0 = default */
    uint64_t attempts;
} fm_build_share_arguments;

/* The rows of the table of options, and its end. */
void fm_build_share_list(fm_build_share_arguments *arguments,
                         fm_option out[FM_BUILD_SHARE_OPTIONS]);

/* What they ask for; FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_build_share_read(const fm_build_share_arguments *arguments,
                                          fm_build_share *ret_share, fm_error *reterr);

/* How the job stands and what this worker did. */
void fm_build_share_print(FILE *out, const fm_build_share *share,
                          const fm_build_share_report *report);

#endif
