/* outer_panels.cuh: writes a piece of the outer products P, or of the gradient of P, of the outer
 * product mean: the kernel mma_panels.
 *
 *     P           tile of a = two i, rows (i, a)         q = j
 *                 to[i, j, a, b] = sum_s a[s, i, a] b[s, j, b] / (norm[i, j] + eps)
 *     gradient    tile of a = (i, 64 of j), rows j       q = a
 *                 to[i, a, j, b] = sum_z dz[i, j, z] W[z, (a, b)]
 *
 * Each is a product of 64-row tiles of a left operand (`a`) with groups of 32 Q rows of a right
 * one (`b`). A block keeps its 32 Q rows of b in shared memory for the whole launch. Its two warp
 * groups take turns at the tiles of a, which arrive through a ring, 128 columns of the sum at a
 * time. */
#ifndef FM_BACKEND_CUDA_OUTER_PANELS_CUH
#define FM_BACKEND_CUDA_OUTER_PANELS_CUH

#include "trainer/backend/cuda/hopper/pair/outer_ring.cuh"

namespace fm_cuda {

/* The argument of a launch. The sum runs over `steps` times 128 columns of both operands. */
struct panels_args {
    const bf16 *a, *b;
    const float *norm; /* [n_i, n_j] without eps; P only */
    float eps;
    int n_i, n_j, first_i; /* first_i: the first residue of `to` */
    int first_tile, tiles; /* of a: the launch's tiles */
    int groups, panels;    /* of b: groups of 32 Q rows, panels of 64 rows in all */
    int steps, splits;     /* splits: blocks that share the tiles of a for one group */
    bf16 *to;
};

/* Each of the two warp groups has separate slots, because a group only sees the uses of its own
 * tiles (outer_ring.cuh). */
enum { PANELS_GROUPS = 2, GROUP_SLOTS = 3, PANELS_SLOTS = 6 };

/* Bytes of shared memory. Q = 8 has room for two steps, Q = 4 for four. */
template <int Q> constexpr int panels_bytes(int steps) {
    return (Q / 2 * steps + PANELS_SLOTS) * SLOT_X * (int)sizeof(bf16);
}

/* The producer's thread: the block's rows of b once, then the tiles of a, for the groups
 * alternately. */
template <int Q>
__device__ inline void panels_produce(const panels_args &p, int group, int first, int end, bf16 *b,
                                      bf16 *ring, const ring_barriers &barriers) {
    int n_panel = (int)min_size(Q / 2, p.panels - group * (Q / 2)), tiles = p.steps * X_TILES;
    expect_run(barriers.ready, n_panel * tiles * PANEL_TILE);
    for (int panel = 0; panel < n_panel; panel++) {
        const bf16 *from = p.b + ((int64_t)group * (Q / 2) + panel) * tiles * PANEL_TILE;
        for (int k = 0; k < tiles; k++)
            load_run(b + (k * (Q / 2) + panel) * PANEL_TILE, from + k * PANEL_TILE, PANEL_TILE,
                     barriers.ready);
    }
    int uses = (int)divide_up(end - first, PANELS_GROUPS) * p.steps; /* of one group's slots */
    for (int n = 0; n < uses; n++) {
        for (int at = 0; at < PANELS_GROUPS; at++) {
            int tile = first + n / p.steps * PANELS_GROUPS + at, turn = n / GROUP_SLOTS;
            if (tile == end) break;
            int slot = at * GROUP_SLOTS + n % GROUP_SLOTS;
            if (turn > 0) barrier_wait(barriers.empty + slot * 8, (turn - 1) & 1);
            expect_run(barriers.full + slot * 8, SLOT_X);
            load_run(ring + slot * SLOT_X, p.a + ((int64_t)tile * p.steps + n % p.steps) * SLOT_X,
                     SLOT_X, barriers.full + slot * 8);
        }
    }
}

/* Stores columns 32 q to 32 q + 31 of an accumulator's rows g and g + 8, times a factor, 16 bytes
 * per lane. */
template <int N>
__device__ inline void panels_put(bf16 *to_row, int64_t eight_rows, const bool is_inside[2],
                                  float factor, const float (&d)[N][4], int q) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t x[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            x[k] = pack_two(d[q * 4 + k][half * 2] * factor, d[q * 4 + k][half * 2 + 1] * factor);
        transpose_four(x);
        if (is_inside[half]) {
            *(uint4 *)(to_row + half * eight_rows) = make_uint4(x[0], x[1], x[2], x[3]);
        }
    }
}

/* Stores a tile's product at its places in `to`. */
template <bool GRADIENT, int Q>
__device__ inline void panels_store(const panels_args &p, int tile, int group,
                                    const float (&d)[Q * 4][4]) {
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    if (GRADIENT) {
        int blocks = (p.n_j + PANEL - 1) / PANEL, i = tile / blocks;
        int j = tile % blocks * PANEL + row;
        const bool is_inside[2] = {j < p.n_j, j + 8 < p.n_j};
        int64_t channel = (int64_t)(i - p.first_i) * OUTER_C + group * Q;
#pragma unroll
        for (int q = 0; q < Q; q++)
            panels_put(p.to + ((channel + q) * p.n_j + j) * OUTER_C + lane % 4 * 8, 8 * OUTER_C,
                       is_inside, 1, d, q);
        return;
    }
    int i = tile * 2 + row / OUTER_C;
#pragma unroll
    for (int q = 0; q < Q; q++) {
        int j = group * Q + q;
        const bool inside = i < p.n_i && j < p.n_j, is_inside[2] = {inside, inside};
        float factor = inside ? 1.0f / (p.norm[(int64_t)i * p.n_j + j] + p.eps) : 0;
        int64_t block = (int64_t)(i - p.first_i) * p.n_j + j;
        panels_put(p.to + (block * OUTER_C + row % OUTER_C) * OUTER_C + lane % 4 * 8, 8 * OUTER_C,
                   is_inside, factor, d, q);
    }
}

/* d = a tile of a, which begins at use n of this group's slots, times the block's rows of b. */
template <int Q>
__device__ inline void panels_multiply(const bf16 *ring, const bf16 *b, int n, int steps,
                                       const ring_barriers &barriers, float (&d)[Q * 4][4]) {
    int first_slot = warp_group() * GROUP_SLOTS, slot = 0;
    uint64_t beside = tile_operand<PANEL, K_MAJOR>(b);
    for (int k = 0; k < steps; k++, n++) {
        int before = slot;
        slot = first_slot + n % GROUP_SLOTS;
        uint64_t a = tile_operand<PANEL, K_MAJOR>(ring + slot * SLOT_X);
        barrier_wait(barriers.full + slot * 8, n / GROUP_SLOTS & 1);
        products_begin();
#pragma unroll
        for (int step = 0; step < 8; step++) {
            int inside = step % 4 * 16, tile = step / 4;
            int rows = (k * X_TILES + tile) * (Q / 2) * PANEL_TILE;
            wgmma<K_MAJOR, K_MAJOR>(d, operand_after(a, tile * PANEL_TILE + inside),
                                    operand_after(beside, rows + inside), k > 0 || step > 0);
        }
        products_commit();
        products_wait<1>();
        if (k > 0 && threadIdx.x % 32 == 0) barrier_arrive(barriers.empty + before * 8);
    }
    products_wait<0>(d);
    if (threadIdx.x % 32 == 0) barrier_arrive(barriers.empty + slot * 8);
}

template <bool GRADIENT, int Q>
__global__ void __launch_bounds__(CHAIN_THREADS, 1)
    mma_panels(const __grid_constant__ panels_args p) {
    extern __shared__ __align__(TILE_ALIGN) char space[];
    __shared__ ring_space<PANELS_SLOTS> barrier_space;
    ring_barriers barriers = ring_make(&barrier_space, GROUP_THREADS / 32);
    bf16 *ring = (bf16 *)space, *b = ring + PANELS_SLOTS * SLOT_X;
    int split = (int)blockIdx.x % p.splits, group = (int)blockIdx.x / p.splits;
    int first = p.first_tile + (int)((int64_t)p.tiles * split / p.splits);
    int end = p.first_tile + (int)((int64_t)p.tiles * (split + 1) / p.splits);
    __syncthreads();
    wait_for_previous();
    if (threadIdx.x >= CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS) panels_produce<Q>(p, group, first, end, b, ring, barriers);
        return;
    }
    registers_take<CONSUMER_REGISTERS>();
    barrier_wait(barriers.ready, 0);
    int tile = first + threadIdx.x / GROUP_THREADS;
    for (int n = 0; tile < end; n += p.steps, tile += PANELS_GROUPS) {
        float d[Q * 4][4];
        panels_multiply<Q>(ring, b, n, p.steps, barriers, d);
        panels_store<GRADIENT, Q>(p, tile, group, d);
    }
}

/* Into how many splits the tiles of a go: the number for which all rounds of blocks take least
 * time. A block takes as long as its tiles and about three more to begin and end. */
static int panels_splits(int groups, int tiles) {
    int best = 1;
    int64_t best_cost = INT64_MAX;
    for (int splits = 1; splits <= (tiles + 1) / 2 && splits <= n_multiprocessor(); splits++) {
        int64_t rounds = divide_up(groups * splits, n_multiprocessor());
        int64_t cost = rounds * (divide_up(tiles, splits) + 3);
        if (cost < best_cost) best = splits, best_cost = cost;
    }
    return best;
}

template <bool GRADIENT, int Q> static void panels_run(fm_stream *stream, panels_args *p) {
    p->groups = (int)divide_up(p->panels, Q / 2);
    p->splits = panels_splits(p->groups, p->tiles);
    int bytes = panels_bytes<Q>(p->steps);
    FM_CUDA(cudaFuncSetAttribute(mma_panels<GRADIENT, Q>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    launch_after(stream, mma_panels<GRADIENT, Q>, (unsigned)(p->groups * p->splits), CHAIN_THREADS,
                 (size_t)bytes, true, *p);
    FM_LAUNCHED();
}

} // namespace fm_cuda

#endif
