/* bulk.cuh: the copy engine of compute capability 9.0 (the Tensor Memory Accelerator).
 *
 * One thread starts a copy and the engine does it: boxes of strided tensors and runs of bytes from
 * global to shared memory, and boxes back. Barriers in shared memory (mbarrier) tell when data has
 * arrived.
 *
 * Loading. A barrier is initialised with a number of arrivals. One thread calls barrier_expect with
 * the bytes of all copies of this turn, which also counts as its arrival, and starts the copies. A
 * phase of the barrier ends when all arrivals and all bytes are there. Threads that need the data
 * call barrier_wait with the parity of the phase: 0 for the first turn, 1 for the second, 0 for the
 * third, and so on.
 *
 * Layout. A box becomes a tile of mma.cuh, so its place is a multiple of 8 rows from the tile's
 * begin. Parts of a box outside the tensor are read as zeros, counted in bytes like the rest, and
 * not written back.
 *
 * Storing. Threads write a tile, each calls tiles_publish (wgmma.cuh), then a barrier of the block;
 * then one thread calls box_store. */
#ifndef FM_BACKEND_CUDA_BULK_CUH
#define FM_BACKEND_CUDA_BULK_CUH

#include "trainer/backend/cuda/core/early.cuh"
#include "trainer/backend/cuda/core/mma.cuh"

#include <cuda.h>

namespace fm_cuda {

/* A tensor [4th, 3rd, 2nd, row, channel] and the size of the box, rows by channels, that one copy
 * moves. Kernels take it as a `const __grid_constant__` argument. */
struct box_map {
    CUtensorMap map;
};

/* Describes boxes of `rows` rows by `c` channels (8, 16, 32 or 64, the width of the tile) of a
 * tensor with extent[0] channels, extent[1] rows, and three outer axes. stride[i] is the distance
 * in elements along axis i + 1. Base and strides are multiples of 16 bytes. Host code. */
box_map make_boxes(const void *base, const int64_t extent[5], const int64_t stride[4], int c,
                   int rows);
/* The same for boxes of any extent: box[0] channels, box[1] rows, and so on. The rows of the tile
 * are the rows of the box, then those of its next place along the third axis, and so on. */
box_map make_long_boxes(const void *base, const int64_t extent[5], const int64_t stride[4],
                        const int box[5]);

__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}
/* Makes the barrier's place free for another barrier_init. Nobody waits on it any more. */
__device__ inline void barrier_end(uint32_t barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/* Comes after the inits and before the block's barrier. */
__device__ inline void barriers_publish() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t is_done;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(is_done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!is_done);
}

/* The first element of a box, as an index along each axis. */
struct box_place {
    int row, at2, at3, at4, column = 0;
};

__device__ inline void box_load(uint32_t to_shared, const box_map &boxes, const box_place &p,
                                uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to_shared),
                 "l"(&boxes.map), "r"(p.column), "r"(p.row), "r"(p.at2), "r"(p.at3), "r"(p.at4),
                 "r"(barrier)
                 : "memory");
}

/* The same for a box that no block reads again: its lines leave the L2 cache before others do. */
__device__ inline void box_load_once(uint32_t to_shared, const box_map &boxes, const box_place &p,
                                     uint32_t barrier) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(to_shared),
                 "l"(&boxes.map), "r"(p.column), "r"(p.row), "r"(p.at2), "r"(p.at3), "r"(p.at4),
                 "r"(barrier), "l"(policy)
                 : "memory");
}

/* Asks the L2 cache for a box that is read soon. */
__device__ inline void box_prefetch(const box_map &boxes, const box_place &p) {
    asm volatile(
        "cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(
            &boxes.map),
        "r"(p.column), "r"(p.row), "r"(p.at2), "r"(p.at3), "r"(p.at4)
        : "memory");
}
/* Both addresses are 16-byte aligned; bytes is a multiple of 16. */
__device__ inline void bulk_load(uint32_t to_shared, const void *from, uint32_t bytes,
                                 uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(to_shared),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* The same to global memory; closes a group of this thread's stores. */
__device__ inline void bulk_store(void *to, uint32_t from_shared, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;" ::"l"(to),
                 "r"(from_shared), "r"(bytes)
                 : "memory");
}

/* Stores a box and closes a group of this thread's stores. */
__device__ inline void box_store(const box_map &boxes, const box_place &p, uint32_t from_shared) {
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2, %3, %4, %5}], [%6];\n"
                 "cp.async.bulk.commit_group;" ::"l"(&boxes.map),
                 "r"(p.column), "r"(p.row), "r"(p.at2), "r"(p.at3), "r"(p.at4), "r"(from_shared)
                 : "memory");
}
/* The same for a box that no kernel reads before much else is written. */
__device__ inline void box_store_once(const box_map &boxes, const box_place &p,
                                      uint32_t from_shared) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group.L2::cache_hint "
                 "[%0, {%1, %2, %3, %4, %5}], [%6], %7;\n"
                 "cp.async.bulk.commit_group;" ::"l"(&boxes.map),
                 "r"(p.column), "r"(p.row), "r"(p.at2), "r"(p.at3), "r"(p.at4), "r"(from_shared),
                 "l"(policy)
                 : "memory");
}
/* Waits until the shared memory that this thread's stores read may be written again. */
__device__ inline void stores_wait() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/* Waits until this thread's stores are done, so that later ones of the block follow them. */
__device__ inline void stores_finish() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
/* The same as stores_wait but for the last store. */
__device__ inline void stores_wait_but_one() {
    asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
}

/* A warp group returns registers, or takes more, so that it has N per thread. For kernels of
 * __launch_bounds__(threads, 1) in which each group's role is a separate branch: the group that
 * only copies gives registers to the groups that compute. */
template <int N> __device__ inline void registers_give() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ inline void registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

} // namespace fm_cuda

#endif
