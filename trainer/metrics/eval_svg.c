/* eval_svg.c: the pictures of an evaluation; see eval_table.h. Each is one plot with axes from 0 to
 * a round number, and follows a viewer's dark mode. */
#include "trainer/metrics/eval_table.h"

#include "proto/base/file.h"
#include "proto/base/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 560, HEIGHT = 400, LEFT = 64, RIGHT = 20, TOP = 56, BOTTOM = 52, N_BIN = 20 };
enum { N_TICK = 8 }; /* about the most numbers at an axis */

static const char *const hues[][2] = {{FM_SVG_BAR, "#7fb4ea"}};

/* Begins a picture: its frame with values from 0 to x1 and y1, its title and the names of its axes.
 */
static fm_svg_frame begin(FILE *out, double x1, double y1, const char *title, const char *below,
                          const char *beside) {
    char style[FM_SVG_STYLE_BYTES];
    const fm_svg_frame frame = {.out = out,
                                .left = LEFT,
                                .top = TOP,
                                .width = WIDTH - LEFT - RIGHT,
                                .height = HEIGHT - TOP - BOTTOM,
                                .x1 = x1,
                                .y1 = y1};
    fm_svg_dark_style(hues, sizeof hues / sizeof hues[0], style);
    fm_svg_begin(out, WIDTH, HEIGHT, title, style);
    fm_svg_label(out, LEFT, 28, "start", 16, FM_SVG_INK, title);
    fm_svg_label(out, LEFT, TOP - 10, "start", 12, FM_SVG_INK, beside);
    fm_svg_value_axis(&frame, N_TICK);
    fm_svg_bottom_axis(&frame, N_TICK, 1e-9, below);
    return frame;
}

/* How many chains have which lDDT-CA, in twenty classes. */
static void draw_lddt(FILE *out, const fm_eval_table *table, const fm_eval_summary *summary) {
    uint32_t n[N_BIN] = {0}, most = 5; /* so that ticks are whole numbers */
    for (uint32_t i = 0; i < table->n; i++) {
        const fm_eval_chain *c = &table->chain[i];
        if (c->status) continue;
        int bin = (int)(c->scores.lddt_ca * N_BIN);
        bin = bin < N_BIN ? bin : N_BIN - 1;
        most = ++n[bin] > most ? n[bin] : most;
    }
    char title[128];
    snprintf(title, sizeof title, "lDDT-CA of %u chains, mean %.3f", summary->n_chain,
             fm_eval_value(summary, "lddt_ca"));
    const fm_svg_frame p = begin(out, 1, most, title, "lDDT-CA", "chains");
    for (int k = 0; k < N_BIN; k++) {
        double left = fm_svg_x(&p, (double)k / N_BIN), top = fm_svg_y(&p, n[k]);
        double right = fm_svg_x(&p, (k + 1.0) / N_BIN);
        if (n[k]) fm_svg_bar(out, left + 1, top, right - left - 2, HEIGHT - BOTTOM - top);
    }
}

/* The mean lDDT of the residues of each class of pLDDT; the area of a mark says how many. */
static void draw_calibration(FILE *out, const fm_eval_summary *summary) {
    const fm_eval_confidence *c = &summary->confidence;
    uint64_t most = 1;
    for (int k = 0; k < FM_EVAL_CLASSES; k++)
        most = c->n[k] > most ? c->n[k] : most;
    const fm_svg_frame p =
        begin(out, 100, 100, "Predicted against true lDDT-CA of residues", "pLDDT", "lDDT-CA");
    fprintf(out,
            "<path stroke=\"" FM_SVG_AXIS "\" stroke-dasharray=\"4 4\" d=\"M%.1f %.1fL%.1f "
            "%.1f\"/>\n",
            fm_svg_x(&p, 0), fm_svg_y(&p, 0), fm_svg_x(&p, 100), fm_svg_y(&p, 100));
    for (int pass = 0; pass < 2; pass++) {
        bool any = false;
        if (pass == 0) fputs("<path stroke=\"" FM_SVG_BAR "\" stroke-width=\"2\" d=\"", out);
        for (int k = 0; k < FM_EVAL_CLASSES; k++) {
            if (!c->n[k]) continue;
            double n = (double)c->n[k];
            double x = fm_svg_x(&p, c->plddt[k] / n), y = fm_svg_y(&p, c->lddt[k] / n);
            if (pass == 0) {
                fprintf(out, "%c%.1f %.1f", any ? 'L' : 'M', x, y);
            } else {
                fprintf(out,
                        "<circle fill=\"" FM_SVG_BAR "\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n", x,
                        y, 2 + 7 * sqrt(n / (double)most));
            }
            any = true;
        }
        if (pass == 0) fputs(any ? "\"/>\n" : "M0 0\"/>\n", out);
    }
}

static void draw_length(FILE *out, const fm_eval_table *table) {
    double longest = 50;
    for (uint32_t i = 0; i < table->n; i++)
        longest = table->chain[i].n_res > longest ? table->chain[i].n_res : longest;
    const double step = fm_svg_tick_step(longest, N_TICK);
    const fm_svg_frame p = begin(out, ceil(longest / step) * step, 1, "lDDT-CA by length",
                                 "residues of the chain", "lDDT-CA");
    for (uint32_t i = 0; i < table->n; i++) {
        const fm_eval_chain *c = &table->chain[i];
        if (c->status) continue;
        fprintf(out,
                "<circle fill=\"" FM_SVG_BAR "\" fill-opacity=\"0.6\" cx=\"%.1f\" cy=\"%.1f\" "
                "r=\"3\"/>\n",
                fm_svg_x(&p, c->n_res), fm_svg_y(&p, c->scores.lddt_ca));
    }
}

fm_status fm_eval_draw(const char *folder, const fm_eval_table *table,
                       const fm_eval_summary *summary, fm_error *reterr) {
    static const char *const names[] = {"lddt", "calibration", "length"};
    fm_status status = FM_OK;
    for (int i = 0; !status && i < 3; i++) {
        char *text = NULL, path[4096];
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        if (!out) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a picture");
        if (i == 0) draw_lddt(out, table, summary);
        if (i == 1) draw_calibration(out, summary);
        if (i == 2) draw_length(out, table);
        fm_svg_end(out);
        if (fclose(out)) status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for a picture");
        if (snprintf(path, sizeof path, "%s/%s.svg", folder, names[i]) >= (int)sizeof path) {
            status = fm_fail_in(reterr, FM_ERR_USAGE, folder, "the path is too long");
        }
        if (!status) status = fm_file_write_atomic(path, text, bytes, reterr);
        free(text);
    }
    return status;
}
