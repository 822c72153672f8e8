/* skinny.cu: the products of a projection to four heads (the bias of pair attention) in bf16: many
 * rows on one side, four numbers on the other. They are as long as their memory traffic; library
 * kernels, made for tiles, take 1.6 times as long. (The weight gradient, 4 x 128 from
 * 65,536 rows, is not here: a kernel of this kind took 17 us, cuBLASLt takes 15.)
 *
 *     heads        C[m, 4] = A[m, k] B[4, k]^T              lanes share a row, W in registers
 *     spread       C[m, n] (+)= A[m, 4] B[4, n]             a thread eight columns
 */
#include "trainer/backend/cuda/gemm/gemm.cuh"

namespace fm_cuda {

enum { SKINNY = 4, SKINNY_THREADS = 256, SKINNY_BATCH = 4 };

/* ---- to four heads ---- */

/* The sums of four values over the lanes of a group, one in each of its first four lanes: lane l
 * has value (l & 1) * 2 + (l >> 1 & 1). */
template <int LANES> __device__ inline float sum_four(const float (&x)[SKINNY], int lane) {
    bool is_high = lane & 1, is_odd = lane & 2;
    float keep0 = is_high ? x[2] : x[0], keep1 = is_high ? x[3] : x[1];
    keep0 += __shfl_xor_sync(0xffffffffu, is_high ? x[0] : x[2], 1);
    keep1 += __shfl_xor_sync(0xffffffffu, is_high ? x[1] : x[3], 1);
    float total = is_odd ? keep1 : keep0;
    total += __shfl_xor_sync(0xffffffffu, is_odd ? keep0 : keep1, 2);
#pragma unroll
    for (int step = 4; step < LANES; step *= 2)
        total += __shfl_xor_sync(0xffffffffu, total, step);
    return total;
}

template <int LANES> __global__ void __launch_bounds__(SKINNY_THREADS) heads_kernel(fm_gemm g) {
    int lane = threadIdx.x % LANES;
    float w[SKINNY][8];
#pragma unroll
    for (int h = 0; h < SKINNY; h++)
        load<bf16, 8>((const bf16 *)g.b + h * g.ldb + lane * 8, w[h]);
    int64_t step = (int64_t)gridDim.x * (SKINNY_THREADS / LANES);
    int64_t first = blockIdx.x * (int64_t)(SKINNY_THREADS / LANES) + threadIdx.x / LANES;
    const bf16 *a = (const bf16 *)g.a + lane * 8;
    int64_t turns = divide_up(g.m, step * SKINNY_BATCH); /* the same for all: warps stay whole */
    for (int64_t turn = 0; turn < turns; turn++) {
        int64_t row = first + turn * step * SKINNY_BATCH;
        pack<bf16, 8> x[SKINNY_BATCH];
#pragma unroll
        for (int b = 0; b < SKINNY_BATCH; b++)
            x[b] = *(const pack<bf16, 8> *)(a + min_size(row + b * step, g.m - 1) * g.lda);
#pragma unroll
        for (int b = 0; b < SKINNY_BATCH; b++) {
            float sum[SKINNY] = {};
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int h = 0; h < SKINNY; h++)
                    sum[h] += get(x[b].at[i]) * w[h][i];
            float total = sum_four<LANES>(sum, lane);
            int64_t at = row + b * step;
            if (lane < SKINNY && at < g.m)
                ((bf16 *)g.c)[at * g.ldc + (lane & 1) * 2 + (lane >> 1)] = to<bf16>(total);
        }
    }
}

/* ---- from four heads ---- */

__global__ void __launch_bounds__(SKINNY_THREADS) spread_kernel(fm_gemm g, int lanes) {
    int at = threadIdx.x % lanes * 8, rows = SKINNY_THREADS / lanes;
    if ((int)threadIdx.x >= rows * lanes) return;
    float w[SKINNY][8];
#pragma unroll
    for (int h = 0; h < SKINNY; h++)
        load<bf16, 8>((const bf16 *)g.b + h * g.ldb + at, w[h]);
    fm_beta beta = g.beta != 0 ? FM_ADD : FM_WRITE;
    int64_t step = (int64_t)gridDim.x * rows;
#pragma unroll 4
    for (int64_t row = blockIdx.x * (int64_t)rows + threadIdx.x / lanes; row < g.m; row += step) {
        float a[SKINNY], x[8] = {};
        load<bf16, SKINNY>((const bf16 *)g.a + row * g.lda, a);
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int h = 0; h < SKINNY; h++)
                x[i] += a[h] * w[h][i];
        put_pack<bf16, 8>((bf16 *)g.c + row * g.ldc + at, beta, x);
    }
}

/* ---- calls ---- */

enum skinny_kind { SKINNY_NONE, SKINNY_HEADS, SKINNY_SPREAD };

/* By shape alone. */
static skinny_kind skinny_kind_of(const fm_gemm *g) {
    enum { MANY_ROWS = 4096 };
    if (g->batch != 1 || g->alpha != 1 || g->epilogue != FM_EPILOGUE_NONE) return SKINNY_NONE;
    if (g->n == SKINNY && !g->trans_a && g->trans_b && !g->c_is_acc && g->beta == 0 &&
        g->m >= MANY_ROWS && (g->k == 64 || g->k == 128 || g->k == 256))
        return SKINNY_HEADS;
    if (g->k == SKINNY && !g->trans_a && !g->trans_b && !g->c_is_acc && g->m >= MANY_ROWS &&
        g->n % 8 == 0 && g->n <= 1024 && (g->beta == 0 || g->beta == 1))
        return SKINNY_SPREAD;
    return SKINNY_NONE;
}

static bool skinny_is_even(const fm_gemm *g, skinny_kind kind) {
    bool a = kind == SKINNY_HEADS ? is_aligned(g->a) && is_whole<bf16>(g->lda)
                                  : (uintptr_t)g->a % 8 == 0 && g->lda % SKINNY == 0;
    bool c = kind != SKINNY_SPREAD || (is_aligned(g->c) && is_whole<bf16>(g->ldc));
    return a && c && is_aligned(g->b) && is_whole<bf16>(g->ldb);
}

template <> bool skinny_fits<float>(const fm_gemm *) {
    return false;
}

template <> bool skinny_fits<bf16>(const fm_gemm *g) {
    skinny_kind kind = skinny_kind_of(g);
    return kind != SKINNY_NONE && !g->addend && skinny_is_even(g, kind);
}

static void heads(fm_stream *stream, const fm_gemm *g) {
    int64_t rows = SKINNY_THREADS / (g->k / 8);
    unsigned blocks = (unsigned)min_size(132 * 8, divide_up(g->m, rows * SKINNY_BATCH));
    if (g->k == 64) {
        heads_kernel<8><<<blocks, SKINNY_THREADS, 0, queue(stream)>>>(*g);
    } else if (g->k == 128) {
        heads_kernel<16><<<blocks, SKINNY_THREADS, 0, queue(stream)>>>(*g);
    } else {
        heads_kernel<32><<<blocks, SKINNY_THREADS, 0, queue(stream)>>>(*g);
    }
    FM_LAUNCHED();
}

void skinny(fm_stream *stream, const fm_gemm *g) {
    if (skinny_kind_of(g) == SKINNY_HEADS) {
        heads(stream, g);
        return;
    }
    int64_t lanes = g->n / 8, rows = SKINNY_THREADS / lanes;
    unsigned blocks = (unsigned)min_size(132 * 8, divide_up(g->m, rows));
    spread_kernel<<<blocks, SKINNY_THREADS, 0, queue(stream)>>>(*g, (int)lanes);
    FM_LAUNCHED();
}

} // namespace fm_cuda
