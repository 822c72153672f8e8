/* af3_learn.c: trains AlphaFold 3's tiny network on one complex of the reference, from drawn
 * parameters and with drawn noise, and compares the structures that it samples with the truth.
 *
 *     af3_learn [--steps N] [--rate R] [--halve N] [--structures S] [--seed N] [--every N]
 *               [--most A] [--plot PICTURE.svg] CONFIG.json FILE.npz
 *
 * Every step trains on the complex with S noisy structures, at a rate that is halved every --halve
 * steps. Its rollout of 20 denoising steps, with steps of scale 1 since they are few, is a sample
 * of the network before the step. Every N steps, and at the end, the program prints a line of
 * numbers between tabs: the step, the loss, the smooth lDDT (1 is best), and the RMSD in Å of the
 * sample from the truth after superposition, over all resolved atoms. Each is the mean since the
 * line before. The last line is "learn: ok" if the last line's RMSD is below A Å. --plot draws the
 * lines. A path that does not exist as given is looked for below $FM_REFERENCE_DATA; without either
 * the program exits with 77. */
#include "tests/trainer/parity/af3_case.h"

#include "proto/base/file.h"
#include "tests/testing/testing.h"
#include "tests/trainer/parity/af3_learn_plot.h"
#include "trainer/backend/superpose.h"
#include "trainer/step/af3/step.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t ARENA_BYTES = (size_t)4 << 30, FILE_BYTES = (size_t)1 << 30;

typedef struct settings {
    int steps, halve, structures, every;
    double rate, most;
    uint64_t seed;
    const char *plot; /* NULL draws nothing */
} settings;

/* What was printed. The last row holds sums since the line before while they are collected. */
typedef struct table {
    af3_learn_row *row;
    size_t n;
} table;

/* The root mean square distance of x from the resolved atoms of the truth, superposed. */
static double rmsd(const fm_complex_labels *labels, const double *x) {
    double mean[2][3] = {{0}}, s[3][3] = {{0}}, rotation[3][3], square = 0, n = 0;
    for (int64_t l = 0; l < labels->n_atom; l++) {
        if (labels->coordinate_mask[l] == 0) continue;
        n++;
        for (int k = 0; k < 3; k++) {
            mean[0][k] += x[3 * l + k];
            mean[1][k] += (double)labels->coordinate[3 * l + k];
        }
    }
    for (int64_t l = 0; l < labels->n_atom; l++) {
        for (int a = 0; a < 3 && labels->coordinate_mask[l] != 0; a++)
            for (int b = 0; b < 3; b++)
                s[a][b] += (x[3 * l + a] - mean[0][a] / n) *
                           ((double)labels->coordinate[3 * l + b] - mean[1][b] / n);
    }
    fm_superpose_rotation(s, rotation);
    for (int64_t l = 0; l < labels->n_atom; l++) {
        for (int a = 0; a < 3 && labels->coordinate_mask[l] != 0; a++) {
            double moved = 0;
            for (int b = 0; b < 3; b++)
                moved += rotation[a][b] * (x[3 * l + b] - mean[0][b] / n);
            double d = moved - ((double)labels->coordinate[3 * l + a] - mean[1][a] / n);
            square += d * d;
        }
    }
    return sqrt(square / n);
}

static fm_af3_trainer_options options_of(const settings *set, const af3_case *of) {
    const uint64_t warmup = 50;
    fm_af3_trainer_options options = {.model = of->config,
                                      .optimizer = {.rate = set->rate,
                                                    .warmup_samples = warmup,
                                                    .beta1 = 0.9,
                                                    .beta2 = 0.95,
                                                    .eps = 1e-8,
                                                    .ema_decay = 0.999,
                                                    .l2 = 1e-8,
                                                    .clip = FM_CLIP_BATCH,
                                                    .clip_norm = 10,
                                                    .decay_factor = 0.5,
                                                    .decay_every_samples = (uint64_t)set->halve},
                                      .loss = {.diffusion = 4,
                                               .bond = 1,
                                               .smooth_lddt = 1,
                                               .distogram = 0.03,
                                               .confidence = 1e-4,
                                               .pae = 0,
                                               .least_resolution = 0.1,
                                               .most_resolution = 4},
                                      .kernels = fm_kernels_cpu(FM_ELEMENT_F32),
                                      .seed = set->seed,
                                      .n_bond = fm_complex_count_bonds(&of->labels)};
    options.keeps_conformers = true; /* one complex is learnt by heart */
    options.model.n_sample = set->structures;
    options.model.n_rollout_step = 20;
    options.model.noise.step_scale = 1;
    return options;
}

/* Ends a row of sums over n steps, and prints it. */
static void end_row(af3_learn_row *row, int step, int n) {
    *row = (af3_learn_row){step, row->loss / n, row->lddt / n, row->rmsd / n};
    printf("%d\t%.4f\t%.4f\t%.3f\n", step, row->loss, row->lddt, row->rmsd);
    fflush(stdout);
}

/* Fills the table, which has room for all rows and is zero. */
static fm_status train(const settings *set, const af3_case *of, table *out, fm_error *error) {
    const fm_af3_trainer_options options = options_of(set, of);
    fm_af3_trainer *trainer = NULL;
    fm_status status = fm_af3_trainer_create(&options, &trainer, error);
    fm_af3_features features = {.sample = of->sample, .labels = of->labels};
    for (int step = 1, n = 0; step <= set->steps && !status; step++) {
        fm_sample_result result;
        af3_learn_row *sum = &out->row[out->n];
        features.n_cycle = 1;
        status = fm_af3_trainer_add_sample(trainer, &features, &result, error);
        if (status) break;
        sum->loss += result.loss;
        sum->lddt += 1 - result.term[FM_COMPLEX_SMOOTH_LDDT];
        sum->rmsd += rmsd(&of->labels, trainer->x);
        n++;
        fm_optimizer_step(&trainer->recording.optimizer, NULL);
        if (step % set->every && step != set->steps) continue;
        end_row(sum, step, n);
        out->n++;
        n = 0;
    }
    fm_af3_trainer_destroy(trainer);
    return status;
}

static int run(const settings *set, const char *given_config, const char *given) {
    char config[1024], path[1024];
    if (!fm_test_find(config, sizeof config, given_config) ||
        !fm_test_find(path, sizeof path, given)) {
        return FM_TEST_SKIPPED;
    }
    fm_arena arena = {0}, file = {0};
    fm_bytes content;
    fm_npz npz;
    fm_error error = {0};
    af3_case of = {.in = &npz, .arena = &arena};
    table rows = {.row = calloc((size_t)set->steps / (size_t)set->every + 1, sizeof *rows.row)};
    fm_status status = rows.row ? FM_OK : fm_fail(&error, FM_ERR_NOMEM, "out of memory");
    if (!status) status = fm_arena_init(&arena, ARENA_BYTES, &error);
    if (!status) status = fm_arena_init(&file, ARENA_BYTES, &error);
    if (!status) status = fm_file_read(&file, path, FILE_BYTES, &content, &error);
    if (!status) status = fm_npz_parse(&file, content, &npz, &error);
    if (!status) status = af3_case_open(&of, config, 0, &error);
    if (!status) status = train(set, &of, &rows, &error);
    if (!status && set->plot) status = af3_learn_plot(set->plot, rows.row, rows.n, &error);
    if (status) {
        char text[FM_ERROR_TEXT_BYTES];
        fm_error_format(&error, text, sizeof text);
        fprintf(stderr, "af3_learn: %s\n", text);
    }
    bool good = !status && rows.row[rows.n - 1].rmsd < set->most;
    printf("learn: %s\n", good ? "ok" : "FAIL");
    free(rows.row);
    af3_case_close(&of);
    fm_arena_fini(&file);
    fm_arena_fini(&arena);
    return !good;
}

static void usage(FILE *out) {
    fprintf(out,
            "usage: af3_learn [--steps N] [--rate R] [--halve N] [--structures S] [--seed N]\n"
            "                 [--every N] [--most A] [--plot PICTURE.svg] CONFIG.json FILE.npz\n");
}

/* Reads a number. Says what is wrong with another text. */
static bool read_number(const char *option, const char *text, double least, double most,
                        double *ret) {
    char *end;
    *ret = strtod(text, &end);
    if (end != text && !*end && *ret >= least && *ret <= most) return true;
    fprintf(stderr, "af3_learn: --%s: found '%s', expected %g to %g\n", option, text, least, most);
    return false;
}

int main(int argc, char **argv) {
    enum { STEPS, RATE, HALVE, STRUCTURES, SEED, EVERY, MOST, N_OPTION, PLOT = N_OPTION };
    static const struct option options[] = {{"steps", required_argument, NULL, STEPS},
                                            {"rate", required_argument, NULL, RATE},
                                            {"halve", required_argument, NULL, HALVE},
                                            {"structures", required_argument, NULL, STRUCTURES},
                                            {"seed", required_argument, NULL, SEED},
                                            {"every", required_argument, NULL, EVERY},
                                            {"most", required_argument, NULL, MOST},
                                            {"plot", required_argument, NULL, PLOT},
                                            {0}};
    static const double bound[N_OPTION][2] = {
        [STEPS] = {1, 1e6}, [RATE] = {0, 1},    [HALVE] = {1, 1e6}, [STRUCTURES] = {1, 64},
        [SEED] = {0, 1e9},  [EVERY] = {1, 1e6}, [MOST] = {0, 1e6}};
    double value[N_OPTION] = {1000, 1.8e-3, 1e6, 8, 1, 100, 2};
    const char *plot = NULL;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == PLOT) {
            plot = optarg;
            continue;
        }
        bool known = c >= 0 && c < N_OPTION;
        if (!known) usage(stderr);
        if (!known || !read_number(options[c].name, optarg, bound[c][0], bound[c][1], &value[c])) {
            return 2;
        }
    }
    if (argc - optind != 2) {
        usage(stderr);
        return 2;
    }
    const settings set = {.steps = (int)value[STEPS],
                          .halve = (int)value[HALVE],
                          .structures = (int)value[STRUCTURES],
                          .every = (int)value[EVERY],
                          .rate = value[RATE],
                          .most = value[MOST],
                          .seed = (uint64_t)value[SEED],
                          .plot = plot};
    return run(&set, argv[optind], argv[optind + 1]);
}
