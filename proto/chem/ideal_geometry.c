/* ideal_geometry.c: see ideal_geometry.h. */
#include "proto/chem/ideal_geometry.h"

#include <assert.h>
#include <stddef.h>

/* Rows: name, element, {the three atoms placed before}, chi, bond, angle, dihedral. */
static const fm_ideal_atom side_ala[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.521, 110.4, -122.6},
};
static const fm_ideal_atom side_arg[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6}, {"CG", "C", {0, 1, 4}, 1, 1.520, 114.1, 0.0},
    {"CD", "C", {1, 4, 5}, 2, 1.520, 111.3, 0.0},    {"NE", "N", {4, 5, 6}, 3, 1.461, 112.0, 0.0},
    {"CZ", "C", {5, 6, 7}, 4, 1.329, 124.2, 0.0},    {"NH1", "N", {6, 7, 8}, 0, 1.326, 120.0, 0.0},
    {"NH2", "N", {6, 7, 8}, 0, 1.326, 119.9, 180.0},
};
static const fm_ideal_atom side_asn[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6},
    {"CG", "C", {0, 1, 4}, 1, 1.516, 112.6, 0.0},
    {"OD1", "O", {1, 4, 5}, 2, 1.231, 120.8, 0.0},
    {"ND2", "N", {1, 4, 5}, 2, 1.328, 116.4, 180.0},
};
static const fm_ideal_atom side_asp[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6},
    {"CG", "C", {0, 1, 4}, 1, 1.516, 112.6, 0.0},
    {"OD1", "O", {1, 4, 5}, 2, 1.249, 118.4, 0.0},
    {"OD2", "O", {1, 4, 5}, 2, 1.249, 118.4, 180.0},
};
static const fm_ideal_atom side_cys[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6},
    {"SG", "S", {0, 1, 4}, 1, 1.808, 114.4, 0.0},
};
static const fm_ideal_atom side_gln[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6}, {"CG", "C", {0, 1, 4}, 1, 1.520, 114.1, 0.0},
    {"CD", "C", {1, 4, 5}, 2, 1.516, 112.6, 0.0},    {"OE1", "O", {4, 5, 6}, 3, 1.231, 120.8, 0.0},
    {"NE2", "N", {4, 5, 6}, 3, 1.328, 116.4, 180.0},
};
static const fm_ideal_atom side_glu[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6}, {"CG", "C", {0, 1, 4}, 1, 1.520, 114.1, 0.0},
    {"CD", "C", {1, 4, 5}, 2, 1.516, 112.6, 0.0},    {"OE1", "O", {4, 5, 6}, 3, 1.249, 118.4, 0.0},
    {"OE2", "O", {4, 5, 6}, 3, 1.249, 118.4, 180.0},
};
static const fm_ideal_atom side_his[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6},
    {"CG", "C", {0, 1, 4}, 1, 1.497, 113.8, 0.0},
    {"ND1", "N", {1, 4, 5}, 2, 1.378, 122.7, 0.0},
    {"CD2", "C", {1, 4, 5}, 2, 1.354, 131.2, 180.0},
    {"CE1", "C", {4, 5, 6}, 0, 1.321, 109.0, 180.0},
    {"NE2", "N", {4, 5, 7}, 0, 1.374, 107.2, 180.0},
};
static const fm_ideal_atom side_ile[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.540, 111.5, -123.0},
    {"CG1", "C", {0, 1, 4}, 1, 1.530, 110.4, 0.0},
    {"CG2", "C", {0, 1, 4}, 1, 1.521, 110.5, -123.0},
    {"CD1", "C", {1, 4, 5}, 2, 1.513, 113.8, 0.0},
};
static const fm_ideal_atom side_leu[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6},
    {"CG", "C", {0, 1, 4}, 1, 1.530, 116.3, 0.0},
    {"CD1", "C", {1, 4, 5}, 2, 1.521, 110.7, 0.0},
    {"CD2", "C", {1, 4, 5}, 2, 1.521, 110.7, 122.5},
};
static const fm_ideal_atom side_lys[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6}, {"CG", "C", {0, 1, 4}, 1, 1.520, 114.1, 0.0},
    {"CD", "C", {1, 4, 5}, 2, 1.520, 111.3, 0.0},    {"CE", "C", {4, 5, 6}, 3, 1.520, 111.3, 0.0},
    {"NZ", "N", {5, 6, 7}, 4, 1.489, 111.9, 0.0},
};
static const fm_ideal_atom side_met[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6},
    {"CG", "C", {0, 1, 4}, 1, 1.520, 114.1, 0.0},
    {"SD", "S", {1, 4, 5}, 2, 1.803, 112.7, 0.0},
    {"CE", "C", {4, 5, 6}, 3, 1.791, 100.9, 0.0},
};
static const fm_ideal_atom side_phe[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6},
    {"CG", "C", {0, 1, 4}, 1, 1.502, 113.8, 0.0},
    {"CD1", "C", {1, 4, 5}, 2, 1.384, 120.7, 0.0},
    {"CD2", "C", {1, 4, 5}, 2, 1.384, 120.7, 180.0},
    {"CE1", "C", {4, 5, 6}, 0, 1.382, 120.7, 180.0},
    {"CE2", "C", {4, 5, 7}, 0, 1.382, 120.7, 180.0},
    {"CZ", "C", {5, 6, 8}, 0, 1.382, 120.0, 0.0},
};
static const fm_ideal_atom side_pro[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 103.0, -122.6},
    {"CG", "C", {0, 1, 4}, 1, 1.492, 104.5, 0.0},
    {"CD", "C", {1, 4, 5}, 2, 1.503, 106.1, 0.0},
};
static const fm_ideal_atom side_ser[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6},
    {"OG", "O", {0, 1, 4}, 1, 1.417, 111.1, 0.0},
};
static const fm_ideal_atom side_thr[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.540, 111.5, -123.0},
    {"OG1", "O", {0, 1, 4}, 1, 1.433, 109.6, 0.0},
    {"CG2", "C", {0, 1, 4}, 1, 1.521, 110.5, -121.0},
};
static const fm_ideal_atom side_trp[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6},
    {"CG", "C", {0, 1, 4}, 1, 1.498, 113.6, 0.0},
    {"CD1", "C", {1, 4, 5}, 2, 1.365, 126.9, 0.0},
    {"CD2", "C", {1, 4, 5}, 2, 1.433, 126.8, 180.0},
    {"NE1", "N", {4, 5, 6}, 0, 1.374, 110.2, 180.0},
    {"CE2", "C", {4, 5, 7}, 0, 1.409, 107.2, 180.0},
    {"CE3", "C", {4, 5, 7}, 0, 1.398, 133.9, 0.0},
    {"CZ2", "C", {5, 7, 9}, 0, 1.394, 122.4, 180.0},
    {"CZ3", "C", {5, 7, 10}, 0, 1.382, 118.6, 180.0},
    {"CH2", "C", {7, 9, 11}, 0, 1.368, 117.5, 0.0},
};
static const fm_ideal_atom side_tyr[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6},
    {"CG", "C", {0, 1, 4}, 1, 1.512, 113.9, 0.0},
    {"CD1", "C", {1, 4, 5}, 2, 1.389, 120.8, 0.0},
    {"CD2", "C", {1, 4, 5}, 2, 1.389, 120.8, 180.0},
    {"CE1", "C", {4, 5, 6}, 0, 1.382, 121.2, 180.0},
    {"CE2", "C", {4, 5, 7}, 0, 1.382, 121.2, 180.0},
    {"CZ", "C", {5, 6, 8}, 0, 1.378, 119.6, 0.0},
    {"OH", "O", {6, 8, 10}, 0, 1.376, 119.9, 180.0},
};
static const fm_ideal_atom side_val[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.540, 111.5, -123.0},
    {"CG1", "C", {0, 1, 4}, 1, 1.521, 110.5, 0.0},
    {"CG2", "C", {0, 1, 4}, 1, 1.521, 110.5, 122.5},
};
static const fm_ideal_atom side_mse[] = {
    {"CB", "C", {2, 0, 1}, 0, 1.530, 110.5, -122.6},
    {"CG", "C", {0, 1, 4}, 1, 1.520, 114.1, 0.0},
    {"SE", "SE", {1, 4, 5}, 2, 1.950, 112.7, 0.0},
    {"CE", "C", {4, 5, 6}, 3, 1.950, 98.9, 0.0},
};

static const fm_ideal_residue residues[FM_IDEAL_N_RESIDUE] = {
    {"ALA", 'A', 0, 1, {0}, side_ala},
    {"ARG", 'R', 4, 7, {FM_CHI_ROTAMER, FM_CHI_ROTAMER, FM_CHI_ROTAMER, FM_CHI_TRANS}, side_arg},
    {"ASN", 'N', 2, 4, {FM_CHI_ROTAMER, FM_CHI_AMIDE}, side_asn},
    {"ASP", 'D', 2, 4, {FM_CHI_ROTAMER, FM_CHI_AMIDE}, side_asp},
    {"CYS", 'C', 1, 2, {FM_CHI_ROTAMER}, side_cys},
    {"GLN", 'Q', 3, 5, {FM_CHI_ROTAMER, FM_CHI_ROTAMER, FM_CHI_AMIDE}, side_gln},
    {"GLU", 'E', 3, 5, {FM_CHI_ROTAMER, FM_CHI_ROTAMER, FM_CHI_AMIDE}, side_glu},
    {"GLY", 'G', 0, 0, {0}, NULL},
    {"HIS", 'H', 2, 6, {FM_CHI_ROTAMER, FM_CHI_RING}, side_his},
    {"ILE", 'I', 2, 4, {FM_CHI_ROTAMER, FM_CHI_ROTAMER}, side_ile},
    {"LEU", 'L', 2, 4, {FM_CHI_ROTAMER, FM_CHI_ROTAMER}, side_leu},
    {"LYS", 'K', 4, 5, {FM_CHI_ROTAMER, FM_CHI_ROTAMER, FM_CHI_ROTAMER, FM_CHI_ROTAMER}, side_lys},
    {"MET", 'M', 3, 4, {FM_CHI_ROTAMER, FM_CHI_ROTAMER, FM_CHI_ROTAMER}, side_met},
    {"PHE", 'F', 2, 7, {FM_CHI_ROTAMER, FM_CHI_RING}, side_phe},
    {"PRO", 'P', 2, 3, {FM_CHI_PUCKER, FM_CHI_PUCKER}, side_pro},
    {"SER", 'S', 1, 2, {FM_CHI_ROTAMER}, side_ser},
    {"THR", 'T', 1, 3, {FM_CHI_ROTAMER}, side_thr},
    {"TRP", 'W', 2, 10, {FM_CHI_ROTAMER, FM_CHI_RING}, side_trp},
    {"TYR", 'Y', 2, 8, {FM_CHI_ROTAMER, FM_CHI_RING}, side_tyr},
    {"VAL", 'V', 1, 3, {FM_CHI_ROTAMER}, side_val},
    {"MSE", 'M', 3, 4, {FM_CHI_ROTAMER, FM_CHI_ROTAMER, FM_CHI_ROTAMER}, side_mse},
};

const fm_ideal_residue *fm_ideal_residue_of(unsigned aatype) {
    assert(aatype < FM_IDEAL_N_RESIDUE);
    return &residues[aatype];
}
