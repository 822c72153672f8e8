/* frames.h: rigid frames from three atoms, and the eight rigid groups of a residue.
 *
 * A frame is a rotation and a translation from its own coordinates to those of the structure. Three
 * points define it by Gram-Schmidt. The second is the origin, the first is on the negative x axis,
 * and the third is in the xy plane with y > 0. Squared lengths get 1e-8 added under the root, so
 * that coinciding points give a defined, if meaningless, frame.
 *
 * A residue has eight groups of atoms that move as one:
 *
 *     0      backbone   from C, CA, N, with x and z reversed, so that C is on the positive x axis
 *     1      pre-omega  without atoms
 *     2      phi        without atoms
 *     3      psi        from CA, C, O
 *     4..7   chi1..chi4 from the last three of the angle's four atoms
 *
 * The alternative frames are turned by 180 degrees about x for the last chi of Asp, Glu, Phe and
 * Tyr.
 *
 * Source: Jumper et al. 2021, supplementary algorithm 21 and tables 2 and 3. */
#ifndef FM_CHEM_FRAMES_H
#define FM_CHEM_FRAMES_H

#include "proto/chem/atom37.h"

enum {
    FM_N_RIGID_GROUP = 8,
    FM_RIGID_BACKBONE = 0,
    FM_RIGID_PSI = 3,
    FM_RIGID_CHI1 = 4,
};

typedef struct fm_rigid {
    float rotation[3][3]; /* [row][column]; the columns are the frame's axes */
    float translation[3]; /* Å */
} fm_rigid;

/* Returns the frame of three points of [3] floats in Å. */
fm_rigid fm_rigid_from_points(const float *negative_x, const float *origin, const float *xy_plane);

/* Applies the inverse frame to a point, which gives its coordinates in the frame. point and
 * ret_local are [3] and must not overlap. */
void fm_rigid_to_local(const fm_rigid *rigid, const float *point, float *ret_local);

typedef struct fm_rigid_groups {
    float *rigidgroups_gt_frames;          /* [N_res, 8, 4, 4] homogeneous matrices */
    float *rigidgroups_gt_exists;          /* [N_res, 8] 1 where all three atoms have coordinates */
    float *rigidgroups_group_exists;       /* [N_res, 8] 1 where the residue type has the group */
    float *rigidgroups_group_is_ambiguous; /* [N_res, 8] */
    float *rigidgroups_alt_gt_frames;      /* [N_res, 8, 4, 4] */
} fm_rigid_groups;

/* Fills the caller's arrays. Groups that do not exist and atoms without coordinates give
 * meaningless frames, computed from the stored coordinates as in the reference. */
void fm_rigid_list_groups(const fm_atom37 *chain, const fm_rigid_groups *ret_groups);

/* Fills group 0 alone: backbone_rigid_tensor [N_res, 4, 4] and backbone_rigid_mask [N_res]. */
void fm_rigid_list_backbone(const fm_atom37 *chain, float *ret_tensor, float *ret_mask);

#endif
