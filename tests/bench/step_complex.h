/* step_complex.h: measures training steps of AlphaFold 3 for bench_step. */
#ifndef FM_TESTS_BENCH_STEP_COMPLEX_H
#define FM_TESTS_BENCH_STEP_COMPLEX_H

#include "tests/bench/bench_settings.h"
#include "trainer/app/settings/train_config.h"
#include "trainer/dist/meeting.h"

/* Times steps and prints what bench_step.c describes. A step has one sample of each group: all
 * cycles, rollout, confidence head, both backward passes, clip, Adam and moving average. `meeting`
 * is that of the ranks, or NULL. The options are valid; those that belong to AlphaFold2 alone are
 * FM_ERR_USAGE. */
FM_MUST_USE fm_status bench_step_complex(const settings *set, const fm_train_config *config,
                                         fm_meeting *meeting, fm_error *reterr);

#endif
