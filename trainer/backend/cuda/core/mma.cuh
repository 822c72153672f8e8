/* mma.cuh: warp-level matrix products in bf16 (mma.sync m16n8k16, f32 accumulators) and the tiles
 * in shared memory that they read.
 *
 * Fragments. The lanes of a warp hold a matrix together. A 32-bit register has two bf16 that are
 * neighbours along the axis that is summed over; the first one is in the low half. With
 * g = lane / 4 and t = lane % 4, a lane holds
 *
 *     A [16, 16]   a[0]  row g, columns 2t, 2t + 1        a[1]  row g + 8, the same columns
 *                  a[2]  row g, columns 2t + 8, 2t + 9    a[3]  row g + 8, the same columns
 *     B [16, 8]    b0    rows 2t, 2t + 1 of column g      b1    rows 2t + 8, 2t + 9 of column g
 *     D [16, 8]    d[0], d[1]  row g, columns 2t, 2t + 1  d[2], d[3]  row g + 8, the same columns
 *
 * D is f32 and is called the accumulator. Two accumulators side by side, rounded to bf16 and packed
 * by pairs, are the A of a next product without any exchange between lanes (times_tile).
 *
 * ldmatrix reads four 8 x 8 matrices into four registers. Lane l gives the address of row l % 8 of
 * matrix l / 8 and receives elements (g, 2t) and (g, 2t + 1) of each matrix; ldmatrix_trans gives
 * elements (2t, g) and (2t + 1, g).
 *
 * Tiles. A tile is a number of rows of C elements (C = 8, 16, 32, 64) without gaps. A row consists
 * of chunks of 8 elements, 16 bytes each. Shared memory serves 128 bytes at a time, eight columns
 * of 16 bytes, and accesses to one column at different addresses wait for each other. ldmatrix
 * reads the same chunk of eight rows at once, which stored in plain order would be in one column.
 * So tile_at exchanges the chunks within each row. For C = 64, place p of row r holds chunk
 * p ^ (r % 8):
 *
 *     row 0    0 1 2 3 4 5 6 7
 *     row 1    1 0 3 2 5 4 7 6
 *     row 2    2 3 0 1 6 7 4 5
 *     row 3    3 2 1 0 7 6 5 4    ...
 *
 * Every column has each chunk once in eight rows, so reads of a chunk of eight rows do not
 * conflict, and neither do writes of whole rows by cp.async. */
#ifndef FM_BACKEND_CUDA_MMA_CUH
#define FM_BACKEND_CUDA_MMA_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

enum { TILE = 64, TILE_THREADS = 128 };

__device__ inline uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ inline void ldmatrix(uint32_t r[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
__device__ inline void ldmatrix(uint32_t r[4], const bf16 *p) {
    ldmatrix(r, shared_address(p));
}

__device__ inline void ldmatrix_trans(uint32_t r[4], const bf16 *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}

/* d += a b. */
__device__ inline void mma(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* d = a b with a sum over eight. A [16, 8] is a0 and a1 of the left operand above, B [8, 8] is b.
 */
__device__ inline void mma_eight_first(float d[4], uint32_t a0, uint32_t a1, uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5}, {%6}, {%7,%7,%7,%7};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b), "f"(0.0f));
}

/* The same, added to d. */
__device__ inline void mma_eight(float d[4], uint32_t a0, uint32_t a1, uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

/* The nearest number of 11 significant bits, tf32. cvt.rna.tf32.f32 would be three instructions on
 * compute capability 9.0. A NaN stays one; numbers above 2^114 become NaN. */
__device__ inline float round_operand(float x) {
    return __fmaf_rn(x, -8192.0f, __fmaf_rn(x, 8192.0f, x));
}
__device__ inline uint32_t operand_of(float x) {
    return __float_as_uint(round_operand(x));
}

/* d += a b in tf32. A [16, 8] holds in a[0] and a[1] rows g and g + 8 of column t, in a[2] and a[3]
 * the same of column t + 4; B [8, 8] in b0 and b1 rows t and t + 4 of column g. */
__device__ inline void mma_tf32(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The transpose of 8 x 8 numbers of bf16 that the warp holds as rows of a fragment. */
__device__ inline uint32_t transpose_eight(uint32_t x) {
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

/* The right operand of mma_eight_first that is `element` on the diagonal and 0 elsewhere. */
__device__ inline uint32_t diagonal_of(uint16_t element) {
    int lane = threadIdx.x % 32;
    return lane / 8 == lane % 4 ? (uint32_t)element << lane / 4 % 2 * 16 : 0;
}

__device__ inline uint32_t pack_two(float low, float high) {
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&two;
}

__device__ inline float2 unpack_two(uint32_t two) {
    return __bfloat1622float2(*(__nv_bfloat162 *)&two);
}

/* Copies 16 bytes to shared memory without passing through registers. Writes zeros unless is_there.
 */
__device__ inline void copy_async(bf16 *to_shared, const bf16 *from, bool is_there) {
    int bytes = is_there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)),
                 "l"(from), "r"(bytes)
                 : "memory");
}
__device__ inline void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most N of the groups that this thread has committed are still under way. */
template <int N> __device__ inline void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* The offset in elements of chunk `chunk` of row `row`. A 128-byte line has 8 / (C / 8) rows; the
 * exchange changes from line to line and depends only on row % 8. */
template <int C> __device__ inline int tile_at(int row, int chunk) {
    constexpr int CHUNKS = C / 8, ROWS_OF_LINE = 8 / CHUNKS;
    return row * C + ((chunk ^ (row / ROWS_OF_LINE % CHUNKS)) * 8);
}

/* Starts copying `count` rows of a matrix to a tile, from row `first` on, rows `stride` elements
 * apart. Only c of the C channels exist, and only rows before `end`; the rest becomes zeros. The
 * whole block takes part, a multiple of C / 8 threads. */
template <int C>
__device__ inline void tile_load(bf16 *tile, int count, const bf16 *rows, int64_t stride,
                                 int64_t first, int64_t end, int c) {
    constexpr int CHUNKS = C / 8;
    int chunk = threadIdx.x % CHUNKS, there = chunk * 8 < c ? (int)min_size(count, end - first) : 0;
    int row = threadIdx.x / CHUNKS, step = blockDim.x / CHUNKS;
    const bf16 *from = rows + (first + row) * stride + chunk * 8;
    for (; row < count; row += step, from += step * stride)
        copy_async(tile + tile_at<C>(row, chunk), row < there ? from : rows, row < there);
}

/* Reads the A operand of a warp: 16 rows of a tile from `row` on, all C channels. */
template <int C>
__device__ inline void tile_rows(uint32_t a[C / 16][4], const bf16 *tile, int row) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < C / 16; k++)
        ldmatrix(a[k], tile + row * C + tile_at<C>(lane & 15, k * 2 + (lane >> 4)));
}

/* s[16, 8 N] += a[16, C] tile[8 N, C]^T. */
template <int C, int N>
__device__ inline void times_tile_transposed(float s[N][4], const uint32_t a[C / 16][4],
                                             const bf16 *tile) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < C / 16; k++) {
        const bf16 *at = tile + tile_at<C>((lane & 7) + (lane >> 4) * 8, k * 2 + ((lane >> 3) & 1));
#pragma unroll
        for (int n = 0; n < N / 2; n++) {
            uint32_t b[4];
            ldmatrix(b, at + n * 16 * C);
            mma(s[2 * n], a[k], b[0], b[1]);
            mma(s[2 * n + 1], a[k], b[2], b[3]);
        }
    }
}

/* o[16, C] += p[16, 8 N] tile[8 N, C]; p is in the layout of an accumulator. */
template <int C, int N>
__device__ inline void times_tile(float o[C / 8][4], const float p[N][4], const bf16 *tile) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        uint32_t a[4] = {pack_two(p[2 * k][0], p[2 * k][1]), pack_two(p[2 * k][2], p[2 * k][3]),
                         pack_two(p[2 * k + 1][0], p[2 * k + 1][1]),
                         pack_two(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < C / 16; n++) {
            uint32_t b[4];
            ldmatrix_trans(b, tile + k * 16 * C + tile_at<C>(lane & 15, n * 2 + (lane >> 4)));
            mma(o[2 * n], a, b[0], b[1]);
            mma(o[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* The sum over the four lanes that share a row. */
__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ inline float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

} // namespace fm_cuda

#endif
