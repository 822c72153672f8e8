/* bench_predict.c: measures the inference pass on whole chains: time per chain, of which the first
 * runs (plan, code, capture) apart, memory, and with --table the time of each module.
 *
 *     bench_predict --device cuda --dtype bf16 --lengths 256,384,768,1024
 *
 * Chains are synthetic (bench_trainer.h), parameters are drawn. Each length is run twice with two
 * cycles, which queues and then captures both passes, and then timed with --cycles cycles. */
#include "proto/base/options.h"
#include "tests/bench/bench_table.h"
#include "tests/bench/bench_trainer.h"
#include "trainer/app/choose_device.h"
#include "trainer/app/sample_features.h"
#include "trainer/app/setup.h"
#include "trainer/backend/fallback.h"
#include "trainer/infer/infer.h"

static const size_t SAMPLE_BYTES = (size_t)64 << 30; /* address space */
static const double GIB = 1 << 30;

typedef struct settings {
    const char *device, *dtype, *preset, *config, *lengths;
    uint64_t cycles, rounds, clusters, extra, budget_gib, chunk_mib;
    bool table, direct, losses;
} settings;

typedef struct bench {
    const settings *set;
    fm_arena arena;
    fm_infer_options options;
    fm_infer *infer;
    fm_features features;
} bench;

static double flops_of(const fm_tape *tape) {
    double flops = 0;
    for (int32_t i = 0; i < tape->n_step; i++)
        flops += tape->step[i].flops;
    return flops;
}

static fm_status run_once(bench *b, uint32_t n_cycle, double *ret_seconds, fm_error *reterr) {
    fm_infer_result result;
    size_t mark = fm_arena_mark(&b->arena);
    double before = now();
    b->features.n_cycle = n_cycle;
    fm_status status = fm_infer_run(b->infer, &b->features, &b->arena, &result, reterr);
    *ret_seconds = now() - before;
    fm_arena_rewind(&b->arena, mark);
    return status;
}

static const uint64_t *download(bench *b, const fm_trainer *t, const uint64_t *from, size_t count) {
    uint64_t *host = own(&b->arena, count, sizeof *host);
    t->params.kernels->download(t->stream, host, from, count * sizeof *host);
    t->params.kernels->synchronize(t->stream);
    return host;
}

static fm_status print_tables(bench *b, fm_error *reterr) {
    fm_trainer *t = fm_infer_get_recording(b->infer);
    static table cycle, last;
    double unused;
    cycle.n = last.n = 0;
    fm_status status = fm_trainer_stamp(t, reterr);
    if (!status) status = run_once(b, 2, &unused, reterr);
    if (status) return status;
    if (t->options.predicts) {
        add_tape(&last, &t->last, download(b, t, t->last.stamp, (size_t)t->last.n_step + 1));
        print_table("cycle", &last);
        return FM_OK;
    }
    add_tape(&cycle, &t->cycle, download(b, t, t->cycle.stamp, (size_t)t->cycle.n_step + 1));
    add_tape(&last, &t->last, download(b, t, t->last.stamp, (size_t)t->last.n_step + 1));
    print_table("cycle", &cycle);
    print_table("last cycle", &last);
    return FM_OK;
}

static fm_status make_chain_of(bench *b, int64_t n_res, fm_error *reterr) {
    fm_model_config shape = b->options.model;
    shape.n_res = n_res;
    return fm_features_of(bench_make_sample(&b->arena, &shape, 1), &b->features, reterr);
}

/* One line of the table of lengths. */
static fm_status measure(bench *b, int64_t n_res, fm_error *reterr) {
    double first = 0, second = 0, least = INFINITY, seconds;
    int64_t bytes;
    fm_arena_reset(&b->arena);
    fm_status status = fm_infer_plan(b->infer, n_res, &bytes, reterr);
    if (!status) status = make_chain_of(b, n_res, reterr);
    if (!status) status = run_once(b, 2, &first, reterr);
    if (!status) status = run_once(b, 2, &second, reterr);
    for (uint64_t r = 0; r < b->set->rounds && !status; r++) {
        status = run_once(b, (uint32_t)b->set->cycles, &seconds, reterr);
        least = seconds < least ? seconds : least;
    }
    if (status) return status;
    const fm_trainer *t = fm_infer_get_recording(b->infer);
    const fm_tape *others = t->options.predicts ? &t->last : &t->cycle;
    double flops = flops_of(&t->last) + (double)(b->set->cycles - 1) * flops_of(others);
    printf("%6lld  %9.3f  %9.3f  %9.3f  %8.2f  %8.2f  %8.1f  %7.1f\n", (long long)n_res, least,
           first, second, (double)bytes / GIB,
           (double)b->options.kernels->device->used_bytes() / GIB, 1e-12 * flops,
           1e-12 * flops / least);
    fflush(stdout);
    return b->set->table ? print_tables(b, reterr) : FM_OK;
}

static fm_status create(bench *b, fm_error *reterr) {
    fm_train_config config;
    fm_status status = fm_train_config_load(b->set->preset, b->set->config, &config, reterr);
    if (!status) {
        status = fm_device_find(b->set->device, b->set->dtype, &b->options.kernels, reterr);
    }
    if (status) return status;
    b->options.model = config.model;
    if (b->set->clusters) b->options.model.n_seq = (int64_t)b->set->clusters;
    if (b->set->extra) b->options.model.n_extra = (int64_t)b->set->extra;
    b->options.heads = 1u << FM_HEAD_PLDDT | 1u << FM_HEAD_ALIGNED_ERROR;
    b->options.predicts = !b->set->losses;
    b->options.chunk_bytes = (int64_t)b->set->chunk_mib << 20;
    b->options.direct = b->set->direct;
    b->options.memory_budget_bytes = (int64_t)((double)b->set->budget_gib * GIB);
    memcpy(b->options.weight, config.loss, sizeof config.loss);
    double before = now();
    status = fm_infer_create(&b->options, &b->infer, reterr);
    if (status) return status;
    fm_params_draw(fm_infer_get_params(b->infer), 1);
    char text[256];
    fm_infer_describe(b->infer, text, sizeof text);
    printf("model     preset %s, %lld + %lld + %lld rows, %llu cycles: %s, made in %.2f s\n",
           b->set->preset, (long long)b->options.model.n_seq,
           (long long)b->options.model.n_template, (long long)b->options.model.n_extra,
           (unsigned long long)b->set->cycles, text, now() - before);
    return FM_OK;
}

static void print_slow_paths(void) {
    fm_fallback fallbacks[FM_FALLBACK_KINDS];
    fm_backend_fallbacks(fallbacks);
    for (int i = 0; i < FM_FALLBACK_KINDS; i++) {
        if (fallbacks[i].count > 0) {
            printf("slow path %s, %llu calls: %s\n", fallbacks[i].name,
                   (unsigned long long)fallbacks[i].count, fallbacks[i].text);
        }
    }
}

static fm_status run(bench *b, fm_error *reterr) {
    fm_status status = create(b, reterr);
    if (status) return status;
    printf("%6s  %9s  %9s  %9s  %8s  %8s  %8s  %7s\n", "length", "s", "first", "second", "GiB plan",
           "GiB used", "TFLOP", "TFLOP/s");
    for (const char *at = b->set->lengths; *at && !status; at += *at == ',') {
        char *end;
        unsigned long long n_res = strtoull(at, &end, 10);
        if (end == at || n_res < 1 || n_res > 1 << 20) {
            return fm_fail(reterr, FM_ERR_USAGE, "--lengths takes numbers, as 256,384");
        }
        at = end;
        status = measure(b, (int64_t)n_res, reterr);
        if (status == FM_ERR_LIMIT) {
            printf("%6llu  %s\n", n_res, reterr->message);
            status = FM_OK;
        }
    }
    print_slow_paths();
    return status;
}

int main(int argc, char **argv) {
    settings set = {.device = "cpu",
                    .dtype = "fp32",
                    .preset = "tiny",
                    .lengths = "64",
                    .cycles = MOST_CYCLES,
                    .rounds = 1};
    const fm_option options[] = {
        {"device", FM_OPTION_STRING, &set.device, "NAME", .help = "cpu or cuda (cpu)"},
        {"dtype", FM_OPTION_STRING, &set.dtype, "TYPE", .help = "fp32 or bf16 (fp32)"},
        {"preset", FM_OPTION_STRING, &set.preset, "NAME", .help = "sizes of the model (tiny)"},
        {"config", FM_OPTION_STRING, &set.config, "FILE", .help = "changes to the preset"},
        {"lengths", FM_OPTION_STRING, &set.lengths, "LIST", .help = "residues, as 256,384 (64)"},
        {"clusters", FM_OPTION_U64, &set.clusters, "N", .help = "MSA rows (the preset's)"},
        {"extra", FM_OPTION_U64, &set.extra, "N", .help = "extra MSA rows (the preset's)"},
        {"cycles", FM_OPTION_U64, &set.cycles, "N", .help = "of the timed runs (4)", .min = 1,
         .max = MOST_CYCLES},
        {"rounds", FM_OPTION_U64, &set.rounds, "N", .help = "timed runs; the least counts (1)",
         .min = 1, .max = 100},
        {"budget", FM_OPTION_U64, &set.budget_gib, "GIB", .help = "of memory (what is free)"},
        {"chunk", FM_OPTION_U64, &set.chunk_mib, "MIB", .help = "of a slab (the planner's choice)"},
        {"losses", FM_OPTION_FLAG, &set.losses, NULL, .help = "with losses, as foldmill eval"},
        {"table", FM_OPTION_FLAG, &set.table, NULL, .help = "time of each module"},
        {"direct", FM_OPTION_FLAG, &set.direct, NULL, .help = "capture nothing"},
        {0}};
    const fm_command command = {.program = "bench_predict",
                                .arguments = "[options]",
                                .summary = "the inference pass on chains of many lengths",
                                .description = "Times whole chains; the file's head says how.",
                                .options = options};
    bench b = {.set = &set};
    fm_error error = {0};
    int n_positional;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (status == FM_ERR_CANCELLED) return 0;
    if (!status) status = fm_arena_init(&b.arena, SAMPLE_BYTES, &error);
    if (!status) status = run(&b, &error);
    fm_infer_destroy(b.infer);
    fm_arena_fini(&b.arena);
    if (!status) return 0;
    fprintf(stderr, "bench_predict: %s: %s\n", error.source, error.message);
    return status == FM_ERR_UNSUPPORTED ? 77 : 1;
}
