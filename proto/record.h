/* record.h: a chain's record as parts, and the parts' encodings, which the cache stores.
 *
 * One stage of the featurizer computes a part. A part has its own stage version and is
 * content-addressed: its identity is the SHA-256 of its encoded bytes before compression. A chain
 * is a name and the hashes of its parts. Two chains with the same sequence therefore share parts,
 * and a changed parser causes only its own part to be rebuilt. Names, paths and dates of files are
 * not content. docs/reference/record.md has the byte tables.
 *
 * Memory: every pointer of a part points into the arena in which the part was parsed or decoded,
 * or into the bytes from which it was decoded. Both must outlive the part. Encoded bytes are
 * canonical: one value has exactly one encoding. Decoders trust nothing. */
#ifndef FM_RECORD_H
#define FM_RECORD_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/hash.h"
#include "proto/base/status.h"
#include "proto/chem/residue.h"

#include <stdbool.h>

enum {
    FM_RELEASE_DATE = 11, /* "YYYY-MM-DD" and a terminator */
};

/* These values are stored: never reuse one. */
typedef enum fm_part_kind {
    FM_PART_SEQUENCE = 1,
    FM_PART_MSA = 2,
    FM_PART_HITS = 3,
    FM_PART_STRUCTURE = 4,
    /* Those of complexes (record_complex.h). */
    FM_PART_ASSEMBLY = 5,
    FM_PART_ENTITIES = 6,
    FM_PART_COMPONENTS = 7, /* a set of components; no part's header, but its canonical form */
} fm_part_kind;

enum {
    FM_N_PART = 4, /* parts of one item at most: kinds 1 to 4 of a chain, 5 and 6 of a complex */
    FM_PART_KIND_MAX = 7,
};

/* Versions of the encodings below, written into every part's header. They describe the layout of
 * the bytes. The version of the featurizer that computed the values is provenance
 * (featurizer/features.h) and not content. */
enum {
    FM_PART_SEQUENCE_FORMAT = 1,
    FM_PART_MSA_FORMAT = 1,
    FM_PART_HITS_FORMAT = 1,
    FM_PART_STRUCTURE_FORMAT = 1,
};

/* Returns "sequence", "msa", "hits", "structure", "assembly", "entities" or "components", and
 * "unknown" for other values; never NULL. */
const char *fm_part_name(fm_part_kind kind);

/* The chain's sequence: one upper-case letter per residue; residues other than the 20 are X.
 * residue_index is 0..N_res-1. */
typedef struct fm_part_sequence {
    uint32_t n_res;       /* 1 .. FM_LIMIT_N_RES */
    const char *sequence; /* [N_res], no terminator */
} fm_part_sequence;

/* Rows that came from one alignment file, in the order of the merged alignment. */
typedef struct fm_msa_source {
    const char *name; /* the dataset's file name without ".gz"; terminated */
    uint32_t n_row;   /* rows of this file after duplicates were removed */
} fm_msa_source;

/* All rows of all alignments of a chain, without duplicates; row 0 is the query. */
typedef struct fm_part_msa {
    uint32_t n_seq, n_res;
    const uint8_t *msa; /* [N_seq, N_res] HHblits ids 0..21 */
    /* [N_seq, N_res] letters deleted before each position, exact. */
    const uint16_t *deletion_matrix;
    /* [N_res, 22] number of rows with each HHblits id in a column. */
    const uint32_t *profile;
    const char *species; /* all rows' species identifiers, concatenated without separators */
    /* [N_seq] end of each row's identifier in `species`; an empty identifier ends where it
     * starts. */
    const uint32_t *species_end;
    uint32_t n_source;
    const fm_msa_source *source; /* [n_source]; the sum of n_row is N_seq */
} fm_part_msa;

/* The chain's experimental or predicted structure, aligned to its sequence. */
typedef struct fm_part_structure {
    uint32_t n_res;
    const float *all_atom_positions;    /* [N_res, 37, 3] Å; zeros where the mask is 0 */
    const uint8_t *all_atom_mask;       /* [N_res, 37] 0 or 1 */
    float resolution;                   /* Å; 0 when there is none (NMR, predictions) */
    char release_date[FM_RELEASE_DATE]; /* earliest revision; "" when not known */
    uint8_t is_distillation;            /* 1 for predicted structures */
    /* [N_res] pLDDT 0..100 of a predicted structure; NULL when there is none. */
    const float *confidence;
} fm_part_structure;

/* Why a hit has no mapping. These values are stored: never reuse one. */
typedef enum fm_hit_fault {
    FM_HIT_MAPPED = 0,
    FM_HIT_NO_FILE = 1,     /* no structure has that id */
    FM_HIT_BAD_FILE = 2,    /* its file could not be read or has no protein chain */
    FM_HIT_NO_DATE = 3,     /* compat_openfold: its file has no release date */
    FM_HIT_BAD_NAME = 4,    /* the hit's name does not start with id_chain */
    FM_HIT_NOT_QUERY = 5,   /* the hit's query letters are not the chain's */
    FM_HIT_NO_SEQUENCE = 6, /* no chain of the file has the hit's letters or similar ones */
    FM_HIT_NO_ATOMS = 7,    /* the chain has no readable coordinates */
    FM_HIT_FAR_APART = 8,   /* two neighbouring CA atoms are over 150 Å apart */
    FM_HIT_FEW_ATOMS = 9,   /* fewer than 5 atoms of the chain are mapped */
    FM_HIT_FAULT_MAX = FM_HIT_FEW_ATOMS,
} fm_hit_fault;

/* A template hit, mapped onto a chain of a structure. The properties that decide whether it is used
 * (dates, coverage, whether it is the query itself) are stored as facts, and the cut-offs act when
 * a sample is made.
 *
 * The mapping is a list of runs without gaps, in ascending order and of maximal length. Residues
 * query .. query+size-1 of the chain correspond to residues template .. template+size-1 of the
 * template chain, which has the coordinates. */
typedef struct fm_template_hit {
    const char *name; /* "<id>_<chain>" of the template, id in lower case; terminated */
    char release_date[FM_RELEASE_DATE]; /* of the structure's file; "" when not known */
    char listed_date[FM_RELEASE_DATE];  /* in the dataset's list of dates; "" when not listed */
    double sum_probs;                   /* NaN when the search gives none */
    int32_t aligned_cols;               /* pairs of match states that the search found */
    uint32_t n_letter;                  /* letters of the hit, without gaps */
    bool in_query;                      /* the letters occur contiguously in the query */
    fm_hit_fault fault;
    /* Identity of the template chain's structure part; zeros with a fault. */
    fm_sha256 structure;
    uint32_t n_run;                                      /* 0 with a fault, else at least 1 */
    const uint16_t *run_query, *run_template, *run_size; /* [n_run] */
    const char *letters; /* [sum of run_size] the template's residues, upper case */
} fm_template_hit;

/* All template hits of a chain, in the order of the files' names and then of the hits in a file. */
typedef struct fm_part_hits {
    uint32_t n_res;
    uint32_t n_hit;             /* at most FM_LIMIT_N_HIT */
    const fm_template_hit *hit; /* [n_hit] */
} fm_part_hits;

/* A chain in memory. Parts that do not exist are NULL; `sequence` always exists. All n_res are
 * equal. */
typedef struct fm_record {
    const char *name; /* "<id>_<chain>", terminated */
    const fm_part_sequence *sequence;
    const fm_part_msa *msa;
    const fm_part_structure *structure;
    const fm_part_hits *hits;
} fm_record;

/* Encodes a part into the arena, which afterwards holds only the bytes (64-byte aligned). Returns
 * FM_ERR_LIMIT when they do not fit the arena or a limit. Returns FM_ERR_DATA when a value is not
 * allowed in the part, such as a letter other than the 20 and X. */
FM_MUST_USE fm_status fm_part_sequence_encode(const fm_part_sequence *part, fm_arena *arena,
                                              fm_bytes *ret_bytes, fm_error *reterr);
FM_MUST_USE fm_status fm_part_msa_encode(const fm_part_msa *part, fm_arena *arena,
                                         fm_bytes *ret_bytes, fm_error *reterr);
FM_MUST_USE fm_status fm_part_hits_encode(const fm_part_hits *part, fm_arena *arena,
                                          fm_bytes *ret_bytes, fm_error *reterr);
FM_MUST_USE fm_status fm_part_structure_encode(const fm_part_structure *part, fm_arena *arena,
                                               fm_bytes *ret_bytes, fm_error *reterr);

/* Returns the kind of an encoded part. FM_ERR_CORRUPT for bytes that are no part,
 * FM_ERR_UNSUPPORTED for an unknown kind. */
FM_MUST_USE fm_status fm_part_peek(fm_bytes bytes, fm_part_kind *ret_kind, fm_error *reterr);

/* Decodes bytes, which the part may keep borrowing; data must be 64-byte aligned. Returns
 * FM_ERR_CORRUPT for bytes that are not the canonical encoding of a value and FM_ERR_UNSUPPORTED
 * for another format version. One check is left to fm_part_msa_check_profile: decoding verifies
 * only that every column of the profile sums to N_seq. */
FM_MUST_USE fm_status fm_part_sequence_decode(fm_bytes bytes, fm_arena *arena,
                                              fm_part_sequence *ret_part, fm_error *reterr);
FM_MUST_USE fm_status fm_part_msa_decode(fm_bytes bytes, fm_arena *arena, fm_part_msa *ret_part,
                                         fm_error *reterr);
/* Counts the rows again and returns FM_ERR_CORRUPT unless the profile matches. The arena is used
 * during the call. */
FM_MUST_USE fm_status fm_part_msa_check_profile(const fm_part_msa *part, fm_arena *arena,
                                                fm_error *reterr);
FM_MUST_USE fm_status fm_part_hits_decode(fm_bytes bytes, fm_arena *arena, fm_part_hits *ret_part,
                                          fm_error *reterr);
FM_MUST_USE fm_status fm_part_structure_decode(fm_bytes bytes, fm_arena *arena,
                                               fm_part_structure *ret_part, fm_error *reterr);

#endif
