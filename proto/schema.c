/* schema.c: the feature table; see schema.h. */
#include "proto/schema.h"

#include "proto/base/hash.h"

#include <assert.h>
#include <stdio.h>

enum {
    U8 = 1 << FM_U8,
    U16 = 1 << FM_U16,
    U32 = 1 << FM_U32,
    U64 = 1 << FM_U64,
    I32 = 1 << FM_I32,
    F32 = 1 << FM_F32,
    TEXT_BYTES = 4096, /* size of the table's hashed text; asserted */
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
};

size_t fm_dtype_bytes(uint32_t dtype) {
    switch (dtype) {
    case FM_U8: return 1;
    case FM_U16: return 2;
    case FM_U32:
    case FM_I32:
    case FM_F32: return 4;
    case FM_U64: return 8;
    default: return 0;
    }
}

const char *fm_dtype_name(uint32_t dtype) {
    static const char *const names[] = {"?", "u8", "u16", "u32", "u64", "i32", "f32"};
    return dtype < sizeof names / sizeof names[0] ? names[dtype] : "?";
}

const char *fm_dtype_numpy(uint32_t dtype) {
    static const char *const names[] = {"?", "|u1", "<u2", "<u4", "<u8", "<i4", "<f4"};
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

uint64_t fm_schema_hash(void) {
    char text[TEXT_BYTES];
    size_t at = 0;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        int n = snprintf(text + at, sizeof text - at, "%u %s %u %u %s\n", (unsigned)rules[i].id,
                         rules[i].name, rules[i].per_cycle, rules[i].dtypes, rules[i].shape);
        assert(n > 0 && (size_t)n < sizeof text - at);
        at += (size_t)n;
    }
    return fm_xxh3(text, at);
}
