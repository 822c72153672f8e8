/* msa_encode.c: turns letters into ids and counts the profile, in portable C. See msa.h. */
#include "featurizer/msa.h"
#include "proto/chem/residue.h"

static bool scalar_encode(uint8_t *cells, size_t n_cell) {
    bool known = true;
    for (size_t i = 0; i < n_cell; i++) {
        cells[i] = fm_hhblits_from_letter[cells[i]];
        known &= cells[i] != FM_HHBLITS_NONE;
    }
    return known;
}

static void scalar_count(const uint8_t *ids, size_t n_row, size_t n_res, uint32_t *profile) {
    for (size_t row = 0; row < n_row; row++) {
        for (size_t i = 0; i < n_res; i++)
            profile[i * FM_N_HHBLITS + ids[row * n_res + i]]++;
    }
}

const fm_msa_kernel fm_msa_scalar = {"scalar", scalar_encode, scalar_count};
