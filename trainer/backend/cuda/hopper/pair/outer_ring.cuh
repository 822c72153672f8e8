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

#include "trainer/backend/cuda/hopper/core/bulk.cuh"
#include "trainer/backend/cuda/hopper/core/wgmma.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"
#include "trainer/backend/cuda/hopper/pair/outer_pack.cuh"

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

/* The number of the warp's group. The compiler knows that all lanes have the same, and then makes
 * operands' descriptors of it in uniform registers, by one addition for each product. */
__device__ inline int warp_group(void) {
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP_THREADS, 0);
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

/* -- the end of forward */

/* What the end of z reads. */
struct z_end {
    const float *norm; /* [n_i, n_j] without eps */
    float eps;
    const bf16 *bias, *residual;
    fm_out z;
};

inline z_end z_end_of(const fm_outer *o, const float *norm) {
    return {norm, (float)o->eps, (const bf16 *)o->bias, (const bf16 *)o->residual, o->z};
}

/* Stores z of the pairs of an accumulator's rows g and g + 8 (-1: none), 16 bytes per lane: adds
 * bias, divides by the norm, adds the residual or the old z. */
__device__ inline void store_z(const z_end &end, const float *bias, const int64_t pairs[2],
                               const float (&o)[16][4]) {
    int t = threadIdx.x % 4;
    const bf16 *old = end.residual;
    if (end.z.beta == FM_ADD) old = (const bf16 *)end.z.data;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        bool is_inside = pairs[half] >= 0;
        int64_t pair = is_inside ? pairs[half] : 0;
        float factor = 1.0f / (end.norm[pair] + end.eps);
        uint4 line[4] = {};
#pragma unroll
        for (int q = 0; q < 4; q++)
            if (old && is_inside) line[q] = *(const uint4 *)(old + pair * OUTER_Z + q * 32 + t * 8);
#pragma unroll
        for (int q = 0; q < 4; q++) {
            uint32_t x[4] = {line[q].x, line[q].y, line[q].z, line[q].w};
            if (old) transpose_four(x);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                int n = q * 4 + k;
                float2 before = unpack_two(x[k]), b = *(const float2 *)(bias + n * 8 + t * 2);
                x[k] = pack_two(before.x + (o[n][half * 2] + b.x) * factor,
                                before.y + (o[n][half * 2 + 1] + b.y) * factor);
            }
            transpose_four(x);
            if (is_inside) {
                *(uint4 *)((bf16 *)end.z.data + pair * OUTER_Z + q * 32 + t * 8) =
                    make_uint4(x[0], x[1], x[2], x[3]);
            }
        }
    }
}

} // namespace fm_cuda

#endif
