/* attention_small_grad.cu: gated attention of the bf16 table with a bias and heads of 8 channels,
 * backward: dq, dk, dv and dbias in one walk, so that the logits are made once.
 *
 * Rows are keys and columns are queries. A block takes all queries x SMALL_KEYS keys of a (group,
 * head) and walks a chunk of the batches. A warp has 16 M queries and all the block's keys. Its sum
 * of dS stays in registers over all batches. By products of single warps (mma.cuh), 16 keys x 16
 * queries at a time:
 *
 *     S^T = k q^T               onto the bias, which a product with a diagonal of 1 / scale brings
 *     P^T = 2^(S^T scale log2(e))
 *     dP^T = v dout'^T
 *     dv += P^T dout'           P^T, packed to bf16, is the left operand
 *     dS^T = P^T dP^T
 *     dbias += dS
 *     dk += dS^T q              dS^T, packed to bf16, is the left operand
 *     dq += dS k                the same, transposed by movmatrix
 *
 * A product sums over sixteen, of which a head's channels are eight. The other eight bring the
 * terms of the query and the key: -lse / scale and -delta of a query, each as three numbers of bf16
 * that sum up to it, times ones, and the mask term of a key (term_row). S and dP share the terms of
 * a query; their left operands have ones in different places.
 *
 * dk and dv of a batch are sums over the block's warps. Each warp leaves its share in shared
 * memory, and the walk of the next batch adds the shares in order. dq is a sum over the blocks of a
 * head: each stores its share in the workspace as bf16, and a second kernel adds them in order. A
 * third adds the chunks of dbias.
 *
 * Since o is rounded to bf16, delta has an error of one sign for all keys of a query. The walk
 * cannot know the error before it adds to dbias. But a row of dS sums to zero except for that
 * error, and so does a row of dbias. So the mean of each row of dbias is subtracted from it. That
 * is the nearest row which sums to zero. Elements that are exactly zero belong to masked keys and
 * stay.
 *
 * Order of events. `full` of a stage of the ring completes when a batch has arrived, `done` when
 * all warps have walked a batch. A warp waits for `done` of the batch before, at the end of its own
 * walk of the next. Then that batch's shares are complete and its stage is free. The shares have
 * three places: a warp that writes those of batch i has seen `done` of i - 2, so all warps have
 * added those of i - 3. */
#include "trainer/backend/cuda/hopper/attention/attention_wgmma_grad.cuh"

#include <math.h>

namespace fm_cuda {

enum { SMALL_KEYS = 64, STRIPS = SMALL_KEYS / 16, SMALL_WARPS = 8, SMALL_THREADS = 256 };
enum { SHARES = 3 }; /* places for the warps' shares of dk and dv, which batches use by turns */

/* What a block reads of one batch. */
template <int M> struct alignas(128) small_stage {
    static constexpr int QUERIES = SMALL_WARPS * M * 16;
    bf16 q[QUERIES * 8], d[QUERIES * 8];
    term_row terms[QUERIES];
    bf16 k[SMALL_KEYS * 8], v[SMALL_KEYS * 8];
    term_row key_terms[SMALL_KEYS];
};

template <int M> struct alignas(128) small_space {
    static constexpr int STAGES = M < 3 ? 4 : 3;
    small_stage<M> stage[STAGES];
    float4 share[SHARES][SMALL_WARPS][STRIPS][2][32];   /* dk and dv, as accumulators */
    uint4 bias[M < 3 ? 1 : STRIPS * M * SMALL_THREADS]; /* [strip][query tile][thread] */
    term_row value_terms;                               /* beside v: ones where -delta is */
    uint64_t full[STAGES], done;
};

/* -- operands */

__device__ inline void small_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                 const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
}
__device__ inline void small_mma_first(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                       uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
/* The bias times 1 / scale, by a product with a diagonal. */
__device__ inline void small_mma_bias(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t diagonal) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%7,%7,%7,%7};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(diagonal), "f"(0.0f));
}

__device__ inline void small_read(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}
__device__ inline void small_read_trans(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

/* What a warp keeps over all batches: the sum of dS and, where registers are left, the packed
 * bias. */
template <int M> struct small_kept {
    static constexpr bool HAS_BIAS = M < 3;
    uint4 bias[HAS_BIAS ? STRIPS : 1][HAS_BIAS ? M : 1];
    float sum[STRIPS][M][2][4];
};

/* A warp's queries of a batch as right operands: q and dout' with the terms beside them, of two
 * times 8 queries, and as rows that are summed over. */
template <int M> struct small_queries { uint32_t q[M][4], d[M][4], rows[M][4]; };

/* A lane's offsets in a stage, in bytes, and the address of the row beside v. */
struct small_place {
    uint32_t q, d, rows, k, v, k_rows, v_step;
};

template <int M> __device__ inline small_place small_place_of(const small_space<M> *space) {
    typedef small_stage<M> stage;
    uint32_t lane = threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
    uint32_t first = threadIdx.x / 32 * M * 16, terms = (uint32_t)offsetof(stage, terms);
    uint32_t half = (first + matrix / 2 * 8 + row) * 16;
    small_place at;
    at.q = half + (matrix % 2 ? terms : (uint32_t)offsetof(stage, q));
    at.d = half + (matrix % 2 ? terms : (uint32_t)offsetof(stage, d));
    at.rows = (first + matrix % 2 * 8 + row) * 16 +
              (uint32_t)(matrix / 2 ? offsetof(stage, d) : offsetof(stage, q));
    at.k = (matrix % 2 * 8 + row) * 16 +
           (uint32_t)(matrix / 2 ? offsetof(stage, key_terms) : offsetof(stage, k));
    at.k_rows = lane * 16 + (uint32_t)offsetof(stage, k);
    at.v = (matrix % 2 * 8 + row) * 16 + (uint32_t)offsetof(stage, v);
    return at;
}

/* -- the walk */

/* The products of 16 keys x 16 queries before the weights: s and dp. */
struct small_products {
    float s[2][4], dp[2][4];
};

__device__ inline void products_start(small_products &x, const uint4 &bias, uint32_t diagonal,
                                      const uint32_t (&k)[4], const uint32_t (&v)[4],
                                      const uint32_t (&q)[4], const uint32_t (&d)[4]) {
    small_mma_bias(x.s[0], bias.x, bias.y, diagonal);
    small_mma_bias(x.s[1], bias.z, bias.w, diagonal);
    small_mma(x.s[0], k, q[0], q[1], x.s[0]);
    small_mma(x.s[1], k, q[2], q[3], x.s[1]);
    small_mma_first(x.dp[0], v, d[0], d[1]);
    small_mma_first(x.dp[1], v, d[2], d[3]);
}

/* The rest: s and dp become the weights and dS, which are added to everything. */
__device__ inline void products_finish(small_products &x, float slope, const uint32_t (&rows)[4],
                                       uint32_t k0, uint32_t k1, float (&sum)[2][4], float (&dk)[4],
                                       float (&dv)[4], float (&dq)[4]) {
    uint32_t p[4], ds[4], t[4];
#pragma unroll
    for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float weight = exp2_fast(x.s[n][i] * slope), grad = weight * x.dp[n][i];
            sum[n][i] += grad;
            x.s[n][i] = weight;
            x.dp[n][i] = grad;
        }
        p[2 * n] = pack_two(x.s[n][0], x.s[n][1]);
        p[2 * n + 1] = pack_two(x.s[n][2], x.s[n][3]);
        ds[2 * n] = pack_two(x.dp[n][0], x.dp[n][1]);
        ds[2 * n + 1] = pack_two(x.dp[n][2], x.dp[n][3]);
    }
    small_mma(dv, p, rows[2], rows[3], dv);
    small_mma(dk, ds, rows[0], rows[1], dk);
    t[0] = transpose_eight(ds[0]);
    t[1] = transpose_eight(ds[2]);
    t[2] = transpose_eight(ds[1]);
    t[3] = transpose_eight(ds[3]);
    small_mma(dq, t, k0, k1, dq);
}

/* The place of a block: its chunk of the batches of a (group, head), and its keys. */
struct small_block {
    int group, head, first_key, begin, batches;
};

/* Starts reading part `part` of a batch: one warp takes each. Called by one thread. */
template <int M>
__device__ inline void small_fetch(const grad_call &c, small_stage<M> &to, uint32_t barrier,
                                   const small_block &b, int i, int part) {
    constexpr int QUERIES = small_stage<M>::QUERIES;
    constexpr int ROWS = QUERIES > 256 ? QUERIES / 2 : QUERIES;
    int rows = (int)c.space.ld_bias_t, batch = b.begin + i, at = b.group * c.n_batch + batch;
    uint32_t term_bytes = (uint32_t)rows * (uint32_t)sizeof(term_row);
    box_place keys = {b.first_key, b.head, batch, b.group}, queries = {0, b.head, batch, b.group};
    box_place later = {ROWS, b.head, batch, b.group};
    switch (part) {
    case 0: /* also announces all bytes */
        barrier_expect(barrier,
                       2 * sizeof to.q + 2 * sizeof to.k + sizeof to.key_terms + term_bytes);
        box_load(shared_address(to.q), c.q_box, queries, barrier);
        break;
    case 1: box_load(shared_address(to.d), c.d_box, queries, barrier); break;
    case 2: box_load(shared_address(to.k), c.k_box, keys, barrier); break;
    case 3: box_load(shared_address(to.v), c.v_box, keys, barrier); break;
    case 4:
        bulk_load(shared_address(to.terms),
                  (const term_row *)c.space.columns + (int64_t)(at * c.n_head + b.head) * rows,
                  term_bytes, barrier);
        break;
    case 5:
        bulk_load(shared_address(to.key_terms),
                  (const term_row *)c.space.terms + (int64_t)at * c.space.ld_bias + b.first_key,
                  sizeof to.key_terms, barrier);
        break;
    case 6:
        if (ROWS < QUERIES) box_load(shared_address(to.q + ROWS * 8), c.q_box, later, barrier);
        break;
    case 7:
        if (ROWS < QUERIES) box_load(shared_address(to.d + ROWS * 8), c.d_box, later, barrier);
        break;
    default: break;
    }
}

/* This thread's place in dk or dv of a batch: two channels of a key, and of the eighth after it. */
struct small_keys {
    bf16 *to; /* of the batch whose shares are added next; NULL: nothing to store */
    int batch, further, rows;
    float scale;
    bool adds;
};

__device__ inline small_keys small_keys_of(const grad_call &c, const small_block &b) {
    int thread = (int)threadIdx.x, lane = thread % 32,
        key = b.first_key + thread / 64 * 16 + lane / 4;
    bool is_key = thread / 32 % 2 == 0; /* or a value */
    const grad_tensor &out = is_key ? c.dk : c.dv;
    item_place p = {b.group, b.begin, b.head, 0};
    bf16 *to = out.data ? row_at(out, p, key) + lane % 4 * 2 : NULL;
    return {to, out.batch, 8 * out.row, c.n_key - key, is_key ? c.scale : 1, out.adds};
}

/* Adds the warps' shares of dk and dv of a batch in order, and stores them. A thread takes one
 * float4 of an accumulator. */
template <int M>
__device__ inline void store_keys(const small_space<M> *space, int share, small_keys &keys) {
    const float4 *from = &space->share[share][0][0][0][0] + threadIdx.x;
    float4 total = from[0];
#pragma unroll
    for (int w = 1; w < SMALL_WARPS; w++) {
        float4 x = from[w * STRIPS * 2 * 32];
        total.x += x.x, total.y += x.y, total.z += x.z, total.w += x.w;
    }
    if (!keys.to) return;
    uint32_t *to = (uint32_t *)keys.to, *further = (uint32_t *)(keys.to + keys.further);
    keys.to += keys.batch;
    total.x *= keys.scale, total.y *= keys.scale, total.z *= keys.scale, total.w *= keys.scale;
    if (keys.adds) {
        if (keys.rows > 0) {
            float2 old = unpack_two(*to);
            total.x += old.x, total.y += old.y;
        }
        if (keys.rows > 8) {
            float2 old = unpack_two(*further);
            total.z += old.x, total.w += old.y;
        }
    }
    if (keys.rows > 0) *to = pack_two(total.x, total.y);
    if (keys.rows > 8) *further = pack_two(total.z, total.w);
}

/* The walk of one batch, whose rows are at `here`. Between its products, `between` finishes the
 * batch before. The products of 16 keys x 16 queries start before the weights of the last ones. */
template <int M, typename F>
__device__ inline void small_walk(const small_place &at, uint32_t here, const uint4 *bias,
                                  uint32_t value_terms, uint32_t diagonal, float slope,
                                  small_kept<M> &kept, float4 *share, float (&dq)[M][4],
                                  const F &between) {
    constexpr int N = STRIPS * M;
    small_queries<M> queries;
    small_products x[2];
    uint32_t k[2][4], v[2][4], k_rows[2][4];
    float dk[4], dv[4];
    bool is_value_lane = threadIdx.x % 32 / 16 == 0;
    auto read_keys = [&](int j) {
        small_read(k[j % 2], here + at.k + j * 256);
        small_read(v[j % 2], is_value_lane ? here + at.v + j * 256 : value_terms);
        if (j % 2 == 0) small_read_trans(k_rows[j / 2 % 2], here + at.k_rows + j * 256);
    };
    auto start = [&](int n) {
        int j = n / M, m = n % M;
        products_start(x[n % 2],
                       small_kept<M>::HAS_BIAS ? kept.bias[j][m] : bias[n * SMALL_THREADS],
                       diagonal, k[j % 2], v[j % 2], queries.q[m], queries.d[m]);
    };
    read_keys(0);
#pragma unroll
    for (int m = 0; m < M; m++) {
        small_read(queries.q[m], here + at.q + m * 256);
        small_read(queries.d[m], here + at.d + m * 256);
    }
#pragma unroll
    for (int m = 0; m < M; m++)
        small_read_trans(queries.rows[m], here + at.rows + m * 256);
    set_rows<M>(dq, 0, 0);
    start(0);
#pragma unroll
    for (int n = 0; n < N; n++) {
        int j = n / M, m = n % M;
        if (m == 0) {
            if (j + 1 < STRIPS) read_keys(j + 1);
#pragma unroll
            for (int i = 0; i < 4; i++)
                dk[i] = dv[i] = 0;
        }
        if (n + 1 < N) start(n + 1);
        if (n == N - M) between();
        products_finish(x[n % 2], slope, queries.rows[m], k_rows[j / 2][j % 2 * 2],
                        k_rows[j / 2][j % 2 * 2 + 1], kept.sum[j][m], dk, dv, dq[m]);
        if (m == M - 1) {
            share[j * 64] = *(float4 *)dk;
            share[j * 64 + 32] = *(float4 *)dv;
        }
    }
}

/* Fills what stays in shared memory: the barriers, the row beside v, and the terms of queries past
 * the last whole tile, which never arrive. */
template <int M> __device__ inline void small_start(const grad_call &call, small_space<M> *space) {
    constexpr int STAGES = small_space<M>::STAGES;
    for (int i = 0; i < STAGES; i++)
        for (int row = (int)call.space.ld_bias_t + (int)threadIdx.x; row < small_stage<M>::QUERIES;
             row += SMALL_THREADS)
            space->stage[i].terms[row] = terms_of_query(NEVER, 0);
    if (threadIdx.x < 8) {
        space->value_terms.x[threadIdx.x] = to<bf16>(threadIdx.x / 4 == 1 && threadIdx.x < 7);
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_init(shared_address(space->full + i), 1);
        barrier_init(shared_address(&space->done), SMALL_WARPS);
        barriers_publish();
    }
}

/* Loads the warp's bias and clears its sums. Past the last query the bias does not matter, so the
 * last tile supplies it. */
template <int M>
__device__ inline void start_kept(const grad_call &call, int plane, int warp, small_space<M> *space,
                                  small_kept<M> &kept) {
    int strips = (int)call.space.ld_bias / 16, tiles = (int)call.space.ld_bias_t / 16;
#pragma unroll
    for (int j = 0; j < STRIPS; j++)
#pragma unroll
        for (int m = 0; m < M; m++) {
            int strip = (int)blockIdx.x * STRIPS + j, tile = min(warp * M + m, tiles - 1);
            const uint4 *from =
                bias_at(call.space.bias_t, plane, strips, strip, tiles / 4, tile / 4);
            uint4 bias = from[tile % 4 * 32];
            if (small_kept<M>::HAS_BIAS) {
                kept.bias[j][m] = bias;
            } else {
                space->bias[(j * M + m) * SMALL_THREADS + threadIdx.x] = bias;
            }
            set_rows<2>(kept.sum[j][m], 0, 0);
        }
}

/* Stores this lane's share of the chunk's sum of dbias. */
template <int M>
__device__ inline void store_kept(const grad_call &call, int plane, int warp, int first_key,
                                  const small_kept<M> &kept) {
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    int64_t at = (int64_t)blockIdx.z * gridDim.y + plane;
    float *to = call.space.dbias + at * call.n_query * call.n_key;
#pragma unroll
    for (int j = 0; j < STRIPS; j++)
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int key = first_key + j * 16 + g + i % 4 / 2 * 8;
                int query = (warp * M + m) * 16 + i / 4 * 8 + 2 * t + i % 2;
                if (query < call.n_query && key < call.n_key) {
                    to[query * call.n_key + key] = kept.sum[j][m][i / 4][i % 4];
                }
            }
}

/* blockIdx: x = key tile, y = head + n_head * group, z = chunk. */
template <int M>
__global__ void __launch_bounds__(SMALL_THREADS, 1)
    small_grad(const __grid_constant__ grad_call call) {
    extern __shared__ __align__(128) uint8_t shared[];
    constexpr int STAGES = small_space<M>::STAGES;
    small_space<M> *space = (small_space<M> *)shared;
    int plane = (int)blockIdx.y, per_chunk = (call.n_batch + (int)gridDim.z - 1) / (int)gridDim.z;
    small_block block = {plane / call.n_head, plane % call.n_head, (int)blockIdx.x * SMALL_KEYS,
                         (int)blockIdx.z * per_chunk, 0};
    block.batches = min(call.n_batch, block.begin + per_chunk) - block.begin;
    int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0), lane = (int)threadIdx.x % 32;
    uint32_t full = shared_address(space->full), done = shared_address(&space->done);
    small_kept<M> kept;
    small_start<M>(call, space);
    start_kept<M>(call, plane, warp, space, kept);
    __syncthreads();
    for (int i = 0; lane == 0 && i < min(STAGES, block.batches); i++)
        small_fetch<M>(call, space->stage[i], full + 8 * i, block, i, warp);
    __syncwarp();
    small_place at = small_place_of<M>(space);
    uint32_t diagonal =
        diagonal_of(__bfloat16_as_ushort(__float2bfloat16_rn(call.space.bias_factor)));
    small_keys keys = small_keys_of(call, block);
    /* dq's shares: [key tile, group, batch, head][query][8] */
    int item = (block.group * call.n_batch + block.begin) * call.n_head + block.head;
    int query = warp * M * 16 + lane / 4;
    int64_t row = ((int64_t)blockIdx.x * call.items + item) * call.n_query + query;
    bf16 *dq_to = (bf16 *)call.space.sums + row * 8 + lane % 4 * 2;
#pragma unroll 1
    for (int i = 0; i < block.batches; i++) {
        float dq[M][4];
        auto finish_before = [&]() {
            int next = i - 1 + STAGES, stage = (i - 1) % STAGES;
            if (i == 0) return;
            barrier_wait(done, (i - 1) & 1);
            if (lane == 0 && next < block.batches) {
                small_fetch<M>(call, space->stage[stage], full + 8 * stage, block, next, warp);
            }
            __syncwarp();
            store_keys<M>(space, (i - 1) % SHARES, keys);
        };
        barrier_wait(full + 8 * (i % STAGES), i / STAGES & 1);
        small_walk<M>(at, shared_address(&space->stage[i % STAGES]), space->bias + threadIdx.x,
                      shared_address(&space->value_terms), diagonal, call.slope, kept,
                      &space->share[i % SHARES][warp][0][0][lane], dq, finish_before);
        __syncwarp();
        if (lane == 0) barrier_arrive(done);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                if (query + m * 16 + half * 8 < call.n_query) {
                    *(uint32_t *)(dq_to + (m * 16 + half * 8) * 8) =
                        pack_two(dq[m][2 * half], dq[m][2 * half + 1]);
                }
        dq_to += call.n_head * call.n_query * 8;
    }
    if (block.batches > 0) {
        barrier_wait(done, (block.batches - 1) & 1);
        store_keys<M>(space, (block.batches - 1) % SHARES, keys);
    }
    if (call.space.dbias) store_kept<M>(call, plane, warp, block.first_key, kept);
}

/* -- before and after the walk */

/* The keys' terms of a (group, batch): [1, 1, 1, mask term, 0, 0, 0, 0]. */
__global__ void __launch_bounds__(128) small_key_terms(const __grid_constant__ grad_call call) {
    int at = (int)blockIdx.x, rows = (int)call.space.ld_bias;
    int offset = at / call.n_batch * call.mask_stride[0] + at % call.n_batch * call.mask_stride[1];
    const bf16 *mask = call.mask + offset;
    bool has_valid = false;
    for (int key = (int)threadIdx.x; call.mask && key < call.n_key; key += 128)
        has_valid = has_valid || get(mask[key * call.mask_stride[2]]) != 0;
    float factor = __syncthreads_or(has_valid) ? call.mask_factor / call.slope : 0;
    term_row *to = (term_row *)call.space.terms + (int64_t)at * rows;
    for (int key = (int)threadIdx.x; key < rows; key += 128) {
        float term = key >= call.n_key ? NEVER
                     : factor != 0     ? factor * (get(mask[key * call.mask_stride[2]]) - 1)
                                       : 0;
        uint32_t one = 0x3f80;
        *(uint4 *)(to + key) =
            make_uint4(one << 16 | one,
                       (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(term)) << 16 | one, 0, 0);
    }
}

/* dq = the blocks' shares, added in order. One thread takes one query of a head. */
__global__ void __launch_bounds__(256) small_dq(const __grid_constant__ grad_call call, int tiles) {
    unsigned i = blockIdx.x * 256 + threadIdx.x, item = i / (unsigned)call.n_query;
    if (item >= (unsigned)call.items) return;
    item_place p = place_of_item(call, item);
    int64_t step = (int64_t)call.items * call.n_query;
    const uint4 *from = (const uint4 *)call.space.sums + i;
    float x[8] = {};
#pragma unroll 6
    for (int tile = 0; tile < tiles; tile++, from += step) {
        float share[8];
        unpack_eight(__ldcs(from), share);
#pragma unroll
        for (int c = 0; c < 8; c++)
            x[c] += share[c];
    }
#pragma unroll
    for (int c = 0; c < 8; c++)
        x[c] *= call.scale;
    bf16 *to = row_at(call.dq, p, (int)(i - item * (unsigned)call.n_query));
    put_pack<bf16, 8>(to, call.dq.adds ? FM_ADD : FM_WRITE, x);
}

/* dbias = the chunks' sums, added in order, less the mean of the row. A warp takes one row of up to
 * 32 MOST keys. H heads that are neighbours in dbias are stored together; their rows meet in shared
 * memory. */
template <int MOST, int H>
__global__ void __launch_bounds__(256)
    mean_dbias(fm_attention a, attention_space space, fm_out dbias) {
    __shared__ float rows[8][MOST * 32];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, keys = (int)a.n_key;
    int row = (int)blockIdx.x * 8 + warp, head = row % (int)a.n_head;
    int query = row / (int)a.n_head % (int)a.n_query;
    int64_t group = row / (int)a.n_head / (int)a.n_query, plane = a.n_query * a.n_key;
    bool is_inside = group < a.n_group;
    const float *from = space.dbias + (group * a.n_head + head) * plane + (int64_t)query * a.n_key;
    float x[MOST] = {}, total = 0, count = 0;
    wait_for_previous();
#pragma unroll(32 / MOST)
    for (int64_t chunk = 0; chunk < space.chunks; chunk++, from += a.n_group * a.n_head * plane)
#pragma unroll
        for (int i = 0; i < MOST; i++)
            if (is_inside && i * 32 + lane < keys) x[i] += from[i * 32 + lane];
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        total += x[i];
        count += x[i] != 0;
    }
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, i);
        count += __shfl_xor_sync(0xffffffffu, count, i);
    }
    float mean = count > 0 ? total / count : 0;
#pragma unroll
    for (int i = 0; i < MOST; i++)
        rows[warp][i * 32 + lane] = x[i] != 0 ? x[i] - mean : 0;
    __syncthreads();
    /* The block's 8 rows are 8 / H times H heads of one query. */
    for (int i = (int)threadIdx.x; i < 8 / H * keys; i += 256) {
        int first = i / keys * H, key = i % keys;
        row = (int)blockIdx.x * 8 + first, head = row % (int)a.n_head;
        query = row / (int)a.n_head % (int)a.n_query;
        group = row / (int)a.n_head / (int)a.n_query;
        if (group >= a.n_group) return;
        float together[H];
#pragma unroll
        for (int h = 0; h < H; h++)
            together[h] = rows[first + h][key];
        put_pack<bf16, H>((bf16 *)dbias.data + group * a.bias_stride[0] + head * a.bias_stride[1] +
                              query * a.bias_stride[2] + key * a.bias_stride[3],
                          dbias.beta, together);
    }
}

/* -- launches */

/* The number of chunks that should end soonest, by the rule of attention_wgmma_dbias_chunks. */
int64_t attention_small_chunks(const fm_attention *a) {
    int64_t blocks = a->n_group * a->n_head * divide_up(a->n_key, SMALL_KEYS), best = 1;
    double least = INFINITY, sum = 6e-6 * (double)(a->n_group * a->n_head * a->n_query * a->n_key);
    for (int64_t chunks = 1; chunks <= min_size(a->n_batch, 64); chunks++) {
        int64_t rounds = divide_up(blocks * chunks, n_multiprocessor());
        double time = (double)(rounds * (divide_up(a->n_batch, chunks) + 3)) + sum * (double)chunks;
        if (time < least) least = time, best = chunks;
    }
    return best;
}

size_t attention_small_sums(const fm_attention *a) {
    int64_t rows = a->n_group * a->n_batch * a->n_head * a->n_query;
    return (size_t)(divide_up(a->n_key, SMALL_KEYS) * rows * 8) * sizeof(bf16);
}

template <int M>
static void launch_walk(fm_stream *stream, const fm_attention *a, grad_call *call) {
    constexpr int QUERIES = small_stage<M>::QUERIES;
    dim3 grid((unsigned)divide_up(a->n_key, SMALL_KEYS), (unsigned)(a->n_group * a->n_head),
              (unsigned)call->space.chunks);
    make_tiles<8>(a, call, QUERIES > 256 ? QUERIES / 2 : QUERIES, SMALL_KEYS);
    allow_shared(small_grad<M>, sizeof(small_space<M>));
    small_grad<M><<<grid, SMALL_THREADS, sizeof(small_space<M>), queue(stream)>>>(*call);
    FM_LAUNCHED();
}

void attention_small_keys(fm_stream *stream, const fm_attention *a, const grad_call *call) {
    small_key_terms<<<(unsigned)(a->n_group * a->n_batch), 128, 0, queue(stream)>>>(*call);
    FM_LAUNCHED();
}

/* Whether H heads of an element of dbias are one aligned pack. */
static bool are_together(const fm_attention *a, fm_out dbias, int heads) {
    bool ret = a->n_head % heads == 0 && a->bias_stride[1] == 1 &&
               (uintptr_t)dbias.data % ((size_t)heads * sizeof(bf16)) == 0;
    for (int i = 0; i < 4; i++)
        ret = ret && (i == 1 || a->bias_stride[i] % heads == 0);
    return ret;
}

template <int MOST>
static void run_mean(fm_stream *stream, const fm_attention *a, const attention_space *space,
                     fm_out dbias) {
    int64_t rows = a->n_group * a->n_head * a->n_query;
    auto kernel = are_together(a, dbias, 8)   ? mean_dbias<MOST, 8>
                  : are_together(a, dbias, 4) ? mean_dbias<MOST, 4>
                                              : mean_dbias<MOST, 1>;
    launch_after(stream, kernel, (unsigned)divide_up(rows, 8), 256, 0, true, *a, *space, dbias);
    FM_LAUNCHED();
}

void attention_mean_dbias(fm_stream *stream, const fm_attention *a, const attention_space *space,
                          fm_out dbias) {
    if (a->n_key <= 256) {
        run_mean<8>(stream, a, space, dbias);
    } else if (a->n_key <= 512) {
        run_mean<16>(stream, a, space, dbias);
    } else {
        run_mean<MAX_LONG_ROWS / 32>(stream, a, space, dbias);
    }
}

void attention_small_grad(fm_stream *stream, const fm_attention *a, grad_call *call, fm_out dbias) {
    if (a->n_query <= 128) {
        launch_walk<1>(stream, a, call);
    } else if (a->n_query <= 256) {
        launch_walk<2>(stream, a, call);
    } else {
        launch_walk<3>(stream, a, call);
    }
    if (call->dq.data) {
        int64_t rows = call->items * a->n_query;
        small_dq<<<(unsigned)divide_up(rows, 256), 256, 0, queue(stream)>>>(
            *call, (int)divide_up(a->n_key, SMALL_KEYS));
        FM_LAUNCHED();
    }
    if (call->space.dbias) attention_mean_dbias(stream, a, &call->space, dbias);
}

} // namespace fm_cuda
