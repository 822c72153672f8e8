/* near_atoms.h: finds the atoms near a point, in a grid of cells. */
#ifndef FM_COMPLEX_NEAR_ATOMS_H
#define FM_COMPLEX_NEAR_ATOMS_H

#include "proto/base/status.h"

#include <stdint.h>

typedef struct fm_near_atoms fm_near_atoms;

/* Sorts the atoms listed in atom [n] into cells of `size` Å; position [.., 3] has all of them, and
 * is borrowed. Atoms whose position is not finite are in no cell. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_near_atoms_make(const uint32_t *atom, uint32_t n, const float *position,
                                         double size, fm_near_atoms **ret_near, fm_error *reterr);
void fm_near_atoms_free(fm_near_atoms *near);

/* Calls visit for the atoms of the 27 cells around an atom, in one order for each grid. All atoms
 * within `size` are among them, and so is the atom itself. Stops when visit returns non-zero. */
void fm_near_atoms_visit(const fm_near_atoms *near, uint32_t atom,
                         int (*visit)(void *context, uint32_t other), void *context);

#endif
