/* attention_open.cu: the start of the backward of gated attention with a bias on warp groups: the
 * gate's backward of every query (open_eight), before the walks over keys. dout' and the columns'
 * terms go to the workspace, where the walks and wgmma_dbias find them in the layout of their
 * shared memory; the copy engine brings them there.
 *
 * dout is read (open_rows), or made from the gradient of the projection that follows the attention:
 * dout = dy W. open_products makes it by warp groups, a tile of 64 rows at a time with W in shared
 * memory, and opens the rows while they are in registers, so dout never goes through memory.
 *
 * The walks also need the bias, packed with keys as rows. open_products packs it in the time that
 * its first rows take to arrive. In all other cases a kernel of its own does. */
#include "trainer/backend/cuda/hopper/attention/attention_wgmma_grad.cuh"

namespace fm_cuda {

/* Rows of o in the order of memory: of [group, batch, query], or if `is_by_query` of [group, query,
 * batch]. */
struct open_call {
    grad_call grad;
    /* Of open_products: */
    box_map w, dy; /* 64 columns by K rows, and by 64 */
    bias_packing bias;
    int rows, tiles;
    bool is_by_query;
};

/* What a lane reads beside dout to open eight channels of a head of a row. */
struct open_part {
    uint4 o, g;
};

/* The place of a row, without a head, and its query. */
__device__ inline item_place place_of_row(const open_call &c, unsigned row, int *query) {
    unsigned fast = (unsigned)(c.is_by_query ? c.grad.n_batch : c.grad.n_query);
    unsigned slow = (unsigned)(c.is_by_query ? c.grad.n_query : c.grad.n_batch);
    unsigned line = row / fast, at = row - line * fast, group = line / slow;
    int rest = (int)(line - group * slow);
    *query = c.is_by_query ? rest : (int)at;
    return {(int)group, c.is_by_query ? (int)at : rest, 0, 0};
}

/* Loads the eight channels from `channel` of the head on. */
__device__ inline open_part load_part(const grad_call &c, const item_place &p, int query,
                                      int channel) {
    open_part x = {};
    if (channel >= c.c_head) return x;
    x.o = *(const uint4 *)(row_at(c.o, p, query) + channel);
    if (c.g.data) x.g = *(const uint4 *)(row_at(c.g, p, query) + channel);
    return x;
}

/* Opens this lane's eight channels, whose dout is `dout`. They are part number `part` of a head,
 * whose PARTS parts are in neighbouring lanes. All lanes of a warp call it together; `is_inside` is
 * the same for all parts of a head. */
template <int PARTS>
__device__ inline void open_channels(const grad_call &c, const item_place &p, int query, int part,
                                     bool is_inside, const uint4 &dout, const open_part &x) {
    int item = (p.group * c.n_batch + p.batch) * c.n_head + p.head, channel = part * 8;
    float dg[8];
    opened_eight opened = open_eight(dout, x.o, x.g, c.g.data, dg);
    float delta = opened.delta;
    if (PARTS > 2) delta += __shfl_xor_sync(0xffffffffu, delta, 2);
    if (PARTS > 1) delta += __shfl_xor_sync(0xffffffffu, delta, 1);
    if (!is_inside) return;
    if (channel < c.c_head) {
        *(uint4 *)(row_at(c.opened, p, query) + channel) = opened.dout;
        if (c.dg.data) {
            put_pack<bf16, 8>(row_at(c.dg, p, query) + channel, c.dg.adds ? FM_ADD : FM_WRITE, dg);
        }
    }
    float shift = -c.lse[(int64_t)item * c.n_query + query] * c.inverse;
    int queries = (int)c.space.ld_bias_t;
    if (PARTS == 1 && c.space.path == ATTENTION_SMALL) { /* a head of 8 channels is one part */
        ((term_row *)columns_of(c, item))[query] = terms_of_query(shift, -delta);
        return;
    }
    float *columns = columns_of(c, item) + query / 2 * 4 + query % 2;
    /* Both terms twice, for rows g and g + 8 of a column. */
#pragma unroll
    for (int i = part; i < 4; i += PARTS)
        columns[(i & 1) * 2 + (i >> 1) * 2 * queries] = i < 2 ? shift : -delta;
}

/* The columns of queries beyond the last, up to a whole tile: their weights and gradients are
 * zero. */
__device__ inline void open_beyond(const grad_call &c) {
    int queries = (int)c.space.ld_bias_t, beyond = queries - c.n_query;
    int step = (int)(gridDim.x * blockDim.x);
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < c.items * beyond; i += step) {
        int item = i / beyond, query = c.n_query + i % beyond;
        if (c.space.path == ATTENTION_SMALL) {
            ((term_row *)columns_of(c, item))[query] = terms_of_query(NEVER, 0);
            continue;
        }
        float *columns = columns_of(c, item) + query / 2 * 4 + query % 2;
        columns[0] = columns[2] = -INFINITY;
        columns[2 * queries] = columns[2 * queries + 2] = 0;
    }
}

/* -- dout from memory */

enum { OPEN_THREADS = 256 };

/* One thread for each part of a head; heads are fastest, then rows in the order of memory. */
template <int PARTS>
__global__ void __launch_bounds__(OPEN_THREADS) open_rows(const __grid_constant__ open_call call) {
    const grad_call &c = call.grad;
    wait_for_previous();
    let_next_begin();
    unsigned i = blockIdx.x * OPEN_THREADS + threadIdx.x, heads = (unsigned)c.n_head;
    unsigned line = i / PARTS, row = line / heads;
    int part = (int)(i % PARTS), query;
    bool is_inside = row < (unsigned)call.rows;
    item_place p = place_of_row(call, is_inside ? row : 0, &query);
    p.head = (int)(line % heads);
    open_part x = {};
    uint4 dout = make_uint4(0, 0, 0, 0);
    if (is_inside) {
        x = load_part(c, p, query, part * 8);
        if (part * 8 < c.c_head) dout = *(const uint4 *)(row_at(c.dout, p, query) + part * 8);
    }
    open_channels<PARTS>(c, p, query, part, is_inside, dout, x);
    open_beyond(c);
}

/* -- dout = dy W */

/* A block makes 64 of the K columns of dout and keeps that part of W in shared memory. Each warp
 * group works for itself on tiles of 64 rows: the copy engine brings the tile's dy, the next one
 * while the group opens its rows. With few columns per lane, sixteen warps fit a multiprocessor,
 * which hide each other's waiting. The blocks of the other columns read the same dy at about the
 * same time, from the L2 cache. */

enum { COLUMNS = 64, PIECES = COLUMNS / 32 }; /* of 32 columns of a row; a lane has eight */

template <int K> struct product_shape {
    static constexpr int GROUPS = 4, BUFFERS = K == 256 ? 1 : 2, PANELS = K / COLUMNS;
    static constexpr int THREADS = GROUPS * GROUP_THREADS;
    static constexpr uint32_t ROW_BYTES = GROUP_ROWS * K * sizeof(bf16);
};

template <int K> struct product_space {
    typedef product_shape<K> S;
    bf16 w[K * COLUMNS], dy[S::GROUPS][S::BUFFERS][GROUP_ROWS * K];
    uint64_t weights, full[S::GROUPS][S::BUFFERS];
};

/* One thread of a group: asks for the rows of a tile, if there is one. */
template <int K>
__device__ inline void product_fetch(const open_call &u, product_space<K> *s, int group, int buffer,
                                     int tile) {
    if (tile >= u.tiles) return;
    uint32_t full = shared_address(&s->full[group][buffer]);
    barrier_expect(full, product_shape<K>::ROW_BYTES);
    box_place at = {tile * GROUP_ROWS, 0, 0, 0, 0};
    for (int k = 0; k < K / 64; k++, at.column += 64)
        box_load(shared_address(s->dy[group][buffer] + k * GROUP_ROWS * 64), u.dy, at, full);
}

/* Asks the L2 cache for the block's columns of o and g of a tile: one thread for each row. */
__device__ inline void product_prefetch(const open_call &u, int tile, int column) {
    int thread = (int)threadIdx.x % GROUP_THREADS, row = tile * GROUP_ROWS + thread / 2, query;
    if (tile >= u.tiles || row >= u.rows) return;
    item_place p = place_of_row(u, (unsigned)row, &query);
    const grad_tensor &of = thread % 2 == 0 ? u.grad.o : u.grad.g;
    if (of.data) bulk_prefetch(row_at(of, p, query) + column, COLUMNS * sizeof(bf16));
}

/* Packs the bias, if its heads are together, while the first rows are on their way. It is small, so
 * a kernel of its own takes several times as long as its memory traffic. */
template <int H> __device__ inline void pack_beside(const bias_packing &b) {
    if (!b.is_together) return;
    int warp = (int)(threadIdx.x / 32 * gridDim.x + blockIdx.x);
    int step = (int)(gridDim.x * blockDim.x);
    for (int i = warp * 32 + (int)threadIdx.x % 32; i < b.lanes; i += step)
        pack_lane<H>(b, i);
    __syncwarp(); /* products need converged warps */
}

template <int K, int PARTS>
__global__ void __launch_bounds__(product_shape<K>::THREADS, 1)
    open_products(const __grid_constant__ open_call u) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    typedef product_shape<K> S;
    product_space<K> *space = (product_space<K> *)memory;
    const grad_call &c = u.grad;
    int group = threadIdx.x / GROUP_THREADS, blocks = gridDim.x / S::PANELS;
    int column = blockIdx.x % S::PANELS * COLUMNS, stride = blocks * S::GROUPS;
    bool first = threadIdx.x % GROUP_THREADS == 0;
    if (threadIdx.x == 0) {
        barrier_init(shared_address(&space->weights), 1);
        for (int i = 0; i < S::GROUPS * S::BUFFERS; i++)
            barrier_init(shared_address(&space->full[0][i]), 1);
        barriers_publish();
        barrier_expect(shared_address(&space->weights), sizeof space->w);
        box_load(shared_address(space->w), u.w, {0, 0, 0, 0, column},
                 shared_address(&space->weights));
    }
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    int tile = blockIdx.x / S::PANELS + group * blocks;
    if (first) {
        for (int i = 0; i < S::BUFFERS; i++)
            product_fetch<K>(u, space, group, i, tile + i * stride);
    }
    open_beyond(c);
    pack_beside<K / (8 * PARTS)>(u.bias);
    barrier_wait(shared_address(&space->weights), 0);
    for (int buffer = 0, phase = 0; tile < u.tiles; tile += stride) {
        int row = tile * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        float d[COLUMNS / 8][4];
        open_part x[PIECES][2];
        item_place p[2];
        int query[2];
        bool is_inside[2];
        /* This lane's eight channels of piece i are part `part` of head `head`. */
        auto chunk = [=](int i) { return column / 8 + i * 4 + (int)threadIdx.x % 4; };
#pragma unroll
        for (int half = 0; half < 2; half++) {
            is_inside[half] = row + 8 * half < u.rows;
            p[half] = place_of_row(u, is_inside[half] ? row + 8 * half : 0, &query[half]);
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                p[half].head = chunk(i) / PARTS;
                x[i][half] = load_part(c, p[half], query[half], chunk(i) % PARTS * 8);
            }
        }
        barrier_wait(shared_address(&space->full[group][buffer]), (uint32_t)phase);
        products_begin();
#pragma unroll
        for (int k = 0; k < K / 16; k++) {
            const bf16 *dy = space->dy[group][buffer] + k / 4 * GROUP_ROWS * 64;
            wgmma<K_MAJOR, MN_MAJOR>(d, operand_after(tile_operand<64, K_MAJOR>(dy), k % 4 * 16),
                                     tile_operand<64, MN_MAJOR>(space->w + k * 16 * 64), k > 0);
        }
        products_commit();
        product_prefetch(u, tile + stride, column);
        products_wait<0>(d);
        asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
        if (first) product_fetch<K>(u, space, group, buffer, tile + S::BUFFERS * stride);
        if (++buffer == S::BUFFERS) buffer = 0, phase ^= 1;
#pragma unroll
        for (int i = 0; i < PIECES; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t word[4];
#pragma unroll
                for (int n = 0; n < 4; n++)
                    word[n] = pack_two(d[4 * i + n][2 * half], d[4 * i + n][2 * half + 1]);
                p[half].head = chunk(i) / PARTS;
                open_channels<PARTS>(c, p[half], query[half], chunk(i) % PARTS, is_inside[half],
                                     transpose_four(word), x[i][half]);
            }
        __syncwarp(); /* products need converged warps */
    }
}

/* -- launches */

static open_call open_call_of(const fm_attention *a, const grad_call *grad) {
    open_call u = {};
    u.grad = *grad;
    u.rows = (int)(a->n_group * a->n_batch * a->n_query);
    u.tiles = (int)divide_up(u.rows, GROUP_ROWS);
    u.is_by_query = a->o_stride.batch < a->o_stride.row;
    u.bias = attention_bias_packing(a, &grad->space, true);
    return u;
}

template <int PARTS> static void launch_rows(fm_stream *stream, const open_call &u) {
    int64_t threads = (int64_t)u.rows * u.grad.n_head * PARTS;
    launch_after(stream, open_rows<PARTS>, (unsigned)divide_up(threads, OPEN_THREADS), OPEN_THREADS,
                 0, true, u);
    FM_LAUNCHED();
}

template <int K, int PARTS>
static void launch_products(fm_stream *stream, const fm_attention_grad *grad, open_call u) {
    typedef product_shape<K> S;
    constexpr int BYTES = (int)sizeof(product_space<K>);
    const int64_t rows[5] = {K, u.rows, 1, 1, 1}, weights[5] = {K, K, 1, 1, 1};
    const int64_t stride[4] = {K, 0, 0, 0};
    allow_shared(open_products<K, PARTS>, BYTES);
    u.w = make_boxes(grad->w, weights, stride, COLUMNS, K);
    u.dy = make_boxes(grad->dy, rows, stride, 64, GROUP_ROWS);
    int64_t blocks = min_size(n_multiprocessor() / S::PANELS, divide_up(u.tiles, S::GROUPS));
    launch_after(stream, open_products<K, PARTS>, (unsigned)(blocks * S::PANELS), S::THREADS, BYTES,
                 true, u);
    FM_LAUNCHED();
}

bool attention_opens_products(const fm_attention *a, int64_t c_y) {
    int64_t n = a->n_head * a->c_head;
    bool is_row_major = a->o_stride.head == a->c_head &&
                        ((a->o_stride.row == n && a->o_stride.batch == n * a->n_query) ||
                         (a->o_stride.batch == n && a->o_stride.row == n * a->n_batch)) &&
                        (a->n_group == 1 || a->o_stride.group == n * a->n_query * a->n_batch);
    return c_y == n && is_row_major && (!a->g || a->g_stride.head == a->c_head) &&
           ((a->c_head == 32 && (n == 128 || n == 256)) ||
            (n == 64 && (a->c_head == 8 || a->c_head == 16)));
}

void attention_open(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                    const grad_call *call) {
    open_call u = open_call_of(a, call);
    if (!grad->dy || !u.bias.is_together) attention_pack_bias(stream, a, &call->space, true);
    if (!grad->dy) {
        if (a->c_head == 8) return launch_rows<1>(stream, u);
        if (a->c_head == 16) return launch_rows<2>(stream, u);
        return launch_rows<4>(stream, u);
    }
    assert(attention_opens_products(a, a->n_head * a->c_head));
    if (a->c_head == 8) return launch_products<64, 1>(stream, grad, u);
    if (a->c_head == 16) return launch_products<64, 2>(stream, grad, u);
    if (a->n_head == 4) return launch_products<128, 4>(stream, grad, u);
    return launch_products<256, 4>(stream, grad, u);
}

} // namespace fm_cuda
