/* leaving.h: the groups of a component's atoms that leave when it is bonded.
 *
 * A group hangs on a centre, an atom that does not leave, by one bond to an atom that leaves; it is
 * what that bond alone holds to the rest. Only heavy atoms count. */
#ifndef FM_COMPLEX_LEAVING_H
#define FM_COMPLEX_LEAVING_H

#include "featurizer/complex/components.h"

typedef struct fm_leaving {
    bool is_ambiguous; /* some group holds an atom that does not leave; then there are none */
    uint32_t n_group;
    uint16_t *centres;         /* [n_group] ascending */
    uint32_t *first;           /* [n_group + 1] places in members */
    uint16_t *members;         /* atoms of the groups */
    uint32_t *first_neighbour; /* [n_atom + 1] places in neighbours */
    uint16_t *neighbours;      /* of each atom, ascending */
} fm_leaving;

/* Finds a component's groups, by their centres and then their first atoms. */
FM_MUST_USE fm_status fm_leaving_find(const fm_component *component, fm_arena *arena,
                                      fm_leaving *ret_leaving, fm_error *reterr);

/* Marks the atoms that leave `centre` when it has n_bond bonds to other residues: all groups if it
 * has enough bonds, else those first of which no atom is resolved. Returns the centre's number of
 * groups. */
uint32_t fm_leaving_mark(const fm_leaving *leaving, uint32_t centre, uint32_t n_bond,
                         const bool *is_resolved, bool *leaves);

/* Returns whether every group of the centre has a resolved atom. */
bool fm_leaving_is_resolved(const fm_leaving *leaving, uint32_t centre, const bool *is_resolved);

/* Finds the atoms that the bond of a polymer joins, if both components are of peptides (C and N) or
 * both of nucleic acids (O3' and P) and have them; -1 else. */
void fm_component_find_link(const fm_component *one, const fm_component *two, int32_t *ret_a,
                            int32_t *ret_b);

/* Returns whether the atom has one bond to heavy atoms. */
static inline bool fm_leaving_is_terminal(const fm_leaving *leaving, uint32_t atom) {
    return leaving->first_neighbour[atom + 1] - leaving->first_neighbour[atom] == 1;
}

#endif
