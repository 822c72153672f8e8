/* schema.h: the feature table: number, name, dtypes and shape of every tensor that a sample can
 * carry. Names are different among the tensors of one kind.
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
    FM_I8 = 7,
    FM_I16 = 8,
    FM_N_DTYPE /* one more than the last */
} fm_dtype;

/* Returns the bytes of one element; 0 for a value that is no dtype. */
size_t fm_dtype_bytes(uint32_t dtype);
/* Returns "u8", ...; "?" for a value that is no dtype. */
const char *fm_dtype_name(uint32_t dtype);
/* Returns NumPy's name, "|u1", "<f4", ...; "?" for a value that is no dtype. */
const char *fm_dtype_numpy(uint32_t dtype);

/* What a sample is of. All its tensors are of one kind. */
typedef enum fm_sample_kind {
    FM_SAMPLE_OF_CHAIN,   /* AlphaFold2: tensors below FM_T_FIRST_OF_COMPLEX */
    FM_SAMPLE_OF_COMPLEX, /* AlphaFold 3: the others */
} fm_sample_kind;

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

    /* Complexes: the compact form of docs/reference/complex-samples.md, under its names. N_token is
     * the crop's, and so the N_res of the header. First what all cycles share, of tokens: */
    FM_T_FIRST_OF_COMPLEX = 32,
    FM_T_TOKEN_INDEX = 32,       /* i32 [N_token] */
    FM_T_RESIDUE_NUMBER = 33,    /* i32 [N_token] "residue_index": from 1 in its chain */
    FM_T_ASYM_ID = 34,           /* i32 [N_token] */
    FM_T_ENTITY_ID = 35,         /* i32 [N_token] */
    FM_T_SYM_ID = 36,            /* i32 [N_token] */
    FM_T_RESTYPE = 37,           /* u8  [N_token] 0..31 */
    FM_T_FRAME_ATOM_INDEX = 38,  /* i32 [N_token, 3] -1 where there is none */
    FM_T_HAS_FRAME = 39,         /* u8  [N_token] */
    FM_T_TOKEN_NUMBER = 40,      /* i32 [N_token] in its chain before the crop, from 0 */
    FM_T_PROFILE = 41,           /* f32 [N_token, 32] */
    FM_T_DELETION_MEAN = 42,     /* f32 [N_token] */
    FM_T_TOKEN_BONDS_PAIRS = 43, /* i32 [N_token_bond, 2] tokens, ascending */
    /* of atoms: */
    FM_T_ATOM_TO_TOKEN_IDX = 48,       /* i32 [N_atom] ascending */
    FM_T_ATOM_TO_TOKATOM_IDX = 49,     /* u8  [N_atom] place in its residue, 0..23 */
    FM_T_REF_SPACE_UID = 50,           /* i32 [N_atom] */
    FM_T_MOL_ID = 51,                  /* i32 [N_atom] */
    FM_T_MOL_ATOM_INDEX = 52,          /* i32 [N_atom] */
    FM_T_ENTITY_MOL_ID = 53,           /* i32 [N_atom] */
    FM_T_IS_PROTEIN = 54,              /* u8  [N_atom] */
    FM_T_IS_RNA = 55,                  /* u8  [N_atom] */
    FM_T_IS_DNA = 56,                  /* u8  [N_atom] */
    FM_T_IS_LIGAND = 57,               /* u8  [N_atom] */
    FM_T_PAE_REP_ATOM_MASK = 58,       /* u8  [N_atom] */
    FM_T_DISTOGRAM_REP_ATOM_MASK = 59, /* u8  [N_atom] */
    FM_T_PLDDT_M_REP_ATOM_MASK = 60,   /* u8  [N_atom] */
    FM_T_MODIFIED_RES_MASK = 61,       /* u8  [N_atom] */
    FM_T_COORDINATE_MASK = 62,         /* u8  [N_atom] */
    FM_T_COORDINATE = 63,              /* f32 [N_atom, 3] Å; zeros where not known */
    FM_T_REF_MASK = 64,                /* u8  [N_atom] */
    FM_T_REF_CHARGE = 65,              /* i8  [N_atom] */
    FM_T_REF_ELEMENT = 66,             /* u8  [N_atom] atomic number - 1; 127: none */
    FM_T_REF_ATOM_NAME_CHARS = 67,     /* u8  [N_atom, 4] code - 32 */
    FM_T_REF_POS = 68,                 /* f32 [N_atom, 3] Å */
    FM_T_BOND_MASK_PAIRS = 69,         /* i32 [N_bond_mask, 2] atoms, ascending */
    FM_T_RESOLUTION = 70,              /* f32 [1] Å; -1 when not known */
    /* Symmetries of the crop's residues. */
    FM_T_ATOM_PERM_FIRST_ATOM = 71, /* i32 [N_group+1] */
    FM_T_ATOM_PERM_COUNT = 72,      /* i32 [N_group] */
    FM_T_ATOM_PERM_DATA = 73,       /* i16 [N_order] */
    /* Templates. N_templ is at least 1; a sample without templates lacks these tensors. */
    FM_T_COMPLEX_TEMPLATE_AATYPE = 80,    /* u8  [N_templ, N_token] 0..31 */
    FM_T_COMPLEX_TEMPLATE_ATOMS = 81,     /* f32 [N_templ, N_token, 4, 3] Å; zeros where absent */
    FM_T_COMPLEX_TEMPLATE_ATOM_MASK = 82, /* u8  [N_templ, N_token] bit k: atom k is there */
    /* The tensors of one cycle. */
    FM_T_COMPLEX_MSA = 96,      /* u8 [N_row, N_token] 0..31; on the wire FM_PACKED_CLASSES */
    FM_T_COMPLEX_DELETION = 97, /* u8 [N_row, N_token] letters deleted before, 0..127; on the wire
                                   FM_PACKED_COUNTS */
} fm_tensor_id;

enum { FM_SHARED = 255, FM_N_MSA_CLASS = 23, FM_MSA_GAP = 21, FM_MSA_MASK = 22 };

typedef struct fm_tensor_rule {
    fm_tensor_id id;
    const char *name;  /* "msa", "all_atom_positions", ... */
    uint8_t per_cycle; /* 1: one for each cycle */
    uint16_t dtypes;   /* bit (1 << fm_dtype) for each allowed dtype */
    /* "N_clust N_res 23": words are sizes of the sample, numbers are constants. A word that begins
     * with N_ and ends with +1 is one more than its size. */
    const char *shape;
    const char *definition; /* one line of text */
} fm_tensor_rule;

/* Returns the table, ordered by id, of *ret_count rows. It is static. */
const fm_tensor_rule *fm_schema_rules(size_t *ret_count);
/* Returns the row of an id, or NULL. */
const fm_tensor_rule *fm_schema_find(uint32_t id);
/* Returns the row of a name among the tensors of a kind, or NULL. */
const fm_tensor_rule *fm_schema_find_named(fm_sample_kind kind, const char *name);
/* Returns what samples with this tensor are of. */
static inline fm_sample_kind fm_schema_kind(uint32_t id) {
    return id < FM_T_FIRST_OF_COMPLEX ? FM_SAMPLE_OF_CHAIN : FM_SAMPLE_OF_COMPLEX;
}
/* How the data of a tensor are written on the wire; in memory they are never packed. Packed tensors
 * are u8. proto/packed_rows.h has the codes. */
typedef enum fm_packing {
    FM_PLAIN,
    FM_PACKED_CLASSES, /* values below 32, in five bits each */
    FM_PACKED_COUNTS,  /* few values among many zeros */
} fm_packing;

/* Returns how a tensor is written; FM_PLAIN for an id that is none. */
fm_packing fm_schema_packing(uint32_t id);
/* Returns the identity of the table; both ends must have the same before a stream is opened. */
uint64_t fm_schema_hash(void);

#endif
