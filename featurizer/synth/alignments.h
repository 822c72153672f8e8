/* alignments.h: what the files of a chain's alignment folder are made of. */
#ifndef FM_SYNTH_ALIGNMENTS_H
#define FM_SYNTH_ALIGNMENTS_H

#include "featurizer/synth/rows.h"

/* pdb70_hits.hhr of the chain: itself, the first chains of its family in earlier entries, best
 * first, and a few short hits to strangers. */
FM_MUST_USE fm_status fm_synth_hhr(fm_arena *arena, const fm_synth_options *options,
                                   const fm_synth_entry *entry, uint32_t slot,
                                   const fm_synth_chain *chain, fm_bytes *ret_content,
                                   fm_error *reterr);

/* The longest header or description of one row, in bytes. */
enum { FM_SYNTH_NAME_BYTES = 64, FM_SYNTH_DESCRIPTION_BYTES = 192 };

typedef struct fm_synth_row_name {
    char name[FM_SYNTH_NAME_BYTES];               /* "UniRef90_A0A2D4I8J5/3-84", no blanks */
    char description[FM_SYNTH_DESCRIPTION_BYTES]; /* the rest of the header */
} fm_synth_row_name;

/* How `database` (one bit) calls row `row` of the family. Names are unique within a family and
 * database. n_letter: residues of the fragment. */
void fm_synth_name_row(uint64_t seed, uint32_t family, uint32_t row, unsigned database,
                       uint32_t n_letter, fm_synth_row_name *ret_name);

#endif
