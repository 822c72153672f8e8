/* fold.c: see fold.h. */
#include "featurizer/synth/fold.h"

static fm_synth_backbone first_residue(const fm_synth_torsions *torsions) {
    fm_synth_backbone first;
    first.n = (fm_vec3){0, 0, 0};
    first.ca = (fm_vec3){FM_IDEAL_N_CA, 0, 0};
    /* Any third point off the line fixes the rest; phi has no meaning for the first residue. */
    fm_vec3 aside = {0, 1, 0};
    first.c =
        fm_geometry_place(aside, first.n, first.ca, FM_IDEAL_CA_C, FM_IDEAL_N_CA_C, torsions->phi);
    return first;
}

void fm_synth_backbone_extend(fm_synth_backbone *backbone, const fm_synth_torsions *torsions,
                              uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++) {
        if (i == 0) {
            backbone[0] = first_residue(&torsions[0]);
            continue;
        }
        const fm_synth_backbone *before = &backbone[i - 1];
        fm_synth_backbone *here = &backbone[i];
        here->n = fm_geometry_place(before->n, before->ca, before->c, FM_IDEAL_C_N, FM_IDEAL_CA_C_N,
                                    torsions[i - 1].psi);
        here->ca = fm_geometry_place(before->ca, before->c, here->n, FM_IDEAL_N_CA, FM_IDEAL_C_N_CA,
                                     torsions[i].omega);
        here->c = fm_geometry_place(before->c, here->n, here->ca, FM_IDEAL_CA_C, FM_IDEAL_N_CA_C,
                                    torsions[i].phi);
    }
}

uint32_t fm_synth_backbone_clashes(const fm_synth_backbone *backbone, uint32_t from, uint32_t to) {
    uint32_t clashes = 0;
    for (uint32_t i = from < 3 ? 3 : from; i < to; i++) {
        for (uint32_t j = 0; j + 3 <= i; j++) {
            fm_vec3 apart = fm_vec3_sub(backbone[i].ca, backbone[j].ca);
            double limit = i - j > 4 ? 4.5 : 4.0;
            clashes += fm_vec3_dot(apart, apart) < limit * limit;
        }
    }
    return clashes;
}

static double draw_one_chi(fm_synth_draws *draws, unsigned kind) {
    static const uint16_t rotamer_weight[3] = {5, 3, 1};
    static const double rotamer[3] = {-62, 178, 61};
    switch (kind) {
    case FM_CHI_ROTAMER:
        return rotamer[fm_synth_draw_weighted(draws, rotamer_weight, 3)] +
               fm_synth_draw_spread(draws, 10);
    case FM_CHI_AMIDE: return fm_synth_draw_spread(draws, 90);
    case FM_CHI_RING:
        return (fm_synth_draw_chance(draws, 1, 2) ? 85 : -85) + fm_synth_draw_spread(draws, 20);
    default: return 180 + fm_synth_draw_spread(draws, 15); /* FM_CHI_TRANS */
    }
}

void fm_synth_draw_chi(fm_synth_draws *draws, unsigned aatype, double ret_chi[4]) {
    const fm_ideal_residue *ideal = fm_ideal_residue_of(aatype);
    for (unsigned i = 0; i < ideal->n_chi; i++) {
        if (ideal->chi_kind[i] == FM_CHI_PUCKER) {
            /* Puckered up or down: chi2 compensates chi1, so that CD closes the ring on N. */
            double pucker = fm_synth_draw_chance(draws, 1, 2) ? 1 : -1;
            ret_chi[0] = 28 * pucker;
            ret_chi[1] = -33 * pucker;
            return;
        }
        ret_chi[i] = draw_one_chi(draws, ideal->chi_kind[i]);
    }
}

uint32_t fm_synth_residue_atoms(unsigned aatype, const fm_synth_backbone *backbone, double psi,
                                const double chi[4], bool last, fm_vec3 *out) {
    const fm_ideal_residue *ideal = fm_ideal_residue_of(aatype);
    out[0] = backbone->n;
    out[1] = backbone->ca;
    out[2] = backbone->c;
    /* O is in the peptide plane, opposite to the next N. */
    out[3] = fm_geometry_place(out[0], out[1], out[2], FM_IDEAL_C_O, FM_IDEAL_CA_C_O, psi + 180);
    uint32_t n = FM_IDEAL_N_BACKBONE;
    for (unsigned i = 0; i < ideal->n_side; i++) {
        const fm_ideal_atom *atom = &ideal->side[i];
        double dihedral = atom->dihedral + (atom->chi ? chi[atom->chi - 1] : 0);
        out[n++] = fm_geometry_place(out[atom->from[0]], out[atom->from[1]], out[atom->from[2]],
                                     atom->bond, atom->angle, dihedral);
    }
    if (last) {
        out[n++] = fm_geometry_place(out[0], out[1], out[2], FM_IDEAL_C_OXT, FM_IDEAL_CA_C_O, psi);
    }
    return n;
}
