/* alignments.h: compares parsed alignments with the reference's arrays, for the golden tests:
 * letters are uint8 [N_seq, N_col], counts int32, strings joined by newlines. */
#ifndef FM_TESTS_ALIGNMENTS_H
#define FM_TESTS_ALIGNMENTS_H

#include "featurizer/msa.h"
#include "tests/testing/manifest.h"

/* Returns whether a parsed text, or a chain's features, has the array's key, shape and bytes; false
 * also for an unknown key. Memory is taken from the arena. */
bool fm_test_alignment_agrees(const fm_test_array *array, fm_bytes text,
                              const fm_alignment *alignment, fm_arena *arena);
bool fm_test_msa_agrees(const fm_test_array *array, const fm_part_msa *part, fm_arena *arena);

#endif
