/* fold.h: backbones from torsion angles, and the atoms of a residue on its backbone.
 *
 * A backbone grows from its N terminus residue by residue with ideal bond lengths and angles, so a
 * change of one torsion turns everything after it and nothing before. */
#ifndef FM_SYNTH_FOLD_H
#define FM_SYNTH_FOLD_H

#include "featurizer/synth/draw.h"
#include "proto/chem/geometry.h"
#include "proto/chem/ideal_geometry.h"

#include <stdint.h>

/* Degrees. omega is that of the peptide bond before the residue. */
typedef struct fm_synth_torsions {
    double omega, phi, psi;
} fm_synth_torsions;

typedef struct fm_synth_backbone {
    fm_vec3 n, ca, c;
} fm_synth_backbone;

/* Places residues [from, to) of `backbone` after those before `from` (residue 0 lies at the
 * origin). */
void fm_synth_backbone_extend(fm_synth_backbone *backbone, const fm_synth_torsions *torsions,
                              uint32_t from, uint32_t to);

/* Pairs of CA atoms with one in [from, to), the other before it, that are too close for two
 * residues: 4.5 Å, or 4.0 Å up to four residues apart (neighbours and second neighbours are not
 * looked at). */
uint32_t fm_synth_backbone_clashes(const fm_synth_backbone *backbone, uint32_t from, uint32_t to);

/* Chi angles for a residue type, degrees: a rotamer and a little spread. */
void fm_synth_draw_chi(fm_synth_draws *draws, unsigned aatype, double ret_chi[4]);

/* The residue's heavy atoms N CA C O CB ... into out[FM_IDEAL_MAX_ATOMS + 1]; `last` adds OXT.
 * Returns how many. psi places O (and OXT). */
uint32_t fm_synth_residue_atoms(unsigned aatype, const fm_synth_backbone *backbone, double psi,
                                const double chi[4], bool last, fm_vec3 *out);

#endif
