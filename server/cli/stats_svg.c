/* stats_svg.c: see stats_svg.h. */
#include "server/cli/stats_svg.h"

#include "proto/base/file.h"
#include "proto/base/svg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 760,
    HEAD = 64,   /* title and subtitle */
    PANEL = 240, /* one histogram with its title and axes */
    LEFT = 84,   /* of the plot: room for the numbers of the axis */
    RIGHT = 24,
    PLOT_TOP = 44, /* within a panel: below its title */
    PLOT_HEIGHT = 136,
    PART_ROW = 30, /* a bar of the parts' panel */
    PART_TOP = 40,
    N_TICK = 5,   /* about the most ticks on the vertical axis */
    N_LABEL = 10, /* the most labels on the horizontal axis */
    QUARTERS = 4
};

void fm_stats_add(fm_stats_histogram *histogram, uint64_t value) {
    int octave = 0;
    for (uint64_t rest = value; rest && octave < FM_STATS_N_OCTAVE - 1; rest >>= 1)
        octave++;
    /* The two bits behind the leading one. */
    int step = octave >= 3   ? (int)(value >> (octave - 3) & 3)
               : octave == 2 ? (int)(value & 1) * 2
                             : 0;
    if (!histogram->n_value || value < histogram->min) histogram->min = value;
    if (value > histogram->max) histogram->max = value;
    histogram->n[octave]++;
    histogram->quarter[QUARTERS * octave + step]++;
    histogram->n_value++;
    histogram->sum += value;
}

/* -- text */

/* "64 KiB" for bytes, "16,384" for others. */
static const char *format_value(uint64_t value, bool bytes, char out[FM_SVG_NUMBER_BYTES]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    if (!bytes) return fm_svg_count(value, out);
    while (value >= 1024 && value % 1024 == 0 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(out, FM_SVG_NUMBER_BYTES, "%llu %s", (unsigned long long)value, units[unit]);
    return out;
}

/* -- one histogram */

/* 1, 2 or 5 times a power of ten, so that about N_TICK steps reach `most`. */
static uint64_t tick_step(uint64_t most) {
    uint64_t step = 1;
    for (int i = 0; step * N_TICK < most; i++)
        step = i % 3 == 1 ? step / 2 * 5 : step * 2;
    return step;
}

typedef struct panel {
    FILE *out;
    double top, left, width, base; /* base: y of the horizontal axis */
    int first, last;               /* octaves shown, both taken in */
    uint64_t most;                 /* top of the vertical axis, chains */
} panel;

static double x_of(const panel *at, int quarter) {
    return at->left + at->width * (quarter - QUARTERS * at->first) /
                          (double)(QUARTERS * (at->last + 1 - at->first));
}

static void draw_scale(const panel *at, uint64_t step) {
    char text[32];
    for (uint64_t n = 0; n <= at->most; n += step) {
        double y = at->base - PLOT_HEIGHT * (double)n / (double)at->most;
        if (n) fm_svg_line(at->out, at->left, y, at->left + at->width, y, FM_SVG_GRID);
        fm_svg_label(at->out, at->left - 8, y + 4, "end", 12, FM_SVG_QUIET, fm_svg_count(n, text));
    }
    fm_svg_label_up(at->out, 18, at->base - PLOT_HEIGHT / 2.0, 12, FM_SVG_INK, "chains");
}

static void draw_values(const panel *at, const char *unit) {
    char text[32];
    bool bytes = strcmp(unit, "bytes") == 0;
    int every = (at->last - at->first + N_LABEL) / N_LABEL;
    fm_svg_line(at->out, at->left, at->base, at->left + at->width, at->base, FM_SVG_AXIS);
    for (int octave = at->first; octave <= at->last + 1; octave++) {
        double x = x_of(at, QUARTERS * octave);
        fm_svg_line(at->out, x, at->base, x, at->base + 4, FM_SVG_AXIS);
        if ((octave - at->first) % every) continue;
        uint64_t value = octave ? (uint64_t)1 << (octave - 1) : 0;
        fm_svg_label(at->out, x, at->base + 18, "middle", 12, FM_SVG_QUIET,
                     format_value(value, bytes, text));
    }
    fm_svg_label(at->out, at->left + at->width / 2, at->base + 38, "middle", 12, FM_SVG_INK, unit);
}

static void draw_bars(const panel *at, const fm_stats_histogram *of) {
    for (int q = QUARTERS * at->first; q < QUARTERS * (at->last + 1); q++) {
        if (!of->quarter[q]) continue;
        double height = PLOT_HEIGHT * (double)of->quarter[q] / (double)at->most;
        if (height < 1) height = 1; /* one chain among a million is seen, too */
        fm_svg_bar(at->out, x_of(at, q) + 0.5, at->base - height, x_of(at, q + 1) - x_of(at, q) - 1,
                   height);
    }
}

static void draw_histogram(FILE *out, double top, const fm_stats_histogram *of) {
    panel at = {.out = out,
                .top = top,
                .left = LEFT,
                .width = WIDTH - LEFT - RIGHT,
                .base = top + PLOT_TOP + PLOT_HEIGHT,
                .first = FM_STATS_N_OCTAVE};
    char title[160], low[32], high[32], number[32], mean[32];
    uint64_t most = 1;
    for (int o = 0; o < FM_STATS_N_OCTAVE; o++) {
        if (!of->n[o]) continue;
        if (at.first > o) at.first = o;
        at.last = o;
    }
    for (int q = 0; q < FM_STATS_N_QUARTER; q++) {
        if (of->quarter[q] > most) most = of->quarter[q];
    }
    uint64_t step = tick_step(most);
    at.most = (most + step - 1) / step * step;
    fm_svg_label(out, LEFT, top + 16, "start", 15, FM_SVG_INK, of->heading);
    snprintf(title, sizeof title, "%s chains, %s to %s %s, mean %s",
             fm_svg_count(of->n_value, number), fm_svg_count(of->min, low),
             fm_svg_count(of->max, high), of->unit,
             fm_svg_count((of->sum + of->n_value / 2) / of->n_value, mean));
    fm_svg_label(out, WIDTH - RIGHT, top + 16, "end", 12, FM_SVG_QUIET, title);
    draw_scale(&at, step);
    draw_bars(&at, of);
    draw_values(&at, of->unit);
}

/* -- parts */

static void draw_parts(FILE *out, double top, const fm_stats_part *part, int n) {
    double most = 1, width = WIDTH - LEFT - RIGHT - 110;
    char text[64], number[32];
    for (int i = 0; i < n; i++)
        most = part[i].bytes > most ? part[i].bytes : most;
    fm_svg_label(out, LEFT, top + 16, "start", 15, FM_SVG_INK, "Bytes stored of each part");
    fm_svg_label(out, WIDTH - RIGHT, top + 16, "end", 12, FM_SVG_QUIET,
                 "mean of the chains that have it");
    for (int i = 0; i < n; i++) {
        double y = top + PART_TOP + PART_ROW * i, length = width * part[i].bytes / most;
        fm_svg_label(out, LEFT - 8, y + 14, "end", 12, FM_SVG_INK, part[i].name);
        fm_svg_bar(out, LEFT, y, length < 1 ? 1 : length, PART_ROW - 10);
        snprintf(text, sizeof text, "%s bytes",
                 fm_svg_count((uint64_t)(part[i].bytes + 0.5), number));
        fm_svg_label(out, LEFT + length + 8, y + 14, "start", 12, FM_SVG_QUIET, text);
    }
    fm_svg_line(out, LEFT, top + PART_TOP - 6, LEFT, top + PART_TOP + PART_ROW * n, FM_SVG_AXIS);
}

/* -- the picture */

static void draw(FILE *out, const fm_stats_picture *picture) {
    int n = 0, height = HEAD + PART_TOP + PART_ROW * picture->n_part + 16;
    for (int i = 0; i < picture->n_histogram; i++)
        n += picture->histogram[i].n_value != 0;
    height += n * PANEL;
    fm_svg_begin(out, WIDTH, height, picture->title, "");
    fm_svg_label(out, LEFT, 28, "start", 18, FM_SVG_INK, picture->title);
    fm_svg_label(out, LEFT, 48, "start", 12, FM_SVG_QUIET, picture->subtitle);
    double top = HEAD;
    for (int i = 0; i < picture->n_histogram; i++) {
        if (!picture->histogram[i].n_value) continue;
        draw_histogram(out, top, &picture->histogram[i]);
        top += PANEL;
    }
    if (picture->n_part) draw_parts(out, top, picture->part, picture->n_part);
    fm_svg_end(out);
}

fm_status fm_stats_write_svg(const char *path, const fm_stats_picture *picture, fm_error *reterr) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the picture");
    draw(out, picture);
    fm_status status = fclose(out) == 0
                           ? fm_file_write_atomic(path, text, size, reterr)
                           : fm_fail(reterr, FM_ERR_NOMEM, "no memory for the picture");
    free(text);
    return status;
}
