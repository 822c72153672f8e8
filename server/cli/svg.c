/* svg.c: see svg.h. */
#include "server/cli/svg.h"

#include <math.h>
#include <string.h>

static void print_text(FILE *out, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        default: fputc((unsigned char)*text < 0x20 ? ' ' : *text, out);
        }
    }
}

void fm_svg_begin(FILE *out, int width, int height, const char *title, const char *style) {
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
        "height=\"%d\" font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\" fill=\"none\">\n"
        "<title>",
        width, height, width, height);
    print_text(out, title);
    fprintf(out, "</title>\n");
    if (style[0]) fprintf(out, "<style>%s</style>\n", style);
    fprintf(out, "<rect width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", width, height, FM_SVG_PAPER);
}

void fm_svg_end(FILE *out) {
    fprintf(out, "</svg>\n");
}

void fm_svg_label(FILE *out, double x, double y, const char *anchor, int size, const char *colour,
                  const char *text) {
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">", x,
            y, anchor, size, colour);
    print_text(out, text);
    fprintf(out, "</text>\n");
}

void fm_svg_label_up(FILE *out, double x, double y, int size, const char *colour,
                     const char *text) {
    fprintf(out,
            "<text transform=\"translate(%.0f %.1f) rotate(-90)\" text-anchor=\"middle\" "
            "font-size=\"%d\" fill=\"%s\">",
            x, y, size, colour);
    print_text(out, text);
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

const char *fm_svg_tick(double value, double step, char out[FM_SVG_NUMBER_BYTES]) {
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
