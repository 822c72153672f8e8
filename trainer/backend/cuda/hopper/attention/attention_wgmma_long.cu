/* attention_wgmma_long.cu: gated attention of the bf16 table by warp-group products, backward, of
 * 257 to 1,024 queries or keys. attention_wgmma_grad.cu has the shorter ones and the idea.
 *
 * Here dS^T of an item does not fit in shared memory. A block walks over items (group, batch,
 * head), one at a time, and over the item's keys in passes of 64, 128 or 256, 64 keys per warp
 * group. For each tile of 64 queries every group recomputes its logits, adds to dk and dv, and
 * stores its dS^T in one of two slots in shared memory. When all groups have stored theirs, one of
 * them, in rotation, adds dS k of the tile to dq. Between passes the block keeps dq in memory in
 * f32.
 *
 * Slots and barriers. Tile number `count` (over all passes of the block) uses slot count % SLOTS.
 * The slot's FULL completes when every warp has stored dS^T, its EMPTY when the group that makes dq
 * has read it. The n-th use of a slot waits for phase n % 2 of FULL to read, and for phase (n - 1)
 * % 2 of EMPTY to write. A barrier shows only the parity of its phase, so a waiter must have seen
 * the phase before; walk_pass says why that holds.
 *
 * Two blocks share a multiprocessor if they fit: one waits for rows while the other walks. */
#include "trainer/backend/cuda/hopper/attention/attention_wgmma_grad.cuh"

namespace fm_cuda {

/* Loads 16 bytes that are used once, without a place in the L1 cache, which holds spilled
 * registers. */
__device__ inline uint4 load_stream(const void *from) {
    uint4 x;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(from));
    return x;
}

__device__ inline void bias_stream(bias_tile<4> *b, const uint4 *from) {
    b->part[0] = load_stream(from);
    b->part[1] = load_stream(from + 32);
}

/* The most threads of a block; slots for dS^T; the most rows of a box. */
enum { MAX_THREADS = 512, SLOTS = 2, MAX_BOX_ROWS = 256 };

/* Barriers of a block: queries have arrived; keys and values have arrived; dS^T of a slot is
 * complete; the slot is free. */
enum { FULL_Q, FULL_KV, FULL, EMPTY = FULL + SLOTS, BARRIERS = EMPTY + SLOTS };

/* Shared memory of a block that passes over `keys` keys at a time, two threads per key, and
 * `queries` queries, both multiples of 64. The tile of k has two copies, of which `turn` (passes so
 * far modulo 2) names one: one pass's is read while the next one's arrives. */
template <int C> struct pass_memory {
    uint8_t *base;
    int keys, queries;

    /* [SLOTS][keys, 64] */
    __device__ bf16 *ds(int slot) const {
        return (bf16 *)base + slot * keys * TILE;
    }
    /* [queries, C] */
    __device__ bf16 *q() const {
        return ds(SLOTS);
    }
    /* [queries, C]: dout' */
    __device__ bf16 *d() const {
        return q() + queries * C;
    }
    /* [2][keys, C] */
    __device__ bf16 *k(int turn) const {
        return q() + 2 * queries * C + turn * keys * C;
    }
    /* [keys, C] */
    __device__ bf16 *v() const {
        return k(2);
    }
    /* [16, C] */
    __device__ bf16 *ones() const {
        return k(3);
    }
    /* [queries / 2][4]: -lse / scale of two queries, twice: for rows g, g + 8 of a column */
    __device__ float *shift() const {
        return (float *)(ones() + 16 * C);
    }
    /* [queries / 2][4]: -delta, likewise */
    __device__ float *minus_delta() const {
        return shift() + 2 * queries;
    }
    __device__ opened_place opened() const {
        return {d(), shift(), queries};
    }
    __device__ uint32_t barrier(int i) const {
        return shared_address(minus_delta() + 2 * queries) + 8 * (uint32_t)i;
    }
    /* [2]: the place of this item and of the next, alternating */
    __device__ int4 *place() const {
        return (int4 *)((uint64_t *)(minus_delta() + 2 * queries) + BARRIERS);
    }
    /* [ld_bias]: of all keys */
    __device__ bf16 *mask() const {
        return (bf16 *)(place() + 2);
    }
};

/* Bytes of shared memory: pass_memory for c channels and all_keys keys in all. */
static size_t pass_bytes(int64_t c, int64_t keys, int64_t queries, int64_t all_keys) {
    int64_t numbers = SLOTS * keys * TILE + 2 * queries * c + 3 * keys * c + 16 * c + all_keys;
    return (size_t)(numbers * 2 + 4 * queries * 4 + 8 * BARRIERS + 32);
}

/* A lane's position in a pass. */
struct pass_place : walk_place {
    uint32_t slot, parity; /* of dS^T; the parity of EMPTY's phase after which it may be written */
    uint64_t k;            /* operand: the group's keys */
};

/* The block's pass of its item, and how many passes and items it has done before. The item's place,
 * which is seldom needed, is kept in shared memory, because no registers are left for it. */
struct walk_position {
    int pass;
    unsigned passes, items;
};

template <int C>
__device__ inline void put_place(const pass_memory<C> &memory, unsigned items, const item_place &p,
                                 int item) {
    if (read_thread() == 0) memory.place()[items & 1] = make_int4(p.group, p.batch, p.head, item);
}

/* Reads the item's place from shared memory at every call. */
template <int C>
__device__ inline item_place read_place(const grad_call &c, const pass_memory<C> &memory,
                                        unsigned items, int *item) {
    item_place p;
    asm volatile("ld.shared.v4.s32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(p.group), "=r"(p.batch), "=r"(p.head), "=r"(*item)
                 : "r"(shared_address(memory.place() + (items & 1)))
                 : "memory");
    p.row = *item * c.n_query;
    return p;
}

/* Stores the item's mask in shared memory. Returns whether one of this thread's keys is valid. */
template <int C>
__device__ inline bool copy_mask(const grad_call &call, const item_place &p,
                                 const pass_memory<C> &memory) {
    int mask = p.group * call.mask_stride[0] + p.batch * call.mask_stride[1];
    bool has_valid = false;
    for (int key = read_thread(); key < (int)call.space.ld_bias; key += (int)blockDim.x) {
        uint16_t bits = 0;
        if (call.mask && key < call.n_key) {
            bits = ((const uint16_t *)call.mask)[mask + key * call.mask_stride[2]];
        }
        ((uint16_t *)memory.mask())[key] = bits;
        has_valid = has_valid || bits != 0;
    }
    return has_valid;
}

/* Boxes of equal size that hold `queries`, a multiple of 64 and at most MAX_LONG_ROWS. */
__host__ __device__ inline int query_boxes(int queries) {
    return queries > 2 * MAX_BOX_ROWS ? 4 : queries > MAX_BOX_ROWS ? 2 : 1;
}

/* Starts reading an item's queries, and dout' and the columns' terms if they are in the workspace.
 * Called by one thread, as is fetch_keys. */
template <int C, bool BIASED>
__device__ inline void fetch_queries(const grad_call &c, const item_place &p, int item,
                                     const pass_memory<C> &memory) {
    uint32_t barrier = memory.barrier(FULL_Q);
    int rows = memory.queries / query_boxes(memory.queries);
    uint32_t bytes = (uint32_t)(memory.queries * C) * (uint32_t)sizeof(bf16);
    barrier_expect(barrier, BIASED ? 2 * bytes + column_bytes(c) : bytes);
    for (int row = 0; row < memory.queries; row += rows) {
        box_place from = {row, p.head, p.batch, p.group};
        box_load(shared_address(memory.q() + row * C), c.q_box, from, barrier);
        if (BIASED) box_load(shared_address(memory.d() + row * C), c.d_box, from, barrier);
    }
    if (!BIASED) return;
    bulk_load(shared_address(memory.shift()), columns_of(c, item), column_bytes(c), barrier);
}

/* Starts reading the keys and values of a pass. */
template <int C>
__device__ inline void fetch_keys(const grad_call &c, const item_place &p, int pass,
                                  const pass_memory<C> &memory, int turn) {
    box_place from = {pass * memory.keys, p.head, p.batch, p.group};
    uint32_t barrier = memory.barrier(FULL_KV);
    barrier_expect(barrier, (uint32_t)(2 * memory.keys * C) * (uint32_t)sizeof(bf16));
    box_load(shared_address(memory.k(turn)), c.k_box, from, barrier);
    box_load(shared_address(memory.v()), c.v_box, from, barrier);
}

/* The group's 64 keys x 32 queries, half `half` of the tile at `at`: adds to dk and dv, and stores
 * dS^T in its slot. Once the bias of this tile is used, that of the next one is loaded. */
template <int C, bool BIASED>
__device__ inline void pass_step(walk_keys<C> &keys, const pass_place &at, int half,
                                 const grad_call &call, const pass_memory<C> &memory,
                                 bias_tile<4> &b, const uint4 *next_bias) {
    float s[4][4], dp[4][4];
    uint32_t ds[2][4];
    uint64_t q = operand_after(at.q, half * STEP * C), d = operand_after(at.d, half * STEP * C);
    start_products<BIASED>(s, dp, at, half, call.space.bias_factor, b);
    if (BIASED) bias_stream(&b, next_bias);
    products_pin(s);
    products_pin(dp);
    products_begin();
#pragma unroll
    for (int k = 0; k < C / 16; k++)
        if (BIASED) {
            wgmma<K_MAJOR, K_MAJOR>(s, operand_after(at.k, 16 * k), operand_after(q, 16 * k), true);
        } else {
            wgmma<K_MAJOR>(s, keys.k[k], operand_after(q, 16 * k), true);
        }
    products_commit();
    weights_to_gradients(keys, call.slope, d, s, dp);
#pragma unroll
    for (int k = 0; k < 2; k++)
        accumulator_rows(ds[k], s, k);
    if (half == 0) barrier_wait(memory.barrier(EMPTY) + 8 * at.slot, at.parity);
    unsigned thread = (unsigned)read_thread(), row = thread / 32 * 16 + thread % 16;
    uint32_t to = shared_address(memory.ds((int)at.slot)) + row * TILE * 2 +
                  ((thread / 16 % 2 ^ row % 8) * 16);
#pragma unroll
    for (int k = 0; k < 2; k++)
        store_matrix(to ^ (half * 4 + 2 * k) * 16, ds[k]);
    products_begin();
#pragma unroll
    for (int k = 0; k < 2; k++)
        wgmma<MN_MAJOR>(keys.dk, ds[k], operand_after(q, 16 * k * C), true);
    products_commit();
}

template <int C>
__device__ inline pass_place place_of_pass(const pass_memory<C> &memory, int turn) {
    pass_place at = {};
    unsigned group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP_THREADS, 0);
    at.columns = shared_address(memory.shift()) + threadIdx.x % 4 * 16;
    at.minus_delta = (uint32_t)memory.queries * 8;
    at.k = tile_operand<C, K_MAJOR>(memory.k(turn) + group * GROUP_ROWS * C);
    at.q = tile_operand<C, K_MAJOR>(memory.q());
    at.d = tile_operand<C, K_MAJOR>(memory.d());
    return at;
}

template <bool BIASED>
__device__ inline void start_pass_bias(const grad_call &call, const item_place &p, int pass,
                                       walk_bias &bias) {
    int strip = (pass * (int)blockDim.x + read_thread()) / 32;
    int strips = (int)call.space.ld_bias / 16, plane = p.group * call.n_head + p.head;
    if (!BIASED) return;
    bias.at = bias_at(call.space.bias_t, plane, strips, min(strip, strips - 1),
                      call.space.ld_bias_t / TILE, 0);
    bias_stream(&bias.half[0], bias.at);
    bias_stream(&bias.half[1], bias.at + 64);
}

/* Adds this pass's sums over keys to dq of a tile of queries. The block keeps the sums of the
 * passes before in call.space.sums, and stores dq after the last pass. With a bias, 8 further
 * columns are the sums of the rows of dS, which correct the deltas for dbias. `count`: the tile's
 * number among all that the block walks. */
template <int C, bool BIASED>
__device__ inline void finish_tile(const grad_call &call, const pass_memory<C> &memory,
                                   const walk_position &w, int tile, unsigned count) {
    constexpr int N = C / 8 + (BIASED ? 1 : 0);
    int slot = (int)(count % SLOTS), turn = (int)(w.passes & 1), thread = read_thread();
    int tiles = memory.queries / TILE, in_group = thread % GROUP_THREADS;
    float4 *kept =
        (float4 *)call.space.sums + ((int)blockIdx.x * tiles + tile) * N * GROUP_THREADS + in_group;
    uint64_t ds = tile_operand<TILE, MN_MAJOR>(memory.ds(slot));
    uint64_t k = tile_operand<C, MN_MAJOR>(memory.k(turn), (int)(memory.ones() - memory.k(turn)));
    float sum[N][4];
    float4 before[N]; /* loaded while this pass's sums are computed */
    set_rows<N>(sum, 0, 0);
#pragma unroll
    for (int n = 0; n < N; n++)
        before[n] = w.pass > 0 ? __ldcg(kept + n * GROUP_THREADS) : make_float4(0, 0, 0, 0);
    barrier_wait(memory.barrier(FULL + slot), count / SLOTS & 1);
    products_pin(sum);
    products_begin();
#pragma unroll 1
    for (int key = 0; key < memory.keys; key += 64) {
#pragma unroll
        for (int i = 0; i < 64; i += 16)
            wgmma<MN_MAJOR, MN_MAJOR>(sum, operand_after(ds, i * TILE),
                                      operand_after_beside(k, i * C), true);
        ds = operand_after(ds, 64 * TILE);
        k = operand_after_beside(k, 64 * C);
    }
    products_commit();
    products_wait<0>(sum);
    if (thread % 32 == 0) barrier_arrive(memory.barrier(EMPTY + slot));
#pragma unroll
    for (int n = 0; n < N; n++) {
        sum[n][0] += before[n].x;
        sum[n][1] += before[n].y;
        sum[n][2] += before[n].z;
        sum[n][3] += before[n].w;
    }
    if (w.pass + 1 < call.passes) {
#pragma unroll
        for (int n = 0; n < N; n++)
            __stcg(kept + n * GROUP_THREADS, *(float4 *)sum[n]);
        return;
    }
    int row = tile * TILE + in_group / 32 * 16 + thread % 32 / 4, t = thread % 4, item;
    item_place p = read_place<C>(call, memory, w.items, &item);
    store_rows<C>(call.dq, p, row, call.n_query, call.c_head, sum, call.scale);
    if (!BIASED || !call.space.dbias || t >= 2) return;
    float *minus_delta = columns_of(call, item) + 2 * memory.queries;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int at = (row + 8 * half) / 2 * 4 + row % 2 + 2 * t; /* -delta, twice */
        minus_delta[at] = memory.minus_delta()[at] - sum[N - 1][2 * half];
    }
}

/* One pass over an item: all tiles of queries. One warp group, in rotation, finishes each tile's dq
 * one tile later, when the others have most likely stored their dS^T. A group that waits for FULL
 * of a slot has stored dS^T there itself. Before that it waited for EMPTY, so it has seen the phase
 * before. */
template <int C, bool BIASED>
__device__ inline void walk_pass(const grad_call &call, const pass_memory<C> &memory,
                                 walk_keys<C> &keys, walk_bias &bias, const walk_position &w) {
    set_rows<C / 8>(keys.dk, 0, 0);
    set_rows<C / 8>(keys.dv, 0, 0);
    products_pin(keys.dk);
    products_pin(keys.dv);
    int tiles = memory.queries / TILE;
    unsigned others = blockDim.x / GROUP_THREADS - 1; /* 0, 1 or 3 */
    unsigned count = w.passes * (unsigned)tiles;
    unsigned group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP_THREADS, 0);
    pass_place at = place_of_pass<C>(memory, (int)(w.passes & 1));
#pragma unroll 1
    for (int tile = 0; tile <= tiles; tile++, count++) {
        if (tile < tiles) {
            at.slot = count % SLOTS;
            at.parity = (count / SLOTS & 1) ^ 1;
            if (BIASED && tile + 1 < tiles) bias.at += 128;
            pass_step<C, BIASED>(keys, at, 0, call, memory, bias.half[0], bias.at);
            pass_step<C, BIASED>(keys, at, 1, call, memory, bias.half[1], bias.at + 64);
            tiles_publish();
            __syncwarp();
            if (read_thread() % 32 == 0) barrier_arrive(memory.barrier(FULL + (int)at.slot));
            at.columns += TILE * 8;
            at.q = operand_after(at.q, TILE * C);
            at.d = operand_after(at.d, TILE * C);
            products_wait<0>(keys.dk);
            products_pin(keys.dv);
        }
        if (tile > 0 && ((count - 1) & others) == group) {
            finish_tile<C, BIASED>(call, memory, w, tile - 1, count - 1);
        }
    }
}

/* Stores the batch's mask terms for dbias. */
template <int C>
__device__ inline void put_terms(const grad_call &call, const pass_memory<C> &memory,
                                 const item_place &p, bool is_valid) {
    int rows = (int)call.space.ld_bias;
    float *terms = call.space.terms + (p.group * call.n_batch + p.batch) * rows;
    for (int key = read_thread(); key < rows; key += (int)blockDim.x)
        terms[key] = is_valid ? call.mask_factor * (get(memory.mask()[key]) - 1.0f) : 0;
}

/* Starts reading the keys and values of the next pass, maybe of the next item. Called by one
 * thread. */
template <int C>
__device__ inline void fetch_next(const grad_call &call, const pass_memory<C> &memory,
                                  const walk_position &w, const item_place &p, int item) {
    int turn = (int)(w.passes & 1) ^ 1, next = item + (int)gridDim.x;
    if (w.pass + 1 < call.passes) {
        fetch_keys<C>(call, p, w.pass + 1, memory, turn);
    } else if (next < call.items) {
        fetch_keys<C>(call, place_of_item(call, next), 0, memory, turn);
    }
}

/* All passes of an item whose queries and dout' are in shared memory. `has_valid`: whether this
 * thread has seen a valid key. */
template <int C, bool BIASED>
__device__ inline void walk_passes(const grad_call &call, const pass_memory<C> &memory,
                                   walk_position &w, bool has_valid) {
    bool is_valid = false;
#pragma unroll 1
    for (w.pass = 0; w.pass < call.passes; w.pass++, w.passes++) {
        walk_keys<C> keys;
        walk_bias bias;
        int item, strip = read_thread() / 32 * 16;
        item_place p = read_place<C>(call, memory, w.items, &item);
        start_pass_bias<BIASED>(call, p, w.pass, bias);
        barrier_wait(memory.barrier(FULL_KV), w.passes & 1);
        if (!BIASED) tile_rows<C>(keys.k, memory.k((int)(w.passes & 1)), strip);
        tile_rows<C>(keys.v, memory.v(), strip);
        tiles_publish();
        bool is_any = __syncthreads_or(has_valid);
        if (w.pass == 0) {
            is_valid = is_any;
            if (call.space.dbias && p.head == 0) put_terms<C>(call, memory, p, is_valid);
        }
        /* All warps have read v, and the products with the other copy of k are done. */
        if (read_thread() == 0) fetch_next<C>(call, memory, w, p, item);
        int key = w.pass * memory.keys + strip + read_thread() % 32 / 4;
        float factor = is_valid ? call.mask_factor : 0;
        keys.upper = key < call.n_key ? factor * (get(memory.mask()[key]) - 1) : -INFINITY;
        keys.lower = key + 8 < call.n_key ? factor * (get(memory.mask()[key + 8]) - 1) : -INFINITY;
        walk_pass<C, BIASED>(call, memory, keys, bias, w);
        int thread = read_thread(), row = w.pass * memory.keys + thread / 32 * 16 + thread % 32 / 4;
        p = read_place<C>(call, memory, w.items, &item);
        store_rows<C>(call.dk, p, row, call.n_key, call.c_head, keys.dk, call.scale);
        store_rows<C>(call.dv, p, row, call.n_key, call.c_head, keys.dv, 1);
    }
}

template <int C, bool BIASED>
__global__ void __launch_bounds__(MAX_THREADS, 1)
    wgmma_passes(const __grid_constant__ grad_call call) {
    extern __shared__ __align__(TILE_ALIGN) uint8_t shared[];
    const pass_memory<C> memory = {shared, (int)blockDim.x / 2, (int)call.space.ld_bias_t};
    walk_position w = {};
    int item = (int)blockIdx.x;
    item_place p = place_of_item(call, item);
    if (threadIdx.x == 0) {
        barrier_init(memory.barrier(FULL_Q), 1);
        barrier_init(memory.barrier(FULL_KV), 1);
        for (int i = 0; i < SLOTS; i++) {
            barrier_init(memory.barrier(FULL + i), (int)blockDim.x / 32);
            barrier_init(memory.barrier(EMPTY + i), GROUP_THREADS / 32);
        }
        barriers_publish();
        fetch_keys<C>(call, p, 0, memory, 0);
    }
    for (int i = threadIdx.x; i < 16 * C; i += blockDim.x)
        memory.ones()[i] = to<bf16>(1);
    if (!BIASED) clear_channels<C>(call, memory.opened());
    put_place<C>(memory, 0, p, item);
    __syncthreads();
#pragma unroll 1
    for (;; w.items++) {
        p = read_place<C>(call, memory, w.items, &item);
        walk_opening<C> opening;
        if (!BIASED) opening.start(call, p);
        __syncthreads(); /* all warps are done with the last item's queries and mask */
        if (read_thread() == 0) fetch_queries<C, BIASED>(call, p, item, memory);
        bool has_valid = copy_mask<C>(call, p, memory);
        if (!BIASED) opening.finish(call, p, memory.opened());
        barrier_wait(memory.barrier(FULL_Q), w.items & 1);
        walk_passes<C, BIASED>(call, memory, w, has_valid);
        read_place<C>(call, memory, w.items, &item);
        item += (int)gridDim.x;
        if (item >= call.items) break;
        put_place<C>(memory, w.items + 1, place_of_item(call, item), item);
        __syncthreads();
    }
}

/* -- launches */

/* How a call is split into passes and blocks. */
struct pass_shape {
    int keys, queries, passes; /* keys of a pass, queries of an item */
    int64_t blocks;
    size_t bytes; /* of shared memory */
};

static pass_shape shape_of(const fm_attention *a) {
    int64_t c = a->c_head <= 16 ? 16 : 32, queries = round_up(a->n_query, TILE);
    int64_t all = round_up(a->n_key, TILE), items = a->n_group * a->n_batch * a->n_head;
    auto fit = [=](int64_t keys) {
        /* 228 KB of shared memory, of which each block costs 1 KB more than it uses. */
        int64_t bytes = (int64_t)pass_bytes(c, keys, queries, all) + 1024;
        return min_size(MAX_THREADS / 2 / keys, 228 * 1024 / bytes);
    };
    /* Prefer passes of 128 keys if that lets two blocks share a multiprocessor, or if the queries
     * leave no room for more. */
    int64_t keys = all <= 64 ? 64 : all <= 128 || fit(128) > 1 || fit(256) == 0 ? 128 : 256;
    return {(int)keys, (int)queries, (int)divide_up(all, keys),
            min_size(items, n_multiprocessor() * fit(keys)), pass_bytes(c, keys, queries, all)};
}

size_t attention_wgmma_long_sums(const fm_attention *a) {
    pass_shape shape = shape_of(a);
    if (shape.passes == 1) return 0;
    int64_t values = shape.queries * ((a->c_head <= 16 ? 16 : 32) + (a->bias ? 8 : 0));
    return (size_t)(shape.blocks * values) * sizeof(float);
}

template <int C, bool BIASED>
static void launch_passes(fm_stream *stream, const fm_attention *a, grad_call *call) {
    pass_shape shape = shape_of(a);
    auto kernel = wgmma_passes<C, BIASED>;
    call->passes = shape.passes;
    make_tiles<C>(a, call, shape.queries / query_boxes(shape.queries), shape.keys);
    allow_shared(kernel, 227 * 1024);
    kernel<<<(unsigned)shape.blocks, (unsigned)shape.keys * 2, shape.bytes, queue(stream)>>>(*call);
    FM_LAUNCHED();
}

template <int C> static void run_long(fm_stream *stream, const fm_attention *a, grad_call *call) {
    if (a->bias) {
        launch_passes<C, true>(stream, a, call);
    } else {
        launch_passes<C, false>(stream, a, call);
    }
}

void attention_wgmma_long(fm_stream *stream, const fm_attention *a, grad_call *call) {
    if (a->c_head <= 16) {
        run_long<16>(stream, a, call);
    } else {
        run_long<32>(stream, a, call);
    }
}

} // namespace fm_cuda
