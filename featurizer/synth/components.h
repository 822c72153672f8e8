/* components.h: the dictionary of components of synthetic complexes: the amino acids, the
 * nucleotides, and a few ligands, ions and sugars. */
#ifndef FM_SYNTH_COMPONENTS_H
#define FM_SYNTH_COMPONENTS_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

/* Writes the dictionary as mmCIF text, in the arena, one data block for each component. Returns
 * FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_synth_components_text(fm_arena *arena, fm_bytes *ret_content,
                                               fm_error *reterr);

#endif
