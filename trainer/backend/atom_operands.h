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

/* The geometry of pairs of atoms in windows (AF3-5:2-6), with d = x_query - x_key and v = 1 where
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

#endif
