/* triangle_block_grad.cu: triangle multiplication as a whole (A11, A12), backward, from what
 * forward kept (triangle_block.cuh):
 *
 *     back      dy to dx: dropout, gate, output projection (made again from x), its LayerNorm. Also
 *               the gate's part of d5, and dp', the projection's gradient times 1 / deviation of x
 *     products  over i and j: dx, a and b to da and db (cuBLASLt)
 *     front     da, db and z to dz: gates and masks of a and b (projections made again), the fused
 *               projection, LayerNorm. Also d5 [rows, 5 c] and z normalised
 *     weights   d5^T z and dp'^T x (cuBLASLt); then everything about parameters
 *
 * A LayerNorm's weights get their gradients from the projection's behind it. With u = LayerNorm(x)
 * without gamma and beta, and y = W (gamma u + beta) + bias: G = sum dy^T u and s = sum dy over
 * rows give dW = gamma G + s beta^T, dbias = s, dgamma[c] = sum_o W[o, c] G[o, c], and dbeta = W^T
 * s. For the output projection u is x less its mean, with the deviation in dp', so that x needs no
 * copy: G = dp'^T x - sum dp' mean.
 *
 * Sums over rows: a warp adds its rows' in shared memory, a block its warps', the last kernels the
 * blocks', always in the same order. */
#include "trainer/backend/cuda/triangle_block.cuh"
#include "trainer/backend/cuda/wgmma.cuh"

namespace fm_cuda {

enum { GRAD_WARPS = BACK_THREADS / 32 };

/* The sums over 16 rows of a chunk's eight channels, e[k] being the lane's own two rows': lane
 * (g, t) gets that of channel g of its chunk. */
__device__ inline float chunk_sum(float (&e)[8]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int width = 4; width > 0; width /= 2) {
        bool upper = lane & width * 4;
#pragma unroll
        for (int k = 0; k < width; k++) {
            float sent = upper ? e[k] : e[k + width], own = upper ? e[k + width] : e[k];
            e[k] = own + __shfl_xor_sync(0xffffffffu, sent, width * 4);
        }
    }
    return e[0];
}

/* Adds the columns of four mixed tiles, both rows of each lane, to the warp's sums. */
__device__ inline void add_columns(float *sums, const float (&d)[4][4]) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float e[8];
#pragma unroll
    for (int i = 0; i < 4; i++)
        e[2 * i] = d[i][0] + d[i][2], e[2 * i + 1] = d[i][1] + d[i][3];
    sums[8 * t + g] += chunk_sum(e);
}

/* The block's sums of n columns, warp after warp, to its place. */
__device__ inline void block_columns(const float *sums, int n, float *to) {
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += BACK_THREADS) {
        float total = 0;
        for (int warp = 0; warp < GRAD_WARPS; warp++)
            total += sums[warp * n + i];
        to[i] = total;
    }
}

/* acc[C / 8 tiles of columns in natural order] += d w[32 rows from `row`]; d, four mixed tiles, by
 * rows g and g + 8. */
template <int C>
__device__ inline void times_weight(float (&acc)[C / 8][4], const uint32_t (&d)[2][4],
                                    const bf16 *w, int row) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int s = 0; s < 2; s++) {
        uint32_t a[4] = {d[0][2 * s], d[1][2 * s], d[0][2 * s + 1], d[1][2 * s + 1]};
        const int from = row + mixed(lane & 7, 2 * s + ((lane >> 3) & 1));
        uint32_t at = shared_address(w + weight_at<C>(from, lane >> 4));
#pragma unroll
        for (int m = 0; m < C / 16; m++) {
            uint32_t b[4];
            shared_matrices_trans(b, at ^ m * 32);
            mma(acc[2 * m], a, b[0], b[1]);
            mma(acc[2 * m + 1], a, b[2], b[3]);
        }
    }
}

/* Four mixed tiles as words of chunks of rows g (0) and g + 8 (1). */
__device__ inline void pack_tiles(uint32_t (&word)[2][4], const float (&d)[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        word[0][i] = pack_two(d[i][0], d[i][1]);
        word[1][i] = pack_two(d[i][2], d[i][3]);
    }
}

__device__ inline void store_chunk(bf16 *to, const uint32_t (&word)[4]) {
    *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
}

__device__ inline void load_chunk(uint32_t (&word)[4], const bf16 *from) {
    uint4 chunk = *(const uint4 *)from;
    word[0] = chunk.x, word[1] = chunk.y, word[2] = chunk.z, word[3] = chunk.w;
}

/* ---- back ------------------------------------------------------------------------------------ */

struct back_grad_args {
    const bf16 *dy, *x, *gate; /* [rows, C], [C, rows], [rows, C] */
    const bf16 *norm, *out, *out_bias;
    const uint8_t *keep;
    bf16 *dx, *dp; /* [C, rows], [rows, C] */
    bf16 *dgate;   /* [rows, C], rows 5 C apart */
    float *sums;   /* [blocks, 3, C]: of dp, of dp' mean, of dgate */
    int64_t rows;
    int n;
    float eps, kept;
};

template <int C> struct back_grad_space {
    bf16 out[C * C], x[2][C * BACK_ROWS];
    float sums[GRAD_WARPS * 3 * C], norm[2 * C], out_bias[C];
};

/* Gradients of projection and gate of 32 channels from `channel`, u being the projection; dp is
 * left as dp'. */
template <int C>
__device__ inline void open_gate(const back_grad_args &k, int64_t row, int channel,
                                 float (&u)[4][4], const float (&mean)[2], const float (&rstd)[2],
                                 uint32_t (&dp)[2][4], float *sums) {
    int t = threadIdx.x % 4, chunk = channel / 8 + t;
    float dgate[4][4], scaled[4][4];
    uint32_t word[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t at = (row + 8 * half) * C + chunk * 8;
        uint32_t dy[4], gate[4];
        load_chunk(dy, k.dy + at);
        load_chunk(gate, k.gate + at);
        uint32_t bits = k.keep ? k.keep[(int)(row + 8 * half) % k.n * (C / 8) + chunk] : 0xffu;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 up = unpack_two(dy[i]), logit = unpack_two(gate[i]);
            const float ups[2] = {up.x, up.y}, logits[2] = {logit.x, logit.y};
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float down = bits >> (2 * i + e) & 1 ? k.kept * ups[e] : 0;
                float open = quick_sigmoid(logits[e]), *p = &u[i][2 * half + e];
                down *= open;
                dgate[i][2 * half + e] = down * *p * (1 - open);
                *p = down;
                scaled[i][2 * half + e] = *p * rstd[half];
            }
        }
    }
    add_columns(sums + channel, u);
    pack_tiles(dp, scaled);
    pack_tiles(word, dgate);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 low = unpack_two(dp[0][i]), high = unpack_two(dp[1][i]);
        scaled[i][0] = low.x * mean[0], scaled[i][1] = low.y * mean[0];
        scaled[i][2] = high.x * mean[1], scaled[i][3] = high.y * mean[1];
    }
    add_columns(sums + C + channel, scaled);
    add_columns(sums + 2 * C + channel, dgate);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        store_chunk(k.dp + (row + 8 * half) * C + chunk * 8, dp[half]);
        store_chunk(k.dgate + (row + 8 * half) * 5 * C + chunk * 8, word[half]);
    }
}

/* LayerNorm's gradient with du / deviation in acc, columns in natural order; the 16 rows of x in
 * the tile become those of dx. */
template <int C>
__device__ inline void back_norm(float (&acc)[C / 8][4], bf16 *tile, const float *gamma,
                                 const float (&mean)[2], const float (&rstd)[2]) {
    int lane = threadIdx.x % 32, t = lane % 4, chunk = threadIdx.x / 32 * 2 + ((lane >> 3) & 1);
    float sum[2] = {0, 0}, along[2] = {0, 0};
#pragma unroll
    for (int s = 0; s < C / 16; s++) {
        uint32_t x[4];
        ldmatrix_trans(x, tile + x_at(16 * s + (lane >> 4) * 8 + (lane & 7), chunk));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 by = *(const float2 *)(gamma + 16 * s + i / 2 * 8 + 2 * t);
            float2 two = unpack_two(x[i]);
            int half = i & 1;
            float *h = &acc[2 * s + i / 2][2 * half];
            h[0] *= by.x, h[1] *= by.y;
            sum[half] += h[0] + h[1];
            along[half] += h[0] * (two.x - mean[half]) + h[1] * (two.y - mean[half]);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        sum[half] = row_sum(sum[half]) * (1.0f / C);
        along[half] = row_sum(along[half]) * (1.0f / C) * rstd[half] * rstd[half];
    }
#pragma unroll
    for (int s = 0; s < C / 16; s++) {
        uint32_t x[4];
        bf16 *at = tile + x_at(16 * s + (lane >> 4) * 8 + (lane & 7), chunk);
        ldmatrix_trans(x, at);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 two = unpack_two(x[i]);
            int half = i & 1;
            const float *h = &acc[2 * s + i / 2][2 * half];
            x[i] = pack_two(h[0] - sum[half] - (two.x - mean[half]) * along[half],
                            h[1] - sum[half] - (two.y - mean[half]) * along[half]);
        }
        stmatrix_trans(at, x);
    }
}

template <int C>
__device__ inline void back_grad_rows(const back_grad_args &k, back_grad_space<C> *space,
                                      bf16 *tile, int64_t first) {
    float *sums = space->sums + threadIdx.x / 32 * 3 * C;
    uint32_t x[C / 4];
    float mean[2], rstd[2], acc[C / 8][4] = {};
    x_rows<C>(x, tile);
#pragma unroll
    for (int half = 0; half < 2; half++)
        x_statistics<C>(x, half, k.eps, &mean[half], &rstd[half]);
    x_normalise<C>(x, space->norm, mean, rstd);
#pragma unroll 1
    for (int channel = 0; channel < C; channel += 32) {
        float u[4][4];
        uint32_t dp[2][4];
        start_mixed(u, space->out_bias + channel);
        times_natural<C>(u, x, space->out, channel);
        open_gate<C>(k, first + threadIdx.x % 32 / 4, channel, u, mean, rstd, dp, sums);
        times_weight<C>(acc, dp, space->out, channel);
    }
    back_norm<C>(acc, tile, space->norm, mean, rstd);
}

template <int C>
__global__ void __launch_bounds__(BACK_THREADS, 1) mma_triangle_back_grad(const back_grad_args k) {
    extern __shared__ __align__(1024) char shared[];
    back_grad_space<C> *space = (back_grad_space<C> *)shared;
    int64_t at = (int64_t)blockIdx.x * BACK_ROWS, step = (int64_t)gridDim.x * BACK_ROWS;
    weight_load<C>(space->out, k.out, C);
    x_load<C>(space->x[0], k.x, k.rows, at);
    copies_commit();
    floats_load(space->norm, k.norm, 2 * C);
    floats_load(space->out_bias, k.out_bias, C);
    for (int i = threadIdx.x; i < GRAD_WARPS * 3 * C; i += BACK_THREADS)
        space->sums[i] = 0;
    for (int side = 0; at < k.rows; at += step, side ^= 1) {
        bf16 *tile = space->x[side];
        copies_wait<0>();
        __syncthreads();
        if (at + step < k.rows) x_load<C>(space->x[side ^ 1], k.x, k.rows, at + step);
        copies_commit();
        back_grad_rows<C>(k, space, tile, at + threadIdx.x / 32 * 16);
        __syncthreads();
        for (int i = threadIdx.x; i < C * (BACK_ROWS / 8); i += BACK_THREADS) {
            int channel = i / (BACK_ROWS / 8), chunk = i % (BACK_ROWS / 8);
            *(uint4 *)(k.dx + channel * k.rows + at + chunk * 8) =
                *(const uint4 *)(tile + x_at(channel, chunk));
        }
    }
    block_columns(space->sums, 3 * C, k.sums + (int64_t)blockIdx.x * 3 * C);
}

/* ---- front ----------------------------------------------------------------------------------- */

enum { UNIT = 64 }; /* channels of da or db that a warp takes at a time */

struct front_grad_args {
    const bf16 *z, *mask, *norm, *five, *bias;
    const float2 *statistics;
    const bf16 *dpacked; /* [2, C, rows]: da, db */
    bf16 *d5, *u;        /* [rows, 5 C], z normalised [rows, C] */
    fm_out dz;
    float *sums; /* [blocks, 4, C]: of d5 without the gate's */
    int64_t rows;
};

template <int C> struct front_grad_space {
    bf16 five[5 * C * C], units[GRAD_WARPS][2][UNIT * 16];
    float sums[GRAD_WARPS * 4 * C], norm[2 * C], bias[4 * C];
};

/* The weight lies in tiles of 64 rows and 64 columns for the products of a warp group, both of
 * them: z W^T sums over its columns, d W over its rows. Rows are mixed, 32 of p and then the same
 * 32 of its gate; those of the output's gate come last. Columns are in the order of a lane's
 * chunks, so that column 16 (2 i + h) + 8 w + 2 t + e is number 4 h + 2 w + e of chunk t + 4 i. */
template <int C> __device__ inline int tiled_row(int row) {
    int channel = row % C, c = channel % 32, kind = row / C;
    int line = (c >> 1 & 3) * 8 + (c >> 3) * 2 + (c & 1);
    if (kind == 4) return 4 * C + channel / 32 * 32 + line;
    return (kind / 2 * (C / 32) + channel / 32) * 64 + kind % 2 * 32 + line;
}

/* Where rows from a tiled one, a multiple of 16, begin. */
template <int C> __device__ inline int tiled_at(int row) {
    return row / 64 * 64 * C + row % 64 * 64;
}

template <int C> __device__ inline void tiles_load(bf16 *to, const bf16 *w) {
#pragma unroll 8
    for (int n = threadIdx.x; n < 5 * C * (C / 8); n += BACK_THREADS) {
        int row = tiled_row<C>(n / (C / 8)), chunk = n % (C / 8);
        uint4 from = *(const uint4 *)(w + n * 8);
        const uint32_t words[4] = {from.x, from.y, from.z, from.w};
        bf16 *tile = to + row / 64 * 64 * C;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = (chunk / 4 * 2 + i / 2) * 16 + i % 2 * 8 + chunk % 4 * 2;
            bf16 *half = tile + column / 64 * 64 * 64;
            *(uint32_t *)(half + tile_at<64>(row % 64, column % 64 / 8) + column % 8) = words[i];
        }
    }
}

/* Where chunk 0 or 1 of 16 rows of channel `channel` of a unit lies: the eight channels of a mixed
 * tile side by side. */
__device__ inline int unit_at(int line, int chunk) {
    return line * 16 + (chunk ^ ((line >> 2) & 1)) * 8;
}

/* Unit `number` (of 2 C / UNIT) of 16 rows from `first`, by a warp. */
__device__ inline void unit_load(const front_grad_args &f, bf16 *to, int number, int64_t first) {
    const bf16 *from = f.dpacked + number * UNIT * f.rows + first;
#pragma unroll
    for (int j = 0; j < UNIT / 16; j++) {
        int channel = j * 16 + threadIdx.x % 32 / 2, chunk = threadIdx.x % 2, c = channel % 32;
        int line = channel / 32 * 32 + (c >> 1 & 3) * 8 + (c >> 3) * 2 + (c & 1);
        copy_async(to + unit_at(line, chunk), from + channel * f.rows + chunk * 8, true);
    }
}

/* Begins d[64 columns: 32 of p, 32 of its gate] += z five^T. */
template <int C>
__device__ inline void begin_projection(float (&d)[8][4], const uint32_t (&z)[C / 16][4],
                                        const bf16 *tile) {
    uint64_t w = tile_operand<64, K_MAJOR>(tile);
#pragma unroll
    for (int s = 0; s < C / 16; s++)
        wgmma<K_MAJOR>(d, z[s], operand_after(w, s / 4 * 64 * 64 + s % 4 * 16), true);
}

/* Begins acc += d five, d being four mixed tiles of rows g and g + 8. */
template <int C>
__device__ inline void begin_back(float (&acc)[C / 8][4], const uint32_t (&d)[2][4],
                                  const bf16 *rows) {
    uint64_t w = tile_operand<64, MN_MAJOR>(rows, 64 * 64);
#pragma unroll
    for (int s = 0; s < 2; s++) {
        const uint32_t a[4] = {d[0][2 * s], d[1][2 * s], d[0][2 * s + 1], d[1][2 * s + 1]};
        wgmma<MN_MAJOR>(acc, a, operand_after(w, s * 16 * 64), true);
    }
}

/* p and gate to their gradients, `lines` being the gradient of the gated operand. */
__device__ inline void front_gate(const bf16 *lines, const float (&mask)[2], float (&p)[4][4],
                                  float (&gate)[4][4]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t up[4];
        ldmatrix_trans(up, lines + unit_at((i + (lane >> 4)) * 8 + (lane & 7), (lane >> 3) & 1));
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float2 two = unpack_two(up[r]);
            const float ups[2] = {two.x, two.y};
            int half = r & 1, tile = i + r / 2;
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float *value = &p[tile][2 * half + e], *logit = &gate[tile][2 * half + e];
                float open = quick_sigmoid(*logit), down = mask[half] * ups[e];
                down *= open;
                *logit = down * *value * (1 - open);
                *value = down;
            }
        }
    }
}

/* LayerNorm's gradient of rows g and g + 8 with that of its output in acc. */
template <int C>
__device__ inline void front_norm(const front_grad_args &f, float (&acc)[C / 8][4],
                                  const float *gamma, int64_t row, const float2 (&statistics)[2]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t word[C / 8];
        row_load<C>(word, f.z + (row + 8 * half) * C);
        float sum = 0, along = 0, mean = statistics[half].x, rstd = statistics[half].y;
#pragma unroll
        for (int i = 0; i < C / 8; i++) {
            float2 by = *(const float2 *)(gamma + (t + i / 4 * 4) * 8 + i % 4 * 2);
            float2 two = unpack_two(word[i]);
            float *h = &acc[i][2 * half];
            h[0] *= by.x, h[1] *= by.y;
            sum += h[0] + h[1];
            along += h[0] * (two.x - mean) + h[1] * (two.y - mean);
        }
        sum = row_sum(sum) * (1.0f / C);
        along = row_sum(along) * (1.0f / C) * rstd * rstd;
#pragma unroll
        for (int i = 0; i < C / 8; i++) {
            float2 two = unpack_two(word[i]);
            float *h = &acc[i][2 * half];
            h[0] = rstd * (h[0] - sum - (two.x - mean) * along);
            h[1] = rstd * (h[1] - sum - (two.y - mean) * along);
        }
#pragma unroll
        for (int i = 0; i < C / 32; i++) {
            bf16 *at = (bf16 *)f.dz.data + (row + 8 * half) * C + (t + 4 * i) * 8;
            uint32_t old[4] = {0, 0, 0, 0};
            if (f.dz.beta == FM_ADD) load_chunk(old, at);
#pragma unroll
            for (int w = 0; w < 4; w++) {
                float2 add = unpack_two(old[w]);
                old[w] = pack_two(acc[4 * i + w][2 * half] + add.x,
                                  acc[4 * i + w][2 * half + 1] + add.y);
            }
            store_chunk(at, old);
        }
    }
}

/* z of rows g and g + 8: normalised to f.u, and as the projection's first operand. */
template <int C>
__device__ inline void front_operand(const front_grad_args &f, uint32_t (&z)[C / 16][4],
                                     const float *norm, int64_t row,
                                     const float2 (&statistics)[2]) {
    int t = threadIdx.x % 4;
    uint32_t word[2][C / 8];
    row_load<C>(word[0], f.z + row * C);
    row_load<C>(word[1], f.z + (row + 8) * C);
#pragma unroll
    for (int i = 0; i < C / 32; i++) {
        uint32_t u[2][4];
#pragma unroll
        for (int w = 0; w < 4; w++) {
            int channel = (t + i * 4) * 8 + w * 2;
            float2 gamma = *(const float2 *)(norm + channel);
            float2 beta = *(const float2 *)(norm + C + channel);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float2 two = unpack_two(word[half][4 * i + w]);
                float x = (two.x - statistics[half].x) * statistics[half].y;
                float y = (two.y - statistics[half].x) * statistics[half].y;
                u[half][w] = pack_two(x, y);
                z[2 * i + w / 2][w % 2 * 2 + half] =
                    pack_two(x * gamma.x + beta.x, y * gamma.y + beta.y);
            }
        }
        store_chunk(f.u + row * C + (t + 4 * i) * 8, u[0]);
        store_chunk(f.u + (row + 8) * C + (t + 4 * i) * 8, u[1]);
    }
}

/* 32 channels of an operand, the first being row `channel` of the weight: from the projection in d
 * on. Leaves products to acc under way. */
template <int C>
__device__ inline void front_group(const front_grad_args &f, front_grad_space<C> *space, int group,
                                   const bf16 *lines, int64_t row, const float (&mask)[2],
                                   float (&d)[8][4], float (&acc)[C / 8][4], float *sums) {
    int channel = group * 32 + (group * 32 < C ? 0 : C);
    float(&p)[4][4] = *(float(*)[4][4]) & d[0], (&gate)[4][4] = *(float(*)[4][4]) & d[4];
    uint32_t dp[2][4], dgate[2][4];
    front_gate(lines, mask, p, gate);
    pack_tiles(dp, p);
    pack_tiles(dgate, gate);
    products_begin();
    begin_back<C>(acc, dp, space->five + tiled_at<C>(group * 64));
    begin_back<C>(acc, dgate, space->five + tiled_at<C>(group * 64 + 32));
    products_commit();
    add_columns(sums + channel, p);
    add_columns(sums + channel + C, gate);
    bf16 *to = f.d5 + row * 5 * C + channel + 8 * (threadIdx.x % 4);
    store_chunk(to, dp[0]);
    store_chunk(to + 8 * 5 * C, dp[1]);
    store_chunk(to + C, dgate[0]);
    store_chunk(to + 8 * 5 * C + C, dgate[1]);
}

template <int C>
__device__ inline void front_grad_rows(const front_grad_args &f, front_grad_space<C> *space,
                                       int64_t first, int64_t next) {
    constexpr int UNITS = 2 * C / UNIT;
    int warp = threadIdx.x / 32, t = threadIdx.x % 4;
    int64_t row = first + threadIdx.x % 32 / 4;
    const float2 statistics[2] = {f.statistics[row], f.statistics[row + 8]};
    const float mask[2] = {get(f.mask[row]), get(f.mask[row + 8])};
    uint32_t z[C / 16][4], done[C / 32][2][4];
    float acc[C / 8][4] = {};
#pragma unroll
    for (int i = 0; i < C / 32; i++) { /* the gate of the output */
        const bf16 *from = f.d5 + row * 5 * C + 4 * C + 32 * i + 8 * t;
        load_chunk(done[i][0], from);
        load_chunk(done[i][1], from + 8 * 5 * C);
    }
    products_begin();
#pragma unroll
    for (int i = 0; i < C / 32; i++)
        begin_back<C>(acc, done[i], space->five + tiled_at<C>(4 * C + 32 * i));
    products_commit();
    front_operand<C>(f, z, space->norm, row, statistics);
    products_wait<0>(acc);
#pragma unroll 1
    for (int group = 0; group < 2 * C / 32; group++) {
        float d[8][4];
        int unit = group / 2, channel = group * 32 + (group * 32 < C ? 0 : C);
        bf16 *lines = space->units[warp][unit & 1];
        start_mixed(*(float(*)[4][4]) & d[0], space->bias + channel);
        start_mixed(*(float(*)[4][4]) & d[4], space->bias + channel + C);
        products_begin();
        begin_projection<C>(d, z, space->five + tiled_at<C>(group * 64));
        products_commit();
        if (group % 2 == 0) {
            copies_wait<1>();
            __syncwarp();
        }
        products_wait<0>(d);
        front_group<C>(f, space, group, lines + group % 2 * 32 * 16, row, mask, d, acc,
                       space->sums + warp * 4 * C);
        if (group % 2 == 1) {
            __syncwarp();
            int64_t rows = unit + 2 < UNITS ? first : next;
            if (rows < f.rows) unit_load(f, lines, (unit + 2) % UNITS, rows);
            copies_commit();
        }
        products_wait<0>(acc);
    }
    if (f.dz.data) front_norm<C>(f, acc, space->norm, row, statistics);
}

template <int C>
__global__ void __launch_bounds__(BACK_THREADS, 1)
    mma_triangle_front_grad(const front_grad_args f) {
    extern __shared__ __align__(1024) char shared[];
    front_grad_space<C> *space = (front_grad_space<C> *)shared;
    int warp = threadIdx.x / 32;
    int64_t step = (int64_t)gridDim.x * BACK_ROWS, at = (int64_t)blockIdx.x * BACK_ROWS;
    tiles_load<C>(space->five, f.five);
    tiles_publish();
    unit_load(f, space->units[warp][0], 0, at + warp * 16);
    copies_commit();
    unit_load(f, space->units[warp][1], 1, at + warp * 16);
    copies_commit();
    floats_load(space->norm, f.norm, 2 * C);
    floats_load(space->bias, f.bias, 4 * C);
    for (int i = threadIdx.x; i < GRAD_WARPS * 4 * C; i += BACK_THREADS)
        space->sums[i] = 0;
    copies_wait<1>();
    __syncthreads();
    for (; at < f.rows; at += step)
        front_grad_rows<C>(f, space, at + warp * 16, at + step + warp * 16);
    block_columns(space->sums, 4 * C, f.sums + (int64_t)blockIdx.x * 4 * C);
}

/* ---- parameters ------------------------------------------------------------------------------ */

struct weights_args {
    const float *back, *front; /* [blocks, 3, C], [blocks, 4, C] */
    int blocks;
    float *columns;           /* [8, C]: of d5 (5), of dp, of dp' mean */
    const float *in, *out;    /* the products: [5 C, C], [C, C] */
    const bf16 *five, *w_out; /* the weights */
    const bf16 *norm_in, *norm_out;
    fm_triangle_block_grad grad;
};

__device__ inline void put_float(fm_out out, int64_t at, float value) {
    if (out.data) put((float *)out.data + at, out.beta, value);
}

enum { SUM_COLUMNS = 16, SUM_SLICES = 16 };

/* 16 threads a column: each a slice of the blocks' sums in order, then the slices in order. */
template <int C>
__global__ void __launch_bounds__(SUM_COLUMNS *SUM_SLICES) triangle_columns(const weights_args w) {
    __shared__ float slices[SUM_SLICES][SUM_COLUMNS];
    int slice = threadIdx.x / SUM_COLUMNS, column = blockIdx.x * SUM_COLUMNS;
    column += threadIdx.x % SUM_COLUMNS;
    int kind = column / C;
    const int place = kind < 4 ? column : kind == 4 ? 2 * C + column % C : column - 5 * C;
    const float *from = kind < 4 ? w.front : w.back;
    const int ld = kind < 4 ? 4 * C : 3 * C, share = (w.blocks + SUM_SLICES - 1) / SUM_SLICES;
    float total = 0;
#pragma unroll 4
    for (int block = slice * share; block < (slice + 1) * share; block++)
        total += block < w.blocks ? from[(int64_t)block * ld + place] : 0;
    slices[slice][threadIdx.x % SUM_COLUMNS] = total;
    __syncthreads();
    if (slice > 0) return;
    for (int i = 1; i < SUM_SLICES; i++)
        total += slices[i][threadIdx.x];
    w.columns[column] = total;
    if (kind < 5) put_float(w.grad.dfive_bias, column, total);
    if (kind == 5) put_float(w.grad.dout_bias, column - 5 * C, total);
}

enum { APPLY_COLUMNS = 8, APPLY_THREADS = 1024 };

/* Blocks (x, 0): the fused projection's, (x, 1): the output's; eight columns of the weight, 128
 * threads a column over its rows. */
template <int C>
__global__ void __launch_bounds__(APPLY_THREADS) triangle_parameters(const weights_args w) {
    __shared__ float gammas[APPLY_THREADS], betas[APPLY_THREADS];
    bool is_out = blockIdx.y;
    int c = blockIdx.x * APPLY_COLUMNS + threadIdx.x % APPLY_COLUMNS;
    int rows = is_out ? C : 5 * C;
    const float *g = is_out ? w.out : w.in, *sums = w.columns + (is_out ? 5 * C : 0);
    const float *means = w.columns + 6 * C;
    const bf16 *weight = is_out ? w.w_out : w.five, *norm = is_out ? w.norm_out : w.norm_in;
    fm_out dweight = is_out ? w.grad.dout : w.grad.dfive;
    fm_out dnorm = is_out ? w.grad.dnorm_out : w.grad.dnorm_in;
    float gamma = get(norm[c]), beta = get(norm[C + c]), dgamma = 0, dbeta = 0;
#pragma unroll 5
    for (int o = threadIdx.x / APPLY_COLUMNS; o < rows; o += APPLY_THREADS / APPLY_COLUMNS) {
        float product = g[o * C + c] - (is_out ? means[o] : 0), by = get(weight[o * C + c]);
        put_float(dweight, o * C + c, gamma * product + sums[o] * beta);
        dgamma += by * product;
        dbeta += by * sums[o];
    }
    gammas[threadIdx.x] = dgamma, betas[threadIdx.x] = dbeta;
    __syncthreads();
    for (int width = APPLY_THREADS / 2; width >= APPLY_COLUMNS; width /= 2) {
        if (threadIdx.x < width) {
            gammas[threadIdx.x] += gammas[threadIdx.x + width];
            betas[threadIdx.x] += betas[threadIdx.x + width];
        }
        __syncthreads();
    }
    if (threadIdx.x >= APPLY_COLUMNS) return;
    dgamma = gammas[threadIdx.x], dbeta = betas[threadIdx.x];
    put_float(dnorm, c, dgamma);
    put_float(dnorm, C + c, dbeta);
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct grad_space {
    bf16 *d5, *u, *dp, *dx, *dpacked;
    float *back, *front, *columns, *in, *out;
    void *gemm;
};

static size_t grad_layout(const fm_triangle_block *t, void *base, grad_space *ret) {
    size_t c = (size_t)t->c, plane = (size_t)(t->n * t->n) * c * sizeof(bf16);
    carver carve = {(char *)base, 0};
    ret->d5 = (bf16 *)carve.take(5 * plane);
    ret->u = (bf16 *)carve.take(plane);
    ret->dp = (bf16 *)carve.take(plane);
    ret->dx = (bf16 *)carve.take(plane);
    ret->dpacked = (bf16 *)carve.take(2 * plane);
    ret->back = (float *)carve.take(BLOCK_GPU_PROCESSORS * 3 * c * sizeof(float));
    ret->front = (float *)carve.take(BLOCK_GPU_PROCESSORS * 4 * c * sizeof(float));
    ret->columns = (float *)carve.take(8 * c * sizeof(float));
    ret->in = (float *)carve.take(5 * c * c * sizeof(float));
    ret->out = (float *)carve.take(c * c * sizeof(float));
    ret->gemm = carve.take((size_t)32 << 20);
    return carve.used;
}

size_t block_grad_workspace(const fm_triangle_block *t) {
    grad_space space;
    return grad_layout(t, NULL, &space);
}

static int grad_blocks(const fm_triangle_block *t) {
    return (int)min_size(t->n * t->n / BACK_ROWS, BLOCK_GPU_PROCESSORS);
}

template <int C>
static void grad_back(fm_stream *stream, const fm_triangle_block *t, const void *dy,
                      const grad_space &space) {
    block_kept kept = block_kept_at(t, t->kept);
    back_grad_args k = {};
    k.dy = (const bf16 *)dy, k.x = kept.x, k.gate = kept.gate;
    k.norm = (const bf16 *)t->norm_out;
    k.out = (const bf16 *)t->out, k.out_bias = (const bf16 *)t->out_bias;
    k.keep = t->dropout.rate != 0 ? kept.keep : NULL;
    k.dx = space.dx, k.dp = space.dp, k.dgate = space.d5 + 4 * C;
    k.sums = space.back;
    k.rows = t->n * t->n, k.n = (int)t->n;
    k.eps = (float)t->eps, k.kept = (float)(1 / (1 - t->dropout.rate));
    allow_shared(mma_triangle_back_grad<C>, sizeof(back_grad_space<C>));
    mma_triangle_back_grad<C>
        <<<(unsigned)grad_blocks(t), BACK_THREADS, sizeof(back_grad_space<C>), queue(stream)>>>(k);
    FM_LAUNCHED();
}

template <int C>
static void grad_front(fm_stream *stream, const fm_triangle_block *t, fm_out dz,
                       const grad_space &space) {
    front_grad_args f = {};
    f.z = (const bf16 *)t->z, f.mask = (const bf16 *)t->mask, f.norm = (const bf16 *)t->norm_in;
    f.five = (const bf16 *)t->five, f.bias = (const bf16 *)t->five_bias;
    f.statistics = block_kept_at(t, t->kept).statistics;
    f.dpacked = space.dpacked, f.d5 = space.d5, f.u = space.u;
    f.dz = dz, f.sums = space.front, f.rows = t->n * t->n;
    allow_shared(mma_triangle_front_grad<C>, sizeof(front_grad_space<C>));
    mma_triangle_front_grad<C>
        <<<(unsigned)grad_blocks(t), BACK_THREADS, sizeof(front_grad_space<C>), queue(stream)>>>(f);
    FM_LAUNCHED();
}

/* Outgoing: da = dx b, db = dx^T a; incoming: da = b dx^T, db = a dx. */
static void grad_products(fm_stream *stream, const fm_triangle_block *t, const grad_space &space) {
    int64_t n = t->n, c = t->c, plane = n * n * c;
    const bf16 *a = block_kept_at(t, t->kept).packed, *b = a + plane;
    bf16 *da = space.dpacked, *db = da + plane;
    if (t->incoming) {
        triangle_multiply<bf16>(stream, space.gemm, c, n, n, n, false, true, b, space.dx, da);
        triangle_multiply<bf16>(stream, space.gemm, c, n, n, n, false, false, a, space.dx, db);
    } else {
        triangle_multiply<bf16>(stream, space.gemm, c, n, n, n, false, false, space.dx, b, da);
        triangle_multiply<bf16>(stream, space.gemm, c, n, n, n, true, false, space.dx, a, db);
    }
}

template <int C>
static void grad_parameters(fm_stream *stream, const fm_triangle_block *t,
                            const fm_triangle_block_grad *grad, const grad_space &space) {
    fm_gemm g = {};
    g.m = 5 * C, g.n = C, g.k = t->n * t->n, g.batch = 1;
    g.trans_a = true, g.alpha = 1, g.c_is_acc = true;
    g.a = space.d5, g.lda = 5 * C, g.b = space.u, g.ldb = C, g.c = space.in, g.ldc = C;
    gemm<bf16>(stream, &g, space.gemm);
    g.m = C, g.trans_b = true;
    g.a = space.dp, g.lda = C, g.b = block_kept_at(t, t->kept).x, g.ldb = g.k, g.c = space.out;
    gemm<bf16>(stream, &g, space.gemm);
    weights_args w = {};
    w.back = space.back, w.front = space.front, w.blocks = grad_blocks(t);
    w.columns = space.columns, w.in = space.in, w.out = space.out;
    w.five = (const bf16 *)t->five, w.w_out = (const bf16 *)t->out;
    w.norm_in = (const bf16 *)t->norm_in, w.norm_out = (const bf16 *)t->norm_out;
    w.grad = *grad;
    triangle_columns<C><<<7 * C / SUM_COLUMNS, SUM_COLUMNS * SUM_SLICES, 0, queue(stream)>>>(w);
    FM_LAUNCHED();
    triangle_parameters<C><<<dim3(C / APPLY_COLUMNS, 2), APPLY_THREADS, 0, queue(stream)>>>(w);
    FM_LAUNCHED();
}

template <int C>
static void grad_all(fm_stream *stream, const fm_triangle_block *t,
                     const fm_triangle_block_grad *grad, void *workspace) {
    grad_space space;
    grad_layout(t, workspace, &space);
    grad_back<C>(stream, t, grad->dy, space);
    grad_products(stream, t, space);
    grad_front<C>(stream, t, grad->dz, space);
    grad_parameters<C>(stream, t, grad, space);
}

void block_grad(fm_stream *stream, const fm_triangle_block *t, const fm_triangle_block_grad *grad,
                void *workspace) {
    if (t->c == 64) {
        grad_all<64>(stream, t, grad, workspace);
    } else {
        grad_all<128>(stream, t, grad, workspace);
    }
}

} // namespace fm_cuda
