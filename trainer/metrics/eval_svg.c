/* eval_svg.c: the pictures of an evaluation; see eval_table.h. Lengths are in SVG user units. Each
 * picture is one plot with axes from 0 (or the least value) to a round number. Colours are classes
 * of a style sheet inside the picture, which has a light and a dark form. */
#include "trainer/metrics/eval_table.h"

#include "proto/base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 560, HEIGHT = 400, LEFT = 64, RIGHT = 20, TOP = 56, BOTTOM = 52, N_BIN = 20 };

static const char style[] =
    "<style>text{font-family:sans-serif;fill:#3b4048;font-size:12px}"
    ".title{font-size:16px;fill:#16191d}.grid{stroke:#e3e6ea}.axis{stroke:#8a9099}"
    ".mark{fill:#2f6fb0}.line{fill:none;stroke:#2f6fb0;stroke-width:2}"
    ".aid{stroke:#8a9099;stroke-dasharray:4 4}.back{fill:#ffffff}"
    "@media(prefers-color-scheme:dark){text{fill:#b6bcc6}.title{fill:#f2f4f7}"
    ".grid{stroke:#33383f}.axis{stroke:#7d848e}.mark{fill:#7fb4ea}.line{stroke:#7fb4ea}"
    ".aid{stroke:#7d848e}.back{fill:#15181c}}</style>\n";

/* A plot under construction: x and y map values to places. */
typedef struct plot {
    FILE *out;
    double x0, x1, y0, y1; /* values at the ends of the axes */
} plot;

static double place_x(const plot *p, double x) {
    return LEFT + (x - p->x0) / (p->x1 - p->x0) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const plot *p, double y) {
    return HEIGHT - BOTTOM - (y - p->y0) / (p->y1 - p->y0) * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten: about five such steps reach from a to b. */
static double tick_step(double a, double b) {
    double step = pow(10, floor(log10((b - a) / 5)));
    double ratio = (b - a) / 5 / step;
    return ratio > 5 ? 10 * step : ratio > 2 ? 5 * step : ratio > 1 ? 2 * step : step;
}

static void draw_axes(const plot *p, const char *title, const char *below, const char *beside) {
    double step_x = tick_step(p->x0, p->x1), step_y = tick_step(p->y0, p->y1);
    fprintf(p->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\">\n<title>%s</title>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, title);
    fprintf(p->out, "%s<rect class=\"back\" width=\"%d\" height=\"%d\"/>\n", style, WIDTH, HEIGHT);
    fprintf(p->out, "<text class=\"title\" x=\"%d\" y=\"28\">%s</text>\n", LEFT, title);
    int first_y = (int)ceil(p->y0 / step_y), last_y = (int)floor(p->y1 / step_y + 1e-6);
    int first_x = (int)ceil(p->x0 / step_x), last_x = (int)floor(p->x1 / step_x + 1e-6);
    for (int k = first_y; k <= last_y; k++) {
        double y = k * step_y;
        fprintf(p->out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", LEFT, place_y(p, y),
                WIDTH - RIGHT);
        fprintf(p->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 8,
                place_y(p, y) + 4, y);
    }
    for (int k = first_x; k <= last_x; k++) {
        double x = k * step_x;
        fprintf(p->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n",
                place_x(p, x), HEIGHT - BOTTOM + 18, x);
    }
    fprintf(p->out, "<path class=\"axis\" fill=\"none\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP,
            HEIGHT - BOTTOM, WIDTH - RIGHT);
    fprintf(p->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, below);
    fprintf(p->out, "<text x=\"%d\" y=\"%d\">%s</text>\n", LEFT, TOP - 10, beside);
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
    const plot p = {out, 0, 1, 0, most};
    char title[128];
    snprintf(title, sizeof title, "lDDT-CA of %u chains, mean %.3f", summary->n_chain,
             fm_eval_value(summary, "lddt_ca"));
    draw_axes(&p, title, "lDDT-CA", "chains");
    for (int k = 0; k < N_BIN; k++) {
        double left = place_x(&p, (double)k / N_BIN), top = place_y(&p, n[k]);
        double right = place_x(&p, (k + 1.0) / N_BIN);
        if (n[k]) {
            fprintf(out,
                    "<rect class=\"mark\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                    "height=\"%.1f\"/>\n",
                    left + 1, top, right - left - 2, HEIGHT - BOTTOM - top);
        }
    }
}

/* The mean lDDT of the residues of each class of pLDDT; the area of a mark says how many. */
static void draw_calibration(FILE *out, const fm_eval_summary *summary) {
    const fm_eval_confidence *c = &summary->confidence;
    const plot p = {out, 0, 100, 0, 100};
    uint64_t most = 1;
    for (int k = 0; k < FM_EVAL_CLASSES; k++)
        most = c->n[k] > most ? c->n[k] : most;
    draw_axes(&p, "Predicted against true lDDT-CA of residues", "pLDDT", "lDDT-CA");
    fprintf(out, "<path class=\"aid\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", place_x(&p, 0),
            place_y(&p, 0), place_x(&p, 100), place_y(&p, 100));
    for (int pass = 0; pass < 2; pass++) {
        bool any = false;
        if (pass == 0) fputs("<path class=\"line\" d=\"", out);
        for (int k = 0; k < FM_EVAL_CLASSES; k++) {
            if (!c->n[k]) continue;
            double n = (double)c->n[k];
            double x = place_x(&p, c->plddt[k] / n), y = place_y(&p, c->lddt[k] / n);
            if (pass == 0) {
                fprintf(out, "%c%.1f %.1f", any ? 'L' : 'M', x, y);
            } else {
                fprintf(out, "<circle class=\"mark\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n", x, y,
                        2 + 7 * sqrt(n / (double)most));
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
    const double step = tick_step(0, longest);
    const plot p = {out, 0, ceil(longest / step) * step, 0, 1};
    draw_axes(&p, "lDDT-CA by length", "residues of the chain", "lDDT-CA");
    for (uint32_t i = 0; i < table->n; i++) {
        const fm_eval_chain *c = &table->chain[i];
        if (c->status) continue;
        fprintf(out,
                "<circle class=\"mark\" fill-opacity=\"0.6\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n",
                place_x(&p, c->n_res), place_y(&p, c->scores.lddt_ca));
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
        fputs("</svg>\n", out);
        if (fclose(out)) status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for a picture");
        if (snprintf(path, sizeof path, "%s/%s.svg", folder, names[i]) >= (int)sizeof path) {
            status = fm_fail_in(reterr, FM_ERR_USAGE, folder, "the path is too long");
        }
        if (!status) status = fm_file_write_atomic(path, text, bytes, reterr);
        free(text);
    }
    return status;
}
