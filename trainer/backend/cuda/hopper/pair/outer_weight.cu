/* outer_weight.cu: the weight gradient of the outer product mean without its outer products P in
 * memory (outer_weight.cuh), for at most 128 sequences, n_i and n_j multiples of 8.
 *
 * A step takes 8 x 8 pairs. Eight rows i of a stay in shared memory. P of the next step is under
 * way while this one's is added, and the sum of the step before while this one's P is rounded. */
#include "trainer/backend/cuda/hopper/pair/outer_weight.cuh"

namespace fm_cuda {
namespace {

/* STAY: elements of a in shared memory. P_SLOTS: one P is read by products while the next is
 * written. STEP_SLOTS: of b, and of dz. */
enum {
    STAY = 2 * OUTER_C * EIGHT * PANEL,
    P_SLOTS = 2,
    STEP_SLOTS = 3,
    SHARED_BYTES = (STAY + P_SLOTS * P_SIZE + 2 * STEP_SLOTS * SLOT_X) * 2
};

struct step_barriers {
    uint64_t b_full[STEP_SLOTS], b_empty[STEP_SLOTS], z_full[STEP_SLOTS], z_empty[STEP_SLOTS];
    uint64_t ready, read; /* a of eight i is there, and may be replaced */
};

struct step_shared {
    bf16 *a, *p, *b, *z;
    step_barriers *barriers;
    int group; /* the warp's */
};

/* Waits until slot n % STEP_SLOTS may be written and announces its bytes. The whole warp. */
__device__ inline uint32_t step_slot(uint64_t *full, uint64_t *empty, int n) {
    int slot = n % STEP_SLOTS, turn = n / STEP_SLOTS;
    uint32_t barrier = shared_address(full + slot);
    if (turn > 0) barrier_wait(shared_address(empty + slot), (turn - 1) & 1);
    if (threadIdx.x % 32 == 0) expect_run(barrier, SLOT_X);
    __syncwarp();
    return barrier;
}

/* The warp that fetches a, when the steps before have read it, and b. */
__device__ inline void fetch_b(const weight_args &w, const weight_place &at, const step_shared &s) {
    int lane = threadIdx.x % 32, tile = lane / EIGHT, row = lane % EIGHT; /* of a slot: 16 lanes */
    uint32_t ready = shared_address(&s.barriers->ready);
    for (int step = at.first, n = 0, phase = 1; step < at.end; step++, n++) {
        int i = step / w.steps_j, j = step % w.steps_j * EIGHT + row;
        if (n == 0 || j < EIGHT) {
            if (n > 0) barrier_wait(shared_address(&s.barriers->read), (uint32_t)phase);
            phase ^= 1;
            if (lane == 0) expect_run(ready, STAY);
            __syncwarp();
            if (lane < EIGHT) { /* panel lane / 2, sequences from lane % 2 * 64 on */
                load_run(s.a + (lane % 2 * 4 + lane / 2) * PANEL_TILE,
                         w.a + ((int64_t)i * EIGHT + lane) * PANEL_TILE, PANEL_TILE, ready);
            }
        }
        uint32_t full = step_slot(s.barriers->b_full, s.barriers->b_empty, n);
        bf16 *to = s.b + n % STEP_SLOTS * SLOT_X + tile * PANEL_TILE + row * ATOM;
        if (tile < X_TILES) {
            load_run(to, weight_atom_b(w, at.slice, j) + tile * PANEL_TILE, ATOM, full);
        }
    }
}

/* The warp that fetches dz. */
__device__ inline void fetch_z(const weight_args &w, const weight_place &at, const step_shared &s) {
    int lane = threadIdx.x % 32;
    for (int step = at.first, n = 0; step < at.end; step++, n++) {
        uint32_t full = step_slot(s.barriers->z_full, s.barriers->z_empty, n);
        bf16 *to = s.z + n % STEP_SLOTS * SLOT_X + lane * PANEL_TILE;
        if (lane < X_TILES) {
            box_load(shared_address(to), w.dz_boxes,
                     {step % w.steps_j * EIGHT, step / w.steps_j * EIGHT, 0, 0, lane * PANEL},
                     full);
        }
    }
}

/* Starts p = b times a of step n, for this group's four i. */
__device__ inline void outer_of(const step_shared &s, int n, float (&p)[16][4]) {
    uint64_t b = tile_operand<PANEL, K_MAJOR>(s.b + n % STEP_SLOTS * SLOT_X);
    uint64_t a = tile_operand<PANEL, K_MAJOR>(s.a + s.group * 2 * PANEL_TILE);
    barrier_wait(shared_address(s.barriers->b_full + n % STEP_SLOTS), n / STEP_SLOTS & 1);
    products_begin();
#pragma unroll
    for (int k = 0; k < 8; k++) {
        int tile = k / 4, inside = k % 4 * 16;
        wgmma<K_MAJOR, K_MAJOR>(p, operand_after(b, tile * PANEL_TILE + inside),
                                operand_after(a, tile * 4 * PANEL_TILE + inside), k > 0);
    }
    products_commit();
}

/* A computing group: the sum of its share. The last P is made twice, because a product behind a
 * branch would make the assembler wait for every product. */
__device__ inline void sum_of(const weight_args &w, const weight_place &at, const step_shared &s,
                              float (&sum)[32][4]) {
    step_barriers &r = *s.barriers;
    int count = at.end - at.first, left = w.steps_j - at.first % w.steps_j, phase = 0;
    float p[16][4];
    barrier_wait(shared_address(&r.ready), 0);
    outer_of(s, 0, p);
    products_wait<0>(p);
    for (int n = 0; n < count; n++) {
        bf16 *to = s.p + n % P_SLOTS * P_SIZE;
        weight_arrive(r.b_empty + n % STEP_SLOTS);
        weight_put(to, s.group * 4 * EIGHT, EIGHT, p);
        if (--left == 0 && n + 1 < count) {
            weight_arrive(&r.read);
            left = w.steps_j, phase ^= 1;
            barrier_wait(shared_address(&r.ready), (uint32_t)phase);
        }
        outer_of(s, n + 1 < count ? n + 1 : n, p);
        tiles_publish();
        products_wait<1>(); /* the sum of step n - 1 */
        if (n > 0) weight_arrive(r.z_empty + (n - 1) % STEP_SLOTS);
        asm volatile("bar.sync 1, %0;" ::"n"((int)CONSUMERS) : "memory");
        barrier_wait(shared_address(r.z_full + n % STEP_SLOTS), n / STEP_SLOTS & 1);
        weight_add(s.z + n % STEP_SLOTS * SLOT_X + s.group * PANEL_TILE, to, sum);
        products_wait<1>(p); /* P of step n + 1 */
    }
    products_wait<0>(sum);
}

__global__ void __launch_bounds__(CHAIN_THREADS, 1)
    mma_weight(const __grid_constant__ weight_args w) {
    extern __shared__ __align__(TILE_ALIGN) char space[];
    __shared__ step_barriers barriers;
    bf16 *a = (bf16 *)space, *p = a + STAY, *b = p + P_SLOTS * P_SIZE;
    step_shared s = {a, p, b, b + STEP_SLOTS * SLOT_X, &barriers, warp_group()};
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
        if (warp == 0) fetch_b(w, at, s);
        if (warp == 1) fetch_z(w, at, s);
        return;
    }
    registers_take<CONSUMER_REGISTERS>();
    float sum[32][4] = {};
    sum_of(w, at, s, sum);
    weight_store(w.partial, at.share, at.slice, SLICES, sum);
}

} // namespace

bool outer_weight_takes(const fm_outer *o) {
    return o->n_seq <= OUTER_MAX_GRAD_SEQ && o->n_i % EIGHT == 0 && o->n_j % EIGHT == 0;
}

size_t outer_weight_bytes(const fm_outer *o) {
    return weight_bytes(o->n_i / EIGHT * (o->n_j / EIGHT));
}

void outer_weight(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                  const outer_packed &from) {
    weight_run(stream, mma_weight, SHARED_BYTES, EIGHT, EIGHT, o, grad, from);
}

} // namespace fm_cuda
