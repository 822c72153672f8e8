/* swiglu_transition.cu: AlphaFold 3's transition from its input to its sum in one kernel, in bf16
 * on warp groups:
 *
 *     a | b = w1 LayerNorm(x),   y = x + w2 (swish(a) * b)
 *
 * for rows of C = 64 or 128 channels and a hidden layer that is a multiple of 64. It has the
 * structure of transition.cu: two warp groups with 64 rows each, weights through a ring, and a
 * chunk of 64 hidden channels that is the accumulators of the first product (a's 64 columns, then
 * b's) and then, in registers, the operand of the second. Nothing is kept: backward makes a and b
 * again (swiglu_transition_grad.cu).
 *
 * x is normalised in registers and goes back to shared memory. Kept in registers beside both sums,
 * half of its 128 channels got the registers of the second operand too (ptxas 13.0). */
#include "trainer/backend/cuda/hopper/gemm/row_end.cuh"
#include "trainer/backend/cuda/hopper/gemm/swiglu.cuh"
#include "trainer/backend/cuda/hopper/gemm/transition.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

struct swiglu_call {
    box_map x, w1, w2; /* a group's rows; 64 rows by 64 columns; a slot */
    const bf16 *norm;  /* [2, C] */
    row_end end;
    float eps;
    int hidden, chunks, turns, tiles, offset; /* as in transition.cu */
};

/* Slots of W1 for each chunk have 64 columns of the inputs, and the rows of a and of b; one slot of
 * W2 has C rows by 64 columns. */
template <int C> struct swiglu_space {
    static constexpr int PARTS = C / 64, SLOTS = 8, SLOT = 128 * 64, LAST = C * 64;
    bf16 x[RING_GROUPS][GROUP_ROWS * C];
    bf16 ring[SLOTS][SLOT];
    copy_ring<SLOTS> barriers;
    uint64_t rows[RING_GROUPS];
};

/* -- loads */

/* One thread of a group: asks for the rows of its turn. */
template <int C>
__device__ inline void fetch_rows(const swiglu_call &t, swiglu_space<C> *s, int group, int turn) {
    int tile = tile_of(group, turn);
    if (turn >= t.turns || tile >= t.tiles) return;
    uint32_t rows = shared_address(&s->rows[group]);
    barrier_expect(rows, sizeof s->x[0]);
    box_place at = {tile * GROUP_ROWS, 0, 0, 0, 0};
    for (int k = 0; k < C / 64; k++, at.column += 64)
        box_load(shared_address(s->x[group] + k * GROUP_ROWS * 64), t.x, at, rows);
}

/* -- products */

/* LayerNorm of the warp's 16 rows. */
template <int C>
__device__ inline void normalise_rows(uint32_t (&x)[C / 16][4], const bf16 *norm, float eps) {
    float shift[2], rstd[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float total = 0, squares = 0;
#pragma unroll
        for (int k = 0; k < C / 8; k++) {
            float2 two = unpack_two(x[k / 2][k % 2 * 2 + half]);
            total += two.x + two.y;
        }
        shift[half] = -row_sum(total) * (1.0f / C);
#pragma unroll
        for (int k = 0; k < C / 8; k++) {
            float2 two = unpack_two(x[k / 2][k % 2 * 2 + half]);
            two.x += shift[half], two.y += shift[half];
            squares += two.x * two.x + two.y * two.y;
        }
        rstd[half] = 1.0f / sqrtf(row_sum(squares) * (1.0f / C) + eps);
    }
#pragma unroll
    for (int k = 0; k < C / 8; k++) {
        float2 gamma = unpack_two(__ldg((const uint32_t *)(norm + k * 8) + threadIdx.x % 4));
        float2 beta = unpack_two(__ldg((const uint32_t *)(norm + C + k * 8) + threadIdx.x % 4));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t &pair = x[k / 2][k % 2 * 2 + half];
            float2 two = unpack_two(pair);
            pair = pack_two((two.x + shift[half]) * rstd[half] * gamma.x + beta.x,
                            (two.y + shift[half]) * rstd[half] * gamma.y + beta.y);
        }
    }
}

/* Normalises the warp's 16 rows of a tile, the operand of the first product. */
template <int C>
__device__ inline void normalise_tile(const swiglu_call &t, bf16 *tile, int warp_row) {
    uint32_t x[C / 16][4];
#pragma unroll
    for (int k = 0; k < C / 16; k += 4)
        tile_rows<64>(x + k, tile + k * 16 * GROUP_ROWS, warp_row);
    normalise_rows<C>(x, t.norm, t.eps);
#pragma unroll
    for (int k = 0; k < C / 16; k++)
        tile_put<64>(tile + k / 4 * GROUP_ROWS * 64, warp_row, k % 4 * 2, x[k]);
    tiles_publish();
}

/* p = the bf16 of swish(a) * b as the operand of the second product. */
__device__ inline void product_rows(uint32_t (&p)[4][4], const float (&h)[16][4]) {
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float *a = h[n] + 2 * half, *b = h[8 + n] + 2 * half;
            p[n / 2][n % 2 * 2 + half] =
                pack_two(a[0] * open_of(a[0]) * b[0], a[1] * open_of(a[1]) * b[1]);
        }
}

/* The products of one tile. The last second product is under way at the end. */
template <int C>
__device__ inline void multiply(const swiglu_call &t, swiglu_space<C> *s, const bf16 *x,
                                ring_place<swiglu_space<C>::SLOTS> &at, float (&d)[C / 8][4]) {
    typedef swiglu_space<C> S;
    int before[1];
#pragma unroll 1
    for (int turn = 0; turn < t.chunks; turn++) {
        int slots[S::PARTS];
        float h[16][4];
        uint32_t p[4][4];
        take_slots(s, slots, at);
        products_pin(h);
        products_begin();
#pragma unroll
        for (int k = 0; k < C / 16; k++) {
            uint64_t rows = tile_operand<64, K_MAJOR>(x + k / 4 * GROUP_ROWS * 64);
            uint64_t w = tile_operand<64, K_MAJOR>(s->ring[slots[k / 4]]);
            wgmma<K_MAJOR, K_MAJOR>(h, operand_after(rows, k % 4 * 16),
                                    operand_after(w, k % 4 * 16), k > 0);
        }
        products_commit();
        products_wait<1>(d);
        if (turn > 0) free_slots(s, before);
        products_wait<0>(h);
        free_slots(s, slots);
        product_rows(p, h);
        take_slots(s, before, at);
        products_pin(d);
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint64_t w2 = tile_operand<64, K_MAJOR>(s->ring[before[0]]);
            wgmma<K_MAJOR>(d, p[k], operand_after(w2, k * 16), turn > 0 || k > 0);
        }
        products_commit();
    }
}

/* -- the kernel */

/* A computing group. */
template <int C>
__device__ inline void transform(const swiglu_call &t, swiglu_space<C> *s, int group) {
    typedef swiglu_space<C> S;
    constexpr int STEP = S::PARTS + 1;
    bool is_first = threadIdx.x % GROUP_THREADS == 0;
    int warp_row = threadIdx.x / 32 % 4 * 16, offset = group * t.offset;
    ring_place<S::SLOTS> at = {0, 0};
    skip_slots<STEP>(s, offset, at);
    for (int turn = 0; turn < t.turns; turn++) {
        int tile = tile_of(group, turn);
        if (tile >= t.tiles) {
            skip_slots<STEP>(s, t.chunks, at);
            continue;
        }
        barrier_wait(shared_address(&s->rows[group]), turn % 2);
        normalise_tile<C>(t, s->x[group], warp_row);
        group_wait(group);
        float d[C / 8][4];
        multiply<C>(t, s, s->x[group], at, d);
        group_wait(group);
        if (is_first) fetch_rows<C>(t, s, group, turn + 1);
        int row = tile * GROUP_ROWS + warp_row + (int)threadIdx.x % 32 / 4;
        near_rows rows = {row, t.end.rows};
        row_parts<C> parts;
        load_residual<C>(t.end, rows, parts);
        products_wait<0>(d);
        free_slots(s, {(at.slot + S::SLOTS - 1) % S::SLOTS});
        finish_rows<C, false>(t.end, d, rows, parts, NULL);
    }
    skip_slots<STEP>(s, t.offset - offset, at);
}

template <int C>
__global__ void __launch_bounds__(RING_THREADS, 1)
    wgmma_swiglu_transition(const __grid_constant__ swiglu_call t) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    swiglu_space<C> *space = (swiglu_space<C> *)memory;
    int group = threadIdx.x / GROUP_THREADS;
    ring_begin(space, space->rows, RING_GROUPS);
    if (group == RING_GROUPS) {
        registers_give<FETCH_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_swiglu_weights(t, space);
    } else {
        registers_take<MULTIPLY_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_rows<C>(t, space, group, 0);
        transform<C>(t, space, group);
    }
}

/* -- calls */

template <int C> static void transition_as(fm_stream *stream, const fm_swiglu_transition *a) {
    constexpr int BYTES = (int)sizeof(swiglu_space<C>);
    FM_CUDA(cudaFuncSetAttribute(wgmma_swiglu_transition<C>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    assert(is_aligned(a->x) && is_aligned(a->w1) && is_aligned(a->w2) && is_aligned(a->norm));
    swiglu_call t;
    fm_update_norm end = {};
    end.dropout.n0 = 1, end.dropout.n1 = end.dropout.global_n1 = a->rows, end.dropout.c = C;
    t.end = row_end_of(&end, NULL, a->x, a->y, NULL);
    t.x = rows_boxes(a->x, C, a->rows, GROUP_ROWS);
    t.w1 = rows_boxes(a->w1, C, 2 * a->hidden, 64);
    t.w2 = row_end_boxes(a->w2, C, a->hidden);
    t.norm = (const bf16 *)a->norm, t.eps = (float)a->eps;
    t.hidden = (int)a->hidden, t.chunks = t.hidden / 64;
    int64_t blocks = plan_turns(&t, a->rows);
    launch_after(stream, wgmma_swiglu_transition<C>, (unsigned)blocks, RING_THREADS, BYTES, true,
                 t);
    FM_LAUNCHED();
}

bool swiglu_transition_takes(const fm_swiglu_transition *a) {
    return (a->c == 64 || a->c == 128) && a->hidden % 64 == 0 && a->residual &&
           a->rows >= GROUP_ROWS && a->rows < 1 << 30;
}

void swiglu_transition_wgmma(fm_stream *stream, const fm_swiglu_transition *a) {
    if (a->c == 64) {
        transition_as<64>(stream, a);
    } else {
        transition_as<128>(stream, a);
    }
}

} // namespace fm_cuda
