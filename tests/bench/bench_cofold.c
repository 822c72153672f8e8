/* bench_cofold.c: measures predictions of complexes with AlphaFold 3's network: the memory that is
 * planned, and the times of the trunk, of the denoising steps and of the heads.
 *
 *     bench_cofold --device cuda --dtype bf16 --tokens 256,512,1024,2048
 *     bench_cofold --plan --tokens 256,1024,2048,5120
 *
 * Complexes are synthetic (complex_features.h), and parameters are random. Each size runs twice:
 * the first run takes memory and captures graphs, and the second one is timed. --plan runs nothing:
 * it prints what a complex needs, and with --memory how it would fit into so many GiB.
 *
 * --sides also runs each size with one structure at a time, and says whether the structures have
 * the same bits. */
#include "proto/base/options.h"
#include "tests/bench/bench_time.h"
#include "tests/bench/complex_features.h"
#include "tests/testing/testing.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/settings/setup.h"
#include "trainer/backend/cpu_threads.h"
#include "trainer/infer/cofold.h"

#include <stdio.h>
#include <string.h>

static const size_t SAMPLE_BYTES = (size_t)64 << 30; /* address space */
static const double GIB = 1 << 30;
/* Heavy atoms of a token of a protein, in the mean. */
static const double ATOMS_PER_TOKEN = 8.33;

typedef struct settings {
    const char *device, *dtype, *preset, *tokens;
    uint64_t cycles, steps, structures, rows, side, threads;
    double memory_gib;
    bool plan, sides;
} settings;

typedef struct bench {
    const settings *set;
    fm_cofold_options options;
    fm_cofold *cofold;
    double *structures; /* of the last run with the settings' side */
} bench;

static fm_status create(bench *b, int64_t side, fm_error *reterr) {
    fm_cofold_destroy(b->cofold);
    b->cofold = NULL;
    b->options.side = side;
    fm_status status = fm_cofold_create(&b->options, &b->cofold, reterr);
    if (status || b->set->plan) return status;
    return fm_af3_draw_parameters(fm_cofold_get_params(b->cofold), 1, reterr);
}

static fm_cofold_sizes sizes_of(const bench *b, int64_t n_token) {
    return (fm_cofold_sizes){.n_token = n_token,
                             .n_atom = (int64_t)(ATOMS_PER_TOKEN * (double)n_token),
                             .n_msa = (int64_t)b->set->rows,
                             .n_template = b->options.model.n_template};
}

/* -- the plan */

static void print_plan_head(void) {
    puts(
        "   tokens    atoms     rows   GiB     state   cycle  distogram prepare    step  confidence"
        "  slabs");
}

static fm_status print_plan(const bench *b, int64_t n_token, fm_error *reterr) {
    const fm_cofold_sizes sizes = sizes_of(b, n_token);
    fm_cofold_need need;
    fm_status status = fm_cofold_find_need(b->cofold, &sizes, &need, reterr);
    if (status && status != FM_ERR_LIMIT) return status;
    printf("%9lld %8lld %8lld %6.1f  ", (long long)n_token, (long long)sizes.n_atom,
           (long long)need.of.n_msa, (double)need.bytes / GIB);
    printf("%7.2f", (double)need.part.state / GIB);
    for (int i = 0; i < FM_COFOLD_TAPES; i++)
        printf("%9.2f", (double)need.part.tape[i] / GIB);
    if (need.slabs.chunk_bytes) {
        printf("  %lld MiB%s", (long long)(need.slabs.chunk_bytes >> 20),
               need.slabs.chunks_triangles ? ", triangles" : "");
    }
    puts(status ? "  does not fit" : "");
    return FM_OK;
}

/* -- times */

static double run_heads(bench *b) {
    const fm_kernels *kernels = b->options.kernels;
    const fm_cofold_passes *passes = fm_cofold_get_passes(b->cofold);
    double start = now_s();
    for (uint64_t k = 0; k < b->set->structures; k++)
        fm_cofold_judge(b->cofold, (int64_t)k);
    fm_cofold_distogram(b->cofold);
    kernels->synchronize(passes->recording.stream);
    return now_s() - start;
}

static fm_status run_twice(bench *b, const fm_af3_sample *sample, fm_cofold_times *times,
                           double *heads_s, fm_error *reterr) {
    fm_status status = FM_OK;
    for (int i = 0; i < 2 && !status; i++) {
        status = fm_cofold_run(b->cofold, sample, 1, NULL, times, reterr);
        if (!status) *heads_s = run_heads(b);
    }
    return status;
}

static fm_status compare_sides(bench *b, const fm_af3_sample *sample, fm_error *reterr) {
    const size_t n = (size_t)(3 * sample->n_atom) * b->set->structures;
    fm_cofold_times times;
    double *before = malloc(n * sizeof *before);
    if (!before) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the structures");
    memcpy(before, fm_cofold_structure(b->cofold, 0), n * sizeof *before);
    fm_status status = create(b, 1, reterr);
    if (!status) status = fm_cofold_run(b->cofold, sample, 1, NULL, &times, reterr);
    if (!status) {
        const bool same = !memcmp(before, fm_cofold_structure(b->cofold, 0), n * sizeof *before);
        printf("          one at a time: %.2f s, %s bits\n", times.structures_s,
               same ? "the same" : "other");
    }
    free(before);
    if (!status) status = create(b, (int64_t)b->set->side, reterr);
    return status;
}

static fm_status time_size(bench *b, int64_t n_token, fm_error *reterr) {
    const fm_cofold_sizes sizes = sizes_of(b, n_token);
    fm_af3_config config = b->options.model;
    fm_af3_features features;
    fm_cofold_need need;
    fm_cofold_times times;
    double heads_s = 0;
    fm_arena arena;
    fm_status status = fm_arena_init(&arena, SAMPLE_BYTES, reterr);
    if (status) return status;
    config.n_token = n_token;
    config.n_atom = sizes.n_atom;
    config.n_msa = sizes.n_msa;
    status = bench_make_complex(&arena, &config, 1, true, &features, reterr);
    if (!status) status = fm_cofold_find_need(b->cofold, &sizes, &need, reterr);
    if (!status) status = run_twice(b, &features.sample, &times, &heads_s, reterr);
    if (!status) {
        printf("%9lld %8.1f %9.2f %8.2f %11.2f %7.2f %8.2f", (long long)n_token,
               (double)need.bytes / GIB, times.features_s, times.trunk_s, times.structures_s,
               heads_s, times.trunk_s + times.structures_s + heads_s);
        if (need.slabs.chunk_bytes) printf("  %lld MiB", (long long)(need.slabs.chunk_bytes >> 20));
        putchar('\n');
        fflush(stdout);
        if (b->set->sides) status = compare_sides(b, &features.sample, reterr);
    }
    fm_arena_fini(&arena);
    return status;
}

/* -- the program */

/* Runs all sizes of a text such as "256,512". */
static fm_status run_sizes(bench *b, fm_error *reterr) {
    enum { MOST = 16384 };
    fm_status status = FM_OK;
    if (b->set->plan) {
        print_plan_head();
    } else {
        puts("   tokens      GiB  features    trunk  structures   heads      sum, s");
    }
    for (const char *at = b->set->tokens; *at && !status;) {
        char *end;
        const long n = strtol(at, &end, 10);
        if (end == at || n < 1 || n > MOST || (*end && *end != ',')) {
            return fm_fail(reterr, FM_ERR_USAGE,
                           "--tokens: found '%s', expected numbers from 1 to %d, such as 256,512",
                           at, (int)MOST);
        }
        status = b->set->plan ? print_plan(b, n, reterr) : time_size(b, n, reterr);
        at = *end ? end + 1 : end;
    }
    return status;
}

static fm_status run(const settings *set, fm_error *reterr) {
    fm_train_config config;
    bench b = {.set = set};
    const fm_kernels *kernels;
    fm_status status = fm_device_find(set->device, set->dtype, &kernels, reterr);
    if (!status) status = fm_train_config_preset(set->preset, &config, reterr);
    if (status) return status;
    b.options = (fm_cofold_options){.model = fm_af3_trainer_options_of(&config, kernels, 1).model,
                                    .kernels = kernels,
                                    .n_cycle = (int32_t)set->cycles,
                                    .n_step = (int32_t)set->steps,
                                    .n_structure = (int64_t)set->structures,
                                    .n_row = (int64_t)set->rows,
                                    .memory_budget_bytes = (int64_t)(set->memory_gib * GIB)};
    status = create(&b, (int64_t)set->side, reterr);
    if (!status) status = run_sizes(&b, reterr);
    fm_cofold_destroy(b.cofold);
    return status;
}

int main(int argc, char **argv) {
    settings set = {.device = "cpu",
                    .dtype = "fp32",
                    .preset = "af3-initial",
                    .tokens = "256",
                    .cycles = 10,
                    .steps = 200,
                    .structures = 5,
                    .rows = 1024,
                    .threads = 1};
    const fm_option options[] = {
        {"device", FM_OPTION_STRING, &set.device, "NAME", .help = "cpu or cuda (cpu)"},
        {"dtype", FM_OPTION_STRING, &set.dtype, "TYPE", .help = "fp32 or bf16 (fp32)"},
        {"preset", FM_OPTION_STRING, &set.preset, "NAME", .help = "the network (af3-initial)"},
        {"tokens", FM_OPTION_STRING, &set.tokens, "LIST", .help = "sizes (256)"},
        {"cycles", FM_OPTION_U64, &set.cycles, "N", .help = "of the trunk (10)", .min = 1,
         .max = 1000},
        {"steps", FM_OPTION_U64, &set.steps, "N", .help = "denoising steps (200)", .min = 1,
         .max = FM_COFOLD_STEPS},
        {"structures", FM_OPTION_U64, &set.structures, "N", .help = "of a seed (5)", .min = 1,
         .max = 1000},
        {"rows", FM_OPTION_U64, &set.rows, "N", .help = "of the MSA (1,024)", .min = 1,
         .max = 16384},
        {"side", FM_OPTION_U64, &set.side, "N", .help = "structures side by side", .min = 1,
         .max = FM_COFOLD_SIDE},
        {"threads", FM_OPTION_U64, &set.threads, "N", .help = "of a CPU (1)", .min = 1, .max = 256},
        {"memory", FM_OPTION_F64, &set.memory_gib, "GIB", .help = "of the device (what is free)"},
        {"plan", FM_OPTION_FLAG, &set.plan, NULL,
         .help = "print the planned memory and run nothing"},
        {"sides", FM_OPTION_FLAG, &set.sides, NULL, .help = "compare with one structure at a time"},
        {0}};
    const fm_command command = {.program = "bench_cofold",
                                .arguments = "[options]",
                                .summary = "Times predictions of complexes.",
                                .options = options};
    fm_error error;
    int n_positional;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (status == FM_ERR_CANCELLED) return 0;
    fm_cpu_use_threads((int)set.threads);
    if (!status) status = run(&set, &error);
    return status ? fm_test_report("bench_cofold", &error) : 0;
}
