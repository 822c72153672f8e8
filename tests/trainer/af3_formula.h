/* af3_formula.h: the numbers of AlphaFold 3 runs of published width, which follow from the names
 * of the arrays, and the places of the stored samples. */
#ifndef FM_TESTS_TRAINER_AF3_FORMULA_H
#define FM_TESTS_TRAINER_AF3_FORMULA_H

#include "trainer/tensor/params.h"

/* FNV-1a of the text, and SplitMix64. */
uint64_t af3_name_hash(const char *text);
uint64_t af3_mix(uint64_t x);

/* u(i) in [-1, 1), of the array whose name has this hash. */
float af3_drawn(uint64_t hash, int64_t i);

/* Element i of a parameter; `hash` is that of its whole name. */
float af3_drawn_parameter(const fm_param *row, uint64_t hash, int64_t i);

/* Where sample j of an array of `count` elements is: the array itself where it has no more than
 * n_sample. */
int64_t af3_sample_place(uint64_t hash, int64_t j, int64_t count, int64_t n_sample);

#endif
