/* attention_wgmma_dbias.cu: the gradient of the bias of gated attention, bf16, for the paths by
 * warp-group products: dbias = sum over batches of dS.
 *
 * A block takes 128 x 128 of (query, key), each of eight warps 32 x 64 of it in registers, and
 * walks a chunk of the batches. For each batch it recomputes
 *
 *     S = q k^T + bias * bias_factor
 *     P = 2^(S scale log2(e) - lse log2(e)), and 0 for a masked key
 *     dP = dout' v^T - delta
 *     dbias += P dP
 *
 * The bias and the sums stay in registers over all batches. Products of single warps (mma.cuh) may
 * start from other registers than their result's, so adding the bias and -delta costs nothing.
 * Products of warp groups would need both written anew for each batch. The operands are q, k, v,
 * and dout' and the columns' terms, which the walk left in the workspace. The deltas are corrected
 * by then (attention_mma_grad.cu says why). The chunks' sums are added in order by a second
 * kernel.
 *
 * Order of instructions. Products, exponentials and sums take different parts of a multiprocessor.
 * Two warps share each of these, and keep step with each other. So the parts work at the same time
 * only if the instructions of one warp alternate between them. The warp's tile is therefore cut
 * into 16 units of 16 x 8. Slot u of a batch has the exponentials of unit u, its last product for
 * dP, the sums of the unit before, the exponents of the next one, and products of the three after
 * it. The last slots work ahead on the next batch. ptxas would gather instructions of one kind
 * again and run out of registers. With -O1 (trainer/CMakeLists.txt) it nearly keeps the order.
 *
 * The tiles of a batch are one stage of a ring of STAGES, which one warp fills by the copy engine.
 * `full` of a stage completes when its bytes are there, `empty` when every other warp has read it;
 * the n-th use of a stage waits for phase n % 2 of `full`. */
#include "trainer/backend/cuda/hopper/attention/attention_wgmma_grad.cuh"

#include <math.h>
#include <stddef.h>

namespace fm_cuda {

enum { SIDE = 128, STAGES = 4, CHUNKS_AT_ONCE = 4 };
enum { WARP_QUERIES = 32, WARP_KEYS = 64, DBIAS_WARPS = SIDE / WARP_QUERIES * (SIDE / WARP_KEYS) };
/* The last warp group fills the ring and gives its registers to the others. */
enum { DBIAS_THREADS = DBIAS_WARPS * 32 + 128, FETCH_REGISTERS = 24, SUM_REGISTERS = 240 };
/* Unit u is 16 queries, row tile u % 2, by 8 keys, column tile u / 2. Five are under way. */
enum { ROW_TILES = WARP_QUERIES / 16, COLUMN_TILES = WARP_KEYS / 8 };
enum { UNITS = ROW_TILES * COLUMN_TILES, UNITS_AT_ONCE = 8 };

/* What a block reads of one batch. Rows past the last are zeros, and their results are not
 * stored. */
template <int C> struct alignas(TILE_ALIGN) batch_tiles {
    bf16 q[SIDE * C], d[SIDE * C], k[SIDE * C], v[SIDE * C];
    float shift[2 * SIDE], minus_delta[2 * SIDE], term[SIDE]; /* attention_space's columns, terms */
};

/* -- the ring */

/* The place of a block's tile: (group, head), and its first query and key. */
struct block_place {
    int plane, query, key;
};

/* Reads the block's place again, so that the compiler does not keep or spill values derived from
 * it. */
__device__ inline block_place read_block(const grad_call &c) {
    int tile, plane, k_tiles = (c.n_key + SIDE - 1) / SIDE;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(tile));
    asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(plane));
    return {plane, tile / k_tiles * SIDE, tile % k_tiles * SIDE};
}

/* Starts reading a batch's tiles from query `first` and key `first_key`. Called by one thread. */
template <int C>
__device__ inline void fetch_batch(const grad_call &c, batch_tiles<C> &to, uint32_t barrier,
                                   const item_place &p, int first, int first_key) {
    box_place queries = {first, p.head, p.batch, p.group};
    box_place keys = {first_key, p.head, p.batch, p.group};
    int at = p.group * c.n_batch + p.batch, rows = (int)c.space.ld_bias_t;
    const float *shift = c.space.columns + (int64_t)(at * c.n_head + p.head) * 4 * rows + 2 * first;
    const float *term = c.space.terms + at * (int)c.space.ld_bias + first_key;
    barrier_expect(barrier, 4 * sizeof to.q + 2 * sizeof to.shift + sizeof to.term);
    box_load(shared_address(to.q), c.q_box, queries, barrier);
    box_load(shared_address(to.k), c.k_box, keys, barrier);
    box_load(shared_address(to.d), c.d_box, queries, barrier);
    box_load(shared_address(to.v), c.v_box, keys, barrier);
    bulk_load(shared_address(to.shift), shift, sizeof to.shift, barrier);
    bulk_load(shared_address(to.minus_delta), shift + 2 * rows, sizeof to.minus_delta, barrier);
    bulk_load(shared_address(to.term), term, sizeof to.term, barrier);
}

/* A block's ring, and the batches that go through it. */
template <int C> struct batch_ring {
    batch_tiles<C> *tiles;
    uint32_t base; /* the address of tiles */
    int begin, batches;

    __device__ uint32_t stage(int i) const {
        return base + (uint32_t)(i % STAGES * (int)sizeof(batch_tiles<C>));
    }
    __device__ uint32_t full(int i) const {
        return base + STAGES * (uint32_t)sizeof(batch_tiles<C>) + (uint32_t)(i % STAGES) * 8;
    }
    __device__ uint32_t empty(int i) const {
        return full(i) + 8 * STAGES;
    }
    __device__ void wait_full(int i) const {
        barrier_wait(full(i), i / STAGES & 1);
    }
};

/* Fills the ring. Called by one thread. */
template <int C>
__device__ inline void fetch_batches(const grad_call &c, const batch_ring<C> &ring) {
    block_place block = read_block(c);
    item_place p = {block.plane / c.n_head, 0, block.plane % c.n_head, 0};
#pragma unroll 1
    for (int i = 0; i < ring.batches; i++) {
        if (i >= STAGES) barrier_wait(ring.empty(i), (i / STAGES - 1) & 1);
        p.batch = ring.begin + i;
        fetch_batch<C>(c, ring.tiles[i % STAGES], ring.full(i), p, block.query, block.key);
    }
}

/* -- a warp's tile */

/* The first query and key of a warp in the block's tile. */
__device__ inline int warp_query(int thread) {
    return thread / 32 % 4 * WARP_QUERIES;
}
__device__ inline int warp_key(int thread) {
    return thread / 128 * WARP_KEYS;
}

/* A warp's share of the tile, in the layout of accumulators. */
struct warp_tile {
    float x[ROW_TILES][COLUMN_TILES][4];
};

/* Stores this lane's share of the chunk's sum. */
__device__ inline void store_sums(const grad_call &c, const warp_tile &sum) {
    block_place p = read_block(c);
    int thread = read_thread(), g = thread % 32 / 4, t = thread % 4;
    int first = p.query + warp_query(thread) + g, first_key = p.key + warp_key(thread) + 2 * t;
    bool is_even = c.n_key % 2 == 0;
    float *plane = c.space.dbias +
                   ((int64_t)blockIdx.z * gridDim.y + p.plane) * c.n_query * c.n_key + first_key;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = first + m * 16 + half * 8;
            float *row = plane + query * c.n_key;
            if (query >= c.n_query) continue;
#pragma unroll
            for (int n = 0; n < COLUMN_TILES; n++) {
                const float *x = &sum.x[m][n][2 * half];
                int there = c.n_key - first_key - n * 8;
                if (is_even && there > 0) {
                    *(float2 *)(row + n * 8) = make_float2(x[0], x[1]);
                } else {
                    if (there > 0) row[n * 8] = x[0];
                    if (there > 1) row[n * 8 + 1] = x[1];
                }
            }
        }
}

/* Loads the warp's bias times its factor. The packed bias has keys as rows. Past the last key or
 * query its value does not matter, so the last tile supplies it. */
__device__ inline void load_bias(const grad_call &c, warp_tile &bias) {
    block_place p = read_block(c);
    int strips = (int)c.space.ld_bias / 16, tiles = (int)c.space.ld_bias_t / TILE;
    int thread = read_thread(), first = p.query + warp_query(thread);
    int tile = min(first / TILE, tiles - 1), strip = (p.key + warp_key(thread)) / 16;
#pragma unroll
    for (int i = 0; i < WARP_KEYS / 16; i++) {
        const uint4 *from =
            bias_at(c.space.bias_t, p.plane, strips, min(strip + i, strips - 1), tiles, tile);
        from += first % TILE / 16 * 32;
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
            uint4 part = from[m * 32];
            const uint32_t word[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
            for (int w = 0; w < 4; w++) {
                uint32_t two = transpose_eight(word[w]);
                float *to = &bias.x[m][2 * i + w % 2][w / 2 * 2];
                to[0] = low_half(two) * c.space.bias_factor;
                to[1] = high_half(two) * c.space.bias_factor;
            }
        }
    }
}

/* -- the slots of a batch */

/* A lane's offsets in bytes in a stage of the ring: of the rows and columns that it reads as
 * operands (of q and k), of its rows' terms, its columns' terms, and the two terms that it
 * checks. */
struct lane_place {
    uint32_t rows, columns, row_terms, column_terms, check[2];
};

/* Lanes past the last key check that one's term. */
template <int C> __device__ inline lane_place place_of_lane(const grad_call &c) {
    typedef batch_tiles<C> tiles;
    constexpr int CHUNKS = C / 8;
    int thread = (int)threadIdx.x, lane = thread % 32, matrix = lane / 8;
    int query = warp_query(thread), key = warp_key(thread), row = query + lane / 4;
    int rows = C == 8 ? tile_at<C>(query + lane, 0) : tile_at<C>(query + lane % 16, lane / 16);
    int columns = tile_at<C>(key + matrix / CHUNKS * 8 + lane % 8, matrix % CHUNKS);
    int last = c.n_key - 1 - read_block(c).key;
    auto term = [=](int i) { return (uint32_t)(offsetof(tiles, term) + i * sizeof(float)); };
    lane_place at;
    at.rows = (uint32_t)(offsetof(tiles, q) + rows * sizeof(bf16));
    at.columns = (uint32_t)(offsetof(tiles, k) + columns * sizeof(bf16));
    at.row_terms = (uint32_t)(offsetof(tiles, shift) + (row / 2 * 4 + row % 2) * sizeof(float));
    at.column_terms = term(key + lane % 4 * 2);
    at.check[0] = term(min(key + lane, last)), at.check[1] = term(min(key + lane + 32, last));
    return at;
}

__device__ inline float load_shared_one(uint32_t address) {
    float x;
    asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(x) : "r"(address));
    return x;
}

/* d = a b + c, with a sum over sixteen or, where C is 8, over eight. */
template <int C>
__device__ inline void mma_onto(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                const float (&c)[4]) {
    if constexpr (C == 8) {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, "
                     "{%6}, {%7,%8,%9,%10};"
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b0), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
    } else {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]),
                       "f"(c[1]), "f"(c[2]), "f"(c[3]));
    }
}

/* What a warp has of the batch that it works on, and of the next one. */
template <int C> struct unit_work {
    typedef batch_tiles<C> tiles;
    static constexpr int STEPS = C == 32 ? 2 : 1; /* of 16 channels */
    static constexpr int AT_ONCE = 32 / C;        /* column tiles that one ldmatrix reads */
    static constexpr uint32_t TO_D = offsetof(tiles, d) - offsetof(tiles, q);
    static constexpr uint32_t TO_V = offsetof(tiles, v) - offsetof(tiles, k);
    static constexpr uint32_t TO_DELTA = offsetof(tiles, minus_delta) - offsetof(tiles, shift);

    uint32_t q[ROW_TILES][STEPS][4], d[ROW_TILES][STEPS][4]; /* rows, as left operands */
    uint32_t k[2][4], v[2][4];                               /* columns, read ahead */
    float2 term[2];                                          /* of columns, likewise */
    float shift[ROW_TILES][2], minus_delta[ROW_TILES][4];    /* of the lane's rows */
    /* Logits, then exponents, then weights; and dP. */
    float s[UNITS_AT_ONCE][4], dp[UNITS_AT_ONCE][4];

    /* Reads the rows of tile m of q, or of dout' and their deltas. Eight channels of both tiles are
     * one ldmatrix, by the second one's turn. */
    __device__ inline void load_rows(uint32_t (&to)[ROW_TILES][STEPS][4], uint32_t from, int m) {
        if constexpr (C == 8) {
            uint32_t r[4];
            if (m == 0) return;
            ldmatrix(r, from);
            to[0][0][0] = r[0], to[0][0][1] = r[1], to[1][0][0] = r[2], to[1][0][1] = r[3];
        } else {
            /* The next 16 channels are two chunks on, which tile_at's exchange makes an XOR. */
#pragma unroll
            for (int i = 0; i < STEPS; i++)
                ldmatrix(to[m][i], (from ^ (i * 32)) + m * 16 * C * (uint32_t)sizeof(bf16));
        }
    }
    __device__ inline void load_q(uint32_t stage, const lane_place &at, int m) {
        load_rows(q, stage + at.rows, m);
    }
    __device__ inline void load_d(uint32_t stage, const lane_place &at, int m) {
        load_rows(d, stage + at.rows + TO_D, m);
        /* Read twice: of one value, ptxas would make new copies for every product. */
#pragma unroll
        for (int i = 0; i < 4; i++)
            minus_delta[m][i] =
                load_shared_one(stage + at.row_terms + TO_DELTA + (m * 16 + i / 2 * 8) * 8);
    }
    __device__ inline void load_shift(uint32_t stage, const lane_place &at, float slope, int m) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            shift[m][i] = load_shared_one(stage + at.row_terms + (m * 16 + i * 8) * 8) * slope;
    }
    /* Read the operands of column tile n and, where it is the first of a read, of the next ones:
     * the matrices of a read are the channels of a key, then the next keys. */
    __device__ inline void load_k(uint32_t stage, const lane_place &at, int n) {
        uint32_t from = stage + at.columns + n * 8 * C * (uint32_t)sizeof(bf16);
        if (n % AT_ONCE == 0) ldmatrix(k[n / AT_ONCE % 2], from);
    }
    __device__ inline void load_v(uint32_t stage, const lane_place &at, int n) {
        uint32_t from = stage + at.columns + TO_V + n * 8 * C * (uint32_t)sizeof(bf16);
        if (n % AT_ONCE == 0) ldmatrix(v[n / AT_ONCE % 2], from);
    }
    __device__ inline void load_term(uint32_t stage, const lane_place &at, int n) {
        term[n % 2] = load_shared_two(stage + at.column_terms + n * 32);
    }
    /* The first and the last step of a unit's products with k and with v; with one step, only the
     * last. */
    template <bool LAST> __device__ inline void multiply_k(int u, const warp_tile &bias) {
        int m = u % 2, n = u / 2, at = n % AT_ONCE * (C / 8);
        float(&x)[4] = s[u % UNITS_AT_ONCE];
        const uint32_t(&b)[4] = k[n / AT_ONCE % 2];
        if (LAST && STEPS == 2) mma_onto<C>(x, q[m][STEPS - 1], b[2], b[3], x);
        if (LAST == (STEPS == 1)) mma_onto<C>(x, q[m][0], b[at], b[(at + 1) % 4], bias.x[m][n]);
    }
    template <bool LAST> __device__ inline void multiply_v(int u) {
        int m = u % 2, n = u / 2, at = n % AT_ONCE * (C / 8);
        float(&x)[4] = dp[u % UNITS_AT_ONCE];
        const uint32_t(&b)[4] = v[n / AT_ONCE % 2];
        if (LAST && STEPS == 2) mma_onto<C>(x, d[m][STEPS - 1], b[2], b[3], x);
        if (LAST == (STEPS == 1)) mma_onto<C>(x, d[m][0], b[at], b[(at + 1) % 4], minus_delta[m]);
    }
    /* Number i of the four that a lane has of a unit, from logit to exponent. */
    template <bool MASKED> __device__ inline void scale(int u, int i, float slope) {
        float2 t = term[u / 2 % 2];
        float &x = s[u % UNITS_AT_ONCE][i];
        x = x * slope + shift[u % 2][i / 2];
        if (MASKED && (i % 2 ? t.y : t.x) != 0) x = -INFINITY;
    }
    __device__ inline void weigh(int u, int i) {
        float &x = s[u % UNITS_AT_ONCE][i];
        x = exp2_fast(x);
    }
    /* Not in C: the compiler would move the additions of both kinds of batch behind them. */
    __device__ inline void add(int u, int i, warp_tile &sum) {
        asm volatile("fma.rn.f32 %0, %1, %2, %0;"
                     : "+f"(sum.x[u % 2][u / 2][i])
                     : "f"(s[u % UNITS_AT_ONCE][i]), "f"(dp[u % UNITS_AT_ONCE][i]));
    }
};

/* The mask terms that a lane checks. */
__device__ inline float2 load_check(uint32_t stage, const lane_place &at) {
    return {load_shared_one(stage + at.check[0]), load_shared_one(stage + at.check[1])};
}
/* Whether one of the warp's keys has a mask term. */
__device__ inline bool has_terms(float2 check) {
    return __any_sync(0xffffffffu, check.x != 0 || check.y != 0);
}

/* The first batch's work before its slots. No unit precedes the first one. */
template <int C>
__device__ inline void start_units(unit_work<C> &work, uint32_t stage, const lane_place &at,
                                   float slope, const warp_tile &bias) {
    work.load_k(stage, at, 0);
    work.load_k(stage, at, 1);
    work.load_v(stage, at, 0);
    work.load_term(stage, at, 0);
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
        work.load_q(stage, at, m);
        work.load_d(stage, at, m);
        work.load_shift(stage, at, slope, m);
    }
#pragma unroll
    for (int u = 0; u < 3; u++) {
        work.template multiply_k<false>(u, bias);
        if (u < 2) work.template multiply_k<true>(u, bias);
    }
    work.template multiply_v<false>(0);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        work.template scale<true>(0, i, slope);
        work.s[UNITS_AT_ONCE - 1][i] = work.dp[UNITS_AT_ONCE - 1][i] = 0;
    }
}

/* The slots of the batch at `here`; the next one is at `next`. MASKED: the batch has mask terms.
 * The next batch's first unit may have some in any case. Returns whether the next batch has. */
template <int C, bool MASKED>
__device__ inline bool batch_slots(unit_work<C> &work, uint32_t here, uint32_t next,
                                   const lane_place &at, float slope, const warp_tile &bias,
                                   warp_tile &sum) {
    constexpr int N = COLUMN_TILES;
    float2 check = load_check(next, at);
    bool is_next_masked = false;
    if (MASKED) {
        work.load_term(here, at, 0);
        work.load_term(here, at, 1);
    }
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        int n = u / 2 + 2;
        if (u % 2 == 0) work.load_v(n - 1 < N ? here : next, at, (n - 1) % N);
        if (u % 2 == 0) work.load_k(n < N ? here : next, at, n % N);
        if (u % 2 == 1 && MASKED && n < N) work.load_term(here, at, n);
        if (u % 2 == 1 && n == N) work.load_term(next, at, 0);
        if (u >= UNITS - 2) work.load_shift(next, at, slope, u % 2);
        if (u == UNITS / 2) is_next_masked = has_terms(check);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            work.weigh(u, i);
            if (i == 0) work.template multiply_k<true>((u + 2) % UNITS, bias);
            if (i == 1) work.template multiply_v<true>(u);
            if (i == 2) work.template multiply_k<false>((u + 3) % UNITS, bias);
            if (i == 3) work.template multiply_v<false>((u + 1) % UNITS);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (u + 1 < UNITS) {
                work.template scale<MASKED>(u + 1, i, slope);
            } else {
                work.template scale<true>(0, i, slope);
            }
#pragma unroll
        for (int i = 0; i < 4; i++)
            work.add((u + UNITS - 1) % UNITS, i, sum);
        if (u == UNITS - 4 || u == UNITS - 3) work.load_q(next, at, u % 2);
        if (u == UNITS - 2 || u == UNITS - 1) work.load_d(next, at, u % 2);
    }
    return is_next_masked;
}

/* Sums the batches of the ring, of which there is at least one. After the last one, the slots work
 * ahead on a stage whose content does not matter. */
template <int C>
__device__ inline void sum_batches(const grad_call &c, const batch_ring<C> &ring,
                                   const warp_tile &bias, warp_tile &sum) {
    lane_place at = place_of_lane<C>(c);
    unit_work<C> work;
    float slope = c.slope;
    ring.wait_full(0);
    start_units<C>(work, ring.stage(0), at, slope, bias);
    bool is_masked = has_terms(load_check(ring.stage(0), at));
    bool is_first_lane = threadIdx.x % 32 == 0;
#pragma unroll 1
    for (int i = 0; i < ring.batches; i++) {
        uint32_t here = ring.stage(i), next = ring.stage(i + 1);
        if (i + 1 < ring.batches) ring.wait_full(i + 1);
        if (is_masked) {
            is_masked = batch_slots<C, true>(work, here, next, at, slope, bias, sum);
        } else {
            is_masked = batch_slots<C, false>(work, here, next, at, slope, bias, sum);
        }
        __syncwarp();
        if (is_first_lane) barrier_arrive(ring.empty(i));
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        work.add(UNITS - 1, i, sum);
}

/* blockIdx: x = key tile + key tiles * query tile, y = head + n_head * group, z = chunk. */
template <int C>
__global__ void __launch_bounds__(DBIAS_THREADS, 1)
    wgmma_dbias(const __grid_constant__ grad_call call) {
    extern __shared__ __align__(TILE_ALIGN) uint8_t shared[];
    int per_chunk = (call.n_batch + (int)gridDim.z - 1) / (int)gridDim.z;
    int begin = (int)blockIdx.z * per_chunk, end = min(call.n_batch, begin + per_chunk);
    /* From a shuffle, because the compiler would derive a known address again for every use. */
    uint32_t base = __shfl_sync(0xffffffffu, shared_address(shared), 0);
    const batch_ring<C> ring = {(batch_tiles<C> *)shared, base, begin, end - begin};
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(ring.full(i), 1);
            barrier_init(ring.empty(i), DBIAS_WARPS);
        }
        barriers_publish();
    }
    __syncthreads();
    if (threadIdx.x / 32 >= DBIAS_WARPS) {
        registers_give<FETCH_REGISTERS>();
        if (threadIdx.x == DBIAS_WARPS * 32) fetch_batches<C>(call, ring);
    } else {
        registers_take<SUM_REGISTERS>();
        warp_tile bias, sum;
        load_bias(call, bias);
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
            set_rows<COLUMN_TILES>(sum.x[m], 0, 0);
        if (ring.batches > 0) sum_batches<C>(call, ring, bias, sum);
        store_sums(call, sum);
    }
}

/* dbias = the chunks' sums, added in order. One thread takes H heads, neighbours in dbias. */
template <int H>
__global__ void __launch_bounds__(64)
    finish_heads(fm_attention a, attention_space space, fm_out dbias) {
    wait_for_previous();
    unsigned i = blockIdx.x * 64 + threadIdx.x, keys = (unsigned)a.n_key;
    unsigned plane = (unsigned)a.n_query * keys, blocks = (unsigned)a.n_head / H;
    unsigned at = i % plane, head = i / plane % blocks * H, group = i / plane / blocks;
    if (group >= a.n_group) return;
    int64_t n = a.n_group * a.n_head * (int64_t)plane;
    const float *from = space.dbias + (group * a.n_head + head) * plane + at;
    float total[H] = {};
    for (int64_t first = 0; first < space.chunks; first += CHUNKS_AT_ONCE) {
        float x[CHUNKS_AT_ONCE][H] = {};
#pragma unroll
        for (int k = 0; k < CHUNKS_AT_ONCE; k++)
#pragma unroll
            for (int h = 0; h < H; h++)
                if (first + k < space.chunks) x[k][h] = from[(first + k) * n + h * plane];
#pragma unroll
        for (int k = 0; k < CHUNKS_AT_ONCE; k++)
#pragma unroll
            for (int h = 0; h < H; h++)
                total[h] += x[k][h];
    }
    bf16 *to = (bf16 *)dbias.data + group * a.bias_stride[0] + head * a.bias_stride[1] +
               at / keys * a.bias_stride[2] + at % keys * a.bias_stride[3];
    put_pack<bf16, H>(to, dbias.beta, total);
}

static void finish_dbias(fm_stream *stream, const fm_attention *a, const attention_space *space,
                         fm_out dbias) {
    bool is_together = a->n_head % 4 == 0 && a->bias_stride[1] == 1 &&
                       (uintptr_t)dbias.data % (4 * sizeof(bf16)) == 0;
    for (int i = 0; i < 4; i++)
        is_together = is_together && (i == 1 || a->bias_stride[i] % 4 == 0);
    int64_t threads = a->n_group * a->n_head * a->n_query * a->n_key / (is_together ? 4 : 1);
    launch_after(stream, is_together ? finish_heads<4> : finish_heads<1>,
                 (unsigned)divide_up(threads, 64), 64, 0, true, *a, *space, dbias);
    FM_LAUNCHED();
}

/* The number of chunks that should end soonest. The cost is in units of a block's time for one
 * batch. It counts rounds of blocks, each of its batches and about three more to start, plus `sum`
 * for writing and reading one chunk's sums. */
int64_t attention_wgmma_dbias_chunks(const fm_attention *a) {
    int64_t planes = a->n_group * a->n_head, best = 1;
    int64_t blocks = planes * divide_up(a->n_query, SIDE) * divide_up(a->n_key, SIDE);
    double least = INFINITY, sum = 2.4e-6 * (double)(planes * a->n_query * a->n_key);
    for (int64_t chunks = 1; chunks <= min_size(a->n_batch, 64); chunks++) {
        int64_t rounds = divide_up(blocks * chunks, n_multiprocessor());
        double time = (double)(rounds * (divide_up(a->n_batch, chunks) + 3)) + sum * (double)chunks;
        if (time < least) least = time, best = chunks;
    }
    return best;
}

template <int C>
static void launch_dbias(fm_stream *stream, const fm_attention *a, grad_call *call) {
    int64_t tiles = divide_up(a->n_query, SIDE) * divide_up(a->n_key, SIDE);
    dim3 grid((unsigned)tiles, (unsigned)(a->n_group * a->n_head), (unsigned)call->space.chunks);
    size_t bytes = STAGES * (sizeof(batch_tiles<C>) + 2 * sizeof(uint64_t));
    make_tiles<C>(a, call, SIDE, SIDE);
    allow_shared(wgmma_dbias<C>, bytes);
    wgmma_dbias<C><<<grid, DBIAS_THREADS, bytes, queue(stream)>>>(*call);
    FM_LAUNCHED();
}

void attention_wgmma_dbias(fm_stream *stream, const fm_attention *a, grad_call *call,
                           fm_out dbias) {
    if (a->c_head <= 8) {
        launch_dbias<8>(stream, a, call);
    } else if (a->c_head <= 16) {
        launch_dbias<16>(stream, a, call);
    } else {
        launch_dbias<32>(stream, a, call);
    }
    finish_dbias(stream, a, &call->space, dbias);
}

} // namespace fm_cuda
