/* template_align.h: where a hit's letters lie in a chain that does not hold them exactly.
 *
 * The search database may have another version of a chain than the structure's file: a residue more
 * or fewer, or another letter. The two are aligned, with the ends of either free: BLOSUM62, 11 for
 * the first residue of a gap and 1 for each further one (Gotoh 1982). Ties go to the pair, then to
 * the gap in the hit, so the result is a function of the letters alone. */
#ifndef FM_TEMPLATE_ALIGN_H
#define FM_TEMPLATE_ALIGN_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"

/* Cells of one alignment: 8,000 x 8,000 residues. A cell is a byte. */
#define FM_TEMPLATE_ALIGN_CELLS ((size_t)64 << 20)

/* place[i]: residue of the chain, from 0, that letter i of the hit corresponds to, -1 = none. */
typedef struct fm_template_alignment {
    int32_t *place;  /* [hit.size] */
    uint32_t n_same; /* pairs of equal letters */
} fm_template_alignment;

/* Both of letters A-Z, neither empty. In the arena. FM_ERR_LIMIT when there are more cells than
 * allowed or the arena is full. */
FM_MUST_USE fm_status fm_template_align(fm_bytes hit, fm_bytes chain, fm_arena *arena,
                                        fm_template_alignment *ret_alignment, fm_error *reterr);

/* The same from two rows of an alignment of `n_column` columns with '-' at gaps, as other programs
 * write it. FM_ERR_DATA unless the rows are the two sequences with gaps. */
FM_MUST_USE fm_status fm_template_alignment_of(fm_bytes hit, fm_bytes chain, const char *hit_row,
                                               const char *chain_row, size_t n_column,
                                               fm_arena *arena,
                                               fm_template_alignment *ret_alignment,
                                               fm_error *reterr);

#endif
