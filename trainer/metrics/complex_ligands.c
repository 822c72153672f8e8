/* complex_ligands.c: RMSD of ligands in their pockets; see complex_metrics.h. */
#include "trainer/metrics/complex_metrics_internal.h"

static const double POCKET = 10; /* Å */

/* Whether the atom is less than 10 Å from a ligand in the truth. */
static bool is_near(const compared *c, const compared_residue *residue, const compared_atom *atom,
                    int64_t ligand) {
    for (int64_t r = c->first_residue[ligand]; r < c->first_residue[ligand + 1]; r++) {
        if (compared_is_far(residue, &c->residues[r], POCKET)) continue;
        for (int64_t i = c->residues[r].first; i < c->residues[r].end; i++) {
            if (compared_distance(atom->truth, c->atoms[i].truth) < POCKET) return true;
        }
    }
    return false;
}

/* Marks the atoms of a polymer that are near the ligand. Returns their number. */
static int64_t mark_near(const compared *c, int64_t polymer, int64_t ligand, bool *is_pocket) {
    int64_t n = 0;
    for (int64_t r = c->first_residue[polymer]; r < c->first_residue[polymer + 1]; r++) {
        const compared_residue *residue = &c->residues[r];
        for (int64_t i = residue->first; i < residue->end; i++) {
            is_pocket[i] = is_near(c, residue, &c->atoms[i], ligand);
            n += is_pocket[i];
        }
    }
    return n;
}

/* Returns the polymer chain with most atoms near the ligand, or -1. */
static int64_t choose_polymer(const compared *c, int64_t ligand, bool *is_pocket) {
    int64_t best = -1, most = 0;
    for (int64_t a = 0; a < c->n_chain; a++) {
        if (c->chains[a].kind == FM_CHAIN_LIGAND) continue;
        const int64_t n = mark_near(c, a, ligand, is_pocket);
        if (n <= most) continue;
        most = n;
        best = a;
    }
    return best;
}

static size_t push_pocket(const compared *c, int64_t polymer, const bool *is_pocket) {
    const bool is_protein = c->chains[polymer].kind == FM_CHAIN_PROTEIN;
    size_t n = 0;
    for (int64_t r = c->first_residue[polymer]; r < c->first_residue[polymer + 1]; r++) {
        for (int64_t i = c->residues[r].first; i < c->residues[r].end; i++) {
            if (!is_pocket[i] || (is_protein && !c->atoms[i].is_backbone)) continue;
            n = compared_push(c, &c->atoms[i], n);
        }
    }
    return n;
}

int64_t fm_compared_find_pocket(const compared *c, int64_t ligand, bool *is_pocket,
                                fm_motion *ret_motion) {
    const int64_t polymer = choose_polymer(c, ligand, is_pocket);
    if (polymer < 0) return -1;
    (void)mark_near(c, polymer, ligand, is_pocket); /* another chain's marks may be the last */
    const size_t n = push_pocket(c, polymer, is_pocket);
    if (n < COMPARE_LEAST_POINTS) return -1;
    *ret_motion = fm_superpose(n, c->fixed, c->moving);
    return polymer;
}

double fm_compared_ligand_rmsd(const compared *c, int64_t ligand, const fm_motion *motion) {
    double square = 0;
    int64_t n = 0;
    for (int64_t r = c->first_residue[ligand]; r < c->first_residue[ligand + 1]; r++) {
        for (int64_t i = c->residues[r].first; i < c->residues[r].end; i++, n++) {
            double moved[3];
            fm_motion_apply(motion, c->atoms[i].truth, moved);
            const double d = compared_distance(moved, c->atoms[i].predicted);
            square += d * d;
        }
    }
    return n ? sqrt(square / (double)n) : NAN;
}
