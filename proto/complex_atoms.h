/* complex_atoms.h: the names of a complex that is predicted: its entities, chains, residues, atoms
 * and bonds, and the chemical components that they are made of.
 *
 * A network's sample has numbers only. Scores, structure files and pages need the names too. They
 * are arrays beside those of the sample, in the same .npz, with the prefix "names/". The sample's
 * atom_to_token_idx says which token an atom belongs to. docs/reference/complex-samples.md has the
 * table of the arrays. */
#ifndef FM_COMPLEX_ATOMS_H
#define FM_COMPLEX_ATOMS_H

#include "proto/chem/bond.h"
#include "proto/npz.h"

#include <stdbool.h>

/* What an entity is. */
typedef enum fm_complex_kind {
    FM_COMPLEX_PROTEIN,
    FM_COMPLEX_RNA,
    FM_COMPLEX_DNA,
    FM_COMPLEX_LIGAND, /* one component or several; an ion is a ligand */
    FM_N_COMPLEX_KIND,
} fm_complex_kind;

/* Texts are UTF-8 without control bytes. Ids and names have 1 to FM_LIMIT_NAME_BYTES bytes and no
 * blanks; other texts may be empty. All pointers are borrowed. */
typedef struct fm_complex_atoms {
    /* Entities, in the order of the job's description. */
    uint32_t n_entity;
    const uint8_t *entity_kind; /* [n_entity] fm_complex_kind */
    const char *const *entity_description;

    /* Chains, in the order of asym_id. */
    uint32_t n_chain;
    const char *const *chain_id; /* no two are equal */
    const int32_t *chain_entity; /* rows of entities; every entity has a chain */

    /* Residues of polymers and components of ligands, chain after chain. */
    uint32_t n_residue;
    const int32_t *residue_chain;     /* ascending; every chain has a residue */
    const int32_t *residue_number;    /* 1, 2, ... in each chain */
    const int32_t *residue_component; /* rows of components */
    const uint8_t *residue_letter;    /* the letter of the standard residue, 'A' to 'Z': S for SEP;
                                         '?' where there is none */

    /* Atoms, in the network's order. */
    uint32_t n_atom;
    const int32_t *atom_residue; /* ascending; every residue has an atom */
    const char *const *atom_name;
    const uint8_t *atom_element; /* atomic numbers; 0: X */
    const int8_t *atom_charge;

    /* Bonds between residues: the links of polymers, and all others. */
    uint32_t n_bond;
    const int32_t *bond; /* [n_bond, 2] atoms, the first less than the second */

    /* Components: every one that a residue has, once. */
    uint32_t n_component;
    const char *const *component_id;          /* "ATP" */
    const char *const *component_type;        /* "NON-POLYMER"; "": not known */
    const char *const *component_description; /* the component's name; "": not known */
    const char *const *component_formula;     /* "C10 H16 N5 O13 P3"; "": not known */
    const float *component_weight;            /* Da; 0: not known */

    /* Heavy atoms of the components, also those that left; component after component. */
    uint32_t n_component_atom;
    const int32_t *component_atom_component; /* ascending; every component has an atom */
    const char *const *component_atom_name;
    const uint8_t *component_atom_element;
    const int8_t *component_atom_charge;
    const uint8_t *component_atom_is_aromatic; /* 0/1 */
    const uint8_t *component_atom_is_leaving;  /* 0/1 */

    /* Bonds inside the components. */
    uint32_t n_component_bond;
    const int32_t *component_bond; /* [n_component_bond, 2] rows of the components' atoms, both of
                                      one component, the first less than the second */
    const uint8_t *component_bond_order; /* fm_bond_order */
} fm_complex_atoms;

/* Adds the table's arrays to an archive. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_complex_atoms_append(fm_npz_writer *writer, const fm_complex_atoms *atoms,
                                              fm_error *reterr);

/* Reads the table from an archive and checks all of what is said above. Arrays of numbers are
 * borrowed from the archive, texts are in the arena. Returns FM_ERR_DATA with the array, what was
 * found and what was expected, and FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_complex_atoms_read(const fm_npz *npz, fm_arena *arena,
                                            fm_complex_atoms *ret_atoms, fm_error *reterr);

/* Whether a chain is a polymer. `chain` < n_chain. */
static inline bool fm_complex_is_polymer(const fm_complex_atoms *atoms, uint32_t chain) {
    return atoms->entity_kind[atoms->chain_entity[chain]] != FM_COMPLEX_LIGAND;
}

#endif
