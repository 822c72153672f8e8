/* pdb.h: a structure in the PDB format, as structure predictors write it, to its chains with atom37
 * coordinates and confidence.
 *
 * One record a line, told by columns 1-6. Used are MODEL, ENDMDL, END, CONECT, ATOM and HETATM; of
 * the latter two the columns 13-16 atom name, 17 alternative location, 18-20 residue name, 22
 * chain, 23-26 number, 27 insertion code, 31-54 coordinates, 55-60 occupancy, 61-66 B factor, which
 * in predictions holds the confidence (pLDDT, 0..100). Atoms that atom37 does not have are passed
 * over, and so are residues that are left without atoms. Where an atom has alternatives the one of
 * highest occupancy is taken, the first of equals.
 *
 * The default reads the first model, amino acids only (also modified ones, in HETATM records), with
 * insertion codes and any chain id. compat_openfold gives the reference's result: one model, all
 * HETATM residues that have an atom of a known name, water among them, no insertion codes, chains
 * A-Z. In both, a residue that stands in two places is refused.
 *
 * Memory: all in the caller's arena, about 520 bytes a residue twice; the input may go.
 * Format: wwPDB, Atomic Coordinate Entry Format 3.3. docs/formats/inputs.md, "PDB". */
#ifndef FM_PARSE_PDB_H
#define FM_PARSE_PDB_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_pdb_options {
    bool compat_openfold;
} fm_pdb_options;

/* A chain is a run of the file's residues. */
typedef struct fm_pdb_chain {
    char id[2];            /* as in column 22; terminated */
    uint32_t first, n_res; /* residues first .. first + n_res - 1 */
} fm_pdb_chain;

/* Residues chain by chain, chains in the order of their first atoms. */
typedef struct fm_pdb {
    uint32_t n_res;                  /* 1 .. FM_LIMIT_N_RES, of all chains */
    const char *sequence;            /* [N_res] one of the 20 letters or X; terminated */
    const float *all_atom_positions; /* [N_res, 37, 3] Å; zeros where the mask is 0 */
    const uint8_t *all_atom_mask;    /* [N_res, 37] 0 or 1 */
    const float *confidence;         /* [N_res] 0..100, the highest of the residue's atoms */
    uint32_t n_chain;                /* at least 1 */
    const fm_pdb_chain *chains;      /* [n_chain] */
    uint64_t n_atom;                 /* ATOM and HETATM records read */
} fm_pdb;

/* Parses a whole file. FM_ERR_FORMAT: a record that cannot be read; FM_ERR_DATA: no residues, a
 * residue in two places, and what only compat_openfold refuses; FM_ERR_LIMIT. Errors of the first
 * two carry line and column where there is one. */
FM_MUST_USE fm_status fm_pdb_parse(fm_bytes bytes, const fm_pdb_options *options, fm_arena *arena,
                                   fm_pdb *ret_pdb, fm_error *reterr);

#endif
