/* structure_module.h: the structure module (A20): its constant tables and its recording.
 *
 *     s = LayerNorm(single), z = LayerNorm(pair), s = Linear(s), frames = identity     A20:1-4
 *     n_iteration times, with the same weights                                         A20:5
 *         s = LayerNorm(dropout(s + ipa(s, z, frames)))                                A20:6-7
 *         s = LayerNorm(dropout(s + transition(s)))                                    A20:8-9
 *         frames = frames o update(Linear(s))                                          A20:10
 *         rotations pass to the next iteration without gradient                        A20:19-20
 *     angles of all iterations from s of each and the first s                          A20:11-14
 *     atoms of the last iteration from its frames and angles                           A20:24-25
 *
 * The pair bias of the attention is the same in all iterations and is made once. The losses read
 * the frames and angles of all iterations, stacked. A cycle that only hands its pseudo-beta
 * positions on needs the frames of the last iteration alone: CB belongs to the backbone's rigid
 * group. */
#ifndef FM_TRAINER_MODEL_STRUCTURE_H
#define FM_TRAINER_MODEL_STRUCTURE_H

#include "trainer/dist/comm.h"
#include "trainer/model/parameters.h"
#include "trainer/ops/frames.h"

/* Constant tables, by their positions in the state (proto/chem/rigid_groups.h). */
typedef struct fm_structure_tables {
    int32_t group_frames, atom_positions, atom_group; /* f32 [21, 8, 12], f32 [21, 14, 3], u8 */
    int32_t radii, bounds, pi_periodic; /* f32 [21, 14], f32 [21, 14, 14, 2], u8 [21] */
} fm_structure_tables;

void fm_structure_declare_tables(fm_state *state, fm_structure_tables *ret_tables);
/* Call it once, after fm_state_allocate. */
void fm_structure_upload_tables(const fm_state *state, const fm_structure_tables *tables);

typedef struct fm_structure_outputs {
    fm_tensor_ref frames;               /* [n_iteration, N_res, 7]; not with backbone_only */
    fm_tensor_ref last_frames;          /* [N_res, 7] */
    fm_tensor_ref angles, unnormalised; /* [n_iteration, N_res, 7, 2]; not with backbone_only */
    fm_atoms atoms;                     /* of the last iteration; N CA C CB with backbone_only */
    fm_tensor_ref s;                    /* [N_res, c_s], which the pLDDT head reads */
} fm_structure_outputs;

/* `pair` is whole, or this rank's part of it. A part is gathered after its LayerNorm, so only one
 * whole array of pairs exists. On a tape that works slab by slab, `pair` may have the type outside
 * the island. */
typedef struct fm_structure_inputs {
    const fm_structure_tables *tables;
    fm_tensor_ref single; /* [N_res, c_s] */
    fm_tensor_ref pair;   /* [N_res, N_res, c_z] */
    fm_comm *others;      /* the ranks that have the other parts of `pair`; NULL: it is whole */
    fm_tensor_ref aatype; /* u8 [N_res] */
    fm_tensor_ref mask;   /* act [N_res] */
} fm_structure_inputs;

/* Records the module. backbone_only, on a tape without gradient: the torsion angles are not made.
 */
fm_structure_outputs fm_structure_record(fm_tape *tape, const fm_structure_config *config,
                                         const fm_structure_weights *weights,
                                         const fm_structure_inputs *inputs, bool backbone_only);

#endif
