/* complex_interfaces.c: which chains touch, and DockQ; see complex_metrics.h. */
#include "trainer/metrics/complex_metrics_internal.h"
#include "trainer/metrics/structure_metrics.h"

static const double CONTACT = 5, INTERFACE = 10;          /* Å */
static const double IRMSD_SCALE = 1.5, LRMSD_SCALE = 8.5; /* Å */

/* Whether the residues have true atoms less than `limit` apart. */
static bool are_near(const compared *c, const compared_residue *one, const compared_residue *two,
                     double limit) {
    if (compared_is_far(one, two, limit)) return false;
    for (int64_t i = one->first; i < one->end; i++) {
        for (int64_t k = two->first; k < two->end; k++) {
            if (compared_distance(c->atoms[i].truth, c->atoms[k].truth) < limit) return true;
        }
    }
    return false;
}

/* The same of the predicted atoms and the limit of contacts. */
static bool have_contact(const compared *c, const compared_residue *one,
                         const compared_residue *two) {
    for (int64_t i = one->first; i < one->end; i++) {
        for (int64_t k = two->first; k < two->end; k++) {
            if (compared_distance(c->atoms[i].predicted, c->atoms[k].predicted) < CONTACT) {
                return true;
            }
        }
    }
    return false;
}

bool fm_compared_touch(const compared *c, int64_t a, int64_t b) {
    for (int64_t i = c->first_residue[a]; i < c->first_residue[a + 1]; i++) {
        for (int64_t k = c->first_residue[b]; k < c->first_residue[b + 1]; k++) {
            if (are_near(c, &c->residues[i], &c->residues[k], CONTACT)) return true;
        }
    }
    return false;
}

static size_t push_backbone(const compared *c, const compared_residue *residue, size_t n) {
    for (int64_t i = residue->first; i < residue->end; i++)
        if (c->atoms[i].is_backbone) n = compared_push(c, &c->atoms[i], n);
    return n;
}

/* Appends the backbone of the residues of `own` that are near the chain `other`. */
static size_t push_interface(const compared *c, int64_t own, int64_t other, size_t n) {
    for (int64_t i = c->first_residue[own]; i < c->first_residue[own + 1]; i++) {
        for (int64_t k = c->first_residue[other]; k < c->first_residue[other + 1]; k++) {
            if (!are_near(c, &c->residues[i], &c->residues[k], INTERFACE)) continue;
            n = push_backbone(c, &c->residues[i], n);
            break;
        }
    }
    return n;
}

static size_t push_chain(const compared *c, int64_t chain, size_t n) {
    for (int64_t i = c->first_residue[chain]; i < c->first_residue[chain + 1]; i++)
        n = push_backbone(c, &c->residues[i], n);
    return n;
}

/* RMSD of the second chain's backbone after superposition of the first one's. */
static double ligand_rmsd(const compared *c, int64_t receptor, int64_t ligand) {
    const size_t n = push_chain(c, receptor, 0), end = push_chain(c, ligand, n);
    if (n < COMPARE_LEAST_POINTS || end == n) return NAN;
    const fm_motion motion = fm_superpose(n, c->moving, c->fixed);
    double square = 0;
    for (size_t i = n; i < end; i++) {
        double moved[3];
        fm_motion_apply(&motion, c->moving + 3 * i, moved);
        const double d = compared_distance(moved, c->fixed + 3 * i);
        square += d * d;
    }
    return sqrt(square / (double)(end - n));
}

static double scaled(double rmsd, double scale) {
    return 1 / (1 + rmsd / scale * (rmsd / scale));
}

fm_dockq fm_compared_dockq(const compared *c, int64_t a, int64_t b) {
    int64_t kept = 0;
    fm_dockq out = {.n_contact = 0};
    for (int64_t i = c->first_residue[a]; i < c->first_residue[a + 1]; i++) {
        for (int64_t k = c->first_residue[b]; k < c->first_residue[b + 1]; k++) {
            if (!are_near(c, &c->residues[i], &c->residues[k], CONTACT)) continue;
            out.n_contact++;
            kept += have_contact(c, &c->residues[i], &c->residues[k]);
        }
    }
    out.fnat = (double)kept / (double)out.n_contact; /* chains that touch have contacts */
    const size_t n = push_interface(c, b, a, push_interface(c, a, b, 0));
    out.irmsd = n < COMPARE_LEAST_POINTS ? NAN : fm_rmsd(n, c->moving, c->fixed);
    const bool is_first_longer = c->first_residue[a + 1] - c->first_residue[a] >
                                 c->first_residue[b + 1] - c->first_residue[b];
    out.lrmsd = is_first_longer ? ligand_rmsd(c, a, b) : ligand_rmsd(c, b, a);
    out.dockq = (out.fnat + scaled(out.irmsd, IRMSD_SCALE) + scaled(out.lrmsd, LRMSD_SCALE)) / 3;
    return out;
}
