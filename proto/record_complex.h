/* record_complex.h: the parts of a complex, beside those of chains in record.h.
 *
 * The assembly part has one biological assembly: the chains of its asymmetric unit once, with their
 * residues and atoms, and its copies as operations on them. What follows from the components (the
 * names, elements and bonds of a residue's atoms) is not in it, but exceptions are. The entities
 * part names the alignments and template hits of each entity by the identities of parts, as hits
 * name structures. docs/reference/record.md has the byte tables. Memory is as in record.h. */
#ifndef FM_RECORD_COMPLEX_H
#define FM_RECORD_COMPLEX_H

#include "proto/chem/bond.h"
#include "proto/record.h"

enum { FM_PART_ASSEMBLY_FORMAT = 1, FM_PART_ENTITIES_FORMAT = 1 };

/* Bytes of a component's id and of an atom's name, padded with zeros. */
enum { FM_PART_NAME_BYTES = 8 };

enum { FM_PART_N_POLYMER = 8 }; /* values of an entity's polymer */

typedef struct fm_part_entity {
    const char *id;       /* terminated */
    const char *sequence; /* terminated; NULL: none */
    uint32_t n_residue;   /* of the sequence; of a polymer */
    uint8_t polymer;      /* fm_polymer of featurizer/complex/assembly.h */
} fm_part_entity;

/* A chain of the asymmetric unit. */
typedef struct fm_part_unit {
    const char *label_asym_id, *auth_asym_id; /* terminated */
    uint32_t entity, n_residue;
} fm_part_unit;

/* A copy of a unit in the assembly, in the assembly's order of chains. */
typedef struct fm_part_copy {
    uint32_t unit;
    uint32_t again; /* 0: the unit's first copy; N: its N-th further one */
    int32_t asym_id, entity_id, sym_id, mol_id, entity_mol_id;
    uint32_t first_uid;      /* ref_space_uid of its first residue */
    uint32_t mol_first_atom; /* mol_atom_index of its first atom */
    uint32_t n_step;         /* its operations, the last one applied first */
} fm_part_copy;

typedef struct fm_part_bond {
    uint32_t a, b; /* atoms, a < b */
    uint8_t order; /* fm_bond_order */
} fm_part_bond;

/* An atom's name and element where they are not those of its component's atom. */
typedef struct fm_part_other_atom {
    uint32_t atom;
    char name[FM_PART_NAME_BYTES];
    uint8_t element; /* atomic number, 0: X */
} fm_part_other_atom;

typedef struct fm_part_assembly {
    char release_date[FM_RELEASE_DATE];
    float resolution;     /* Å; -1 when not given */
    fm_sha256 components; /* hash of the set of components */
    const char *method;   /* terminated */
    uint32_t n_entity, n_unit, n_residue, n_atom, n_copy, n_operation, n_step;
    uint32_t n_other, n_absent, n_unit_bond, n_copy_bond, n_pair;
    const fm_part_entity *entities;                 /* [n_entity] */
    const fm_part_unit *units;                      /* [n_unit] */
    const char (*residue_name)[FM_PART_NAME_BYTES]; /* [n_residue] component */
    const int32_t *residue_number;                  /* [n_residue] */
    const uint32_t *residue_n_atom;                 /* [n_residue]; they add up to n_atom */
    const int32_t *in_component;                    /* [n_atom] place in its component, or -1 */
    const uint8_t *is_resolved;                     /* [n_atom] 0 or 1 */
    const float (*positions)[3];       /* [n_atom] Å; zeros where it is not resolved */
    const float *occupancy, *b_factor; /* [n_atom] */
    const fm_part_other_atom *others;  /* [n_other] ascending by atom */
    const fm_part_copy *copies;        /* [n_copy] */
    const double (*operations)[3][4];  /* [n_operation] rotation, translation */
    const uint32_t *steps;             /* [n_step] operations, by copy */
    /* Bonds within units are those of the components between present atoms of a residue, ascending,
     * without those at the places `absent`, and with unit_bonds. Atoms of unit bonds are those of
     * the units, and of copy bonds those of the assembly. All are ascending. */
    const uint32_t *absent;         /* [n_absent] */
    const fm_part_bond *unit_bonds; /* [n_unit_bond] */
    const fm_part_bond *copy_bonds; /* [n_copy_bond] */
    const uint32_t (*pairs)[2];     /* [n_pair] copies that touch */
} fm_part_assembly;

/* The identities of an entity's parts; zeros where it has none. */
typedef struct fm_part_entity_inputs {
    fm_sha256 paired, unpaired; /* msa parts: rows that may be paired, all rows */
    fm_sha256 hits;             /* hits part */
} fm_part_entity_inputs;

/* Whether that is the identity of a part, and not zeros. */
bool fm_entity_has_part(const fm_sha256 *identity);

typedef struct fm_part_entities {
    uint32_t n_entity;                   /* of the assembly part */
    const fm_part_entity_inputs *inputs; /* [n_entity] */
} fm_part_entities;

/* Encoders and decoders keep the rules of record.h. The assembly's decoder checks every number, but
 * what the components must know is left to fm_assembly_unpack. */
FM_MUST_USE fm_status fm_part_assembly_encode(const fm_part_assembly *part, fm_arena *arena,
                                              fm_bytes *ret_bytes, fm_error *reterr);
FM_MUST_USE fm_status fm_part_assembly_decode(fm_bytes bytes, fm_arena *arena,
                                              fm_part_assembly *ret_part, fm_error *reterr);
FM_MUST_USE fm_status fm_part_entities_encode(const fm_part_entities *part, fm_arena *arena,
                                              fm_bytes *ret_bytes, fm_error *reterr);
FM_MUST_USE fm_status fm_part_entities_decode(fm_bytes bytes, fm_arena *arena,
                                              fm_part_entities *ret_part, fm_error *reterr);

#endif
