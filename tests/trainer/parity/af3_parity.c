/* af3_parity.c: compares AlphaFold 3's modules with runs of the reference.
 *
 *     af3_parity [--device cpu|cuda] [--dap D [--processes]] [--pad N]
 *                [--recompute hidden|projections|operands|block] [--twice] CONFIG.json FILE.npz
 *     af3_parity --bf16 [--products f32|tf32|bf16] [the same] CONFIG.json FILE.npz
 *     af3_parity --products tf32 [the same] CONFIG.json FILE.npz
 *     af3_parity [--device cpu|cuda] --unit FILE.npz...
 *
 * CONFIG.json has the sizes of a network and FILE.npz a run of one training step. With --unit each
 * FILE is a run of one module, which the file's name gives; full_units.npz has several. Both run in
 * float32 and, on the CPU, in double precision; for a step the double precision results are in
 * FILE_f64.npz, where that exists.
 *
 * --dap D divides the run over D ranks. They are threads that communicate through
 * tests/testing/comm_local.h or, with --processes, processes that communicate through comm_shm. On
 * GPUs they are processes with one GPU each. Every rank compares all of its results, and all ranks
 * must end with the same bits.
 *
 * --pad records the step with N more tokens and rows of the MSA and twice as many more atoms.
 * --recompute makes backward compute again the transitions' hidden layers (`hidden`), these and the
 * projections of attention (`projections`), these and the operands of triangle multiplications and
 * outer product means (`operands`), or whole blocks (`block`). --twice runs the float32 step again
 * and demands the same bits of the updated parameters.
 *
 * --bf16 runs the step with activations of bf16, and the diffusion module's products as --products
 * says. First a plain composition in bf16 runs on the CPU: tensors of f32 that are rounded after
 * each node. The mean error of each group may be twice the composition's. --products tf32 alone
 * runs the step in float32 with products of tf32 in the diffusion module, and the CPU's tf32 table
 * takes the place of the composition.
 *
 * A file that begins with draws of structures, NAME_sample.npz, is a sampling run: the trunk, the
 * denoising steps and the confidence head, with the features and weights of NAME.npz beside it.
 *
 * The program prints one line per group: the worst relative error ||a - b|| / ||b|| of its arrays,
 * the name of that array, and the gate. The last line is "parity: ok" or "parity: FAIL". A path
 * that does not exist as given is looked for below $FM_REFERENCE_DATA. Without either, or without
 * that device, the program exits with 77. */
#include "tests/trainer/parity/af3_full.h"
#include "tests/trainer/parity/af3_ranks.h"
#include "tests/trainer/parity/af3_sample.h"
#include "tests/trainer/parity/af3_step.h"
#include "tests/trainer/parity/af3_unit.h"

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
#include <unistd.h>

static const size_t FILE_BYTES = (size_t)1 << 30;

enum { MOST_PADDING = 1000, RANKS_S = 300 };

typedef struct settings {
    const char *device;
    bool units, twice, processes, bf16;
    fm_af3_products products;
    int pad;
    af3_ranks ranks;
    fm_recompute_policy recompute;
} settings;

static const af3_unit_entry *find_unit(const char *path) {
    static const af3_unit_entry *const registries[] = {AF3_TRUNK_UNITS, AF3_ATOM_UNITS,
                                                       AF3_LOSS_UNITS};
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t n = strcspn(name, ".");
    for (size_t r = 0; r < sizeof registries / sizeof registries[0]; r++) {
        for (const af3_unit_entry *e = registries[r]; e->name; e++) {
            if (strlen(e->name) == n && !strncmp(e->name, name, n)) return e;
        }
    }
    return NULL;
}

static fm_status open_npz(fm_arena *arena, const char *path, fm_npz *ret_npz, fm_error *error) {
    fm_bytes content;
    fm_status status = fm_arena_init(arena, 4 * FILE_BYTES, error);
    if (!status) status = fm_file_read(arena, path, FILE_BYTES, &content, error);
    return status ? status : fm_npz_parse(arena, content, ret_npz, error);
}

/* Runs a unit, on the CPU in double precision too. */
static bool run_entry(const settings *set, const af3_unit_entry *entry, const fm_npz *npz,
                      const fm_kernels *kernels) {
    bool good = unit_run(entry, npz, kernels);
    bool wide = !strcmp(set->device, "cpu");
    if (wide) good &= unit_run(entry, npz, fm_kernels_cpu(FM_ELEMENT_F64));
    return good;
}

/* Returns 0, 1 for a difference, or the exit status of a file that is missing. */
static int run_unit(const settings *set, const char *given) {
    char path[1024];
    bool full = strstr(given, "full_units") != NULL;
    const af3_unit_entry *entry = full ? AF3_FULL_UNITS : find_unit(given);
    if (!entry) {
        fprintf(stderr, "af3_parity: there is no unit for %s\n", given);
        return 1;
    }
    if (!fm_test_find(path, sizeof path, given)) return FM_TEST_SKIPPED;
    fm_arena arena = {0};
    fm_npz npz;
    fm_error error = {0};
    const fm_kernels *kernels = NULL;
    fm_status status = fm_device_find(set->device, "fp32", &kernels, &error);
    if (!status) status = open_npz(&arena, path, &npz, &error);
    bool good = !status && (full || run_entry(set, entry, &npz, kernels));
    for (; !status && full && entry->name; entry++)
        good &= run_entry(set, entry, &npz, kernels);
    if (status) fprintf(stderr, "af3_parity: %s: %s\n", path, error.message);
    fm_arena_fini(&arena);
    return status == FM_ERR_UNSUPPORTED ? FM_TEST_SKIPPED : !good;
}

static bool step_of_rank(const void *context, const fm_groups *groups, const fm_kernels *kernels,
                         uint64_t *ret_hash) {
    return af3_step_run(context, groups, kernels, ret_hash);
}

static bool sampling_of_rank(const void *context, const fm_groups *groups,
                             const fm_kernels *kernels, uint64_t *ret_hash) {
    return af3_sample_run(context, groups, kernels, ret_hash);
}

/* Runs the step in double precision if there are results of that precision beside `path`. */
static bool run_wide(const settings *set, const char *path, const af3_step_files *files) {
    char wide[1024];
    size_t n = strlen(path) - strlen(".npz");
    snprintf(wide, sizeof wide, "%.*s_f64.npz", (int)n, path);
    if (access(wide, R_OK)) return true;
    fm_arena arena = {0};
    fm_npz expected;
    fm_error error = {0};
    fm_status status = open_npz(&arena, wide, &expected, &error);
    af3_step_files both = *files;
    both.expected = &expected;
    uint64_t hash;
    bool good = !status && af3_ranks_run(&set->ranks, fm_kernels_cpu(FM_ELEMENT_F64), step_of_rank,
                                         &both, &hash);
    if (status) fprintf(stderr, "af3_parity: %s: %s\n", wide, error.message);
    fm_arena_fini(&arena);
    return good;
}

/* Opens PATH without its ending, with `ending` in place of `without` before it. */
static fm_status open_beside(fm_arena *arena, const char *path, const char *without,
                             const char *ending, fm_npz *ret_npz, fm_error *error) {
    char other[1200];
    size_t n = strlen(path), cut = strlen(without);
    if (n < cut || strcmp(path + n - cut, without) != 0) {
        return fm_fail(error, FM_ERR_UNSUPPORTED, "the name does not end in %s", without);
    }
    snprintf(other, sizeof other, "%.*s%s", (int)(n - cut), path, ending);
    return open_npz(arena, other, ret_npz, error);
}

/* A sampling run; `draws` is its file. */
static fm_status run_sampling(const settings *set, const char *config, const char *path,
                              const fm_npz *draws, const fm_kernels *kernels, bool *ret_good,
                              fm_error *error) {
    fm_arena arenas[2] = {{0}, {0}};
    fm_npz features, wide;
    fm_status status = open_beside(&arenas[0], path, "_sample.npz", ".npz", &features, error);
    af3_sample_files files = {config, &features, draws, draws, set->pad};
    uint64_t hash;
    *ret_good = !status && af3_ranks_run(&set->ranks, kernels, sampling_of_rank, &files, &hash);
    if (!status && !strcmp(set->device, "cpu")) {
        status = open_beside(&arenas[1], path, ".npz", "_f64.npz", &wide, error);
        files.expected = &wide;
        *ret_good &= !status && af3_ranks_run(&set->ranks, fm_kernels_cpu(FM_ELEMENT_F64),
                                              sampling_of_rank, &files, &hash);
    }
    fm_arena_fini(&arenas[0]);
    fm_arena_fini(&arenas[1]);
    return status;
}

/* The published model's step, whose inputs are those of the tiny one beside it: "af3_full.npz" and
 * "af3.npz". It is large, so it runs in float32 only. */
static fm_status run_full(const settings *set, const af3_step_files *files, const char *path,
                          const fm_kernels *kernels, bool *ret_good, fm_error *error) {
    fm_arena arena = {0};
    fm_npz inputs;
    fm_status status = open_beside(&arena, path, "_full.npz", ".npz", &inputs, error);
    af3_step_files both = *files;
    both.in = &inputs;
    uint64_t hash;
    *ret_good = !status && af3_ranks_run(&set->ranks, kernels, step_of_rank, &both, &hash);
    fm_arena_fini(&arena);
    return status;
}

/* The step in bf16 or with products of tf32, after a plain composition on the CPU. On the CPU it is
 * the composition with the blocks computed again, because the CPU has no bf16. The composition in
 * bf16 has no tf32 either: its f32 is closer. `full`: the path of the published model. */
static fm_status run_narrow(const settings *set, const af3_step_files *files, const char *full,
                            bool *ret_good, fm_error *error) {
    static af3_noise noise;
    af3_step_files first = *files, both = *files;
    first.noise = both.noise = &noise;
    noise.is_bf16 = set->bf16;
    if (set->bf16 && set->products == FM_AF3_PRODUCTS_TF32) first.products = FM_AF3_PRODUCTS_F32;
    const fm_kernels *plain = set->bf16 ? mixed_bf16_table() : fm_kernels_cpu(FM_ELEMENT_F32);
    const fm_kernels *kernels = plain;
    const af3_ranks alone = {.dap = 1};
    settings alone_set = *set;
    alone_set.ranks = alone;
    uint64_t hash;
    fm_status status = FM_OK;
    if (strcmp(set->device, "cpu") != 0) {
        status = fm_device_find(set->device, set->bf16 ? "bf16" : "fp32", &kernels, error);
    }
    if (status) return status;
    if (kernels == plain) both.products = first.products;
    if (full) {
        status = run_full(&alone_set, &first, full, plain, ret_good, error);
    } else {
        *ret_good = af3_ranks_run(&alone, plain, step_of_rank, &first, &hash);
    }
    noise.known = true;
    if (status || !*ret_good) return status;
    if (full) return run_full(set, &both, full, kernels, ret_good, error);
    *ret_good = af3_ranks_run(&set->ranks, kernels, step_of_rank, &both, &hash);
    return FM_OK;
}

static int run_step(const settings *set, const char *given_config, const char *given) {
    char config[1024], path[1024];
    if (!fm_test_find(config, sizeof config, given_config) ||
        !fm_test_find(path, sizeof path, given)) {
        return FM_TEST_SKIPPED;
    }
    fm_arena arena = {0};
    fm_npz npz;
    fm_error error = {0};
    const fm_kernels *kernels = NULL;
    fm_status status = fm_device_find(set->device, "fp32", &kernels, &error);
    if (!status) status = open_npz(&arena, path, &npz, &error);
    uint64_t hash = 0, again = 0;
    af3_step_files files = {config, &npz, &npz, set->pad, set->recompute, set->products, NULL};
    bool good = false, samples = !status && fm_npz_find(&npz, "in/rnd_init");
    bool full = !status && af3_full_is(&npz);
    bool narrow = set->bf16 || set->products != FM_AF3_PRODUCTS_F32;
    if (!status && narrow) {
        status = run_narrow(set, &files, full ? path : NULL, &good, &error);
    } else if (full) {
        status = run_full(set, &files, path, kernels, &good, &error);
    } else if (samples) {
        status = run_sampling(set, config, path, &npz, kernels, &good, &error);
    } else if (!status) {
        good = af3_ranks_run(&set->ranks, kernels, step_of_rank, &files, &hash);
    }
    if (good && !samples && !full && !narrow && set->twice) {
        good = af3_ranks_run(&set->ranks, kernels, step_of_rank, &files, &again) && again == hash;
        if (!set->ranks.meeting || fm_meeting_rank(set->ranks.meeting) == 0) {
            printf("bits         %016llx and %016llx %s\n", (unsigned long long)hash,
                   (unsigned long long)again, again == hash ? "ok" : "FAIL");
        }
    }
    bool wide = good && !samples && !full && !narrow && !strcmp(set->device, "cpu");
    if (wide) good = run_wide(set, path, &files);
    if (status) fprintf(stderr, "af3_parity: %s: %s\n", path, error.message);
    fm_arena_fini(&arena);
    return status == FM_ERR_UNSUPPORTED ? FM_TEST_SKIPPED : !good;
}

static void usage(FILE *out) {
    fprintf(out,
            "usage: af3_parity [--device cpu|cuda] [--dap D [--processes]] [--pad N]\n"
            "                  [--recompute hidden|projections|operands|block] [--twice]\n"
            "                  CONFIG.json FILE.npz\n"
            "       af3_parity --bf16 [--products f32|tf32|bf16] [the same] CONFIG.json FILE.npz\n"
            "       af3_parity --products tf32 [the same] CONFIG.json FILE.npz\n"
            "       af3_parity [--device cpu|cuda] --unit FILE.npz...\n\n"
            "Compares AlphaFold 3's network with runs of the reference: one training step or "
            "one\nsampling run, or with --unit single modules.\n\n"
            "  --dap D        divide the run over D ranks, 1 to 16; with cuda each has a GPU\n"
            "  --processes    the ranks are processes, not threads\n"
            "  --pad N        N more tokens and MSA rows, and twice as many more atoms\n"
            "  --recompute    what backward computes again: hidden layers, also projections,\n"
            "                 also operands, or whole blocks\n"
            "  --twice        run the step twice and demand the same bits\n"
            "  --bf16         activations of bf16, judged by a plain composition\n"
            "  --products     of the diffusion module: f32, tf32, or with --bf16 bf16 (f32)\n\n"
            "Exit codes: 0 equal within the bounds, 1 not equal or failed, 2 bad usage, "
            "77 skipped.\n");
}

/* Reads a whole number. Says what is wrong with another text. */
static bool read_number(const char *option, const char *text, int least, int most, int *ret) {
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > most) {
        fprintf(stderr, "af3_parity: %s: found '%s', expected %d to %d\n", option, text, least,
                most);
        return false;
    }
    *ret = (int)value;
    return true;
}

static bool is_one_of(const char *option, const char *text, const char *a, const char *b) {
    if (!strcmp(text, a) || !strcmp(text, b)) return true;
    fprintf(stderr, "af3_parity: %s: found '%s', expected %s or %s\n", option, text, a, b);
    return false;
}

static bool read_policy(const char *text, fm_recompute_policy *ret_policy) {
    static const char *const names[] = {[FM_RECOMPUTE_HIDDEN] = "hidden",
                                        [FM_RECOMPUTE_PROJECTIONS] = "projections",
                                        [FM_RECOMPUTE_OPERANDS] = "operands",
                                        [FM_RECOMPUTE_BLOCK] = "block"};
    for (int i = FM_RECOMPUTE_HIDDEN; i <= FM_RECOMPUTE_BLOCK; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *ret_policy = (fm_recompute_policy)i;
        return true;
    }
    fprintf(stderr,
            "af3_parity: --recompute: found '%s', expected hidden, projections, operands or "
            "block\n",
            text);
    return false;
}

static bool read_products(const char *text, fm_af3_products *ret_products) {
    static const char *const names[] = {[FM_AF3_PRODUCTS_F32] = "f32",
                                        [FM_AF3_PRODUCTS_TF32] = "tf32",
                                        [FM_AF3_PRODUCTS_BF16] = "bf16"};
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *ret_products = (fm_af3_products)i;
        return true;
    }
    fprintf(stderr, "af3_parity: --products: found '%s', expected f32, tf32 or bf16\n", text);
    return false;
}

/* Returns whether the options are valid, after saying what is wrong. *ret_help: help was asked for
 * before anything wrong. */
static bool parse_options(int argc, char **argv, settings *set, bool *ret_help) {
    static const struct option options[] = {{"device", required_argument, NULL, 'd'},
                                            {"dap", required_argument, NULL, 'a'},
                                            {"processes", no_argument, NULL, 'o'},
                                            {"unit", no_argument, NULL, 'u'},
                                            {"pad", required_argument, NULL, 'p'},
                                            {"recompute", required_argument, NULL, 'r'},
                                            {"twice", no_argument, NULL, 't'},
                                            {"bf16", no_argument, NULL, 'b'},
                                            {"products", required_argument, NULL, 'm'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    bool valid = true;
    for (int c; valid && (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'd':
            set->device = optarg;
            valid = is_one_of("--device", optarg, "cpu", "cuda");
            break;
        case 'a': valid = read_number("--dap", optarg, 1, FM_LAYOUT_DAP, &set->ranks.dap); break;
        case 'o': set->processes = true; break;
        case 'u': set->units = true; break;
        case 'p': valid = read_number("--pad", optarg, 0, MOST_PADDING, &set->pad); break;
        case 't': set->twice = true; break;
        case 'b': set->bf16 = true; break;
        case 'm': valid = read_products(optarg, &set->products); break;
        case 'r': valid = read_policy(optarg, &set->recompute); break;
        case 'h': *ret_help = true; return true;
        default: usage(stderr); return false;
        }
    }
    bool ranks = set->ranks.dap > 1;
    if (valid && (set->units ? optind == argc || ranks : argc - optind != 2)) {
        usage(stderr);
        return false;
    }
    set->processes |= strcmp(set->device, "cpu") != 0; /* one rank per GPU */
    return valid;
}

/* Runs everything that the command line names, on the ranks of this process. */
static int run_files(const settings *set, int n, char **file) {
    int result = 0;
    for (int i = 0; i < n; i++) {
        int one = set->units ? run_unit(set, file[i]) : run_step(set, file[0], file[++i]);
        if (one == FM_TEST_SKIPPED) return FM_TEST_SKIPPED;
        result |= one;
    }
    return result;
}

typedef struct rank_files {
    const settings *set;
    int n;
    char **file;
} rank_files;

/* A rank that is a process. */
static int run_rank(int32_t rank, const char *address, void *context) {
    const rank_files *files = context;
    settings set = *files->set;
    fm_error error = {0};
    fm_status status =
        fm_meeting_open(&set.ranks.meeting, address, rank, set.ranks.dap, RANKS_S, &error);
    if (status) fprintf(stderr, "af3_parity: %s\n", error.message);
    int result = status ? 1 : run_files(&set, files->n, files->file);
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
    const rank_files files = {&set, argc - optind, argv + optind};
    int exits[FM_TEST_RANKS];
    int result = set.processes && set.ranks.dap > 1
                     ? fm_test_run_ranks(set.ranks.dap, run_rank, (void *)&files, RANKS_S, exits)
                     : run_files(&set, files.n, files.file);
    if (result == FM_TEST_SKIPPED) return result;
    printf("parity: %s\n", result ? "FAIL" : "ok");
    return result;
}
