/* complex_features.h: a made-up complex of a network's full shape, for benchmarks: one protein
 * chain whose CA atoms are a random walk, a full MSA and full templates. */
#ifndef FM_TESTS_BENCH_COMPLEX_FEATURES_H
#define FM_TESTS_BENCH_COMPLEX_FEATURES_H

#include "trainer/step/af3/features.h"

/* Makes the features in the arena, which must have room for them. Every cycle reads n_msa rows.
 * The numbers of cycles and of the slot are 1 and 0. `predicted`: as a prediction reads them, with
 * templates of atoms and without bonds of atoms. FM_ERR_LIMIT. */
FM_MUST_USE fm_status bench_make_complex(fm_arena *arena, const fm_af3_config *config,
                                         uint32_t most_cycles, bool predicted,
                                         fm_af3_features *ret_features, fm_error *reterr);

#endif
