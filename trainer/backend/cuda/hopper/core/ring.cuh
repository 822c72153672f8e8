/* ring.cuh: slots of shared memory that one thread fills by the copy engine while warps read them.
 *
 * Both sides walk the slots in the same order, each with its own ring_place. The filling thread
 * calls `fill` and starts its copies to the barrier that it gets. A reader calls `wait` and reads,
 * and one lane of every warp calls `free` when the warp has read. A slot has two barriers:
 *
 *     full     it completes when the bytes that `fill` announced have arrived
 *     empty    it completes when all readers have freed the slot
 *
 * A barrier alternates between phases of parity 0 and 1, and a wait names a parity, which does not
 * tell phase p from p + 2. So a warp that waits for a slot's turn must have seen the turn before
 * it: two groups of warps that may drift apart each free every slot. A slot may be freed only when
 * what was read of it is in registers, or its products are done (wgmma.cuh). */
#ifndef FM_BACKEND_CUDA_RING_CUH
#define FM_BACKEND_CUDA_RING_CUH

#include "trainer/backend/cuda/hopper/core/bulk.cuh"

namespace fm_cuda {

/* A place in a ring: the slot, and the parity to wait for. Readers begin with {0, 0}. The filling
 * thread begins with {0, 1}: the phase before a barrier's first counts as complete, so that the
 * slots' first turns are free. */
template <int SLOTS> struct ring_place {
    int slot = 0;
    uint32_t phase = 0;
    __device__ inline void next() {
        if (++slot == SLOTS) slot = 0, phase ^= 1;
    }
};

/* The barriers, in shared memory. The slots' bytes are elsewhere, at the caller's will. */
template <int SLOTS> struct copy_ring {
    uint64_t full[SLOTS], empty[SLOTS];

    /* One thread; barriers_publish and the block's barrier follow. `readers`: warps that free. */
    __device__ inline void begin(int readers) {
        for (int i = 0; i < SLOTS; i++) {
            barrier_init(shared_address(&full[i]), 1);
            barrier_init(shared_address(&empty[i]), readers);
        }
    }
    /* Waits until the slot is free and announces `bytes`. Returns the barrier for the copies. */
    __device__ inline uint32_t fill(int slot, uint32_t phase, uint32_t bytes) {
        uint32_t barrier = shared_address(&full[slot]);
        barrier_wait(shared_address(&empty[slot]), phase);
        barrier_expect(barrier, bytes);
        return barrier;
    }
    __device__ inline void wait(int slot, uint32_t phase) {
        barrier_wait(shared_address(&full[slot]), phase);
    }
    /* Called by one lane of every reading warp. */
    __device__ inline void free(int slot) {
        barrier_arrive(shared_address(&empty[slot]));
    }
};

} // namespace fm_cuda

#endif
