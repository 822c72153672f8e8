/* assemble.h: the copies of chains that make up an assembly; what read.c does after completion.
 *
 *     expand -> clashes -> order, molecules -> at most 20 molecules -> interfaces -> tables
 *
 * A copy is a chain of the asymmetric unit and an operation. Its atoms are the chain's, in the same
 * order, with their own positions; everything else is looked up in the asymmetric unit. */
#ifndef FM_COMPLEX_ASSEMBLE_H
#define FM_COMPLEX_ASSEMBLE_H

#include "featurizer/complex/asym.h"

typedef struct fm_copy {
    const char *id;               /* terminated */
    uint32_t chain;               /* of the asymmetric unit */
    uint32_t first_atom;          /* place in fm_copies.positions */
    uint32_t source_atom, n_atom; /* its atoms in the asymmetric unit */
    int32_t asym_id, entity_id, sym_id;
    int32_t mol_id, entity_mol_id;
    uint32_t mol_first_atom; /* atoms of its molecule in the chains before it */
    uint32_t first_uid;      /* ref_space_uid of its first residue */
    bool is_expanded;        /* not the first copy of its chain */
    bool is_out;             /* left out */
} fm_copy;

typedef struct fm_copies {
    fm_asym *asym;
    uint32_t n, n_atom, n_bond;
    fm_copy *items;        /* in the order of the operations */
    float (*positions)[3]; /* [n_atom] */
    uint32_t *owners;      /* [n_atom] copy */
    /* By residue and atom of the asymmetric unit: what all copies have in common. */
    fm_assembly_residue *residues;
    fm_assembly_atom *atoms;
    fm_asym_bond *bonds; /* between copies, ascending by (a, b); a, b are places in positions */
    uint32_t *order;     /* [n_order] copies that stay, in the assembly's order */
    uint32_t *by_id;     /* [n] all copies, by id as text */
    uint32_t n_order, n_molecule;
} fm_copies;

/* The atom of the asymmetric unit of which `atom` is a copy. */
static inline uint32_t fm_copies_source(const fm_copies *copies, uint32_t atom) {
    const fm_copy *copy = &copies->items[copies->owners[atom]];
    return copy->source_atom + (atom - copy->first_atom);
}
static inline const fm_asym_entity *fm_copies_entity(const fm_copies *copies, uint32_t copy) {
    const fm_asym *asym = copies->asym;
    return &asym->entities[asym->chains[copies->items[copy].chain].entity];
}

/* Sets of joined numbers: root[i] leads to the smallest number of i's set. */
static inline uint32_t fm_union_root(uint32_t *root, uint32_t i) {
    while (root[i] != i) {
        root[i] = root[root[i]];
        i = root[i];
    }
    return i;
}
static inline void fm_union_join(uint32_t *root, uint32_t a, uint32_t b) {
    a = fm_union_root(root, a);
    b = fm_union_root(root, b);
    if (a < b) {
        root[b] = a;
    } else {
        root[a] = b;
    }
}

/* Takes away bonds between chains that not all copies of the entities have (asym_symmetry.c). */
FM_MUST_USE fm_status fm_asym_drop_asymmetric(fm_asym *asym);
/* Makes the copies of assembly 1 (expand.c). */
FM_MUST_USE fm_status fm_copies_expand(fm_asym *asym, fm_copies *ret_copies);
/* Leaves out copies that lie in others (clashes.c). */
FM_MUST_USE fm_status fm_copies_drop_clashing(fm_copies *copies);
/* Sorts copies and finds molecules (molecules.c). */
FM_MUST_USE fm_status fm_copies_sort(fm_copies *copies);
/* Keeps 20 molecules around one point (molecules.c). */
FM_MUST_USE fm_status fm_copies_limit(fm_copies *copies);
/* Finds interfaces, leaves out what is not connected by them, and fills the tables (tables.c). */
FM_MUST_USE fm_status fm_copies_fill(fm_copies *copies, fm_assembly *ret_assembly);

#endif
