/* af3_learn_plot.h: a picture of what af3_learn prints. */
#ifndef FM_TESTS_TRAINER_AF3_LEARN_PLOT_H
#define FM_TESTS_TRAINER_AF3_LEARN_PLOT_H

#include "proto/base/status.h"

/* Means over the steps since the row before. */
typedef struct af3_learn_row {
    int step;
    double loss, lddt, rmsd; /* rmsd in Å */
} af3_learn_row;

/* Writes an SVG file with a panel for each of the three numbers against the steps. n >= 1.
 * FM_ERR_IO. */
FM_MUST_USE fm_status af3_learn_plot(const char *path, const af3_learn_row *row, size_t n,
                                     fm_error *reterr);

#endif
