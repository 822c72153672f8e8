/* svg_png.h: turns a picture into pixels. librsvg/ does it with the library of that name, which is
 * included there alone; no_librsvg/ refuses, in programs that are built without it. */
#ifndef FM_CLI_SVG_PNG_H
#define FM_CLI_SVG_PNG_H

#include "proto/base/status.h"

/* Writes the SVG picture as a PNG file of `scale` pixels per user unit. FM_ERR_USAGE in a program
 * without librsvg; FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_svg_write_png(const char *path, const char *svg, size_t svg_bytes,
                                       double scale, fm_error *reterr);

#endif
