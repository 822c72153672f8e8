/* atom_operands.h: operand structs of the kernels for atoms, tokens and noisy structures, which
 * AlphaFold 3's network and losses use. The rules of kernels.h hold. "AF3-7" is algorithm 7 of the
 * AlphaFold 3 supplement.
 *
 * Atoms are in the order of their tokens, so the atoms of a token are neighbours. */
#ifndef FM_BACKEND_ATOM_OPERANDS_H
#define FM_BACKEND_ATOM_OPERANDS_H

#include "trainer/backend/element.h"

#include <stdbool.h>

/* A window of local attention (AF3-7): 32 queries and the 128 keys around them. Window b has the
 * queries 32b .. 32b + 31 and the keys 32b - 48 .. 32b + 79. Positions outside the atoms are
 * padding. */
enum { FM_WINDOW_QUERIES = 32, FM_WINDOW_KEYS = 128, FM_WINDOW_BEFORE = 48 };

/* y[r, :] = residual[r, :] + sigmoid(g[r % g_rows, :]) * x[r, :] + shift[r % g_rows, :]
 *
 * Rows are those of several samples, one after the other, that may share their conditioning. The
 * gradients of g and shift are summed over the rows that read them, in order. The gradient of the
 * residual is dy. */
typedef struct fm_modulate {
    int64_t rows, c, g_rows; /* g_rows divides rows */
    const void *g;           /* act [g_rows, c] */
    const void *x;           /* act [rows, c] */
    const void *shift;       /* act [g_rows, c]; NULL: none; forward only */
    const void *residual;    /* act [rows, c]; NULL: none; forward only */
    void *y;                 /* act [rows, c]; may be residual; forward only */
} fm_modulate;

typedef struct fm_modulate_grad {
    const void *dy; /* act [rows, c] */
    fm_out dx, dg, dshift;
} fm_modulate_grad;

/* The end of AdaLN (AF3-26), behind the products of the conditioning signal:
 *
 *     y[r, :] = sigmoid(g[r % g_rows, :]) * hat(x[r, :]) + shift[r % g_rows, :]
 *
 * hat is LayerNorm without weights. Rows are as in fm_modulate. Backward makes the statistics again
 * from x.
 *
 * The gate that ends the sublayer before can be part of it. With `update`, the rows are
 * moved = x + sigmoid(end) * update in place of x. */
typedef struct fm_adaln {
    int64_t rows, c, g_rows; /* g_rows divides rows */
    double eps;
    const void *x;     /* act [rows, c] */
    const void *g;     /* act [g_rows, c] */
    const void *shift; /* act [g_rows, c]; forward only */
    void *y;           /* act [rows, c]; forward only */
    /* Forward only. */
    const void *update; /* act [rows, c]; NULL: none, nor the next two */
    const void *end;    /* act [g_rows, c] */
    void *moved;        /* act [rows, c]; may be x */
} fm_adaln;

typedef struct fm_adaln_grad {
    const void *dy; /* act [rows, c] */
    fm_out dx;      /* act [rows, c] */
    fm_out dg;      /* act [g_rows, c] */
    fm_out dshift;  /* act [g_rows, c]; where rows = g_rows it equals dy */
} fm_adaln_grad;

/* Rows that are chosen by an index, for each of n_batch arrays:
 *
 *     gather_rows   y[b, r, :] = f x[b, index[r], :], or 0 where index[r] < 0
 *     sum_rows      y[b, r, :] = f' sum over the rows k in first[r] .. first[r + 1] - 1 of x[b, k]
 *
 * With `first` of the rows that are read, f = 1 / (their number) in sum_rows, if `mean`, and in
 * gather_rows, whose x then has a row for each group. A group without rows gives 0. Without `mean`,
 * f is 1. So each entry is the backward of the other where `index` is the group of a row. */
typedef struct fm_rows {
    int64_t n_batch, n_x, n_y, c; /* x [n_batch, n_x, c], y [n_batch, n_y, c] */
    const int32_t *index;         /* [n_y]; gather_rows only */
    const int32_t *first;         /* [groups + 1]; NULL in gather_rows without mean */
    bool mean;
} fm_rows;

/* The tokens of the atoms, for the kernels that are about pairs of atoms in windows. */
typedef struct fm_window_pairs {
    int64_t n_atom, n_token, n_window, c;
    const int32_t *token; /* [n_atom], < 0: padding */
    const int32_t *first; /* [n_token + 1]: the atoms of token t are first[t] .. first[t + 1] - 1 */
} fm_window_pairs;

/* The geometry of pairs of atoms in windows (AF3-5), with d = x_query - x_key and v = 1 where
 * both atoms have the same id, else 0:
 *
 *     y[window, query, key, :] = v d (3) | v / (1 + |d|^2) | v
 *
 * Pairs with a position outside the atoms give 0. */
typedef struct fm_window_geometry {
    int64_t n_atom, n_window;
    const float *x;    /* [n_atom, 3] Å */
    const int32_t *id; /* [n_atom]; < 0: padding */
    void *y;           /* act [n_window, 32, 128, 5] */
} fm_window_geometry;
enum { FM_WINDOW_GEOMETRY = 5 };

/* -- structures with noise, and losses on them. Positions in Å, [S, n, 3] for S samples */

/* AF3-28. Moves x onto y, with weights w of the points, by the best rotation R and translation t:
 * moved = R x + t. Each operand has a distance between batches, 0 where all batches share it. */
typedef struct fm_rigid_align {
    int64_t n_batch, n;
    int64_t x_stride, y_stride, w_stride;
    const void *x, *y, *w; /* act [n, 3], [n, 3], [n] of each batch */
    void *moved;           /* act [n_batch, n, 3] */
    void *transform;       /* acc [n_batch, 12]: R by rows, then t; NULL: not written */
} fm_rigid_align;

/* AF3-19: y = (x - centre) R^T + t, for rotations and translations that are given. The centre is
 * the mean over the points of the mask, which are those that are moved: where there is a mask, y is
 * 0 for the others. */
typedef struct fm_augment {
    int64_t n_sample, n;
    int64_t x_stride;              /* between samples, 0: all start from one structure */
    const void *x, *mask;          /* act [n, 3], act [n] or NULL: all points */
    const void *rotation, *offset; /* act [n_sample, 9] by rows, [n_sample, 3] */
    double eps;                    /* added to the number of points */
    void *y;                       /* act [n_sample, n, 3] */
} fm_augment;

/* loss = factor / S sum_s scale[s] sum_l w[l] |x_sl - y_sl|^2 / (eps + sum_l mask[l]) */
typedef struct fm_square_loss {
    int64_t n_sample, n;
    double factor, eps;
    const void *x, *y; /* act [S, n, 3] */
    const void *w;     /* act [n] */
    const void *mask;  /* act [n] */
    const void *scale; /* act [S] */
    void *loss;        /* acc [1]; forward only */
} fm_square_loss;

/* loss = 1 / S sum_s scale[s] sum_p w[p] (|x_s,a - x_s,b| - length[p])^2 / sum_p w[p] over bonds
 * p = (a, b). Without bonds it is 0. */
typedef struct fm_bond_loss {
    int64_t n_sample, n, n_bond;
    const void *x;          /* act [S, n, 3] */
    const int32_t *bond;    /* [n_bond, 2]; < 0: none */
    const void *length, *w; /* act [n_bond]; w is 0 or 1, and 0 where there is no bond */
    const void *scale;      /* act [S] */
    void *loss;             /* acc [1]; forward only */
} fm_bond_loss;

/* AF3-27. A pair (l, m), l != m, of known atoms counts where its true distance is below radius[l].
 *     loss = 1 - 1 / S sum_s sum_lm mean_k sigmoid(threshold_k - |d_slm - d_lm|) / (eps + pairs)
 * with thresholds 0.5, 1, 2 and 4 Å. The gradient of a distance of 0 is 0. */
typedef struct fm_smooth_lddt {
    int64_t n_sample, n;
    double eps;
    const void *x;      /* act [S, n, 3] */
    const void *truth;  /* act [n, 3] */
    const void *mask;   /* act [n], 0 or 1 */
    const void *radius; /* act [n] Å */
    void *count;        /* acc [1]: pairs; written by forward, read by backward */
    void *loss;         /* acc [1]; forward only */
} fm_smooth_lddt;

/* The classes of a measured error, for losses of confidence heads. There are n_bin + 1 edges,
 * evenly spaced from 0 to last; the class is the number of edges below the error, at least 1
 * and at most n_bin, minus 1. */
typedef struct fm_distance_errors {
    int64_t n_batch, n;
    int32_t n_bin;     /* 64 */
    double last;       /* 32 Å */
    const void *x;     /* act [n_batch, n, 3] */
    const void *truth; /* act [n, 3] */
    const void *mask;  /* act [n] */
    int32_t *target;   /* [n_batch, n, n]: of | |x_i - x_j| - |truth_i - truth_j| | */
    void *w;           /* act [n_batch, n, n]: mask_i mask_j */
} fm_distance_errors;

/* The same for |x_j in frame i - truth_j in the true frame i|, where frame i is made of three atoms
 * (AF3-29) and j is the centre atom of a token. The weight is 1 where all four atoms are known. */
typedef struct fm_frame_errors {
    int64_t n_batch, n_atom, n_token;
    int32_t n_bin;
    double last;
    const void *x;         /* act [n_batch, n_atom, 3] */
    const void *truth;     /* act [n_atom, 3] */
    const void *mask;      /* act [n_atom] */
    const int32_t *frame;  /* [n_token, 3]; < 0: no frame */
    const int32_t *centre; /* [n_token]; < 0: none */
    int32_t *target;       /* [n_batch, n_token, n_token] */
    void *w;               /* act, like target */
} fm_frame_errors;

/* The class of each atom's lDDT. Partners of atom l are the known atoms m != l whose true distance
 * is below radius[m]. The class follows from whole numbers: the n partners and their k hits of the
 * four thresholds give clip(#{j >= 0: 4 j n < n_bin k}, 1, n_bin) - 1. */
typedef struct fm_atom_lddt {
    int64_t n_batch, n;
    int32_t n_bin;       /* 50 */
    const void *x;       /* act [n_batch, n, 3] */
    const void *truth;   /* act [n, 3] */
    const void *mask;    /* act [n] */
    const void *partner; /* act [n]: 1 for atoms that others are measured against */
    const void *radius;  /* act [n] Å */
    int32_t *target;     /* [n_batch, n] */
    void *w;             /* act [n_batch, n]: mask */
} fm_atom_lddt;

#endif
