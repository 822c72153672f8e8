/* attention_wgmma_all.cu: gated attention of the bf16 table with a bias and heads of 24 or 32
 * channels, backward, for 129 to 256 queries and keys. One walk makes dq, dk, dv and dbias, so that
 * the logits are made once.
 *
 * A cluster of two blocks takes a (group, head) and walks a chunk of its batches. Block r has keys
 * 128 r to 128 r + 127 and all queries. Three warp groups share the work of a block:
 *
 *     two walkers    64 keys each: the steps of attention_wgmma_grad.cuh for 32 queries at a time.
 *                    Their sums of dS over all batches, which are dbias, stay in registers.
 *     the finisher   makes dq of 64 queries at a time from dS^T, which the walkers leave in one of
 *                    two slots, and fills the ring of operands. It needs few registers.
 *
 * dq is a sum over both blocks. Each block finishes 128 of the 256 queries, and the other one sends
 * its part of these through shared memory of the cluster. A block walks the other block's queries
 * first. So its part is on its way while the other block works on the same queries, and its own
 * queries end with a part that has already arrived. The ring's stages have the queries in this
 * order: place p is query p ^ 128 in block 0, and query p in block 1.
 *
 * Since o is rounded to bf16, delta has an error of one sign for all keys of a query. As in
 * attention_small_grad.cu, the mean of each row of dbias is subtracted in the end.
 *
 * Order of events. All barriers are in shared memory, and each counts warps or bytes:
 *
 *     full, empty              of a stage of the ring: rows and mask terms of a batch
 *     ds_full, ds_empty        of a slot of dS^T
 *     part_full, part_empty    of a slot of parts of dq from the other block */
#include "trainer/backend/cuda/hopper/attention/attention_wgmma_grad.cuh"
#include "trainer/backend/cuda/hopper/core/cluster.cuh"

#include <math.h>

namespace fm_cuda {

constexpr int ALL_C = 32, ALL_QUERIES = 256, ALL_KEYS = 128;
constexpr int ALL_STEPS = ALL_QUERIES / STEP, QUERY_TILES = ALL_QUERIES / TILE;
constexpr int PARTS_SENT = QUERY_TILES / 2; /* tiles of queries that the other block finishes */
constexpr int WALKERS = 2, ALL_THREADS = (WALKERS + 1) * GROUP_THREADS;
constexpr int WALK_REGISTERS = 224, FINISH_REGISTERS = 56;

/* The argument of the kernel. */
struct all_call {
    grad_call grad;
    box_map dk_box, dv_box; /* 16 keys */
};

/* What a block reads of one batch. */
struct alignas(TILE_ALIGN) all_stage {
    bf16 q[ALL_QUERIES * ALL_C], d[ALL_QUERIES * ALL_C];
    bf16 k[ALL_KEYS * ALL_C], v[ALL_KEYS * ALL_C];
    float shift[2 * ALL_QUERIES], minus_delta[2 * ALL_QUERIES]; /* attention_space's columns */
};

struct alignas(TILE_ALIGN) all_space {
    bf16 ds[2][ALL_KEYS * TILE]; /* slots of dS^T, [key, 64 queries] */
    all_stage stage[2];
    uint4 bias[ALL_KEYS / 16][QUERY_TILES][128]; /* in the order of accumulators (bias_at) */
    float4 part[PARTS_SENT][4][GROUP_THREADS];   /* of dq, from the other block */
    bf16 dk[ALL_KEYS * ALL_C];                   /* on its way to memory; dv takes the place of v */
    float term[2][ALL_KEYS];                     /* mask terms of the stages' keys */
    uint64_t full[2], empty[2], ds_full[2], ds_empty[2], part_full[2], part_empty[2];
};

static_assert(sizeof(all_space) <= 227 * 1024);

/* The block's place: (group, head), the chunk, the half of the keys, and its batches. */
struct all_block {
    int group, head, chunk, rank, begin, batches;
};

__device__ inline all_block place_of_all(const grad_call &c) {
    int chunks = (int)c.space.chunks, per_chunk = (c.n_batch + chunks - 1) / chunks;
    int cluster = (int)blockIdx.x / 2, chunk = cluster % chunks, begin = chunk * per_chunk;
    int plane = cluster / chunks, group = plane / c.n_head;
    return {group, plane - group * c.n_head,
            chunk, (int)blockIdx.x % 2,
            begin, min(c.n_batch, begin + per_chunk) - begin};
}

/* The query at a place of the ring's stages. */
__device__ inline int query_of_place(const all_block &block, int place) {
    return block.rank == 0 ? place ^ ALL_QUERIES / 2 : place;
}

/* -- the cluster */

/* The address of the same place in the shared memory of the other block. */
__device__ inline uint32_t address_in_other(uint32_t address, int rank) {
    return address_in_block(address, rank ^ 1);
}

/* The warp has finished with what the barrier guards. */
__device__ inline void warp_arrive(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/* -- the walkers */

/* Puts a warp's 16 rows of an accumulator times `scale` into a tile. */
__device__ inline void put_rows(bf16 *tile, const float (&x)[4][4], float scale) {
    float y[4][4];
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            y[n][e] = x[n][e] * scale;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        uint32_t packed[4];
        accumulator_rows(packed, y, k);
        tile_put<ALL_C>(tile, read_thread() / 32 * 16, 2 * k, packed);
    }
}

/* Stores dk and dv of batch i, which is in stage i % 2. PLAIN: the copy engine reads the warp's
 * rows from shared memory, until finish_keys. */
template <bool PLAIN>
__device__ inline void store_keys(const all_call &call, all_space *space, const all_block &block,
                                  int i, const walk_keys<ALL_C> &keys) {
    const grad_call &c = call.grad;
    item_place p = {block.group, block.begin + i, block.head, 0};
    int thread = read_thread(), first = thread / 32 * 16, key = block.rank * ALL_KEYS + first;
    if constexpr (PLAIN) {
        bf16 *dv = space->stage[i & 1].v;
        /* The group's products no longer read v. */
        asm volatile("bar.sync %0, 128;" ::"r"(2 + thread / GROUP_THREADS) : "memory");
        put_rows(space->dk, keys.dk, c.scale);
        put_rows(dv, keys.dv, 1);
        tiles_publish();
        __syncwarp();
        if (thread % 32 != 0) return;
        box_place to = {key, p.head, p.batch, p.group};
        box_store(call.dk_box, to, shared_address(space->dk + first * ALL_C));
        box_store(call.dv_box, to, shared_address(dv + first * ALL_C));
    } else {
        int row = key + thread % 32 / 4;
        store_rows<ALL_C>(c.dk, p, row, c.n_key, c.c_head, keys.dk, c.scale);
        store_rows<ALL_C>(c.dv, p, row, c.n_key, c.c_head, keys.dv, 1);
    }
}
/* The warp has finished with the stage of a batch. */
__device__ inline void finish_keys(uint32_t empty) {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    stores_wait();
    barrier_arrive(empty);
}

constexpr uint32_t STAGE_BYTES = sizeof(all_stage), SLOT_BYTES = ALL_KEYS * TILE * sizeof(bf16);

/* Operands of a group in a stage of the ring. */
struct all_operands {
    uint64_t q, d, k, v;
};
/* As operand_after, by a distance in bytes that is known only at run time. */
__device__ inline uint64_t operand_beyond(uint64_t operand, uint32_t bytes) {
    return operand >> 32 << 32 | ((uint32_t)operand + bytes / 16);
}
__device__ inline all_operands operands_after(const all_operands &x, uint32_t bytes) {
    return {operand_beyond(x.q, bytes), operand_beyond(x.d, bytes), operand_beyond(x.k, bytes),
            operand_beyond(x.v, bytes)};
}

/* A lane's addresses: of its bias, its row in the first slot of dS^T, and in the first stage its
 * columns' terms and its key's mask term. Its group's operands in that stage. */
struct all_place {
    uint32_t bias, ds, columns, term;
    all_operands first;
};
__device__ inline all_place place_of_walker(const all_space *space) {
    int thread = (int)threadIdx.x, lane = thread % 32, key = thread / 32 * 16;
    int group = __shfl_sync(0xffffffffu, thread / GROUP_THREADS, 0);
    const all_stage &stage = space->stage[0];
    all_place at;
    at.bias = shared_address(&space->bias[key / 16][0][lane]);
    at.ds = shared_address(space->ds[0] + tile_at<TILE>(key + lane % 16, lane / 16));
    at.columns = shared_address(stage.shift) + lane % 4 * 16;
    at.term = shared_address(space->term[0] + key + lane / 4);
    at.first.q = tile_operand<ALL_C, K_MAJOR>(stage.q);
    at.first.d = tile_operand<ALL_C, K_MAJOR>(stage.d);
    at.first.k = operand_after(tile_operand<ALL_C, K_MAJOR>(stage.k), group * GROUP_ROWS * ALL_C);
    at.first.v = operand_after(tile_operand<ALL_C, K_MAJOR>(stage.v), group * GROUP_ROWS * ALL_C);
    return at;
}

/* Starts s and dp of step h with the stage's columns and the bias. Nothing is read ahead, because
 * that takes registers which the compiler would spill. */
__device__ inline void all_start(float (&s)[4][4], float (&dp)[4][4], const all_place &at,
                                 uint32_t stage, int h, float factor) {
    bias_tile<4> bias;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t address = at.bias + (uint32_t)(h / 2 * 128 + (h % 2 * 2 + j) * 32) * 16;
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(bias.part[j].x), "=r"(bias.part[j].y), "=r"(bias.part[j].z),
                       "=r"(bias.part[j].w)
                     : "r"(address));
    }
    walk_place columns = {};
    columns.columns = at.columns + stage;
    columns.minus_delta = (uint32_t)(offsetof(all_stage, minus_delta) - offsetof(all_stage, shift));
    start_products<true>(s, dp, columns, h, factor, bias);
    products_pin(s);
    products_pin(dp);
}

/* Starts the products of step h: s += k q^T and dp += v dout'^T, as two groups of products. */
__device__ inline void all_multiply(float (&s)[4][4], float (&dp)[4][4], const all_operands &from,
                                    int h) {
    products_begin();
#pragma unroll
    for (int k = 0; k < 2; k++)
        wgmma<K_MAJOR, K_MAJOR>(s, operand_after(from.k, 16 * k),
                                operand_after(from.q, h * STEP * ALL_C + 16 * k), true);
    products_commit();
#pragma unroll
    for (int k = 0; k < 2; k++)
        wgmma<K_MAJOR, K_MAJOR>(dp, operand_after(from.v, 16 * k),
                                operand_after(from.d, h * STEP * ALL_C + 16 * k), true);
    products_commit();
}

/* Stores this lane's share of the chunk's sum of dbias. */
__device__ inline void store_all_sums(const grad_call &c, const float (&sum)[ALL_STEPS][4][4]) {
    all_block block = place_of_all(c);
    int thread = read_thread(), g = thread % 32 / 4, t = thread % 4;
    int first_key = block.rank * ALL_KEYS + thread / 32 * 16 + g;
    float *plane = c.space.dbias + ((int64_t)block.chunk * (c.items / c.n_batch) +
                                    block.group * c.n_head + block.head) *
                                       c.n_query * c.n_key;
#pragma unroll
    for (int h = 0; h < ALL_STEPS; h++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int query = query_of_place(block, h * STEP + n * 8 + 2 * t + i % 2);
                int key = first_key + i / 2 * 8;
                if (query < c.n_query && key < c.n_key) plane[query * c.n_key + key] = sum[h][n][i];
            }
}

/* One of the two groups: dk, dv of its keys and dS^T of every batch, and at the end dbias. */
template <bool PLAIN>
__device__ inline void all_walk(const all_call &arguments, all_space *space,
                                const all_block &block) {
    const grad_call &call = arguments.grad;
    const all_place at = place_of_walker(space);
    uint32_t full = shared_address(space->full), empty = shared_address(space->empty);
    uint32_t ds_full = shared_address(space->ds_full), ds_empty = shared_address(space->ds_empty);
    float factor = call.space.bias_factor, slope = call.slope;
    float sum[ALL_STEPS][4][4], s[4][4], dp[4][4];
#pragma unroll
    for (int h = 0; h < ALL_STEPS; h++)
        set_rows<4>(sum[h], 0, 0);
    walk_keys<ALL_C> keys;
    uint32_t weights[2][4], ds[2][4];

    barrier_wait(full, 0);
    all_start(s, dp, at, 0, 0, factor);
    all_multiply(s, dp, at.first, 0);
    products_commit(); /* in place of dk's products of the step before */
#pragma unroll 1
    for (int i = 0; i < block.batches; i++) {
        int stage = i & 1, next = i + 1 < block.batches ? stage ^ 1 : stage;
        uint32_t here = (uint32_t)stage * STAGE_BYTES, there = (uint32_t)next * STAGE_BYTES;
        const all_operands from = operands_after(at.first, here);
        const all_operands then = operands_after(at.first, there);
        asm volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(keys.upper)
                     : "r"(at.term + stage * ALL_KEYS * 4));
        asm volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(keys.lower)
                     : "r"(at.term + stage * ALL_KEYS * 4 + 32));
#pragma unroll
        for (int h = 0; h < ALL_STEPS; h++) {
            constexpr int LAST = ALL_STEPS - 1;
            int slot = h / 2 % 2, offset = h * STEP * ALL_C;
            products_wait<2>(s);
            weights_from_logits(s, slope, keys);
#pragma unroll
            for (int k = 0; k < 2; k++)
                accumulator_rows(weights[k], s, k);
            products_begin();
#pragma unroll
            for (int k = 0; k < 2; k++)
                wgmma<MN_MAJOR>(keys.dv, weights[k], operand_after(from.d, offset + 16 * k * ALL_C),
                                h + k > 0);
            products_commit();
            if (h % 2 == 0) barrier_wait(ds_empty + 8 * slot, h / 4 % 2 ^ 1);
            products_wait<1>(dp);
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    s[n][e] *= dp[n][e];
                    sum[h][n][e] += s[n][e];
                }
#pragma unroll
            for (int k = 0; k < 2; k++) {
                accumulator_rows(ds[k], s, k);
                store_matrix((at.ds + slot * SLOT_BYTES) ^ (uint32_t)((h % 2 * 4 + 2 * k) * 16),
                             ds[k]);
            }
            if (h % 2 == 1) {
                tiles_publish();
                warp_arrive(ds_full + 8 * slot);
            }
            if (h == 1 && i > 0) finish_keys(empty + 8 * (stage ^ 1));
            if (h == LAST && next != stage) barrier_wait(full + 8 * next, (i + 1) / 2 & 1);
            all_start(s, dp, at, h == LAST ? there : here, (h + 1) % ALL_STEPS, factor);
            all_multiply(s, dp, h == LAST ? then : from, (h + 1) % ALL_STEPS);
#pragma unroll
            for (int k = 0; k < 2; k++)
                wgmma<MN_MAJOR>(keys.dk, ds[k], operand_after(from.q, offset + 16 * k * ALL_C),
                                h + k > 0);
            products_commit();
        }
        products_wait<0>(keys.dk);
        products_pin(keys.dv);
        products_pin(s);
        products_pin(dp);
        __syncwarp();
        store_keys<PLAIN>(arguments, space, block, i, keys);
        __syncwarp();
    }
    finish_keys(empty + 8 * ((block.batches - 1) & 1));
    if (call.space.dbias) store_all_sums(call, sum);
}

/* -- the finisher */

/* The raw masks of two keys of batch i: of this thread's key in the block, and the same in the
 * other one. */
struct all_mask {
    uint16_t own, other;
};
__device__ inline all_mask fetch_all_mask(const grad_call &c, const all_block &block, int i) {
    all_mask x = {};
    int thread = (int)threadIdx.x % GROUP_THREADS;
    int own = block.rank * ALL_KEYS + thread, other = own ^ ALL_KEYS;
    if (!c.mask || i >= block.batches) return x;
    const uint16_t *from = (const uint16_t *)c.mask + block.group * c.mask_stride[0] +
                           (block.begin + i) * c.mask_stride[1];
    if (own < c.n_key) x.own = from[own * c.mask_stride[2]];
    if (other < c.n_key) x.other = from[other * c.mask_stride[2]];
    return x;
}

/* The group's bar.red: whether `x` holds in one of its threads. */
__device__ inline bool group_any(bool x) {
    int any;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 p, %1, 0;\nbar.red.or.pred q, 1, 128, p;\n"
                 "selp.b32 %0, 1, 0, q;\n}"
                 : "=r"(any)
                 : "r"((int)x)
                 : "memory");
    return any != 0;
}

/* Starts reading the rows of batch i. Called by one thread. */
__device__ inline void all_fetch_rows(const grad_call &c, all_stage &to, const all_block &block,
                                      int i, uint32_t full) {
    int head = block.head, group = block.group, batch = block.begin + i;
    box_place keys = {block.rank * ALL_KEYS, head, batch, group};
    int rows = (int)c.space.ld_bias_t;
    const float *columns = columns_of(c, (group * c.n_batch + batch) * c.n_head + head);
    barrier_expect(full, sizeof to.q + sizeof to.d + sizeof to.k + sizeof to.v +
                             (uint32_t)(rows * 4) * (uint32_t)sizeof(float));
    box_load(shared_address(to.k), c.k_box, keys, full);
    box_load(shared_address(to.v), c.v_box, keys, full);
#pragma unroll 1
    for (int place = 0; place < ALL_QUERIES; place += ALL_QUERIES / 2) {
        int query = query_of_place(block, place);
        uint32_t bytes =
            (uint32_t)(min(rows - query, ALL_QUERIES / 2) * 2) * (uint32_t)sizeof(float);
        box_place queries = {query, head, batch, group};
        box_load(shared_address(to.q + place * ALL_C), c.q_box, queries, full);
        box_load(shared_address(to.d + place * ALL_C), c.d_box, queries, full);
        bulk_load(shared_address(to.shift + 2 * place), columns + 2 * query, bytes, full);
        bulk_load(shared_address(to.minus_delta + 2 * place), columns + 2 * rows + 2 * query, bytes,
                  full);
    }
}

/* Fills a stage of the ring with batch i, whose masks are `mask`. */
__device__ inline void all_fetch(const grad_call &c, all_space *space, const all_block &block,
                                 int i, all_mask mask) {
    all_stage &to = space->stage[i & 1];
    int thread = (int)threadIdx.x % GROUP_THREADS, key = block.rank * ALL_KEYS + thread;
    uint32_t full = shared_address(space->full + (i & 1));
    if (i >= block.batches) return;
    barrier_wait(shared_address(space->empty + (i & 1)), i / 2 & 1 ^ 1);
    bool is_valid = group_any(mask.own != 0 || mask.other != 0);
    space->term[i & 1][thread] = key >= c.n_key ? -INFINITY
                                 : is_valid     ? c.mask_factor * (low_half(mask.own) - 1.0f)
                                                : 0;
    warp_arrive(full);
    if (thread == 0) all_fetch_rows(c, to, block, i, full);
    __syncwarp(); /* products need converged warps */
}

/* The offset of the eight channels of a row of dq that a lane stores, in batch 0 of the block. */
__device__ inline int offset_of_query(const grad_call &c, const all_block &block, int row) {
    return block.group * c.dq.group + block.begin * c.dq.batch + block.head * c.dq.head +
           row * c.dq.row + (int)threadIdx.x % 4 * 8;
}

/* Stores this lane's two rows of dq of batch i. PLAIN: whole heads of 32 channels, which are not
 * added to old ones. `offset` is that of the lane's first row. */
template <bool PLAIN>
__device__ inline void store_queries(const grad_call &c, const all_block &block, int i, int offset,
                                     int row, const float (&dq)[4][4]) {
    if constexpr (PLAIN) {
        bf16 *to = c.dq.data + (offset + i * c.dq.batch);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t word[4];
#pragma unroll
            for (int n = 0; n < 4; n++)
                word[n] = pack_two(dq[n][2 * half] * c.scale, dq[n][2 * half + 1] * c.scale);
            uint4 line = transpose_four(word);
            if (row + 8 * half < c.n_query) *(uint4 *)(to + half * 8 * c.dq.row) = line;
        }
    } else {
        item_place p = {block.group, block.begin + i, block.head, 0};
        store_rows<ALL_C>(c.dq, p, row, c.n_query, c.c_head, dq, c.scale);
    }
}

/* dq of every batch. */
template <bool PLAIN>
__device__ inline void all_finish(const grad_call &call, all_space *space, const all_block &block) {
    int thread = (int)threadIdx.x % GROUP_THREADS;
    uint32_t part = shared_address(&space->part[0][0][thread]);
    uint32_t part_full = shared_address(space->part_full);
    uint32_t part_empty = shared_address(space->part_empty);
    uint64_t ds_base = tile_operand<TILE, MN_MAJOR>(space->ds[0]);
    uint64_t k_base = tile_operand<ALL_C, MN_MAJOR>(space->stage[0].k);
    int first = query_of_place(block, ALL_QUERIES / 2) + thread / 32 * 16 + thread % 32 / 4;
    int dq_at = offset_of_query(call, block, first);
#pragma unroll 1
    for (int i = 0; i < block.batches; i++) {
        int stage = i & 1;
        all_mask mask = fetch_all_mask(call, block, i + 2);
        barrier_wait(shared_address(space->full + stage), i / 2 & 1);
#pragma unroll 1
        for (int j = 0; j < QUERY_TILES; j++) {
            float dq[ALL_C / 8][4];
            int slot = j % 2;
            barrier_wait(shared_address(space->ds_full + slot), j / 2);
            products_begin();
#pragma unroll
            for (int k = 0; k < ALL_KEYS; k += 16)
                wgmma<MN_MAJOR, MN_MAJOR>(
                    dq, operand_after(ds_base, slot * ALL_KEYS * TILE + k * TILE),
                    operand_after(k_base, stage * (int)STAGE_BYTES / 2 + k * ALL_C), k > 0);
            products_commit();
            products_wait<0>(dq);
            warp_arrive(shared_address(space->ds_empty + slot));
            if (j == QUERY_TILES - 1) warp_arrive(shared_address(space->empty + stage));
            uint32_t at = part + (uint32_t)slot * (uint32_t)sizeof space->part[0];
            if (j < PARTS_SENT) {
                barrier_wait(part_empty + 8 * slot, i & 1 ^ 1);
#pragma unroll
                for (int n = 0; n < 4; n++)
                    cluster_store(address_in_other(at + n * 16 * GROUP_THREADS, block.rank), dq[n],
                                  address_in_other(part_full + 8 * slot, block.rank));
                continue;
            }
            if (thread == 0) barrier_expect(part_full + 8 * slot, sizeof space->part[0]);
            barrier_wait(part_full + 8 * slot, i & 1);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float4 other = load_shared(at + n * 16 * GROUP_THREADS);
                dq[n][0] += other.x, dq[n][1] += other.y, dq[n][2] += other.z, dq[n][3] += other.w;
            }
            int row = first + slot * TILE;
            store_queries<PLAIN>(call, block, i, dq_at + slot * TILE * call.dq.row, row, dq);
            /* Behind the store: the sums are made, so the other block's part has been read. */
            __syncwarp();
            uint32_t other = address_in_other(part_empty + 8 * slot, block.rank);
            if (thread % 32 == 0) cluster_arrive(other);
        }
        all_fetch(call, space, block, i + 2, mask);
    }
}

__device__ inline void init_barriers(all_space *space) {
    for (int i = 0; i < 2; i++) {
        barrier_init(shared_address(space->full + i), 1 + 4);
        barrier_init(shared_address(space->empty + i), (WALKERS + 1) * 4);
        barrier_init(shared_address(space->ds_full + i), WALKERS * 4);
        barrier_init(shared_address(space->ds_empty + i), 4);
        barrier_init(shared_address(space->part_full + i), 1);
        barrier_init(shared_address(space->part_empty + i), 4);
    }
    barriers_publish();
}

/* The walkers fill what stays in shared memory: the bias, and the columns of places that never
 * arrive. Past the last key or query the bias does not matter, so the last tile supplies it. */
__device__ inline void all_begin(const grad_call &call, all_space *space, const all_block &block) {
    int thread = (int)threadIdx.x, rows = (int)call.space.ld_bias_t;
    for (int place = thread; place < ALL_QUERIES; place += WALKERS * GROUP_THREADS) {
        if (query_of_place(block, place) < rows) continue;
        for (int i = 0; i < 2; i++) {
            float *shift = space->stage[i].shift + place / 2 * 4 + place % 2;
            shift[0] = shift[2] = -INFINITY;
            shift[2 * ALL_QUERIES] = shift[2 * ALL_QUERIES + 2] = 0;
        }
    }
    int strips = (int)call.space.ld_bias / 16, tiles = rows / TILE, warp = thread / 32;
#pragma unroll
    for (int i = 0; i < QUERY_TILES; i++) {
        int strip = min(block.rank * (ALL_KEYS / 16) + warp, strips - 1);
        int tile = min(query_of_place(block, i * TILE) / TILE, tiles - 1);
        const uint4 *from = bias_at(call.space.bias_t, block.group * call.n_head + block.head,
                                    strips, strip, tiles, tile);
#pragma unroll
        for (int part = 0; part < 4; part++)
            space->bias[warp][i][part * 32 + thread % 32] = from[part * 32];
    }
}

/* blockIdx.x: half of the keys + 2 * (chunk + chunks * (head + n_head * group)). */
template <bool PLAIN>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(ALL_THREADS, 1)
    wgmma_all(const __grid_constant__ all_call arguments) {
    extern __shared__ __align__(TILE_ALIGN) uint8_t shared[];
    all_space *space = (all_space *)shared;
    const grad_call &call = arguments.grad;
    all_block block = place_of_all(call);
    bool is_finisher = threadIdx.x / GROUP_THREADS == WALKERS;
    if (threadIdx.x == 0) init_barriers(space);
    __syncthreads();
    wait_for_previous();
    if (is_finisher) {
#pragma unroll 1
        for (int i = 0; i < 2; i++)
            all_fetch(call, space, block, i, fetch_all_mask(call, block, i));
    } else {
        all_begin(call, space, block);
    }
    cluster_barrier();
    if (is_finisher) {
        registers_give<FINISH_REGISTERS>();
        all_finish<PLAIN>(call, space, block);
    } else {
        registers_take<WALK_REGISTERS>();
        if (block.batches > 0) all_walk<PLAIN>(arguments, space, block);
    }
    /* The other block may still send to this one, or arrive at its barriers. */
    cluster_barrier();
}

/* -- launches */

/* The number of chunks that should end soonest, by the rule of attention_wgmma_dbias_chunks. */
int64_t attention_all_chunks(const fm_attention *a) {
    int64_t planes = a->n_group * a->n_head, best = 1;
    double least = INFINITY, sum = 1e-6 * (double)(planes * a->n_query * a->n_key);
    for (int64_t chunks = 1; chunks <= min_size(a->n_batch, 64); chunks++) {
        int64_t rounds = divide_up(2 * planes * chunks, n_multiprocessor());
        int64_t batches = divide_up(a->n_batch, chunks);
        double time = (double)(rounds * (batches + 2)) + sum * (double)chunks;
        if (divide_up(a->n_batch, batches) == chunks && time < least) least = time, best = chunks;
    }
    return best;
}

void attention_all_grad(fm_stream *stream, const fm_attention *a, grad_call *call, fm_out dbias) {
    bool is_plain = call->c_head == ALL_C && call->dq.data && call->dk.data && call->dv.data &&
                    !call->dq.adds && !call->dk.adds && !call->dv.adds;
    auto kernel = is_plain ? wgmma_all<true> : wgmma_all<false>;
    int64_t clusters = a->n_group * a->n_head * call->space.chunks;
    make_tiles<ALL_C>(a, call, ALL_QUERIES / 2, ALL_KEYS);
    all_call arguments = {*call, {}, {}};
    if (is_plain) {
        arguments.dk_box = attention_boxes(a, call->dk.data, a->k_stride, a->n_key, ALL_C, 16);
        arguments.dv_box = attention_boxes(a, call->dv.data, a->v_stride, a->n_key, ALL_C, 16);
    }
    allow_shared(kernel, sizeof(all_space));
    launch_after(stream, kernel, (unsigned)(2 * clusters), ALL_THREADS, sizeof(all_space), true,
                 arguments);
    FM_LAUNCHED();
    if (call->space.dbias) attention_mean_dbias(stream, a, &call->space, dbias);
}

} // namespace fm_cuda
