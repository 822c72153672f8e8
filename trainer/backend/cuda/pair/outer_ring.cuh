/* outer_ring.cuh: the code that both kernels of the outer product mean on warp-group products
 * share: the shape of a block, the ring of shared-memory slots, and stores of 16 bytes per lane.
 *
 * A block has two warp groups that compute (consumers) and a third that only feeds them (the
 * producer). The producer gives its registers to the others, and one of its threads keeps the ring
 * full by bulk copies. Use n of the ring takes slot n % COUNT. A slot has two barriers:
 *
 *     full     the producer announces the bytes; it completes when they have arrived
 *     empty    it completes when every reading warp has arrived, after its products are done
 *
 * A barrier alternates between phases of parity 0 and 1, and a wait names a parity. Turn n / COUNT
 * of a slot waits on `full` for parity turn % 2 to read, and on `empty` for parity (turn - 1) % 2
 * to write, from turn 1 on. A parity alone does not tell phase p from p + 2. A warp that waits for
 * a slot's use must have seen the use before it, so two groups that may drift apart need separate
 * slots. */
#ifndef FM_BACKEND_CUDA_OUTER_RING_CUH
#define FM_BACKEND_CUDA_OUTER_RING_CUH

#include "trainer/backend/cuda/core/bulk.cuh"
#include "trainer/backend/cuda/core/wgmma.cuh"
#include "trainer/backend/cuda/pair/outer.cuh"
#include "trainer/backend/cuda/pair/outer_pack.cuh"

namespace fm_cuda {

enum {
    CONSUMERS = 256, /* threads of the two computing groups */
    CHAIN_THREADS = CONSUMERS + GROUP_THREADS,
    PRODUCER_REGISTERS = 40,
    CONSUMER_REGISTERS = 232,
    X_TILES = 2, /* tiles across a slot's left operand: 64 rows x 128 columns */
    SLOT_X = X_TILES * PANEL_TILE
};

/* Transposes 4 x 4 words between the four lanes that share a row: lane t's x[n] goes to lane n's
 * x[t]. Accumulators then are 16-byte runs of a row, and back. */
__device__ inline void transpose_four(uint32_t x[4]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
        uint32_t got = __shfl_xor_sync(0xffffffffu, t & 1 ? x[k] : x[k + 1], 1);
        x[k] = t & 1 ? got : x[k];
        x[k + 1] = t & 1 ? x[k + 1] : got;
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        uint32_t got = __shfl_xor_sync(0xffffffffu, t & 2 ? x[k] : x[k + 2], 2);
        x[k] = t & 2 ? got : x[k];
        x[k + 2] = t & 2 ? x[k + 2] : got;
    }
}

/* Shared addresses of a ring's barriers: the first of `full` and of `empty`, one per slot, and two
 * for the operand that stays: `ready` when it is there, `read` when it may be replaced. */
struct ring_barriers {
    uint32_t full, empty, ready, read;
};

template <int COUNT> struct ring_space { uint64_t at[2 * COUNT + 2]; };

/* Called by every thread; the caller then synchronises the block. `readers`: how many warps arrive
 * at `empty` and at `read`. */
template <int COUNT>
__device__ inline ring_barriers ring_make(ring_space<COUNT> *space, int readers) {
    uint32_t first = shared_address(space->at);
    if (threadIdx.x == 0) {
        for (int k = 0; k < COUNT; k++) {
            barrier_init(first + k * 8, 1);
            barrier_init(first + (COUNT + k) * 8, readers);
        }
        barrier_init(first + 2 * COUNT * 8, 1);
        barrier_init(first + (2 * COUNT + 1) * 8, readers);
        barriers_publish();
    }
    return {first, first + COUNT * 8, first + 2 * COUNT * 8, first + (2 * COUNT + 1) * 8};
}

/* Starts copying `elements` of bf16 to shared memory; expect_run announces them to the barrier. */
__device__ inline void load_run(bf16 *to_shared, const bf16 *from, int elements, uint32_t barrier) {
    bulk_load(shared_address(to_shared), from, (uint32_t)elements * 2, barrier);
}
__device__ inline void expect_run(uint32_t barrier, int elements) {
    barrier_expect(barrier, (uint32_t)elements * 2);
}

} // namespace fm_cuda

#endif
