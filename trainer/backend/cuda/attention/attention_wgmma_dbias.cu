/* attention_wgmma_dbias.cu: the gradient of the bias of gated attention, bf16, by warp-group
 * products: dbias = sum over batches of dS.
 *
 * A block takes 128 x 128 of (query, key), a warp group 64 x 64 of it in registers, and walks a
 * chunk of the batches. For each batch it recomputes dS^T as attention_wgmma_grad.cuh describes and
 * adds it up. The operands are q, k, v, and dout' and the columns' terms, which the walk left in
 * the workspace. The deltas are corrected by then (attention_mma_grad.cu says why). The chunks'
 * sums are added in order by a second kernel.
 *
 * The tiles of a batch are one stage of a ring of STAGES. COPIES warps each start one copy, two
 * batches ahead; one thread for all of them would delay its warp group. `full` of a stage completes
 * when its bytes are there, `empty` when every warp has read it; the n-th use of a stage waits for
 * phase n % 2 of `full`. */
#include "trainer/backend/cuda/attention/attention_wgmma_grad.cuh"

#include <math.h>

namespace fm_cuda {

enum { SIDE = 128, STAGES = 4, DBIAS_THREADS = 512, COPIES = 7, CHUNKS_AT_ONCE = 4 };

/* What a block reads of one batch. Rows past the last are zeros, and their results are not
 * stored. */
template <int C> struct alignas(TILE_ALIGN) batch_tiles {
    bf16 q[SIDE * C], d[SIDE * C], k[SIDE * C], v[SIDE * C];
    float shift[2 * SIDE], minus_delta[2 * SIDE], term[SIDE]; /* attention_space's columns, terms */
};

/* Starts reading part `part` of COPIES of a batch's tiles from query `first` and key `first_key`.
 * Called by one thread for each part. */
template <int C>
__device__ inline void fetch_part(const grad_call &c, batch_tiles<C> &to, uint32_t barrier,
                                  const item_place &p, int first, int first_key, int part) {
    box_place queries = {first, p.head, p.batch, p.group};
    box_place keys = {first_key, p.head, p.batch, p.group};
    int at = p.group * c.n_batch + p.batch, rows = (int)c.space.ld_bias_t;
    const float *shift = c.space.columns + (int64_t)(at * c.n_head + p.head) * 4 * rows + 2 * first;
    const float *term = c.space.terms + at * (int)c.space.ld_bias + first_key;
    switch (part) {
    case 0: /* Also announces all bytes. */
        barrier_expect(barrier, 4 * sizeof to.q + 2 * sizeof to.shift + sizeof to.term);
        box_load(shared_address(to.k), c.k_box, keys, barrier);
        break;
    case 1: box_load(shared_address(to.v), c.v_box, keys, barrier); break;
    case 2: box_load(shared_address(to.q), c.q_box, queries, barrier); break;
    case 3: box_load(shared_address(to.d), c.d_box, queries, barrier); break;
    case 4: bulk_load(shared_address(to.shift), shift, sizeof to.shift, barrier); break;
    case 5:
        bulk_load(shared_address(to.minus_delta), shift + 2 * rows, sizeof to.minus_delta, barrier);
        break;
    case 6: bulk_load(shared_address(to.term), term, sizeof to.term, barrier); break;
    default: break;
    }
}

/* Adds dS^T of the warp group's 64 keys x 32 queries of one batch to its sum. */
template <int C>
__device__ inline void dbias_step(const walk_keys<C> &keys, const walk_place &at, int half,
                                  const grad_call &call, bias_tile<4> &b, float (*sum)[4]) {
    float s[4][4], dp[4][4];
#pragma unroll
    for (int j = 0; j < 2; j++) /* keeps the bias packed from batch to batch */
        asm volatile(""
                     : "+r"(b.part[j].x), "+r"(b.part[j].y), "+r"(b.part[j].z), "+r"(b.part[j].w));
    uint64_t q = operand_after(at.q, half * STEP * C), d = operand_after(at.d, half * STEP * C);
    start_products<true>(s, dp, at, half, call.space.bias_factor, b);
    products_pin(s);
    products_pin(dp);
    products_begin();
#pragma unroll
    for (int i = 0; i < C / 16; i++)
        wgmma<K_MAJOR>(s, keys.k[i], operand_after(q, 16 * i), true);
    products_commit();
#pragma unroll
    for (int i = 0; i < C / 16; i++)
        wgmma<K_MAJOR>(dp, keys.v[i], operand_after(d, 16 * i), true);
    products_commit();
    products_wait<1>(s);
    weights_from_logits(s, call.slope, keys);
    products_wait<0>(dp);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[n][i] += s[n][i] * dp[n][i];
}

/* Stores this lane's share of the chunk's sum of 16 keys x 64 queries of dbias. */
__device__ inline void store_sums(const grad_call &c, float *plane, int first, int first_key,
                                  const float (&sum)[8][4]) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int query = first + n * 8 + 2 * t + i % 2, key = first_key + g + i / 2 * 8;
            if (query < c.n_query && key < c.n_key) plane[query * c.n_key + key] = sum[n][i];
        }
}

/* Loads the bias of the warp's 16 keys x 64 queries. Past the last key or query its value does not
 * matter, so the last tile supplies it. */
__device__ inline void strip_bias(const grad_call &c, int plane, int first, int first_key,
                                  bias_tile<4> (&b)[2]) {
    int strips = (int)c.space.ld_bias / 16, tiles = (int)c.space.ld_bias_t / TILE;
    const uint4 *from = bias_at(c.space.bias_t, plane, strips, min(first_key / 16, strips - 1),
                                tiles, min(first / TILE, tiles - 1));
    bias_load<4>(&b[0], from);
    bias_load<4>(&b[1], from + 64);
}

/* Adds one batch whose tiles have arrived: this warp's keys from row `key`, queries from
 * `query`. */
template <int C>
__device__ inline void dbias_batch(const grad_call &call, const batch_tiles<C> &here, int key,
                                   int query, bias_tile<4> (&b)[2], float (&sum)[8][4]) {
    walk_keys<C> keys;
    walk_place at = {};
    tile_rows<C>(keys.k, here.k, key);
    tile_rows<C>(keys.v, here.v, key);
    keys.upper = here.term[key + threadIdx.x % 32 / 4];
    keys.lower = here.term[key + threadIdx.x % 32 / 4 + 8];
    at.columns = shared_address(here.shift) + query * 8 + threadIdx.x % 4 * 16;
    at.minus_delta = sizeof here.shift;
    at.q = tile_operand<C, K_MAJOR>(here.q + query * C);
    at.d = tile_operand<C, K_MAJOR>(here.d + query * C);
    dbias_step<C>(keys, at, 0, call, b[0], sum);
    dbias_step<C>(keys, at, 1, call, b[1], sum + 4);
}

/* blockIdx: x = key tile + key tiles * query tile, y = head + n_head * group, z = chunk. */
template <int C>
__global__ void __launch_bounds__(DBIAS_THREADS, 1)
    wgmma_dbias(const __grid_constant__ grad_call call) {
    extern __shared__ __align__(TILE_ALIGN) uint8_t shared[];
    batch_tiles<C> *tiles = (batch_tiles<C> *)shared;
    int k_tiles = (call.n_key + SIDE - 1) / SIDE, plane = (int)blockIdx.y;
    int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    int first = (int)blockIdx.x / k_tiles * SIDE, first_key = (int)blockIdx.x % k_tiles * SIDE;
    int key = warp / 8 * 64 + warp % 4 * 16, query = warp / 4 % 2 * 64; /* of this warp */
    item_place p = {plane / call.n_head, 0, plane % call.n_head, 0};
    int per_chunk = (call.n_batch + (int)gridDim.z - 1) / (int)gridDim.z;
    int begin = (int)blockIdx.z * per_chunk, end = min(call.n_batch, begin + per_chunk);
    uint32_t full = shared_address(tiles + STAGES), empty = full + 8 * STAGES;
    float sum[8][4];
    bias_tile<4> b[2];
    /* Batch i uses stage i % STAGES, after every warp has left the stage's last use. */
    auto fetch = [&](int i) {
        int stage = i % STAGES, turn = i / STAGES;
        p.batch = begin + i;
        if (p.batch >= end) return;
        if (turn > 0) barrier_wait(empty + 8 * stage, (turn - 1) & 1);
        fetch_part<C>(call, tiles[stage], full + 8 * stage, p, first, first_key, warp);
    };
    bool is_fetcher = threadIdx.x % 32 == 0 && warp < COPIES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, DBIAS_THREADS / 32);
        }
        barriers_publish();
    }
    set_rows<8>(sum, 0, 0);
    strip_bias(call, plane, first + query, first_key + key, b);
    __syncthreads();
    for (int i = 0; i < 2; i++)
        if (is_fetcher) fetch(i);
#pragma unroll 1
    for (int i = 0; i < end - begin; i++) {
        int stage = i % STAGES;
        if (is_fetcher) fetch(i + 2);
        __syncwarp();
        barrier_wait(full + 8 * stage, i / STAGES & 1);
        dbias_batch<C>(call, tiles[stage], key, query, b, sum);
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * stage);
    }
    float *to =
        call.space.dbias + ((int64_t)blockIdx.z * gridDim.y + plane) * call.n_query * call.n_key;
    store_sums(call, to, first + query, first_key + key, sum);
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
 * batch. It counts rounds of blocks, each of its batches and about two more to start, plus `sum`
 * for writing and reading one chunk's sums. */
int64_t attention_wgmma_dbias_chunks(const fm_attention *a) {
    int64_t planes = a->n_group * a->n_head, best = 1;
    int64_t blocks = planes * divide_up(a->n_query, SIDE) * divide_up(a->n_key, SIDE);
    double least = INFINITY, sum = 1.7e-6 * (double)(planes * a->n_query * a->n_key);
    for (int64_t chunks = 1; chunks <= min_size(a->n_batch, 64); chunks++) {
        int64_t rounds = divide_up(blocks * chunks, n_multiprocessor());
        double time = (double)(rounds * (divide_up(a->n_batch, chunks) + 2)) + sum * (double)chunks;
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
    if (a->c_head <= 16) {
        launch_dbias<16>(stream, a, call);
    } else {
        launch_dbias<32>(stream, a, call);
    }
    finish_dbias(stream, a, &call->space, dbias);
}

} // namespace fm_cuda
