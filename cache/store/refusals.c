/* refusals.c: see refusals.h. */
#include "cache/store/refusals.h"

fm_status fm_refusals_read(const char *cache, fm_arena *arena, fm_refusals *ret_refusals,
                           fm_error *reterr) {
    fm_generation generation;
    fm_status status = fm_generation_read(cache, FM_GENERATION_ALL, arena, &generation, reterr);
    if (!status) *ret_refusals = (fm_refusals){generation.n_refused, generation.refused};
    return status;
}
