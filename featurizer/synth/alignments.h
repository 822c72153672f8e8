/* alignments.h: the contents of a chain's alignment folder: template hits and names of rows. */
#ifndef FM_SYNTH_ALIGNMENTS_H
#define FM_SYNTH_ALIGNMENTS_H

#include "featurizer/synth/rows.h"

/* Writes the chain's pdb70_hits.hhr: the chain itself and the first chains of its family in earlier
 * entries, best first, and a few short hits to unrelated chains. */
FM_MUST_USE fm_status fm_synth_hhr(fm_arena *arena, const fm_synth_options *options,
                                   const fm_synth_entry *entry, uint32_t slot,
                                   const fm_synth_chain *chain, fm_bytes *ret_content,
                                   fm_error *reterr);

/* The longest name and the longest description of a row, in bytes. */
enum { FM_SYNTH_NAME_BYTES = 64, FM_SYNTH_DESCRIPTION_BYTES = 192 };

typedef struct fm_synth_row_name {
    char name[FM_SYNTH_NAME_BYTES];               /* "UniRef90_A0A2D4I8J5/3-84", no blanks */
    char description[FM_SYNTH_DESCRIPTION_BYTES]; /* the rest of the header */
} fm_synth_row_name;

/* Returns the name that `database` (one bit) gives to row `row` of the family. Names are unique
 * within a family and database. n_letter is the number of residues in the fragment. */
void fm_synth_name_row(uint64_t seed, uint32_t family, uint32_t row, unsigned database,
                       uint32_t n_letter, fm_synth_row_name *ret_name);

#endif
