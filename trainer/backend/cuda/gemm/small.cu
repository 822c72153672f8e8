/* small.cu: products of a few hundred rows in f32, such as those of the structure module:
 *
 *     C[m, n] = op(A) op(B), scaled, added and with an epilogue as in fm_gemm
 *
 * The library cuts their sums over k into several blocks and adds these in a second kernel. Here a
 * block makes a tile of 32 x 24 of C, which is small enough for one block per multiprocessor at 256
 * x 384. Its eight warps share the depth: of every 64 numbers of k, warp w takes those from 8 w on,
 * for the whole tile. Asynchronous copies bring A and B two steps ahead. At the end the warps' sums
 * are added in order.
 *
 * A lane has 4 x 6 sums. An operand is deep if its rows run along k; a lane then reads four numbers
 * of k of one row at once, and its rows lie eight (of B four) apart. Of other operands it reads
 * neighbouring rows for one k. Both are free of bank conflicts. */
#include "trainer/backend/cuda/core/bulk.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"

namespace fm_cuda {

enum {
    SMALL_ROWS = 32,    /* of a tile of C */
    SMALL_COLUMNS = 24, /* of it */
    SMALL_DEPTH = 64,   /* of a step */
    SMALL_STAGES = 3,
    SMALL_WARPS = 8,
    SMALL_THREADS = SMALL_WARPS * 32
};

/* Numbers between two rows of a deep operand in shared memory: 16 bytes more than a row, so that
 * eight rows have different banks. */
enum { SMALL_DEEP = SMALL_DEPTH + 4 };

/* An operand of `LINES` rows or columns of C. */
template <int LINES, bool DEEP> struct small_tile {
    static constexpr int FLOATS = DEEP ? LINES * SMALL_DEEP : SMALL_DEPTH * LINES;
    static constexpr int SIDE = LINES == SMALL_ROWS ? 8 : 4; /* lanes along it */
    static constexpr int OWN = LINES / SIDE;                 /* lines of a lane */

    /* The line of C that is number i of the lane's place `at` of SIDE. */
    __device__ static inline int line(int at, int i) {
        return DEEP ? at + SIDE * i : at * OWN + i;
    }

    /* Asks for lines first .. first + LINES - 1 and depths k .. k + SMALL_DEPTH - 1. What is beyond
     * the operand's ends counts as zeros. */
    __device__ static inline void fetch(float *to, const float *x, int64_t ld, int first, int lines,
                                        int k, int depth) {
        constexpr int PER = DEEP ? SMALL_DEPTH / 4 : LINES / 4, ROWS = DEEP ? LINES : SMALL_DEPTH;
#pragma unroll
        for (int i = threadIdx.x; i < ROWS * PER; i += SMALL_THREADS) {
            int row = i / PER, four = i % PER * 4;
            int at = DEEP ? first + row : k + row, inner = DEEP ? k + four : first + four;
            bool is_there = at < (DEEP ? lines : depth) && inner < (DEEP ? depth : lines);
            float *place = to + row * (DEEP ? SMALL_DEEP : LINES) + four;
            const float *from = is_there ? x + at * ld + inner : x;
            copy_async((bf16 *)place, (const bf16 *)from, is_there);
        }
    }

    /* The lane's lines at the depths k .. k + 3 of the step. */
    __device__ static inline void read(float (&out)[OWN][4], const float *tile, int at, int k) {
        if constexpr (DEEP) {
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                float4 four = *(const float4 *)(tile + line(at, i) * SMALL_DEEP + k);
                out[i][0] = four.x, out[i][1] = four.y, out[i][2] = four.z, out[i][3] = four.w;
            }
        } else {
            constexpr int PACK = OWN % 4 ? 2 : 4;
            struct alignas(PACK * sizeof(float)) pack {
                float x[PACK];
            };
#pragma unroll
            for (int d = 0; d < 4; d++)
#pragma unroll
                for (int i = 0; i < OWN; i += PACK) {
                    pack some = *(const pack *)(tile + (k + d) * LINES + line(at, i));
#pragma unroll
                    for (int j = 0; j < PACK; j++)
                        out[i + j][d] = some.x[j];
                }
        }
    }
};

/* The value of C from the sum of its products. */
__device__ inline void small_store(const fm_gemm &g, int row, int column, float sum) {
    float *c = (float *)g.c + row * g.ldc + column;
    const float *addend = (const float *)(g.addend ? g.addend : g.c) + row * g.ldc + column;
    float value = (float)g.alpha * sum;
    if (g.beta != 0) value += (float)g.beta * *addend;
    if (g.epilogue != FM_EPILOGUE_NONE) value += ((const float *)g.bias)[column];
    if (g.epilogue == FM_EPILOGUE_BIAS_RELU) value = value < 0 ? 0 : value;
    *c = value;
}

template <bool A_DEEP, bool B_DEEP>
__global__ void __launch_bounds__(SMALL_THREADS) small_kernel(const fm_gemm g) {
    typedef small_tile<SMALL_ROWS, A_DEEP> A;
    typedef small_tile<SMALL_COLUMNS, B_DEEP> B;
    constexpr int STAGE = A::FLOATS + B::FLOATS;
    __shared__ __align__(16) float memory[SMALL_STAGES * STAGE];
    static_assert(SMALL_WARPS * SMALL_ROWS * SMALL_COLUMNS <= SMALL_STAGES * STAGE);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = blockIdx.x * SMALL_ROWS, column = blockIdx.y * SMALL_COLUMNS;
    int m = (int)g.m, n = (int)g.n, depth = (int)g.k, steps = (depth - 1) / SMALL_DEPTH + 1;
    wait_for_previous();
    let_next_begin();
    auto fetch = [&](int step) {
        if (step < steps) {
            float *stage = memory + step % SMALL_STAGES * STAGE;
            int k = step * SMALL_DEPTH;
            A::fetch(stage, (const float *)g.a, g.lda, row, m, k, depth);
            B::fetch(stage + A::FLOATS, (const float *)g.b, g.ldb, column, n, k, depth);
        }
        copies_commit();
    };
    for (int step = 0; step < SMALL_STAGES - 1; step++)
        fetch(step);
    float sum[A::OWN][B::OWN] = {};
    for (int step = 0; step < steps; step++) {
        copies_wait<SMALL_STAGES - 2>();
        __syncthreads(); /* all have this step, and have used the place of the one that is fetched */
        fetch(step + SMALL_STAGES - 1);
        const float *stage = memory + step % SMALL_STAGES * STAGE;
#pragma unroll
        for (int k = 0; k < SMALL_DEPTH / SMALL_WARPS; k += 4) {
            float a[A::OWN][4], b[B::OWN][4];
            A::read(a, stage, lane / 4, warp * (SMALL_DEPTH / SMALL_WARPS) + k);
            B::read(b, stage + A::FLOATS, lane % 4, warp * (SMALL_DEPTH / SMALL_WARPS) + k);
#pragma unroll
            for (int d = 0; d < 4; d++)
#pragma unroll
                for (int i = 0; i < A::OWN; i++)
#pragma unroll
                    for (int j = 0; j < B::OWN; j++)
                        sum[i][j] += a[i][d] * b[j][d];
        }
    }
    copies_wait<0>();
    __syncthreads();
    float *mine = memory + warp * SMALL_ROWS * SMALL_COLUMNS;
#pragma unroll
    for (int i = 0; i < A::OWN; i++)
#pragma unroll
        for (int j = 0; j < B::OWN; j++)
            mine[A::line(lane / 4, i) * SMALL_COLUMNS + B::line(lane % 4, j)] = sum[i][j];
    __syncthreads();
    for (int i = threadIdx.x; i < SMALL_ROWS * SMALL_COLUMNS; i += SMALL_THREADS) {
        float total = memory[i];
#pragma unroll
        for (int w = 1; w < SMALL_WARPS; w++)
            total += memory[w * SMALL_ROWS * SMALL_COLUMNS + i];
        int r = row + i / SMALL_COLUMNS, c = column + i % SMALL_COLUMNS;
        if (r < m && c < n) small_store(g, r, c, total);
    }
}

/* -- calls */

static bool is_wide(const void *x, int64_t ld) {
    return is_aligned(x) && is_whole<float>(ld);
}

/* Products with more tiles or a longer sum are faster in the library. */
bool small_takes(const fm_gemm *g) {
    enum { MOST_TILES = 256, MOST_DEPTH = 512 };
    int64_t tiles = divide_up(g->m, SMALL_ROWS) * divide_up(g->n, SMALL_COLUMNS);
    return g->batch == 1 && tiles <= MOST_TILES && g->k >= 1 && g->k <= MOST_DEPTH &&
           is_wide(g->a, g->lda) && is_wide(g->b, g->ldb) &&
           is_whole<float>(g->trans_a ? g->m : g->k) && is_whole<float>(g->trans_b ? g->k : g->n);
}

template <bool A_DEEP, bool B_DEEP> static void small_as(fm_stream *stream, const fm_gemm *g) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim =
        dim3((unsigned)divide_up(g->m, SMALL_ROWS), (unsigned)divide_up(g->n, SMALL_COLUMNS));
    config.blockDim = dim3(SMALL_THREADS), config.stream = queue(stream);
    config.attrs = &early, config.numAttrs = 1;
    FM_CUDA(cudaLaunchKernelEx(&config, small_kernel<A_DEEP, B_DEEP>, *g));
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
