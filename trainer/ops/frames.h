/* frames.h: the backbone frames through the iterations of the structure module, and the rigid
 * groups and atoms that are built on them.
 *
 *     identity        the frames of the first iteration                                   A20:4
 *     update          frames rotated and moved by six numbers per residue               A20:10, A23
 *     stop rotation   passes frames on without a gradient of the rotation                 A20:19
 *     atoms           rigid groups and atoms from backbone and torsion angles   A20:24-25, A24, A25
 *     stack           the tensors of all iterations under one leading axis, for the losses
 *
 * Frames [N_res, 7] are a quaternion (w, x, y, z) of length one and a translation in units of 10 Å.
 */
#ifndef FM_TRAINER_FRAMES_H
#define FM_TRAINER_FRAMES_H

#include "trainer/autograd/tape.h"

enum { FM_N_GROUP = 8, FM_N_ATOM = 14, FM_UPDATE = 6 };

/* Returns frames without rotation and translation. */
fm_tensor_ref fm_op_identity_frames(fm_tape *tape, int64_t n_res);

/* update [N_res, 6]: b, c, d of a quaternion (1, b, c, d), then a translation in the coordinates of
 * the frame. */
fm_tensor_ref fm_op_frame_update(fm_tape *tape, fm_tensor_ref frames, fm_tensor_ref update);

fm_tensor_ref fm_op_stop_rotation(fm_tape *tape, fm_tensor_ref frames);

/* Tensors of the state: the tables of proto/chem/rigid_groups.h. */
typedef struct fm_atom_tables {
    fm_tensor_ref group_frames, atom_positions, atom_group;
} fm_atom_tables;

typedef struct fm_atoms {
    fm_tensor_ref groups; /* [N_res, 8, 12] rotation row by row, translation, Å */
    fm_tensor_ref atoms;  /* [N_res, 14, 3] Å */
} fm_atoms;

/* angles [.., N_res, 7, 2], of which the last [N_res, 7, 2] are read; aatype u8 [N_res];
 * position_scale: Å in one unit of translation, 10. Without angles (FM_TENSOR_NONE, on a tape
 * without gradient) all angles are 0, and only the atoms of the backbone's rigid group, N CA C CB,
 * are those of a prediction. */
fm_atoms fm_op_atoms(fm_tape *tape, fm_tensor_ref frames, fm_tensor_ref angles,
                     fm_tensor_ref aatype, const fm_atom_tables *tables, double position_scale);

/* Stacks parts[0 .. n_part-1] of one shape [..] to [n_part, ..]. */
fm_tensor_ref fm_op_stack(fm_tape *tape, const fm_tensor_ref *parts, int n_part);

/* Writes to `to` f32 [N_res, 3], a tensor of the state, the CB of atoms [N_res, 14, 3], or the CA
 * of glycine. It has no gradient. */
void fm_op_store_pseudo_beta(fm_tape *tape, fm_tensor_ref atoms, fm_tensor_ref aatype,
                             fm_tensor_ref to);

#endif
