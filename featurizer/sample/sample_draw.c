/* sample_draw.c: many draws at once, portable; the oracle of the other variants. See
 * sample_draw.h. */
#include "featurizer/sample/sample_draw.h"

void fm_sample_draw_fill_portable(const fm_sample_draw *draw, fm_sample_purpose purpose,
                                  uint32_t first_pair, size_t n_pair, uint64_t *ret_bits) {
    for (size_t p = 0; p < n_pair; p++)
        fm_sample_draw_pair(draw, purpose, first_pair + (uint32_t)p, ret_bits + 2 * p);
}

fm_sample_draw_fill_fn fm_sample_draw_fill_best(void) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl")) {
        return fm_sample_draw_fill_avx512;
    }
    return __builtin_cpu_supports("avx2") ? fm_sample_draw_fill_avx2 : fm_sample_draw_fill_portable;
}
