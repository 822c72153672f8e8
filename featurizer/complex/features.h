/* features.h: the arrays that AlphaFold 3's network reads of an assembly or of a crop of it.
 *
 * Values and orders are those of docs/reference/complexes.md. One-hot encodings are ids here, and
 * matrices of bonds are pairs. Reference positions are the components' ideal coordinates about the
 * mean over the residue's atoms in the crop. */
#ifndef FM_COMPLEX_FEATURES_H
#define FM_COMPLEX_FEATURES_H

#include "featurizer/arrays.h"
#include "featurizer/complex/assembly.h"

typedef struct fm_complex_pair {
    int32_t a, b; /* a < b */
} fm_complex_pair;

/* T tokens, A atoms, R residues of the crop. All indices but ref_space_uid are of the crop. */
typedef struct fm_complex_features {
    uint32_t n_token, n_atom, n_residue, n_token_bond, n_bond_mask, n_permuted;
    /* [T] */
    int32_t *token_index, *residue_index, *asym_id, *entity_id, *sym_id;
    uint8_t *restype;               /* 0..31 */
    int32_t (*frame_atom_index)[3]; /* -1 where there is none */
    uint8_t *has_frame;
    /* [A] */
    int32_t *atom_to_token_idx, *ref_space_uid, *mol_id, *mol_atom_index, *entity_mol_id;
    uint8_t *atom_to_tokatom_idx;
    uint8_t *is_protein, *is_rna, *is_dna, *is_ligand; /* of its chain */
    uint8_t *pae_rep_atom_mask, *distogram_rep_atom_mask, *plddt_m_rep_atom_mask;
    uint8_t *modified_res_mask, *coordinate_mask, *ref_mask;
    int8_t *ref_charge;
    uint8_t *ref_element;              /* atomic number - 1; 127 where there is none */
    uint8_t (*ref_atom_name_chars)[4]; /* code - 32; 0 behind the name */
    float (*ref_pos)[3];               /* Å */
    float (*coordinate)[3];            /* Å; 0 where coordinate_mask is 0 */
    float *resolution;                 /* [1] Å; -1 when not given */
    fm_complex_pair *token_bonds;      /* tokens, ascending */
    fm_complex_pair *bond_mask; /* atoms of bonds between a polymer and a ligand, ascending */
    /* Symmetries: residue r has permutation_count[r] columns. Its block of permutations is [atoms
     * of r, columns]: the atom of r, from 0, that takes each place. The first is the identity. */
    int32_t *permutation_first_atom; /* [R + 1] */
    int32_t *permutation_count;      /* [R] */
    int16_t *permutations;           /* [n_permuted] */
} fm_complex_features;

/* Where conformers are placed, by ref_space_uid: R (p - mean + t). */
typedef struct fm_complex_placement {
    uint32_t n;                      /* conformers with a larger number stay about the origin */
    const double (*translations)[3]; /* Å */
    const double (*rotations)[3][3];
} fm_complex_placement;

typedef struct fm_complex_feature_options {
    /* Atoms without ideal coordinates get the component's model coordinates. */
    bool use_model_positions;
    /* Permutations may move atoms that are bonded to other residues: the symmetries before a
     * crop. */
    bool moves_bonded_atoms;
    /* Bonds between residues of polymers that are more than one apart, or of two chains, are among
     * the token bonds. */
    bool has_far_bonds;
    const fm_complex_placement *placement; /* NULL: about the origin */
} fm_complex_feature_options;

enum { FM_COMPLEX_FEATURE_ARRAYS = 35 };

/* Computes the features of these tokens of a tokenized assembly, ascending; of all of them for
 * tokens == NULL. options may be NULL. Everything is in the arena. Returns FM_ERR_LIMIT when the
 * arena is full. */
FM_MUST_USE fm_status fm_complex_features_make(const fm_assembly *assembly, const uint32_t *tokens,
                                               uint32_t n_token,
                                               const fm_complex_feature_options *options,
                                               fm_arena *arena, fm_complex_features *ret_features,
                                               fm_error *reterr);

/* Lists the features under the reference's names, each after `prefix` ("features/"). Keys are in
 * the arena, data are those of `features`. Returns FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_complex_features_list(const fm_complex_features *features,
                                               const char *prefix, fm_arena *arena,
                                               fm_array ret_arrays[FM_COMPLEX_FEATURE_ARRAYS],
                                               size_t *ret_n, fm_error *reterr);

#endif
