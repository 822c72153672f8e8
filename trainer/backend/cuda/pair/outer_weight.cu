/* outer_weight.cu: the weight gradient of the outer product mean without its outer products P in
 * memory: bf16, c = 32, c_z = 128, at most 128 sequences, n_i and n_j multiples of 8.
 *
 *     dW[z, (a, b)] = sum over pairs (i, j) of dz[i, j, z] / norm[i, j] * P[(i, j), (a, b)]
 *     P[(i, j), (a, b)] = sum over s of a[s, i, a] b[s, j, b]
 *
 * A block makes all 128 z of 256 columns (a, b) of dW: every a, and a slice of 8 channels b. The
 * sums stay in its registers, 64 z in each of two warp groups. A step takes 8 x 8 pairs:
 *
 *     1. P for 8 j times 8 b (rows) by 8 i times 32 a; a group makes four i
 *     2. P, rounded to bf16, goes to shared memory, where its rows are pairs (i, j) and its columns
 *        are (a, b). A lane has eight b of it, so stmatrix exchanges rows and columns.
 *     3. both groups: sums += dz^T P over the 64 pairs
 *
 * Operand a of eight i stays in shared memory while j goes on. Two warps of a third group feed the
 * others, one with b and a, one with dz. All operands are copied in runs of eight rows, which keep
 * their exchanged chunks. They are the packed operands of the chain (outer_pack.cuh), dz / norm
 * among them.
 *
 * Blocks share the steps evenly, and the shares' sums are added in order by sums.cu. Every product
 * P is made once. */
#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/pair/outer_ring.cuh"

namespace fm_cuda {

/* SIDE: residues i and j of a step, and channels b of a slice. P_SLOTS: one P is read by products
 * while the next is written. STEP_SLOTS: of b, and of dz. */
enum {
    SIDE = 8,
    SLICES = OUTER_C / SIDE,
    ATOM = SIDE * PANEL, /* eight rows of a tile */
    STAY = 2 * OUTER_C * SIDE * PANEL,
    P_TILES = SLICES,
    P_SLOTS = 2,
    STEP_SLOTS = 3,
    WEIGHT_COLUMNS = OUTER_C * OUTER_C,
    WEIGHT_BYTES = (STAY + P_SLOTS * P_TILES * PANEL_TILE + 2 * STEP_SLOTS * SLOT_X) * 2
};

struct weight_args {
    const bf16 *a, *b, *dz; /* a and b in PANELS order, dz / norm by_i */
    int steps_j, steps;     /* steps along j, and in all */
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

struct weight_barriers {
    uint64_t b_full[STEP_SLOTS], b_empty[STEP_SLOTS], z_full[STEP_SLOTS], z_empty[STEP_SLOTS];
    uint64_t ready, read; /* a of eight i is there, and may be replaced */
};

struct weight_shared {
    bf16 *a, *p, *b, *z;
    weight_barriers *barriers;
};

/* Waits until slot n % STEP_SLOTS may be written and announces its bytes. The whole warp. */
__device__ inline uint32_t weight_slot(uint64_t *full, uint64_t *empty, int n) {
    int slot = n % STEP_SLOTS, turn = n / STEP_SLOTS;
    uint32_t barrier = shared_address(full + slot);
    if (turn > 0) barrier_wait(shared_address(empty + slot), (turn - 1) & 1);
    if (threadIdx.x % 32 == 0) expect_run(barrier, SLOT_X);
    __syncwarp();
    return barrier;
}

/* The warp that fetches a, when the steps before have read it, and b. */
__device__ inline void weight_fetch_b(const weight_args &w, const weight_place &at,
                                      const weight_shared &s) {
    int lane = threadIdx.x % 32, tile = lane / SIDE, row = lane % SIDE; /* of a slot: 16 lanes */
    uint32_t ready = shared_address(&s.barriers->ready);
    for (int step = at.first, n = 0, phase = 1; step < at.end; step++, n++) {
        int i = step / w.steps_j, j = step % w.steps_j * SIDE + row;
        if (n == 0 || j < SIDE) {
            if (n > 0) barrier_wait(shared_address(&s.barriers->read), (uint32_t)phase);
            phase ^= 1;
            if (lane == 0) expect_run(ready, STAY);
            __syncwarp();
            if (lane < SIDE) { /* panel lane / 2, sequences from lane % 2 * 64 on */
                load_run(s.a + (lane % 2 * 4 + lane / 2) * PANEL_TILE,
                         w.a + ((int64_t)i * SIDE + lane) * PANEL_TILE, PANEL_TILE, ready);
            }
        }
        uint32_t full = weight_slot(s.barriers->b_full, s.barriers->b_empty, n);
        const bf16 *from = w.b + (int64_t)(j / 2 * X_TILES + tile) * PANEL_TILE +
                           (j % 2 * SLICES + at.slice) * ATOM;
        bf16 *to = s.b + n % STEP_SLOTS * SLOT_X + tile * PANEL_TILE + row * ATOM;
        if (tile < X_TILES) load_run(to, from, ATOM, full);
    }
}

/* The warp that fetches dz. */
__device__ inline void weight_fetch_z(const weight_args &w, const weight_place &at,
                                      const weight_shared &s) {
    int lane = threadIdx.x % 32, tile = lane / SIDE, row = lane % SIDE;
    for (int step = at.first, n = 0; step < at.end; step++, n++) {
        int i = step / w.steps_j * SIDE + row, j = step % w.steps_j;
        uint32_t full = weight_slot(s.barriers->z_full, s.barriers->z_empty, n);
        const bf16 *from = w.dz + (int64_t)i * w.dz_row + (j / SIDE * X_TILES + tile) * PANEL_TILE +
                           j % SIDE * ATOM;
        bf16 *to = s.z + n % STEP_SLOTS * SLOT_X + tile * PANEL_TILE + row * ATOM;
        if (tile < X_TILES) load_run(to, from, ATOM, full);
    }
}

/* Starts p = b times a, for this group's four i. */
__device__ inline void weight_outer(const weight_shared &s, int n, float (&p)[16][4]) {
    const bf16 *b = s.b + n % STEP_SLOTS * SLOT_X;
    const bf16 *a = s.a + threadIdx.x / GROUP_THREADS * 2 * PANEL_TILE;
    barrier_wait(shared_address(s.barriers->b_full + n % STEP_SLOTS), n / STEP_SLOTS & 1);
    products_begin();
#pragma unroll
    for (int k = 0; k < 8; k++) {
        int tile = k / 4, inside = k % 4 * 16;
        wgmma<K_MAJOR, K_MAJOR>(p, tile_operand<PANEL, K_MAJOR>(b + tile * PANEL_TILE + inside),
                                tile_operand<PANEL, K_MAJOR>(a + tile * 4 * PANEL_TILE + inside),
                                k > 0);
    }
    products_commit();
}

/* Puts this group's P into shared memory. A lane's row is (j, b), and eight columns are eight a of
 * one i. */
__device__ inline void weight_put(bf16 *to, const float (&p)[16][4]) {
    int lane = threadIdx.x % 32, group = threadIdx.x / GROUP_THREADS;
    bf16 *tile = to + lane / 8 * PANEL_TILE;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int j = threadIdx.x / 32 % 4 * 2 + half;
        bf16 *at = tile + tile_at<PANEL>(group * 4 * SIDE + j, lane % 8);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t x[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[k] = pack_two(p[i * 4 + k][half * 2], p[i * 4 + k][half * 2 + 1]);
            stmatrix_trans(at + i * ATOM, x);
        }
    }
}

/* Starts sum += dz^T P. */
__device__ inline void weight_add(const weight_shared &s, int n, float (&sum)[32][4]) {
    const bf16 *z = s.z + n % STEP_SLOTS * SLOT_X + threadIdx.x / GROUP_THREADS * PANEL_TILE;
    const bf16 *p = s.p + n % P_SLOTS * P_TILES * PANEL_TILE;
    barrier_wait(shared_address(s.barriers->z_full + n % STEP_SLOTS), n / STEP_SLOTS & 1);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma<MN_MAJOR, MN_MAJOR>(sum, tile_operand<PANEL, MN_MAJOR>(z + k * 16 * PANEL),
                                  tile_operand<PANEL, MN_MAJOR>(p + k * 16 * PANEL, PANEL_TILE),
                                  true);
    products_commit();
}

__device__ inline void weight_arrive(uint64_t *barrier) {
    if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(barrier));
}

/* A computing group: the sum of its share. The next P is under way while this one is added, and the
 * sum before it while this one is rounded and stored. */
__device__ inline void weight_sum(const weight_args &w, const weight_place &at,
                                  const weight_shared &s, float (&sum)[32][4]) {
    weight_barriers &r = *s.barriers;
    int count = at.end - at.first, left = w.steps_j - at.first % w.steps_j, phase = 0;
    float p[16][4];
    barrier_wait(shared_address(&r.ready), 0);
    weight_outer(s, 0, p);
    products_wait<0>(p);
    for (int n = 0; n < count; n++) {
        weight_arrive(r.b_empty + n % STEP_SLOTS);
        weight_put(s.p + n % P_SLOTS * P_TILES * PANEL_TILE, p);
        if (--left == 0 && n + 1 < count) {
            weight_arrive(&r.read);
            left = w.steps_j, phase ^= 1;
            barrier_wait(shared_address(&r.ready), (uint32_t)phase);
        }
        weight_outer(s, n + 1 < count ? n + 1 : n, p);
        tiles_publish();
        products_wait<1>(); /* the sum of step n - 1 */
        if (n > 0) weight_arrive(r.z_empty + (n - 1) % STEP_SLOTS);
        asm volatile("bar.sync 1, %0;" ::"n"((int)CONSUMERS) : "memory");
        weight_add(s, n, sum);
        products_wait<1>(p); /* P of step n + 1 */
    }
    products_wait<0>(sum);
}

__global__ void __launch_bounds__(CHAIN_THREADS, 1)
    mma_weight(const __grid_constant__ weight_args w) {
    extern __shared__ __align__(TILE_ALIGN) char space[];
    __shared__ weight_barriers barriers;
    bf16 *a = (bf16 *)space, *p = a + STAY, *b = p + P_SLOTS * P_TILES * PANEL_TILE;
    weight_shared s = {a, p, b, b + STEP_SLOTS * SLOT_X, &barriers};
    weight_place at = weight_place_of(w);
    if (threadIdx.x == 0) {
        for (int k = 0; k < STEP_SLOTS; k++) {
            barrier_init(shared_address(barriers.b_full + k), 1);
            barrier_init(shared_address(barriers.z_full + k), 1);
            barrier_init(shared_address(barriers.b_empty + k), CONSUMERS / 32);
            barrier_init(shared_address(barriers.z_empty + k), CONSUMERS / 32);
        }
        barrier_init(shared_address(&barriers.ready), 1);
        barrier_init(shared_address(&barriers.read), CONSUMERS / 32);
        barriers_publish();
    }
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    if (threadIdx.x >= CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        int warp = (int)threadIdx.x / 32 - CONSUMERS / 32;
        if (warp == 0) weight_fetch_b(w, at, s);
        if (warp == 1) weight_fetch_z(w, at, s);
        return;
    }
    registers_take<CONSUMER_REGISTERS>();
    float sum[32][4] = {};
    weight_sum(w, at, s, sum);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float4 *to = (float4 *)(w.partial + (int64_t)at.share * OUTER_Z * WEIGHT_COLUMNS);
    to += (warp * (WEIGHT_COLUMNS / 8) + at.slice) * 32 + lane;
#pragma unroll
    for (int c = 0; c < OUTER_C; c++)
        to[c * SLICES * 32] = make_float4(sum[c][0], sum[c][1], sum[c][2], sum[c][3]);
}

/* -- calls */

bool outer_weight_takes(const fm_outer *o) {
    return o->n_seq <= OUTER_MAX_GRAD_SEQ && o->n_i % SIDE == 0 && o->n_j % SIDE == 0;
}

static int steps_of(const fm_outer *o) {
    return (int)(o->n_i / SIDE * (o->n_j / SIDE));
}

/* As few shares as keep the longest share as short as all multiprocessors would. */
static int shares_of(const fm_outer *o) {
    int64_t longest = divide_up(steps_of(o), max_size(1, n_multiprocessor() / SLICES));
    return (int)divide_up(steps_of(o), longest);
}

size_t outer_weight_bytes(const fm_outer *o) {
    return (size_t)shares_of(o) * OUTER_Z * WEIGHT_COLUMNS * sizeof(float);
}

void outer_weight(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad, const bf16 *a,
                  const bf16 *b, const bf16 *dz, float *workspace) {
    partial_sums sums = {};
    sums.stride = (int64_t)OUTER_Z * WEIGHT_COLUMNS, sums.count = shares_of(o);
    sums.slices = sums.count > 16 ? 4 : 1;
    sums.target[0] = {grad->dw.data, sums.stride, 0, grad->dw.beta, false};
    sums.tiles = {1, OUTER_Z, WEIGHT_COLUMNS, 0, WEIGHT_COLUMNS};
    weight_args w = {};
    w.a = a, w.b = b, w.dz = dz;
    sums.partial = w.partial = sums_place(stream, sums, outer_weight_bytes(o), workspace);
    w.steps_j = (int)(o->n_j / SIDE), w.steps = steps_of(o), w.shares = sums.count;
    w.dz_row = (int)divide_up(o->n_j, PANEL) * SLOT_X;
    FM_CUDA(cudaFuncSetAttribute(mma_weight, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)WEIGHT_BYTES));
    launch_after(stream, mma_weight, (unsigned)(SLICES * w.shares), CHAIN_THREADS,
                 (size_t)WEIGHT_BYTES, true, w);
    FM_LAUNCHED();
    end_sums(stream, sums);
}

} // namespace fm_cuda
