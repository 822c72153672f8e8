/* svg.h: the parts that all pictures share: page, text, lines, bars, axes. Lengths are in SVG user
 * units, which are pixels at the normal size. The same calls write the same bytes. */
#ifndef FM_BASE_SVG_H
#define FM_BASE_SVG_H

#include "proto/base/status.h"

#include <stdio.h>

/* Greys and one hue. They are readable without colour, on paper and on a screen. Pictures that
 * follow a viewer's dark mode (fm_svg_begin) give these a dark counterpart. */
#define FM_SVG_PAPER "#ffffff"
#define FM_SVG_BAR "#3f74a8"
#define FM_SVG_INK "#222222"
#define FM_SVG_QUIET "#5f6368" /* numbers and remarks */
#define FM_SVG_GRID "#e3e6ea"
#define FM_SVG_AXIS "#8a9099"

enum { FM_SVG_NUMBER_BYTES = 32 };

/* The first bytes of every picture. */
#define FM_SVG_BEGIN "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 "

/* Opens the picture, with a title for screen readers. `style` is a style sheet; "" is none. Text
 * uses the viewer's sans-serif font. There are no scripts and no links. */
void fm_svg_begin(FILE *out, int width, int height, const char *title, const char *style);
void fm_svg_end(FILE *out);

/* Writes a style sheet for fm_svg_begin that replaces the greys above and n more colours in dark
 * mode. colour[i] is {light, dark}. Asserts that the sheet fits. */
enum { FM_SVG_STYLE_BYTES = 4096 };
void fm_svg_dark_style(const char *const (*colour)[2], size_t n, char out[FM_SVG_STYLE_BYTES]);

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

/* The plot's rectangle, and the values at its edges: x0 left, x1 right, y0 at the bottom. */
typedef struct fm_svg_frame {
    FILE *out;
    double left, top, width, height;
    double x0, x1, y0, y1;
} fm_svg_frame;

/* Return the coordinate of a value in the picture. Values far above or below the frame are moved
 * near it. */
double fm_svg_x(const fm_svg_frame *frame, double x);
double fm_svg_y(const fm_svg_frame *frame, double y);

/* Draws a line across the frame at y, with the number `value` to its left. */
void fm_svg_value_line(const fm_svg_frame *frame, double y, double value, double step);
/* Draws such lines at about n_tick round values. */
void fm_svg_value_axis(const fm_svg_frame *frame, int n_tick);
/* Draws the axis below the frame with about n_tick numbers, at least `least` > 0 apart, and its
 * name. */
void fm_svg_bottom_axis(const fm_svg_frame *frame, int n_tick, double least, const char *name);

#endif
