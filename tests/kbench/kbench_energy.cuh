/* kbench_energy.cuh: what the device draws while a graph runs over and over.
 *
 * A replay of a few milliseconds ends before the device reaches its power limit. A training step
 * does reach it, and the clock falls until the power fits. So a kernel's time in a step depends on
 * its energy, too, and both are measured over seconds. */
#ifndef FM_TESTS_KBENCH_ENERGY_CUH
#define FM_TESTS_KBENCH_ENERGY_CUH

#include <cuda_runtime_api.h>

namespace kbench {

struct draw {
    double ms;     /* from one replay to the next */
    double joules; /* of a replay */
    double mhz;    /* mean clock of the multiprocessors */
};

/* Replays `graph` on `stream` for `seconds`, after half a second that does not count. False where
 * the device's energy cannot be read, which needs the driver's library libnvidia-ml.so.1. */
bool measure_draw(cudaGraphExec_t graph, cudaStream_t stream, double seconds, draw *ret_draw);

} // namespace kbench

#endif
