/* cuda_check_wgmma.cu: compares every form of a warp group's product (wgmma.cuh) with a plain one.
 * It covers all widths, operands from registers and from tiles of every width, K_MAJOR and
 * MN_MAJOR. These are not entries of a table: on the CPU a case is a loop, on the GPU a kernel of
 * one block. */
#include "tests/trainer/cuda/cuda_check.cuh"

#include "trainer/backend/cuda/hopper/core/wgmma.cuh"

#include <stdio.h>

namespace cuda_check {

using namespace fm_cuda;

constexpr int DEPTH = 64; /* of the sum: four steps */

/* An operand [rows, DEPTH] as tiles of C columns. */
template <int C, major M, int ROWS> struct operand {
    static constexpr int PART = (M == K_MAJOR ? ROWS : DEPTH) * C; /* elements of a tile */
    static constexpr int PARTS = M == K_MAJOR ? DEPTH / C : (ROWS + C - 1) / C;

    __device__ static int at(int row, int depth) {
        int across = M == K_MAJOR ? depth : row, along = M == K_MAJOR ? row : depth;
        return across / C * PART + tile_at<C>(along, across % C / 8) + across % 8;
    }

    __device__ static void fill(bf16 *tiles, const bf16 *from) {
        for (int i = threadIdx.x; i < ROWS * DEPTH; i += blockDim.x)
            tiles[at(i / DEPTH, i % DEPTH)] = from[i];
    }

    __device__ static uint64_t step(const bf16 *tiles, int step) {
        int first = step * 16;
        if (M == MN_MAJOR) return tile_operand<C, M>(tiles + first * C, PART);
        return operand_after(tile_operand<C, M>(tiles, PART), first / C * PART + first % C);
    }
};

/* CA 0: A from registers. */
template <int N, int CA, major MA, int CB, major MB>
__global__ void __launch_bounds__(GROUP_THREADS)
    product(const bf16 *a, const bf16 *b, const float *start, float *to) {
    typedef operand<CA ? CA : 64, MA, GROUP_ROWS> left;
    typedef operand<CB, MB, N> right;
    __shared__ __align__(TILE_ALIGN) bf16 as[left::PART * left::PARTS];
    __shared__ __align__(TILE_ALIGN) bf16 bs[right::PART * right::PARTS];
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    left::fill(as, a);
    right::fill(bs, b);
    tiles_publish();
    __syncthreads();
    float d[N / 8][4];
    for (int n = 0; n < N / 8; n++)
        for (int i = 0; i < 4; i++)
            d[n][i] = start ? start[(warp * 16 + g + i / 2 * 8) * N + n * 8 + 2 * t + i % 2] : 7;
    uint32_t rows[DEPTH / 16][4];
    if (CA == 0) tile_rows<64>(rows, as, warp * 16);
    products_pin(d);
    products_begin();
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        bool add = k > 0 || start;
        if constexpr (CA == 0) {
            wgmma<MB>(d, rows[k], right::step(bs, k), add);
        } else {
            wgmma<MA, MB>(d, left::step(as, k), right::step(bs, k), add);
        }
    }
    products_commit();
    products_wait<0>(d);
    for (int n = 0; n < N / 8; n++)
        for (int i = 0; i < 4; i++)
            to[(warp * 16 + g + i / 2 * 8) * N + n * 8 + 2 * t + i % 2] = d[n][i];
}

typedef void (*product_kernel)(const bf16 *, const bf16 *, const float *, float *);

void check_product(const char *a_name, const char *b_name, int n, bool starts, product_kernel f) {
    char name[64];
    snprintf(name, sizeof name, "wgmma %d a %s b %s%s", n, a_name, b_name, starts ? " +" : "");
    check(name, 1, [=](work_bench &bench) {
        std::vector<double> a = bench.draw(GROUP_ROWS * DEPTH, 1), b = bench.draw(n * DEPTH, 1);
        std::vector<double> d = bench.draw(GROUP_ROWS * n, 1);
        void *on_a = bench.input(a, bench.k->act), *on_b = bench.input(b, bench.k->act);
        void *on_d = bench.input(d, bench.k->acc);
        if (bench.k->act == FM_ELEMENT_F64) {
            for (int i = 0; i < GROUP_ROWS * n; i++) {
                double sum = starts ? d[(size_t)i] : 0;
                for (int k = 0; k < DEPTH; k++)
                    sum += a[(size_t)(i / n * DEPTH + k)] * b[(size_t)(i % n * DEPTH + k)];
                d[(size_t)i] = sum;
            }
            bench.tensors.push_back(
                {OUTPUT, bench.k->acc, GROUP_ROWS * n, bench.make(bench.k->acc, d)});
            return;
        }
        f<<<1, GROUP_THREADS>>>((const bf16 *)on_a, (const bf16 *)on_b,
                                starts ? (const float *)on_d : NULL,
                                (float *)bench.out_acc(GROUP_ROWS * n));
        FM_LAUNCHED();
    });
}

/* B of every width and both orders, A from registers. */
template <int N> void check_right(void) {
    check_product("registers", "K 8", N, false, product<N, 0, K_MAJOR, 8, K_MAJOR>);
    check_product("registers", "K 16", N, false, product<N, 0, K_MAJOR, 16, K_MAJOR>);
    check_product("registers", "K 32", N, false, product<N, 0, K_MAJOR, 32, K_MAJOR>);
    check_product("registers", "K 64", N, true, product<N, 0, K_MAJOR, 64, K_MAJOR>);
    check_product("registers", "MN 8", N, false, product<N, 0, K_MAJOR, 8, MN_MAJOR>);
    check_product("registers", "MN 16", N, false, product<N, 0, K_MAJOR, 16, MN_MAJOR>);
    check_product("registers", "MN 32", N, false, product<N, 0, K_MAJOR, 32, MN_MAJOR>);
    check_product("registers", "MN 64", N, true, product<N, 0, K_MAJOR, 64, MN_MAJOR>);
}

/* A of one width. */
template <int C> void check_left(const char *along, const char *across) {
    check_product(along, "K 64", 64, false, product<64, C, K_MAJOR, 64, K_MAJOR>);
    check_product(across, "K 64", 64, false, product<64, C, MN_MAJOR, 64, K_MAJOR>);
    check_product(along, "MN 32", 32, true, product<32, C, K_MAJOR, 32, MN_MAJOR>);
    check_product(across, "MN 32", 32, true, product<32, C, MN_MAJOR, 32, MN_MAJOR>);
}

/* D as bf16 in tiles, plain and with rows and columns exchanged. */
template <int C>
__global__ void __launch_bounds__(GROUP_THREADS) put_tiles(const float *from, float *to) {
    __shared__ __align__(TILE_ALIGN) bf16 tiles[2][GROUP_ROWS * C];
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float d[C / 8][4];
    for (int n = 0; n < C / 8; n++)
        for (int i = 0; i < 4; i++)
            d[n][i] = from[(warp * 16 + g + i / 2 * 8) * C + n * 8 + 2 * t + i % 2];
#pragma unroll
    for (int k = 0; k < C / 16; k++) {
        uint32_t a[4];
        accumulator_rows(a, d, k);
        tile_put<C>(tiles[0], warp * 16, 2 * k, a);
        /* [C, 64] in tiles of C columns */
        bf16 *part = tiles[1] + warp * 16 / C * C * C;
        tile_put_exchanged<C>(part, k * 16, warp * 16 % C / 8, a);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < GROUP_ROWS * C; i += blockDim.x) {
        int row = i / C, c = i % C;
        to[i] = get(tiles[0][tile_at<C>(row, c / 8) + c % 8]);
        to[GROUP_ROWS * C + i] =
            get(tiles[1][row / C * C * C + tile_at<C>(c, row % C / 8) + row % 8]);
    }
}

template <int C> void check_put(const char *name) {
    check(name, 1, [=](work_bench &bench) {
        constexpr int n = GROUP_ROWS * C;
        std::vector<double> x = bench.draw(n, 1);
        void *from = bench.input(x, bench.k->acc);
        if (bench.k->act == FM_ELEMENT_F64) {
            x.insert(x.end(), x.begin(), x.begin() + n);
            bench.tensors.push_back(
                {OUTPUT, bench.k->acc, (int64_t)2 * n, bench.make(bench.k->acc, x)});
            return;
        }
        put_tiles<C><<<1, GROUP_THREADS>>>((const float *)from, (float *)bench.out_acc(2 * n));
        FM_LAUNCHED();
    });
}

void check_wgmma(void) {
    check_right<8>();
    check_right<16>();
    check_right<24>();
    check_right<32>();
    check_right<40>();
    check_right<64>();
    check_right<128>();
    check_right<256>();
    check_left<8>("K 8", "MN 8");
    check_left<16>("K 16", "MN 16");
    check_left<32>("K 32", "MN 32");
    check_left<64>("K 64", "MN 64");
    check_put<16>("wgmma put 16");
    check_put<32>("wgmma put 32");
    check_put<64>("wgmma put 64");
}

} // namespace cuda_check
