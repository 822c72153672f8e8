/* svg.h: the parts that all pictures share: page, text, lines, bars, ticks of axes. Lengths are in
 * SVG user units, which are pixels at the normal size. The same calls write the same bytes. */
#ifndef FM_CLI_SVG_H
#define FM_CLI_SVG_H

#include "proto/base/status.h"

#include <stdbool.h>
#include <stdio.h>

/* Greys and one hue, readable without colour, and on paper as on a screen. Pictures that follow a
 * viewer's dark mode (fm_svg_begin) give these a dark counterpart. */
#define FM_SVG_PAPER "#ffffff"
#define FM_SVG_BAR "#3f74a8"
#define FM_SVG_INK "#222222"
#define FM_SVG_QUIET "#5f6368" /* numbers and remarks */
#define FM_SVG_GRID "#e3e6ea"
#define FM_SVG_AXIS "#8a9099"

enum { FM_SVG_NUMBER_BYTES = 32 };

/* Opens the picture, with a title for screen readers. `style` is a style sheet, "" = none. Text
 * uses the viewer's sans-serif font. There are no scripts and no links. */
void fm_svg_begin(FILE *out, int width, int height, const char *title, const char *style);
void fm_svg_end(FILE *out);

/* anchor: start, middle or end. The text is escaped. */
void fm_svg_label(FILE *out, double x, double y, const char *anchor, int size, const char *colour,
                  const char *text);
/* A label that reads upwards, centred at (x, y). */
void fm_svg_label_up(FILE *out, double x, double y, int size, const char *colour, const char *text);
void fm_svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *colour);
void fm_svg_bar(FILE *out, double x, double y, double width, double height);

/* "12,345". Returns out. */
const char *fm_svg_count(uint64_t value, char out[FM_SVG_NUMBER_BYTES]);

/* Returns the least step between ticks, 1, 2 or 5 times a power of ten, of which at most n fit into
 * `range` > 0. */
double fm_svg_tick_step(double range, int n);

/* Formats a tick's number. Whole numbers from 1,000 on are as in fm_svg_count, others have as many
 * decimals as `step`, and very large or small ones are powers of ten. Returns out. */
const char *fm_svg_tick(double value, double step, char out[FM_SVG_NUMBER_BYTES]);

#endif
