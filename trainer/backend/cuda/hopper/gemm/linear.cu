/* linear.cu: the gradient of a linear layer through the ReLU before it, in bf16 on warp groups:
 *
 *     C[m, n] = A[m, K] W[K, n] where relu > 0, else 0; sum[n] = the sum of C's rows
 *
 * for many rows and K of at most 256. With so few channels to sum over, the product takes as long
 * as its memory traffic. A library product followed by a pass over C would write C, read it and
 * write it again; this kernel writes it once.
 *
 * A block keeps 128 columns of W in shared memory and walks over its share of the tiles of 128
 * rows. Chunks of 64 channels of A come through a ring (cp.async); the chunks of the next tile are
 * loaded while the current one is finished. Two blocks fit on a multiprocessor, so that the end of
 * one block's tile overlaps the products of the other.
 *
 * At the end of a tile, each warp copies its 16 rows into shared memory, 64 columns at a time, over
 * its rows of the last chunk. Memory is then accessed by whole lines. Each thread has the same
 * eight columns in all tiles, and sums them. The sum of a column is added over a block's rows in
 * order, then over lanes and warps as a tree, then over blocks in order (sums.cu). */
#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/hopper/core/wgmma.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

enum { LINE_THREADS = 256 };

template <int K> struct line_memory {
    static constexpr int CHUNKS = K / 64;
    static constexpr int STAGES = K == 256 ? 3 : 5;
    bf16 w[K * LINE_COLUMNS];
    bf16 ring[STAGES][LINE_ROWS * 64];
};

struct line_call {
    const bf16 *a, *w, *relu;
    bf16 *c;
    int64_t lda, ldw, ldc;
    int row_tiles, column_tiles;
    float *partial; /* [blocks / column_tiles, n]; NULL: no sums */
};

/* -- operands */

/* Loads 128 columns of W, from column0 on, as two tiles of 64. */
template <int K>
__device__ inline void line_load_weights(line_memory<K> *space, const line_call &call,
                                         int64_t column0) {
#pragma unroll
    for (int t = 0; t < LINE_COLUMNS / 64; t++)
        tile_load<64>(space->w + t * K * 64, K, call.w + column0 + t * 64, call.ldw, 0, K, 64);
}

/* Adds the products of one chunk of 64 channels: the warp group's 64 rows by 128 columns. */
template <int K>
__device__ inline void line_products(float (&d)[LINE_COLUMNS / 8][4], const line_memory<K> *space,
                                     const bf16 *chunk, int at) {
    const bf16 *rows = chunk + threadIdx.x / GROUP_THREADS * GROUP_ROWS * 64;
    uint64_t a = tile_operand<64, K_MAJOR>(rows);
    products_pin(d);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const bf16 *w = space->w + (at * 4 + k) * 16 * 64;
        wgmma<K_MAJOR, MN_MAJOR>(d, operand_after(a, k * 16), tile_operand<64, MN_MAJOR>(w, K * 64),
                                 at > 0 || k > 0);
    }
    products_commit();
}

/* Starts reading the warp's 16 rows by 128 columns of the ReLU's output into the L2 cache, before
 * the end of the tile needs them. Each lane takes one line of 128 bytes. */
__device__ inline void line_expect_relu(const line_call &call, int64_t row, int64_t column0) {
    int lane = threadIdx.x % 32;
    const bf16 *line = call.relu + (row + lane / 2) * call.ldc + column0 + lane % 2 * 64;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

/* -- the end of a tile */

/* Waits until all products of the warp group have ended, so that its rows of the last chunk may be
 * overwritten. */
__device__ inline void line_end_products(float (&d)[LINE_COLUMNS / 8][4]) {
    products_wait<0>(d);
    asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / GROUP_THREADS), "n"((int)GROUP_THREADS)
                 : "memory");
}

__device__ inline void line_load_relu(uint4 (&above)[4], const bf16 *relu, int64_t ldc) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        above[i] = *(const uint4 *)(relu + i * 4 * ldc);
}

/* Sets v to 0 where `above` is not above 0, and adds v to the sums of eight columns. */
__device__ inline void line_relu_grad(uint32_t (&v)[4], const uint4 &above, float (&sum)[8]) {
    const uint32_t words[4] = {above.x, above.y, above.z, above.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        __nv_bfloat162 x = *(const __nv_bfloat162 *)&words[i];
        v[i] &= __hgt2_mask(x, __float2bfloat162_rn(0));
        float2 two = unpack_two(v[i]);
        sum[2 * i] += two.x;
        sum[2 * i + 1] += two.y;
    }
}

/* Writes a warp's 16 rows by 64 columns, half `HALF` of the tile, to c, the lane's first place. */
template <int HALF>
__device__ inline void line_put(const float (&d)[LINE_COLUMNS / 8][4], bf16 *stage, bf16 *c,
                                int64_t ldc, const uint4 (&above)[4], float (&sum)[8]) {
    int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t r[4];
        accumulator_rows(r, d, HALF * 4 + k);
        tile_put<64>(stage, 0, 2 * k, r);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 from = *(const uint4 *)(stage + tile_at<64>(lane / 8 + 4 * i, lane % 8));
        uint32_t v[4] = {from.x, from.y, from.z, from.w};
        line_relu_grad(v, above[i], sum);
        *(uint4 *)(c + i * 4 * ldc) = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

/* Writes the block's sums of its 128 columns to `partial`. */
__device__ inline void line_finish_sums(float (&sum)[2][8], float *space, float *partial) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float x = sum[half][i];
            x += __shfl_xor_sync(0xffffffffu, x, 8);
            x += __shfl_xor_sync(0xffffffffu, x, 16);
            if (lane < 8) space[warp * LINE_COLUMNS + half * 64 + lane * 8 + i] = x;
        }
    __syncthreads();
    if (threadIdx.x >= LINE_COLUMNS) return;
    float total = 0;
    for (int w = 0; w < LINE_THREADS / 32; w++)
        total += space[w * LINE_COLUMNS + threadIdx.x];
    partial[threadIdx.x] = total;
}

/* -- the kernel */

template <int K> __global__ void __launch_bounds__(LINE_THREADS, 2) line_kernel(line_call call) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    typedef line_memory<K> layout;
    layout *space = (layout *)memory;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int groups = gridDim.x / call.column_tiles, group = blockIdx.x / call.column_tiles;
    int column0 = blockIdx.x % call.column_tiles * LINE_COLUMNS;
    int tiles = (call.row_tiles - group + groups - 1) / groups, steps = tiles * layout::CHUNKS;
    auto row_of = [&](int step) {
        return (group + (int64_t)(step / layout::CHUNKS) * groups) * LINE_ROWS;
    };
    auto fetch = [&](int step) {
        if (step < steps) {
            tile_load<64>(space->ring[step % layout::STAGES], LINE_ROWS,
                          call.a + step % layout::CHUNKS * 64, call.lda, row_of(step),
                          row_of(step) + LINE_ROWS, 64);
        }
        copies_commit();
    };
    line_load_weights<K>(space, call, column0);
#pragma unroll
    for (int step = 0; step < layout::STAGES - 1; step++)
        fetch(step);
    float d[LINE_COLUMNS / 8][4], sum[2][8] = {};
    for (int step = 0; step < steps; step++) {
        int at = step % layout::CHUNKS;
        copies_wait<layout::STAGES - 2>();
        tiles_publish();
        if (at > 0) products_wait<0>(d);
        __syncthreads();
        fetch(step + layout::STAGES - 1);
        if (at == 0) line_expect_relu(call, row_of(step) + warp * 16, column0);
        line_products<K>(d, space, space->ring[step % layout::STAGES], at);
        if (at < layout::CHUNKS - 1) continue;
        int64_t place = (row_of(step) + warp * 16 + lane / 8) * call.ldc + column0 + lane % 8 * 8;
        uint4 above[4];
        line_load_relu(above, call.relu + place, call.ldc);
        line_end_products(d);
        bf16 *stage = space->ring[step % layout::STAGES] + warp * 16 * 64;
        line_put<0>(d, stage, call.c + place, call.ldc, above, sum[0]);
        line_load_relu(above, call.relu + place + 64, call.ldc);
        line_put<1>(d, stage, call.c + place + 64, call.ldc, above, sum[1]);
    }
    copies_wait<0>();
    if (!call.partial) return;
    __syncthreads();
    float *partial = call.partial + (int64_t)group * call.column_tiles * LINE_COLUMNS + column0;
    line_finish_sums(sum, (float *)space->ring, partial);
}

/* -- calls */

/* Groups of blocks that share the tiles of rows; a group has one block per tile of columns. Two
 * blocks fit on a multiprocessor. */
static int64_t line_groups(int64_t m, int64_t n) {
    int64_t blocks = 2 * n_multiprocessor();
    return max_size(1, min_size(m / LINE_ROWS, blocks / (n / LINE_COLUMNS)));
}

size_t linear_workspace(const fm_gemm *g) {
    return g->sum.data ? (size_t)(line_groups(g->m, g->n) * g->n) * sizeof(float) : 0;
}

template <int K> static void line_as(fm_stream *stream, const line_call *call, unsigned blocks) {
    FM_CUDA(cudaFuncSetAttribute(line_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)sizeof(line_memory<K>)));
    line_kernel<K><<<blocks, LINE_THREADS, sizeof(line_memory<K>), queue(stream)>>>(*call);
    FM_LAUNCHED();
}

void linear(fm_stream *stream, const fm_gemm *g, void *workspace) {
    int64_t column_tiles = g->n / LINE_COLUMNS, groups = line_groups(g->m, g->n);
    partial_sums sums = sums_of(NULL, groups, g->n, g->n, (float *)g->sum.data, g->sum.beta);
    float *partial = NULL;
    if (g->sum.data) partial = sums_place(stream, sums, linear_workspace(g), workspace);
    line_call call = {(const bf16 *)g->a,
                      (const bf16 *)g->b,
                      (const bf16 *)g->relu,
                      (bf16 *)g->c,
                      g->lda,
                      g->ldb,
                      g->ldc,
                      (int)(g->m / LINE_ROWS),
                      (int)column_tiles,
                      partial};
    unsigned blocks = (unsigned)(column_tiles * groups);
    if (g->k == 64) {
        line_as<64>(stream, &call, blocks);
    } else if (g->k == 128) {
        line_as<128>(stream, &call, blocks);
    } else {
        line_as<256>(stream, &call, blocks);
    }
    sums.partial = partial;
    if (partial) end_sums(stream, sums);
}

} // namespace fm_cuda
