/* transition_weights.cuh: what transition_weights.cu and transition_back.cu share. Both make the
 * gradients of a transition's weights, with hidden channels as the rows of their products. */
#ifndef FM_BACKEND_CUDA_TRANSITION_WEIGHTS_CUH
#define FM_BACKEND_CUDA_TRANSITION_WEIGHTS_CUH

#include "trainer/backend/cuda/core/keep.cuh"
#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/hopper/gemm/transition.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

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

/* A block's weights, and the tiles of rows that pass by. */
template <int C, int STAGES> struct weights_tiles {
    struct {
        bf16 x[64 * C], dy[64 * C];
    } stage[STAGES];
    bf16 w1[BLOCK_HIDDEN * C], w2[C * BLOCK_HIDDEN];
    copy_ring<STAGES> barriers;
    uint64_t weights;
};

/* One thread of the block. A tile has as many warps that read it. */
template <int C, int STAGES>
__device__ inline void init_tiles(weights_tiles<C, STAGES> *s, int readers) {
    s->barriers.begin(readers);
    barrier_init(shared_address(&s->weights), 1);
}

/* The tiles of a share, from the last one down: what was written last is read first, while the L2
 * cache holds it. Tile t is in the slot at the place. */
template <int STAGES> struct share_walk {
    int tile, step;
    ring_place<STAGES> at;
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

template <int C, int STAGES>
__device__ inline void fetch_tiles(const transition_weights_call &t, weights_tiles<C, STAGES> *s) {
    int hidden = (int)blockIdx.x % t.slices * BLOCK_HIDDEN;
    uint32_t weights = shared_address(&s->weights);
    barrier_expect(weights, sizeof s->w1 + sizeof s->w2);
    for (int k = 0; k < C / 64; k++)
        box_load(shared_address(s->w1 + k * BLOCK_HIDDEN * 64), t.w1, {hidden, 0, 0, 0, k * 64},
                 weights);
    for (int group = 0; group < RING_GROUPS; group++)
        box_load(shared_address(s->w2 + group * C * 64), t.w2, {0, 0, 0, 0, hidden + group * 64},
                 weights);
    for (share_walk<STAGES> w(t, 1); w.goes_on(); w.next()) {
        auto &stage = s->stage[w.at.slot];
        uint32_t full = s->barriers.fill(w.at.slot, w.at.phase, sizeof stage);
        for (int k = 0; k < C / 64; k++) {
            box_place at = {w.tile * 64, 0, 0, 0, k * 64};
            box_load(shared_address(stage.x + k * 64 * 64), t.x, at, full);
            box_load(shared_address(stage.dy + k * 64 * 64), t.dy, at, full);
        }
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

/* The first hidden channel of a group, and the first of a lane's two rows of products. */
__device__ inline int first_hidden(const transition_weights_call &t, int group) {
    return (int)blockIdx.x % t.slices * BLOCK_HIDDEN + group * 64;
}
__device__ inline int row_of_lane(int first) {
    return first + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
}

template <int C, int STAGES>
__device__ inline weights_group<C> begin_group(const transition_weights_call &t,
                                               weights_tiles<C, STAGES> *s, int group) {
    int row = row_of_lane(first_hidden(t, group));
    weights_group<C> g = {};
    g.w1 = tile_operand<64, K_MAJOR>(s->w1 + group * 64 * 64);
    g.w2 = tile_operand<64, MN_MAJOR>(s->w2 + group * C * 64);
    g.bias[0] = __bfloat162float(t.b1[row]), g.bias[1] = __bfloat162float(t.b1[row + 8]);
    return g;
}

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

/* A group whose first hidden channel is `first` stores its sums. */
template <int C>
__device__ inline void put_sums(const transition_weights_call &t, const weights_group<C> &g,
                                int first) {
    int share = (int)blockIdx.x / t.slices, row = row_of_lane(first);
    int64_t size = (int64_t)t.hidden * C;
    float *ones = t.first + share * (size + t.hidden), *twos = t.second + share * (size + C);
    put_share(ones + (int64_t)first * C, g.first);
    put_share(twos + (int64_t)first * C, g.second);
    if (threadIdx.x % 4 > 0) return;
    ones[size + row] = g.sums[0], ones[size + row + 8] = g.sums[2];
}

/* The place of db2 in the block's share. */
template <int C> __device__ inline float *row_sums_of(const transition_weights_call &t) {
    int64_t size = (int64_t)t.hidden * C;
    return t.second + (int)blockIdx.x / t.slices * (size + C) + size;
}

/* The shares of both gradients, and the bytes of their place. */
struct weights_shares {
    int tiles, slices, shares;
    partial_sums first, second;
    size_t first_bytes, bytes;
};
/* Divides the rows among as many blocks as run at once. */
weights_shares plan_shares(const fm_transition *a, const fm_transition_grad *g, int blocks);
/* Finds the shares a place, and makes the arguments of a kernel for as many blocks. */
transition_weights_call begin_shares(fm_stream *stream, const fm_transition *a,
                                     const fm_transition_grad *g, weights_shares &w,
                                     void *workspace);
void end_shares(fm_stream *stream, const weights_shares &w);

} // namespace fm_cuda

#endif
