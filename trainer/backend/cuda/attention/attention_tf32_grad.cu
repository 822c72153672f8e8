/* attention_tf32_grad.cu: gated attention of the tf32 table by mma.sync, backward.
 *
 *     gate     element by element: dout' = dout sigmoid(g), rounded to tf32, since all products
 *              take it; dg; and delta = <dout, o>.
 *     dq       a warp takes 16 or 32 queries and walks the keys: dS = P (dP - delta), dq += dS k.
 *     dkv      a warp takes 16 or 32 keys and walks the queries. It recomputes P^T and dS^T, keys
 *              down, queries across: dv += P^T dout', dk += dS^T q.
 *     dbias    a block takes up to 64 queries and 64 keys and recomputes dS there for a chunk of
 *              the batches, summed in registers; the chunks' sums are then added in order. The
 *              queries of the next batch are on their way meanwhile.
 *
 * Each of the three walks recomputes the logits and dP. That is 9 products instead of 7, but every
 * sum is in the registers of one warp: nothing crosses blocks, and shared memory has only tiles,
 * which all lengths fit.
 *
 * delta carries an error of the rounded operands that has the same sign for all keys of a query,
 * and would add up in dbias (see attention_mma_grad.cu). A row of dS sums to zero exactly except
 * for this error, so dq adds the row's sum to delta for the two kernels that follow it. */
#include "trainer/backend/cuda/attention/attention_gate_grad.cuh"
#include "trainer/backend/cuda/attention/attention_tf32.cuh"

namespace fm_cuda {

/* What a product takes of dout': tf32. */
struct rounded_operand {
    __device__ static float of(float x) {
        return round_operand(x);
    }
};

/* Stores 16 rows of a gradient, times `scale`: the lane's rows are `row` and row + 8 of `end`. */
template <int C>
__device__ inline void store_rows(const fm_attention &a, const tile_place &p, fm_out out,
                                  const fm_attention_stride &stride, int64_t row, int64_t end,
                                  const float x[C / 8][4], float scale) {
    int t = threadIdx.x % 4;
    if (!out.data) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (row + 8 * half >= end) continue;
        float *to = (float *)out.data + offset_of(stride, p.group, p.batch, row + 8 * half, p.head);
#pragma unroll
        for (int j = 0; j < C / 16; j++) {
            int c = 16 * j + 4 * t;
            if (c >= a.c_head) continue;
            float value[4];
            channels_of(value, x, j, half);
#pragma unroll
            for (int i = 0; i < 4; i++)
                value[i] *= scale;
            put_pack<float, 4>(to + c, out.beta, value);
        }
    }
}

/* The log-sum-exp, in log2 units, and -delta of a lane's queries in S strips. Past the last query
 * the log-sum-exp is +inf, so the weights are 0. */
template <int S> struct row_terms {
    float lse[2 * S], minus_delta[2 * S];

    __device__ row_terms(const fm_attention &a, const attention_space &space, int64_t base,
                         int64_t query) {
#pragma unroll
        for (int i = 0; i < 2 * S; i++) {
            bool is_inside = query + 8 * i < a.n_query;
            int64_t at = base + query + 8 * i;
            lse[i] = is_inside ? ((const float *)a.lse)[at] * LOG2E : INFINITY;
            minus_delta[i] = is_inside ? -space.delta[at] : 0;
        }
    }
};

/* Strips of 16 rows per warp. Two strips share the reads and the rounding of a tile, but fill the
 * registers, so a multiprocessor has two blocks. */
template <int S> constexpr int grad_blocks(int c) {
    return S == 2 || c == 64 ? 2 : 3;
}

/* dS of S strips of queries and 8 N keys, from key `first` of tile copy `at`. bias: of the first
 * strip; the next one is `strip_ld` further. */
template <int C, int S, int N>
__device__ inline void queries_step(float s[S * N][4], const fm_attention &a,
                                    const f32_keys<C> &keys, int at, int first, bool is_masked,
                                    float factor, const float4 *bias, int strip_ld,
                                    const uint32_t q[S * C / 8][4], const uint32_t d[S * C / 8][4],
                                    const row_terms<S> &row) {
    float dp[S * N][4];
#pragma unroll
    for (int i = 0; i < S; i++)
        start_columns<N>(s + i * N, is_masked ? keys.term[at] + first : NULL);
    times_rows_transposed<C, N, false, S>(s, q, keys.k[at] + first * tile_ld<C>());
#pragma unroll
    for (int i = 0; i < S; i++) {
        if (bias) packed_add<N>(s + i * N, factor, bias + i * strip_ld + first * 4);
        weights_by_row<N>(s + i * N, slope_of(a), row.lse + 2 * i);
        set_rows<N>(dp + i * N, row.minus_delta[2 * i], row.minus_delta[2 * i + 1]);
    }
    times_rows_transposed<C, N, false, S>(dp, d, keys.v[at] + first * tile_ld<C>());
#pragma unroll
    for (int n = 0; n < S * N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] *= dp[n][i];
}

/* -- dq */

template <int C, int S>
__global__ void __launch_bounds__(TILE_THREADS, grad_blocks<S>(C))
    tf32_dq(fm_attention a, fm_attention_grad grad, attention_space space) {
    constexpr int N = 4 / S;
    extern __shared__ __align__(16) uint8_t shared[];
    f32_keys<C> &keys = *(f32_keys<C> *)shared;
    int rows = (int)blockDim.x / 2 * S, tiles = (int)(space.ld_bias / TILE);
    tile_place p = place_of_block(a, (unsigned)divide_up(a.n_query, rows), rows);
    int strip = p.first / 16 + (int)threadIdx.x / 32 * S, strip_ld = tiles * (STEP_BIAS / 2);
    int64_t query = strip * 16 + threadIdx.x % 32 / 4;
    const float4 *bias = NULL;
    if (a.bias) bias = packed_at<S>(space.bias, p.plane, space.ld_bias_t / 16, strip, 2 * tiles, 0);
    bool is_valid = find_valid<float>(a, p);
    if (a.mask && p.head == 0 && p.first == 0 && threadIdx.x == 0) {
        space.valid[p.group * a.n_batch + p.batch] = is_valid;
    }
    bool has_term = fetch_f32_keys<C>(a, is_valid, p, keys, 0, 0), next_has_term = false;
    uint32_t q[S * C / 8][4], d[S * C / 8][4];
    const float *from = (const float *)a.q + offset_of(a.q_stride, p.group, p.batch, 0, p.head);
    const float *dout = (const float *)space.dout + p.row * a.c_head;
#pragma unroll
    for (int i = 0; i < S; i++) {
        rows_load<C, false>(q + i * C / 8, from, a.q_stride.row, (strip + i) * 16, a.n_query,
                            (int)a.c_head);
        rows_load<C, true>(d + i * C / 8, dout, a.c_head, (strip + i) * 16, a.n_query,
                           (int)a.c_head);
    }
    row_terms<S> row(a, space, p.row, query);
    float dq[S * C / 8][4] = {}, error[2 * S] = {};
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
            next_has_term =
                fetch_f32_keys<C>(a, is_valid, p, keys, (tile + 1) & 1, (tile + 1) * TILE);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        bool is_masked = __syncthreads_or(has_term);
        has_term = next_has_term;
#pragma unroll 1
        for (int first = 0; first < TILE; first += 8 * N) {
            float s[S * N][4];
            queries_step<C, S, N>(s, a, keys, tile & 1, first, is_masked, space.bias_factor,
                                  bias ? bias + tile * (STEP_BIAS / 2) : NULL, strip_ld, q, d, row);
#pragma unroll
            for (int n = 0; n < S * N; n++) {
                error[n / N * 2] += s[n][0] + s[n][1];
                error[n / N * 2 + 1] += s[n][2] + s[n][3];
            }
            times_rows<C, N, false, S>(dq, s, keys.k[tile & 1] + first * tile_ld<C>());
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < S; i++)
        store_rows<C>(a, p, grad.dq, a.q_stride, query + 16 * i, a.n_query, dq + i * C / 8,
                      (float)a.scale);
#pragma unroll
    for (int i = 0; i < 2 * S; i++) {
        float sum = row_sum(error[i]);
        if (threadIdx.x % 4 == 0 && query + 8 * i < a.n_query) {
            space.delta[p.row + query + 8 * i] = sum - row.minus_delta[i];
        }
    }
}

/* -- dk and dv */

/* Two tiles of queries and of dout', one in use and one in flight, with the log-sum-exp (in log2
 * units) and -delta of their rows. */
template <int C> struct f32_queries {
    float q[2][TILE * tile_ld<C>()], d[2][TILE * tile_ld<C>()];
    float lse[2][TILE], minus_delta[2][TILE];
};

/* Starts reading `count` rows, from query `first` on, into copy `at`. */
template <int C>
__device__ inline void fetch_f32_queries(const fm_attention &a, const attention_space &space,
                                         const tile_place &p, f32_queries<C> &tiles, int at,
                                         int64_t first, int count) {
    const float *q = (const float *)a.q + offset_of(a.q_stride, p.group, p.batch, 0, p.head);
    const float *d = (const float *)space.dout + p.row * a.c_head;
    tile_load_f32<C>(tiles.q[at], count, q, a.q_stride.row, first, a.n_query, (int)a.c_head);
    tile_load_f32<C>(tiles.d[at], count, d, a.c_head, first, a.n_query, (int)a.c_head);
    copies_commit();
    if (threadIdx.x >= TILE) return;
    int64_t query = first + threadIdx.x;
    bool is_inside = query < a.n_query;
    tiles.lse[at][threadIdx.x] =
        is_inside ? ((const float *)a.lse)[p.row + query] * LOG2E : INFINITY;
    tiles.minus_delta[at][threadIdx.x] = is_inside ? -space.delta[p.row + query] : 0;
}

/* s = 2^(s * slope - shift of the column): logits become weights. */
template <int N>
__device__ inline void weights_by_f32_column(float s[N][4], float slope, const float *shift) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 x = columns_at(shift, n);
        s[n][0] = exp2_fast(s[n][0] * slope - x.x);
        s[n][1] = exp2_fast(s[n][1] * slope - x.y);
        s[n][2] = exp2_fast(s[n][2] * slope - x.x);
        s[n][3] = exp2_fast(s[n][3] * slope - x.y);
    }
}

template <int C, int S>
__global__ void __launch_bounds__(TILE_THREADS, grad_blocks<S>(C))
    tf32_dkv(fm_attention a, fm_attention_grad grad, attention_space space) {
    constexpr int N = 4 / S, ROWS = TILE * S;
    extern __shared__ __align__(16) uint8_t shared[];
    f32_queries<C> &queries = *(f32_queries<C> *)shared;
    tile_place p = place_of_block(a, (unsigned)divide_up(a.n_key, ROWS), ROWS);
    int strip = p.first / 16 + (int)threadIdx.x / 32 * S, steps = (int)(space.ld_bias_t / STEP);
    int64_t key = (int64_t)strip * 16 + threadIdx.x % 32 / 4;
    const float4 *bias = NULL;
    if (a.bias) bias = packed_at<S>(space.bias_t, p.plane, space.ld_bias / 16, strip, steps, 0);
    bool is_valid = a.mask && space.valid[p.group * a.n_batch + p.batch];
    float term[2 * S], slope = slope_of(a);
#pragma unroll
    for (int i = 0; i < 2 * S; i++)
        term[i] = mask_term<float>(a, is_valid, p, key + 8 * i);
    auto fetch = [&](int step) {
        fetch_f32_queries<C>(a, space, p, queries, step / 2 & 1, step * STEP,
                             step + 1 < steps ? TILE : STEP);
    };
    fetch(0);
    const float *from_k = (const float *)a.k + offset_of(a.k_stride, p.group, p.batch, 0, p.head);
    const float *from_v = (const float *)a.v + offset_of(a.v_stride, p.group, p.batch, 0, p.head);
    uint32_t k[S * C / 8][4], v[S * C / 8][4];
    float dk[S * C / 8][4] = {}, dv[S * C / 8][4] = {};
#pragma unroll
    for (int i = 0; i < S; i++) {
        rows_load<C, false>(k + i * C / 8, from_k, a.k_stride.row, (strip + i) * 16, a.n_key,
                            (int)a.c_head);
        rows_load<C, false>(v + i * C / 8, from_v, a.v_stride.row, (strip + i) * 16, a.n_key,
                            (int)a.c_head);
    }
#pragma unroll 1
    for (int first = 0; first < steps * STEP; first += 8 * N) {
        int at = first / TILE & 1, row = first % TILE;
        if (row == 0) {
            __syncthreads(); /* the other copy is free */
            if (first + TILE < steps * STEP) {
                fetch(first / STEP + 2);
                copies_wait<1>();
            } else {
                copies_wait<0>();
            }
            __syncthreads();
        }
        const float *q = queries.q[at] + row * tile_ld<C>();
        const float *d = queries.d[at] + row * tile_ld<C>();
        float s[S * N][4], dp[S * N][4];
#pragma unroll
        for (int i = 0; i < S; i++)
            set_rows<N>(s + i * N, term[2 * i], term[2 * i + 1]);
        times_rows_transposed<C, N, false, S>(s, k, q);
#pragma unroll
        for (int i = 0; i < S; i++) {
            if (bias) {
                packed_add<N>(s + i * N, space.bias_factor,
                              bias + i * steps * (STEP_BIAS / 4) + first * 4);
            }
            weights_by_f32_column<N>(s + i * N, slope, queries.lse[at] + row);
            start_columns<N>(dp + i * N, queries.minus_delta[at] + row);
        }
        times_rows<C, N, true, S>(dv, s, d);
        times_rows_transposed<C, N, true, S>(dp, v, d);
#pragma unroll
        for (int n = 0; n < S * N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] *= dp[n][i];
        times_rows<C, N, false, S>(dk, s, q);
    }
#pragma unroll
    for (int i = 0; i < S; i++) {
        store_rows<C>(a, p, grad.dk, a.k_stride, key + 16 * i, a.n_key, dk + i * C / 8,
                      (float)a.scale);
        store_rows<C>(a, p, grad.dv, a.v_stride, key + 16 * i, a.n_key, dv + i * C / 8, 1);
    }
}

/* -- dbias */

/* Stores the chunk's sum of 16 queries and 64 keys. */
__device__ inline void store_partial_f32(const fm_attention &a, float *plane, int64_t row,
                                         int64_t first_key, const float sum[8][4]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int64_t query = row + i / 2 * 8;
            int64_t key = first_key + n * 8 + (i % 2 ? second_row(t) : first_row(t));
            if (query < a.n_query && key < a.n_key) plane[query * a.n_key + key] = sum[n][i];
        }
}

/* A warp's rows of one batch, on their way to the next turn: q is not rounded yet. */
template <int C> struct batch_rows {
    uint32_t q[C / 8][4], d[C / 8][4];
    row_terms<1> row;

    __device__ batch_rows(const fm_attention &a, const attention_space &space, tile_place p,
                          int batch)
        : row(a, space, row_of(a, p.group, batch, p.head), p.first + threadIdx.x % 32 / 4) {
        const float *from = (const float *)a.q + offset_of(a.q_stride, p.group, batch, 0, p.head);
        const float *dout =
            (const float *)space.dout + row_of(a, p.group, batch, p.head) * a.c_head;
        rows_load<C, true>(q, from, a.q_stride.row, p.first, a.n_query, (int)a.c_head);
        rows_load<C, true>(d, dout, a.c_head, p.first, a.n_query, (int)a.c_head);
    }
    __device__ void round_queries() {
#pragma unroll
        for (int j = 0; j < C / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                q[j][i] = operand_of(__uint_as_float(q[j][i]));
    }
};

/* blockIdx: x = key tile + k_tiles * query tile, y = head + n_head * group, z = chunk. */
template <int C>
__global__ void __launch_bounds__(TILE_THREADS, 2)
    tf32_dbias(fm_attention a, attention_space space) {
    extern __shared__ __align__(16) uint8_t shared[];
    f32_keys<C> &keys = *(f32_keys<C> *)shared;
    int k_tiles = (int)(space.ld_bias / TILE), key_tile = (int)blockIdx.x % k_tiles;
    int heads = (int)a.n_head, plane_index = (int)blockIdx.y, warps = (int)blockDim.x / 32;
    int strip = (int)blockIdx.x / k_tiles * warps + (int)threadIdx.x / 32;
    tile_place p = {plane_index / heads, 0, plane_index % heads, strip * 16, plane_index, 0};
    int per_chunk = (int)divide_up(a.n_batch, space.chunks), begin = (int)blockIdx.z * per_chunk;
    int end = (int)min_size(a.n_batch, begin + per_chunk);
    auto fetch = [&](int batch) {
        p.batch = batch;
        bool is_valid = a.mask && space.valid[p.group * a.n_batch + batch];
        return fetch_f32_keys<C>(a, is_valid, p, keys, (batch - begin) & 1, key_tile * TILE);
    };
    const float4 *bias =
        packed_at<1>(space.bias, p.plane, space.ld_bias_t / 16, strip, 2 * k_tiles, 2 * key_tile);
    float sum[8][4] = {};
    bool has_term = begin < end ? fetch(begin) : false, next_has_term = false;
    batch_rows<C> rows(a, space, p, min(begin, end - 1));
    for (int batch = begin; batch < end; batch++) {
        if (batch + 1 < end) {
            next_has_term = fetch(batch + 1);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        bool is_masked = __syncthreads_or(has_term);
        has_term = next_has_term;
        rows.round_queries();
        batch_rows<C> next(a, space, p, min(batch + 1, end - 1));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float s[4][4];
            queries_step<C, 1, 4>(s, a, keys, (batch - begin) & 1, half * STEP, is_masked,
                                  space.bias_factor, bias, 0, rows.q, rows.d, rows.row);
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    sum[half * 4 + n][i] += s[n][i];
        }
        rows = next;
        __syncthreads();
    }
    float *plane =
        space.dbias + (blockIdx.z * a.n_group * a.n_head + p.plane) * a.n_query * a.n_key;
    store_partial_f32(a, plane, p.first + threadIdx.x % 32 / 4, key_tile * TILE, sum);
}

/* dbias = the chunks' sums, added in order. One thread takes an element of one head, or of four
 * that are neighbours in memory; heads are fastest. */
template <int HEADS>
static void add_chunks(fm_stream *stream, const fm_attention *args, const attention_space *from,
                       fm_out dbias) {
    fm_attention a = *args;
    const float *sums = from->dbias;
    int64_t chunks = from->chunks, plane = a.n_query * a.n_key, n = a.n_group * a.n_head * plane;
    unsigned sets = (unsigned)a.n_head / HEADS, keys = (unsigned)a.n_key;
    unsigned queries = (unsigned)a.n_query;
    each(stream, n / HEADS, [=] __device__(int64_t index) {
        unsigned head = (unsigned)index % sets * HEADS, rest = (unsigned)index / sets;
        unsigned key = rest % keys, query = rest / keys % queries, group = rest / keys / queries;
        int64_t at = (group * a.n_head + head) * plane + query * a.n_key + key;
        float total[HEADS] = {};
        for (int64_t chunk = 0; chunk < chunks; chunk++)
#pragma unroll
            for (int h = 0; h < HEADS; h++)
                total[h] += sums[chunk * n + at + h * plane];
        put_pack<float, HEADS>((float *)dbias.data + group * a.bias_stride[0] +
                                   head * a.bias_stride[1] + query * a.bias_stride[2] +
                                   key * a.bias_stride[3],
                               dbias.beta, total);
    });
}

/* -- launches */

template <typename K> static void allow_shared(K kernel, size_t bytes) {
    FM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

template <int C, int S>
static void run_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                     const attention_space &space) {
    constexpr size_t BYTES = sizeof(f32_keys<C>), KEYS_BYTES = sizeof(f32_queries<C>);
    int warps = attention_tf32_warps(a);
    unsigned heads = (unsigned)(a->n_group * a->n_batch * a->n_head), threads = warps * 32u;
    unsigned q_tiles = (unsigned)divide_up(a->n_query, 16 * S * warps);
    allow_shared(tf32_dq<C, S>, BYTES);
    tf32_dq<C, S><<<heads * q_tiles, threads, BYTES, queue(stream)>>>(*a, *grad, space);
    FM_LAUNCHED();
    if (grad->dk.data || grad->dv.data) {
        unsigned blocks = heads * (unsigned)divide_up(a->n_key, TILE * S);
        allow_shared(tf32_dkv<C, S>, KEYS_BYTES);
        tf32_dkv<C, S><<<blocks, TILE_THREADS, KEYS_BYTES, queue(stream)>>>(*a, *grad, space);
        FM_LAUNCHED();
    }
    if (!a->bias || !grad->dbias.data) return;
    unsigned k_tiles = (unsigned)(space.ld_bias / TILE);
    q_tiles = (unsigned)divide_up(a->n_query, 16 * warps);
    dim3 grid(q_tiles * k_tiles, (unsigned)(a->n_group * a->n_head), (unsigned)space.chunks);
    allow_shared(tf32_dbias<C>, BYTES);
    tf32_dbias<C><<<grid, threads, BYTES, queue(stream)>>>(*a, space);
    FM_LAUNCHED();
    bool is_together = attention_tf32_heads(a, grad->dbias.data) == 4;
    (is_together ? add_chunks<4> : add_chunks<1>)(stream, a, &space, grad->dbias);
}

void attention_tf32_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                         const attention_space &space) {
    if (a->bias) attention_tf32_bias(stream, a, &space, false);
    if (a->bias) attention_tf32_bias(stream, a, &space, true);
    auto gate = a->c_head <= 16   ? gate_gradient<float, rounded_operand, 4>
                : a->c_head <= 32 ? gate_gradient<float, rounded_operand, 8>
                                  : gate_gradient<float, rounded_operand, 16>;
    bool is_long = attention_tf32_warps(a) == 4; /* then a warp has two strips */
    auto run = a->c_head <= 16   ? (is_long ? run_grad<16, 2> : run_grad<16, 1>)
               : a->c_head <= 32 ? (is_long ? run_grad<32, 2> : run_grad<32, 1>)
               : a->c_head <= 48 ? (is_long ? run_grad<48, 2> : run_grad<48, 1>)
                                 : run_grad<64, 1>;
    gate(stream, a, grad, &space);
    run(stream, a, grad, space);
}

} // namespace fm_cuda
