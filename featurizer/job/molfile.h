/* molfile.h: a molecule of an SDF or MOL file (V2000) as a component.
 *
 * Atoms are named by their element and their number among those of it: C1, C2, N1. Their positions
 * are the component's ideal ones, so the file must have them in three dimensions. */
#ifndef FM_JOB_MOLFILE_H
#define FM_JOB_MOLFILE_H

#include "featurizer/complex/components.h"

/* Reads the only molecule of the text, under that id. Everything is in the arena. Returns
 * FM_ERR_FORMAT with line and column, FM_ERR_UNSUPPORTED for V3000, two dimensions and further
 * molecules, and FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_molfile_parse(fm_bytes text, const char *id, fm_arena *arena,
                                       fm_component *ret_component, fm_error *reterr);

#endif
