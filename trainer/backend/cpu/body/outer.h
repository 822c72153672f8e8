/* body/outer.h: outer product mean (A10), a few residues i at a time.
 *
 * One matrix product over the sequences gives P[(i, a), (j, b)] for a piece of residues i. It is
 * reordered to [(i, j), (a, b)] and multiplied by W. Backward computes the piece again for dW, and
 * takes the same steps in reverse. A piece has about PIECE elements, so that both its orders stay
 * in the cache. */
#include "trainer/backend/cpu/body/real.h"

enum { OUTER_PIECE = 1 << 18 };

static int64_t outer_rows(const fm_outer *a) {
    return min_size(a->n_i, max_size(1, OUTER_PIECE / (a->n_j * a->c * a->c)));
}

typedef struct outer_space {
    real *a, *b;             /* [n_seq, n_i, c], [n_seq, n_j, c] contiguous */
    real *product, *ordered; /* one piece, [(i, a), (j, b)] and [(i, j), (a, b)] */
    real *z, *norm;          /* [rows, n_j, c_z], [rows, n_j] */
    real *da, *db, *dbias;   /* like a and b; [c_z] */
} outer_space;

static int64_t outer_layout(const fm_outer *o, bool backward, real *base, outer_space *ret) {
    int64_t rows = outer_rows(o), piece = rows * o->n_j * o->c * o->c;
    int64_t size_a = o->n_seq * o->n_i * o->c, size_b = o->n_seq * o->n_j * o->c;
    int64_t sizes[] = {size_a,
                       size_b,
                       piece,
                       piece,
                       rows * o->n_j * o->c_z,
                       rows * o->n_j,
                       backward ? size_a : 0,
                       backward ? size_b : 0,
                       backward ? o->c_z : 0};
    real **slots[] = {&ret->a,    &ret->b,  &ret->product, &ret->ordered, &ret->z,
                      &ret->norm, &ret->da, &ret->db,      &ret->dbias};
    int64_t used = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        *slots[i] = base ? base + used : NULL;
        used += sizes[i];
    }
    return used;
}

static size_t outer_workspace(const fm_outer *args) {
    outer_space space;
    return (size_t)outer_layout(args, false, NULL, &space) * sizeof(real);
}

static size_t outer_grad_workspace(const fm_outer *args) {
    outer_space space;
    return (size_t)outer_layout(args, true, NULL, &space) * sizeof(real);
}

/* Multiplies each row of c elements by its mask. */
static void outer_mask(const fm_outer *o, const void *mask, int64_t n, real *packed) {
    scale_rows(NULL, o->n_seq * n, o->c, o->c, o->c, mask, packed, (fm_out){packed, FM_WRITE});
}

static void outer_pack(const fm_outer *o, const void *x, const int64_t stride[2], const void *mask,
                       int64_t n, real *packed) {
    fm_strided move = {.rank = 3,
                       .shape = {o->n_seq, n, o->c},
                       .x_stride = {stride[0], stride[1], 1},
                       .y_stride = {n * o->c, o->c, 1},
                       .alpha = 1,
                       .x = x,
                       .y = {packed, FM_WRITE}};
    copy_strided(NULL, &move);
    outer_mask(o, mask, n, packed);
}

static void outer_unpack(const fm_outer *o, real *packed, const int64_t stride[2], const void *mask,
                         int64_t n, fm_out y) {
    outer_mask(o, mask, n, packed);
    fm_strided move = {.rank = 3,
                       .shape = {o->n_seq, n, o->c},
                       .x_stride = {n * o->c, o->c, 1},
                       .y_stride = {stride[0], stride[1], 1},
                       .alpha = 1,
                       .x = packed,
                       .y = y};
    copy_strided(NULL, &move);
}

/* Reorders a piece: [(i, a), (j, b)] to [(i, j), (a, b)], or back. */
static void outer_reorder(const fm_outer *o, int64_t rows, bool back, const real *from, real *to) {
    int64_t c = o->c, n_j = o->n_j;
    int64_t product[4] = {c * n_j * c, c, n_j * c, 1}; /* strides of i, j, a, b */
    int64_t ordered[4] = {n_j * c * c, c * c, c, 1};
    fm_strided move = {
        .rank = 4, .shape = {rows, n_j, c, c}, .alpha = 1, .x = from, .y = {to, FM_WRITE}};
    for (int axis = 0; axis < 4; axis++) {
        move.x_stride[axis] = back ? ordered[axis] : product[axis];
        move.y_stride[axis] = back ? product[axis] : ordered[axis];
    }
    copy_strided(NULL, &move);
}

/* norm[i, j] = eps + sum_s mask_a[s, first + i] mask_b[s, j], summed over s in order. */
static void outer_norm(const fm_outer *o, int64_t first, int64_t rows, real *norm) {
    REAL_GEMM(true, false, rows, o->n_j, o->n_seq, 1, (const real *)o->mask_a + first, o->n_i,
              o->mask_b, o->n_j, 0, norm, o->n_j);
    for (int64_t i = 0; i < rows * o->n_j; i++)
        norm[i] += (real)o->eps;
}

/* The piece of rows first .. first + rows - 1, ordered [(i, j), (a, b)]. */
static void outer_piece(const fm_outer *o, const outer_space *space, int64_t first, int64_t rows) {
    REAL_GEMM(true, false, rows * o->c, o->n_j * o->c, o->n_seq, 1, space->a + first * o->c,
              o->n_i * o->c, space->b, o->n_j * o->c, 0, space->product, o->n_j * o->c);
    outer_reorder(o, rows, false, space->product, space->ordered);
}

static void outer(fm_stream *stream, const fm_outer *o, void *workspace) {
    (void)stream;
    outer_space space;
    outer_layout(o, false, workspace, &space);
    outer_pack(o, o->a, o->a_stride, o->mask_a, o->n_i, space.a);
    outer_pack(o, o->b, o->b_stride, o->mask_b, o->n_j, space.b);
    const real *bias = o->bias;
    int64_t step = outer_rows(o), square = o->c * o->c;
    for (int64_t first = 0; first < o->n_i; first += step) {
        int64_t rows = min_size(step, o->n_i - first), pairs = rows * o->n_j;
        outer_piece(o, &space, first, rows);
        outer_norm(o, first, rows, space.norm);
        REAL_GEMM(false, true, pairs, o->c_z, square, 1, space.ordered, square, o->w, square, 0,
                  space.z, o->c_z);
        for (int64_t p = 0; p < pairs; p++) {
            real *z = space.z + p * o->c_z, inverse = (real)1 / space.norm[p];
            for (int64_t c = 0; c < o->c_z; c++)
                z[c] = (z[c] + bias[c]) * inverse;
            const real *residual = o->residual;
            for (int64_t c = 0; residual && c < o->c_z; c++)
                z[c] += residual[(first * o->n_j + p) * o->c_z + c];
            put_row((real *)o->z.data + (first * o->n_j + p) * o->c_z, o->z.beta, z, o->c_z);
        }
    }
}

/* Writes dz / norm of a piece to space->z, and adds its sum over pairs to dbias. */
static void outer_scale_dz(const fm_outer *o, const outer_space *space, const void *dz,
                           int64_t first, int64_t rows) {
    outer_norm(o, first, rows, space->norm);
    for (int64_t p = 0; p < rows * o->n_j; p++) {
        const real *restrict up = (const real *)dz + (first * o->n_j + p) * o->c_z;
        real *restrict z = space->z + p * o->c_z, inverse = (real)1 / space->norm[p];
        for (int64_t c = 0; c < o->c_z; c++)
            z[c] = up[c] * inverse;
    }
    const int64_t stride[2] = {0, o->c_z};
    fm_out dbias = {space->dbias, first == 0 ? FM_WRITE : FM_ADD};
    sum(NULL, 1, rows * o->n_j, o->c_z, stride, space->z, dbias, true, NULL);
}

static void outer_grad_piece(const fm_outer *o, const fm_outer_grad *grad, const outer_space *space,
                             int64_t first, int64_t rows) {
    int64_t square = o->c * o->c, pairs = rows * o->n_j, wide = o->n_j * o->c;
    outer_scale_dz(o, space, grad->dz, first, rows);
    if (grad->dw.data) {
        outer_piece(o, space, first, rows);
        REAL_GEMM(true, false, o->c_z, square, pairs, 1, space->z, o->c_z, space->ordered, square,
                  first > 0 || grad->dw.beta == FM_ADD, grad->dw.data, square);
    }
    REAL_GEMM(false, false, pairs, square, o->c_z, 1, space->z, o->c_z, o->w, square, 0,
              space->ordered, square);
    outer_reorder(o, rows, true, space->ordered, space->product);
    REAL_GEMM(false, true, o->n_seq, rows * o->c, wide, 1, space->b, wide, space->product, wide, 0,
              space->da + first * o->c, o->n_i * o->c);
    REAL_GEMM(false, false, o->n_seq, wide, rows * o->c, 1, space->a + first * o->c, o->n_i * o->c,
              space->product, wide, first > 0, space->db, wide);
}

static void outer_grad(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                       void *workspace) {
    (void)stream;
    outer_space space;
    outer_layout(o, true, workspace, &space);
    outer_pack(o, o->a, o->a_stride, o->mask_a, o->n_i, space.a);
    outer_pack(o, o->b, o->b_stride, o->mask_b, o->n_j, space.b);
    int64_t step = outer_rows(o);
    for (int64_t first = 0; first < o->n_i; first += step)
        outer_grad_piece(o, grad, &space, first, min_size(step, o->n_i - first));
    if (grad->da.data) outer_unpack(o, space.da, o->a_stride, o->mask_a, o->n_i, grad->da);
    if (grad->db.data) outer_unpack(o, space.db, o->b_stride, o->mask_b, o->n_j, grad->db);
    if (grad->dbias.data) put_row(grad->dbias.data, grad->dbias.beta, space.dbias, o->c_z);
}
