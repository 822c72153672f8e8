/* divergence.h: notices that a run diverges: its loss or its gradient's norm stays above nearly all
 * values of a window of steps.
 *
 *     | older: up to 240 steps          | newest: 16 steps |
 *       their 99 % quantile          <    the median of these: diverging
 *
 * The median of the newest steps does not move for single bad samples. Before there are 64 older
 * steps, nothing is judged. */
#ifndef FM_TRAINER_DIVERGENCE_H
#define FM_TRAINER_DIVERGENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FM_DIVERGENCE_OLDER = 240, /* steps that the newest are compared with */
    FM_DIVERGENCE_NEWEST = 16,
    FM_DIVERGENCE_LEAST = 64, /* older steps, before anything is judged */
    FM_DIVERGENCE_WINDOW = FM_DIVERGENCE_OLDER + FM_DIVERGENCE_NEWEST,
    FM_DIVERGENCE_SERIES = 2, /* loss, norm */
};

/* Zeroed at the start of a run. */
typedef struct fm_divergence {
    double value[FM_DIVERGENCE_SERIES][FM_DIVERGENCE_WINDOW]; /* rings */
    uint64_t n;                                               /* steps added */
} fm_divergence;

/* Adds a step and returns whether the run diverges now; `why` then says which value does and its
 * quantiles. A step whose numbers are not finite does not count. */
bool fm_divergence_add(fm_divergence *divergence, double loss, double norm, char *why,
                       size_t why_bytes);

#endif
