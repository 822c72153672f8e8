/* kbench_oracle.cuh: how the files of the oracle store results, and the function of the gate. */
#ifndef FM_TESTS_KBENCH_ORACLE_CUH
#define FM_TESTS_KBENCH_ORACLE_CUH

#include "tests/kbench/kbench.cuh"
#include "trainer/backend/cuda/core/common.cuh"

#include <math.h>

namespace kbench {

/* Not 0: results of class act are rounded to bf16 when they are stored, so that a sublayer of the
 * oracle's entries is a naive bf16 composition. Each file has its own variable. */
static __device__ int rounds;

static inline void set_rounds(bool on) {
    int value = on;
    cudaMemcpyToSymbol(rounds, &value, sizeof value);
}

/* A result of class act as it is stored. */
__device__ static inline float act_of(double value) {
    return rounds ? __bfloat162float(__float2bfloat16_rn((float)value)) : (float)value;
}

/* y[at] = value, or the sum of both: of class acc, of class act. */
__device__ static inline void put(void *y, int64_t at, fm_beta beta, double value) {
    float *p = (float *)y + at;
    *p = (float)(beta == FM_ADD ? *p + value : value);
}
__device__ static inline void put_act(void *y, int64_t at, fm_beta beta, double value) {
    float *p = (float *)y + at;
    *p = act_of(beta == FM_ADD ? *p + value : value);
}

__device__ static inline double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

} // namespace kbench

#endif
