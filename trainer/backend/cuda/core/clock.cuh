/* clock.cuh: reads the device's clock. */
#ifndef FM_BACKEND_CUDA_CLOCK_CUH
#define FM_BACKEND_CUDA_CLOCK_CUH

#include <stdint.h>

namespace fm_cuda {

/* Nanoseconds since an arbitrary time, the same for all multiprocessors. */
__device__ inline uint64_t device_clock_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

} // namespace fm_cuda

#endif
