/* mmcif.h: reads the protein chains of a PDBx/mmCIF file, with atom37 coordinates.
 *
 * One pass over the tokens (cif.h) keeps the columns named in docs/reference/inputs.md. For each
 * run of atom rows of the same residue it keeps its place and its atoms. Everything else is
 * skipped. At the end of the file the chains are assembled: the protein entities and their
 * sequences, the atoms of each residue, and the alternative location that is used.
 *
 * There are two readings. The default follows the file: label_asym_id and label_seq_id place atoms,
 * and a position has one residue even where _entity_poly_seq lists alternatives. Unneeded items may
 * be missing, and contradictions are refused with their place. With compat_openfold the result is
 * the reference's (OpenFold ce0029e on Biopython 1.80), including its refusals.
 *
 * Everything is in the caller's arena, in steps of 4096 elements. It takes 40 bytes per atom with a
 * place in atom37, 84 bytes per residue of the file and 500 bytes per residue of a protein chain.
 * Large real files take less than their own size; files of the shortest valid rows take at most
 * about ten times their size. The reference's checks take about 100 bytes more per atom. Ids are
 * copied, so the input may be freed. */
#ifndef FM_PARSE_MMCIF_H
#define FM_PARSE_MMCIF_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "proto/record.h"

#include <stdbool.h>

typedef struct fm_mmcif_options {
    bool compat_openfold; /* the reference's result, bit for bit */
    /* B factors are confidences (pLDDT, 0..100), as in the AlphaFold database. Not with
     * compat_openfold, where predictions must be PDB files. */
    bool is_predicted;
} fm_mmcif_options;

/* One protein chain. */
typedef struct fm_mmcif_chain {
    const char *author_id;           /* auth_asym_id, the id in common use; terminated */
    const char *label_id;            /* label_asym_id; terminated */
    uint32_t n_res;                  /* 1 .. FM_LIMIT_N_RES */
    const char *sequence;            /* [N_res] one of the 20 letters or X; terminated */
    const float *all_atom_positions; /* [N_res, 37, 3] Å; zeros where the mask is 0 */
    const uint8_t *all_atom_mask;    /* [N_res, 37] 0 or 1 */
    const uint8_t *is_missing;       /* [N_res] 1 where the file has no atom row for the residue */
    /* [N_res] set if is_predicted: the highest value among the residue's atoms, 0 without atoms;
     * else NULL. */
    const float *confidence;
    /* compat_openfold: the reason why this chain has no features; else NULL. */
    const char *fault;
} fm_mmcif_chain;

typedef struct fm_mmcif {
    /* _exptl.method in lower case, several joined by ','; terminated. */
    const char *method;
    char release_date[FM_RELEASE_DATE]; /* earliest revision; "" when not given */
    double resolution;                  /* Å; 0 when not given */
    uint32_t n_chain;
    /* [n_chain] in the order of their entities, then of _struct_asym. */
    const fm_mmcif_chain *chains;
    uint64_t n_atom; /* atom rows of the file, all models */
} fm_mmcif;

/* Parses a whole file. Returns FM_ERR_FORMAT when it is not valid mmCIF or a value is invalid,
 * FM_ERR_DATA when its categories contradict each other, and FM_ERR_NOT_FOUND when it has no
 * protein chain with atoms. Returns FM_ERR_LIMIT when it needs more atoms, residues or memory than
 * allowed. Errors carry line and column where there is one. */
FM_MUST_USE fm_status fm_mmcif_parse(fm_bytes bytes, const fm_mmcif_options *options,
                                     fm_arena *arena, fm_mmcif *ret_mmcif, fm_error *reterr);

/* Finds the chain with that author id. FM_ERR_NOT_FOUND lists the file's chains. */
FM_MUST_USE fm_status fm_mmcif_find_chain(const fm_mmcif *mmcif, const char *author_id,
                                          const fm_mmcif_chain **ret_chain, fm_error *reterr);

#endif
