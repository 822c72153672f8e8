/* pictures.c: see pictures.h. */
#include "trainer/predict/pictures.h"

#include "proto/base/svg.h"
#include "proto/chem/atom14.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 560, HEIGHT = 340, LEFT = 60, RIGHT = 24, TOP = 56, BOTTOM = 52, N_TICK = 6 };

const fm_plddt_class fm_plddt_classes[FM_PLDDT_CLASSES] = {{90, "very high", "#0053d6"},
                                                           {70, "confident", "#65cbf3"},
                                                           {50, "low", "#ffdb13"},
                                                           {0, "very low", "#ff7d45"}};

const fm_plddt_class *fm_plddt_class_of(double plddt) {
    size_t k = 0;
    while (k + 1 < FM_PLDDT_CLASSES && plddt < fm_plddt_classes[k].least)
        k++;
    return &fm_plddt_classes[k];
}

/* Begins a picture with its title and a remark under it. */
static void begin(FILE *out, int width, int height, const char *title, const char *remark,
                  const char *const (*colour)[2], size_t n_colour) {
    char style[FM_SVG_STYLE_BYTES];
    fm_svg_dark_style(colour, n_colour, style);
    fm_svg_begin(out, width, height, title, style);
    fm_svg_label(out, LEFT, 26, "start", 15, FM_SVG_INK, title);
    fm_svg_label(out, LEFT, 44, "start", 12, FM_SVG_QUIET, remark);
}

/* Finds the colour at position `at` (0..1) between the stops of a scale. */
static void mix(const uint8_t (*stop)[3], int n_stop, double at, char out[8]) {
    double place = fmin(fmax(at, 0), 1) * (n_stop - 1);
    int k = (int)place;
    if (k > n_stop - 2) k = n_stop - 2;
    double share = place - k;
    unsigned channel[3];
    for (int c = 0; c < 3; c++)
        channel[c] = (unsigned)lround(stop[k][c] + share * (stop[k + 1][c] - stop[k][c]));
    snprintf(out, 8, "#%02x%02x%02x", channel[0] & 255, channel[1] & 255, channel[2] & 255);
}

/* -- matrices */

enum { MOST_CELLS = 128, N_LEVEL = 32, MATRIX = 320, BAR = 14 };

static const uint8_t greens[][3] = {{0, 68, 27},     {0, 109, 44},    {35, 139, 69},
                                    {116, 196, 118}, {199, 233, 192}, {247, 252, 245}};
enum { N_GREEN = sizeof greens / sizeof greens[0] };

/* The mean of the pairs of a cell. */
static double cell_value(const fm_matrix_picture *p, uint32_t n, uint32_t row, uint32_t column) {
    uint32_t i0 = (uint32_t)((uint64_t)row * p->n / n);
    uint32_t i1 = (uint32_t)((uint64_t)(row + 1) * p->n / n);
    uint32_t j0 = (uint32_t)((uint64_t)column * p->n / n);
    uint32_t j1 = (uint32_t)((uint64_t)(column + 1) * p->n / n);
    double sum = 0;
    for (uint32_t i = i0; i < i1; i++)
        for (uint32_t j = j0; j < j1; j++)
            sum += p->at(p->values, (size_t)i * p->n + j);
    return sum / ((double)(i1 - i0) * (j1 - j0));
}

static void mix_level(const fm_matrix_picture *p, int level, char out[8]) {
    double share = (level + 0.5) / N_LEVEL;
    mix(greens, N_GREEN, p->is_high_dark ? 1 - share : share, out);
}

/* One path for each level: a stroke for each run of cells in a row. */
static void draw_cells(FILE *out, const fm_matrix_picture *p, const fm_svg_frame *frame) {
    uint32_t n = p->n < MOST_CELLS ? p->n : MOST_CELLS;
    double side = frame->width / n;
    uint8_t level[MOST_CELLS * MOST_CELLS];
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t c = 0; c < n; c++) {
            double share = cell_value(p, n, r, c) / p->most;
            level[(size_t)r * n + c] =
                isnan(share) ? N_LEVEL : (uint8_t)fmin(fmax(share, 0) * N_LEVEL, N_LEVEL - 1);
        }
    }
    for (int k = 0; k < N_LEVEL; k++) {
        char colour[8];
        mix_level(p, k, colour);
        fprintf(out, "<path stroke=\"%s\" stroke-width=\"%.2f\" d=\"", colour, side + 0.25);
        for (uint32_t r = 0; r < n; r++) {
            for (uint32_t c = 0, end; c < n; c = end) {
                for (end = c + 1;
                     end < n && level[(size_t)r * n + end] == level[(size_t)r * n + c];)
                    end++;
                if (level[(size_t)r * n + c] != k) continue;
                fprintf(out, "M%.1f %.1fh%.1f", frame->left + c * side,
                        frame->top + (r + 0.5) * side, (end - c) * side);
            }
        }
        fputs("\"/>\n", out);
    }
}

static void draw_scale(FILE *out, const fm_matrix_picture *p, const fm_svg_frame *frame) {
    double left = frame->left + frame->width + 24, high = frame->height / N_LEVEL;
    char text[64];
    for (int k = 0; k < N_LEVEL; k++) {
        char colour[8];
        mix_level(p, k, colour);
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.2f\" fill=\"%s\"/>\n",
                left, frame->top + frame->height - (k + 1) * high, BAR, high + 0.3, colour);
    }
    for (int k = 0; k * p->step <= p->most; k++) {
        snprintf(text, sizeof text, "%g", k * p->step);
        fm_svg_label(out, left + BAR + 6,
                     frame->top + frame->height * (1 - k * p->step / p->most) + 4, "start", 12,
                     FM_SVG_QUIET, text);
    }
    fm_svg_label(out, left, frame->top - 10, "start", 12, FM_SVG_INK, p->unit);
}

/* Draws the borders of the chains across the frame, downwards too in a matrix, and above it the ids
 * that have room. Chains narrower than NARROW share a border. */
static void draw_chains(const fm_svg_frame *frame, const fm_picture_chains *chains, uint32_t n,
                        bool is_matrix) {
    enum { NARROW = 2, LETTER = 8 };
    FILE *out = frame->out;
    const double shift = frame->x0 / 2; /* tokens are points at 1, 2, ... or cells from 0 on */
    double last = frame->left;
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && chains->of_token[end] == chains->of_token[begin];)
            end++;
        const char *id = chains->id[chains->of_token[begin]];
        const double left = fm_svg_x(frame, begin + shift), right = fm_svg_x(frame, end + shift);
        if ((double)strlen(id) * LETTER <= right - left) {
            fm_svg_label(out, (left + right) / 2, frame->top - 5, "middle", 11, FM_SVG_INK, id);
        }
        if (end == n || right - last < NARROW) continue;
        last = right;
        fm_svg_line(out, right, frame->top, right, frame->top + frame->height, FM_SVG_INK);
        const double y = fm_svg_y(frame, end);
        if (is_matrix) fm_svg_line(out, frame->left, y, frame->left + frame->width, y, FM_SVG_INK);
    }
}

void fm_picture_matrix(FILE *out, const fm_matrix_picture *p) {
    const fm_svg_frame frame = {.out = out,
                                .left = LEFT,
                                .top = TOP + 8,
                                .width = MATRIX,
                                .height = MATRIX,
                                .x1 = p->n,
                                .y0 = p->n};
    begin(out, LEFT + MATRIX + 90, TOP + MATRIX + 66, p->title, p->remark, NULL, 0);
    draw_cells(out, p, &frame);
    draw_scale(out, p, &frame);
    const fm_svg_frame down = {.out = out,
                               .left = LEFT,
                               .top = frame.top,
                               .width = 0,
                               .height = MATRIX,
                               .x1 = 1,
                               .y0 = p->n};
    double step = fm_svg_tick_step(p->n, N_TICK);
    for (int k = 1; k * step <= p->n; k++)
        fm_svg_value_line(&down, k * step, k * step, step);
    fm_svg_bottom_axis(&frame, N_TICK, 1, p->below);
    fm_svg_label_up(out, 16, frame.top + MATRIX / 2.0, 12, FM_SVG_INK, p->left);
    if (p->chains) draw_chains(&frame, p->chains, p->n, true);
    fm_svg_end(out);
}

static double error_at(const void *values, size_t index) {
    return (double)((const float *)values)[index];
}

void fm_picture_pae(FILE *out, const fm_prediction *p) {
    char title[400], remark[96];
    snprintf(title, sizeof title, "Predicted aligned error: %.200s", p->model);
    snprintf(remark, sizeof remark, "seed %llu, pTM %.3f", (unsigned long long)p->seed, p->ptm);
    const fm_matrix_picture picture = {.title = title,
                                       .remark = remark,
                                       .unit = "Å",
                                       .left = "aligned residue",
                                       .below = "residue whose error it is",
                                       .n = p->n_res,
                                       .values = p->pae,
                                       .at = error_at,
                                       .most = p->max_pae,
                                       .step = 10};
    fm_picture_matrix(out, &picture);
}

/* -- the path of the chain */

typedef struct point {
    double x[3], plddt;
} point;

/* Finds the axes of the largest and the second largest extent by Jacobi rotations; they are rows of
 * `axis`. */
static void find_axes(double matrix[3][3], double axis[3][3]) {
    enum { TURNS = 60 };
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            axis[a][b] = a == b;
    for (int turn = 0; turn < TURNS; turn++) {
        int a = turn % 3 == 2 ? 1 : 0, b = turn % 3 == 0 ? 1 : 2;
        double angle = 0.5 * atan2(2 * matrix[a][b], matrix[a][a] - matrix[b][b]);
        double c = cos(angle), s = sin(angle);
        for (int k = 0; k < 3; k++) {
            double u = matrix[k][a], v = matrix[k][b];
            matrix[k][a] = c * u + s * v;
            matrix[k][b] = c * v - s * u;
        }
        for (int k = 0; k < 3; k++) {
            double u = matrix[a][k], v = matrix[b][k];
            matrix[a][k] = c * u + s * v;
            matrix[b][k] = c * v - s * u;
            u = axis[a][k];
            v = axis[b][k];
            axis[a][k] = c * u + s * v;
            axis[b][k] = c * v - s * u;
        }
    }
}

/* Turns the points so that the longest extent is along x and the shortest along the view. */
static void turn_points(point *points, uint32_t n) {
    double mean[3] = {0}, matrix[3][3] = {{0}}, axis[3][3];
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            mean[k] += points[i].x[k] / n;
    for (uint32_t i = 0; i < n; i++)
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++)
                matrix[a][b] += (points[i].x[a] - mean[a]) * (points[i].x[b] - mean[b]) / n;
    find_axes(matrix, axis);
    int order[3] = {0, 1, 2};
    for (int a = 0; a < 3; a++) {
        for (int b = a + 1; b < 3; b++) {
            if (matrix[order[b]][order[b]] <= matrix[order[a]][order[a]]) continue;
            int kept = order[a];
            order[a] = order[b];
            order[b] = kept;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        double from[3], to[3];
        for (int k = 0; k < 3; k++)
            from[k] = points[i].x[k] - mean[k];
        for (int k = 0; k < 2; k++) {
            const double *u = axis[order[k]];
            to[k] = from[0] * u[0] + from[1] * u[1] + from[2] * u[2];
        }
        /* The three axes are right-handed, so that no structure is drawn as its mirror image. */
        const double *u = axis[order[0]], *v = axis[order[1]];
        const double w[3] = {u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2],
                             u[0] * v[1] - u[1] * v[0]};
        to[2] = from[0] * w[0] + from[1] * w[1] + from[2] * w[2];
        memcpy(points[i].x, to, sizeof to);
    }
}

/* A piece of the path between two CA atoms. */
typedef struct piece {
    double x0, y0, x1, y1, depth, plddt;
} piece;

static int compare_depths(const void *a, const void *b) {
    const piece *x = a, *y = b;
    return (x->depth > y->depth) - (x->depth < y->depth);
}

/* The curve through the points (Catmull and Rom) at `t` (0..1) between i and i + 1. */
static double curve_at(const point *points, uint32_t n, uint32_t i, int k, double t) {
    double a = points[i > 0 ? i - 1 : 0].x[k], b = points[i].x[k], c = points[i + 1].x[k];
    double d = points[i + 2 < n ? i + 2 : n - 1].x[k];
    return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

static uint32_t cut_path(const point *points, uint32_t n, uint32_t n_part, piece *pieces) {
    uint32_t n_piece = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        for (uint32_t s = 0; s < n_part; s++) {
            double t0 = (double)s / n_part, t1 = (double)(s + 1) / n_part, at[2][3];
            for (int k = 0; k < 3; k++) {
                at[0][k] = curve_at(points, n, i, k, t0);
                at[1][k] = curve_at(points, n, i, k, t1);
            }
            pieces[n_piece++] = (piece){at[0][0],
                                        at[0][1],
                                        at[1][0],
                                        at[1][1],
                                        (at[0][2] + at[1][2]) / 2,
                                        t0 < 0.5 ? points[i].plddt : points[i + 1].plddt};
        }
    }
    return n_piece;
}

/* Near pieces are wide and drawn over far ones, with an edge in the colour of the paper. */
static void draw_pieces(FILE *out, const piece *pieces, uint32_t n, const fm_svg_frame *frame) {
    double near = n ? pieces[n - 1].depth : 0, far = n ? pieces[0].depth : 0;
    double depth = near > far ? near - far : 1;
    for (uint32_t i = 0; i < n; i++) {
        const piece *p = &pieces[i];
        double width = 2.6 + 3.4 * (p->depth - far) / depth;
        double x0 = fm_svg_x(frame, p->x0), y0 = fm_svg_y(frame, p->y0);
        double x1 = fm_svg_x(frame, p->x1), y1 = fm_svg_y(frame, p->y1);
        fprintf(out,
                "<path stroke=\"" FM_SVG_PAPER "\" stroke-width=\"%.1f\" d=\"M%.1f %.1fL%.1f "
                "%.1f\"/><path stroke=\"%s\" stroke-width=\"%.1f\" stroke-linecap=\"round\" "
                "d=\"M%.1f %.1fL%.1f %.1f\"/>\n",
                width + 2, x0, y0, x1, y1, fm_plddt_class_of(p->plddt)->colour, width, x0, y0, x1,
                y1);
    }
}

static void draw_classes(FILE *out, double left, double y) {
    for (int k = 0; k < FM_PLDDT_CLASSES; k++) {
        const fm_plddt_class *class = &fm_plddt_classes[k];
        char text[64];
        snprintf(text, sizeof text, "%s (%s%g)", class->name,
                 k + 1 < FM_PLDDT_CLASSES ? "≥ " : "< ",
                 k + 1 < FM_PLDDT_CLASSES ? class->least : fm_plddt_classes[k - 1].least);
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\"/>\n",
                left, y - 10, class->colour);
        fm_svg_label(out, left + 18, y, "start", 12, FM_SVG_QUIET, text);
        left += 124;
    }
}

bool fm_picture_trace(FILE *out, const fm_prediction *p) {
    uint32_t n = p->n_res, n_part = n < 500 ? 5 : n < 2000 ? 2 : 1, n_point = 0;
    point *points = malloc((n + 1) * sizeof *points);
    piece *pieces = malloc((size_t)n * n_part * sizeof *pieces + sizeof *pieces);
    char title[400], remark[96];
    bool has_memory = points && pieces;
    snprintf(title, sizeof title, "Path of the chain: %.200s", p->model);
    snprintf(remark, sizeof remark, "seed %llu, mean pLDDT %.1f", (unsigned long long)p->seed,
             p->mean_plddt);
    begin(out, WIDTH, HEIGHT + 60, title, remark, NULL, 0);
    for (uint32_t i = 0; has_memory && i < n; i++) {
        const float *ca = p->atoms + ((size_t)i * FM_N_ATOM14 + 1) * 3;
        if (p->aatype[i] == FM_RESTYPE_X) continue;
        points[n_point++] =
            (point){{(double)ca[0], (double)ca[1], (double)ca[2]}, (double)p->plddt[i]};
    }
    if (n_point > 1) {
        turn_points(points, n_point);
        double most = 1e-3;
        for (uint32_t i = 0; i < n_point; i++) {
            most = fmax(most, fabs(points[i].x[0]) * (HEIGHT - 80) / (WIDTH - 80));
            most = fmax(most, fabs(points[i].x[1]));
        }
        double wide = most * (WIDTH - 80) / (HEIGHT - 80);
        const fm_svg_frame frame = {out,   40,   TOP + 14, WIDTH - 80, HEIGHT - 80,
                                    -wide, wide, -most,    most};
        uint32_t n_piece = cut_path(points, n_point, n_part, pieces);
        qsort(pieces, n_piece, sizeof *pieces, compare_depths);
        draw_pieces(out, pieces, n_piece, &frame);
    }
    draw_classes(out, 40, HEIGHT + 36);
    fm_svg_end(out);
    free(points);
    free(pieces);
    return has_memory;
}

/* -- pLDDT */

enum { MOST_CURVES = 8 };

static const char *const hues[MOST_CURVES][2] = {
    {"#0072b2", "#56b4e9"}, {"#d55e00", "#ff8f45"}, {"#00815e", "#35cf9f"}, {"#b8478c", "#e99acb"},
    {"#8a6d00", "#f0e442"}, {"#555555", "#c2c2c2"}, {"#7446b8", "#b99cf2"}, {"#7f3b08", "#dba36b"}};

void fm_picture_plddt(FILE *out, const char *chain, uint32_t n_res, const fm_plddt_curve *curve,
                      uint32_t n_curve, const fm_picture_chains *chains) {
    char title[400];
    uint32_t n = n_curve < MOST_CURVES ? n_curve : MOST_CURVES;
    const fm_svg_frame frame = {.out = out,
                                .left = LEFT,
                                .top = TOP + 6,
                                .width = WIDTH - LEFT - RIGHT,
                                .height = HEIGHT - TOP - BOTTOM,
                                .x0 = 1,
                                .x1 = n_res > 1 ? n_res : 2,
                                .y1 = 100};
    snprintf(title, sizeof title, "pLDDT of %.200s", chain);
    begin(out, WIDTH, HEIGHT + 12 + 20 * (int)n, title,
          chains ? "by token; bands: AlphaFold's classes"
                 : "by residue; bands: AlphaFold's classes",
          hues, MOST_CURVES);
    double above = 100;
    for (int k = 0; k < FM_PLDDT_CLASSES; k++) {
        const fm_plddt_class *class = &fm_plddt_classes[k];
        double top = fm_svg_y(&frame, above), base = fm_svg_y(&frame, class->least);
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" "
                "fill-opacity=\"0.13\"/>\n",
                frame.left, top, frame.width, base - top, class->colour);
        above = class->least;
    }
    fm_svg_value_axis(&frame, 5);
    fm_svg_bottom_axis(&frame, N_TICK, 1, chains ? "token" : "residue");
    if (chains) draw_chains(&frame, chains, n_res, false);
    for (uint32_t k = n; k-- > 0;) { /* the best one on top */
        fprintf(out, "<path stroke=\"%s\" stroke-width=\"%s\" stroke-linejoin=\"round\" d=\"",
                hues[k][0], k ? "1.3" : "2.2");
        for (uint32_t i = 0; i < n_res; i++) {
            fprintf(out, "%c%.1f %.1f", i ? 'L' : 'M', fm_svg_x(&frame, i + 1.0),
                    fm_svg_y(&frame, (double)curve[k].plddt[i]));
        }
        fputs("\"/>\n", out);
    }
    for (uint32_t k = 0; k < n; k++) {
        char text[400];
        double y = HEIGHT + 8 + 20.0 * k;
        snprintf(text, sizeof text, "%.300s, mean %.1f", curve[k].name, curve[k].mean);
        fm_svg_line(out, LEFT, y - 4, LEFT + 24, y - 4, hues[k][0]);
        fm_svg_label(out, LEFT + 32, y, "start", 12, FM_SVG_INK, text);
    }
    fm_svg_end(out);
}

/* -- coverage */

static const uint8_t identities[][3] = {
    {68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}};
enum { N_IDENTITY = sizeof identities / sizeof identities[0] };

static void draw_band(FILE *out, const fm_svg_frame *frame, double low, double high,
                      const fm_json *band) {
    const char *cells = fm_json_get_text(fm_json_get_member(band, "cells"));
    size_t n = cells ? strlen(cells) : 0;
    char colour[8];
    mix(identities, N_IDENTITY, fm_json_get_number(fm_json_get_member(band, "identity"), 0),
        colour);
    double top = fm_svg_y(frame, high), base = fm_svg_y(frame, low),
           wide = frame->width / (double)n;
    for (size_t c = 0, end; c < n; c = end) {
        for (end = c + 1; end < n && cells[end] == cells[c];)
            end++;
        if (cells[c] <= '0' || cells[c] > '9') continue;
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.2f\" fill=\"%s\" "
                "fill-opacity=\"%.2f\"/>\n",
                frame->left + (double)c * wide, top, (double)(end - c) * wide, base - top + 0.2,
                colour, (cells[c] - '0') / 9.0);
    }
}

static void draw_identity_scale(FILE *out) {
    enum { N = 24, LENGTH = 120 };
    double left = WIDTH - RIGHT - LENGTH - 100;
    fm_svg_label(out, left - 8, 44, "end", 12, FM_SVG_QUIET, "identity 0 %");
    for (int k = 0; k < N; k++) {
        char colour[8];
        mix(identities, N_IDENTITY, (k + 0.5) / N, colour);
        fprintf(out, "<rect x=\"%.1f\" y=\"34\" width=\"%.1f\" height=\"11\" fill=\"%s\"/>\n",
                left + LENGTH * (double)k / N, LENGTH / (double)N + 0.3, colour);
    }
    fm_svg_label(out, left + LENGTH + 8, 44, "start", 12, FM_SVG_QUIET, "100 %");
}

bool fm_picture_coverage(FILE *out, const char *chain, uint32_t n_res, const fm_json *coverage) {
    const fm_json *columns = fm_json_get_member(coverage, "columns");
    const fm_json *bands = fm_json_get_member(coverage, "bands");
    size_t n_band = fm_json_count(bands);
    double n_row = 0, at = 0;
    for (size_t b = 0; b < n_band; b++)
        n_row += fm_json_get_number(fm_json_get_member(fm_json_get_element(bands, b), "rows"), 0);
    if (fm_json_count(columns) != n_res || !(n_row > 0)) return false;
    char title[400], number[FM_SVG_NUMBER_BYTES], remark[96];
    const fm_svg_frame frame = {.out = out,
                                .left = LEFT,
                                .top = TOP + 6,
                                .width = WIDTH - LEFT - RIGHT,
                                .height = HEIGHT - TOP - BOTTOM,
                                .x1 = n_res,
                                .y1 = n_row};
    snprintf(title, sizeof title, "Alignment of %.200s", chain);
    snprintf(remark, sizeof remark, "%s rows by identity", fm_svg_count((uint64_t)n_row, number));
    begin(out, WIDTH, HEIGHT + 8, title, remark, NULL, 0);
    draw_identity_scale(out);
    fm_svg_value_axis(&frame, 5);
    for (size_t b = 0; b < n_band; b++) { /* the highest identity at the top */
        const fm_json *band = fm_json_get_element(bands, b);
        double rows = fm_json_get_number(fm_json_get_member(band, "rows"), 0);
        draw_band(out, &frame, n_row - at - rows, n_row - at, band);
        at += rows;
    }
    fm_svg_bottom_axis(&frame, N_TICK, 1, "residue");
    fprintf(out, "<path stroke=\"" FM_SVG_INK "\" stroke-width=\"1.8\" d=\"");
    for (uint32_t i = 0; i < n_res; i++) {
        fprintf(out, "%c%.1f %.1f", i ? 'L' : 'M', fm_svg_x(&frame, i + 0.5),
                fm_svg_y(&frame, fm_json_get_number(fm_json_get_element(columns, i), 0)));
    }
    fputs("\"/>\n", out);
    fm_svg_label_up(out, 14, frame.top + frame.height / 2, 12, FM_SVG_INK, "rows");
    fm_svg_end(out);
    return true;
}
