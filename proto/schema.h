/* schema.h: the feature table: number, name, dtypes and shape of every tensor that a sample can
 * carry.
 *
 * The table is the contract between sampler, server, clients and trainer. Its hash is compared when
 * a client connects. The numbers are stored and sent, so they are never reused.
 * docs/reference/wire.md prints the table. */
#ifndef FM_SCHEMA_H
#define FM_SCHEMA_H

#include <stddef.h>
#include <stdint.h>

typedef enum fm_dtype {
    FM_U8 = 1,
    FM_U16 = 2,
    FM_U32 = 3,
    FM_U64 = 4,
    FM_I32 = 5,
    FM_F32 = 6,
} fm_dtype;

/* Returns the bytes of one element; 0 for a value that is no dtype. */
size_t fm_dtype_bytes(uint32_t dtype);
/* Returns "u8", ...; "?" for a value that is no dtype. */
const char *fm_dtype_name(uint32_t dtype);
/* Returns NumPy's name, "|u1", "<f4", ...; "?" for a value that is no dtype. */
const char *fm_dtype_numpy(uint32_t dtype);

/* First the tensors that all cycles of a sample share (cycle = FM_SHARED). */
typedef enum fm_tensor_id {
    FM_T_AATYPE = 1,             /* u8  [N_res] restype order ARNDCQEGHILKMFPSTWYV, X = 20 */
    FM_T_RESIDUE_INDEX = 2,      /* i32 [N_res] position in the uncropped chain, from 0 */
    FM_T_ALL_ATOM_POSITIONS = 3, /* f32 [N_res, 37, 3] Å; zeros where absent */
    FM_T_ALL_ATOM_MASK = 4,      /* u64 [N_res] bit a set = atom37 a is present */
    FM_T_CONFIDENCE = 5,         /* f32 [N_res] pLDDT; only in predicted structures */
    /* Templates. N_templ is at least 1; a sample without templates lacks these tensors. */
    FM_T_TEMPLATE_AATYPE = 6,             /* u8  [N_templ, N_res] restype order, X = 20, gap = 21 */
    FM_T_TEMPLATE_ALL_ATOM_POSITIONS = 7, /* f32 [N_templ, N_res, 37, 3] Å; zeros where absent */
    FM_T_TEMPLATE_ALL_ATOM_MASK = 8,      /* u64 [N_templ, N_res] bit a = atom37 a */
    FM_T_TEMPLATE_SUM_PROBS = 9,          /* f32 [N_templ] 0 when not given */
    /* The tensors of one cycle. Ids are in restype order: 0..19, X 20, gap 21, mask token 22. */
    FM_T_MSA = 16,      /* u8  [N_clust, N_res] cluster centres after masking, 0..22 */
    FM_T_TRUE_MSA = 17, /* u8  [N_clust, N_res] the same before masking, 0..21 */
    /* u8 [ceil(N_clust*N_res/8)] bit k%8 of byte k/8: position k was chosen for masking. */
    FM_T_BERT_MASK = 18,
    FM_T_DELETION_MATRIX = 19, /* u16 [N_clust, N_res] deletions of the centres */
    /* u8, u16 or u32 [N_clust, N_res, 23] counts over centre and members. */
    FM_T_CLUSTER_PROFILE = 20,
    /* u32 [N_clust, N_res] deletions summed over centre and members. */
    FM_T_CLUSTER_DELETION_SUM = 21,
    FM_T_CLUSTER_SIZE = 22,          /* u32 [N_clust] centre and members */
    FM_T_EXTRA_MSA = 23,             /* u8  [N_extra, N_res] 0..21 */
    FM_T_EXTRA_DELETION_MATRIX = 24, /* u16 [N_extra, N_res] */
} fm_tensor_id;

enum { FM_SHARED = 255, FM_N_MSA_CLASS = 23, FM_MSA_GAP = 21, FM_MSA_MASK = 22 };

typedef struct fm_tensor_rule {
    fm_tensor_id id;
    const char *name;  /* "msa", "all_atom_positions", ... */
    uint8_t per_cycle; /* 1: one for each cycle */
    uint8_t dtypes;    /* bit (1 << fm_dtype) for each allowed dtype */
    /* "N_clust N_res 23": words are sizes of the sample, numbers are constants. */
    const char *shape;
    const char *definition; /* one line of text */
} fm_tensor_rule;

/* Returns the table, ordered by id, of *ret_count rows. It is static. */
const fm_tensor_rule *fm_schema_rules(size_t *ret_count);
/* Returns the row of an id, or NULL. */
const fm_tensor_rule *fm_schema_find(uint32_t id);
/* Returns the identity of the table; both ends must have the same before a stream is opened. */
uint64_t fm_schema_hash(void);

#endif
