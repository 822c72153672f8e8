/* few_grad.cu: both gradients of a linear layer with up to eight outputs, as the pair bias of an
 * attention has, and the gradient of the LayerNorm before it, in one pass over the rows in bf16:
 *
 *     dn' = dn + dy W,   dw = dy^T n,   dx (+)= the gradient through n = LayerNorm(x)
 *
 * for rows of C = 64 or 128 channels. Without a norm, n is x, and dx (+)= dy W. The pass should
 * take no longer than its memory traffic. So tensor cores make the products, and rows are always on
 * their way. On request n is stored, too, for the gradient of other weights.
 *
 * A warp works for itself, on tiles of 16 rows. The copy engine brings the rows of the next tile
 * while the warp works on this one, and takes dx back. With g = lane / 4 and t = lane % 4, a lane
 * holds channels 32 j + 8 t to 32 j + 8 t + 7 of rows g and g + 8 of a tile, for each group j of 32
 * channels. So it reads and writes 16 bytes at a time. The columns of W are put in the order in
 * which a product's result has these places: column 2 t + e of result i of group j is channel
 * 32 j + 8 t + 2 i + e.
 *
 * All sums over rows are products, too, with operands that the lanes exchange to transpose them.
 * dw^T has n transposed as its left operand. The gradients of the norm's weights are sums of the
 * columns of dn', and of dn' times the normalised numbers, both rounded to bf16. Each of their
 * accumulators holds the sums of all channels, eight in a row. So both take eight registers
 * together, where a sum for each of a lane's channels would take 64. */
#include "trainer/backend/cuda/core/keep.cuh"
#include "trainer/backend/cuda/hopper/core/bulk.cuh"
#include "trainer/backend/cuda/hopper/core/wgmma.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"
#include "trainer/backend/cuda/norm/norm.cuh"

namespace fm_cuda {

enum { FEW_WARPS = 8, FEW_THREADS = FEW_WARPS * 32, FEW_ROWS = 16, MOST_OUTPUTS = 8 };

struct few_grad_call {
    const bf16 *x, *w, *dy, *gamma, *beta;
    const bf16 *dn, *old; /* NULL: none */
    bf16 *dx, *n;         /* n NULL: not written */
    float *dw, *dnorm;    /* partial sums, [blocks, outputs, C] and [blocks, 2, C] */
    float eps;
    int rows, tiles, outputs;
};

/* What a warp has of a tile: x becomes n, dn becomes dn', and dx is the old content before it is
 * the result. */
template <int C, bool NORM> struct few_slot {
    static constexpr int N = FEW_ROWS * C;
    bf16 x[N], dx[N], dn[NORM ? N : 8]; /* 8: without a norm it is not used */
};

template <int C, bool NORM> struct few_grad_space {
    union {
        few_slot<C, NORM> slot[FEW_WARPS][2];
        float sums[FEW_WARPS][(MOST_OUTPUTS + 2) * C];
    };
    uint4 w[C / 32][32]; /* each lane's words */
    uint64_t full[FEW_WARPS][2];
};

/* A warp asks for the rows of a tile, if there is one. Rows beyond the end become zeros. */
template <int C, bool NORM>
__device__ inline void few_fetch(const few_grad_call &f, few_slot<C, NORM> &s, uint32_t full,
                                 int tile) {
    if (tile >= f.tiles) return;
    int lane = threadIdx.x % 32, rows = min(FEW_ROWS, f.rows - tile * FEW_ROWS);
    if (lane == 0) stores_wait(); /* of n and dx from this slot */
    if (rows < FEW_ROWS) {
        __syncwarp();
        for (int i = lane; i < (int)(sizeof s / sizeof(uint4)); i += 32)
            ((uint4 *)&s)[i] = make_uint4(0, 0, 0, 0);
        tiles_publish();
        __syncwarp();
    }
    if (lane == 0) {
        int64_t from = (int64_t)tile * FEW_ROWS * C;
        uint32_t bytes = (uint32_t)(rows * C) * sizeof(bf16);
        barrier_expect(full, bytes * (1 + (f.old != NULL) + (f.dn != NULL)));
        bulk_load(shared_address(s.x), f.x + from, bytes, full);
        if (f.old) bulk_load(shared_address(s.dx), f.old + from, bytes, full);
        if (NORM && f.dn) bulk_load(shared_address(s.dn), f.dn + from, bytes, full);
    }
    __syncwarp();
}

/* This lane's word of dy of a row: outputs 2 t and 2 t + 1. */
__device__ inline uint32_t few_outputs(const few_grad_call &f, int64_t row) {
    int output = threadIdx.x % 4 * 2;
    bool is_there = row < f.rows && output < f.outputs;
    return is_there ? *(const uint32_t *)(f.dy + row * f.outputs + output) : 0;
}

/* A warp puts W into shared memory as the right operand of the products that make dn'. */
template <int C> __device__ inline void put_weights(uint4 (*w)[32], const few_grad_call &f) {
    int lane = threadIdx.x % 32, g = lane / 4, output = lane % 4 * 2;
    const uint16_t *at = (const uint16_t *)f.w + output * C + g / 2 * 8 + g % 2;
#pragma unroll
    for (int j = 0; j < C / 32; j++) {
        uint32_t word[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++, at += 2)
            if (output < f.outputs) word[i] = at[0] | (uint32_t)at[C] << 16;
        at += 24;
        w[j][lane] = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

__device__ inline uint32_t word_of(const uint4 &x, int i) {
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/* Eight neighbouring weights of the norm. */
struct eight_weights {
    float at[8];
};
__device__ inline eight_weights read_eight(const bf16 *p) {
    uint4 x = __ldg((const uint4 *)p);
    eight_weights w;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 two = unpack_two(word_of(x, i));
        w.at[2 * i] = two.x, w.at[2 * i + 1] = two.y;
    }
    return w;
}

/* Of the lane's rows: a normalised number is x * rstd + shift. */
struct few_statistics {
    float rstd[2], shift[2];
};
template <int C>
__device__ inline few_statistics statistics_of(const uint4 (&x)[C / 32][2], float eps) {
    few_statistics s;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float total = 0, squares = 0;
#pragma unroll
        for (int k = 0; k < C / 8; k++) {
            float2 two = unpack_two(word_of(x[k / 4][h], k % 4));
            total += two.x + two.y;
        }
        const float mean = row_sum(total) * (1.0f / C);
#pragma unroll
        for (int k = 0; k < C / 8; k++) {
            float2 two = unpack_two(word_of(x[k / 4][h], k % 4));
            two.x -= mean, two.y -= mean;
            squares += two.x * two.x + two.y * two.y;
        }
        s.rstd[h] = 1.0f / sqrtf(row_sum(squares) * (1.0f / C) + eps);
        s.shift[h] = -mean * s.rstd[h];
    }
    return s;
}

/* What a warp sums over its rows. An accumulator of dw^T has 16 channels, results i and i + 1 of a
 * group. Row 4 j + i of the norm's sums is result i of group j. */
template <int C> struct few_sums { float dw[C / 16][4], dgamma[4], dbeta[4]; };

/* Adds the columns of x, words of rows g and g + 8, to one row of the sums: a product with a matrix
 * of ones in that row. */
__device__ inline void sum_columns(float (&sums)[4], const uint32_t (&x)[2], int row) {
    enum { ONES = 0x3f803f80 };
    uint32_t one = (int)threadIdx.x % 32 / 4 == row % 8 ? ONES : 0;
    const uint32_t a[4] = {row < 8 ? one : 0, row < 8 ? 0 : one, row < 8 ? one : 0,
                           row < 8 ? 0 : one};
    mma(sums, a, transpose_eight(x[0]), transpose_eight(x[1]));
}

/* dw^T += n^T dy for 32 channels, words of rows g and g + 8. */
__device__ inline void sum_outputs(float (*dw)[4], const uint32_t (&n)[2][4],
                                   const uint32_t (&dy)[2]) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = transpose_eight(n[i / 2][2 * k + i % 2]);
        mma(dw[k], a, dy[0], dy[1]);
    }
}

/* One tile, which has arrived: x in registers, the rest in the slot. */
template <int C, bool NORM> struct few_tile {
    const few_grad_call &f;
    few_slot<C, NORM> &s;
    uint4 x[C / 32][2];
    uint32_t dy[2], dy_t[2]; /* dy_t: as the right operand of a product that sums over rows */
    few_statistics of;

    /* The lane's 16 bytes of group j in row g + 8 h. */
    __device__ inline int place(int j, int h) const {
        int lane = threadIdx.x % 32;
        return (lane / 4 + 8 * h) * C + 32 * j + lane % 4 * 8;
    }

    __device__ inline void read(const uint32_t (&outputs)[2]) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            dy[h] = outputs[h], dy_t[h] = transpose_eight(outputs[h]);
#pragma unroll
            for (int j = 0; j < C / 32; j++)
                x[j][h] = *(const uint4 *)(s.x + place(j, h));
        }
        if (NORM) of = statistics_of<C>(x, f.eps);
    }

    /* dy W for group j, added to what `from` holds, if it has content. */
    __device__ inline void multiply(float (&d)[4][4], const uint4 (*w)[32], int j, const bf16 *from,
                                    bool has_content) const {
        const uint4 right = w[j][threadIdx.x % 32];
        uint4 content[2] = {};
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (has_content) content[h] = *(const uint4 *)(from + place(j, h));
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float2 two = unpack_two(word_of(content[h], i));
                d[i][2 * h] = two.x, d[i][2 * h + 1] = two.y;
            }
            mma_eight(d[i], dy[0], dy[1], word_of(right, i));
        }
    }

    __device__ inline void put_group(bf16 *to, int j, const float (&d)[4][4]) const {
#pragma unroll
        for (int h = 0; h < 2; h++)
            *(uint4 *)(to + place(j, h)) = make_uint4(
                pack_two(d[0][2 * h], d[0][2 * h + 1]), pack_two(d[1][2 * h], d[1][2 * h + 1]),
                pack_two(d[2][2 * h], d[2][2 * h + 1]), pack_two(d[3][2 * h], d[3][2 * h + 1]));
    }

    __device__ inline float hat(float value, int h) const {
        return value * of.rstd[h] + of.shift[h];
    }

    /* A layer without a norm: dx (+)= dy W, and the sums of dw. */
    __device__ inline void pass_on(const uint4 (*w)[32], few_sums<C> &sums) const {
#pragma unroll
        for (int j = 0; j < C / 32; j++) {
            float d[4][4];
            const uint32_t n[2][4] = {{x[j][0].x, x[j][0].y, x[j][0].z, x[j][0].w},
                                      {x[j][1].x, x[j][1].y, x[j][1].z, x[j][1].w}};
            multiply(d, w, j, s.dx, f.old != NULL);
            put_group(s.dx, j, d);
            sum_outputs(sums.dw + 2 * j, n, dy_t);
        }
    }

    /* Makes dn' and adds to all sums. `total` gets, for both rows, the sum of gamma dn' and that of
     * gamma dn' times the normalised numbers. */
    __device__ inline void gather(const uint4 (*w)[32], few_sums<C> &sums,
                                  float (&total)[2][2]) const {
#pragma unroll
        for (int j = 0; j < C / 32; j++) {
            int channel = 32 * j + (int)threadIdx.x % 4 * 8;
            const eight_weights gamma = read_eight(f.gamma + channel);
            const eight_weights beta = read_eight(f.beta + channel);
            float d[4][4];
            uint32_t n[2][4];
            multiply(d, w, j, s.dn, f.dn != NULL);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t dn[2], product[2];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float2 two = unpack_two(word_of(x[j][h], i));
                    float y[2] = {hat(two.x, h), hat(two.y, h)};
                    const float *by = d[i] + 2 * h;
                    dn[h] = pack_two(by[0], by[1]);
                    product[h] = pack_two(by[0] * y[0], by[1] * y[1]);
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float scaled = gamma.at[2 * i + e] * by[e];
                        total[h][0] += scaled, total[h][1] += scaled * y[e];
                        y[e] = y[e] * gamma.at[2 * i + e] + beta.at[2 * i + e];
                    }
                    n[h][i] = pack_two(y[0], y[1]);
                }
                sum_columns(sums.dbeta, dn, 4 * j + i);
                sum_columns(sums.dgamma, product, 4 * j + i);
            }
            put_group(s.dn, j, d);
#pragma unroll
            for (int h = 0; h < 2 && f.n; h++)
                *(uint4 *)(s.x + place(j, h)) = make_uint4(n[h][0], n[h][1], n[h][2], n[h][3]);
            sum_outputs(sums.dw + 2 * j, n, dy_t);
        }
    }

    /* dx (+)= the gradient through the norm by dn'. */
    __device__ inline void spread(const float (&mean)[2][2]) const {
#pragma unroll
        for (int j = 0; j < C / 32; j++) {
            const eight_weights gamma = read_eight(f.gamma + 32 * j + (int)threadIdx.x % 4 * 8);
            float d[4][4];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint4 dn = *(const uint4 *)(s.dn + place(j, h)), old = {};
                if (f.old) old = *(const uint4 *)(s.dx + place(j, h));
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float2 value = unpack_two(word_of(x[j][h], i));
                    float2 by = unpack_two(word_of(dn, i)), to = unpack_two(word_of(old, i));
                    float one = gamma.at[2 * i] * by.x - mean[h][0];
                    float two = gamma.at[2 * i + 1] * by.y - mean[h][0];
                    d[i][2 * h] = (one - hat(value.x, h) * mean[h][1]) * of.rstd[h] + to.x;
                    d[i][2 * h + 1] = (two - hat(value.y, h) * mean[h][1]) * of.rstd[h] + to.y;
                }
            }
            put_group(s.dx, j, d);
        }
    }
};

/* Adds the sums of the block's warps in order and leaves them as the block's partial sums. */
template <int C, bool NORM>
__device__ inline void leave_few_sums(const few_grad_call &f, few_grad_space<C, NORM> *s,
                                      few_sums<C> &sums) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int n_dw = f.outputs * C, n = n_dw + (NORM ? 2 * C : 0);
    if (lane == 0) stores_wait();
    __syncthreads(); /* the slots are free */
    float *to = s->sums[threadIdx.x / 32];
#pragma unroll
    for (int k = 0; k < C / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int output = 2 * t + i % 2;
            int channel = k / 2 * 32 + g / 2 * 8 + k % 2 * 4 + i / 2 * 2 + g % 2;
            if (output < f.outputs) to[output * C + channel] = sums.dw[k][i];
        }
#pragma unroll
    for (int i = 0; i < C / 32 && NORM; i++) {
        int row = g + i / 2 * 8, channel = row / 4 * 32 + t * 8 + row % 4 * 2 + i % 2;
        to[n_dw + channel] = sums.dgamma[i], to[n_dw + C + channel] = sums.dbeta[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += FEW_THREADS) {
        float total = 0;
#pragma unroll
        for (int k = 0; k < FEW_WARPS; k++)
            total += s->sums[k][i];
        if (i < n_dw) {
            f.dw[(int64_t)blockIdx.x * n_dw + i] = total;
        } else {
            f.dnorm[(int64_t)blockIdx.x * 2 * C + i - n_dw] = total;
        }
    }
}

template <int C, bool NORM>
__global__ void __launch_bounds__(FEW_THREADS, 1) mma_few_grad(const few_grad_call f) {
    extern __shared__ __align__(128) char memory[];
    few_grad_space<C, NORM> *space = (few_grad_space<C, NORM> *)memory;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, stride = (int)gridDim.x * FEW_WARPS;
    few_slot<C, NORM> *slot = space->slot[warp];
    uint32_t full = shared_address(space->full[warp]);
    if (lane == 0) {
        barrier_init(full, 1), barrier_init(full + 8, 1);
        barriers_publish();
    }
    if (warp == 0) put_weights<C>(space->w, f);
    __syncthreads();
    uint32_t outputs[2];
    few_sums<C> sums = {};
    wait_for_previous();
    /* Neighbouring tiles go to different blocks. So the tiles of the last round are spread over all
     * blocks, a few to each. */
    int tile = (int)(blockIdx.x + warp * gridDim.x);
    few_fetch(f, slot[0], full, tile);
    few_fetch(f, slot[1], full + 8, tile + stride);
#pragma unroll
    for (int h = 0; h < 2; h++)
        outputs[h] = few_outputs(f, (int64_t)tile * FEW_ROWS + lane / 4 + 8 * h);
    for (int turn = 0; tile < f.tiles; turn++, tile += stride) {
        int now = turn % 2;
        few_tile<C, NORM> on = {f, slot[now], {}, {}, {}, {}};
        barrier_wait(full + 8 * now, turn / 2 & 1);
        on.read(outputs);
        if (turn > 0) few_fetch(f, slot[now ^ 1], full + 8 * (now ^ 1), tile + stride);
#pragma unroll
        for (int h = 0; h < 2; h++)
            outputs[h] = few_outputs(f, ((int64_t)tile + stride) * FEW_ROWS + lane / 4 + 8 * h);
        if constexpr (NORM) {
            float mean[2][2] = {};
            on.gather(space->w, sums, mean);
#pragma unroll
            for (int i = 0; i < 4; i++)
                mean[i / 2][i % 2] = row_sum(mean[i / 2][i % 2]) * (1.0f / C);
            on.spread(mean);
        } else {
            on.pass_on(space->w, sums);
        }
        tiles_publish();
        __syncwarp();
        if (lane == 0) {
            int64_t to = (int64_t)tile * FEW_ROWS * C;
            int rows = min(FEW_ROWS, f.rows - tile * FEW_ROWS);
            uint32_t bytes = (uint32_t)(rows * C) * sizeof(bf16);
            bulk_store(f.dx + to, shared_address(slot[now].dx), bytes);
            if (NORM && f.n) bulk_store(f.n + to, shared_address(slot[now].x), bytes);
        }
        __syncwarp();
    }
    let_next_begin();
    leave_few_sums(f, space, sums);
}

/* -- calls */

static int64_t few_blocks(int64_t rows) {
    return min_size(n_multiprocessor(), divide_up(divide_up(rows, FEW_ROWS), FEW_WARPS));
}

/* Bytes of the partial sums of dw, and of those of the norm. */
static size_t few_dw_bytes(const fm_few_grad *a) {
    return (size_t)(few_blocks(a->rows) * a->c_out * a->c_in) * sizeof(float);
}
static size_t few_norm_bytes(const fm_few_grad *a) {
    return a->norm.gamma ? (size_t)(few_blocks(a->rows) * 2 * a->c_in) * sizeof(float) : 0;
}

bool few_grad_takes(const fm_few_grad *a) {
    enum { FEWEST_ROWS = 4096 };
    return (a->c_in == 64 || a->c_in == 128) && a->c_out <= MOST_OUTPUTS && a->c_out % 2 == 0 &&
           a->rows >= FEWEST_ROWS && a->rows < 1 << 28;
}

size_t few_grad_mma_workspace(const fm_few_grad *a) {
    return few_dw_bytes(a) + few_norm_bytes(a);
}

template <int C, bool NORM>
static void few_grad_as(fm_stream *stream, const fm_few_grad *a, float *dw, float *dnorm) {
    constexpr int BYTES = (int)sizeof(few_grad_space<C, NORM>);
    FM_CUDA(cudaFuncSetAttribute(mma_few_grad<C, NORM>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 BYTES));
    const few_grad_call f = {(const bf16 *)a->x,
                             (const bf16 *)a->w,
                             (const bf16 *)a->dy,
                             (const bf16 *)a->norm.gamma,
                             (const bf16 *)a->norm.beta,
                             NORM ? (const bf16 *)a->norm.dn : NULL,
                             a->dx.beta == FM_ADD ? (const bf16 *)a->dx.data : NULL,
                             (bf16 *)a->dx.data,
                             (bf16 *)a->norm.n,
                             dw,
                             dnorm,
                             (float)a->norm.eps,
                             (int)a->rows,
                             (int)divide_up(a->rows, FEW_ROWS),
                             (int)a->c_out};
    launch_after(stream, mma_few_grad<C, NORM>, (unsigned)few_blocks(a->rows), FEW_THREADS, BYTES,
                 true, f);
    FM_LAUNCHED();
}

void few_grad_mma(fm_stream *stream, const fm_few_grad *a, void *workspace) {
    bool has_norm = a->norm.gamma != NULL;
    assert(is_aligned(a->x) && is_aligned(a->dx.data) && is_aligned(a->norm.dn) &&
           is_aligned(a->norm.n));
    assert(is_aligned(a->norm.gamma) && is_aligned(a->norm.beta) && (uintptr_t)a->dy % 4 == 0);
    int64_t blocks = few_blocks(a->rows), n = a->c_out * a->c_in;
    partial_sums sums = sums_of(NULL, blocks, n, n, (float *)a->dw.data, a->dw.beta);
    partial_sums norm = norm_sums(blocks, a->c_in, a->norm.dgamma, a->norm.dbeta);
    /* One place for both: a second one could end earlier sums and take the first one's memory. */
    for (const sum_target &target : norm.target)
        end_sums_of(stream, target.data, (size_t)target.n * sizeof(float));
    float *dw = sums_place(stream, sums, few_grad_mma_workspace(a), workspace);
    float *dnorm = dw + blocks * n;
    sums.partial = dw, norm.partial = dnorm;
    if (a->c_in == 64) {
        (has_norm ? few_grad_as<64, true> : few_grad_as<64, false>)(stream, a, dw, dnorm);
    } else {
        (has_norm ? few_grad_as<128, true> : few_grad_as<128, false>)(stream, a, dw, dnorm);
    }
    end_sums(stream, sums);
    if (has_norm) end_sums(stream, norm);
}

} // namespace fm_cuda
