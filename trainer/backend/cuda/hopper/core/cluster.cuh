/* cluster.cuh: blocks of a cluster that write to each other's shared memory. A kernel calls
 * cluster_barrier when its barriers are initialised, and again before it ends: others may still
 * send to it, or arrive at its barriers. In place of the last one it can wait for all that others
 * send. */
#ifndef FM_BACKEND_CUDA_CLUSTER_CUH
#define FM_BACKEND_CUDA_CLUSTER_CUH

#include "trainer/backend/cuda/hopper/core/bulk.cuh"

namespace fm_cuda {

/* The address of the same place in the shared memory of a block of the cluster. */
__device__ inline uint32_t address_in_block(uint32_t address, int rank) {
    uint32_t other;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(address), "r"(rank));
    return other;
}
/* All threads of all blocks, behind which they see each other's shared memory. */
__device__ inline void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
/* The same in two parts, which pass no memory on: blocks write to each other's shared memory only
 * behind cluster_begun, when all of the cluster have called cluster_begin. */
__device__ inline void cluster_begin() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_begun() {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
/* Without a fence: nothing that this thread wrote is read behind the barrier. */
__device__ inline void cluster_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Stores to another block, whose barrier counts the bytes. */
__device__ inline void cluster_store(uint32_t address, const uint32_t (&x)[4], uint32_t barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], "
                 "{%1,%2,%3,%4}, [%5];" ::"r"(address),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(barrier)
                 : "memory");
}
__device__ inline void cluster_store(uint32_t address, const float (&x)[4], uint32_t barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], "
                 "{%1,%2,%3,%4}, [%5];" ::"r"(address),
                 "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(barrier)
                 : "memory");
}
/* As box_load, into the same place of each block whose rank is a bit of `blocks`. The barrier at
 * the same place in each of them counts the bytes that arrive there. */
__device__ inline void box_load_to_all(uint32_t to_shared, const box_map &boxes, const box_place &p,
                                       uint32_t barrier, uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(to_shared),
                 "l"(&boxes.map), "r"(p.column), "r"(p.row), "r"(p.at2), "r"(p.at3), "r"(p.at4),
                 "r"(barrier), "h"(blocks)
                 : "memory");
}
/* Writes to another block, which reads it behind a cluster_barrier: 16 bytes to the same place of
 * the block of that rank, or one number. */
__device__ inline void cluster_write(float *place, int rank, const float *x) {
    uint32_t address = address_in_block(shared_address(place), rank);
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(address), "f"(x[0]),
                 "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}
__device__ inline void cluster_put(uint32_t address, float x) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

} // namespace fm_cuda

#endif
