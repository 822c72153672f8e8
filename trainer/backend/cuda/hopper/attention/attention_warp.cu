/* attention_warp.cu: gated attention of the bf16 table with a bias, forward, by products of single
 * warps (mma.sync) and the copy engine, for many batches of up to MAX_WARP_KEYS keys.
 *
 * A block takes 128 queries of one head for several batches, whose bias stays in shared memory for
 * all of them. It has three or four teams of four warps. A team takes every third or fourth of the
 * batches, and each of its warps 32 queries. Teams do not wait for each other. The warps of a team
 * share its ring of keys and values, STAGES tiles of 64 keys.
 *
 * In a step, a warp makes the weights of 16 keys. Beside these exponentials it starts the logits of
 * the next 16 keys and multiplies the weights of the last 16 with their values (warp_pipe). So
 * products and exponentials are in flight together, and nothing in a step waits for anything else
 * in it. Operands from shared memory serve 32 queries. A packed weight is an operand in place.
 *
 * Tiles from the first one with a masked key on go another way, without steps that overlap.
 *
 * Bias, shift and repetition are those of attention_wgmma.cu: the bias enters by products with a
 * diagonal of 1 / scale in bf16. The shift of a row is the maximum of 16 keys, the first ones or,
 * if the first tile has masked keys, those with its first valid key. If a sum of weights reaches
 * MOST_SUM, the block walks all its batches again, with a shift that rises with each tile. Masked
 * keys start from MASKED, and tiles without a valid key are skipped. */
#include "trainer/backend/cuda/hopper/attention/attention_warp.cuh"

namespace fm_cuda {

enum {
    STAGES = 3, /* of a team's ring */
    MOST_SHARED = 227 << 10
};

/* Teams of a block: as many as registers allow. */
template <int C> constexpr int TEAMS = C == 8 ? 4 : 3;
template <int C> constexpr int WARPS = TEAMS<C> * 4;

/* Shared memory: tiles, the bias of all keys, barriers, and the bits of valid keys. */
template <int C> struct warp_tiles {
    bf16 keys[TEAMS<C>][STAGES][2][KEYS * C];          /* and values */
    bf16 q[WARPS<C>][ROWS * C], g[WARPS<C>][ROWS * C]; /* g: the gate, then the output */
};
template <int C> struct warp_state {
    uint64_t has[TEAMS<C>][STAGES], free[TEAMS<C>][STAGES], has_q[WARPS<C>], has_g[WARPS<C>];
    uint64_t has_bias;
    int4 part; /* of the work: first query, head, group, end of the batches */
    int is_inexact;
};

/* The block's shared memory. */
template <int C> struct warp_space {
    warp_tiles<C> *tiles;
    bf16 *bias;
    warp_state<C> *state;
    uint32_t *bits; /* [batches][tiles * 2] */

    /* Read again wherever it is needed, rather than kept in registers. */
    __device__ int4 part() const {
        int4 r;
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                     : "r"(shared_address(&state->part))
                     : "memory");
        return r;
    }
};

/* A team's place in its ring: the stage, and the parity of the turn. */
struct ring_place {
    uint32_t at; /* below 2 STAGES */
    __device__ uint32_t parity() const {
        return at >= STAGES;
    }
    __device__ uint32_t stage() const {
        return at >= STAGES ? at - STAGES : at;
    }
    __device__ ring_place next() const {
        return {at == 2 * STAGES - 1 ? 0 : at + 1};
    }
    /* STAGES - 1 on. */
    __device__ ring_place last() const {
        return {at >= STAGES + 1 ? at - (STAGES + 1) : at + STAGES - 1};
    }
};

/* Starts the copies of a tile of keys and values into its place in the ring when all warps have
 * read what was there. Called by one thread. */
template <int C>
__device__ inline void fetch_tile(const forward_call &a, const warp_space<C> &p, int team,
                                  ring_place at, int batch, int tile) {
    int4 part = p.part();
    if (batch >= part.w) return;
    bf16(&to)[2][KEYS * C] = p.tiles->keys[team][at.stage()];
    uint32_t has = shared_address(&p.state->has[team][at.stage()]);
    barrier_wait(shared_address(&p.state->free[team][at.stage()]), at.parity() ^ 1);
    barrier_expect(has, 2 * KEYS * C * sizeof(bf16));
    box_load(shared_address(to[0]), a.k, {tile * KEYS, part.y, batch, part.z}, has);
    box_load(shared_address(to[1]), a.v, {tile * KEYS, part.y, batch, part.z}, has);
}

/* Starts the copy of the warp's queries. Called by one lane, as is fetch_gate. */
template <int C>
__device__ inline void fetch_queries(const forward_call &a, const warp_space<C> &p, int batch) {
    int warp = threadIdx.x / 32;
    int4 part = p.part();
    if (batch >= part.w) return;
    uint32_t has = shared_address(&p.state->has_q[warp]);
    barrier_expect(has, ROWS * C * sizeof(bf16));
    box_load(shared_address(p.tiles->q[warp]), a.q,
             {part.x + warp % TEAM_WARPS * ROWS, part.y, batch, part.z}, has);
}
template <int C>
__device__ inline void fetch_gate(const forward_call &a, const warp_space<C> &p, int batch) {
    int warp = threadIdx.x / 32;
    int4 part = p.part();
    stores_wait(); /* the last output is still being read from the gate's place */
    if (!a.is_gated) return;
    uint32_t has = shared_address(&p.state->has_g[warp]);
    barrier_expect(has, ROWS * C * sizeof(bf16));
    box_load(shared_address(p.tiles->g[warp]), a.g,
             {part.x + warp % TEAM_WARPS * ROWS, part.y, batch, part.z}, has);
}

/* Ends a batch: divides the warp's rows by their sums, applies the gate, stores them over the gate
 * in shared memory and from there to memory; and stores the log-sum-exp. Notes where shifts were
 * too far from their maxima. `parity`: of the turn of gates. */
template <int C>
__device__ inline void finish_batch(const forward_call &a, const warp_space<C> &p, int batch,
                                    uint32_t parity, warp_sums<C> &sums,
                                    const float (&shift)[2][2]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int4 part = p.part();
    int row = part.x + warp % TEAM_WARPS * ROWS;
    bf16 *tile = p.tiles->g[warp];
    float sum[2][2];
    bool is_exact = true;
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            sum[m][half] = sums.sum(m, half);
            if (!warp_sums<C>::BY_PRODUCT) sum[m][half] = row_sum(sum[m][half]);
            is_exact &= sum[m][half] < MOST_SUM;
        }
    }
    if (!is_exact) p.state->is_inexact = 1;
    /* The four lanes that share rows store one of their log-sum-exps each. */
    {
        int m = lane / 2 % 2, half = lane % 2, line = row + 16 * m + 8 * half + lane / 4;
        float of = half ? (m ? sum[1][1] : sum[0][1]) : (m ? sum[1][0] : sum[0][0]);
        float from = half ? (m ? shift[1][1] : shift[0][1]) : (m ? shift[1][0] : shift[0][0]);
        int64_t plane = ((int64_t)part.z * a.n_batch + batch) * a.n_head + part.y;
        if (line < a.n_query) a.lse[plane * a.n_query + line] = (from + logarithm(of)) * LN2;
    }
    if (a.is_gated) barrier_wait(shared_address(&p.state->has_g[warp]), parity);
    /* Four matrices of 8 x 8 at a time, which are 16 x 16, or 32 x 8 with 8 channels. */
    constexpr int BLOCKS = C == 8 ? 1 : C / 8;
    constexpr uint32_t OPEN = 0x7f807f80;
    int at = C == 8 ? lane * 8 : tile_at<C>(lane & 15, lane >> 4);
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
        bf16 *four =
            tile +
            (C == 8 ? at : (at ^ block % ((C + 15) / 16) * 16) + block / ((C + 15) / 16) * 16 * C);
        /* Without a gate: infinity, whose sigmoid is 1. */
        uint32_t gate[4] = {OPEN, OPEN, OPEN, OPEN}, out[4];
        if (a.is_gated) ldmatrix(gate, four);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int m = C == 8 ? i / 2 : block / ((C + 15) / 16), half = i % 2;
            int n = C == 8 ? 0 : block % ((C + 15) / 16) * 2 + i / 2;
            float *pair = &sums.o[m][n][2 * half];
            divide_and_gate(pair, gate[i], sum[m][half]);
            out[i] = pack_two(pair[0], pair[1]);
        }
        stmatrix(four, out);
    }
    tiles_publish();
    __syncwarp();
    if (lane == 0) box_store(a.o, {row, part.y, batch, part.z}, shared_address(tile));
}

/* Sets up barriers and bits, and starts the first copies. */
template <int C>
__device__ inline void walk_begin(const forward_call &a, const warp_space<C> &p, int first,
                                  bool is_again) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / TEAM_WARPS;
    int4 part = p.part();
    if (lane == 0 && warp % TEAM_WARPS == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(shared_address(&p.state->has[team][i]), 1);
            barrier_init(shared_address(&p.state->free[team][i]), TEAM_WARPS);
        }
        barriers_publish();
        for (uint32_t i = 0; i < STAGES - 1; i++)
            fetch_tile<C>(a, p, team, {i}, first + team, (int)i);
    }
    if (lane == 0) {
        barrier_init(shared_address(&p.state->has_q[warp]), 1);
        barrier_init(shared_address(&p.state->has_g[warp]), 1);
        barriers_publish();
        fetch_queries<C>(a, p, first + team);
    }
    if (!is_again && threadIdx.x == 0) {
        uint32_t has = shared_address(&p.state->has_bias);
        barrier_init(has, 1);
        barriers_publish();
        barrier_expect(has, (uint32_t)(a.tiles * QUERIES * KEYS) * sizeof(bf16));
        wait_for_previous(); /* split_heads may be the kernel before */
        for (int i = 0; i < 2 * a.tiles; i++) {
            box_load(shared_address(p.bias + i * (64 * KEYS)), a.bias,
                     {part.x + i % 2 * 64, part.y, part.z, 0, i / 2 * KEYS}, has);
        }
    }
    __syncwarp();
    if (!is_again) {
        int words = a.tiles * (KEYS / 32);
        find_bits(a, part.z, first, part.w, words, WARPS<C>, [&](int batch, int i, uint32_t word) {
            p.bits[(batch - first) * words + i] = word;
        });
    }
    __syncthreads();
    barrier_wait(shared_address(&p.state->has_bias), 0);
}

/* Prepares another walk: waits for this one's stores, which the next one's overwrite, and ends the
 * barriers. Comes after a barrier of the block. */
template <int C> __device__ inline void walk_end(const warp_space<C> &p) {
    int warp = threadIdx.x / 32, team = warp / TEAM_WARPS;
    if (threadIdx.x % 32 != 0) return;
    stores_finish();
    barrier_end(shared_address(&p.state->has_q[warp]));
    barrier_end(shared_address(&p.state->has_g[warp]));
    if (warp % TEAM_WARPS != 0) return;
    for (int i = 0; i < STAGES; i++) {
        barrier_end(shared_address(&p.state->has[team][i]));
        barrier_end(shared_address(&p.state->free[team][i]));
    }
}

/* Reads the warp's queries as left operands. */
template <int C>
__device__ inline void read_queries(uint32_t (&q)[2][(C + 15) / 16][4], const bf16 *rows) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
        if constexpr (C >= 16) {
            tile_rows<C>(q[m], rows, 16 * m);
        } else {
            int lane = threadIdx.x % 32;
            q[m][0][0] = *(const uint32_t *)(rows + m * 128 + lane * 2);
            q[m][0][1] = *(const uint32_t *)(rows + m * 128 + 64 + lane * 2);
            q[m][0][2] = q[m][0][3] = 0;
        }
    }
}

/* What does not change from batch to batch. */
template <int C>
__device__ inline warp_lane<C> lane_of(const forward_call &a, const warp_space<C> &p) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane & 15;
    warp_lane<C> w;
    w.diagonal = diagonal_of(a.bias_factor);
    if constexpr (C == 8) {
        w.keys = w.values = lane * 16;
    } else {
        w.keys = tile_at<C>((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1) * (int)sizeof(bf16);
        w.values = tile_at<C>(row, lane >> 4) * (int)sizeof(bf16);
    }
    w.values += KEYS * C * (int)sizeof(bf16);
    w.bias = tile_at<64>(warp % TEAM_WARPS * ROWS + row, lane >> 4) * (int)sizeof(bf16);
    w.bias += shared_address(p.bias);
    return w;
}

/* Walks the team's batches, from `first` + its number on. */
template <int C>
__device__ inline void walk(const forward_call &a, const warp_space<C> &p, int first,
                            bool is_safe) {
    const unsigned ALL = 0xffffffffu;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, team = warp / TEAM_WARPS;
    uint32_t parity = 0; /* of the turn of queries and gates */
    ring_place ring = {0};
    uint32_t first_keys = shared_address(p.tiles->keys[team][0][0]);
    uint32_t first_has = shared_address(&p.state->has[team][0]);
    uint32_t first_free = shared_address(&p.state->free[team][0]);
    warp_lane<C> w = lane_of<C>(a, p);
    /* The addresses in a stage and in the bias of a tile. */
    const auto address_of = [&](ring_place at, int tile) -> tile_address {
        uint32_t stage = first_keys + at.stage() * (2 * KEYS * C * (int)sizeof(bf16));
        return {stage + w.keys, stage + w.values,
                w.bias + tile * (QUERIES * KEYS * (int)sizeof(bf16))};
    };
    /* Both come when what the warp read is in registers: ldmatrix returns later than the warp goes
     * on, and the copy engine does not wait for it. Where no product has used the last reads yet,
     * `after` is after_reads(), else 0. */
    const auto leave = [&](ring_place at, uint32_t after) {
        __syncwarp();
        if (lane == 0) barrier_arrive(first_free + 8 * at.stage() + after);
    };
    const auto next_queries = [&](int batch) {
        if (lane == 0) fetch_queries<C>(a, p, batch + TEAMS<C>);
        __syncwarp();
    };
    /* Starts the copies of the tile that is STAGES - 1 tiles on; the warps take turns. */
    const auto fetch = [&](int batch, int tile) {
        if (lane == 0 && (warp ^ tile) % TEAM_WARPS == 0) {
            int on = tile + (STAGES - 1);
            bool is_next = on >= a.tiles;
            fetch_tile<C>(a, p, team, ring.last(), is_next ? batch + TEAMS<C> : batch,
                          is_next ? on - a.tiles : on);
        }
        __syncwarp();
    };
    for (int at = team; first + at < p.part().w; at += TEAMS<C>, parity ^= 1) {
        int batch = first + at, words = a.tiles * (KEYS / 32);
        float shift[2][2];
        warp_sums<C> sums;
        uint32_t word = ALL;
        if (lane < words) word = p.bits[at * words + lane];
        barrier_wait(shared_address(&p.state->has_q[warp]), parity);
        read_queries<C>(w.q, p.tiles->q[warp]);
        if (lane == 0) fetch_gate<C>(a, p, batch);
        __syncwarp();
        sums.clear();
        /* Tiles before the first one with a masked key. */
        unsigned partial = ~__ballot_sync(ALL, word == ALL);
        int full = min(a.tiles, partial ? (__ffs((int)partial) - 1) / 2 : 16);
        if (is_safe) full = 0;
        if (full > 0) {
            warp_pipe<C> pipe;
            tile_address now = address_of(ring, 0);
            barrier_wait(first_has + 8 * ring.stage(), ring.parity());
            pipe.begin(w, now);
            pipe.find_shift(a.slope, shift);
            next_queries(batch);
#pragma unroll 1
            for (int tile = 0; tile < full; tile++) {
                fetch(batch, tile);
                pipe.template step<0>(sums, w, now, now, a.slope, shift);
                pipe.template step<1>(sums, w, now, now, a.slope, shift);
                ring_place after = ring.next();
                bool is_last = tile + 1 == full;
                tile_address next = address_of(after, is_last ? 0 : tile + 1);
                if (!is_last) barrier_wait(first_has + 8 * after.stage(), after.parity());
                pipe.template step<2>(sums, w, now, next, a.slope, shift);
                pipe.template step<3>(sums, w, now, next, a.slope, shift);
                leave(ring, pipe.values.after_reads(ring.at));
                ring = after;
                now = next;
            }
#pragma unroll
            for (int n = 0; n < 4; n++)
                pipe.template add_columns<0>(sums, n);
        }
#pragma unroll 1
        for (int tile = full; tile < a.tiles; tile++) {
            fetch(batch, tile);
            uint64_t valid = __shfl_sync(ALL, word, 2 * tile) |
                             (uint64_t)__shfl_sync(ALL, word, 2 * tile + 1) << 32;
            barrier_wait(first_has + 8 * ring.stage(), ring.parity());
            tile_address from = address_of(ring, tile);
            if (tile == 0 || is_safe) {
                /* Without a valid key, all keys that follow are far above this maximum. */
                int begin = is_safe || valid == 0 ? 0 : (__ffsll((long long)valid) - 1) / 16;
                raise_shift<C>(sums, w, from, valid, a.slope, begin,
                               is_safe ? KEYS / 16 : begin + 1, tile == 0, shift);
            }
            if (tile == 0) next_queries(batch);
            if (valid != 0) add_tile<C>(sums, w, from, valid, a.slope, shift);
            leave(ring, 0);
            ring = ring.next();
        }
        finish_batch<C>(a, p, batch, parity, sums, shift);
    }
}

template <int C>
__global__ void __launch_bounds__(WARPS<C> * 32, 1)
    warp_forward(const __grid_constant__ forward_call a) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    warp_space<C> p;
    int i = (int)blockIdx.x, query = i % a.blocks * QUERIES;
    i /= a.blocks;
    int head = i % a.n_head;
    i /= a.n_head;
    int first = i % a.shares * a.batches_per_block;
    p.tiles = (warp_tiles<C> *)memory;
    p.bias = (bf16 *)(p.tiles + 1);
    p.state = (warp_state<C> *)(p.bias + a.tiles * (QUERIES * KEYS));
    p.bits = (uint32_t *)(p.state + 1);
    if (threadIdx.x == 0) {
        int end = min(first + a.batches_per_block, a.n_batch);
        p.state->part = make_int4(query, head, i / a.shares, end);
        p.state->is_inexact = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (bool is_safe = false;; is_safe = true) {
        walk_begin<C>(a, p, first, is_safe);
        walk<C>(a, p, first, is_safe);
        __syncthreads();
        if (is_safe || !p.state->is_inexact) break;
        walk_end<C>(p);
        __syncthreads();
    }
    if (threadIdx.x % 32 == 0) stores_wait();
}

/* How many blocks share the batches of a (group, head, queries), `max_batches` per block at most:
 * the number for which all rounds of blocks take least time. A block takes as long as a team's
 * batches and about half of one more. */
static int choose_shares(int64_t combinations, int64_t n_batch, int64_t max_batches, int teams) {
    int64_t best = n_batch, least = INT64_MAX;
    for (int64_t shares = divide_up(n_batch, max_batches); shares <= n_batch; shares++) {
        int64_t batches = divide_up(divide_up(n_batch, shares), teams);
        int64_t cost = divide_up(combinations * shares, n_multiprocessor()) * (2 * batches + 1);
        if (cost < least) best = shares, least = cost;
    }
    return (int)divide_up(n_batch, divide_up(n_batch, best));
}

/* Shared memory of a block, in bytes: what does not depend on its batches, and the bits of valid
 * keys of each batch. */
struct warp_bytes {
    int64_t fixed, batch;

    int64_t max_batches() const {
        return (MOST_SHARED - fixed) / batch;
    }
};
template <int C> static warp_bytes warp_bytes_of(const fm_attention *a) {
    int64_t tiles = divide_up(a->n_key, KEYS);
    return {(int64_t)(sizeof(warp_tiles<C>) + sizeof(warp_state<C>)) +
                tiles * (QUERIES * KEYS * (int64_t)sizeof(bf16)),
            tiles * (KEYS / 32) * (int64_t)sizeof(uint32_t)};
}

template <int C> static bool warp_fits(const fm_attention *a) {
    warp_bytes bytes = warp_bytes_of<C>(a);
    return bytes.fixed <= MOST_SHARED && bytes.max_batches() >= 2 * TEAMS<C>;
}
bool attention_warp_fits(const fm_attention *a) {
    return a->c_head == 8 ? warp_fits<8>(a) : warp_fits<32>(a);
}

template <int C>
static void warp_run(fm_stream *stream, const fm_attention *a, void *planes, float bias_factor) {
    forward_call call = forward_call_of(a, C, {ROWS, KEYS, QUERIES}, bias_factor);
    warp_bytes bytes = warp_bytes_of<C>(a);
    int64_t combinations = a->n_group * a->n_head * call.blocks;
    call.shares = choose_shares(combinations, a->n_batch, bytes.max_batches(), TEAMS<C>);
    call.batches_per_block = (int)divide_up(a->n_batch, call.shares);
    FM_CUDA(cudaFuncSetAttribute(warp_forward<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)MOST_SHARED));
    bool early = attention_bias_boxes(stream, a, planes, &call.bias);
    launch_after(stream, warp_forward<C>, (unsigned)(combinations * call.shares), WARPS<C> * 32,
                 (size_t)(bytes.fixed + call.batches_per_block * bytes.batch), early, call);
}

void attention_warp(fm_stream *stream, const fm_attention *a, const attention_space &space) {
    auto run = a->c_head == 8 ? warp_run<8> : warp_run<32>;
    run(stream, a, space.bias, space.bias_factor);
}

} // namespace fm_cuda
