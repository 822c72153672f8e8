/* af3_formula.h: the numbers of AlphaFold 3 runs of published width, which follow from the names
 * of the arrays, and the places of the stored samples. */
#ifndef FM_TESTS_TRAINER_AF3_FORMULA_H
#define FM_TESTS_TRAINER_AF3_FORMULA_H

#include "tests/trainer/common/name_draws.h"
#include "trainer/tensor/params.h"

#include <math.h>
#include <string.h>

/* u(i) in [-1, 1), of the array whose name has this hash. */
static inline float af3_drawn(uint64_t hash, int64_t i) {
    return (float)(splitmix(hash + (uint64_t)i) >> 40) * 0x1p-23f - 1.0f;
}

/* Element i of a parameter; `hash` is that of its whole name. */
static inline float af3_drawn_parameter(const fm_param *row, uint64_t hash, int64_t i) {
    float u = af3_drawn(hash, i);
    if (row->rank >= 2) return u * (float)(1.0 / sqrt((double)row->shape[1]));
    size_t n = strlen(row->name), m = strlen("weight");
    bool ends_in_weight = n >= m && !strcmp(row->name + n - m, "weight");
    float part = u * 0.1f;
    return ends_in_weight ? 1.0f + part : part;
}

/* Where sample j of an array of `count` elements is: the array itself where it has no more than
 * n_sample. */
static inline int64_t af3_sample_place(uint64_t hash, int64_t j, int64_t count, int64_t n_sample) {
    return count <= n_sample ? j : (int64_t)(splitmix(hash + (uint64_t)j) % (uint64_t)count);
}

#endif
