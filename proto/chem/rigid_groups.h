/* rigid_groups.h: ideal residues as rigid groups, and bounds on the distances inside them.
 *
 * A residue is built from eight groups (frames.h). Each has an ideal frame relative to its parent,
 * and atoms at ideal positions in that frame. The parent is the backbone for groups 1 to 4, and the
 * group before for chi2 to chi4. A torsion angle turns the frame about its x axis. The positions
 * are those published with AlphaFold2 (supplementary 1.8.4, table 2). A group's frame follows from
 * the positions of the atoms that define its angle.
 *
 * Bounds on the distance of two atoms of a residue. Where the two are bonded or have a common
 * neighbour, the bounds are the mean in crystal structures plus and minus a number of standard
 * deviations (Engh & Huber 2001). Across an angle the law of cosines gives the mean, and the
 * squares of the uncertainties add up. Other pairs are at least the sum of their van der Waals
 * radii minus a tolerance apart. Source: supplementary 1.9.11.
 *
 * Atoms are in atom14 order (atom14.h). Everything here is constant or a pure function. */
#ifndef FM_CHEM_RIGID_GROUPS_H
#define FM_CHEM_RIGID_GROUPS_H

#include "proto/chem/atom14.h"
#include "proto/chem/frames.h"

enum { FM_RIGID_GROUP_NONE = 0xff, FM_RIGID_FRAME = 12 };

typedef struct fm_rigid_atom {
    uint8_t group;     /* 0, 3 .. 7; FM_RIGID_GROUP_NONE where the type lacks the atom */
    float position[3]; /* Å in the group's frame */
} fm_rigid_atom;

extern const fm_rigid_atom fm_rigid_atoms[FM_N_RESTYPE + 1][FM_N_ATOM14];

/* Fills frames [21, 8, 12]: the rotation row by row, then the translation (Å). They are zeros where
 * a residue type lacks the group, and the identity for groups 0 and 1 of the 20 types. */
void fm_rigid_ideal_frames(float *ret_frames);

/* Fills [21, 14] with the van der Waals radius (C, N, O or S) of each atom in Å, 0 where there is
 * none. */
void fm_rigid_radii(float *ret_radii);

/* Fills bounds [21, 14, 14, 2] with the lowest and highest distance (Å); both are 0 where an atom
 * is missing or the two are the same. The argument deviations is the number of standard deviations
 * allowed (12), overlap the tolerance on the radii (1.5 Å). */
void fm_rigid_distance_bounds(double deviations, double overlap, float *ret_bounds);

#endif
