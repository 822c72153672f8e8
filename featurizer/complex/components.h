/* components.h: chemical components: what the dictionary of the PDB (CCD) says of residues, bases,
 * ions and ligands.
 *
 * A set of components is read once from the dictionary's mmCIF text, and used by every structure.
 * It keeps what features need: heavy atoms in the dictionary's order, their bonds, and for each
 * atom what tells symmetric atoms apart. Components are sorted by id, and the set's hash covers all
 * of their content, so that equal dictionaries give equal keys whatever their file's order is. */
#ifndef FM_COMPLEX_COMPONENTS_H
#define FM_COMPLEX_COMPONENTS_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/hash.h"
#include "proto/base/status.h"
#include "proto/chem/bond.h"

#include <stdbool.h>

enum {
    FM_COMPONENT_ID = 8,   /* bytes of an id with its end; the dictionary has up to 5 letters */
    FM_COMPONENT_NAME = 8, /* bytes of an atom's name with its end */
};

/* What a residue or a chain is made of. The numbers are those of the stored tables. */
typedef enum fm_molecule {
    FM_MOLECULE_PROTEIN,
    FM_MOLECULE_RNA,
    FM_MOLECULE_DNA,
    FM_MOLECULE_LIGAND,
    FM_N_MOLECULE,
} fm_molecule;

typedef struct fm_component_atom {
    char name[FM_COMPONENT_NAME]; /* atom_id, padded with zeros */
    float ideal[3];               /* pdbx_model_Cartn_*_ideal, Å; 0 where it is not given */
    float model[3];               /* model_Cartn_*, Å; 0 where it is not given */
    uint8_t element;              /* atomic number, 1..118; 0: no element (X) */
    int8_t charge;
    uint8_t n_hydrogen; /* hydrogens bonded to it */
    char stereo;        /* pdbx_stereo_config: R, S or N */
    bool is_leaving;    /* pdbx_leaving_atom_flag is Y */
    bool is_aromatic;
    bool has_ideal, has_model;
} fm_component_atom;

typedef struct fm_component_bond {
    uint16_t a, b; /* heavy atoms, a < b */
    uint8_t order; /* fm_bond_order */
    char stereo;   /* pdbx_stereo_config: E, Z or N */
} fm_component_bond;

typedef struct fm_component {
    char id[FM_COMPONENT_ID]; /* padded with zeros */
    uint8_t molecule; /* fm_molecule that a polymer of it is; FM_MOLECULE_LIGAND for others */
    char one_letter;  /* _chem_comp.one_letter_code if it is one letter, else 0 */
    char date[11];    /* pdbx_initial_date, YYYY-MM-DD; "" when not given */
    uint32_t n_atom;  /* heavy atoms (neither H nor D), in the dictionary's order */
    uint32_t n_bond;
    const fm_component_atom *atoms;
    const fm_component_bond *bonds; /* ascending by (a, b) */
    /* What files of structures say of it: _chem_comp.type, name, formula and formula_weight (Da).
     * Terminated UTF-8 without control bytes; "" and 0 where they are not given. */
    const char *type, *name, *formula;
    float weight;
} fm_component;

typedef struct fm_components {
    uint32_t n;
    const fm_component *items; /* ascending by id, in byte order */
    /* False for a set from a file of version 1, which has no types, names, formulas and weights.
     * Its form stays the same, and so does its hash. */
    bool has_words;
    fm_sha256 hash; /* of the canonical form (fm_components_encode) */
} fm_components;

/* Reads components from mmCIF text with any number of data blocks. Everything is in the arena; the
 * text may be freed. Returns FM_ERR_FORMAT with line and column for text that is not valid, for a
 * bond between atoms that the component does not have, and for an id that comes twice. Returns
 * FM_ERR_LIMIT when a limit is passed. */
FM_MUST_USE fm_status fm_components_parse(fm_bytes text, fm_arena *arena,
                                          fm_components *ret_components, fm_error *reterr);

/* Sets type, name, formula and weight of a component to what is not known. */
void fm_component_clear_words(fm_component *component);

/* Returns the component with that id, or NULL. */
const fm_component *fm_components_find(const fm_components *components, const char *id);

/* Returns the index of the atom of that name, or -1. */
int32_t fm_component_find_atom(const fm_component *component, const char *name);

#endif
