/* structure_operands.h: operand structs of the kernels of the structure module and of the losses on
 * structures. The rules of kernels.h hold. */
#ifndef FM_BACKEND_STRUCTURE_OPERANDS_H
#define FM_BACKEND_STRUCTURE_OPERANDS_H

#include "trainer/backend/element.h"

/* -- invariant point attention (A22) */

/* A frame has seven numbers: a quaternion (w, x, y, z) and a translation. A matrix frame has
 * twelve: a rotation, row by row, and a translation. */
enum { FM_FRAME = 7, FM_MATRIX_FRAME = 12 };

/* The part of A22 between its linear layers. A row of `projections` holds, in this order,
 *     q          [n_head, c]
 *     k and v    [n_head, 2, c]
 *     q points   [3, n_head, n_qk]           coordinates in the residue's own frame
 *     kv points  [3, n_head, n_qk + n_v]
 * and a row of y
 *     o [n_head, c], points [3, n_head, n_v], their lengths [n_head, n_v], pair [n_head, c_z].
 *
 *     logit[h, i, j] = <q, k> / sqrt(3 c) + bias[i, j, h] / sqrt(3)
 *                      - softplus(head_weights[h]) sqrt(2 / (27 n_qk)) / 2
 *                        sum_p |T_i q_p - T_j k_p|^2 + mask_value (mask_i mask_j - 1)
 *
 * The logits of a masked query omit the last term: it is the same for all keys and changes no
 * weight. Each query and head has in lse the largest logit, and 1 over the sum of exponentials. */
typedef struct fm_ipa {
    int64_t n, n_head, c, n_qk, n_v, c_z;
    int64_t ld;               /* of projections */
    double mask_value, eps;   /* 1e5; 1e-8 under the root of a length */
    const void *projections;  /* act [n, ld] */
    const void *bias;         /* act [n, n, n_head] */
    const void *z;            /* act [n, n, c_z] */
    const void *frames;       /* act [n, 7] */
    const void *mask;         /* act [n] */
    const void *head_weights; /* act [n_head] */
    void *y;                  /* act [n, n_head * (c + 4 n_v + c_z)]; backward reads its points */
    void *lse;                /* acc [n, n_head, 2] */
} fm_ipa;

typedef struct fm_ipa_grad {
    const void *dy;       /* act, like y */
    void *dprojections;   /* act [n, ld], written */
    fm_out dbias;         /* act [n, n, n_head] */
    fm_out dz, dframes;   /* act; dframes is by the quaternion itself, not by its direction */
    fm_out dhead_weights; /* acc [n_head] */
} fm_ipa_grad;

/* -- frames and atoms (A23-A25) */

/* Makes the frames of all eight rigid groups and the positions of all atoms from a backbone frame
 * and seven torsion angles, given as sine and cosine. The frame of a group is its ideal frame,
 * turned about x by its angle, in the frame of its parent. The parent is the backbone for groups 1
 * to 4, and the group before for 5 to 7. The tables are those of proto/chem/rigid_groups.h. Atoms
 * that a residue type does not have are at 0. */
typedef struct fm_residue_atoms {
    int64_t n;
    double position_scale;       /* Å per unit of the frames' translations: 10 */
    const void *frames;          /* act [n, 7] */
    const void *angles;          /* act [n, 7, 2]; NULL, forward only: all are 0 */
    const uint8_t *aatype;       /* [n] 0..20 */
    const float *group_frames;   /* [21, 8, 12] */
    const float *atom_positions; /* [21, 14, 3] */
    const uint8_t *atom_group;   /* [21, 14]; above 7: no group */
    void *groups;                /* act [n, 8, 12]; forward only */
    void *atoms;                 /* act [n, 14, 3] Å; forward only */
} fm_residue_atoms;

/* -- losses on structures */

/* A28. Positions in Å; target frames are homogeneous matrices as the features have them.
 *     error[f, p] = sqrt(|T_f^-1 x_p - T*_f^-1 x*_p|^2 + eps)
 *     loss = mean over batches of sum_f,p mask_f mask_p min(error, clamp) / length_scale
 *            / (eps + sum mask_f) / (eps + sum mask_p)
 * `clamped` weighs the error that is cut at `clamp` against the one that is not: 1 cuts, 0 does not
 * cut, and values between mix the two. When points is NULL, the points are the translations of the
 * frames (the backbone), also in the target, and their gradient goes into dframes. dframes always
 * has a place. */
typedef struct fm_fape {
    int64_t n_batch, n_frame, n_point;
    double clamp, length_scale, eps; /* 10 Å, 10 Å, 1e-4 */
    const void *frames;              /* act [n_batch, n_frame, 12] */
    const void *points;              /* act [n_batch, n_point, 3] */
    const float *target_frames;      /* [n_frame, 4, 4] */
    const float *target_points;      /* [n_point, 3] */
    const float *frame_mask, *point_mask;
    const float *clamped; /* [1] in device memory; NULL: 1 */
    void *loss;           /* acc [1]; forward only */
} fm_fape;

/* A26. Some atoms of a residue may exchange their names. For each residue this takes the
 * alternative naming of the ground truth when it fits the predicted distances between the residue's
 * ambiguous atoms and all unambiguous atoms better. */
typedef struct fm_naming {
    int64_t n;
    const void *atoms;                              /* act [n, 14, 3] */
    const float *positions, *alt_positions;         /* [n, 14, 3] */
    const float *exists, *alt_exists;               /* [n, 14] */
    const float *is_ambiguous;                      /* [n, 14] */
    const float *frames, *alt_frames;               /* [n, 8, 4, 4] */
    float *ret_positions, *ret_exists, *ret_frames; /* like positions, exists, frames */
} fm_naming;

/* A27, over all iterations:
 *     loss = chi_weight * the mean squared distance of the chi angles on the circle
 *            + norm_weight * mean | |unnormalised| - 1 |
 * For a pi_periodic angle the distance to the angle or to its opposite counts, whichever is
 * smaller. */
typedef struct fm_torsion_loss {
    int64_t n_batch, n;                /* iterations, residues */
    double chi_weight, norm_weight;    /* 0.5, 0.01 */
    double eps;                        /* 1e-8 under the root of a length */
    const void *angles, *unnormalised; /* act [n_batch, n, 7, 2] */
    const float *chi, *chi_mask;       /* [n, 4, 2], [n, 4] */
    const float *seq_mask;             /* [n] */
    const uint8_t *aatype;             /* [n] 0..20 */
    const uint8_t
        *pi_periodic; /* [21]: bit c is set when chi c + 1 is the same after 180 degrees */
    void *loss;       /* acc [1]; forward only */
} fm_torsion_loss;

/* Makes the class of each residue's lDDT-Ca (supplement 1.9.6) and its weight, which are operands
 * of cross_entropy. */
typedef struct fm_lddt_bins {
    int64_t n;
    int32_t n_bin;          /* 50 */
    double cutoff, eps;     /* 15 Å, 1e-8 */
    const void *atoms;      /* act [n, 14, 3]; only CA is read */
    const float *positions; /* [n, 3]: true CA */
    const float *mask;      /* [n] */
    int32_t *target;        /* [n] */
    void *w;                /* act [n] */
} fm_lddt_bins;

/* Makes the class of |T_i^-1 x_j - T*_i^-1 x*_j| (supplement 1.9.7) and its weight. There are
 * n_bin - 1 boundaries, evenly spaced from 0 to last. */
typedef struct fm_aligned_error_bins {
    int64_t n;
    int32_t n_bin;              /* 64 */
    double last;                /* 31 Å */
    const void *frames;         /* act [n, 12] Å */
    const float *target_frames; /* [n, 4, 4] */
    const float *mask;          /* [n] */
    int32_t *target;            /* [n, n] */
    void *w;                    /* act [n, n] */
} fm_aligned_error_bins;

/* loss = sum w (log(1 + e^x) - label x) / (eps + sum w): supplement 1.9.10. */
typedef struct fm_binary_entropy {
    int64_t n;
    double eps;             /* 1e-8 */
    const void *x;          /* act [n] */
    const float *label, *w; /* [n] */
    void *loss;             /* acc [1]; forward only */
} fm_binary_entropy;

/* Supplement 1.9.11: violations of peptide bonds and of the angles at C and at N, and clashes
 * between and within residues. The tables are those of proto/chem/rigid_groups.h. */
typedef struct fm_violation {
    int64_t n;
    double tolerance_factor, overlap_tolerance; /* 12 standard deviations, 1.5 Å */
    double eps;                                 /* 1e-8, added to the number of atoms */
    const void *atoms;                          /* act [n, 14, 3] Å */
    const float *exists;                        /* [n, 14] */
    const int32_t *residue_index;               /* [n] */
    const uint8_t *aatype;                      /* [n] 0..20 */
    const float *radii;                         /* [21, 14] */
    const float *bounds;                        /* [21, 14, 14, 2] */
    void *loss;                                 /* acc [1]; forward only */
    void *terms; /* acc [4]: bonds, angles at C, angles at N, clashes; forward only */
} fm_violation;

#endif
