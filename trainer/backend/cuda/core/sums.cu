/* sums.cu: the last step of sums whose parts many blocks have made: weight and bias gradients, and
 * those of LayerNorms.
 *
 * Such a step takes a few microseconds, most of which is the launch and the wait for the sums of
 * the kernel before. A node of backward has up to four of them. So between put_off_sums and
 * finish_sums they are collected in a table. One launch ends all of them when the table or the
 * memory for the partial sums is full. That memory is small, so that most of it is still in the L2
 * cache then. Only sums whose targets are gradients of parameters are put off, since nothing reads
 * those during backward.
 *
 * The state is one per thread, because a pass runs on one thread. */
#include "trainer/backend/cuda/core/early.cuh"
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/sums.cuh"

namespace fm_cuda {

/* Threads of a block, the loads that a thread has in flight, and slices at most. */
enum { SUM_END_THREADS = 256, TILE_LOADS = 9, LINE_LOADS = 5, LINE_SLICES = 32, LINE_WIDTH = 32 };
enum { LINE_TURNS = LINE_SLICES / (SUM_END_THREADS / LINE_WIDTH) };
enum { MOST_SUMS = 12, SUMS_ROOM = 24 << 20 };

struct sum_table {
    int n, first_block[MOST_SUMS];
    partial_sums sums[MOST_SUMS];
};

__device__ inline void put_sum(const sum_target &t, int64_t at, float value) {
    if (!t.data || at < t.skip) return;
    if (t.is_half) {
        put((bf16 *)t.data + at - t.skip, t.beta, value);
    } else {
        put((float *)t.data + at - t.skip, t.beta, value);
    }
}

/* -- values in order */

/* A block makes LINE_WIDTH values. Reads along the values are coalesced. */
__device__ inline void end_lines(const partial_sums &s, int block,
                                 double (&slice)[LINE_SLICES][LINE_WIDTH]) {
    constexpr int ROWS = SUM_END_THREADS / LINE_WIDTH;
    int column = threadIdx.x % LINE_WIDTH, first = threadIdx.x / LINE_WIDTH;
    int64_t n = s.target[0].n + s.target[1].n, i = block * (int64_t)LINE_WIDTH + column;
    double total[LINE_TURNS] = {};
    for (int p = first; i < n && p < s.count; p += LINE_LOADS * s.slices) {
        float v[LINE_TURNS][LINE_LOADS];
#pragma unroll
        for (int k = 0; k < LINE_TURNS; k++)
#pragma unroll
            for (int b = 0; b < LINE_LOADS; b++) {
                int at = p + k * ROWS + b * s.slices;
                bool is_there = first + k * ROWS < s.slices && at < s.count;
                v[k][b] = is_there ? s.partial[at * s.stride + i] : 0;
            }
#pragma unroll
        for (int k = 0; k < LINE_TURNS; k++)
#pragma unroll
            for (int b = 0; b < LINE_LOADS; b++)
                total[k] += (double)v[k][b];
    }
#pragma unroll
    for (int k = 0; k < LINE_TURNS; k++)
        slice[first + k * ROWS][column] = total[k];
    __syncthreads();
    if (first > 0 || i >= n) return;
    double sum = total[0];
    for (int k = 1; k < s.slices; k++)
        sum += slice[k][column];
    bool is_second = i >= s.target[0].n;
    put_sum(s.target[is_second], is_second ? i - s.target[0].n : i, (float)sum);
}

/* -- values of tiles */

/* Stores four values from number `at` of a vector on. */
__device__ inline void put_tile(const partial_sums &s, int64_t at, const float (&value)[4]) {
    const sum_target &c = s.target[0];
    if (at >= c.n) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            put_sum(s.target[1], at - c.n + i, value[i]);
        return;
    }
    uint32_t place = (uint32_t)at / 4, lane = place % 32, eights = s.tiles.columns / 8;
    uint32_t eight = place / 32 % eights, warp = place / 32 / eights, warps = s.tiles.rows / 16;
    uint32_t tile = warp / warps;
    int64_t row = tile % s.tiles.row_tiles * s.tiles.rows + warp % warps * 16 + lane / 4;
    int64_t column = tile / s.tiles.row_tiles * s.tiles.columns + eight * 8 + lane % 4 * 2;
    if (s.tiles.is_exchanged) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            put((float *)c.data + (column + i % 2) * s.tiles.ld + row + i / 2 * 8, c.beta,
                value[i]);
        return;
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float2 *to = (float2 *)((float *)c.data + (row + half * 8) * s.tiles.ld + column);
        float2 old = c.beta == FM_ADD ? *to : make_float2(0, 0);
        *to = make_float2(value[2 * half] + old.x, value[2 * half + 1] + old.y);
    }
}

/* How many vectors have the values from number `at` on. */
__device__ inline int count_of(const partial_sums &s, int64_t at) {
    int64_t tile = at / (s.tiles.rows * s.tiles.columns);
    bool is_summed =
        tile < s.tiles.row_tiles && (tile + 1) * s.tiles.rows > (int64_t)s.target[1].skip;
    return s.count + (at >= s.target[0].n || is_summed ? s.tiles.more : 0);
}

/* A thread adds four values of one slice. */
__device__ inline void end_tiles(const partial_sums &s, int block,
                                 float4 (&parts)[SUM_END_THREADS]) {
    int width = SUM_END_THREADS / s.slices, slice = threadIdx.x / width;
    int64_t at = (block * (int64_t)width + threadIdx.x % width) * 4;
    bool is_there = at < s.target[0].n + s.target[1].n;
    int count = count_of(s, at);
    float4 total = make_float4(0, 0, 0, 0);
    for (int first = slice; is_there && first < count; first += s.slices * TILE_LOADS) {
        float4 x[TILE_LOADS];
#pragma unroll
        for (int i = 0; i < TILE_LOADS; i++) {
            int share = first + i * s.slices;
            x[i] = share < count ? *(const float4 *)(s.partial + share * s.stride + at)
                                 : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < TILE_LOADS; i++)
            total.x += x[i].x, total.y += x[i].y, total.z += x[i].z, total.w += x[i].w;
    }
    parts[threadIdx.x] = total;
    __syncthreads();
    if (slice > 0 || !is_there) return;
    for (int i = 1; i < s.slices; i++) {
        float4 x = parts[i * width + threadIdx.x];
        total.x += x.x, total.y += x.y, total.z += x.z, total.w += x.w;
    }
    const float value[4] = {total.x, total.y, total.z, total.w};
    put_tile(s, at, value);
}

__global__ void __launch_bounds__(SUM_END_THREADS)
    finish_sums_kernel(const __grid_constant__ sum_table t) {
    __shared__ union {
        float4 parts[SUM_END_THREADS];
        double slice[LINE_SLICES][LINE_WIDTH];
    } space;
    int at = 0;
    while (at + 1 < t.n && (int)blockIdx.x >= t.first_block[at + 1])
        at++;
    const partial_sums &s = t.sums[at];
    int block = (int)blockIdx.x - t.first_block[at];
    wait_for_previous();
    let_next_begin();
    if (s.tiles.rows > 0) {
        end_tiles(s, block, space.parts);
    } else {
        end_lines(s, block, space.slice);
    }
}

/* -- calls */

/* What put_off_sums has given, and the sums that wait. */
struct late_sums {
    fm_stream *stream;
    char *memory; /* NULL: nothing is put off */
    size_t used;
    const char *first, *end; /* the gradients of the parameters */
    sum_table table;
};
static thread_local late_sums late;

static int blocks_of(const partial_sums &s) {
    int64_t n = s.target[0].n + s.target[1].n;
    int64_t width = s.tiles.rows > 0 ? 4 * (SUM_END_THREADS / s.slices) : (int64_t)LINE_WIDTH;
    return (int)divide_up(n, width);
}

static void launch(fm_stream *stream, sum_table *t) {
    int blocks = 0;
    for (int i = 0; i < t->n; i++)
        t->first_block[i] = blocks, blocks += blocks_of(t->sums[i]);
    if (blocks > 0) {
        launch_after(stream, finish_sums_kernel, (unsigned)blocks, SUM_END_THREADS, 0, true, *t);
        FM_LAUNCHED();
    }
    t->n = 0;
}

static void end_late(void) {
    if (late.table.n > 0) launch(late.stream, &late.table);
    late.used = 0;
}

static size_t bytes_of(const partial_sums &s, int i) {
    const sum_target &t = s.target[i];
    bool is_matrix = i == 0 && s.tiles.rows > 0;
    int64_t columns = is_matrix ? t.n / (s.tiles.row_tiles * s.tiles.rows) : 1;
    if (is_matrix && s.tiles.is_exchanged) columns = t.n / columns;
    int64_t reach = is_matrix ? (t.n / columns - 1) * s.tiles.ld + columns : t.n - t.skip;
    return (size_t)reach * (t.is_half ? sizeof(bf16) : sizeof(float));
}

static bool may_wait(const partial_sums &s) {
    for (int i = 0; i < 2; i++) {
        const char *data = (const char *)s.target[i].data;
        if (data && (data < late.first || data + bytes_of(s, i) > late.end)) return false;
    }
    return true;
}

void end_sums_of(fm_stream *stream, const void *data, size_t bytes) {
    const char *first = (const char *)data, *end = first + bytes;
    if (!late.memory || !data || late.stream != stream) return;
    for (int i = 0; i < late.table.n; i++)
        for (int k = 0; k < 2; k++) {
            const partial_sums &s = late.table.sums[i];
            const char *other = (const char *)s.target[k].data;
            if (!other || other >= end || other + bytes_of(s, k) <= first) continue;
            end_late();
            return;
        }
}

float *sums_place(fm_stream *stream, const partial_sums &s, size_t bytes, void *workspace) {
    for (int i = 0; i < 2; i++)
        end_sums_of(stream, s.target[i].data, bytes_of(s, i));
    bytes = (size_t)round_up((int64_t)bytes, 256);
    bool is_late = late.memory && late.stream == stream && bytes <= SUMS_ROOM && may_wait(s);
    if (!is_late) return (float *)workspace;
    if (late.used + bytes > SUMS_ROOM || late.table.n == MOST_SUMS) end_late();
    float *place = (float *)(late.memory + late.used);
    late.used += bytes;
    return place;
}

void end_sums(fm_stream *stream, const partial_sums &s) {
    const char *partial = (const char *)s.partial;
    bool is_late =
        late.memory && partial >= late.memory && partial < late.memory + SUMS_ROOM && may_wait(s);
    if (is_late && late.table.n < MOST_SUMS) {
        late.table.sums[late.table.n++] = s;
        return;
    }
    sum_table t = {};
    t.n = 1, t.sums[0] = s;
    launch(stream, &t);
}

template <typename T>
partial_sums sums_of(const float *partial, int64_t count, int64_t stride, int64_t n, T *dst,
                     fm_beta beta) {
    partial_sums s = {};
    s.partial = partial, s.stride = stride, s.count = (int)count;
    s.slices = (int)min_size(LINE_SLICES, max_size(1, divide_up(count, 8)));
    s.target[0] = {dst, n, 0, beta, sizeof(T) == sizeof(bf16)};
    return s;
}
template partial_sums sums_of<float>(const float *, int64_t, int64_t, int64_t, float *, fm_beta);
template partial_sums sums_of<bf16>(const float *, int64_t, int64_t, int64_t, bf16 *, fm_beta);

size_t sums_room(void) {
    return SUMS_ROOM;
}

void put_off_sums(fm_stream *stream, void *memory, const void *first, const void *end) {
    assert(!late.memory && memory);
    late.stream = stream, late.memory = (char *)memory, late.used = 0;
    late.first = (const char *)first, late.end = (const char *)end;
}

void finish_sums(fm_stream *stream) {
    assert(!late.memory || late.stream == stream);
    (void)stream;
    if (late.memory) end_late();
    late.memory = NULL;
}

} // namespace fm_cuda
