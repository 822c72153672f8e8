/* atom_features.h: the embedding of reference conformers (AF3-5).
 *
 *     c = mask * (W_pos x + W_charge asinh(charge) + W_f [1, one-hot element, 4 characters])
 *
 * One-hot features are stored as class numbers, so their products with W_f are columns of W_f. */
#ifndef FM_TRAINER_ATOM_FEATURES_H
#define FM_TRAINER_ATOM_FEATURES_H

#include "trainer/autograd/tape.h"

enum {
    FM_ATOM_CLASSES = 6,     /* the constant 1, element, four characters */
    FM_ATOM_ELEMENTS = 128,  /* class = atomic number - 1 */
    FM_ATOM_CHARACTERS = 64, /* class = code - 32 */
    FM_ATOM_ONE_HOT = 1 + FM_ATOM_ELEMENTS + 4 * FM_ATOM_CHARACTERS
};

typedef struct fm_atom_feature_inputs {
    fm_tensor_ref position; /* act [n_atom, 3] Å */
    fm_tensor_ref charge;   /* act [n_atom, 1]: asinh of the charge */
    fm_tensor_ref mask;     /* act [n_atom]: 1 where there is a conformer */
    /* u8 [FM_ATOM_CLASSES, n_atom]. The first row is 0 for every atom. A number that is out of
     * range means no class. */
    fm_tensor_ref classes;
} fm_atom_feature_inputs;

typedef struct fm_atom_feature_weights {
    fm_param_ref position, charge, one_hot; /* [c, 3], [c, 1], [c, 385] */
    int64_t c;
} fm_atom_feature_weights;

/* Returns c [n_atom, c]. */
fm_tensor_ref fm_op_atom_features(fm_tape *tape, const fm_atom_feature_inputs *inputs,
                                  const fm_atom_feature_weights *weights);

#endif
