/* af3_predict.c: compares predictions of complexes with recorded ones of the reference.
 *
 *     af3_predict [--device cpu|cuda] [--bf16] [--dap D [--processes]] [--slabs BYTES]
 *                 [--triangles] [--side N] [--padded] --weights FILE.npz
 *                 CONFIG.json NAME.npz [CONFIG.json NAME.npz]...
 *
 * CONFIG.json has the sizes of a network and factors of the sampler, FILE.npz its weights (w/), and
 * NAME.npz the features and draws of a prediction (in/) with its results in float32 (out/) and in
 * double precision (f64/). The prediction runs in float32 and, on the CPU, in double precision. It
 * runs as a whole and then again part by part, with the same bits.
 *
 * --dap D divides the run over D ranks, as in af3_parity. --slabs works on slabs of about that many
 * bytes, with --triangles those of triangle multiplications, too. --side denoises N structures at a
 * time. --padded records the sizes of a prediction, which are rounded up.
 *
 * --bf16 runs with activations of bf16. First a plain composition in bf16 runs on the CPU: tensors
 * of f32 that are rounded after each node. The mean error of each group may be twice the
 * composition's. On a CPU the run is the composition on slabs.
 *
 * The program prints one line for each group of arrays: the worst relative error ||a - b|| / ||b||,
 * the name of that array, and the gate. The last line is "parity: ok" or "parity: FAIL". A path
 * that does not exist as given is looked for below $FM_REFERENCE_DATA. Without either, or without
 * that device, the program exits with 77. */
#include "tests/trainer/parity/af3_predict_run.h"
#include "tests/trainer/parity/af3_ranks.h"

#include "proto/base/file.h"
#include "tests/testing/ranks.h"
#include "tests/testing/testing.h"
#include "tests/trainer/common/mixed_table.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/dist/meeting.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t FILE_BYTES = (size_t)1 << 30;

enum { RANKS_S = 300 };

typedef struct settings {
    const char *device, *weights;
    bool bf16, processes, padded;
    fm_slabs slabs;
    int64_t side;
    af3_ranks ranks;
} settings;

static bool run_rank_files(const void *context, const fm_groups *groups, const fm_kernels *kernels,
                           uint64_t *ret_hash) {
    return af3_predict_run(context, groups, kernels, ret_hash);
}

static fm_status open_npz(fm_arena *arena, const char *path, fm_npz *ret_npz, fm_error *error) {
    fm_bytes content;
    fm_status status = fm_arena_init(arena, 4 * FILE_BYTES, error);
    if (!status) status = fm_file_read(arena, path, FILE_BYTES, &content, error);
    return status ? status : fm_npz_parse(arena, content, ret_npz, error);
}

/* In f32, and on the CPU in f64. */
static bool run_exact(const settings *set, const af3_predict_files *files,
                      const fm_kernels *kernels) {
    uint64_t hash;
    bool good = af3_ranks_run(&set->ranks, kernels, run_rank_files, files, &hash);
    if (strcmp(set->device, "cpu") != 0) return good;
    return good &
           af3_ranks_run(&set->ranks, fm_kernels_cpu(FM_ELEMENT_F64), run_rank_files, files, &hash);
}

/* In bf16, after the plain composition. */
static bool run_bf16(const settings *set, const af3_predict_files *files,
                     const fm_kernels *kernels) {
    static af3_noise noise;
    const bool on_cpu = !strcmp(set->device, "cpu");
    const fm_kernels *plain = mixed_bf16_table();
    const af3_ranks alone = {.dap = 1};
    af3_predict_files first = *files, both = *files;
    uint64_t hash;
    noise = (af3_noise){.is_bf16 = true};
    first.noise = both.noise = &noise;
    first.slabs = (fm_slabs){0};
    first.padded = false;
    first.rounds = true;
    if (!af3_ranks_run(&alone, plain, run_rank_files, &first, &hash)) return false;
    noise.known = true;
    both.rounds = on_cpu;
    return af3_ranks_run(&set->ranks, on_cpu ? plain : kernels, run_rank_files, &both, &hash);
}

/* Returns 0, 1 for a difference, or the exit status of a file that is missing. */
static int run_pair(const settings *set, const char *given_config, const char *given) {
    char config[1024], path[1024], weights_path[1024];
    if (!fm_test_find(config, sizeof config, given_config) ||
        !fm_test_find(path, sizeof path, given) ||
        !fm_test_find(weights_path, sizeof weights_path, set->weights)) {
        return FM_TEST_SKIPPED;
    }
    fm_arena arenas[2] = {{0}, {0}};
    fm_npz in, weights;
    fm_error error = {0};
    const fm_kernels *kernels = NULL;
    fm_status status = fm_device_find(set->device, "fp32", &kernels, &error);
    if (!status && set->bf16 && strcmp(set->device, "cpu") != 0) {
        status = fm_device_find(set->device, "bf16", &kernels, &error);
    }
    if (!status) status = open_npz(&arenas[0], path, &in, &error);
    if (!status) status = open_npz(&arenas[1], weights_path, &weights, &error);
    const af3_predict_files files = {.config = config,
                                     .in = &in,
                                     .weights = &weights,
                                     .slabs = set->slabs,
                                     .side = set->side,
                                     .padded = set->padded,
                                     .products =
                                         set->bf16 ? FM_AF3_PRODUCTS_AUTO : FM_AF3_PRODUCTS_F32};
    bool good = !status && (set->bf16 ? run_bf16 : run_exact)(set, &files, kernels);
    if (status) fprintf(stderr, "af3_predict: %s: %s\n", path, error.message);
    fm_arena_fini(&arenas[0]);
    fm_arena_fini(&arenas[1]);
    return status == FM_ERR_UNSUPPORTED ? FM_TEST_SKIPPED : !good;
}

static void usage(FILE *out) {
    fprintf(out,
            "usage: af3_predict [options] --weights FILE.npz CONFIG.json NAME.npz\n"
            "                   [CONFIG.json NAME.npz]...\n\n"
            "Compares predictions of complexes with recorded ones of the reference.\n\n"
            "  --device cpu|cuda  where to run (cpu)\n"
            "  --bf16             activations of bf16, judged by a plain composition\n"
            "  --dap D            divide the run over D ranks, 1 to 16; with cuda each has a GPU\n"
            "  --processes        the ranks are processes, not threads\n"
            "  --slabs BYTES      work on slabs of about this size\n"
            "  --triangles        with --slabs: triangle multiplications, too\n"
            "  --side N           denoise N structures at a time\n"
            "  --padded           round the recorded sizes up\n\n"
            "Exit codes: 0 equal within the bounds, 1 not equal or failed, 2 bad usage, "
            "77 skipped.\n");
}

/* Reads a whole number. Says what is wrong with another text. */
static bool read_number(const char *option, const char *text, int64_t most, int64_t *ret) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < 1 || value > most) {
        fprintf(stderr, "af3_predict: %s: found '%s', expected 1 to %lld\n", option, text,
                (long long)most);
        return false;
    }
    *ret = value;
    return true;
}

/* Returns whether the options are valid, after saying what is wrong. *ret_help: help was asked for
 * before anything wrong. */
static bool parse_options(int argc, char **argv, settings *set, bool *ret_help) {
    static const struct option options[] = {{"device", required_argument, NULL, 'd'},
                                            {"weights", required_argument, NULL, 'w'},
                                            {"bf16", no_argument, NULL, 'b'},
                                            {"dap", required_argument, NULL, 'a'},
                                            {"processes", no_argument, NULL, 'o'},
                                            {"slabs", required_argument, NULL, 's'},
                                            {"triangles", no_argument, NULL, 't'},
                                            {"side", required_argument, NULL, 'n'},
                                            {"padded", no_argument, NULL, 'p'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const int64_t most_bytes = (int64_t)1 << 40;
    int64_t dap = 1;
    bool valid = true;
    for (int c; valid && (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'd': set->device = optarg; break;
        case 'w': set->weights = optarg; break;
        case 'b': set->bf16 = true; break;
        case 'a': valid = read_number("--dap", optarg, FM_LAYOUT_DAP, &dap); break;
        case 'o': set->processes = true; break;
        case 's':
            valid = read_number("--slabs", optarg, most_bytes, &set->slabs.chunk_bytes);
            break;
        case 't': set->slabs.chunks_triangles = true; break;
        case 'n': valid = read_number("--side", optarg, FM_COFOLD_SIDE, &set->side); break;
        case 'p': set->padded = true; break;
        case 'h': *ret_help = true; return true;
        default: usage(stderr); return false;
        }
    }
    set->ranks.dap = (int32_t)dap;
    set->processes |= strcmp(set->device, "cpu") != 0; /* one rank per GPU */
    const bool has_pairs = argc > optind && (argc - optind) % 2 == 0;
    if (valid && (!set->weights || !has_pairs)) {
        usage(stderr);
        return false;
    }
    return valid;
}

typedef struct rank_files {
    const settings *set;
    int n;
    char **file;
} rank_files;

/* Runs everything that the command line names, on the ranks of this process. */
static int run_files(const settings *set, const rank_files *files) {
    int result = 0;
    for (int i = 0; i < files->n; i += 2) {
        int one = run_pair(set, files->file[i], files->file[i + 1]);
        if (one == FM_TEST_SKIPPED) return FM_TEST_SKIPPED;
        result |= one;
    }
    return result;
}

/* A rank that is a process. */
static int run_rank(int32_t rank, const char *address, void *context) {
    const rank_files *files = context;
    settings set = *files->set;
    fm_error error = {0};
    fm_status status =
        fm_meeting_open(&set.ranks.meeting, address, rank, set.ranks.dap, RANKS_S, &error);
    if (status) fprintf(stderr, "af3_predict: %s\n", error.message);
    int result = status ? 1 : run_files(&set, files);
    fm_meeting_close(set.ranks.meeting);
    return result;
}

int main(int argc, char **argv) {
    settings set = {.device = "cpu", .ranks = {.dap = 1}};
    bool help = false;
    if (!parse_options(argc, argv, &set, &help)) return 2;
    if (help) {
        usage(stdout);
        return 0;
    }
    rank_files files = {&set, argc - optind, argv + optind};
    int exits[FM_TEST_RANKS];
    int result = set.processes && set.ranks.dap > 1
                     ? fm_test_run_ranks(set.ranks.dap, run_rank, &files, RANKS_S, exits)
                     : run_files(&set, &files);
    if (result == FM_TEST_SKIPPED) return result;
    printf("parity: %s\n", result ? "FAIL" : "ok");
    return result;
}
