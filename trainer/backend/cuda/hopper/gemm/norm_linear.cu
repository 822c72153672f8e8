/* norm_linear.cu: a linear layer behind its LayerNorm, and a second one with few outputs of the
 * same rows, in one pass in bf16 on warp groups:
 *
 *     n = LayerNorm(x),   y = n W^T + bias,   few = n W_few^T
 *
 * for rows of C = 64 or 128 channels, N = 4 C outputs and at most 8 further ones: q k v g and the
 * pair bias of an attention. Such a product takes as long as its memory traffic, so the LayerNorm
 * and the product with W_few cost little more than reading x, which happens once.
 *
 * Both weights stay in shared memory. The warp groups of a block work independently on tiles of 64
 * rows: the copy engine brings the tile's x, and each warp reads its 16 rows as the left operand. A
 * row is then in four lanes, so that its statistics are two exchanges, and the operand is
 * normalised in registers. The outputs are made 128 at a time, and each warp stores 16 rows by 64
 * of them through shared memory. While one group stores its outputs, the others multiply. */
#include "trainer/backend/cuda/core/keep.cuh"
#include "trainer/backend/cuda/hopper/core/bulk.cuh"
#include "trainer/backend/cuda/hopper/core/wgmma.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

enum { MOST_FEW = 8, CHUNK = 128 };

template <int C> struct norm_linear_shape {
    static constexpr int N = 4 * C, GROUPS = C == 128 ? 3 : 4, THREADS = GROUPS * GROUP_THREADS;
};

struct norm_linear_call {
    box_map w, few, x, y; /* boxes of 64 columns by 128 rows, 8, 64 and 16 */
    const bf16 *gamma, *beta, *bias;
    bf16 *few_y;
    float eps;
    int rows, tiles, n_few, bias_first;
};

template <int C> struct norm_linear_space {
    typedef norm_linear_shape<C> S;
    bf16 w[S::N * C], few[MOST_FEW * C], x[S::GROUPS][GROUP_ROWS * C];
    bf16 stage[S::GROUPS * 4][2][16 * 64];
    uint64_t weights, full[S::GROUPS];
};

/* One thread of a group: asks for the rows of a tile, if there is one. */
template <int C>
__device__ inline void norm_linear_fetch(const norm_linear_call &p, norm_linear_space<C> *s,
                                         int group, int tile) {
    if (tile >= p.tiles) return;
    uint32_t full = shared_address(&s->full[group]);
    barrier_expect(full, sizeof s->x[0]);
    box_place at = {tile * GROUP_ROWS, 0, 0, 0, 0};
    for (int k = 0; k < C / 64; k++, at.column += 64)
        box_load(shared_address(s->x[group] + k * GROUP_ROWS * 64), p.x, at, full);
}

/* One thread: asks for both weights. */
template <int C>
__device__ inline void norm_linear_fetch_weights(const norm_linear_call &p,
                                                 norm_linear_space<C> *s) {
    constexpr int N = norm_linear_shape<C>::N;
    uint32_t weights = shared_address(&s->weights);
    barrier_expect(weights, sizeof s->w + (p.n_few ? sizeof s->few : 0));
    for (int k = 0; k < C / 64; k++) {
        for (int n = 0; n < N; n += CHUNK)
            box_load(shared_address(s->w + (k * N + n) * 64), p.w, {n, 0, 0, 0, k * 64}, weights);
        if (!p.n_few) continue;
        box_load(shared_address(s->few + k * MOST_FEW * 64), p.few, {0, 0, 0, 0, k * 64}, weights);
    }
}

/* Normalises this lane's parts of two rows, which are the left operand. Word 2 j + i of step k
 * holds columns 16 k + 8 j + 2 t and the next one of row g + 8 i (t = lane % 4, g = lane / 4). */
template <int C>
__device__ inline void normalise_operand(uint32_t (&a)[C / 16][4], const norm_linear_call &p) {
    float total[2] = {0, 0}, squares[2] = {0, 0}, rstd[2];
#pragma unroll
    for (int k = 0; k < C / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 x = unpack_two(a[k][i]);
            total[i % 2] += x.x + x.y;
        }
    const float mean[2] = {row_sum(total[0]) * (1.0f / C), row_sum(total[1]) * (1.0f / C)};
#pragma unroll
    for (int k = 0; k < C / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 x = unpack_two(a[k][i]);
            x.x -= mean[i % 2], x.y -= mean[i % 2];
            squares[i % 2] += x.x * x.x + x.y * x.y;
        }
#pragma unroll
    for (int i = 0; i < 2; i++)
        rstd[i] = 1.0f / sqrtf(row_sum(squares[i]) * (1.0f / C) + p.eps);
#pragma unroll
    for (int k = 0; k < C / 16; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int at = (k * 16 + j * 8) / 2 + threadIdx.x % 4;
            float2 gamma = unpack_two(__ldg((const uint32_t *)p.gamma + at));
            float2 beta = unpack_two(__ldg((const uint32_t *)p.beta + at));
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float2 x = unpack_two(a[k][2 * j + i]);
                a[k][2 * j + i] = pack_two((x.x - mean[i]) * rstd[i] * gamma.x + beta.x,
                                           (x.y - mean[i]) * rstd[i] * gamma.y + beta.y);
            }
        }
}

/* few for the lane's rows `row` and `row` + 8. */
template <int C>
__device__ inline void make_few(const norm_linear_call &p, const norm_linear_space<C> *s,
                                const uint32_t (&a)[C / 16][4], int row) {
    float d[1][4];
    int column = threadIdx.x % 4 * 2;
    products_begin();
#pragma unroll
    for (int k = 0; k < C / 16; k++) {
        uint64_t w = tile_operand<64, K_MAJOR>(s->few + k / 4 * MOST_FEW * 64);
        wgmma<K_MAJOR>(d, a[k], operand_after(w, k % 4 * 16), k > 0);
    }
    products_commit();
    products_wait<0>(d);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t two = pack_two(d[0][2 * half], d[0][2 * half + 1]);
        bool is_there = column < p.n_few && row + half * 8 < p.rows;
        int64_t at = (int64_t)(row + half * 8) * p.n_few + column;
        if (is_there) *(uint32_t *)(p.few_y + at) = two;
    }
    __syncwarp();
}

/* Adds the bias to 64 outputs from `first` on and stores them; stage: which of the warp's. */
template <int C>
__device__ inline void store_outputs(const norm_linear_call &p, norm_linear_space<C> *s,
                                     const float (*d)[4], int row, int first, int stage) {
    bf16 *tile = s->stage[threadIdx.x / 32][stage];
    uint32_t bias[8];
    bool has_bias = p.bias && first + 64 > p.bias_first;
#pragma unroll
    for (int n = 0; n < 8; n++)
        bias[n] =
            has_bias ? __ldg((const uint32_t *)(p.bias + first + n * 8) + threadIdx.x % 4) : 0;
    if (threadIdx.x % 32 == 0) stores_wait_but_one();
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t out[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 b = unpack_two(bias[2 * k + i / 2]);
            const float *pair = d[2 * k + i / 2] + i % 2 * 2;
            out[i] = pack_two(pair[0] + b.x, pair[1] + b.y);
        }
        tile_put<64>(tile, 0, 2 * k, out);
    }
    tiles_publish();
    __syncwarp();
    if (threadIdx.x % 32 == 0) box_store(p.y, {row, 0, 0, 0, first}, shared_address(tile));
    __syncwarp(); /* the next products need the whole warp */
}

template <int C>
__global__ void __launch_bounds__(norm_linear_shape<C>::THREADS, 1)
    wgmma_norm_linear(const __grid_constant__ norm_linear_call p) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    typedef norm_linear_shape<C> S;
    norm_linear_space<C> *space = (norm_linear_space<C> *)memory;
    int group = threadIdx.x / GROUP_THREADS, stride = gridDim.x * S::GROUPS;
    bool is_first = threadIdx.x % GROUP_THREADS == 0;
    if (threadIdx.x == 0) {
        barrier_init(shared_address(&space->weights), 1);
        for (int i = 0; i < S::GROUPS; i++)
            barrier_init(shared_address(&space->full[i]), 1);
        barriers_publish();
        norm_linear_fetch_weights<C>(p, space);
    }
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    int tile = blockIdx.x + group * gridDim.x;
    if (is_first) norm_linear_fetch<C>(p, space, group, tile);
    barrier_wait(shared_address(&space->weights), 0);
    for (uint32_t phase = 0; tile < p.tiles; tile += stride, phase ^= 1) {
        int warp_row = threadIdx.x / 32 % 4 * 16, row = tile * GROUP_ROWS + warp_row;
        uint32_t a[C / 16][4];
        barrier_wait(shared_address(&space->full[group]), phase);
#pragma unroll
        for (int k = 0; k < C / 16; k += 4)
            tile_rows<64>(a + k, space->x[group] + k * 16 * GROUP_ROWS, warp_row);
        tiles_publish(); /* the copy engine overwrites the rows that were read here */
        asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
        if (is_first) norm_linear_fetch<C>(p, space, group, tile + stride);
        __syncwarp();
        if (p.gamma) normalise_operand<C>(a, p);
        if (p.n_few) make_few<C>(p, space, a, row + threadIdx.x % 32 / 4);
#pragma unroll 1
        for (int first = 0; first < S::N; first += CHUNK) {
            float d[CHUNK / 8][4];
            products_begin();
#pragma unroll
            for (int k = 0; k < C / 16; k++) {
                const bf16 *w = space->w + (k / 4 * S::N + first) * 64;
                wgmma<K_MAJOR>(d, a[k], operand_after(tile_operand<64, K_MAJOR>(w), k % 4 * 16),
                               k > 0);
            }
            products_commit();
            products_wait<0>(d);
            store_outputs<C>(p, space, d, row, first, 0);
            store_outputs<C>(p, space, d + 8, row, first + 64, 1);
        }
    }
    if (threadIdx.x % 32 == 0) stores_wait();
}

/* -- calls */

static box_map boxes_of(const void *base, int64_t columns, int64_t rows, int rows_of_box) {
    const int64_t extent[5] = {columns, rows, 1, 1, 1}, stride[4] = {columns, 0, 0, 0};
    return make_boxes(base, extent, stride, 64, rows_of_box);
}

template <int C> static void norm_linear_as(fm_stream *stream, const fm_norm_linear *a) {
    typedef norm_linear_shape<C> S;
    constexpr int BYTES = (int)sizeof(norm_linear_space<C>);
    FM_CUDA(cudaFuncSetAttribute(wgmma_norm_linear<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 BYTES));
    assert(is_aligned(a->x) && is_aligned(a->w) && is_aligned(a->bias) && is_aligned(a->y));
    assert(is_aligned(a->gamma) && is_aligned(a->beta) && is_aligned(a->few.w));
    norm_linear_call p = {};
    p.w = boxes_of(a->w, C, S::N, CHUNK), p.x = boxes_of(a->x, C, a->rows, GROUP_ROWS);
    p.y = boxes_of(a->y, S::N, a->rows, 16);
    if (a->few.n) p.few = boxes_of(a->few.w, C, a->few.n, MOST_FEW);
    p.gamma = (const bf16 *)a->gamma, p.beta = (const bf16 *)a->beta;
    p.bias = (const bf16 *)a->bias, p.bias_first = (int)a->bias_first;
    p.few_y = (bf16 *)a->few.y, p.n_few = (int)a->few.n;
    p.eps = (float)a->eps, p.rows = (int)a->rows;
    p.tiles = (int)divide_up(a->rows, GROUP_ROWS);
    int64_t blocks = min_size(n_multiprocessor(), divide_up(p.tiles, S::GROUPS));
    launch_after(stream, wgmma_norm_linear<C>, (unsigned)blocks, S::THREADS, BYTES, true, p);
    FM_LAUNCHED();
}

bool norm_linear_takes(const fm_norm_linear *a) {
    enum { FEWEST_ROWS = 4096 };
    return (a->c_in == 64 || a->c_in == 128) && a->c_out == 4 * a->c_in && a->few.n <= MOST_FEW &&
           a->few.n % 2 == 0 && a->rows >= FEWEST_ROWS && a->rows < 1 << 28;
}

void norm_linear_wgmma(fm_stream *stream, const fm_norm_linear *a) {
    if (a->c_in == 64) {
        norm_linear_as<64>(stream, a);
    } else {
        norm_linear_as<128>(stream, a);
    }
}

} // namespace fm_cuda
