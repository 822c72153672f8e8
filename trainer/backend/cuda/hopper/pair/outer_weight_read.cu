/* outer_weight_read.cu: the weight gradient of the outer product mean for more than 512 sequences:
 * bf16, c = 32, c_z = 128. It reads the outer products P as the product over sequences leaves
 * them, [(i, a), (j, b)].
 *
 *     dW[z, (a, b)] = sum over pairs (i, j) of dz[i, j, z] / norm[i, j] * P[(i, a), (j, b)]
 *
 * For one i and one channel a, P is a matrix [n_j, 32]. A box of its rows is a tile of the right
 * operand, whose rows are summed over, so no kernel has to reorder P. As in outer_weight.cuh, a
 * block makes all 128 z of 256 columns of dW, here those of 8 channels a, and blocks share the
 * steps. A step is 64 j of one i. */
#include "trainer/backend/cuda/hopper/pair/outer_weight.cuh"

namespace fm_cuda {
namespace {

/* Elements of a slot: eight boxes of 64 j by 32 b, then dz of the 64 j. Four slots fill shared
 * memory. */
enum {
    BOX = (int)PANEL * OUTER_C,
    P_BOXES = EIGHT * BOX,
    READ_SLOT = P_BOXES + SLOT_X,
    READ_SLOTS = 4,
    READ_BYTES = READ_SLOTS * READ_SLOT * 2
};

struct read_args {
    box_map p, dz;
    int across, steps, shares; /* across: steps along j */
    float *partial;
};

/* The producer's thread. */
__device__ inline void read_fetch(const read_args &r, int slice, int first, int end, bf16 *ring,
                                  const ring_barriers &barriers) {
    for (int step = first, n = 0; step < end; step++, n++) {
        int slot = n % READ_SLOTS, turn = n / READ_SLOTS;
        int i = step / r.across, j = step % r.across * PANEL;
        uint32_t full = barriers.full + slot * 8, to = shared_address(ring + slot * READ_SLOT);
        if (turn > 0) barrier_wait(barriers.empty + slot * 8, (turn - 1) & 1);
        expect_run(full, READ_SLOT);
        box_load(to, r.p, {j, i * OUTER_C + slice * EIGHT, 0, 0}, full);
        for (int k = 0; k < X_TILES; k++)
            box_load(to + (P_BOXES + k * PANEL_TILE) * 2, r.dz, {j, i, 0, 0, k * PANEL}, full);
    }
}

/* sum = the share's sum for this group's 64 z. */
__device__ inline void read_sum(int count, const bf16 *ring, const ring_barriers &barriers,
                                float (&sum)[32][4]) {
    int to_z = P_BOXES + warp_group() * PANEL_TILE;
    for (int n = 0; n < count; n++) {
        const bf16 *slot = ring + n % READ_SLOTS * READ_SLOT;
        uint64_t p = tile_operand<OUTER_C, MN_MAJOR>(slot, BOX);
        uint64_t z = tile_operand<PANEL, MN_MAJOR>(slot + to_z);
        barrier_wait(barriers.full + n % READ_SLOTS * 8, n / READ_SLOTS & 1);
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma<MN_MAJOR, MN_MAJOR>(sum, operand_after(z, k * 16 * PANEL),
                                      operand_after(p, k * 16 * OUTER_C), n > 0 || k > 0);
        products_commit();
        products_wait<1>();
        if (n > 0 && threadIdx.x % 32 == 0) {
            barrier_arrive(barriers.empty + (n - 1) % READ_SLOTS * 8);
        }
    }
    products_wait<0>(sum);
}

__global__ void __launch_bounds__(CHAIN_THREADS, 1)
    mma_weight_read(const __grid_constant__ read_args r) {
    extern __shared__ __align__(TILE_ALIGN) char space[];
    __shared__ ring_space<READ_SLOTS> barrier_space;
    bf16 *ring = (bf16 *)space;
    ring_barriers barriers = ring_make(&barrier_space, CONSUMERS / 32);
    int slice = (int)blockIdx.x % SLICES, share = (int)blockIdx.x / SLICES;
    int first = (int)((int64_t)r.steps * share / r.shares);
    int end = (int)((int64_t)r.steps * (share + 1) / r.shares);
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    if (threadIdx.x >= CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS) read_fetch(r, slice, first, end, ring, barriers);
        return;
    }
    registers_take<CONSUMER_REGISTERS>();
    float sum[32][4];
    read_sum(end - first, ring, barriers, sum);
    weight_store(r.partial, share, slice * OUTER_C, 1, sum);
}

int64_t read_steps(const fm_outer *o, int64_t rows) {
    return rows * divide_up(o->n_j, PANEL);
}

} // namespace

size_t outer_weight_read_bytes(const fm_outer *o, int64_t rows) {
    return weight_bytes(read_steps(o, rows));
}

void outer_weight_read(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                       int64_t rows, const bf16 *p, const bf16 *dz, float *space) {
    int64_t wide = o->n_j * OUTER_C, row = o->n_j * OUTER_Z;
    const int64_t p_extent[5] = {OUTER_C, o->n_j, rows * OUTER_C, 1, 1};
    const int64_t p_stride[4] = {OUTER_C, wide, rows * OUTER_C * wide, rows * OUTER_C * wide};
    const int p_box[5] = {OUTER_C, PANEL, EIGHT, 1, 1};
    const int64_t dz_extent[5] = {OUTER_Z, o->n_j, rows, 1, 1};
    const int64_t dz_stride[4] = {OUTER_Z, row, rows * row, rows * row};
    const int dz_box[5] = {PANEL, PANEL, 1, 1, 1};
    read_args r = {};
    r.p = make_long_boxes(p, p_extent, p_stride, p_box);
    r.dz = make_long_boxes(dz, dz_extent, dz_stride, dz_box);
    r.across = (int)divide_up(o->n_j, PANEL), r.steps = (int)read_steps(o, rows);
    partial_sums sums = weight_sums(stream, grad, r.steps, space);
    r.shares = sums.count, r.partial = (float *)sums.partial;
    FM_CUDA(cudaFuncSetAttribute(mma_weight_read, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 READ_BYTES));
    launch_after(stream, mma_weight_read, (unsigned)(SLICES * r.shares), CHAIN_THREADS, READ_BYTES,
                 true, r);
    FM_LAUNCHED();
    end_sums(stream, sums);
}

} // namespace fm_cuda
