/* mmcif.h: a PDBx/mmCIF file to its protein chains with atom37 coordinates.
 *
 * One pass over the tokens (cif.h). Kept are the columns named in docs/formats/inputs.md and, for
 * each run of atom rows of the same residue, where it stands and its atoms; everything else is
 * stepped over. At the end of the file the chains are put together: which entities are protein,
 * their sequences, which atoms belong to which residue, which alternative location is taken.
 *
 * Two readings. The default reads what the file says: atoms are placed by label_asym_id and
 * label_seq_id, a position has one residue even where _entity_poly_seq lists alternatives, what is
 * not needed may be missing, what contradicts itself is refused with its place. compat_openfold
 * gives the reference's result (OpenFold ce0029e on Biopython 1.80), its refusals among them.
 *
 * Memory: everything lies in the caller's arena: 40 bytes an atom that has a place in atom37, 84
 * bytes a residue of the file, 500 bytes a residue of a protein chain, in steps of 4096; together
 * less than the file for large real files, at most about ten times the file for the shortest lawful
 * rows. The reference's checks take about 100 bytes more for every atom. Ids are copied: the input
 * may go. */
#ifndef FM_PARSE_MMCIF_H
#define FM_PARSE_MMCIF_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "proto/record.h"

#include <stdbool.h>

typedef struct fm_mmcif_options {
    bool compat_openfold; /* the reference's result, bit for bit */
    bool is_predicted;    /* B factors are confidence (pLDDT, 0..100), as in the AlphaFold database;
                             not with compat_openfold, which knows predictions as PDB files only */
} fm_mmcif_options;

/* One protein chain. */
typedef struct fm_mmcif_chain {
    const char *author_id;           /* auth_asym_id: what everybody calls the chain; terminated */
    const char *label_id;            /* label_asym_id; terminated */
    uint32_t n_res;                  /* 1 .. FM_LIMIT_N_RES */
    const char *sequence;            /* [N_res] one of the 20 letters or X; terminated */
    const float *all_atom_positions; /* [N_res, 37, 3] Å; zeros where the mask is 0 */
    const uint8_t *all_atom_mask;    /* [N_res, 37] 0 or 1 */
    const uint8_t *is_missing;       /* [N_res] 1 where the file has no atom row of the residue */
    const float *confidence; /* [N_res] is_predicted: the highest of the residue's atoms, 0 where it
                                has none; else NULL */
    const char *fault;       /* compat_openfold: why this chain has no features; else NULL */
} fm_mmcif_chain;

typedef struct fm_mmcif {
    const char *method; /* _exptl.method in lower case, several joined by ','; terminated */
    char release_date[FM_RELEASE_DATE]; /* earliest revision; "" = not given */
    double resolution;                  /* Å; 0 = none */
    uint32_t n_chain;
    const fm_mmcif_chain *chains; /* [n_chain] in the order of their entities, then of
                                     _struct_asym */
    uint64_t n_atom;              /* atom rows of the file, all models */
} fm_mmcif;

/* Parses a whole file. FM_ERR_FORMAT: it is no lawful mmCIF, or a value is none; FM_ERR_DATA: its
 * categories contradict each other; FM_ERR_NOT_FOUND: it has no protein chain with atoms;
 * FM_ERR_LIMIT: more atoms, residues or memory than allowed. Errors carry line and column where
 * there is one. */
FM_MUST_USE fm_status fm_mmcif_parse(fm_bytes bytes, const fm_mmcif_options *options,
                                     fm_arena *arena, fm_mmcif *ret_mmcif, fm_error *reterr);

/* The chain of that author id; FM_ERR_NOT_FOUND names the chains there are. */
FM_MUST_USE fm_status fm_mmcif_find_chain(const fm_mmcif *mmcif, const char *author_id,
                                          const fm_mmcif_chain **ret_chain, fm_error *reterr);

#endif
