/* step_complex.c: see step_complex.h. */
#include "tests/bench/step_complex.h"

#include "tests/bench/bench_table.h"
#include "tests/bench/complex_features.h"
#include "tests/bench/step_report.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/settings/setup.h"

static const size_t FEATURE_BYTES = (size_t)4 << 30; /* address space */

typedef struct bench {
    const settings *set;
    fm_meeting *meeting;
    fm_device_groups groups;
    fm_arena arena;
    fm_af3_trainer *trainer;
    fm_af3_features features;
    fm_sample_result result; /* of the last step */
} bench;

static const char *const part_names[FM_AF3_PARTS] = {
    [FM_AF3_PART_CYCLE] = "cycle without gradient",
    [FM_AF3_PART_TRUNK] = "last cycle, trunk forward",
    [FM_AF3_PART_ROLLOUT] = "rollout",
    [FM_AF3_PART_LEARN] = "diffusion, losses, backward",
    [FM_AF3_PART_CONFIDENCE] = "confidence head, both ways"};

/* -- a step */

/* With the sample of each group. */
static fm_status update(bench *b, fm_error *reterr) {
    fm_af3_trainer *t = b->trainer;
    if (b->set->dp > 1) return fm_af3_trainer_update_with(t, (uint32_t)b->set->dp, reterr);
    fm_optimizer_step(&t->recording.optimizer, t->recording.stream);
    return FM_OK;
}

static fm_status run_steps(void *bench_of, uint64_t count, double *ret_seconds, fm_error *reterr) {
    bench *b = bench_of;
    fm_af3_trainer *t = b->trainer;
    fm_status status = FM_OK;
    double before = now_s();
    for (uint64_t i = 0; i < count && !status; i++) {
        fm_af3_trainer_announce(t, &b->features, t->recording.optimizer.step + 1);
        status = fm_af3_trainer_add_sample(t, &b->features, &b->result, reterr);
        if (!status) status = update(b, reterr);
    }
    t->options.kernels->synchronize(t->recording.stream);
    *ret_seconds = now_s() - before;
    return status;
}

static double flops_of_step(const void *bench_of, uint32_t n_cycle) {
    const fm_af3_trainer *t = ((const bench *)bench_of)->trainer;
    double flops = (n_cycle - 1) * flops_of(&t->recording.tape[FM_AF3_CYCLE]);
    flops += t->options.model.n_rollout_step * flops_of(&t->recording.tape[FM_AF3_DENOISE]);
    const int once[] = {FM_AF3_LAST, FM_AF3_CONFIDENCE, FM_AF3_PREPARE, FM_AF3_STRUCTURES};
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
        flops += flops_of(&t->recording.tape[once[i]]);
    return flops;
}

static void use_cycles(void *bench_of, uint32_t n_cycle) {
    ((bench *)bench_of)->features.n_cycle = n_cycle;
}

/* -- reports */

static const uint64_t *download(bench *b, const uint64_t *device, size_t count) {
    const fm_kernels *kernels = b->trainer->options.kernels;
    uint64_t *host = fm_arena_alloc_array(&b->arena, count, sizeof *host);
    if (!host) abort(); /* the arena is far larger than any schedule */
    kernels->download(b->trainer->recording.stream, host, device, count * sizeof *host);
    kernels->synchronize(b->trainer->recording.stream);
    return host;
}

/* Prints the time of each part by the device's clock. A cycle without gradient counts once. */
static void print_parts(const uint64_t *ns, double seconds) {
    double sum = 0;
    printf("\n%9s  part of a step of 2 cycles\n", "ms");
    for (int i = 0; i < FM_AF3_PARTS; i++) {
        double ms = 1e-6 * (double)(ns[2 * i + 1] - ns[2 * i]);
        printf("%9.3f  %s\n", ms, part_names[i]);
        sum += ms;
    }
    printf("%9.3f  update, and the host between parts\n", 1e3 * seconds - sum);
}

/* The tables of all tapes. The last cycle's has its trunk and the rest in two parts, with the
 * rollout between them. */
static void print_tape_tables(bench *b, const uint64_t *part_ns) {
    const fm_af3_trainer *t = b->trainer;
    static table tables[FM_AF3_TAPES];
    static const char *const names[FM_AF3_TAPES] = {
        [FM_AF3_CYCLE] = "cycle without gradient",
        [FM_AF3_LAST] = "last cycle, diffusion and backward",
        [FM_AF3_CONFIDENCE] = "confidence head",
        [FM_AF3_PREPARE] = "prepare",
        [FM_AF3_DENOISE] = "the last denoising step",
        [FM_AF3_STRUCTURES] = "noisy structures"};
    for (int i = 0; i < FM_AF3_TAPES; i++) {
        const fm_tape *tape = &t->recording.tape[i];
        const uint64_t *ns = download(b, tape->stamp, (size_t)tape->n_step + 1);
        int32_t first = 0;
        if (i == FM_AF3_LAST) {
            first = t->out.trunk_end + 1;
            add_steps(&tables[i], tape, ns, 0, t->out.trunk_end);
            /* Its first node after the trunk began when the part did. */
            uint64_t around[2] = {part_ns[2 * FM_AF3_PART_LEARN], ns[first]};
            const fm_step *step = &tape->step[first - 1];
            char name[NAME_BYTES];
            name_of(tape, &tape->node[step->node], name);
            row_of(&tables[i], name)->ms[TABLE_FORWARD] += 1e-6 * (double)(around[1] - around[0]);
        }
        add_steps(&tables[i], tape, ns, first, tape->n_step);
        print_table(names[i], &tables[i]);
    }
}

/* Runs a step with stamps, each part captured and replayed; reads the stamps of the last replay. */
static fm_status print_tables(bench *b, fm_error *reterr) {
    fm_af3_trainer *t = b->trainer;
    fm_status status = fm_af3_trainer_stamp(t, reterr);
    b->features.n_cycle = 2;
    double seconds = 0;
    uint64_t count = t->options.kernels->device->is_asynchronous ? 2 : 0; /* captured */
    if (!status) status = run_steps(b, count, &seconds, reterr);
    if (!status) status = run_steps(b, 1, &seconds, reterr);
    if (status) return status;
    const uint64_t *ns = download(b, t->recording.stamp, (size_t)2 * FM_AF3_PARTS);
    print_parts(ns, seconds);
    print_tape_tables(b, ns);
    return FM_OK;
}

static fm_status print_digest(bench *b, fm_error *reterr) {
    uint64_t digest;
    const fm_af3_trainer *t = b->trainer;
    fm_status status = print_digest_of(&t->recording.params, t->recording.stream,
                                       t->recording.optimizer.step, &digest, reterr);
    if (status) return status;
    return compare_digests(b->set, b->meeting, digest, reterr);
}

/* -- whole steps */

static fm_status create(bench *b, const fm_train_config *config, fm_error *reterr) {
    const fm_kernels *kernels;
    fm_status status = fm_device_find(b->set->device, b->set->dtype, &kernels, reterr);
    if (status) return status;
    size_t before = kernels->device->used_bytes();
    fm_af3_trainer_options options = fm_af3_trainer_options_of(config, kernels, b->set->seed);
    options.direct = b->set->direct;
    options.spoils = b->set->spoil;
    status = join_groups(b->set, b->meeting, kernels, &b->groups, reterr);
    if (status) return status;
    options.model.groups = b->groups.groups;
    status = fm_af3_trainer_create(&options, &b->trainer, reterr);
    if (status) return status;
    char text[512];
    fm_af3_trainer_describe(b->trainer, text, sizeof text);
    describe_memory(b->set, text, fm_af3_trainer_memory_bytes(b->trainer), kernels->device, before);
    return bench_make_complex(&b->arena, &config->af3, MOST_CYCLES, false, &b->features, reterr);
}

static fm_status run(bench *b, const fm_train_config *config, fm_error *reterr) {
    fm_status status = create(b, config, reterr);
    if (status) return status;
    const timed_steps steps = {
        b->set, b, run_steps, use_cycles, flops_of_step, &b->result.loss, &b->result.gradient_norm};
    status = time_all_cycles(&steps, b->trainer->options.kernels->device, reterr);
    if (!status && b->groups.groups) status = b->groups.groups->check(b->groups.groups, reterr);
    if (status) return status;
    for (int i = 0; i < FM_AF3_PARTS; i++)
        describe_graph(part_names[i], &b->trainer->recording.pass[i]);
    print_slow_paths();
    if (b->set->digest) status = print_digest(b, reterr);
    if (!status && b->set->tune) status = fm_device_tune(b->set->tune, reterr);
    return status || !b->set->table ? status : print_tables(b, reterr);
}

fm_status bench_step_complex(const settings *set, const fm_train_config *config,
                             fm_meeting *meeting, fm_error *reterr) {
    bench b = {.set = set, .meeting = meeting};
    if (set->batch || set->save || set->schedule || set->crops || set->shapes) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "preset %s: --batch, --save, --schedule, --crops and --shapes are for "
                       "AlphaFold2",
                       set->preset);
    }
    fm_status status = fm_arena_init(&b.arena, FEATURE_BYTES, reterr);
    if (!status) status = run(&b, config, reterr);
    fm_af3_trainer_destroy(b.trainer);
    fm_device_groups_destroy(&b.groups);
    fm_arena_fini(&b.arena);
    return status;
}
