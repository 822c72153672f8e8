/* complex_features.c: see complex_features.h. */
#include "trainer/app/samples/complex_features.h"

#include "proto/base/plural.h"
#include "proto/complex_sample.h"
#include "trainer/step/af3/stored.h"

fm_status fm_complex_features_of(const fm_sample *sample, uint32_t n_cycle, fm_arena *arena,
                                 fm_af3_features *ret_features, fm_error *reterr) {
    fm_npz compact;
    if (n_cycle > sample->n_cycle) {
        return fm_fail(reterr, FM_ERR_PROTOCOL,
                       "the server sent a sample with %u recycling cycle%s, and its step has %u",
                       sample->n_cycle, fm_plural(sample->n_cycle), n_cycle);
    }
    uint32_t *first_row = fm_arena_alloc_array(arena, (size_t)n_cycle + 1, sizeof *first_row);
    if (!first_row) return fm_arena_full(arena, reterr);
    fm_status status = fm_complex_sample_list(sample, n_cycle, arena, &compact, first_row, reterr);
    if (!status) status = fm_stored_sample_check(&compact, arena, ret_features, reterr);
    if (status) return status;
    ret_features->n_cycle = n_cycle;
    ret_features->first_row = first_row;
    return FM_OK;
}
