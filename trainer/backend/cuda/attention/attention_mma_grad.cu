/* attention_mma_grad.cu: gated attention of the bf16 table by mma.sync, backward.
 *
 *     gate    element by element: the gradient of the ungated output, dout' = dout sigmoid(g); dg;
 *             and delta = <dout', o / sigmoid(g)> = <dout, o>. Both come from the gated output o,
 *             which the output projection's backward needs anyway, so nothing is recomputed.
 *     pairs   dq, dk and dv in one walk. A block takes one (group, batch, head); a warp takes 32 of
 *             its keys in two strips of 16, or 16 keys in one strip with 64 channels, and keeps
 *             their dk and dv in registers. For each tile of 64 queries it recomputes the logits
 *             once, keys down, queries across:
 *
 *                 S^T = k q^T (+ bias)      P^T = 2^(S^T - lse)
 *                 dP^T = v dout'^T          dS^T = P^T (dP^T - delta)
 *                 dv += P^T dout'           dk += dS^T q
 *
 *             P^T and dS^T come out of the accumulators as left operands of the last two products.
 *             dS^T also goes to shared memory. After a block barrier the warps share the tile's
 *             dq = dS k: each takes parts of 16 queries x 16 channels over all keys of the block.
 *             So no sum crosses blocks, and no atomics are needed.
 *     dbias   a block takes 64 x 64 of (query, key) and recomputes dS there for a chunk of the
 *             batches, summed in registers; the chunks' sums are then added in order.
 *
 * The sum delta is computed from o, which is rounded to bf16, so it carries an error that has the
 * same sign for all keys of a query. This error would add up, since dbias sums over batches, and
 * the weight gradient of the bias over queries and keys too. But each row of dS sums to zero
 * exactly, except for the error in delta: the row's sum of dS is that error. The pairs kernel forms
 * it by a product with ones and adds it to delta before dbias reads it. Where the keys take several
 * rounds, the last one adds the errors of all. */
#include "trainer/backend/cuda/attention/attention_gate_grad.cuh"
#include "trainer/backend/cuda/attention/attention_mma.cuh"

#include <type_traits>

namespace fm_cuda {

/* Stores or adds two neighbouring elements of a gradient. */
__device__ inline void put_two(bf16 *at, fm_beta beta, float x, float y) {
    if (beta == FM_ADD) {
        float2 old = unpack_two(*(const uint32_t *)at);
        x += old.x;
        y += old.y;
    }
    *(uint32_t *)at = pack_two(x, y);
}

/* Two tiles of queries and of dout', one in use and one in flight, with the log-sum-exp (in log2
 * units) and -delta of their rows. */
template <int C> struct query_tiles {
    bf16 q[2][TILE * C], d[2][TILE * C];
    float lse[2][TILE], minus_delta[2][TILE];
};

/* Starts reading the tile from query `first` into copy `at`. Past the last query the log-sum-exp is
 * +inf, so the weights are 0. */
template <int C>
__device__ inline void fetch_queries(const fm_attention &a, const attention_space &space,
                                     const tile_place &p, query_tiles<C> &tiles, int at,
                                     int64_t first) {
    const bf16 *q = (const bf16 *)a.q + offset_of(a.q_stride, p.group, p.batch, 0, p.head);
    const bf16 *d = (const bf16 *)space.dout + p.row * a.c_head;
    tile_load<C>(tiles.q[at], TILE, q, a.q_stride.row, first, a.n_query, (int)a.c_head);
    tile_load<C>(tiles.d[at], TILE, d, a.c_head, first, a.n_query, (int)a.c_head);
    for (int i = threadIdx.x; i < TILE; i += blockDim.x) {
        int64_t query = first + i;
        bool is_inside = query < a.n_query;
        tiles.lse[at][i] = is_inside ? ((const float *)a.lse)[p.row + query] * LOG2E : INFINITY;
        tiles.minus_delta[at][i] = is_inside ? -space.delta[p.row + query] : 0;
    }
}

/* -- pairs */

/* The most warps of a block: one block of 12 fills a multiprocessor with 168 registers per thread,
 * two blocks of 8 fill it with 128. With 32 or 64 channels, 12 need 119 or 108 KB of shared memory;
 * where a block may have 99, it has fewer. PAIR_LD pads the rows of dS^T against bank conflicts. */
enum { PAIR_WARPS = 12, PAIR_WARPS_TWICE = 8, PAIR_LD = TILE + 8 };

/* Strips of 16 keys per warp. With 64 channels, dk and dv of one strip fill the registers. */
template <int C> __host__ __device__ constexpr int pair_strips() {
    return C == 64 ? 1 : 2;
}
/* The keys of a warp, and of the block. */
template <int C> __host__ __device__ constexpr int warp_keys() {
    return 16 * pair_strips<C>();
}
template <int C> __device__ inline int block_keys() {
    return (int)blockDim.x / (2 / pair_strips<C>());
}

/* Shared memory of a block of `keys` keys. */
template <int C> struct pair_memory {
    query_tiles<C> queries;
    bf16 rest[8]; /* k [keys, C], v [keys, C], dS^T [keys, PAIR_LD] */
    __device__ bf16 *k() {
        return rest;
    }
    __device__ bf16 *v() {
        return rest + block_keys<C>() * C;
    }
    __device__ bf16 *ds() {
        return rest + block_keys<C>() * 2 * C;
    }
    static size_t bytes(int keys) {
        return sizeof(query_tiles<C>) + sizeof(bf16) * (size_t)keys * (2 * C + PAIR_LD);
    }
};

/* A warp's strip of 16 keys: its first row in the block, and the mask terms of this lane's two
 * keys (rows g and g + 8). */
struct strip_place {
    int row;
    float upper, lower;
};

/* s = 2^(s * slope - shift of the column): logits become weights. */
template <int N>
__device__ inline void weights_by_column(float s[N][4], float slope, const float *shift) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 column_shift = *(const float2 *)(shift + n * 8 + 2 * t);
        s[n][0] = exp2_fast(s[n][0] * slope - column_shift.x);
        s[n][1] = exp2_fast(s[n][1] * slope - column_shift.y);
        s[n][2] = exp2_fast(s[n][2] * slope - column_shift.x);
        s[n][3] = exp2_fast(s[n][3] * slope - column_shift.y);
    }
}

/* A strip's 16 keys x 32 queries, from query 32 * half of tile copy `at`: adds to dk and dv, and
 * stores dS^T in shared memory. */
template <int C, bool BIASED>
__device__ inline void pair_step(pair_memory<C> &memory, const strip_place &strip, float slope,
                                 float bias_factor, const uint4 *bias, int at, int half,
                                 float dk[C / 8][4], float dv[C / 8][4]) {
    const int first = half * 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const bf16 *q = memory.queries.q[at] + first * C;
    const bf16 *d = memory.queries.d[at] + first * C;
    float s[4][4], dp[4][4];
    uint32_t rows[C / 16][4];
    bias_tile<4> b;
    if (BIASED) bias_load<4>(&b, bias + half * 64);
    tile_rows<C>(rows, memory.k(), strip.row);
    set_rows<4>(s, strip.upper, strip.lower);
    times_tile_transposed<C, 4>(s, rows, q);
    if (BIASED) bias_add<4>(s, bias_factor, b);
    weights_by_column<4>(s, slope, memory.queries.lse[at] + first);
    times_tile<C, 4>(dv, s, d);
    tile_rows<C>(rows, memory.v(), strip.row);
    set_columns<4>(dp, memory.queries.minus_delta[at] + first);
    times_tile_transposed<C, 4>(dp, rows, d);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] *= dp[n][i];
    times_tile<C, 4>(dk, s, q);
    bf16 *to = memory.ds() + (strip.row + g) * PAIR_LD + first + 2 * t;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        *(uint32_t *)(to + n * 8) = pack_two(s[n][0], s[n][1]);
        *(uint32_t *)(to + n * 8 + 8 * PAIR_LD) = pack_two(s[n][2], s[n][3]);
    }
}

/* Corrects delta of a query by the sum `error` of its row of dS over the keys from first_key on.
 * All rounds but the last leave the sums in space.errors. */
__device__ inline void correct_delta(const attention_space &space, int64_t row, float error,
                                     bool is_first, bool is_last) {
    if (!is_first) error += space.errors[row];
    if (is_last) {
        space.delta[row] += error;
    } else {
        space.errors[row] = error;
    }
}

/* dq of the 64 queries from `first` over the block's keys, in parts of 16 x 16, one per warp at a
 * time. With a bias, delta is corrected by the sums of the rows of dS (see above): `error` is the
 * product of dS with ones. */
template <int C, bool BIASED>
__device__ inline void finish_queries(const fm_attention &a, const attention_space &space,
                                      const tile_place &p, fm_out dq, pair_memory<C> &memory,
                                      int64_t first, int64_t first_key) {
    const uint32_t ones = 0x3f803f80;
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warps = blockDim.x / 32;
    const bf16 *ds = memory.ds() + ((lane & 7) + (lane >> 4) * 8) * PAIR_LD + ((lane >> 3) & 1) * 8;

    int parts = TILE / 16 * (C / 16);
    if (C == 64 && a.c_head <= 48) parts = TILE / 16 * 3; /* the last 16 channels are padding */
    for (int part = threadIdx.x / 32; part < parts; part += warps) {
        int row = part % 4 * 16, channel = part / 4 * 16;
        const bf16 *k = memory.k() + tile_at<C>(lane & 15, channel / 8 + (lane >> 4));
        float sum[2][4] = {}, error[4] = {};
        for (int key = 0; key < block_keys<C>(); key += 16) {
            uint32_t x[4], y[4];
            ldmatrix_trans(x, ds + key * PAIR_LD + row);
            ldmatrix_trans(y, k + key * C);
            mma(sum[0], x, y[0], y[1]);
            mma(sum[1], x, y[2], y[3]);
            if (BIASED) mma(error, x, ones, ones);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int64_t query = first + row + g + i / 2 * 8;
            int c = channel + i % 2 * 8 + 2 * t;
            if (query >= a.n_query || c >= a.c_head) continue;
            if (BIASED && c == 0) {
                correct_delta(space, p.row + query, error[i / 2 * 2], first_key == 0,
                              first_key + block_keys<C>() >= a.n_key);
            }
            bf16 *to = (bf16 *)dq.data + offset_of(a.q_stride, p.group, p.batch, query, p.head) + c;
            put_two(to, dq.beta, sum[i % 2][i / 2 * 2] * (float)a.scale,
                    sum[i % 2][i / 2 * 2 + 1] * (float)a.scale);
        }
    }
}

/* Stores the lane's two rows of dk or dv, keys `key` and key + 8, times `scale`. */
template <int C>
__device__ inline void store_kv(const fm_attention &a, const tile_place &p, int64_t key, fm_out out,
                                const fm_attention_stride &stride, const float x[C / 8][4],
                                float scale) {
    int t = threadIdx.x % 4;
    if (!out.data) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (key + 8 * half >= a.n_key) continue;
        bf16 *to_row =
            (bf16 *)out.data + offset_of(stride, p.group, p.batch, key + 8 * half, p.head);
#pragma unroll
        for (int n = 0; n < C / 8; n++)
            if (n * 8 + 2 * t < a.c_head) {
                put_two(to_row + n * 8 + 2 * t, out.beta, x[n][2 * half] * scale,
                        x[n][2 * half + 1] * scale);
            }
    }
}

/* A block's walk over all queries with its keys from `first_key`. */
template <int C, bool BIASED>
__device__ inline void walk_pairs(const fm_attention &a, const fm_attention_grad &grad,
                                  const attention_space &space, const tile_place &p,
                                  pair_memory<C> &memory, bool is_valid, int64_t first_key) {
    constexpr int STRIPS = pair_strips<C>();
    int g = threadIdx.x % 32 / 4, tiles = (int)(space.ld_bias_t / TILE), n = block_keys<C>();
    float slope = slope_of(a);
    strip_place strip[STRIPS];
    float dk[STRIPS][C / 8][4] = {}, dv[STRIPS][C / 8][4] = {};
#pragma unroll
    for (int i = 0; i < STRIPS; i++) {
        int row = threadIdx.x / 32 * warp_keys<C>() + i * 16;
        int64_t key = first_key + row + g;
        strip[i] = {row, mask_term<bf16>(a, is_valid, p, key),
                    mask_term<bf16>(a, is_valid, p, key + 8)};
    }
    const uint4 *bias = NULL; /* of strip 0; if all strips are past the last key, of any strip */
    int64_t strips = space.ld_bias / 16, at_strip = (first_key + strip[0].row) / 16;
    if (BIASED) {
        bias =
            bias_at(space.bias_t, p.plane, strips, min_size(at_strip, strips - STRIPS), tiles, 0);
    }
    tile_load<C>(memory.k(), n,
                 (const bf16 *)a.k + offset_of(a.k_stride, p.group, p.batch, 0, p.head),
                 a.k_stride.row, first_key, a.n_key, (int)a.c_head);
    tile_load<C>(memory.v(), n,
                 (const bf16 *)a.v + offset_of(a.v_stride, p.group, p.batch, 0, p.head),
                 a.v_stride.row, first_key, a.n_key, (int)a.c_head);
    fetch_queries<C>(a, space, p, memory.queries, 0, 0);
    copies_commit();
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
            fetch_queries<C>(a, space, p, memory.queries, (tile + 1) & 1, (tile + 1) * TILE);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
#pragma unroll
        for (int i = 0; i < STRIPS; i++)
#pragma unroll 1
            for (int half = 0; half < 2; half++)
                pair_step<C, BIASED>(memory, strip[i], slope, space.bias_factor,
                                     bias + (i * tiles + tile) * 128, tile & 1, half, dk[i], dv[i]);
        __syncthreads();
        if (grad.dq.data) {
            fm_out dq = grad.dq;
            if (first_key > 0) dq.beta = FM_ADD;
            finish_queries<C, BIASED>(a, space, p, dq, memory, (int64_t)tile * TILE, first_key);
        }
    }
#pragma unroll
    for (int i = 0; i < STRIPS; i++) {
        int64_t key = first_key + strip[i].row + g;
        store_kv<C>(a, p, key, grad.dk, a.k_stride, dk[i], (float)a.scale);
        store_kv<C>(a, p, key, grad.dv, a.v_stride, dv[i], 1);
    }
    __syncthreads();
}

/* More keys than a block has are walked in several rounds. Each but the first adds to dq in memory,
 * so dq is rounded to bf16 between them. */
template <int C, bool BIASED, int WARPS, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    mma_pairs(fm_attention a, fm_attention_grad grad, attention_space space) {
    extern __shared__ __align__(16) uint8_t shared[];
    pair_memory<C> &memory = *(pair_memory<C> *)shared;
    tile_place p = place_of_block(a, 1);
    bool is_valid = find_valid<bf16>(a, p);
    if (a.mask && p.head == 0 && threadIdx.x == 0) {
        space.valid[p.group * a.n_batch + p.batch] = is_valid;
    }
    for (int64_t first_key = 0; first_key < a.n_key; first_key += block_keys<C>())
        walk_pairs<C, BIASED>(a, grad, space, p, memory, is_valid, first_key);
}

/* The warps of a block: enough for all keys, or for an equal share of them in each of the rounds
 * that shared memory needs. */
template <int C> static int pair_warps(int64_t n_key) {
    constexpr int KEYS = warp_keys<C>();
    int most = PAIR_WARPS;
    while (most > 1 && (int64_t)pair_memory<C>::bytes(most * KEYS) > shared_of_block())
        most--;
    int64_t rounds = divide_up(n_key, most * KEYS);
    return (int)divide_up(divide_up(n_key, rounds), KEYS);
}

pair_block attention_pair_block(int64_t c_head, int64_t n_key) {
    auto of = [=](auto c) -> pair_block {
        int warps = pair_warps<c>(n_key);
        return {warps, (int64_t)pair_memory<c>::bytes(warps * warp_keys<c>())};
    };
    if (c_head <= 16) return of(std::integral_constant<int, 16>());
    if (c_head <= 32) return of(std::integral_constant<int, 32>());
    return of(std::integral_constant<int, 64>());
}

template <int C, bool BIASED, int WARPS, int BLOCKS>
static void launch_pairs(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                         const attention_space &space, int warps) {
    unsigned blocks = (unsigned)(a->n_group * a->n_batch * a->n_head);
    size_t bytes = pair_memory<C>::bytes(warps * warp_keys<C>());
    int64_t most = (int64_t)pair_memory<C>::bytes(WARPS * warp_keys<C>());
    auto kernel = mma_pairs<C, BIASED, WARPS, BLOCKS>;
    FM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)min_size(most, shared_of_block())));
    kernel<<<blocks, (unsigned)warps * 32, bytes, queue(stream)>>>(*a, *grad, space);
    FM_LAUNCHED();
}

/* -- dbias */

/* Stores the chunk's sum of a 16 x 64 strip of dbias. */
__device__ inline void store_partial(const fm_attention &a, float *plane, int64_t row,
                                     int64_t first_key, const float sum[8][4]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int64_t query = row + (i / 2) * 8, key = first_key + n * 8 + 2 * t + i % 2;
            if (query < a.n_query && key < a.n_key) plane[query * a.n_key + key] = sum[n][i];
        }
}

/* Shared memory of a block, and blocks of a multiprocessor. */
template <int C> struct dbias_memory {
    query_tiles<C> queries;
    key_tiles<C> keys;
    static constexpr int BLOCKS = C == 64 ? 3 : 4;
    static constexpr bool IS_DYNAMIC = C == 64; /* more than a kernel may declare */
    __device__ static inline dbias_memory &of_block() {
        if constexpr (IS_DYNAMIC) {
            extern __shared__ __align__(16) uint8_t shared[];
            return *(dbias_memory *)shared;
        } else {
            __shared__ __align__(16) dbias_memory memory;
            return memory;
        }
    }
};

/* blockIdx: x = key tile + k_tiles * query tile, y = head + n_head * group, z = chunk. */
template <int C>
__global__ void __launch_bounds__(TILE_THREADS, dbias_memory<C>::BLOCKS)
    mma_dbias(fm_attention a, attention_space space) {
    dbias_memory<C> &memory = dbias_memory<C>::of_block();
    query_tiles<C> &queries = memory.queries;
    key_tiles<C> &keys = memory.keys;
    int k_tiles = (int)(space.ld_bias / TILE), warp = threadIdx.x / 32;
    int key_tile = (int)blockIdx.x % k_tiles, first = (int)blockIdx.x / k_tiles * TILE;
    int heads = (int)a.n_head, plane_index = (int)blockIdx.y;
    tile_place p = {plane_index / heads, 0, plane_index % heads, first, plane_index, 0};
    int64_t per_chunk = divide_up(a.n_batch, space.chunks), begin = blockIdx.z * per_chunk;
    int64_t end = min_size(a.n_batch, begin + per_chunk);
    auto fetch = [&](int64_t batch) {
        int at = (int)(batch - begin) & 1;
        p.batch = (int)batch;
        p.row = row_of(a, p.group, batch, p.head);
        bool is_valid = a.mask && space.valid[p.group * a.n_batch + batch];
        fetch_queries<C>(a, space, p, queries, at, first);
        return fetch_keys<C>(a, is_valid, p, keys, at, key_tile * TILE);
    };
    const uint4 *bias =
        bias_at(space.bias, p.plane, space.ld_bias_t / 16, first / 16 + warp, k_tiles, key_tile);
    bias_tile<4> b[2];
    bias_load<4>(&b[0], bias);
    bias_load<4>(&b[1], bias + 64);
    float slope = slope_of(a);
    int row = warp * 16 + threadIdx.x % 32 / 4;
    float sum[8][4];
    set_rows<8>(sum, 0, 0);
    bool has_term = begin < end ? fetch(begin) : false, next_has_term = false;
    for (int64_t batch = begin; batch < end; batch++) {
        int at = (int)(batch - begin) & 1;
        if (batch + 1 < end) {
            next_has_term = fetch(batch + 1);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        bool is_masked = __syncthreads_or(has_term);
        has_term = next_has_term;
        uint32_t q[C / 16][4], d[C / 16][4];
        float lse[2] = {queries.lse[at][row], queries.lse[at][row + 8]};
        tile_rows<C>(q, queries.q[at], warp * 16);
        tile_rows<C>(d, queries.d[at], warp * 16);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float s[4][4], dp[4][4];
            set_columns<4>(s, is_masked ? keys.term[at] + half * 32 : NULL);
            times_tile_transposed<C, 4>(s, q, keys.k[at] + half * 32 * C);
            bias_add<4>(s, space.bias_factor, b[half]);
            weights_by_row<4>(s, slope, lse);
            set_rows<4>(dp, queries.minus_delta[at][row], queries.minus_delta[at][row + 8]);
            times_tile_transposed<C, 4>(dp, d, keys.v[at] + half * 32 * C);
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    sum[half * 4 + n][i] += s[n][i] * dp[n][i];
        }
        __syncthreads();
    }
    float *plane =
        space.dbias + (blockIdx.z * a.n_group * a.n_head + p.plane) * a.n_query * a.n_key;
    store_partial(a, plane, first + row, key_tile * TILE, sum);
}

/* dbias = the chunks' sums, added in order; one thread per element. */
static void finish_dbias(fm_stream *stream, const fm_attention *args, const attention_space *from,
                         fm_out dbias) {
    fm_attention a = *args;
    attention_space space = *from;
    int64_t n = a.n_group * a.n_head * a.n_query * a.n_key;
    each(stream, n, [=] __device__(int64_t i) {
        int64_t key = i % a.n_key, query = i / a.n_key % a.n_query;
        int64_t head = i / a.n_key / a.n_query % a.n_head;
        int64_t group = i / a.n_key / a.n_query / a.n_head;
        float total = 0;
        for (int64_t chunk = 0; chunk < space.chunks; chunk++)
            total += space.dbias[chunk * n + i];
        put((bf16 *)dbias.data + group * a.bias_stride[0] + head * a.bias_stride[1] +
                query * a.bias_stride[2] + key * a.bias_stride[3],
            dbias.beta, total);
    });
}

template <int C, bool BIASED>
static void run_pairs(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                      const attention_space &space) {
    constexpr int TWICE = C == 64 ? 1 : 2;
    int warps = pair_warps<C>(a->n_key);
    if (warps <= PAIR_WARPS_TWICE) {
        launch_pairs<C, BIASED, PAIR_WARPS_TWICE, TWICE>(stream, a, grad, space, warps);
    } else {
        launch_pairs<C, BIASED, PAIR_WARPS, 1>(stream, a, grad, space, warps);
    }
}

template <int C>
static void run_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                     const attention_space &space) {
    if (a->bias) {
        run_pairs<C, true>(stream, a, grad, space);
    } else {
        run_pairs<C, false>(stream, a, grad, space);
    }
    if (!a->bias || !grad->dbias.data) return;
    int64_t q_tiles = divide_up(a->n_query, TILE), k_tiles = divide_up(a->n_key, TILE);
    dim3 grid((unsigned)(q_tiles * k_tiles), (unsigned)(a->n_group * a->n_head),
              (unsigned)space.chunks);
    constexpr int BYTES = dbias_memory<C>::IS_DYNAMIC ? (int)sizeof(dbias_memory<C>) : 0;
    FM_CUDA(cudaFuncSetAttribute(mma_dbias<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    mma_dbias<C><<<grid, TILE_THREADS, BYTES, queue(stream)>>>(*a, space);
    FM_LAUNCHED();
    finish_dbias(stream, a, &space, grad->dbias);
}

void attention_mma_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                        const attention_space &space) {
    if (a->bias) attention_pack_bias(stream, a, &space, false);
    if (a->bias) attention_pack_bias(stream, a, &space, true);
    if (a->c_head <= 32) {
        gate_gradient<bf16, as_stored, 4>(stream, a, grad, &space);
    } else {
        gate_gradient<bf16, as_stored, 8>(stream, a, grad, &space);
    }
    if (a->c_head <= 16) {
        run_grad<16>(stream, a, grad, space);
    } else if (a->c_head <= 32) {
        run_grad<32>(stream, a, grad, space);
    } else {
        run_grad<64>(stream, a, grad, space);
    }
}

} // namespace fm_cuda
