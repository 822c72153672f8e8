/* transition_again.cu: the gradient of a transition's update whose hidden layer is not kept, in
 * bf16 on warp groups. One kernel makes the hidden layer again, together with its gradient:
 *
 *     hidden  = max(x W1^T + b1, 0)
 *     dhidden = dy W2 where hidden is above 0, else 0;   db1 = the sums of dhidden's columns
 *
 * for rows of C = 256 channels, with at most 4 C hidden channels. The weight gradients need both
 * results, so both go to memory; what they are made of is read once. The bits of the hidden layer
 * are those of the forward, whose order of products this is.
 *
 * Two warp groups form a block. A group has 64 rows of x and of dy in registers, as left operands
 * of all their products, and walks over the hidden layer in chunks of 64 channels. One thread
 * brings everything through one ring: rows of a group, and for each chunk a slot of W1 and one of
 * W2. Both groups pass all slots, and read the weights and their own rows. The second group begins
 * a tile some chunks behind the first, so that one has products while the other changes rows.
 *
 * The sums of dhidden's columns over the 16 rows of a warp are products with ones. Each warp adds
 * them to its own sums in shared memory, in the order of its tiles; then warps, and then blocks,
 * are added in order. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/hopper/gemm/transition.cuh"
#include "trainer/backend/cuda/hopper/gemm/weights.cuh"
#include "trainer/backend/products.h"

namespace fm_cuda {

enum { C = 256, SUMS_BARRIER = RING_GROUPS + 1, CHUNK = 64 };

struct again_call {
    box_map x, dy, w1, w2;   /* 64 rows; a box of a slot */
    box_map hidden, dhidden; /* a warp's 16 rows by 64 columns */
    const bf16 *b1, *x_rows, *dy_rows;
    float *sums; /* [blocks, channels of the hidden layer]; NULL: no sums */
    int rows, chunks, turns, tiles, offset; /* as in transition.cu; offset is at least 1 */
};

/* A slot has 64 rows of x or of dy, or of W1, or C rows by 64 columns of W2. */
struct again_space {
    static constexpr int SLOT = 64 * C, SLOTS = 5;
    bf16 ring[SLOTS][SLOT];
    bf16 stage[RING_WARPS][2][16 * 64]; /* hidden and dhidden on their way to memory */
    float sums[RING_WARPS][4 * C];
    copy_ring<SLOTS> barriers;
};

/* -- loads, by the fetching thread */

struct again_fetch {
    typedef again_space S;
    const again_call &t;
    S *s;
    ring_place<S::SLOTS> at;

    /* Waits for a free slot and expects all bytes of it. */
    __device__ inline void begin(uint32_t &slot, uint32_t &full) {
        slot = shared_address(s->ring[at.slot]);
        full = s->barriers.fill(at.slot, at.phase, sizeof s->ring[0]);
        at.next();
    }

    /* 64 rows of a matrix of C columns, from `row` on; rows that do not exist are zeros. */
    __device__ inline void rows(const box_map &boxes, int row) {
        uint32_t slot, full;
        begin(slot, full);
        for (int k = 0; k < C; k += 64)
            box_load(slot + k * 64 * (int)sizeof(bf16), boxes, {row, 0, 0, 0, k}, full);
    }

    __device__ inline void group_rows(int group, int turn) {
        int row = tile_of(group, turn) * GROUP_ROWS;
        rows(t.x, row), rows(t.dy, row);
    }

    /* Asks the L2 cache for the rows of a later turn. */
    __device__ inline void expect_rows(int group, int turn) {
        int row = tile_of(group, turn) * GROUP_ROWS, there = min(t.rows - row, (int)GROUP_ROWS);
        if (there <= 0) return;
        uint32_t bytes = (uint32_t)(there * C * (int)sizeof(bf16));
        bulk_prefetch(t.x_rows + (int64_t)row * C, bytes);
        bulk_prefetch(t.dy_rows + (int64_t)row * C, bytes);
    }

    __device__ inline void run() {
        int steps = t.turns * t.chunks + t.offset;
        for (int step = 0; step < steps; step++) {
            int chunk = step % t.chunks, turn = step / t.chunks;
            if (chunk == 0) group_rows(0, turn);
            if (chunk == t.offset) group_rows(1, turn);
            rows(t.w1, chunk * CHUNK);
            uint32_t slot, full;
            begin(slot, full);
            box_load(slot, t.w2, {0, 0, 0, 0, chunk * CHUNK}, full);
            if (chunk == 1) expect_rows(0, turn + 1), expect_rows(1, turn + 1);
        }
    }
};

/* -- products */

/* Starts h = x W1^T for a chunk. */
__device__ inline void start_hidden(float (&h)[8][4], const uint32_t (&x)[C / 16][4],
                                    const bf16 *w1) {
    uint64_t w = tile_operand<64, K_MAJOR>(w1);
    products_pin(h);
    products_begin();
#pragma unroll
    for (int k = 0; k < C / 16; k++) {
        int at = k / 4 * 64 * 64 + k % 4 * 16;
        wgmma<K_MAJOR>(h, x[k], operand_after(w, at), k > 0);
    }
    products_commit();
}

/* Starts d = dy W2 for a chunk. */
__device__ inline void start_dhidden(float (&d)[8][4], const uint32_t (&dy)[C / 16][4],
                                     const bf16 *w2) {
    uint64_t w = tile_operand<64, MN_MAJOR>(w2);
    products_pin(d);
    products_begin();
#pragma unroll
    for (int k = 0; k < C / 16; k++)
        wgmma<MN_MAJOR>(d, dy[k], operand_after(w, k * 16 * 64), k > 0);
    products_commit();
}

/* Stores a warp's 16 rows of a chunk by way of `stage`, which the last store but one has read. */
__device__ inline void store_piece(const box_map &boxes, bf16 *stage, const uint32_t (&p)[4][4],
                                   int row, int first) {
    if (threadIdx.x % 32 == 0) stores_wait_but_one();
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 4; k++)
        tile_put<64>(stage, 0, 2 * k, p[k]);
    tiles_publish();
    __syncwarp();
    if (threadIdx.x % 32 == 0) box_store_once(boxes, {row, 0, 0, 0, first}, shared_address(stage));
    __syncwarp();
}

/* The sums of 64 columns that a lane adds to: two of them, of the 16 that four such lanes share. */
struct column_sums {
    float *at, old[2];
};

__device__ inline column_sums sums_of_chunk(float *sums, int first) {
    float *at = sums + first + threadIdx.x % 4 * 16 + threadIdx.x % 32 / 4;
    return {at, {at[0], at[8]}};
}

/* Adds the columns of a warp's 16 x 64 in `stage`. The four lanes of a group of columns have the
 * same sums of each, and take 16 columns each. */
__device__ inline void add_columns(const bf16 *stage, const column_sums &sums) {
    const uint32_t ones = 0x3f803f80;
    int lane = threadIdx.x % 32;
    float two[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t a[4];
        float d[4] = {0, 0, 0, 0};
        ldmatrix_trans(a, stage + tile_at<64>(lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
        mma(d, a, ones, ones);
        if (lane % 4 == k) two[0] = d[0], two[1] = d[2];
    }
    sums.at[0] = sums.old[0] + two[0], sums.at[8] = sums.old[1] + two[1];
}

/* -- the kernel */

/* What a warp of a computing group has at hand. */
struct again_warp {
    typedef again_space S;
    const again_call &t;
    S *s;
    int begin, other; /* the chunks before which the rows of this group, and of the other, come */
    float *sums;
    ring_place<S::SLOTS> at;
    uint32_t x[C / 16][4], dy[C / 16][4];

    __device__ inline int take() {
        int slots[1];
        take_slots(s, slots, at);
        return __shfl_sync(0xffffffffu, slots[0], 0); /* so that addresses of tiles are uniform */
    }
    __device__ inline void free(int slot) {
        const int slots[1] = {slot};
        free_slots(s, slots);
    }

    /* Starts reading 64 rows from the next slot, which is returned. It may be freed when products
     * have begun that read all of them: only then have they arrived in registers. */
    __device__ inline int load(uint32_t (&a)[C / 16][4]) {
        int slot = take();
#pragma unroll
        for (int k = 0; k < C / 16; k += 4)
            tile_rows<64>(a + k, s->ring[slot] + k * 16 * GROUP_ROWS, threadIdx.x / 32 % 4 * 16);
        return slot;
    }

    /* Makes the chunks of one tile, the warp's rows from `row` on. */
    __device__ inline void make_tile(int row) {
        bf16(*stage)[16 * 64] = s->stage[threadIdx.x / 32];
        int rows_of_x = load(x), rows_of_dy = load(dy), chunk = begin;
#pragma unroll 1
        for (int step = 0; step < t.chunks; step++) {
            float h[8][4], d[8][4];
            uint32_t p[4][4], bias[8];
            int first = chunk * CHUNK, one = take();
            start_hidden(h, x, s->ring[one]);
            if (step == 0) free(rows_of_x);
            column_sums mine = sums_of_chunk(sums, first);
            read_bias(bias, t.b1 + first);
            int two = take();
            start_dhidden(d, dy, s->ring[two]);
            if (step == 0) free(rows_of_dy);
            products_wait<1>(h);
            free(one);
            hidden_rows(p, h, bias);
            store_piece(t.hidden, stage[0], p, row, first);
            if (++chunk == t.chunks) chunk = 0;
            if (chunk == other && step + 1 < t.chunks) skip_slots<2>(s, 1, at);
            products_wait<0>(d);
            free(two);
            mask_rows(p, d);
            store_piece(t.dhidden, stage[1], p, row, first);
            add_columns(stage[1], mine);
        }
    }
};

/* Adds the sums of the block's warps in order. */
__device__ inline void finish_columns(const again_call &t, const again_space *s) {
    int channels = t.chunks * CHUNK;
    asm volatile("bar.sync %0, %1;" ::"r"((int)SUMS_BARRIER), "n"(RING_WARPS * 32) : "memory");
    for (int i = threadIdx.x; i < channels; i += RING_WARPS * 32) {
        float total = 0;
#pragma unroll
        for (int warp = 0; warp < RING_WARPS; warp++)
            total += s->sums[warp][i];
        t.sums[blockIdx.x * channels + i] = total;
    }
}

/* A computing group. */
__device__ inline void make_again(const again_call &t, again_space *s, int group) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, channels = t.chunks * CHUNK;
    again_warp w = {t, s, group * t.offset, t.offset - group * t.offset};
    w.sums = s->sums[warp];
    for (int i = lane; i < channels; i += 32)
        w.sums[i] = 0;
    __syncwarp();
    w.at = {0, 0};
    if (group > 0) skip_slots<2>(s, 1 + t.offset, w.at);
    for (int turn = 0; turn < t.turns; turn++)
        w.make_tile(tile_of(group, turn) * GROUP_ROWS + warp % 4 * 16);
    if (group == 0) skip_slots<2>(s, 1 + t.offset, w.at);
    if (lane == 0) stores_wait();
    if (t.sums) finish_columns(t, s);
}

__global__ void __launch_bounds__(RING_THREADS, 1)
    wgmma_transition_again(const __grid_constant__ again_call t) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    again_space *space = (again_space *)memory;
    int group = threadIdx.x / GROUP_THREADS;
    ring_begin(space, NULL, 0);
    if (group == RING_GROUPS) {
        registers_give<FETCH_REGISTERS>();
        again_fetch fetch = {t, space, {0, 1}};
        if (threadIdx.x % GROUP_THREADS == 0) fetch.run();
    } else {
        registers_take<MULTIPLY_REGISTERS>();
        make_again(t, space, group);
    }
}

/* -- calls */

static int64_t row_count(const fm_transition *a) {
    return a->end.dropout.n0 * a->end.dropout.n1;
}

bool transition_again_takes(const fm_transition *a) {
    return transition_takes(a) && a->end.dropout.c == 256 && a->hidden <= 4 * a->end.dropout.c;
}

static int64_t sums_count(const fm_transition *a) {
    return n_multiprocessor() * a->hidden;
}

/* The products behind the kernel: gradients of both weights, and dx. */
struct again_products {
    fm_gemm weight2, weight1, input;
};

/* The workspace has both hidden layers, the sums of blocks, and that of one entry at a time. */
struct again_places {
    void *hidden, *dhidden, *after;
    float *sums;
    again_products of;
    bool is_pair; /* one launch can make the gradients of both weights */
    size_t bytes;
};

static again_places places_of(const fm_transition *a, const fm_transition_grad *g,
                              void *workspace) {
    int64_t rows = row_count(a), c = a->end.dropout.c;
    carver at = {(char *)workspace, 0};
    again_places p;
    p.hidden = at.take((size_t)(rows * a->hidden) * sizeof(bf16));
    p.dhidden = at.take((size_t)(rows * a->hidden) * sizeof(bf16));
    p.sums = (float *)at.take((size_t)sums_count(a) * sizeof(float));
    p.of.weight2 = fm_product_of_weight(rows, a->hidden, c, g->dy.data, p.hidden, g->dw2, g->db2);
    p.of.weight1 = fm_product_of_weight(rows, c, a->hidden, p.dhidden, a->x, g->dw1, {});
    p.of.input = fm_product_of_input(rows, c, a->hidden, p.dhidden, a->w1, g->dx);
    p.after = at.take(0);
    size_t most = a->end.gamma ? update_norm_grad_workspace(rows, c) : 0;
    for (const fm_gemm *one : {&p.of.weight2, &p.of.weight1, &p.of.input})
        most = (size_t)max_size((int64_t)most, (int64_t)gemm_workspace(one));
    p.is_pair = weights_pair_takes(&p.of.weight2, &p.of.weight1);
    if (p.is_pair) {
        size_t both = weights_pair_workspace(&p.of.weight2, &p.of.weight1);
        most = (size_t)max_size((int64_t)most, (int64_t)both);
    }
    p.bytes = at.used + most;
    return p;
}

size_t transition_again_workspace(const fm_transition *a, const fm_transition_grad *g) {
    return places_of(a, g, NULL).bytes;
}

static void again_as(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                     const again_places &p) {
    constexpr int BYTES = (int)sizeof(again_space);
    FM_CUDA(cudaFuncSetAttribute(wgmma_transition_again,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    int64_t rows = row_count(a);
    const void *dy = g->dy.data;
    assert(is_aligned(a->x) && is_aligned(dy) && is_aligned(a->w1) && is_aligned(a->w2));
    again_call t;
    t.x = rows_boxes(a->x, C, rows, GROUP_ROWS), t.dy = rows_boxes(dy, C, rows, GROUP_ROWS);
    t.w1 = rows_boxes(a->w1, C, a->hidden, CHUNK), t.w2 = rows_boxes(a->w2, a->hidden, C, C);
    t.hidden = rows_boxes(p.hidden, a->hidden, rows, 16);
    t.dhidden = rows_boxes(p.dhidden, a->hidden, rows, 16);
    t.b1 = (const bf16 *)a->b1, t.x_rows = (const bf16 *)a->x, t.dy_rows = (const bf16 *)dy;
    t.rows = (int)rows, t.chunks = (int)(a->hidden / CHUNK);
    int64_t blocks = plan_turns(&t, rows);
    t.offset = t.chunks > 8 ? 2 : 1;
    partial_sums sums =
        sums_of(NULL, blocks, a->hidden, a->hidden, (float *)g->db1.data, g->db1.beta);
    size_t bytes = (size_t)sums_count(a) * sizeof(float);
    t.sums = g->db1.data ? sums_place(stream, sums, bytes, p.sums) : NULL;
    launch_after(stream, wgmma_transition_again, (unsigned)blocks, RING_THREADS, BYTES, true, t);
    FM_LAUNCHED();
    sums.partial = t.sums;
    if (t.sums) end_sums(stream, sums);
}

void transition_again(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                      void *workspace) {
    again_places p = places_of(a, g, workspace);
    if (a->end.gamma) {
        const fm_update_norm_grad end = {a->y, g->dn, g->dy, NULL, g->dgamma, g->dbeta};
        update_norm_grad<bf16>(stream, &a->end, &end, p.after);
    }
    again_as(stream, a, g, p);
    const fm_gemm *second = &p.of.weight2, *first = &p.of.weight1;
    if (second->c && first->c && p.is_pair) {
        weights_pair(stream, second, first, p.after);
    } else {
        if (second->c) gemm<bf16>(stream, second, p.after);
        if (first->c) gemm<bf16>(stream, first, p.after);
    }
    if (p.of.input.c) gemm<bf16>(stream, &p.of.input, p.after);
}

} // namespace fm_cuda
