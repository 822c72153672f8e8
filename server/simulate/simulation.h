/* simulation.h: simulates how long the synchronous ranks of a run wait for samples.
 *
 *     server: workers --> stream of a rank --> link of the server --> samples ahead --> step
 *
 * The model follows the rules of the server (server/stream.h). A stream's credit, window and
 * measured look-ahead limit how many of its samples may be under way. The rules also give the order
 * in which samples leave, and the turns between streams. The preparation time of each sample is
 * drawn by its number, so it is the same for every order. A step begins when every rank has its
 * samples, and takes step_ms. The exposed wait of a step is the time from the end of the previous
 * step to its beginning. It is the wait of the slowest rank, and all ranks share it.
 *
 * FM_SIMULATED_LOADER is PyTorch's DataLoader in place of a server. The workers are divided among
 * the ranks, w to each, and each worker prepares every w-th sample of its rank. A rank requests two
 * samples of each worker ahead and uses its samples in order. */
#ifndef FM_SIMULATION_H
#define FM_SIMULATION_H

#include "proto/base/histogram.h"
#include "server/simulate/prepare_times.h"

typedef enum fm_simulated_order {
    FM_SIMULATED_STRICT = 1,
    FM_SIMULATED_BOUNDED = 2,
    FM_SIMULATED_FREE = 3,
    FM_SIMULATED_LOADER = 4,
} fm_simulated_order;

enum { FM_SIMULATED_MOST_RANKS = 16384, FM_SIMULATED_MOST_WORKERS = 1 << 20 };

typedef struct fm_simulation {
    uint32_t n_rank, per_rank;   /* ranks, and the samples of each in a step */
    uint32_t n_server, n_worker; /* servers, and the workers of each */
    uint32_t ahead;              /* samples that a rank receives ahead or uses: its credit */
    fm_simulated_order order;
    uint32_t window; /* bounded: W */
    uint32_t n_warm; /* steps before those that are measured */
    uint32_t n_step; /* measured */
    double step_ms;
    double send_ms; /* for one sample on the link of its server; 0: it takes no time */
    uint64_t seed;
} fm_simulation;

typedef struct fm_simulated {
    fm_histogram wait_ns; /* exposed, of the measured steps */
    double wait_ms;       /* in all */
    double steps_ms;      /* the measured steps without their waits */
    double work_ms;       /* of workers, from the first step to the last */
    double total_ms;      /* of that time */
    uint64_t n_sample;    /* prepared in it */
} fm_simulated;

/* Returns the preparation time in ms of a rank's sample number `place`, counted from 0. */
double fm_simulated_time_ms(const fm_prepare_times *times, uint64_t seed, uint32_t rank,
                            uint64_t place);

/* Runs the model. Returns FM_ERR_USAGE with the first number that is out of range, or FM_ERR_NOMEM.
 * All counts must be at least 1, and `ahead` at least per_rank. Every server must have a rank, and
 * a loader at least one worker per rank. */
FM_MUST_USE fm_status fm_simulate(const fm_simulation *plan, const fm_prepare_times *times,
                                  fm_simulated *ret_result, fm_error *reterr);

#endif
