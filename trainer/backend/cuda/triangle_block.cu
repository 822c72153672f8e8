/* triangle_block.cu: triangle multiplication as a whole (A11, A12), forward, in three launches:
 *
 *     front     LayerNorm, the projections of a and b, their gates and mask: z to a and b,
 *               channel-major. A warp takes 32 rows as the product's columns, so that a lane's
 *               accumulators are eight neighbouring rows of a channel: 16-byte stores, no exchange.
 *     product   over k, a matrix for each channel (cuBLASLt)
 *     back      x, channel-major, to y: LayerNorm, output projection, gate (projected again from z,
 *               which is read for the residual anyway), dropout, residual
 *
 * So memory sees z twice, a, b and x written and read, and y. Other shapes, and f32, are composed
 * of the table's other entries. */
#include "trainer/backend/cuda/triangle_block.cuh"
#include "trainer/backend/triangle_block.h"

namespace fm_cuda {

enum { FRONT_THREADS = 512, FRONT_ROWS = 32, BACK_THREADS = 256, BACK_ROWS = 128 };

/* ---- front ----------------------------------------------------------------------------------- */

struct front_args {
    const bf16 *z, *mask, *norm, *five, *bias;
    bf16 *packed;  /* [2, C, rows] */
    uint8_t *keep; /* [n, C / 8], NULL without dropout */
    fm_dropout dropout;
    int64_t rows;
    float eps;
};

/* A thread draws for eight channels of a column. */
__device__ inline void draw_keep(const front_args &f) {
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

/* acc[4 tiles of 8 rows] += w[16 channels from `row`] z^T. */
template <int C>
__device__ inline void project(float (&acc)[4][4], const bf16 *w, int row,
                               const uint32_t (&z)[4][C / 8]) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < C / 32; i++) {
        uint4 low = *(const uint4 *)(w + weight_at<C>(row + g, t + 4 * i));
        uint4 high = *(const uint4 *)(w + weight_at<C>(row + g + 8, t + 4 * i));
        uint32_t even[4] = {low.x, high.x, low.y, high.y};
        uint32_t odd[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            mma(acc[j], even, z[j][4 * i], z[j][4 * i + 1]);
#pragma unroll
        for (int j = 0; j < 4; j++)
            mma(acc[j], odd, z[j][4 * i + 2], z[j][4 * i + 3]);
    }
}

/* 32 rows from `first`: 16 channels of an operand at a time. Row 8 (q / 2) + 2 j + q % 2 is column
 * q of tile j. */
template <int C>
__device__ inline void front_rows(const front_args &f, const bf16 *w, const float *bias,
                                  const float *norm, int64_t first) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t z[4][C / 8];
#pragma unroll
    for (int j = 0; j < 4; j++)
        row_load<C>(z[j], f.z + (first + mixed(g, j)) * C);
    uint4 mask = *(const uint4 *)(f.mask + first + 8 * t);
    const uint32_t masks[4] = {mask.x, mask.y, mask.z, mask.w};
    rows_normalise<C>(z, norm, f.eps);
    bf16 *to = f.packed + g * f.rows + first + 8 * t;
#pragma unroll 1
    for (int channel = 0; channel < 2 * C; channel += 16, to += 16 * f.rows) {
        int row = channel < C ? channel : channel + C; /* of pa or pb; the gate's is C further */
        float p[4][4], gate[4][4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                p[j][e] = bias[row + g + e / 2 * 8];
                gate[j][e] = bias[row + C + g + e / 2 * 8];
            }
        }
        project<C>(p, w, row, z);
        project<C>(gate, w, row + C, z);
        uint32_t out[2][4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 factor = unpack_two(masks[j]);
#pragma unroll
            for (int half = 0; half < 2; half++)
                out[half][j] =
                    pack_two(factor.x * quick_sigmoid(gate[j][2 * half]) * p[j][2 * half],
                             factor.y * quick_sigmoid(gate[j][2 * half + 1]) * p[j][2 * half + 1]);
        }
#pragma unroll
        for (int half = 0; half < 2; half++)
            *(uint4 *)(to + half * 8 * f.rows) =
                make_uint4(out[half][0], out[half][1], out[half][2], out[half][3]);
    }
}

template <int C> constexpr int front_bytes() {
    return 4 * C * C * (int)sizeof(bf16) + 6 * C * (int)sizeof(float);
}

template <int C>
__global__ void __launch_bounds__(FRONT_THREADS, 1) mma_triangle_front(const front_args f) {
    extern __shared__ __align__(128) char shared[];
    bf16 *w = (bf16 *)shared;
    float *bias = (float *)(w + 4 * C * C), *norm = bias + 4 * C;
    weight_load<C>(w, f.five, 4 * C);
    copies_commit();
    floats_load(bias, f.bias, 4 * C);
    floats_load(norm, f.norm, 2 * C);
    if (f.keep) draw_keep(f);
    copies_wait<0>();
    __syncthreads();
    constexpr int WARPS = FRONT_THREADS / 32;
    int64_t step = (int64_t)gridDim.x * WARPS * FRONT_ROWS;
    int64_t first = ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32) * FRONT_ROWS;
    for (; first < f.rows; first += step)
        front_rows<C>(f, w, bias, norm, first);
}

/* ---- back ------------------------------------------------------------------------------------ */

struct back_args {
    const bf16 *x; /* [C, rows] */
    const bf16 *z, *norm_in, *norm_out, *gate, *gate_bias, *out, *out_bias;
    const uint8_t *keep;
    bf16 *y;
    int64_t rows;
    int n;
    float eps, kept;
    bool residual;
};

/* Where chunk `chunk` (8 rows) of channel `channel` of 128 rows of x lies. */
__device__ inline int x_at(int channel, int chunk) {
    return channel * BACK_ROWS + ((chunk ^ (channel & 7)) * 8);
}

template <int C> __device__ inline void x_load(bf16 *to, const bf16 *x, int64_t rows, int64_t at) {
    constexpr int CHUNKS = BACK_ROWS / 8;
    for (int i = threadIdx.x; i < C * CHUNKS; i += BACK_THREADS) {
        int channel = i / CHUNKS, chunk = i % CHUNKS;
        copy_async(to + x_at(channel, chunk), x + channel * rows + at + chunk * 8, true);
    }
}

/* The warp's 16 rows as the first operand; words 4 s .. 4 s + 3 are step s, of channels in their
 * natural order: 0 and 2 are row g, 1 and 3 row g + 8. */
template <int C> __device__ inline void x_rows(uint32_t (&a)[C / 4], const bf16 *tile) {
    int lane = threadIdx.x % 32, chunk = threadIdx.x / 32 * 2 + ((lane >> 3) & 1);
#pragma unroll
    for (int s = 0; s < C / 16; s++) {
        uint32_t r[4];
        ldmatrix_trans(r, tile + x_at(16 * s + (lane >> 4) * 8 + (lane & 7), chunk));
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[4 * s + i] = r[i];
    }
}

/* Statistics of row g (half 0) or g + 8. */
template <int C>
__device__ inline void x_statistics(const uint32_t (&a)[C / 4], int half, float eps, float *mean,
                                    float *rstd) {
    uint32_t word[C / 8];
#pragma unroll
    for (int i = 0; i < C / 8; i++)
        word[i] = a[2 * i + half];
    row_statistics(word, eps, mean, rstd);
}

template <int C>
__device__ inline void x_normalise(uint32_t (&a)[C / 4], const float *weights, float eps) {
    int t = threadIdx.x % 4;
    float mean[2], rstd[2];
    x_statistics<C>(a, 0, eps, &mean[0], &rstd[0]);
    x_statistics<C>(a, 1, eps, &mean[1], &rstd[1]);
#pragma unroll
    for (int i = 0; i < C / 8; i++) {
        float2 gamma = *(const float2 *)(weights + 8 * i + 2 * t);
        float2 beta = *(const float2 *)(weights + C + 8 * i + 2 * t);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float2 two = unpack_two(a[2 * i + half]);
            a[2 * i + half] = pack_two((two.x - mean[half]) * rstd[half] * gamma.x + beta.x,
                                       (two.y - mean[half]) * rstd[half] * gamma.y + beta.y);
        }
    }
}

/* acc[4 mixed tiles of 32 channels from `channel`] += x w^T, x as x_rows left it. */
template <int C>
__device__ inline void times_natural(float (&acc)[4][4], const uint32_t (&x)[C / 4], const bf16 *w,
                                     int channel) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int u = 0; u < C / 32; u++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t b[4];
            ldmatrix(b, w + weight_at<C>(channel + mixed(lane & 7, i), 4 * u + (lane >> 3)));
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t(&a)[4] = *(const uint32_t(*)[4]) & x[8 * u + 4 * h];
                mma(acc[i], a, b[2 * h], b[2 * h + 1]);
            }
        }
    }
}

/* The same of rows g and g + 8 as row_load left them. */
template <int C>
__device__ inline void times_chunks(float (&acc)[4][4], const uint32_t (&z)[2][C / 8],
                                    const bf16 *w, int channel) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int u = 0; u < C / 32; u++) {
        uint32_t even[4] = {z[0][4 * u], z[1][4 * u], z[0][4 * u + 1], z[1][4 * u + 1]};
        uint32_t odd[4] = {z[0][4 * u + 2], z[1][4 * u + 2], z[0][4 * u + 3], z[1][4 * u + 3]};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint4 b = *(const uint4 *)(w + weight_at<C>(channel + mixed(g, i), t + 4 * u));
            mma(acc[i], even, b.x, b.y);
            mma(acc[i], odd, b.z, b.w);
        }
    }
}

/* Accumulators of four mixed tiles start as the bias of their channels. */
__device__ inline void start_mixed(float (&acc)[4][4], const float *bias) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 two = *(const float2 *)(bias + 8 * t + 2 * i);
        acc[i][0] = acc[i][2] = two.x;
        acc[i][1] = acc[i][3] = two.y;
    }
}

template <int C> struct back_space {
    bf16 gate[C * C], out[C * C], x[C * BACK_ROWS];
    float norm_in[2 * C], norm_out[2 * C], gate_bias[C], out_bias[C];
};

/* A chunk of y of one row, half 0 or 1 of the accumulators of projection and gate. */
template <int C>
__device__ inline void back_store(const back_args &k, int64_t row, int chunk,
                                  const float (&u)[4][4], const float (&g)[4][4], int half) {
    int64_t at = row * C + chunk * 8;
    uint32_t bits = k.keep ? k.keep[(int)(row % k.n) * (C / 8) + chunk] : 0xffu;
    uint4 old = k.residual ? *(const uint4 *)(k.z + at) : make_uint4(0, 0, 0, 0);
    const uint32_t before[4] = {old.x, old.y, old.z, old.w};
    uint32_t after[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 add = unpack_two(before[i]);
        float low = bits >> (2 * i) & 1 ? k.kept : 0, high = bits >> (2 * i + 1) & 1 ? k.kept : 0;
        low *= quick_sigmoid(g[i][2 * half]) * u[i][2 * half];
        high *= quick_sigmoid(g[i][2 * half + 1]) * u[i][2 * half + 1];
        after[i] = pack_two(low + add.x, high + add.y);
    }
    *(uint4 *)(k.y + at) = make_uint4(after[0], after[1], after[2], after[3]);
}

template <int C>
__device__ inline void back_rows(const back_args &k, const back_space<C> *space, int64_t first) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t x[C / 4], z[2][C / 8];
    row_load<C>(z[0], k.z + (first + g) * C);
    row_load<C>(z[1], k.z + (first + g + 8) * C);
    x_rows<C>(x, space->x);
    x_normalise<C>(x, space->norm_out, k.eps);
    rows_normalise<C>(z, space->norm_in, k.eps);
#pragma unroll 1
    for (int channel = 0; channel < C; channel += 32) {
        float u[4][4], v[4][4];
        start_mixed(u, space->out_bias + channel);
        start_mixed(v, space->gate_bias + channel);
        times_natural<C>(u, x, space->out, channel);
        times_chunks<C>(v, z, space->gate, channel);
        back_store<C>(k, first + g, channel / 8 + t, u, v, 0);
        back_store<C>(k, first + g + 8, channel / 8 + t, u, v, 1);
    }
}

template <int C>
__global__ void __launch_bounds__(BACK_THREADS, 2) mma_triangle_back(const back_args k) {
    extern __shared__ __align__(128) char shared[];
    back_space<C> *space = (back_space<C> *)shared;
    weight_load<C>(space->gate, k.gate, C);
    weight_load<C>(space->out, k.out, C);
    floats_load(space->norm_in, k.norm_in, 2 * C);
    floats_load(space->norm_out, k.norm_out, 2 * C);
    floats_load(space->gate_bias, k.gate_bias, C);
    floats_load(space->out_bias, k.out_bias, C);
    for (int64_t at = (int64_t)blockIdx.x * BACK_ROWS; at < k.rows;
         at += (int64_t)gridDim.x * BACK_ROWS) {
        x_load<C>(space->x, k.x, k.rows, at);
        copies_commit();
        copies_wait<0>();
        __syncthreads();
        back_rows<C>(k, space, at + threadIdx.x / 32 * 16);
        __syncthreads();
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct block_space {
    bf16 *packed, *x; /* a and b, x: channel-major */
    uint8_t *keep;
    void *gemm;
};

static size_t block_layout(const fm_triangle_block *t, void *base, block_space *ret) {
    size_t plane = (size_t)(t->n * t->n * t->c) * sizeof(bf16);
    carver carve = {(char *)base, 0};
    ret->packed = (bf16 *)(t->keeps ? t->kept : carve.take(2 * plane));
    ret->x = (bf16 *)(t->keeps ? (char *)t->kept + 2 * plane : carve.take(plane));
    ret->keep = (uint8_t *)carve.take(triangle_keep_bytes(t));
    ret->gemm = carve.take((size_t)32 << 20);
    return carve.used;
}

template <> bool triangle_block_fits<float>(const fm_triangle_block *) {
    return false;
}

template <> bool triangle_block_fits<bf16>(const fm_triangle_block *t) {
    return t->c == t->c_z && (t->c == 64 || t->c == 128) && t->n % 16 == 0 &&
           (t->dropout.rate == 0 || t->dropout.shared == FM_SHARED_AXIS0);
}

template <typename K> static void allow_shared(K kernel, int bytes) {
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    assert(status == cudaSuccess);
    (void)status;
}

template <int C>
static void block_front(fm_stream *stream, const fm_triangle_block *t, const block_space &space) {
    front_args f = {};
    f.z = (const bf16 *)t->z, f.mask = (const bf16 *)t->mask;
    f.norm = (const bf16 *)t->norm_in;
    f.five = (const bf16 *)t->five, f.bias = (const bf16 *)t->five_bias;
    f.packed = space.packed;
    f.keep = t->dropout.rate != 0 ? space.keep : NULL;
    f.dropout = t->dropout;
    f.rows = t->n * t->n, f.eps = (float)t->eps;
    int64_t blocks = divide_up(f.rows, FRONT_THREADS / 32 * FRONT_ROWS);
    allow_shared(mma_triangle_front<C>, front_bytes<C>());
    mma_triangle_front<C><<<(unsigned)min_size(blocks, BLOCK_GPU_PROCESSORS), FRONT_THREADS,
                            front_bytes<C>(), queue(stream)>>>(f);
    FM_LAUNCHED();
}

template <int C>
static void block_back(fm_stream *stream, const fm_triangle_block *t, const block_space &space) {
    back_args k = {};
    const bf16 *five = (const bf16 *)t->five, *bias = (const bf16 *)t->five_bias;
    k.x = space.x, k.z = (const bf16 *)t->z, k.y = (bf16 *)t->y;
    k.norm_in = (const bf16 *)t->norm_in, k.norm_out = (const bf16 *)t->norm_out;
    k.gate = five + 4 * C * C, k.gate_bias = bias + 4 * C;
    k.out = (const bf16 *)t->out, k.out_bias = (const bf16 *)t->out_bias;
    k.keep = t->dropout.rate != 0 ? space.keep : NULL;
    k.rows = t->n * t->n, k.n = (int)t->n;
    k.eps = (float)t->eps, k.kept = (float)(1 / (1 - t->dropout.rate));
    k.residual = t->residual;
    int64_t blocks = min_size(k.rows / BACK_ROWS, 2 * BLOCK_GPU_PROCESSORS);
    allow_shared(mma_triangle_back<C>, sizeof(back_space<C>));
    mma_triangle_back<C>
        <<<(unsigned)blocks, BACK_THREADS, sizeof(back_space<C>), queue(stream)>>>(k);
    FM_LAUNCHED();
}

template <int C>
static void block_forward(fm_stream *stream, const fm_triangle_block *t, void *workspace) {
    block_space space;
    block_layout(t, workspace, &space);
    block_front<C>(stream, t, space);
    int64_t n = t->n, plane = n * n * C;
    triangle_multiply<bf16>(stream, space.gemm, C, n, n, n, t->incoming, !t->incoming, space.packed,
                            space.packed + plane, space.x);
    if (t->y) block_back<C>(stream, t, space);
}

template <typename T> static const fm_kernels *table_of(void) {
    return fm_kernels_cuda(sizeof(T) == 2 ? FM_ELEMENT_BF16 : FM_ELEMENT_F32);
}

/* Whether the kernels of this file do it: they do not keep anything yet. */
template <typename T> static bool is_whole_block(const fm_triangle_block *t) {
    return !t->keeps && triangle_block_fits<T>(t);
}

template <typename T> size_t triangle_block_kept(const fm_triangle_block *t) {
    return fm_triangle_block_composed_kept(t);
}

template <typename T> size_t triangle_block_workspace(const fm_triangle_block *t) {
    block_space space;
    if (is_whole_block<T>(t)) return block_layout(t, NULL, &space);
    return fm_triangle_block_composed_workspace(table_of<T>(), t);
}

template <typename T>
void triangle_block(fm_stream *stream, const fm_triangle_block *t, void *workspace) {
    if (!is_whole_block<T>(t)) {
        fm_triangle_block_composed(table_of<T>(), stream, t, workspace);
    } else if (t->c == 64) {
        block_forward<64>(stream, t, workspace);
    } else {
        block_forward<128>(stream, t, workspace);
    }
}

template <typename T> size_t triangle_block_grad_workspace(const fm_triangle_block *t) {
    return fm_triangle_block_composed_grad_workspace(table_of<T>(), t);
}

template <typename T>
void triangle_block_grad(fm_stream *stream, const fm_triangle_block *t,
                         const fm_triangle_block_grad *grad, void *workspace) {
    fm_triangle_block_composed_grad(table_of<T>(), stream, t, grad, workspace);
}

#define INSTANTIATE(T)                                                                             \
    template size_t triangle_block_kept<T>(const fm_triangle_block *);                             \
    template size_t triangle_block_workspace<T>(const fm_triangle_block *);                        \
    template void triangle_block<T>(fm_stream *, const fm_triangle_block *, void *);               \
    template size_t triangle_block_grad_workspace<T>(const fm_triangle_block *);                   \
    template void triangle_block_grad<T>(fm_stream *, const fm_triangle_block *,                   \
                                         const fm_triangle_block_grad *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
