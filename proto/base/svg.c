/* svg.c: see svg.h. */
#include "proto/base/svg.h"

#include "proto/base/markup.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void fm_svg_begin(FILE *out, int width, int height, const char *title, const char *style) {
    fprintf(
        out,
        FM_SVG_BEGIN
        "%d %d\" width=\"%d\" "
        "height=\"%d\" font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\" fill=\"none\">\n"
        "<title>",
        width, height, width, height);
    fm_markup_put(out, title);
    fprintf(out, "</title>\n");
    if (style[0]) fprintf(out, "<style>%s</style>\n", style);
    fprintf(out, "<rect width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", width, height, FM_SVG_PAPER);
}

void fm_svg_end(FILE *out) {
    fprintf(out, "</svg>\n");
}

void fm_svg_dark_style(const char *const (*colour)[2], size_t n, char out[FM_SVG_STYLE_BYTES]) {
    static const char *const greys[][2] = {{FM_SVG_PAPER, "#0d1117"},
                                           {FM_SVG_INK, "#e6edf3"},
                                           {FM_SVG_QUIET, "#9aa4af"},
                                           {FM_SVG_GRID, "#262c36"},
                                           {FM_SVG_AXIS, "#6e7681"}};
    const size_t n_grey = sizeof greys / sizeof greys[0], room = FM_SVG_STYLE_BYTES;
    size_t at = (size_t)snprintf(out, room, "@media (prefers-color-scheme: dark) {");
    for (size_t i = 0; i < n_grey + n && at < room; i++) {
        const char *const *pair = i < n_grey ? greys[i] : colour[i - n_grey];
        at += (size_t)snprintf(out + at, room - at,
                               " [fill=\"%s\"] { fill: %s } [stroke=\"%s\"] { stroke: %s }",
                               pair[0], pair[1], pair[0], pair[1]);
    }
    if (at < room) at += (size_t)snprintf(out + at, room - at, " }");
    assert(at < room);
}

void fm_svg_label(FILE *out, double x, double y, const char *anchor, int size, const char *colour,
                  const char *text) {
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">", x,
            y, anchor, size, colour);
    fm_markup_put(out, text);
    fprintf(out, "</text>\n");
}

void fm_svg_label_up(FILE *out, double x, double y, int size, const char *colour,
                     const char *text) {
    fprintf(out,
            "<text transform=\"translate(%.0f %.1f) rotate(-90)\" text-anchor=\"middle\" "
            "font-size=\"%d\" fill=\"%s\">",
            x, y, size, colour);
    fm_markup_put(out, text);
    fprintf(out, "</text>\n");
}

void fm_svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *colour) {
    fprintf(out, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2, colour);
}

void fm_svg_bar(FILE *out, double x, double y, double width, double height) {
    fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y,
            width, height, FM_SVG_BAR);
}

const char *fm_svg_count(uint64_t value, char out[FM_SVG_NUMBER_BYTES]) {
    char plain[FM_SVG_NUMBER_BYTES];
    int n = snprintf(plain, sizeof plain, "%llu", (unsigned long long)value), at = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) out[at++] = ',';
        out[at++] = plain[i];
    }
    out[at] = '\0';
    return out;
}

double fm_svg_tick_step(double range, int n) {
    double step = pow(10, floor(log10(range / n)));
    for (int i = 0; step * n < range * (1 - 1e-9) && i < 4; i++)
        step *= i % 3 == 1 ? 2.5 : 2;
    return step;
}

/* Formats a tick's number. Whole numbers from 1,000 on are formatted as by fm_svg_count. Others
 * have the decimals of `step`, and very large or small ones are powers of ten. Returns out. */
static const char *format_tick(double value, double step, char out[FM_SVG_NUMBER_BYTES]) {
    if (fabs(value) < step * 1e-6) {
        snprintf(out, FM_SVG_NUMBER_BYTES, "0");
        return out;
    }
    if (value >= 1000 && value < 1e15 && value == floor(value)) {
        return fm_svg_count((uint64_t)value, out);
    }
    int decimals = step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    if (fabs(value) >= 1e15 || decimals > 4) {
        snprintf(out, FM_SVG_NUMBER_BYTES, "%.3g", value);
    } else {
        snprintf(out, FM_SVG_NUMBER_BYTES, "%.*f", decimals, value);
    }
    return out;
}

/* -- axes */

double fm_svg_x(const fm_svg_frame *frame, double x) {
    return frame->left + frame->width * (x - frame->x0) / (frame->x1 - frame->x0);
}

double fm_svg_y(const fm_svg_frame *frame, double y) {
    double share = (y - frame->y0) / (frame->y1 - frame->y0);
    return frame->top + frame->height * (1 - fmin(fmax(share, -1), 2));
}

void fm_svg_value_line(const fm_svg_frame *frame, double y, double value, double step) {
    char text[FM_SVG_NUMBER_BYTES];
    double at = fm_svg_y(frame, y);
    fm_svg_line(frame->out, frame->left, at, frame->left + frame->width, at, FM_SVG_GRID);
    fm_svg_label(frame->out, frame->left - 8, at + 4, "end", 12, FM_SVG_QUIET,
                 format_tick(value, step, text));
}

void fm_svg_value_axis(const fm_svg_frame *frame, int n_tick) {
    double step = fm_svg_tick_step(frame->y1 - frame->y0, n_tick);
    for (int64_t i = (int64_t)ceil(frame->y0 / step); (double)i * step <= frame->y1; i++)
        fm_svg_value_line(frame, (double)i * step, (double)i * step, step);
}

void fm_svg_bottom_axis(const fm_svg_frame *frame, int n_tick, double least, const char *name) {
    char text[FM_SVG_NUMBER_BYTES];
    FILE *out = frame->out;
    double base = frame->top + frame->height, right = frame->left + frame->width;
    double step = fmax(least, fm_svg_tick_step(frame->x1 - frame->x0, n_tick));
    fm_svg_line(out, frame->left, base, right, base, FM_SVG_AXIS);
    for (int64_t i = (int64_t)ceil(frame->x0 / step); (double)i * step <= frame->x1; i++) {
        double x = fm_svg_x(frame, (double)i * step);
        fm_svg_line(out, x, base, x, base + 4, FM_SVG_AXIS);
        fm_svg_label(out, x, base + 18, "middle", 12, FM_SVG_QUIET,
                     format_tick((double)i * step, step, text));
    }
    fm_svg_label(out, (frame->left + right) / 2, base + 36, "middle", 12, FM_SVG_INK, name);
}
