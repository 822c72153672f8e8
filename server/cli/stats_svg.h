/* stats_svg.h: draws the histograms of a cache as one SVG picture. */
#ifndef FM_SERVER_CLI_STATS_SVG_H
#define FM_SERVER_CLI_STATS_SVG_H

#include "proto/base/status.h"

enum {
    FM_STATS_N_OCTAVE = 33,     /* octave o holds values of o bits; 0 holds 0 */
    FM_STATS_N_QUARTER = 4 * 33 /* each octave in four equal steps: 64, 80, 96, 112 ... */
};

typedef struct fm_stats_histogram {
    const char *title, *unit, *heading; /* "lengths", "residues", "Residues of a chain" */
    uint64_t n[FM_STATS_N_OCTAVE], quarter[FM_STATS_N_QUARTER];
    uint64_t n_value, sum, min, max;
} fm_stats_histogram;

void fm_stats_add(fm_stats_histogram *histogram, uint64_t value);

/* The mean stored bytes of a part, for the last panel. */
typedef struct fm_stats_part {
    const char *name;
    double bytes;
} fm_stats_part;

typedef struct fm_stats_picture {
    const char *title, *subtitle;
    const fm_stats_histogram *histogram;
    int n_histogram;
    const fm_stats_part *part;
    int n_part;
} fm_stats_picture;

/* Writes the picture as SVG: a panel for each histogram that has a value, and bars for the bytes of
 * the parts. The horizontal axis of a histogram has the values by powers of two in four steps each,
 * the vertical axis the chains. Text uses the viewer's sans-serif font. There are no scripts and no
 * links. The same numbers give the same bytes. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_stats_write_svg(const char *path, const fm_stats_picture *picture,
                                         fm_error *reterr);

#endif
