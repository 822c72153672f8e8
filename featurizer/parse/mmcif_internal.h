/* mmcif_internal.h: the data that the scan of an mmCIF file (mmcif.c) hands to the two builders of
 * chains: mmcif_chains.c (default) and mmcif_openfold.c (the reference's reading).
 *
 * The scan stores the columns of the small categories as lists of values, and _atom_site as runs. A
 * run is a longest sequence of rows that agree in the columns which identify the residue. All
 * values are stored as places in the file's bytes. */
#ifndef FM_PARSE_MMCIF_INTERNAL_H
#define FM_PARSE_MMCIF_INTERNAL_H

#include "featurizer/parse/cif.h"
#include "featurizer/parse/mmcif.h"
#include "featurizer/parse/mmcif_util.h"

/* Columns of small categories, which are stored whole. */
typedef enum fm_mmcif_column {
    COLUMN_ENTRY_ID,
    COLUMN_METHOD,
    COLUMN_EXPTL_ENTRY, /* tells whether _exptl occurs at all */
    COLUMN_DATE,
    COLUMN_REFINE,
    COLUMN_EM,
    COLUMN_REFLNS,
    COLUMN_POLY_ENTITY,
    COLUMN_POLY_NUM,
    COLUMN_POLY_COMP,
    COLUMN_COMP_ID,
    COLUMN_COMP_TYPE,
    COLUMN_ASYM_ID,
    COLUMN_ASYM_ENTITY,
    N_COLUMN,
} fm_mmcif_column;

/* Columns of _atom_site. The first N_KEY_DEFAULT identify the residue by the dictionary's own ids;
 * the columns up to N_KEY also identify it by the author's. */
typedef enum fm_mmcif_atom_column {
    ATOM_COMP,
    ATOM_ASYM,
    ATOM_SEQ,
    ATOM_MODEL,
    N_KEY_DEFAULT,
    ATOM_GROUP = N_KEY_DEFAULT,
    ATOM_AUTH_ASYM,
    ATOM_AUTH_SEQ,
    ATOM_INS,
    N_KEY,
    ATOM_NAME = N_KEY,
    ATOM_ALT,
    ATOM_X,
    ATOM_Y,
    ATOM_Z,
    ATOM_OCCUPANCY,
    ATOM_B,
    ATOM_ID,
    N_ATOM_OPENFOLD, /* the reference fails without any of the columns above */
    ATOM_ENTITY = N_ATOM_OPENFOLD,
    N_ATOM_COLUMN,
} fm_mmcif_atom_column;

/* The slot after atom37's holds the selenium of selenomethionine, which later moves to the
 * sulphur's. */
enum { SLOT_SE = 37, N_SLOT = 38, SLOT_NONE = 0xff };

typedef struct fm_mmcif_atom {
    double occupancy;
    uint64_t name; /* fm_mmcif_pack_name */
    float position[3];
    float confidence; /* 0 unless is_predicted */
    uint32_t at;      /* offset of its name in the file */
    uint8_t slot;
    bool has_alt;
} fm_mmcif_atom;

typedef struct fm_mmcif_run {
    fm_cif_view key[N_KEY]; /* start == end for columns that the file does not have */
    fm_cif_view entity;
    uint32_t first_atom, n_atom;
    uint32_t next; /* link for lists of runs */
} fm_mmcif_run;

typedef struct fm_mmcif_list {
    fm_cif_view *views;
    uint32_t n, max;
    bool is_given; /* the name occurs, perhaps without values */
} fm_mmcif_list;

typedef struct fm_mmcif_scan {
    fm_cif cif;
    fm_arena *arena;
    fm_error *reterr;
    fm_mmcif_list columns[N_COLUMN];
    fm_mmcif_array runs, atoms;
    uint32_t n_row;             /* rows of _atom_site */
    uint32_t n_key;             /* number of columns that separate runs in this reading */
    bool has[N_ATOM_COLUMN];    /* the file has the column */
    uint32_t at[N_ATOM_COLUMN]; /* the column's place in the current loop, or FM_CIF_ABSENT */
    fm_cif_view single[N_ATOM_COLUMN]; /* for an _atom_site written as pairs */
    bool has_single;
    bool is_predicted; /* B factors are confidences */
} fm_mmcif_scan;

/* Shows at most 40 bytes of a value with "%.*s" in messages. */
#define MMCIF_SHOW(scan, view)                                                                     \
    (int)(fm_cif_size(view) < 40 ? fm_cif_size(view) : 40),                                        \
        (const char *)fm_cif_text(&(scan)->cif, view)

/* -- polymers (mmcif_polymer.c) */

/* A protein chain according to _entity_poly_seq, _chem_comp and _struct_asym, before any atom is
 * used. */
typedef struct fm_mmcif_polymer {
    fm_cif_view label, author; /* author is filled from the atoms */
    uint32_t n_monomer;
    const fm_cif_view *comps; /* [n_monomer] */
    const int32_t *nums;      /* [n_monomer] _entity_poly_seq.num */
    uint32_t first_run, last_run;
} fm_mmcif_polymer;

typedef struct fm_mmcif_polymers {
    uint32_t n;
    fm_mmcif_polymer *all;
    fm_mmcif_map by_label;
} fm_mmcif_polymers;

/* Lists the protein chains in order; finding none is not an error. */
fm_status fm_mmcif_find_polymers(fm_mmcif_scan *scan, fm_mmcif_polymers *ret_polymers);

/* -- builders of chains */

fm_status fm_mmcif_build_default(fm_mmcif_scan *scan, fm_mmcif_polymers *polymers,
                                 fm_mmcif *ret_mmcif);
fm_status fm_mmcif_build_openfold(fm_mmcif_scan *scan, fm_mmcif_polymers *polymers,
                                  fm_mmcif *ret_mmcif);

/* Allocates the arrays of a chain of n_res residues: positions and mask are 0, is_missing is 1, and
 * the sequence is terminated but not filled. */
fm_status fm_mmcif_alloc_chain(fm_mmcif_scan *scan, uint32_t n_res, fm_mmcif_chain *chain);
/* Swaps an arginine's NH1 and NH2 if NH2 is nearer to CD. This is the last correction of a
 * residue. */
void fm_mmcif_fix_arginine(float (*positions)[3], uint8_t *mask);

#endif
