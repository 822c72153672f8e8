/* bins.c: see bins.h; the variant for any processor. */
#define FM_BINS_TAKE fm_bins_take_any
#include "trainer/predict/complex/bins_body.h"

fm_bins_take *fm_bins_choose(void) {
    return __builtin_cpu_supports("avx2") ? fm_bins_take_avx2 : fm_bins_take_any;
}
