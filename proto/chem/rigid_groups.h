/* rigid_groups.h: ideal residues as rigid groups, and the bounds of distances inside them.
 *
 * A residue is built from eight groups (frames.h): each has an ideal frame in its parent's (the
 * backbone for groups 1 to 4, the group before for chi2 to chi4), which a torsion angle turns about
 * its x axis, and atoms at ideal positions in it. Positions are those published with AlphaFold2
 * (supplementary 1.8.4, table 2); a group's frame follows from the positions of the atoms that
 * define its angle.
 *
 * The bounds of a distance between two atoms of a residue are its mean in crystal structures plus
 * and minus a number of standard deviations where the two are bonded or have a common neighbour
 * (Engh & Huber 2001; across an angle by the law of cosines, with uncertainties added in squares),
 * and for other pairs at least the sum of the van der Waals radii less a tolerance. Source:
 * supplementary 1.9.11.
 *
 * Places of atoms are atom14's (atom14.h). Everything here is constant or a pure function. */
#ifndef FM_CHEM_RIGID_GROUPS_H
#define FM_CHEM_RIGID_GROUPS_H

#include "proto/chem/atom14.h"
#include "proto/chem/frames.h"

enum { FM_RIGID_GROUP_NONE = 0xff, FM_RIGID_FRAME = 12 };

typedef struct fm_rigid_atom {
    uint8_t group;     /* 0, 3 .. 7; FM_RIGID_GROUP_NONE where the type has no such atom */
    float position[3]; /* Å in the group's frame */
} fm_rigid_atom;

extern const fm_rigid_atom fm_rigid_atoms[FM_N_RESTYPE + 1][FM_N_ATOM14];

/* frames [21, 8, 12]: the rotation row by row, then the translation (Å); zeros where a residue type
 * has no such group, the identity for groups 0 and 1 of those that are known. */
void fm_rigid_ideal_frames(float *ret_frames);

/* C, N, O or S of each atom in Å, 0 where there is none: [21, 14]. */
void fm_rigid_radii(float *ret_radii);

/* bounds [21, 14, 14, 2]: lowest and highest distance (Å); 0 and 0 where an atom is missing or the
 * two are one. deviations: how many are allowed (12); overlap: tolerance of radii (1.5 Å). */
void fm_rigid_distance_bounds(double deviations, double overlap, float *ret_bounds);

#endif
