/* outer.cu: outer product mean (A10): which kernels run a call, and the path for any shape.
 *
 * PIECES works as the CPU does, on a few residues i at a time. One product over the sequences gives
 * the outer products P[(i, a), (j, b)] of a piece; reordered to [(i, j), (a, b)] they are
 * multiplied by W. Backward computes the piece again for dW and takes the same steps in reverse.
 * The gradient of P is dz / norm times W; reordered, it gives da and db by one product each. A
 * piece has up to OUTER_PIECE_BYTES: long products gain more than pieces that stay in the L2 cache
 * would. The norm and the masks' products are f32.
 *
 * PANELS makes P, da and db by the same plain products, and reorders less. Forward, z is made of P
 * as that product leaves it (outer_end.cu). Backward, dW needs no P in memory up to 512 sequences
 * (outer_weight_long.cu), and with more is made of P as forward (outer_weight_read.cu). The
 * gradient of P is written in the order in which the products for da and db read it
 * (outer_wgmma.cu). Both may be twice as long as a piece. */
#include "trainer/backend/cuda/hopper/hopper.cuh"

#include <type_traits>

namespace fm_cuda {

enum { OUTER_PIECE_BYTES = 1 << 28 };

/* -- choice of a path */

/* The path of a call whose addresses are multiples of 16 bytes. The first row that fits is taken.
 *
 *     path      shapes                                            why
 *     ------    ---------------------------------------------     ---------------------------------
 *     CHAIN     hopper/; bf16, c 32, c_z 128, n_i, n_j to 2^14;   one operand of the chain stays in
 *               forward up to 3,072 sequences, backward up to     shared memory, 512 sequences at a
 *               128                                               time, and W is applied for each
 *     PANELS    the same widths, more sequences                   P or its gradient in memory, made
 *                                                                 or read by tensor-core kernels
 *     PIECES    everything else, and f32                          plain matrix products */
template <typename T> static outer_path outer_path_of_shape(const fm_outer *o, bool backward) {
    bool is_model_width =
        o->c == OUTER_C && o->c_z == OUTER_Z && o->n_i <= 1 << 14 && o->n_j <= 1 << 14;
    if (sizeof(T) != 2 || !is_model_width || !uses_hopper()) return OUTER_PIECES;
    int64_t most = backward ? OUTER_MAX_GRAD_SEQ : OUTER_MAX_CHAIN_SEQ;
    return o->n_seq <= most ? OUTER_CHAIN : OUTER_PANELS;
}

/* The path of a call; grad NULL: forward. PIECES handles operands with an address or a stride that
 * is not a multiple of 16 bytes. */
template <typename T>
static outer_path outer_path_of(const fm_outer *o, const fm_outer_grad *grad) {
    bool is_wide = o->a_stride[0] % 8 == 0 && o->a_stride[1] % 8 == 0 && o->b_stride[0] % 8 == 0 &&
                   o->b_stride[1] % 8 == 0 && is_aligned(o->a) && is_aligned(o->b) &&
                   is_aligned(o->w);
    is_wide =
        is_wide && (grad ? is_aligned(grad->dz) : is_aligned(o->z.data) && is_aligned(o->residual));
    return is_wide ? outer_path_of_shape<T>(o, grad != NULL) : OUTER_PIECES;
}

/* -- workspace of PIECES and PANELS */

/* Residues i of a piece; an even number unless it is all of them. */
template <typename T> static int64_t outer_rows(const fm_outer *o) {
    int64_t row = o->n_j * o->c * o->c * (int64_t)sizeof(T);
    int64_t rows = max_size(1, OUTER_PIECE_BYTES / row);
    return rows < o->n_i ? max_size(1, rows / 2 * 2) : o->n_i;
}

/* Residues i of a piece where PANELS has P, or its gradient, in the place of both pieces. */
template <typename T> static int64_t whole_rows(const fm_outer *o, outer_path path) {
    int64_t rows = outer_rows<T>(o);
    return path == OUTER_PANELS && 2 * rows >= o->n_i ? o->n_i : rows;
}
template <typename T> static bool is_one_piece(const fm_outer *o, outer_path path) {
    return whole_rows<T>(o, path) == o->n_i;
}

struct outer_space {
    void *a, *b;             /* act [n_seq, n_i, c], [n_seq, n_j, c] contiguous */
    void *product, *ordered; /* act: one piece, [(i, a), (j, b)] and [(i, j), (a, b)] */
    float *z, *norm;         /* [rows, n_j, c_z] before the division; [n_i, n_j] without eps */
    void *dz; /* act [rows, n_j, c_z] of dz / norm; rows: of a piece, in PANELS all; or NULL */
    outer_panels panels;
    float *shares;     /* workspace of outer_weight_long or of outer_weight_read, or NULL */
    void *da, *db;     /* like a and b; db in several pieces: f32 */
    void *sums, *gemm; /* workspaces of sum and of the products */
};

template <typename T>
static size_t outer_layout(const fm_outer *o, outer_path path, bool backward, bool stores_p,
                           void *base, outer_space *ret) {
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
    bool has_panels = path == OUTER_PANELS;
    if (!backward) {
        if (has_panels) ret->panels.w = (bf16 *)carve.take(outer_w_bytes());
        if (!has_panels) ret->z = (float *)carve.take((size_t)(pairs * o->c_z) * sizeof(float));
        return carve.used;
    }
    if (!has_panels || o->n_seq > OUTER_MAX_SEQ) {
        ret->dz = carve.take((size_t)((has_panels ? o->n_i * o->n_j : pairs) * o->c_z) * sizeof(T));
    }
    if (has_panels) {
        carve.take(outer_panels_layout(o, base ? carve.base + carve.used : NULL, &ret->panels));
    }
    if (has_panels && !stores_p && outer_weight_long_takes(o)) {
        ret->shares = (float *)carve.take(outer_weight_long_bytes(o));
    } else if (has_panels && !stores_p && o->n_seq > OUTER_MAX_SEQ) {
        ret->shares = (float *)carve.take(outer_weight_read_bytes(o, whole_rows<T>(o, path)));
    }
    ret->da = carve.take(size_a * sizeof(T));
    ret->db = carve.take(size_b * (is_one_piece<T>(o, path) ? sizeof(T) : sizeof(float)));
    ret->sums = carve.take(sum_workspace(1, pairs, o->c_z));
    return carve.used;
}

template <typename T>
static size_t path_workspace(const fm_outer *o, outer_path path, bool backward, bool stores_p) {
    outer_space space;
    if (path == OUTER_CHAIN) return outer_chain_workspace(o, backward, stores_p);
    return outer_layout<T>(o, path, backward, stores_p, NULL, &space);
}

/* A query does not know addresses yet, so the call may still fall back to PIECES: enough for
 * both. */
template <typename T>
static size_t enough_workspace(const fm_outer *o, bool backward, bool stores_p) {
    size_t plain = path_workspace<T>(o, OUTER_PIECES, backward, stores_p);
    size_t chosen = path_workspace<T>(o, outer_path_of_shape<T>(o, backward), backward, stores_p);
    return plain > chosen ? plain : chosen;
}

template <typename T> size_t outer_workspace(const fm_outer *o) {
    return enough_workspace<T>(o, false, false);
}

template <typename T> size_t outer_grad_workspace(const fm_outer *o) {
    return enough_workspace<T>(o, true, false);
}

/* -- operands */

/* Calls f(row, channel) for all rows (s, i) of n residues, V channels at a time. */
template <int V, typename F>
static void outer_each(fm_stream *stream, const fm_outer *o, int64_t n, F f) {
    int64_t parts = o->c / V, count = o->n_seq * n * parts;
    assert(count < (int64_t)1 << 32);
    each(stream, count, [=] __device__(int64_t index) {
        uint32_t at = (uint32_t)index, row = at / (uint32_t)parts;
        f(row, (int64_t)(at % (uint32_t)parts) * V);
    });
}

/* packed [n_seq, n, c] = rows of c channels with strides [s, i], times their masks. */
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

/* What outer_unpack puts back: y, with strides [s, i], = packed [n_seq, n, c] times the masks. */
template <typename T, typename S> struct unpack_side {
    const S *packed;
    const T *mask;
    int64_t stride_s, stride_i;
    fm_out y;
};

/* Both sides in turn; rows of n residues. da and db are halves of the same lines. */
template <typename T, typename S, int V>
static void outer_unpack_by(fm_stream *stream, const fm_outer *o, int64_t n,
                            const unpack_side<T, S> (&sides)[2], int count) {
    uint32_t c = (uint32_t)o->c, parts = c / V, residues = (uint32_t)n;
    unpack_side<T, S> first = sides[0], second = sides[1];
    int64_t all = o->n_seq * n * parts * count;
    assert(all < (int64_t)1 << 32);
    each(stream, all, [=] __device__(int64_t index) {
        uint32_t at = (uint32_t)index, channel = at % parts * V;
        at /= parts;
        bool is_second = at % (uint32_t)count;
        uint32_t row = at / (uint32_t)count, s = row / residues, i = row % residues;
        const S *packed = is_second ? second.packed : first.packed;
        const T *mask = is_second ? second.mask : first.mask;
        int64_t stride_s = is_second ? second.stride_s : first.stride_s;
        int64_t stride_i = is_second ? second.stride_i : first.stride_i;
        T *y = (T *)(is_second ? second.y.data : first.y.data);
        float x[V], factor = get(mask[row]);
        load<S, V>(packed + (int64_t)row * c + channel, x);
        for (int k = 0; k < V; k++)
            x[k] *= factor;
        put_pack<T, V>(y + s * stride_s + i * stride_i + channel,
                       is_second ? second.y.beta : first.y.beta, x);
    });
}

template <typename T, typename S>
static void outer_unpack(fm_stream *stream, const fm_outer *o, int64_t n,
                         const unpack_side<T, S> (&sides)[2], int count) {
    constexpr int V = vector_of<T>();
    bool is_wide = is_whole<T>(o->c);
    for (int k = 0; k < count; k++)
        is_wide = is_wide && is_whole<T>(sides[k].stride_s) && is_whole<T>(sides[k].stride_i) &&
                  is_aligned(sides[k].y.data);
    auto unpack_by = is_wide ? outer_unpack_by<T, S, V> : outer_unpack_by<T, S, 1>;
    unpack_by(stream, o, n, sides, count);
}

/* da and db; SB: what db was added up in. */
template <typename T, typename SB>
static void outer_unpack_grads(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                               const outer_space *space) {
    const unpack_side<T, T> a = {(const T *)space->da, (const T *)o->mask_a, o->a_stride[0],
                                 o->a_stride[1], grad->da};
    const unpack_side<T, SB> b = {(const SB *)space->db, (const T *)o->mask_b, o->b_stride[0],
                                  o->b_stride[1], grad->db};
    if constexpr (std::is_same_v<T, SB>) {
        if (grad->da.data && grad->db.data && o->n_i == o->n_j) {
            outer_unpack<T, T>(stream, o, o->n_i, {a, b}, 2);
            return;
        }
    }
    if (grad->da.data) outer_unpack<T, T>(stream, o, o->n_i, {a, a}, 1);
    if (grad->db.data) outer_unpack<T, SB>(stream, o, o->n_j, {b, b}, 1);
}

/* norm[i, j] = sum_s mask_a[s, i] mask_b[s, j]; its readers add eps. The masks are 0 or 1, so that
 * the product is exact. It takes no workspace, as in outer_wgmma.cu: the library's choice for a
 * shape is made once, for both. */
template <typename T> static void outer_norm(fm_stream *stream, const fm_outer *o, float *norm) {
    fm_gemm g = {};
    g.m = o->n_i, g.n = o->n_j, g.k = o->n_seq, g.batch = 1;
    g.trans_a = true, g.alpha = 1;
    g.a = o->mask_a, g.lda = o->n_i, g.b = o->mask_b, g.ldb = o->n_j;
    g.c = norm, g.ldc = o->n_j, g.c_is_acc = true;
    gemm<T>(stream, &g, NULL);
}

/* Copies a piece from [(i, a), (j, b)] to [(i, j), (a, b)], or with `back` the other way. One
 * thread takes V channels b. */
template <typename T, int V>
static void reorder_as(fm_stream *stream, const fm_outer *o, int64_t rows, bool back, const T *from,
                       T *to_piece) {
    int64_t c = o->c, n_j = o->n_j, parts = c / V;
    each(stream, rows * c * n_j * parts, [=] __device__(int64_t index) {
        /* Threads follow the destination's order, so that stores are coalesced. */
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

/* c = op(a) op(b) (+ c). */
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

/* space->product = P of residues [first, first + rows), [(i, a), (j, b)]. */
template <typename T>
static void outer_products(fm_stream *stream, const fm_outer *o, const outer_space *space,
                           int64_t first, int64_t rows) {
    multiply<T>(stream, space, rows * o->c, o->n_j * o->c, o->n_seq, true, false,
                (const T *)space->a + first * o->c, o->n_i * o->c, space->b, o->n_j * o->c, false,
                space->product, o->n_j * o->c, false);
}

/* space->ordered = the same, ordered [(i, j), (a, b)]. */
template <typename T>
static void outer_piece(fm_stream *stream, const fm_outer *o, const outer_space *space,
                        int64_t first, int64_t rows) {
    outer_products<T>(stream, o, space, first, rows);
    reorder<T>(stream, o, rows, false, space->product, space->ordered);
}

template <typename T> void outer(fm_stream *stream, const fm_outer *o, void *workspace) {
    outer_path path = outer_path_of<T>(o, NULL);
    if (path == OUTER_CHAIN) {
        outer_chain(stream, o, workspace);
        return;
    }
    outer_space space;
    outer_layout<T>(o, path, false, false, workspace, &space);
    outer_pack<T>(stream, o, o->a, o->a_stride, o->mask_a, o->n_i, space.a);
    outer_pack<T>(stream, o, o->b, o->b_stride, o->mask_b, o->n_j, space.b);
    outer_norm<T>(stream, o, space.norm);
    if (path == OUTER_PANELS) {
        outer_pack_w(stream, o, space.panels.w);
        int64_t step = whole_rows<T>(o, path);
        for (int64_t first = 0; first < o->n_i; first += step) {
            int64_t rows = min_size(step, o->n_i - first);
            outer_products<T>(stream, o, &space, first, rows);
            outer_end(stream, o, space.panels.w, space.norm, first, rows, (bf16 *)space.product);
        }
        return;
    }
    int64_t step = outer_rows<T>(o), square = o->c * o->c, c_z = o->c_z;
    const T *bias = (const T *)o->bias;
    fm_beta beta = o->z.beta;
    float eps = (float)o->eps;
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
            float update = (made[i] + get(bias[i % c_z])) / (norm[i / c_z] + eps);
            put(z + i, beta, residual ? get(residual[i]) + update : update);
        });
    }
}

/* space->dz = dz / norm of a piece; adds its sum over pairs to dbias. */
template <typename T>
static void outer_scale(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                        const outer_space *space, int64_t first, int64_t rows) {
    int64_t pairs = rows * o->n_j, c_z = o->c_z;
    const T *up = (const T *)grad->dz + first * o->n_j * c_z;
    const float *norm = space->norm + first * o->n_j;
    T *dz = (T *)space->dz;
    float eps = (float)o->eps;
    each(stream, pairs * c_z,
         [=] __device__(int64_t i) { dz[i] = to<T>(get(up[i]) / (norm[i / c_z] + eps)); });
    fm_out dbias = {grad->dbias.data, first > 0 ? FM_ADD : grad->dbias.beta};
    const int64_t stride[2] = {0, c_z};
    if (dbias.data) sum<T>(stream, 1, pairs, c_z, stride, dz, dbias, true, space->sums);
}

/* Adds a piece to dw. dz / norm of the piece is at `dz`. */
template <typename T>
static void outer_grad_weight(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                              const outer_space *space, int64_t first, int64_t rows, const T *dz) {
    int64_t square = o->c * o->c, pairs = rows * o->n_j;
    const T *up = dz;
    if (space->panels.a) { /* P / norm, so dz itself */
        outer_panels_product(stream, o, &space->panels, first, rows, (bf16 *)space->ordered);
        up = (const T *)grad->dz + first * o->n_j * o->c_z;
    } else {
        outer_piece<T>(stream, o, space, first, rows);
    }
    multiply<T>(stream, space, o->c_z, square, pairs, true, false, up, o->c_z, space->ordered,
                square, first > 0 || grad->dw.beta == FM_ADD, grad->dw.data, square, true);
}

/* dW from P of `step` residues at a time, as the product over sequences leaves it. */
template <typename T>
static void outer_weight_pieces(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                                const outer_space *space, int64_t step) {
    fm_outer_grad piece = *grad;
    for (int64_t first = 0; first < o->n_i; first += step, piece.dw.beta = FM_ADD) {
        int64_t rows = min_size(step, o->n_i - first);
        outer_products<T>(stream, o, space, first, rows);
        outer_weight_read(stream, o, &piece, rows, (const bf16 *)space->product,
                          (const bf16 *)space->dz + first * o->n_j * o->c_z, space->shares);
    }
}

/* Adds a piece to db, and writes da of its residues. */
template <typename T>
static void outer_grad_operands(fm_stream *stream, const fm_outer *o, const outer_space *space,
                                outer_path path, int64_t first, int64_t rows, const T *dz) {
    int64_t square = o->c * o->c, wide = o->n_j * o->c;
    if (path == OUTER_PANELS) {
        outer_panels_gradient(stream, o, &space->panels, first, rows, (bf16 *)space->product);
    } else {
        multiply<T>(stream, space, rows * o->n_j, square, o->c_z, false, false, dz, o->c_z, o->w,
                    square, false, space->ordered, square, false);
        reorder<T>(stream, o, rows, true, space->ordered, space->product);
    }
    multiply<T>(stream, space, o->n_seq, rows * o->c, wide, false, true, space->b, wide,
                space->product, wide, false, (T *)space->da + first * o->c, o->n_i * o->c, false);
    multiply<T>(stream, space, o->n_seq, wide, rows * o->c, false, false,
                (const T *)space->a + first * o->c, o->n_i * o->c, space->product, wide, first > 0,
                space->db, wide, !is_one_piece<T>(o, path));
}

template <typename T>
static void outer_gradients(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                            void *workspace, bool stores_p) {
    outer_path path = outer_path_of<T>(o, grad);
    if (path == OUTER_CHAIN) {
        outer_chain_grad(stream, o, grad, workspace, stores_p);
        return;
    }
    bool has_panels = path == OUTER_PANELS, wants_operands = grad->da.data || grad->db.data;
    outer_space space;
    outer_layout<T>(o, path, true, stores_p, workspace, &space);
    const outer_panels *p = &space.panels;
    if (!p->a) {
        outer_pack<T>(stream, o, o->a, o->a_stride, o->mask_a, o->n_i, space.a);
        outer_pack<T>(stream, o, o->b, o->b_stride, o->mask_b, o->n_j, space.b);
    }
    if (has_panels) {
        if (!p->a) outer_norm<T>(stream, o, p->norm);
        outer_panels_make(stream, o, grad, p, (bf16 *)space.a, (bf16 *)space.b, (bf16 *)space.dz);
    } else {
        outer_norm<T>(stream, o, space.norm);
    }
    int64_t step = outer_rows<T>(o), whole = whole_rows<T>(o, path);
    bool is_apart = whole != step;
    if (space.shares && grad->dw.data && p->a) {
        outer_weight_long(stream, o, grad, {p->a, p->b, p->dz, space.shares});
    } else if (space.shares && grad->dw.data) {
        outer_weight_pieces<T>(stream, o, grad, &space, whole);
    }
    for (int64_t first = 0; first < o->n_i; first += step) {
        int64_t rows = min_size(step, o->n_i - first);
        if (!has_panels) outer_scale<T>(stream, o, grad, &space, first, rows);
        const T *dz = (const T *)space.dz;
        if (dz && has_panels) dz += first * o->n_j * o->c_z;
        if (grad->dw.data && !space.shares) {
            outer_grad_weight<T>(stream, o, grad, &space, first, rows, dz);
        }
        if (wants_operands && !is_apart) {
            outer_grad_operands<T>(stream, o, &space, path, first, rows, dz);
        }
    }
    if (wants_operands && is_apart) {
        outer_grad_operands<T>(stream, o, &space, path, 0, o->n_i, (const T *)NULL);
    }
    auto unpack = outer_unpack_grads<T, T>;
    if (!is_one_piece<T>(o, path)) unpack = outer_unpack_grads<T, float>;
    unpack(stream, o, grad, &space);
}

template <typename T>
void outer_grad(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad, void *workspace) {
    outer_gradients<T>(stream, o, grad, workspace, false);
}

size_t outer_grad_storing_workspace(const fm_outer *o) {
    return enough_workspace<bf16>(o, true, true);
}

void outer_grad_storing(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                        void *workspace) {
    outer_gradients<bf16>(stream, o, grad, workspace, true);
}

#define INSTANTIATE(T)                                                                             \
    template size_t outer_workspace<T>(const fm_outer *);                                          \
    template void outer<T>(fm_stream *, const fm_outer *, void *);                                 \
    template size_t outer_grad_workspace<T>(const fm_outer *);                                     \
    template void outer_grad<T>(fm_stream *, const fm_outer *, const fm_outer_grad *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
