/* assembly.h: the tables of one biological assembly: chains, residues, atoms, tokens and bonds.
 *
 *     chain    |----------- A -----------|--- B ---|-- C --|
 *     residue  | MET | SEP ............ |  ...    |  NAG  |
 *     token    |  1  |1|1|1|1|1|1|1| .. |  ...    |1|1|1|1|
 *     atom     |.....|.|.|.|.|.|.|.| .. |  ...    |.|.|.|.|
 *
 * Each level's items are neighbours in the next one, in the same order. A token is a standard
 * residue, or one atom of anything else. A chain has the atoms of its whole sequence, and a ligand
 * those of its component: atoms that the file lacks are there, unresolved. Rules are those of
 * docs/reference/complexes.md. Everything is in one arena. */
#ifndef FM_COMPLEX_ASSEMBLY_H
#define FM_COMPLEX_ASSEMBLY_H

#include "featurizer/complex/components.h"

/* A chain's entity. */
typedef enum fm_polymer {
    FM_POLYMER_NONE, /* no polymer: ligands, ions, branched sugars */
    FM_POLYMER_PEPTIDE_L,
    FM_POLYMER_PEPTIDE_D,
    FM_POLYMER_RNA,
    FM_POLYMER_DNA,
    FM_POLYMER_HYBRID,
    FM_POLYMER_PEPTIDE_NUCLEIC,
    FM_POLYMER_OTHER,
    FM_N_POLYMER,
} fm_polymer;

typedef struct fm_assembly_entity {
    const char *id; /* label_entity_id; terminated */
    /* One letter for each number, X where a component has none. NULL: no polymer, or one of which
     * the file has no sequence. */
    const char *sequence;
    uint32_t n_residue; /* of the sequence */
    uint8_t polymer;    /* fm_polymer */
} fm_assembly_entity;

typedef struct fm_assembly_chain {
    const char *id; /* label_asym_id, with ".N" for the N-th further copy; terminated */
    const char *label_asym_id, *auth_asym_id; /* terminated */
    uint32_t entity;                          /* of fm_assembly.entities */
    uint32_t first_residue, first_token, first_atom;
    int32_t asym_id, entity_id, sym_id; /* given before chains are left out, so with gaps */
    int32_t mol_id, entity_mol_id;
    uint8_t molecule; /* fm_molecule of most of its atoms */
    bool is_expanded; /* a further copy: its id has a "." */
} fm_assembly_chain;

typedef struct fm_assembly_residue {
    char name[FM_COMPONENT_ID];    /* component, padded with zeros */
    const fm_component *component; /* NULL where the dictionary does not have it */
    uint32_t chain, first_token, first_atom;
    int32_t number; /* label_seq_id; of ligands, from 1 in their chain */
    int32_t ref_space_uid;
    uint8_t molecule; /* fm_molecule: its component's if its entity is a polymer, else a ligand */
    uint8_t restype;  /* class 0..31 */
    bool is_standard; /* one token */
    bool is_modified; /* of a polymer, and not standard */
} fm_assembly_residue;

typedef struct fm_assembly_atom {
    float position[3]; /* Å; +0 where it is not resolved */
    float occupancy, b_factor;
    char name[FM_COMPONENT_NAME]; /* padded with zeros */
    uint32_t residue;
    int32_t in_component; /* its index in the component's atoms; -1: not one of them */
    int32_t mol_atom_index;
    uint8_t element; /* atomic number */
    uint8_t slot;    /* place in its standard residue's component; 0 in other residues */
    bool is_resolved;
    bool is_centre;        /* of its token */
    bool is_distogram_rep; /* the atom that stands for its token in the distogram */
    bool is_plddt_rep;     /* CA or C1' of a standard residue */
} fm_assembly_atom;

typedef struct fm_assembly_bond {
    uint32_t a, b; /* atoms, a < b */
    uint8_t order; /* fm_bond_order */
} fm_assembly_bond;

typedef struct fm_assembly_token {
    uint32_t residue, first_atom, n_atom;
    uint32_t centre; /* atom */
} fm_assembly_token;

/* Two chains with resolved atoms at most 5 Å apart. */
typedef struct fm_assembly_pair {
    uint32_t a, b; /* chains, in the order of their entities' ids as text */
} fm_assembly_pair;

/* How the chains were made of those of the asymmetric unit, so that a cache keeps each of these
 * once. `unit` has the same number for chains that are copies of one chain, in no order. */
typedef struct fm_assembly_origin {
    const uint32_t *unit, *again; /* [n_chain] 0: the first copy; N: the N-th further one */
    const uint32_t *first_step;   /* [n_chain + 1] places in steps */
    const uint32_t *steps;        /* operations; the last one is applied first */
    uint32_t n_operation;
    const double (*operations)[3][4]; /* [n_operation] rotation, translation */
    const uint32_t *first_position;   /* [n_chain] */
    const float (*positions)[3];      /* Å; of the asymmetric unit's atoms */
} fm_assembly_origin;

typedef struct fm_assembly {
    uint32_t n_entity, n_chain, n_residue, n_token, n_atom, n_bond, n_pair;
    const fm_assembly_entity *entities; /* of the file, in its order */
    const fm_assembly_chain *chains;
    const fm_assembly_residue *residues;
    const fm_assembly_token *tokens;
    const fm_assembly_atom *atoms;
    const fm_assembly_bond *bonds;    /* ascending by (a, b) */
    const fm_assembly_pair *pairs;    /* interfaces among the chains of the assembly */
    char release_date[11];            /* of the first revision; 9999-12-31 when not given */
    float resolution;                 /* Å; -1 when not given */
    const char *method;               /* as written, several joined by ','; terminated */
    const fm_assembly_origin *origin; /* NULL where the assembly was not read from its file */
} fm_assembly;

/* The end of a chain's or a residue's items. */
static inline uint32_t fm_assembly_chain_end_atom(const fm_assembly *assembly, uint32_t chain) {
    return chain + 1 < assembly->n_chain ? assembly->chains[chain + 1].first_atom
                                         : assembly->n_atom;
}
static inline uint32_t fm_assembly_residue_end_atom(const fm_assembly *assembly, uint32_t residue) {
    return residue + 1 < assembly->n_residue ? assembly->residues[residue + 1].first_atom
                                             : assembly->n_atom;
}

#endif
