/* plot_draw.h: draws the curves of training runs as one SVG picture. */
#ifndef FM_CLI_PLOT_DRAW_H
#define FM_CLI_PLOT_DRAW_H

#include "server/cli/plot_data.h"

enum { FM_PLOT_MOST_RUNS = 24 }; /* eight colours, three patterns of lines */

typedef struct fm_plot_picture {
    const char *title; /* NULL = none */
    const fm_plot_run *run;
    size_t n_run;
    uint64_t smooth; /* steps of the centred mean; 1 = none, 0 = a fiftieth of the longest run */
    bool by_seed;    /* runs whose names differ in a number at the end share one colour */
    bool has_terms;  /* a panel for each loss term, too */
} fm_plot_picture;

/* Draws the picture into a new text, which the caller frees. Loss, scores, learning rate and steps
 * per second each have a panel if a run has them. Held-out values are joined dots. The same numbers
 * give the same bytes. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_plot_draw(const fm_plot_picture *picture, char **ret_text,
                                   size_t *ret_bytes, fm_error *reterr);

#endif
