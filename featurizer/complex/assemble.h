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
    const uint32_t *steps;   /* [n_step] its operations, the last one applied first */
    uint32_t n_step;
    uint32_t again;   /* copies of its chain before it */
    bool is_expanded; /* not the first copy of its chain */
    bool is_out;      /* left out */
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
    double (*operations)[3][4]; /* [n_operation] rotation, translation */
    uint32_t n_operation;
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

/* Applies operations to a position, the last one first. Every step computes in double, in this
 * order, and rounds to float. */
static inline void fm_operations_apply(const double (*operations)[3][4], const uint32_t *steps,
                                       uint32_t n_step, float position[3]) {
    for (uint32_t step = n_step; step-- > 0;) {
        double from[3] = {(double)position[0], (double)position[1], (double)position[2]};
        for (int axis = 0; axis < 3; axis++) {
            const double *row = operations[steps[step]][axis];
            double sum = row[0] * from[0] + row[1] * from[1];
            sum = sum + row[2] * from[2];
            position[axis] = (float)(sum + row[3]);
        }
    }
}

/* Returns the fm_molecule of most atoms, from the number of atoms of each; of equal ones that which
 * is named last. */
static inline uint8_t fm_molecule_of_most(const uint32_t n[FM_N_MOLECULE]) {
    static const uint8_t by_name[] = {FM_MOLECULE_DNA, FM_MOLECULE_LIGAND, FM_MOLECULE_PROTEIN,
                                      FM_MOLECULE_RNA};
    uint8_t best = by_name[0];
    for (size_t i = 1; i < sizeof by_name; i++)
        if (n[by_name[i]] >= n[best]) best = by_name[i];
    return best;
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
