/* triangle_weights.cu: the whole sublayer of triangle multiplication (A11, A12), backward: the
 * gradients of weights, biases and LayerNorms, from the outputs of the kernels of
 * triangle_block_grad.cu.
 *
 *     product     G = dprojected^T u (five jobs of c rows) and G = dp'^T x (the sixth). A block
 *                 sums one job over a share of the rows, fed by the copy engine, in registers. With
 *                 c_z < c, the rows and columns from c_z on are zeros, which the copy engine makes
 *                 outside an array.
 *     parameters  adds up the shares in a fixed order, and computes the gradients of weights and
 *                 biases and each row's part of those of the LayerNorms
 *     norms       adds up those parts
 *
 * A LayerNorm's gamma and beta get their gradients from the projection behind it, without another
 * pass over the rows. With u = (z - mean) / deviation and y = W (gamma u + beta) + bias,
 *
 *     G = sum over rows of dy^T u          s = sum over rows of dy
 *
 *     dW = gamma G + s beta^T              dgamma[c] = sum over o of W[o, c] G[o, c]
 *     dbias = s                            dbeta = W^T s
 *
 * For the output projection u is (x - mean) / deviation. dp' already has the factor 1 / deviation,
 * so x needs no normalised copy: G = dp'^T x - sum over rows of dp' mean, and s = sum of dp'
 * deviation.
 *
 * The sums over rows come from EXTRA_COLUMNS further columns of the products: of ones for
 * dprojected; of x's mean and deviation, each in three bf16 parts, for dp' (triangle_block.cu). */
#include "trainer/backend/cuda/hopper/core/ring.cuh"
#include "trainer/backend/cuda/hopper/pair/triangle_block.cuh"

namespace fm_cuda {

/* MAX_SHARES is how many blocks per job fill the 132 multiprocessors of an H100. It is a constant,
 * because triangle_parameters keeps that many numbers in registers; larger devices use no more. */
enum { JOBS = 6, MAX_SHARES = 22, STAGES = 6, TILE_ELEMENTS = 64 * 64 };

/* -- product */

struct product_args {
    box_map dprojected, u, dp, x; /* 64 rows by 64 channels; x: 64 rows of all its channels */
    float *sums;                  /* [shares, 6 C, C + EXTRA_COLUMNS] */
    int shares, steps;            /* steps of 64 rows */
};

template <int C> struct product_stage { bf16 d[C * 64], u[C * 64], extra[EXTRA_COLUMNS * 64]; };
template <int C> struct product_space {
    product_stage<C> stage[STAGES];
    copy_ring<STAGES> barriers;
};

/* The fetching thread. A share is every `shares`-th step of 64 rows, from the last step down. All
 * shares thus read the newest data first, while the L2 cache holds it. What is read once leaves the
 * cache first; u stays, which five jobs read. */
template <int C> __device__ inline void product_fetch(const product_args &p, product_space<C> *s) {
    int job = blockIdx.x % JOBS, step = p.steps - 1 - blockIdx.x / JOBS;
    bool is_out = job == 5;
    constexpr uint32_t BYTES = 2 * C * 64 * sizeof(bf16),
                       FURTHER = EXTRA_COLUMNS * 64 * sizeof(bf16);
    for (ring_place<STAGES> ring = {0, 1}; step >= 0; step -= p.shares, ring.next()) {
        product_stage<C> *stage = &s->stage[ring.slot];
        uint32_t full = s->barriers.fill(ring.slot, ring.phase, BYTES + (is_out ? FURTHER : 0));
        for (int i = 0; i < C / 64; i++) {
            uint32_t d = shared_address(stage->d + i * TILE_ELEMENTS);
            box_place at = {step * 64, 0, 0, 0, (is_out ? 0 : job * C) + i * 64};
            box_load_once(d, is_out ? p.dp : p.dprojected, at, full);
            at.column = i * 64;
            if (!is_out) box_load(shared_address(stage->u + i * TILE_ELEMENTS), p.u, at, full);
        }
        const box_place lines = {0, 0, 0, 0, step * 64};
        if (is_out) box_load_once(shared_address(stage->u), p.x, lines, full);
    }
}

/* Adds 64 rows to the group's 64 channels of d times C of u, which is [rows, C], or with IS_OUT
 * [C, rows]. */
template <int C, bool IS_OUT>
__device__ inline void product_step(const product_stage<C> &stage, int group,
                                    float (&acc)[C / 8][4], float (&extra)[1][4]) {
    uint64_t d = tile_operand<64, MN_MAJOR>(stage.d + group * TILE_ELEMENTS);
    uint64_t u = IS_OUT ? tile_operand<64, K_MAJOR>(stage.u)
                        : tile_operand<64, MN_MAJOR>(stage.u, TILE_ELEMENTS);
    uint64_t further = tile_operand<64, K_MAJOR>(stage.extra);
    products_begin();
#pragma unroll
    for (int s = 0; s < 4; s++) {
        uint64_t a = operand_after(d, s * 16 * 64);
        if constexpr (IS_OUT) {
            wgmma<MN_MAJOR, K_MAJOR>(acc, a, operand_after(u, s * 16), true);
        } else {
            wgmma<MN_MAJOR, MN_MAJOR>(acc, a, operand_after(u, s * 16 * 64), true);
        }
        wgmma<MN_MAJOR, K_MAJOR>(extra, a, operand_after(further, s * 16), true);
    }
    products_commit();
}

/* A computing warp: the sum of its share, then its store. */
template <int C, bool IS_OUT>
__device__ inline void product_sum(const product_args &p, product_space<C> *space) {
    int job = blockIdx.x % JOBS, share = blockIdx.x / JOBS, lane = threadIdx.x % 32;
    int step = p.steps - 1 - share;
    int group = threadIdx.x / GROUP_THREADS;
    float acc[C / 8][4] = {}, extra[1][4] = {};
    ring_place<STAGES> ring;
#pragma unroll 1
    for (int before = -1; step >= 0; step -= p.shares) {
        space->barriers.wait(ring.slot, ring.phase);
        product_step<C, IS_OUT>(space->stage[ring.slot], group, acc, extra);
        products_wait<1>();
        if (before >= 0 && lane == 0) space->barriers.free(before);
        before = ring.slot, ring.next();
    }
    products_wait<0>(acc);
    products_pin(extra);
    constexpr int LD = C + EXTRA_COLUMNS;
    int g = lane / 4, t = lane % 4, row = threadIdx.x / 32 * 16 + g;
    float *to = p.sums + ((int64_t)(share * JOBS + job) * C + row) * LD + 2 * t;
#pragma unroll
    for (int n = 0; n < C / 8; n++) {
        *(float2 *)(to + 8 * n) = make_float2(acc[n][0], acc[n][1]);
        *(float2 *)(to + 8 * LD + 8 * n) = make_float2(acc[n][2], acc[n][3]);
    }
    *(float2 *)(to + C) = make_float2(extra[0][0], extra[0][1]);
    *(float2 *)(to + 8 * LD + C) = make_float2(extra[0][2], extra[0][3]);
}

/* One warp group per 64 channels of d, and a warp whose first thread fetches. */
template <int C>
__global__ void __launch_bounds__(2 * C + 32, 1)
    wgmma_triangle_weights(const __grid_constant__ product_args p) {
    extern __shared__ __align__(1024) char shared[];
    product_space<C> *space = (product_space<C> *)shared;
    bool is_out = blockIdx.x % JOBS == 5;
    if (threadIdx.x == 0) {
        space->barriers.begin(2 * C / 32);
        barriers_publish();
    }
    for (int i = threadIdx.x; !is_out && i < STAGES * EXTRA_COLUMNS * 64; i += 2 * C + 32) {
        int at = i % (EXTRA_COLUMNS * 64); /* one line of ones, which looks the same swizzled */
        space->stage[i / (EXTRA_COLUMNS * 64)].extra[at] = __float2bfloat16_rn(at < 64);
    }
    tiles_publish();
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    if (threadIdx.x >= 2 * C) {
        if (threadIdx.x == 2 * C) product_fetch<C>(p, space);
    } else if (is_out) {
        product_sum<C, true>(p, space);
    } else {
        product_sum<C, false>(p, space);
    }
}

/* -- parameters */

struct weights_args {
    const float *sums; /* [shares, 6 C, C + EXTRA_COLUMNS] */
    float *norms;      /* [6 C / LINES, 2 C]: parts of the LayerNorms' gradients */
    int shares, c_z;
    const bf16 *projections, *w_out; /* the weights */
    const bf16 *norm_in, *norm_out;
    fm_triangle_block_grad grad;
};

__device__ inline void put_float(fm_out out, int64_t at, float value) {
    if (out.data) put((float *)out.data + at, out.beta, value);
}

/* Rows of a block, floats of a load, and the threads that share a pack's sum over the shares. */
enum { LINES = 4, PACK = 4, PARTS = 2, PART = MAX_SHARES / PARTS };
template <int C> constexpr int PACKS = LINES *(C + EXTRA_COLUMNS) / PACK;

/* One block takes LINES rows of the fused projection's weight or of the output's. It adds up the
 * shares, stores the gradients of weight and bias, and stores these rows' part of dgamma and dbeta
 * in w.norms. */
template <int C>
__global__ void __launch_bounds__(PARTS *PACKS<C>) triangle_parameters(const weights_args w) {
    constexpr int LD = C + EXTRA_COLUMNS;
    __shared__ float4 parts[PARTS][PACKS<C>];
    int row = blockIdx.x * LINES, part = threadIdx.x / PACKS<C>, pack = threadIdx.x % PACKS<C>;
    bool is_out = row >= 5 * C;
    wait_for_previous();
    let_next_begin();
    const float4 *from = (const float4 *)(w.sums + row * LD) + pack;
    float4 x[PART], total = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < PART; i++)
        x[i] = part * PART + i < w.shares ? from[(part * PART + i) * (JOBS * C * LD / PACK)]
                                          : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < PART; i++)
        total.x += x[i].x, total.y += x[i].y, total.z += x[i].z, total.w += x[i].w;
    parts[part][pack] = total;
    __syncthreads();
    float *sum = (float *)parts;
    for (int i = threadIdx.x; i < LINES * LD; i += PARTS * PACKS<C>)
        sum[i] += sum[LINES * LD + i];
    __syncthreads();
    const int width = is_out ? C : w.c_z; /* of the weight's rows */
    const bool is_padding = row >= 4 * C && row % C >= w.c_z;
    if (is_out) row -= 5 * C;
    const bf16 *weight = is_out ? w.w_out : w.projections, *norm = is_out ? w.norm_out : w.norm_in;
    fm_out dweight = is_out ? w.grad.dout : w.grad.dprojections;
    fm_out dbias = is_out ? w.grad.dout_bias : w.grad.dprojections_bias;
    for (int c = threadIdx.x; c < width; c += PARTS * PACKS<C>) {
        float gamma = get(norm[c]), beta = get(norm[width + c]), dgamma = 0, dbeta = 0;
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            if (is_padding) break;
            const float *line = sum + i * LD, *extra = line + C;
            float mean = is_out ? extra[0] + extra[1] + extra[2] : 0;
            float bias = is_out ? extra[3] + extra[4] + extra[5] : extra[0];
            float product = line[c] - mean, w_rc = get(weight[(row + i) * width + c]);
            put_float(dweight, (row + i) * width + c, gamma * product + bias * beta);
            if (c == 0) put_float(dbias, row + i, bias);
            dgamma += w_rc * product;
            dbeta += w_rc * bias;
        }
        float *to = w.norms + (int64_t)blockIdx.x * 2 * C + c;
        to[0] = dgamma, to[C] = dbeta;
    }
}

enum { NORM_COLUMNS = 32, NORM_SLICES = 32 };

/* Adds up the parts of the first LayerNorm's gradients, then of the second one's. One block takes
 * NORM_COLUMNS columns; each warp takes a slice of the parts. */
template <int C>
__global__ void __launch_bounds__(NORM_COLUMNS *NORM_SLICES) triangle_norms(const weights_args w) {
    __shared__ float slices[NORM_SLICES][NORM_COLUMNS];
    const bool is_out = blockIdx.x >= 2 * C / NORM_COLUMNS;
    int slice = threadIdx.x / NORM_COLUMNS, column = blockIdx.x * NORM_COLUMNS % (2 * C);
    column += threadIdx.x % NORM_COLUMNS;
    const int parts = (is_out ? 1 : 5) * C / LINES, first = is_out ? 5 * C / LINES : 0;
    float total = 0;
    wait_for_previous();
#pragma unroll 5
    for (int i = slice; i < parts; i += NORM_SLICES)
        total += w.norms[(int64_t)(first + i) * 2 * C + column];
    slices[slice][threadIdx.x % NORM_COLUMNS] = total;
    __syncthreads();
    if (slice > 0) return;
    for (int i = 1; i < NORM_SLICES; i++)
        total += slices[i][threadIdx.x];
    const int width = is_out ? C : w.c_z, c = column % C;
    if (c < width) {
        put_float(is_out ? w.grad.dnorm_out : w.grad.dnorm_in, column / C * width + c, total);
    }
}

/* -- launches */

size_t block_weights_sums(int64_t c) {
    return JOBS * (size_t)c * (size_t)(MAX_SHARES * (c + EXTRA_COLUMNS) + 2 * c / LINES);
}

static box_map boxes_of(const bf16 *base, int64_t columns, int64_t rows, int box_rows) {
    const int64_t extent[5] = {columns, rows, 1, 1, 1}, stride[4] = {columns, 0, 0, 0};
    return make_boxes(base, extent, stride, 64, box_rows);
}

template <int C>
static void weights_of(fm_stream *stream, const fm_triangle_block *t,
                       const fm_triangle_block_grad *grad, const weights_inputs &from,
                       float *sums) {
    int64_t rows = block_rows(t), c_z = t->c_z;
    product_args p;
    p.dprojected = boxes_of(from.dprojected, 4 * C + c_z, rows, 64);
    p.u = boxes_of(from.u, c_z, rows, 64), p.dp = boxes_of(from.dp, c_z, rows, 64);
    p.x = boxes_of(block_kept_at(t, t->kept).x, rows, C + EXTRA_COLUMNS, C + EXTRA_COLUMNS);
    p.sums = sums, p.steps = (int)(rows / 64),
    p.shares = (int)min_size(min_size(MAX_SHARES, n_multiprocessor() / JOBS), p.steps);
    allow_shared(wgmma_triangle_weights<C>, sizeof(product_space<C>));
    launch_after(stream, wgmma_triangle_weights<C>, (unsigned)(p.shares * JOBS), 2 * C + 32,
                 sizeof(product_space<C>), true, p);
    FM_LAUNCHED();
    weights_args w = {};
    w.sums = sums, w.shares = p.shares, w.c_z = (int)c_z;
    w.norms = sums + (int64_t)p.shares * JOBS * C * (C + EXTRA_COLUMNS);
    w.projections = (const bf16 *)t->projections, w.w_out = (const bf16 *)t->out;
    w.norm_in = (const bf16 *)t->norm_in, w.norm_out = (const bf16 *)t->norm_out;
    w.grad = *grad;
    launch_after(stream, triangle_parameters<C>, JOBS * C / LINES, PARTS * PACKS<C>, 0, true, w);
    FM_LAUNCHED();
    launch_after(stream, triangle_norms<C>, 4 * C / NORM_COLUMNS, NORM_COLUMNS * NORM_SLICES, 0,
                 true, w);
    FM_LAUNCHED();
}

void block_weights(fm_stream *stream, const fm_triangle_block *t,
                   const fm_triangle_block_grad *grad, const weights_inputs &from, float *sums) {
    if (t->c == 64) {
        weights_of<64>(stream, t, grad, from, sums);
    } else {
        weights_of<128>(stream, t, grad, from, sums);
    }
}

} // namespace fm_cuda
