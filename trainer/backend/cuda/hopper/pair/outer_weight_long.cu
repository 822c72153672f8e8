/* outer_weight_long.cu: the weight gradient of the outer product mean without its outer products P
 * in memory (outer_weight.cuh), for 129 to 512 sequences, n_i a multiple of 4 and n_j of 16.
 *
 * A step takes 4 x 16 pairs, and a group makes P of half of the j. Four rows i of a stay in shared
 * memory with all sequences, 128 KB; b arrives 64 sequences at a time, in a ring for each group. So
 * only one P has room. Its sum is made amid the products of the next P, which leaves each group
 * half of those to wait for the other. */
#include "trainer/backend/cuda/hopper/pair/outer_weight.cuh"

namespace fm_cuda {
namespace {

enum { SIDE_I = 4, SIDE_J = 16, RING = 3 };

struct run_barriers {
    uint64_t b_full[2 * RING], b_empty[2 * RING]; /* of the first group, then of the second */
    uint64_t z_full, z_empty, p_full, p_empty;
    uint64_t ready, read; /* a of four i is there, and may be replaced */
};

struct run_shared {
    bf16 *p, *z, *b, *a; /* a: [64 sequences][two panels] */
    run_barriers *barriers;
    int group; /* the warp's */
};

/* The warp that fetches a. */
__device__ inline void fetch_a(const weight_args &w, const weight_place &at, const run_shared &s) {
    int lane = threadIdx.x % 32, panel = lane / w.tiles, tile = lane % w.tiles;
    uint32_t ready = shared_address(&s.barriers->ready);
    for (int step = at.first, turn = 0; step < at.end; step++) {
        if (step > at.first && step % w.steps_j > 0) continue;
        if (turn > 0) barrier_wait(shared_address(&s.barriers->read), (turn - 1) & 1);
        if (lane == 0) expect_run(ready, 2 * w.tiles * PANEL_TILE);
        __syncwarp();
        if (panel < 2) {
            load_run(s.a + (tile * 2 + panel) * PANEL_TILE,
                     w.a + ((int64_t)(step / w.steps_j) * 2 * w.tiles + lane) * PANEL_TILE,
                     PANEL_TILE, ready);
        }
        turn++;
    }
}

/* The warp that fetches a group's eight j of b. */
__device__ inline void fetch_b(const weight_args &w, const weight_place &at, const run_shared &s,
                               int group) {
    int lane = threadIdx.x % 32, slot = 0, turn = 0;
    for (int step = at.first; step < at.end; step++) {
        int j = step % w.steps_j * SIDE_J + group * EIGHT + lane % EIGHT;
        const bf16 *from = weight_atom_b(w, at.slice, j);
        for (int tile = 0; tile < w.tiles; tile++, from += PANEL_TILE) {
            int place = group * RING + slot;
            uint32_t full = shared_address(s.barriers->b_full + place);
            if (turn > 0) barrier_wait(shared_address(s.barriers->b_empty + place), (turn - 1) & 1);
            if (lane == 0) expect_run(full, PANEL_TILE);
            __syncwarp();
            if (lane < EIGHT) load_run(s.b + place * PANEL_TILE + lane * ATOM, from, ATOM, full);
            if (++slot == RING) slot = 0, turn++;
        }
    }
}

/* The warp that fetches dz. The 16 j of an i are two atoms. */
__device__ inline void fetch_z(const weight_args &w, const weight_place &at, const run_shared &s) {
    int lane = threadIdx.x % 32, atom = lane % EIGHT, half = lane / EIGHT;
    uint32_t full = shared_address(&s.barriers->z_full);
    for (int step = at.first, n = 0; step < at.end; step++, n++) {
        int i = step / w.steps_j * SIDE_I + atom / 2, eight = step % w.steps_j * 2 + atom % 2;
        if (n > 0) barrier_wait(shared_address(&s.barriers->z_empty), (n - 1) & 1);
        if (lane == 0) expect_run(full, SLOT_X);
        __syncwarp();
        if (half < X_TILES) {
            load_run(s.z + half * PANEL_TILE + atom * ATOM, weight_atom_z(w, i, eight, half), ATOM,
                     full);
        }
    }
}

/* The group's place in its ring. before: the slot of the last product, or -1. */
struct run_ring {
    int slot, turn, before;
};

__device__ inline void free_slot(const run_shared &s, run_ring *ring) {
    if (ring->before >= 0) weight_arrive(s.barriers->b_empty + ring->before);
    ring->before = -1;
}

/* p (+)= b times a over the tiles [first, end) of 64 sequences. The last product is under way
 * afterwards. */
__device__ inline void outer_of(const run_shared &s, int first, int end, run_ring *ring,
                                float (&p)[16][4]) {
    for (int tile = first; tile < end; tile++) {
        int place = s.group * RING + ring->slot;
        uint64_t b = tile_operand<PANEL, K_MAJOR>(s.b + place * PANEL_TILE);
        uint64_t a = tile_operand<PANEL, K_MAJOR>(s.a + tile * 2 * PANEL_TILE);
        barrier_wait(shared_address(s.barriers->b_full + place), ring->turn & 1);
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma<K_MAJOR, K_MAJOR>(p, operand_after(b, k * 16), operand_after(a, k * 16),
                                    tile > 0 || k > 0);
        products_commit();
        products_wait<1>();
        free_slot(s, ring);
        ring->before = place;
        if (++ring->slot == RING) ring->slot = 0, ring->turn++;
    }
}

/* Puts this group's P of step n into shared memory when both have added that of n - 1. */
__device__ inline void put(const run_shared &s, int n, const float (&p)[16][4]) {
    if (n > 0) barrier_wait(shared_address(&s.barriers->p_empty), (n - 1) & 1);
    weight_put(s.p, s.group * EIGHT, SIDE_J, p);
    tiles_publish();
    __syncwarp();
    weight_arrive(&s.barriers->p_full);
}

/* Starts the sum of step n when both have put their P. */
__device__ inline void add(const run_shared &s, int n, float (&sum)[32][4]) {
    barrier_wait(shared_address(&s.barriers->z_full), n & 1);
    barrier_wait(shared_address(&s.barriers->p_full), n & 1);
    weight_add(s.z + s.group * PANEL_TILE, s.p, sum);
}

/* A computing group: the sum of its share. */
__device__ inline void sum_of(const weight_args &w, const weight_place &at, const run_shared &s,
                              float (&sum)[32][4]) {
    run_barriers &r = *s.barriers;
    int count = at.end - at.first, middle = w.tiles / 2, turn = 0;
    run_ring ring = {0, 0, -1};
    float p[16][4];
    barrier_wait(shared_address(&r.ready), 0);
    outer_of(s, 0, w.tiles, &ring, p);
    products_wait<0>(p);
    free_slot(s, &ring);
    for (int n = 0; n < count - 1; n++) {
        put(s, n, p);
        if ((at.first + n + 1) % w.steps_j == 0) {
            weight_arrive(&r.read);
            barrier_wait(shared_address(&r.ready), ++turn & 1);
        }
        outer_of(s, 0, middle, &ring, p);
        add(s, n, sum);
        outer_of(s, middle, w.tiles, &ring, p);
        products_wait<0>(p);
        products_pin(sum);
        free_slot(s, &ring);
        weight_arrive(&r.z_empty);
        weight_arrive(&r.p_empty);
    }
    put(s, count - 1, p);
    add(s, count - 1, sum);
    products_wait<0>(sum);
}

__global__ void __launch_bounds__(CHAIN_THREADS, 1)
    mma_weight_long(const __grid_constant__ weight_args w) {
    extern __shared__ __align__(TILE_ALIGN) char space[];
    __shared__ run_barriers barriers;
    bf16 *p = (bf16 *)space, *z = p + P_SIZE, *b = z + SLOT_X;
    run_shared s = {p, z, b, b + 2 * RING * PANEL_TILE, &barriers, warp_group()};
    weight_place at = weight_place_of(w);
    if (threadIdx.x == 0) {
        for (int k = 0; k < 2 * RING; k++) {
            barrier_init(shared_address(barriers.b_full + k), 1);
            barrier_init(shared_address(barriers.b_empty + k), GROUP_THREADS / 32);
        }
        barrier_init(shared_address(&barriers.z_full), 1);
        barrier_init(shared_address(&barriers.z_empty), CONSUMERS / 32);
        barrier_init(shared_address(&barriers.p_full), CONSUMERS / 32);
        barrier_init(shared_address(&barriers.p_empty), CONSUMERS / 32);
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
        if (warp < 2) fetch_b(w, at, s, warp);
        if (warp == 2) fetch_a(w, at, s);
        if (warp == 3) fetch_z(w, at, s);
        return;
    }
    registers_take<CONSUMER_REGISTERS>();
    float sum[32][4] = {};
    sum_of(w, at, s, sum);
    weight_store(w.partial, at.share, at.slice, SLICES, sum);
}

} // namespace

bool outer_weight_long_takes(const fm_outer *o) {
    return o->n_seq > OUTER_MAX_GRAD_SEQ && o->n_seq <= OUTER_MAX_SEQ && o->n_i % SIDE_I == 0 &&
           o->n_j % SIDE_J == 0;
}

size_t outer_weight_long_bytes(const fm_outer *o) {
    return weight_bytes(o->n_i / SIDE_I * (o->n_j / SIDE_J));
}

void outer_weight_long(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                       const outer_packed &from) {
    int tiles = (int)(round_up(o->n_seq, 128) / PANEL);
    int elements = (int)P_SIZE + SLOT_X + (2 * RING + 2 * tiles) * PANEL_TILE;
    weight_run(stream, mma_weight_long, elements * (int)sizeof(bf16), SIDE_I, SIDE_J, o, grad,
               from);
}

} // namespace fm_cuda
