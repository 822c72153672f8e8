/* small.cu: products of a few hundred rows in f32, such as those of the structure module:
 *
 *     C[m, n] = op(A) op(B), scaled, added and with an epilogue as in fm_gemm
 *
 * f32 on tensor cores. They multiply tf32, numbers of 11 significant bits. So each operand is cut
 * into a nearest tf32 number, `high`, and the rest, `low`, which is exact in f32 and loses at most
 * its last bit in tf32. Then a b = high high + high low + low high, where low low, 2^-22 of it, is
 * left out. The last two are summed apart from the first, because the small sums would lose more
 * digits beside the large ones. The error is that of a product in f32.
 *
 * Shares. C has few tiles, 24 of 64 x 64 at 256 x 384, for 132 multiprocessors. The blocks of a
 * cluster therefore share the depth of a tile, each with steps of its own. In a block, two groups
 * of four warps share the depth of every step once more; a warp has 32 x 32 of the tile.
 * Asynchronous copies bring A and B four steps ahead. At the end the second group's sums are added
 * to the first's. Every block of the cluster ends a run of the tile: the others send it their sums,
 * and it adds them in order.
 *
 * An operand is deep if its rows run along k. The distances of rows in shared memory, 36 and 72
 * numbers, spread the 32 numbers that a warp reads at once, 8 lines at 4 depths, over all banks. */
#include "trainer/backend/cuda/hopper/core/bulk.cuh"
#include "trainer/backend/cuda/hopper/core/cluster.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

enum {
    SMALL_SIDE = 64,  /* rows and columns of a tile of C */
    SMALL_DEPTH = 32, /* of a step */
    SMALL_STAGES = 5,
    SMALL_THREADS = 256,
    SMALL_MOST_SHARES = 8,        /* blocks of a cluster */
    SMALL_BLOCKS = 2,             /* of a multiprocessor */
    SMALL_PITCH = SMALL_SIDE + 8, /* of a tile of sums, so that pairs of eight rows differ */
    SMALL_PARTS = SMALL_THREADS / SMALL_SIDE,  /* threads that share a sum of A's rows */
    SMALL_FOURS = SMALL_SIDE * SMALL_SIDE / 4, /* of a tile */
    /* Numbers that the blocks of a cluster send to one: runs of the tile, and sums of A's rows. */
    SMALL_RUNS = 4 * (SMALL_FOURS + SMALL_MOST_SHARES),
    SMALL_SENT = SMALL_RUNS + SMALL_MOST_SHARES * SMALL_SIDE,
};

/* 64 rows or columns of C, with the depths of a step. */
template <bool DEEP> struct small_operand {
    static constexpr int PITCH = DEEP ? SMALL_DEPTH + 4 : SMALL_SIDE + 8;
    static constexpr int FLOATS = DEEP ? SMALL_SIDE * PITCH : SMALL_DEPTH * PITCH;

    __device__ static inline int at(int line, int k) {
        return DEEP ? line * PITCH + k : k * PITCH + line;
    }

    /* A thread copies 16 bytes of two rows in shared memory, ROWS apart. */
    static constexpr int PER = (DEEP ? SMALL_DEPTH : SMALL_SIDE) / 4, ROWS = SMALL_THREADS / PER;
    static_assert(2 * ROWS == (DEEP ? SMALL_SIDE : SMALL_DEPTH));

    const float *base, *from; /* this thread's numbers of the step that is next */
    int64_t ld;
    int line, lines, k, depth; /* the first number's line and depth */

    /* Lines begin at `first`, depths at `begin`. */
    __device__ inline small_operand(const void *x, int64_t ld, int first, int lines, int begin,
                                    int depth)
        : base((const float *)x), ld(ld), lines(lines), depth(depth) {
        int row = threadIdx.x / PER, four = threadIdx.x % PER * 4;
        line = first + (DEEP ? row : four), k = begin + (DEEP ? four : row);
        from = base + (DEEP ? line * ld + k : k * ld + line);
    }

    /* Asks for the next step. What is beyond the operand's ends counts as zeros. */
    __device__ inline void fetch(float *to) {
        float *place = to + threadIdx.x / PER * PITCH + threadIdx.x % PER * 4;
#pragma unroll
        for (int x = 0; x < 2; x++) {
            bool is_there =
                line + (DEEP ? x * ROWS : 0) < lines && k + (DEEP ? 0 : x * ROWS) < depth;
            copy_async((bf16 *)(place + x * ROWS * PITCH),
                       (const bf16 *)(is_there ? from + x * ROWS * ld : base), is_there);
        }
        k += SMALL_DEPTH, from += SMALL_DEPTH * (DEEP ? 1 : ld);
    }
};

/* x = high + low, as operands. */
__device__ inline void split_operand(float x, uint32_t *high, uint32_t *low) {
    float nearest = round_operand(x);
    *high = __float_as_uint(nearest), *low = __float_as_uint(x - nearest);
}

/* A warp's 32 x 32 of a tile, as accumulators of 16 x 8: large of high high, small of the rest. */
struct small_sums {
    float large[2][4][4], small[2][4][4];
};

/* Adds the products of depths k .. k + 7 of a step. The warp's rows begin at `row`, its columns at
 * `column`. */
template <typename A, typename B>
__device__ inline void small_multiply(const float *a, const float *b, int row, int column, int k,
                                      small_sums *sums) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t high[2][4], low[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float x = a[A::at(row + 16 * i + g + r % 2 * 8, k + t + r / 2 * 4)];
            split_operand(x, &high[i][r], &low[i][r]);
        }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t b_high[2], b_low[2];
#pragma unroll
        for (int r = 0; r < 2; r++)
            split_operand(b[B::at(column + 8 * j + g, k + t + 4 * r)], &b_high[r], &b_low[r]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            mma_tf32(sums->small[i][j], high[i], b_low[0], b_low[1]);
            mma_tf32(sums->small[i][j], low[i], b_high[0], b_high[1]);
            mma_tf32(sums->large[i][j], high[i], b_high[0], b_high[1]);
        }
    }
}

/* tile (+)= the warp's sums. */
__device__ inline void small_keep(const small_sums &sums, int row, int column, bool add,
                                  float *tile) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float *at = tile + (row + 16 * i + 8 * half + g) * SMALL_PITCH + column + 8 * j;
                const float *large = sums.large[i][j] + 2 * half,
                            *small = sums.small[i][j] + 2 * half;
                float two[2] = {large[0] + small[0], large[1] + small[1]}, old[2] = {0, 0};
                if (add) load<float, 2>(at + 2 * t, old);
                two[0] += old[0], two[1] += old[1];
                store<float, 2>(at + 2 * t, two);
            }
}

/* Four neighbouring numbers of C, of which `there` exist, and what is added to their products. */
struct small_four {
    int64_t at;
    int column, there;
    bool is_wide; /* one access for all four */
    float old[4], bias[4];

    __device__ inline void place(const fm_gemm &g, int row, int first_column) {
        uintptr_t places = (uintptr_t)g.c | (uintptr_t)g.addend | (uintptr_t)g.ldc * sizeof(float);
        at = row * g.ldc + first_column, column = first_column;
        there = row < g.m ? (int)min_size(g.n - column, 4) : 0;
        is_wide = there == 4 && places % 16 == 0;
    }

    /* Only asks for them: nothing here waits. */
    __device__ inline void read(const fm_gemm &g) {
        const float *from = (const float *)(g.addend ? g.addend : g.c) + at;
        bool is_added = g.beta != 0, has_bias = g.epilogue != FM_EPILOGUE_NONE;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            old[i] = is_added && !is_wide && i < there ? from[i] : 0;
            bias[i] = has_bias && i < there ? ((const float *)g.bias)[column + i] : 0;
        }
        if (is_added && is_wide) load<float, 4>(from, old);
    }

    __device__ inline void write(const fm_gemm &g, const float *sum) const {
        float *c = (float *)g.c + at, value[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            value[i] = (float)g.alpha * sum[i] + (float)g.beta * old[i] + bias[i];
            if (g.epilogue == FM_EPILOGUE_BIAS_RELU && value[i] < 0) value[i] = 0;
            if (!is_wide && i < there) c[i] = value[i];
        }
        if (is_wide) store<float, 4>(c, value);
    }
};

/* Four sums, in order, of `shares` parts that are `distance` numbers apart. */
__device__ inline void small_join(const float *part, int distance, int shares, float (&total)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        total[i] = 0;
#pragma unroll 4
    for (int s = 0; s < shares; s++) {
        float x[4];
        load<float, 4>(part + s * distance, x);
#pragma unroll
        for (int i = 0; i < 4; i++)
            total[i] += x[i];
    }
}

/* Sends the block's sums of the tile and of A's rows, in shared memory, to the blocks of the
 * cluster that end them, and ends its own. `parts` is where the others' sums arrive. */
__device__ inline void small_end(const fm_gemm &g, int row, int column, const float *tile,
                                 const float *lines, float *parts) {
    constexpr int MOST = SMALL_FOURS / SMALL_THREADS;
    int share = (int)blockIdx.x, shares = (int)gridDim.x, m = (int)g.m;
    bool has_sum = g.sum.data && column == 0;
    float *line_parts = parts + SMALL_RUNS;
    /* Each block of the cluster ends a run of `run` fours of the tile. */
    int run = (SMALL_FOURS - 1) / shares + 1;
    cluster_begun();
#pragma unroll
    for (int x = 0; x < MOST; x++) {
        int at = (int)threadIdx.x + x * SMALL_THREADS, owner = at / run;
        float four[4];
        load<float, 4>(tile + at / (SMALL_SIDE / 4) * SMALL_PITCH + at % (SMALL_SIDE / 4) * 4,
                       four);
        cluster_write(parts + 4 * (share * run + at - owner * run), owner, four);
    }
    if (has_sum && threadIdx.x < SMALL_SIDE / 4) {
        float four[4];
        small_join(lines + 4 * threadIdx.x, SMALL_PITCH, SMALL_PARTS, four);
        cluster_write(line_parts + share * SMALL_SIDE + 4 * threadIdx.x, 0, four);
    }
    small_four fours[MOST];
#pragma unroll
    for (int x = 0; x < MOST; x++) {
        int own = (int)threadIdx.x + x * SMALL_THREADS, at = share * run + own;
        bool is_mine = own < run && at < SMALL_FOURS;
        int r = is_mine ? at / (SMALL_SIDE / 4) : m, c = at % (SMALL_SIDE / 4) * 4;
        fours[x].place(g, row + r, column + c);
        fours[x].read(g);
    }
    cluster_barrier();
#pragma unroll
    for (int x = 0; x < MOST; x++) {
        if (fours[x].there <= 0) continue;
        float total[4];
        small_join(parts + 4 * (threadIdx.x + x * SMALL_THREADS), 4 * run, shares, total);
        fours[x].write(g, total);
    }
    if (has_sum && share == 0 && threadIdx.x < SMALL_SIDE / 4) {
        int first = row + 4 * (int)threadIdx.x;
        float total[4];
        small_join(line_parts + 4 * threadIdx.x, SMALL_SIDE, shares, total);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (first + i < m && first + i >= g.sum_first) {
                put((float *)g.sum.data + first + i - g.sum_first, g.sum.beta, total[i]);
            }
    }
}

/* The blocks of a cluster lie along x, the tiles of C along y and z. */
template <bool A_DEEP, bool B_DEEP>
__global__ void __launch_bounds__(SMALL_THREADS, SMALL_BLOCKS) small_kernel(const fm_gemm g) {
    typedef small_operand<A_DEEP> A;
    typedef small_operand<B_DEEP> B;
    constexpr int STAGE = A::FLOATS + B::FLOATS;
    extern __shared__ __align__(16) float memory[];
    static_assert((SMALL_SIDE + SMALL_PARTS) * SMALL_PITCH <= SMALL_STAGES * STAGE);
    int warp = threadIdx.x / 32, group = warp / 4, line = threadIdx.x % SMALL_SIDE,
        part = threadIdx.x / SMALL_SIDE;
    int share = (int)blockIdx.x, shares = (int)gridDim.x;
    int row = (int)blockIdx.y * SMALL_SIDE, column = (int)blockIdx.z * SMALL_SIDE;
    int my_row = warp / 2 % 2 * 32, my_column = warp % 2 * 32;
    int m = (int)g.m, n = (int)g.n, depth = (int)g.k, all = (depth - 1) / SMALL_DEPTH + 1;
    int begin = all * share / shares, steps = all * (share + 1) / shares - begin;
    bool has_sum = g.sum.data && column == 0;
    A a(g.a, g.lda, row, m, begin * SMALL_DEPTH, depth);
    B b(g.b, g.ldb, column, n, begin * SMALL_DEPTH, depth);
    cluster_begin();
    wait_for_previous();
    let_next_begin();
    auto fetch = [&](int step) {
        if (step < steps) {
            float *stage = memory + step % SMALL_STAGES * STAGE;
            a.fetch(stage);
            b.fetch(stage + A::FLOATS);
        }
        copies_commit();
    };
    for (int step = 0; step < SMALL_STAGES - 1; step++)
        fetch(step);
    small_sums sums = {};
    float of_line = 0; /* A's rows, summed over a part of the depths */
    for (int step = 0; step < steps; step++) {
        copies_wait<SMALL_STAGES - 2>();
        __syncthreads(); /* all have this step, and have used the place of the next one */
        fetch(step + SMALL_STAGES - 1);
        const float *stage = memory + step % SMALL_STAGES * STAGE;
#pragma unroll
        for (int k = 0; k < SMALL_DEPTH / 2; k += 8)
            small_multiply<A, B>(stage, stage + A::FLOATS, my_row, my_column,
                                 group * SMALL_DEPTH / 2 + k, &sums);
        if (!has_sum) continue;
#pragma unroll
        for (int k = 0; k < SMALL_DEPTH / SMALL_PARTS; k++)
            of_line += stage[A::at(line, part * (SMALL_DEPTH / SMALL_PARTS) + k)];
    }
    copies_wait<0>();
    __syncthreads();
    float *lines = memory + SMALL_SIDE * SMALL_PITCH;
    lines[part * SMALL_PITCH + line] = of_line;
    if (group == 1) small_keep(sums, my_row, my_column, false, memory);
    __syncthreads();
    if (group == 0) small_keep(sums, my_row, my_column, true, memory);
    __syncthreads();
    small_end(g, row, column, memory, lines, memory + SMALL_STAGES * STAGE);
}

/* -- calls */

static bool is_wide(const void *x, int64_t ld) {
    return is_aligned(x) && is_whole<float>(ld);
}

static int64_t small_tiles(const fm_gemm *g) {
    return divide_up(g->m, SMALL_SIDE) * divide_up(g->n, SMALL_SIDE);
}

/* Products whose tiles find place at once, and whose sums are not much longer than the tiles are
 * wide. */
bool small_takes(const fm_gemm *g) {
    enum { MOST_DEPTH = 4096 };
    return g->batch == 1 && small_tiles(g) <= SMALL_BLOCKS * n_multiprocessor() && g->k >= 1 &&
           g->k <= MOST_DEPTH && is_wide(g->a, g->lda) && is_wide(g->b, g->ldb) &&
           is_whole<float>(g->trans_a ? g->m : g->k) && is_whole<float>(g->trans_b ? g->k : g->n);
}

/* The blocks that share a tile: as many as give each multiprocessor one, or two where one would
 * have more than a few steps, but no more than shorten the longest share. */
static unsigned small_shares(const fm_gemm *g) {
    enum { FEW_STEPS = 4 };
    int64_t steps = divide_up(g->k, SMALL_DEPTH), tiles = small_tiles(g), most = 1;
    for (int64_t blocks = 1; blocks <= SMALL_BLOCKS; blocks++) {
        most = max_size(min_size(blocks * n_multiprocessor() / tiles, SMALL_MOST_SHARES), 1);
        if (divide_up(steps, most) <= FEW_STEPS) break;
    }
    return (unsigned)divide_up(steps, divide_up(steps, min_size(most, steps)));
}

template <bool A_DEEP, bool B_DEEP> static void small_as(fm_stream *stream, const fm_gemm *g) {
    constexpr int STAGE = small_operand<A_DEEP>::FLOATS + small_operand<B_DEEP>::FLOATS,
                  BYTES = (SMALL_STAGES * STAGE + SMALL_SENT) * (int)sizeof(float);
    auto kernel = small_kernel<A_DEEP, B_DEEP>;
    FM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    unsigned shares = small_shares(g);
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = shares;
    attributes[1].val.clusterDim.y = 1, attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim =
        dim3(shares, (unsigned)divide_up(g->m, SMALL_SIDE), (unsigned)divide_up(g->n, SMALL_SIDE));
    config.blockDim = dim3(SMALL_THREADS), config.stream = queue(stream);
    config.dynamicSmemBytes = BYTES;
    config.attrs = attributes, config.numAttrs = 2;
    FM_CUDA(cudaLaunchKernelEx(&config, kernel, *g));
    FM_LAUNCHED();
}

void small_gemm(fm_stream *stream, const fm_gemm *g) {
    bool a_deep = !g->trans_a, b_deep = g->trans_b;
    if (a_deep && b_deep) {
        small_as<true, true>(stream, g);
    } else if (a_deep) {
        small_as<true, false>(stream, g);
    } else if (b_deep) {
        small_as<false, true>(stream, g);
    } else {
        small_as<false, false>(stream, g);
    }
}

} // namespace fm_cuda
