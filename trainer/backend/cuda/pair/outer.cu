/* outer.cu: outer product mean (A10), a few residues i at a time.
 *
 * As on the CPU: one product over the sequences gives P[(i, a), (j, b)] for a piece of i; reordered
 * to [(i, j), (a, b)] it meets W. Backward makes the piece again for dW and goes the same way back.
 * A piece has up to OUTER_PIECE_BYTES: long products are worth more than pieces that stay in the L2
 * cache. The norm and the masks' products are f32. outer_wgmma.cu takes the model's widths. */
#include "trainer/backend/cuda/pair/outer.cuh"

namespace fm_cuda {

enum { OUTER_PIECE_BYTES = 1 << 28 };

template <typename T> static int64_t outer_rows(const fm_outer *o) {
    int64_t row = o->n_j * o->c * o->c * (int64_t)sizeof(T);
    int64_t rows = max_size(1, OUTER_PIECE_BYTES / row);
    return rows < o->n_i ? max_size(1, rows / 2 * 2) : o->n_i;
}

struct outer_space {
    void *a, *b;             /* act [n_seq, n_i, c], [n_seq, n_j, c] contiguous */
    void *product, *ordered; /* act: one piece, [(i, a), (j, b)] and [(i, j), (a, b)] */
    float *z, *norm;         /* [rows, n_j, c_z] before the division; [n_i, n_j] */
    void *dz;                /* act [rows, n_j, c_z], divided by the norm; all rows with tiles */
    outer_tiles tiles;
    float *da, *db, *dbias; /* like a and b; partial sums [pieces][c_z] */
    void *sums, *gemm;      /* workspaces of sum and of the products */
};

template <typename T>
static size_t outer_layout(const fm_outer *o, bool backward, void *base, outer_space *ret) {
    int64_t rows = outer_rows<T>(o), pairs = rows * o->n_j;
    size_t piece = (size_t)(pairs * o->c * o->c) * sizeof(T);
    size_t size_a = (size_t)(o->n_seq * o->n_i * o->c), size_b = (size_t)(o->n_seq * o->n_j * o->c);
    carver carve = {(char *)base, 0};
    *ret = {};
    ret->a = carve.take(size_a * sizeof(T));
    ret->b = carve.take(size_b * sizeof(T));
    ret->product = carve.take(piece);
    ret->ordered = carve.take(piece);
    ret->norm = (float *)carve.take((size_t)(o->n_i * o->n_j) * sizeof(float));
    ret->gemm = carve.take((size_t)32 << 20);
    if (!backward) {
        ret->z = (float *)carve.take((size_t)(pairs * o->c_z) * sizeof(float));
        return carve.used;
    }
    bool is_tiled = sizeof(T) == 2 && outer_tiles_fit(o);
    ret->dz = carve.take((size_t)((is_tiled ? o->n_i * o->n_j : pairs) * o->c_z) * sizeof(T));
    if (is_tiled)
        carve.take(outer_tiles_layout(o, base ? carve.base + carve.used : NULL, &ret->tiles));
    ret->da = (float *)carve.take(size_a * sizeof(float));
    ret->db = (float *)carve.take(size_b * sizeof(float));
    ret->sums = carve.take(sum_workspace(1, pairs, o->c_z));
    return carve.used;
}

/* Addresses aren't known yet: whichever path is taken has its workspace. */
template <typename T> size_t outer_workspace(const fm_outer *o) {
    outer_space space;
    size_t plain = outer_layout<T>(o, false, NULL, &space);
    size_t fast = sizeof(T) == 2 && outer_fits(o) ? outer_fast_workspace(o) : 0;
    return plain > fast ? plain : fast;
}

template <typename T> size_t outer_grad_workspace(const fm_outer *o) {
    outer_space space;
    size_t plain = outer_layout<T>(o, true, NULL, &space);
    size_t fast = sizeof(T) == 2 && outer_grad_fits(o) ? outer_grad_fast_workspace(o) : 0;
    return plain > fast ? plain : fast;
}

/* f(row, channel): rows (s, i) of n, V channels at a time. */
template <int V, typename F>
static void outer_each(fm_stream *stream, const fm_outer *o, int64_t n, F f) {
    int64_t parts = o->c / V, count = o->n_seq * n * parts;
    assert(count < (int64_t)1 << 32);
    each(stream, count, [=] __device__(int64_t index) {
        uint32_t at = (uint32_t)index, row = at / (uint32_t)parts;
        f(row, (int64_t)(at % (uint32_t)parts) * V);
    });
}

/* Rows of c channels times their masks, from strides [s, i] to [n_seq, n, c]. */
template <typename T, int V>
static void outer_pack_by(fm_stream *stream, const fm_outer *o, const T *from,
                          const int64_t stride[2], const T *mask, int64_t n, T *packed) {
    int64_t c = o->c, stride_s = stride[0], stride_i = stride[1];
    outer_each<V>(stream, o, n, [=] __device__(uint32_t row, int64_t channel) {
        uint32_t s = row / (uint32_t)n, i = row % (uint32_t)n;
        float x[V], factor = get(mask[row]);
        load<T, V>(from + s * stride_s + i * stride_i + channel, x);
        for (int k = 0; k < V; k++)
            x[k] *= factor;
        store<T, V>(packed + row * c + channel, x);
    });
}

template <typename T>
static void outer_pack(fm_stream *stream, const fm_outer *o, const void *x, const int64_t stride[2],
                       const void *mask, int64_t n, void *packed) {
    constexpr int V = vector_of<T>();
    bool is_wide =
        is_whole<T>(o->c) && is_whole<T>(stride[0]) && is_whole<T>(stride[1]) && is_aligned(x);
    auto pack_by = is_wide ? outer_pack_by<T, V> : outer_pack_by<T, 1>;
    pack_by(stream, o, (const T *)x, stride, (const T *)mask, n, (T *)packed);
}

template <typename T, int V>
static void outer_unpack_by(fm_stream *stream, const fm_outer *o, const float *packed,
                            const int64_t stride[2], const T *mask, int64_t n, fm_out y) {
    int64_t c = o->c, stride_s = stride[0], stride_i = stride[1];
    outer_each<V>(stream, o, n, [=] __device__(uint32_t row, int64_t channel) {
        uint32_t s = row / (uint32_t)n, i = row % (uint32_t)n;
        float x[V], factor = get(mask[row]);
        for (int k = 0; k < V; k++)
            x[k] = packed[row * c + channel + k] * factor;
        put_pack<T, V>((T *)y.data + s * stride_s + i * stride_i + channel, y.beta, x);
    });
}

template <typename T>
static void outer_unpack(fm_stream *stream, const fm_outer *o, const float *packed,
                         const int64_t stride[2], const void *mask, int64_t n, fm_out y) {
    constexpr int V = vector_of<T>();
    bool is_wide =
        is_whole<T>(o->c) && is_whole<T>(stride[0]) && is_whole<T>(stride[1]) && is_aligned(y.data);
    auto unpack_by = is_wide ? outer_unpack_by<T, V> : outer_unpack_by<T, 1>;
    unpack_by(stream, o, packed, stride, (const T *)mask, n, y);
}

/* norm[i, j] = eps + sum_s mask_a[s, i] mask_b[s, j], s in order: a thread a pair. */
template <typename T> static void outer_norm(fm_stream *stream, const fm_outer *args, float *norm) {
    fm_outer o = *args;
    each(stream, o.n_i * o.n_j, [=] __device__(int64_t p) {
        int64_t i = p / o.n_j, j = p % o.n_j;
        float total = 0;
        for (int64_t s = 0; s < o.n_seq; s++)
            total += get(((const T *)o.mask_a)[s * o.n_i + i]) *
                     get(((const T *)o.mask_b)[s * o.n_j + j]);
        norm[p] = total + (float)o.eps;
    });
}

/* Between [(i, a), (j, b)] and [(i, j), (a, b)]: rows of V channels b a thread. */
template <typename T, int V>
static void reorder_as(fm_stream *stream, const fm_outer *o, int64_t rows, bool back, const T *from,
                       T *to_piece) {
    int64_t c = o->c, n_j = o->n_j, parts = c / V;
    each(stream, rows * c * n_j * parts, [=] __device__(int64_t index) {
        /* the destination's order, so that stores are coalesced */
        uint32_t rest = (uint32_t)index, part = rest % (uint32_t)parts;
        rest /= (uint32_t)parts;
        uint32_t inner = rest % (uint32_t)(back ? n_j : c);
        rest /= (uint32_t)(back ? n_j : c);
        uint32_t middle = rest % (uint32_t)(back ? c : n_j);
        int64_t i = rest / (uint32_t)(back ? c : n_j);
        int64_t j = back ? inner : middle, a = back ? middle : inner;
        int64_t product = ((i * c + a) * n_j + j) * c + part * V;
        int64_t ordered = ((i * n_j + j) * c + a) * c + part * V;
        typedef pack<T, V> line;
        *(line *)(to_piece + (back ? product : ordered)) =
            *(const line *)(from + (back ? ordered : product));
    });
}

template <typename T>
static void reorder(fm_stream *stream, const fm_outer *o, int64_t rows, bool back, const void *from,
                    void *to_piece) {
    assert(rows * o->n_j * o->c * o->c < (int64_t)1 << 32);
    if (is_whole<T>(o->c)) {
        reorder_as<T, vector_of<T>()>(stream, o, rows, back, (const T *)from, (T *)to_piece);
    } else {
        reorder_as<T, 1>(stream, o, rows, back, (const T *)from, (T *)to_piece);
    }
}

/* c = op(a) op(b) (+ c): contiguous in memory but for ld. */
template <typename T>
static void multiply(fm_stream *stream, const outer_space *space, int64_t m, int64_t n, int64_t k,
                     bool trans_a, bool trans_b, const void *a, int64_t lda, const void *b,
                     int64_t ldb, bool add, void *c, int64_t ldc, bool c_is_acc) {
    fm_gemm g = {};
    g.m = m, g.n = n, g.k = k, g.batch = 1;
    g.trans_a = trans_a, g.trans_b = trans_b;
    g.alpha = 1, g.beta = add ? 1 : 0;
    g.a = a, g.lda = lda, g.b = b, g.ldb = ldb, g.c = c, g.ldc = ldc;
    g.c_is_acc = c_is_acc;
    gemm<T>(stream, &g, space->gemm);
}

/* The piece of rows first .. first + rows - 1, ordered [(i, j), (a, b)]. */
template <typename T>
static void outer_piece(fm_stream *stream, const fm_outer *o, const outer_space *space,
                        int64_t first, int64_t rows) {
    multiply<T>(stream, space, rows * o->c, o->n_j * o->c, o->n_seq, true, false,
                (const T *)space->a + first * o->c, o->n_i * o->c, space->b, o->n_j * o->c, false,
                space->product, o->n_j * o->c, false);
    reorder<T>(stream, o, rows, false, space->product, space->ordered);
}

template <typename T> void outer(fm_stream *stream, const fm_outer *o, void *workspace) {
    if (sizeof(T) == 2 && outer_fits(o) && outer_is_aligned(o, NULL)) {
        outer_fast(stream, o, workspace);
        return;
    }
    outer_space space;
    outer_layout<T>(o, false, workspace, &space);
    outer_pack<T>(stream, o, o->a, o->a_stride, o->mask_a, o->n_i, space.a);
    outer_pack<T>(stream, o, o->b, o->b_stride, o->mask_b, o->n_j, space.b);
    outer_norm<T>(stream, o, space.norm);
    int64_t step = outer_rows<T>(o), square = o->c * o->c, c_z = o->c_z;
    const T *bias = (const T *)o->bias;
    fm_beta beta = o->z.beta;
    for (int64_t first = 0; first < o->n_i; first += step) {
        int64_t rows = min_size(step, o->n_i - first), pairs = rows * o->n_j;
        outer_piece<T>(stream, o, &space, first, rows);
        multiply<T>(stream, &space, pairs, c_z, square, false, true, space.ordered, square, o->w,
                    square, false, space.z, c_z, true);
        const float *made = space.z, *norm = space.norm + first * o->n_j;
        T *z = (T *)o->z.data + first * o->n_j * c_z;
        const T *residual = (const T *)o->residual;
        if (residual) residual += first * o->n_j * c_z;
        each(stream, pairs * c_z, [=] __device__(int64_t i) {
            float update = (made[i] + get(bias[i % c_z])) / norm[i / c_z];
            put(z + i, beta, residual ? get(residual[i]) + update : update);
        });
    }
}

/* A piece of dz / norm, its sum over pairs into dbias. */
template <typename T>
static void outer_scale(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                        const outer_space *space, int64_t first, int64_t rows) {
    int64_t pairs = rows * o->n_j, c_z = o->c_z;
    const T *up = (const T *)grad->dz + first * o->n_j * c_z;
    const float *norm = space->norm + first * o->n_j;
    T *dz = (T *)space->dz;
    each(stream, pairs * c_z,
         [=] __device__(int64_t i) { dz[i] = to<T>(get(up[i]) / norm[i / c_z]); });
    fm_out dbias = {grad->dbias.data, first > 0 ? FM_ADD : grad->dbias.beta};
    const int64_t stride[2] = {0, c_z};
    if (dbias.data) sum<T>(stream, 1, pairs, c_z, stride, dz, dbias, true, space->sums);
}

/* One piece of backward: dw, da whole, db added. */
template <typename T>
static void outer_grad_piece(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                             const outer_space *space, bool is_tiled, int64_t first, int64_t rows) {
    int64_t square = o->c * o->c, pairs = rows * o->n_j, wide = o->n_j * o->c, c_z = o->c_z;
    if (!is_tiled) outer_scale<T>(stream, o, grad, space, first, rows);
    const T *dz = (const T *)space->dz + (is_tiled ? first * o->n_j * c_z : 0);
    if (grad->dw.data) {
        const T *up = dz;
        if (is_tiled && space->tiles.a) {
            outer_tiles_product(stream, o, &space->tiles, first, rows, (bf16 *)space->ordered);
            up = (const T *)grad->dz + first * o->n_j * c_z;
        } else {
            outer_piece<T>(stream, o, space, first, rows);
        }
        multiply<T>(stream, space, c_z, square, pairs, true, false, up, c_z, space->ordered, square,
                    first > 0 || grad->dw.beta == FM_ADD, grad->dw.data, square, true);
    }
    if (!grad->da.data && !grad->db.data) return;
    if (is_tiled) {
        outer_tiles_gradient(stream, o, &space->tiles, first, rows, (bf16 *)space->product);
    } else {
        multiply<T>(stream, space, pairs, square, c_z, false, false, dz, c_z, o->w, square, false,
                    space->ordered, square, false);
        reorder<T>(stream, o, rows, true, space->ordered, space->product);
    }
    multiply<T>(stream, space, o->n_seq, rows * o->c, wide, false, true, space->b, wide,
                space->product, wide, false, space->da + first * o->c, o->n_i * o->c, true);
    multiply<T>(stream, space, o->n_seq, wide, rows * o->c, false, false,
                (const T *)space->a + first * o->c, o->n_i * o->c, space->product, wide, first > 0,
                space->db, wide, true);
}

template <typename T>
void outer_grad(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad, void *workspace) {
    bool is_aligned = sizeof(T) == 2 && outer_is_aligned(o, grad);
    if (is_aligned && outer_grad_fits(o)) {
        outer_grad_fast(stream, o, grad, workspace);
        return;
    }
    bool is_tiled = is_aligned && outer_tiles_fit(o);
    outer_space space;
    outer_layout<T>(o, true, workspace, &space);
    outer_pack<T>(stream, o, o->a, o->a_stride, o->mask_a, o->n_i, space.a);
    outer_pack<T>(stream, o, o->b, o->b_stride, o->mask_b, o->n_j, space.b);
    if (is_tiled) {
        outer_tiles_make(stream, o, grad, &space.tiles, (bf16 *)space.dz);
    } else {
        outer_norm<T>(stream, o, space.norm);
    }
    int64_t step = outer_rows<T>(o);
    for (int64_t first = 0; first < o->n_i; first += step)
        outer_grad_piece<T>(stream, o, grad, &space, is_tiled, first,
                            min_size(step, o->n_i - first));
    if (grad->da.data)
        outer_unpack<T>(stream, o, space.da, o->a_stride, o->mask_a, o->n_i, grad->da);
    if (grad->db.data)
        outer_unpack<T>(stream, o, space.db, o->b_stride, o->mask_b, o->n_j, grad->db);
}

#define INSTANTIATE(T)                                                                             \
    template size_t outer_workspace<T>(const fm_outer *);                                          \
    template void outer<T>(fm_stream *, const fm_outer *, void *);                                 \
    template size_t outer_grad_workspace<T>(const fm_outer *);                                     \
    template void outer_grad<T>(fm_stream *, const fm_outer *, const fm_outer_grad *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
