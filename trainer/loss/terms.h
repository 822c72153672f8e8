/* terms.h: the terms of the loss, as one table. A row is the only place that names a term. It has
 * the term's key in section [loss] of a configuration, which is also its name in the metrics. Its
 * needs follow, and the function that records it, which is in a separate file. Configuration,
 * weights, totals, metrics and the printed line follow the table.
 *
 * To add a term: write its file with fm_loss_NAME, add a row below, give the key a value in
 * presets/af2-initial.ini, and add its inputs to fm_loss_inputs. */
#ifndef FM_TRAINER_LOSS_TERMS_H
#define FM_TRAINER_LOSS_TERMS_H

#include "trainer/loss/losses.h"
#include "trainer/loss/structure_losses.h"
#include "trainer/ops/plddt.h"

/* What a term needs beside the trunk. */
enum {
    FM_LOSS_STRUCTURE = 1,     /* a structure module */
    FM_LOSS_ALIGNED_ERROR = 2, /* the aligned error (pTM) head */
    FM_LOSS_RESOLUTION = 4 /* a sample of known resolution, 0.1 to 3 Å; else it weighs 0 (1.9.6) */
};

/* X(TERM, name, needs, turn, help): the enumerator is FM_TERM_<TERM>; `turn` orders the recording,
 * and with it the order in which gradients are summed. Sums, metrics and configuration follow the
 * order of the rows. A new term takes the next turn. */
#define FM_LOSS_TERM_LIST(X)                                                                       \
    X(DISTOGRAM, distogram, 0, 0, "Weight of the distogram loss (supplement 1.9.8).")              \
    X(MASKED_MSA, masked_msa, 0, 1, "Weight of the masked MSA loss (supplement 1.9.9).")           \
    X(BACKBONE, backbone_fape, FM_LOSS_STRUCTURE, 2,                                               \
      "Weight of the backbone FAPE over all iterations (supplement 1.9.2).")                       \
    X(SIDE_CHAIN, side_chain_fape, FM_LOSS_STRUCTURE, 4,                                           \
      "Weight of the side chain FAPE of the last iteration (Algorithm 20, line 28).")              \
    X(TORSION, torsion, FM_LOSS_STRUCTURE, 3,                                                      \
      "Weight of the torsion angle loss over all iterations (supplement 1.9.1).")                  \
    X(PLDDT, plddt, FM_LOSS_STRUCTURE | FM_LOSS_RESOLUTION, 6,                                     \
      "Weight of the pLDDT loss (supplement 1.9.6), for structures of known resolution from 0.1 "  \
      "to 3 Å.")                                                                                   \
    X(RESOLVED, resolved, FM_LOSS_STRUCTURE | FM_LOSS_RESOLUTION, 7,                               \
      "Weight of the experimentally resolved loss (supplement 1.9.10), for structures of known "   \
      "resolution from 0.1 to 3 Å.")                                                               \
    X(ALIGNED_ERROR, aligned_error,                                                                \
      FM_LOSS_STRUCTURE | FM_LOSS_ALIGNED_ERROR | FM_LOSS_RESOLUTION, 8,                           \
      "Weight of the aligned error loss (supplement 1.9.7), for structures of known resolution "   \
      "from 0.1 to 3 Å.")                                                                          \
    X(VIOLATION, violation, FM_LOSS_STRUCTURE, 5,                                                  \
      "Weight of the structural violation loss (supplement 1.9.11).")

#define FM_LOSS_ENUMERATOR(term, name, needs, turn, help) FM_TERM_##term,
enum { FM_LOSS_TERM_LIST(FM_LOSS_ENUMERATOR) FM_LOSS_TERMS };
#undef FM_LOSS_ENUMERATOR

/* What the terms read: tensors of the last cycle's tape, in its island, and the heads' weights. */
typedef struct fm_loss_inputs {
    int64_t n_res, n_distogram_bin;
    fm_tensor_ref m;                             /* [N_seq + N_templ, N_res, c_m] */
    fm_tensor_ref z, single;                     /* [N_res, N_res, c_z], [N_res, c_s] */
    fm_tensor_ref true_msa, bert_mask;           /* i32 and act [N_clust, N_res] */
    fm_tensor_ref pseudo_beta, pseudo_beta_mask; /* f32 [N_res, 3] Å, f32 [N_res] */
    fm_linear_weights distogram_head, masked_msa_head;
    /* The fields below are set where there is a structure module. */
    bool has_structure;
    int64_t n_aligned_error_bin; /* 0: no such head */
    double position_scale;       /* Å in one unit of the frames' translations */
    fm_tensor_ref s;             /* [N_res, c_s], which the pLDDT head reads */
    fm_tensor_ref frames, last_frames, angles, unnormalised; /* fm_structure_outputs */
    fm_tensor_ref groups, atoms; /* [N_res, 8, 12], [N_res, 14, 3] of the last iteration */
    fm_tensor_ref backbone_frames, backbone_mask, clamped; /* f32 [N_res, 4, 4], [N_res], [1] */
    fm_side_chain_truth side_chain;
    fm_torsion_truth torsion;
    fm_violation_inputs violation;
    fm_tensor_ref ca_positions, ca_mask;        /* f32 [N_res, 3], [N_res] */
    fm_tensor_ref atoms_seen, atoms_of_residue; /* all_atom_mask, atom37_atom_exists [N_res, 37] */
    fm_plddt_weights plddt_head;
    fm_linear_weights resolved_head, aligned_error_head;
} fm_loss_inputs;

/* fm_loss_NAME records a term, its head included, and returns it: acc [1], unweighted. */
#define FM_LOSS_DECLARATION(term, name, needs, turn, help)                                         \
    fm_tensor_ref fm_loss_##name(fm_tape *tape, const fm_loss_inputs *in);
FM_LOSS_TERM_LIST(FM_LOSS_DECLARATION)
#undef FM_LOSS_DECLARATION

typedef struct fm_loss_term {
    const char *name;
    unsigned needs;
    int turn;
    fm_tensor_ref (*record)(fm_tape *tape, const fm_loss_inputs *in);
} fm_loss_term;

extern const fm_loss_term fm_loss_terms[FM_LOSS_TERMS];

/* Records all terms that the model has and their weighted sum, and returns the sum: acc [1]. The
 * array factors, f64 [FM_LOSS_TERMS] in device memory, has one entry for each term that the model
 * has, in the order of the rows. The entry ret_terms[FM_TERM_...] is FM_TENSOR_NONE for a term that
 * the model does not have. */
fm_tensor_ref fm_loss_record(fm_tape *tape, const fm_loss_inputs *in, fm_tensor_ref factors,
                             fm_tensor_ref ret_terms[FM_LOSS_TERMS]);

/* Whether a sample of that resolution (Å, 0: not known) adds to the term. */
bool fm_loss_counts(int term, float resolution);

/* Fills the factors of the recorded terms: weight * scale, or 0 for a term that needs a resolution
 * when `resolution` (Å, 0: not known) is not in its range. */
void fm_loss_put_factors(const fm_tensor_ref terms[FM_LOSS_TERMS],
                         const double weights[FM_LOSS_TERMS], double scale, float resolution,
                         double *factors);

#endif
