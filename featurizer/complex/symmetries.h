/* symmetries.h: the ways in which a component's atoms can stand for each other.
 *
 * A symmetry is a map of the heavy atoms to themselves that keeps colours and bonds. A colour is
 * element, charge, hydrogens and stereo configuration. A bond's colour is its order, where all
 * aromatic orders are one. Terminal O and N of one atom, with a double and a single bond among
 * them, are alike: a carboxylate's, a phosphate's or a guanidinium's atoms may be named in any
 * order. */
#ifndef FM_COMPLEX_SYMMETRIES_H
#define FM_COMPLEX_SYMMETRIES_H

#include "featurizer/complex/components.h"

enum {
    FM_SYMMETRY_COLUMNS = 1000, /* the first ones by image are kept, as the reference keeps 1000 */
    /* Components with more heavy atoms have the identity only, and so has one whose search takes
     * more steps. */
    FM_SYMMETRY_ATOMS = 1024,
    FM_SYMMETRY_STEPS = 1 << 20,
};

typedef struct fm_symmetries {
    uint32_t n_atom, n;     /* n columns, ascending by image; the identity is the first */
    bool is_cut;            /* there are more of them, or the search was given up */
    const uint16_t *images; /* [n][n_atom] column c takes atom i to images[c * n_atom + i] */
} fm_symmetries;

/* Lists the symmetries of a component in the arena. Returns FM_ERR_LIMIT when it is full. */
FM_MUST_USE fm_status fm_component_symmetries(const fm_component *component, fm_arena *arena,
                                              fm_symmetries *ret_symmetries, fm_error *reterr);

#endif
