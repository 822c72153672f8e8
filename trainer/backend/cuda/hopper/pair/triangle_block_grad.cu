/* triangle_block_grad.cu: the whole sublayer of triangle multiplication (A11, A12), backward, from
 * what forward kept (triangle_block.cuh), in these launches:
 *
 *     back      dy to dx: dropout, gate, output projection (recomputed from x), its LayerNorm. Also
 *               the gate's part of dprojected, and dp', the gradient of the output projection's
 *               result times 1 / deviation of x.
 *     product   over i and j: dx, a and b to da and db (cuBLASLt)
 *     front     da, db and z to dz: gates and masks of a and b (projections recomputed), the fused
 *               projection, LayerNorm. Also dprojected [rows, 4 c + c_z], the gradient of the five
 *               projections of z, and u, z normalised without gamma and beta.
 *     weights   dprojected^T u and dp'^T x, and from them the gradients of all parameters
 *               (triangle_weights.cu)
 *
 * Both kernels walk 64 rows per warp group at a time, each group of a block at its own pace, and 32
 * channels at a time within them. A product recomputes the projection of the channels, and the
 * gate's backward follows in registers. Its result is the left operand of a product that adds to
 * the gradient of the normalised row. The LayerNorm's backward ends the rows. With h = the gradient
 * of the LayerNorm's result times gamma, and x^ = (x - mean) / deviation:
 *
 *     dx = (h - mean(h) - x^ mean(h x^)) / deviation */
#include "trainer/backend/cuda/hopper/core/bulk.cuh"
#include "trainer/backend/cuda/hopper/pair/triangle_block.cuh"

namespace fm_cuda {

/* Packs four interleaved tiles into the words of chunks of rows g (0) and g + 8 (1). */
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

/* -- back */

struct back_grad_args {
    const bf16 *dy, *x, *gate; /* [rows, CZ], [C, rows], [rows, CZ] */
    const bf16 *norm, *out, *out_bias;
    const uint8_t *keep;
    bf16 *dx, *dp; /* [C, rows], [rows, CZ] */
    bf16 *dgate;   /* [rows, CZ], rows 4 C + CZ apart */
    int64_t rows;
    int n;
    float eps, keep_scale;
};

enum { BACK_GROUPS = 3, BACK_THREADS = BACK_GROUPS * GROUP_THREADS };

template <int CZ, int C> struct back_grad_space {
    bf16 out[CZ * C], x[BACK_GROUPS][2][C * GROUP_ROWS], normalised[BACK_GROUPS][C * GROUP_ROWS];
    uint4 gates[2][4][BACK_THREADS]; /* dy and gate of two groups of channels, by thread */
    float norm[2 * C], out_bias[CZ];
};

/* Starts copying 16 bytes. The L2 cache gets the whole line, whose other half is copied later. */
__device__ inline void half_line_async(uint4 *to_shared, const bf16 *from) {
    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(to_shared)),
        "l"(from)
        : "memory");
}

/* Starts loading a lane's chunks (8 of 32 channels) of dy and the gate, rows g and g + 8. Callers
 * do so two groups of channels ahead. */
template <int CZ, int C>
__device__ inline void gate_load(const back_grad_args &k, back_grad_space<CZ, C> *space,
                                 int64_t row, int channel) {
    uint4(*to)[BACK_THREADS] = space->gates[channel / 32 % 2];
    int64_t at = row * CZ + channel + threadIdx.x % 4 * 8;
    half_line_async(&to[0][threadIdx.x], k.dy + at);
    half_line_async(&to[1][threadIdx.x], k.dy + at + 8 * CZ);
    half_line_async(&to[2][threadIdx.x], k.gate + at);
    half_line_async(&to[3][threadIdx.x], k.gate + at + 8 * CZ);
}

/* The gate's backward for 32 channels: from dy, the gate's argument and u, the output projection,
 * dp' and dgate. */
__device__ inline void gate_backward(const uint4 (*in)[BACK_THREADS], float keep_scale,
                                     const uint32_t (&bits)[2], int channel, const float (&u)[4][4],
                                     const float (&rstd)[2], uint32_t (&dp)[2][4],
                                     uint32_t (&dgate)[2][4]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 dy = in[half][threadIdx.x], gate = in[2 + half][threadIdx.x];
        const uint32_t dys[4] = {dy.x, dy.y, dy.z, dy.w};
        const uint32_t gates[4] = {gate.x, gate.y, gate.z, gate.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 d = unpack_two(dys[i]), logit = unpack_two(gates[i]);
            float du[2] = {d.x, d.y}, dlogit[2] = {logit.x, logit.y};
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float sigmoid = quick_sigmoid(dlogit[e]);
                bool is_kept = bits[half] >> (channel / 4 + 2 * i + e) & 1;
                du[e] = is_kept ? keep_scale * du[e] * sigmoid : 0;
                dlogit[e] = du[e] * u[i][2 * half + e] * (1 - sigmoid);
            }
            dp[half][i] = pack_two(du[0] * rstd[half], du[1] * rstd[half]);
            dgate[half][i] = pack_two(dlogit[0], dlogit[1]);
        }
    }
}

/* The LayerNorm's backward: acc is the gradient of its result divided by the deviation, columns in
 * natural order. The warp's 16 rows of x in the tile become those of dx. */
template <int C>
__device__ inline void back_norm(float (&acc)[C / 8][4], bf16 *tile, const float *gamma,
                                 const float (&mean)[2], const float (&rstd)[2]) {
    int t = threadIdx.x % 4;
    float sum[2] = {0, 0}, dot[2] = {0, 0};
#pragma unroll
    for (int s = 0; s < C / 16; s++) {
        uint32_t x[4];
        ldmatrix_trans(x, tile + x_at(s));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 weight = *(const float2 *)(gamma + 16 * s + i / 2 * 8 + 2 * t);
            float2 two = unpack_two(x[i]);
            int half = i & 1;
            float *h = &acc[2 * s + i / 2][2 * half];
            h[0] *= weight.x, h[1] *= weight.y;
            sum[half] += h[0] + h[1];
            dot[half] += h[0] * (two.x - mean[half]) + h[1] * (two.y - mean[half]);
        }
    }
    float offset[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        dot[half] = -row_sum(dot[half]) * (1.0f / C) * rstd[half] * rstd[half];
        offset[half] = -row_sum(sum[half]) * (1.0f / C) - mean[half] * dot[half];
    }
#pragma unroll
    for (int s = 0; s < C / 16; s++) {
        uint32_t x[4];
        bf16 *at = tile + x_at(s);
        ldmatrix_trans(x, at);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 two = unpack_two(x[i]);
            int half = i & 1;
            const float *h = &acc[2 * s + i / 2][2 * half];
            x[i] = pack_two(h[0] + (two.x * dot[half] + offset[half]),
                            h[1] + (two.y * dot[half] + offset[half]));
        }
        stmatrix_trans(at, x);
    }
}

/* The dropout bits of a lane's two rows, as stored; keep_bits extracts the lane's own. */
template <int C> struct keep_words { uint32_t word[2][C / 32]; };
template <int C> __device__ inline keep_words<C> keep_load(const back_grad_args &k, int64_t row) {
    keep_words<C> keep;
#pragma unroll
    for (int i = 0; i < 2 * (C / 32); i++)
        keep.word[i % 2][i / 2] = ~0u;
    if (!k.keep || row >= k.rows) return keep;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint8_t *column = k.keep + (uint32_t)(row + 8 * half) % (uint32_t)k.n * (C / 8);
#pragma unroll
        for (int i = 0; i < C / 32; i++)
            keep.word[half][i] = ((const uint32_t *)column)[i];
    }
    return keep;
}

/* Normalises x into the tile `normalised`, the left operand of the output projection. */
template <int C>
__device__ inline void back_operand(const back_grad_args &k, const float *norm, const bf16 *tile,
                                    bf16 *normalised, float (&mean)[2], float (&rstd)[2]) {
    uint32_t x[C / 16][4];
    x_rows<C>(x, tile);
#pragma unroll
    for (int half = 0; half < 2; half++)
        x_statistics<C>(x, half, k.eps, &mean[half], &rstd[half]);
    x_normalise<C>(x, norm, mean, rstd);
#pragma unroll
    for (int s = 0; s < C / 16; s++)
        stmatrix_trans(normalised + x_at(s), x[s]);
    tiles_publish();
    group_barrier();
}

/* A group's 64 rows; the warp's 16 begin at `first`, its next ones at `next`. */
template <int CZ, int C>
__device__ inline void back_grad_rows(const back_grad_args &k, back_grad_space<CZ, C> *space,
                                      bf16 *tile, const uint32_t (&bits)[2], int64_t first,
                                      int64_t next) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int64_t row = first + g;
    float mean[2], rstd[2], acc[C / 8][4] = {};
    bf16 *normalised = space->normalised[threadIdx.x / GROUP_THREADS];
    back_operand<C>(k, space->norm, tile, normalised, mean, rstd);
    uint64_t operand = tile_operand<64, MN_MAJOR>(normalised);
#pragma unroll 1
    for (int channel = 0; channel < CZ; channel += 32) {
        float u[4][4];
        uint32_t dp[2][4], dgate[2][4];
        set_to_bias(u, space->out_bias + channel);
        products_begin();
        uint64_t w = tile_operand<64, K_MAJOR>(space->out + tiled_at<C>(channel));
#pragma unroll
        for (int s = 0; s < C / 16; s++)
            wgmma<MN_MAJOR, K_MAJOR>(u, operand_after(operand, s * 16 * 64),
                                     operand_after(w, s / 4 * 64 * 64 + s % 4 * 16), true);
        products_commit();
        copies_wait<1>(); /* all but the next group of channels and the next x */
        products_wait<0>(u);
        products_pin(acc);
        gate_backward(space->gates[channel / 32 % 2], k.keep_scale, bits, channel, u, rstd, dp,
                      dgate);
        products_begin();
        begin_back<C>(acc, dp, space->out + tiled_at<C>(channel));
        products_commit();
        int64_t rows = channel + 64 < CZ ? first : next;
        if (rows < k.rows) gate_load<CZ, C>(k, space, rows + g, (channel + 64) % CZ);
        copies_commit();
        int at = channel + 8 * t;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            store_chunk(k.dp + (row + 8 * half) * CZ + at, dp[half]);
            store_chunk(k.dgate + (row + 8 * half) * (4 * C + CZ) + at, dgate[half]);
        }
        products_wait<0>(acc);
    }
    back_norm<C>(acc, tile, space->norm, mean, rstd);
}

/* Stores the group's 64 rows of dx. */
template <int C> __device__ inline void dx_store(bf16 *dx, int64_t rows, const bf16 *tile) {
    int channel = threadIdx.x % GROUP_THREADS / 8, chunk = threadIdx.x % 8;
    dx += channel * rows + chunk * 8;
    tile += tile_at<64>(channel, chunk);
#pragma unroll
    for (int i = 0; i < C / 16; i++)
        *(uint4 *)(dx + i * 16 * rows) = *(const uint4 *)(tile + i * 16 * 64);
}

template <int CZ, int C>
__global__ void __launch_bounds__(BACK_THREADS, 1)
    wgmma_triangle_back_grad(const back_grad_args k) {
    extern __shared__ __align__(1024) char shared[];
    back_grad_space<CZ, C> *space = (back_grad_space<CZ, C> *)shared;
    int group = threadIdx.x / GROUP_THREADS, lane = threadIdx.x % 32;
    int row_in_group = threadIdx.x % GROUP_THREADS / 32 * 16 + lane / 4;
    int64_t step = (int64_t)gridDim.x * BACK_GROUPS * GROUP_ROWS;
    int64_t at = ((int64_t)group * gridDim.x + blockIdx.x) * GROUP_ROWS;
    wait_for_previous();
    const floats_load<2 * C, BACK_THREADS> norm(k.norm);
    const floats_load<CZ, BACK_THREADS> bias(k.out_bias);
    out_load<CZ, C>(space->out, k.out);
    if (at < k.rows) {
        x_load<C>(space->x[group][0], k.x, k.rows, at);
        gate_load<CZ, C>(k, space, at + row_in_group, 0);
        gate_load<CZ, C>(k, space, at + row_in_group, 32);
    }
    copies_commit();
    keep_words<CZ> keep = keep_load<CZ>(k, at + row_in_group);
    norm.store(space->norm), bias.store(space->out_bias);
    copies_wait<0>();
    tiles_publish();
    __syncthreads();
    for (int side = 0; at < k.rows; at += step, side ^= 1) {
        bf16 *tile = space->x[group][side];
        const uint32_t bits[2] = {keep_bits<CZ>(keep.word[0]), keep_bits<CZ>(keep.word[1])};
        copies_wait<1>();
        group_barrier();
        keep = keep_load<CZ>(k, at + step + row_in_group);
        if (at + step < k.rows) x_load<C>(space->x[group][side ^ 1], k.x, k.rows, at + step);
        copies_commit();
        int64_t first = row_in_group - lane / 4;
        back_grad_rows<CZ, C>(k, space, tile, bits, at + first, at + step + first);
        group_barrier();
        dx_store<C>(k.dx + at, k.rows, tile);
    }
}

/* -- front */

/* With c_z 128 a group has 64 sums and 32 projections per thread beside its rows of z. Two groups
 * keep them in registers. Three would spill, and take longer. */
template <int CZ> constexpr int FRONT_GROUPS = CZ == 128 ? 2 : 3;
template <int CZ> constexpr int FRONT_THREADS = FRONT_GROUPS<CZ> *GROUP_THREADS;

enum { UNIT = 64 }; /* channels of da or db that a warp takes at a time */

struct front_grad_args {
    const bf16 *z, *mask, *norm, *projections, *bias;
    const float2 *statistics;
    const bf16 *dpacked;  /* [2, C, rows]: da, db */
    bf16 *dprojected, *u; /* [rows, 4 C + CZ]; [rows, CZ] z normalised without gamma and beta */
    fm_out dz;
    int64_t rows;
};

template <int CZ, int C> struct front_grad_space {
    bf16 projections[(4 * C + CZ) * CZ], units[FRONT_THREADS<CZ> / 32][2][UNIT * 16];
    uint2 dout_gate[2][2][FRONT_THREADS<CZ>]; /* of two groups of channels, by thread */
    float norm[2 * CZ], bias[4 * C];
};

/* The offset of chunk 0 or 1 (of 16 rows) of a unit's line. The eight channels of an interleaved
 * tile are neighbouring lines. */
__device__ inline int unit_at(int line, int chunk) {
    return line * 16 + (chunk ^ ((line >> 2) & 1)) * 8;
}

/* Starts loading unit `number` (of 2 C / UNIT) of 16 rows from `first`. Called by a warp. */
__device__ inline void unit_load(const front_grad_args &f, bf16 *to, int number, int64_t first) {
    const bf16 *from = f.dpacked + number * UNIT * f.rows + first;
#pragma unroll
    for (int j = 0; j < UNIT / 16; j++) {
        int channel = j * 16 + threadIdx.x % 32 / 2, chunk = threadIdx.x % 2, c = channel % 32;
        int line = channel / 32 * 32 + (c >> 1 & 3) * 8 + (c >> 3) * 2 + (c & 1);
        copy_async(to + unit_at(line, chunk), from + channel * f.rows + chunk * 8, true);
    }
}

/* The operand gate's backward: p and gate become their gradients; `lines` is the gradient of the
 * gated operand. */
__device__ inline void front_gate(const bf16 *lines, const float (&mask)[2], float (&p)[4][4],
                                  float (&gate)[4][4]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t dgated[4];
        ldmatrix_trans(dgated,
                       lines + unit_at((i + (lane >> 4)) * 8 + (lane & 7), (lane >> 3) & 1));
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float2 two = unpack_two(dgated[r]);
            const float d[2] = {two.x, two.y};
            int half = r & 1, tile = i + r / 2;
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float *value = &p[tile][2 * half + e], *logit = &gate[tile][2 * half + e];
                float sigmoid = quick_sigmoid(*logit), dvalue = mask[half] * d[e];
                dvalue *= sigmoid;
                *logit = dvalue * *value * (1 - sigmoid);
                *value = dvalue;
            }
        }
    }
}

/* The LayerNorm's backward for rows g and g + 8; acc is the gradient of its result. Stores dz. */
template <int C>
__device__ inline void front_norm(const front_grad_args &f, float (&acc)[C / 8][4],
                                  const uint32_t (&z)[2][C / 8], const float *gamma, int64_t row,
                                  const float2 (&statistics)[2]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        asm volatile("" ::: "memory"); /* do not load for both halves at once */
        const uint32_t(&word)[C / 8] = z[half];
        uint32_t before[C / 8] = {};
        if (f.dz.beta == FM_ADD) {
            row_load<C>(before, (const bf16 *)f.dz.data + (row + 8 * half) * C);
        }
        float sum = 0, dot = 0, mean = statistics[half].x, rstd = statistics[half].y;
#pragma unroll
        for (int i = 0; i < C / 8; i++) {
            float2 weight = *(const float2 *)(gamma + (t + i / 4 * 4) * 8 + i % 4 * 2);
            float2 two = unpack_two(word[i]);
            float *h = &acc[i][2 * half];
            h[0] *= weight.x, h[1] *= weight.y;
            sum += h[0] + h[1];
            dot += h[0] * (two.x - mean) + h[1] * (two.y - mean);
        }
        sum = row_sum(sum) * (1.0f / C);
        dot = row_sum(dot) * (1.0f / C) * rstd * rstd;
#pragma unroll
        for (int i = 0; i < C / 8; i++) {
            float2 two = unpack_two(word[i]);
            float *h = &acc[i][2 * half];
            h[0] = rstd * (h[0] - sum - (two.x - mean) * dot);
            h[1] = rstd * (h[1] - sum - (two.y - mean) * dot);
        }
#pragma unroll
        for (int i = 0; i < C / 32; i++) {
            bf16 *at = (bf16 *)f.dz.data + (row + 8 * half) * C + (t + 4 * i) * 8;
            float out[8];
#pragma unroll
            for (int w = 0; w < 4; w++) {
                float2 add = unpack_two(before[4 * i + w]);
                out[2 * w] = acc[4 * i + w][2 * half] + add.x;
                out[2 * w + 1] = acc[4 * i + w][2 * half + 1] + add.y;
            }
            store_rounded(at, out);
        }
    }
}

/* Normalises rows g and g + 8 of z: to f.u, and with gamma and beta as the projection's left
 * operand. */
template <int C>
__device__ inline void front_operand(const front_grad_args &f, uint32_t (&z)[C / 16][4],
                                     const uint32_t (&word)[2][C / 8], const float *norm,
                                     int64_t row, const float2 (&statistics)[2]) {
    int t = threadIdx.x % 4;
    bf16 *to = f.u + row * C + t * 8;
#pragma unroll
    for (int i = 0; i < C / 32; i++) {
        float u[2][8];
#pragma unroll
        for (int w = 0; w < 4; w++) {
            int channel = (t + i * 4) * 8 + w * 2;
            float2 gamma = *(const float2 *)(norm + channel);
            float2 beta = *(const float2 *)(norm + C + channel);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float2 two = unpack_two(word[half][4 * i + w]);
                float scale = statistics[half].y, offset = statistics[half].x * scale;
                float x = two.x * scale - offset, y = two.y * scale - offset;
                u[half][2 * w] = x, u[half][2 * w + 1] = y;
                z[2 * i + w / 2][w % 2 * 2 + half] =
                    pack_two(x * gamma.x + beta.x, y * gamma.y + beta.y);
            }
        }
        store_rounded(to + 32 * i, u[0]);
        store_rounded(to + 8 * C + 32 * i, u[1]);
    }
}

/* Starts the projections of 32 channels of an operand: p and gate. */
template <int CZ, int C>
__device__ inline void front_begin(const front_grad_space<CZ, C> *space, int group,
                                   const uint32_t (&z)[CZ / 16][4], float (&d)[8][4]) {
    int channel = group * 32 + (group * 32 < C ? 0 : C);
    set_to_bias(*(float(*)[4][4]) & d[0], space->bias + channel);
    set_to_bias(*(float(*)[4][4]) & d[4], space->bias + channel + C);
    products_begin();
    begin_projection<CZ>(d, z, space->projections + tiled_at<CZ>(group * 64));
    products_commit();
}

/* Whether a group of 32 channels also adds 16 channels of the output gate to the gradient of z.
 * With CZ = C all groups do. */
template <int CZ, int C> __device__ inline bool has_dout(int group) {
    return CZ == C || group < CZ / 16;
}

/* Starts loading those 16 channels, of the output gate's part of dprojected: the lane's words of
 * rows g and g + 8. */
template <int CZ, int C>
__device__ inline void dout_gate_load(const front_grad_args &f, front_grad_space<CZ, C> *space,
                                      int64_t first, int group) {
    const bf16 *at =
        f.dprojected + (first + threadIdx.x % 32 / 4) * (4 * C + CZ) + 4 * C + group / 2 * 32;
    at += threadIdx.x % 4 * 8 + group % 2 * 4;
#pragma unroll
    for (int half = 0; half < 2; half++)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(
                         shared_address(&space->dout_gate[group % 2][half][threadIdx.x])),
                     "l"(at + half * 8 * (4 * C + CZ))
                     : "memory");
}

/* After a group of channels, starts the loads of the group after the next, and after an odd group
 * those of the unit after the next. The groups after the last one are those of rows `next`. */
template <int CZ, int C>
__device__ inline void front_prefetch(const front_grad_args &f, front_grad_space<CZ, C> *space,
                                      int group, int64_t first, int64_t next) {
    constexpr int GROUPS = 2 * C / 32;
    int64_t rows = group + 2 < GROUPS ? first : next;
    int ahead = (group + 2) % GROUPS;
    if (rows < f.rows && has_dout<CZ, C>(ahead)) dout_gate_load<CZ, C>(f, space, rows, ahead);
    if (group % 2 == 1) {
        __syncwarp();
        rows = group + 3 < GROUPS ? first : next;
        bf16 *lines = space->units[threadIdx.x / 32][group / 2 & 1];
        if (rows < f.rows) unit_load(f, lines, (group + 3) % GROUPS / 2, rows);
    }
    copies_commit();
}

/* Handles a group of channels, given its projections in d. It writes the gradients of p and gate to
 * dprojected, and starts the products that add them, and 16 channels of the output's gate, to
 * acc. */
template <int CZ, int C>
__device__ inline void front_group(const front_grad_args &f, const front_grad_space<CZ, C> *space,
                                   int group, const float (&mask)[2], bf16 *to, float (&d)[8][4],
                                   float (&acc)[CZ / 8][4]) {
    float(&p)[4][4] = *(float(*)[4][4]) & d[0], (&gate)[4][4] = *(float(*)[4][4]) & d[4];
    uint32_t dp[2][4], dgate[2][4];
    const bf16 *lines = space->units[threadIdx.x / 32][group / 2 & 1];
    uint2 low = space->dout_gate[group % 2][0][threadIdx.x];
    uint2 high = space->dout_gate[group % 2][1][threadIdx.x];
    front_gate(lines + group % 2 * 32 * 16, mask, p, gate);
    pack_tiles(dp, p);
    pack_tiles(dgate, gate);
    if (!has_dout<CZ, C>(group)) low = high = make_uint2(0, 0);
    const uint32_t dout_words[4] = {low.x, high.x, low.y, high.y};
    const int dout = CZ < C ? group % (CZ / 16) : group; /* zeros above add nothing */
    const bf16 *rows = space->projections + tiled_at<CZ>(4 * C + 16 * dout);
    products_begin();
    wgmma<MN_MAJOR>(acc, dout_words, tile_operand<64, MN_MAJOR>(rows, 64 * 64), true);
    begin_back<CZ>(acc, dp, space->projections + tiled_at<CZ>(group * 64));
    begin_back<CZ>(acc, dgate, space->projections + tiled_at<CZ>(group * 64 + 32));
    products_commit();
    bf16 *at = to + group * 32 + (group * 32 < C ? 0 : C);
    store_tiles(at, p, 0);
    store_tiles(at + 8 * (4 * C + CZ), p, 1);
    store_tiles(at + C, gate, 0);
    store_tiles(at + 8 * (4 * C + CZ) + C, gate, 1);
}

/* A group's 64 rows; the warp's 16 begin at `first`, its next ones at `next`. */
template <int CZ, int C>
__device__ inline void front_grad_rows(const front_grad_args &f, front_grad_space<CZ, C> *space,
                                       int64_t first, int64_t next) {
    constexpr int GROUPS = 2 * C / 32;
    int64_t row = first + threadIdx.x % 32 / 4;
    const float2 statistics[2] = {f.statistics[row], f.statistics[row + 8]};
    const float mask[2] = {get(f.mask[row]), get(f.mask[row + 8])};
    uint32_t word[2][CZ / 8], z[CZ / 16][4];
    float acc[CZ / 8][4] = {}, d[8][4];
    bf16 *to = f.dprojected + row * (4 * C + CZ) + threadIdx.x % 4 * 8;
    row_load<CZ>(word[0], f.z + row * CZ);
    row_load<CZ>(word[1], f.z + (row + 8) * CZ);
    front_operand<CZ>(f, z, word, space->norm, row, statistics);
#pragma unroll 1
    for (int group = 0; group < GROUPS - 1; group++) {
        front_begin<CZ, C>(space, group, z, d);
        copies_wait<1>();
        __syncwarp();
        products_wait<0>(d);
        products_pin(acc);
        front_group<CZ, C>(f, space, group, mask, to, d, acc);
        front_prefetch<CZ, C>(f, space, group, first, next);
        products_wait<0>(acc);
    }
    front_begin<CZ, C>(space, GROUPS - 1, z, d);
    copies_wait<1>();
    __syncwarp();
    products_wait<0>(d);
    products_pin(acc);
    row_load<CZ>(word[0], f.z + row * CZ); /* again, for the LayerNorm: z's registers are free */
    row_load<CZ>(word[1], f.z + (row + 8) * CZ);
    front_group<CZ, C>(f, space, GROUPS - 1, mask, to, d, acc);
    front_prefetch<CZ, C>(f, space, GROUPS - 1, first, next);
    products_wait<0>(acc);
    if (f.dz.data) front_norm<CZ>(f, acc, word, space->norm, row, statistics);
}

template <int CZ, int C>
__global__ void __launch_bounds__(FRONT_THREADS<CZ>, 1)
    wgmma_triangle_front_grad(const front_grad_args f) {
    extern __shared__ __align__(1024) char shared[];
    front_grad_space<CZ, C> *space = (front_grad_space<CZ, C> *)shared;
    int warp = threadIdx.x / 32;
    int64_t step = (int64_t)gridDim.x * FRONT_GROUPS<CZ> * GROUP_ROWS;
    int64_t at = ((int64_t)warp / 4 * gridDim.x + blockIdx.x) * GROUP_ROWS + warp % 4 * 16;
    const floats_load<2 * CZ, FRONT_THREADS<CZ>> norm(f.norm);
    const floats_load<4 * C, FRONT_THREADS<CZ>> bias(f.bias);
    tiles_load<CZ, C, 0>(space->projections, f.projections);
    tiles_publish();
    norm.store(space->norm), bias.store(space->bias);
    wait_for_previous();
    let_next_begin();
    for (int unit = 0; unit < 2; unit++) {
        if (at < f.rows) {
            unit_load(f, space->units[warp][unit], unit, at);
            dout_gate_load<CZ, C>(f, space, at, unit);
        }
        copies_commit();
    }
    __syncthreads();
    for (; at < f.rows; at += step)
        front_grad_rows<CZ, C>(f, space, at, at + step);
}

/* -- the whole sublayer */

struct grad_space {
    bf16 *dprojected, *u, *dp, *dx, *dpacked;
    float *sums;
    void *gemm;
};

static size_t grad_layout(const fm_triangle_block *t, void *base, grad_space *ret) {
    size_t line = (size_t)block_rows(t) * sizeof(bf16), c = (size_t)t->c, c_z = (size_t)t->c_z;
    carver carve = {(char *)base, 0};
    /* dpacked comes first: a part's caller reads and writes it. */
    ret->dpacked = (bf16 *)carve.take(3 * c * line);
    ret->dx = ret->dpacked + block_rows(t) * t->c * 2;
    ret->dprojected = (bf16 *)carve.take((4 * c + c_z) * line);
    ret->u = (bf16 *)carve.take(c_z * line);
    ret->dp = (bf16 *)carve.take(c_z * line);
    ret->sums = (float *)carve.take(block_weights_sums(t->c) * sizeof(float));
    ret->gemm = carve.take((size_t)32 << 20);
    return carve.used;
}

size_t block_grad_workspace(const fm_triangle_block *t) {
    grad_space space;
    return grad_layout(t, NULL, &space);
}

static int grad_blocks(const fm_triangle_block *t) {
    return (int)min_size(block_rows(t) / GROUP_ROWS, n_multiprocessor());
}

template <int CZ, int C>
static void grad_back(fm_stream *stream, const fm_triangle_block *t, const void *dy,
                      const grad_space &space) {
    block_kept kept = block_kept_at(t, t->kept);
    back_grad_args k = {};
    k.dy = (const bf16 *)dy, k.x = kept.x, k.gate = kept.gate;
    k.norm = (const bf16 *)t->norm_out;
    k.out = (const bf16 *)t->out, k.out_bias = (const bf16 *)t->out_bias;
    k.keep = t->dropout.rate != 0 ? kept.keep : NULL;
    k.dx = space.dx, k.dp = space.dp, k.dgate = space.dprojected + 4 * C;
    k.rows = block_rows(t), k.n = (int)t->n;
    k.eps = (float)t->eps, k.keep_scale = (float)(1 / (1 - t->dropout.rate));
    allow_shared(wgmma_triangle_back_grad<CZ, C>, sizeof(back_grad_space<CZ, C>));
    launch_after(stream, wgmma_triangle_back_grad<CZ, C>, (unsigned)grad_blocks(t), BACK_THREADS,
                 sizeof(back_grad_space<CZ, C>), true, k);
    FM_LAUNCHED();
}

template <int CZ, int C>
static void grad_front(fm_stream *stream, const fm_triangle_block *t, fm_out dz,
                       const grad_space &space) {
    front_grad_args f = {};
    f.z = (const bf16 *)t->z, f.mask = (const bf16 *)t->mask, f.norm = (const bf16 *)t->norm_in;
    f.projections = (const bf16 *)t->projections, f.bias = (const bf16 *)t->projections_bias;
    f.statistics = block_kept_at(t, t->kept).statistics;
    f.dpacked = space.dpacked, f.dprojected = space.dprojected, f.u = space.u;
    f.dz = dz, f.rows = block_rows(t);
    allow_shared(wgmma_triangle_front_grad<CZ, C>, sizeof(front_grad_space<CZ, C>));
    launch_after(stream, wgmma_triangle_front_grad<CZ, C>, (unsigned)grad_blocks(t),
                 FRONT_THREADS<CZ>, sizeof(front_grad_space<CZ, C>), true, f);
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

template <int CZ, int C>
static void grad_all(fm_stream *stream, const fm_triangle_block *t,
                     const fm_triangle_block_grad *grad, void *workspace) {
    grad_space space;
    grad_layout(t, workspace, &space);
    grad_back<CZ, C>(stream, t, grad->dy, space);
    grad_products(stream, t, space);
    grad_front<CZ, C>(stream, t, grad->dz, space);
    block_weights(stream, t, grad, {space.dprojected, space.u, space.dp}, space.sums);
}

/* The same for a part, which has some rows of da and db. Outgoing: `dwhole` is this part's share of
 * db, and da needs `whole`, all of b. Incoming: `dwhole` is all of dx. */
static void part_products(fm_stream *stream, const fm_triangle_part *p, const grad_space &space) {
    const fm_triangle_block *t = &p->block;
    int64_t n = t->n, part = t->n_part, c = t->c, plane = n * part * c;
    const bf16 *a = block_kept_at(t, t->kept).packed, *b = a + plane;
    bf16 *da = space.dpacked, *db = da + plane;
    if (t->incoming) {
        triangle_multiply<bf16>(stream, space.gemm, c, part, n, n, false, true, b, p->dwhole, da);
        triangle_multiply<bf16>(stream, space.gemm, c, part, n, n, false, false, a, p->dwhole, db);
    } else {
        triangle_multiply<bf16>(stream, space.gemm, c, n, n, part, true, false, space.dx, a,
                                p->dwhole);
        triangle_multiply<bf16>(stream, space.gemm, c, part, n, n, false, false, space.dx, p->whole,
                                da);
    }
}

void part_back_grad(fm_stream *stream, const fm_triangle_part *p, void *workspace) {
    const fm_triangle_block *t = &p->block;
    grad_space space;
    grad_layout(t, workspace, &space);
    with_widths(t, [=](auto c_z, auto c) { grad_back<c_z, c>(stream, t, p->grad->dy, space); });
    if (!t->incoming) part_products(stream, p, space);
}

void part_front_grad(fm_stream *stream, const fm_triangle_part *p, void *workspace) {
    const fm_triangle_block *t = &p->block;
    grad_space space;
    grad_layout(t, workspace, &space);
    if (t->incoming) part_products(stream, p, space);
    with_widths(t, [=](auto c_z, auto c) { grad_front<c_z, c>(stream, t, p->grad->dz, space); });
    block_weights(stream, t, p->grad, {space.dprojected, space.u, space.dp}, space.sums);
}

void block_grad(fm_stream *stream, const fm_triangle_block *t, const fm_triangle_block_grad *grad,
                void *workspace) {
    with_widths(t, [=](auto c_z, auto c) { grad_all<c_z, c>(stream, t, grad, workspace); });
}

} // namespace fm_cuda
