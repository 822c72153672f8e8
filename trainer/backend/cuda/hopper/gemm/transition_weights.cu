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
#include "trainer/backend/cuda/hopper/gemm/transition_weights.cuh"

namespace fm_cuda {

template <int C> constexpr int STAGES = C == 128 ? 5 : 8;

/* A warp beside the fetching one: the columns of its 64 of dy, in one of the slices' blocks. */
template <int C>
__device__ inline void sum_rows(const transition_weights_call &t, weights_tiles<C, STAGES<C>> *s,
                                int part) {
    bool takes = (int)blockIdx.x % t.slices == part % t.slices;
    int lane = threadIdx.x % 32;
    float total[8] = {};
    for (share_walk<STAGES<C>> w(t, 0); w.goes_on(); w.next()) {
        s->barriers.wait(w.at.slot, w.at.phase);
        const bf16 *tile = s->stage[w.at.slot].dy + part * 64 * 64;
#pragma unroll 4
        for (int row = lane / 8; takes && row < 64; row += 4) {
            raw<bf16, 8> x = *(const raw<bf16, 8> *)(tile + tile_at<64>(row, lane % 8));
#pragma unroll
            for (int i = 0; i < 8; i++)
                total[i] += x.at(i);
        }
        __syncwarp();
        if (lane == 0) s->barriers.free(w.at.slot);
    }
    if (!takes) return;
    float *to = row_sums_of<C>(t) + part * 64 + lane * 8;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        total[i] += __shfl_xor_sync(0xffffffffu, total[i], 8);
        total[i] += __shfl_xor_sync(0xffffffffu, total[i], 16);
        if (lane < 8) to[i] = total[i];
    }
}

/* A computing group. */
template <int C>
__device__ inline void sum_weights(const transition_weights_call &t, weights_tiles<C, STAGES<C>> *s,
                                   int group) {
    const uint32_t ones = 0x3f803f80;
    int lane = threadIdx.x % 32;
    weights_group<C> g = begin_group<C>(t, s, group);
    barrier_wait(shared_address(&s->weights), 0);
#pragma unroll 1
    for (share_walk<STAGES<C>> w(t, 0); w.goes_on(); w.next()) {
        const auto &stage = s->stage[w.at.slot];
        float h[8][4], d[8][4];
        uint32_t p[4][4], q[4][4];
        s->barriers.wait(w.at.slot, w.at.phase);
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
        if (lane == 0) s->barriers.free(w.at.slot);
    }
    put_sums<C>(t, g, first_hidden(t, group));
}

template <int C>
__global__ void __launch_bounds__(RING_THREADS, 1)
    wgmma_transition_weights(const __grid_constant__ transition_weights_call t) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    typedef weights_tiles<C, STAGES<C>> layout;
    layout *s = (layout *)memory;
    int group = threadIdx.x / GROUP_THREADS, part = (int)threadIdx.x / 32 - RING_WARPS - 1;
    if (threadIdx.x == 0) {
        init_tiles(s, RING_WARPS + C / 64);
        barriers_publish();
    }
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    if (group == RING_GROUPS) {
        registers_give<OTHER_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_tiles(t, s);
        if (part >= 0 && part < C / 64) sum_rows<C>(t, s, part);
    } else {
        registers_take<COMPUTE_REGISTERS>();
        sum_weights<C>(t, s, group);
    }
}

/* -- calls */

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

static size_t bytes_of(const partial_sums &s) {
    return (size_t)round_up(s.stride * s.count * (int64_t)sizeof(float), 64);
}

weights_shares plan_shares(const fm_transition *a, const fm_transition_grad *g, int blocks) {
    int64_t c = a->end.dropout.c, rows = a->end.dropout.n0 * a->end.dropout.n1;
    weights_shares w;
    w.tiles = (int)divide_up(rows, 64), w.slices = (int)(a->hidden / BLOCK_HIDDEN);
    w.shares = (int)min_size(blocks / w.slices, w.tiles);
    w.first = shares_of(w, a->hidden, c, g->dw1, g->db1, a->hidden, false);
    w.second = shares_of(w, a->hidden, c, g->dw2, g->db2, c, true);
    w.first_bytes = bytes_of(w.first), w.bytes = w.first_bytes + bytes_of(w.second);
    return w;
}

transition_weights_call begin_shares(fm_stream *stream, const fm_transition *a,
                                     const fm_transition_grad *g, weights_shares &w,
                                     void *workspace) {
    int64_t c = a->end.dropout.c, rows = a->end.dropout.n0 * a->end.dropout.n1;
    assert(is_aligned(a->x) && is_aligned(g->dy.data) && is_aligned(a->w1) && is_aligned(a->w2));
    transition_weights_call t;
    t.x = rows_boxes(a->x, c, rows, 64), t.dy = rows_boxes(g->dy.data, c, rows, 64);
    t.w1 = rows_boxes(a->w1, c, a->hidden, BLOCK_HIDDEN);
    t.w2 = rows_boxes(a->w2, a->hidden, c, (int)c);
    t.b1 = (const bf16 *)a->b1;
    t.tiles = w.tiles, t.hidden = (int)a->hidden, t.slices = w.slices, t.shares = w.shares;
    /* One place for both: a second one could end earlier sums and take the first one's memory. */
    for (const sum_target &target : w.second.target)
        end_sums_of(stream, target.data, (size_t)target.n * sizeof(float));
    char *place = (char *)sums_place(stream, w.first, w.bytes, workspace);
    w.first.partial = t.first = (float *)place;
    w.second.partial = t.second = (float *)(place + w.first_bytes);
    return t;
}

void end_shares(fm_stream *stream, const weights_shares &w) {
    end_sums(stream, w.first);
    end_sums(stream, w.second);
}

bool transition_weights_takes(const fm_transition *a) {
    int64_t c = a->end.dropout.c;
    return (c == 64 || c == 128) && a->hidden % BLOCK_HIDDEN == 0 &&
           a->hidden / BLOCK_HIDDEN <= n_multiprocessor();
}

size_t transition_weights_workspace(const fm_transition *a, const fm_transition_grad *g) {
    return plan_shares(a, g, n_multiprocessor()).bytes;
}

template <int C>
static void weights_as(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                       void *workspace) {
    constexpr int BYTES = (int)sizeof(weights_tiles<C, STAGES<C>>);
    FM_CUDA(cudaFuncSetAttribute(wgmma_transition_weights<C>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    weights_shares w = plan_shares(a, g, n_multiprocessor());
    transition_weights_call t = begin_shares(stream, a, g, w, workspace);
    launch_after(stream, wgmma_transition_weights<C>, (unsigned)(w.slices * w.shares), RING_THREADS,
                 BYTES, true, t);
    FM_LAUNCHED();
    end_shares(stream, w);
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
