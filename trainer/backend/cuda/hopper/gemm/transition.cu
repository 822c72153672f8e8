/* transition.cu: a transition from its normalised input to the next LayerNorm in one kernel, in
 * bf16 on warp groups:
 *
 *     hidden = max(x W1^T + b1, 0)
 *     y      = residual + hidden W2^T + b2,   n = LayerNorm(y)
 *
 * for rows of C = 64, 128 or 256 channels and a hidden layer that is a multiple of 128. The hidden
 * layer stays in registers: a chunk of its channels is the accumulators of the first product and
 * then the operand of the second. Backward makes it again (transition_grad.cu, and
 * transition_again.cu for 256 channels).
 *
 * A warp group has 64 rows and all C sums of the second product; two groups form a block, and one
 * block has a multiprocessor. One thread brings the weights through a ring: for each chunk the
 * slots of W1 and then those of W2 (row_end.cuh has their order), over and over. Both groups use
 * every slot. While one group has its first sums in registers to make the operand, the other's
 * products run.
 *
 * With x in shared memory, 64 columns of W1 are too few for the tensor cores' rate: each product
 * reads as much of x as of W1. So x is in registers (C = 128), or a chunk has 128 columns (256). */
#include "trainer/backend/cuda/hopper/gemm/row_end.cuh"
#include "trainer/backend/cuda/hopper/gemm/transition.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

struct transition_call {
    box_map x, w1, w2; /* a group's rows; one box of a slot each */
    const bf16 *b1;
    row_end end;
    int chunks, turns, tiles; /* of the hidden layer; tiles of a group; tiles of 64 rows */
    int offset;               /* the chunk with which the second group begins a tile */
};

template <int C> struct transition_shape {
    static constexpr bool IN_REGISTERS = C == 128; /* x, where it pays and fits */
    /* Whether the first product of a chunk begins while the second one before it is under way.
     * With C = 256 there is no room for the sums of the one beside the operand of the other. */
    static constexpr bool OVERLAPS = C < 256;
    static constexpr int CHUNK = C == 256 ? 128 : 64;
    /* Slots of W1, and of W2, for each chunk. A slot of W1 has CHUNK rows by KS columns, in boxes
     * of 64 columns; a slot of W2 has C rows by 64 columns. */
    static constexpr int PARTS = CHUNK / 64, KS = C / PARTS;
    static constexpr int SLOTS = C == 256 ? 4 : 8, SLOT = 64 * C;
};

template <int C> struct transition_space {
    typedef transition_shape<C> S;
    bf16 x[RING_GROUPS][GROUP_ROWS * C];
    bf16 ring[S::SLOTS][S::SLOT];
    copy_ring<S::SLOTS> barriers;
    uint64_t rows[RING_GROUPS];
};

/* -- loads */

/* The fetching thread. */
template <int C>
__device__ inline void fetch_weights(const transition_call &t, transition_space<C> *s) {
    typedef transition_shape<C> S;
    int steps = t.turns * t.chunks + t.offset;
    ring_place<S::SLOTS> at = {0, 1};
    for (int step = 0; step < steps; step++) {
        int first = step % t.chunks * S::CHUNK;
#pragma unroll
        for (int part = 0; part < 2 * S::PARTS; part++) {
            uint32_t slot = shared_address(s->ring[at.slot]);
            uint32_t full = s->barriers.fill(at.slot, at.phase, sizeof s->ring[0]);
            if (part < S::PARTS) {
                for (int k = 0; k < S::KS; k += 64)
                    box_load(slot + k * S::CHUNK * (int)sizeof(bf16), t.w1,
                             {first, 0, 0, 0, part * S::KS + k}, full);
            } else {
                box_load(slot, t.w2, {0, 0, 0, 0, first + (part - S::PARTS) * 64}, full);
            }
            at.next();
        }
    }
}

/* One thread of a group: asks for the rows of its turn. */
template <int C>
__device__ inline void fetch_rows(const transition_call &t, transition_space<C> *s, int group,
                                  int turn) {
    int tile = tile_of(group, turn);
    if (turn >= t.turns || tile >= t.tiles) return;
    uint32_t rows = shared_address(&s->rows[group]);
    barrier_expect(rows, sizeof s->x[0]);
    box_place at = {tile * GROUP_ROWS, 0, 0, 0, 0};
    for (int k = 0; k < C / 64; k++, at.column += 64)
        box_load(shared_address(s->x[group] + k * GROUP_ROWS * 64), t.x, at, rows);
    int there = t.end.rows - at.row < GROUP_ROWS ? t.end.rows - at.row : GROUP_ROWS;
    bulk_prefetch(t.end.residual + (int64_t)at.row * C, (uint32_t)(there * C * sizeof(bf16)));
}

/* -- products */

/* x of a warp group: in registers, or where it is in shared memory. */
template <int C> struct transition_rows {
    uint32_t a[transition_shape<C>::IN_REGISTERS ? C / 16 : 1][4];
    const bf16 *tile;
};

/* Starts h = x W1^T for 64 / PARTS columns of the hidden layer and the inputs of slot `part`. */
template <int C, int N>
__device__ inline void first_products(float (&h)[N][4], const transition_rows<C> &x,
                                      const bf16 *slot, int part) {
    typedef transition_shape<C> S;
#pragma unroll
    for (int k = 0; k < S::KS / 16; k++) {
        uint64_t w =
            operand_after(tile_operand<64, K_MAJOR>(slot + k / 4 * S::CHUNK * 64), k % 4 * 16);
        int at = part * S::KS / 16 + k;
        if constexpr (S::IN_REGISTERS) {
            wgmma<K_MAJOR>(h, x.a[at], w, at > 0);
        } else {
            uint64_t rows = tile_operand<64, K_MAJOR>(x.tile + at / 4 * GROUP_ROWS * 64);
            wgmma<K_MAJOR, K_MAJOR>(h, operand_after(rows, at % 4 * 16), w, at > 0);
        }
    }
}

/* The products of one tile, from chunk `begin` on. Where chunks overlap the last second product is
 * under way at the end. */
template <int C>
__device__ inline void multiply(const transition_call &t, transition_space<C> *s,
                                const transition_rows<C> &x, int begin,
                                ring_place<transition_shape<C>::SLOTS> &at, float (&d)[C / 8][4]) {
    typedef transition_shape<C> S;
    constexpr int N = S::CHUNK / 8;
    int chunk = begin, before[S::PARTS];
#pragma unroll 1
    for (int turn = 0; turn < t.chunks; turn++) {
        int first = chunk * S::CHUNK, slots[S::PARTS];
        float h[N][4];
        uint32_t p[N / 2][4], bias[N];
        take_slots(s, slots, at);
        products_pin(h);
        products_begin();
#pragma unroll
        for (int part = 0; part < S::PARTS; part++)
            first_products<C>(h, x, s->ring[slots[part]], part);
        products_commit();
        read_bias(bias, t.b1 + first);
        if constexpr (S::OVERLAPS) {
            products_wait<1>(d);
            if (turn > 0) free_slots(s, before);
        }
        products_wait<0>(h);
        free_slots(s, slots);
        hidden_rows(p, h, bias);
        take_slots(s, before, at);
        products_pin(d);
        products_begin();
#pragma unroll
        for (int k = 0; k < S::CHUNK / 16; k++) {
            uint64_t w2 = tile_operand<64, K_MAJOR>(s->ring[before[k / 4]]);
            wgmma<K_MAJOR>(d, p[k], operand_after(w2, k % 4 * 16), turn > 0 || k > 0);
        }
        products_commit();
        if constexpr (!S::OVERLAPS) {
            products_wait<0>(d);
            free_slots(s, before);
        }
        if (++chunk == t.chunks) chunk = 0;
    }
}

/* -- the kernel */

/* A computing group. */
template <int C>
__device__ inline void transform(const transition_call &t, transition_space<C> *s, int group) {
    typedef transition_shape<C> S;
    bool is_first = threadIdx.x % GROUP_THREADS == 0;
    int warp_row = threadIdx.x / 32 % 4 * 16, offset = group * t.offset;
    ring_place<S::SLOTS> at = {0, 0};
    skip_slots<2 * S::PARTS>(s, offset, at);
    for (int turn = 0; turn < t.turns; turn++) {
        int tile = tile_of(group, turn);
        if (tile >= t.tiles) {
            skip_slots<2 * S::PARTS>(s, t.chunks, at);
            continue;
        }
        transition_rows<C> x;
        x.tile = s->x[group];
        barrier_wait(shared_address(&s->rows[group]), turn % 2);
        if constexpr (S::IN_REGISTERS) {
#pragma unroll
            for (int k = 0; k < C / 16; k += 4)
                tile_rows<64>(x.a + k, x.tile + k * 16 * GROUP_ROWS, warp_row);
            tiles_publish(); /* The rows are in registers before the copy engine writes again. */
            group_wait(group);
            if (is_first) fetch_rows(t, s, group, turn + 1);
        }
        float d[C / 8][4];
        multiply<C>(t, s, x, offset, at, d);
        if (!S::IN_REGISTERS) {
            group_wait(group);
            if (is_first) fetch_rows(t, s, group, turn + 1);
        }
        int row = tile * GROUP_ROWS + warp_row + (int)threadIdx.x % 32 / 4;
        near_rows rows = {row, t.end.rows};
        row_parts<C> parts;
        load_residual<C>(t.end, rows, parts);
        if constexpr (S::OVERLAPS) {
            products_wait<0>(d);
            free_slots(s, {(at.slot + S::SLOTS - 1) % S::SLOTS});
        }
        finish_rows<C, true>(t.end, d, rows, parts, NULL);
    }
    skip_slots<2 * S::PARTS>(s, t.offset - offset, at);
}

template <int C>
__global__ void __launch_bounds__(RING_THREADS, 1)
    wgmma_transition(const __grid_constant__ transition_call t) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    typedef transition_space<C> layout;
    layout *space = (layout *)memory;
    int group = threadIdx.x / GROUP_THREADS;
    ring_begin(space, space->rows, RING_GROUPS);
    if (group == RING_GROUPS) {
        registers_give<FETCH_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_weights<C>(t, space);
    } else {
        registers_take<MULTIPLY_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_rows<C>(t, space, group, 0);
        transform<C>(t, space, group);
    }
}

/* -- calls */

template <int C> static void transition_as(fm_stream *stream, const fm_transition *a) {
    constexpr int BYTES = (int)sizeof(transition_space<C>);
    typedef transition_shape<C> S;
    FM_CUDA(cudaFuncSetAttribute(wgmma_transition<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 BYTES));
    transition_call t;
    t.end = row_end_of(&a->end, a->b2, a->residual, a->y, a->n);
    const fm_later_norm &later = a->later;
    assert(is_aligned(later.gamma) && is_aligned(later.beta) && is_aligned(later.n));
    t.end.norm[1] = {(const bf16 *)later.gamma, (const bf16 *)later.beta, (bf16 *)later.n};
    if (later.n) t.end.norms = 2;
    assert(is_aligned(a->x) && is_aligned(a->w1) && is_aligned(a->w2));
    t.x = rows_boxes(a->x, C, t.end.rows, GROUP_ROWS);
    t.w1 = rows_boxes(a->w1, C, a->hidden, S::CHUNK);
    t.w2 = row_end_boxes(a->w2, C, a->hidden);
    t.b1 = (const bf16 *)a->b1;
    t.chunks = (int)(a->hidden / S::CHUNK);
    int64_t blocks = plan_turns(&t, t.end.rows);
    launch_after(stream, wgmma_transition<C>, (unsigned)blocks, RING_THREADS, BYTES, true, t);
    FM_LAUNCHED();
}

bool transition_takes(const fm_transition *a) {
    int64_t c = a->end.dropout.c, rows = a->end.dropout.n0 * a->end.dropout.n1;
    return (c == 64 || c == 128 || c == 256) && a->hidden % 128 == 0 && a->end.dropout.rate == 0 &&
           rows >= GROUP_ROWS && rows < 1 << 30;
}

void transition_wgmma(fm_stream *stream, const fm_transition *a) {
    if (a->end.dropout.c == 64) {
        transition_as<64>(stream, a);
    } else if (a->end.dropout.c == 128) {
        transition_as<128>(stream, a);
    } else {
        transition_as<256>(stream, a);
    }
}

} // namespace fm_cuda
