/* transition_grad.cu: the gradient of a transition's update, from the gradient of the LayerNorm
 * behind it to that of its normalised input, in one kernel, in bf16 on warp groups:
 *
 *     dy      = dy + the gradient of y through n          (row_begin.cuh)
 *     dhidden = dy W2 where the hidden layer is above 0, else 0
 *     dx      = dhidden W1
 *
 * for the shapes of transition.cu and with its structure. A chunk of dhidden is in the accumulators
 * of the first product and then, in registers, the operand of the second. It is also written to
 * memory for the weight gradients, which are products over all rows (weights.cu).
 *
 * Each warp loads the hidden layer of its rows ahead of time, in pieces of 16 rows by 64 channels,
 * and stores dhidden from the same place. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"
#include "trainer/backend/cuda/gemm/row_begin.cuh"
#include "trainer/backend/cuda/gemm/transition.cuh"
#include "trainer/backend/cuda/norm/norm.cuh"
#include "trainer/backend/products.h"

namespace fm_cuda {

enum { SUMS_BARRIER = RING_GROUPS + 1 };

struct transition_grad_call {
    box_map w2, w1, kept, dhidden, dx; /* boxes of 64 columns by KS rows, 64, and 16 of a warp */
    row_begin begin;
    float *warp_sums, *sums; /* of dgamma and dbeta: [blocks, warps, 2, C] and [blocks, 2, C] */
    int chunks, turns, tiles, offset; /* as in transition.cu */
};

template <int C> struct transition_grad_shape {
    static constexpr bool IN_REGISTERS = C == 128; /* dy as the left operand */
    static constexpr bool OVERLAPS = C < 256;      /* as in transition.cu */
    static constexpr int CHUNK = C == 256 ? 128 : 64;
    /* Slots of W2, and of W1, for each chunk. A slot of W2 has KS rows by CHUNK columns, in boxes
     * of 64 columns; a slot of W1 has 64 rows by C columns. */
    static constexpr int PARTS = CHUNK / 64, KS = C / PARTS;
    static constexpr int SLOTS = C == 256 ? 4 : 8, SLOT = 64 * C;
    /* Pieces of the hidden layer that a warp has in shared memory. With four, a piece takes the
     * place of the last one but one, so that no thread waits for the store that has just begun. */
    static constexpr int PIECES = C == 256 ? 2 : 4;
};

template <int C> struct transition_grad_space {
    typedef transition_grad_shape<C> S;
    bf16 dy[RING_GROUPS][GROUP_ROWS * C]; /* then dx, on its way to memory */
    bf16 ring[S::SLOTS][S::SLOT];
    bf16 piece[RING_WARPS][S::PIECES][16 * 64];
    uint64_t full[S::SLOTS], empty[S::SLOTS], has[RING_WARPS][S::PIECES];
};

/* -- loads */

/* The fetching thread. */
template <int C>
__device__ inline void fetch_weights(const transition_grad_call &t, transition_grad_space<C> *s) {
    typedef transition_grad_shape<C> S;
    int steps = t.turns * t.chunks + t.offset;
    ring_place<S::SLOTS> at = {0, 1};
    for (int step = 0; step < steps; step++) {
        int first = step % t.chunks * S::CHUNK;
#pragma unroll
        for (int part = 0; part < 2 * S::PARTS; part++) {
            uint32_t full = shared_address(&s->full[at.slot]);
            uint32_t slot = shared_address(s->ring[at.slot]);
            barrier_wait(shared_address(&s->empty[at.slot]), at.phase);
            barrier_expect(full, sizeof s->ring[0]);
            if (part < S::PARTS) {
                for (int n = 0; n < S::CHUNK; n += 64)
                    box_load(slot + n * S::KS * (int)sizeof(bf16), t.w2,
                             {part * S::KS, 0, 0, 0, first + n}, full);
            } else {
                for (int n = 0; n < C; n += 64)
                    box_load(slot + n * 64 * (int)sizeof(bf16), t.w1,
                             {first + (part - S::PARTS) * 64, 0, 0, 0, n}, full);
            }
            at.next();
        }
    }
}

/* One lane of a warp: asks for its piece number `number` of the hidden layer, if there is one. */
template <int C>
__device__ inline void fetch_piece(const transition_grad_call &t, transition_grad_space<C> *s,
                                   int group, int begin, int number) {
    typedef transition_grad_shape<C> S;
    constexpr int PIECES = S::PIECES;
    int warp = threadIdx.x / 32, pieces = t.chunks * S::PARTS, turn = number / pieces;
    int chunk = (begin + number % pieces / S::PARTS) % t.chunks, tile = tile_of(group, turn);
    if (turn >= t.turns || tile >= t.tiles) return;
    uint32_t has = shared_address(&s->has[warp][number % PIECES]);
    barrier_expect(has, sizeof s->piece[0][0]);
    box_load(
        shared_address(s->piece[warp][number % PIECES]), t.kept,
        {tile * GROUP_ROWS + warp % 4 * 16, 0, 0, 0, chunk * S::CHUNK + number % S::PARTS * 64},
        has);
}

/* Asks for the pieces that take the places of stored ones, after piece `number` and the others of
 * its chunk have just been stored. */
template <int C>
__device__ inline void fetch_more(const transition_grad_call &t, transition_grad_space<C> *s,
                                  int group, int begin, int number) {
    typedef transition_grad_shape<C> S;
    if constexpr (S::PIECES == S::PARTS) {
        stores_wait();
        for (int part = 0; part < S::PARTS; part++)
            fetch_piece<C>(t, s, group, begin, number + part + S::PIECES);
    } else {
        stores_wait_but_one();
        if (number > 0) fetch_piece<C>(t, s, group, begin, number - 1 + S::PIECES);
    }
}

/* -- products */

template <int C> struct grad_rows_operand {
    uint32_t a[transition_grad_shape<C>::IN_REGISTERS ? C / 16 : 1][4];
    const bf16 *tile;
};

/* Starts h += dy W2 for the rows of W2 in slot `part`. */
template <int C, int N>
__device__ inline void hidden_products(float (&h)[N][4], const grad_rows_operand<C> &dy,
                                       const bf16 *slot, int part) {
    typedef transition_grad_shape<C> S;
#pragma unroll
    for (int k = 0; k < S::KS / 16; k++) {
        uint64_t w = tile_operand<64, MN_MAJOR>(slot + k * 16 * 64, S::KS * 64);
        int at = part * S::KS / 16 + k;
        if constexpr (S::IN_REGISTERS) {
            wgmma<MN_MAJOR>(h, dy.a[at], w, at > 0);
        } else {
            uint64_t rows = tile_operand<64, K_MAJOR>(dy.tile + at / 4 * GROUP_ROWS * 64);
            wgmma<K_MAJOR, MN_MAJOR>(h, operand_after(rows, at % 4 * 16), w, at > 0);
        }
    }
}

/* p = the bf16 of 64 columns of h where the hidden layer, in piece `number`, is above 0. Stores
 * them from there: rows from `row`, columns from `first` on. */
template <int C>
__device__ inline void mask_piece(const transition_grad_call &t, transition_grad_space<C> *s,
                                  uint32_t (*p)[4], const float (*h)[4], int number, int row,
                                  int first) {
    constexpr int PIECES = transition_grad_shape<C>::PIECES;
    int warp = threadIdx.x / 32;
    bf16 *piece = s->piece[warp][number % PIECES];
    uint32_t kept[4][4];
    barrier_wait(shared_address(&s->has[warp][number % PIECES]), (uint32_t)number / PIECES % 2);
    tile_rows<64>(kept, piece, 0);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 4; k++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = h[2 * k + i / 2] + i % 2 * 2;
            __nv_bfloat162 above = *(const __nv_bfloat162 *)&kept[k][i];
            p[k][i] = pack_two(pair[0], pair[1]) & __hgt2_mask(above, __float2bfloat162_rn(0));
        }
        tile_put<64>(piece, 0, 2 * k, p[k]);
    }
    tiles_publish();
    __syncwarp();
    if (threadIdx.x % 32 == 0) box_store(t.dhidden, {row, 0, 0, 0, first}, shared_address(piece));
}

/* The products of one tile, from chunk `begin` on; number: of the warp's next piece. Where chunks
 * overlap the last second product is under way at the end. */
template <int C>
__device__ inline void multiply(const transition_grad_call &t, transition_grad_space<C> *s,
                                const grad_rows_operand<C> &dy, int group, int row, int begin,
                                ring_place<transition_grad_shape<C>::SLOTS> &at, int &number,
                                float (&d)[C / 8][4]) {
    typedef transition_grad_shape<C> S;
    constexpr int N = S::CHUNK / 8;
    int chunk = begin, before[S::PARTS];
#pragma unroll 1
    for (int turn = 0; turn < t.chunks; turn++) {
        int first = chunk * S::CHUNK, slots[S::PARTS];
        float h[N][4];
        uint32_t p[N / 2][4];
        take_slots(s, slots, at);
        products_pin(h);
        products_begin();
#pragma unroll
        for (int part = 0; part < S::PARTS; part++)
            hidden_products<C>(h, dy, s->ring[slots[part]], part);
        products_commit();
        if constexpr (S::OVERLAPS) {
            products_wait<1>(d);
            if (turn > 0) free_slots(s, before);
        }
        products_wait<0>(h);
        free_slots(s, slots);
#pragma unroll
        for (int part = 0; part < S::PARTS; part++)
            mask_piece<C>(t, s, p + part * 4, h + part * 8, number + part, row, first + part * 64);
        take_slots(s, before, at);
        products_pin(d);
        products_begin();
#pragma unroll
        for (int k = 0; k < S::CHUNK / 16; k++) {
            const bf16 *w1 = s->ring[before[k / 4]] + k % 4 * 16 * 64;
            wgmma<MN_MAJOR>(d, p[k], tile_operand<64, MN_MAJOR>(w1, 64 * 64), turn > 0 || k > 0);
        }
        products_commit();
        if (threadIdx.x % 32 == 0) fetch_more<C>(t, s, group, begin, number);
        __syncwarp();
        number += S::PARTS;
        if constexpr (!S::OVERLAPS) {
            products_wait<0>(d);
            free_slots(s, before);
        }
        if (++chunk == t.chunks) chunk = 0;
    }
}

/* -- the kernel */

/* A computing group. */
template <int C>
__device__ inline void pass_back(const transition_grad_call &t, transition_grad_space<C> *s,
                                 int group) {
    typedef transition_grad_shape<C> S;
    int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 % 4 * 16, offset = group * t.offset;
    int number = 0;
    bf16 *tile_of_dy = s->dy[group];
    ring_place<S::SLOTS> at = {0, 0};
    float *sums = NULL;
    if (t.begin.gamma) sums = begin_sums<C, RING_WARPS>(t.warp_sums);
    if (lane == 0) {
        for (int i = 0; i < S::PIECES; i++)
            fetch_piece<C>(t, s, group, offset, i);
    }
    skip_slots<2 * S::PARTS>(s, offset, at);
    for (int turn = 0; turn < t.turns; turn++) {
        int tile = tile_of(group, turn), row = tile * GROUP_ROWS + warp_row;
        if (tile >= t.tiles) {
            skip_slots<2 * S::PARTS>(s, t.chunks, at);
            continue;
        }
        int later = tile_of(group, turn + 1);
        if (threadIdx.x % GROUP_THREADS == 0 && later < t.tiles) {
            prefetch_rows<C>(t.begin, later * GROUP_ROWS, GROUP_ROWS);
        }
        if (lane == 0) stores_wait();
        __syncwarp();
        begin_rows<C>(t.begin, row, tile_of_dy, warp_row, sums);
        grad_rows_operand<C> dy;
        dy.tile = tile_of_dy;
        if constexpr (S::IN_REGISTERS) {
            __syncwarp();
#pragma unroll
            for (int k = 0; k < C / 16; k += 4)
                tile_rows<64>(dy.a + k, dy.tile + k * 16 * GROUP_ROWS, warp_row);
        } else {
            tiles_publish();
            group_wait(group);
        }
        float d[C / 8][4];
        multiply<C>(t, s, dy, group, row, offset, at, number, d);
        if constexpr (S::OVERLAPS) {
            products_wait<0>(d);
            free_slots(s, {(at.slot + S::SLOTS - 1) % S::SLOTS});
        }
        if (!S::IN_REGISTERS) group_wait(group);
        store_rows<C>(t.dx, tile_of_dy, d, row, warp_row);
    }
    skip_slots<2 * S::PARTS>(s, t.offset - offset, at);
    if (lane == 0) stores_wait();
    if (t.begin.gamma) finish_sums<C, RING_WARPS>(t.warp_sums, t.sums, SUMS_BARRIER);
}

template <int C>
__global__ void __launch_bounds__(RING_THREADS, 1)
    wgmma_transition_grad(const __grid_constant__ transition_grad_call t) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    transition_grad_space<C> *space = (transition_grad_space<C> *)memory;
    int group = threadIdx.x / GROUP_THREADS;
    ring_begin<transition_grad_shape<C>::SLOTS>(space, space->has[0],
                                                RING_WARPS * transition_grad_shape<C>::PIECES);
    if (group == RING_GROUPS) {
        registers_give<FETCH_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_weights<C>(t, space);
    } else {
        registers_take<MULTIPLY_REGISTERS>();
        pass_back<C>(t, space, group);
    }
}

/* -- calls */

static int64_t row_count(const fm_transition *a) {
    return a->end.dropout.n0 * a->end.dropout.n1;
}

/* The workspace has dhidden, the sums of dgamma and dbeta, and that of one product at a time. */
static size_t dhidden_bytes(const fm_transition *a) {
    return (size_t)round_up(row_count(a) * a->hidden * 2, 64);
}
static int64_t sums_count(const fm_transition *a) {
    return n_multiprocessor() * 2 * a->end.dropout.c;
}
static size_t sums_bytes(const fm_transition *a) {
    return (size_t)round_up(sums_count(a) * (1 + RING_WARPS) * (int64_t)sizeof(float), 64);
}

template <int C>
static void transition_grad_as(fm_stream *stream, const fm_transition *a,
                               const fm_transition_grad *g, void *dhidden, float *sums) {
    constexpr int BYTES = (int)sizeof(transition_grad_space<C>);
    typedef transition_grad_shape<C> S;
    FM_CUDA(cudaFuncSetAttribute(wgmma_transition_grad<C>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    int64_t rows = row_count(a);
    transition_grad_call t;
    t.begin = row_begin_of(&a->end, a->y, g->dn, g->dy);
    assert(is_aligned(a->w1) && is_aligned(a->w2) && is_aligned(a->kept) && is_aligned(g->dx.data));
    t.w2 = rows_boxes(a->w2, a->hidden, C, S::KS), t.w1 = rows_boxes(a->w1, C, a->hidden, 64);
    t.kept = rows_boxes(a->kept, a->hidden, rows, 16);
    t.dhidden = rows_boxes(dhidden, a->hidden, rows, 16);
    t.dx = rows_boxes(g->dx.data, C, rows, 16);
    t.chunks = (int)(a->hidden / S::CHUNK);
    int64_t blocks = plan_turns(&t, rows);
    partial_sums norm = norm_sums(blocks, C, g->dgamma, g->dbeta);
    t.sums = sums, t.warp_sums = sums + sums_count(a);
    if (a->end.gamma) {
        t.sums = sums_place(stream, norm, (size_t)sums_count(a) * sizeof(float), sums);
    }
    launch_after(stream, wgmma_transition_grad<C>, (unsigned)blocks, RING_THREADS, BYTES, true, t);
    FM_LAUNCHED();
    norm.partial = t.sums;
    if (a->end.gamma) end_sums(stream, norm);
}

/* With larger hidden layers, which are far beyond the L2 cache, a step was slower with this kernel
 * than with the entries that it replaces (docs/notes/cuda-versions.md). */
bool transition_is_small(const fm_transition *a) {
    return row_count(a) * a->hidden <= (int64_t)1 << 26;
}

bool transition_grad_takes(const fm_transition *a, const fm_transition_grad *g) {
    return transition_takes(a) && a->kept && transition_is_small(a) && g->dx.data &&
           g->dx.beta == FM_WRITE;
}

static size_t weights_bytes(const fm_transition *a, const fm_transition_grad *g) {
    int64_t c = a->end.dropout.c, rows = row_count(a);
    fm_gemm one = fm_product_of_weight(rows, c, a->hidden, NULL, NULL, g->dw1, g->db1);
    fm_gemm two = fm_product_of_weight(rows, a->hidden, c, NULL, NULL, g->dw2, g->db2);
    return (size_t)max_size((int64_t)gemm_workspace(&one), (int64_t)gemm_workspace(&two));
}

size_t transition_grad_wgmma_workspace(const fm_transition *a, const fm_transition_grad *g) {
    return dhidden_bytes(a) + sums_bytes(a) + weights_bytes(a, g);
}

void transition_grad_wgmma(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                           void *workspace) {
    int64_t c = a->end.dropout.c, rows = row_count(a);
    float *sums = (float *)((char *)workspace + dhidden_bytes(a));
    void *after = (char *)sums + sums_bytes(a);
    if (c == 64) {
        transition_grad_as<64>(stream, a, g, workspace, sums);
    } else if (c == 128) {
        transition_grad_as<128>(stream, a, g, workspace, sums);
    } else {
        transition_grad_as<256>(stream, a, g, workspace, sums);
    }
    fm_gemm one = fm_product_of_weight(rows, c, a->hidden, workspace, a->x, g->dw1, g->db1);
    if (one.c) gemm<bf16>(stream, &one, after);
    fm_gemm two = fm_product_of_weight(rows, a->hidden, c, g->dy.data, a->kept, g->dw2, g->db2);
    if (two.c) gemm<bf16>(stream, &two, after);
}

} // namespace fm_cuda
