/* transition_back.cu: the whole backward of a transition of 128 channels and 512 hidden ones, from
 * the rows x and dy alone, in one kernel, in bf16 on warp groups:
 *
 *     hidden  = max(x W1^T + b1, 0)
 *     dhidden = dy W2 where hidden is above 0, else 0
 *     dx      = dhidden W1
 *     dW1 = dhidden^T x,   db1 = the sums of dhidden's columns
 *     dW2 = dy^T hidden,   db2 = the sums of dy's columns
 *
 * It makes the hidden layers once, where transition_grad.cu and transition_weights.cu make them
 * twice: five products in place of seven.
 *
 * A cluster of four blocks takes a share of the rows, and each block 128 of the hidden channels, as
 * in transition_weights.cu: a warp group has 64 of them and all sums of both weight gradients. dx
 * sums over all hidden channels. So a group puts its dhidden into shared memory, where its rows are
 * the operand of one more product. That gives a group 64 columns of the block's part of dx.
 *
 * Of a tile's 64 rows each block ends 16. A warp has 16 rows of the part, and stores them from its
 * accumulators to shared memory of the block that ends them, in bf16. A barrier there counts the
 * bytes. Three warps beside the fetching one add the four parts in order.
 *
 * The products of a tile follow each other without a gap, because a group begins the next one
 * before it touches what the last one made:
 *
 *     meets the other group, whose dhidden of the tile before is then there
 *     begins dx of the tile before, and hidden
 *     sends dx            while hidden is made
 *     begins dhidden
 *     rounds hidden       while dhidden is made
 *     begins dW2
 *     masks dhidden       while dW2 is summed
 *     begins dW1
 *     stores dhidden      while dW1 is summed */
#include "trainer/backend/cuda/hopper/core/cluster.cuh"
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/hopper/gemm/transition_weights.cuh"

namespace fm_cuda {

enum { BACK_C = 128, BACK_BLOCKS = 4, BACK_STAGES = 3, BACK_ROWS = 64 / BACK_BLOCKS };
/* A group's part of the block's rows is so many pieces. */
enum { ENDING_WARPS = 3, PIECES = 4, GROUPS_BARRIER = RING_GROUPS + 1 };
/* Of a thread that computes, and of the others. A launch gives each of 384 threads 168. */
enum { BACK_REGISTERS = 224, END_REGISTERS = 56 };
static_assert(2 * BACK_REGISTERS + END_REGISTERS <= 3 * 168);

struct transition_back_call {
    transition_weights_call of;
    bf16 *dx;
    int rows;
};

struct transition_back_space {
    bf16 dhidden[2][BLOCK_HIDDEN * 64]; /* a tile's: hidden channels by rows */
    /* dx of the block's rows from each group of each block, of two tiles */
    uint4 part[2][BACK_BLOCKS][RING_GROUPS][PIECES][32];
    weights_tiles<BACK_C, BACK_STAGES> tiles;
    float sums[BACK_BLOCKS][BACK_C]; /* in the first block: dy's columns, from each block */
    uint64_t part_full[2], part_empty[2];
};
static_assert(sizeof(transition_back_space) <= 227 * 1024);

typedef share_walk<BACK_STAGES> back_walk;

/* -- products */

/* Starts the group's columns of the block's part of dx. */
__device__ inline void start_dx(float (&d)[8][4], uint64_t dhidden, uint64_t w1) {
    products_pin(d);
    products_begin();
#pragma unroll
    for (int k = 0; k < BLOCK_HIDDEN / 16; k++)
        wgmma<MN_MAJOR, MN_MAJOR>(d, operand_after(dhidden, k * 16 * 64),
                                  operand_after(w1, k * 16 * 64), k > 0);
    products_commit();
}

/* What the tile of a turn leaves for its dx. */
__device__ inline uint64_t dhidden_of(const transition_back_space *s, int turn) {
    return tile_operand<64, MN_MAJOR>(s->dhidden[turn % 2]);
}

/* Both computing groups. */
__device__ inline void groups_meet() {
    asm volatile("bar.sync %0, %1;" ::"r"((int)GROUPS_BARRIER), "n"(RING_WARPS * 32) : "memory");
}

/* A warp sends its 16 rows to the block that ends them. A piece has 8 of them by 32 columns, of
 * which a lane has a pair in every 8. */
__device__ inline void send_part(transition_back_space *s, const float (&d)[8][4], int group,
                                 int turn) {
    int rank = (int)blockIdx.x % BACK_BLOCKS, to = threadIdx.x / 32 % 4;
    uint4 *part = &s->part[turn % 2][rank][group][0][threadIdx.x % 32];
    uint32_t there = address_in_block(shared_address(part), to);
    uint32_t full = address_in_block(shared_address(&s->part_full[turn % 2]), to);
    barrier_wait(shared_address(&s->part_empty[turn % 2]), turn / 2 % 2 ^ 1);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        uint32_t out[4];
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float *pair = d[i / 2 * 4 + n] + i % 2 * 2;
            out[n] = pack_two(pair[0], pair[1]);
        }
        cluster_store(there + i * (int)sizeof s->part[0][0][0][0], out, full);
    }
}

/* Adds the columns of dhidden's rows: a lane's part of each of its two. */
__device__ inline void add_columns(float (&sums)[4], const uint32_t (&q)[4][4]) {
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 two = unpack_two(q[k][i]);
            sums[i % 2 * 2] += two.x;
            sums[i % 2 * 2 + 1] += two.y;
        }
}

/* A computing group. */
__device__ inline void back_group(const transition_back_call &t, transition_back_space *s,
                                  int group) {
    int lane = threadIdx.x % 32, warp_row = group * 64 + threadIdx.x / 32 % 4 * 16;
    auto *tiles = &s->tiles;
    weights_group<BACK_C> g = begin_group(t.of, tiles, group);
    uint64_t w1 = tile_operand<64, MN_MAJOR>(tiles->w1 + group * BLOCK_HIDDEN * 64);
    int turn = 0, before = 0;
    barrier_wait(shared_address(&tiles->weights), 0);
    products_pin(g.first), products_pin(g.second);
    products_begin();
#pragma unroll 1
    for (back_walk w(t.of, 0); w.goes_on(); w.next(), turn++) {
        const auto &stage = tiles->stage[w.at.slot];
        float h[8][4], d[8][4], dx[8][4];
        uint32_t p[4][4], q[4][4];
        /* dx of the tile before; in the first turn of what is in memory, and nobody gets it. */
        groups_meet();
        start_dx(dx, dhidden_of(s, turn + 1), w1);
        products_wait<1>(g.first);
        /* As barriers.wait, whose call here gives other machine code: 0.2 ms of a step longer. */
        barrier_wait(shared_address(&tiles->barriers.full[w.at.slot]), w.at.phase);
        start_first<BACK_C>(h, g.w1, tile_operand<64, K_MAJOR>(stage.x));
        products_wait<1>(dx);
        if (turn > 0) {
            if (lane == 0) tiles->barriers.free(before);
            send_part(s, dx, group, turn - 1);
        }
        before = w.at.slot;
        start_second<BACK_C>(d, g.w2, tile_operand<64, K_MAJOR>(stage.dy));
        products_wait<1>(h);
        hidden_columns(p, h, g.bias);
        start_sum(g.second, p, stage.dy);
        products_wait<1>(d);
        memcpy(q, p, sizeof q);
        mask_rows(q, d);
        start_sum(g.first, q, stage.x);
#pragma unroll
        for (int k = 0; k < 4; k++)
            tile_put<64>(s->dhidden[turn % 2], warp_row, 2 * k, q[k]);
        tiles_publish();
        add_columns(g.sums, q);
        products_wait<1>(g.second);
    }
    float dx[8][4];
    groups_meet();
    start_dx(dx, dhidden_of(s, turn + 1), w1);
    products_wait<0>(dx);
    products_pin(g.first);
    send_part(s, dx, group, turn - 1);
#pragma unroll
    for (int i = 0; i < 4; i += 2)
        g.sums[i] = row_sum(g.sums[i] + g.sums[i + 1]);
    put_sums(t.of, g, first_hidden(t.of, group));
}

/* -- the ends of rows */

/* Adds the four parts of a piece of dx, and stores their sums. */
__device__ inline void add_parts(const transition_back_call &t, transition_back_space *s, int tile,
                                 int buffer, int group, int piece) {
    int lane = threadIdx.x % 32;
    float2 sum[4] = {};
#pragma unroll
    for (int i = 0; i < BACK_BLOCKS; i++) {
        uint4 part = s->part[buffer][i][group][piece][lane];
        const uint32_t four[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float2 two = unpack_two(four[n]);
            sum[n].x += two.x, sum[n].y += two.y;
        }
    }
    uint32_t words[4];
#pragma unroll
    for (int n = 0; n < 4; n++)
        words[n] = pack_two(sum[n].x, sum[n].y);
    int row = tile * 64 + (int)blockIdx.x % BACK_BLOCKS * BACK_ROWS + piece % 2 * 8 + lane / 4;
    if (row >= t.rows) return;
    bf16 *to = t.dx + (int64_t)row * BACK_C + group * 64 + piece / 2 * 32 + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 4; n++)
        *(uint32_t *)(to + n * 8) = words[n];
}

/* Adds the block's rows of dy: this lane's 8 columns of every second one. */
__device__ inline void add_rows(float (&total)[8], const bf16 *dy) {
    int lane = threadIdx.x % 32, row = (int)blockIdx.x % BACK_BLOCKS * BACK_ROWS + lane / 16;
    const bf16 *tile = dy + lane / 8 % 2 * 64 * 64;
#pragma unroll 4
    for (int i = 0; i < BACK_ROWS; i += 2) {
        raw<bf16, 8> x = *(const raw<bf16, 8> *)(tile + tile_at<64>(row + i, lane % 8));
#pragma unroll
        for (int j = 0; j < 8; j++)
            total[j] += x.at(j);
    }
}

/* A warp beside the fetching one takes two or three pieces of dx. The last one, which has two, adds
 * the rows of dy. */
__device__ inline void end_rows(const transition_back_call &t, transition_back_space *s, int warp) {
    int lane = threadIdx.x % 32, turn = 0;
    bool adds_rows = warp == ENDING_WARPS - 1;
    float total[8] = {};
    for (back_walk w(t.of, 0); w.goes_on(); w.next(), turn++) {
        int buffer = turn % 2, slot = w.at.slot;
        uint32_t full = shared_address(&s->part_full[buffer]);
        uint32_t empty = shared_address(&s->part_empty[buffer]);
        if (warp == 0 && lane == 0) barrier_expect(full, sizeof s->part[0]);
        if (adds_rows) {
            s->tiles.barriers.wait(slot, w.at.phase);
            add_rows(total, s->tiles.stage[slot].dy);
            __syncwarp();
            if (lane == 0) s->tiles.barriers.free(slot);
        }
        barrier_wait(full, turn / 2 % 2);
#pragma unroll 1
        for (int i = warp; i < RING_GROUPS * PIECES; i += ENDING_WARPS)
            add_parts(t, s, w.tile, buffer, i / PIECES, i % PIECES);
        /* The sums are stored, so what the warp added has arrived in registers. */
        __syncwarp();
        if (lane < BACK_BLOCKS) cluster_arrive(address_in_block(empty, lane));
    }
    if (!adds_rows) return;
    float *sums = s->sums[blockIdx.x % BACK_BLOCKS] + lane % 16 * 8;
    uint32_t to = address_in_block(shared_address(sums), 0);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        total[i] += __shfl_xor_sync(0xffffffffu, total[i], 16);
        if (lane < 16) cluster_put(to + i * (int)sizeof(float), total[i]);
    }
}

/* -- the kernel */

__global__ void __cluster_dims__(BACK_BLOCKS, 1, 1) __launch_bounds__(RING_THREADS, 1)
    wgmma_transition_back(const __grid_constant__ transition_back_call t) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    transition_back_space *s = (transition_back_space *)memory;
    int group = threadIdx.x / GROUP_THREADS, warp = (int)threadIdx.x / 32 - RING_WARPS - 1;
    if (threadIdx.x == 0) {
        init_tiles(&s->tiles, RING_WARPS + 1);
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_address(&s->part_full[i]), 1);
            barrier_init(shared_address(&s->part_empty[i]), ENDING_WARPS * BACK_BLOCKS);
        }
        barriers_publish();
    }
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    cluster_barrier();
    if (group == RING_GROUPS) {
        registers_give<END_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_tiles(t.of, &s->tiles);
        if (warp >= 0) end_rows(t, s, warp);
    } else {
        registers_take<BACK_REGISTERS>();
        back_group(t, s, group);
    }
    __syncwarp();
    cluster_barrier();
    if (blockIdx.x % BACK_BLOCKS > 0 || threadIdx.x >= BACK_C) return;
    float total = 0;
    for (int i = 0; i < BACK_BLOCKS; i++)
        total += s->sums[i][threadIdx.x];
    row_sums_of<BACK_C>(t.of)[threadIdx.x] = total;
}

/* -- calls */

/* As many blocks as run at once: 30 clusters of 132 multiprocessors. All blocks of a cluster are in
 * one of the device's groups of up to 18 multiprocessors, and some groups have fewer. One cluster
 * too many would begin when the others end. */
static int back_blocks(void) {
    return (int)n_multiprocessor() / 11 * 10 / BACK_BLOCKS * BACK_BLOCKS;
}

static int64_t row_count(const fm_transition *a) {
    return a->end.dropout.n0 * a->end.dropout.n1;
}

bool transition_back_takes(const fm_transition *a) {
    return a->end.dropout.c == BACK_C && a->hidden == BACK_BLOCKS * (int)BLOCK_HIDDEN &&
           back_blocks() > 0;
}

size_t transition_back_workspace(const fm_transition *a, const fm_transition_grad *g) {
    size_t norm = a->end.gamma ? update_norm_grad_workspace(row_count(a), BACK_C) : 0;
    size_t sums = plan_shares(a, g, back_blocks()).bytes;
    return (size_t)max_size((int64_t)norm, (int64_t)sums);
}

void transition_back(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                     void *workspace) {
    constexpr int BYTES = (int)sizeof(transition_back_space);
    FM_CUDA(cudaFuncSetAttribute(wgmma_transition_back, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 BYTES));
    if (a->end.gamma) {
        const fm_update_norm_grad end = {a->y, g->dn, g->dy, NULL, g->dgamma, g->dbeta};
        update_norm_grad<bf16>(stream, &a->end, &end, workspace);
    }
    assert(is_aligned(g->dx.data));
    weights_shares w = plan_shares(a, g, back_blocks());
    transition_back_call t;
    t.of = begin_shares(stream, a, g, w, workspace);
    t.dx = (bf16 *)g->dx.data, t.rows = (int)row_count(a);
    launch_after(stream, wgmma_transition_back, (unsigned)(w.slices * w.shares), RING_THREADS,
                 BYTES, true, t);
    FM_LAUNCHED();
    end_shares(stream, w);
}

} // namespace fm_cuda
