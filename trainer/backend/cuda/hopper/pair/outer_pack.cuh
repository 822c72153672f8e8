/* outer_pack.cuh: puts the operands of outer_wgmma.cu into the order in which products read them,
 * and the gradients of a and b back.
 *
 * A tile is 64 rows of 64 columns in the layout of wgmma.cuh, 8 KB in one piece, so that one bulk
 * copy brings it. Operands are matrices [(residue, channel), s] or [(a, b), z], in one of two
 * orders of such tiles:
 *
 *     PANELS    [two residues][columns / 64]; a row of the tile is (residue % 2, channel). The 32
 *               rows of a residue are together, so a tile holds whole residues.
 *     CHANNELS  [channel][residues / 64][columns / 64]; a row of the tile is residue % 64.
 *
 * Columns are padded with zeros to a multiple of 128. Rows past the last are left as they are. */
#ifndef FM_BACKEND_CUDA_OUTER_PACK_CUH
#define FM_BACKEND_CUDA_OUTER_PACK_CUH

#include "trainer/backend/cuda/hopper/core/bulk.cuh"
#include "trainer/backend/cuda/core/mma.cuh"

namespace fm_cuda {

enum { PANEL_C = 32, PANEL = 64, PANEL_TILE = PANEL * PANEL, PACK_THREADS = 256, PACK_JOBS = 4 };

/* Packs from[column * strides[0] + residue * strides[1] + channel * strides[2]]. */
struct pack_job {
    const bf16 *from, *mask; /* mask [columns, residues]: a factor, or NULL */
    int64_t strides[3];
    int residues, columns, tiles; /* tiles: of 64 columns, padding included */
    bool by_channel;
    bf16 *to;
    bf16 *plain; /* [columns, residues, 32] of the same numbers, too; or NULL */
};

/* norm[i, j] = sum_s mask_a[s, i] mask_b[s, j]; its readers add eps. */
struct norm_job {
    const bf16 *mask_a, *mask_b; /* [n_seq, n_i], [n_seq, n_j] */
    int n_i, n_j, n_seq;
    float *norm;
};

struct pack_jobs {
    pack_job at[PACK_JOBS];
    norm_job norm;
    int first_block[PACK_JOBS + 1]; /* of each job, behind those of the norm; last, all */
};

/* Where the transposing tile stores element (s, row). Chunks are swizzled, so that neither
 * direction has bank conflicts. */
__device__ inline int pack_at(int s, int row) {
    return s * (PANEL + 8) + (((row / 8) ^ (s / 8)) * 8) + row % 8;
}

/* Multiplies eight channels by a mask. */
__device__ inline void pack_mask(uint4 *line, float factor) {
    if (factor == 1) return;
    uint32_t *two = &line->x;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float2 x = unpack_two(two[k]);
        two[k] = pack_two(x.x * factor, x.y * factor);
    }
}

/* Reads two residues and 64 columns into the transposing tile. */
__device__ inline void pack_read(bf16 *tile, const pack_job &job, int pair, int first) {
    if (job.strides[2] == 1) {
        constexpr int ITEMS = PANEL * PANEL / 8 / PACK_THREADS;
        int chunk = threadIdx.x % 8, residue = pair * 2 + chunk / 4, channel = chunk % 4 * 8;
        uint4 line[ITEMS] = {};
        float factor[ITEMS]; /* all loads start before the first store */
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            int s = first + threadIdx.x / 8 + k * (PACK_THREADS / 8);
            factor[k] = 1;
            if (residue >= job.residues || s >= job.columns) continue;
            line[k] = *(const uint4 *)(job.from + s * job.strides[0] + residue * job.strides[1] +
                                       channel);
            if (job.mask) factor[k] = get(job.mask[s * job.residues + residue]);
        }
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            int row = threadIdx.x / 8 + k * (PACK_THREADS / 8), s = first + row;
            pack_mask(&line[k], factor[k]);
            *(uint4 *)(tile + pack_at(row, chunk * 8)) = line[k];
            if (job.plain && residue < job.residues && s < job.columns) {
                *(uint4 *)(job.plain + ((int64_t)s * job.residues + residue) * PANEL_C + channel) =
                    line[k];
            }
        }
        return;
    }
    constexpr int STEP = PACK_THREADS / PANEL, ITEMS = PANEL / STEP;
    int row = threadIdx.x % PANEL, begin = threadIdx.x / PANEL, residue = pair * 2 + row / PANEL_C;
    const bf16 *from = job.from + (first + begin) * job.strides[0] + residue * job.strides[1] +
                       row % PANEL_C * job.strides[2];
    bf16 x[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++, from += STEP * job.strides[0]) {
        bool is_inside = residue < job.residues && first + begin + k * STEP < job.columns;
        x[k] = is_inside ? *from : to<bf16>(0);
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++)
        tile[pack_at(begin + k * STEP, row)] = x[k];
}

/* One block packs two residues and 64 columns. */
__device__ inline void pack_block(bf16 *tile, const pack_job &job, int block) {
    int pair = block / job.tiles, part = block % job.tiles;
    pack_read(tile, job, pair, part * PANEL);
    __syncthreads();
    for (int item = threadIdx.x; item < PANEL * PANEL / 8; item += PACK_THREADS) {
        int chunk = item % 8, row = item / 8, residue = pair * 2 + row / PANEL_C;
        if (residue >= job.residues) continue;
        pack<bf16, 8> line;
#pragma unroll
        for (int k = 0; k < 8; k++)
            line.at[k] = tile[pack_at(chunk * 8 + k, row)];
        int to_tile = pair * job.tiles + part, to_row = row;
        if (job.by_channel) {
            int blocks = (job.residues + PANEL - 1) / PANEL;
            to_tile = (row % PANEL_C * blocks + residue / PANEL) * job.tiles + part;
            to_row = residue % PANEL;
        }
        *(pack<bf16, 8> *)(job.to + (int64_t)to_tile * PANEL_TILE + tile_at<PANEL>(to_row, chunk)) =
            line;
    }
}

enum {
    NORM_I = 16,
    NORM_J = 32,
    NORM_ROWS = 16, /* sequences that a warp takes at a time */
    NORM_TILE = NORM_ROWS * PANEL,
    NORM_WARPS = PACK_THREADS / 32,
    NORM_STEP = NORM_ROWS * NORM_WARPS,
    PACK_SPACE = NORM_WARPS * NORM_TILE
};

/* Fills a lane's part of the tile: eight residues of a mask [n_seq, n], of every fourth sequence
 * from s on; zeros outside. */
__device__ inline void norm_load(bf16 *tile, const bf16 *mask, int s, int n_seq, int residue,
                                 int n) {
    int row = threadIdx.x % 32 / 8, chunk = threadIdx.x % 8;
    if (chunk >= (NORM_I + NORM_J) / 8) return;
    const bf16 *from = mask + (int64_t)s * n + residue;
    if (n % 8 == 0 && (uintptr_t)mask % 16 == 0) {
        uint4 line[4] = {};
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (s + k * 4 < n_seq && residue < n) line[k] = *(const uint4 *)(from + k * 4 * n);
#pragma unroll
        for (int k = 0; k < 4; k++)
            *(uint4 *)(tile + tile_at<64>(row + k * 4, chunk)) = line[k];
        return;
    }
#pragma unroll 1
    for (int k = 0; k < 32; k++) {
        int at = k / 8 * 4, channel = k % 8;
        bool is_there = s + at < n_seq && residue + channel < n;
        tile[tile_at<64>(row + at, chunk) + channel] =
            is_there ? from[at * n + channel] : to<bf16>(0);
    }
}

/* sum += the norm's share of the sequences that this warp takes. Rows of its tile are sequences;
 * its columns are residues i, then j. */
__device__ inline void norm_sum(bf16 *tile, const norm_job &job, int i0, int j0,
                                float (&sum)[4][4]) {
    int lane = threadIdx.x % 32, chunk = lane % 8;
    bool is_a = chunk < NORM_I / 8;
    const bf16 *mask = is_a ? job.mask_a : job.mask_b;
    int n = is_a ? job.n_i : job.n_j, residue = is_a ? i0 + chunk * 8 : j0 - NORM_I + chunk * 8;
    for (int s = threadIdx.x / 32 * NORM_ROWS; s < job.n_seq; s += NORM_STEP) {
        __syncwarp();
        norm_load(tile, mask, s + lane / 8, job.n_seq, residue, n);
        __syncwarp();
        uint32_t a[4], b[4];
        ldmatrix_trans(a, tile + tile_at<PANEL>(lane % 8 + lane / 16 * 8, lane / 8 % 2));
#pragma unroll
        for (int k = 0; k < 2; k++) {
            ldmatrix_trans(b, tile + tile_at<PANEL>(lane % 8 + lane / 8 % 2 * 8,
                                                    NORM_I / 8 + k * 2 + lane / 16));
            mma(sum[k * 2], a, b[0], b[1]);
            mma(sum[k * 2 + 1], a, b[2], b[3]);
        }
    }
}

/* One block makes the norm of NORM_I by NORM_J pairs. Its warps share the sequences, and their sums
 * are added in a fixed order. */
__device__ inline void norm_block(bf16 *space, const norm_job &job, int block) {
    int across = (job.n_j + NORM_J - 1) / NORM_J;
    int i0 = block / across * NORM_I, j0 = block % across * NORM_J;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum[4][4] = {};
    norm_sum(space + warp * NORM_TILE, job, i0, j0, sum);
    float4 *parts = (float4 *)space; /* [warp][4 accumulators][lane] */
    static_assert(PACK_SPACE * sizeof(bf16) >= NORM_WARPS * 4 * 32 * sizeof(float4));
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 4; k++)
        parts[(warp * 4 + k) * 32 + lane] = make_float4(sum[k][0], sum[k][1], sum[k][2], sum[k][3]);
    __syncthreads();
    if (warp >= 4) return;
    float total[4] = {};
#pragma unroll
    for (int k = 0; k < NORM_WARPS; k++) {
        float4 x = parts[(k * 4 + warp) * 32 + lane];
        total[0] += x.x, total[1] += x.y, total[2] += x.z, total[3] += x.w;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int i = i0 + lane / 4 + k / 2 * 8, j = j0 + warp * 8 + lane % 4 * 2 + k % 2;
        if (i < job.n_i && j < job.n_j) job.norm[(int64_t)i * job.n_j + j] = total[k];
    }
}

static __global__ void __launch_bounds__(PACK_THREADS, 6)
    outer_pack_all(const __grid_constant__ pack_jobs jobs) {
    wait_for_previous();
    let_next_begin();
    __shared__ alignas(128) bf16 space[PACK_SPACE];
    static_assert(PACK_SPACE >= PANEL * (PANEL + 8));
    int block = (int)blockIdx.x, job = 0;
    if (block < jobs.first_block[0]) {
        norm_block(space, jobs.norm, block);
        return;
    }
    while (block >= jobs.first_block[job + 1])
        job++;
    pack_block(space, jobs.at[job], block - jobs.first_block[job]);
}

/* Runs all jobs that have a destination, and makes the norm. */
inline void outer_pack_run(fm_stream *stream, pack_jobs *jobs) {
    int blocks = (int)(divide_up(jobs->norm.n_i, NORM_I) * divide_up(jobs->norm.n_j, NORM_J));
    for (int k = 0; k < PACK_JOBS; k++) {
        jobs->first_block[k] = blocks;
        if (jobs->at[k].to) blocks += (jobs->at[k].residues + 1) / 2 * jobs->at[k].tiles;
    }
    jobs->first_block[PACK_JOBS] = blocks;
    launch_after(stream, outer_pack_all, (unsigned)blocks, PACK_THREADS, 0, true, *jobs);
    FM_LAUNCHED();
}

/* -- dz */

/* dz / norm as it is, or in tiles by_i [i][n_j / 64][2] with rows j, whose columns are the channels
 * z. Also each block's sums over its pairs, which the caller adds up in order for dbias. */
struct dz_pack {
    const bf16 *dz;
    const float *norm; /* [n_i, n_j] without eps */
    float eps;
    int n_i, n_j;
    bf16 *by_i, *plain; /* may be NULL; plain: [n_i, n_j, 128] */
    float *sums;        /* [blocks][128] */
};

enum { DZ_ROWS = 4, DZ_AT_ONCE = 8, DZ_C = 128 };

inline int dz_pack_blocks(int64_t n_i, int64_t n_j) {
    return (int)(divide_up(n_i, DZ_ROWS) * divide_up(n_j, PANEL));
}

/* Stores eight channels of pair (i, row of block_j) times a factor, and adds them to `total`. */
__device__ inline void dz_store(const dz_pack &p, int i, int block_j, int row, int chunk,
                                float factor, float x[8], float total[8]) {
    int blocks_j = (p.n_j + PANEL - 1) / PANEL, j = block_j * PANEL + row;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        x[k] *= factor;
        total[k] += x[k];
    }
    int64_t tile_i = ((int64_t)i * blocks_j + block_j) * 2 + chunk / 8;
    if (p.plain) store<bf16, 8>(p.plain + ((int64_t)i * p.n_j + j) * DZ_C + chunk * 8, x);
    if (!p.by_i) return;
    store<bf16, 8>(p.by_i + tile_i * PANEL_TILE + tile_at<PANEL>(row, chunk % 8), x);
}

static __global__ void __launch_bounds__(PACK_THREADS) outer_pack_dz(dz_pack p) {
    wait_for_previous();
    let_next_begin();
    __shared__ float space[16][DZ_C + 4];
    int blocks_j = (p.n_j + PANEL - 1) / PANEL;
    int block_j = (int)blockIdx.x % blocks_j, i0 = (int)blockIdx.x / blocks_j * DZ_ROWS;
    int chunk = threadIdx.x % 16, row0 = threadIdx.x / 16;
    float total[8] = {};
#pragma unroll
    for (int first = 0; first < DZ_ROWS * 4; first += DZ_AT_ONCE) {
        float x[DZ_AT_ONCE][8], norm[DZ_AT_ONCE]; /* all loads start before the first store */
#pragma unroll
        for (int k = 0; k < DZ_AT_ONCE; k++) {
            int i = i0 + (first + k) / 4, j = block_j * PANEL + row0 + (first + k) % 4 * 16;
            if (i >= p.n_i || j >= p.n_j) continue;
            int64_t pair = (int64_t)i * p.n_j + j;
            norm[k] = p.norm[pair];
            load<bf16, 8>(p.dz + pair * DZ_C + chunk * 8, x[k]);
        }
#pragma unroll
        for (int k = 0; k < DZ_AT_ONCE; k++) {
            int i = i0 + (first + k) / 4, row = row0 + (first + k) % 4 * 16;
            if (i < p.n_i && block_j * PANEL + row < p.n_j) {
                dz_store(p, i, block_j, row, chunk, 1.0f / (norm[k] + p.eps), x[k], total);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < 8; k++)
        space[row0][chunk * 8 + k] = total[k];
    __syncthreads();
    if (threadIdx.x >= DZ_C) return;
    float sum = 0;
    for (int k = 0; k < 16; k++)
        sum += space[k][threadIdx.x];
    p.sums[(int64_t)blockIdx.x * DZ_C + threadIdx.x] = sum;
}

/* -- gradients of a and b */

/* y[s, i, channel] (+)= mask * sum over splits, in order, of partial
 * [split][channel][rows][columns], where rows are residues and columns are sequences. */
struct unpack_job {
    const float *partial;
    const bf16 *mask;          /* [n_seq, residues] */
    int splits, rows, columns; /* of a split, padding included */
    int residues, n_seq;
    int64_t stride_s, stride_i;
    fm_out y;
};

/* One block takes one residue and 32 columns; the first `blocks` blocks work on the first job. */
static __global__ void __launch_bounds__(PACK_THREADS)
    outer_unpack_all(const __grid_constant__ unpack_job first,
                     const __grid_constant__ unpack_job second, int blocks) {
    wait_for_previous();
    __shared__ float tile[PANEL_C][PANEL_C + 1];
    bool is_first = (int)blockIdx.x < blocks;
    const unpack_job &job = is_first ? first : second;
    int block = is_first ? (int)blockIdx.x : (int)blockIdx.x - blocks;
    int parts = (job.n_seq + PANEL_C - 1) / PANEL_C;
    int residue = block / parts, s0 = block % parts * PANEL_C;
    int x = threadIdx.x % PANEL_C, y = threadIdx.x / PANEL_C;
    int64_t split = (int64_t)PANEL_C * job.rows * job.columns;
    constexpr int AT_ONCE = PANEL_C / 8;
    float sum[AT_ONCE] = {}, factor[AT_ONCE];
#pragma unroll
    for (int c = 0; c < AT_ONCE; c++) {
        int s = min(s0 + y + c * 8, job.n_seq - 1);
        factor[c] = get(job.mask[(int64_t)s * job.residues + residue]);
    }
    int64_t channels = (int64_t)8 * job.rows * job.columns;
    const float *from = job.partial + ((int64_t)y * job.rows + residue) * job.columns + s0 + x;
    for (int k = 0; k < job.splits; k += 2, from += 2 * split) {
        float part[2][AT_ONCE]; /* loads of two splits start together */
#pragma unroll
        for (int c = 0; c < 2 * AT_ONCE; c++) {
            int other = c / AT_ONCE;
            part[other][c % AT_ONCE] =
                k + other < job.splits ? from[other * split + c % AT_ONCE * channels] : 0;
        }
#pragma unroll
        for (int c = 0; c < 2 * AT_ONCE; c++)
            sum[c % AT_ONCE] += part[c / AT_ONCE][c % AT_ONCE];
    }
#pragma unroll
    for (int c = 0; c < AT_ONCE; c++)
        tile[y + c * 8][x] = sum[c];
    __syncthreads();
#pragma unroll
    for (int c = 0; c < AT_ONCE; c++) {
        int s = y + c * 8;
        if (s0 + s >= job.n_seq) break;
        put((bf16 *)job.y.data + (s0 + s) * job.stride_s + residue * job.stride_i + x, job.y.beta,
            tile[x][s] * factor[c]);
    }
}

} // namespace fm_cuda

#endif
