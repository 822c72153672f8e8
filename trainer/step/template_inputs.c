/* template_inputs.c: see template_inputs.h. */
#include "trainer/step/template_inputs.h"

#include "proto/chem/atom14.h"
#include "proto/chem/torsions.h"
#include "trainer/ops/template.h"

#include <assert.h>
#include <string.h>

/* The first columns of the parts of a row. */
enum {
    ROW_ANGLES = FM_TEMPLATE_CLASSES,
    ROW_OTHER_ANGLES = ROW_ANGLES + 2 * FM_N_TORSION,
    ROW_MASKS = ROW_OTHER_ANGLES + 2 * FM_N_TORSION,
};
static_assert(ROW_MASKS + FM_N_TORSION == FM_TEMPLATE_ROW_FEATURES, "the row is full");

/* Clears the angles that are masked. */
static void clear_masked(const fm_torsions *torsions, size_t n_res) {
    for (size_t k = 0; k < n_res * FM_N_TORSION; k++) {
        if (torsions->torsion_angles_mask[k] > 0) continue;
        for (size_t part = 0; part < 2; part++) {
            torsions->torsion_angles_sin_cos[2 * k + part] = 0;
            torsions->alt_torsion_angles_sin_cos[2 * k + part] = 0;
        }
    }
}

static void fill_rows(const fm_atom37 *chain, const fm_torsions *torsions,
                      const fm_template_inputs *inputs) {
    for (size_t i = 0; i < chain->n_res; i++) {
        float *row = inputs->rows + i * FM_TEMPLATE_ROW_FEATURES;
        const float *mask = torsions->torsion_angles_mask + i * FM_N_TORSION;
        row[chain->aatype[i]] = 1;
        memcpy(row + ROW_ANGLES, torsions->torsion_angles_sin_cos + i * 2 * FM_N_TORSION,
               2 * FM_N_TORSION * sizeof *row);
        memcpy(row + ROW_OTHER_ANGLES, torsions->alt_torsion_angles_sin_cos + i * 2 * FM_N_TORSION,
               2 * FM_N_TORSION * sizeof *row);
        memcpy(row + ROW_MASKS, mask, FM_N_TORSION * sizeof *row);
        inputs->psi_mask[i] = mask[FM_TORSION_PSI];
        inputs->backbone_mask[i] = fm_atom37_present(chain, i, FM_ATOM37_N) &&
                                   fm_atom37_present(chain, i, FM_ATOM37_CA) &&
                                   fm_atom37_present(chain, i, FM_ATOM37_C);
    }
}

bool fm_template_make(const fm_features *f, uint32_t index, fm_compat compat, fm_arena *arena,
                      fm_template_inputs *ret_inputs) {
    assert(index < f->n_templ);
    enum { PER_RESIDUE = 3 + 1 + 1 + FM_TEMPLATE_ROW_FEATURES + 1, ANGLES = 5 * FM_N_TORSION };
    size_t n = f->n_res, first = (size_t)index * n;
    float *values = fm_arena_calloc(arena, n * (PER_RESIDUE + ANGLES), sizeof *values);
    uint8_t *mask = fm_arena_alloc_array(arena, n, FM_N_ATOM37);
    if (!values || !mask) return false;
    for (size_t k = 0; k < n * FM_N_ATOM37; k++)
        mask[k] = f->template_all_atom_mask[first + k / FM_N_ATOM37] >> k % FM_N_ATOM37 & 1;
    const fm_atom37 chain = {n, f->template_aatype + first,
                             f->template_all_atom_positions + first * (size_t)(FM_N_ATOM37 * 3),
                             mask};
    *ret_inputs = (fm_template_inputs){.pseudo_beta = values,
                                       .pseudo_beta_mask = values + 3 * n,
                                       .backbone_mask = values + 4 * n,
                                       .psi_mask = values + 5 * n,
                                       .rows = values + 6 * n};
    float *angles = values + n * PER_RESIDUE;
    const fm_torsions torsions = {.torsion_angles_sin_cos = angles,
                                  .alt_torsion_angles_sin_cos = angles + 2 * FM_N_TORSION * n,
                                  .torsion_angles_mask = angles + 4 * FM_N_TORSION * n};
    fm_atom14_pseudo_beta(&chain, ret_inputs->pseudo_beta, ret_inputs->pseudo_beta_mask);
    fm_torsions_list(&chain, &torsions);
    if (compat == FM_COMPAT_NONE) clear_masked(&torsions, n);
    fill_rows(&chain, &torsions, ret_inputs);
    return true;
}
