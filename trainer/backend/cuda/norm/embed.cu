/* embed.cu: class lookups, relative positions, outer sums, MSA features.
 *
 * Gradients of tables: a warp takes 32 channels of a chunk of rows, one channel per lane, and adds
 * the rows in order to sums [n_class, 32] in shared memory. A second launch adds the sums of the
 * chunks in order. */
#include "trainer/backend/cuda/core/families.cuh"

#include <type_traits>

namespace fm_cuda {

/* The type of an index of packs: 32 bits, whose divisions take a quarter of the time, or for single
 * elements, of which a large array has more, 64. */
template <int V> using pack_index = typename std::conditional<V == 1, int64_t, uint32_t>::type;

/* Calls f(row, channel) for V channels at a time of all rows. */
template <int V, typename F>
static void each_pack(fm_stream *stream, int64_t rows, int64_t c, F f) {
    typedef pack_index<V> index;
    index packs = (index)(c / V);
    assert(V == 1 || rows * (c / V) < (int64_t)1 << 32);
    each(stream, rows * (c / V), [=] __device__(int64_t i) {
        index row = (index)i / packs;
        f(row, (int64_t)(((index)i - row * packs) * V));
    });
}

/* y (+)= V channels of row `id` of the table. */
template <typename T, int V>
__device__ inline void put_class(const fm_lookup &t, int64_t id, int64_t c, T *y, fm_beta beta) {
    float x[V];
    const T *w = (const T *)t.w + id * t.class_stride + c * t.channel_stride;
#pragma unroll
    for (int k = 0; k < V; k++)
        x[k] = get(w[k * t.channel_stride]);
    put_pack<T, V>(y, beta, x);
}

template <typename T, int V>
static void lookup_as(fm_stream *stream, const fm_lookup *args, int64_t rows, const uint8_t *ids,
                      fm_out y) {
    fm_lookup t = *args;
    each_pack<V>(stream, rows, t.c, [=] __device__(int64_t r, int64_t c) {
        T *out = (T *)y.data + r * t.c + c;
        float zeros[V] = {};
        if (ids[r] < t.n_class) {
            put_class<T, V>(t, ids[r], c, out, y.beta);
        } else if (y.beta == FM_WRITE) {
            store<T, V>(out, zeros);
        }
    });
}

template <typename T>
void lookup(fm_stream *stream, const fm_lookup *t, int64_t rows, const uint8_t *ids, fm_out y) {
    bool is_even = is_whole<T>(t->c) && is_aligned(y.data);
    auto run = is_even ? lookup_as<T, vector_of<T>()> : lookup_as<T, 1>;
    run(stream, t, rows, ids, y);
}

/* A4:1-2: the class of an offset between residues. */
__device__ inline int64_t relpos_class(const fm_lookup &t, int32_t index_i, int32_t index_j) {
    int64_t reach = (t.n_class - 1) / 2, offset = (int64_t)index_i - index_j;
    return min_size(max_size(offset, -reach), reach) + reach;
}

template <typename T, int V>
static void relpos_as(fm_stream *stream, const fm_lookup *args, int64_t n_i, int64_t n_j,
                      const int32_t *index_i, const int32_t *index_j, fm_out z) {
    fm_lookup t = *args;
    each_pack<V>(stream, n_i * n_j, t.c, [=] __device__(pack_index<V> pair, int64_t c) {
        pack_index<V> i = pair / (pack_index<V>)n_j, j = pair - i * (pack_index<V>)n_j;
        put_class<T, V>(t, relpos_class(t, index_i[i], index_j[j]), c,
                        (T *)z.data + (int64_t)pair * t.c + c, z.beta);
    });
}

template <typename T>
void relpos(fm_stream *stream, const fm_lookup *t, int64_t n_i, int64_t n_j, const int32_t *index_i,
            const int32_t *index_j, fm_out z) {
    assert(t->n_class % 2 == 1);
    bool is_even = is_whole<T>(t->c) && is_aligned(z.data);
    auto run = is_even ? relpos_as<T, vector_of<T>()> : relpos_as<T, 1>;
    run(stream, t, n_i, n_j, index_i, index_j, z);
}

/* The classes of rows: ids, or, when ids is NULL, made from pairs of residue indices. */
struct row_classes {
    const uint8_t *ids;
    const int32_t *index_i, *index_j;
    int64_t n_j;
};

enum { TABLE_CHANNELS = 32 };

/* How many chunks the rows have; the workspace and the launch both follow from it. */
static int64_t table_chunks(int64_t rows) {
    return max_size(1, min_size(256, rows / 128));
}

static size_t table_workspace(const fm_lookup *t, int64_t rows) {
    return (size_t)(table_chunks(rows) * t->n_class * t->c) * sizeof(float);
}

/* blockIdx.x is the chunk, blockIdx.y the 32 channels; partial [chunks][n_class][c]. */
template <typename T>
__global__ void __launch_bounds__(TABLE_CHANNELS)
    table_kernel(fm_lookup t, row_classes of, int64_t rows, int64_t per_chunk, const T *dy,
                 float *partial) {
    extern __shared__ float sums[]; /* [n_class][32] */
    int64_t c = blockIdx.y * (int64_t)TABLE_CHANNELS + threadIdx.x;
    if (c >= t.c) return;
    for (int64_t k = 0; k < t.n_class; k++)
        sums[k * TABLE_CHANNELS + threadIdx.x] = 0;
    int64_t first = blockIdx.x * per_chunk, end = min_size(rows, first + per_chunk);
    for (int64_t r = first; r < end; r++) {
        int64_t id =
            of.ids ? of.ids[r] : relpos_class(t, of.index_i[r / of.n_j], of.index_j[r % of.n_j]);
        if (id < t.n_class) sums[id * TABLE_CHANNELS + threadIdx.x] += get(dy[r * t.c + c]);
    }
    for (int64_t k = 0; k < t.n_class; k++)
        partial[(blockIdx.x * t.n_class + k) * t.c + c] = sums[k * TABLE_CHANNELS + threadIdx.x];
}

template <typename T>
static void table_grad(fm_stream *stream, const fm_lookup *args, row_classes of, int64_t rows,
                       const void *dy, fm_out dw, void *workspace) {
    fm_lookup t = *args;
    assert(t.n_class <= 256);
    float *partial = (float *)workspace;
    int64_t chunks = table_chunks(rows), per_chunk = divide_up(rows, chunks);
    dim3 grid((unsigned)chunks, (unsigned)divide_up(t.c, TABLE_CHANNELS));
    size_t shared = (size_t)t.n_class * TABLE_CHANNELS * sizeof(float);
    table_kernel<<<grid, TABLE_CHANNELS, shared, queue(stream)>>>(t, of, rows, per_chunk,
                                                                  (const T *)dy, partial);
    FM_LAUNCHED();
    each(stream, t.n_class * t.c, [=] __device__(int64_t i) {
        int64_t row = i / t.c, c = i % t.c, n = t.n_class * t.c;
        double total = 0;
#pragma unroll 8
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            total += (double)partial[chunk * n + i];
        put((float *)dw.data + row * t.class_stride + c * t.channel_stride, dw.beta, (float)total);
    });
}

size_t lookup_grad_workspace(const fm_lookup *t, int64_t rows) {
    return table_workspace(t, rows);
}

size_t relpos_grad_workspace(const fm_lookup *t, int64_t n_i, int64_t n_j) {
    return table_workspace(t, n_i * n_j);
}

template <typename T>
void lookup_grad(fm_stream *stream, const fm_lookup *t, int64_t rows, const uint8_t *ids,
                 const void *dy, fm_out dw, void *workspace) {
    table_grad<T>(stream, t, {ids, NULL, NULL, 1}, rows, dy, dw, workspace);
}

template <typename T>
void relpos_grad(fm_stream *stream, const fm_lookup *t, int64_t n_i, int64_t n_j,
                 const int32_t *index_i, const int32_t *index_j, const void *dz, fm_out dw,
                 void *workspace) {
    table_grad<T>(stream, t, {NULL, index_i, index_j, n_j}, n_i * n_j, dz, dw, workspace);
}

template <typename T, int V>
static void outer_sum_as(fm_stream *stream, int64_t n_i, int64_t n_j, int64_t c, int64_t lda,
                         int64_t ldb, const T *a, const T *b, fm_out z) {
    each_pack<V>(stream, n_i * n_j, c, [=] __device__(pack_index<V> pair, int64_t k) {
        pack_index<V> i = pair / (pack_index<V>)n_j, j = pair - i * (pack_index<V>)n_j;
        float x[V], y[V];
        load<T, V>(a + i * lda + k, x);
        load<T, V>(b + j * ldb + k, y);
#pragma unroll
        for (int e = 0; e < V; e++)
            x[e] += y[e];
        put_pack<T, V>((T *)z.data + (int64_t)pair * c + k, z.beta, x);
    });
}

template <typename T>
void outer_sum(fm_stream *stream, int64_t n_i, int64_t n_j, int64_t c, int64_t lda, int64_t ldb,
               const void *a, const void *b, fm_out z) {
    bool is_even = is_whole<T>(c) && is_whole<T>(lda) && is_whole<T>(ldb) && is_aligned(a) &&
                   is_aligned(b) && is_aligned(z.data);
    auto run = is_even ? outer_sum_as<T, vector_of<T>()> : outer_sum_as<T, 1>;
    run(stream, n_i, n_j, c, lda, ldb, (const T *)a, (const T *)b, z);
}

/* Sums of dz [n_i, n_j, c] over j (da) and over i (db). A block makes one row of da or of db: its
 * threads take packs of V channels and slices of the rows that are summed, four in flight, and the
 * slices are added in order. */
enum { OUTER_SUM_THREADS = 256, OUTER_SUM_BATCH = 4 };

template <typename T, int V>
__global__ void __launch_bounds__(OUTER_SUM_THREADS)
    outer_sum_grad_kernel(int64_t n_i, int64_t n_j, int64_t c, int64_t lda, int64_t ldb,
                          const T *dz, fm_out da, fm_out db) {
    __shared__ double parts[OUTER_SUM_THREADS * V];
    int64_t blocks = da.data ? n_i : 0;
    bool is_a = blockIdx.x < blocks;
    int64_t row = is_a ? blockIdx.x : blockIdx.x - blocks, count = is_a ? n_j : n_i;
    const T *from = dz + (is_a ? row * n_j : row) * c;
    int64_t step = is_a ? c : n_j * c;
    fm_out out = is_a ? da : db;
    T *to = (T *)out.data + row * (is_a ? lda : ldb);
    int packs = (int)min_size(c / V, OUTER_SUM_THREADS), slices = OUTER_SUM_THREADS / packs;
    int slice = threadIdx.x / packs, at = threadIdx.x % packs * V;
    for (int64_t first = 0; first < c; first += packs * V) {
        double total[V] = {};
        bool is_there = slice < slices && first + at < c;
        for (int64_t r = slice; is_there && r < count; r += OUTER_SUM_BATCH * slices) {
            pack<T, V> x[OUTER_SUM_BATCH] = {};
#pragma unroll
            for (int k = 0; k < OUTER_SUM_BATCH; k++)
                if (r + k * slices < count) {
                    x[k] = *(const pack<T, V> *)(from + (r + k * slices) * step + first + at);
                }
#pragma unroll
            for (int k = 0; k < OUTER_SUM_BATCH; k++)
#pragma unroll
                for (int v = 0; v < V; v++)
                    total[v] += (double)get(x[k].at[v]);
        }
#pragma unroll
        for (int v = 0; v < V; v++)
            parts[threadIdx.x * V + v] = total[v];
        __syncthreads();
        for (int i = threadIdx.x; i < packs * V && first + i < c; i += OUTER_SUM_THREADS) {
            double sum = 0;
            for (int k = 0; k < slices; k++)
                sum += parts[k * packs * V + i];
            put(to + first + i, out.beta, (float)sum);
        }
        __syncthreads();
    }
}

template <typename T>
void outer_sum_grad(fm_stream *stream, int64_t n_i, int64_t n_j, int64_t c, int64_t lda,
                    int64_t ldb, const void *dz, fm_out da, fm_out db) {
    int64_t blocks = (da.data ? n_i : 0) + (db.data ? n_j : 0);
    if (blocks == 0 || c == 0) return;
    auto kernel = is_whole<T>(c) && is_aligned(dz) ? outer_sum_grad_kernel<T, vector_of<T>()>
                                                   : outer_sum_grad_kernel<T, 1>;
    kernel<<<(unsigned)blocks, OUTER_SUM_THREADS, 0, queue(stream)>>>(n_i, n_j, c, lda, ldb,
                                                                      (const T *)dz, da, db);
    FM_LAUNCHED();
}

__device__ inline float squash_deletion(float count) {
    return atanf(count / 3.0f) * 0.63661977236758134308f;
}

__device__ inline float profile_count(const fm_msa_features &f, int64_t index) {
    if (f.profile_element == FM_ELEMENT_U8) return (float)((const uint8_t *)f.profile)[index];
    if (f.profile_element == FM_ELEMENT_U16) return (float)((const uint16_t *)f.profile)[index];
    return (float)((const uint32_t *)f.profile)[index];
}

/* Column `column` of the features of position `at`. */
__device__ inline float msa_feature(const fm_msa_features &f, int64_t at, int64_t column) {
    if (column < FM_MSA_CLASSES) return column == f.msa[at] ? 1 : 0;
    if (column == 23) return f.deletion[at] > 0 ? 1 : 0;
    if (column == 24) return squash_deletion((float)f.deletion[at]);
    float size = (float)(f.cluster_size[at / f.n_res] - 1);
    float n = (1e-6f + 1.0f) + size; /* the reference's order of additions */
    if (column == 48) return squash_deletion((float)f.deletion_sum[at] / n);
    return profile_count(f, at * FM_MSA_CLASSES + column - 25) / n;
}

template <typename T> void msa_features(fm_stream *stream, const fm_msa_features *args) {
    fm_msa_features f = *args;
    int64_t width = f.profile ? FM_MSA_FEATURES : FM_EXTRA_MSA_FEATURES;
    each(stream, f.n_seq * f.n_res * width, [=] __device__(int64_t i) {
        ((T *)f.y)[i] = to<T>(msa_feature(f, i / width, i % width));
    });
}

#define INSTANTIATE(T)                                                                             \
    template void lookup<T>(fm_stream *, const fm_lookup *, int64_t, const uint8_t *, fm_out);     \
    template void lookup_grad<T>(fm_stream *, const fm_lookup *, int64_t, const uint8_t *,         \
                                 const void *, fm_out, void *);                                    \
    template void relpos<T>(fm_stream *, const fm_lookup *, int64_t, int64_t, const int32_t *,     \
                            const int32_t *, fm_out);                                              \
    template void relpos_grad<T>(fm_stream *, const fm_lookup *, int64_t, int64_t,                 \
                                 const int32_t *, const int32_t *, const void *, fm_out, void *);  \
    template void outer_sum<T>(fm_stream *, int64_t, int64_t, int64_t, int64_t, int64_t,           \
                               const void *, const void *, fm_out);                                \
    template void outer_sum_grad<T>(fm_stream *, int64_t, int64_t, int64_t, int64_t, int64_t,      \
                                    const void *, fm_out, fm_out);                                 \
    template void msa_features<T>(fm_stream *, const fm_msa_features *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
