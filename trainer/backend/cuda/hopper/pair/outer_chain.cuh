/* outer_chain.cuh: the kernel of the outer product mean's chain of two products (outer_wgmma.cu).
 *
 * A place is 64 rows by four m of one of the sums, and the work of the two computing groups at a
 * time. A block takes one place, or several in turn. The producer's thread is ahead of the groups
 * by what the ring holds, across places, too. So copies for the next place are on their way while
 * the groups end one.
 *
 * Forward, z of a place is 64 x 4 pairs, 64 KB. Where shared memory has room, a warp copies the old
 * z there while the products are made. The groups add their update in place, and the same warp
 * copies it out. A thread writes the words that it reads, so that this needs no exchange. Then each
 * multiprocessor has one block, which takes places in turn. */
#ifndef FM_BACKEND_CUDA_OUTER_CHAIN_CUH
#define FM_BACKEND_CUDA_OUTER_CHAIN_CUH

#include "trainer/backend/cuda/hopper/pair/outer_ring.cuh"

namespace fm_cuda {

/* A slot holds 64 x 128 of X and, with the last of an l, its V, 32 x 128. CHAIN_RUN: the slots'
 * columns of Y that shared memory holds. Z_STEPS: with how many of them z of a place is there, too.
 * Z_ROW: elements of z's 64 rows, four m and 16 bytes, so that eight rows have separate banks. */
enum {
    SLOT = SLOT_X + OUTER_C * OUTER_Z,
    SLOTS = 4,
    CHAIN_RUN = 4,
    Z_STEPS = 2,
    Z_ROW = 4 * OUTER_Z + 8
};

/* One sum: which operands, and how blocks share it. */
struct chain_problem {
    const bf16 *x, *y, *v;   /* X [l][row tile][steps * 2 tiles], Y and V in PANELS order */
    box_map x_boxes;         /* backward, in place of x: 64 rows of 64 columns of an l */
    int n_l, row_tiles, n_m; /* n_m: values of m that are stored */
    int m_groups, v_parts;   /* groups of four m; parts of 128 columns of V */
    int splits;              /* of l */
    int v_tiles;             /* tiles across a panel of V */
    float *partial;          /* backward: [split][n_m][row_tiles * 64][v_parts * 128] */
    /* forward: the blocks from this one on are parts of the last places, which share their l */
    int whole, parts;
};

/* The argument of a launch: one problem forward, two (da and db) backward. */
struct chain_args {
    chain_problem at[2];
    int first_blocks, blocks; /* places (or parts of them) of at[0], and in all */
    int steps;                /* columns of X / 128 */
    int run_steps;            /* of these, how many of Y are in shared memory at a time */
    /* forward only: */
    z_end end;
    int n_i, n_j;
    bool keeps_z; /* z of a place is in shared memory */
};

/* The block's part of a problem. */
struct chain_place {
    int row_tile, m_group, part, first, end; /* l in [first, end) */
    int split;
};

__device__ inline chain_place chain_place_of(const chain_problem &p, int block) {
    chain_place at;
    int part = 0, parts = p.splits;
    if (block >= p.whole) {
        part = (block - p.whole) % p.parts, parts = p.parts;
        block = p.whole + (block - p.whole) / p.parts;
    }
    at.row_tile = block % p.row_tiles, block /= p.row_tiles;
    at.m_group = block % p.m_groups, block /= p.m_groups;
    at.part = block % p.v_parts, at.split = block / p.v_parts + part;
    at.first = (int)((int64_t)p.n_l * at.split / parts);
    at.end = (int)((int64_t)p.n_l * (at.split + 1) / parts);
    return at;
}

/* A place and its problem. `block`: the number of the place among all. */
struct chain_task {
    const chain_problem *problem;
    chain_place at;
};
__device__ inline chain_task chain_task_of(const chain_args &args, int block) {
    bool is_first = block < args.first_blocks;
    const chain_problem *p = &args.at[is_first ? 0 : 1];
    return {p, chain_place_of(*p, is_first ? block : block - args.first_blocks)};
}

struct chain_shared {
    bf16 *ring, *y, *z;
    ring_barriers barriers;
    uint32_t z_ready, z_made; /* barriers: the old z is there; the new one is */
};

/* The columns of X and Y that are summed at a time: `count` slots from slot `first` on. */
struct chain_run {
    int first, count, number; /* number: among all runs of the block */
};
__device__ inline chain_run chain_run_of(const chain_args &args, int first, int number) {
    int left = args.steps - first;
    return {first, left < args.run_steps ? left : args.run_steps, number};
}

/* Starts copying a slot's X. */
template <bool FORWARD>
__device__ inline void chain_load_x(const chain_problem &p, const chain_place &at, int l,
                                    const bf16 *x, bf16 *to_slot, uint32_t full) {
    if constexpr (FORWARD) {
        load_run(to_slot, x, SLOT_X, full);
    } else {
        for (int k = 0; k < X_TILES; k++)
            box_load(shared_address(to_slot + k * PANEL_TILE), p.x_boxes,
                     {at.row_tile * PANEL, l, 0, 0, k * PANEL}, full);
    }
}

/* The producer's thread: Y of a run once, when the run before it is read, then X and V of every
 * step into the slots in turn. Returns the number of the next use of the ring. */
template <bool FORWARD>
__device__ inline unsigned chain_produce(const chain_problem &p, const chain_place &at, int steps,
                                         const chain_run &run, const chain_shared &s, unsigned n) {
    const ring_barriers &b = s.barriers;
    int panel = steps * SLOT_X, part = run.count * SLOT_X;
    if (run.number > 0) barrier_wait(b.read, (run.number - 1) & 1);
    expect_run(b.ready, 2 * part);
    for (int k = 0; k < 2; k++)
        load_run(s.y + k * part, p.y + ((int64_t)at.m_group * 2 + k) * panel + run.first * SLOT_X,
                 part, b.ready);
    for (int l = at.first; l < at.end; l++) {
        const bf16 *x = p.x + ((int64_t)l * p.row_tiles + at.row_tile) * panel + run.first * SLOT_X;
        const bf16 *v = p.v + ((int64_t)(l / 2) * p.v_tiles + at.part * 2) * PANEL_TILE +
                        l % 2 * (PANEL_TILE / 2);
        for (int k = 0; k < run.count; k++, n++) {
            unsigned slot = n % SLOTS, turn = n / SLOTS;
            bool is_last = k == run.count - 1;
            uint32_t full = b.full + slot * 8;
            bf16 *to_slot = s.ring + slot * SLOT;
            if (turn > 0) barrier_wait(b.empty + slot * 8, (turn - 1) & 1);
            expect_run(full, is_last ? SLOT : SLOT_X);
            chain_load_x<FORWARD>(p, at, l, x + k * SLOT_X, to_slot, full);
            if (!is_last) continue;
            load_run(to_slot + SLOT_X, v, PANEL_TILE / 2, full);
            load_run(to_slot + SLOT_X + PANEL_TILE / 2, v + PANEL_TILE, PANEL_TILE / 2, full);
        }
    }
    return n;
}

/* Adds a run to o, the sums of this warp group's two m. t, the first product, holds both, 32
 * columns each. Returns the number of the next use of the ring. */
__device__ inline unsigned chain_consume(const chain_place &at, const chain_run &run,
                                         const chain_shared &s, unsigned n, float (&o)[2][16][4]) {
    uint64_t y = tile_operand<PANEL, K_MAJOR>(s.y + warp_group() * run.count * SLOT_X);
    uint64_t ring_x = tile_operand<PANEL, K_MAJOR>(s.ring);
    uint64_t ring_v = tile_operand<PANEL, MN_MAJOR>(s.ring + SLOT_X, PANEL_TILE / 2);
    uint32_t rows[4][4];
    float t[8][4];
    barrier_wait(s.barriers.ready, run.number & 1);
    for (int l = at.first; l < at.end; l++) {
        for (int k = 0; k < run.count; k++, n++) {
            uint64_t x = operand_after(ring_x, (int)(n % SLOTS) * SLOT);
            uint64_t beside = operand_after(y, k * SLOT_X);
            barrier_wait(s.barriers.full + n % SLOTS * 8, n / SLOTS & 1);
            products_begin();
#pragma unroll
            for (int step = 0; step < 8; step++) {
                int to_step = step / 4 * PANEL_TILE + step % 4 * 16;
                wgmma<K_MAJOR, K_MAJOR>(t, operand_after(x, to_step),
                                        operand_after(beside, to_step), k > 0 || step > 0);
            }
            products_commit();
            products_wait<1>(); /* the products of the slot before are done */
            if (n > 0 && threadIdx.x % 32 == 0) {
                barrier_arrive(s.barriers.empty + (n - 1) % SLOTS * 8);
            }
        }
        products_wait<0>(t);
#pragma unroll
        for (int k = 0; k < 4; k++)
            accumulator_rows(rows[k], t, k);
        uint64_t v = operand_after(ring_v, (int)((n - 1) % SLOTS) * SLOT);
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma<MN_MAJOR>(o[k / 2], rows[k], operand_after(v, k % 2 * 16 * PANEL), true);
        products_commit();
    }
    products_wait<0>(o[0]);
    products_pin(o[1]);
    if (threadIdx.x % 32 == 0) barrier_arrive(s.barriers.read);
    return n;
}

/* The old z of an update, or NULL. */
__device__ inline const bf16 *chain_old_z(const z_end &end) {
    return end.z.beta == FM_ADD ? (const bf16 *)end.z.data : end.residual;
}

/* The warp that brings the old z of every place while its products are made, and stores the new. */
__device__ inline void chain_move_z(const chain_args &args, const chain_shared &s) {
    const bf16 *old = chain_old_z(args.end);
    int lane = threadIdx.x % 32;
    for (int block = (int)blockIdx.x, turn = 0; block < args.at[0].whole && block < args.blocks;
         block += (int)gridDim.x, turn++) {
        chain_place at = chain_place_of(args.at[0], block);
        int first = at.row_tile * PANEL, m = at.m_group * 4;
        int rows = min((int)PANEL, args.n_i - first), length = min(4, args.n_j - m) * OUTER_Z;
        int64_t z = ((int64_t)first * args.n_j + m) * OUTER_Z, next = (int64_t)args.n_j * OUTER_Z;
        if (lane == 0) expect_run(s.z_ready, old ? rows * length : 0);
        __syncwarp();
        for (int row = lane; old && row < rows; row += 32)
            load_run(s.z + row * Z_ROW, old + z + row * next, length, s.z_ready);
        barrier_wait(s.z_made, turn & 1);
        for (int row = lane; row < rows; row += 32)
            bulk_store((bf16 *)args.end.z.data + z + row * next, shared_address(s.z + row * Z_ROW),
                       (uint32_t)length * 2);
        stores_wait();
        __syncwarp();
    }
}

/* One over the norm of a lane's two rows and two m. */
__device__ inline void chain_factors(const chain_args &args, int row, int m,
                                     float (&factor)[2][2]) {
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int i = min(row + half * 8, args.n_i - 1), j = min(m + k, args.n_j - 1);
            factor[k][half] = 1.0f / (args.end.norm[(int64_t)i * args.n_j + j] + args.end.eps);
        }
}

/* Makes z of a lane's rows of one m in its place in shared memory. */
__device__ inline void chain_make_z(bf16 *z, bool has_old, const float *bias,
                                    const float (&factor)[2], const float (&o)[16][4]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 16; n++) {
        float2 b = *(const float2 *)(bias + n * 8 + t * 2);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t *at = (uint32_t *)(z + half * 8 * Z_ROW + n * 8 + t * 2);
            float2 before = unpack_two(has_old ? *at : 0);
            *at = pack_two(before.x + (o[n][half * 2] + b.x) * factor[half],
                           before.y + (o[n][half * 2 + 1] + b.y) * factor[half]);
        }
    }
}

/* Stores z[i, j, :] of a warp's 16 rows i. */
__device__ inline void chain_store_z(const chain_args &args, const float *bias, int row, int j,
                                     const float (&o)[16][4]) {
    int64_t pair[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int i = row + half * 8;
        pair[half] = i < args.n_i && j < args.n_j ? (int64_t)i * args.n_j + j : -1;
    }
    store_z(args.end, bias, pair, o);
}

/* Stores a split's sum for outer_unpack_all. */
__device__ inline void chain_store_partial(const chain_problem &p, const chain_place &at, int row,
                                           int m, const float (&o)[16][4]) {
    if (m >= p.n_m) return;
    int64_t columns = (int64_t)p.v_parts * 128;
    float *to_row = p.partial +
                    (((int64_t)at.split * p.n_m + m) * p.row_tiles * PANEL + row) * columns +
                    at.part * 128 + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < 16; n++) {
        *(float2 *)(to_row + n * 8) = make_float2(o[n][0], o[n][1]);
        *(float2 *)(to_row + 8 * columns + n * 8) = make_float2(o[n][2], o[n][3]);
    }
}

/* Where a warp's lane keeps the sums of one m of a part, for chain_end. */
enum { END_WARPS = CONSUMERS / 32, END_SIZE = 16 * 32, PART_SIZE = END_WARPS * 2 * END_SIZE };
__device__ inline float4 *chain_end_at(const chain_problem &p, int part, int warp, int k) {
    return (float4 *)p.partial + (int64_t)part * PART_SIZE + (warp * 2 + k) * END_SIZE +
           threadIdx.x % 32;
}

/* Stores the sums of one of the computing groups' warps, or z of them. */
template <bool FORWARD>
__device__ inline void chain_end_place(const chain_args &args, const chain_problem &p,
                                       const chain_place &at, int block, const float *bias,
                                       const float (&o)[2][16][4]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = at.row_tile * PANEL + warp % 4 * 16 + lane / 4, m = at.m_group * 4 + warp / 4 * 2;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        if (FORWARD && block >= p.whole) {
            float4 *to = chain_end_at(p, block - p.whole, warp, k);
#pragma unroll
            for (int n = 0; n < 16; n++)
                to[n * 32] = make_float4(o[k][n][0], o[k][n][1], o[k][n][2], o[k][n][3]);
        } else if (FORWARD) {
            chain_store_z(args, bias, row, m + k, o[k]);
        } else {
            chain_store_partial(p, at, row, m + k, o[k]);
        }
    }
}

/* A computing group's part of every place. */
template <bool FORWARD>
__device__ inline void chain_compute(const chain_args &args, const chain_shared &s,
                                     const float *bias) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int number = 0, turn = 0;
    unsigned n = 0;
    for (int block = (int)blockIdx.x; block < args.blocks; block += (int)gridDim.x, turn++) {
        chain_task task = chain_task_of(args, block);
        int row = warp % 4 * 16 + lane / 4, group = warp / 4 * 2;
        bool makes_z = FORWARD && args.keeps_z && block < args.at[0].whole;
        float factor[2][2], o[2][16][4] = {};
        if (makes_z) {
            chain_factors(args, task.at.row_tile * PANEL + row, task.at.m_group * 4 + group,
                          factor);
        }
        for (int first = 0; first < args.steps; first += args.run_steps)
            n = chain_consume(task.at, chain_run_of(args, first, number++), s, n, o);
        if (!makes_z) {
            chain_end_place<FORWARD>(args, *task.problem, task.at, block, bias, o);
            continue;
        }
        barrier_wait(s.z_ready, turn & 1);
#pragma unroll
        for (int k = 0; k < 2; k++)
            chain_make_z(s.z + row * Z_ROW + (group + k) * OUTER_Z, chain_old_z(args.end) != NULL,
                         bias, factor[k], o[k]);
        tiles_publish();
        __syncwarp();
        if (lane == 0) barrier_arrive(s.z_made);
    }
}

template <bool FORWARD>
__global__ void __launch_bounds__(CHAIN_THREADS, 1)
    mma_chain(const __grid_constant__ chain_args args) {
    extern __shared__ __align__(TILE_ALIGN) char space[];
    __shared__ ring_space<SLOTS> barriers;
    __shared__ uint64_t z_barriers[2];
    __shared__ float bias[OUTER_Z];
    bf16 *ring = (bf16 *)space, *y = ring + SLOTS * SLOT;
    uint32_t z_ready = shared_address(z_barriers);
    if (threadIdx.x == 0) {
        barrier_init(z_ready, 1);
        barrier_init(z_ready + 8, CONSUMERS / 32);
    }
    chain_shared s = {
        ring,    y,          y + 2 * args.run_steps * SLOT_X, ring_make(&barriers, CONSUMERS / 32),
        z_ready, z_ready + 8};
    if (FORWARD && threadIdx.x < OUTER_Z) bias[threadIdx.x] = get(args.end.bias[threadIdx.x]);
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    if (threadIdx.x >= CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (FORWARD && args.keeps_z && threadIdx.x / 32 == CONSUMERS / 32 + 1) {
            chain_move_z(args, s);
        }
        if (threadIdx.x > CONSUMERS) return;
        int number = 0;
        unsigned n = 0;
        for (int block = (int)blockIdx.x; block < args.blocks; block += (int)gridDim.x) {
            chain_task task = chain_task_of(args, block);
            for (int first = 0; first < args.steps; first += args.run_steps)
                n = chain_produce<FORWARD>(*task.problem, task.at, args.steps,
                                           chain_run_of(args, first, number++), s, n);
        }
        return;
    }
    registers_take<CONSUMER_REGISTERS>();
    chain_compute<FORWARD>(args, s, bias);
}

/* Adds the parts of a place in order and stores z. A block has one warp for each of the two m of a
 * warp of mma_chain. */
__global__ void __launch_bounds__(64) chain_end(const __grid_constant__ chain_args args) {
    wait_for_previous();
    __shared__ float bias[OUTER_Z];
    for (int k = threadIdx.x; k < OUTER_Z; k += 64)
        bias[k] = get(args.end.bias[k]);
    __syncthreads();
    const chain_problem &p = args.at[0];
    int place = (int)blockIdx.x / END_WARPS, warp = (int)blockIdx.x % END_WARPS;
    int lane = threadIdx.x % 32, k = threadIdx.x / 32;
    chain_place at = chain_place_of(p, p.whole + place * p.parts);
    float o[16][4] = {};
    for (int part = 0; part < p.parts; part++) {
        const float4 *from = chain_end_at(p, place * p.parts + part, warp, k);
#pragma unroll
        for (int n = 0; n < 16; n++) {
            float4 x = from[n * 32];
            o[n][0] += x.x, o[n][1] += x.y, o[n][2] += x.z, o[n][3] += x.w;
        }
    }
    chain_store_z(args, bias, at.row_tile * PANEL + warp % 4 * 16 + lane / 4,
                  at.m_group * 4 + warp / 4 * 2 + k, o);
}

} // namespace fm_cuda

#endif
