/* triangle.cu: triangle multiplication (A11, A12), the product alone, for any shape. The whole
 * sublayer in fused kernels is triangle_block.cu.
 *
 * The product over k is one matrix product per channel, in three steps:
 *
 *     front      reads p, g and the mask once, applies the gate, and writes the operand
 *                channel-major, [c, rows], through a 64 x 64 tile of shared memory
 *     multiply   one batched product of c matrices
 *     back       transposes x to [n_i, n_j, c]; in backward, the gradients of the operands, through
 *                the gate, to those of p and g
 *
 * The tile lets reads run along channels and writes along rows, 16 bytes at a time where the shapes
 * allow it. Traffic beyond the ideal: the operands and x once more each. At N = 256 and c = 128 in
 * bf16 that is 17 MB apiece, mostly found in the L2 cache. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/pair/triangle.cuh"

namespace fm_cuda {

enum { SQUARE = 64, SQUARE_THREADS = 256 };

/* A 64 x 64 tile of f32 in shared memory, [channel][row], with one column of padding against bank
 * conflicts. */
typedef float square[SQUARE][SQUARE + 1];

struct triangle_space {
    void *a, *b, *x; /* act, channel-major [c, rows]: gated operands, and x or dx */
    void *da, *db;   /* act, gradients of the gated operands */
    void *gemm;
};

template <typename T>
static size_t triangle_layout(const fm_triangle *t, bool backward, void *base,
                              triangle_space *ret) {
    size_t a = (size_t)(t->n_i * t->n_k * t->c) * sizeof(T);
    size_t b = (size_t)(t->n_j * t->n_k * t->c) * sizeof(T);
    size_t x = (size_t)(t->n_i * t->n_j * t->c) * sizeof(T);
    carver carve = {(char *)base, 0};
    *ret = {};
    ret->a = carve.take(a);
    ret->b = carve.take(b);
    ret->x = carve.take(x);
    ret->gemm = carve.take((size_t)32 << 20);
    if (!backward) return carve.used;
    ret->da = carve.take(a);
    ret->db = carve.take(b);
    return carve.used;
}

template <typename T> size_t triangle_workspace(const fm_triangle *t) {
    triangle_space space;
    return triangle_layout<T>(t, false, NULL, &space);
}

template <typename T> size_t triangle_grad_workspace(const fm_triangle *t) {
    triangle_space space;
    return triangle_layout<T>(t, true, NULL, &space);
}

/* The block's tile: blockIdx.x counts 64 rows, y 64 channels. */
struct square_place {
    int64_t rows, c, row0, c0;
};

__device__ inline square_place place_of_square(int64_t rows, int64_t c) {
    return {rows, c, blockIdx.x * (int64_t)SQUARE, blockIdx.y * (int64_t)SQUARE};
}

/* Calls f(row, channel, row in tile, channel in tile) for packs of V channels, channels fastest. */
template <int V, typename F> __device__ inline void along_channels(const square_place &at, F f) {
    constexpr int PACKS = SQUARE / V;
#pragma unroll
    for (int i = threadIdx.x; i < SQUARE * PACKS; i += SQUARE_THREADS) {
        int row = i / PACKS, channel = i % PACKS * V;
        if (at.row0 + row < at.rows && at.c0 + channel < at.c) {
            f(at.row0 + row, at.c0 + channel, row, channel);
        }
    }
}

/* The same for packs of V rows, rows fastest. */
template <int V, typename F> __device__ inline void along_rows(const square_place &at, F f) {
    constexpr int PACKS = SQUARE / V;
#pragma unroll
    for (int i = threadIdx.x; i < SQUARE * PACKS; i += SQUARE_THREADS) {
        int channel = i / PACKS, row = i % PACKS * V;
        if (at.row0 + row < at.rows && at.c0 + channel < at.c) {
            f(at.row0 + row, at.c0 + channel, row, channel);
        }
    }
}

/* packed [c, rows] = mask * sigmoid(g) * p, or just p if g is NULL. */
template <typename T, int V>
__global__ void __launch_bounds__(SQUARE_THREADS)
    gate_transpose(const T *p, const T *g, const T *mask, int64_t rows, int64_t c, int64_t ld,
                   T *packed) {
    __shared__ square tile;
    square_place at = place_of_square(rows, c);
    along_channels<V>(at, [&](int64_t row, int64_t channel, int r, int ch) {
        float value[V], gate[V], factor = g ? get(mask[row]) : 1.0f;
        load<T, V>(p + row * ld + channel, value);
        if (g) load<T, V>(g + row * ld + channel, gate);
#pragma unroll
        for (int k = 0; k < V; k++)
            tile[ch + k][r] = g ? factor * sigmoid(gate[k]) * value[k] : value[k];
    });
    __syncthreads();
    along_rows<V>(at, [&](int64_t row, int64_t channel, int r, int ch) {
        store<T, V>(packed + channel * rows + row, &tile[ch][r]);
    });
}

/* Reads the block's tile of packed [c, rows]. */
template <typename T, int V>
__device__ inline void load_square(square tile, const square_place &at, const T *packed) {
    along_rows<V>(at, [&](int64_t row, int64_t channel, int r, int ch) {
        load<T, V>(packed + channel * at.rows + row, &tile[ch][r]);
    });
    __syncthreads();
}

/* x [rows, c] from packed [c, rows]. */
template <typename T, int V>
__global__ void __launch_bounds__(SQUARE_THREADS)
    transpose_back(const T *packed, int64_t rows, int64_t c, T *x) {
    __shared__ square tile;
    square_place at = place_of_square(rows, c);
    load_square<T, V>(tile, at, packed);
    along_channels<V>(at, [&](int64_t row, int64_t channel, int r, int ch) {
        float value[V];
#pragma unroll
        for (int k = 0; k < V; k++)
            value[k] = tile[ch + k][r];
        store<T, V>(x + row * c + channel, value);
    });
}

/* The gradients of p and g from that of the gated operand, which is channel-major. If g is NULL,
 * the operand is p itself. */
template <typename T, int V>
__global__ void __launch_bounds__(SQUARE_THREADS)
    gate_transpose_back(const T *packed, const T *p, const T *g, const T *mask, int64_t rows,
                        int64_t c, int64_t ld, fm_out dp, fm_out dg) {
    __shared__ square tile;
    square_place at = place_of_square(rows, c);
    load_square<T, V>(tile, at, packed);
    along_channels<V>(at, [&](int64_t row, int64_t channel, int r, int ch) {
        float value[V], gate[V], factor = g ? get(mask[row]) : 1.0f;
        if (g) {
            load<T, V>(p + row * ld + channel, value);
            load<T, V>(g + row * ld + channel, gate);
        }
#pragma unroll
        for (int k = 0; k < V; k++) {
            float dgated = factor * tile[ch + k][r];
            if (!g) {
                value[k] = dgated;
                continue;
            }
            float sigmoid_g = sigmoid(gate[k]);
            gate[k] = dgated * value[k] * sigmoid_g * (1.0f - sigmoid_g);
            value[k] = dgated * sigmoid_g;
        }
        if (dp.data) put_pack<T, V>((T *)dp.data + row * ld + channel, dp.beta, value);
        if (dg.data) put_pack<T, V>((T *)dg.data + row * ld + channel, dg.beta, gate);
    });
}

static dim3 squares(int64_t rows, int64_t c) {
    return dim3((unsigned)divide_up(rows, SQUARE), (unsigned)divide_up(c, SQUARE));
}

/* Whether rows can be accessed by 16 bytes along both axes. */
template <typename T> static bool is_even(int64_t rows, int64_t c, int64_t ld) {
    return is_whole<T>(rows) && is_whole<T>(c) && is_whole<T>(ld);
}

template <typename T>
static void front(fm_stream *stream, const void *p, const void *g, const void *mask, int64_t rows,
                  int64_t c, int64_t ld, void *packed) {
    const T *value = (const T *)p, *gate = (const T *)g, *factor = (const T *)mask;
    dim3 grid = squares(rows, c);
    if (is_even<T>(rows, c, ld) && is_aligned(p) && is_aligned(g)) {
        gate_transpose<T, vector_of<T>()><<<grid, SQUARE_THREADS, 0, queue(stream)>>>(
            value, gate, factor, rows, c, ld, (T *)packed);
    } else {
        gate_transpose<T, 1><<<grid, SQUARE_THREADS, 0, queue(stream)>>>(value, gate, factor, rows,
                                                                         c, ld, (T *)packed);
    }
    FM_LAUNCHED();
}

template <typename T>
void triangle_multiply(fm_stream *stream, void *space, int64_t c, int64_t m, int64_t n, int64_t k,
                       bool trans_a, bool trans_b, const void *a, const void *b, void *out) {
    fm_gemm g = {};
    g.m = m, g.n = n, g.k = k, g.batch = c;
    g.trans_a = trans_a, g.trans_b = trans_b;
    g.alpha = 1;
    g.a = a, g.lda = trans_a ? m : k, g.stride_a = m * k;
    g.b = b, g.ldb = trans_b ? k : n, g.stride_b = k * n;
    g.c = out, g.ldc = n, g.stride_c = m * n;
    gemm<T>(stream, &g, space);
}

template <typename T> void triangle(fm_stream *stream, const fm_triangle *t, void *workspace) {
    triangle_space space;
    triangle_layout<T>(t, false, workspace, &space);
    int64_t ni = t->n_i, nj = t->n_j, nk = t->n_k, c = t->c;
    front<T>(stream, t->pa, t->ga, t->mask_a, ni * nk, c, t->lda, space.a);
    front<T>(stream, t->pb, t->gb, t->mask_b, nj * nk, c, t->ldb, space.b);
    triangle_multiply<T>(stream, space.gemm, c, ni, nj, nk, t->incoming, !t->incoming, space.a,
                         space.b, space.x);
    dim3 grid = squares(ni * nj, c);
    if (is_even<T>(ni * nj, c, c) && is_aligned(t->x)) {
        transpose_back<T, vector_of<T>()>
            <<<grid, SQUARE_THREADS, 0, queue(stream)>>>((const T *)space.x, ni * nj, c, (T *)t->x);
    } else {
        transpose_back<T, 1>
            <<<grid, SQUARE_THREADS, 0, queue(stream)>>>((const T *)space.x, ni * nj, c, (T *)t->x);
    }
    FM_LAUNCHED();
}

template <typename T>
static void back(fm_stream *stream, const void *p, const void *g, const void *mask, int64_t rows,
                 int64_t c, int64_t ld, const void *packed, fm_out dp, fm_out dg) {
    if (!dp.data && !dg.data) return;
    const T *dgated = (const T *)packed, *value = (const T *)p, *gate = (const T *)g;
    const T *factor = (const T *)mask;
    dim3 grid = squares(rows, c);
    if (is_even<T>(rows, c, ld) && is_aligned(p) && is_aligned(g) && is_aligned(dp.data) &&
        is_aligned(dg.data)) {
        gate_transpose_back<T, vector_of<T>()><<<grid, SQUARE_THREADS, 0, queue(stream)>>>(
            dgated, value, gate, factor, rows, c, ld, dp, dg);
    } else {
        gate_transpose_back<T, 1><<<grid, SQUARE_THREADS, 0, queue(stream)>>>(
            dgated, value, gate, factor, rows, c, ld, dp, dg);
    }
    FM_LAUNCHED();
}

/* Outgoing: da = dx b, db = dx^T a; incoming: da = b dx^T, db = a dx. */
template <typename T>
void triangle_grad(fm_stream *stream, const fm_triangle *t, const fm_triangle_grad *grad,
                   void *workspace) {
    triangle_space space;
    triangle_layout<T>(t, true, workspace, &space);
    int64_t ni = t->n_i, nj = t->n_j, nk = t->n_k, c = t->c;
    front<T>(stream, t->pa, t->ga, t->mask_a, ni * nk, c, t->lda, space.a);
    front<T>(stream, t->pb, t->gb, t->mask_b, nj * nk, c, t->ldb, space.b);
    front<T>(stream, grad->dx, NULL, NULL, ni * nj, c, c, space.x);
    if (t->incoming) {
        triangle_multiply<T>(stream, space.gemm, c, nk, ni, nj, false, true, space.b, space.x,
                             space.da);
        triangle_multiply<T>(stream, space.gemm, c, nk, nj, ni, false, false, space.a, space.x,
                             space.db);
    } else {
        triangle_multiply<T>(stream, space.gemm, c, ni, nk, nj, false, false, space.x, space.b,
                             space.da);
        triangle_multiply<T>(stream, space.gemm, c, nj, nk, ni, true, false, space.x, space.a,
                             space.db);
    }
    back<T>(stream, t->pa, t->ga, t->mask_a, ni * nk, c, t->lda, space.da, grad->dpa, grad->dga);
    back<T>(stream, t->pb, t->gb, t->mask_b, nj * nk, c, t->ldb, space.db, grad->dpb, grad->dgb);
}

#define INSTANTIATE(T)                                                                             \
    template void triangle_multiply<T>(fm_stream *, void *, int64_t, int64_t, int64_t, int64_t,    \
                                       bool, bool, const void *, const void *, void *);            \
    template size_t triangle_workspace<T>(const fm_triangle *);                                    \
    template void triangle<T>(fm_stream *, const fm_triangle *, void *);                           \
    template size_t triangle_grad_workspace<T>(const fm_triangle *);                               \
    template void triangle_grad<T>(fm_stream *, const fm_triangle *, const fm_triangle_grad *,     \
                                   void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
