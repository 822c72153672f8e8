/* transition_grad.cu: the gradient of a transition's update whose hidden layer is not kept, from
 * the gradient of the LayerNorm behind it to that of its normalised input, in one kernel, in bf16
 * on warp groups:
 *
 *     dy      = dy + the gradient of y through n          (row_begin.cuh)
 *     hidden  = max(x W1^T + b1, 0)
 *     dhidden = dy W2 where hidden is above 0, else 0
 *     dx      = dhidden W1
 *
 * for the shapes of transition.cu with C = 64 or 128 channels and with its structure. Both hidden
 * layers stay in registers. A slot of W1 serves two products: its rows are the columns of the first
 * and what the last sums over. The weight gradients make the hidden layers again
 * (transition_weights.cu). */
#include "trainer/backend/cuda/hopper/gemm/row_begin.cuh"
#include "trainer/backend/cuda/hopper/gemm/transition.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"
#include "trainer/backend/cuda/norm/norm.cuh"

namespace fm_cuda {

enum { SUMS_BARRIER = RING_GROUPS + 1, CHUNK = 64 };

struct transition_grad_call {
    box_map y, dn, dy, x; /* a group's rows */
    box_map w1, w2, dx;   /* a box of a slot each; a warp's rows */
    row_begin begin;
    const bf16 *b1;
    float *sums;                      /* of dgamma and dbeta: [blocks, 2, C] */
    int chunks, turns, tiles, offset; /* as in transition.cu */
};

/* A slot has 64 rows of W1, or C rows by 64 columns of W2. Slots of W1 come first. */
template <int C> struct transition_grad_space {
    /* x and dy as left operands. With 64 channels the compiler gives them and the last product's
     * operand the same registers. */
    static constexpr bool IN_REGISTERS = C == 128;
    static constexpr int ONES = 3, TWOS = 3, SLOTS = ONES + TWOS;
    struct {
        bf16 y[GROUP_ROWS * C], dn[GROUP_ROWS * C], dy[GROUP_ROWS * C];
        bf16 x[GROUP_ROWS * C]; /* then dx, on its way to memory */
    } rows[RING_GROUPS];
    bf16 ring[SLOTS][64 * C];
    copy_ring<SLOTS> barriers; /* of two rings: those of W1, then those of W2 */
    uint64_t has_dy[RING_GROUPS], has_x[RING_GROUPS]; /* ring_begin takes both as one array */
};

/* The next slots of W1 and of W2. */
template <int C> struct grad_place {
    typedef transition_grad_space<C> S;
    ring_place<S::ONES> one;
    ring_place<S::TWOS> two;
    __device__ inline int take_one(S *s) {
        int slot = one.slot;
        s->barriers.wait(slot, one.phase);
        one.next();
        return slot;
    }
    __device__ inline int take_two(S *s) {
        int slot = S::ONES + two.slot;
        s->barriers.wait(slot, two.phase);
        two.next();
        return slot;
    }
    /* Takes and frees the slots of some chunks that this group does not use. */
    __device__ inline void skip(S *s, int chunks) {
        for (int i = 0; i < chunks; i++) {
            free_slots(s, {take_one(s)});
            free_slots(s, {take_two(s)});
        }
    }
};

/* -- loads */

/* The fetching thread. */
template <int C>
__device__ inline void fetch_weights(const transition_grad_call &t, transition_grad_space<C> *s) {
    typedef transition_grad_space<C> S;
    int steps = t.turns * t.chunks + t.offset;
    grad_place<C> at;
    at.one.phase = at.two.phase = 1;
    for (int step = 0; step < steps; step++) {
        int first = step % t.chunks * CHUNK, slot = at.one.slot;
        uint32_t full = s->barriers.fill(slot, at.one.phase, sizeof s->ring[0]);
        uint32_t to = shared_address(s->ring[slot]);
        for (int k = 0; k < C; k += 64)
            box_load(to + k * CHUNK * (int)sizeof(bf16), t.w1, {first, 0, 0, 0, k}, full);
        at.one.next();
        slot = S::ONES + at.two.slot;
        full = s->barriers.fill(slot, at.two.phase, sizeof s->ring[0]);
        box_load(shared_address(s->ring[slot]), t.w2, {0, 0, 0, 0, first}, full);
        at.two.next();
    }
}

/* Asks for a group's rows from `row` on. */
template <int C>
__device__ inline void load_tile(bf16 *tile, const box_map &boxes, int row, uint32_t has) {
    for (int k = 0; k < C; k += 64)
        box_load(shared_address(tile + k * GROUP_ROWS), boxes, {row, 0, 0, 0, k}, has);
}

/* One thread of a group: asks for what dy is made of, or for x, in a turn. */
template <int C>
__device__ inline void fetch_dy(const transition_grad_call &t, transition_grad_space<C> *s,
                                int group, int turn) {
    int tile = tile_of(group, turn), row = tile * GROUP_ROWS;
    if (turn >= t.turns || tile >= t.tiles) return;
    auto &rows = s->rows[group];
    uint32_t has = shared_address(&s->has_dy[group]);
    barrier_expect(has, sizeof rows.dy * (t.begin.adds + (t.begin.gamma ? 2 : 0)));
    if (t.begin.gamma) load_tile<C>(rows.y, t.y, row, has), load_tile<C>(rows.dn, t.dn, row, has);
    if (t.begin.adds) load_tile<C>(rows.dy, t.dy, row, has);
}
template <int C>
__device__ inline void fetch_x(const transition_grad_call &t, transition_grad_space<C> *s,
                               int group, int turn) {
    uint32_t has = shared_address(&s->has_x[group]);
    barrier_expect(has, sizeof s->rows[0].x);
    load_tile<C>(s->rows[group].x, t.x, tile_of(group, turn) * GROUP_ROWS, has);
}

/* -- products */

/* The left operands of a group: in registers, or where they are in shared memory. */
template <int C> struct grad_rows {
    static constexpr int STEPS = transition_grad_space<C>::IN_REGISTERS ? C / 16 : 1;
    uint32_t x[STEPS][4], dy[STEPS][4];
    const bf16 *x_tile, *dy_tile;
};

/* The 16 columns of a group's rows in a step of a product. */
__device__ inline uint64_t rows_step(const bf16 *tile, int k) {
    return operand_after(tile_operand<64, K_MAJOR>(tile + k / 4 * GROUP_ROWS * 64), k % 4 * 16);
}

/* Starts h = x W1^T for a chunk. */
template <int C>
__device__ inline void start_hidden(float (&h)[8][4], const grad_rows<C> &r, const bf16 *w1) {
    products_pin(h);
    products_begin();
#pragma unroll
    for (int k = 0; k < C / 16; k++) {
        uint64_t w = rows_step(w1, k);
        if constexpr (transition_grad_space<C>::IN_REGISTERS) {
            wgmma<K_MAJOR>(h, r.x[k], w, k > 0);
        } else {
            wgmma<K_MAJOR, K_MAJOR>(h, rows_step(r.x_tile, k), w, k > 0);
        }
    }
    products_commit();
}

/* Starts g = dy W2 for a chunk. */
template <int C>
__device__ inline void start_dhidden(float (&g)[8][4], const grad_rows<C> &r, const bf16 *w2) {
    products_pin(g);
    products_begin();
#pragma unroll
    for (int k = 0; k < C / 16; k++) {
        uint64_t w = tile_operand<64, MN_MAJOR>(w2 + k * 16 * 64);
        if constexpr (transition_grad_space<C>::IN_REGISTERS) {
            wgmma<MN_MAJOR>(g, r.dy[k], w, k > 0);
        } else {
            wgmma<K_MAJOR, MN_MAJOR>(g, rows_step(r.dy_tile, k), w, k > 0);
        }
    }
    products_commit();
}

/* The products of one tile, from the group's first chunk on. The last product is under way at
 * the end. Returns its slot. When products have begun that read all of dy's registers, its tile may
 * have the rows of the next turn. */
template <int C>
__device__ inline int multiply(const transition_grad_call &t, transition_grad_space<C> *s,
                               const grad_rows<C> &r, int group, int tile_turn, grad_place<C> &at,
                               float (&d)[C / 8][4]) {
    typedef transition_grad_space<C> S;
    int chunk = group * t.offset, before = 0;
    bool is_first = threadIdx.x % GROUP_THREADS == 0;
#pragma unroll 1
    for (int turn = 0; turn < t.chunks; turn++) {
        float h[8][4], g[8][4];
        uint32_t p[4][4], bias[8];
        int one = at.take_one(s);
        start_hidden<C>(h, r, s->ring[one]);
        read_bias(bias, t.b1 + chunk * CHUNK);
        int two = at.take_two(s);
        start_dhidden<C>(g, r, s->ring[two]);
        products_wait<2>(d);
        if (turn > 0) free_slots(s, {before});
        if (S::IN_REGISTERS && turn == 0) {
            group_wait(group);
            if (is_first) fetch_dy<C>(t, s, group, tile_turn + 1);
            __syncwarp();
        }
        products_wait<1>(h);
        hidden_rows(p, h, bias);
        products_wait<0>(g);
        free_slots(s, {two});
        mask_rows(p, g);
        products_pin(d);
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma<MN_MAJOR>(d, p[k],
                            tile_operand<64, MN_MAJOR>(s->ring[one] + k * 16 * 64, 64 * 64),
                            turn > 0 || k > 0);
        products_commit();
        before = one;
        if (++chunk == t.chunks) chunk = 0;
    }
    return before;
}

/* -- the kernel */

/* A computing group. */
template <int C>
__device__ inline void pass_back(const transition_grad_call &t, transition_grad_space<C> *s,
                                 int group) {
    typedef transition_grad_space<C> S;
    int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 % 4 * 16, offset = group * t.offset;
    bool is_first = threadIdx.x % GROUP_THREADS == 0;
    grad_place<C> at;
    lane_sums<C> sums = {};
    at.skip(s, offset);
    for (int turn = 0; turn < t.turns; turn++) {
        int tile = tile_of(group, turn), row = tile * GROUP_ROWS + warp_row;
        if (tile >= t.tiles) {
            at.skip(s, t.chunks);
            continue;
        }
        auto &rows = s->rows[group];
        if (lane == 0) stores_wait(); /* of dx, whose place x takes */
        group_wait(group);
        if (is_first) fetch_x<C>(t, s, group, turn);
        barrier_wait(shared_address(&s->has_dy[group]), turn % 2);
        begin_rows<C>(t.begin, {rows.y, rows.dn, rows.dy}, row, warp_row, sums);
        tiles_publish();
        __syncwarp();
        barrier_wait(shared_address(&s->has_x[group]), turn % 2);
        grad_rows<C> r;
        r.x_tile = rows.x, r.dy_tile = rows.dy;
        if constexpr (S::IN_REGISTERS) {
#pragma unroll
            for (int k = 0; k < C / 16; k += 4) {
                tile_rows<64>(r.dy + k, r.dy_tile + k * 16 * GROUP_ROWS, warp_row);
                tile_rows<64>(r.x + k, r.x_tile + k * 16 * GROUP_ROWS, warp_row);
            }
        }
        group_wait(group);
        float d[C / 8][4];
        int last = multiply<C>(t, s, r, group, turn, at, d);
        if constexpr (!S::IN_REGISTERS) {
            group_wait(group); /* products have read all rows of x and dy */
            if (is_first) fetch_dy<C>(t, s, group, turn + 1);
        }
        products_wait<0>(d);
        free_slots(s, {last});
        store_rows<C>(t.dx, rows.x, d, row, warp_row);
    }
    at.skip(s, t.offset - offset);
    if (lane == 0) stores_wait();
    if (!t.begin.gamma) return;
    auto place_of = [s](int warp) { /* no row of y is needed any more */
                                    return (float *)s->rows[warp / 4].y + warp % 4 * 2 * C;
    };
    finish_sums<C, RING_WARPS>(sums, place_of, t.sums, SUMS_BARRIER);
}

template <int C>
__global__ void __launch_bounds__(RING_THREADS, 1)
    wgmma_transition_grad(const __grid_constant__ transition_grad_call t) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    typedef transition_grad_space<C> layout;
    layout *space = (layout *)memory;
    int group = threadIdx.x / GROUP_THREADS;
    ring_begin(space, space->has_dy, 2 * RING_GROUPS);
    if (group == RING_GROUPS) {
        registers_give<FETCH_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_weights<C>(t, space);
    } else {
        registers_take<MULTIPLY_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_dy<C>(t, space, group, 0);
        pass_back<C>(t, space, group);
    }
}

/* -- calls */

static int64_t row_count(const fm_transition *a) {
    return a->end.dropout.n0 * a->end.dropout.n1;
}

/* The workspace has the sums of dgamma and dbeta, then that of transition_weights. */
static size_t sums_bytes(const fm_transition *a) {
    return (size_t)(n_multiprocessor() * 2 * a->end.dropout.c) * sizeof(float);
}

template <int C>
static void transition_grad_as(fm_stream *stream, const fm_transition *a,
                               const fm_transition_grad *g, float *sums) {
    constexpr int BYTES = (int)sizeof(transition_grad_space<C>);
    FM_CUDA(cudaFuncSetAttribute(wgmma_transition_grad<C>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    int64_t rows = row_count(a);
    transition_grad_call t;
    t.begin = row_begin_of(&a->end, a->y, g->dn, g->dy);
    assert(is_aligned(a->w1) && is_aligned(a->w2) && is_aligned(a->x) && is_aligned(g->dx.data));
    t.x = rows_boxes(a->x, C, rows, GROUP_ROWS);
    t.y = t.dn = t.dy = rows_boxes(g->dy.data, C, rows, GROUP_ROWS);
    if (a->end.gamma) {
        t.y = rows_boxes(a->y, C, rows, GROUP_ROWS), t.dn = rows_boxes(g->dn, C, rows, GROUP_ROWS);
    }
    t.w1 = rows_boxes(a->w1, C, a->hidden, CHUNK), t.w2 = rows_boxes(a->w2, a->hidden, C, C);
    t.dx = rows_boxes(g->dx.data, C, rows, 16);
    t.b1 = (const bf16 *)a->b1, t.chunks = (int)(a->hidden / CHUNK);
    int64_t blocks = plan_turns(&t, rows);
    partial_sums norm = norm_sums(blocks, C, g->dgamma, g->dbeta);
    t.sums = a->end.gamma ? sums_place(stream, norm, sums_bytes(a), sums) : NULL;
    launch_after(stream, wgmma_transition_grad<C>, (unsigned)blocks, RING_THREADS, BYTES, true, t);
    FM_LAUNCHED();
    norm.partial = t.sums;
    if (a->end.gamma) end_sums(stream, norm);
}

size_t transition_grad_wgmma_workspace(const fm_transition *a, const fm_transition_grad *g) {
    return sums_bytes(a) + transition_weights_workspace(a, g);
}

void transition_grad_wgmma(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                           void *workspace) {
    if (a->end.dropout.c == 64) {
        transition_grad_as<64>(stream, a, g, (float *)workspace);
    } else {
        transition_grad_as<128>(stream, a, g, (float *)workspace);
    }
    transition_weights(stream, a, g, (char *)workspace + sums_bytes(a));
}

} // namespace fm_cuda
