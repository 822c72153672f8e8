/* weights.cu: the gradients of a linear layer's weight and bias, in bf16 on warp groups:
 *
 *     C[m, n] = sum over k rows r of A[r, m] B[r, n] + beta C     A = dy, B = x, C = dW (f32)
 *     sum[i] (+)= sum over k rows r of A[r, sum_first + i]        the gradient of the bias
 *
 * for many rows and few columns. Such a product takes as long as it takes to read A and B once, so
 * the sums are made in the same pass.
 *
 *     product     A block sums one tile of C over a share of the rows, fed by the copy engine, in
 *                 registers. There are about as many blocks as multiprocessors.
 *     sums.cu     adds up the shares in order, and writes C and sum
 *
 * Both operands of the products are tiles of 64 rows by 64 columns whose rows are summed over
 * (MN_MAJOR). The sums of A's columns are one more product, with a matrix of ones; only the blocks
 * of the first column of tiles of C make them. They take longer for a row. So with the largest
 * tiles, multiprocessors that would have no block take further shares of those.
 *
 * Two products over the same rows may share a launch. Each then has half of the blocks, so that
 * large tiles leave no more partial sums than small ones of one product. */
#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/hopper/core/ring.cuh"
#include "trainer/backend/cuda/hopper/core/wgmma.cuh"
#include "trainer/backend/cuda/hopper/gemm/weights.cuh"

namespace fm_cuda {

/* A slice adds at most SLICE_SHARES shares, unless there are MOST_SLICES. */
enum { MOST_SLICES = 16, SLICE_SHARES = 9 };
enum { STEP_ROWS = 64, TILE_ELEMENTS = STEP_ROWS * 64, ONES_COLUMNS = 8 };

/* -- shapes */

/* The tiles of C are of groups * 64 rows by `columns`. */
struct weights_shape {
    int groups, columns, row_tiles, column_tiles, shares;
    int first_sum, more; /* tiles [first_sum, row_tiles) have sums and `more` further shares each */
    int tiles() const {
        return row_tiles * column_tiles;
    }
    int blocks() const {
        return tiles() * shares + (row_tiles - first_sum) * more;
    }
    /* Says which tiles have sums; `spare` multiprocessors have no block. */
    void find_sums(const fm_gemm *g, int spare) {
        first_sum = g->sum.data ? (int)(g->sum_first / (groups * 64)) : row_tiles;
        bool takes_more = first_sum < row_tiles && columns == 256;
        int64_t most = divide_up(shares, 4);
        more = takes_more ? (int)min_size(spare / (row_tiles - first_sum), most) : 0;
    }
};

/* Each block writes a tile of partial sums, so small tiles make the finish short. Large tiles read
 * A and B seldom, which matters where C has many tiles, and the largest where there are many rows,
 * too. The sizes at which larger tiles pay were measured (docs/notes/cuda-versions.md). */
enum { SMALL = 128 * 128, LARGE = 1024 * 256, MANY_ROWS = 131072, FEWEST_ROWS = 2048 };
static weights_shape shape_of(const fm_gemm *g) {
    int64_t size = g->m * g->n;
    weights_shape s;
    s.columns = g->n % 128 == 0 && size > SMALL ? 128 : 64;
    s.groups = g->m % 128 == 0 && s.columns == 128 && size >= LARGE ? 2 : 1;
    if (s.groups == 2 && g->n % 256 == 0 && g->k >= MANY_ROWS) s.columns = 256;
    s.row_tiles = (int)(g->m / (s.groups * 64)), s.column_tiles = (int)(g->n / s.columns);
    s.shares = (int)min_size(n_multiprocessor() / s.tiles(), divide_up(g->k, STEP_ROWS));
    s.find_sums(g, n_multiprocessor() - s.tiles() * s.shares);
    return s;
}

/* Two products of one launch, the first of which may have sums. */
struct weights_shapes {
    weights_shape of[2];
};
static weights_shapes shapes_of(const fm_gemm *first, const fm_gemm *second) {
    weights_shapes s;
    for (int i = 0; i < 2; i++) {
        const fm_gemm *g = i > 0 ? second : first;
        s.of[i].groups = 2, s.of[i].columns = 256;
        s.of[i].row_tiles = (int)(g->m / 128), s.of[i].column_tiles = (int)(g->n / 256);
    }
    int tiles = s.of[0].tiles() + s.of[1].tiles();
    int shares = (int)min_size(n_multiprocessor() / tiles, divide_up(first->k, STEP_ROWS));
    s.of[0].shares = s.of[1].shares = shares;
    s.of[0].find_sums(first, n_multiprocessor() - tiles * shares);
    s.of[1].find_sums(second, 0);
    return s;
}

/* -- product */

struct weights_job {
    box_map a, b;   /* 64 rows by 64 columns */
    float *partial; /* by shares: the tiles of C (weights_sum), then the sums of A's columns [m] */
    int64_t share_size;
    int m, n, row_tiles, tiles, shares;
    int first_sum, more; /* as in weights_shape */
};
struct weights_call {
    weights_job job[2];
    int first_blocks, steps; /* blocks of the first job; steps of 64 rows */
};

/* The block's part of the work: steps share, share + shares, ... of a tile, counted from the last
 * one. */
struct weights_place {
    int tile, share, shares;
    bool has_sum;
};

__device__ inline bool is_second(const weights_call &w) {
    return (int)blockIdx.x >= w.first_blocks;
}
__device__ inline const weights_job &job_of_block(const weights_call &w) {
    return w.job[is_second(w)];
}

__device__ inline weights_place weights_place_of(const weights_call &w) {
    const weights_job &j = job_of_block(w);
    int block = (int)blockIdx.x - (is_second(w) ? w.first_blocks : 0);
    int plain = j.tiles * j.shares, summed = j.row_tiles - j.first_sum;
    weights_place p = {block % j.tiles, block / j.tiles, j.shares, false};
    if (block >= plain) {
        p.tile = j.first_sum + (block - plain) % summed;
        p.share = j.shares + (block - plain) / summed;
    }
    p.has_sum = p.tile >= j.first_sum && p.tile < j.row_tiles;
    if (p.has_sum) p.shares += j.more;
    return p;
}

template <int GROUPS, int N> struct weights_space {
    static constexpr int STAGES = GROUPS + N / 64 <= 3 ? 8 : N == 256 ? 4 : 6;
    struct {
        bf16 a[GROUPS * TILE_ELEMENTS], b[N / 64 * TILE_ELEMENTS];
    } stage[STAGES];
    bf16 ones[ONES_COLUMNS * 64];
    copy_ring<STAGES> barriers;
};

/* The fetching thread. A share is every `shares`-th step of 64 rows, from the last step down: what
 * was written last is read first, while the L2 cache holds it. Slot and phase follow the ring. */
template <int GROUPS, int N>
__device__ inline void weights_fetch(const weights_call &w, weights_space<GROUPS, N> *s) {
    constexpr uint32_t BYTES = sizeof s->stage[0];
    const weights_job &j = job_of_block(w);
    weights_place p = weights_place_of(w);
    int row0 = p.tile % j.row_tiles * GROUPS * 64, column0 = p.tile / j.row_tiles * N;
    for (int step = w.steps - 1 - p.share, slot = 0, phase = 1; step >= 0; step -= p.shares) {
        uint32_t full = s->barriers.fill(slot, (uint32_t)phase, BYTES);
        box_place at = {step * STEP_ROWS, 0, 0, 0, row0};
        for (int i = 0; i < GROUPS; i++, at.column += 64)
            box_load(shared_address(s->stage[slot].a + i * TILE_ELEMENTS), j.a, at, full);
        at.column = column0;
        for (int i = 0; i < N / 64; i++, at.column += 64)
            box_load(shared_address(s->stage[slot].b + i * TILE_ELEMENTS), j.b, at, full);
        if (++slot == s->STAGES) slot = 0, phase ^= 1;
    }
}

/* A computing warp: the sum of its share, then its store. */
template <int GROUPS, int N, bool HAS_SUM>
__device__ inline void weights_sum(const weights_call &w, weights_space<GROUPS, N> *s) {
    weights_place p = weights_place_of(w);
    int lane = threadIdx.x % 32;
    int group = threadIdx.x / GROUP_THREADS;
    float acc[N / 8][4] = {}, sum[1][4] = {};
    uint64_t ones = tile_operand<64, K_MAJOR>(s->ones);
#pragma unroll 1
    for (int step = w.steps - 1 - p.share, slot = 0, before = -1, phase = 0; step >= 0;
         step -= p.shares) {
        s->barriers.wait(slot, (uint32_t)phase);
        uint64_t a = tile_operand<64, MN_MAJOR>(s->stage[slot].a + group * TILE_ELEMENTS);
        uint64_t b = tile_operand<64, MN_MAJOR>(s->stage[slot].b, TILE_ELEMENTS);
        products_begin();
#pragma unroll
        for (int i = 0; i < STEP_ROWS / 16; i++) {
            uint64_t rows = operand_after(a, i * 16 * 64);
            wgmma<MN_MAJOR, MN_MAJOR>(acc, rows, operand_after(b, i * 16 * 64), true);
            if (HAS_SUM) wgmma<MN_MAJOR, K_MAJOR>(sum, rows, operand_after(ones, i * 16), true);
        }
        products_commit();
        products_wait<1>();
        if (before >= 0 && lane == 0) s->barriers.free(before);
        before = slot;
        if (++slot == s->STAGES) slot = 0, phase ^= 1;
    }
    products_wait<0>(acc);
    if (HAS_SUM) products_pin(sum);
    const weights_job &j = job_of_block(w);
    float *share_at = j.partial + p.share * j.share_size;
    float4 *to = (float4 *)(share_at + (int64_t)p.tile * (GROUPS * 64 * N));
    to += threadIdx.x / 32 * (N / 8) * 32 + lane;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
        to[n * 32] = make_float4(acc[n][0], acc[n][1], acc[n][2], acc[n][3]);
    if (!HAS_SUM || lane % 4 > 0) return;
    float *sums = share_at + (int64_t)j.m * j.n + p.tile % j.row_tiles * GROUPS * 64;
    sums += threadIdx.x / 32 * 16 + lane / 4;
    sums[0] = sum[0][0], sums[8] = sum[0][2];
}

/* GROUPS warp groups, and a warp whose first thread fetches. */
template <int GROUPS, int N>
__global__ void __launch_bounds__(GROUPS *GROUP_THREADS + 32, 1)
    wgmma_weights(const __grid_constant__ weights_call w) {
    extern __shared__ __align__(TILE_ALIGN) char shared[];
    typedef weights_space<GROUPS, N> layout;
    constexpr int THREADS = GROUPS * GROUP_THREADS;
    layout *space = (layout *)shared;
    if (threadIdx.x == 0) {
        space->barriers.begin(THREADS / 32);
        barriers_publish();
    }
    for (int i = threadIdx.x; i < ONES_COLUMNS * 64; i += THREADS + 32)
        space->ones[i] = __float2bfloat16_rn(i < 64); /* one line, which looks the same swizzled */
    tiles_publish();
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    if (threadIdx.x >= THREADS) {
        if (threadIdx.x == THREADS) weights_fetch<GROUPS, N>(w, space);
    } else if (weights_place_of(w).has_sum) {
        weights_sum<GROUPS, N, true>(w, space);
    } else {
        weights_sum<GROUPS, N, false>(w, space);
    }
}

/* -- calls */

static bool is_simple(const fm_gemm *g) {
    return g->batch == 1 && g->alpha == 1 && g->trans_a && !g->trans_b && g->c_is_acc &&
           !g->addend && g->epilogue == FM_EPILOGUE_NONE && (g->beta == 0 || g->beta == 1) &&
           g->k <= INT32_MAX - STEP_ROWS;
}

bool weights_takes(const fm_gemm *g) {
    enum { MOST_ELEMENTS = 1024 * 256 };
    /* Without sums the library is faster, but for the smallest C over very many rows. */
    enum { ALONE_ROWS = 131072, ALONE_ELEMENTS = 128 * 128 };
    bool has_tiles = g->m % 64 == 0 && g->n % 64 == 0 && shape_of(g).tiles() <= n_multiprocessor();
    if (!is_simple(g) || !has_tiles) return false;
    return g->sum.data ? g->k >= FEWEST_ROWS && g->m * g->n <= MOST_ELEMENTS
                       : g->k >= ALONE_ROWS && g->m * g->n <= ALONE_ELEMENTS;
}

bool weights_pair_takes(const fm_gemm *first, const fm_gemm *second) {
    for (const fm_gemm *g : {first, second}) {
        bool has_tiles = g->m % 128 == 0 && g->n % 256 == 0 && g->m * g->n == LARGE;
        if (!is_simple(g) || !has_tiles) return false;
    }
    return first->k == second->k && first->k >= FEWEST_ROWS && !second->sum.data;
}

static int64_t share_size(const fm_gemm *g) {
    return g->m * g->n + (g->sum.data ? g->m : 0);
}

static size_t bytes_of(const fm_gemm *g, const weights_shape &s) {
    return (size_t)((s.shares + s.more) * share_size(g)) * sizeof(float);
}

size_t weights_workspace(const fm_gemm *g) {
    return bytes_of(g, shape_of(g));
}

size_t weights_pair_workspace(const fm_gemm *first, const fm_gemm *second) {
    weights_shapes s = shapes_of(first, second);
    return bytes_of(first, s.of[0]) + bytes_of(second, s.of[1]);
}

static box_map boxes_of(const void *base, int64_t columns, int64_t rows, int64_t ld) {
    const int64_t extent[5] = {columns, rows, 1, 1, 1}, stride[4] = {ld, 0, 0, 0};
    return make_boxes(base, extent, stride, 64, STEP_ROWS);
}

template <int GROUPS, int N>
static void product_as(fm_stream *stream, const weights_call &w, int blocks) {
    constexpr int BYTES = (int)sizeof(weights_space<GROUPS, N>);
    FM_CUDA(cudaFuncSetAttribute(wgmma_weights<GROUPS, N>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    launch_after(stream, wgmma_weights<GROUPS, N>, (unsigned)blocks, GROUPS * GROUP_THREADS + 32,
                 BYTES, true, w);
    FM_LAUNCHED();
}

/* The shares' sums: C in tiles, then the sums of A's columns. */
static partial_sums shares_of(const fm_gemm *g, const weights_shape &shape) {
    partial_sums s = {};
    s.stride = share_size(g), s.count = shape.shares, s.slices = 1;
    while (s.slices < MOST_SLICES && s.slices * SLICE_SHARES < s.count)
        s.slices *= 2;
    s.target[0] = {g->c, g->m * g->n, 0, g->beta != 0 ? FM_ADD : FM_WRITE, false};
    if (g->sum.data) s.target[1] = {g->sum.data, g->m, g->sum_first, g->sum.beta, false};
    s.tiles = {shape.row_tiles, shape.groups * 64, shape.columns, shape.more, g->ldc, false};
    return s;
}

static weights_job job_of(const fm_gemm *g, const weights_shape &s, float *partial) {
    weights_job j;
    j.a = boxes_of(g->a, g->m, g->k, g->lda), j.b = boxes_of(g->b, g->n, g->k, g->ldb);
    j.partial = partial, j.share_size = share_size(g);
    j.m = (int)g->m, j.n = (int)g->n, j.row_tiles = s.row_tiles, j.tiles = s.tiles();
    j.shares = s.shares, j.first_sum = s.first_sum, j.more = s.more;
    return j;
}

void weights(fm_stream *stream, const fm_gemm *g, void *workspace) {
    weights_shape s = shape_of(g);
    partial_sums sums = shares_of(g, s);
    float *place = sums_place(stream, sums, weights_workspace(g), workspace);
    sums.partial = place;
    weights_call w = {};
    w.job[0] = job_of(g, s, place);
    w.first_blocks = s.blocks(), w.steps = (int)divide_up(g->k, STEP_ROWS);
    if (s.columns == 64) {
        product_as<1, 64>(stream, w, s.blocks());
    } else if (s.groups == 1) {
        product_as<1, 128>(stream, w, s.blocks());
    } else if (s.columns == 128) {
        product_as<2, 128>(stream, w, s.blocks());
    } else {
        product_as<2, 256>(stream, w, s.blocks());
    }
    end_sums(stream, sums);
}

void weights_pair(fm_stream *stream, const fm_gemm *first, const fm_gemm *second, void *workspace) {
    weights_shapes s = shapes_of(first, second);
    partial_sums sums[2] = {shares_of(first, s.of[0]), shares_of(second, s.of[1])};
    /* One place for both: a second one could end earlier sums and take the first one's memory. */
    end_sums_of(stream, second->c, (size_t)(second->m * second->ldc) * sizeof(float));
    size_t bytes = weights_pair_workspace(first, second);
    char *place = (char *)sums_place(stream, sums[0], bytes, workspace);
    sums[0].partial = (float *)place;
    sums[1].partial = (float *)(place + bytes_of(first, s.of[0]));
    weights_call w;
    w.job[0] = job_of(first, s.of[0], (float *)sums[0].partial);
    w.job[1] = job_of(second, s.of[1], (float *)sums[1].partial);
    w.first_blocks = s.of[0].blocks(), w.steps = (int)divide_up(first->k, STEP_ROWS);
    product_as<2, 256>(stream, w, s.of[0].blocks() + s.of[1].blocks());
    end_sums(stream, sums[0]);
    end_sums(stream, sums[1]);
}

} // namespace fm_cuda
