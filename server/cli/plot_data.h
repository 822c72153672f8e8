/* plot_data.h: reads what training runs have written, for pictures: metrics.jsonl, one object per
 * step, and eval.jsonl, one object per evaluation. */
#ifndef FM_CLI_PLOT_DATA_H
#define FM_CLI_PLOT_DATA_H

#include "proto/base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* One number of a run over its steps. Rows that lack it, or where it is not finite, have none. */
typedef struct fm_plot_series {
    char name[48];
    double *step, *value; /* [n] */
    size_t n, room;
} fm_plot_series;

enum { FM_PLOT_MOST_SERIES = 64 }; /* of one file; what follows is left out */

typedef struct fm_plot_table {
    fm_plot_series series[FM_PLOT_MOST_SERIES];
    size_t n;
} fm_plot_table;

typedef struct fm_plot_run {
    const char *folder;
    char name[64];               /* the last part of the folder's path */
    fm_plot_table steps, scores; /* metrics.jsonl, eval.jsonl; one may be empty */
} fm_plot_run;

/* Reads a run's folder. A last line without its end is being written and is left out.
 * FM_ERR_NOT_FOUND when there is neither a finished step nor an evaluation;
 * FM_ERR_CORRUPT with the line for one that is no step; FM_ERR_IO, FM_ERR_NOMEM. Free the run in
 * every case. */
FM_MUST_USE fm_status fm_plot_read(const char *folder, fm_plot_run *run, fm_error *reterr);
void fm_plot_free(fm_plot_run *run);

/* NULL when the table has no such series. */
const fm_plot_series *fm_plot_find(const fm_plot_table *table, const char *name);

#endif
