/* gather.h: nodes that select rows by an index, for example from tokens to atoms and back.
 *
 *     atoms   y[.., l, :] = x[.., token of l, :]                      0 for padding
 *     tokens  y[.., t, :] = mean over the atoms l of t of x[.., l, :] 0 for a token without atoms
 *     rows    y[.., r, :] = x[.., index[r], :]                        0 where index[r] < 0
 *
 * Each of the first two is the gradient of the other, except for the mean's factor. Index tensors
 * are tensors of the state, i32. */
#ifndef FM_TRAINER_OPS_GATHER_H
#define FM_TRAINER_OPS_GATHER_H

#include "trainer/autograd/tape.h"

/* The tokens of the atoms. Atoms are in the order of their tokens. */
typedef struct fm_atom_map {
    fm_tensor_ref token; /* i32 [n_atom]; < 0: padding */
    fm_tensor_ref first; /* i32 [n_token + 1]: atoms first[t] .. first[t + 1] - 1 */
    int64_t n_atom, n_token;
} fm_atom_map;

/* x [.., n_token, c]; returns [.., n_atom, c]. */
fm_tensor_ref fm_op_to_atoms(fm_tape *tape, const char *name, fm_tensor_ref x,
                             const fm_atom_map *map);

/* x [.., n_atom, c]; returns [.., n_token, c]. */
fm_tensor_ref fm_op_mean_of_atoms(fm_tape *tape, const char *name, fm_tensor_ref x,
                                  const fm_atom_map *map);

/* Selects rows of x [.., n, c] and returns [.., n_row, c]. `index`, i32 [n_row], has each row of x
 * at most once. `inverse`, i32 [n], names for each row of x the row of the result that reads it; a
 * negative number means none. It may be FM_TENSOR_NONE if x has no gradient. */
fm_tensor_ref fm_op_gather(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref index,
                           fm_tensor_ref inverse);

#endif
