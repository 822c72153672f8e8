/* plot_data.h: reads what training runs have written, for pictures: metrics.jsonl, one object per
 * step, and eval.jsonl, one object per evaluation. */
#ifndef FM_CLI_PLOT_DATA_H
#define FM_CLI_PLOT_DATA_H

#include "proto/base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* One number of a run over its steps. Rows without it, or with a value that is not finite, have no
 * point. */
typedef struct fm_plot_series {
    char name[48];
    double *step, *value; /* [n] */
    size_t n, room;
} fm_plot_series;

enum { FM_PLOT_MOST_SERIES = 64 }; /* of one file; further ones are ignored */

typedef struct fm_plot_table {
    fm_plot_series series[FM_PLOT_MOST_SERIES];
    size_t n;
} fm_plot_table;

typedef struct fm_plot_run {
    const char *folder;
    char name[64];               /* the last part of the folder's path */
    fm_plot_table steps, scores; /* metrics.jsonl, eval.jsonl; one may be empty */
} fm_plot_run;

/* Reads a run's folder. A last line without its line feed is still being written and is ignored.
 * FM_ERR_NOT_FOUND when there is neither a finished step nor an evaluation; FM_ERR_CORRUPT, with
 * its number, for a line that is not a step; FM_ERR_IO, FM_ERR_NOMEM. Free the run in every
 * case. */
FM_MUST_USE fm_status fm_plot_read(const char *folder, fm_plot_run *run, fm_error *reterr);
void fm_plot_free(fm_plot_run *run);

/* Returns the series of that name, or NULL. */
const fm_plot_series *fm_plot_find(const fm_plot_table *table, const char *name);

#endif
