/* plot_draw.c: see plot_draw.h. The picture is a head (title, meaning of the lines, runs) and
 * panels in two columns. A panel first collects the curves of all runs, because its axes follow
 * from them, and then draws them. A curve has at most N_POINT points, even for a long run. */
#include "server/cli/plot_draw.h"

#include "proto/base/svg.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 1000,
    MARGIN = 28,
    N_COLUMN = 2,
    GAP = 40,
    PANEL_WIDTH = (WIDTH - 2 * MARGIN - GAP) / N_COLUMN,
    PANEL_HEIGHT = 272,
    AXIS_LEFT = 56, /* room for the numbers of the vertical axis */
    PLOT_TOP = 30,
    PLOT_HEIGHT = 184,
    LEGEND_ROW = 22,
    LETTER = 7, /* about a letter's width at size 12 */
    SWATCH = 30,
    N_X_TICK = 6,
    N_Y_TICK = 5,
    N_POINT = 400,
    MOST_RAW_RUNS = 4, /* with more runs single steps would hide the curves */
    MOST_CURVES = 4 * FM_PLOT_MOST_RUNS,
    MOST_PANELS = 24,
    N_COLOUR = 8,
    N_SHAPE = 4,
};

/* Colours that people with any colour blindness tell apart, first on white, then on black; beyond
 * them, runs differ in the pattern of their lines, and dots in their shape. */
static const char *const colours[N_COLOUR][2] = {
    {"#0072b2", "#56b4e9"}, {"#d55e00", "#ff8f45"}, {"#00815e", "#35cf9f"}, {"#b8478c", "#e99acb"},
    {"#8a6d00", "#f0e442"}, {"#555555", "#c2c2c2"}, {"#7446b8", "#b99cf2"}, {"#7f3b08", "#dba36b"}};
static const char *const dashes[] = {"", "7 3", "2 3"};
static const char seen_dash[] = "1 3";

/* How a number over steps becomes a curve. */
typedef enum measure { MEASURE_MEAN, MEASURE_RATE } measure;

typedef enum panel_side { SIDE_BOTH, SIDE_STEPS, SIDE_SCORES } panel_side;

/* A panel: a number of metrics.jsonl and its namesake of eval.jsonl, or one of them. */
typedef struct panel_kind {
    const char *key, *title, *unit;
    measure measure;
    bool is_smooth; /* drawn as a mean; else as it is */
    bool from_zero, may_be_log;
    panel_side side;
} panel_kind;

/* The loss of a step is that of crops with masked residues; the loss of an evaluation is that of
 * whole chains, without the masked MSA term. These are two quantities, so they share no axis. A
 * model of af3 has no such term. */
static const panel_kind loss_kinds[] = {
    {"loss", "Loss", "", MEASURE_MEAN, true, false, true, SIDE_STEPS},
    {"loss", "Held-out loss", "without the masked MSA term", MEASURE_MEAN, true, false, true,
     SIDE_SCORES}};
static const panel_kind score_kinds[] = {
    {"lddt_ca", "lDDT-C\xce\xb1", "0 to 1", MEASURE_MEAN, true, true, false, SIDE_BOTH},
    {"tm_score", "TM-score", "0 to 1", MEASURE_MEAN, true, true, false, SIDE_BOTH}};
/* Those of a model of af3, which has no lDDT-Cα. */
static const panel_kind complex_kinds[] = {
    {"lddt", "Smooth lDDT", "0 to 1", MEASURE_MEAN, true, true, false, SIDE_BOTH},
    {"rollout_lddt", "lDDT of sampled structures", "0 to 1", MEASURE_MEAN, true, true, false,
     SIDE_SCORES},
    {"rollout_interface_lddt", "lDDT of sampled interfaces", "0 to 1", MEASURE_MEAN, true, true,
     false, SIDE_SCORES},
    {"rollout_pocket_rmsd", "RMSD of ligands in their pockets", "\xc3\x85", MEASURE_MEAN, true,
     true, false, SIDE_SCORES},
    {"rollout_rmsd", "RMSD of sampled structures", "\xc3\x85", MEASURE_MEAN, true, true, false,
     SIDE_SCORES}};
static const panel_kind last_kinds[] = {
    {"learning_rate", "Learning rate", "", MEASURE_MEAN, false, true, false, SIDE_STEPS},
    {"step_s", "Speed", "steps per second", MEASURE_RATE, true, true, false, SIDE_STEPS}};

typedef enum curve_kind { CURVE_RAW, CURVE_MEAN, CURVE_SEEN, CURVE_HELD_OUT } curve_kind;

typedef struct curve {
    curve_kind kind;
    size_t run;
    double x[2 * N_POINT], y[2 * N_POINT];
    size_t n;
} curve;

typedef struct plot {
    const fm_plot_picture *picture;
    FILE *out;
    uint64_t smooth;
    double last_step;
    size_t colour[FM_PLOT_MOST_RUNS], dash[FM_PLOT_MOST_RUNS], n_colour;
    curve *curves; /* [MOST_CURVES] of the panel in hand */
    size_t n_curve;
    fm_svg_frame frame; /* of its plot; y in log10 where is_log */
    bool is_log;
    size_t n_panel; /* drawn so far */
} plot;

/* -- runs */

/* The length of a run's name without a number at its end and what separates it. */
static size_t stem_length(const char *name) {
    size_t n = strlen(name), digits = n;
    while (digits > 0 && isdigit((unsigned char)name[digits - 1]))
        digits--;
    if (digits == n || digits == 0) return n;
    return digits > 1 && strchr("-_.", name[digits - 1]) ? digits - 1 : digits;
}

static bool is_same_stem(const char *a, const char *b) {
    return stem_length(a) == stem_length(b) && strncmp(a, b, stem_length(a)) == 0;
}

static void choose_colours(plot *p) {
    const fm_plot_picture *picture = p->picture;
    for (size_t i = 0; i < picture->n_run; i++) {
        size_t same = i;
        for (size_t k = 0; picture->by_seed && k < i && same == i; k++)
            if (is_same_stem(picture->run[k].name, picture->run[i].name)) same = k;
        size_t number = same < i ? p->colour[same] + N_COLOUR * p->dash[same] : p->n_colour++;
        p->colour[i] = number % N_COLOUR;
        p->dash[i] = number / N_COLOUR;
    }
}

static void find_steps(plot *p) {
    double longest = 1;
    for (size_t i = 0; i < p->picture->n_run; i++) {
        const fm_plot_run *run = &p->picture->run[i];
        const fm_plot_table *const tables[] = {&run->steps, &run->scores};
        for (size_t t = 0; t < 2; t++) {
            const fm_plot_series *loss = fm_plot_find(tables[t], "loss");
            if (loss && loss->n) longest = fmax(longest, loss->step[loss->n - 1]);
        }
    }
    p->last_step = longest;
    p->smooth = p->picture->smooth ? p->picture->smooth : (uint64_t)fmax(1, longest / 50);
}

/* -- curves */

static curve *add_curve(plot *p, curve_kind kind, size_t run) {
    if (p->n_curve == MOST_CURVES) return NULL;
    curve *c = &p->curves[p->n_curve++];
    c->kind = kind;
    c->run = run;
    c->n = 0;
    return c;
}

static void add_point(curve *c, double x, double y) {
    assert(c->n < sizeof c->x / sizeof c->x[0]);
    c->x[c->n] = x;
    c->y[c->n++] = y;
}

/* The means of the steps within half a window of N_POINT of them. */
static void add_means(plot *p, size_t run, const fm_plot_series *s, const panel_kind *kind) {
    curve *c = add_curve(p, CURVE_MEAN, run);
    double half = kind->is_smooth ? ((double)p->smooth - 1) / 2 : 0, sum = 0;
    size_t n_point = s->n < N_POINT ? s->n : N_POINT, first = 0, end = 0;
    for (size_t i = 0; c && i < n_point; i++) {
        double at = s->step[n_point > 1 ? i * (s->n - 1) / (n_point - 1) : 0];
        for (; end < s->n && s->step[end] <= at + half; end++)
            sum += s->value[end];
        for (; s->step[first] < at - half; first++)
            sum -= s->value[first];
        double n = (double)(end - first);
        add_point(c, at, kind->measure == MEASURE_RATE ? n / sum : sum / n);
    }
}

/* Adds single steps; of a long run, the lowest and the highest of each stretch. */
static void add_raw(plot *p, size_t run, const fm_plot_series *s) {
    curve *c = add_curve(p, CURVE_RAW, run);
    size_t n_stretch = s->n < N_POINT ? s->n : N_POINT;
    for (size_t i = 0; c && i < n_stretch; i++) {
        size_t low = i * s->n / n_stretch, high = low, end = (i + 1) * s->n / n_stretch;
        for (size_t k = low; k < end; k++) {
            if (s->value[k] < s->value[low]) low = k;
            if (s->value[k] > s->value[high]) high = k;
        }
        size_t first = low < high ? low : high, second = low < high ? high : low;
        add_point(c, s->step[first], s->value[first]);
        if (second != first) add_point(c, s->step[second], s->value[second]);
    }
}

/* Adds every evaluation, or evenly spaced ones if there are more than N_POINT. */
static void add_scores(plot *p, curve_kind kind, size_t run, const fm_plot_series *s) {
    curve *c = add_curve(p, kind, run);
    size_t n_point = s->n < N_POINT ? s->n : N_POINT;
    for (size_t i = 0; c && i < n_point; i++) {
        size_t k = n_point > 1 ? i * (s->n - 1) / (n_point - 1) : 0;
        add_point(c, s->step[k], s->value[k]);
    }
}

static const fm_plot_series *find_steps_of(const fm_plot_run *run, const panel_kind *kind) {
    return kind->side == SIDE_SCORES ? NULL : fm_plot_find(&run->steps, kind->key);
}

/* The name that a number has among a run's scores. Scores of chains have the confidence itself as
 * `plddt`, and the term has another name; those of a model of af3 have the term. */
static const char *score_key(const fm_plot_run *run, const char *key) {
    bool is_renamed = strcmp(key, "plddt") == 0 && !fm_plot_find(&run->scores, "smooth_lddt");
    return is_renamed ? "plddt_loss" : key;
}

static void collect(plot *p, const panel_kind *kind) {
    p->n_curve = 0;
    for (size_t i = 0; i < p->picture->n_run; i++) {
        const fm_plot_run *run = &p->picture->run[i];
        const fm_plot_series *steps = find_steps_of(run, kind);
        if (steps && kind->measure == MEASURE_MEAN && kind->is_smooth && p->smooth > 1 &&
            p->picture->n_run <= MOST_RAW_RUNS) {
            add_raw(p, i, steps);
        }
    }
    for (size_t i = 0; i < p->picture->n_run; i++) {
        const fm_plot_run *run = &p->picture->run[i];
        const fm_plot_series *steps = find_steps_of(run, kind);
        bool has_scores = kind->side != SIDE_STEPS;
        const char *held_out = score_key(run, kind->key);
        char seen[64];
        snprintf(seen, sizeof seen, "seen_%s", held_out);
        const fm_plot_series *of_seen = has_scores ? fm_plot_find(&run->scores, seen) : NULL;
        const fm_plot_series *scores = has_scores ? fm_plot_find(&run->scores, held_out) : NULL;
        if (steps) add_means(p, i, steps, kind);
        if (of_seen) add_scores(p, CURVE_SEEN, i, of_seen);
        if (scores) add_scores(p, CURVE_HELD_OUT, i, scores);
    }
}

/* -- axes */

/* The range of the curves. Single steps may leave it, since one outlier would flatten all
 * curves. */
static void choose_range(plot *p, const panel_kind *kind) {
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < p->n_curve; i++) {
        const curve *c = &p->curves[i];
        for (size_t k = 0; c->kind != CURVE_RAW && k < c->n; k++) {
            low = fmin(low, c->y[k]);
            high = fmax(high, c->y[k]);
        }
    }
    p->is_log = kind->may_be_log && low > 0 && high > 30 * low;
    if (p->is_log) {
        low = log10(low);
        high = log10(high);
    } else if (kind->from_zero && low >= 0) {
        low = 0;
    }
    if (!(high > low)) high = low + fmax(fabs(low) * 0.1, 1e-9);
    double room = (high - low) * 0.04;
    if (low != 0 || p->is_log) low -= room;
    p->frame.y0 = low;
    p->frame.y1 = high + room;
}

static double x_of(const plot *p, double step) {
    return fm_svg_x(&p->frame, step);
}

static double y_of(const plot *p, double value) {
    return fm_svg_y(&p->frame, p->is_log ? log10(fmax(value, 1e-300)) : value);
}

static void draw_values(const plot *p) {
    const fm_svg_frame *frame = &p->frame;
    if (!p->is_log) {
        fm_svg_value_axis(frame, N_Y_TICK);
        return;
    }
    bool is_short = frame->y1 - frame->y0 < 2.5;
    for (int decade = (int)floor(frame->y0); decade <= frame->y1; decade++) {
        static const double within[] = {1, 2, 5};
        for (size_t i = 0; i < (is_short ? 3 : 1); i++) {
            double v = within[i] * pow(10, decade), y = log10(v);
            if (y >= frame->y0 && y <= frame->y1) fm_svg_value_line(frame, y, v, pow(10, decade));
        }
    }
}

/* -- lines and dots */

static void draw_dot(FILE *out, double x, double y, size_t shape, const char *colour) {
    static const char *const outlines[N_SHAPE] = {"", "m-3 -3h6v6h-6z", "m0 -4l4 7h-8z",
                                                  "m0 -4l4 4l-4 4l-4 -4z"};
    if (shape == 0) {
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"", x, y);
    } else {
        fprintf(out, "<path d=\"M%.1f %.1f%s\"", x, y, outlines[shape]);
    }
    fprintf(out, " fill=\"%s\" stroke=\"%s\" stroke-width=\"0.8\"/>\n", colour, FM_SVG_PAPER);
}

static void open_path(FILE *out, curve_kind kind, const char *colour, const char *dash) {
    fprintf(out, "<path stroke=\"%s\" stroke-width=\"%s\" stroke-linejoin=\"round\"", colour,
            kind == CURVE_RAW ? "0.7" : "1.8");
    if (kind == CURVE_RAW) fprintf(out, " stroke-opacity=\"0.3\"");
    if (kind == CURVE_SEEN) dash = seen_dash;
    if (dash[0]) fprintf(out, " stroke-dasharray=\"%s\"", dash);
    fprintf(out, " d=\"");
}

/* One step alone is a short line, since a line without a length is not seen. */
static void draw_curve(const plot *p, const curve *c) {
    const char *colour = colours[p->colour[c->run]][0], *dash = dashes[p->dash[c->run]];
    if (c->n == 0) return;
    open_path(p->out, c->kind, colour, dash);
    if (c->n == 1) fprintf(p->out, "M%.1f %.1fh5", x_of(p, c->x[0]) - 2.5, y_of(p, c->y[0]));
    for (size_t i = 0; c->n > 1 && i < c->n; i++)
        fprintf(p->out, "%c%.1f %.1f", i ? 'L' : 'M', x_of(p, c->x[i]), y_of(p, c->y[i]));
    fprintf(p->out, "\"/>\n");
    for (size_t i = 0; c->kind == CURVE_HELD_OUT && i < c->n; i++)
        draw_dot(p->out, x_of(p, c->x[i]), y_of(p, c->y[i]), p->colour[c->run] % N_SHAPE, colour);
}

static void draw_panel(plot *p, const panel_kind *kind, double head) {
    double x = MARGIN + (double)(p->n_panel % N_COLUMN) * (PANEL_WIDTH + GAP);
    collect(p, kind);
    p->frame =
        (fm_svg_frame){.out = p->out,
                       .left = x + AXIS_LEFT,
                       .top = head + (double)(p->n_panel / N_COLUMN) * PANEL_HEIGHT + PLOT_TOP,
                       .width = PANEL_WIDTH - AXIS_LEFT,
                       .height = PLOT_HEIGHT,
                       .x1 = p->last_step};
    choose_range(p, kind);
    fm_svg_label(p->out, p->frame.left, p->frame.top - 12, "start", 14, FM_SVG_INK, kind->title);
    const char *remark = p->is_log ? "logarithmic" : kind->unit;
    if (remark[0]) {
        fm_svg_label(p->out, x_of(p, p->last_step), p->frame.top - 12, "end", 12, FM_SVG_QUIET,
                     remark);
    }
    draw_values(p);
    fm_svg_bottom_axis(&p->frame, N_X_TICK, 1, "step");
    fprintf(p->out,
            "<clipPath id=\"p%zu\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>"
            "</clipPath>\n<g clip-path=\"url(#p%zu)\">\n",
            p->n_panel, p->frame.left - 5, p->frame.top - 5,
            x_of(p, p->last_step) - p->frame.left + 10, PLOT_HEIGHT + 10, p->n_panel);
    for (size_t i = 0; i < p->n_curve; i++)
        draw_curve(p, &p->curves[i]);
    fprintf(p->out, "</g>\n");
    p->n_panel++;
}

/* -- the picture */

static bool has_series(const plot *p, const char *key, bool in_scores) {
    for (size_t i = 0; i < p->picture->n_run; i++) {
        const fm_plot_run *run = &p->picture->run[i];
        if (fm_plot_find(in_scores ? &run->scores : &run->steps, key)) return true;
    }
    return false;
}

/* Keys of a step that are not loss terms. */
static bool is_term(const char *key) {
    static const char *const others[] = {"loss",
                                         "grad_norm",
                                         "learning_rate",
                                         "step_s",
                                         "data_wait_s",
                                         "index",
                                         "cycles",
                                         "batch",
                                         "lddt_ca",
                                         "lddt",
                                         "rmsd_ca",
                                         "drmsd_ca",
                                         "tm_score",
                                         "gdt_ts",
                                         "gdt_ha",
                                         "left_s",
                                         "memory_bytes",
                                         "device_used_bytes",
                                         "device_free_bytes"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(key, others[i]) == 0) return false;
    return true;
}

/* Adds those of `count` scores that the runs have. A step's scores are those of one crop: only the
 * first of them is worth a panel without evaluations. Returns how many panels there are then. */
static size_t add_scores_of(const plot *p, const panel_kind *kinds, size_t count, panel_kind *out,
                            size_t n) {
    for (size_t i = 0; i < count; i++) {
        const char *key = kinds[i].key;
        if (has_series(p, key, true) || (i == 0 && has_series(p, key, false))) out[n++] = kinds[i];
    }
    return n;
}

/* Adds the loss terms of all runs, each once. Returns how many panels there are then. */
static size_t add_terms_of(const plot *p, panel_kind out[MOST_PANELS], size_t n) {
    const size_t first = n;
    for (size_t r = 0; r < p->picture->n_run; r++) {
        const fm_plot_table *steps = &p->picture->run[r].steps;
        for (size_t i = 0; i < steps->n && n < MOST_PANELS; i++) {
            const char *key = steps->series[i].name;
            size_t k = first;
            while (k < n && strcmp(out[k].key, key) != 0)
                k++;
            if (k < n || !is_term(key)) continue;
            out[n++] = (panel_kind){
                key, key, "loss term, unweighted", MEASURE_MEAN, true, false, true, SIDE_BOTH};
        }
    }
    return n;
}

/* The panels of the picture, in order; returns how many. */
static size_t choose_panels(const plot *p, panel_kind out[MOST_PANELS]) {
    size_t n = 0;
    for (size_t i = 0; i < sizeof loss_kinds / sizeof loss_kinds[0]; i++)
        if (has_series(p, "loss", loss_kinds[i].side == SIDE_SCORES)) out[n++] = loss_kinds[i];
    if (n && out[n - 1].side == SIDE_SCORES && !has_series(p, "masked_msa", false)) {
        out[n - 1].unit = "";
    }
    bool of_chains = has_series(p, "lddt_ca", true) || has_series(p, "lddt_ca", false);
    n = of_chains
            ? add_scores_of(p, score_kinds, sizeof score_kinds / sizeof score_kinds[0], out, n)
            : add_scores_of(p, complex_kinds, sizeof complex_kinds / sizeof complex_kinds[0], out,
                            n);
    for (size_t i = 0; i < sizeof last_kinds / sizeof last_kinds[0]; i++)
        if (has_series(p, last_kinds[i].key, false)) out[n++] = last_kinds[i];
    return p->picture->has_terms ? add_terms_of(p, out, n) : n;
}

static bool is_first_of_stem(const plot *p, size_t run) {
    for (size_t k = 0; p->picture->by_seed && k < run; k++)
        if (is_same_stem(p->picture->run[k].name, p->picture->run[run].name)) return false;
    return true;
}

/* Draws the runs' names behind pieces of their lines; returns the height. */
static double draw_legend(const plot *p, double top, bool is_drawn) {
    double x = MARGIN, y = top;
    for (size_t i = 0; i < p->picture->n_run; i++) {
        if (!is_first_of_stem(p, i)) continue;
        char text[96];
        size_t n = 0;
        for (size_t k = i; k < p->picture->n_run; k++)
            n += is_same_stem(p->picture->run[k].name, p->picture->run[i].name);
        bool is_group = p->picture->by_seed && n > 1;
        const char *name = p->picture->run[i].name;
        snprintf(text, sizeof text, "%.*s", (int)(is_group ? stem_length(name) : strlen(name)),
                 name);
        if (is_group) snprintf(text + strlen(text), 24, " (%zu runs)", n);
        double width = SWATCH + 10 + LETTER * (double)strlen(text) + 16;
        if (x > MARGIN && x + width > WIDTH - MARGIN) {
            x = MARGIN;
            y += LEGEND_ROW;
        }
        if (is_drawn) {
            open_path(p->out, CURVE_MEAN, colours[p->colour[i]][0], dashes[p->dash[i]]);
            fprintf(p->out, "M%.1f %.1fh%d\"/>\n", x, y - 4, SWATCH);
            fm_svg_label(p->out, x + SWATCH + 8, y, "start", 12, FM_SVG_INK, text);
        }
        x += width;
    }
    return y - top + LEGEND_ROW;
}

/* What the kinds of lines mean. Models of af3, whose loss has this term, are scored on samples. */
static void describe(const plot *p, char *out, size_t out_bytes) {
    char number[FM_SVG_NUMBER_BYTES], held[32] = "";
    const bool of_complexes =
        has_series(p, "smooth_lddt", false) || has_series(p, "smooth_lddt", true);
    bool is_held = false, is_seen = false, has_steps = false;
    for (size_t i = 0; i < p->picture->n_run; i++) {
        is_held |= p->picture->run[i].scores.n > 0;
        has_steps |= p->picture->run[i].steps.n > 0;
        is_seen |= fm_plot_find(&p->picture->run[i].scores, "seen_loss") != NULL;
    }
    bool is_raw = p->picture->n_run <= MOST_RAW_RUNS && p->smooth > 1;
    if (is_held) {
        snprintf(held, sizeof held, "%s: held-out %s", has_steps ? "; dots" : "Dots",
                 of_complexes ? "samples" : "chains");
    }
    if (!has_steps) {
        snprintf(out, out_bytes, "%s%s.", held,
                 is_seen ? "; dotted: training chains scored in the same way" : "");
    } else if (p->smooth > 1) {
        snprintf(out, out_bytes, "Lines: training, centred mean over %s steps%s%s%s.",
                 fm_svg_count(p->smooth, number), is_raw ? "; pale: single steps" : "", held,
                 is_seen ? "; dotted: training chains scored in the same way" : "");
    } else {
        snprintf(out, out_bytes, "Lines: training, every step%s.", held);
    }
}

static void draw(plot *p) {
    panel_kind kinds[MOST_PANELS];
    char style[FM_SVG_STYLE_BYTES], about[256];
    const char *title = p->picture->title ? p->picture->title : "Training runs";
    choose_colours(p);
    find_steps(p);
    size_t n = choose_panels(p, kinds);
    double head = 84 + draw_legend(p, 84, false);
    fm_svg_dark_style(colours, N_COLOUR, style);
    describe(p, about, sizeof about);
    fm_svg_begin(p->out, WIDTH, (int)head + (int)((n + N_COLUMN - 1) / N_COLUMN) * PANEL_HEIGHT,
                 title, style);
    fm_svg_label(p->out, MARGIN, 32, "start", 18, FM_SVG_INK, title);
    fm_svg_label(p->out, MARGIN, 54, "start", 12, FM_SVG_QUIET, about);
    draw_legend(p, 84, true);
    for (size_t i = 0; i < n; i++)
        draw_panel(p, &kinds[i], head);
    fm_svg_end(p->out);
}

fm_status fm_plot_draw(const fm_plot_picture *picture, char **ret_text, size_t *ret_bytes,
                       fm_error *reterr) {
    assert(picture->n_run > 0 && picture->n_run <= FM_PLOT_MOST_RUNS);
    plot p = {.picture = picture, .curves = malloc(MOST_CURVES * sizeof *p.curves)};
    *ret_text = NULL;
    p.out = p.curves ? open_memstream(ret_text, ret_bytes) : NULL;
    if (p.out) draw(&p);
    bool is_whole = p.out && fclose(p.out) == 0;
    free(p.curves);
    if (is_whole) return FM_OK;
    free(*ret_text);
    *ret_text = NULL;
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the picture");
}
