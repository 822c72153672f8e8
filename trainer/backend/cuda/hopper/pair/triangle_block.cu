/* triangle_block.cu: the whole sublayer of triangle multiplication (A11, A12), forward in three
 * launches:
 *
 *     front     LayerNorm of z, the projections of a and b, their gates and mask: z to a and b,
 *               channel-major. The weights are the product's rows and the rows of z its columns, in
 *               an order in which a lane's accumulators are eight neighbouring rows of a channel:
 *               16-byte stores.
 *     product   over k, one matrix per channel (cuBLASLt)
 *     back      x, channel-major, to y: LayerNorm, output projection, gate, dropout, residual. The
 *               gate is projected again from z, which is read for the residual anyway.
 *
 * So memory sees z read twice, a, b and x written and read once, and y written. */
#include "trainer/backend/cuda/hopper/core/bulk.cuh"
#include "trainer/backend/cuda/hopper/pair/triangle_block.cuh"

namespace fm_cuda {

enum { FRONT_THREADS = 512, FRONT_ROWS = FRONT_THREADS / GROUP_THREADS * GROUP_ROWS };

static const size_t GEMM_SPACE = (size_t)32 << 20; /* for the product, first in the workspace */

/* -- front */

struct front_args {
    const bf16 *z, *mask, *norm, *projections, *bias;
    bf16 *packed;       /* [2, C, rows] */
    uint8_t *keep;      /* [n, CZ / 8] dropout bits, or NULL without dropout */
    float2 *statistics; /* [rows] mean and 1 / deviation of z */
    fm_dropout dropout;
    int64_t rows;
    float eps;
};

/* Draws the dropout mask; one thread draws eight channels of a column. */
__device__ inline void draw_dropout(const front_args &f) {
    const fm_dropout &d = f.dropout;
    int64_t i = (int64_t)blockIdx.x * FRONT_THREADS + threadIdx.x, chunks = d.c / 8;
    uint32_t threshold = fm_drop_threshold(d.rate);
    for (; i < d.n1 * chunks; i += (int64_t)gridDim.x * FRONT_THREADS) {
        uint32_t bits = 0;
        for (int half = 0; half < 2; half++) {
            uint64_t at = fm_dropout_index(
                d.shared, (uint64_t)d.offset0, (uint64_t)(d.offset1 + i / chunks),
                (uint64_t)(i % chunks * 8 + half * 4), (uint64_t)d.global_n1, (uint64_t)d.c);
            fm_philox_counter words = fm_draw_block(&d.draw, at);
#pragma unroll
            for (int k = 0; k < 4; k++)
                bits |= (uint32_t)(words.word[k] >= threshold) << (half * 4 + k);
        }
        f.keep[i] = (uint8_t)bits;
    }
}

template <int CZ, int C> struct front_space {
    bf16 projections[4 * C * CZ], z[FRONT_ROWS * CZ]; /* tiles of 64 rows and 64 columns */
    float norm[2 * CZ], bias[4 * C];
};

/* Loads the weights of a and b. The 64 rows of a tile are 32 channels of an operand: eight rows of
 * p, the same eight of its gate, and so on. The accumulators of a channel and of its gate thus
 * belong to the same lane. A thread takes one chunk of every 32nd (CZ = 64: 64th) of the tiles'
 * rows, which is every 16th (32nd) channel. */
template <int CZ, int C> __device__ inline void paired_load(bf16 *to, const bf16 *w) {
    constexpr int CHUNKS = CZ / 8, STEP = FRONT_THREADS / CHUNKS;
    int chunk = threadIdx.x % CHUNKS, line = threadIdx.x / CHUNKS;
    int channel = line / 16 * 8 + line % 8, gate = line / 8 % 2;
    to += chunk / 8 * 64 * 64 + tile_at<64>(line, chunk % 8);
    w += (channel + gate * C) * CZ + chunk * 8;
#pragma unroll
    for (int k = 0; k < 4 * C / STEP; k++) {
        const int row = k * STEP, first = row / 2 / C * 2 * C + row / 2 % C;
        copy_async(to + row / 64 * 64 * CZ + row % 64 * 64, w + first * CZ, true);
    }
}

/* Loads a warp's 16 of its group's 64 rows of z. */
template <int C>
__device__ inline void front_load(const front_args &f, uint32_t (&z)[2][C / 8], int64_t first) {
    int64_t row = first + threadIdx.x % GROUP_THREADS / 32 * 16 + threadIdx.x % 32 / 4;
    row_load<C>(z[0], f.z + row * C);
    row_load<C>(z[1], f.z + (row + 8) * C);
}

/* Normalises those rows into the group's tile and stores their statistics. Row 8 (q / 2) + 2 i + q
 * % 2 of 32 becomes line 8 i + q. */
template <int C>
__device__ inline void front_operand(const front_args &f, const float *norm, int64_t first,
                                     uint32_t (&z)[2][C / 8], bf16 *tile) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, warp = threadIdx.x % GROUP_THREADS / 32;
    float mean[2], rstd[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        row_statistics(z[half], f.eps, &mean[half], &rstd[half]);
        if (t == 0) {
            f.statistics[first + warp * 16 + half * 8 + g] = make_float2(mean[half], rstd[half]);
        }
    }
    rows_normalise<C>(z, norm, mean, rstd);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = warp * 16 + half * 8 + g, r = row % 32;
        int line = row / 32 * 32 + (r >> 1 & 3) * 8 + (r >> 3) * 2 + (r & 1);
#pragma unroll
        for (int i = 0; i < C / 32; i++) {
            int chunk = t + 4 * i;
            *(uint4 *)(tile + chunk / 8 * 64 * 64 + tile_at<64>(line, chunk % 8)) = make_uint4(
                z[half][4 * i], z[half][4 * i + 1], z[half][4 * i + 2], z[half][4 * i + 3]);
        }
    }
}

/* Projects and gates a group's 64 rows from `first`, 32 channels of an operand at a time. */
template <int CZ, int C>
__device__ inline void front_rows(const front_args &f, const front_space<CZ, C> *space,
                                  const bf16 *tile, int64_t first, const uint4 (&masks)[2]) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, warp = threadIdx.x % GROUP_THREADS / 32;
    uint64_t z = tile_operand<64, K_MAJOR>(tile), w = tile_operand<64, K_MAJOR>(space->projections);
    bf16 *to = f.packed + (warp * 8 + g) * f.rows + first + 8 * t;
#pragma unroll 1
    for (int group = 0; group < 2 * C / 32; group++, to += 32 * f.rows) {
        int row = group * 32 + (group * 32 < C ? 0 : C) + warp * 8 + g;
        float d[8][4], p = space->bias[row], gate = space->bias[row + C];
#pragma unroll
        for (int i = 0; i < 8; i++)
            d[i][0] = d[i][1] = p, d[i][2] = d[i][3] = gate;
        products_pin(d);
        products_begin();
#pragma unroll
        for (int s = 0; s < CZ / 16; s++) {
            int step = s / 4 * 64 * 64 + s % 4 * 16;
            wgmma<K_MAJOR, K_MAJOR>(d, operand_after(w, group * 64 * CZ + step),
                                    operand_after(z, step), true);
        }
        products_commit();
        products_wait<0>(d);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t factors[4] = {masks[half].x, masks[half].y, masks[half].z,
                                         masks[half].w};
            uint32_t out[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float(&e)[4] = d[4 * half + i];
                float2 factor = unpack_two(factors[i]);
                out[i] = pack_two(factor.x * quick_sigmoid(e[2]) * e[0],
                                  factor.y * quick_sigmoid(e[3]) * e[1]);
            }
            *(uint4 *)(to + 32 * half) = make_uint4(out[0], out[1], out[2], out[3]);
        }
    }
}

template <int CZ, int C>
__global__ void __launch_bounds__(FRONT_THREADS, 1) wgmma_triangle_front(const front_args f) {
    extern __shared__ __align__(1024) char shared[];
    front_space<CZ, C> *space = (front_space<CZ, C> *)shared;
    int group = threadIdx.x / GROUP_THREADS;
    bf16 *tile = space->z + group * GROUP_ROWS * CZ;
    int64_t step = (int64_t)gridDim.x * FRONT_ROWS, at = (int64_t)blockIdx.x * FRONT_ROWS;
    const floats_load<2 * CZ, FRONT_THREADS> norm(f.norm);
    const floats_load<4 * C, FRONT_THREADS> bias(f.bias);
    paired_load<CZ, C>(space->projections, f.projections);
    copies_commit();
    bias.store(space->bias), norm.store(space->norm);
    wait_for_previous();
    uint32_t z[2][CZ / 8];
    front_load<CZ>(f, z, at + group * GROUP_ROWS);
    if (f.keep) draw_dropout(f);
    copies_wait<0>();
    tiles_publish();
    __syncthreads();
    for (; at < f.rows; at += step) {
        int64_t first = at + group * GROUP_ROWS;
        const bf16 *mask = f.mask + first + threadIdx.x % 4 * 8;
        const uint4 masks[2] = {*(const uint4 *)mask, *(const uint4 *)(mask + 32)};
        front_operand<CZ>(f, space->norm, first, z, tile);
        tiles_publish();
        group_barrier();
        if (at + step < f.rows) front_load<CZ>(f, z, first + step);
        front_rows<CZ, C>(f, space, tile, first, masks);
        group_barrier();
    }
}

/* -- back */

enum { BACK_GROUPS = 4, BACK_THREADS = BACK_GROUPS * GROUP_THREADS, KEEP_BYTES = 16384 };

struct back_args {
    bf16 *x; /* [C, rows]; further EXTRA_COLUMNS lines of statistics are written with kept_gate */
    const bf16 *z, *norm_in, *norm_out, *gate, *gate_bias, *out, *out_bias;
    const float2 *statistics; /* [rows] of z */
    const uint8_t *keep;
    bf16 *y, *kept_gate; /* NULL: not written; kept_gate: the gate's argument */
    int64_t rows;
    int n;
    float eps, keep_scale;
    bool residual;
};

template <int CZ, int C> struct back_space {
    bf16 gate[CZ * CZ], out[CZ * C], x[BACK_GROUPS][2][C * GROUP_ROWS];
    float norm_in[2 * CZ], norm_out[2 * C], gate_bias[CZ], out_bias[CZ];
    uint4 keep[KEEP_BYTES / sizeof(uint4)];
};

/* Stores a chunk of y of one row, from half 0 or 1 of the accumulators of projection and gate. */
__device__ inline void back_store(const back_args &k, int64_t at, uint4 old, uint32_t bits,
                                  const float (&u)[4][4], const float (&g)[4][4], int half) {
    const uint32_t before[4] = {old.x, old.y, old.z, old.w};
    float after[8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 add = unpack_two(before[i]);
        float low = bits >> (2 * i) & 1 ? k.keep_scale : 0;
        float high = bits >> (2 * i + 1) & 1 ? k.keep_scale : 0;
        low *= quick_sigmoid(g[i][2 * half]) * u[i][2 * half];
        high *= quick_sigmoid(g[i][2 * half + 1]) * u[i][2 * half + 1];
        after[2 * i] = low + add.x, after[2 * i + 1] = high + add.y;
    }
    if (k.y) store_rounded(k.y + at, after);
    if (k.kept_gate) store_tiles(k.kept_gate + at, g, half);
}

/* Stores the statistics of a row of x as EXTRA_COLUMNS further channels of x: the mean and the
 * deviation, each as a sum of three bf16 parts, then two zeros. Backward's product with x then sums
 * them over the rows, too (triangle_weights.cu). */
__device__ inline void store_x_statistics(bf16 *to, int64_t rows, int64_t row, float mean,
                                          float rstd) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 2 * t; i < 2 * t + 2; i++)
        to[i * rows + row] = i < 3   ? bf16_part(mean, i)
                             : i < 6 ? bf16_part(1 / rstd, i - 3)
                                     : __float2bfloat16_rn(0);
}

/* Loads and normalises the warp's 16 rows of z, the lane's being `row` and row + 8, as a left
 * operand. */
template <int C>
__device__ inline void back_operand(const back_args &k, const float *norm, int64_t row,
                                    uint32_t (&z)[C / 16][4]) {
    uint32_t normalised[2][C / 8];
    row_load<C>(normalised[0], k.z + row * C);
    row_load<C>(normalised[1], k.z + (row + 8) * C);
    float2 low = k.statistics[row], high = k.statistics[row + 8];
    const float mean[2] = {low.x, high.x}, rstd[2] = {low.y, high.y};
    rows_normalise<C>(normalised, norm, mean, rstd);
#pragma unroll
    for (int i = 0; i < C / 4; i++)
        z[i / 4][i % 4] = normalised[i % 2][i / 4 * 2 + i % 4 / 2];
}

/* y of the warp's 16 rows from `first`, 32 channels at a time. */
template <int CZ, int C>
__device__ inline void back_rows(const back_args &k, const back_space<CZ, C> *space,
                                 const bf16 *tile, int64_t first) {
    int t = threadIdx.x % 4;
    int64_t row = first + threadIdx.x % 32 / 4;
    uint32_t x[C / 16][4], z[CZ / 16][4], bits[2] = {~0u, ~0u};
    back_operand<CZ>(k, space->norm_in, row, z);
    if (k.keep) {
        const uint32_t *words =
            (const uint32_t *)(k.n * (CZ / 8) <= KEEP_BYTES ? (const uint8_t *)space->keep
                                                            : k.keep);
        bits[0] = keep_bits<CZ>(words + (uint32_t)row % (uint32_t)k.n * (CZ / 32));
        bits[1] = keep_bits<CZ>(words + (uint32_t)(row + 8) % (uint32_t)k.n * (CZ / 32));
    }
    asm volatile("" ::: "memory"); /* do not load x before z's words are free */
    x_rows<C>(x, tile);
    float mean[2], rstd[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        x_statistics<C>(x, half, k.eps, &mean[half], &rstd[half]);
        if (k.kept_gate) {
            store_x_statistics(k.x + C * k.rows, k.rows, row + 8 * half, mean[half], rstd[half]);
        }
    }
    x_normalise<C>(x, space->norm_out, mean, rstd);
    int64_t at = row * CZ + t * 8;
#pragma unroll 1
    for (int channel = 0; channel < CZ; channel += 32, at += 32) {
        float u[4][4], v[4][4];
        set_to_bias(u, space->out_bias + channel);
        set_to_bias(v, space->gate_bias + channel);
        products_pin(u);
        products_pin(v);
        products_begin();
        begin_projection<C>(u, x, space->out + tiled_at<C>(channel));
        begin_projection<CZ>(v, z, space->gate + tiled_at<CZ>(channel));
        products_commit();
        uint4 old[2] = {};
        if (k.residual) {
            old[0] = *(const uint4 *)(k.z + at);
            old[1] = *(const uint4 *)(k.z + at + 8 * CZ);
        }
        products_wait<0>(u);
        products_pin(v);
        back_store(k, at, old[0], bits[0] >> channel / 4, u, v, 0);
        back_store(k, at + 8 * CZ, old[1], bits[1] >> channel / 4, u, v, 1);
    }
}

template <int CZ, int C>
__global__ void __launch_bounds__(BACK_THREADS, 1) wgmma_triangle_back(const back_args k) {
    extern __shared__ __align__(1024) char shared[];
    back_space<CZ, C> *space = (back_space<CZ, C> *)shared;
    int group = threadIdx.x / GROUP_THREADS, thread = threadIdx.x % GROUP_THREADS;
    int64_t step = (int64_t)gridDim.x * BACK_GROUPS * GROUP_ROWS;
    int64_t at = ((int64_t)group * gridDim.x + blockIdx.x) * GROUP_ROWS;
    const floats_load<2 * CZ, BACK_THREADS> norm_in(k.norm_in);
    const floats_load<2 * C, BACK_THREADS> norm_out(k.norm_out);
    const floats_load<CZ, BACK_THREADS> gate_bias(k.gate_bias), out_bias(k.out_bias);
    out_load<CZ, C>(space->out, k.out);
    tiles_load<CZ, C, 4>(space->gate, k.gate);
    norm_in.store(space->norm_in), norm_out.store(space->norm_out);
    gate_bias.store(space->gate_bias), out_bias.store(space->out_bias);
    wait_for_previous();
    if (at < k.rows) {
        x_load<C>(space->x[group][0], k.x, k.rows, at);
        rows_prefetch<CZ>(k.z + at * CZ, GROUP_ROWS, CZ, thread);
    }
    for (int i = threadIdx.x; k.keep && i < k.n * (CZ / 8) / 16; i += BACK_THREADS)
        if (i < KEEP_BYTES / 16) {
            copy_async((bf16 *)&space->keep[i], (const bf16 *)k.keep + i * 8, true);
        }
    copies_commit();
    copies_wait<0>();
    tiles_publish();
    __syncthreads();
    let_next_begin();
    for (int side = 0; at < k.rows; at += step, side ^= 1) {
        copies_wait<0>();
        group_barrier();
        if (at + step < k.rows) {
            x_load<C>(space->x[group][side ^ 1], k.x, k.rows, at + step);
            rows_prefetch<CZ>(k.z + (at + step) * CZ, GROUP_ROWS, CZ, thread);
        }
        copies_commit();
        back_rows<CZ, C>(k, space, space->x[group][side], at + thread / 32 * 16);
    }
}

/* -- calls */

/* Whole rows of the weights fit in shared memory, n^2 rows are whole tiles, and the dropout mask is
 * one bit per column and channel. */
bool triangle_fused_takes(const fm_triangle_block *t) {
    return has_widths(t) && t->n % 16 == 0 &&
           (t->dropout.rate == 0 || t->dropout.shared == FM_SHARED_AXIS0);
}

size_t triangle_fused_kept(const fm_triangle_block *t) {
    int64_t rows = block_rows(t);
    return (size_t)(rows * (3 * t->c + t->c_z + EXTRA_COLUMNS)) * sizeof(bf16) +
           (size_t)rows * sizeof(float2) + (size_t)(t->n * t->c_z / 8);
}

size_t triangle_fused_workspace(const fm_triangle_block *t) {
    return GEMM_SPACE + (t->keeps ? 0 : triangle_fused_kept(t));
}

template <int CZ, int C>
static void block_front(fm_stream *stream, const fm_triangle_block *t, const block_kept &space) {
    front_args f = {};
    f.z = (const bf16 *)t->z, f.mask = (const bf16 *)t->mask;
    f.norm = (const bf16 *)t->norm_in;
    f.projections = (const bf16 *)t->projections, f.bias = (const bf16 *)t->projections_bias;
    f.packed = space.packed;
    f.keep = t->dropout.rate != 0 ? space.keep : NULL;
    f.statistics = space.statistics;
    f.dropout = t->dropout;
    f.rows = block_rows(t), f.eps = (float)t->eps;
    int64_t blocks = min_size(f.rows / FRONT_ROWS, n_multiprocessor());
    allow_shared(wgmma_triangle_front<CZ, C>, sizeof(front_space<CZ, C>));
    launch_after(stream, wgmma_triangle_front<CZ, C>, (unsigned)blocks, FRONT_THREADS,
                 sizeof(front_space<CZ, C>), true, f);
    FM_LAUNCHED();
}

template <int CZ, int C>
static void block_back(fm_stream *stream, const fm_triangle_block *t, const block_kept &space) {
    back_args k = {};
    const bf16 *projections = (const bf16 *)t->projections,
               *bias = (const bf16 *)t->projections_bias;
    k.x = space.x, k.z = (const bf16 *)t->z, k.y = (bf16 *)t->y;
    k.statistics = space.statistics;
    k.kept_gate = t->keeps ? space.gate : NULL;
    k.norm_in = (const bf16 *)t->norm_in, k.norm_out = (const bf16 *)t->norm_out;
    k.gate = projections + 4 * C * CZ, k.gate_bias = bias + 4 * C;
    k.out = (const bf16 *)t->out, k.out_bias = (const bf16 *)t->out_bias;
    k.keep = t->dropout.rate != 0 ? space.keep : NULL;
    k.rows = block_rows(t), k.n = (int)t->n;
    k.eps = (float)t->eps, k.keep_scale = (float)(1 / (1 - t->dropout.rate));
    k.residual = t->residual;
    int64_t blocks = min_size(k.rows / GROUP_ROWS, n_multiprocessor());
    allow_shared(wgmma_triangle_back<CZ, C>, sizeof(back_space<CZ, C>));
    launch_after(stream, wgmma_triangle_back<CZ, C>, (unsigned)blocks, BACK_THREADS,
                 sizeof(back_space<CZ, C>), true, k);
    FM_LAUNCHED();
}

template <int CZ, int C>
static void block_forward(fm_stream *stream, const fm_triangle_block *t, void *workspace) {
    block_kept space = block_kept_at(t, t->keeps ? t->kept : (char *)workspace + GEMM_SPACE);
    block_front<CZ, C>(stream, t, space);
    int64_t n = t->n, plane = n * n * C;
    triangle_multiply<bf16>(stream, workspace, C, n, n, n, t->incoming, !t->incoming, space.packed,
                            space.packed + plane, space.x);
    if (t->y || t->keeps) block_back<CZ, C>(stream, t, space);
}

void triangle_fused(fm_stream *stream, const fm_triangle_block *t, void *workspace) {
    with_widths(t, [=](auto c_z, auto c) { block_forward<c_z, c>(stream, t, workspace); });
}

/* -- parts */

size_t triangle_fused_part_workspace(const fm_triangle_block *t, bool of_gradient) {
    return of_gradient ? block_grad_workspace(t) : GEMM_SPACE;
}

template <int CZ, int C>
static void part_front(fm_stream *stream, const fm_triangle_part *p, void *workspace) {
    const fm_triangle_block *t = &p->block;
    block_kept space = block_kept_at(t, t->kept);
    const bf16 *a = space.packed, *b = a + t->n * t->n_part * C;
    block_front<CZ, C>(stream, t, space);
    if (!t->incoming) return;
    triangle_multiply<bf16>(stream, workspace, C, t->n, t->n, t->n_part, true, false, a, b,
                            p->whole);
}

template <int CZ, int C>
static void part_back(fm_stream *stream, const fm_triangle_part *p, void *workspace) {
    const fm_triangle_block *t = &p->block;
    block_kept space = block_kept_at(t, t->kept);
    if (!t->incoming) {
        triangle_multiply<bf16>(stream, workspace, C, t->n_part, t->n, t->n, false, true,
                                space.packed, p->whole, space.x);
    }
    block_back<CZ, C>(stream, t, space);
}

void triangle_fused_part(fm_stream *stream, fm_triangle_stage stage, const fm_triangle_part *p,
                         void *workspace) {
    const fm_triangle_block *t = &p->block;
    switch (stage) {
    case FM_TRIANGLE_FRONT:
        with_widths(t, [=](auto c_z, auto c) { part_front<c_z, c>(stream, p, workspace); });
        break;
    case FM_TRIANGLE_BACK:
        with_widths(t, [=](auto c_z, auto c) { part_back<c_z, c>(stream, p, workspace); });
        break;
    case FM_TRIANGLE_BACK_GRAD: part_back_grad(stream, p, workspace); break;
    case FM_TRIANGLE_FRONT_GRAD: part_front_grad(stream, p, workspace); break;
    }
}

} // namespace fm_cuda
