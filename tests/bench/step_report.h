/* step_report.h: how bench_step times the steps of either network, and what it prints of them. */
#ifndef FM_TESTS_BENCH_STEP_REPORT_H
#define FM_TESTS_BENCH_STEP_REPORT_H

#include "tests/bench/bench_settings.h"
#include "tests/bench/bench_trainer.h"
#include "tests/testing/ranks.h"
#include "trainer/app/device/device_groups.h"
#include "trainer/step/pass.h"

#include <stdio.h>

/* The steps of a benchmark. */
typedef struct timed_steps {
    const settings *set;
    void *bench;
    fm_status (*run)(void *bench, uint64_t count, double *ret_seconds, fm_error *reterr);
    void (*use_cycles)(void *bench, uint32_t n_cycle); /* for the steps from now on */
    double (*flops)(const void *bench, uint32_t n_cycle);
    const double *loss, *norm; /* of the last step */
} timed_steps;

static inline double flops_of(const fm_tape *tape) {
    double flops = 0;
    for (int32_t i = 0; i < tape->n_step; i++)
        flops += tape->step[i].flops;
    return flops;
}

/* Seconds per step with that many cycles: the median of the rounds' means. */
static inline fm_status time_cycles(const timed_steps *of, uint32_t n_cycle, double *ret_seconds,
                                    fm_error *reterr) {
    double seconds[MOST_ROUNDS], warm_up;
    const uint64_t n = of->set->rounds;
    of->use_cycles(of->bench, n_cycle);
    fm_status status = of->run(of->bench, of->set->warm_up, &warm_up, reterr);
    for (uint64_t r = 0; r < n && !status; r++) {
        status = of->run(of->bench, of->set->steps, &seconds[r], reterr);
        seconds[r] /= (double)of->set->steps;
    }
    if (status) return status;
    const double middle = median(seconds, n), flops = of->flops(of->bench, n_cycle);
    printf("%6u  %9.3f  %9.3f  %9.3f  %7.2f  %7.1f  %9.4f  %9.4f\n", n_cycle, 1e3 * middle,
           1e3 * seconds[0], 1e3 * seconds[n - 1], 1e-12 * flops, 1e-12 * flops / middle, *of->loss,
           *of->norm);
    fflush(stdout);
    *ret_seconds = middle;
    return FM_OK;
}

/* Times 1 to set->cycles cycles, and prints the mean and the device's memory in use. */
static inline fm_status time_all_cycles(const timed_steps *of, const fm_device *device,
                                        fm_error *reterr) {
    double mean = 0, seconds = 0;
    fm_status status = FM_OK;
    printf("%6s  %9s  %9s  %9s  %7s  %7s  %9s  %9s\n", "cycles", "ms", "least", "most", "TFLOP",
           "TFLOP/s", "loss", "norm");
    for (uint32_t c = 1; c <= of->set->cycles && !status; c++) {
        status = time_cycles(of, c, &seconds, reterr);
        mean += seconds / (double)of->set->cycles;
    }
    if (status) return status;
    printf("mean step %.3f ms over 1..%llu cycles\n", 1e3 * mean,
           (unsigned long long)of->set->cycles);
    size_t used = device->used_bytes();
    if (used) printf("memory    %.2f GiB of the device in use\n", (double)used / (1 << 30));
    return FM_OK;
}

static inline void describe_graph(const char *name, const fm_pass *pass) {
    if (!pass->graph) {
        printf("graph     %s: none\n", name);
        return;
    }
    fm_graph_size size = pass->device->graph_measure(pass->graph);
    printf("graph     %s: %lld kernels, %lld copies and fills\n", name, (long long)size.n_kernel,
           (long long)size.n_copy);
}

/* Prints what a trainer has taken; `before` is the device's memory in use before it was made. */
static inline void describe_memory(const settings *set, const char *about, int64_t planned_bytes,
                                   const fm_device *device, size_t before) {
    printf("model     preset %s: %s\n", set->preset, about);
    if (device->is_asynchronous) printf("device    %s\n", device->processor());
    printf("memory    %.2f GiB planned, %.2f GiB taken from the device\n",
           (double)planned_bytes / (1 << 30), (double)(device->used_bytes() - before) / (1 << 30));
}

/* Makes the groups of a rank; without a meeting there are none. */
static inline fm_status join_groups(const settings *set, fm_meeting *meeting,
                                    const fm_kernels *kernels, fm_device_groups *groups,
                                    fm_error *reterr) {
    const fm_layout layout = {(int32_t)set->dap, (int32_t)set->bp, (int32_t)set->dp};
    if (!meeting) return FM_OK;
    return fm_device_groups_create(&layout, kernels, meeting, set->backend, WAIT_S, NULL, groups,
                                   reterr);
}

/* Fails when the ranks have other digests. */
static inline fm_status compare_digests(const settings *set, fm_meeting *meeting, uint64_t digest,
                                        fm_error *reterr) {
    uint64_t all[FM_TEST_RANKS] = {digest};
    fm_status status = FM_OK;
    if (meeting) status = fm_meeting_gather(meeting, &digest, sizeof digest, all, RANKS_S, reterr);
    for (uint64_t r = 0; r < set->ranks && !status; r++) {
        if (all[r] != digest) {
            status = fm_fail(reterr, FM_ERR_DATA, "the digest is not the same on all ranks");
        }
    }
    return status;
}

#endif
