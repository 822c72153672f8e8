/* cmd_plot.c: foldmill plot: draws the curves of training runs. */
#include "proto/base/file.h"
#include "proto/base/svg.h"
#include "server/cli/commands.h"
#include "server/cli/output_note.h"
#include "server/cli/plot_draw.h"
#include "server/cli/svg_png.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char name[] = "foldmill plot";

static const char description[] =
    "Draws the curves of training runs. Each RUN is the folder of `foldmill train --out`. Loss,\n"
    "scores, learning rate and speed over the steps come from metrics.jsonl, and held-out losses\n"
    "and scores from eval.jsonl where a run has one. The end of FILE selects the format: .svg, or\n"
    ".png with librsvg. FILE may be an earlier picture, which is replaced, and no other file.\n"
    "Colours suit colour-blind readers; an SVG follows a viewer's dark mode.\n\n"
    "Lines are centred means over --smooth steps, by default a fiftieth of the longest run; the\n"
    "picture says how many. With --by-seed, runs whose names differ only in a number at the\n"
    "end (a-1, a-2) share a colour. An axis of losses is logarithmic where they span more than a\n"
    "factor of 30.\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage.\n\n"
    "Examples:\n"
    "  foldmill plot runs/first --out first.svg\n"
    "  foldmill plot runs/bf16-1 runs/bf16-2 runs/fp32-1 runs/fp32-2 --by-seed \\\n"
    "      --out seeds.png";

typedef struct plot_settings {
    const char *out, *title;
    uint64_t smooth;
    double scale;
    bool by_seed, has_terms;
} plot_settings;

static bool ends_with(const char *path, const char *end) {
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcasecmp(path + n - m, end) == 0;
}

static const char png_begin[] = "\x89PNG\r\n\x1a\n";

static fm_status draw(const plot_settings *set, const fm_plot_run *runs, size_t n_run,
                      fm_error *reterr) {
    const fm_plot_picture picture = {.title = set->title,
                                     .run = runs,
                                     .n_run = n_run,
                                     .smooth = set->smooth,
                                     .by_seed = set->by_seed,
                                     .has_terms = set->has_terms};
    char *svg;
    size_t bytes;
    fm_status status = fm_plot_draw(&picture, &svg, &bytes, reterr);
    if (status) return status;
    status = ends_with(set->out, ".png")
                 ? fm_svg_write_png(set->out, svg, bytes, set->scale, reterr)
                 : fm_file_write_atomic(set->out, svg, bytes, reterr);
    free(svg);
    return status;
}

static fm_status plot(const plot_settings *set, int n_run, char **folders, fm_error *reterr) {
    if (!ends_with(set->out, ".svg") && !ends_with(set->out, ".png")) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--out: found '%.200s', expected a file that ends in .svg or .png",
                       set->out);
    }
    if (!(set->scale >= 0.25 && set->scale <= 8)) {
        return fm_fail(reterr, FM_ERR_USAGE, "--scale: found %g, expected 0.25 to 8", set->scale);
    }
    bool is_png = ends_with(set->out, ".png");
    fm_status status = fm_output_check_like(set->out, "--out", is_png ? "PNG" : "SVG of foldmill",
                                            is_png ? png_begin : FM_SVG_BEGIN, reterr);
    if (status) return status;
    fm_plot_run *runs = calloc((size_t)n_run, sizeof *runs);
    if (!runs) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the runs");
    for (int i = 0; i < n_run && !status; i++)
        status = fm_plot_read(folders[i], &runs[i], reterr);
    if (!status) status = draw(set, runs, (size_t)n_run, reterr);
    for (int i = 0; i < n_run; i++)
        fm_plot_free(&runs[i]);
    free(runs);
    return status;
}

int fm_cmd_plot(int argc, char **argv) {
    plot_settings set = {.scale = 2};
    const fm_option options[] = {
        {"out", FM_OPTION_STRING, &set.out, "FILE", .help = "the picture, .svg or .png",
         .letter = 'o', .is_required = true},
        {"title", FM_OPTION_STRING, &set.title, "TEXT",
         .help = "heading of the picture (Training runs)"},
        {"smooth", FM_OPTION_U64, &set.smooth, "N",
         .help = "steps of the centred mean, 1 = every step (a fiftieth of the longest run)",
         .min = 1, .max = 1000000000},
        {"by-seed", FM_OPTION_FLAG, &set.by_seed, NULL,
         .help = "one colour for runs whose names differ only in a number at the end"},
        {"terms", FM_OPTION_FLAG, &set.has_terms, NULL,
         .help = "add a panel for each term of the loss"},
        {"scale", FM_OPTION_F64, &set.scale, "X", .help = "pixels per unit of a PNG (2)"},
        {0}};
    const fm_command command = {.program = name,
                                .arguments = "RUN... --out FILE [options]",
                                .summary = "draw the curves of training runs",
                                .description = description,
                                .options = options,
                                .min_positional = 1,
                                .max_positional = FM_PLOT_MOST_RUNS};
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    fm_status status = plot(&set, n_positional, argv, &error);
    return status ? fm_program_report(name, &error) : FM_EXIT_OK;
}
