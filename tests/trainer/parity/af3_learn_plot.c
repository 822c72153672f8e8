/* af3_learn_plot.c: see af3_learn_plot.h. */
#include "tests/trainer/parity/af3_learn_plot.h"

#include "proto/base/svg.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 900, HEIGHT = 300, PLOT_WIDTH = 230, PLOT_HEIGHT = 190, LEFT = 50, PITCH = 290 };

static double value_of(const af3_learn_row *row, int panel) {
    return panel == 0 ? row->loss : panel == 1 ? row->lddt : row->rmsd;
}

/* The values' axis begins at 0. That of the smooth lDDT ends at 1, its best value. */
static void draw_panel(FILE *out, int panel, const af3_learn_row *row, size_t n) {
    static const char *const titles[] = {"Loss", "Smooth lDDT", "RMSD of the samples, Å"};
    double most = panel == 1 ? 1 : 0;
    for (size_t i = 0; i < n && panel != 1; i++)
        most = fmax(most, value_of(&row[i], panel));
    const fm_svg_frame frame = {.out = out,
                                .left = LEFT + panel * PITCH,
                                .top = 50,
                                .width = PLOT_WIDTH,
                                .height = PLOT_HEIGHT,
                                .x1 = row[n - 1].step,
                                .y1 = most};
    fm_svg_label(out, frame.left, frame.top - 14, "start", 14, FM_SVG_INK, titles[panel]);
    fm_svg_value_axis(&frame, 5);
    fm_svg_bottom_axis(&frame, 4, 1, "step");
    fprintf(out, "<path fill=\"none\" stroke=\"" FM_SVG_BAR "\" stroke-width=\"1.8\" d=\"");
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%c%.1f %.1f", i ? 'L' : 'M', fm_svg_x(&frame, row[i].step),
                fm_svg_y(&frame, value_of(&row[i], panel)));
    }
    fprintf(out, "\"/>\n");
}

fm_status af3_learn_plot(const char *path, const af3_learn_row *row, size_t n, fm_error *reterr) {
    FILE *out = fopen(path, "w");
    if (!out) return fm_fail_in(reterr, FM_ERR_IO, path, "cannot open: %s", strerror(errno));
    static const char *const colour[][2] = {{FM_SVG_BAR, "#7fb2e5"}};
    char style[FM_SVG_STYLE_BYTES];
    fm_svg_dark_style(colour, 1, style);
    fm_svg_begin(out, WIDTH, HEIGHT, "AlphaFold 3's tiny network learns one complex", style);
    for (int panel = 0; panel < 3; panel++)
        draw_panel(out, panel, row, n);
    fm_svg_end(out);
    bool failed = ferror(out) != 0;
    if (fclose(out) || failed) {
        return fm_fail_in(reterr, FM_ERR_IO, path, "cannot write: %s", strerror(errno));
    }
    return FM_OK;
}
