/* token_distances.h: the distances between the tokens of a structure, and their classes. Nothing
 * has a gradient. */
#ifndef FM_TRAINER_TOKEN_DISTANCES_H
#define FM_TRAINER_TOKEN_DISTANCES_H

#include "trainer/autograd/tape.h"

/* Evenly spaced lower bounds of distances, Å. */
typedef struct fm_distance_bounds {
    int32_t n;
    double first, last;
} fm_distance_bounds;

typedef struct fm_token_distances {
    fm_tensor_ref distance; /* act [N, N, 1] Å */
    /* u8 [N, N]: the number of the last bound below the distance; 255 for a distance below all
     * bounds or equal to one */
    fm_tensor_ref classes;
} fm_token_distances;

/* Records the distances between the atoms that represent tokens, for the rows of `part`. N is a
 * multiple of part.count. x is act [.., n_atom, 3] Å, of which the first structure counts. atom,
 * i32 [N], names each token's atom; a token with a negative number is at the origin. */
fm_token_distances fm_op_token_distances(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref atom,
                                         const fm_distance_bounds *bounds, fm_part part);

#endif
