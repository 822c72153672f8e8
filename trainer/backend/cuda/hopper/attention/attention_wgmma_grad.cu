/* attention_wgmma_grad.cu: gated attention of the bf16 table by warp-group products, backward. It
 * computes dq, dk, dv and dg of up to 256 queries and keys, and has the launches of the other files
 * for longer ones, for dbias, and for calls of which one walk makes all gradients.
 *
 * A block walks over items (group, batch, head), one at a time. A warp group owns 64 of the item's
 * keys, K and V in registers as operands. For each tile of 32 queries it recomputes the logits,
 * adds to dk and dv, and gets dS^T (attention_wgmma_grad.cuh). All of dS^T stays in shared memory.
 * When every warp group has walked all queries, each computes dq = dS k of 64 queries over all
 * keys. While that happens, the next item's rows arrive.
 *
 * Since o is rounded to bf16, delta has an error of one sign for all keys of a query. The sums in
 * dbias and in the weight gradient of the bias would show it. A row of dS sums to zero except for
 * that error. So the product for dq has 8 further columns, of ones. Their result is the sum of the
 * row of dS, and it corrects the delta that attention_wgmma_dbias.cu reads. */
#include "trainer/backend/cuda/hopper/attention/attention_wgmma_grad.cuh"

namespace fm_cuda {

/* -- pairs */

/* Shared memory of a block of `keys` keys, two threads per key, and `queries` queries, both
 * multiples of 64. k has two copies: one item's is read while the next one's arrives. `turn`, the
 * number of items so far modulo 2, names the copy and the parity of the barrier's phase. */
template <int C> struct walk_memory {
    uint8_t *base;
    int keys, queries;

    /* [queries / 64][keys, 64] */
    __device__ bf16 *ds() const {
        return (bf16 *)base;
    }
    /* [queries, C] */
    __device__ bf16 *q() const {
        return (bf16 *)base + keys * queries;
    }
    /* [queries, C]: dout' */
    __device__ bf16 *d() const {
        return (bf16 *)base + (keys + C) * queries;
    }
    /* [2][keys, C] */
    __device__ bf16 *k(int turn) const {
        return (bf16 *)base + (keys + 2 * C) * queries + turn * keys * C;
    }
    /* [keys, C] */
    __device__ bf16 *v() const {
        return k(2);
    }
    /* [queries / 2][4]: -lse / scale of two queries, twice: for rows g, g + 8 of a column */
    __device__ float *shift() const {
        return (float *)k(3);
    }
    /* [queries / 2][4]: -delta, likewise */
    __device__ float *minus_delta() const {
        return shift() + 2 * queries;
    }
    __device__ opened_place opened() const {
        return {d(), shift(), queries};
    }
    /* [keys] */
    __device__ float *mask() const {
        return minus_delta() + 2 * queries;
    }
    /* [16, C] */
    __device__ bf16 *ones() const {
        return (bf16 *)(mask() + keys);
    }
    /* Completes when an item's q, k and v have arrived. */
    __device__ uint32_t barrier() const {
        return shared_address(ones() + 16 * C);
    }
    static size_t bytes(int n_key, int n_query) {
        return sizeof(bf16) * (size_t)(n_key * n_query + 2 * n_query * C + 3 * n_key * C + 16 * C) +
               sizeof(float) * (size_t)(4 * n_query + n_key + 2);
    }
};

/* Starts reading queries, keys and values of an item, and dout' and the columns' terms if they are
 * in the workspace. Called by one thread. */
template <int C, bool BIASED>
__device__ inline void fetch_item(const grad_call &c, const item_place &p, int item,
                                  const walk_memory<C> &memory, int turn) {
    box_place from = {0, p.head, p.batch, p.group};
    uint32_t barrier = memory.barrier(), rows = (BIASED ? 2 : 1) * memory.queries + 2 * memory.keys;
    barrier_expect(barrier, rows * C * (uint32_t)sizeof(bf16) + (BIASED ? column_bytes(c) : 0));
    box_load(shared_address(memory.k(turn)), c.k_box, from, barrier);
    box_load(shared_address(memory.v()), c.v_box, from, barrier);
    box_load(shared_address(memory.q()), c.q_box, from, barrier);
    if (!BIASED) return;
    box_load(shared_address(memory.d()), c.d_box, from, barrier);
    bulk_load(shared_address(memory.shift()), columns_of(c, item), column_bytes(c), barrier);
}

/* Loads the mask of this thread's key as raw bits; the load is waited for at their first use. */
__device__ inline uint16_t fetch_mask(const grad_call &c, const item_place &p) {
    int key = threadIdx.x;
    if (key >= c.n_key || !c.mask) return 0;
    return ((const uint16_t *)c.mask)[p.group * c.mask_stride[0] + p.batch * c.mask_stride[1] +
                                      key * c.mask_stride[2]];
}

/* The group's 64 keys x 32 queries, half `half` of the tile at `at`: adds to dk and dv, and stores
 * dS^T in shared memory. Once the bias of this tile is used, that of the next one is loaded. */
template <int C, bool BIASED>
__device__ inline void walk_step(walk_keys<C> &keys, const walk_place &at, int half,
                                 const grad_call &call, bias_tile<4> &b, const uint4 *next_bias) {
    float s[4][4], dp[4][4];
    uint32_t ds[2][4];
    uint64_t q = operand_after(at.q, half * STEP * C), d = operand_after(at.d, half * STEP * C);
    start_products<BIASED>(s, dp, at, half, call.space.bias_factor, b);
    if (BIASED) bias_load<4>(&b, next_bias);
    products_pin(s);
    products_pin(dp);
    products_begin();
#pragma unroll
    for (int k = 0; k < C / 16; k++)
        wgmma<K_MAJOR>(s, keys.k[k], operand_after(q, 16 * k), true);
    products_commit();
    weights_to_gradients(keys, call.slope, d, s, dp);
#pragma unroll
    for (int k = 0; k < 2; k++) {
        accumulator_rows(ds[k], s, k);
        store_matrix(at.ds ^ (half * 4 + 2 * k) * 16, ds[k]);
    }
    products_begin();
#pragma unroll
    for (int k = 0; k < 2; k++)
        wgmma<MN_MAJOR>(keys.dk, ds[k], operand_after(q, 16 * k * C), true);
    products_commit();
}

/* The start of an item's walk. */
template <int C> __device__ inline walk_place place_of_walk(const walk_memory<C> &memory) {
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
    walk_place at;
    at.columns = shared_address(memory.shift()) + lane % 4 * 16;
    at.minus_delta = (uint32_t)memory.queries * 8;
    at.ds = shared_address(memory.ds() + tile_at<TILE>(row, lane / 16));
    at.q = tile_operand<C, K_MAJOR>(memory.q());
    at.d = tile_operand<C, K_MAJOR>(memory.d());
    return at;
}

/* Loads the bias of the first tile. */
template <bool BIASED>
__device__ inline void start_bias(const grad_call &call, const item_place &p, walk_bias &bias) {
    int warp = threadIdx.x / 32, strips = (int)call.space.ld_bias / 16;
    int plane = p.group * call.n_head + p.head, strip = warp < strips ? warp : strips - 1;
    if (!BIASED) return;
    bias.at = bias_at(call.space.bias_t, plane, strips, strip, call.space.ld_bias_t / TILE, 0);
    bias_load<4>(&bias.half[0], bias.at);
    bias_load<4>(&bias.half[1], bias.at + 64);
}

/* The walk of one item: dk and dv of the group's keys, and their rows of dS^T, which all groups may
 * read after the next barrier. */
template <int C, bool BIASED>
__device__ inline void walk_item(const grad_call &call, const walk_memory<C> &memory,
                                 walk_keys<C> &keys, walk_bias &bias, int turn, bool is_valid) {
    int warp = threadIdx.x / 32, key = warp * 16 + threadIdx.x % 32 / 4;
    tile_rows<C>(keys.k, memory.k(turn), warp * 16);
    tile_rows<C>(keys.v, memory.v(), warp * 16);
    float factor = is_valid ? call.mask_factor : 0;
    keys.upper = key < call.n_key ? factor * (memory.mask()[key] - 1) : -INFINITY;
    keys.lower = key + 8 < call.n_key ? factor * (memory.mask()[key + 8] - 1) : -INFINITY;
    set_rows<C / 8>(keys.dk, 0, 0);
    set_rows<C / 8>(keys.dv, 0, 0);
    products_pin(keys.dk);
    products_pin(keys.dv);

    int tiles = memory.queries / TILE;
    walk_place at = place_of_walk<C>(memory);
#pragma unroll 1
    for (int tile = 0; tile < tiles; tile++) {
        if (BIASED && tile + 1 < tiles) bias.at += 128;
        walk_step<C, BIASED>(keys, at, 0, call, bias.half[0], bias.at);
        walk_step<C, BIASED>(keys, at, 1, call, bias.half[1], bias.at + 64);
        at.columns += TILE * 8;
        at.ds += memory.keys * TILE * (uint32_t)sizeof(bf16);
        at.q = operand_after(at.q, TILE * C);
        at.d = operand_after(at.d, TILE * C);
    }
    products_wait<0>(keys.dk);
    products_pin(keys.dv);
}

/* dq of 64 queries; with a bias, the sums of their rows of dS in 8 further columns. */
template <int C, bool BIASED> struct query_sums { float dq[C / 8 + (BIASED ? 1 : 0)][4]; };

/* Starts the sums of a tile of queries over all keys of the block: dS times k, beside k the
 * ones. */
template <int C, bool BIASED>
__device__ inline void start_queries(const walk_memory<C> &memory, int tile, int turn,
                                     query_sums<C, BIASED> &sum) {
    uint64_t ds = tile_operand<TILE, MN_MAJOR>(memory.ds() + tile * memory.keys * TILE);
    uint64_t k = tile_operand<C, MN_MAJOR>(memory.k(turn), (int)(memory.ones() - memory.k(turn)));
    set_rows<C / 8 + (BIASED ? 1 : 0)>(sum.dq, 0, 0);
    products_pin(sum.dq);
    products_begin();
#pragma unroll 1
    for (int key = 0; key < memory.keys; key += 64) {
#pragma unroll
        for (int i = 0; i < 64; i += 16)
            wgmma<MN_MAJOR, MN_MAJOR>(sum.dq, operand_after(ds, i * TILE),
                                      operand_after_beside(k, i * C), true);
        ds = operand_after(ds, 64 * TILE);
        k = operand_after_beside(k, 64 * C);
    }
    products_commit();
}

/* Waits for the sums and stores them: dq, and the corrected deltas for dbias. */
template <int C, bool BIASED>
__device__ inline void store_queries(const grad_call &call, const item_place &p, int item,
                                     const walk_memory<C> &memory, int row,
                                     query_sums<C, BIASED> &sum) {
    products_wait<0>(sum.dq);
    store_rows<C>(call.dq, p, row, call.n_query, call.c_head, sum.dq, call.scale);
    if (!BIASED || !call.space.dbias || row >= memory.queries || threadIdx.x % 4 != 0) return;
    float *minus_delta = columns_of(call, item) + 2 * memory.queries;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float *column = minus_delta + (row + 8 * half) / 2 * 4 + row % 2; /* -delta, twice */
        column[0] = column[2] = column[0] - sum.dq[BIASED ? C / 8 : 0][2 * half];
    }
}

/* Each group stores the tile that it has started, then starts and stores every groups-th tile. */
template <int C, bool BIASED>
__device__ inline void finish_queries(const grad_call &call, const item_place &p, int item,
                                      const walk_memory<C> &memory, int turn,
                                      query_sums<C, BIASED> &sum) {
    int thread = read_thread(), groups = blockDim.x / GROUP_THREADS;
    int row = thread % GROUP_THREADS / 32 * 16 + thread % 32 / 4;
    int tile = thread / GROUP_THREADS, tiles = memory.queries / TILE;
    store_queries<C, BIASED>(call, p, item, memory, tile * TILE + row, sum);
#pragma unroll 1
    while ((tile += groups) < tiles) {
        start_queries<C, BIASED>(memory, tile, turn, sum);
        store_queries<C, BIASED>(call, p, item, memory, tile * TILE + row, sum);
    }
}

template <int C, bool BIASED>
__global__ void __launch_bounds__(2 * MAX_BLOCK_ROWS, 1)
    wgmma_pairs(const __grid_constant__ grad_call call) {
    extern __shared__ __align__(TILE_ALIGN) uint8_t shared[];
    const walk_memory<C> memory = {shared, (int)blockDim.x / 2, (int)call.space.ld_bias_t};
    int item = (int)blockIdx.x;
    item_place p = place_of_item(call, item);
    if (threadIdx.x == 0) {
        barrier_init(memory.barrier(), 1);
        barriers_publish();
        fetch_item<C, BIASED>(call, p, item, memory, 0);
    }
    for (int i = threadIdx.x; i < 16 * C; i += blockDim.x)
        memory.ones()[i] = to<bf16>(1);
    uint16_t mask = fetch_mask(call, p);
    walk_opening<C> opening;
    if (!BIASED) {
        clear_channels<C>(call, memory.opened());
        opening.start(call, p);
        opening.finish(call, p, memory.opened());
    }
#pragma unroll 1
    for (int turn = 0;; turn ^= 1) {
        walk_bias bias;
        start_bias<BIASED>(call, p, bias);
        if (threadIdx.x < memory.keys) memory.mask()[threadIdx.x] = low_half(mask);
        tiles_publish();
        bool is_valid = __syncthreads_or(mask != 0);
        barrier_wait(memory.barrier(), turn);
        if (call.space.dbias && p.head == 0 && threadIdx.x < memory.keys) {
            call.space.terms[(p.group * call.n_batch + p.batch) * memory.keys + threadIdx.x] =
                is_valid ? call.mask_factor * (low_half(mask) - 1.0f) : 0;
        }
        walk_keys<C> keys;
        walk_item<C, BIASED>(call, memory, keys, bias, turn, is_valid);
        tiles_publish();
        int thread = read_thread(), row = thread / 32 * 16 + thread % 32 / 4;
        store_rows<C>(call.dk, p, row, call.n_key, call.c_head, keys.dk, call.scale);
        store_rows<C>(call.dv, p, row, call.n_key, call.c_head, keys.dv, 1);
        int group = __shfl_sync(0xffffffffu, thread / GROUP_THREADS, 0);
        int next_item = item + (int)gridDim.x;
        bool has_next = next_item < call.items;
        item_place next = place_of_item(call, has_next ? next_item : item);
        if (!BIASED) opening.start(call, next);
        __syncthreads();
        query_sums<C, BIASED> sum;
        start_queries<C, BIASED>(memory, min(group, memory.queries / TILE - 1), turn, sum);
        /* All groups have left queries, dout', terms and values of this item. */
        if (has_next && read_thread() == 0) {
            fetch_item<C, BIASED>(call, next, next_item, memory, turn ^ 1);
        }
        mask = fetch_mask(call, next);
        finish_queries<C, BIASED>(call, p, item, memory, turn, sum);
        if (!has_next) break;
        p = next, item = next_item;
        if (!BIASED) opening.finish(call, p, memory.opened());
    }
}

/* -- launches */

static grad_tensor tensor_of(const void *data, const fm_attention_stride &s, fm_beta beta) {
    return {(bf16 *)data, (int)s.group, (int)s.batch, (int)s.row, (int)s.head, beta == FM_ADD};
}

static grad_call call_of(const fm_attention *a, const fm_attention_grad *grad,
                         const attention_space &space) {
    grad_call c = {};
    c.o = tensor_of(a->o, a->o_stride, FM_WRITE);
    c.dout = tensor_of(grad->dout, a->o_stride, FM_WRITE);
    c.opened = tensor_of(space.dout, opened_stride(a), FM_WRITE);
    if (a->g) c.g = tensor_of(a->g, a->g_stride, FM_WRITE);
    if (a->g) c.dg = tensor_of(grad->dg.data, a->g_stride, grad->dg.beta);
    c.dq = tensor_of(grad->dq.data, a->q_stride, grad->dq.beta);
    c.dk = tensor_of(grad->dk.data, a->k_stride, grad->dk.beta);
    c.dv = tensor_of(grad->dv.data, a->v_stride, grad->dv.beta);
    c.mask = (const bf16 *)a->mask;
    for (int i = 0; i < 3; i++)
        c.mask_stride[i] = (int)a->mask_stride[i];
    c.lse = (const float *)a->lse;
    c.space = space;
    if (!a->bias || !grad->dbias.data) c.space.dbias = NULL;
    c.n_batch = (int)a->n_batch, c.n_query = (int)a->n_query, c.n_key = (int)a->n_key;
    c.n_head = (int)a->n_head, c.c_head = (int)a->c_head;
    c.items = (int)(a->n_group * a->n_batch * a->n_head);
    c.scale = (float)a->scale, c.inverse = (float)(1 / a->scale);
    c.slope = c.scale * LOG2E, c.mask_factor = (float)a->mask_value * LOG2E;
    return c;
}

template <int C, bool BIASED>
static void launch_pairs(fm_stream *stream, const fm_attention *a, grad_call *call) {
    int keys = (int)round_up(call->n_key, TILE), queries = (int)call->space.ld_bias_t;
    size_t bytes = walk_memory<C>::bytes(keys, queries);
    auto kernel = wgmma_pairs<C, BIASED>;
    /* As many blocks per multiprocessor as fit: at 128 registers per thread, MAX_BLOCK_ROWS keys;
     * and 227 KB of shared memory, of which each block costs 1 KB more than it uses. */
    int64_t fit = min_size(MAX_BLOCK_ROWS / keys, (int64_t)(227 * 1024 / (bytes + 1024)));
    int64_t blocks = min_size(call->items, n_multiprocessor() * fit);
    make_tiles<C>(a, call, queries, keys);
    allow_shared(kernel, walk_memory<C>::bytes(MAX_BLOCK_ROWS, MAX_BLOCK_ROWS));
    kernel<<<(unsigned)blocks, (unsigned)keys * 2, bytes, queue(stream)>>>(*call);
    FM_LAUNCHED();
}

static void run_pairs(fm_stream *stream, const fm_attention *a, grad_call *call) {
    auto run = a->c_head <= 16 ? (a->bias ? launch_pairs<16, true> : launch_pairs<16, false>)
                               : (a->bias ? launch_pairs<32, true> : launch_pairs<32, false>);
    run(stream, a, call);
}

void attention_wgmma_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                          const attention_space &space) {
    grad_call call = call_of(a, grad, space);
    if (space.path == ATTENTION_SMALL) attention_small_keys(stream, a, &call);
    if (a->bias) attention_open(stream, a, grad, &call);
    switch (space.path) {
    case ATTENTION_SMALL: attention_small_grad(stream, a, &call, grad->dbias); return;
    case ATTENTION_ALL: attention_all_grad(stream, a, &call, grad->dbias); return;
    case ATTENTION_WGMMA_LONG: attention_wgmma_long(stream, a, &call); break;
    default: run_pairs(stream, a, &call);
    }
    if (call.space.dbias) attention_wgmma_dbias(stream, a, &call, grad->dbias);
}

} // namespace fm_cuda
