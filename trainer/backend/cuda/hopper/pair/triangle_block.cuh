/* triangle_block.cuh: the code that the kernels of the whole sublayer of triangle multiplication
 * share, forward (triangle_block.cu) and backward (triangle_block_grad.cu, triangle_weights.cu).
 *
 * They take bf16, n a multiple of 16 and the widths of with_widths, and keep a, b and x
 * channel-major, [3, c, rows]. In templates CZ is c_z and C is c; where a function has only one
 * width, C is that of its rows. All products are of a warp group, which multiplies 64 whole rows at
 * a time. Its rows are in registers (in the forward front: in shared memory), the weights are in
 * shared memory.
 *
 * Interleaved channels. A lane reads and writes a row by chunks of 8 channels, 16 bytes: with t =
 * lane % 4 it has chunks t, t + 4, t + 8, ... of its rows. The fragments of a product would give it
 * pairs of channels instead. Both orders are made to agree without moving data between lanes:
 *
 *     sums over channels      may run in any order. Words 2 h and 2 h + 1 of the lane's chunk
 *                             t + 4 i are its part of the product's step 2 i + h (16 channels), and
 *                             the other operand is stored in the same order.
 *     columns of a product    may be computed in any order. In a group of 32 channels, column q of
 *                             tile i (8 columns) is channel 8 (q / 2) + 2 i + q % 2, so a lane's
 *                             accumulators of four tiles (columns 2 t, 2 t + 1) are chunk t of the
 *                             group. Comments call such tiles interleaved. */
#ifndef FM_BACKEND_CUDA_TRIANGLE_BLOCK_CUH
#define FM_BACKEND_CUDA_TRIANGLE_BLOCK_CUH

#include "trainer/backend/cuda/hopper/core/wgmma.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"
#include "trainer/backend/cuda/pair/triangle.cuh"

#include <type_traits>

namespace fm_cuda {

/* Columns beyond the c channels in the products for weights: ones, or statistics of x. */
enum { EXTRA_COLUMNS = 8 };

/* Forward keeps a, b (packed) and x channel-major, x with EXTRA_COLUMNS further channels of
 * statistics (store_x_statistics). It also keeps the gate's argument [rows, c_z], mean and 1 /
 * deviation of each row of z, and a bit of the dropout mask per column and channel,
 * [n, c_z / 8]. */
struct block_kept {
    bf16 *packed, *x, *gate;
    float2 *statistics;
    uint8_t *keep;
};

inline bool has_widths(const fm_triangle_block *t) {
    return t->c_z == 128 ? t->c == 128 : t->c_z == 64 && (t->c == 64 || t->c == 128);
}

/* Calls f with c_z and c as constants; has_widths must hold. */
template <typename F> inline void with_widths(const fm_triangle_block *t, const F &f) {
    const std::integral_constant<int, 64> narrow;
    const std::integral_constant<int, 128> wide;
    if (t->c_z == 128) {
        f(wide, wide);
    } else if (t->c == 128) {
        f(narrow, wide);
    } else {
        f(narrow, narrow);
    }
}

/* Pairs that a call has: all, or those of a part. */
inline int64_t block_rows(const fm_triangle_block *t) {
    return t->n * (t->n_part ? t->n_part : t->n);
}

inline block_kept block_kept_at(const fm_triangle_block *t, void *base) {
    int64_t rows = block_rows(t), plane = rows * t->c;
    bf16 *at = (bf16 *)base;
    bf16 *gate = at + 3 * plane + EXTRA_COLUMNS * rows;
    float2 *statistics = (float2 *)(gate + rows * t->c_z);
    return {at, at + 2 * plane, gate, statistics, (uint8_t *)(statistics + rows)};
}

/* triangle_block_grad.cu: a part, backward. The first half makes dx, and more for the second. */
void part_back_grad(fm_stream *stream, const fm_triangle_part *p, void *workspace);
void part_front_grad(fm_stream *stream, const fm_triangle_part *p, void *workspace);

/* triangle_weights.cu: the gradients of all parameters, from the gradient of the five projections
 * [rows, 4 c + c_z], u = z normalised without gamma and beta [rows, c_z], dp' [rows, c_z]
 * (triangle_block_grad.cu), and the x that is kept. `sums` has block_weights_sums(c) floats. */
struct weights_inputs {
    const bf16 *dprojected, *u, *dp;
};
size_t block_weights_sums(int64_t c);
void block_weights(fm_stream *stream, const fm_triangle_block *t,
                   const fm_triangle_block_grad *grad, const weights_inputs &from, float *sums);

template <typename K> inline void allow_shared(K kernel, size_t bytes) {
    FM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

/* Prefetches `rows` rows of C elements, `ld` apart, into the L2 cache, one line of 128 bytes per
 * thread; threads without a line do nothing. */
template <int C>
__device__ inline void rows_prefetch(const void *first, int rows, int64_t ld, int thread) {
    constexpr int LINES = C / 64;
    if (thread < rows * LINES) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"((const bf16 *)first + thread / LINES * ld +
                                                      thread % LINES * 64));
    }
}

/* Copies N numbers of act to floats in shared memory, by a block of THREADS, in two steps: other
 * loads can start between the constructor, which loads, and store. */
template <int N, int THREADS> struct floats_load {
    enum { EACH = (N + THREADS - 1) / THREADS };
    bf16 x[EACH];
    __device__ inline floats_load(const bf16 *from) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int at = i * THREADS + (int)threadIdx.x;
            x[i] = at < N ? from[at] : bf16();
        }
    }
    __device__ inline void store(float *to) const {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int at = i * THREADS + (int)threadIdx.x;
            if (at < N) to[at] = get(x[i]);
        }
    }
};

/* The dropout bits of a lane's chunks t + 4 i of a column, those of chunk i in byte i. `column` has
 * one bit per channel. */
template <int C> __device__ inline uint32_t keep_bits(const uint32_t *column) {
    int t = threadIdx.x % 4;
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < C / 32; i++) /* a word is the chunks 4 i .. 4 i + 3 */
        bits |= (column[i] >> (8 * t) & 0xff) << (8 * i);
    return bits;
}

/* A sigmoid of four instructions; results below f32's normal range become 0. */
__device__ inline float quick_sigmoid(float x) {
    float power, gate;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(gate) : "f"(1.0f + power));
    return gate;
}

/* Mean and 1 / sqrt(variance + eps) of the row that four lanes hold together, in one pass. Sums run
 * over differences from the row's first number, so a common offset costs no digits. The first
 * number is one of the row, so the mean square is at most C + 1 variances, which costs seven bits
 * of 24. */
template <int N>
__device__ inline void row_statistics(const uint32_t (&word)[N], float eps, float *mean,
                                      float *rstd) {
    float origin = __shfl_sync(0xffffffffu, unpack_two(word[0]).x, threadIdx.x % 32 & ~3);
    float total = 0, square = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float2 two = unpack_two(word[i]);
        float x = two.x - origin, y = two.y - origin;
        total += x + y;
        square += x * x + y * y;
    }
    total = row_sum(total) * (1.0f / (8 * N));
    square = row_sum(square) * (1.0f / (8 * N));
    *mean = origin + total;
    *rstd = rsqrtf(fmaxf(square - total * total, 0) + eps);
}

/* Part `part` (0, 1, 2) of `value` as a sum of three bf16 numbers, exact but for the last bit or
 * so. */
__device__ inline bf16 bf16_part(float value, int part) {
    for (; part > 0; part--)
        value -= __bfloat162float(__float2bfloat16_rn(value));
    return __float2bfloat16_rn(value);
}

/* Rounds eight numbers and stores them by one access of 16 bytes. In C++, words that are also an
 * operand of a product would be in its registers' order, and the compiler would store them one by
 * one. */
__device__ inline void store_rounded(bf16 *to, const float (&x)[8]) {
    asm volatile("{\n.reg .b32 a, b, c, d;\n"
                 "cvt.rn.bf16x2.f32 a, %2, %1;\ncvt.rn.bf16x2.f32 b, %4, %3;\n"
                 "cvt.rn.bf16x2.f32 c, %6, %5;\ncvt.rn.bf16x2.f32 d, %8, %7;\n"
                 "st.global.v4.b32 [%0], {a, b, c, d};\n}" ::"l"(to),
                 "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "f"(x[4]), "f"(x[5]), "f"(x[6]),
                 "f"(x[7])
                 : "memory");
}

/* Stores row g (half 0) or g + 8 (half 1) of four interleaved tiles, which is one chunk. */
__device__ inline void store_tiles(bf16 *to, const float (&d)[4][4], int half) {
    const float x[8] = {d[0][2 * half], d[0][2 * half + 1], d[1][2 * half], d[1][2 * half + 1],
                        d[2][2 * half], d[2][2 * half + 1], d[3][2 * half], d[3][2 * half + 1]};
    store_rounded(to, x);
}

/* Loads a lane's share of a row: chunk t + 4 i into words 4 i .. 4 i + 3. */
template <int C> __device__ inline void row_load(uint32_t (&word)[C / 8], const bf16 *row) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < C / 32; i++) {
        uint4 chunk = *(const uint4 *)(row + (t + 4 * i) * 8);
        word[4 * i] = chunk.x, word[4 * i + 1] = chunk.y;
        word[4 * i + 2] = chunk.z, word[4 * i + 3] = chunk.w;
    }
}

/* LayerNorm of R such rows in place. `weights`, in shared memory: gamma, then beta, C floats
 * each. */
template <int C, int R>
__device__ inline void rows_normalise(uint32_t (&word)[R][C / 8], const float *weights,
                                      const float (&mean)[R], const float (&rstd)[R]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < C / 8; i++) {
        int channel = (t + i / 4 * 4) * 8 + i % 4 * 2;
        float2 gamma = *(const float2 *)(weights + channel);
        float2 beta = *(const float2 *)(weights + C + channel);
#pragma unroll
        for (int r = 0; r < R; r++) {
            float2 two = unpack_two(word[r][i]);
            float scale = rstd[r], offset = mean[r] * scale;
            word[r][i] = pack_two((two.x * scale - offset) * gamma.x + beta.x,
                                  (two.y * scale - offset) * gamma.y + beta.y);
        }
    }
}

/* -- weights as operands of a warp group */

/* The row of a weight [rows, C] in its tiles of 64 rows and 64 columns. The tiles serve both
 * products of a warp group: z W^T sums over the columns, d W over the rows. Rows are interleaved
 * within 32. Of the five projections of z (kinds p_a g_a p_b g_b g), 32 rows of a p are followed by
 * the same 32 of its gate; the rows of the output's gate g are last. */
template <int C> __device__ inline int tiled_row(int row) {
    int channel = row % C, c = channel % 32, kind = row / C;
    int line = (c >> 1 & 3) * 8 + (c >> 3) * 2 + (c & 1);
    if (kind == 4) return 4 * C + channel / 32 * 32 + line;
    return (kind / 2 * (C / 32) + channel / 32) * 64 + kind % 2 * 32 + line;
}

/* Where row `row`, a multiple of 16 in the tiles' order, begins. */
template <int C> __device__ inline int tiled_at(int row) {
    return row / 64 * 64 * C + row % 64 * 64;
}

/* Loads the five projections from number FIRST on; w is their first row. Columns are in the order
 * of a lane's chunks: column 16 (2 i + h) + 8 w + 2 t + e is number 4 h + 2 w + e of
 * chunk t + 4 i. The block's first THREADS threads load, each one chunk of every 16th (C = 64:
 * 32nd) row. 16 rows further on is four lines further on in the tile, where the swizzle exchanges
 * chunks by four. */
template <int CZ, int C, int FIRST> __device__ inline void tiles_load(bf16 *to, const bf16 *w) {
    constexpr int CHUNKS = CZ / 8, THREADS = 256, STEP = THREADS / CHUNKS;
    constexpr int ROWS = (4 - FIRST) * C + CZ;
    if (threadIdx.x >= THREADS) return;
    int chunk = threadIdx.x % CHUNKS, row = threadIdx.x / CHUNKS;
    int line = tiled_row<C>(row), at[2][4];
    const uint4 *from = (const uint4 *)(w + row * CZ + chunk * 8);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int column = (chunk / 4 * 2 + i / 2) * 16 + i % 2 * 8 + chunk % 4 * 2;
        at[0][i] = column / 64 * 64 * 64 + tile_at<64>(line, column % 64 / 8) + column % 8;
        at[1][i] = (at[0][i] ^ 4 * 8) + 4 * 64;
    }
#pragma unroll
    for (int k = 0; k < ROWS / STEP; k++) {
        const bool is_odd = k * STEP % 32 != 0;
        const int first = tiled_at<CZ>(tiled_row<C>(FIRST * C + k * STEP) - (is_odd ? 4 : 0));
        uint4 words = from[k * STEP * CHUNKS];
        bf16 *tile = to + first - FIRST * C * CZ;
        *(uint32_t *)(tile + at[is_odd][0]) = words.x;
        *(uint32_t *)(tile + at[is_odd][1]) = words.y;
        *(uint32_t *)(tile + at[is_odd][2]) = words.z;
        *(uint32_t *)(tile + at[is_odd][3]) = words.w;
    }
}

/* Starts loading the output projection [CZ, C], columns in their natural order. Called by the whole
 * block, which must wait for the copies. */
template <int CZ, int C> __device__ inline void out_load(bf16 *to, const bf16 *w) {
    for (int i = threadIdx.x; i < CZ * (C / 8); i += blockDim.x) {
        int row = tiled_row<C>(4 * C + i / (C / 8)) - 4 * C, chunk = i % (C / 8);
        copy_async(to + row / 64 * 64 * C + chunk / 8 * 64 * 64 + tile_at<64>(row % 64, chunk % 8),
                   w + i * 8, true);
    }
}

/* Starts d += z W^T for 8 N rows of the weight from `tile` on; z [64, C] are the group's rows. */
template <int C, int N>
__device__ inline void begin_projection(float (&d)[N][4], const uint32_t (&z)[C / 16][4],
                                        const bf16 *tile) {
    uint64_t w = tile_operand<64, K_MAJOR>(tile);
#pragma unroll
    for (int s = 0; s < C / 16; s++)
        wgmma<K_MAJOR>(d, z[s], operand_after(w, s / 4 * 64 * 64 + s % 4 * 16), true);
}

/* Starts acc += d W; d is four interleaved tiles, rows g (d[0]) and g + 8 (d[1]). */
template <int C>
__device__ inline void begin_back(float (&acc)[C / 8][4], const uint32_t (&d)[2][4],
                                  const bf16 *rows) {
    uint64_t w = tile_operand<64, MN_MAJOR>(rows, 64 * 64);
#pragma unroll
    for (int s = 0; s < 2; s++) {
        const uint32_t a[4] = {d[0][2 * s], d[1][2 * s], d[0][2 * s + 1], d[1][2 * s + 1]};
        wgmma<MN_MAJOR>(acc, a, operand_after(w, s * 16 * 64), true);
    }
}

/* A barrier of the warp group. */
__device__ inline void group_barrier(void) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + (int)threadIdx.x / GROUP_THREADS),
                 "n"((int)GROUP_THREADS)
                 : "memory");
}

/* -- 64 rows of x, channel-major: a tile of C lines of 64 */

/* Starts loading rows [at, at + 64) of x. Called by a warp group. */
template <int C> __device__ inline void x_load(bf16 *to, const bf16 *x, int64_t rows, int64_t at) {
    int chunk = threadIdx.x % 8, channel = threadIdx.x % GROUP_THREADS / 8;
    const bf16 *from = x + channel * rows + at + chunk * 8;
    to += tile_at<64>(channel, chunk);
#pragma unroll
    for (int i = 0; i < C / 16; i++, from += 16 * rows)
        copy_async(to + i * 16 * 64, from, true);
}

/* The offset of the lane's line of the step's 16 channels, for ldmatrix_trans and stmatrix_trans of
 * the warp's 16 rows. */
__device__ inline int x_at(int step) {
    int lane = threadIdx.x % 32, warp = threadIdx.x % GROUP_THREADS / 32;
    return tile_at<64>((lane >> 4) * 8 + (lane & 7), warp * 2 + ((lane >> 3) & 1)) + step * 16 * 64;
}

/* Reads the warp's 16 rows as the left operand, channels in their natural order. Words 0 and 2 of a
 * step are row g, words 1 and 3 row g + 8. */
template <int C> __device__ inline void x_rows(uint32_t (&a)[C / 16][4], const bf16 *tile) {
#pragma unroll
    for (int s = 0; s < C / 16; s++)
        ldmatrix_trans(a[s], tile + x_at(s));
}

/* Statistics of row g (half 0) or g + 8 (half 1). */
template <int C>
__device__ inline void x_statistics(const uint32_t (&a)[C / 16][4], int half, float eps,
                                    float *mean, float *rstd) {
    uint32_t word[C / 8];
#pragma unroll
    for (int i = 0; i < C / 8; i++)
        word[i] = a[i / 2][i % 2 * 2 + half];
    row_statistics(word, eps, mean, rstd);
}

/* LayerNorm of those rows in place; `weights` as in rows_normalise. */
template <int C>
__device__ inline void x_normalise(uint32_t (&a)[C / 16][4], const float *weights,
                                   const float (&mean)[2], const float (&rstd)[2]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < C / 8; i++) {
        float2 gamma = *(const float2 *)(weights + 8 * i + 2 * t);
        float2 beta = *(const float2 *)(weights + C + 8 * i + 2 * t);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t &word = a[i / 2][i % 2 * 2 + half];
            float2 two = unpack_two(word);
            float scale = rstd[half], offset = mean[half] * scale;
            word = pack_two((two.x * scale - offset) * gamma.x + beta.x,
                            (two.y * scale - offset) * gamma.y + beta.y);
        }
    }
}

/* Sets the accumulators of four interleaved tiles to the bias of their channels. */
__device__ inline void set_to_bias(float (&acc)[4][4], const float *bias) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 two = *(const float2 *)(bias + 8 * t + 2 * i);
        acc[i][0] = acc[i][2] = two.x;
        acc[i][1] = acc[i][3] = two.y;
    }
}

} // namespace fm_cuda

#endif
