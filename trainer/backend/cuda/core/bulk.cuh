/* bulk.cuh: the copy engine of compute capability 9.0: boxes of strided tensors and runs of bytes
 * to shared memory, boxes back, and the barriers in shared memory that tell of their arrival.
 *
 * One thread says how many bytes a barrier expects (barrier_expect, which also arrives) and starts
 * the copies; who needs them waits for the barrier's phase: parity 0 first, then 1, then 0. A box
 * lies in shared memory as a tile of mma.cuh, rows from a multiple of 8 rows; what is outside of
 * the tensor is read as zeros, counted like the rest, and not written. What threads wrote to a tile
 * is stored after tiles_publish (wgmma.cuh) in each of them and a barrier. */
#ifndef FM_BACKEND_CUDA_BULK_CUH
#define FM_BACKEND_CUDA_BULK_CUH

#include "trainer/backend/cuda/core/mma.cuh"

#include <cuda.h>

namespace fm_cuda {

/* A tensor [4th, 3rd, 2nd, row, channel] and the box of rows by channels that is copied of it at a
 * time. To be a kernel's argument: `const __grid_constant__`. */
struct box_map {
    CUtensorMap map;
};

/* Boxes of `rows` rows by `c` channels (8, 16, 32, 64: the tile's width) of a tensor of
 * extent[0] channels, extent[1] rows, and three outer axes; stride[i], in elements, is the distance
 * along axis i + 1. Base and strides are multiples of 16 bytes. Host. */
box_map make_boxes(const void *base, const int64_t extent[5], const int64_t stride[4], int c,
                   int rows);

__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}
/* After the inits, before the block's barrier. */
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

/* The first element of a box; counted, not in bytes. */
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

/* 16-byte aligned, a multiple of 16 bytes. */
__device__ inline void bulk_load(uint32_t to_shared, const void *from, uint32_t bytes,
                                 uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(to_shared),
                 "l"(from), "r"(bytes), "r"(barrier)
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
/* Until shared memory of this thread's stores may be written again. */
__device__ inline void stores_wait() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* A warp group gives registers back, or takes them, down or up to N a thread: where a kernel of
 * __launch_bounds__(threads, 1) has each group's role in one branch. */
template <int N> __device__ inline void registers_give() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ inline void registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* Launches that overlap. A kernel that says let_next_begin allows the next one in the stream to
 * start when all its blocks have said so or ended, if that one is launched by launch_after with
 * `early`. Before it reads what the kernel writes, it waits by wait_for_previous; what is older is
 * there. */
__device__ inline void let_next_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ inline void wait_for_previous() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

template <typename F, typename A>
inline void launch_after(fm_stream *stream, F kernel, unsigned blocks, unsigned threads,
                         size_t shared_bytes, bool early, const A &argument) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = early;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks), config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes, config.stream = queue(stream);
    config.attrs = &attribute, config.numAttrs = 1;
    FM_CUDA(cudaLaunchKernelEx(&config, kernel, argument));
}

} // namespace fm_cuda

#endif
