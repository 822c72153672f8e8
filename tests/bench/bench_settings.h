/* bench_settings.h: the options of bench_step, which times the steps of both networks. */
#ifndef FM_TESTS_BENCH_SETTINGS_H
#define FM_TESTS_BENCH_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MOST_STEPS = 1000,
    MOST_ROUNDS = 100,
    RANKS_S = 600, /* that a run of several ranks may take */
    WAIT_S = 20,   /* that an exchange waits for another rank */
};

typedef struct settings {
    const char *device, *dtype, *preset, *config, *batch, *save, *schedule, *tune, *crops, *backend;
    uint64_t steps, rounds, warm_up, cycles, seed, ranks, dap, bp, dp;
    bool table, direct, digest, spoil, shapes;
} settings;

#endif
