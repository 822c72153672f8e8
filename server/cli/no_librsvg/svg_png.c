/* svg_png.c: see svg_png.h; for programs that are built without librsvg. */
#include "server/cli/svg_png.h"

fm_status fm_svg_write_png(const char *path, const char *svg, size_t svg_bytes, double scale,
                           fm_error *reterr) {
    (void)svg;
    (void)svg_bytes;
    (void)scale;
    return fm_fail_in(reterr, FM_ERR_USAGE, path,
                      "this program is built without librsvg and writes no PNG; write an SVG, "
                      "which rsvg-convert and browsers turn into one");
}
