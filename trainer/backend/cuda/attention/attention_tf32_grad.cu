/* attention_tf32_grad.cu: gated attention of the tf32 table by mma.sync, backward.
 *
 *     gate     element by element: dout' = dout sigmoid(g), rounded to tf32, since all products
 *              take it; dg; and delta = <dout, o>.
 *     dq       a warp takes 16 queries and walks the keys: dS = P (dP - delta), dq += dS k.
 *     dkv      a warp takes 16 keys and walks the queries. It recomputes P^T and dS^T, keys down,
 *              queries across: dv += P^T dout', dk += dS^T q.
 *     dbias    a block takes 64 x 64 of (query, key) and recomputes dS there for a chunk of the
 *              batches, summed in registers; the chunks' sums are then added in order.
 *
 * Each of the three walks recomputes the logits and dP. That is 9 products instead of 7, but every
 * sum is in the registers of one warp: nothing crosses blocks, and shared memory has only tiles,
 * which all lengths fit.
 *
 * delta carries an error of the rounded operands that has the same sign for all keys of a query,
 * and would add up in dbias (see attention_mma_grad.cu). A row of dS sums to zero exactly except
 * for this error, so dq adds the row's sum to delta for the two kernels that follow it. */
#include "trainer/backend/cuda/attention/attention_tf32.cuh"

namespace fm_cuda {

/* dout', dg and delta. One thread takes four channels of a (group, batch, query, head), and LANES
 * (4, 8 or 16) neighbouring threads take a row. Heads are fastest, as in memory. */
template <int LANES>
static void gate_f32(fm_stream *stream, const fm_attention *args, const fm_attention_grad *gradient,
                     const attention_space *places) {
    fm_attention a = *args;
    fm_attention_grad grad = *gradient;
    attention_space space = *places;
    int64_t n = a.n_group * a.n_batch * a.n_query * a.n_head * LANES;
    each(stream, round_up(n, 32), [=] __device__(int64_t i) {
        unsigned heads = (unsigned)a.n_head, queries = (unsigned)a.n_query;
        unsigned index = (unsigned)(min_size(i, n - 1) / LANES), rest = index / heads;
        unsigned head = index % heads, query = rest % queries, at = rest / queries;
        unsigned batch = at % (unsigned)a.n_batch, group = at / (unsigned)a.n_batch;
        int c = (int)(i % LANES) * 4;
        bool is_inside = i < n && c < a.c_head;
        int64_t at_o = offset_of(a.o_stride, group, batch, query, head) + c;
        int64_t at_g = offset_of(a.g_stride, group, batch, query, head) + c;
        int64_t row = row_of(a, group, batch, head) + query;
        float d[4], o[4], g[4], delta = 0;
        if (is_inside) {
            load<float, 4>((const float *)grad.dout + at_o, d);
            load<float, 4>((const float *)a.o + at_o, o);
            if (a.g) load<float, 4>((const float *)a.g + at_g, g);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float product = d[j] * o[j], gate = a.g ? 1.0f / (1.0f + __expf(-g[j])) : 1.0f;
                delta += product;
                d[j] = round_operand(d[j] * gate);
                g[j] = product * (1.0f - gate);
            }
            if (a.g && grad.dg.data) {
                put_pack<float, 4>((float *)grad.dg.data + at_g, grad.dg.beta, g);
            }
            store<float, 4>((float *)space.dout + row * a.c_head + c, d);
        }
#pragma unroll
        for (int step = 1; step < LANES; step *= 2)
            delta += __shfl_xor_sync(0xffffffffu, delta, step);
        if (is_inside && c == 0) space.delta[row] = delta;
    });
}

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

/* The log-sum-exp, in log2 units, and -delta of a lane's two queries. Past the last query the
 * log-sum-exp is +inf, so the weights are 0. */
struct row_terms {
    float lse[2], minus_delta[2];

    __device__ row_terms(const fm_attention &a, const attention_space &space, int64_t base,
                         int64_t query) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            bool is_inside = query + 8 * half < a.n_query;
            int64_t at = base + query + 8 * half;
            lse[half] = is_inside ? ((const float *)a.lse)[at] * LOG2E : INFINITY;
            minus_delta[half] = is_inside ? -space.delta[at] : 0;
        }
    }
};

/* Reads the A operands of 16 queries from `first`: q and dout'. */
template <int C>
__device__ inline void query_rows(const fm_attention &a, const attention_space &space,
                                  const tile_place &p, int64_t first, uint32_t q[C / 8][4],
                                  uint32_t d[C / 8][4]) {
    rows_load<C, false>(q, (const float *)a.q + offset_of(a.q_stride, p.group, p.batch, 0, p.head),
                        a.q_stride.row, first, a.n_query, (int)a.c_head);
    rows_load<C, true>(d, (const float *)space.dout + p.row * a.c_head, a.c_head, first, a.n_query,
                       (int)a.c_head);
}

/* dS of 16 queries and STEP keys, from key STEP * half of tile copy `at`. */
template <int C>
__device__ inline void queries_step(float s[4][4], const fm_attention &a, const f32_keys<C> &keys,
                                    int at, int half, bool is_masked, float factor,
                                    const float4 *bias, const uint32_t q[C / 8][4],
                                    const uint32_t d[C / 8][4], const row_terms &row) {
    const int first = half * STEP * tile_ld<C>();
    float dp[4][4];
    start_columns<4>(s, is_masked ? keys.term[at] + half * STEP : NULL);
    times_rows_transposed<C, 4, false>(s, q, keys.k[at] + first);
    if (bias) packed_add<4>(s, factor, bias);
    weights_by_row<4>(s, slope_of(a), row.lse);
    set_rows<4>(dp, row.minus_delta[0], row.minus_delta[1]);
    times_rows_transposed<C, 4, false>(dp, d, keys.v[at] + first);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] *= dp[n][i];
}

/* -- dq */

template <int C>
__global__ void __launch_bounds__(TILE_THREADS, tf32_blocks<C>())
    tf32_dq(fm_attention a, fm_attention_grad grad, attention_space space) {
    extern __shared__ __align__(16) uint8_t shared[];
    f32_keys<C> &keys = *(f32_keys<C> *)shared;
    int rows = (int)blockDim.x / 2, tiles = (int)(space.ld_bias / TILE), warp = threadIdx.x / 32;
    tile_place p = place_of_block(a, (unsigned)divide_up(a.n_query, rows), rows);
    int64_t query = p.first + warp * 16 + threadIdx.x % 32 / 4;
    const float4 *bias = NULL;
    if (a.bias) {
        bias =
            packed_at(space.bias, p.plane, space.ld_bias_t / 16, p.first / 16 + warp, 2 * tiles, 0);
    }
    bool is_valid = find_valid<float>(a, p);
    if (a.mask && p.head == 0 && p.first == 0 && threadIdx.x == 0) {
        space.valid[p.group * a.n_batch + p.batch] = is_valid;
    }
    bool has_term = fetch_f32_keys<C>(a, is_valid, p, keys, 0, 0), next_has_term = false;
    uint32_t q[C / 8][4], d[C / 8][4];
    query_rows<C>(a, space, p, p.first + warp * 16, q, d);
    row_terms row(a, space, p.row, query);
    float dq[C / 8][4] = {}, error[2] = {0, 0};
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
        for (int half = 0; half < 2; half++) {
            float s[4][4];
            queries_step<C>(s, a, keys, tile & 1, half, is_masked, space.bias_factor,
                            bias ? bias + (2 * tile + half) * (STEP_BIAS / 4) : NULL, q, d, row);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                error[0] += s[n][0] + s[n][1];
                error[1] += s[n][2] + s[n][3];
            }
            times_rows<C, 4, false>(dq, s, keys.k[tile & 1] + half * STEP * tile_ld<C>());
        }
        __syncthreads();
    }
    store_rows<C>(a, p, grad.dq, a.q_stride, query, a.n_query, dq, (float)a.scale);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = row_sum(error[half]);
        if (threadIdx.x % 4 == 0 && query + 8 * half < a.n_query) {
            space.delta[p.row + query + 8 * half] = sum - row.minus_delta[half];
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

template <int C>
__global__ void __launch_bounds__(TILE_THREADS, tf32_blocks<C>())
    tf32_dkv(fm_attention a, fm_attention_grad grad, attention_space space) {
    extern __shared__ __align__(16) uint8_t shared[];
    f32_queries<C> &queries = *(f32_queries<C> *)shared;
    tile_place p = place_of_block(a, (unsigned)(space.ld_bias / TILE));
    int strip = p.first / 16 + threadIdx.x / 32, steps = (int)(space.ld_bias_t / STEP);
    int64_t key = (int64_t)strip * 16 + threadIdx.x % 32 / 4;
    const float4 *bias = NULL;
    if (a.bias) bias = packed_at(space.bias_t, p.plane, space.ld_bias / 16, strip, steps, 0);
    bool is_valid = a.mask && space.valid[p.group * a.n_batch + p.batch];
    float upper = mask_term<float>(a, is_valid, p, key), slope = slope_of(a);
    float lower = mask_term<float>(a, is_valid, p, key + 8);
    auto fetch = [&](int step) {
        fetch_f32_queries<C>(a, space, p, queries, step / 2 & 1, step * STEP,
                             step + 1 < steps ? TILE : STEP);
    };
    fetch(0);
    uint32_t k[C / 8][4], v[C / 8][4];
    rows_load<C, false>(k, (const float *)a.k + offset_of(a.k_stride, p.group, p.batch, 0, p.head),
                        a.k_stride.row, strip * 16, a.n_key, (int)a.c_head);
    rows_load<C, false>(v, (const float *)a.v + offset_of(a.v_stride, p.group, p.batch, 0, p.head),
                        a.v_stride.row, strip * 16, a.n_key, (int)a.c_head);
    float dk[C / 8][4] = {}, dv[C / 8][4] = {};
    for (int step = 0; step < steps; step++) {
        int at = step / 2 & 1, row = step % 2 * STEP;
        if (row == 0) {
            __syncthreads(); /* the other copy is free */
            if (step + 2 < steps) {
                fetch(step + 2);
                copies_wait<1>();
            } else {
                copies_wait<0>();
            }
            __syncthreads();
        }
        float s[4][4], dp[4][4];
        set_rows<4>(s, upper, lower);
        times_rows_transposed<C, 4, false>(s, k, queries.q[at] + row * tile_ld<C>());
        if (bias) packed_add<4>(s, space.bias_factor, bias + step * (STEP_BIAS / 4));
        weights_by_f32_column<4>(s, slope, queries.lse[at] + row);
        times_rows<C, 4, true>(dv, s, queries.d[at] + row * tile_ld<C>());
        start_columns<4>(dp, queries.minus_delta[at] + row);
        times_rows_transposed<C, 4, true>(dp, v, queries.d[at] + row * tile_ld<C>());
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] *= dp[n][i];
        times_rows<C, 4, false>(dk, s, queries.q[at] + row * tile_ld<C>());
    }
    store_rows<C>(a, p, grad.dk, a.k_stride, key, a.n_key, dk, (float)a.scale);
    store_rows<C>(a, p, grad.dv, a.v_stride, key, a.n_key, dv, 1);
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

/* blockIdx: x = key tile + k_tiles * query tile, y = head + n_head * group, z = chunk. */
template <int C>
__global__ void __launch_bounds__(TILE_THREADS, C >= 48 ? 2 : 3)
    tf32_dbias(fm_attention a, attention_space space) {
    extern __shared__ __align__(16) uint8_t shared[];
    f32_keys<C> &keys = *(f32_keys<C> *)shared;
    int k_tiles = (int)(space.ld_bias / TILE), key_tile = (int)blockIdx.x % k_tiles;
    int heads = (int)a.n_head, plane_index = (int)blockIdx.y;
    int first = (int)blockIdx.x / k_tiles * (int)blockDim.x / 2 + threadIdx.x / 32 * 16;
    tile_place p = {plane_index / heads, 0, plane_index % heads, first, plane_index, 0};
    int per_chunk = (int)divide_up(a.n_batch, space.chunks), begin = (int)blockIdx.z * per_chunk;
    int end = (int)min_size(a.n_batch, begin + per_chunk);
    auto fetch = [&](int batch) {
        p.batch = batch;
        bool is_valid = a.mask && space.valid[p.group * a.n_batch + batch];
        return fetch_f32_keys<C>(a, is_valid, p, keys, (batch - begin) & 1, key_tile * TILE);
    };
    const float4 *bias =
        packed_at(space.bias, p.plane, space.ld_bias_t / 16, first / 16, 2 * k_tiles, 2 * key_tile);
    float sum[8][4] = {};
    bool has_term = begin < end ? fetch(begin) : false, next_has_term = false;
    for (int batch = begin; batch < end; batch++) {
        if (batch + 1 < end) next_has_term = fetch(batch + 1);
        uint32_t q[C / 8][4], d[C / 8][4];
        p.batch = batch;
        p.row = row_of(a, p.group, batch, p.head);
        query_rows<C>(a, space, p, first, q, d);
        row_terms row(a, space, p.row, first + threadIdx.x % 32 / 4);
        if (batch + 1 < end) {
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        bool is_masked = __syncthreads_or(has_term);
        has_term = next_has_term;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float s[4][4];
            queries_step<C>(s, a, keys, (batch - begin) & 1, half, is_masked, space.bias_factor,
                            bias + half * (STEP_BIAS / 4), q, d, row);
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    sum[half * 4 + n][i] += s[n][i];
        }
        __syncthreads();
    }
    float *plane =
        space.dbias + (blockIdx.z * a.n_group * a.n_head + p.plane) * a.n_query * a.n_key;
    store_partial_f32(a, plane, first + threadIdx.x % 32 / 4, key_tile * TILE, sum);
}

/* -- launches */

template <typename K> static void allow_shared(K kernel, size_t bytes) {
    FM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

template <int C>
static void run_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                     const attention_space &space) {
    int warps = attention_tf32_warps(a);
    unsigned heads = (unsigned)(a->n_group * a->n_batch * a->n_head), threads = warps * 32u;
    unsigned q_tiles = (unsigned)divide_up(a->n_query, 16 * warps);
    unsigned k_tiles = (unsigned)(space.ld_bias / TILE);
    allow_shared(tf32_dq<C>, sizeof(f32_keys<C>));
    tf32_dq<C><<<heads * q_tiles, threads, sizeof(f32_keys<C>), queue(stream)>>>(*a, *grad, space);
    FM_LAUNCHED();
    if (grad->dk.data || grad->dv.data) {
        allow_shared(tf32_dkv<C>, sizeof(f32_queries<C>));
        tf32_dkv<C><<<heads * k_tiles, TILE_THREADS, sizeof(f32_queries<C>), queue(stream)>>>(
            *a, *grad, space);
        FM_LAUNCHED();
    }
    if (!a->bias || !grad->dbias.data) return;
    dim3 grid(q_tiles * k_tiles, (unsigned)(a->n_group * a->n_head), (unsigned)space.chunks);
    allow_shared(tf32_dbias<C>, sizeof(f32_keys<C>));
    tf32_dbias<C><<<grid, threads, sizeof(f32_keys<C>), queue(stream)>>>(*a, space);
    FM_LAUNCHED();
    finish_dbias<float>(stream, a, &space, grad->dbias);
}

void attention_tf32_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                         const attention_space &space) {
    if (a->bias) attention_tf32_bias(stream, a, &space, false);
    if (a->bias) attention_tf32_bias(stream, a, &space, true);
    auto gate = a->c_head <= 16 ? gate_f32<4> : a->c_head <= 32 ? gate_f32<8> : gate_f32<16>;
    auto run = a->c_head <= 16   ? run_grad<16>
               : a->c_head <= 32 ? run_grad<32>
               : a->c_head <= 48 ? run_grad<48>
                                 : run_grad<64>;
    gate(stream, a, grad, &space);
    run(stream, a, grad, space);
}

} // namespace fm_cuda
