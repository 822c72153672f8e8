/* linear_update.cu: the last linear layer of a sublayer and the end of the sublayer in one pass, in
 * bf16 on warp groups:
 *
 *     y = residual + keep * (x W^T + bias),   n = LayerNorm(y)
 *
 * for rows of N = 64, 128 or 256 channels and K = 64, 128 or 256 inputs, W of at most 128 KB. Such
 * a product takes as long as its memory traffic, so the passes that followed it are what is saved.
 *
 * W stays in shared memory (row_end.cuh has its order). Each warp group of a block works for itself
 * on tiles of 64 rows: the copy engine brings the tile's x, the next one while the group ends its
 * rows. The groups are at different places of a tile, so that memory and tensor cores both have
 * work.
 *
 * Where something is dropped, the 16 rows of a warp share a line of the mask (keep.cuh), and the
 * four warps have lines that follow each other. So a warp draws one line and not one for each of
 * its rows. The copy engine gathers a tile from such rows as fast as from 64 that lie together. */
#include "trainer/backend/cuda/hopper/gemm/row_end.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

template <int N, int K> struct update_shape {
    static constexpr int GROUPS = N == 256 ? 2 : 4, BUFFERS = N == 256 ? 1 : 2;
    static constexpr int THREADS = GROUPS * GROUP_THREADS;
    static constexpr uint32_t ROW_BYTES = GROUP_ROWS * K * sizeof(bf16);
};

enum { LINES = GROUP_ROWS / 16 }; /* of the mask in a tile */

struct update_call {
    box_map w, x, residual; /* 64 columns by N rows; the others by the 64 rows of a tile */
    row_end end;
    int tiles, across; /* of all tiles, so many in turn have the same lines, or else the same rows
                          of their lines */
};

template <int N, int K> struct update_space {
    typedef update_shape<N, K> S;
    bf16 w[N * K], x[S::GROUPS][S::BUFFERS][GROUP_ROWS * K];
    uint64_t weights, full[S::GROUPS][S::BUFFERS];
};

/* The first line of a tile, and the first row of its lines. */
struct tile_lines {
    int line, row;
};

__device__ inline tile_lines lines_of(const update_call &u, int tile) {
    int low = tile % u.across, high = tile / u.across;
    bool side_by_side = u.end.keep.stride > 1; /* neighbours in memory belong to other lines */
    return {(side_by_side ? low : high) * LINES, (side_by_side ? high : low) * 16};
}

/* One thread of a group: asks for the rows of a tile, if there is one. */
template <int N, int K, bool DRAWS>
__device__ inline void update_fetch(const update_call &u, update_space<N, K> *s, int group,
                                    int buffer, int tile) {
    typedef update_shape<N, K> S;
    if (tile >= u.tiles) return;
    uint32_t full = shared_address(&s->full[group][buffer]);
    barrier_expect(full, S::ROW_BYTES);
    box_place at = {tile * GROUP_ROWS, 0, 0, 0, 0};
    if (DRAWS) {
        tile_lines lines = lines_of(u, tile);
        at.row = lines.row, at.at2 = lines.line;
    }
    box_place from = at;
    for (int k = 0; k < K / 64; k++, from.column += 64)
        box_load(shared_address(s->x[group][buffer] + k * GROUP_ROWS * 64), u.x, from, full);
    for (int k = 0; k < N / 64; k++, at.column += 64)
        box_prefetch(u.residual, at);
}

/* The rows of this lane, and the kept channels of its warp. */
template <int N>
__device__ inline line_rows draw_lines(const update_call &u, const fm_philox_counter &clock,
                                       int tile, row_keep<N> &keep) {
    const keep_runs &k = u.end.keep;
    tile_lines lines = lines_of(u, tile);
    uint32_t line = (uint32_t)lines.line + threadIdx.x / 32 % LINES;
    uint32_t row = (uint32_t)lines.row + threadIdx.x % 32 / 4;
    keep.draw(u.end, clock, keep_draw(u.end.dropout, k, {line, 0, 0, 0}, 0));
    return {line * k.line + row * k.stride, 8 * k.stride,
            line < k.lines ? (int)(k.length - row) : 0};
}

template <int N, int K, bool DRAWS>
__global__ void __launch_bounds__(update_shape<N, K>::THREADS, 1)
    wgmma_update(const __grid_constant__ update_call u) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    typedef update_shape<N, K> S;
    update_space<N, K> *space = (update_space<N, K> *)memory;
    int group = threadIdx.x / GROUP_THREADS;
    bool first = threadIdx.x % GROUP_THREADS == 0;
    int stride = gridDim.x * S::GROUPS;
    if (threadIdx.x == 0) {
        barrier_init(shared_address(&space->weights), 1);
        for (int i = 0; i < S::GROUPS * S::BUFFERS; i++)
            barrier_init(shared_address(&space->full[0][i]), 1);
        barriers_publish();
        uint32_t weights = shared_address(&space->weights);
        barrier_expect(weights, sizeof space->w);
        box_place at = {0, 0, 0, 0, 0};
        for (int k = 0; k < K / 64; k++, at.column += 64)
            box_load(shared_address(space->w + k * N * 64), u.w, at, weights);
    }
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    int tile = blockIdx.x + group * gridDim.x;
    if (first) {
        for (int i = 0; i < S::BUFFERS; i++)
            update_fetch<N, K, DRAWS>(u, space, group, i, tile + i * stride);
    }
    barrier_wait(shared_address(&space->weights), 0);
    fm_philox_counter clock = {};
    if (DRAWS) clock = fm_draw_counter(&u.end.dropout.draw);
    for (int buffer = 0, phase = 0; tile < u.tiles; tile += stride) {
        float d[N / 8][4];
        row_keep<N> keep;
        auto rows = [&] {
            if constexpr (DRAWS) {
                return draw_lines<N>(u, clock, tile, keep);
            } else {
                int row = tile * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
                return near_rows{row, u.end.rows};
            }
        }();
        barrier_wait(shared_address(&space->full[group][buffer]), (uint32_t)phase);
        products_begin();
#pragma unroll
        for (int k = 0; k < K / 16; k++) {
            const bf16 *x = space->x[group][buffer] + k / 4 * GROUP_ROWS * 64;
            const bf16 *w = space->w + k / 4 * N * 64;
            wgmma<K_MAJOR, K_MAJOR>(d, operand_after(tile_operand<64, K_MAJOR>(x), k % 4 * 16),
                                    operand_after(tile_operand<64, K_MAJOR>(w), k % 4 * 16), k > 0);
        }
        products_commit();
        row_parts<N> parts;
        load_residual<N>(u.end, rows, parts);
        products_wait<0>(d);
        group_wait(group);
        if (first) update_fetch<N, K, DRAWS>(u, space, group, buffer, tile + S::BUFFERS * stride);
        if (++buffer == S::BUFFERS) buffer = 0, phase ^= 1;
        finish_rows<N, false>(u.end, d, rows, parts, DRAWS ? &keep : NULL);
    }
}

/* -- calls */

/* Boxes of 64 columns and the 64 rows of a tile, of an array like y with c channels. */
static box_map tile_boxes(const row_end &end, bool draws, const void *base, int64_t c) {
    const keep_runs &k = end.keep;
    int64_t extent[5] = {c, end.rows, 1, 1, 1}, stride[4] = {c, 0, 0, 0};
    if (!draws) return make_boxes(base, extent, stride, 64, GROUP_ROWS);
    extent[1] = k.length, extent[2] = k.lines, stride[0] = k.stride * c, stride[1] = k.line * c;
    const int box[5] = {64, 16, LINES, 1, 1};
    return make_long_boxes(base, extent, stride, box);
}

template <int N, int K, bool DRAWS>
static void update_as(fm_stream *stream, const fm_linear_update *a, const row_end &end) {
    typedef update_shape<N, K> S;
    constexpr int BYTES = (int)sizeof(update_space<N, K>);
    FM_CUDA(cudaFuncSetAttribute(wgmma_update<N, K, DRAWS>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    const keep_runs &k = end.keep;
    update_call u;
    u.w = row_end_boxes(a->w, N, K), u.end = end;
    u.tiles = u.across = (int)divide_up(end.rows, GROUP_ROWS);
    if (DRAWS) {
        int across_lines = (int)divide_up(k.lines, LINES), along = (int)divide_up(k.length, 16);
        u.tiles = across_lines * along, u.across = k.stride > 1 ? across_lines : along;
    }
    u.x = tile_boxes(end, DRAWS, a->x, K), u.residual = tile_boxes(end, DRAWS, a->residual, N);
    int64_t blocks = min_size(n_multiprocessor(), divide_up(u.tiles, S::GROUPS));
    launch_after(stream, wgmma_update<N, K, DRAWS>, (unsigned)blocks, S::THREADS, BYTES, true, u);
    FM_LAUNCHED();
}

template <int C>
static void update_of(fm_stream *stream, const fm_linear_update *a, const row_end &end) {
    if (end.keep.is_drawn) {
        update_as<C, C, true>(stream, a, end);
    } else {
        update_as<C, C, false>(stream, a, end);
    }
}

bool linear_update_takes(const fm_linear_update *a) {
    const fm_dropout &d = a->end.dropout;
    int64_t n = d.c, rows = d.n0 * d.n1;
    if (d.rate > 0 && d.shared == FM_SHARED_NONE) return false;
    return (n == 64 || n == 128 || n == 256) && a->c_in == n && rows >= GROUP_ROWS &&
           rows < 1 << 30;
}

void linear_update_wgmma(fm_stream *stream, const fm_linear_update *a) {
    row_end end = row_end_of(&a->end, a->bias, a->residual, a->y, a->n);
    assert(is_aligned(a->x) && is_aligned(a->w));
    if (a->c_in == 64) {
        update_of<64>(stream, a, end);
    } else if (a->c_in == 128) {
        update_of<128>(stream, a, end);
    } else {
        update_of<256>(stream, a, end);
    }
}

} // namespace fm_cuda
