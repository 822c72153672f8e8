/* sample.h: the features of one complex as arrays of the host, and how they fill the state.
 *
 * The arrays have the names, types and shapes of the stored features. A sample may be smaller than
 * the recorded shapes. The remaining elements are padding, which masks switch off. */
#ifndef FM_TRAINER_AF3_SAMPLE_H
#define FM_TRAINER_AF3_SAMPLE_H

#include "trainer/model/af3/model.h"

typedef struct fm_af3_sample {
    int64_t n_token, n_atom, n_msa, n_template; /* n_msa: all rows; a cycle reads some */
    /* [n_token] */
    const int64_t *asym_id, *entity_id, *sym_id, *residue_index, *token_index;
    const float *restype, *profile; /* [n_token, 32] */
    const float *deletion_mean;     /* [n_token] */
    const float *token_bonds;       /* [n_token, n_token] */
    /* [n_msa, n_token]; classes 0 .. 31 */
    const int64_t *msa;
    const float *has_deletion, *deletion_value;
    /* [n_template, n_token, ..] */
    const int64_t *template_aatype;            /* 0 .. 31 */
    const float *template_distogram;           /* [.., n_token, 39] */
    const float *template_pseudo_beta_mask;    /* [.., n_token] */
    const float *template_unit_vector;         /* [.., n_token, 3] */
    const float *template_backbone_frame_mask; /* [.., n_token] */
    /* In place of the last four: the templates' atoms (proto/chem/template_pairs.h). */
    const float *template_atoms;       /* [n_template, n_token, 4, 3] Å; NULL: there are none */
    const uint8_t *template_atom_mask; /* [n_template, n_token] */
    /* [n_atom] */
    const int64_t *atom_to_token_idx;       /* ascending */
    const int64_t *atom_to_tokatom_idx;     /* slot in the residue's list of atoms */
    const int64_t *distogram_rep_atom_mask; /* 1 for one atom of each token */
    const int64_t *ref_space_uid;
    const float *ref_pos; /* [n_atom, 3] Å */
    const float *ref_charge, *ref_mask;
    const float *ref_element;         /* [n_atom, 128] one-hot */
    const float *ref_atom_name_chars; /* [n_atom, 4, 64] one-hot */
} fm_af3_sample;

/* `put` may be called from several threads for different elements (backend/cpu_threads.h), of
 * tensors that were cleared. */
typedef struct fm_af3_writer {
    fm_state_put *put;
    void *context;
} fm_af3_writer;

/* Writes the features that all cycles share, but for the positions of the reference conformers. The
 * tensors must be zero before. Uses `scratch` and rewinds it. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_af3_write_sample(const fm_af3_sample *sample, const fm_af3_config *config,
                                          const fm_af3_inputs *inputs, const fm_af3_writer *to,
                                          fm_arena *scratch, fm_error *reterr);

/* Writes where the atoms of the reference conformers are, position [n_atom, 3] Å. The tensors must
 * be zero before. */
void fm_af3_write_conformers(int64_t n_atom, const float *position, const fm_af3_inputs *inputs,
                             const fm_af3_writer *to);

/* Writes the features of all template pairs to a tensor [T, N, N, 108], which must be zero before.
 * Only the fields of templates, n_token, n_template and asym_id of the sample are read. Uses
 * `scratch`, for templates of atoms alone, and rewinds it. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_af3_write_templates(const fm_af3_sample *sample, int64_t N, int32_t tensor,
                                             const fm_af3_writer *to, fm_arena *scratch,
                                             fm_error *reterr);

/* Writes the MSA rows of one cycle: rows[0 .. n_row - 1] are row numbers of the sample, and n_row
 * <= config->n_msa. The tensors must be zero before. */
void fm_af3_write_msa(const fm_af3_sample *sample, const fm_af3_config *config,
                      const fm_af3_inputs *inputs, const int64_t *rows, int64_t n_row,
                      const fm_af3_writer *to);

#endif
