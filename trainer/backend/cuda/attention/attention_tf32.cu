/* attention_tf32.cu: gated attention of the tf32 table by mma.sync, forward.
 *
 * The walk is that of attention_mma.cu: each warp of a block takes 16 queries of one (group, batch,
 * head), and the block walks the keys in tiles of 64 with the online softmax. The queries go from
 * memory to registers, since no other warp needs them; keys and values go through shared memory by
 * cp.async. A call with few blocks takes half as many warps per block. */
#include "trainer/backend/cuda/attention/attention_tf32.cuh"

namespace fm_cuda {

/* Stores the warp's rows of the output and their log-sum-exp. */
template <int C>
__device__ inline void store_output_f32(const fm_attention &a, const tile_place &p, float slope,
                                        const float o[C / 8][4], const float largest[2],
                                        const float total[2]) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, base = threadIdx.x / 32 * 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t query = p.first + base + g + 8 * half;
        float sum = row_sum(total[half]), inverse = 1.0f / sum;
        if (query >= a.n_query) continue;
        float *out = (float *)a.o + offset_of(a.o_stride, p.group, p.batch, query, p.head);
        const float *gate = NULL;
        if (a.g) gate = (const float *)a.g + offset_of(a.g_stride, p.group, p.batch, query, p.head);
#pragma unroll
        for (int j = 0; j < C / 16; j++) {
            int c = 16 * j + 4 * t;
            if (c >= a.c_head) continue;
            float x[4], logit[4];
            channels_of(x, o, j, half);
            if (gate) load<float, 4>(gate + c, logit);
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] *= gate ? inverse / (1.0f + __expf(-logit[i])) : inverse;
            store<float, 4>(out + c, x);
        }
        if (t == 0) ((float *)a.lse)[p.row + query] = (largest[half] * slope + log2f(sum)) * LN2;
    }
}

template <int C>
__global__ void __launch_bounds__(TILE_THREADS, tf32_blocks<C>())
    tf32_forward(fm_attention a, attention_space space) {
    extern __shared__ __align__(16) uint8_t shared[];
    f32_keys<C> &keys = *(f32_keys<C> *)shared;
    int rows = (int)blockDim.x / 2, tiles = (int)(space.ld_bias / TILE), warp = threadIdx.x / 32;
    tile_place p = place_of_block(a, (unsigned)divide_up(a.n_query, rows), rows);
    const float4 *bias = NULL;
    if (a.bias) {
        bias =
            packed_at(space.bias, p.plane, space.ld_bias_t / 16, p.first / 16 + warp, 2 * tiles, 0);
    }
    float slope = slope_of(a);
    uint32_t q[C / 8][4];
    float o[C / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
    bool is_valid = find_valid<float>(a, p);
    bool has_term = fetch_f32_keys<C>(a, is_valid, p, keys, 0, 0), next_has_term = false;
    rows_load<C, false>(q, (const float *)a.q + offset_of(a.q_stride, p.group, p.batch, 0, p.head),
                        a.q_stride.row, p.first + warp * 16, a.n_query, (int)a.c_head);
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
        float s[8][4];
        start_columns<8>(s, is_masked ? keys.term[tile & 1] : NULL);
        times_rows_transposed<C, 8, false>(s, q, keys.k[tile & 1]);
        if (bias) packed_add<8>(s, space.bias_factor, bias + tile * (STEP_BIAS / 2));
        softmax_step<C>(s, slope, o, largest, total);
        times_rows<C, 8, false>(o, s, keys.v[tile & 1]);
        __syncthreads();
    }
    store_output_f32<C>(a, p, slope, o, largest, total);
}

/* One thread gathers a lane's four values for one head, or for four heads that are neighbours in
 * memory. */
template <int HEADS>
static void pack_bias(fm_stream *stream, const fm_attention *args, float *packed, int64_t strips,
                      int64_t steps, bool is_transposed) {
    fm_attention a = *args;
    int64_t lanes = a.n_group * strips * steps * 128;
    each(stream, lanes * (a.n_head / HEADS), [=] __device__(int64_t index) {
        int64_t head = index / lanes * HEADS, rest = index % lanes;
        int lane = (int)(rest % 32), part = (int)(rest / 32 % 4);
        int64_t step = rest / 128 % steps, strip = rest / 128 / steps % strips;
        int64_t group = rest / 128 / steps / strips;
        const float *from =
            (const float *)a.bias + group * a.bias_stride[0] + head * a.bias_stride[1];
        pack<float, HEADS> in[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int64_t x = strip * 16 + lane / 4 + e / 2 * 8, y = step * STEP + part * 8;
            y += e % 2 ? second_row(lane % 4) : first_row(lane % 4);
            int64_t query = is_transposed ? y : x, key = is_transposed ? x : y;
            in[e] = {};
            if (query < a.n_query && key < a.n_key) {
                in[e] = *(const pack<float, HEADS> *)(from + query * a.bias_stride[2] +
                                                      key * a.bias_stride[3]);
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            int64_t at = ((group * a.n_head + head + h) * strips + strip) * steps + step;
            float4 out = {in[0].at[h], in[1].at[h], in[2].at[h], in[3].at[h]};
            *(float4 *)(packed + at * STEP_BIAS + (part * 32 + lane) * 4) = out;
        }
    });
}

void attention_tf32_bias(fm_stream *stream, const fm_attention *a, const attention_space *places,
                         bool is_transposed) {
    int64_t steps = (is_transposed ? places->ld_bias_t : places->ld_bias) / STEP;
    int64_t strips = (is_transposed ? places->ld_bias : places->ld_bias_t) / 16;
    float *packed = (float *)(is_transposed ? places->bias_t : places->bias);
    bool is_together = a->n_head % 4 == 0 && a->bias_stride[1] == 1 && is_aligned(a->bias) &&
                       is_whole<float>(a->bias_stride[0]) && is_whole<float>(a->bias_stride[2]) &&
                       is_whole<float>(a->bias_stride[3]);
    (is_together ? pack_bias<4> : pack_bias<1>)(stream, a, packed, strips, steps, is_transposed);
}

int attention_tf32_warps(const fm_attention *a) {
    int64_t blocks = a->n_group * a->n_batch * a->n_head * divide_up(a->n_query, TILE);
    return a->n_query <= TILE / 2 || blocks < 2 * n_multiprocessor() ? 2 : 4;
}

template <int C>
static void run_forward(fm_stream *stream, const fm_attention *a, const attention_space &space) {
    int warps = attention_tf32_warps(a);
    unsigned tiles = (unsigned)divide_up(a->n_query, 16 * warps);
    unsigned blocks = (unsigned)(a->n_group * a->n_batch * a->n_head) * tiles;
    FM_CUDA(cudaFuncSetAttribute(tf32_forward<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)sizeof(f32_keys<C>)));
    tf32_forward<C>
        <<<blocks, (unsigned)warps * 32, sizeof(f32_keys<C>), queue(stream)>>>(*a, space);
    FM_LAUNCHED();
}

void attention_tf32(fm_stream *stream, const fm_attention *a, const attention_space &space) {
    if (a->bias) attention_tf32_bias(stream, a, &space, false);
    auto run = a->c_head <= 16   ? run_forward<16>
               : a->c_head <= 32 ? run_forward<32>
               : a->c_head <= 48 ? run_forward<48>
                                 : run_forward<64>;
    run(stream, a, space);
}

} // namespace fm_cuda
