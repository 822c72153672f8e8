/* fold.h: builds backbones from torsion angles and places the atoms of a residue on its backbone.
 *
 * A backbone grows from its N terminus, residue by residue, with ideal bond lengths and angles. A
 * change of one torsion therefore turns everything after it and nothing before it. */
#ifndef FM_SYNTH_FOLD_H
#define FM_SYNTH_FOLD_H

#include "featurizer/synth/draw.h"
#include "proto/chem/geometry.h"
#include "proto/chem/ideal_geometry.h"

#include <stdint.h>

/* In degrees. omega belongs to the peptide bond before the residue. */
typedef struct fm_synth_torsions {
    double omega, phi, psi;
} fm_synth_torsions;

typedef struct fm_synth_backbone {
    fm_vec3 n, ca, c;
} fm_synth_backbone;

/* Places residues [from, to) of `backbone` after those before `from`. Residue 0 is at the
 * origin. */
void fm_synth_backbone_extend(fm_synth_backbone *backbone, const fm_synth_torsions *torsions,
                              uint32_t from, uint32_t to);

/* Counts the pairs of CA atoms that are too close. One is in [from, to), the other is before it.
 * They are closer than 4.5 Å, or than 4.0 Å when they are at most four residues apart.
 * Neighbours and second neighbours are ignored. */
uint32_t fm_synth_backbone_clashes(const fm_synth_backbone *backbone, uint32_t from, uint32_t to);

/* Draws chi angles for a residue type, in degrees: a rotamer and a little spread. */
void fm_synth_draw_chi(fm_synth_draws *draws, unsigned aatype, double ret_chi[4]);

/* Writes the residue's heavy atoms N CA C O CB ... into out[FM_IDEAL_MAX_ATOMS + 1] and returns
 * their number. `last` adds OXT. psi places O (and OXT). */
uint32_t fm_synth_residue_atoms(unsigned aatype, const fm_synth_backbone *backbone, double psi,
                                const double chi[4], bool last, fm_vec3 *out);

#endif
