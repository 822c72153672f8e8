/* cluster_linear.cu: a linear layer of 256 channels to 1,024 outputs in bf16, y = x W^T + bias: q k
 * v g of the attentions of an MSA.
 *
 * A block keeps the weights of 256 outputs in shared memory, 128 KB, and walks tiles of 64 rows.
 * Two blocks with neighbouring outputs are a cluster and walk the same tiles. Each fetches half of
 * a tile's channels, and the copy engine writes them into the shared memory of both. So the rows
 * leave the L2 cache twice, not four times.
 *
 * Two warp groups of a block take tiles in turn. A group reads its tile into registers as the left
 * operand, which frees the tile's place for the group's next one. It waits for its turn,
 * multiplies, and passes the turn on as soon as its products are queued. While it stores its 64 x
 * 256 outputs, the other group multiplies. One thread of a third group fetches; the others only
 * give their registers to the two groups. Outputs pass through shared memory, because stores of 16
 * bytes from registers are much slower.
 *
 * Order of events. All barriers are in shared memory, and each counts warps or bytes:
 *
 *     weights    64 channels of W are there; never used again
 *     full       of a group's tile: the parts of all blocks of the cluster have arrived
 *     empty      of a group's tile: the group's four warps have read theirs, in all blocks. So this
 *                block may write its part of the group's next tile everywhere. */
#include "trainer/backend/cuda/hopper/core/cluster.cuh"
#include "trainer/backend/cuda/hopper/core/wgmma.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

constexpr int C = 256, N = 1024, OWN = 256;                /* OWN: outputs of a block */
constexpr int CLUSTER = 2, PARTS = N / OWN / CLUSTER;      /* PARTS: clusters for all outputs */
constexpr int PANELS = C / 64, FETCHED = PANELS / CLUSTER; /* 64 channels; those of each block */
constexpr int GROUPS = 2, THREADS = (GROUPS + 1) * GROUP_THREADS;
constexpr int MULTIPLY_REGISTERS = 240, FETCH_REGISTERS = 24;

struct cluster_linear_call {
    box_map w, x, y; /* boxes of 64 columns by OWN, GROUP_ROWS and 16 rows */
    const bf16 *bias;
    int tiles;
};

struct alignas(TILE_ALIGN) cluster_linear_space {
    bf16 w[PANELS][OWN * 64], x[GROUPS][PANELS][GROUP_ROWS * 64];
    bf16 stage[GROUPS * 4][2][16 * 64]; /* two for each warp, of outputs on their way */
    float bias[OWN];
    uint64_t weights[PANELS], full[GROUPS], empty[GROUPS];
};
static_assert(sizeof(cluster_linear_space) <= 227 * 1024);

/* The block's place: its rank in the cluster, its first output, and the cluster's tiles. */
struct cluster_walk {
    int rank, output, first, stride, count;
};
__device__ inline cluster_walk walk_of_cluster(int tiles) {
    int rank = (int)blockIdx.x % CLUSTER, part = (int)blockIdx.x / CLUSTER % PARTS;
    int first = (int)blockIdx.x / (CLUSTER * PARTS), stride = (int)gridDim.x / (CLUSTER * PARTS);
    int count = (tiles - first + stride - 1) / stride;
    return {rank, (part * CLUSTER + rank) * OWN, first, stride, count};
}

/* One thread: prepares the barriers and asks for the block's weights. */
__device__ inline void cluster_linear_begin(const cluster_linear_call &p, cluster_linear_space *s,
                                            int output) {
    for (int i = 0; i < GROUPS; i++) {
        barrier_init(shared_address(&s->full[i]), 1);
        barrier_init(shared_address(&s->empty[i]), 4 * CLUSTER);
    }
    for (int k = 0; k < PANELS; k++)
        barrier_init(shared_address(&s->weights[k]), 1);
    barriers_publish();
    for (int k = 0; k < PANELS; k++) {
        uint32_t weights = shared_address(&s->weights[k]);
        barrier_expect(weights, sizeof s->w[k]);
        box_load(shared_address(s->w[k]), p.w, {output, 0, 0, 0, k * 64}, weights);
    }
}

/* One thread: fetches the block's part of all tiles, for all blocks. */
__device__ inline void fetch_for_cluster(const cluster_linear_call &p, cluster_linear_space *s,
                                         const cluster_walk &walk) {
    for (int i = 0; i < walk.count; i++) {
        int group = i % GROUPS;
        uint32_t full = shared_address(&s->full[group]);
        barrier_wait(shared_address(&s->empty[group]), (uint32_t)(i / GROUPS & 1 ^ 1));
        barrier_expect(full, sizeof s->x[group]);
        int panel = walk.rank * FETCHED;
        box_place at = {(walk.first + i * walk.stride) * GROUP_ROWS, 0, 0, 0, panel * 64};
        for (int k = 0; k < FETCHED; k++, at.column += 64)
            box_load_to_all(shared_address(s->x[group][panel + k]), p.x, at, full,
                            (1 << CLUSTER) - 1);
    }
    /* The block ends when no other one arrives at its barriers any more. */
    for (int i = walk.count; i < walk.count + GROUPS; i++)
        barrier_wait(shared_address(&s->empty[i % GROUPS]), (uint32_t)(i / GROUPS & 1 ^ 1));
}

/* Reads the warp's 16 rows of the group's tile as a left operand and frees the tile. */
__device__ inline void take_rows(uint32_t (&a)[C / 16][4], cluster_linear_space *s, int group) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < PANELS; k++)
        tile_rows<64>(a + k * 4, s->x[group][k], threadIdx.x / 32 % 4 * 16);
    tiles_publish(); /* the rows are in registers before the copy engine overwrites them */
    __syncwarp();
    uint32_t empty = shared_address(&s->empty[group]);
    if (lane < CLUSTER) cluster_arrive(address_in_block(empty, lane));
    __syncwarp();
}

/* The products begin with the bias, so that nothing has to be added to their sums. */
__device__ inline void begin_with_bias(float (&d)[OWN / 8][4], const float *bias) {
#pragma unroll
    for (int n = 0; n < OWN / 8; n++) {
        float2 b = *(const float2 *)(bias + n * 8 + threadIdx.x % 4 * 2);
        d[n][0] = d[n][2] = b.x, d[n][1] = d[n][3] = b.y;
    }
    products_pin(d); /* the compiler would leave half of that for the group's turn */
}

/* Stores the warp's 16 rows from `row` on, 64 outputs at a time from `first` on. */
__device__ inline void store_own(const cluster_linear_call &p, cluster_linear_space *s,
                                 const float (&d)[OWN / 8][4], int row, int first) {
    bool is_first = threadIdx.x % 32 == 0;
#pragma unroll
    for (int part = 0; part < OWN / 64; part++) {
        bf16 *tile = s->stage[threadIdx.x / 32][part % 2];
        if (is_first) stores_wait_but_one();
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint32_t out[4];
            accumulator_rows(out, d, part * 4 + k);
            tile_put<64>(tile, 0, 2 * k, out);
        }
        tiles_publish();
        __syncwarp();
        if (is_first) box_store(p.y, {row, 0, 0, 0, first + part * 64}, shared_address(tile));
    }
    __syncwarp(); /* the next products need the whole warp */
}

/* The groups' turns to multiply: waits for one's own, and gives the other group its own. */
__device__ inline void turn_wait(int group) {
    asm volatile("bar.sync %0, 256;" ::"r"(group + 1) : "memory");
}
__device__ inline void turn_pass(int group) {
    asm volatile("bar.arrive %0, 256;" ::"r"(group + 1) : "memory");
}

/* A group: the outputs of its tiles. */
__device__ inline void multiply_tiles(const cluster_linear_call &p, cluster_linear_space *s,
                                      const cluster_walk &walk, int group) {
    for (int i = group; i < walk.count; i += GROUPS) {
        uint32_t a[C / 16][4];
        float d[OWN / 8][4];
        barrier_wait(shared_address(&s->full[group]), (uint32_t)(i / GROUPS & 1));
        take_rows(a, s, group);
        begin_with_bias(d, s->bias);
        if (i > 0) turn_wait(group);
#pragma unroll
        for (int k = 0; k < C / 16; k++) {
            uint64_t w = tile_operand<64, K_MAJOR>(s->w[k / 4]);
            if (k % 4 == 0) {
                barrier_wait(shared_address(&s->weights[k / 4]), 0);
                products_begin();
            }
            wgmma<K_MAJOR>(d, a[k], operand_after(w, k % 4 * 16), true);
        }
        products_commit();
        if (i + 1 < walk.count) turn_pass(group ^ 1);
        products_wait<0>(d);
        int row = (walk.first + i * walk.stride) * GROUP_ROWS + threadIdx.x / 32 % 4 * 16;
        store_own(p, s, d, row, walk.output);
    }
    if (threadIdx.x % 32 == 0) stores_wait();
}

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    wgmma_cluster_linear(const __grid_constant__ cluster_linear_call p) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    cluster_linear_space *space = (cluster_linear_space *)memory;
    const cluster_walk walk = walk_of_cluster(p.tiles);
    int group = threadIdx.x / GROUP_THREADS;
    if (threadIdx.x == 0) cluster_linear_begin(p, space, walk.output);
    if (threadIdx.x < OWN) space->bias[threadIdx.x] = (float)p.bias[walk.output + (int)threadIdx.x];
    __syncthreads();
    cluster_begin();
    cluster_begun();
    wait_for_previous();
    let_next_begin();
    if (group < GROUPS) {
        registers_take<MULTIPLY_REGISTERS>();
        multiply_tiles(p, space, walk, group);
    } else {
        registers_give<FETCH_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS == 0) fetch_for_cluster(p, space, walk);
    }
}

/* -- calls */

static box_map boxes_of(const void *base, int64_t columns, int64_t rows, int rows_of_box) {
    const int64_t extent[5] = {columns, rows, 1, 1, 1}, stride[4] = {columns, 0, 0, 0};
    return make_boxes(base, extent, stride, 64, rows_of_box);
}

/* How many clusters the device holds at once. They may leave multiprocessors over, because a
 * cluster does not cross the device's partitions. */
static int most_clusters(void) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)n_multiprocessor() / CLUSTER * CLUSTER);
    config.blockDim = dim3(THREADS), config.dynamicSmemBytes = sizeof(cluster_linear_space);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = CLUSTER;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute, config.numAttrs = 1;
    int clusters = 0;
    FM_CUDA(cudaOccupancyMaxActiveClusters(&clusters, wgmma_cluster_linear, &config));
    return clusters;
}

bool cluster_linear_takes(const fm_gemm *g) {
    enum { FEWEST_ROWS = 4096 };
    return g->k == C && g->n == N && g->m >= FEWEST_ROWS && g->m < 1 << 28 &&
           g->epilogue == FM_EPILOGUE_BIAS && !g->trans_a && g->trans_b && g->batch == 1 &&
           g->alpha == 1 && g->beta == 0 && !g->addend && !g->c_is_acc;
}

void cluster_linear(fm_stream *stream, const fm_gemm *g) {
    constexpr int BYTES = (int)sizeof(cluster_linear_space);
    FM_CUDA(cudaFuncSetAttribute(wgmma_cluster_linear, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 BYTES));
    static const int most = most_clusters();
    cluster_linear_call p = {};
    p.w = boxes_of(g->b, C, N, OWN), p.x = boxes_of(g->a, C, g->m, GROUP_ROWS);
    p.y = boxes_of(g->c, N, g->m, 16);
    p.bias = (const bf16 *)g->bias, p.tiles = (int)divide_up(g->m, GROUP_ROWS);
    unsigned blocks = (unsigned)(min_size(most / PARTS, p.tiles) * PARTS * CLUSTER);
    launch_after(stream, wgmma_cluster_linear, blocks, THREADS, BYTES, true, p);
    FM_LAUNCHED();
}

} // namespace fm_cuda
