/* transition_weights.cu: the gradients of a transition's weights and biases from the rows x and dy
 * alone, in bf16 on warp groups:
 *
 *     hidden  = max(x W1^T + b1, 0)
 *     dhidden = dy W2 where hidden is above 0, else 0
 *     dW1 = dhidden^T x,   db1 = the sums of dhidden's columns
 *     dW2 = dy^T hidden,   db2 = the sums of dy's columns
 *
 * for rows of C = 64 or 128 channels. Both hidden layers exist in registers only.
 *
 * A warp group has 64 hidden channels, and all sums of both gradients for them. Two groups form a
 * block. Its weights stay in shared memory while tiles of 64 rows of x and dy pass by. Hidden
 * channels are the rows of all products: x W1^T is made as W1 x^T. So the accumulators of the first
 * two products are, rounded, the left operands of the last two, which sum over the tile's rows.
 *
 * Each block takes a share of the tiles, and sums.cu adds the shares in order. db1 comes from
 * products with ones. Warps beside the one that fetches add the columns of dy. */
#include "trainer/backend/cuda/core/keep.cuh"
#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"
#include "trainer/backend/cuda/gemm/transition.cuh"

namespace fm_cuda {

/* Two groups with 64 hidden channels each; registers of a thread of theirs, and of the others. A
 * slice of the sums adds at most SLICE_SHARES shares. */
enum { BLOCK_HIDDEN = RING_GROUPS * 64, COMPUTE_REGISTERS = 232, OTHER_REGISTERS = 40 };
enum { SLICE_SHARES = 9 };

struct transition_weights_call {
    box_map x, dy, w1, w2; /* 64 rows; 128 rows of W1; C rows of W2, all by 64 columns */
    const bf16 *b1;
    float *first, *second; /* shares of dW1 in tiles, then db1, and of dW2 and db2 */
    int tiles, hidden, slices, shares;
};

template <int C> struct transition_weights_space {
    static constexpr int STAGES = C == 128 ? 5 : 8, TILE_SIZE = 64 * C;
    struct {
        bf16 x[TILE_SIZE], dy[TILE_SIZE];
    } stage[STAGES];
    bf16 w1[BLOCK_HIDDEN * C], w2[C * BLOCK_HIDDEN];
    uint64_t full[STAGES], empty[STAGES], weights;
};

/* The tiles of a share, from the last one down: what was written last is read first, while the L2
 * cache holds it. Tile t is in the slot at the place. */
template <int C> struct share_walk {
    typedef transition_weights_space<C> S;
    int tile, step;
    ring_place<S::STAGES> at;
    __device__ inline share_walk(const transition_weights_call &t, uint32_t phase) {
        tile = t.tiles - 1 - (int)blockIdx.x / t.slices, step = t.shares;
        at.phase = phase;
    }
    __device__ inline bool goes_on() const {
        return tile >= 0;
    }
    __device__ inline void next() {
        tile -= step;
        at.next();
    }
};

/* -- loads, by the fetching thread */

template <int C>
__device__ inline void fetch_tiles(const transition_weights_call &t,
                                   transition_weights_space<C> *s) {
    int hidden = (int)blockIdx.x % t.slices * BLOCK_HIDDEN;
    uint32_t weights = shared_address(&s->weights);
    barrier_expect(weights, sizeof s->w1 + sizeof s->w2);
    for (int k = 0; k < C / 64; k++)
        box_load(shared_address(s->w1 + k * BLOCK_HIDDEN * 64), t.w1, {hidden, 0, 0, 0, k * 64},
                 weights);
    for (int group = 0; group < RING_GROUPS; group++)
        box_load(shared_address(s->w2 + group * C * 64), t.w2, {0, 0, 0, 0, hidden + group * 64},
                 weights);
    for (share_walk<C> w(t, 1); w.goes_on(); w.next()) {
        auto &stage = s->stage[w.at.slot];
        uint32_t full = shared_address(&s->full[w.at.slot]);
        barrier_wait(shared_address(&s->empty[w.at.slot]), w.at.phase);
        barrier_expect(full, sizeof stage);
        for (int k = 0; k < C / 64; k++) {
            box_place at = {w.tile * 64, 0, 0, 0, k * 64};
            box_load(shared_address(stage.x + k * 64 * 64), t.x, at, full);
            box_load(shared_address(stage.dy + k * 64 * 64), t.dy, at, full);
        }
    }
}

/* -- sums of dy */

/* A warp beside the fetching one: the columns of its 64 of dy, in one of the slices' blocks. */
template <int C>
__device__ inline void sum_rows(const transition_weights_call &t, transition_weights_space<C> *s,
                                int part) {
    bool takes = (int)blockIdx.x % t.slices == part % t.slices;
    int lane = threadIdx.x % 32;
    float total[8] = {};
    for (share_walk<C> w(t, 0); w.goes_on(); w.next()) {
        barrier_wait(shared_address(&s->full[w.at.slot]), w.at.phase);
        const bf16 *tile = s->stage[w.at.slot].dy + part * 64 * 64;
#pragma unroll 4
        for (int row = lane / 8; takes && row < 64; row += 4) {
            raw<bf16, 8> x = *(const raw<bf16, 8> *)(tile + tile_at<64>(row, lane % 8));
#pragma unroll
            for (int i = 0; i < 8; i++)
                total[i] += x.at(i);
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s->empty[w.at.slot]));
    }
    if (!takes) return;
    int64_t size = (int64_t)t.hidden * C;
    float *to = t.second + (int)blockIdx.x / t.slices * (size + C) + size + part * 64 + lane * 8;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        total[i] += __shfl_xor_sync(0xffffffffu, total[i], 8);
        total[i] += __shfl_xor_sync(0xffffffffu, total[i], 16);
        if (lane < 8) to[i] = total[i];
    }
}

/* -- products */

/* What a group has at hand. */
template <int C> struct weights_group {
    uint64_t w1, w2;        /* operands of its 64 hidden channels */
    float bias[2];          /* of a lane's two rows */
    float first[C / 8][4];  /* dW1 */
    float second[C / 8][4]; /* dW2, its rows and columns exchanged */
    float sums[4];          /* of dhidden: a row in [0], the other in [2] */
};

/* Starts h = W1 x^T, or d = W2^T dy^T, for 64 hidden channels and 64 rows. */
template <int C> __device__ inline void start_first(float (&h)[8][4], uint64_t w1, uint64_t x) {
    products_pin(h);
    products_begin();
#pragma unroll
    for (int k = 0; k < C / 16; k++) {
        uint64_t w = operand_after(w1, k / 4 * BLOCK_HIDDEN * 64 + k % 4 * 16);
        wgmma<K_MAJOR, K_MAJOR>(h, w, operand_after(x, k / 4 * 64 * 64 + k % 4 * 16), k > 0);
    }
    products_commit();
}
template <int C> __device__ inline void start_second(float (&d)[8][4], uint64_t w2, uint64_t dy) {
    products_pin(d);
    products_begin();
#pragma unroll
    for (int k = 0; k < C / 16; k++)
        wgmma<MN_MAJOR, K_MAJOR>(d, operand_after(w2, k * 16 * 64),
                                 operand_after(dy, k / 4 * 64 * 64 + k % 4 * 16), k > 0);
    products_commit();
}

/* Starts sum += p rows, for the 64 rows of a tile. */
template <int N>
__device__ inline void start_sum(float (&sum)[N][4], const uint32_t (&p)[4][4], const bf16 *tile) {
    uint64_t rows = tile_operand<64, MN_MAJOR>(tile, 64 * 64);
    products_pin(sum);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma<MN_MAJOR>(sum, p[k], operand_after(rows, k * 16 * 64), true);
    products_commit();
}

/* p = the bf16 of max(h + bias, 0). */
__device__ inline void hidden_columns(uint32_t (&p)[4][4], const float (&h)[8][4],
                                      const float (&bias)[2]) {
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = h[2 * k + i / 2] + i % 2 * 2;
            float low = pair[0] + bias[i % 2], high = pair[1] + bias[i % 2];
            asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(p[k][i]) : "f"(high), "f"(low));
        }
}

/* Stores the accumulators of a group as sum_tiles says. */
template <int N> __device__ inline void put_share(float *tile, const float (&d)[N][4]) {
    float4 *to = (float4 *)tile + (threadIdx.x / 32 % 4 * N) * 32 + threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++)
        to[n * 32] = make_float4(d[n][0], d[n][1], d[n][2], d[n][3]);
}

/* A computing group. */
template <int C>
__device__ inline void sum_weights(const transition_weights_call &t, transition_weights_space<C> *s,
                                   int group) {
    const uint32_t ones = 0x3f803f80;
    int lane = threadIdx.x % 32, share = (int)blockIdx.x / t.slices;
    int first = (int)blockIdx.x % t.slices * BLOCK_HIDDEN + group * 64;
    int row = first + threadIdx.x / 32 % 4 * 16 + lane / 4;
    weights_group<C> g = {};
    g.w1 = tile_operand<64, K_MAJOR>(s->w1 + group * 64 * 64);
    g.w2 = tile_operand<64, MN_MAJOR>(s->w2 + group * C * 64);
    g.bias[0] = __bfloat162float(t.b1[row]), g.bias[1] = __bfloat162float(t.b1[row + 8]);
    barrier_wait(shared_address(&s->weights), 0);
#pragma unroll 1
    for (share_walk<C> w(t, 0); w.goes_on(); w.next()) {
        const auto &stage = s->stage[w.at.slot];
        float h[8][4], d[8][4];
        uint32_t p[4][4], q[4][4];
        barrier_wait(shared_address(&s->full[w.at.slot]), w.at.phase);
        start_first<C>(h, g.w1, tile_operand<64, K_MAJOR>(stage.x));
        start_second<C>(d, g.w2, tile_operand<64, K_MAJOR>(stage.dy));
        products_wait<1>(h);
        hidden_columns(p, h, g.bias);
        start_sum(g.second, p, stage.dy);
        products_wait<1>(d);
        memcpy(q, p, sizeof q);
        mask_rows(q, d);
        start_sum(g.first, q, stage.x);
#pragma unroll
        for (int k = 0; k < 4; k++)
            mma(g.sums, q[k], ones, ones);
        products_wait<0>(g.first);
        products_pin(g.second);
        if (lane == 0) barrier_arrive(shared_address(&s->empty[w.at.slot]));
    }
    int64_t size = (int64_t)t.hidden * C;
    float *ones_of = t.first + share * (size + t.hidden), *twos = t.second + share * (size + C);
    put_share(ones_of + (int64_t)first * C, g.first);
    put_share(twos + (int64_t)first * C, g.second);
    if (lane % 4 > 0) return;
    ones_of[size + row] = g.sums[0], ones_of[size + row + 8] = g.sums[2];
}

template <int C>
__global__ void __launch_bounds__(RING_THREADS, 1)
    wgmma_transition_weights(const __grid_constant__ transition_weights_call t) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    typedef transition_weights_space<C> layout;
    layout *s = (layout *)memory;
    int group = threadIdx.x / GROUP_THREADS, part = (int)threadIdx.x / 32 - RING_WARPS - 1;
    if (threadIdx.x == 0) {
        for (int i = 0; i < layout::STAGES; i++) {
            barrier_init(shared_address(&s->full[i]), 1);
            barrier_init(shared_address(&s->empty[i]), RING_WARPS + C / 64);
        }
        barrier_init(shared_address(&s->weights), 1);
        barriers_publish();
    }
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    if (group == RING_GROUPS) {
        registers_give<OTHER_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_tiles<C>(t, s);
        if (part >= 0 && part < C / 64) sum_rows<C>(t, s, part);
    } else {
        registers_take<COMPUTE_REGISTERS>();
        sum_weights<C>(t, s, group);
    }
}

/* -- calls */

/* The shares of both gradients, without their place. */
struct weights_shares {
    int tiles, slices, shares;
    partial_sums first, second;
};

static partial_sums shares_of(const weights_shares &w, int64_t hidden, int64_t c, fm_out weight,
                              fm_out bias, int64_t biases, bool is_exchanged) {
    partial_sums s = {};
    s.stride = hidden * c + biases, s.count = w.shares, s.slices = 1;
    while (s.slices * SLICE_SHARES < s.count)
        s.slices *= 2;
    s.target[0] = {weight.data, hidden * c, 0, weight.beta, false};
    s.target[1] = {bias.data, biases, 0, bias.beta, false};
    s.tiles = {(int)(hidden / 64), 64, (int)c, 0, is_exchanged ? hidden : c, is_exchanged};
    return s;
}

static weights_shares plan_shares(const fm_transition *a, const fm_transition_grad *g) {
    int64_t c = a->end.dropout.c, rows = a->end.dropout.n0 * a->end.dropout.n1;
    weights_shares w;
    w.tiles = (int)divide_up(rows, 64), w.slices = (int)(a->hidden / BLOCK_HIDDEN);
    w.shares = (int)min_size(n_multiprocessor() / w.slices, w.tiles);
    w.first = shares_of(w, a->hidden, c, g->dw1, g->db1, a->hidden, false);
    w.second = shares_of(w, a->hidden, c, g->dw2, g->db2, c, true);
    return w;
}

static size_t bytes_of(const partial_sums &s) {
    return (size_t)round_up(s.stride * s.count * (int64_t)sizeof(float), 64);
}

bool transition_weights_takes(const fm_transition *a) {
    int64_t c = a->end.dropout.c;
    return (c == 64 || c == 128) && a->hidden % BLOCK_HIDDEN == 0 &&
           a->hidden / BLOCK_HIDDEN <= n_multiprocessor();
}

size_t transition_weights_workspace(const fm_transition *a, const fm_transition_grad *g) {
    weights_shares w = plan_shares(a, g);
    return bytes_of(w.first) + bytes_of(w.second);
}

template <int C>
static void weights_as(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                       void *workspace) {
    constexpr int BYTES = (int)sizeof(transition_weights_space<C>);
    FM_CUDA(cudaFuncSetAttribute(wgmma_transition_weights<C>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    int64_t rows = a->end.dropout.n0 * a->end.dropout.n1;
    weights_shares w = plan_shares(a, g);
    assert(is_aligned(a->x) && is_aligned(g->dy.data) && is_aligned(a->w1) && is_aligned(a->w2));
    transition_weights_call t;
    t.x = rows_boxes(a->x, C, rows, 64), t.dy = rows_boxes(g->dy.data, C, rows, 64);
    t.w1 = rows_boxes(a->w1, C, a->hidden, BLOCK_HIDDEN);
    t.w2 = rows_boxes(a->w2, a->hidden, C, C);
    t.b1 = (const bf16 *)a->b1;
    t.tiles = w.tiles, t.hidden = (int)a->hidden, t.slices = w.slices, t.shares = w.shares;
    /* One place for both: a second one could end earlier sums and take the first one's memory. */
    size_t first = bytes_of(w.first);
    for (const sum_target &target : w.second.target)
        end_sums_of(stream, target.data, (size_t)target.n * sizeof(float));
    char *place = (char *)sums_place(stream, w.first, first + bytes_of(w.second), workspace);
    w.first.partial = t.first = (float *)place;
    w.second.partial = t.second = (float *)(place + first);
    launch_after(stream, wgmma_transition_weights<C>, (unsigned)(w.slices * w.shares), RING_THREADS,
                 BYTES, true, t);
    FM_LAUNCHED();
    end_sums(stream, w.first);
    end_sums(stream, w.second);
}

void transition_weights(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                        void *workspace) {
    if (a->end.dropout.c == 64) {
        weights_as<64>(stream, a, g, workspace);
    } else {
        weights_as<128>(stream, a, g, workspace);
    }
}

} // namespace fm_cuda
