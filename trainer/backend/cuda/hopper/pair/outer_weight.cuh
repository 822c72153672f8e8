/* outer_weight.cuh: what the two kernels for the weight gradient of the outer product mean share:
 * bf16, c = 32, c_z = 128.
 *
 *     dW[z, (a, b)] = sum over pairs (i, j) of dz[i, j, z] / norm[i, j] * P[(i, j), (a, b)]
 *     P[(i, j), (a, b)] = sum over s of a[s, i, a] b[s, j, b]
 *
 * P is never in memory. A block makes all 128 z of 256 columns (a, b) of dW: every a, and a slice
 * of 8 channels b. The sums stay in its registers, 64 z in each of two warp groups. A step takes
 * 64 pairs:
 *
 *     1. P for eight of j times 8 b (rows) by four of i times 32 a in each group, by products
 *     2. P, rounded to bf16, goes to shared memory, where its rows are pairs (i, j) and its columns
 *        are (a, b). A lane has eight b of it, so stmatrix exchanges rows and columns.
 *     3. both groups: sums += dz^T P over the 64 pairs
 *
 * The rows of a stay in shared memory while j goes on. Warps of a third group feed the others. All
 * operands are the packed ones of outer_pack.cuh, dz / norm among them, and are copied in runs of
 * eight rows, which keep their exchanged chunks. Up to 128 sequences dz / norm is in its own order,
 * and is copied as boxes of 8 x 8 pairs.
 *
 * Blocks share the steps evenly, and the shares' sums are added in order by sums.cu. Every product
 * P is made once. */
#ifndef FM_BACKEND_CUDA_OUTER_WEIGHT_CUH
#define FM_BACKEND_CUDA_OUTER_WEIGHT_CUH

#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/hopper/pair/outer_ring.cuh"

namespace fm_cuda {

/* EIGHT: rows of an atom of a tile, channels b of a slice, and j of one group's product. P_TILES:
 * tiles of 64 pairs by 64 columns of P. */
enum {
    EIGHT = 8,
    SLICES = OUTER_C / EIGHT,
    ATOM = EIGHT * PANEL,
    P_TILES = SLICES,
    P_SIZE = P_TILES * PANEL_TILE,
    WEIGHT_COLUMNS = OUTER_C * OUTER_C
};

struct weight_args {
    const bf16 *a, *b, *dz; /* a and b in PANELS order; dz / norm by_i, or by dz_boxes */
    box_map dz_boxes;       /* 64 channels of 8 x 8 pairs */
    int tiles;              /* of 64 sequences */
    int steps_j, steps;     /* steps along j, and in all; j goes on first */
    int dz_row;             /* elements of dz's tiles of one i */
    int shares;
    float *partial; /* [shares][128 z x 1024 columns], as sums.cuh orders one tile */
};

/* The block's part: a slice of b, and the steps [first, end) of its share. */
struct weight_place {
    int slice, share, first, end;
};

__device__ inline weight_place weight_place_of(const weight_args &w) {
    weight_place p;
    p.slice = (int)blockIdx.x % SLICES, p.share = (int)blockIdx.x / SLICES;
    p.first = (int)((int64_t)w.steps * p.share / w.shares);
    p.end = (int)((int64_t)w.steps * (p.share + 1) / w.shares);
    return p;
}

/* The atom of b with the slice's channels of residue j, for the first 64 sequences. */
__device__ inline const bf16 *weight_atom_b(const weight_args &w, int slice, int j) {
    return w.b + (int64_t)(j / 2) * w.tiles * PANEL_TILE + (j % 2 * SLICES + slice) * ATOM;
}

/* The atom of dz with the j from 8 eight_j on, and channels z from 64 half on. */
__device__ inline const bf16 *weight_atom_z(const weight_args &w, int i, int eight_j, int half) {
    return w.dz + (int64_t)i * w.dz_row + (eight_j / EIGHT * X_TILES + half) * PANEL_TILE +
           eight_j % EIGHT * ATOM;
}

/* One arrival of a warp. */
__device__ inline void weight_arrive(uint64_t *barrier) {
    if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(barrier));
}

/* Puts a group's P into the tiles `to`: four i by eight j. The first i's j are rows from `row` on,
 * and the next i's are `next` rows further. */
__device__ inline void weight_put(bf16 *to, int row, int next, const float (&p)[16][4]) {
    int lane = threadIdx.x % 32;
    bf16 *tile = to + lane / 8 * PANEL_TILE;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        bf16 *at = tile + tile_at<PANEL>(row + threadIdx.x / 32 % 4 * 2 + half, lane % 8);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t x[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[k] = pack_two(p[i * 4 + k][half * 2], p[i * 4 + k][half * 2 + 1]);
            stmatrix_trans(at + i * next * PANEL, x);
        }
    }
}

/* Starts sum += dz^T P over 64 pairs; z: the tile of this group's 64 channels. */
__device__ inline void weight_add(const bf16 *z, const bf16 *p, float (&sum)[32][4]) {
    products_begin();
    uint64_t dz = tile_operand<PANEL, MN_MAJOR>(z);
    uint64_t pairs = tile_operand<PANEL, MN_MAJOR>(p, PANEL_TILE);
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma<MN_MAJOR, MN_MAJOR>(sum, operand_after(dz, k * 16 * PANEL),
                                  operand_after(pairs, k * 16 * PANEL), true);
    products_commit();
}

/* Stores the share's sums. Eight columns of an accumulator go to dW's eight columns `first`, the
 * next eight to those `step` further, and so on. */
__device__ inline void weight_store(float *partial, int share, int first, int step,
                                    const float (&sum)[32][4]) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float4 *to = (float4 *)(partial + (int64_t)share * OUTER_Z * WEIGHT_COLUMNS);
    to += (warp * (WEIGHT_COLUMNS / 8) + first) * 32 + lane;
#pragma unroll
    for (int c = 0; c < OUTER_C; c++)
        to[c * step * 32] = make_float4(sum[c][0], sum[c][1], sum[c][2], sum[c][3]);
}

/* -- calls */

/* As few shares as keep the longest share as short as all multiprocessors would. */
inline int weight_shares(int64_t steps) {
    int64_t longest = divide_up(steps, max_size(1, n_multiprocessor() / SLICES));
    return (int)divide_up(steps, longest);
}

inline size_t weight_bytes(int64_t steps) {
    return (size_t)weight_shares(steps) * OUTER_Z * WEIGHT_COLUMNS * sizeof(float);
}

/* The sums of all shares, and a place for them; `space`: weight_bytes of workspace. */
inline partial_sums weight_sums(fm_stream *stream, const fm_outer_grad *grad, int64_t steps,
                                float *space) {
    partial_sums sums = {};
    sums.stride = (int64_t)OUTER_Z * WEIGHT_COLUMNS, sums.count = weight_shares(steps);
    sums.slices = sums.count > 16 ? 4 : 1;
    sums.target[0] = {grad->dw.data, sums.stride, 0, grad->dw.beta, false};
    sums.tiles = {1, OUTER_Z, WEIGHT_COLUMNS, 0, WEIGHT_COLUMNS, false};
    sums.partial = sums_place(stream, sums, weight_bytes(steps), space);
    return sums;
}

/* Runs a kernel whose steps take side_i by side_j pairs. */
template <typename F>
void weight_run(fm_stream *stream, F kernel, int shared_bytes, int side_i, int side_j,
                const fm_outer *o, const fm_outer_grad *grad, const outer_packed &from) {
    weight_args w = {};
    w.a = from.a, w.b = from.b, w.dz = from.dz;
    if (side_i == EIGHT && side_j == EIGHT) {
        int64_t row = o->n_j * OUTER_Z, all = o->n_i * row;
        const int64_t extent[5] = {OUTER_Z, o->n_j, o->n_i, 1, 1};
        const int64_t stride[4] = {OUTER_Z, row, all, all};
        const int box[5] = {PANEL, EIGHT, EIGHT, 1, 1};
        w.dz_boxes = make_long_boxes(from.dz, extent, stride, box);
    }
    w.tiles = (int)(round_up(o->n_seq, 128) / PANEL);
    w.steps_j = (int)(o->n_j / side_j), w.steps = (int)(o->n_i / side_i) * w.steps_j;
    w.dz_row = (int)divide_up(o->n_j, PANEL) * SLOT_X;
    partial_sums sums = weight_sums(stream, grad, w.steps, from.sums);
    w.shares = sums.count, w.partial = (float *)sums.partial;
    FM_CUDA(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    launch_after(stream, kernel, (unsigned)(SLICES * w.shares), CHAIN_THREADS, (size_t)shared_bytes,
                 true, w);
    FM_LAUNCHED();
    end_sums(stream, sums);
}

} // namespace fm_cuda

#endif
