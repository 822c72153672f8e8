/* bench_step.c: measures whole training steps without a server: mean time over 1 to 4 cycles,
 * memory, kernels and graphs, FLOPs of matrix products. With --table it also prints the time of
 * each module by the device's own clock, from one replay.
 *
 *     bench_step                                                   tiny, on the CPU
 *     bench_step --device cuda --dtype bf16 --preset af2-initial --table
 *     bench_step --batch FILE ...                                 an encoded sample (proto/batch.h)
 *     bench_step --device cuda --preset af3-initial --table       AlphaFold 3 (step_complex.h)
 *
 * Without --batch, samples are synthetic and have the preset's full shape: a random walk with the
 * first five atoms of every residue, random ids, all masks full. A step is one sample with its
 * update. Each number of cycles runs --warm-up steps (the first queues kernels one by one, the
 * second captures), then --rounds rounds of --steps steps. The next step is queued while one runs.
 * With --ranks N the step runs on N processes with a GPU each, split by --dap and --bp; they
 * communicate as --backend says. Rank 0 prints. A step of AlphaFold 3 has ended before the next one
 * is queued. With --dp it has a sample of each of that many groups, and their gradients are summed.
 *
 * With --digest it prints a hash of parameters and averages at the end. It is the same for the same
 * settings, with and without --direct or --spoil. */
#include "proto/base/file.h"
#include "proto/base/options.h"
#include "tests/bench/bench_settings.h"
#include "tests/bench/bench_table.h"
#include "tests/bench/step_complex.h"
#include "tests/bench/step_report.h"
#include "tests/testing/testing.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/samples/sample_features.h"
#include "trainer/app/settings/setup.h"

#include <stdlib.h>
#include <string.h>

static const size_t SAMPLE_BYTES = (size_t)1 << 30;

typedef struct bench {
    const settings *set;
    fm_arena arena;
    fm_train_config config;
    fm_trainer *trainer;
    fm_meeting *meeting; /* of the ranks; NULL: one process */
    fm_device_groups groups;
    fm_features features;
    double last_loss, last_norm;
    uint64_t crop; /* in place of the preset's; 0 = the preset's */
} bench;

/* -- samples */

static fm_status save_batch(const bench *b, const fm_sample *sample, fm_error *reterr) {
    fm_arena arena;
    fm_status status = fm_arena_init(&arena, SAMPLE_BYTES, reterr);
    if (status) return status;
    fm_bytes bytes = fm_test_sample_bytes(sample, &arena);
    FILE *file = fopen(b->set->save, "wb");
    bool written = file && fwrite(bytes.data, 1, bytes.size, file) == bytes.size;
    written = file && fclose(file) == 0 && written;
    fm_arena_fini(&arena);
    return written ? FM_OK : fm_fail_in(reterr, FM_ERR_IO, b->set->save, "cannot be written");
}

static fm_status make_up(bench *b, fm_error *reterr) {
    const fm_sample *sample = bench_make_sample(&b->arena, &b->config.model, b->set->seed);
    fm_status status = fm_features_of(sample, &b->features, reterr);
    return status || !b->set->save ? status : save_batch(b, sample, reterr);
}

/* Reads the file's sample; its cycles are repeated if more are needed. */
static fm_status read_batch(bench *b, fm_error *reterr) {
    fm_bytes bytes;
    fm_status status = fm_file_read(&b->arena, b->set->batch, SAMPLE_BYTES / 4, &bytes, reterr);
    if (status) return status;
    uint8_t *aligned = fm_arena_alloc(&b->arena, bytes.size); /* aligned to 64 bytes */
    if (!aligned) return fm_arena_full(&b->arena, reterr);
    memcpy(aligned, bytes.data, bytes.size);
    fm_sample *sample = own(&b->arena, 1, sizeof *sample);
    status = fm_sample_decode((fm_bytes){aligned, bytes.size}, true, &b->arena, sample, reterr);
    if (!status) status = fm_features_of(sample, &b->features, reterr);
    if (status) {
        fm_error_in(reterr, b->set->batch);
        return status;
    }
    for (uint32_t c = b->features.n_cycle; c < MOST_CYCLES; c++)
        b->features.cycle[c] = b->features.cycle[c % b->features.n_cycle];
    return FM_OK;
}

/* -- steps */

static fm_status collect(bench *b, fm_error *reterr) {
    fm_sample_result result;
    fm_status status = fm_trainer_collect(b->trainer, &result, reterr);
    b->last_loss = result.loss;
    b->last_norm = result.gradient_norm;
    return status;
}

/* Queues `count` steps, one ahead if the device runs beside the host. *ret_seconds is the time from
 * queueing the first to collecting the last. Single steps are not timed: a launch returns when its
 * commands fit into the queue, so the host's clock shifts time from step to step. */
static fm_status run_steps(void *bench_of, uint64_t count, double *ret_seconds, fm_error *reterr) {
    bench *b = bench_of;
    uint64_t ahead = b->trainer->recording.params.kernels->device->is_asynchronous, queued = 0;
    fm_status status = FM_OK;
    double before = now_s();
    for (uint64_t i = 1; i <= count && !status; i++) {
        while (queued < count && queued < i + ahead && !status) {
            status = fm_trainer_queue(b->trainer, &b->features, true, reterr);
            queued++;
        }
        if (!status) status = collect(b, reterr);
    }
    *ret_seconds = now_s() - before;
    return status;
}

static double flops_of_step(const void *bench_of, uint32_t n_cycle) {
    const fm_trainer *t = ((const bench *)bench_of)->trainer;
    return flops_of(&t->recording.tape[FM_TRAINER_LAST]) +
           (n_cycle - 1) * flops_of(&t->recording.tape[FM_TRAINER_CYCLE]);
}

static void use_cycles(void *bench_of, uint32_t n_cycle) {
    ((bench *)bench_of)->features.n_cycle = n_cycle;
}

static timed_steps steps_of(bench *b) {
    return (timed_steps){b->set,       b, run_steps, use_cycles, flops_of_step, &b->last_loss,
                         &b->last_norm};
}

static void describe_graphs(const bench *b) {
    const fm_trainer *t = b->trainer;
    describe_graph("cycle without gradient", &t->recording.pass[FM_TRAINER_CYCLE]);
    describe_graph("last cycle with update", &t->recording.pass[FM_TRAINER_LAST]);
    printf("launches  %llu graphs; %llu passes queued without one; %llu cycles in all\n",
           (unsigned long long)t->recording.pass[FM_TRAINER_CYCLE].n_launch +
               t->recording.pass[FM_TRAINER_LAST].n_launch,
           (unsigned long long)t->recording.pass[FM_TRAINER_CYCLE].n_direct +
               t->recording.pass[FM_TRAINER_LAST].n_direct,
           (unsigned long long)t->cycles.ring.n_put);
}

/* -- the table */

/* One line per step of the schedule, in order: tape, column, module. deploy/gpu/trace joins these
 * with the kernels that ran between two stamps. */
static fm_status write_schedule(const bench *b, const char *path, fm_error *reterr) {
    const fm_tape *tapes[] = {&b->trainer->recording.tape[FM_TRAINER_CYCLE],
                              &b->trainer->recording.tape[FM_TRAINER_LAST]};
    const char *names[] = {"cycle", "last"};
    FILE *file = fopen(path, "w");
    if (!file) return fm_fail_in(reterr, FM_ERR_IO, path, "cannot be written");
    for (int i = 0; i < 2; i++) {
        for (int32_t s = 0; s < tapes[i]->n_step; s++) {
            char name[NAME_BYTES];
            const fm_step *step = &tapes[i]->step[s];
            name_of(tapes[i], &tapes[i]->node[step->node], name);
            fprintf(file, "%s\t%s\t%s\n", names[i], table_columns[column_of(step->phase)], name);
        }
    }
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        return fm_fail_in(reterr, FM_ERR_IO, path, "cannot be written");
    }
    return FM_OK;
}

static const uint64_t *download(bench *b, const uint64_t *device, size_t count) {
    const fm_kernels *kernels = b->trainer->recording.params.kernels;
    uint64_t *host = own(&b->arena, count, sizeof *host);
    kernels->download(b->trainer->recording.stream, host, device, count * sizeof *host);
    kernels->synchronize(b->trainer->recording.stream);
    return host;
}

/* Runs passes with stamps, each captured and replayed; reads the stamps of the last replay. */
static fm_status print_tables(bench *b, fm_error *reterr) {
    fm_trainer *t = b->trainer;
    static table cycle, last;
    fm_status status = fm_trainer_stamp(t, reterr);
    b->features.n_cycle = 2;
    double unused;
    uint64_t count =
        t->recording.params.kernels->device->is_asynchronous ? 3 : 1; /* captured, replayed */
    if (!status) status = run_steps(b, count, &unused, reterr);
    if (!status && b->set->schedule) status = write_schedule(b, b->set->schedule, reterr);
    if (status) return status;
    const uint64_t *around = download(b, t->recording.stamp, FM_STAMPS);
    const uint64_t *in_cycle = download(b, t->recording.tape[FM_TRAINER_CYCLE].stamp,
                                        (size_t)t->recording.tape[FM_TRAINER_CYCLE].n_step + 1);
    const uint64_t *in_last = download(b, t->recording.tape[FM_TRAINER_LAST].stamp,
                                       (size_t)t->recording.tape[FM_TRAINER_LAST].n_step + 1);
    add_tape(&cycle, &t->recording.tape[FM_TRAINER_CYCLE], in_cycle);
    add_tape(&last, &t->recording.tape[FM_TRAINER_LAST], in_last);
    row_of(&last, "take the packet")->ms[0] = 1e-6 * (double)(in_last[0] - around[FM_STAMP_BEGIN]);
    row_of(&last, "norm, clip, sum")->ms[0] =
        1e-6 *
        (double)(around[FM_STAMP_SUMMED] - in_last[t->recording.tape[FM_TRAINER_LAST].n_step]);
    row_of(&last, "Adam and average")->ms[0] =
        1e-6 * (double)(around[FM_STAMP_UPDATED] - around[FM_STAMP_SUMMED]);
    print_table("cycle without gradient", &cycle);
    print_table("last cycle with update", &last);
    return FM_OK;
}

static fm_status print_digest(bench *b, fm_error *reterr) {
    uint64_t digest;
    const fm_trainer *t = b->trainer;
    fm_status status = print_digest_of(&t->recording.params, t->recording.stream,
                                       t->recording.optimizer.step, &digest, reterr);
    return status ? status : compare_digests(b->set, b->meeting, digest, reterr);
}

/* -- whole steps */

static fm_status create(bench *b, fm_error *reterr) {
    const fm_kernels *kernels;
    fm_status status = fm_device_find(b->set->device, b->set->dtype, &kernels, reterr);
    if (status) return status;
    size_t before = kernels->device->used_bytes();
    if (b->crop) b->config.data.crop_size = b->config.model.n_res = (int64_t)b->crop;
    fm_trainer_options options = fm_trainer_options_of(&b->config, kernels, b->set->seed);
    options.direct = b->set->direct;
    options.spoils = b->set->spoil;
    status = join_groups(b->set, b->meeting, kernels, &b->groups, reterr);
    if (status) return status;
    options.groups = b->groups.groups;
    status = fm_trainer_create(&options, &b->trainer, reterr);
    if (status) return status;
    char text[512];
    fm_trainer_describe(b->trainer, text, sizeof text);
    describe_memory(b->set, text, fm_trainer_memory_bytes(b->trainer), kernels->device, before);
    return b->set->batch ? read_batch(b, reterr) : make_up(b, reterr);
}

/* Milliseconds of a step of `cycles` cycles at a crop, with a trainer of its own. */
static fm_status time_crop(bench *b, uint64_t crop, double *ret_ms, fm_error *reterr) {
    double seconds = 0;
    b->crop = crop;
    fm_status status = create(b, reterr);
    const timed_steps steps = steps_of(b);
    if (!status) status = time_cycles(&steps, (uint32_t)b->set->cycles, &seconds, reterr);
    fm_trainer_destroy(b->trainer);
    b->trainer = NULL;
    fm_arena_reset(&b->arena);
    *ret_ms = 1e3 * seconds;
    return status;
}

/* What --shapes allows, and the crops that it takes without --crops. */
static const double MOST_RATIO = 1.1;
static const char SHAPES[] = "240,241,247,250,255,257,260,264,271,272";

/* Every crop of the list beside the next multiple of 16, whose time it should have. */
static fm_status run_crops(bench *b, fm_error *reterr) {
    enum { MOST_CROPS = 64, MULTIPLE = 16 };
    double ms[MOST_CROPS], even_ms[MOST_CROPS] = {0}, worst = 0;
    uint64_t crop[MOST_CROPS], even = 0;
    int n = 0;
    const char *list = b->set->crops ? b->set->crops : SHAPES;
    for (const char *at = list; *at && n < MOST_CROPS; at += *at == ',', n++) {
        char *end;
        crop[n] = strtoull(at, &end, 10);
        if (end == at || crop[n] < 1) {
            return fm_fail(reterr, FM_ERR_USAGE, "--crops takes numbers, as 250,256,257");
        }
        at = end;
    }
    for (int i = 0; i < n; i++) {
        uint64_t next = (crop[i] + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
        fm_status status = FM_OK;
        if (next == even) {
            even_ms[i] = even_ms[i - 1];
        } else {
            status = time_crop(b, next, &even_ms[i], reterr);
        }
        even = next;
        ms[i] = even_ms[i];
        if (!status && crop[i] != next) status = time_crop(b, crop[i], &ms[i], reterr);
        if (status) return status;
    }
    printf("%6s  %9s  %9s  %6s\n", "crop", "ms", "even ms", "ratio");
    for (int i = 0; i < n; i++) {
        double ratio = ms[i] / even_ms[i];
        worst = ratio > worst ? ratio : worst;
        printf("%6llu  %9.3f  %9.3f  %6.3f\n", (unsigned long long)crop[i], ms[i], even_ms[i],
               ratio);
    }
    printf("worst crop %.3f of the next multiple of %d\n", worst, MULTIPLE);
    if (!b->set->shapes || worst <= MOST_RATIO) return FM_OK;
    return fm_fail(reterr, FM_ERR_LIMIT,
                   "a crop takes %.3f times the next multiple of %d: "
                   "expected at most %.2f",
                   worst, MULTIPLE, MOST_RATIO);
}

static fm_status run(bench *b, fm_error *reterr) {
    fm_status status = fm_train_config_load(b->set->preset, b->set->config, &b->config, reterr);
    if (status) return status;
    if (b->config.network == FM_NETWORK_AF3) {
        return bench_step_complex(b->set, &b->config, b->meeting, reterr);
    }
    if (b->set->dp > 1) {
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "--dp %llu: found a model of AlphaFold2, whose groups bench_scaling measures",
            (unsigned long long)b->set->dp);
    }
    if (b->set->crops || b->set->shapes) return run_crops(b, reterr);
    status = create(b, reterr);
    if (status) return status;
    const timed_steps steps = steps_of(b);
    status = time_all_cycles(&steps, b->trainer->recording.params.kernels->device, reterr);
    if (status) return status;
    describe_graphs(b);
    print_slow_paths();
    if (b->set->digest) status = print_digest(b, reterr);
    if (!status && b->set->tune) status = fm_device_tune(b->set->tune, reterr);
    return status || !b->set->table ? status : print_tables(b, reterr);
}

/* One process: all of it, or a rank. */
static int run_process(const settings *set, fm_meeting *meeting) {
    bench b = {.set = set, .meeting = meeting};
    fm_error error = {0};
    fm_status status = fm_arena_init(&b.arena, SAMPLE_BYTES, &error);
    if (!status) status = run(&b, &error);
    fm_trainer_destroy(b.trainer);
    fm_device_groups_destroy(&b.groups);
    fm_arena_fini(&b.arena);
    return status ? fm_test_report("bench_step", &error) : 0;
}

static int run_rank(int32_t rank, const char *address, void *context) {
    const settings *set = context;
    fm_meeting *meeting = NULL;
    fm_error error = {0};
    if (rank > 0 && !freopen("/dev/null", "w", stdout)) return 1;
    if (rank > 0) setenv("FM_TRACE", "/dev/null", 1); /* tests/trace writes rank 0's kernels */
    if (fm_meeting_open(&meeting, address, rank, (int32_t)set->ranks, RANKS_S, &error)) {
        return fm_test_report("bench_step", &error);
    }
    int result = run_process(set, meeting);
    fm_meeting_close(meeting);
    return result;
}

static fm_status check_ranks(const settings *set, fm_error *reterr) {
    unsigned long long expected = set->dap * set->bp * set->dp;
    if (set->ranks == expected) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "--ranks %llu: expected %llu, which is --dap times --bp times --dp",
                   (unsigned long long)set->ranks, expected);
}

int main(int argc, char **argv) {
    settings set = {.device = "cpu",
                    .dtype = "fp32",
                    .preset = "tiny",
                    .steps = 3,
                    .rounds = 3,
                    .warm_up = 3,
                    .cycles = MOST_CYCLES,
                    .backend = "peer",
                    .ranks = 1,
                    .dap = 1,
                    .bp = 1,
                    .dp = 1};
    const fm_option options[] = {
        {"device", FM_OPTION_STRING, &set.device, "NAME", .help = "cpu or cuda (cpu)"},
        {"dtype", FM_OPTION_STRING, &set.dtype, "TYPE", .help = "fp32 or bf16 (fp32)"},
        {"preset", FM_OPTION_STRING, &set.preset, "NAME", .help = "sizes and recipe (tiny)"},
        {"config", FM_OPTION_STRING, &set.config, "FILE", .help = "changes to the preset"},
        {"batch", FM_OPTION_STRING, &set.batch, "FILE", .help = "an encoded sample to run"},
        {"save", FM_OPTION_STRING, &set.save, "FILE",
         .help = "write the made-up sample for --batch"},
        {"steps", FM_OPTION_U64, &set.steps, "N", .help = "steps of a round (3)", .min = 1,
         .max = MOST_STEPS},
        {"rounds", FM_OPTION_U64, &set.rounds, "N", .help = "timed rounds; their median counts (3)",
         .min = 1, .max = MOST_ROUNDS},
        {"warm-up", FM_OPTION_U64, &set.warm_up, "N", .help = "steps before them (3)",
         .max = MOST_STEPS},
        {"cycles", FM_OPTION_U64, &set.cycles, "N", .help = "from 1 to so many cycles (4)",
         .min = 1, .max = MOST_CYCLES},
        {"seed", FM_OPTION_U64, &set.seed, "S", .help = "of parameters, dropout and samples (0)"},
        {"ranks", FM_OPTION_U64, &set.ranks, "N", .help = "processes with a GPU each (1)", .min = 1,
         .max = FM_TEST_RANKS},
        {"dap", FM_OPTION_U64, &set.dap, "D", .help = "parts of a sample's arrays (1)", .min = 1,
         .max = FM_TEST_RANKS},
        {"bp", FM_OPTION_U64, &set.bp, "B", .help = "branches of a block (1)", .min = 1, .max = 2},
        {"dp", FM_OPTION_U64, &set.dp, "P",
         .help = "groups with a sample each, of AlphaFold 3 (1); bench_scaling has those of "
                 "AlphaFold2",
         .min = 1, .max = FM_TEST_RANKS},
        {"backend", FM_OPTION_STRING, &set.backend, "NAME",
         .help = "how ranks communicate: peer or nccl (peer)"},
        {"table", FM_OPTION_FLAG, &set.table, NULL, .help = "time of each module"},
        {"schedule", FM_OPTION_STRING, &set.schedule, "FILE",
         .help = "with --table: write the steps of both tapes, for deploy/gpu/trace"},
        {"crops", FM_OPTION_STRING, &set.crops, "LIST",
         .help = "time these crops, as 250,257, each beside the next multiple of 16"},
        {"shapes", FM_OPTION_FLAG, &set.shapes, NULL,
         .help = "the same of crops from 240 to 272; fails above 1.1 times"},
        {"tune", FM_OPTION_STRING, &set.tune, "FILE",
         .help = "measure the matrix products of these steps, write the table of the fastest"},
        {"direct", FM_OPTION_FLAG, &set.direct, NULL, .help = "capture nothing"},
        {"spoil", FM_OPTION_FLAG, &set.spoil, NULL,
         .help = "NaN into memory before its first use: nothing but the time may change"},
        {"digest", FM_OPTION_FLAG, &set.digest, NULL, .help = "hash what the steps have made"},
        {0}};
    const fm_command command = {.program = "bench_step",
                                .arguments = "[options]",
                                .summary = "training steps without a server",
                                .description = "Times whole steps; the file's head says how.",
                                .options = options};
    fm_error error = {0};
    int n_positional, exits[FM_TEST_RANKS];
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (status == FM_ERR_CANCELLED) return 0;
    if (!status) status = check_ranks(&set, &error);
    if (status) return fm_test_report("bench_step", &error);
    return set.ranks == 1 ? run_process(&set, NULL)
                          : fm_test_run_ranks((int32_t)set.ranks, run_rank, &set, RANKS_S, exits);
}
