/* top_run.h: reads and draws the metrics of a training run for `foldmill top`. */
#ifndef FM_CLI_TOP_RUN_H
#define FM_CLI_TOP_RUN_H

#include "proto/base/status.h"

#include <stdbool.h>
#include <stdio.h>

/* Reads the end of `folder`/metrics.jsonl and writes the summary: text of at most `columns` bytes a
 * line (0 = no limit), or one JSON object. FM_ERR_NOT_FOUND without such a file, FM_ERR_CORRUPT for
 * a line that is no step, FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_top_draw_run(const char *folder, bool json, size_t columns, FILE *out,
                                      fm_error *reterr);

#endif
