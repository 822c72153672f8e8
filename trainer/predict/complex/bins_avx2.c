/* bins_avx2.c: see bins.h; compiled for 256-bit vectors. */
#define FM_BINS_TAKE fm_bins_take_avx2
#include "trainer/predict/complex/bins_body.h"
