/* outer_wgmma.cu: outer product mean by warp-group products: bf16, c = 32, c_z = 128.
 *
 * Nothing of size [n_i, n_j, c, c] is stored forward, nor for the gradients of a and b. All three
 * are one chain of two products, where the first's result stays in registers as the left operand of
 * the second. For 64 rows r and four values of m per block,
 *
 *     O_m[r, :] = sum over l of (X_l[r, :] Y_m^T) V_l    X_l [64, k], Y_m [32, k], V_l [32, 128]
 *
 *     forward   r = i   m = j   l = channel of a   X = a_l[i, s]    Y = b_j[channel, s]   V = W_l
 *     da        r = i   m = a   l = j              X = dz_j[i, z]   Y = W_a[b, z]         V = b_j
 *     db        r = j   m = b   l = i              X = dz_i[j, z]   Y = W_b[a, z]         V = a_i
 *
 * The first product sums over k (s or z), the second over the other channel. With more columns of Y
 * than shared memory holds, all of this is done for one run of columns after the other, and each
 * adds to the same O. dz is divided by the norm before. Y and V are the same tiles, read along
 * their rows or along their columns. Each of two warp groups has two values of m; the producer
 * keeps a ring of X and V full (outer_ring.cuh). The price of storing nothing is that the gradient
 * of P is computed twice, for da and for db.
 *
 * Forward, the last round of blocks may leave most multiprocessors idle. Then each of its places
 * goes to several blocks, which share l, and chain_end adds up their parts.
 *
 * dW = sum over pairs of dz^T P / norm needs P itself. outer_weight.cu makes it in shared memory.
 * For numbers of residues that it does not take, the kernel mma_panels (outer_panels.cuh) writes a
 * piece of it, ordered [(i, j), (a, b)] and divided by the norm. The piece stays in the L2 cache
 * for one plain product with dz.
 *
 * With more sequences than fit, backward works in pieces (outer.cu), and this file only provides P
 * and its gradient from packed panels. */
#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/pair/outer_panels.cuh"

#include <limits.h>

namespace fm_cuda {

/* A slot holds 64 x 128 of X and, with the last of an l, its V, 32 x 128. CHAIN_RUN: the slots'
 * columns of Y that shared memory holds. PIECE_ELEMENTS: the most of P that is written at once for
 * dW. */
enum { SLOT = SLOT_X + OUTER_C * OUTER_Z, SLOTS = 4, CHAIN_RUN = 4, PIECE_ELEMENTS = 1 << 26 };

/* -- the chain */

/* One sum: which operands, and how blocks share it. */
struct chain_problem {
    const bf16 *x, *y, *v;   /* X [l][row tile][steps * 2 tiles], Y and V in PANELS order */
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
    int first_blocks; /* blocks of at[0]; the others are at[1]'s */
    int steps;        /* columns of X / 128 */
    int run_steps;    /* of these, how many of Y are in shared memory at a time */
    /* forward only: */
    z_end end;
    int n_i, n_j;
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

struct chain_shared {
    bf16 *ring, *y;
    ring_barriers barriers;
};

/* The columns of X and Y that are summed at a time: `count` slots from slot `first` on. */
struct chain_run {
    int first, count, number;
};
__device__ inline chain_run chain_run_of(const chain_args &args, int number) {
    int first = number * args.run_steps, left = args.steps - first;
    return {first, left < args.run_steps ? left : args.run_steps, number};
}

/* The producer's thread: Y of a run once, when the run before it is read, then X and V of every
 * step into the slots in turn. Returns the number of the next use of the ring. */
__device__ inline int chain_produce(const chain_problem &p, const chain_place &at, int steps,
                                    const chain_run &run, const chain_shared &s, int n) {
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
            int slot = n % SLOTS, turn = n / SLOTS;
            bool is_last = k == run.count - 1;
            uint32_t full = b.full + slot * 8;
            bf16 *to_slot = s.ring + slot * SLOT;
            if (turn > 0) barrier_wait(b.empty + slot * 8, (turn - 1) & 1);
            expect_run(full, is_last ? SLOT : SLOT_X);
            load_run(to_slot, x + k * SLOT_X, SLOT_X, full);
            if (!is_last) continue;
            load_run(to_slot + SLOT_X, v, PANEL_TILE / 2, full);
            load_run(to_slot + SLOT_X + PANEL_TILE / 2, v + PANEL_TILE, PANEL_TILE / 2, full);
        }
    }
    return n;
}

/* Adds a run to o, the sums of this warp group's two m. t, the first product, holds both, 32
 * columns each. Returns the number of the next use of the ring. */
__device__ inline int chain_consume(const chain_place &at, const chain_run &run,
                                    const chain_shared &s, int n, float (&o)[2][16][4]) {
    int group = threadIdx.x / GROUP_THREADS;
    const bf16 *y = s.y + group * run.count * SLOT_X;
    uint32_t rows[4][4];
    float t[8][4];
    barrier_wait(s.barriers.ready, run.number & 1);
    for (int l = at.first; l < at.end; l++) {
        for (int k = 0; k < run.count; k++, n++) {
            const bf16 *x = s.ring + n % SLOTS * SLOT, *beside = y + k * SLOT_X;
            barrier_wait(s.barriers.full + n % SLOTS * 8, n / SLOTS & 1);
            products_begin();
#pragma unroll
            for (int step = 0; step < 8; step++) {
                int to_step = step / 4 * PANEL_TILE + step % 4 * 16;
                wgmma<K_MAJOR, K_MAJOR>(t, tile_operand<PANEL, K_MAJOR>(x + to_step),
                                        tile_operand<PANEL, K_MAJOR>(beside + to_step),
                                        k > 0 || step > 0);
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
        const bf16 *v = s.ring + (n - 1) % SLOTS * SLOT + SLOT_X;
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma<MN_MAJOR>(o[k / 2], rows[k],
                            tile_operand<PANEL, MN_MAJOR>(v + k % 2 * 16 * PANEL, PANEL_TILE / 2),
                            true);
        products_commit();
    }
    products_wait<0>(o[0]);
    products_pin(o[1]);
    if (threadIdx.x % 32 == 0) barrier_arrive(s.barriers.read);
    return n;
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

template <bool FORWARD>
__global__ void __launch_bounds__(CHAIN_THREADS, 1)
    mma_chain(const __grid_constant__ chain_args args) {
    extern __shared__ __align__(TILE_ALIGN) char space[];
    __shared__ ring_space<SLOTS> barriers;
    __shared__ float bias[OUTER_Z];
    bf16 *ring = (bf16 *)space;
    chain_shared s = {ring, ring + SLOTS * SLOT, ring_make(&barriers, CONSUMERS / 32)};
    bool is_first = (int)blockIdx.x < args.first_blocks;
    const chain_problem &p = args.at[is_first ? 0 : 1];
    chain_place at = chain_place_of(p, (int)blockIdx.x - (is_first ? 0 : args.first_blocks));
    if (FORWARD && threadIdx.x < OUTER_Z) bias[threadIdx.x] = get(args.end.bias[threadIdx.x]);
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    if (threadIdx.x >= CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x > CONSUMERS) return;
        for (int run = 0, n = 0; run * args.run_steps < args.steps; run++)
            n = chain_produce(p, at, args.steps, chain_run_of(args, run), s, n);
        return;
    }
    registers_take<CONSUMER_REGISTERS>();
    float o[2][16][4] = {};
    for (int run = 0, n = 0; run * args.run_steps < args.steps; run++)
        n = chain_consume(at, chain_run_of(args, run), s, n, o);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = at.row_tile * PANEL + warp % 4 * 16 + lane / 4, m = at.m_group * 4 + warp / 4 * 2;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        if (FORWARD && (int)blockIdx.x >= p.whole) {
            float4 *to = chain_end_at(p, (int)blockIdx.x - p.whole, warp, k);
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

static int blocks_of(int64_t rows) {
    return (int)divide_up(rows, PANEL);
}

static int chain_blocks(const chain_problem *p) {
    int all = p->row_tiles * p->m_groups * p->v_parts * p->splits;
    return all <= p->whole ? all : p->whole + (all - p->whole) * p->parts;
}

/* Into how many parts each place of the last round of blocks goes, when most of the
 * multiprocessors would have none. Ending the parts takes about as long as PART_COST columns. */
enum { MOST_PARTS = 4, PART_COST = 100 };
static int chain_parts(int places, int64_t columns) {
    int left = places % n_multiprocessor(), best = 1;
    int64_t best_cost = columns + OUTER_Z;
    for (int parts = 2; left > 0 && places > left && parts <= MOST_PARTS; parts++) {
        int64_t rounds = divide_up(left * parts, n_multiprocessor());
        int64_t cost = rounds * (columns + OUTER_Z) / parts + PART_COST;
        if (cost < best_cost) best = parts, best_cost = cost;
    }
    return best;
}

/* Forward: sets how the last places are shared, and returns the number of all. */
static int chain_share(const fm_outer *o, chain_problem *p) {
    int places = blocks_of(o->n_i) * (int)divide_up(o->n_j, 4);
    p->parts = chain_parts(places, o->n_seq);
    p->whole = p->parts > 1 ? places / n_multiprocessor() * n_multiprocessor() : places;
    return places;
}

template <bool FORWARD> static void chain_launch(fm_stream *stream, const chain_args *args) {
    size_t bytes = (size_t)(SLOTS * SLOT + 2 * args->run_steps * SLOT_X) * sizeof(bf16);
    int blocks = chain_blocks(&args->at[0]) + (FORWARD ? 0 : chain_blocks(&args->at[1]));
    FM_CUDA(cudaFuncSetAttribute(mma_chain<FORWARD>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)bytes));
    launch_after(stream, mma_chain<FORWARD>, (unsigned)blocks, CHAIN_THREADS, bytes, true, *args);
    FM_LAUNCHED();
}

/* -- workspaces */

struct chain_space {
    bf16 *a, *b;            /* forward: a by channels, b in panels; backward: both in panels */
    bf16 *w, *w_transposed; /* panels [(a, b), z] and [(b, a), z] */
    float *norm;            /* [n_i, n_j], without eps */
    float *parts;           /* forward: sums of the last places' parts */
    bf16 *dz_by_i, *dz_by_j;
    float *da, *db, *sums; /* partial sums */
    float *shares;         /* outer_weight's, or NULL: the piece and its product's workspace */
    bf16 *piece;           /* [rows, n_j, c, c] */
    void *gemm;
};

static int tiles_of(int64_t columns) {
    return (int)(round_up(columns, 128) / PANEL);
}
/* Elements of a packed operand: in panels of whole groups of four residues, or in tiles by
 * channel. */
static size_t panels_size(int64_t residues, int64_t columns) {
    return (size_t)(round_up(residues, 4) / 2 * tiles_of(columns)) * PANEL_TILE;
}
static size_t channels_size(int64_t residues, int64_t columns) {
    return (size_t)(OUTER_C * blocks_of(residues) * tiles_of(columns)) * PANEL_TILE;
}

/* Into how many splits the sums over l go, so that the blocks fill nearly whole rounds. */
static int splits_of(const fm_outer *o) {
    int blocks = (blocks_of(o->n_i) + blocks_of(o->n_j)) * (OUTER_C / 4) * (tiles_of(o->n_seq) / 2);
    int best = 1, best_cost = 0;
    for (int splits = 1; splits <= 8; splits++) {
        int rounds = (int)divide_up(blocks * splits, n_multiprocessor());
        int cost = rounds * 1000 / splits + 20 * splits;
        if (splits > 1 && (cost >= best_cost || o->n_i / splits < 16 || o->n_j / splits < 16)) {
            continue;
        }
        best = splits, best_cost = cost;
    }
    return best;
}

/* Residues i of a piece of P for dW. */
static int64_t piece_rows(const fm_outer *o) {
    int64_t rows = PIECE_ELEMENTS / (o->n_j * OUTER_C * OUTER_C) / 2 * 2;
    return min_size(round_up(o->n_i, 2), max_size(2, rows));
}

static size_t chain_layout(const fm_outer *o, bool backward, bool stores_p, void *base,
                           chain_space *ret) {
    carver carve = {(char *)base, 0};
    auto act = [&](size_t elements) {
        carve.used = (carve.used + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN;
        return (bf16 *)carve.take(elements * sizeof(bf16));
    };
    auto acc = [&](int64_t elements) {
        return (float *)carve.take((size_t)elements * sizeof(float));
    };
    *ret = {};
    ret->norm = acc(o->n_i * o->n_j);
    ret->w = act(panels_size(OUTER_C, OUTER_Z));
    ret->b = act(panels_size(o->n_j, o->n_seq));
    if (!backward) {
        ret->a = act(channels_size(o->n_i, o->n_seq));
        chain_problem share = {};
        int places = chain_share(o, &share);
        ret->parts = acc((int64_t)(places - share.whole) * share.parts * PART_SIZE * 4);
        return carve.used;
    }
    int64_t splits = splits_of(o), columns = (int64_t)tiles_of(o->n_seq) * PANEL;
    ret->a = act(panels_size(o->n_i, o->n_seq));
    ret->w_transposed = act(panels_size(OUTER_C, OUTER_Z));
    ret->dz_by_i = act((size_t)(o->n_i * blocks_of(o->n_j)) * SLOT_X);
    ret->dz_by_j = act((size_t)(o->n_j * blocks_of(o->n_i)) * SLOT_X);
    ret->da = acc(splits * OUTER_C * blocks_of(o->n_i) * PANEL * columns);
    ret->db = acc(splits * OUTER_C * blocks_of(o->n_j) * PANEL * columns);
    ret->sums = acc((int64_t)dz_pack_blocks(o->n_i, o->n_j) * DZ_C);
    if (!stores_p && outer_weight_takes(o)) {
        ret->shares = acc((int64_t)(outer_weight_bytes(o) / sizeof(float)));
        return carve.used;
    }
    ret->piece = act((size_t)(piece_rows(o) * o->n_j * OUTER_C * OUTER_C));
    ret->gemm = carve.take((size_t)32 << 20);
    return carve.used;
}

size_t outer_chain_workspace(const fm_outer *o, bool backward, bool stores_p) {
    chain_space space;
    return chain_layout(o, backward, stores_p, NULL, &space) + TILE_ALIGN;
}

/* Packed operands are at multiples of TILE_ALIGN. */
static void *aligned(void *workspace) {
    return (void *)(((uintptr_t)workspace + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN);
}

/* -- the work */

/* Packs a or b times its mask. */
static pack_job pack_of(const fm_outer *o, bool is_a, bool by_channel, bf16 *to) {
    const int64_t *stride = is_a ? o->a_stride : o->b_stride;
    return {(const bf16 *)(is_a ? o->a : o->b),
            (const bf16 *)(is_a ? o->mask_a : o->mask_b),
            {stride[0], stride[1], 1},
            (int)(is_a ? o->n_i : o->n_j),
            (int)o->n_seq,
            tiles_of(o->n_seq),
            by_channel,
            to,
            NULL};
}

/* Packs W [z, (a, b)] into panels of (a, b), or of (b, a). */
static pack_job pack_of_w(const fm_outer *o, bool is_transposed, bf16 *to) {
    int64_t square = OUTER_C * OUTER_C, first = is_transposed ? 1 : OUTER_C,
            second = is_transposed ? OUTER_C : 1;
    return {
        (const bf16 *)o->w, NULL, {square, first, second}, OUTER_C, OUTER_Z, 2, false, to, NULL};
}

static norm_job norm_of(const fm_outer *o, float *norm) {
    return {(const bf16 *)o->mask_a,
            (const bf16 *)o->mask_b,
            (int)o->n_i,
            (int)o->n_j,
            (int)o->n_seq,
            norm};
}

void outer_chain(fm_stream *stream, const fm_outer *o, void *workspace) {
    chain_space space;
    chain_layout(o, false, false, aligned(workspace), &space);
    pack_jobs jobs = {};
    jobs.at[0] = pack_of(o, true, true, space.a);
    jobs.at[1] = pack_of(o, false, false, space.b);
    jobs.at[2] = pack_of_w(o, false, space.w);
    jobs.norm = norm_of(o, space.norm);
    outer_pack_run(stream, &jobs);
    chain_args args = {};
    args.at[0] = {space.a,
                  space.b,
                  space.w,
                  OUTER_C,
                  blocks_of(o->n_i),
                  (int)o->n_j,
                  (int)divide_up(o->n_j, 4),
                  1,
                  1,
                  tiles_of(OUTER_Z),
                  space.parts,
                  0,
                  1};
    int places = chain_share(o, &args.at[0]);
    args.first_blocks = chain_blocks(&args.at[0]);
    args.steps = tiles_of(o->n_seq) / X_TILES;
    args.run_steps = (int)min_size(args.steps, CHAIN_RUN);
    args.end = z_end_of(o, space.norm);
    args.n_i = (int)o->n_i, args.n_j = (int)o->n_j;
    chain_launch<true>(stream, &args);
    int ends = (places - args.at[0].whole) * END_WARPS;
    if (ends == 0) return;
    launch_after(stream, chain_end, (unsigned)ends, 64, 0, true, args);
    FM_LAUNCHED();
}

/* da and db: the chain in splits, then the splits' sums. */
static void gradients_of_operands(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                                  const chain_space *space) {
    int splits = splits_of(o), tiles = tiles_of(o->n_seq), parts = tiles / X_TILES;
    chain_args args = {};
    args.at[0] = {space->dz_by_j, space->w,    space->b, (int)o->n_j, blocks_of(o->n_i),
                  OUTER_C,        OUTER_C / 4, parts,    splits,      tiles,
                  space->da,      INT_MAX,     1};
    args.at[1] = {space->dz_by_i,
                  space->w_transposed,
                  space->a,
                  (int)o->n_i,
                  blocks_of(o->n_j),
                  OUTER_C,
                  OUTER_C / 4,
                  parts,
                  splits,
                  tiles,
                  space->db,
                  INT_MAX,
                  1};
    args.first_blocks = chain_blocks(&args.at[0]);
    args.steps = args.run_steps = OUTER_Z / 128;
    chain_launch<false>(stream, &args);
    int columns = tiles * PANEL;
    unpack_job da = {space->da,      (const bf16 *)o->mask_a,
                     splits,         blocks_of(o->n_i) * PANEL,
                     columns,        (int)o->n_i,
                     (int)o->n_seq,  o->a_stride[0],
                     o->a_stride[1], grad->da};
    unpack_job db = {space->db,      (const bf16 *)o->mask_b,
                     splits,         blocks_of(o->n_j) * PANEL,
                     columns,        (int)o->n_j,
                     (int)o->n_seq,  o->b_stride[0],
                     o->b_stride[1], grad->db};
    int across = (int)divide_up(o->n_seq, PANEL_C);
    int first = grad->da.data ? across * (int)o->n_i : 0;
    int blocks = first + (grad->db.data ? across * (int)o->n_j : 0);
    launch_after(stream, outer_unpack_all, (unsigned)blocks, PACK_THREADS, 0, true, da, db, first);
    FM_LAUNCHED();
}

/* P / norm of residues [first, first + rows), `first` even, from panels of a and b. */
static void product_piece(fm_stream *stream, const fm_outer *o, const bf16 *a, const bf16 *b,
                          const float *norm, int64_t first, int64_t rows, bf16 *piece) {
    panels_args p = {};
    p.a = a, p.b = b, p.norm = norm, p.eps = (float)o->eps;
    p.n_i = (int)o->n_i, p.n_j = (int)o->n_j, p.first_i = (int)first;
    p.first_tile = (int)(first / 2), p.tiles = (int)divide_up(rows, 2);
    p.panels = (int)divide_up(o->n_j, 2), p.steps = tiles_of(o->n_seq) / X_TILES;
    p.to = piece;
    if (p.steps <= 2) {
        panels_run<false, 8>(stream, &p);
    } else {
        panels_run<false, 4>(stream, &p);
    }
}

/* dW; with P in memory, piece by piece. */
static void gradient_of_weight(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                               const chain_space *space) {
    if (space->shares) {
        outer_weight(stream, o, grad, {space->a, space->b, space->dz_by_i, space->shares});
        return;
    }
    int64_t step = piece_rows(o);
    for (int64_t first = 0; first < o->n_i; first += step) {
        int64_t rows = min_size(step, o->n_i - first), square = OUTER_C * OUTER_C;
        product_piece(stream, o, space->a, space->b, space->norm, first, rows, space->piece);
        fm_gemm g = {};
        g.m = OUTER_Z, g.n = square, g.k = rows * o->n_j, g.batch = 1;
        g.trans_a = true;
        g.alpha = 1, g.beta = first > 0 || grad->dw.beta == FM_ADD ? 1 : 0;
        g.a = (const bf16 *)grad->dz + first * o->n_j * OUTER_Z, g.lda = OUTER_Z;
        g.b = space->piece, g.ldb = square;
        g.c = grad->dw.data, g.ldc = square, g.c_is_acc = true;
        gemm<bf16>(stream, &g, space->gemm);
    }
}

/* dz / norm in tiles, and dbias. */
static void pack_dz(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                    const dz_pack &dz) {
    int blocks = dz_pack_blocks(o->n_i, o->n_j);
    partial_sums sums =
        sums_of(NULL, blocks, DZ_C, DZ_C, (float *)grad->dbias.data, grad->dbias.beta);
    dz_pack call = dz;
    if (grad->dbias.data) {
        call.sums = sums_place(stream, sums, (size_t)blocks * DZ_C * sizeof(float), dz.sums);
    }
    launch_after(stream, outer_pack_dz, (unsigned)blocks, PACK_THREADS, 0, true, call);
    FM_LAUNCHED();
    sums.partial = call.sums;
    if (grad->dbias.data) end_sums(stream, sums);
}

void outer_chain_grad(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                      void *workspace, bool stores_p) {
    chain_space space;
    chain_layout(o, true, stores_p, aligned(workspace), &space);
    pack_jobs jobs = {};
    jobs.at[0] = pack_of(o, true, false, space.a);
    jobs.at[1] = pack_of(o, false, false, space.b);
    jobs.at[2] = pack_of_w(o, false, space.w);
    jobs.at[3] = pack_of_w(o, true, space.w_transposed);
    jobs.norm = norm_of(o, space.norm);
    outer_pack_run(stream, &jobs);
    pack_dz(stream, o, grad,
            {(const bf16 *)grad->dz, space.norm, (float)o->eps, (int)o->n_i, (int)o->n_j,
             space.dz_by_i, space.dz_by_j, NULL, space.sums});
    if (grad->dw.data) gradient_of_weight(stream, o, grad, &space);
    if (grad->da.data || grad->db.data) gradients_of_operands(stream, o, grad, &space);
}

/* -- kernels for backward in pieces */

size_t outer_w_bytes(void) {
    return panels_size(OUTER_C, OUTER_Z) * sizeof(bf16);
}

void outer_pack_w(fm_stream *stream, const fm_outer *o, bf16 *to) {
    pack_jobs jobs = {};
    jobs.at[0] = pack_of_w(o, false, to);
    outer_pack_run(stream, &jobs);
}

size_t outer_panels_layout(const fm_outer *o, void *base, outer_panels *ret) {
    carver carve = {(char *)base, 0};
    auto act = [&](size_t elements) { return (bf16 *)carve.take(elements * sizeof(bf16)); };
    bool is_short = o->n_seq <= OUTER_MAX_SEQ;
    ret->a = is_short ? act(panels_size(o->n_i, o->n_seq)) : NULL;
    ret->b = is_short ? act(panels_size(o->n_j, o->n_seq)) : NULL;
    ret->w = act(panels_size(OUTER_C, OUTER_Z));
    ret->dz = act((size_t)(o->n_i * blocks_of(o->n_j)) * SLOT_X);
    ret->norm = (float *)carve.take((size_t)(o->n_i * o->n_j) * sizeof(float));
    ret->sums = (float *)carve.take((size_t)dz_pack_blocks(o->n_i, o->n_j) * DZ_C * sizeof(float));
    return carve.used;
}

void outer_panels_make(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                       const outer_panels *tiles, bf16 *a, bf16 *b, bf16 *dz) {
    pack_jobs jobs = {};
    jobs.at[0] = pack_of_w(o, false, tiles->w);
    jobs.at[1] = pack_of(o, true, false, tiles->a), jobs.at[1].plain = a;
    jobs.at[2] = pack_of(o, false, false, tiles->b), jobs.at[2].plain = b;
    if (tiles->a) jobs.norm = norm_of(o, tiles->norm);
    outer_pack_run(stream, &jobs);
    pack_dz(stream, o, grad,
            {(const bf16 *)grad->dz, tiles->norm, (float)o->eps, (int)o->n_i, (int)o->n_j,
             tiles->dz, NULL, tiles->a ? NULL : dz, tiles->sums});
}

void outer_panels_product(fm_stream *stream, const fm_outer *o, const outer_panels *tiles,
                          int64_t first, int64_t rows, bf16 *piece) {
    product_piece(stream, o, tiles->a, tiles->b, tiles->norm, first, rows, piece);
}

void outer_panels_gradient(fm_stream *stream, const fm_outer *o, const outer_panels *tiles,
                           int64_t first, int64_t rows, bf16 *piece) {
    panels_args p = {};
    p.a = tiles->dz, p.b = tiles->w;
    p.n_i = (int)o->n_i, p.n_j = (int)o->n_j, p.first_i = (int)first;
    p.first_tile = (int)first * blocks_of(o->n_j), p.tiles = (int)rows * blocks_of(o->n_j);
    p.panels = OUTER_C / 2, p.steps = OUTER_Z / 128;
    p.to = piece;
    panels_run<true, 8>(stream, &p);
}

} // namespace fm_cuda
