/* template_align.h: aligns a hit's letters with a chain that does not contain them exactly.
 *
 * The search database may hold another version of a chain than the structure's file, with a residue
 * more or fewer or with another letter. The two sequences are aligned globally with free end gaps:
 * BLOSUM62, 11 for the first residue of a gap and 1 for each further one (Gotoh 1982). Ties go to
 * the pair first, then to the gap in the hit, so the result depends on the letters alone. */
#ifndef FM_TEMPLATE_ALIGN_H
#define FM_TEMPLATE_ALIGN_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"

/* The largest alignment, in cells of one byte: 8,000 x 8,000 residues. */
#define FM_TEMPLATE_ALIGN_CELLS ((size_t)64 << 20)

/* place[i] is the residue of the chain, from 0, to which letter i of the hit corresponds; -1 means
 * none. */
typedef struct fm_template_alignment {
    int32_t *place;  /* [hit.size] */
    uint32_t n_same; /* pairs of equal letters */
} fm_template_alignment;

/* Aligns two non-empty sequences of letters A-Z. The result is in the arena. Returns FM_ERR_LIMIT
 * when there are more than FM_TEMPLATE_ALIGN_CELLS cells or the arena is full. */
FM_MUST_USE fm_status fm_template_align(fm_bytes hit, fm_bytes chain, fm_arena *arena,
                                        fm_template_alignment *ret_alignment, fm_error *reterr);

/* Builds the same value from two rows of an alignment with `n_column` columns and '-' at gaps, as
 * other programs write it. Returns FM_ERR_DATA unless the rows without their gaps are the two
 * sequences. */
FM_MUST_USE fm_status fm_template_alignment_of(fm_bytes hit, fm_bytes chain, const char *hit_row,
                                               const char *chain_row, size_t n_column,
                                               fm_arena *arena,
                                               fm_template_alignment *ret_alignment,
                                               fm_error *reterr);

#endif
