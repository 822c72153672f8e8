/* outer_end.cu: z of the outer product mean from P in memory, as the product over sequences leaves
 * it: bf16, c = 32, c_z = 128.
 *
 *     z[i, j, :] = residual + (sum over (a, b) of P[(i, a), (j, b)] W[:, (a, b)] + bias) / norm
 *
 * For one i and one channel a, P is a matrix [n_j, 32], and a box of its rows is a tile. So P is
 * read once and in its own order. A block makes 128 j of one i, 64 in each of two warp groups; a
 * step of the sum is two channels a. */
#include "trainer/backend/cuda/hopper/pair/outer_ring.cuh"

namespace fm_cuda {
namespace {

/* Elements of a slot: for each group two boxes of 64 rows, then W's rows of two a. */
enum {
    BOX = (int)PANEL * OUTER_C,
    GROUP_BOXES = 2 * BOX,
    W_ROWS = (int)X_TILES * PANEL_TILE,
    END_SLOT = 2 * GROUP_BOXES + W_ROWS,
    END_SLOTS = 6,
    END_STEPS = OUTER_C / 2
};

struct end_args {
    box_map p;
    const bf16 *w;           /* panels of (a, b) */
    z_end end;               /* norm, residual and z begin at the first residue */
    int n_j, across, places; /* blocks of 128 j; places (i, block) in all */
};

/* The producer's thread. */
__device__ inline void end_fetch(const end_args &args, bf16 *ring, const ring_barriers &barriers) {
    int n = 0;
    for (int place = (int)blockIdx.x; place < args.places; place += (int)gridDim.x) {
        int i = place / args.across, j = place % args.across * 2 * PANEL;
        for (int step = 0; step < END_STEPS; step++, n++) {
            int slot = n % END_SLOTS, turn = n / END_SLOTS;
            uint32_t full = barriers.full + slot * 8;
            bf16 *to = ring + slot * END_SLOT;
            if (turn > 0) barrier_wait(barriers.empty + slot * 8, (turn - 1) & 1);
            expect_run(full, END_SLOT);
            for (int k = 0; k < 2; k++)
                box_load(shared_address(to + k * GROUP_BOXES), args.p,
                         {j + k * PANEL, i * OUTER_C + step * 2, 0, 0}, full);
            load_run(to + 2 * GROUP_BOXES, args.w + step * W_ROWS, W_ROWS, full);
        }
    }
}

/* o = the sum of this group's 64 j. Returns the number of the next use of the ring. */
__device__ inline int end_sum(const bf16 *ring, int n, const ring_barriers &barriers,
                              float (&o)[16][4]) {
    int group = warp_group();
    for (int step = 0; step < END_STEPS; step++, n++) {
        const bf16 *slot = ring + n % END_SLOTS * END_SLOT;
        uint64_t p = tile_operand<OUTER_C, K_MAJOR>(slot + group * GROUP_BOXES);
        uint64_t w = tile_operand<PANEL, MN_MAJOR>(slot + 2 * GROUP_BOXES, PANEL_TILE);
        barrier_wait(barriers.full + n % END_SLOTS * 8, n / END_SLOTS & 1);
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma<K_MAJOR, MN_MAJOR>(o, operand_after(p, k / 2 * BOX + k % 2 * 16),
                                     operand_after(w, k * 16 * PANEL), step > 0 || k > 0);
        products_commit();
        products_wait<1>();
        if (step > 0 && threadIdx.x % 32 == 0) {
            barrier_arrive(barriers.empty + (n - 1) % END_SLOTS * 8);
        }
    }
    products_wait<0>(o);
    if (threadIdx.x % 32 == 0) barrier_arrive(barriers.empty + (n - 1) % END_SLOTS * 8);
    return n;
}

__global__ void __launch_bounds__(CHAIN_THREADS, 1) mma_end(const __grid_constant__ end_args args) {
    extern __shared__ __align__(TILE_ALIGN) char space[];
    __shared__ ring_space<END_SLOTS> barrier_space;
    __shared__ float bias[OUTER_Z];
    bf16 *ring = (bf16 *)space;
    ring_barriers barriers = ring_make(&barrier_space, CONSUMERS / 32);
    if (threadIdx.x < OUTER_Z) bias[threadIdx.x] = get(args.end.bias[threadIdx.x]);
    __syncthreads();
    wait_for_previous();
    if (threadIdx.x >= CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS) end_fetch(args, ring, barriers);
        return;
    }
    registers_take<CONSUMER_REGISTERS>();
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, n = 0;
    for (int place = (int)blockIdx.x; place < args.places; place += (int)gridDim.x) {
        float o[16][4];
        n = end_sum(ring, n, barriers, o);
        int j = place % args.across * 2 * PANEL + row;
        int64_t pair = (int64_t)(place / args.across) * args.n_j + j;
        const int64_t pairs[2] = {j < args.n_j ? pair : -1, j + 8 < args.n_j ? pair + 8 : -1};
        store_z(args.end, bias, pairs, o);
    }
}

} // namespace

void outer_end(fm_stream *stream, const fm_outer *o, const bf16 *w, const float *norm,
               int64_t first, int64_t rows, const bf16 *p) {
    int64_t wide = o->n_j * OUTER_C, before = first * o->n_j;
    const int64_t extent[5] = {OUTER_C, o->n_j, rows * OUTER_C, 1, 1};
    const int64_t stride[4] = {OUTER_C, wide, rows * OUTER_C * wide, rows * OUTER_C * wide};
    const int box[5] = {OUTER_C, PANEL, 2, 1, 1};
    end_args args = {};
    args.p = make_long_boxes(p, extent, stride, box);
    args.w = w;
    args.end = z_end_of(o, norm + before);
    args.end.z.data = (bf16 *)o->z.data + before * OUTER_Z;
    if (args.end.residual) args.end.residual += before * OUTER_Z;
    args.n_j = (int)o->n_j;
    args.across = (int)divide_up(o->n_j, 2 * PANEL), args.places = (int)rows * args.across;
    int bytes = END_SLOTS * END_SLOT * (int)sizeof(bf16);
    FM_CUDA(cudaFuncSetAttribute(mma_end, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    unsigned blocks = (unsigned)min_size(args.places, n_multiprocessor());
    launch_after(stream, mma_end, blocks, CHAIN_THREADS, (size_t)bytes, true, args);
    FM_LAUNCHED();
}

} // namespace fm_cuda
