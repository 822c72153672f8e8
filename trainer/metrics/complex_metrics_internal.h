/* complex_metrics_internal.h: what the files that score a complex share. */
#ifndef FM_TRAINER_COMPLEX_METRICS_INTERNAL_H
#define FM_TRAINER_COMPLEX_METRICS_INTERNAL_H

#include "trainer/metrics/complex_metrics.h"

#include <math.h>

enum { COMPARE_LEAST_POINTS = 3 }; /* that fix a superposition */

/* An atom whose label has a known position. */
typedef struct compared_atom {
    double predicted[3], truth[3];
    bool is_backbone;
} compared_atom;

/* A residue with such atoms, which lie within `radius` of `centre` in the truth. */
typedef struct compared_residue {
    int64_t first, end;             /* atoms */
    int64_t first_label, end_label; /* all atoms of the residue, as the labels count them */
    int64_t chain;
    double centre[3], radius;
} compared_residue;

typedef struct compared {
    const fm_compared_complex *pair;
    int64_t *label;
    int64_t n_chain, n_residue, n_atom;
    fm_compared_chain *chains;
    compared_residue *residues;
    int64_t *first_residue; /* [n_chain + 1] */
    compared_atom *atoms;
    double *moving, *fixed; /* [n_atom, 3] room for a superposition */
    int64_t *room;          /* [n_atom] */
    bool *is_pocket;        /* [n_atom] */
} compared;

static inline double compared_distance(const double *a, const double *b) {
    double x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
    return sqrt(x * x + y * y + z * z);
}
/* Whether no true atoms of the two residues can be less than `limit` apart. */
static inline bool compared_is_far(const compared_residue *a, const compared_residue *b,
                                   double limit) {
    return compared_distance(a->centre, b->centre) > limit + a->radius + b->radius;
}
/* Appends an atom to the points of a superposition. Returns their new number. */
static inline size_t compared_push(const compared *c, const compared_atom *atom, size_t n) {
    for (size_t axis = 0; axis < 3; axis++) {
        c->moving[3 * n + axis] = atom->predicted[axis];
        c->fixed[3 * n + axis] = atom->truth[axis];
    }
    return n + 1;
}

/* Whether the chains have true atoms less than 5 Å apart (complex_interfaces.c). */
bool fm_compared_touch(const compared *c, int64_t a, int64_t b);
/* DockQ of two protein chains that touch. */
fm_dockq fm_compared_dockq(const compared *c, int64_t a, int64_t b);

/* Superposes the true pocket of a ligand on the predicted one. Returns the chain of the pocket, or
 * -1 where it has too few atoms. is_pocket has room for all atoms (complex_ligands.c). */
int64_t fm_compared_find_pocket(const compared *c, int64_t ligand, bool *is_pocket,
                                fm_motion *ret_motion);
/* RMSD of the ligand's atoms once the truth has moved; NAN without atoms. */
double fm_compared_ligand_rmsd(const compared *c, int64_t ligand, const fm_motion *motion);

#endif
