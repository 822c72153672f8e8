/* asym.h: the atoms of one asymmetric unit while they are read, filtered and completed.
 *
 *     scan -> bonds -> labels -> alternatives -> filters -> completion -> filters -> expansion
 *
 * A stage changes the model in place. Atoms are in the file's order and then, completed, in that of
 * the chains' sequences. A residue is a range of atoms, and a chain is a range of residues. */
#ifndef FM_COMPLEX_ASYM_H
#define FM_COMPLEX_ASYM_H

#include "featurizer/complex/cif_tables.h"
#include "featurizer/complex/read.h"

#include <string.h>

#define FM_ASYM_NONE UINT32_MAX /* no such number */

typedef enum fm_asym_table {
    ASYM_TABLE_ATOM,
    ASYM_TABLE_STRUCT_CONN,
    ASYM_TABLE_ENTITY_POLY,
    ASYM_TABLE_ENTITY_POLY_SEQ,
    ASYM_TABLE_STRUCT_ASYM,
    ASYM_TABLE_ASSEMBLY,
    ASYM_TABLE_ASSEMBLY_GEN,
    ASYM_TABLE_OPERATION,
    ASYM_TABLE_REVISION,
    ASYM_TABLE_REFINE,
    ASYM_TABLE_EM,
    ASYM_TABLE_REFLNS,
    ASYM_TABLE_EXPTL,
    ASYM_N_TABLE,
} fm_asym_table;

/* The ids of a residue in _atom_site, which also name the ends of bonds in _struct_conn. */
typedef enum fm_asym_key {
    ASYM_KEY_LABEL_ASYM,
    ASYM_KEY_LABEL_COMP,
    ASYM_KEY_LABEL_SEQ,
    ASYM_KEY_AUTH_ASYM,
    ASYM_KEY_AUTH_COMP,
    ASYM_KEY_AUTH_SEQ,
    ASYM_KEY_INSERTION,
    ASYM_N_CONN_KEY,
    ASYM_KEY_ENTITY = ASYM_N_CONN_KEY,
    ASYM_N_KEY,
} fm_asym_key;

/* Columns of ASYM_TABLE_ATOM behind the keys. */
enum {
    ASYM_ATOM_LABEL_NAME = ASYM_N_KEY,
    ASYM_ATOM_AUTH_NAME,
    ASYM_ATOM_ALT,
    ASYM_ATOM_ELEMENT,
    ASYM_ATOM_X,
    ASYM_ATOM_Y,
    ASYM_ATOM_Z,
    ASYM_ATOM_OCCUPANCY,
    ASYM_ATOM_B,
    ASYM_ATOM_MODEL,
};

typedef struct fm_asym_atom {
    float position[3]; /* Å */
    float occupancy, b_factor;
    char name[FM_COMPONENT_NAME];       /* padded with zeros */
    char label_name[FM_COMPONENT_NAME]; /* as _struct_conn has it */
    uint32_t residue;
    uint32_t alt; /* label_alt_id, its bytes from the highest down; 0 when not given */
    uint32_t at;  /* offset in the file */
    int32_t in_component;
    uint8_t element;
    bool is_resolved;
} fm_asym_atom;

typedef struct fm_asym_residue {
    fm_cif_view key[ASYM_N_KEY];
    const fm_component *component; /* NULL where the dictionary does not have it */
    char name[FM_COMPONENT_ID];    /* padded with zeros */
    uint32_t first_atom;
    uint32_t label;     /* chain by label_asym_id */
    uint32_t link;      /* chain within which polymers are linked: first the author's */
    int32_t number;     /* within `link` */
    uint32_t insertion; /* packed as alternatives are */
} fm_asym_residue;

typedef struct fm_asym_chain {
    fm_cif_view label, author;
    uint32_t entity;
    uint32_t first_residue, end_residue; /* the same where nothing of the chain is left */
    bool is_ligand;                      /* its first atom has no label_seq_id */
} fm_asym_chain;

typedef struct fm_asym_entity {
    fm_cif_view id;
    uint8_t polymer;                 /* fm_polymer */
    bool is_polymer;                 /* _entity_poly has it */
    uint32_t n_number;               /* of its sequence */
    char (*names)[FM_COMPONENT_ID];  /* [n_number] components, padded with zeros */
    const fm_component **components; /* [n_number] NULL: not in the dictionary */
    uint32_t *first_row;             /* [n_number + 1] its rows of the sequence's table */
    const char *sequence;            /* terminated; NULL: no polymer */
} fm_asym_entity;

typedef fm_assembly_bond fm_asym_bond; /* ascending by (a, b) after fm_bonds_sort */

typedef struct fm_asym {
    fm_cif cif;
    fm_arena *arena;
    fm_error *reterr;
    const fm_components *components;
    bool compat, is_prediction, has_numbered_ligands; /* fm_assembly_options */
    fm_cif_table tables[ASYM_N_TABLE];
    uint32_t n_atom, max_atom, n_residue, max_residue, n_chain, n_entity, n_bond, max_bond;
    fm_asym_atom *atoms;
    fm_asym_residue *residues;
    fm_asym_chain *chains;
    fm_asym_entity *entities;
    fm_asym_bond *bonds;
    fm_cif_view first_model;
    uint32_t n_row; /* rows of _atom_site, all models */
} fm_asym;

static inline fm_status fm_asym_full(fm_asym *asym) {
    return fm_arena_full(asym->arena, asym->reterr);
}
#define fm_asym_fail(asym, status, at, ...)                                                        \
    fm_cif_fail(&(asym)->cif, (asym)->reterr, status, at, __VA_ARGS__)
/* Shows at most 40 bytes of a value with "%.*s" in messages. */
#define FM_ASYM_SHOW(asym, view)                                                                   \
    (int)(fm_cif_size(view) < 40 ? fm_cif_size(view) : 40),                                        \
        (const char *)fm_cif_text(&(asym)->cif, view)

/* Whether two names or ids, padded with zeros, are equal. */
static inline bool fm_asym_same_name(const char a[8], const char b[8]) {
    uint64_t x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return x == y;
}
/* Whether a padded name is that text. */
static inline bool fm_asym_is_name(const char name[8], const char *text) {
    return strncmp(name, text, 8) == 0;
}
static inline uint32_t fm_asym_end_atom(const fm_asym *asym, uint32_t residue) {
    return residue + 1 < asym->n_residue ? asym->residues[residue + 1].first_atom : asym->n_atom;
}
static inline bool fm_asym_is_polymer(const fm_asym *asym, uint32_t residue) {
    return asym->entities[asym->chains[asym->residues[residue].label].entity].is_polymer;
}
/* Returns the fm_molecule of a residue: its component's in a polymer, else a ligand. */
static inline uint8_t fm_asym_molecule(const fm_asym *asym, uint32_t residue) {
    const fm_component *component = asym->residues[residue].component;
    return fm_asym_is_polymer(asym, residue) && component ? component->molecule
                                                          : (uint8_t)FM_MOLECULE_LIGAND;
}
/* Returns the square of the distance in float32. */
static inline float fm_asym_distance2(const float a[3], const float b[3]) {
    float x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
    return x * x + y * y + z * z;
}

/* -- the file (asym_scan.c, asym_chains.c) */

/* Reads the tables and the first model's atoms without water. */
FM_MUST_USE fm_status fm_asym_scan(fm_asym *asym, fm_bytes text);
/* Lists entities and chains, and gives residues their chain. */
FM_MUST_USE fm_status fm_asym_find_chains(fm_asym *asym);
/* Makes the sequences of polymer entities, once alternatives are chosen. */
FM_MUST_USE fm_status fm_asym_read_sequences(fm_asym *asym);
/* Packs an id of at most 4 bytes; false if it is longer. */
bool fm_asym_pack(const fm_asym *asym, fm_cif_view view, uint32_t *ret_packed);

/* -- bonds (asym_bonds.c, asym_struct_conn.c) */

/* Appends a bond in either order of its ends. */
FM_MUST_USE fm_status fm_asym_add_bond(fm_asym *asym, uint32_t a, uint32_t b, uint8_t order);
/* Sorts bonds between atoms below n_atom by (a, b); of equal ones the last stays. */
FM_MUST_USE fm_status fm_bonds_sort(fm_asym_bond *bonds, uint32_t *n_bond, uint32_t n_atom,
                                    fm_arena *arena, fm_error *reterr);
FM_MUST_USE fm_status fm_asym_sort_bonds(fm_asym *asym);
/* Adds the bonds that components have within residues. */
FM_MUST_USE fm_status fm_asym_bond_residues(fm_asym *asym);
/* Adds the bonds of _struct_conn. */
FM_MUST_USE fm_status fm_asym_bond_struct_conn(fm_asym *asym);
/* Adds the bonds of polymers between residues that follow one another; sorts all. With `only_near`
 * not between two label_asym_ids that are more than 2.5 Å apart. */
FM_MUST_USE fm_status fm_asym_bond_polymers(fm_asym *asym, bool only_near);

/* Neighbours of each atom: neighbours[first[atom] .. first[atom + 1] - 1]. */
typedef struct fm_asym_graph {
    uint32_t *first;
    uint32_t *neighbours;
} fm_asym_graph;
FM_MUST_USE fm_status fm_asym_make_graph(const fm_asym *asym, fm_asym_graph *ret_graph);

/* -- filters (asym_filter.c, asym_alternatives.c) */

/* Keeps the atoms that are marked, and joins residues that have become neighbours and are one. */
FM_MUST_USE fm_status fm_asym_compact(fm_asym *asym, const bool *keep, const char *step);
/* Finds the residues of each chain. */
void fm_asym_find_ranges(fm_asym *asym);
/* Gives residues their label_ chain and number. */
FM_MUST_USE fm_status fm_asym_relabel(fm_asym *asym);
/* Chooses an alternative for each residue. */
FM_MUST_USE fm_status fm_asym_choose_alternatives(fm_asym *asym);
/* The filters before and after completion. */
FM_MUST_USE fm_status fm_asym_filter_file(fm_asym *asym);
FM_MUST_USE fm_status fm_asym_filter_completed(fm_asym *asym);

/* -- completion (asym_complete.c) */

/* Makes chains whole by their sequences, and ligands by their components. */
FM_MUST_USE fm_status fm_asym_complete(fm_asym *asym);

#endif
