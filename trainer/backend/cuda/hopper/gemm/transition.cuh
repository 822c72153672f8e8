/* transition.cuh: the common structure of a transition's kernels, forward and backward. Two warp
 * groups compute. The first thread of a third one fetches weights through a ring, and both
 * computing groups use every slot of it. A `space` is the kernel's shared memory, with the ring's
 * `barriers`. */
#ifndef FM_BACKEND_CUDA_TRANSITION_CUH
#define FM_BACKEND_CUDA_TRANSITION_CUH

#include "trainer/backend/cuda/hopper/core/ring.cuh"
#include "trainer/backend/cuda/hopper/core/wgmma.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

enum { RING_GROUPS = 2, RING_WARPS = 4 * RING_GROUPS };
enum { RING_THREADS = (RING_GROUPS + 1) * GROUP_THREADS };
/* A fetching thread needs few registers; the computing ones take what its group gives. */
enum { FETCH_REGISTERS = 24, MULTIPLY_REGISTERS = 240 };

/* transition_weights.cu: the weight gradients of a transition's backward, dw1 and dw2, and those of
 * the biases that have one. It reads the whole dy from g->dy. */
size_t transition_weights_workspace(const fm_transition *a, const fm_transition_grad *g);
void transition_weights(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                        void *workspace);

/* The tile of a group's turn. */
__device__ inline int tile_of(int group, int turn) {
    return (turn * (int)gridDim.x + (int)blockIdx.x) * RING_GROUPS + group;
}

/* Waits for the next PARTS slots. */
template <int PARTS, int SLOTS, typename T>
__device__ inline void take_slots(T *space, int (&slots)[PARTS], ring_place<SLOTS> &at) {
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        space->barriers.wait(at.slot, at.phase);
        slots[part] = at.slot;
        at.next();
    }
}

/* Called by every warp when it has read the slots. */
template <int PARTS, typename T>
__device__ inline void free_slots(T *space, const int (&slots)[PARTS]) {
#pragma unroll
    for (int part = 0; part < PARTS; part++)
        if (threadIdx.x % 32 == 0) space->barriers.free(slots[part]);
}

/* The start of a kernel. One thread prepares the barriers of the slots, and `others` barriers with
 * one arrival each from `first` on; the block waits for it, and then for the kernel before. */
template <typename T> __device__ inline void ring_begin(T *space, uint64_t *first, int others) {
    if (threadIdx.x == 0) {
        space->barriers.begin(RING_WARPS);
        for (int i = 0; i < others; i++)
            barrier_init(shared_address(first + i), 1);
        barriers_publish();
    }
    __syncthreads();
    wait_for_previous();
    let_next_begin();
}

/* Takes and frees the COUNT slots of each of some chunks that this group does not use. */
template <int COUNT, int SLOTS, typename T>
__device__ inline void skip_slots(T *space, int chunks, ring_place<SLOTS> &at) {
    for (int i = 0; i < COUNT * chunks; i++) {
        int slots[1];
        take_slots(space, slots, at);
        free_slots(space, slots);
    }
}

/* Reads the two columns of `b` that a lane has of every 8 accumulators. */
template <int N> __device__ inline void read_bias(uint32_t (&bias)[N], const bf16 *b) {
#pragma unroll
    for (int n = 0; n < N; n++)
        bias[n] = __ldg((const uint32_t *)(b + n * 8) + threadIdx.x % 4);
}

/* p = the bf16 of max(h + bias, 0) as the operand of the next product. */
template <int N>
__device__ inline void hidden_rows(uint32_t (&p)[N / 2][4], const float (&h)[N][4],
                                   const uint32_t (&bias)[N]) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 b = unpack_two(bias[n]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float low = h[n][2 * half] + b.x, high = h[n][2 * half + 1] + b.y;
            asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;"
                : "=r"(p[n / 2][n % 2 * 2 + half])
                : "f"(high), "f"(low));
        }
    }
}

/* p = the bf16 of d where p is above 0, else 0. */
__device__ inline void mask_rows(uint32_t (&p)[4][4], const float (&d)[8][4]) {
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = d[2 * k + i / 2] + i % 2 * 2;
            __nv_bfloat162 above = *(const __nv_bfloat162 *)&p[k][i];
            p[k][i] = pack_two(pair[0], pair[1]) & __hgt2_mask(above, __float2bfloat162_rn(0));
        }
}

/* Divides the rows among the blocks of a launch: sets the call's tiles, its turns, and the chunk
 * with which the second group begins a tile. The call has its chunks. Returns the blocks. */
template <typename T> int64_t plan_turns(T *call, int64_t rows) {
    call->tiles = (int)divide_up(rows, GROUP_ROWS);
    int64_t blocks = min_size(n_multiprocessor(), divide_up(call->tiles, RING_GROUPS));
    call->turns = (int)divide_up(call->tiles, RING_GROUPS * blocks);
    call->offset = call->turns > 2 ? call->chunks / 2 : 0;
    return blocks;
}

/* Boxes of 64 columns of a matrix without gaps. */
inline box_map rows_boxes(const void *base, int64_t columns, int64_t rows, int rows_of_box) {
    const int64_t extent[5] = {columns, rows, 1, 1, 1}, stride[4] = {columns, 0, 0, 0};
    return make_boxes(base, extent, stride, 64, rows_of_box);
}

} // namespace fm_cuda

#endif
