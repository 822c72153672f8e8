/* wgmma.cuh: products of a warp group, four warps together, in bf16 with f32 accumulators
 * (wgmma.mma_async m64nNk16 of compute capability 9.0a): D[64, N] = A[64, 16] B[16, N] (+ D).
 *
 * Tiles. B, and A unless it is in registers, is read from shared memory. The operands are the tiles
 * of mma.cuh: rows of C elements without gaps, with chunks exchanged as tile_at<C> says. For C =
 * 16, 32 and 64 that exchange is the hardware's swizzle of 32, 64 and 128 bytes; C = 8 has none. So
 * tile_load (cp.async), ordinary stores through tile_at, and tile_put (stmatrix) can write such a
 * tile, and ldmatrix can read it. A tile begins at a multiple of TILE_ALIGN bytes.
 *
 * Operands. The same tile can be an operand in two ways:
 *
 *     K_MAJOR     its columns are summed over, and its rows are the rows of A or the columns of B,
 *                 as in q k^T with k [keys, C]
 *     MN_MAJOR    its rows are summed over, and its columns are the rows of A or the columns of B,
 *                 as in p v with v [keys, C]
 *
 * A product takes a 64-bit descriptor for 16 steps of the sum; tile_operand makes it from the
 * address of the first. An operand wider than C continues in further tiles, each `next` elements
 * after the one before. The next 16 of the sum, and the columns beyond C, are at
 *
 *     K_MAJOR     next 16: tile + 16 inside a row, then the next tile. For C = 8 the 16 are two
 *                 tiles of 8 columns, `next` apart
 *     MN_MAJOR    next 16: tile + 16 * C. Columns from C on: `next` elements further
 *
 * Accumulators. D is d[N / 8][4] in each lane. Warp w of the group has rows 16 w to 16 w + 15; for
 * each 8 columns its lanes hold them in the layout of mma.cuh's accumulators. Packed by pairs to
 * bf16 (accumulator_rows), 16 columns of D are the A of a next product. A in registers is what
 * tile_rows reads, 16 rows per warp.
 *
 * Order of events. Products are asynchronous and read shared memory through another path than
 * threads do. So:
 *     1. threads write tiles (for cp.async: copies_wait); every thread that wrote calls
 *        tiles_publish; then a barrier
 *     2. products_begin, any number of products, products_commit
 *     3. other work that touches neither D, nor the registers of A, nor the tiles
 *     4. products_wait; now D may be read, and A's registers and the tiles written again */
#ifndef FM_BACKEND_CUDA_WGMMA_CUH
#define FM_BACKEND_CUDA_WGMMA_CUH

#include "trainer/backend/cuda/core/mma.cuh"

namespace fm_cuda {

enum { GROUP_THREADS = 128, GROUP_ROWS = 64, TILE_ALIGN = 1024 };
enum major { K_MAJOR = 0, MN_MAJOR = 1 };

/* Makes what this thread wrote to shared memory visible to products, after the next barrier. */
__device__ inline void tiles_publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Comes before the first product after registers of D or A were written. */
__device__ inline void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Keeps the compiler from moving accesses to the accumulators across this point. */
template <int N> __device__ inline void products_pin(float (&d)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
}

/* Waits until at most PENDING of the committed groups are under way. With d: an accumulator of a
 * group that is then done, which may be read afterwards. */
template <int PENDING> __device__ inline void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
template <int PENDING, int N> __device__ inline void products_wait(float (&d)[N][4]) {
    products_wait<PENDING>();
    products_pin(d);
}

/* The descriptor of the 16 rows or columns that are summed over. `next` is the distance in elements
 * from a tile to the one that continues its rows; it matters only when the operand is wider than
 * C. */
template <int C, major M> __device__ inline uint64_t tile_operand(const bf16 *tile, int next = 0) {
    static_assert(C == 8 || C == 16 || C == 32 || C == 64);
    constexpr uint64_t LAYOUT = C == 64 ? 1 : C == 32 ? 2 : C == 16 ? 3 : 0;
    constexpr uint32_t EIGHT_ROWS = C; /* in units of 16 bytes, as are all distances here */
    uint32_t further = (uint32_t)next / 8;
    bool is_exchanged = C == 8 && M == MN_MAJOR; /* without a swizzle the distances change places */
    uint32_t leading = is_exchanged ? EIGHT_ROWS : further;
    uint32_t stride = is_exchanged ? further : EIGHT_ROWS;
    uint32_t low = (shared_address(tile) >> 4 & 0x3fff) | leading << 16;
    return LAYOUT << 62 | (uint64_t)stride << 32 | low;
}

/* The operand that begins `elements` (a multiple of 8) after another one. */
__device__ inline uint64_t operand_after(uint64_t operand, int elements) {
    uint32_t low = (uint32_t)operand + (uint32_t)(elements / 8);
    return (operand >> 32 << 32) | low;
}

/* wgmma<MA, MB>(d, a, b, add)    d = A B, or d += A B with `add`; A and B are descriptors
 * wgmma<MB>(d, a, b, add)        A is in registers: one step of tile_rows or accumulator_rows
 *
 * The type of d gives N: 8, 16, 24, 32, 40, 64, 128 or 256. The macros below write the lists of
 * registers that the instruction of each N names. */
#define FM_LIST_TEN(t)                                                                             \
    "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define FM_LIST_8 "%0,%1,%2,%3"
#define FM_LIST_16 FM_LIST_8 ",%4,%5,%6,%7"
#define FM_LIST_24 FM_LIST_TEN() ",%10,%11"
#define FM_LIST_32 FM_LIST_TEN() ",%10,%11,%12,%13,%14,%15"
#define FM_LIST_40 FM_LIST_TEN() "," FM_LIST_TEN(1)
#define FM_LIST_64 FM_LIST_TEN() "," FM_LIST_TEN(1) "," FM_LIST_TEN(2) ",%30,%31"
#define FM_LIST_128                                                                                \
    FM_LIST_TEN()                                                                                  \
    "," FM_LIST_TEN(1) "," FM_LIST_TEN(2) "," FM_LIST_TEN(3) "," FM_LIST_TEN(4) "," FM_LIST_TEN(   \
        5) ",%60,%61,%62,%63"
#define FM_LIST_256                                                                                                 \
    FM_LIST_TEN()                                                                                                   \
    "," FM_LIST_TEN(1) "," FM_LIST_TEN(2) "," FM_LIST_TEN(3) "," FM_LIST_TEN(4) "," FM_LIST_TEN(5) "," FM_LIST_TEN( \
        6) "," FM_LIST_TEN(7) "," FM_LIST_TEN(8) "," FM_LIST_TEN(9) "," FM_LIST_TEN(10) "," FM_LIST_TEN(11) ",%120,%121,%122,%123,%124,%125,%126,%127"

#define FM_ACC_8(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define FM_ACC_16(n) FM_ACC_8(n), FM_ACC_8(n + 1)
#define FM_ACC_24(n) FM_ACC_16(n), FM_ACC_8(n + 2)
#define FM_ACC_32(n) FM_ACC_16(n), FM_ACC_16(n + 2)
#define FM_ACC_40(n) FM_ACC_32(n), FM_ACC_8(n + 4)
#define FM_ACC_64(n) FM_ACC_32(n), FM_ACC_32(n + 4)
#define FM_ACC_128(n) FM_ACC_64(n), FM_ACC_64(n + 8)
#define FM_ACC_256(n) FM_ACC_128(n), FM_ACC_128(n + 16)

/* i0..i6 are the numbers of the asm operands after the N / 2 accumulators. */
#define FM_WGMMA(N, i0, i1, i2, i3, i4, i5, i6)                                                    \
    template <major MB>                                                                            \
    __device__ inline void wgmma(float(&d)[N / 8][4], const uint32_t(&a)[4], uint64_t b,           \
                                 bool add) {                                                       \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i5 ", 0;\n"                             \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" FM_LIST_##N      \
                     "}, {%" #i0 ",%" #i1 ",%" #i2 ",%" #i3 "}, %" #i4 ", p, 1, 1, %" #i6 ";\n}"   \
                     : FM_ACC_##N(0)                                                               \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add),          \
                       "n"((int)MB));                                                              \
    }                                                                                              \
    template <major MA, major MB>                                                                  \
    __device__ inline void wgmma(float(&d)[N / 8][4], uint64_t a, uint64_t b, bool add) {          \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i2 ", 0;\n"                             \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" FM_LIST_##N      \
                     "}, %" #i0 ", %" #i1 ", p, 1, 1, %" #i3 ", %" #i4 ";\n}"                      \
                     : FM_ACC_##N(0)                                                               \
                     : "l"(a), "l"(b), "r"((int)add), "n"((int)MA), "n"((int)MB));                 \
    }
FM_WGMMA(8, 4, 5, 6, 7, 8, 9, 10)
FM_WGMMA(16, 8, 9, 10, 11, 12, 13, 14)
FM_WGMMA(24, 12, 13, 14, 15, 16, 17, 18)
FM_WGMMA(32, 16, 17, 18, 19, 20, 21, 22)
FM_WGMMA(40, 20, 21, 22, 23, 24, 25, 26)
FM_WGMMA(64, 32, 33, 34, 35, 36, 37, 38)
FM_WGMMA(128, 64, 65, 66, 67, 68, 69, 70)
FM_WGMMA(256, 128, 129, 130, 131, 132, 133, 134)
#undef FM_WGMMA

/* a = columns 16 k to 16 k + 15 of an accumulator, rounded to bf16, as the A of a product. */
template <int N>
__device__ inline void accumulator_rows(uint32_t (&a)[4], const float (&d)[N][4], int k) {
    a[0] = pack_two(d[2 * k][0], d[2 * k][1]);
    a[1] = pack_two(d[2 * k][2], d[2 * k][3]);
    a[2] = pack_two(d[2 * k + 1][0], d[2 * k + 1][1]);
    a[3] = pack_two(d[2 * k + 1][2], d[2 * k + 1][3]);
}

__device__ inline void stmatrix(bf16 *p, const uint32_t (&r)[4]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(p)),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}
__device__ inline void stmatrix_trans(bf16 *p, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                     shared_address(p)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* Stores a warp's 16 x 16, packed as by accumulator_rows, to a tile: 16 rows from `row` on, two
 * chunks from `chunk` on. */
template <int C>
__device__ inline void tile_put(bf16 *tile, int row, int chunk, const uint32_t (&r)[4]) {
    int lane = threadIdx.x % 32;
    stmatrix(tile + tile_at<C>(row + (lane & 15), chunk + (lane >> 4)), r);
}

/* The same with rows and columns exchanged: the columns of the 16 x 16 become rows from `row` on.
 */
template <int C>
__device__ inline void tile_put_exchanged(bf16 *tile, int row, int chunk, const uint32_t (&r)[4]) {
    int lane = threadIdx.x % 32;
    stmatrix_trans(tile + tile_at<C>(row + (lane & 7) + (lane >> 4) * 8, chunk + (lane >> 3 & 1)),
                   r);
}

} // namespace fm_cuda

#endif
