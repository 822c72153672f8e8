/* swiglu_transition_grad.cu: the gradient of AlphaFold 3's transition. One kernel in bf16 on warp
 * groups makes a and b again and passes dy back to the normalised x:
 *
 *     a | b = n w1,   dp = dy w2,   da | db = the gradient of swish(a) * b,   dn = (da | db) w1
 *
 * for the shapes of swiglu_transition.cu and with its structure. A chunk of 64 hidden channels is
 * in the accumulators of the first two products and then, in registers, the operand of the third,
 * which reads W1 from the same place as the first. da, db and swish(a) * b also go to memory for
 * the weight gradients, which are products over all rows. LayerNorms before and after it are
 * launches of their own. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/hopper/gemm/row_begin.cuh"
#include "trainer/backend/cuda/hopper/gemm/swiglu.cuh"
#include "trainer/backend/cuda/hopper/gemm/transition.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"
#include "trainer/backend/products.h"

namespace fm_cuda {

struct swiglu_grad_call {
    box_map n, dy, w1, w2;        /* a group's rows, twice; 64 rows by 64 columns; a slot */
    box_map dhidden, product, dn; /* 16 rows of a warp by 64 columns */
    int hidden, chunks, turns, tiles, offset; /* as in transition.cu */
};

/* A chunk has the slots of W1, each 64 columns of the rows of a and of b, side by side, and then
 * one of W2 with C rows by 64 columns. The ring has two chunks. */
template <int C> struct swiglu_grad_space {
    static constexpr int PARTS = C / 64, STEP = PARTS + 1, SLOTS = 2 * STEP;
    static constexpr int SLOT = 128 * 64, LAST = C * 64;
    bf16 n[RING_GROUPS][GROUP_ROWS * C]; /* then dn, on its way to memory */
    bf16 dy[RING_GROUPS][GROUP_ROWS * C];
    bf16 ring[SLOTS][SLOT];
    bf16 stage[RING_WARPS][3][16 * 64]; /* da, db, the product */
    copy_ring<SLOTS> barriers;
    uint64_t rows[RING_GROUPS];
};

/* -- loads */

/* One thread of a group: asks for the rows of its turn. */
template <int C>
__device__ inline void fetch_rows(const swiglu_grad_call &t, swiglu_grad_space<C> *s, int group,
                                  int turn) {
    int tile = tile_of(group, turn);
    if (turn >= t.turns || tile >= t.tiles) return;
    uint32_t rows = shared_address(&s->rows[group]);
    barrier_expect(rows, 2 * sizeof s->n[0]);
    box_place at = {tile * GROUP_ROWS, 0, 0, 0, 0};
    for (int k = 0; k < C / 64; k++, at.column += 64) {
        box_load(shared_address(s->n[group] + k * GROUP_ROWS * 64), t.n, at, rows);
        box_load(shared_address(s->dy[group] + k * GROUP_ROWS * 64), t.dy, at, rows);
    }
}

/* -- products */

/* Starts h = n W1^T, a's 64 columns and then b's, and dp = dy W2. */
template <int C>
__device__ inline void first_products(swiglu_grad_space<C> *s, int group,
                                      const int (&slots)[swiglu_grad_space<C>::STEP],
                                      float (&h)[16][4], float (&dp)[8][4]) {
    typedef swiglu_grad_space<C> S;
    products_pin(h);
    products_pin(dp);
    products_begin();
#pragma unroll
    for (int k = 0; k < C / 16; k++) {
        uint64_t n = tile_operand<64, K_MAJOR>(s->n[group] + k / 4 * GROUP_ROWS * 64);
        uint64_t w1 = tile_operand<64, K_MAJOR>(s->ring[slots[k / 4]]);
        wgmma<K_MAJOR, K_MAJOR>(h, operand_after(n, k % 4 * 16), operand_after(w1, k % 4 * 16),
                                k > 0);
    }
#pragma unroll
    for (int k = 0; k < C / 16; k++) {
        uint64_t dy = tile_operand<64, K_MAJOR>(s->dy[group] + k / 4 * GROUP_ROWS * 64);
        uint64_t w2 = tile_operand<64, MN_MAJOR>(s->ring[slots[S::PARTS]] + k * 16 * 64);
        wgmma<K_MAJOR, MN_MAJOR>(dp, operand_after(dy, k % 4 * 16), w2, k > 0);
    }
    products_commit();
}

/* The bf16 of da, db and the product, as the operands of products. */
struct swiglu_packed {
    uint32_t at[3][4][4];
};

__device__ inline void pass_gate(swiglu_packed &p, const float (&h)[16][4],
                                 const float (&dp)[8][4]) {
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float da[2], db[2], product[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float a = h[n][2 * half + i], b = h[8 + n][2 * half + i], d = dp[n][2 * half + i];
                float open = open_of(a), swish = a * open;
                da[i] = d * b * (open + swish * (1 - open));
                db[i] = d * swish;
                product[i] = swish * b;
            }
            int k = n / 2, i = n % 2 * 2 + half;
            p.at[0][k][i] = pack_two(da[0], da[1]);
            p.at[1][k][i] = pack_two(db[0], db[1]);
            p.at[2][k][i] = pack_two(product[0], product[1]);
        }
}

/* Stores the warp's 16 rows of a chunk, from `row` and hidden channel `first` on. */
template <int C>
__device__ inline void store_chunk(const swiglu_grad_call &t, swiglu_grad_space<C> *s,
                                   const swiglu_packed &p, int row, int first) {
    bf16(*stage)[16 * 64] = s->stage[threadIdx.x / 32];
    if (threadIdx.x % 32 == 0) stores_wait();
    __syncwarp();
#pragma unroll
    for (int which = 0; which < 3; which++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            tile_put<64>(stage[which], 0, 2 * k, p.at[which][k]);
    tiles_publish();
    __syncwarp();
    if (threadIdx.x % 32 > 0) return;
    box_store(t.dhidden, {row, 0, 0, 0, first}, shared_address(stage[0]));
    box_store(t.dhidden, {row, 0, 0, 0, t.hidden + first}, shared_address(stage[1]));
    box_store(t.product, {row, 0, 0, 0, first}, shared_address(stage[2]));
}

/* The products of one tile, from chunk `begin` on. */
template <int C>
__device__ inline void multiply(const swiglu_grad_call &t, swiglu_grad_space<C> *s, int group,
                                int row, int begin, ring_place<swiglu_grad_space<C>::SLOTS> &at,
                                float (&d)[C / 8][4]) {
    typedef swiglu_grad_space<C> S;
    int chunk = begin;
#pragma unroll 1
    for (int turn = 0; turn < t.chunks; turn++) {
        int slots[S::STEP];
        float h[16][4], dp[8][4];
        swiglu_packed p;
        take_slots(s, slots, at);
        first_products<C>(s, group, slots, h, dp);
        products_wait<0>(h);
        products_pin(dp);
        pass_gate(p, h, dp);
        products_pin(d);
        products_begin();
#pragma unroll
        for (int which = 0; which < 2; which++)
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const bf16 *w1 = s->ring[slots[0]] + (which * 64 + k * 16) * 64;
                wgmma<MN_MAJOR>(d, p.at[which][k], tile_operand<64, MN_MAJOR>(w1, S::SLOT),
                                turn > 0 || which > 0 || k > 0);
            }
        products_commit();
        store_chunk<C>(t, s, p, row, chunk * 64);
        products_wait<0>(d);
        free_slots(s, slots);
        if (++chunk == t.chunks) chunk = 0;
    }
}

/* -- the kernel */

/* A computing group. */
template <int C>
__device__ inline void pass_back(const swiglu_grad_call &t, swiglu_grad_space<C> *s, int group) {
    typedef swiglu_grad_space<C> S;
    int warp_row = threadIdx.x / 32 % 4 * 16, offset = group * t.offset;
    ring_place<S::SLOTS> at = {0, 0};
    skip_slots<S::STEP>(s, offset, at);
    for (int turn = 0; turn < t.turns; turn++) {
        int tile = tile_of(group, turn), row = tile * GROUP_ROWS + warp_row;
        if (tile >= t.tiles) {
            skip_slots<S::STEP>(s, t.chunks, at);
            continue;
        }
        barrier_wait(shared_address(&s->rows[group]), turn % 2);
        float d[C / 8][4];
        multiply<C>(t, s, group, row, offset, at, d);
        group_wait(group);
        store_rows<C>(t.dn, s->n[group], d, row, warp_row);
        if (threadIdx.x % 32 == 0) stores_wait();
        group_wait(group);
        if (threadIdx.x % GROUP_THREADS == 0) fetch_rows<C>(t, s, group, turn + 1);
    }
    skip_slots<S::STEP>(s, t.offset - offset, at);
}

template <int C>
__global__ void __launch_bounds__(RING_THREADS, 1)
    wgmma_swiglu_grad(const __grid_constant__ swiglu_grad_call t) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    swiglu_grad_space<C> *space = (swiglu_grad_space<C> *)memory;
    int group = threadIdx.x / GROUP_THREADS;
    ring_begin(space, space->rows, RING_GROUPS);
    if (group == RING_GROUPS) {
        registers_give<FETCH_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_swiglu_weights(t, space);
    } else {
        registers_take<MULTIPLY_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_rows<C>(t, space, group, 0);
        pass_back<C>(t, space, group);
    }
}

/* -- calls */

/* The gradient of a | b, the product, the normalised x and its gradient; then the workspace of one
 * entry at a time. */
struct grad_places {
    void *dhidden, *product, *n, *dn, *after;
    size_t bytes;
};

static grad_places places_of(const fm_swiglu_transition *a, void *workspace) {
    size_t act = sizeof(bf16), hidden = (size_t)(a->rows * a->hidden),
           row = (size_t)(a->rows * a->c);
    carver at = {(char *)workspace, 0};
    grad_places p;
    p.dhidden = at.take(2 * hidden * act), p.product = at.take(hidden * act);
    p.n = at.take(row * act), p.dn = at.take(row * act);
    p.after = at.take(0), p.bytes = at.used;
    return p;
}

template <int C>
static void grad_as(fm_stream *stream, const fm_swiglu_transition *a,
                    const fm_swiglu_transition_grad *g, const grad_places &p) {
    constexpr int BYTES = (int)sizeof(swiglu_grad_space<C>);
    FM_CUDA(cudaFuncSetAttribute(wgmma_swiglu_grad<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 BYTES));
    assert(is_aligned(g->dy) && is_aligned(a->w1) && is_aligned(a->w2));
    swiglu_grad_call t;
    t.n = rows_boxes(p.n, C, a->rows, GROUP_ROWS), t.dy = rows_boxes(g->dy, C, a->rows, GROUP_ROWS);
    t.w1 = rows_boxes(a->w1, C, 2 * a->hidden, 64), t.w2 = rows_boxes(a->w2, a->hidden, C, C);
    t.dhidden = rows_boxes(p.dhidden, 2 * a->hidden, a->rows, 16);
    t.product = rows_boxes(p.product, a->hidden, a->rows, 16);
    t.dn = rows_boxes(p.dn, C, a->rows, 16);
    t.hidden = (int)a->hidden, t.chunks = t.hidden / 64;
    int64_t blocks = plan_turns(&t, a->rows);
    launch_after(stream, wgmma_swiglu_grad<C>, (unsigned)blocks, RING_THREADS, BYTES, true, t);
    FM_LAUNCHED();
}

static fm_layernorm norm_of(const fm_swiglu_transition *a, void *y) {
    fm_layernorm norm = {};
    norm.rows = a->rows, norm.c = norm.ldx = norm.ldy = a->c, norm.eps = a->eps;
    norm.x = a->x, norm.gamma = a->norm, norm.beta = (const bf16 *)a->norm + a->c, norm.y = y;
    return norm;
}

static fm_layernorm_grad norm_grad_of(const fm_swiglu_transition *a,
                                      const fm_swiglu_transition_grad *g, const void *dn) {
    fm_layernorm_grad norm = {};
    norm.rows = a->rows, norm.c = norm.ldx = norm.lddy = norm.lddx = a->c, norm.eps = a->eps;
    norm.x = a->x, norm.gamma = a->norm, norm.dy = dn, norm.dx = g->dx;
    norm.dgamma = norm.dbeta = g->dnorm;
    if (g->dnorm.data) norm.dbeta.data = (float *)g->dnorm.data + a->c;
    return norm;
}

size_t swiglu_transition_grad_wgmma_workspace(const fm_swiglu_transition *a,
                                              const fm_swiglu_transition_grad *g) {
    fm_gemm one = fm_product_of_weight(a->rows, a->c, 2 * a->hidden, NULL, NULL, g->dw1, {});
    fm_gemm two = fm_product_of_weight(a->rows, a->hidden, a->c, NULL, NULL, g->dw2, {});
    int64_t products = max_size((int64_t)gemm_workspace(&one), (int64_t)gemm_workspace(&two));
    int64_t most = max_size(products, (int64_t)layernorm_grad_workspace(a->rows, a->c));
    return places_of(a, NULL).bytes + (size_t)most;
}

void swiglu_transition_grad_wgmma(fm_stream *stream, const fm_swiglu_transition *a,
                                  const fm_swiglu_transition_grad *g, void *workspace) {
    grad_places p = places_of(a, workspace);
    fm_layernorm norm = norm_of(a, p.n);
    layernorm<bf16>(stream, &norm);
    if (a->c == 64) {
        grad_as<64>(stream, a, g, p);
    } else {
        grad_as<128>(stream, a, g, p);
    }
    fm_gemm one = fm_product_of_weight(a->rows, a->c, 2 * a->hidden, p.dhidden, p.n, g->dw1, {});
    if (one.c) gemm<bf16>(stream, &one, p.after);
    fm_gemm two = fm_product_of_weight(a->rows, a->hidden, a->c, g->dy, p.product, g->dw2, {});
    if (two.c) gemm<bf16>(stream, &two, p.after);
    fm_layernorm_grad back = norm_grad_of(a, g, p.dn);
    layernorm_grad<bf16>(stream, &back, p.after);
}

} // namespace fm_cuda
