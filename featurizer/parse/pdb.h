/* pdb.h: reads a structure in the PDB format, as structure predictors write it, into chains with
 * atom37 coordinates and confidence.
 *
 * A file has one record per line, named in columns 1-6. MODEL, ENDMDL, END, CONECT, ATOM and HETATM
 * are used. The columns of ATOM and HETATM are:
 *
 *     13-16  atom name               27     insertion code
 *     17     alternative location    31-54  coordinates
 *     18-20  residue name            55-60  occupancy
 *     22     chain                   61-66  B factor: in predictions the confidence (pLDDT, 0..100)
 *     23-26  residue number
 *
 * Atoms that atom37 does not have are skipped, and so are residues that are left without atoms. Of
 * an atom's alternative locations the one with the highest occupancy is used, the first among
 * equals.
 *
 * The default reads the first model and amino acids only (also modified ones, in HETATM records),
 * with insertion codes and any chain id. With compat_openfold the result is the reference's: one
 * model, all HETATM residues that have an atom of a known name (water included), no insertion
 * codes, and chains A-Z. Both refuse a residue that occurs in two places.
 *
 * All memory is in the caller's arena, about 520 bytes per residue twice; the input may be freed.
 * Format: wwPDB, Atomic Coordinate Entry Format 3.3. See docs/reference/inputs.md, "PDB". */
#ifndef FM_PARSE_PDB_H
#define FM_PARSE_PDB_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_pdb_options {
    bool compat_openfold;
} fm_pdb_options;

/* A chain is a range of the file's residues. */
typedef struct fm_pdb_chain {
    char id[2];            /* as in column 22; terminated */
    uint32_t first, n_res; /* residues first .. first + n_res - 1 */
} fm_pdb_chain;

/* Residues are stored chain by chain, and chains in the order of their first atoms. */
typedef struct fm_pdb {
    uint32_t n_res;                  /* 1 .. FM_LIMIT_N_RES, all chains together */
    const char *sequence;            /* [N_res] one of the 20 letters or X; terminated */
    const float *all_atom_positions; /* [N_res, 37, 3] Å; zeros where the mask is 0 */
    const uint8_t *all_atom_mask;    /* [N_res, 37] 0 or 1 */
    const float *confidence;         /* [N_res] 0..100, the highest of the residue's atoms */
    uint32_t n_chain;                /* at least 1 */
    const fm_pdb_chain *chains;      /* [n_chain] */
    uint64_t n_atom;                 /* ATOM and HETATM records read */
} fm_pdb;

/* Parses a whole file. Returns FM_ERR_FORMAT for a record that cannot be read; FM_ERR_DATA when
 * there are no residues, when a residue occurs in two places, and for the refusals of
 * compat_openfold; and FM_ERR_LIMIT. The first two carry line and column where there is one. */
FM_MUST_USE fm_status fm_pdb_parse(fm_bytes bytes, const fm_pdb_options *options, fm_arena *arena,
                                   fm_pdb *ret_pdb, fm_error *reterr);

#endif
