/* schema.c: the feature table; see schema.h. */
#include "proto/schema.h"

#include "proto/base/hash.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    U8 = 1 << FM_U8,
    U16 = 1 << FM_U16,
    U32 = 1 << FM_U32,
    U64 = 1 << FM_U64,
    I32 = 1 << FM_I32,
    F32 = 1 << FM_F32,
    I8 = 1 << FM_I8,
    I16 = 1 << FM_I16,
    TEXT_BYTES = 8192, /* size of the table's hashed text; asserted */
};

static const fm_tensor_rule rules[] = {
    {FM_T_AATYPE, "aatype", 0, U8, "N_res", "residue type, ARNDCQEGHILKMFPSTWYV then X = 20"},
    {FM_T_RESIDUE_INDEX, "residue_index", 0, I32, "N_res",
     "position in the uncropped chain, from 0"},
    {FM_T_ALL_ATOM_POSITIONS, "all_atom_positions", 0, F32, "N_res 37 3",
     "atom37 coordinates in angstrom, zeros where absent"},
    {FM_T_ALL_ATOM_MASK, "all_atom_mask", 0, U64, "N_res", "bit a: atom37 a is present"},
    {FM_T_CONFIDENCE, "confidence", 0, F32, "N_res", "pLDDT of a predicted structure"},
    {FM_T_TEMPLATE_AATYPE, "template_aatype", 0, U8, "N_templ N_res",
     "residue type of the template's residue, 0..20, gap = 21"},
    {FM_T_TEMPLATE_ALL_ATOM_POSITIONS, "template_all_atom_positions", 0, F32, "N_templ N_res 37 3",
     "atom37 coordinates in angstrom, the template's centre at 0, zeros where absent"},
    {FM_T_TEMPLATE_ALL_ATOM_MASK, "template_all_atom_mask", 0, U64, "N_templ N_res",
     "bit a: atom37 a is present"},
    {FM_T_TEMPLATE_SUM_PROBS, "template_sum_probs", 0, F32, "N_templ",
     "sum of the search's probabilities, 0 when it gives none"},
    {FM_T_MSA, "msa", 1, U8, "N_clust N_res", "cluster centres after masking, 0..22"},
    {FM_T_TRUE_MSA, "true_msa", 1, U8, "N_clust N_res", "cluster centres before masking, 0..21"},
    {FM_T_BERT_MASK, "bert_mask", 1, U8, "ceil(N_clust*N_res/8)",
     "bit k%8 of byte k/8: position k was chosen for masking"},
    {FM_T_DELETION_MATRIX, "deletion_matrix", 1, U16, "N_clust N_res", "deletions of the centres"},
    {FM_T_CLUSTER_PROFILE, "cluster_profile", 1, U8 | U16 | U32, "N_clust N_res 23",
     "counts of each class over centre and members"},
    {FM_T_CLUSTER_DELETION_SUM, "cluster_deletion_sum", 1, U32, "N_clust N_res",
     "deletions summed over centre and members"},
    {FM_T_CLUSTER_SIZE, "cluster_size", 1, U32, "N_clust", "centre and members"},
    {FM_T_EXTRA_MSA, "extra_msa", 1, U8, "N_extra N_res", "rows that are no centres, 0..21"},
    {FM_T_EXTRA_DELETION_MATRIX, "extra_deletion_matrix", 1, U16, "N_extra N_res",
     "deletions of the extra rows"},
    {FM_T_TOKEN_INDEX, "token_index", 0, I32, "N_token", "the token's number in the crop"},
    {FM_T_RESIDUE_NUMBER, "residue_index", 0, I32, "N_token",
     "number of the residue in its chain, from 1"},
    {FM_T_ASYM_ID, "asym_id", 0, I32, "N_token", "the chain"},
    {FM_T_ENTITY_ID, "entity_id", 0, I32, "N_token", "the chain's entity"},
    {FM_T_SYM_ID, "sym_id", 0, I32, "N_token", "which copy of the entity"},
    {FM_T_RESTYPE, "restype", 0, U8, "N_token", "class of the residue, 0..31"},
    {FM_T_FRAME_ATOM_INDEX, "frame_atom_index", 0, I32, "N_token 3",
     "atoms of the frame, -1 where there is none"},
    {FM_T_HAS_FRAME, "has_frame", 0, U8, "N_token", "0 or 1"},
    {FM_T_TOKEN_NUMBER, "token_number", 0, I32, "N_token",
     "place in its chain before the crop, from 0"},
    {FM_T_PROFILE, "profile", 0, F32, "N_token 32", "share of each class in the chain's rows"},
    {FM_T_DELETION_MEAN, "deletion_mean", 0, F32, "N_token",
     "mean count of deletions in the chain's rows"},
    {FM_T_TOKEN_BONDS_PAIRS, "token_bonds_pairs", 0, I32, "N_token_bond 2",
     "bonded tokens, ascending"},
    {FM_T_ATOM_TO_TOKEN_IDX, "atom_to_token_idx", 0, I32, "N_atom", "the atom's token, ascending"},
    {FM_T_ATOM_TO_TOKATOM_IDX, "atom_to_tokatom_idx", 0, U8, "N_atom",
     "place in its standard residue, 0..23"},
    {FM_T_REF_SPACE_UID, "ref_space_uid", 0, I32, "N_atom", "one number for each residue"},
    {FM_T_MOL_ID, "mol_id", 0, I32, "N_atom", "the molecule"},
    {FM_T_MOL_ATOM_INDEX, "mol_atom_index", 0, I32, "N_atom", "place in the molecule"},
    {FM_T_ENTITY_MOL_ID, "entity_mol_id", 0, I32, "N_atom", "the kind of molecule"},
    {FM_T_IS_PROTEIN, "is_protein", 0, U8, "N_atom", "0 or 1"},
    {FM_T_IS_RNA, "is_rna", 0, U8, "N_atom", "0 or 1"},
    {FM_T_IS_DNA, "is_dna", 0, U8, "N_atom", "0 or 1"},
    {FM_T_IS_LIGAND, "is_ligand", 0, U8, "N_atom", "0 or 1"},
    {FM_T_PAE_REP_ATOM_MASK, "pae_rep_atom_mask", 0, U8, "N_atom", "0 or 1: centre of its token"},
    {FM_T_DISTOGRAM_REP_ATOM_MASK, "distogram_rep_atom_mask", 0, U8, "N_atom",
     "0 or 1: stands for its token"},
    {FM_T_PLDDT_M_REP_ATOM_MASK, "plddt_m_rep_atom_mask", 0, U8, "N_atom",
     "0 or 1: CA or C1' of a residue"},
    {FM_T_MODIFIED_RES_MASK, "modified_res_mask", 0, U8, "N_atom", "0 or 1: of a modified residue"},
    {FM_T_COORDINATE_MASK, "coordinate_mask", 0, U8, "N_atom", "0 or 1: the position is known"},
    {FM_T_COORDINATE, "coordinate", 0, F32, "N_atom 3",
     "positions in angstrom, zeros where not known"},
    {FM_T_REF_MASK, "ref_mask", 0, U8, "N_atom", "0 or 1: the reference position is known"},
    {FM_T_REF_CHARGE, "ref_charge", 0, I8, "N_atom", "formal charge"},
    {FM_T_REF_ELEMENT, "ref_element", 0, U8, "N_atom",
     "atomic number - 1, 127 where there is none"},
    {FM_T_REF_ATOM_NAME_CHARS, "ref_atom_name_chars", 0, U8, "N_atom 4",
     "codes of the name - 32, 0 behind it"},
    {FM_T_REF_POS, "ref_pos", 0, F32, "N_atom 3", "reference positions in angstrom"},
    {FM_T_BOND_MASK_PAIRS, "bond_mask_pairs", 0, I32, "N_bond_mask 2",
     "atoms of bonds of polymers and ligands, ascending"},
    {FM_T_RESOLUTION, "resolution", 0, F32, "1", "angstrom, -1 when not known"},
    {FM_T_ATOM_PERM_FIRST_ATOM, "atom_perm/first_atom", 0, I32, "N_group+1",
     "first atom of each residue, and the end"},
    {FM_T_ATOM_PERM_COUNT, "atom_perm/count", 0, I32, "N_group", "symmetries of each residue"},
    {FM_T_ATOM_PERM_DATA, "atom_perm/data", 0, I16, "N_order",
     "a block [atoms, symmetries] for each residue"},
    {FM_T_COMPLEX_TEMPLATE_AATYPE, "template_aatype", 0, U8, "N_templ N_token",
     "class of the template's residue, 0..31"},
    {FM_T_COMPLEX_TEMPLATE_ATOMS, "template_atoms", 0, F32, "N_templ N_token 4 3",
     "N, CA, C and CB in angstrom, zeros where absent"},
    {FM_T_COMPLEX_TEMPLATE_ATOM_MASK, "template_atom_mask", 0, U8, "N_templ N_token",
     "bit k: atom k is there"},
    {FM_T_COMPLEX_MSA, "msa", 1, U8, "N_row N_token", "rows of the cycle, 0..31"},
    {FM_T_COMPLEX_DELETION, "deletion", 1, U8, "N_row N_token", "letters deleted before, 0..127"},
};

size_t fm_dtype_bytes(uint32_t dtype) {
    switch (dtype) {
    case FM_U8:
    case FM_I8: return 1;
    case FM_U16:
    case FM_I16: return 2;
    case FM_U32:
    case FM_I32:
    case FM_F32: return 4;
    case FM_U64: return 8;
    default: return 0;
    }
}

const char *fm_dtype_name(uint32_t dtype) {
    static const char *const names[] = {"?", "u8", "u16", "u32", "u64", "i32", "f32", "i8", "i16"};
    return dtype < sizeof names / sizeof names[0] ? names[dtype] : "?";
}

const char *fm_dtype_numpy(uint32_t dtype) {
    static const char *const names[] = {"?",   "|u1", "<u2", "<u4", "<u8",
                                        "<i4", "<f4", "|i1", "<i2"};
    return dtype < sizeof names / sizeof names[0] ? names[dtype] : "?";
}

const fm_tensor_rule *fm_schema_rules(size_t *ret_count) {
    *ret_count = sizeof rules / sizeof rules[0];
    return rules;
}

const fm_tensor_rule *fm_schema_find(uint32_t id) {
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if ((uint32_t)rules[i].id == id) return &rules[i];
    }
    return NULL;
}

const fm_tensor_rule *fm_schema_find_named(fm_sample_kind kind, const char *name) {
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (fm_schema_kind(rules[i].id) == kind && strcmp(rules[i].name, name) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

fm_packing fm_schema_packing(uint32_t id) {
    if (id == FM_T_COMPLEX_MSA) return FM_PACKED_CLASSES;
    return id == FM_T_COMPLEX_DELETION ? FM_PACKED_COUNTS : FM_PLAIN;
}

uint64_t fm_schema_hash(void) {
    char text[TEXT_BYTES];
    size_t at = 0;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        static const char *const packings[] = {"", " classes", " counts"};
        int n = snprintf(text + at, sizeof text - at, "%u %s %u %u %s%s\n", (unsigned)rules[i].id,
                         rules[i].name, rules[i].per_cycle, rules[i].dtypes, rules[i].shape,
                         packings[fm_schema_packing(rules[i].id)]);
        assert(n > 0 && (size_t)n < sizeof text - at);
        at += (size_t)n;
    }
    return fm_xxh3(text, at);
}
